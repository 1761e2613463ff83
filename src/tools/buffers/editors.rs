//! Sessions of editors: their buffers, events and merges.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use super::agent_text::FileBefore;
use super::buffer::{Buffer, Favored};
use super::{
    BufferError, BufferEvent, BufferKey, BufferSide, Buffers, MergedBuffer, NewText, Open,
    PersonText, State, lines,
};
use tine_store::Store;

/// Maximum length of a text from an editor, in bytes.
pub const MAX_TEXT_BYTES: usize = 8 << 20;

impl Open {
    fn stale(&self, named: u64) -> BufferError {
        BufferError::Stale {
            path: self.name.clone(),
            version: self.buffer.version(),
            named,
        }
    }
}

impl State {
    /// Returns the buffer that this session has open under `name`.
    fn own(&mut self, session: u64, name: &Path) -> Result<(BufferKey, &mut Open), BufferError> {
        let mut all = self.open.iter_mut();
        let own = all.find(|(_, open)| open.session == session && open.name == name);
        own.map(|(key, open)| (key.clone(), open))
            .ok_or_else(|| BufferError::NoBuffer(name.to_owned()))
    }
}

impl Buffers {
    /// Begins the session of an editor and returns its id.
    pub fn attach(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_session += 1;
        let session = state.last_session;
        state.sessions.insert(session, VecDeque::new());
        session
    }

    /// Opens a buffer, or replaces its text, and returns its version.
    ///
    /// The version of a new buffer is higher than `after`.
    ///
    /// # Errors
    /// [`BufferError::Taken`] if another session has the file open, [`BufferError::NoSession`] if
    /// the session is unknown, and [`BufferError::TooLarge`].
    pub fn open(
        &self,
        session: u64,
        key: &BufferKey,
        name: &Path,
        PersonText { text, saved }: PersonText,
        after: Option<u64>,
    ) -> Result<u64, BufferError> {
        check_size(name, &text)?;
        let mut state = self.state.lock();
        if !state.sessions.contains_key(&session) {
            return Err(BufferError::NoSession(session));
        }
        let version = match state.open.get_mut(key) {
            Some(open) if open.session == session => {
                open.name = name.to_owned();
                if saved {
                    open.saved = Some(text.clone());
                }
                open.buffer.replace(text, saved);
                open.buffer.version()
            }
            Some(_) => return Err(BufferError::Taken(name.to_owned())),
            None => {
                let open = Open {
                    session,
                    name: name.to_owned(),
                    buffer: Buffer::new(
                        text.clone(),
                        saved,
                        after.map_or(0, |after| after.saturating_add(1)),
                    ),
                    record: None,
                    file: None,
                    saved: saved.then_some(text),
                };
                let version = open.buffer.version();
                state.open.insert(key.clone(), open);
                version
            }
        };
        state.advance(key);
        drop(state);
        self.announce(key);
        Ok(version)
    }

    /// Changes the person's text of version `base` and returns the next version.
    ///
    /// An editor that lost track may send a whole text without `base`.
    ///
    /// # Errors
    /// [`BufferError::Stale`] if the buffer is at another version, [`BufferError::BadPatch`],
    /// [`BufferError::TooLarge`], and [`BufferError::NoBuffer`].
    pub fn change(
        &self,
        session: u64,
        name: &Path,
        base: Option<u64>,
        new: NewText,
    ) -> Result<u64, BufferError> {
        let mut state = self.state.lock();
        let (key, open) = state.own(session, name)?;
        let version = open.buffer.version();
        if let Some(named) = base.filter(|base| *base != version) {
            return Err(open.stale(named));
        }
        let text = match new {
            NewText::Text(text) => text,
            NewText::Patches(patches) => {
                let bad = |reason| BufferError::BadPatch {
                    path: name.to_owned(),
                    reason,
                };
                if base.is_none() {
                    return Err(bad("the version that it is for is not named"));
                }
                lines::patched(&open.buffer.person().text, &patches).map_err(bad)?
            }
        };
        check_size(name, &text)?;
        open.buffer.change(text.into());
        let version = open.buffer.version();
        state.advance(&key);
        drop(state);
        self.announce(&key);
        Ok(version)
    }

    /// Records that the editor applied the pending edit; returns the next version.
    ///
    /// The edit was for the text of version `base`.
    ///
    /// # Errors
    /// [`BufferError::Stale`] if the buffer is at another version, [`BufferError::NotOffered`] if
    /// no edit is pending, and [`BufferError::NoBuffer`].
    pub fn applied(
        &self,
        store: &Store,
        session: u64,
        name: &Path,
        base: u64,
    ) -> Result<u64, BufferError> {
        let mut state = self.state.lock();
        let (key, open) = state.own(session, name)?;
        if open.buffer.version() != base {
            return Err(open.stale(base));
        }
        let Some(favored) = open.buffer.applied() else {
            return Err(BufferError::NotOffered(name.to_owned()));
        };
        // A merge that favored a side does not match the record any more.
        if favored == Favored::Yes
            && let Err(error) = open.write_record(store, &key)
        {
            log::warn!(
                "{}: what was merged could not be noted: {error}",
                name.display()
            );
        }
        let version = open.buffer.version();
        state.advance(&key);
        drop(state);
        self.announce(&key);
        Ok(version)
    }

