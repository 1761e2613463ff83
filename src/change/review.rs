//! Reviews: merges with conflicts that are kept until they are resolved.
//!
//! Merging the same sides gives the same result. So a review records the sides, the conflicts and
//! their resolutions. Committing it repeats the merge and applies the resolutions. A resolution
//! whose conflict has other contents by then is not used.

mod conflicts;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::conflicts::parse;
pub use self::conflicts::{ConflictRecord, Rejected, ResolutionRecord, ResolvedHow, VersionRecord};
use super::ChangeError;
use super::branches::rename_in;
use super::merge::{FastForward, Tip, carry_along};
use super::resolver::VerdictKind;
use super::sequence::{self, NeededKind, RunOptions, Sequence, SequenceOutcome, SequenceRequest};
use tine_git::{CommitSpec, Identity, ObjectId, Repository, TreeChange, TreeEntryKind};
use tine_merge::conflict::without_what_is_beneath_files;
use tine_merge::{
    Conflict, Level, MergeInput, MergeOptions, MergeOutcome, MergeSide, Resolution, Strategy, merge,
};
use tine_path::text::{PathText, host_path};
use tine_path::{PathError, RepoPath};
use tine_store::RecordKind;
use tine_store::{ForkName, Store, StoreError};

/// Group under `refs/tine/`; not a valid fork name.
pub(super) const REFS: &str = "+reviews";

/// State of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReviewState {
    /// It has conflicts to resolve, or waits to be committed.
    Open,
    /// It became a commit.
    Committed,
    /// It was given up.
    Aborted,
}

/// Merge to be done, and its options.
///
/// Points are written with a prefix, so that they have one meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedMerge {
    /// Source of the merge, as a point.
    pub source: String,
    /// Target of the merge.
    pub into: String,
    /// Fork in question for snapshots and `pristine`; `None` without one.
    pub here: Option<ForkName>,
    /// Git directory in which revisions are resolved.
    #[serde(with = "host_path")]
    pub git_dir: std::path::PathBuf,
    /// Merge base, a commit or tree in hex; `None`: found in history.
    pub base: Option<String>,
    /// Level at which files are merged.
    pub level: Level,
    /// Strategy that settles conflicts without asking.
    pub strategy: Strategy,
    /// Rule for fast-forwards.
    pub fast_forward: FastForward,
    /// True to merge tips without a common ancestor.
    pub allow_unrelated: bool,
    /// True to delete the source fork after the merge.
    pub delete: bool,
    /// True if uncommitted changes of the source may go into a branch.
    ///
    /// Records of earlier versions lack the field; those versions allowed it.
    #[serde(default = "as_before")]
    pub with_uncommitted: bool,
    /// Message of the merge commit; `None` takes a default one.
    pub message: Option<String>,
}

/// Returns the value of `with_uncommitted` in records of earlier versions.
fn as_before() -> bool {
    true
}

impl ReviewedMerge {
    /// Returns the source as a merge message names it.
    ///
    /// This is used when the source is gone.
    pub fn source_in_words(&self) -> String {
        match self.source.split_once(':') {
            Some(("fork", fork)) => match fork.split_once('@') {
                Some((fork, snapshot)) => format!("snapshot '{snapshot}' of '{fork}'"),
                None => format!("fork '{fork}'"),
            },
            Some(("rev", branch)) => format!("branch '{branch}'"),
            _ => format!("'{}'", self.source),
        }
    }

    /// Returns the options for merging the trees.
    pub fn options(&self) -> MergeOptions {
        MergeOptions {
            level: self.level,
            strategy: self.strategy,
            ..MergeOptions::default()
        }
    }
}

/// Sequence under review, and the request that it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedWork {
    /// Request of the user.
    pub wish: SequenceRequest,
    /// Sequence that was planned for it.
    pub sequence: Sequence,
    /// Tree of the target's view when it was planned, in hex.
    ///
    /// `None` if the view does not matter.
    pub view: Option<String>,
}

