//! Files that editors have open.
//!
//! An editor outlives a daemon. The next daemon has no buffer for the file until the editor opens
//! it again, and what agents had of the file is gone with the last daemon. A whole text of an agent
//! would then replace what the person has saved since the agent read the file. So such a text is
//! refused, as for an open buffer, until the agent has read what the file holds. A note ends with
//! the process of its editor.

use serde::{Deserialize, Serialize};

use super::notes::Note;
use super::{BufferKey, Buffers};
use tine_path::RepoPath;
use tine_path::text::repo_path;
use tine_store::{ForkName, RecordKind, Store, StoreError};
use tine_sys::process::ProcessId;

/// One open file, `<store>/open-files/<n>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenFile {
    id: u64,
    /// Fork of the file. None is the main checkout.
    fork: Option<ForkName>,
    #[serde(with = "repo_path")]
    path: RepoPath,
    /// Process of the editor.
    pub editor: ProcessId,
}

impl OpenFile {
    pub(super) fn new(id: u64, key: &BufferKey, editor: ProcessId) -> OpenFile {
        OpenFile {
            id,
            fork: key.fork.clone(),
            path: key.path.clone(),
            editor,
        }
    }
}

impl Note for OpenFile {
    const SHELF: RecordKind = RecordKind::OpenFiles;
    type Key = BufferKey;

    fn id(&self) -> u64 {
        self.id
    }

    fn key(&self) -> BufferKey {
        BufferKey {
            fork: self.fork.clone(),
            path: self.path.clone(),
        }
    }

    fn fork(&self) -> Option<&ForkName> {
        self.fork.as_ref()
    }
}

impl Buffers {
    /// Records that an editor has the file open.
    ///
    /// The editor may outlive this daemon.
    ///
    /// # Errors
    /// [`StoreError`] if the record cannot be written.
    pub fn note_open(
        &self,
        store: &Store,
        key: &BufferKey,
        editor: ProcessId,
    ) -> Result<(), StoreError> {
        let mut files = self.files.lock();
        if files.get(key).is_some_and(|file| file.editor == editor) {
            return Ok(());
        }
        files.add(store, |id| OpenFile::new(id, key, editor))
    }

    /// Records that the editor has closed the file.
    pub fn note_closed(&self, store: &Store, key: &BufferKey) {
        self.files.lock().forget(store, key);
    }

    /// Returns whether an earlier daemon's editor still has the file open.
    ///
    /// Such an editor has not opened a buffer for it with this daemon yet.
    pub fn is_left_open(&self, key: &BufferKey) -> bool {
        self.files
            .lock()
            .get(key)
            .is_some_and(|file| file.editor.is_running())
    }
}
