//! Reviews: merges with conflicts that are kept, so that somebody can resolve them.
//!
//! A merge is the same whenever it is made of the same sides. So a review remembers what was to be
//! merged, what the conflicts were and what is to become of them; committing it makes the merge
//! once more and puts the resolutions in. One whose conflict has other contents by then is not
//! used.

mod conflicts;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::conflicts::parse;
pub use self::conflicts::{ConflictRecord, Rejected, ResolutionRecord, ResolvedHow, VersionRecord};
use super::ChangeError;
use super::branches::rename_in;
use super::merge::{FastForward, Tip, carry_along};
use super::resolver::VerdictKind;
use super::sequence::{self, NeededKind, Ran, RunOptions, Sequence, SequenceRequest};
use tine_git::{CommitSpec, Identity, ObjectId, Repository, TreeChange, TreeEntryKind};
use tine_merge::conflict::without_what_is_beneath_files;
use tine_merge::{
    Conflict, Level, MergeInput, MergeOptions, MergeOutcome, MergeSide, Resolution, Strategy, merge,
};
use tine_path::text::{PathText, host_path};
use tine_path::{PathError, RepoPath};
use tine_workspace::store::RecordKind;
use tine_workspace::{ForkName, Store, StoreError};

/// Beneath `refs/tine/`; no fork can be called so.
pub(super) const REFS: &str = "+reviews";

/// How a review stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReviewState {
    Open,
    Committed,
    Aborted,
}

/// What was to be merged, and how. Points are written so that they mean one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedMerge {
    pub source: String,
    pub into: String,
    /// The fork of whose snapshots and base is spoken.
    pub here: Option<ForkName>,
    /// Where revisions are understood.
    #[serde(with = "host_path")]
    pub git_dir: std::path::PathBuf,
    /// A commit or tree, in hex.
    pub base: Option<String>,
    pub level: Level,
    pub strategy: Strategy,
    pub fast_forward: FastForward,
    pub allow_unrelated: bool,
    pub delete: bool,
    /// What is uncommitted in the source may go into a branch. Earlier versions let it.
    #[serde(default = "as_before")]
    pub with_uncommitted: bool,
    pub message: Option<String>,
}

fn as_before() -> bool {
    true
}

impl ReviewedMerge {
    /// The source, which is gone, as the message of a merge has it.
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

    pub fn options(&self) -> MergeOptions {
        MergeOptions {
            level: self.level,
            strategy: self.strategy,
            ..MergeOptions::default()
        }
    }
}

/// A sequence that is reviewed, and what it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedWork {
    pub wish: SequenceRequest,
    pub sequence: Sequence,
    /// The target's view when it was planned: a tree, in hex. `None` where that does not count.
    pub view: Option<String>,
}

/// What the store remembers of a review: one atomically replaced file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewRecord {
    pub id: u64,
    /// Seconds since 1970.
    pub created_secs: i64,
    pub state: ReviewState,
    pub merge: ReviewedMerge,
    /// What is to be done where that is no merge of a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Box<ReviewedWork>>,
    /// The sides as they were when it was planned, in hex: the target's commit, and the source's
    /// commit and tree.
    pub ours_commit: Option<String>,
    /// The target's view, where something is uncommitted in it: a tree, in hex. It is merged along
    /// and stays uncommitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    pub theirs_commit: Option<String>,
    pub theirs_tree: String,
    /// Sorted by path.
    pub conflicts: Vec<ConflictRecord>,
    /// What was thought of the whole, when all was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Changes beside the conflicts.
    #[serde(default)]
    pub amendments: Vec<Amendment>,
    /// The commit that it became, in hex.
    pub commit: Option<String>,
    /// The branch that the target was on then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_on: Option<String>,
}

/// The sides of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides {
    pub ours: Tip,
    /// The target's view, where something is uncommitted in it: a tree.
    pub view: Option<ObjectId>,
    pub theirs: Tip,
}

/// What comes of resolutions.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub tree_id: ObjectId,
    pub open: Vec<ConflictRecord>,
    pub resolved: Vec<ConflictRecord>,
}

/// What somebody thought of a merge as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub kind: VerdictKind,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
}