/// Record of a review, one atomically replaced file of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewRecord {
    /// Number of the review.
    pub id: u64,
    /// Time of creation in seconds since 1970.
    pub created_secs: i64,
    /// State of the review.
    pub state: ReviewState,
    /// Merge that is reviewed.
    pub merge: ReviewedMerge,
    /// Sequence that is reviewed; `None` for a merge of a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Box<ReviewedWork>>,
    /// Commit of the target when it was planned, in hex.
    ///
    /// `None` on an unborn branch.
    pub ours_commit: Option<String>,
    /// Tree of the target's view with uncommitted changes, in hex.
    ///
    /// The changes are merged along and stay uncommitted. `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// Commit of the source when it was planned, in hex.
    ///
    /// `None` if the source is a bare tree.
    pub theirs_commit: Option<String>,
    /// Tree of the source when it was planned, in hex.
    pub theirs_tree: String,
    /// Conflicts, sorted by path.
    pub conflicts: Vec<ConflictRecord>,
    /// Verdict on the whole; `None` until there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Changes at other paths than the conflicts.
    #[serde(default)]
    pub amendments: Vec<Amendment>,
    /// Commit that the review became, in hex.
    pub commit: Option<String>,
    /// Short name of the branch that the target was on then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_on: Option<String>,
}

/// Sides of a merge, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides {
    /// Commit and tree of the target.
    pub ours: Tip,
    /// Tree of the target's view; `None` if nothing is uncommitted.
    pub view: Option<ObjectId>,
    /// Commit and tree of the source.
    pub theirs: Tip,
}

/// Outcome of applying resolutions.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Tree with the resolutions, without the open conflicts.
    pub tree_id: ObjectId,
    /// Conflicts without a resolution.
    pub open: Vec<ConflictRecord>,
    /// Conflicts with a resolution.
    pub resolved: Vec<ConflictRecord>,
}

/// Verdict on a merge as a whole, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Kind of the verdict.
    pub kind: VerdictKind,
    /// Command or resolver that gave it.
    pub by: String,
    /// Reason for the verdict; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Metadata of the resolver, as any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
}

/// Path that differs from the result of the merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amendment {
    /// Path of the change.
    pub path: PathText,
    /// New entry; `None`: the path is deleted.
    pub new: Option<VersionRecord>,
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) fn damaged(error: &dyn std::fmt::Display) -> ChangeError {
    ChangeError::Store(StoreError::Damaged {
        path: "a review".into(),
        reason: error.to_string(),
    })
}

impl ReviewRecord {
    /// Returns the conflict that a path belongs to.
    ///
    /// If several commits of a sequence conflict there, the last open conflict is returned, else
    /// the last one.
    pub fn conflict_at(&mut self, path: &PathText) -> Option<&mut ConflictRecord> {
        let is_meant =
            |conflict: &ConflictRecord| conflict.path == *path || conflict.paths.contains(path);
        let meant = |record: &ReviewRecord, is_open_only: bool| {
            record.conflicts.iter().rposition(|conflict| {
                is_meant(conflict) && !(is_open_only && conflict.resolution.is_some())
            })
        };
        let at = meant(self, true).or_else(|| meant(self, false))?;
        self.conflicts.get_mut(at)
    }

    /// Returns the sides that moved since the plan.
    ///
    /// Only the content of a source counts: uncommitted changes of a fork become another commit
    /// each time.
    pub fn moved(&self, sides: &Sides) -> Vec<MergeSide> {
        let ours_commit = sides.ours.commit_id.map(|id| id.to_string());
        let view = sides.view.map(|id| id.to_string());
        let theirs_tree = sides.theirs.tree_id.to_string();
        let mut moved = Vec::new();
        if self.ours_commit != ours_commit || self.view != view {
            moved.push(MergeSide::Ours);
        }
        if self.theirs_tree != theirs_tree {
            moved.push(MergeSide::Theirs);
        }
        moved
    }

