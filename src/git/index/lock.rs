//! git's lock of a worktree's index, `index.lock`.
//!
//! The process that creates that name has the lock, and writes the new index there.
//!
//! A lock left by a killed process would block the index forever. tine therefore creates its lock
//! as `index.tine` and links it to the lock's name. While both names lead to one file, the lock is
//! tine's. The new index replaces the old one by the first name, so that the lock persists: it is
//! then another name of the index itself. The old index is kept as `index.tine-old` until the lock
//! is released.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{readers, staged};
use crate::refs::{lock_of, remove_stale_lock};
use crate::{GitError, Repository, Worktree};
use tine_sys::pause;

/// Maximum wait for an index that git has locked.
///
/// An editor's `git status` ends within that time, but a rebase does not.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Time between two attempts.
const INTERVAL: Duration = Duration::from_millis(10);

/// The held lock. Dropping it releases it and leaves the index unchanged.
#[derive(Debug)]
pub(crate) struct IndexLock {
    file: File,
    index_path: PathBuf,
    lock_path: PathBuf,
    mark_path: PathBuf,
    old_path: PathBuf,
}

/// An updated index that stays locked until this is dropped.
#[derive(Debug)]
pub struct UpdatedIndex {
    lock: IndexLock,
    /// True if the old index was kept and can be restored.
    has_old: bool,
}

/// A new index that is synced but not in place yet.
///
/// Dropping it leaves the index unchanged.
#[derive(Debug)]
pub struct PreparedIndex {
    lock: IndexLock,
}

impl PreparedIndex {
    /// Replaces the index, and keeps its permissions.
    ///
    /// # Errors
    /// [`GitError::Io`] if the index cannot be replaced.
    pub fn put_in_place(self) -> Result<UpdatedIndex, GitError> {
        pause::at("before-index");
        self.lock
            .put_in_place()
            .map_err(GitError::io("replace", &self.lock.index_path))
            .map(|has_old| UpdatedIndex {
                lock: self.lock,
                has_old,
            })
    }
}

impl UpdatedIndex {
    /// Releases the lock when no git process can restore the old index.
    ///
    /// Waits for such processes in the worktree; blocks for at most two seconds.
    pub fn finish(self, worktree: &Worktree) {
        // If the checkout is unknown, no processes run in it.
        if let Ok(checkout_dir) = worktree.checkout_dir() {
            self.lock.wait_for_readers_in(&checkout_dir);
        }
    }

    /// Restores the old index.
    ///
    /// If it was not kept (a file system without hard links, or no index before), the new one
    /// stays.
    pub fn undo(self) {
        if let Err(error) = self.restore_old() {
            let path = &self.lock.index_path;
            log::warn!("{} could not be put back: {error}", path.display());
        }
    }

    /// Restores the old index, and keeps the lock.
    pub(super) fn restore_old(&self) -> io::Result<()> {
        if !self.has_old {
            return Ok(());
        }
        // After this, the index is no longer the lock's other name.
        fs::hard_link(&self.lock.lock_path, &self.lock.mark_path)?;
        fs::rename(&self.lock.old_path, &self.lock.index_path)
    }
}

impl IndexLock {
    /// Takes the lock, waiting briefly for its holder.
    ///
    /// # Errors
    /// [`GitError::IndexLocked`] if it is still held then.
    pub(super) fn acquire(worktree: &Worktree) -> Result<IndexLock, GitError> {
        IndexLock::acquire_at(worktree.git_dir(), TIMEOUT)
    }

