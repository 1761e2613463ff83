//! Reviews: merges with conflicts that are kept until they are resolved.
//!
//! Merging the same sides gives the same result. So a review records the sides, the conflicts and
//! their resolutions. Committing it repeats the merge and applies the resolutions. A resolution
//! whose conflict has other contents by then is not used.

mod conflicts;
mod replay;
mod stored;

use serde::{Deserialize, Serialize};

pub use self::conflicts::{
    ConflictRecord, Rejected, ResolutionKind, ResolutionRecord, VersionRecord,
};
pub use self::replay::Resolved;
pub(super) use self::stored::REFS;
use super::ChangeError;
use super::branches::rename_in;
use super::merge::{FastForward, Tip};
use super::resolver::VerdictKind;
use super::sequence::{Sequence, SequenceOutcome, SequenceRequest};
use tine_git::ObjectId;
use tine_merge::{Level, MergeOptions, MergeSide, Strategy};
use tine_path::RepoPath;
use tine_path::text::{PathText, host_path};
use tine_store::{ForkName, StoreError};

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
    #[serde(rename = "wish")]
    pub request: SequenceRequest,
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

pub(super) fn parse_id(hex: &str) -> Result<ObjectId, ChangeError> {
    ObjectId::from_hex(hex.as_bytes()).map_err(|error| damaged(&error))
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
        let upstream = self.work.as_mut().and_then(|work| match &mut work.request {
            SequenceRequest::Update { from, .. } => from.as_mut(),
            _ => None,
        });
        let words = [&mut merge.into, &mut merge.source].into_iter();
        let words = words.chain(upstream).chain(&mut self.committed_on);
        words.fold(false, |is_renamed, word| {
            rename_in(word, old, new) | is_renamed
        })
    }
}