    /// Replaces the planned sides and conflicts of the merge.
    ///
    /// Resolutions of unchanged conflicts stay.
    pub fn plan_again(&mut self, sides: &Sides, conflicts: &[ConflictRecord]) {
        self.ours_commit = sides.ours.commit_id.map(|id| id.to_string());
        self.view = sides.view.map(|id| id.to_string());
        self.theirs_commit = sides.theirs.commit_id.map(|id| id.to_string());
        self.theirs_tree = sides.theirs.tree_id.to_string();
        self.replace_conflicts(conflicts);
    }

    /// Returns whether this is the open review of a merge.
    ///
    /// The message is not compared.
    pub fn is_open_merge(&self, merge: &ReviewedMerge) -> bool {
        let same_message = ReviewedMerge {
            message: self.merge.message.clone(),
            ..merge.clone()
        };
        self.state == ReviewState::Open && self.work.is_none() && self.merge == same_message
    }

    /// Returns whether these are the conflicts of the review.
    ///
    /// They are if contents and paths are the same.
    pub fn has_conflicts(&self, conflicts: &[ConflictRecord]) -> bool {
        self.conflicts.len() == conflicts.len()
            && conflicts.iter().all(|conflict| {
                self.conflicts
                    .iter()
                    .any(|known| known.has_same_inputs(conflict))
            })
    }

    /// Replaces the conflicts with those of a sequence that was run.
    ///
    /// The sequence was run with the resolutions of this review.
    pub fn take_conflicts(&mut self, ran: &SequenceOutcome) {
        self.conflicts = ran.resolved.clone();
        if let Some(stopped) = &ran.stopped {
            self.conflicts.extend(stopped.conflicts.iter().cloned());
        }
    }

    /// Returns the number of conflicts without a resolution.
    pub fn open_conflicts(&self) -> usize {
        self.conflicts
            .iter()
            .filter(|conflict| conflict.resolution.is_none())
            .count()
    }

    /// Replaces the conflicts, and drops the verdict.
    ///
    /// Resolutions of unchanged conflicts stay.
    fn replace_conflicts(&mut self, conflicts: &[ConflictRecord]) {
        self.verdict = None;
        let old = std::mem::take(&mut self.conflicts);
        self.conflicts = conflicts.to_vec();
        for conflict in &mut self.conflicts {
            let same = old.iter().find(|old| old.has_same_inputs(conflict));
            conflict.resolution = same.and_then(|old| old.resolution.clone());
        }
    }

    /// Applies resolutions and amendments to a merge.
    ///
    /// Conflicts without a resolution, or with other contents, stay open.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged, [`ChangeError::Git`] if trees cannot be
    /// read or written.
    pub fn put_into(
        &self,
        repository: &Repository,
        mut outcome: MergeOutcome,
    ) -> Result<MergeOutcome, ChangeError> {
        let records = outcome.conflicts.iter().map(ConflictRecord::of).collect();
        let Resolved { tree_id, open, .. } = self.resolve(repository, outcome.tree_id, records)?;
        let is_open =
            |conflict: &Conflict| open.iter().any(|open| open.path == (&conflict.path).into());
        let (open, settled): (Vec<_>, Vec<_>) = outcome.conflicts.into_iter().partition(is_open);
        outcome.conflicts = open;
        outcome.settled.extend(settled);
        outcome.settled.sort_by(|a, b| a.path.cmp(&b.path));
        outcome.tree_id = self.amend(repository, tree_id)?;
        Ok(outcome)
    }

