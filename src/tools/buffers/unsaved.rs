//! Which agents were given a text that its person had not saved.
//!
//! What such an agent writes next is merged with the person's text while the buffer is open. If the editor or the daemon is
//! gone by then, the whole text would go into the file with what the person never saved. So it is refused until the agent has
//! read the file. The records are in the store: they outlive a daemon that is killed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AgentId, BufferKey};
use crate::path::RepoPath;
use crate::path::text::repo_path;
use crate::workspace::store::Shelf;
use crate::workspace::{ForkName, Store, StoreError};

/// `<store>/unsaved-reads/<n>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsavedRead {
    id: u64,
    /// None: the main checkout.
    fork: Option<ForkName>,
    #[serde(with = "repo_path")]
    path: RepoPath,
    agent: AgentId,
}

/// All of them, with the numbers of their records.
#[derive(Default)]
pub struct UnsavedReads(BTreeMap<(BufferKey, AgentId), u64>);

impl UnsavedReads {
    /// Reads what an earlier daemon noted.
    pub fn load(&mut self, store: &Store) -> Result<Vec<StoreError>, StoreError> {
        let (records, damaged) = store.documents::<UnsavedRead>(Shelf::UnsavedReads)?;
        for record in records {
            let key = BufferKey {
                fork: record.fork,
                path: record.path,
            };
            self.0.insert((key, record.agent), record.id);
        }
        Ok(damaged)
    }

    pub fn has(&self, agent: &AgentId, key: &BufferKey) -> bool {
        self.0.contains_key(&(key.clone(), agent.clone()))
    }

    /// Whether anything is noted in the fork, or in the main checkout.
    pub fn is_in(&self, fork: Option<&ForkName>) -> bool {
        self.0.keys().any(|(key, _)| key.fork.as_ref() == fork)
    }

    /// Notes that the agent is about to get such a text. It is in the store when this returns.
    pub fn add(&mut self, store: &Store, agent: &AgentId, key: &BufferKey) -> Result<(), StoreError> {
        if self.has(agent, key) {
            return Ok(());
        }
        let record = store.add_document::<_, StoreError>(Shelf::UnsavedReads, |id| {
            Ok(UnsavedRead {
                id,
                fork: key.fork.clone(),
                path: key.path.clone(),
                agent: agent.clone(),
            })
        })?;
        self.0.insert((key.clone(), agent.clone()), record.id);
        Ok(())
    }

    /// Forgets those that `is_over` is true of. A record that cannot be removed makes an agent read a file once more.
    pub fn remove(&mut self, store: &Store, is_over: impl Fn(&BufferKey, &AgentId) -> bool) {
        self.0.retain(|(key, agent), id| {
            if !is_over(key, agent) {
                return true;
            }
            if let Err(error) = store.remove_document(Shelf::UnsavedReads, *id, None) {
                log::warn!("{error}");
            }
            false
        });
    }
}
