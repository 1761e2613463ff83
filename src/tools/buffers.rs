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
//! file ([`agent_text`]).

pub mod agent_text;
mod agents;
mod buffer;
mod editors;
mod filed;
mod lines;
mod notes;
mod open_files;
mod seen;
mod terms;
#[cfg(test)]
mod tests;
mod undo;
mod unsaved;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, RwLock};

use self::agent_text::{AgentTextRecord, FileBefore};
pub use self::agents::BufferWritten;
use self::buffer::{Buffer, Progress};
pub use self::editors::MAX_TEXT_BYTES;
pub use self::filed::Filed;
use self::notes::Notes;
use self::open_files::OpenFile;
use self::seen::SeenTexts;
pub use self::terms::{
    AgentId, BufferConflict, BufferError, BufferEvent, BufferKey, BufferSide, BufferState,
    MergedBuffer, NewText, PersonText, TextPatch,
};
pub use self::undo::BufferEdit;
use self::unsaved::UnsavedRead;
use tine_store::{ForkName, RecordKind, Store, StoreError};

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
    /// Applies and stores an agent's step.
    ///
    /// The step makes `to` of `from`. On an error nothing changes.
    fn write(
        &mut self,
        store: &Store,
        key: &BufferKey,
        agent: &AgentId,
        from: &Arc<str>,
        to: Arc<str>,
    ) -> Result<(), StoreError> {
        let before = self.buffer.clone();
        self.buffer.write(agent, from, to);
        self.write_record(store, key)
            .inspect_err(|_| self.buffer = before)
    }

    /// Writes agents' steps of the buffer to its record.
    fn write_record(&mut self, store: &Store, key: &BufferKey) -> Result<(), StoreError> {
        let file = self.file.clone().unwrap_or_default();
        self.record = agent_text::write(store, self.record, key, &file, self.buffer.steps())?;
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
        let (session, version) = (open.session, open.buffer.version());
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
        self.queue_event(session, event);
    }

    /// Queues an event, which replaces an undelivered one about the same buffer.
    fn queue_event(&mut self, session: u64, event: BufferEvent) {
        if let Some(events) = self.sessions.get_mut(&session) {
            events.retain(|earlier| !event.replaces(earlier));
            events.push_back(event);
        }
    }
}

impl Buffers {
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

    /// Returns whether agents' texts of files without a buffer may be refused.
    ///
    /// `fork` is the fork to look in; None is the main checkout.
    pub fn has_notes(&self, fork: Option<&ForkName>) -> bool {
        self.files.lock().is_in(fork) || self.unsaved.lock().is_in(fork)
    }

    /// Forgets the records of a deleted fork.
    pub fn forget_fork(&self, store: &Store, fork: &ForkName) {
        self.unsaved.lock().forget_fork(store, fork);
        self.files.lock().forget_fork(store, fork);
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

/// Returns the records of agents' writes to buffers whose editor is gone.
///
/// The second list has the errors of damaged records.
///
/// # Errors
/// [`StoreError`] if the records cannot be listed.
pub fn records(store: &Store) -> Result<(Vec<AgentTextRecord>, Vec<StoreError>), StoreError> {
    store.documents(RecordKind::Buffers)
}
