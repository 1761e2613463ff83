//! Names under which the mount shows unsaved text instead of the file.
//!
//! For such a name, a program gets the text's node. Programs that record files or write to this one
//! get the file itself:
//!
//! ```text
//! LOOKUP ─► by git, an editor, an unknown process ─► the file
//!       └─► by any other process ──────────────────► the text node
//! OPEN of a text node for writing ─► ESTALE ─► the same thread repeats the lookup ─► the file
//! RENAME of a shown name ──────────► ESTALE ─► the same; the kernel does not cache the moved name
//! ```
//!
//! The kernel may not cache names that show text.
//!
//! ESTALE does not reach the program. For this error alone, the kernel repeats the whole call
//! (`LOOKUP_REVAL`): open(2) and all calls that change something by its path. For files this needs
//! open requests, which only such mounts have.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::askers;
use super::entries::Entry;
use super::errno::Errno;
use tine_attr::{FileKind, Ino};
use tine_layer::contents::SeekWhence;
use tine_workspace::{Caller, Workspace};

/// Time in which a thread is expected to retry after ESTALE.
const PATIENCE: Duration = Duration::from_secs(10);

/// State of a mount that shows unsaved text.
#[derive(Default)]
pub(super) struct Overlay {
    /// Threads that got ESTALE, with the time, until they retry.
    ///
    /// Until then, their lookups return files only, which the kernel does not cache.
    retrying: Mutex<HashMap<u32, Instant>>,
}

impl Overlay {
    /// Resolves a name for the caller, after a lookup returned `entry`.
    ///
    /// `entry` is the file, or missing. Takes over the lookup of the file.
    pub(super) fn resolve(
        &self,
        workspace: &Workspace,
        caller: Caller,
        (parent, name): (Ino, &[u8]),
        mut entry: Entry,
    ) -> Entry {
        entry.attr = entry.attr.map(|attr| workspace.uncovered(attr));
        let is_retrying = self.is_retrying(caller);
        if !is_retrying && !workspace.is_name_shown(name) {
            return entry;
        }
        entry.name_ttl = Duration::ZERO;
        let Some(file) = entry.attr.filter(|attr| attr.kind == FileKind::Regular) else {
            return entry;
        };
        if is_retrying
            || askers::gets_saved_content(caller.thread, |process| workspace.is_editor(process))
        {
            return entry;
        }
        if let Some(text) = workspace.lookup_text(parent, name, &file) {
            (entry.attr, entry.attr_ttl) = (Some(text), Duration::ZERO);
        }
        entry
    }

    /// Returns the entry for a name that was created: the file.
    pub(super) fn created(&self, workspace: &Workspace, name: &[u8], mut entry: Entry) -> Entry {
        if workspace.is_name_shown(name) {
            entry.name_ttl = Duration::ZERO;
        }
        entry
    }

    /// Refuses a request with ESTALE, so that the thread retries.
    pub(super) fn request_retry(&self, caller: Caller) -> Errno {
        let mut retrying = self.retrying.lock();
        retrying.retain(|_, since| since.elapsed() < PATIENCE);
        retrying.insert(caller.thread, Instant::now());
        Errno::ESTALE
    }

    /// Notes that the thread has retried.
    pub(super) fn note_retried(&self, caller: Caller) {
        self.retrying.lock().remove(&caller.thread);
    }

    /// Returns whether the thread is retrying.
    fn is_retrying(&self, caller: Caller) -> bool {
        let retrying = self.retrying.lock();
        let since = retrying.get(&caller.thread);
        since.is_some_and(|since| since.elapsed() < PATIENCE)
    }

    /// Refuses a rename of a shown name, until the thread retries.
    ///
    /// Otherwise the kernel would cache the moved file under the name. With the retry, it does not.
    pub(super) fn check_rename(
        &self,
        workspace: &Workspace,
        caller: Caller,
        names: [&[u8]; 2],
    ) -> Result<(), Errno> {
        let is_shown = names.iter().any(|name| workspace.is_name_shown(name));
        // Threads without a visible ID cannot be distinguished from each other.
        if is_shown && caller.thread != 0 && !self.is_retrying(caller) {
            Err(self.request_retry(caller))
        } else {
            Ok(())
        }
    }

    /// Runs `change`, which removes or replaces names.
    ///
    /// Then invalidates the files of shown names, for two reasons. The kernel counts the links of
    /// the node that it has at a name, which may be the text node. And it caches what is in a
    /// directory that it moves.
    pub(super) fn change_names<T, E>(
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

/// Finds data or a hole in a text, as lseek(2).
///
/// A text has no hole except at its end.
pub(super) fn seek_text(text: &[u8], offset: u64, whence: SeekWhence) -> Result<u64, Errno> {
    let end = text.len() as u64;
    match whence {
        _ if offset >= end => Err(Errno::ENXIO),
        SeekWhence::Data => Ok(offset),
        SeekWhence::Hole => Ok(end),
    }
}

/// Copies bytes of a text, as read(2).
pub(super) fn read_text(text: &[u8], offset: u64, buffer: &mut [u8]) -> usize {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = text.get(offset..).unwrap_or_default();
    let len = rest.len().min(buffer.len());
    buffer[..len].copy_from_slice(&rest[..len]);
    len
}
