//! Answers about the work in a fork: changes, points, commits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentTexts, RefusedChange, TreeInfo};
use crate::failure::Failure;
use tine_change::ChangeKind;
use tine_path::text::PathText;
use tine_store::ForkName;

/// Changes of a fork against HEAD.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Changes {
    /// Reason that the fork takes no changes, if it does not.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Failure>,
    /// True if programs in the fork are not trusted.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// Changes that the fork's mount refused since the daemon started, the newest first.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedChange>,
    /// git operation in progress in the fork, such as `merge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The fork.
    #[schemars(with = "String")]
    pub fork: ForkName,
    /// Short name of HEAD's branch; `None` if HEAD is detached.
    pub branch: Option<String>,
    /// Commit of HEAD, in hex; `None` if unborn.
    pub head_commit: Option<String>,
    /// Tree of HEAD, in hex.
    #[schemars(skip)]
    pub head_tree: String,
    /// Tree of the view, in hex, if the request asked for it.
    #[schemars(skip)]
    pub view_tree: Option<String>,
    /// Changes, sorted by path.
    #[schemars(skip)]
    pub changes: Vec<ChangeLine>,
    /// Paths that git cannot hold, though not ignored.
    pub left_out: Vec<PathText>,
    /// Files whose newest agent text is only in an open buffer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_buffers: Vec<PathText>,
    /// Dependency trees that the fork carries.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<TreeInfo>,
}

/// Difference between a fork's view and another point.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Difference {
    /// The fork.
    pub fork: ForkName,
    /// Short name of HEAD's branch; `None` if HEAD is detached.
    pub branch: Option<String>,
    /// Commit of HEAD, in hex; `None` if unborn.
    pub head_commit: Option<String>,
    /// Tree of HEAD, in hex.
    pub head_tree: String,
    /// Tree of the view, in hex.
    pub view_tree: String,
    /// The other point; `None` is HEAD.
    pub against: Option<PointInfo>,
    /// Tree that the changes start from, in hex.
    ///
    /// The two trees are that of the other point and that of the view, in either order.
    pub old_tree: String,
    /// Tree that the changes lead to, in hex.
    pub new_tree: String,
    /// Changes, sorted by path.
    pub changes: Vec<ChangeLine>,
    /// Paths that git cannot hold, though not ignored.
    pub left_out: Vec<PathText>,
    /// Files whose newest agent text is only in an open buffer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_buffers: Vec<PathText>,
}

/// Answer to a revert.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reverted {
    /// Fork that was changed.
    pub fork: ForkName,
    /// Point that the paths were set to.
    pub to: PointInfo,
    /// Changes that the revert made.
    pub changes: Vec<ChangeLine>,
    /// Submodules whose repositories were not changed.
    pub left_alone: Vec<PathText>,
    /// Commits of others whose work the paths now lack; HEAD has them.
    #[serde(default)]
    pub left_out: Vec<CommitLine>,
    /// True if nothing was changed because only the outcome was asked for.
    pub dry_run: bool,
}

/// Point that a word names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PointInfo {
    /// Kind of the point.
    pub kind: PointKind,
    /// The point with the prefix that makes it unambiguous.
    pub point: String,
    /// Tree of the point, in hex.
    pub tree: String,
    /// Commit of the point, in hex, if it has one.
    pub commit: Option<String>,
    /// Other points that the word means, with their prefixes.
    pub also: Vec<String>,
}

/// Kind of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointKind {
    /// A snapshot of a fork.
    Snapshot,
    /// A fork's view.
    Fork,
    /// The fork point.
    Pristine,
    /// A revision of git.
    Revision,
}

/// One changed path.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ChangeLine {
    /// The path, from the fork's root.
    pub path: PathText,
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Mode before, in git's octal form (`100644`).
    #[schemars(skip)]
    pub old_mode: Option<String>,
    /// Mode afterwards, in git's octal form.
    #[schemars(skip)]
    pub new_mode: Option<String>,
    /// Blob id before, in hex.
    #[schemars(skip)]
    pub old_id: Option<String>,
    /// Blob id afterwards, in hex.
    #[schemars(skip)]
    pub new_id: Option<String>,
}

/// Answer to a commit.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Committed {
    /// Fork whose changes were committed.
    #[schemars(with = "String")]
    pub fork: ForkName,
    /// Short name of the branch; `None` if HEAD is detached.
    pub branch: Option<String>,
    /// New commit, in hex.
    pub commit: String,
    /// Tree of the new commit, in hex.
    #[schemars(skip)]
    pub tree: String,
    /// Parent of the new commit, in hex; `None` for a first commit.
    pub parent: Option<String>,
    /// First line of the message.
    pub summary: String,
    /// Committed changes, sorted by path.
    #[schemars(skip)]
    pub changes: Vec<ChangeLine>,
    /// Paths that git cannot hold, though not ignored.
    pub left_out: Vec<PathText>,
    /// Texts of agents that were written from open buffers first.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// One commit of a log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CommitLine {
    /// Commit id, in hex.
    pub commit: String,
    /// First line of the message.
    pub summary: String,
    /// Name of the author.
    pub author_name: String,
    /// Mail address of the author.
    pub author_email: String,
    /// Author time in seconds since 1970.
    pub author_time_secs: i64,
}

/// Answer to a request for a fork's log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Commits {
    /// The commits, the newest first.
    pub commits: Vec<CommitLine>,
}

/// Paths that changed, for git's `core.fsmonitor`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangedSince {
    /// Token of the moment of this answer.
    pub token: String,
    /// Changed paths; one that ends in a slash includes everything under it.
    pub paths: Vec<PathText>,
}