    /// Takes the lock of any worktree, waiting at most `timeout`.
    pub(crate) fn acquire_at(git_dir: &Path, timeout: Duration) -> Result<IndexLock, GitError> {
        let index_path = git_dir.join("index");
        let (lock_path, mark_path) = (lock_path(git_dir), mark_path(git_dir));
        let deadline = Instant::now() + timeout;
        let taken = loop {
            match take(&mark_path, &lock_path) {
                Err(error)
                    if error.kind() == ErrorKind::AlreadyExists && Instant::now() < deadline =>
                {
                    thread::sleep(INTERVAL);
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
            old_path: old_path(git_dir),
        })
    }

    /// Returns the open file that both names of the lock lead to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Waits for git processes that may have read the old index.
    ///
    /// Covers the processes in the checkout; blocks for at most two seconds.
    pub(crate) fn wait_for_readers_in(&self, checkout_dir: &Path) {
        // Without hard links, the lock is already released.
        if self.lock_path.exists() {
            readers::wait_for_readers(checkout_dir);
        }
    }

    /// Writes and syncs the new index.
    ///
    /// git cannot read an index that a power cut left empty, so the sync precedes the rename.
    pub(super) fn write(mut self, content: &[u8]) -> Result<PreparedIndex, GitError> {
        self.file
            .write_all(content)
            .and_then(|()| self.file.sync_all())
            .map_err(GitError::io("write", &self.lock_path))?;
        Ok(PreparedIndex { lock: self })
    }

    /// Replaces the index, and returns whether the old one was kept.
    fn put_in_place(&self) -> io::Result<bool> {
        let exists = match fs::metadata(&self.index_path) {
            Ok(old) => {
                self.file.set_permissions(old.permissions())?;
                true
            }
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !self.mark_path.exists() {
            fs::rename(&self.lock_path, &self.index_path)?;
            return Ok(false);
        }
        if exists {
            match fs::remove_file(&self.old_path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::hard_link(&self.index_path, &self.old_path)?;
        }
        fs::rename(&self.mark_path, &self.index_path)?;
        Ok(exists)
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        // Without hard links, the lock's name is free after a commit, and another process may have
        // it.
        for path in [&self.lock_path, &self.mark_path] {
            let is_ours = match (self.file.metadata(), fs::symlink_metadata(path)) {
                (Ok(ours), Ok(found)) => (ours.dev(), ours.ino()) == (found.dev(), found.ino()),
                _ => false,
            };
            if is_ours && let Err(error) = fs::remove_file(path) {
                log::warn!("{} could not be removed: {error}", path.display());
            }
        }
        if let Err(error) = remove_if_there(&self.old_path) {
            log::warn!("{error}");
        }
    }
}

/// Releases the index lock of a dead tine process.
///
/// Also releases its locks of HEAD and the branch, which are taken only under the index lock.
/// Leaves git's locks alone. The caller guarantees that no tine process works there.
///
/// # Errors
/// [`GitError::Io`] if a lock cannot be removed, or [`GitError::DamagedHead`].
pub fn release_stale_lock(repository: &Repository, worktree: &Worktree) -> Result<(), GitError> {
    let git_dir = worktree.git_dir();
    if is_ours(git_dir) {
        for held in [
            worktree.git_dir().join("HEAD"),
            repository.head_ref_path(worktree)?,
        ] {
            remove_stale_lock(&lock_of(&held))?;
        }
    }
    staged::remove_left(worktree)?;
    // This comes last: while it exists, the other locks are known to be tine's.
    release_stale_at(git_dir).map(drop)
}

/// Releases the index lock of a dead tine process.
///
/// Returns whether there was one.
pub(crate) fn release_stale_at(git_dir: &Path) -> Result<bool, GitError> {
    let is_ours = is_ours(git_dir);
    if is_ours {
        remove_stale_lock(&lock_path(git_dir))?;
    }
    remove_if_there(&old_path(git_dir))?;
    remove_if_there(&mark_path(git_dir))?;
    Ok(is_ours)
}

/// Returns whether the index lock is tine's.
///
/// It is then another name of the mark, or of the index itself.
fn is_ours(git_dir: &Path) -> bool {
    let identity =
        |path: PathBuf| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    let marks = [
        identity(mark_path(git_dir)),
        identity(git_dir.join("index")),
    ];
    let lock = identity(lock_path(git_dir));
    lock.is_ok_and(|lock| marks.into_iter().flatten().any(|mark| mark == lock))
}

/// Returns the lock of the index in `git_dir`, if git holds it.
pub(crate) fn locked_by_git(git_dir: &Path) -> Option<PathBuf> {
    let lock = lock_path(git_dir);
    (lock.exists() && !is_ours(git_dir)).then_some(lock)
}

fn lock_path(git_dir: &Path) -> PathBuf {
    git_dir.join("index.lock")
}

fn mark_path(git_dir: &Path) -> PathBuf {
    git_dir.join("index.tine")
}

fn old_path(git_dir: &Path) -> PathBuf {
    git_dir.join("index.tine-old")
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Takes the lock with a marked file, or unmarked without hard links.
///
/// An existing mark belongs to another thread of this process.
fn take(mark_path: &Path, lock_path: &Path) -> io::Result<File> {
    let file = create(mark_path)?;
    let taken = match fs::hard_link(mark_path, lock_path) {
        Ok(()) => return Ok(file),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::Unsupported
            ) =>
        {
            create(lock_path)
        }
        Err(error) => Err(error),
    };
    // A leftover mark is removed when the store is opened.
    if let Err(error) = fs::remove_file(mark_path) {
        log::warn!("{} could not be removed: {error}", mark_path.display());
    }
    taken
}

pub(super) fn remove_if_there(path: &Path) -> Result<(), GitError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(GitError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
