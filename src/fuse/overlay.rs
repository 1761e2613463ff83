//! Which of two files a name leads to where a text is shown in place of what the file holds: the
//! text's, or, for whoever records files or writes to this one, the file's own.
//!
//! ```text
//! LOOKUP ─► git, an editor, somebody unknown ─► the file        each time anew: the kernel may not remember such names
//!       └─► everybody else ───────────────────► the text's node
//! OPEN to write, of a text's node ─► ESTALE ─► the kernel looks the name up again, for the same thread ─► the file
//! RENAME to a shown name ──────────► ESTALE ─► the same: what is moved there is not remembered either
//! ```
//!
//! ESTALE does not reach the program: for that error alone the kernel begins again
//! (`LOOKUP_REVAL`), in open(2) and in all that changes something by its path. For files it needs
//! requests for opening, which only mounts like this have.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::askers;
use super::entries::Entry;
use super::errno::Errno;
use tine_attr::{FileKind, Ino};
use tine_layer::store::SeekWhence;
use tine_workspace::{Caller, Workspace};

/// How long a thread that was told to begin again is expected back.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a mount knows beside its workspace.
#[derive(Default)]
pub(super) struct Overlay {
    /// Threads that were told to begin again, and when. Until they come back they are led to files
    /// only, which the kernel does not remember.
    beginners: Mutex<HashMap<u32, Instant>>,
}

impl Overlay {
    /// What the name, which leads to the file `entry` or nowhere, leads to for the caller. Takes
    /// the lookup of the file.
    pub(super) fn looked_up(
        &self,
        workspace: &Workspace,
        caller: Caller,
        (parent, name): (Ino, &[u8]),
        mut entry: Entry,
    ) -> Entry {
        entry.attr = entry.attr.map(|attr| workspace.uncovered(attr));
        let begins_again = self.begins_again(caller);
        if !begins_again && !workspace.is_name_shown(name) {
            return entry;
        }
        entry.name_ttl = Duration::ZERO;
        let Some(file) = entry.attr.filter(|attr| attr.kind == FileKind::Regular) else {
            return entry;
        };
        if begins_again
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

    /// Refuses what a thread asks for, which then begins again.
    pub(super) fn begin_again(&self, caller: Caller) -> Errno {
        let mut beginners = self.beginners.lock();
        beginners.retain(|_, since| since.elapsed() < PATIENCE);
        beginners.insert(caller.thread, Instant::now());
        Errno::ESTALE
    }

    /// The thread has begun again.
    pub(super) fn came_back(&self, caller: Caller) {
        self.beginners.lock().remove(&caller.thread);
    }

    fn begins_again(&self, caller: Caller) -> bool {
        let beginners = self.beginners.lock();
        let since = beginners.get(&caller.thread);
        since.is_some_and(|since| since.elapsed() < PATIENCE)
    }

    /// What the kernel moves it goes on to remember: at a name that is shown it must not. When it
    /// is moved the thread has come back.
    pub(super) fn check_rename(
        &self,
        workspace: &Workspace,
        caller: Caller,
        names: [&[u8]; 2],
    ) -> Result<(), Errno> {
        let is_shown = names.iter().any(|name| workspace.is_name_shown(name));
        // Whom the kernel cannot name to us cannot be told from others like it.
        match is_shown && caller.thread != 0 && !self.begins_again(caller) {
            true => Err(self.begin_again(caller)),
            false => Ok(()),
        }
    }

    /// Runs what takes names away or puts others in their place.
    ///
    /// The kernel counts a file's links by itself, of the node that it has at the name: of a shown
    /// name that may be the text's. And of what is in a directory that it moves it remembers what
    /// that was before.
    pub(super) fn changing_names<T, E>(
        &self,
        workspace: &Workspace,
        names: &[(Ino, &[u8])],
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if !workspace.shows_texts() {
            return change();
        }
        let shown = names
            .iter()
            .filter(|(_, name)| workspace.is_name_shown(name));
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
