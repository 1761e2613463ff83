//! git's lock of a worktree's index, `index.lock`: whoever creates that name has it, and the new
//! index is written there.
//!
//! What a process that was killed leaves of it would keep everybody from the index for good. So
//! ours is made as `index.tine` and then linked to the lock's name: as long as both names lead to
//! one file, the lock is tine's own. The new index takes the old one's place by that first name, so
//! that the lock goes on: it is then another name of the index itself. The old index waits as
//! `index.tine-old` until the lock is given back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{readers, staged};
use crate::refs::{lock_of, remove_stale_lock};
use crate::{GitError, LinkedWorktree, Repository};
use tine_sys::pause;

/// How long an index that git has locked is waited for: an editor's `git status` is over by then, a
/// rebase is not.
const TIMEOUT: Duration = Duration::from_millis(500);

/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// The lock, held. Dropping it gives it back and leaves the index as it is.
#[derive(Debug)]
pub(crate) struct IndexLock {
    file: File,
    index_path: PathBuf,
    lock_path: PathBuf,
    mark_path: PathBuf,
    old_path: PathBuf,
}

/// An index that was brought to another tree and is still locked, until this is dropped.
#[derive(Debug)]
pub struct UpdatedIndex {
    lock: IndexLock,
    /// Whether the old index waits to be put back.
    has_old: bool,
}

/// An index that is written and durable, but not in its place yet. Dropping it leaves the index as
/// it is.
#[derive(Debug)]
pub struct PreparedIndex {
    lock: IndexLock,
}

impl PreparedIndex {
    /// Puts it in the index's place, with the permissions that the index has.
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
    /// Releases the lock once no git process in the worktree can put the old index back; blocks for
    /// two seconds at most.
    pub fn finish(self, worktree: &LinkedWorktree) {
        // One whose checkout is not known has no processes in it.
        if let Ok(checkout_dir) = worktree.checkout_dir() {
            self.lock.hold_off_readers(&checkout_dir);
        }
    }

    /// Puts the old index back. Where it could not be kept (a file system without hard links, or no
    /// index before), the new one stays.
    pub fn undo(self) {
        if let Err(error) = self.put_back() {
            let path = &self.lock.index_path;
            log::warn!("{} could not be put back: {error}", path.display());
        }
    }

    /// Does that, and holds the lock.
    pub(super) fn put_back(&self) -> io::Result<()> {
        if !self.has_old {
            return Ok(());
        }
        // The index is the lock's other name no more then.
        fs::hard_link(&self.lock.lock_path, &self.lock.mark_path)?;
        fs::rename(&self.lock.old_path, &self.lock.index_path)
    }
}

impl IndexLock {
    /// Takes the lock, waiting a moment for whoever has it.
    ///
    /// # Errors
    /// [`GitError::IndexLocked`] where it is still held then.
    pub(super) fn acquire(worktree: &LinkedWorktree) -> Result<IndexLock, GitError> {
        IndexLock::acquire_at(worktree.git_dir(), TIMEOUT)
    }

    /// As [`IndexLock::acquire`], of any worktree, and waiting no longer than `patience`.
    pub(crate) fn acquire_at(git_dir: &Path, patience: Duration) -> Result<IndexLock, GitError> {
        let index_path = git_dir.join("index");
        let (lock_path, mark_path) = (lock_path(git_dir), mark_path(git_dir));
        let deadline = Instant::now() + patience;
        let taken = loop {
            match take(&mark_path, &lock_path) {
                Err(error)
                    if error.kind() == ErrorKind::AlreadyExists && Instant::now() < deadline =>
                {
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
            old_path: old_path(git_dir),
        })
    }

    /// The open file that both of the lock's names lead to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Waits for git processes in the checkout that may have read the index before it was replaced;
    /// blocks for two seconds at most.
    pub(crate) fn hold_off_readers(&self, checkout_dir: &Path) {
        // Without hard links the lock is gone already.
        if self.lock_path.exists() {
            readers::wait_for_readers(checkout_dir);
        }
    }

    /// Writes what is to take the index's place. It is on the disk before it gets there: git cannot
    /// read an index that a power failure left empty.
    pub(super) fn write(mut self, content: &[u8]) -> Result<PreparedIndex, GitError> {
        self.file
            .write_all(content)
            .and_then(|()| self.file.sync_all())
            .map_err(GitError::io("write", &self.lock_path))?;
        Ok(PreparedIndex { lock: self })
    }

    /// Whether the old index was kept.
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
        // Without hard links the lock's name is free after a commit, and may be another's by now.
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

/// Gives back the index's lock where a process of tine's died with it, and those of HEAD and its
/// branch, which are taken under that one only. A lock of git's is left alone. The caller knows
/// that no process of tine's is at work there.
pub fn release_stale_lock(
    repository: &Repository,
    worktree: &LinkedWorktree,
) -> Result<(), GitError> {
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
    // Last: as long as it is there, the others are known to be ours.
    release_stale_at(git_dir).map(drop)
}

/// Gives back the lock of an index where a process of tine's died with it; whether it had it.
pub(crate) fn release_stale_at(git_dir: &Path) -> Result<bool, GitError> {
    let is_ours = is_ours(git_dir);
    if is_ours {
        remove_stale_lock(&lock_path(git_dir))?;
    }
    remove_if_there(&old_path(git_dir))?;
    remove_if_there(&mark_path(git_dir))?;
    Ok(is_ours)
}

/// Whether the lock of the index is tine's: another name of the mark, or of the index itself.
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

/// The lock of the index in `git_dir`, where git has it.
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

/// Takes the lock with a marked file; without the mark where there are no hard links. A mark that
/// is there already belongs to another thread of this process.
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
    // One that stays is removed when the store is opened.
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
