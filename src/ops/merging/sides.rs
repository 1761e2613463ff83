//! Sides of a merge: resolves the words for sources, and reads the target and the sources.

use std::path::Path;

use super::Merging;
use crate::Merge;
use crate::failure::{ErrorCode, Failure};
use crate::locks::Guards;
use crate::points;
use crate::policy::work_message;
use crate::protocol::MergeTarget;
use crate::state::slots::Daemon;
use crate::target::{Holder, Target, fork_called, holder_of};
use tine_change::changeset::{self, Blobs};
use tine_change::commit::refuse_moved_under;
use tine_change::merge::Tip;
use tine_change::revert_guard::{RevertRecords, RevertSource, refuse_taking_back};
use tine_change::{ChangeError, Changeset, FoundPoint, Point, PointTree, branches, snapshots};
use tine_git::{CommitSpec, CommitTime, Identity, ObjectId, Repository};
use tine_path::RepoPath;
use tine_store::ForkName;

/// Number of paths that the message names. A program gets all of them.
const LISTED_PATHS: usize = 20;

/// Source as the request named it.
pub(super) struct Source {
    pub point: Point,
    /// Tree of the point. `Unwritten` for a fork's view or a snapshot.
    pub tree: PointTree,
    /// Other points that the word also names.
    pub others: Vec<Point>,
}

/// Commit to make of uncommitted changes.
pub(super) struct Uncommitted {
    head: Option<ObjectId>,
    message: String,
    /// Time of author and committer. `None` means that of the signers.
    time: Option<CommitTime>,
}

impl Merging<'_> {
    /// Returns the merge's target with its guard.
    pub(super) fn target<'t>(&'t self, guards: &'t Guards<'t>) -> Result<Target<'t>, Failure> {
        Ok(Target {
            daemon: self.daemon,
            by: self.by,
            repository: &self.repository,
            holder: &self.holder,
            guard: match &self.holder {
                Holder::Fork(fork) => Some(guards.get(fork)?),
                Holder::Branch(_) | Holder::Checkout(..) => None,
            },
        })
    }

    pub(super) fn target_tip(&self, guards: &Guards<'_>) -> Result<Tip, Failure> {
        self.target(guards)?.tip()
    }

    /// Returns the target fork's view tree, if it has uncommitted changes.
    pub(super) fn target_view(&self, guards: &Guards<'_>) -> Result<Option<ObjectId>, Failure> {
        let Holder::Fork(fork) = &self.holder else {
            return Ok(None);
        };
        let changeset =
            changeset::changeset(&self.repository, &*guards.get(fork)?.open()?, Blobs::Write)?;
        Ok(if changeset.changes.is_empty() {
            None
        } else {
            Some(changeset::write_tree(&self.repository, &changeset)?)
        })
    }

    pub(super) fn target_line(&self, guards: &Guards<'_>) -> Result<MergeTarget, Failure> {
        self.target(guards)?.line()
    }

    /// Returns the commit to merge of a source.
    ///
    /// Uncommitted changes of a fork or snapshot become a commit that no ref leads to yet. The
    /// second part is that commit.
    pub(super) fn source_tip(
        &self,
        guards: &Guards<'_>,
        source: &Source,
    ) -> Result<(Tip, Option<ObjectId>), Failure> {
        let (tip, uncommitted) = self.source_view(guards, source)?;
        let Some(uncommitted) = uncommitted else {
            return Ok((tip, None));
        };
        let Uncommitted {
            head,
            message,
            time,
        } = uncommitted;
        let at_that_time = |identity: &Option<Identity>| {
            identity.clone().map(|identity| Identity {
                time: time.or(identity.time),
                ..identity
            })
        };
        let commit_id = self.repository.write_commit(&CommitSpec {
            tree_id: tip.tree_id,
            parent_ids: head.into_iter().collect(),
            message: message.into(),
            author: at_that_time(&self.signers.author),
            committer: at_that_time(&self.signers.committer),
        })?;
        let tip = Tip {
            commit_id: Some(commit_id),
            ..tip
        };
        Ok((tip, Some(commit_id)))
    }

    /// Refuses a source's new commit that takes back others' commits.
    ///
    /// The target may lack those commits, so a comparison with it does not tell. `commit_id` is the
    /// commit of [`source_tip`](Self::source_tip).
    pub(super) fn refuse_work_that_takes_back(
        &self,
        source: &Source,
        commit_id: ObjectId,
    ) -> Result<(), Failure> {
        let commit = self.repository.commit_info(commit_id)?;
        refuse_taking_back(
            &self.repository,
            &RevertRecords::of(&self.daemon.store),
            commit.parent_ids.first().copied(),
            commit.tree_id,
            match &source.point {
                Point::Fork(fork) => RevertSource::Commit(fork),
                _ => RevertSource::Merge(None),
            },
        )?;
        Ok(())
    }

    /// Returns the tree to merge of a source.
    ///
    /// The second part describes the commit to make, if the tree is not committed.
    pub(super) fn source_view(
        &self,
        guards: &Guards<'_>,
        source: &Source,
    ) -> Result<(Tip, Option<Uncommitted>), Failure> {
        let store = &self.daemon.store;
        match (&source.point, source.tree) {
            // Uncommitted changes of the target are there already, and stay uncommitted.
            (Point::Fork(name), _) if matches!(&self.holder, Holder::Fork(target) if target == name) => {
                Ok((self.target_tip(guards)?, None))
            }
            (Point::Fork(name), _) => {
                let open = guards.get(name)?.open()?;
                refuse_moved_under(&self.repository, &open)?;
                let changeset = changeset::changeset(&self.repository, &open, Blobs::Write)?;
                if changeset.changes.is_empty() {
                    let tip = Tip {
                        commit_id: changeset.head_commit,
                        tree_id: changeset.head_tree,
                    };
                    return Ok((tip, None));
                }
                if !self.takes_uncommitted {
                    return Err(self.refused_uncommitted(guards, name, &changeset)?);
                }
                if let Some(operation) = open.worktree.operation_in_progress() {
                    return Err(ChangeError::OperationInProgress(operation).into());
                }
                let tip = Tip {
                    commit_id: None,
                    tree_id: changeset::write_tree(&self.repository, &changeset)?,
                };
                let uncommitted = Uncommitted {
                    head: changeset.head_commit,
                    message: work_message(name),
                    time: None,
                };
                Ok((tip, Some(uncommitted)))
            }
            (Point::SnapshotOf(fork, snapshot), _) => {
                let record = store.snapshot(fork, snapshot)?;
                let tree_id = snapshots::snapshot_tree(store, &self.repository, fork, &record)?;
                let head = snapshots::head_commit(fork, &record)?;
                if self.repository.tree_of(head)? == tree_id {
                    let tip = Tip {
                        commit_id: head,
                        tree_id,
                    };
                    return Ok((tip, None));
                }
                let tip = Tip {
                    commit_id: None,
                    tree_id,
                };
                let uncommitted = Uncommitted {
                    head,
                    message: format!("tine: {fork} as of {snapshot}"),
                    // With the same time, merging the snapshot again gives the same commit, which
                    // the target has.
                    time: Some(CommitTime {
                        secs: record.created_secs,
                        offset_secs: 0,
                    }),
                };
                Ok((tip, Some(uncommitted)))
            }
            (_, PointTree::Known { tree_id, commit_id }) => Ok((Tip { commit_id, tree_id }, None)),
            (point, PointTree::Unwritten) => Err(Failure::new(
                ErrorCode::Internal,
                format!("{point} has no tree"),
            )),
        }
    }

    /// Returns the refusal of uncommitted changes in a source.
    ///
    /// The merge takes them only on request.
    fn refused_uncommitted(
        &self,
        guards: &Guards<'_>,
        name: &ForkName,
        changeset: &Changeset,
    ) -> Result<Failure, Failure> {
        let paths: Vec<&RepoPath> = changeset
            .changes
            .iter()
            .map(|change| &change.path)
            .collect();
        let target = match self.target_line(guards)?.branch {
            Some(branch) => format!("the branch {branch}"),
            None => self.holder.to_string(),
        };
        let what = match paths.len() {
            1 => "1 path that is".to_owned(),
            count => format!("{count} paths that are"),
        };
        let failure = Failure::new(
            ErrorCode::UncommittedChanges,
            format!("{name} has {what} not committed, which would go into {target}"),
        )
        .hint(format!(
            "`tine commit {name} -m MESSAGE` commits them; with `--with-uncommitted` the merge does; nothing was changed"
        ));
        let named = paths
            .iter()
            .take(LISTED_PATHS)
            .fold(failure, |failure, path| failure.cause(path.to_string()));
        let named = match paths.len().saturating_sub(LISTED_PATHS) {
            0 => named,
            more => named.cause(format!("and {more} more")),
        };
        Ok(named.paths(paths))
    }

    pub(super) fn is_branch(&self, word: &str) -> bool {
        matches!(self.repository.branch(word), Ok(Some(_)))
    }
}

