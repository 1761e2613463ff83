//! What is asked and answered about the work in a fork: changes, points, commits.

use serde::{Deserialize, Serialize};

use super::{AgentTexts, TreeInfo};
use crate::failure::Failure;
use tine_change::ChangeKind;
use tine_path::text::PathText;
use tine_workspace::ForkName;

/// The changes of a fork against HEAD.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Changes {
    /// What keeps the fork from taking changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Failure>,
    /// What git is in the middle of in the fork, as `merge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    pub fork: ForkName,
    pub branch: Option<String>,
    pub head_commit: Option<String>,
    pub head_tree: String,
    /// The tree of the view, where it was asked for.
    pub view_tree: Option<String>,
    pub changes: Vec<ChangeLine>,
    pub left_out: Vec<PathText>,
    /// Files whose newest text by an agent is in an open buffer only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_buffers: Vec<PathText>,
    /// The dependency trees that it carries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<TreeInfo>,
}

/// The difference between a fork's view and another point.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Difference {
    pub fork: ForkName,
    pub branch: Option<String>,
    pub head_commit: Option<String>,
    pub head_tree: String,
    /// The tree of the view.
    pub view_tree: String,
    /// The other point; `None`: HEAD.
    pub against: Option<PointInfo>,
    /// What `changes` lead from, and to: the other point's tree and the view's, or the other way
    /// round.
    pub old_tree: String,
    pub new_tree: String,
    pub changes: Vec<ChangeLine>,
    pub left_out: Vec<PathText>,
    /// Files whose newest text by an agent is in an open buffer only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_buffers: Vec<PathText>,
}

/// The answer to a revert.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reverted {
    pub fork: ForkName,
    pub to: PointInfo,
    /// From what it was to what it is.
    pub changes: Vec<ChangeLine>,
    /// Submodules whose repositories were left alone.
    pub left_alone: Vec<PathText>,
    /// The commits of others whose work the paths lack now; HEAD has them.
    #[serde(default)]
    pub left_out: Vec<CommitLine>,
    pub dry_run: bool,
}

/// What a word was taken for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PointInfo {
    pub kind: PointKind,
    /// With the prefix that leaves it no other meaning.
    pub point: String,
    pub tree: String,
    pub commit: Option<String>,
    /// What else the word means, likewise with prefixes.
    pub also: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointKind {
    Snapshot,
    Fork,
    Pristine,
    Revision,
}

/// One changed path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangeLine {
    pub path: PathText,
    pub kind: ChangeKindText,
    /// git's octal modes as text (`100644`), and blob ids in hex.
    pub old_mode: Option<String>,
    pub new_mode: Option<String>,
    pub old_id: Option<String>,
    pub new_id: Option<String>,
}

/// [`ChangeKind`] on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKindText {
    Added,
    Modified,
    Deleted,
    TypeChanged,
}

impl ChangeKindText {
    /// git's letter for it.
    pub fn letter(self) -> &'static str {
        match self {
            ChangeKindText::Added => "A",
            ChangeKindText::Modified => "M",
            ChangeKindText::Deleted => "D",
            ChangeKindText::TypeChanged => "T",
        }
    }
}

impl From<ChangeKind> for ChangeKindText {
    fn from(kind: ChangeKind) -> ChangeKindText {
        match kind {
            ChangeKind::Added => ChangeKindText::Added,
            ChangeKind::Modified => ChangeKindText::Modified,
            ChangeKind::Deleted => ChangeKindText::Deleted,
            ChangeKind::TypeChanged => ChangeKindText::TypeChanged,
        }
    }
}

/// The answer to a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Committed {
    pub fork: ForkName,
    pub branch: Option<String>,
    pub commit: String,
    pub tree: String,
    pub parent: Option<String>,
    pub summary: String,
    pub changes: Vec<ChangeLine>,
    pub left_out: Vec<PathText>,
    /// What was brought in from open buffers first.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// One commit of a log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommitLine {
    pub commit: String,
    pub summary: String,
    pub author_name: String,
    pub author_email: String,
    pub author_time_secs: i64,
}

/// Commits of a fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Commits {
    pub commits: Vec<CommitLine>,
}

/// Paths that changed, as git takes them: with all beneath those that end in a slash.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangedSince {
    /// Names this moment.
    pub token: String,
    pub paths: Vec<PathText>,
}
