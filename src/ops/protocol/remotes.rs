//! Requests and answers about forks that travel through remotes.

use serde::{Deserialize, Serialize};

use super::AgentTexts;
use tine_path::text::PathText;
use tine_store::ForkName;

/// Answer to [`MakeState`](crate::MakeState): a state that was made.
///
/// The caller sends it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateMade {
    /// Fork that the state is of.
    pub fork: ForkName,
    /// Remote to send it to.
    pub remote: String,
    /// Name of the fork on the remote.
    pub name: ForkName,
    /// Commit with the state, in hex.
    pub commit: String,
    /// Tree of the fork's view, in hex.
    pub tree: String,
    /// Commit of HEAD, in hex; `None` if unborn.
    pub head_commit: Option<String>,
    /// Branch of HEAD, as a short name; `None` if HEAD is detached.
    pub branch: Option<String>,
    /// Commit of the fork's base, in hex; `None` if unborn.
    pub base_commit: Option<String>,
    /// Number of uncommitted paths in the state.
    pub uncommitted: usize,
    /// Paths that git cannot hold.
    pub left_out: Vec<PathText>,
    /// Submodules; the state has only the commit id of each.
    pub submodules: Vec<PathText>,
    /// git operation in progress in the fork, such as `merge`.
    ///
    /// The state does not contain it.
    pub operation: Option<String>,
    /// Texts of agents that were written from open buffers first.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// Fork as it was last seen on a remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteFork {
    /// Name of the remote.
    pub remote: String,
    /// Name of the fork on the remote.
    pub name: ForkName,
}