/// Resolves `word` to a source.
///
/// If there is a fork to refer to (the one the caller is in, or else the target), `word` may also
/// name its snapshots and its fork point.
pub(super) fn find_source(
    daemon: &Daemon,
    repository: &Repository,
    git_dir: &Path,
    request: &Merge,
    word: &str,
) -> Result<Source, Failure> {
    let context_fork = match (&request.here, &request.into) {
        (Some(here), _) => Some(here.clone()),
        (None, Some(into)) => fork_called(daemon, into),
        (None, None) => None,
    };
    let found = match &context_fork {
        Some(fork) => points::find(daemon, fork, word)?,
        None => points::find_anywhere(daemon, git_dir, word)?,
    };
    let FoundPoint {
        point,
        tree,
        others,
    } = found;
    Ok(match (point, context_fork) {
        // From here on the point says which fork the snapshot is of.
        (Point::Snapshot(snapshot), Some(fork)) => Source {
            point: Point::SnapshotOf(fork, snapshot),
            tree,
            others,
        },
        // A branch name means the branch in the caller's worktree.
        (Point::Revision(revision), _) => {
            let (tree_id, commit_id) = repository.resolve_tree(git_dir, &revision)?;
            Source {
                point: Point::Revision(revision),
                tree: PointTree::Known { tree_id, commit_id },
                others,
            }
        }
        (point, _) => Source {
            point,
            tree,
            others,
        },
    })
}

/// Returns the branch that a source came from.
pub(super) fn default_target(
    daemon: &Daemon,
    repository: &Repository,
    source: &Source,
) -> Result<Holder, Failure> {
    let fork = match &source.point {
        Point::Fork(fork) | Point::SnapshotOf(fork, _) => fork,
        _ => {
            return Err(Failure::new(ErrorCode::Usage, "no target is named")
                .hint("name a fork or branch: `--into TARGET`"));
        }
    };
    branches::follow(&daemon.store, repository)?;
    match daemon.store.record(fork)?.from_branch {
        Some(branch) => holder_of(daemon, repository, &branch),
        None => Err(Failure::new(
            ErrorCode::Usage,
            format!("{fork} began at a commit, and on no branch"),
        )
        .hint("name a fork or branch: `--into TARGET`")),
    }
}
