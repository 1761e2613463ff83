//! Agents that got a text its person had not saved.
//!
//! While the buffer is open, the next text of such an agent is merged with the person's text. If
//! the editor or the daemon is gone by then, the whole text would go into the file, with what the
//! person never saved. So it is refused until the agent has read the file. The records are in the
//! store, because they must outlive a daemon that is killed.

use serde::{Deserialize, Serialize};

use super::notes::Note;
use super::{AgentId, BufferKey};
use tine_path::RepoPath;
use tine_path::text::repo_path;
use tine_store::{ForkName, RecordKind};

/// One agent and file, `<store>/unsaved-reads/<n>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnsavedRead {
    id: u64,
    /// Fork of the file. None is the main checkout.
    fork: Option<ForkName>,
    #[serde(with = "repo_path")]
    path: RepoPath,
    agent: AgentId,
}

impl UnsavedRead {
    pub(super) fn new(id: u64, key: &BufferKey, agent: &AgentId) -> UnsavedRead {
        UnsavedRead {
            id,
            fork: key.fork.clone(),
            path: key.path.clone(),
            agent: agent.clone(),
        }
    }

    pub(super) fn is_of(&self, key: &BufferKey) -> bool {
        self.fork == key.fork && self.path == key.path
    }
}

impl Note for UnsavedRead {
    const SHELF: RecordKind = RecordKind::UnsavedReads;
    type Key = (BufferKey, AgentId);

    fn id(&self) -> u64 {
        self.id
    }

    fn key(&self) -> (BufferKey, AgentId) {
        let key = BufferKey {
            fork: self.fork.clone(),
            path: self.path.clone(),
        };
        (key, self.agent.clone())
    }

    fn fork(&self) -> Option<&ForkName> {
        self.fork.as_ref()
    }
}
