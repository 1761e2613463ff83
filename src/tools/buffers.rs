//! Open buffers of editors, and what agents have written to them.
//!
//! ```text
//! editor ── open, change, save, close ──► Buffer: the person's text ◄── merge ── what an agent wrote
//!    ▲                                        │                                    │
//!    └────────── events: edit, conflict ──────┘          a record in the store ◄───┘
//! ```
//!
//! An agent reads the person's text until it writes. Then it has a text of its own, a *buffer
//! fork*, which is merged into the person's at once where that is clean; the editor is told what to
//! change and says when it has. Every step of the person's text has a number, so that what was
//! meant for another one is refused, by both sides, and merged again.
//!
//! What an agent wrote is in the store before that is acknowledged, and stays there until the
//! person has saved a text that has it. Where the editor goes away first, it is merged into the
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
use tine_sys::process::ProcessId;
use tine_workspace::store::RecordKind;
use tine_workspace::{Direction, ForkName, Store, StoreError};

/// The longest text that a buffer may have when it comes from an editor, in bytes.
pub const MAX_TEXT_BYTES: usize = 8 << 20;

/// What a buffer forgot because the file has it.
#[derive(Debug)]
pub struct Filed {
    merged: Vec<(AgentId, AgentEdit)>,
    file: Option<FileBefore>,
}

/// What came of an agent's text for a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferWritten {
    Written,
    /// What the agent last had of the file is not known; nothing was done.
    Unread,
}

/// Who is told that the person's text of a buffer changed.
pub type BufferListener = Box<dyn Fn(&BufferKey) + Send + Sync>;

/// All open buffers.
#[derive(Default)]
pub struct Buffers {
    /// While it is held, records of the store are written; nothing else is waited for.
    state: Mutex<State>,
    /// An event has come, a merge has come about, or who waits is to look again.
    changed: Condvar,
    listener: RwLock<Option<BufferListener>>,
    /// Taken with `state` or without it, for moments.
    seen: Mutex<SeenTexts>,
    /// Taken with `state` or without it. While it is held, records of the store are written.
    unsaved: Mutex<Notes<UnsavedRead>>,
    /// As `unsaved`.
    files: Mutex<Notes<OpenFile>>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<BufferKey, Open>,
    /// Events that each session has not been told yet.
    sessions: BTreeMap<u64, VecDeque<BufferEvent>>,
    last_session: u64,
    /// What agents wrote to open buffers, oldest first, and what of it was taken back.
    written: Vec<BufferEdit>,
    undone: Vec<BufferEdit>,
}

/// How many writes to buffers can be taken back.
const MAX_WRITTEN: usize = 256;

/// One write of an agent's to an open buffer, or that it was taken back.
#[derive(Debug, Clone)]
pub struct BufferEdit {
    pub time: Timestamp,
    pub key: BufferKey,
    agent: AgentId,
    before: Arc<str>,
    after: Arc<str>,
}

/// One open buffer, and whose it is.
struct Open {
    session: u64,
    name: PathBuf,
    buffer: Buffer,
    /// The number of the record in the store that keeps what the agent wrote.
    record: Option<u64>,
    /// The file as it was when an agent wrote first; `None` before.
    file: Option<FileBefore>,
    /// What the file held when its person last opened or saved it here, where that is known.
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

    /// Brings the record to what the agent has in the buffer.
    fn keep(&mut self, store: &Store, key: &BufferKey) -> Result<(), StoreError> {
        let file = self.file.clone().unwrap_or_default();
        self.record = kept::write(store, self.record, key, &file, self.buffer.steps())?;
        Ok(())
    }

    /// Looks at the file before an agent's first write.
    fn note_file_before(&mut self, file: impl FnOnce() -> Option<String>) {
        if self.record.is_none() {
            let text: Option<Arc<str>> = file().map(Into::into);
            self.file = Some(FileBefore {
                existed: text.is_some(),
                // One that has gone since held nothing that is its person's alone.
                text: text.or_else(|| self.saved.clone()),
            });
        }
    }
}

impl State {
    /// Merges what the agent has in the buffer, as far as that can be done now, and tells its
    /// editor.
    fn go_on(&mut self, key: &BufferKey) {
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
        self.tell(open_session(&self.open, key), event);
    }

