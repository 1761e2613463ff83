//! Plans a merge: its sources, its conflicts and its message.

use super::sides::Source;
use super::{Merging, PlannedSource, Planning, Position, contained, outdated};
use crate::failure::Failure;
use crate::locks::Guards;
use crate::operation::joined_message;
use crate::points::ResolvedPoint;
use crate::protocol::{AgentTexts, MergedSource, SourceOutcome};
use crate::reviews::sides as review_sides;
use tine_change::Point;
use tine_change::merge::{MergeSpec, Planned, Tip, carry_along, plan};
use tine_change::review::{ConflictRecord, ReviewRecord, Sides};
use tine_git::{CommitSpec, ObjectId};
use tine_merge::MergeOptions;

impl Merging<'_> {
    /// Returns the place of the target now.
    pub(super) fn position(&self, guards: &Guards<'_>) -> Result<Position, Failure> {
        Ok(Position {
            tip: self.target_tip(guards)?,
            view: self.target_view(guards)?,
        })
    }

    pub(super) fn options(&self) -> MergeOptions {
        MergeOptions {
            level: self.request.level,
            strategy: self.request.strategy,
            ..MergeOptions::default()
        }
    }

    /// Plans one source on top of `position`.
    ///
    /// `message` is the merge commit's message as a hook left it, and takes precedence.
    pub(super) fn plan_source(
        &self,
        guards: &Guards<'_>,
        source: &Source,
        position: Position,
        message: Option<&str>,
    ) -> Result<Planning, Failure> {
        let request = self.request;
        let ours = position.tip;
        let (theirs, made) = self.source_tip(guards, source)?;
        if let (Some(commit_id), false) = (made, request.allow_revert) {
            self.refuse_work_that_takes_back(source, commit_id)?;
        }
        // That of a snapshot is no commit of the fork.
        let uncommitted = match &source.point {
            Point::Fork(fork) => made.map(|commit_id| (fork.clone(), commit_id)),
            _ => None,
        };
        let spec = MergeSpec {
            base: match &request.base {
                Some(word) => Some(self.base_of(word)?),
                None => None,
            },
            options: self.options(),
            fast_forward: request.fast_forward(),
            allow_unrelated: request.allow_unrelated,
        };
        let mut line = MergedSource {
            source: (&ResolvedPoint {
                point: source.point.clone(),
                tree_id: theirs.tree_id,
                commit_id: theirs.commit_id,
                others: source.others.clone(),
            })
                .into(),
            how: SourceOutcome::Contained,
            commit: None,
            committed: uncommitted
                .as_ref()
                .map(|(_, commit_id)| commit_id.to_string()),
            uncommitted: self.request.dry_run && uncommitted.is_some(),
            settled: Vec::new(),
            deleted_fork: None,
            deleted_branch: None,
            not_deleted: None,
            agent_texts: AgentTexts::default(),
        };
        let mut next = position;
        let mut conflicts = Vec::new();
        let mut planned = plan(&self.repository, &ours, &theirs, &spec)?;
        if let Some(review) = self.review {
            let sides = Sides {
                ours,
                view: position.view,
                theirs,
            };
            let is_same = review.moved(&sides).is_empty();
            planned = match planned {
                Planned::Merged(outcome) if is_same => {
                    Planned::Merged(review.apply_to_merge(&self.repository, outcome)?)
                }
                // The conflicts are with uncommitted changes of the target.
                Planned::FastForward(commit_id) if is_same && review.view.is_some() => {
                    Planned::FastForward(commit_id)
                }
                Planned::Contained => return Err(contained(review)),
                _ => return Err(outdated(review)),
            };
        }
        match planned {
            Planned::Contained => {}
            Planned::FastForward(commit_id) => {
                line.how = SourceOutcome::FastForward;
                next.tip = Tip {
                    commit_id: Some(commit_id),
                    ..theirs
                };
            }
            Planned::Merged(outcome) if outcome.conflicts.is_empty() => {
                line.how = SourceOutcome::MergeCommit;
                line.settled = outcome.settled.iter().map(ConflictRecord::of).collect();
                next.tip = Tip {
                    tree_id: outcome.tree_id,
                    commit_id: Some(self.repository.write_commit(&CommitSpec {
                        tree_id: outcome.tree_id,
                        parent_ids: ours.commit_id.into_iter().chain(theirs.commit_id).collect(),
                        message: match message {
                            Some(message) => message.to_owned().into(),
                            None => self.message(guards, source, theirs)?.into(),
                        },
                        author: self.signers.author.clone(),
                        committer: self.signers.committer.clone(),
                    })?),
                };
            }
            Planned::Merged(outcome) => {
                line.how = SourceOutcome::Conflicts;
                line.settled = outcome.settled.iter().map(ConflictRecord::of).collect();
                conflicts = outcome.conflicts.iter().map(ConflictRecord::of).collect();
            }
        }
        if next != position
            && let Some(view) = position.view
        {
            let outcome = carry_along(&self.repository, ours, view, next.tip, &self.options())?;
            line.settled
                .extend(outcome.settled.iter().map(ConflictRecord::of_uncommitted));
            let records = outcome
                .conflicts
                .iter()
                .map(ConflictRecord::of_uncommitted)
                .collect();
            let (tree_id, open) = match self.review {
                Some(review) => {
                    let resolved = review.resolve(&self.repository, outcome.tree_id, records)?;
                    (resolved.tree_id, resolved.open)
                }
                None => (outcome.tree_id, records),
            };
            if open.is_empty() {
                next.view = Some(tree_id);
            } else {
                line.how = SourceOutcome::Conflicts;
                next = position;
                conflicts = open;
            }
        }
        if next != position {
            line.commit = next.tip.commit_id.map(|id| id.to_string());
        }
        Ok(Planning {
            source: PlannedSource {
                line,
                uncommitted,
                theirs,
            },
            next,
            conflicts,
        })
    }

    /// Returns the conflicts of the only source with the target.
    ///
    /// Conflicts with the target's uncommitted changes follow as soon as `review` resolves the
    /// others. `None` means that nothing would be merged, or that nothing conflicts.
    pub(super) fn find_conflicts(
        &self,
        guards: &Guards<'_>,
        source: &Source,
        review: &ReviewRecord,
    ) -> Result<(Sides, Option<Vec<ConflictRecord>>), Failure> {
        let position = self.position(guards)?;
        let (theirs, _) = self.source_tip(guards, source)?;
        let sides = Sides {
            ours: position.tip,
            view: position.view,
            theirs,
        };
        let spec = MergeSpec {
            base: match &self.request.base {
                Some(word) => Some(self.base_of(word)?),
                None => None,
            },
            options: self.options(),
            fast_forward: self.request.fast_forward(),
            allow_unrelated: self.request.allow_unrelated,
        };
        let (is_merge, mut conflicts, next) =
            match plan(&self.repository, &position.tip, &theirs, &spec)? {
                Planned::Contained => return Ok((sides, None)),
                Planned::FastForward(_) => (false, Vec::new(), Some(theirs.tree_id)),
                Planned::Merged(outcome) => {
                    let records: Vec<_> =
                        outcome.conflicts.iter().map(ConflictRecord::of).collect();
                    let resolved =
                        review.resolve(&self.repository, outcome.tree_id, records.clone())?;
                    let next = if resolved.open.is_empty() {
                        Some(review.amend(&self.repository, resolved.tree_id)?)
                    } else {
                        None
                    };
                    (true, records, next)
                }
            };
        if let (Some(view), Some(tree_id)) = (position.view, next) {
            let next = Tip {
                commit_id: None,
                tree_id,
            };
            let outcome = carry_along(&self.repository, position.tip, view, next, &self.options())?;
            conflicts.extend(outcome.conflicts.iter().map(ConflictRecord::of_uncommitted));
        }
        let is_open = is_merge || !conflicts.is_empty();
        Ok((sides, is_open.then_some(conflicts)))
    }

    pub(super) fn base_of(&self, word: &str) -> Result<ObjectId, Failure> {
        let (tree_id, commit_id) = self.repository.resolve_tree(self.git_dir, word)?;
        Ok(commit_id.unwrap_or(tree_id))
    }

    /// Returns the merge commit's message, with trailers for the resolutions.
    ///
    /// It is the requested one, or git's default.
    pub(super) fn message(
        &self,
        guards: &Guards<'_>,
        source: &Source,
        theirs: Tip,
    ) -> Result<String, Failure> {
        let message = match joined_message(&self.request.message) {
            Some(message) => message,
            None => self.default_message(guards, source, theirs)?,
        };
        Ok(match self.review.map(ReviewRecord::trailers) {
            Some(trailers) if !trailers.is_empty() => format!("{message}\n\n{trailers}\n"),
            _ => message,
        })
    }

    pub(super) fn default_message(
        &self,
        guards: &Guards<'_>,
        source: &Source,
        theirs: Tip,
    ) -> Result<String, Failure> {
        let kept = self
            .review
            .filter(|review| review_sides::kept_source(review) == source.point.to_string());
        let what = match &source.point {
            Point::Revision(_) if let Some(review) = kept => review.merge.source_in_words(),
            Point::Fork(fork) => format!("fork '{fork}'"),
            Point::SnapshotOf(fork, snapshot) => format!("snapshot '{snapshot}' of '{fork}'"),
            Point::Snapshot(snapshot) => format!("snapshot '{snapshot}'"),
            Point::Pristine => "the base".to_owned(),
            Point::Revision(revision) if self.is_branch(revision) => format!("branch '{revision}'"),
            Point::Revision(revision) => match theirs.commit_id {
                Some(_) => format!("commit '{revision}'"),
                None => format!("tree '{revision}'"),
            },
        };
        Ok(match self.target_line(guards)?.branch {
            // This is git's default of `merge.suppressDest`.
            Some(branch) if branch != "master" => format!("Merge {what} into {branch}"),
            _ => format!("Merge {what}"),
        })
    }
}
