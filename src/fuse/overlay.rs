//! Which of two files a name leads to where a text is shown in place of what the file holds: the text's, or, for whoever
//! records files or writes to this one, the file's own.
//!
//! ```text
//! LOOKUP ─► git, an editor, somebody unknown ─► the file        each time anew: the kernel may not remember such names
//!       └─► everybody else ───────────────────► the text's node
//! OPEN to write, of a text's node ─► ESTALE ─► the kernel looks the name up again, for the same thread ─► the file
//! ```
//!
//! ESTALE does not reach the program: for that error alone the kernel begins again (`LOOKUP_REVAL`), in open(2) and in all that
//! changes a file by its path. It needs requests for opening, which only mounts like this have.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::askers;
use super::errno::Errno;
use super::operations::Entry;
use crate::attr::{FileKind, Ino};
use crate::layer::store::SeekWhence;
use crate::workspace::{Caller, Workspace};

/// How long a thread that was told to begin again is expected back.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a mount knows beside its workspace.
#[derive(Default)]
pub(super) struct Overlay {
    /// Threads that were told to begin again, with the file they will ask for.
    writers: Mutex<HashMap<u32, (Ino, Instant)>>,
}

impl Overlay {
    /// What the name, which leads to the file `entry` or nowhere, leads to for the caller. Takes the lookup of the file.
    pub(super) fn looked_up(
        &self,
        workspace: &Workspace,
        caller: Caller,
        (parent, name): (Ino, &[u8]),
        mut entry: Entry,
    ) -> Entry {
        entry.attr = entry.attr.map(|attr| workspace.uncovered(attr));
        if !workspace.is_name_shown(name) {
            return entry;
        }
        entry.name_ttl = Duration::ZERO;
        let Some(file) = entry.attr.filter(|attr| attr.kind == FileKind::Regular) else {
            return entry;
        };
        if self.is_to_write(caller, file.ino)
            || askers::sees_what_is_saved(caller.thread, |process| workspace.is_editor(process))
        {
            return entry;
        }
        if let Some(text) = workspace.lookup_text(parent, name, &file) {
            (entry.attr, entry.attr_ttl) = (Some(text), Duration::ZERO);
        }
        entry
    }

    /// The answer about a name that was made: it leads to the file.
    pub(super) fn made(&self, workspace: &Workspace, name: &[u8], mut entry: Entry) -> Entry {
        if workspace.is_name_shown(name) {
            entry.name_ttl = Duration::ZERO;
        }
        entry
    }

    /// Has the thread that opened or changes a text's node begin again.
    pub(super) fn begin_again(&self, workspace: &Workspace, caller: Caller, text: Ino) -> Errno {
        if let Ok(file) = workspace.file_of_text(text) {
            let mut writers = self.writers.lock();
            writers.retain(|_, (_, since)| since.elapsed() < PATIENCE);
            writers.insert(caller.thread, (file, Instant::now()));
        }
        Errno::ESTALE
    }

    /// The thread has come to the file, or given up.
    pub(super) fn came_back(&self, caller: Caller) {
        self.writers.lock().remove(&caller.thread);
    }

    fn is_to_write(&self, caller: Caller, file: Ino) -> bool {
        let writers = self.writers.lock();
        let writer = writers.get(&caller.thread);
        writer.is_some_and(|(ino, since)| *ino == file && since.elapsed() < PATIENCE)
    }

    /// Runs what takes names away or puts others in their place.
    ///
    /// The kernel counts a file's links by itself, of the node that it has at the name: of a shown name that may be the text's.
    /// And what it moves it goes on to remember for good, whatever is shown where that comes to.
    pub(super) fn changing_names<T, E>(
        &self,
        workspace: &Workspace,
        names: &[(Ino, &[u8])],
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if !workspace.shows_texts() {
            return change();
        }
        let shown = names.iter().filter(|(_, name)| workspace.is_name_shown(name));
        let files: Vec<Ino> = shown
            .filter_map(|(parent, name)| Some(workspace.lookup(*parent, name).ok()?.ino))
            .collect();
        let done = change();
        for file in &files {
            workspace.forget(*file, 1);
        }
        workspace.announce_shown(&files);
        done
    }
}

/// As lseek(2), of a text: it has no holes but for the one at its end.
pub(super) fn seek_text(text: &[u8], offset: u64, whence: SeekWhence) -> Result<u64, Errno> {
    let end = text.len() as u64;
    match whence {
        _ if offset >= end => Err(Errno::ENXIO),
        SeekWhence::Data => Ok(offset),
        SeekWhence::Hole => Ok(end),
    }
}

/// Bytes of a text, as read(2).
pub(super) fn read_text(text: &[u8], offset: u64, buffer: &mut [u8]) -> usize {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = text.get(offset..).unwrap_or_default();
    let len = rest.len().min(buffer.len());
    buffer[..len].copy_from_slice(&rest[..len]);
    len
}
