//! Open buffers of editors, and what agents have written to them.
//!
//! ```text
//! editor ── open, change, save, close ──► Buffer: person's text ◄── merge ── agent's writes
//!    ▲                                       │                              │
//!    └────────── events: edit, conflict ─────┘      a record in the store ◄─┘
//! ```
//!
//! An agent reads the person's text until it writes. From then on it has its own text, a *buffer
//! fork*. A buffer fork is merged into the person's text at once if the merge is clean: the editor
//! gets the edit and reports when it has applied it. Every change of the person's text increments
//! the buffer's version. Both sides refuse an edit for another version, and the merge is repeated.
//!
//! What an agent wrote is in the store before the write is acknowledged. It stays there until the
//! person has saved a text that contains it. If the editor goes away first, it is merged into the
//! file ([`kept`]).

mod buffer;
pub mod kept;
mod lines;
mod notes;
mod open_files;
mod seen;
mod terms;
#[cfg(test)]
mod tests;
mod unsaved;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use self::buffer::{AgentEdit, Buffer, Favored, Progress};
use self::kept::{AgentTextRecord, FileBefore};
use self::notes::Notes;
use self::open_files::OpenFile;
use self::seen::SeenTexts;
pub use self::terms::{
    AgentId, BufferConflict, BufferError, BufferEvent, BufferKey, BufferSide, BufferState,
    MergedBuffer, NewText, PersonText, TextPatch,
};
use self::unsaved::UnsavedRead;
use tine_attr::Timestamp;
use tine_path::RepoPath;
use tine_store::RecordKind;
use tine_store::{ForkName, Store, StoreError};
use tine_sys::process::ProcessId;
use tine_workspace::Direction;

/// Maximum length of a text from an editor, in bytes.
pub const MAX_TEXT_BYTES: usize = 8 << 20;

/// Agents' writes that a buffer forgot because the file contains them.
///
/// [`Buffers::unfiled_again`] restores them.
#[derive(Debug)]
pub struct Filed {
    merged: Vec<(AgentId, AgentEdit)>,
    file: Option<FileBefore>,
}

/// Result of writing an agent's whole text to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferWritten {
    /// The text is in the store and in the agent's buffer fork.
    Written,
    /// Refused, because the text that the agent last had is unknown.
    Unread,
}

/// Callback for changes of a buffer's text, saved state or existence.
pub type BufferListener = Box<dyn Fn(&BufferKey) + Send + Sync>;

/// All open buffers of a daemon.
#[derive(Default)]
pub struct Buffers {
    /// Held while records are written and the file is read.
    state: Mutex<State>,
    /// Notified of new events, finished merges and [`Buffers::wake`].
    changed: Condvar,
    listener: RwLock<Option<BufferListener>>,
    /// Taken with or without `state`, and never held across I/O.
    seen: Mutex<SeenTexts>,
    /// Taken with or without `state`. Held while records of the store are written.
    unsaved: Mutex<Notes<UnsavedRead>>,
    /// Same rules as `unsaved`.
    files: Mutex<Notes<OpenFile>>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<BufferKey, Open>,
    /// Undelivered events of each session.
    sessions: BTreeMap<u64, VecDeque<BufferEvent>>,
    last_session: u64,
    /// Agents' writes to open buffers, oldest first.
    written: Vec<BufferEdit>,
    /// Writes that were undone, in the order of their undo.
    undone: Vec<BufferEdit>,
}

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

/// One open buffer and its owner.
struct Open {
    session: u64,
    name: PathBuf,
    buffer: Buffer,
    /// Id of the store record with agents' writes. None if there is none.
    record: Option<u64>,
    /// The file before the first write of an agent. None until then.
    file: Option<FileBefore>,
    /// Content of the file at the last open or save, if known.
    saved: Option<Arc<str>>,
}

impl Open {
    fn stale(&self, named: u64) -> BufferError {
        BufferError::Stale {
            path: self.name.clone(),
            version: self.buffer.version(),
            named,
        }
    }

