//! What is asked and answered about forks that travel through remotes.

use serde::{Deserialize, Serialize};

use super::AgentTexts;
use tine_path::text::PathText;
use tine_workspace::ForkName;

/// A state that was made. Sending it is the caller's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateMade {
    pub fork: ForkName,
    pub remote: String,
    pub name: ForkName,
    pub commit: String,
    pub tree: String,
    pub head_commit: Option<String>,
    /// Short name; `None` where HEAD is detached.
    pub branch: Option<String>,
    pub base_commit: Option<String>,
    /// How many paths are uncommitted in it.
    pub uncommitted: usize,
    /// What git cannot hold.
    pub left_out: Vec<PathText>,
    /// Of each the commit that it stands on is in the state, and nothing of its own.
    pub submodules: Vec<PathText>,
    /// What of git's is under way in the fork, which the state does not tell.
    pub operation: Option<String>,
    /// What was brought in from open buffers first.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// A fork as it was last seen on a remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteFork {
    pub remote: String,
    pub name: ForkName,
}