/// A path that is to be otherwise than the merge has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amendment {
    pub path: PathText,
    /// `None`: nothing.
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
    /// The conflict of that path; any of the paths that it is about will do. Of several, in commits
    /// one after another, an open one, else the last.
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

    /// The sides that are no longer what was planned. Of a source only the content counts: what is
    /// uncommitted in a fork becomes another commit each time.
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

    /// Plans the merge anew, of these sides with these conflicts.
    pub fn plan_again(&mut self, sides: &Sides, conflicts: &[ConflictRecord]) {
        self.ours_commit = sides.ours.commit_id.map(|id| id.to_string());
        self.view = sides.view.map(|id| id.to_string());
        self.theirs_commit = sides.theirs.commit_id.map(|id| id.to_string());
        self.theirs_tree = sides.theirs.tree_id.to_string();
        self.replace_conflicts(conflicts);
    }

    /// Whether this is the open review of such a merge, whatever its message is.
    pub fn is_open_merge(&self, merge: &ReviewedMerge) -> bool {
        let same_message = ReviewedMerge {
            message: self.merge.message.clone(),
            ..merge.clone()
        };
        self.state == ReviewState::Open && self.work.is_none() && self.merge == same_message
    }

    /// Whether these are its conflicts, about the same contents at the same places.
    pub fn has_conflicts(&self, conflicts: &[ConflictRecord]) -> bool {
        self.conflicts.len() == conflicts.len()
            && conflicts.iter().all(|conflict| {
                self.conflicts
                    .iter()
                    .any(|known| known.has_same_inputs(conflict))
            })
    }

    /// Takes the conflicts of a sequence that was run with these resolutions in the place of those
    /// that were known.
    pub fn take_conflicts(&mut self, ran: &Ran) {
        self.conflicts = ran.resolved.clone();
        if let Some(stopped) = &ran.stopped {
            self.conflicts.extend(stopped.conflicts.iter().cloned());
        }
    }

    /// How many conflicts have no resolution.
    pub fn open_conflicts(&self) -> usize {
        self.conflicts
            .iter()
            .filter(|conflict| conflict.resolution.is_none())
            .count()
    }

    /// Puts other conflicts in the place of these; resolutions stay where the conflict is the same.
    /// Nothing is known of the whole any more.
    fn replace_conflicts(&mut self, conflicts: &[ConflictRecord]) {
        self.verdict = None;
        let old = std::mem::take(&mut self.conflicts);
        self.conflicts = conflicts.to_vec();
        for conflict in &mut self.conflicts {
            let same = old.iter().find(|old| old.has_same_inputs(conflict));
            conflict.resolution = same.and_then(|old| old.resolution.clone());
        }
    }

    /// Puts resolutions and amendments into a merge. Conflicts without a resolution, or with other
    /// contents, stay open.
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

    /// Puts resolutions into a tree that leaves `conflicts` out.
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

    /// Puts the changes beside the conflicts into a tree.
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

    /// Puts this on the shelf as a new review; its number.
    pub fn add(mut self, store: &Store, repository: &Repository) -> Result<u64, ChangeError> {
        let added = store.add_document(RecordKind::Reviews, |id| {
            self.id = id;
            self.keep_contents(repository, None)?;
            Ok::<_, ChangeError>(self)
        })?;
        Ok(added.id)
    }

    /// Whether a ref keeps what it needs.
    pub(super) fn is_kept(&self, repository: &Repository) -> Result<bool, ChangeError> {
        Ok(self.kept_commit(repository)?.is_some())
    }

    /// The commit that keeps what it needs, if a ref does.
    pub fn kept_commit(&self, repository: &Repository) -> Result<Option<ObjectId>, ChangeError> {
        Ok(repository.kept_as(REFS, &self.id.to_string())?)
    }

    /// Writes the record. What the record before it needs is kept from `git gc`, too: a process
    /// that dies in between leaves that.
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

    /// Keeps from `git gc` all that this review needs, and `before`, by one commit.
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

    /// All that it names of files.
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

    /// The trees that it leads from and to, made again of the sides as they were when it was
    /// planned, with resolutions and amendments.
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
        // What is uncommitted is merged with all that is resolved by now.
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

    /// Runs the sequence of this review again, of how things were when it was planned, with its
    /// resolutions. What it commits is signed by tine, and for nobody to see.
    pub fn run_again(&self, store: &Store, repository: &Repository) -> Result<Ran, ChangeError> {
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

    /// What a commit's message says of the resolutions, as trailers.
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

    /// Has it name a branch (short names) that was renamed; whether it named it.
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

    /// Reads a review.
    pub fn load(store: &Store, id: u64) -> Result<ReviewRecord, ChangeError> {
        store
            .read_document(RecordKind::Reviews, id)?
            .ok_or(ChangeError::NoSuchReview(id))
    }
}