    /// Writes agents' steps of the buffer to its record.
    fn keep(&mut self, store: &Store, key: &BufferKey) -> Result<(), StoreError> {
        let file = self.file.clone().unwrap_or_default();
        self.record = kept::write(store, self.record, key, &file, self.buffer.steps())?;
        Ok(())
    }

    /// Reads the file before an agent's first write.
    fn note_file_before(&mut self, file: impl FnOnce() -> Option<String>) {
        if self.record.is_none() {
            let text: Option<Arc<str>> = file().map(Into::into);
            self.file = Some(FileBefore {
                existed: text.is_some(),
                // A file that is gone now held nothing that only its person has.
                text: text.or_else(|| self.saved.clone()),
            });
        }
    }
}

impl State {
    /// Merges agents' texts where possible and queues the editor's event.
    fn advance(&mut self, key: &BufferKey) {
        let Some(open) = self.open.get_mut(key) else {
            return;
        };
        let path = open.name.clone();
        let version = open.buffer.version();
        let event = match open.buffer.progress() {
            Progress::Nothing => return,
            Progress::Offer(patches) => BufferEvent::Edit {
                path,
                version,
                patches,
            },
            Progress::Conflict(conflicts) => BufferEvent::Conflict {
                path,
                version,
                conflicts,
            },
        };
        self.queue_event(open_session(&self.open, key), event);
    }

    /// Queues an event, which replaces an undelivered one about the same buffer.
    fn queue_event(&mut self, session: u64, event: BufferEvent) {
        if let Some(events) = self.sessions.get_mut(&session) {
            events.retain(|earlier| !event.replaces(earlier));
            events.push_back(event);
        }
    }

    /// Forgets the buffer's writes, which can no longer be undone there.
    fn forget_edits(&mut self, key: &BufferKey) {
        self.written.retain(|edit| edit.key != *key);
        self.undone.retain(|edit| edit.key != *key);
    }

    /// Returns the buffer that this session has open under `name`.
    fn own(&mut self, session: u64, name: &Path) -> Result<(BufferKey, &mut Open), BufferError> {
        let mut all = self.open.iter_mut();
        let own = all.find(|(_, open)| open.session == session && open.name == name);
        own.map(|(key, open)| (key.clone(), open))
            .ok_or_else(|| BufferError::NoBuffer(name.to_owned()))
    }
}