    /// Applies resolutions to a tree that leaves `conflicts` out.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged, [`ChangeError::Git`] if trees cannot be
    /// read or written.
    pub fn resolve(
        &self,
        repository: &Repository,
        tree_id: ObjectId,
        conflicts: Vec<ConflictRecord>,
    ) -> Result<Resolved, ChangeError> {
        let mut edits: Vec<TreeChange> = Vec::new();
        let (mut open, mut resolved) = (Vec::new(), Vec::new());
        for conflict in conflicts {
            let known = self
                .conflicts
                .iter()
                .find(|known| known.has_same_inputs(&conflict));
            match known.and_then(|known| known.resolution.as_ref()) {
                None => open.push(conflict),
                Some(resolution) => {
                    let versions = resolution
                        .versions
                        .iter()
                        .map(VersionRecord::version)
                        .collect::<Result<_, _>>()?;
                    edits.extend(conflict.conflict()?.edits(&Resolution::Versions(versions)));
                    resolved.push(ConflictRecord {
                        resolution: Some(resolution.clone()),
                        ..conflict
                    });
                }
            }
        }
        let edits = without_what_is_beneath_files(edits);
        Ok(Resolved {
            tree_id: repository.edit_tree(tree_id, &edits)?,
            open,
            resolved,
        })
    }

    /// Applies the amendments to a tree.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged, [`ChangeError::Git`] if trees cannot be
    /// read or written.
    pub fn amend(
        &self,
        repository: &Repository,
        tree_id: ObjectId,
    ) -> Result<ObjectId, ChangeError> {
        let mut edits = Vec::new();
        for amendment in &self.amendments {
            edits.push(TreeChange {
                path: parse(&amendment.path)?,
                new: match &amendment.new {
                    Some(new) => {
                        let new = new.version()?;
                        Some((new.kind, new.id))
                    }
                    None => None,
                },
            });
        }
        Ok(repository.edit_tree(tree_id, &edits)?)
    }

    /// Adds this to the store as a new review.
    ///
    /// Returns its number.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record cannot be written, [`ChangeError::Git`] if its objects
    /// cannot be kept.
    pub fn add(mut self, store: &Store, repository: &Repository) -> Result<u64, ChangeError> {
        let added = store.add_document(RecordKind::Reviews, |id| {
            self.id = id;
            self.keep_contents(repository, None)?;
            Ok::<_, ChangeError>(self)
        })?;
        Ok(added.id)
    }

    /// Returns whether a ref keeps the objects of the review.
    pub(super) fn is_kept(&self, repository: &Repository) -> Result<bool, ChangeError> {
        Ok(self.kept_commit(repository)?.is_some())
    }

    /// Returns the commit that keeps the objects of the review.
    ///
    /// `None` if no ref keeps them.
    ///
    /// # Errors
    /// [`ChangeError::Git`] if the ref cannot be read.
    pub fn kept_commit(&self, repository: &Repository) -> Result<Option<ObjectId>, ChangeError> {
        Ok(repository.kept_as(REFS, &self.id.to_string())?)
    }

    /// Writes the record, and keeps or releases its objects.
    ///
    /// The objects of the previous record are kept as well, since that record stays if the process
    /// dies in between.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record cannot be written, [`ChangeError::Git`] if its objects
    /// cannot be kept.
    pub fn save(&self, store: &Store, repository: &Repository) -> Result<(), ChangeError> {
        if self.state != ReviewState::Open {
            store.write_document(RecordKind::Reviews, self.id, self)?;
            return Ok(repository.release(REFS, &self.id.to_string())?);
        }
        let before: Option<ReviewRecord> = store.read_document(RecordKind::Reviews, self.id)?;
        self.keep_contents(repository, before.as_ref())?;
        store.write_document(RecordKind::Reviews, self.id, self)?;
        Ok(())
    }

