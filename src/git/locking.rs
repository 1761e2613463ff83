//! Notes of ref locks, to find those of tine processes that died.
//!
//! ```text
//! note <store>/locking/<process>-<n> ─► lock ─► change ─► unlock ─► remove the note
//! ```
//!
//! git never breaks the lock of a ref. So tine writes a note before it locks a ref. The next
//! process that opens the store removes the locks that a dead process noted and did not release.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::refs::remove_stale_lock;
use super::{GitError, Repository};
use tine_sys::process;

/// Maximum wait before a lock counts as stale.
///
/// git holds one only briefly.
const TIMEOUT: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(50);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Note of locks that are about to be taken. Dropping it removes the note.
pub(super) struct Locking {
    note: Option<PathBuf>,
}

impl Drop for Locking {
    fn drop(&mut self) {
        if let Some(note) = &self.note {
            // A note that stays lists locks that are gone.
            let _ = fs::remove_file(note);
        }
    }
}

impl Repository {
    /// Writes a note of `locks` that are about to be taken.
    ///
    /// Does nothing if there is no store, or no space.
    pub(super) fn note_locking(&self, locks: &[PathBuf]) -> Locking {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let note = self
            .locking_dir()
            .join(format!("{}-{number}", std::process::id()));
        let lines: Vec<&[u8]> = locks
            .iter()
            .map(|lock| lock.as_os_str().as_bytes())
            .collect();
        let noted = fs::write(&note, lines.join(&b'\n')).or_else(|_| {
            fs::create_dir(self.locking_dir())?;
            fs::write(&note, lines.join(&b'\n'))
        });
        Locking {
            note: noted.is_ok().then_some(note),
        }
    }

    /// Removes the ref locks of tine processes that died.
    ///
    /// Blocks for two seconds if there are any: git may have taken them since.
    ///
    /// # Errors
    /// [`GitError::Io`] if a note or a lock cannot be read or removed.
    pub fn release_noted_locks(&self) -> Result<(), GitError> {
        let dir = self.locking_dir();
        let Ok(notes) = fs::read_dir(&dir) else {
            return Ok(());
        };
        let mut left = Vec::new();
        let mut locks = Vec::new();
        for note in notes.flatten() {
            let name = note.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.split('-').next()?.parse().ok());
            if owner
                .is_some_and(|owner: u32| owner != std::process::id() && process::is_running(owner))
            {
                continue;
            }
            let noted =
                tine_sys::file::read(&note.path()).map_err(GitError::io("read", note.path()))?;
            let noted = noted.split(|&byte| byte == b'\n');
            let noted = noted.filter(|lock| !lock.is_empty());
            locks.extend(noted.map(|lock| PathBuf::from(OsStr::from_bytes(lock))));
            left.push(note.path());
        }
        for lock in stale(locks) {
            remove_stale_lock(&lock)?;
        }
        for note in left {
            fs::remove_file(&note).map_err(GitError::io("remove", &note))?;
        }
        Ok(())
    }

    fn locking_dir(&self) -> PathBuf {
        self.common_dir().join("tine/locking")
    }
}

/// Returns the locks that exist and do not change for [`TIMEOUT`].
fn stale(locks: Vec<PathBuf>) -> Vec<PathBuf> {
    let identity = |lock: &Path| {
        let meta = fs::symlink_metadata(lock).ok()?;
        Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
    };
    let known = |lock: PathBuf| identity(&lock).map(|before| (lock, before));
    let mut locks: Vec<_> = locks.into_iter().filter_map(known).collect();
    let deadline = Instant::now() + TIMEOUT;
    while !locks.is_empty() && Instant::now() < deadline {
        thread::sleep(INTERVAL);
        locks.retain(|(lock, before)| identity(lock) == Some(*before));
    }
    locks.into_iter().map(|(lock, _)| lock).collect()
}
