//! Undo and redo of agents' writes to open buffers.

use std::sync::Arc;

use super::{AgentId, BufferKey, Buffers, State};
use tine_attr::Timestamp;
use tine_path::RepoPath;
use tine_store::{ForkName, Store, StoreError};
use tine_workspace::Direction;

/// Maximum number of writes to buffers that can be undone.
const MAX_WRITTEN: usize = 256;

/// One write of an agent to an open buffer, or its undo.
#[derive(Debug, Clone)]
pub struct BufferEdit {
    /// When it was written or undone.
    pub time: Timestamp,
    /// The buffer.
    pub key: BufferKey,
    agent: AgentId,
    before: Arc<str>,
    after: Arc<str>,
}

impl State {
    /// Records a write, so that it can be undone.
    ///
    /// Undone writes to the fork can no longer be redone.
    pub(super) fn note_edit(
        &mut self,
        key: &BufferKey,
        agent: &AgentId,
        before: &Arc<str>,
        after: Arc<str>,
    ) {
        self.undone.retain(|edit| edit.key.fork != key.fork);
        self.written.push(BufferEdit {
            time: Timestamp::now(),
            key: key.clone(),
            agent: agent.clone(),
            before: before.clone(),
            after,
        });
        if self.written.len() > MAX_WRITTEN {
            self.written.remove(0);
        }
    }

    /// Forgets the buffer's writes, which can no longer be undone there.
    pub(super) fn forget_edits(&mut self, key: &BufferKey) {
        self.written.retain(|edit| edit.key != *key);
        self.undone.retain(|edit| edit.key != *key);
    }
}

impl Buffers {
    /// Returns the newest write that can be undone or redone.
    ///
    /// Only open buffers of the fork count, and only at or under `path` if it is given.
    pub fn newest_edit(
        &self,
        fork: &ForkName,
        path: Option<&RepoPath>,
        direction: Direction,
    ) -> Option<BufferEdit> {
        let state = self.state.lock();
        let edits = match direction {
            Direction::Undo => &state.written,
            Direction::Redo => &state.undone,
        };
        let is_meant = |edit: &&BufferEdit| {
            edit.key.fork.as_ref() == Some(fork)
                && path.is_none_or(|path| edit.key.path.starts_with(path))
        };
        edits.iter().rev().find(is_meant).cloned()
    }

    /// Undoes or redoes an edit from [`Buffers::newest_edit`].
    ///
    /// Returns false if the buffer is closed or later writes conflict with it.
    ///
    /// # Errors
    /// [`StoreError`] if the record cannot be updated; then the buffer stays unchanged.
    pub fn take_back(
        &self,
        store: &Store,
        edit: &BufferEdit,
        direction: Direction,
    ) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(open) = state.open.get_mut(&edit.key) else {
            return Ok(false);
        };
        let (from, to) = match direction {
            Direction::Undo => (&edit.after, &edit.before),
            Direction::Redo => (&edit.before, &edit.after),
        };
        if !open.buffer.fits(&edit.agent, from, to) {
            return Ok(false);
        }
        open.write(store, &edit.key, &edit.agent, from, to.clone())?;
        let (edits, others) = match direction {
            Direction::Undo => (&mut state.written, &mut state.undone),
            Direction::Redo => (&mut state.undone, &mut state.written),
        };
        edits.retain(|other| (other.time, &other.key) != (edit.time, &edit.key));
        others.push(BufferEdit {
            time: Timestamp::now(),
            ..edit.clone()
        });
        state.advance(&edit.key);
        self.changed.notify_all();
        Ok(true)
    }
}
