//! Answers about handoffs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentTexts, ChangeLine, CommitLine};
use crate::failure::Failure;
use tine_change::handoff::HandoffRecord;
use tine_path::text::{PathText, optional_host_path};

/// List of handoffs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Handoffs {
    /// Handoffs, in order of their numbers.
    pub handoffs: Vec<HandoffInfo>,
    /// Failures of handoffs that cannot be read.
    pub damaged: Vec<Failure>,
}

/// One handoff.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HandoffInfo {
    /// Record of the handoff.
    #[serde(flatten)]
    pub record: HandoffRecord,
    /// File with the mailbox, if it is ready.
    #[schemars(with = "Option<PathText>")]
    #[serde(with = "optional_host_path", default)]
    pub mailbox: Option<PathBuf>,
    /// Texts of agents that were written from open buffers first.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// Handoff with its patches and changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandoffShown {
    /// The handoff.
    #[serde(flatten)]
    pub info: HandoffInfo,
    /// Commits that are patches in it, the oldest first.
    ///
    /// Patches of an imported mailbox have no commit ids.
    pub patches: Vec<PatchLine>,
    /// Tree before all patches, in hex; `None` if the commits are unknown.
    pub old_tree: Option<String>,
    /// Tree after all patches, in hex; `None` if the commits are unknown.
    pub new_tree: Option<String>,
    /// Changes from `old_tree` to `new_tree`.
    pub changes: Vec<ChangeLine>,
}

/// One patch of a handoff.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PatchLine {
    /// Commit in hex; `None` for an imported mailbox.
    pub commit: Option<String>,
    /// First line of the commit message.
    pub summary: String,
    /// Name of the author.
    pub author_name: String,
    /// Mail address of the author.
    pub author_email: String,
}

impl From<CommitLine> for PatchLine {
    fn from(line: CommitLine) -> PatchLine {
        PatchLine {
            commit: Some(line.commit),
            summary: line.summary,
            author_name: line.author_name,
            author_email: line.author_email,
        }
    }
}

/// Answer to the deletion of a handoff.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandoffDeleted {
    /// Number of the handoff.
    pub id: u64,
    /// Commit of its last patch, in hex.
    pub head_commit: Option<String>,
    /// Branch or tag that contains its commits, if any.
    pub kept_in: Option<String>,
    /// Number of the `tine recover` entry that restores its commits.
    ///
    /// `None` if something else has them.
    pub recover: Option<u64>,
}