    /// Records that the file holds the text of version `base`.
    ///
    /// # Errors
    /// [`BufferError::Stale`] if the buffer is at another version, and [`BufferError::NoBuffer`].
    pub fn saved(
        &self,
        store: &Store,
        session: u64,
        name: &Path,
        base: u64,
    ) -> Result<u64, BufferError> {
        let mut state = self.state.lock();
        let (key, open) = state.own(session, name)?;
        if open.buffer.version() != base {
            return Err(open.stale(base));
        }
        open.buffer.saved();
        open.saved = Some(open.buffer.person().text);
        open.file = Some(FileBefore {
            existed: true,
            text: open.saved.clone(),
        });
        self.unsaved
            .lock()
            .forget_all(store, |read| read.is_of(&key));
        // The record may stay. It says what the file has now, so merging it again changes nothing.
        if let Err(error) = open.write_record(store, &key) {
            log::warn!(
                "{}: what was saved could not be noted: {error}",
                name.display()
            );
        }
        drop(state);
        self.announce(&key);
        Ok(base)
    }

    /// Returns the file that the session's buffer of that name shows.
    ///
    /// # Errors
    /// [`BufferError::NoBuffer`] if the session has no such buffer.
    pub fn key_of(&self, session: u64, name: &Path) -> Result<BufferKey, BufferError> {
        Ok(self.state.lock().own(session, name)?.0)
    }

    /// Closes a buffer if that session has it open.
    ///
    /// Returns the id of the record with agents' writes, which the caller must merge into the file.
    pub fn close(&self, session: u64, key: &BufferKey) -> Option<u64> {
        let mut state = self.state.lock();
        if state.open.get(key)?.session != session {
            return None;
        }
        let open = state.open.remove(key)?;
        if let Some(events) = state.sessions.get_mut(&session) {
            events.retain(|event| event.path() != open.name);
        }
        state.forget_edits(key);
        drop(state);
        self.announce(key);
        open.record
    }

    /// Closes a buffer of any session and notifies its editor.
    ///
    /// Returns the same as [`Buffers::close`].
    pub fn end(&self, key: &BufferKey) -> Option<u64> {
        let mut state = self.state.lock();
        let open = state.open.remove(key)?;
        state.queue_event(open.session, BufferEvent::Closed { path: open.name });
        state.forget_edits(key);
        drop(state);
        self.announce(key);
        open.record
    }

    /// Returns the buffers that this session has open.
    pub fn of_session(&self, session: u64) -> Vec<BufferKey> {
        let state = self.state.lock();
        let open = state
            .open
            .iter()
            .filter(|(_, open)| open.session == session);
        open.map(|(key, _)| key.clone()).collect()
    }

    /// Ends a session whose buffers are closed.
    pub fn detach(&self, session: u64) {
        self.state.lock().sessions.remove(&session);
        self.changed.notify_all();
    }

    /// Wakes all waiters, because the daemon is stopping.
    pub fn wake(&self) {
        // With the lock taken once, a waiter is either notified or checks afterwards.
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Returns and removes the undelivered events of a session.
    ///
    /// Blocks until there is an event, until `deadline`, or until `keep_waiting` returns false.
    ///
    /// # Errors
    /// [`BufferError::NoSession`] if the session is unknown.
    pub fn events(
        &self,
        session: u64,
        deadline: Instant,
        keep_waiting: impl Fn() -> bool,
    ) -> Result<Vec<BufferEvent>, BufferError> {
        let mut state = self.state.lock();
        loop {
            let events = state
                .sessions
                .get_mut(&session)
                .ok_or(BufferError::NoSession(session))?;
            if !events.is_empty() || !keep_waiting() || Instant::now() >= deadline {
                return Ok(events.drain(..).collect());
            }
            self.changed.wait_until(&mut state, deadline);
        }
    }

    /// Merges agents' texts of a buffer into the person's text.
    ///
    /// Blocks until the editor has applied the merge, until `deadline`, or until `keep_waiting`
    /// returns false. `side` settles conflicts. Without it, conflicts are returned and nothing
    /// changes.
    ///
    /// # Errors
    /// [`BufferError::NoBuffer`] if no buffer is open at `key`, also if it is closed meanwhile.
    pub fn merge(
        &self,
        store: &Store,
        key: &BufferKey,
        name: &Path,
        side: Option<BufferSide>,
        deadline: Instant,
        keep_waiting: impl Fn() -> bool,
    ) -> Result<MergedBuffer, BufferError> {
        let mut state = self.state.lock();
        let mut merged = MergedBuffer::default();
        let mut is_first = true;
        loop {
            let open = state
                .open
                .get_mut(key)
                .ok_or_else(|| BufferError::NoBuffer(name.to_owned()))?;
            if !open.buffer.is_forked() {
                merged.pending = false;
                return Ok(merged);
            }
            let conflicts = open.buffer.conflicts();
            if !conflicts.is_empty() && side.is_none() {
                return Ok(MergedBuffer {
                    conflicts,
                    ..MergedBuffer::default()
                });
            }
            if is_first || !open.buffer.is_offered() {
                is_first = false;
                // Sent again even if offered before, because the editor may have missed it.
                let patches = open.buffer.offer(side);
                let event = BufferEvent::Edit {
                    path: open.name.clone(),
                    version: open.buffer.version(),
                    patches: patches.clone(),
                };
                let (session, is_offered) = (open.session, open.buffer.is_offered());
                // The person has all of it, or the person's side was favored. The record drops it.
                if !is_offered && let Err(error) = open.write_record(store, key) {
                    log::warn!(
                        "{}: what was settled could not be noted: {error}",
                        name.display()
                    );
                }
                merged.patches = patches;
                merged.pending = true;
                if is_offered {
                    state.queue_event(session, event);
                    self.changed.notify_all();
                }
                continue;
            }
            if !keep_waiting() || Instant::now() >= deadline {
                return Ok(merged);
            }
            self.changed.wait_until(&mut state, deadline);
        }
    }
}

fn check_size(name: &Path, text: &str) -> Result<(), BufferError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(BufferError::TooLarge(name.to_owned()));
    }
    Ok(())
}