fn open_session(open: &BTreeMap<BufferKey, Open>, key: &BufferKey) -> u64 {
    open.get(key).map_or(0, |open| open.session)
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
                .put(store, |id| UnsavedRead::new(id, key, agent))?;
        }
        let text = open.buffer.agent_sees(agent).clone();
        self.seen.lock().put(agent, key, text.clone());
        Ok(Some(text))
    }

    /// Loads earlier daemons' notes: unsaved texts that agents got, and open files.
    ///
    /// Returns the errors of damaged records.
    ///
    /// # Errors
    /// [`StoreError`] if the records cannot be listed.
    pub fn recover(&self, store: &Store) -> Result<Vec<StoreError>, StoreError> {
        let mut damaged = self.unsaved.lock().load(store)?;
        let mut files = self.files.lock();
        damaged.extend(files.load(store)?);
        files.forget_all(store, |file| !file.editor.is_running());
        Ok(damaged)
    }

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
        files.put(store, |id| OpenFile::new(id, key, editor))
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

    /// Returns whether agents' texts of files without a buffer may be refused.
    ///
    /// `fork` is the fork to look in; None is the main checkout.
    pub fn has_notes(&self, fork: Option<&ForkName>) -> bool {
        self.files.lock().is_in(fork) || self.unsaved.lock().is_in(fork)
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

    /// Forgets the records of a deleted fork.
    pub fn forget_fork(&self, store: &Store, fork: &ForkName) {
        self.unsaved.lock().forget_fork(store, fork);
        self.files.lock().forget_fork(store, fork);
    }

    /// Records that the agent read or wrote a file without a buffer.
    pub fn note_seen(&self, store: &Store, agent: &AgentId, key: &BufferKey, text: &str) {
        self.seen.lock().put(agent, key, text.into());
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
        let written = self.put(state, store, agent, key, &base, text.clone());
        if written.is_ok() {
            self.seen.lock().put(agent, key, text);
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
        let written = self.put(state, store, agent, key, &before, text.as_str().into());
        if written.is_ok() {
            self.seen.lock().edit(agent, key, &before, &text);
        }
        Some(written.map_err(E::from))
    }

    /// Applies and stores an agent's step from `base` to `text`.
    fn put(
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
        let before = open.buffer.clone();
        open.buffer.write(agent, base, text.clone());
        if let Err(error) = open.keep(store, key) {
            open.buffer = before;
            return Err(error);
        }
        state.advance(key);
        if text != *base {
            state.undone.retain(|edit| edit.key.fork != key.fork);
            state.written.push(BufferEdit {
                time: Timestamp::now(),
                key: key.clone(),
                agent: agent.clone(),
                before: base.clone(),
                after: text,
            });
            if state.written.len() > MAX_WRITTEN {
                state.written.remove(0);
            }
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

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
        if let Err(error) = open.keep(store, key) {
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
        open.keep(store, key)
    }

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
        let before = open.buffer.clone();
        if !open.buffer.fits(&edit.agent, from, to) {
            return Ok(false);
        }
        open.buffer.write(&edit.agent, from, to.clone());
        if let Err(error) = open.keep(store, &edit.key) {
            open.buffer = before;
            return Err(error);
        }
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

    /// Returns the open buffers of a fork, or of the main checkout.
    pub fn of(&self, fork: Option<&ForkName>) -> Vec<BufferKey> {
        let state = self.state.lock();
        let keys = state.open.keys().filter(|key| key.fork.as_ref() == fork);
        keys.cloned().collect()
    }

    /// Returns the person's text, if a buffer is open.
    pub fn person_text(&self, key: &BufferKey) -> Option<PersonText> {
        let state = self.state.lock();
        Some(state.open.get(key)?.buffer.person())
    }

    /// Sets the callback for changes of buffers.
    ///
    /// It is called after the person's text or its saved state changed, and after a buffer was
    /// opened or closed. It may read buffers. It must not open, change or close one.
    pub fn set_listener(&self, listener: BufferListener) {
        *self.listener.write() = Some(listener);
    }

    fn announce(&self, key: &BufferKey) {
        self.changed.notify_all();
        if let Some(listener) = &*self.listener.read() {
            listener(key);
        }
    }

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
            && let Err(error) = open.keep(store, &key)
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
        if let Err(error) = open.keep(store, &key) {
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
                if !is_offered && let Err(error) = open.keep(store, key) {
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

    /// Returns the states of all open buffers.
    pub fn states(&self) -> Vec<BufferState> {
        let state = self.state.lock();
        state
            .open
            .iter()
            .map(|(key, open)| state_of(key, open))
            .collect()
    }

    /// Returns the state of the buffer at `key`, if one is open.
    pub fn state(&self, key: &BufferKey) -> Option<BufferState> {
        let state = self.state.lock();
        Some(state_of(key, state.open.get(key)?))
    }
}

fn state_of(key: &BufferKey, open: &Open) -> BufferState {
    BufferState {
        key: key.clone(),
        name: open.name.clone(),
        version: open.buffer.version(),
        person: open.buffer.person(),
        agent: open.buffer.agent(),
        unsaved_merge: open.buffer.has_unsaved_merge(),
        conflicts: open.buffer.conflicts(),
    }
}

fn check_size(name: &Path, text: &str) -> Result<(), BufferError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(BufferError::TooLarge(name.to_owned()));
    }
    Ok(())
}

/// Returns the records of agents' writes to buffers whose editor is gone.
///
/// The second list has the errors of damaged records.
///
/// # Errors
/// [`StoreError`] if the records cannot be listed.
pub fn records(store: &Store) -> Result<(Vec<AgentTextRecord>, Vec<StoreError>), StoreError> {
    store.documents(RecordKind::Buffers)
}
