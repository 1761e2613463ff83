//! Lock files of refs, also stale ones.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::branch::branch_ref;
use super::keeping::KEEPING;
use super::{PACKED_REFS_INTERVAL, REF_LOCK_TIMEOUT, list_dir};
use crate::{GitError, Repository};

const REF_LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum wait before the lock of the packed refs counts as stale.
///
/// git holds it only briefly, except while it writes a large file beside it.
const STALE_PACKED_REFS_TIMEOUT: Duration = Duration::from_secs(2);

impl Repository {
    /// Checks that a file of the repository is unlocked within [`REF_LOCK_TIMEOUT`].
    pub(crate) fn check_unlocked_for_a_while(&self, path: &Path) -> Result<(), GitError> {
        let deadline = Instant::now() + REF_LOCK_TIMEOUT;
        while let Some(locked) = ref_locked(self.common_dir(), path) {
            if Instant::now() >= deadline {
                return Err(locked);
            }
            thread::sleep(REF_LOCK_INTERVAL);
        }
        Ok(())
    }

    /// Removes the stale locks under `refs/tine/` of processes that died.
    ///
    /// The caller guarantees that no other tine process uses them. git takes such locks only while
    /// it packs refs, and retries.
    ///
    /// # Errors
    /// [`GitError::Io`] if a directory cannot be listed or a lock cannot be removed.
    pub fn release_stale_ref_locks(&self) -> Result<(), GitError> {
        let mut dirs = list_dir(&self.common_dir().join(KEEPING))?;
        while let Some(dir) = dirs.pop() {
            let paths = match list_dir(&dir) {
                Ok(paths) => paths,
                // It affects only its own fork.
                Err(error) => {
                    log::warn!("{error}");
                    continue;
                }
            };
            for path in paths {
                if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
                    dirs.push(path);
                } else if path.extension().is_some_and(|suffix| suffix == "lock") {
                    remove_stale_lock(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the stale lock of the branch `name` (short).
    ///
    /// The caller guarantees that a tine process took the lock and died.
    ///
    /// # Errors
    /// [`GitError::InvalidBranchName`], or [`GitError::Io`] if the lock cannot be removed.
    pub fn release_stale_branch_lock(&self, name: &str) -> Result<(), GitError> {
        branch_ref(name)?;
        remove_stale_lock(&lock_of(&self.common_dir().join("refs/heads").join(name)))
    }

    /// Removes the stale packed-refs lock of an interrupted deletion.
    ///
    /// The lock may also be git's: then it goes away by itself, or the file that git writes under
    /// it exists. Blocks for up to two seconds.
    ///
    /// # Errors
    /// [`GitError::Io`] if the lock cannot be removed.
    pub fn release_stale_packed_refs_lock(&self) -> Result<(), GitError> {
        let lock = lock_of(&self.common_dir().join("packed-refs"));
        let new = self.common_dir().join("packed-refs.new");
        let identity = || {
            let meta = fs::symlink_metadata(&lock).ok()?;
            Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
        };
        let Some(before) = identity() else {
            return Ok(());
        };
        let deadline = Instant::now() + STALE_PACKED_REFS_TIMEOUT;
        while Instant::now() < deadline {
            if identity() != Some(before) || fs::symlink_metadata(&new).is_ok() {
                return Ok(());
            }
            thread::sleep(PACKED_REFS_INTERVAL);
        }
        remove_stale_lock(&lock)
    }
}

/// Removes a stale lock, if it exists.
pub(crate) fn remove_stale_lock(lock: &Path) -> Result<(), GitError> {
    match fs::remove_file(lock) {
        Ok(()) => {
            log::info!("removed {}, with which a process died", lock.display());
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(GitError::io("remove", lock)(error)),
    }
}

/// Returns the error for a locked ref in the loose file `path`.
///
/// It is `None` if the ref is not locked.
pub(crate) fn ref_locked(common_dir: &Path, path: &Path) -> Option<GitError> {
    let lock = lock_of(path);
    fs::symlink_metadata(&lock).ok()?;
    let name = path.strip_prefix(common_dir).unwrap_or(path);
    Some(GitError::RefLocked {
        name: name.display().to_string(),
        lock,
    })
}

/// Returns git's lock file for `path`.
pub(crate) fn lock_of(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}
