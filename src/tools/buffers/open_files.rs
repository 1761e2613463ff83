//! Files that editors have open, in the store: an editor outlives a daemon.
//!
//! The next daemon has no buffer there until the editor opens it anew, and what agents had of the file went with the last one. A whole text
//! of an agent's would replace what the person has saved since the agent read. So it is refused, as for an open buffer, until the agent
//! has read what the file holds. An entry ends with the process of its editor.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::BufferKey;
use crate::path::RepoPath;
use crate::path::text::repo_path;
use crate::sys::process::ProcessId;
use crate::workspace::store::Shelf;
use crate::workspace::{ForkName, Store, StoreError};

/// `<store>/open-files/<n>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenFile {
    id: u64,
    /// None: the main checkout.
    fork: Option<ForkName>,
    #[serde(with = "repo_path")]
    path: RepoPath,
    editor: ProcessId,
}

/// All of them, with the numbers of their records.
#[derive(Default)]
pub struct OpenFiles(BTreeMap<BufferKey, (ProcessId, u64)>);

impl OpenFiles {
    /// Reads what an earlier daemon noted.
    pub fn load(&mut self, store: &Store) -> Result<Vec<StoreError>, StoreError> {
        let (records, damaged) = store.documents::<OpenFile>(Shelf::OpenFiles)?;
        for record in records {
            let key = BufferKey {
                fork: record.fork,
                path: record.path,
            };
            self.0.insert(key, (record.editor, record.id));
        }
        self.remove(store, |_, editor| !editor.is_running());
        Ok(damaged)
    }

    /// Whether an editor that still runs has the file open, as far as this or an earlier daemon was told.
    pub fn has(&self, key: &BufferKey) -> bool {
        self.0.get(key).is_some_and(|(editor, _)| editor.is_running())
    }

    /// Whether anything is noted in the fork, or in the main checkout.
    pub fn is_in(&self, fork: Option<&ForkName>) -> bool {
        self.0.keys().any(|key| key.fork.as_ref() == fork)
    }

    /// Notes that the editor has the file open. It is in the store when this returns.
    pub fn add(&mut self, store: &Store, key: &BufferKey, editor: ProcessId) -> Result<(), StoreError> {
        if self.0.get(key).is_some_and(|(known, _)| *known == editor) {
            return Ok(());
        }
        let record = store.add_document::<_, StoreError>(Shelf::OpenFiles, |id| {
            Ok(OpenFile {
                id,
                fork: key.fork.clone(),
                path: key.path.clone(),
                editor,
            })
        })?;
        self.remove(store, |of, _| of == key);
        self.0.insert(key.clone(), (editor, record.id));
        Ok(())
    }

    /// Forgets those that `is_over` is true of. A record that cannot be removed makes agents read a file once more.
    pub fn remove(&mut self, store: &Store, is_over: impl Fn(&BufferKey, &ProcessId) -> bool) {
        self.0.retain(|key, (editor, id)| {
            if !is_over(key, editor) {
                return true;
            }
            if let Err(error) = store.remove_document(Shelf::OpenFiles, *id, None) {
                log::warn!("{error}");
            }
            false
        });
    }
}
