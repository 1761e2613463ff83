//! Reads and writes of agents.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::unsaved::UnsavedRead;
use super::{AgentId, BufferKey, Buffers, State};
use tine_store::{Store, StoreError};

/// Result of writing an agent's whole text to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferWritten {
    /// The text is in the store and in the agent's buffer fork.
    Written,
    /// Refused, because the text that the agent last had is unknown.
    Unread,
}

impl Buffers {
    /// Returns the agent's own text, or else the person's.
    ///
    /// Returns `None` if no buffer is open at `key`.
    pub fn text_for(&self, agent: &AgentId, key: &BufferKey) -> Option<Arc<str>> {
        let state = self.state.lock();
        Some(state.open.get(key)?.buffer.agent_sees(agent).clone())
    }

    /// Returns [`Buffers::text_for`] and records that the agent has it.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot record that the agent got an unsaved text.
    pub fn read(
        &self,
        store: &Store,
        agent: &AgentId,
        key: &BufferKey,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let state = self.state.lock();
        let Some(open) = state.open.get(key) else {
            return Ok(None);
        };
        if open.buffer.person().saved {
            self.note_read(store, agent, key);
        } else if !self.has_unsaved(agent, key) {
            self.unsaved
                .lock()
                .add(store, |id| UnsavedRead::new(id, key, agent))?;
        }
        let text = open.buffer.agent_sees(agent).clone();
        self.seen.lock().insert(agent, key, text.clone());
        Ok(Some(text))
    }

    /// Returns whether `text` is what the agent last had of the file.
    pub fn has_seen(&self, agent: &AgentId, key: &BufferKey, text: &str) -> bool {
        self.seen
            .lock()
            .get(agent, key)
            .is_some_and(|seen| *seen == *text)
    }

    /// Returns whether the agent's text of the file may contain unsaved changes.
    ///
    /// This matters for a file without an open buffer: the person may never have saved them.
    pub fn has_unsaved(&self, agent: &AgentId, key: &BufferKey) -> bool {
        self.unsaved
            .lock()
            .get(&(key.clone(), agent.clone()))
            .is_some()
    }

    /// Records that the agent read or wrote a file without a buffer.
    pub fn note_seen(&self, store: &Store, agent: &AgentId, key: &BufferKey, text: &str) {
        self.seen.lock().insert(agent, key, text.into());
        self.note_read(store, agent, key);
    }

    /// Records that the agent has read the saved text.
    pub fn note_read(&self, store: &Store, agent: &AgentId, key: &BufferKey) {
        let read = (key.clone(), agent.clone());
        self.unsaved.lock().forget(store, &read);
    }

    /// Records an agent's edit of a text that it did not get.
    ///
    /// The edit made `after` from `before`.
    pub fn note_edited(&self, agent: &AgentId, key: &BufferKey, before: &str, after: &str) {
        self.seen.lock().edit(agent, key, before, after);
    }

    /// Records that the file was removed, or moved to `to`.
    pub fn note_moved(&self, key: &BufferKey, to: Option<&BufferKey>) {
        self.seen.lock().rename(key, to);
    }

    /// Replaces the agent's text of the buffer.
    ///
    /// `file` reads the file. Returns `None` if no buffer is open at `key`.
    ///
    /// What the agent last had is the ancestor of the merge with the person's text: the agent did
    /// not remove what it never had. If that ancestor is unknown, nothing changes and the result is
    /// [`BufferWritten::Unread`], because a text older than the person's does not show what the
    /// agent removed.
    ///
    /// When this returns, the text is in the store. If it merges cleanly, it is also on its way to
    /// the editor.
    ///
    /// # Errors
    /// The error of `text`, or a [`StoreError`] if the text cannot be stored; then nothing changes.
    pub fn write<E: From<StoreError>>(
        &self,
        store: &Store,
        agent: &AgentId,
        key: &BufferKey,
        text: impl FnOnce() -> Result<String, E>,
        file: impl FnOnce() -> Option<String>,
    ) -> Option<Result<BufferWritten, E>> {
        let mut state = self.state.lock();
        let open = state.open.get_mut(key)?;
        let text: Arc<str> = match text() {
            Ok(text) => text.into(),
            Err(error) => return Some(Err(error)),
        };
        let seen = self.seen.lock().get(agent, key);
        let Some(base) = seen
            .or_else(|| Some(open.buffer.agent_sees(agent).clone()).filter(|sees| *sees == text))
        else {
            return Some(Ok(BufferWritten::Unread));
        };
        open.note_file_before(file);
        let written = self.write_step(state, store, agent, key, &base, text.clone());
        if written.is_ok() {
            self.seen.lock().insert(agent, key, text);
        }
        Some(written.map(|()| BufferWritten::Written).map_err(E::from))
    }

    /// Edits the text that the agent sees; otherwise the same as [`Buffers::write`].
    ///
    /// # Errors
    /// The error of `edit`, or a [`StoreError`] if the text cannot be stored; then nothing changes.
    pub fn edit<E: From<StoreError>>(
        &self,
        store: &Store,
        agent: &AgentId,
        key: &BufferKey,
        edit: impl FnOnce(&str) -> Result<String, E>,
        file: impl FnOnce() -> Option<String>,
    ) -> Option<Result<(), E>> {
        let mut state = self.state.lock();
        let open = state.open.get_mut(key)?;
        let before = open.buffer.agent_sees(agent).clone();
        let text = match edit(&before) {
            Ok(text) => text,
            Err(error) => return Some(Err(error)),
        };
        open.note_file_before(file);
        let written = self.write_step(state, store, agent, key, &before, text.as_str().into());
        if written.is_ok() {
            self.seen.lock().edit(agent, key, &before, &text);
        }
        Some(written.map_err(E::from))
    }

    /// Applies and stores an agent's step from `base` to `text`.
    fn write_step(
        &self,
        mut state: MutexGuard<'_, State>,
        store: &Store,
        agent: &AgentId,
        key: &BufferKey,
        base: &Arc<str>,
        text: Arc<str>,
    ) -> Result<(), StoreError> {
        let Some(open) = state.open.get_mut(key) else {
            return Ok(());
        };
        open.write(store, key, agent, base, text.clone())?;
        state.advance(key);
        if text != *base {
            state.note_edit(key, agent, base, text);
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }
}