    /// Keeps the objects of this record and `before` from `git gc`.
    ///
    /// One commit keeps them all.
    fn keep_contents(
        &self,
        repository: &Repository,
        before: Option<&ReviewRecord>,
    ) -> Result<(), ChangeError> {
        let records = || before.into_iter().chain([self]);
        let mut kept: BTreeMap<String, TreeChange> = BTreeMap::new();
        for version in records().flat_map(ReviewRecord::all_versions) {
            if version.kind == TreeEntryKind::Submodule {
                continue;
            }
            let id = version.version()?.id;
            kept.insert(
                version.id.clone(),
                TreeChange {
                    path: RepoPath::parse(version.id.as_bytes())
                        .map_err(|error: PathError| damaged(&error))?,
                    new: Some((TreeEntryKind::File, id)),
                },
            );
        }
        let mut commits: BTreeSet<&String> = records()
            .flat_map(|record| [&record.ours_commit, &record.theirs_commit])
            .flatten()
            .collect();
        let own_views =
            records().filter_map(|record| Some((NeededKind::Tree, record.view.as_ref()?)));
        let works = || records().filter_map(|record| record.work.as_deref());
        let views = works().filter_map(|work| Some((NeededKind::Tree, work.view.as_ref()?)));
        for (need, hex) in works()
            .flat_map(|work| work.sequence.needs())
            .chain(views)
            .chain(own_views)
        {
            let kind = match need {
                NeededKind::Commit => {
                    commits.insert(hex);
                    continue;
                }
                NeededKind::Tree => TreeEntryKind::Directory,
                NeededKind::Blob => TreeEntryKind::File,
            };
            let id = ObjectId::from_hex(hex.as_bytes()).map_err(|error| damaged(&error))?;
            let path =
                RepoPath::parse(hex.as_bytes()).map_err(|error: PathError| damaged(&error))?;
            kept.insert(
                hex.clone(),
                TreeChange {
                    path,
                    new: Some((kind, id)),
                },
            );
        }
        let edits: Vec<TreeChange> = kept.into_values().collect();
        repository.sync_blobs(edits.iter().filter_map(|edit| edit.new.map(|(_, id)| id)))?;
        let tree_id = repository.edit_tree(repository.empty_tree_id(), &edits)?;
        let parent_ids = commits
            .into_iter()
            .map(|hex| ObjectId::from_hex(hex.as_bytes()).map_err(|error| damaged(&error)))
            .collect::<Result<_, _>>()?;
        let commit_id = repository.write_commit(&CommitSpec {
            tree_id,
            parent_ids,
            message: format!("tine: what review {} needs\n", self.id).into(),
            author: Some(Identity::tine()),
            committer: Some(Identity::tine()),
        })?;
        Ok(repository.keep(REFS, &self.id.to_string(), commit_id)?)
    }

    /// Returns all entries that the record names.
    fn all_versions(&self) -> impl Iterator<Item = &VersionRecord> {
        let resolved = self
            .conflicts
            .iter()
            .filter_map(|conflict| conflict.resolution.as_ref())
            .flat_map(|resolution| &resolution.versions);
        let versions = self
            .conflicts
            .iter()
            .flat_map(|conflict| [&conflict.base, &conflict.ours, &conflict.theirs])
            .flatten();
        let amended = self
            .amendments
            .iter()
            .filter_map(|amendment| amendment.new.as_ref());
        versions.chain(resolved).chain(amended)
    }

    /// Returns the trees before and after the merge.
    ///
    /// The merge is repeated with the planned sides, and resolutions and amendments are applied.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged, [`ChangeError::Git`] if an object is
    /// missing.
    pub fn trees(
        &self,
        store: &Store,
        repository: &Repository,
    ) -> Result<(ObjectId, ObjectId), ChangeError> {
        let id = |hex: &String| ObjectId::from_hex(hex.as_bytes()).map_err(|error| damaged(&error));
        let ours = self.ours_commit.as_ref().map(id).transpose()?;
        let ours_tree = repository.tree_of(ours)?;
        let options = self.merge.options();
        if let Some(work) = &self.work {
            let view = work.view.as_ref().map(id).transpose()?;
            let ran = self.run_again(store, repository)?;
            return Ok((view.unwrap_or(ours_tree), ran.tree_id()));
        }
        let theirs = self.theirs_commit.as_ref().unwrap_or(&self.theirs_tree);
        let outcome = merge(
            repository,
            &MergeInput {
                base: self.merge.base.as_ref().map(id).transpose()?,
                ours: ours.unwrap_or(repository.empty_tree_id()),
                theirs: id(theirs)?,
                allow_unrelated: self.merge.allow_unrelated,
            },
            &options,
        )?;
        let merged = self.put_into(repository, outcome)?;
        let Some(view) = self.view.as_ref().map(id).transpose()? else {
            return Ok((ours_tree, merged.tree_id));
        };
        // Uncommitted changes are merged with everything that is resolved.
        let tip = |tree_id| Tip {
            commit_id: None,
            tree_id,
        };
        let outcome = carry_along(
            repository,
            tip(ours_tree),
            view,
            tip(merged.tree_id),
            &options,
        )?;
        let records = outcome
            .conflicts
            .iter()
            .map(ConflictRecord::of_uncommitted)
            .collect();
        Ok((
            view,
            self.resolve(repository, outcome.tree_id, records)?.tree_id,
        ))
    }

