//! git's lock of a worktree's index, `index.lock`: whoever creates that name has it, and the new index is written there.
//!
//! What a process that was killed leaves of it would keep everybody from the index for good. So ours is made as
//! `index.tine` and then linked to the lock's name: as long as both names lead to one file, the lock is tine's own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::git::{GitError, LinkedWorktree};

/// How long an index that git has locked is waited for: an editor's `git status` is over by then, a rebase is not.
const TIMEOUT: Duration = Duration::from_millis(500);

/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// The lock, held. Dropping it gives it back and leaves the index as it is.
#[derive(Debug)]
pub(super) struct IndexLock {
    file: File,
    index_path: PathBuf,
    lock_path: PathBuf,
    mark_path: PathBuf,
}

impl IndexLock {
    /// Takes the lock, waiting a moment for whoever has it.
    ///
    /// # Errors
    /// [`GitError::IndexLocked`] where it is still held then.
    pub(super) fn acquire(worktree: &LinkedWorktree) -> Result<IndexLock, GitError> {
        let index_path = worktree.index_path();
        let (lock_path, mark_path) = (lock_path(worktree), mark_path(worktree));
        let deadline = Instant::now() + TIMEOUT;
        let taken = loop {
            match take(&mark_path, &lock_path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && Instant::now() < deadline => {
                    thread::sleep(PAUSE);
                }
                taken => break taken,
            }
        };
        let file = taken.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => GitError::IndexLocked {
                lock: lock_path.clone(),
            },
            _ => GitError::io("lock the index with", &lock_path)(error),
        })?;
        Ok(IndexLock {
            file,
            index_path,
            lock_path,
            mark_path,
        })
    }

    /// Puts `content` in the index's place, with the permissions that the index has.
    pub(super) fn commit(mut self, content: &[u8]) -> Result<(), GitError> {
        self.file
            .write_all(content)
            .map_err(GitError::io("write", &self.lock_path))?;
        match fs::metadata(&self.index_path) {
            Ok(old) => self.file.set_permissions(old.permissions()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
        .and_then(|()| fs::rename(&self.lock_path, &self.index_path))
        .map_err(GitError::io("replace", &self.index_path))
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        // After a commit the lock's name is free, and may be another's by now.
        for path in [&self.lock_path, &self.mark_path] {
            let is_ours = match (self.file.metadata(), fs::symlink_metadata(path)) {
                (Ok(ours), Ok(found)) => (ours.dev(), ours.ino()) == (found.dev(), found.ino()),
                _ => false,
            };
            if is_ours && let Err(error) = fs::remove_file(path) {
                log::warn!("{} could not be removed: {error}", path.display());
            }
        }
    }
}

/// Gives back the index's lock where a process of tine's died with it. A lock of git's is left alone. The caller knows
/// that no process of tine's is at work there.
pub fn release_stale_lock(worktree: &LinkedWorktree) -> Result<(), GitError> {
    let (lock_path, mark_path) = (lock_path(worktree), mark_path(worktree));
    let identity = |path: &Path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    let Ok(mark) = identity(&mark_path) else {
        return Ok(());
    };
    if identity(&lock_path).is_ok_and(|lock| lock == mark) {
        log::info!("removing {}, with which a process died", lock_path.display());
        remove_if_there(&lock_path)?;
    }
    remove_if_there(&mark_path)
}

fn lock_path(worktree: &LinkedWorktree) -> PathBuf {
    worktree.git_dir().join("index.lock")
}

fn mark_path(worktree: &LinkedWorktree) -> PathBuf {
    worktree.git_dir().join("index.tine")
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Takes the lock with a marked file; without the mark where there are no hard links. A mark that is there already
/// belongs to another thread of this process.
fn take(mark_path: &Path, lock_path: &Path) -> io::Result<File> {
    let file = create(mark_path)?;
    let taken = match fs::hard_link(mark_path, lock_path) {
        Ok(()) => return Ok(file),
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
            create(lock_path)
        }
        Err(error) => Err(error),
    };
    // One that stays is removed when the store is opened.
    if let Err(error) = fs::remove_file(mark_path) {
        log::warn!("{} could not be removed: {error}", mark_path.display());
    }
    taken
}

fn remove_if_there(path: &Path) -> Result<(), GitError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(GitError::io("remove", path)(error)),
        _ => Ok(()),
    }
}
