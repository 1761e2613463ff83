//! Agents' writes that the file contains while its buffer is open.

use super::agent_text::{AgentTextRecord, FileBefore};
use super::buffer::AgentEdit;
use super::{AgentId, BufferEvent, BufferKey, Buffers};
use tine_store::{Store, StoreError};

/// Agents' writes that a buffer forgot because the file contains them.
///
/// [`Buffers::unfiled_again`] restores them.
#[derive(Debug)]
pub struct Filed {
    merged: Vec<(AgentId, AgentEdit)>,
    file: Option<FileBefore>,
}

impl Buffers {
    /// Returns agents' steps in the buffer that the file lacks.
    pub fn unfiled(&self, key: &BufferKey) -> Option<AgentTextRecord> {
        let state = self.state.lock();
        let open = state.open.get(key)?;
        let steps = open.buffer.steps();
        let file = open.file.clone().unwrap_or_default();
        (!steps.is_empty())
            .then(|| AgentTextRecord::of(open.record.unwrap_or(0), key, &file, &steps))
    }

    /// Records that the file contains the steps of `record` marked in `fits`.
    ///
    /// If `notify`, the editor gets [`BufferEvent::Written`]. Returns the steps that the buffer
    /// forgets. Returns `None` if the buffer is closed or agents have written since.
    ///
    /// # Errors
    /// [`StoreError`] if the record cannot be updated; then the buffer stays unchanged.
    pub fn filed(
        &self,
        store: &Store,
        key: &BufferKey,
        record: &AgentTextRecord,
        fits: &[bool],
        notify: bool,
    ) -> Result<Option<Filed>, StoreError> {
        let mut state = self.state.lock();
        let Some(open) = state.open.get_mut(key) else {
            return Ok(None);
        };
        if !record.is_of(&open.buffer.steps()) {
            return Ok(None);
        }
        let before = open.buffer.clone();
        let filed = Filed {
            merged: open.buffer.mark_filed(fits),
            file: open.file.clone(),
        };
        open.file.get_or_insert_default().existed = true;
        if let Err(error) = open.write_record(store, key) {
            open.buffer = before;
            open.file = filed.file;
            return Err(error);
        }
        let (session, path) = (open.session, open.name.clone());
        if notify {
            state.queue_event(session, BufferEvent::Written { path });
        }
        // An operation of the fork contains them from here on.
        state.forget_edits(key);
        drop(state);
        self.changed.notify_all();
        Ok(Some(filed))
    }

    /// Reverts [`Buffers::filed`].
    ///
    /// # Errors
    /// [`StoreError`] if the record cannot be updated.
    pub fn unfiled_again(
        &self,
        store: &Store,
        key: &BufferKey,
        filed: Filed,
    ) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let Some(open) = state.open.get_mut(key) else {
            return Ok(());
        };
        open.buffer.unmark_filed(filed.merged);
        open.file = filed.file;
        open.write_record(store, key)
    }
}