    /// Runs the sequence of this review on its planned sides.
    ///
    /// Resolutions are applied. tine is the author of the resulting commits, which no branch gets.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if this is not a review of a sequence or is damaged, and the errors
    /// of [`sequence::run`].
    pub fn run_again(
        &self,
        store: &Store,
        repository: &Repository,
    ) -> Result<SequenceOutcome, ChangeError> {
        let id = |hex: &String| ObjectId::from_hex(hex.as_bytes()).map_err(|error| damaged(&error));
        let Some(work) = &self.work else {
            return Err(damaged(&"it is no review of a sequence"));
        };
        let commit_id = self.ours_commit.as_ref().map(id).transpose()?;
        let tip = Tip {
            commit_id,
            tree_id: repository.tree_of(commit_id)?,
        };
        let view = work.view.as_ref().map(id).transpose()?;
        let options = RunOptions {
            merge: self.merge.options(),
            allow_unrelated: self.merge.allow_unrelated,
            author: Some(Identity::tine()),
            committer: Some(Identity::tine()),
            review: Some(self),
        };
        sequence::run(store, repository, &work.sequence, tip, view, &options)
    }

    /// Returns the trailers that describe the resolutions in a commit message.
    pub fn trailers(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for conflict in &self.conflicts {
            let Some(resolution) = &conflict.resolution else {
                continue;
            };
            let path = RepoPath::parse(conflict.path.to_bytes()).unwrap_or_default();
            let path = one_line(&path.to_string());
            lines.push(format!("Resolved: {path} by {}", one_line(&resolution.by)));
            if let Some(reasoning) = &resolution.reasoning {
                lines.push(format!(
                    "Resolution-reasoning: {path}: {}",
                    one_line(reasoning)
                ));
            }
            if let Some(metadata) = &resolution.metadata {
                lines.push(format!("Resolution-metadata: {path}: {metadata}"));
            }
        }
        if let Some(verdict) = &self.verdict {
            let word = verdict.kind.in_words();
            lines.push(format!("Reviewed: {word} by {}", one_line(&verdict.by)));
            if let Some(reasoning) = &verdict.reasoning {
                lines.push(format!("Review-reasoning: {}", one_line(reasoning)));
            }
            if let Some(metadata) = &verdict.metadata {
                lines.push(format!("Review-metadata: {metadata}"));
            }
        }
        lines.join("\n")
    }

    /// Renames a branch (short names) in the record.
    ///
    /// Returns whether the record named it.
    pub fn rename_branch(&mut self, old: &str, new: &str) -> bool {
        let merge = &mut self.merge;
        let upstream = self.work.as_mut().and_then(|work| match &mut work.wish {
            SequenceRequest::Update { from, .. } => from.as_mut(),
            _ => None,
        });
        let words = [&mut merge.into, &mut merge.source].into_iter();
        let words = words.chain(upstream).chain(&mut self.committed_on);
        words.fold(false, |is_renamed, word| {
            rename_in(word, old, new) | is_renamed
        })
    }

    /// Reads the review with a number.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchReview`], or [`ChangeError::Store`] if the record is damaged.
    pub fn load(store: &Store, id: u64) -> Result<ReviewRecord, ChangeError> {
        store
            .read_document(RecordKind::Reviews, id)?
            .ok_or(ChangeError::NoSuchReview(id))
    }
}