    /// Puts an event in the place of one about the same buffer that nobody was told yet.
    fn tell(&mut self, session: u64, event: BufferEvent) {
        if let Some(events) = self.sessions.get_mut(&session) {
            events.retain(|earlier| !event.replaces(earlier));
            events.push_back(event);
        }
    }

    /// What was written to the buffer can be taken back there no more.
    fn forget_edits(&mut self, key: &BufferKey) {
        self.written.retain(|edit| edit.key != *key);
        self.undone.retain(|edit| edit.key != *key);
    }

    /// The buffer that this session has open by that name.
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
    /// What the agent sees at `key`, where a buffer is open there: its own text, or the person's.
    pub fn text_for(&self, agent: &AgentId, key: &BufferKey) -> Option<Arc<str>> {
        let state = self.state.lock();
        Some(state.open.get(key)?.buffer.agent_sees(agent).clone())
    }

    /// As [`Buffers::text_for`]; the agent has that text from here on.
    ///
    /// # Errors
    /// The store cannot note that the agent gets a text that is not saved.
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
        match open.buffer.person().saved {
            true => self.note_read(store, agent, key),
            false if self.has_unsaved(agent, key) => {}
            false => self
                .unsaved
                .lock()
                .put(store, |id| UnsavedRead::new(id, key, agent))?,
        }
        let text = open.buffer.agent_sees(agent).clone();
        self.seen.lock().put(agent, key, text.clone());
        Ok(Some(text))
    }

    /// Reads which agents were given texts that were not saved, and which files are open, as an
    /// earlier daemon noted it.
    pub fn recover(&self, store: &Store) -> Result<Vec<StoreError>, StoreError> {
        let mut damaged = self.unsaved.lock().load(store)?;
        let mut files = self.files.lock();
        damaged.extend(files.load(store)?);
        files.forget_all(store, |file| !file.editor.is_running());
        Ok(damaged)
    }

    /// Notes that an editor, which may outlive this daemon, has the file open.
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

    /// Notes that the editor has the file open no more.
    pub fn note_closed(&self, store: &Store, key: &BufferKey) {
        self.files.lock().forget(store, key);
    }

    /// Whether the file, in which no buffer is open, is open in an editor that has not told this
    /// daemon so yet.
    pub fn is_left_open(&self, key: &BufferKey) -> bool {
        self.files
            .lock()
            .get(key)
            .is_some_and(|file| file.editor.is_running())
    }

    /// Whether agents' texts of files, in which no buffer is open, may be refused in that fork, or
    /// in the main checkout.
    pub fn has_notes(&self, fork: Option<&ForkName>) -> bool {
        self.files.lock().is_in(fork) || self.unsaved.lock().is_in(fork)
    }

    /// Whether the agent last had `text` of the file.
    pub fn has_seen(&self, agent: &AgentId, key: &BufferKey, text: &str) -> bool {
        self.seen
            .lock()
            .get(agent, key)
            .is_some_and(|seen| *seen == *text)
    }

    /// Whether the agent's text of a file, in which no buffer is open, may have what a person has
    /// never saved.
    pub fn has_unsaved(&self, agent: &AgentId, key: &BufferKey) -> bool {
        self.unsaved
            .lock()
            .get(&(key.clone(), agent.clone()))
            .is_some()
    }

    /// Forgets what agents had of a fork that is gone.
    pub fn forget_fork(&self, store: &Store, fork: &ForkName) {
        self.unsaved.lock().forget_fork(store, fork);
        self.files.lock().forget_fork(store, fork);
    }

    /// Notes that the agent has the text of a file in which no buffer is open: it read or wrote
    /// that.
    pub fn note_seen(&self, store: &Store, agent: &AgentId, key: &BufferKey, text: &str) {
        self.seen.lock().put(agent, key, text.into());
        self.note_read(store, agent, key);
    }

    /// Notes that the agent has read what is saved.
    pub fn note_read(&self, store: &Store, agent: &AgentId, key: &BufferKey) {
        let read = (key.clone(), agent.clone());
        self.unsaved.lock().forget(store, &read);
    }

    /// Notes that the agent made `after` of `before` in a file, without having been given either.
    pub fn note_edited(&self, agent: &AgentId, key: &BufferKey, before: &str, after: &str) {
        self.seen.lock().edit(agent, key, before, after);
    }

    /// Notes that the file has gone, or is at `to` now.
    pub fn note_moved(&self, key: &BufferKey, to: Option<&BufferKey>) {
        self.seen.lock().rename(key, to);
    }

    /// Lets the agent's text of the buffer be `text`; `None` where no buffer is open there. What
    /// the agent last had is the ancestor when that is merged into the person's text: what it never
    /// had, it did not take out. Where that is not known nothing is done: of a text that is older
    /// than the person's nobody could tell what it takes out. `file` reads the file.
    ///
    /// When this returns the text is in the store, and on its way to the editor where it fits to
    /// the person's text.
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

    /// Lets the agent's text of the buffer be what `edit` makes of what the agent sees; otherwise
    /// as [`Buffers::write`].
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

    /// The agent has made `text` of `base`.
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
        state.go_on(key);
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

    /// What agents did in the buffer that no file has.
    pub fn unfiled(&self, key: &BufferKey) -> Option<AgentTextRecord> {
        let state = self.state.lock();
        let open = state.open.get(key)?;
        let steps = open.buffer.steps();
        let file = open.file.clone().unwrap_or_default();
        (!steps.is_empty())
            .then(|| AgentTextRecord::of(open.record.unwrap_or(0), key, &file, &steps))
    }

    /// Notes that the file has those steps of `record` that fit it; where `is_told`, the editor
    /// hears of it. What the buffer forgets of them comes back; `None` where agents have done
    /// something else by now.
    pub fn filed(
        &self,
        store: &Store,
        key: &BufferKey,
        record: &AgentTextRecord,
        fits: &[bool],
        is_told: bool,
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
            merged: open.buffer.filed(fits),
            file: open.file.clone(),
        };
        open.file.get_or_insert_default().existed = true;
        if let Err(error) = open.keep(store, key) {
            open.buffer = before;
            open.file = filed.file;
            return Err(error);
        }
        let (session, path) = (open.session, open.name.clone());
        if is_told {
            state.tell(session, BufferEvent::Written { path });
        }
        // From here on an operation has them.
        state.forget_edits(key);
        drop(state);
        self.changed.notify_all();
        Ok(Some(filed))
    }

    /// Takes back what [`Buffers::filed`] noted.
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
        open.buffer.unfile(filed.merged);
        open.file = filed.file;
        open.keep(store, key)
    }

    /// The newest write of an agent's to an open buffer of the fork that can be taken back, or the
    /// one that was taken back last.
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

    /// Takes back what [`Buffers::newest_edit`] gave; false where what was written since excludes
    /// that.
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
        state.go_on(&edit.key);
        self.changed.notify_all();
        Ok(true)
    }

    /// Buffers of the fork, or of the main checkout.
    pub fn of(&self, fork: Option<&ForkName>) -> Vec<BufferKey> {
        let state = self.state.lock();
        let keys = state.open.keys().filter(|key| key.fork.as_ref() == fork);
        keys.cloned().collect()
    }

    /// What the person has in the editor, where a buffer is open.
    pub fn person_text(&self, key: &BufferKey) -> Option<PersonText> {
        let state = self.state.lock();
        Some(state.open.get(key)?.buffer.person())
    }

    /// Has `listener` called after the person's text of a buffer, or whether it is saved, has
    /// changed, and after a buffer was opened or closed. It may ask for the text; it may not open,
    /// change or close a buffer.
    pub fn set_listener(&self, listener: BufferListener) {
        *self.listener.write() = Some(listener);
    }

    fn announce(&self, key: &BufferKey) {
        self.changed.notify_all();
        if let Some(listener) = &*self.listener.read() {
            listener(key);
        }
    }

    /// Begins a session: an editor has come.
    pub fn attach(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_session += 1;
        let session = state.last_session;
        state.sessions.insert(session, VecDeque::new());
        session
    }

    /// Opens a buffer, or begins the text of an open one anew; its version, which is behind
    /// `after`.
    ///
    /// # Errors
    /// [`BufferError::Taken`] where another session has it open.
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
        state.go_on(key);
        drop(state);
        self.announce(key);
        Ok(version)
    }

    /// The person changed the text of version `base`; the next version. All of a text may come
    /// without one: after a step was lost.
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
        state.go_on(&key);
        drop(state);
        self.announce(&key);
        Ok(version)
    }

    /// The editor has applied the edit that it was told of for the text of version `base`; the next
    /// version.
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
        // What was merged by a rule is not what the record says.
        if favored == Favored::Yes
            && let Err(error) = open.keep(store, &key)
        {
            log::warn!(
                "{}: what was merged could not be noted: {error}",
                name.display()
            );
        }
        let version = open.buffer.version();
        state.go_on(&key);
        drop(state);
        self.announce(&key);
        Ok(version)
    }

    /// The file holds the text of version `base` now.
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
        // A record that stays says what the file has by now: merged into that, it changes nothing.
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

    /// Which file the session's buffer of that name shows.
    pub fn key_of(&self, session: u64, name: &Path) -> Result<BufferKey, BufferError> {
        Ok(self.state.lock().own(session, name)?.0)
    }

    /// Closes a buffer, if that session has it open; the number of the record that keeps what an
    /// agent wrote, which is to be brought into the file.
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

    /// As [`Buffers::close`], whoever has it open; the editor is told.
    pub fn end(&self, key: &BufferKey) -> Option<u64> {
        let mut state = self.state.lock();
        let open = state.open.remove(key)?;
        state.tell(open.session, BufferEvent::Closed { path: open.name });
        state.forget_edits(key);
        drop(state);
        self.announce(key);
        open.record
    }

    /// Buffers that this session has open.
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

    /// Lets everybody who waits look again: the daemon is ending.
    pub fn wake(&self) {
        // Who is about to wait has either looked already, and is told, or looks afterwards.
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// What the session has not been told yet: waits for something until `deadline`, or as long as
    /// `goes_on` holds.
    pub fn events(
        &self,
        session: u64,
        deadline: Instant,
        goes_on: impl Fn() -> bool,
    ) -> Result<Vec<BufferEvent>, BufferError> {
        let mut state = self.state.lock();
        loop {
            let events = state
                .sessions
                .get_mut(&session)
                .ok_or(BufferError::NoSession(session))?;
            if !events.is_empty() || !goes_on() || Instant::now() >= deadline {
                return Ok(events.drain(..).collect());
            }
            self.changed.wait_until(&mut state, deadline);
        }
    }

    /// Merges what the agent has in a buffer into the person's text, and waits until the editor has
    /// taken that, until `deadline`, or as long as `goes_on` holds. Conflicts are settled by
    /// `side`, or told; then nothing changes.
    pub fn merge(
        &self,
        store: &Store,
        key: &BufferKey,
        name: &Path,
        side: Option<BufferSide>,
        deadline: Instant,
        goes_on: impl Fn() -> bool,
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
                // Told again, too, where the editor may have missed it.
                let patches = open.buffer.offer(side);
                let event = BufferEvent::Edit {
                    path: open.name.clone(),
                    version: open.buffer.version(),
                    patches: patches.clone(),
                };
                let (session, is_offered) = (open.session, open.buffer.is_offered());
                // The person has it all, or was given right: then the record says what is over.
                if !is_offered && let Err(error) = open.keep(store, key) {
                    log::warn!(
                        "{}: what was settled could not be noted: {error}",
                        name.display()
                    );
                }
                merged.patches = patches;
                merged.pending = true;
                if is_offered {
                    state.tell(session, event);
                    self.changed.notify_all();
                }
                continue;
            }
            if !goes_on() || Instant::now() >= deadline {
                return Ok(merged);
            }
            self.changed.wait_until(&mut state, deadline);
        }
    }

    /// All open buffers.
    pub fn states(&self) -> Vec<BufferState> {
        let state = self.state.lock();
        state
            .open
            .iter()
            .map(|(key, open)| told(key, open))
            .collect()
    }

    /// The buffer that is open there.
    pub fn state(&self, key: &BufferKey) -> Option<BufferState> {
        let state = self.state.lock();
        Some(told(key, state.open.get(key)?))
    }
}

fn told(key: &BufferKey, open: &Open) -> BufferState {
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
    match text.len() > MAX_TEXT_BYTES {
        true => Err(BufferError::TooLarge(name.to_owned())),
        false => Ok(()),
    }
}

/// What the store keeps of buffers whose editor is gone: by number.
pub fn records(store: &Store) -> Result<(Vec<AgentTextRecord>, Vec<StoreError>), StoreError> {
    store.documents(RecordKind::Buffers)
}
