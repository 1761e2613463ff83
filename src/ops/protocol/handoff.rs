//! What is asked and answered about handoffs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{AgentTexts, ChangeLine, CommitLine};
use crate::failure::Failure;
use tine_change::handoff::HandoffRecord;
use tine_path::text::optional_host_path;

/// Handoffs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Handoffs {
    pub handoffs: Vec<HandoffInfo>,
    /// What is wrong with those that cannot be read.
    pub damaged: Vec<Failure>,
}

/// One handoff.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandoffInfo {
    #[serde(flatten)]
    pub record: HandoffRecord,
    /// The file, where it is ready.
    #[serde(with = "optional_host_path", default)]
    pub mailbox: Option<PathBuf>,
    /// What was brought in from open buffers first.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// A handoff with what is in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandoffShown {
    #[serde(flatten)]
    pub info: HandoffInfo,
    /// The commits that are patches in it, the oldest first. Of what was imported they have no ids.
    pub patches: Vec<PatchLine>,
    /// What lies before and after all of them; `None` where the commits are not known.
    pub old_tree: Option<String>,
    pub new_tree: Option<String>,
    pub changes: Vec<ChangeLine>,
}

/// One patch of a handoff.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PatchLine {
    pub commit: Option<String>,
    pub summary: String,
    pub author_name: String,
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

/// The answer to a delete.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandoffDeleted {
    pub id: u64,
    pub head_commit: Option<String>,
    /// A branch or tag that has its commits, if one does.
    pub kept_in: Option<String>,
    /// The entry of `tine recover` that brings them back, if nothing else has them.
    pub recover: Option<u64>,
}
