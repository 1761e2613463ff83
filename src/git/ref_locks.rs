//! git's lock files of refs, and what a process that was killed leaves of them: it would keep everybody from the ref for
//! good.
//!
//! A lock file does not say whose it is. So whoever changes a ref writes down first which locks that takes, in a note
//! in `<common-dir>/tine/ref-locks/`, and removes the note when they are given back. A note of a process that died tells
//! where to look. A lock there that was made before the note, or that goes away by itself, is somebody else's.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::GitError;

/// How long a lock must stay as it is to count as left behind: git holds one for moments. `packed-refs.lock` may be held
/// while a large file is written.
const PATIENCE: Duration = Duration::from_millis(200);
const PACKED_REFS_PATIENCE: Duration = Duration::from_secs(2);

/// The name of the lock of `packed-refs`, and of what git, but not the library, writes meanwhile.
const PACKED_REFS_LOCK: &str = "packed-refs.lock";
const PACKED_REFS_NEW: &str = "packed-refs.new";

/// A note of locks that are about to be taken. Dropping it says that they were given back.
pub(super) struct Note(PathBuf);

impl Note {
    /// Notes the lock files `locks` beneath `common_dir`.
    pub(super) fn of(common_dir: &Path, locks: &[PathBuf]) -> Result<Note, GitError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let dir = dir(common_dir);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{}-{number}", std::process::id()));
        let mut text = Vec::new();
        for lock in locks {
            text.extend_from_slice(lock.as_os_str().as_bytes());
            text.push(0);
        }
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(&text)
        };
        let written = match write() {
            Err(error) if error.kind() == ErrorKind::NotFound => DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .and_then(|()| write()),
            written => written,
        };
        written.map_err(GitError::io("write", &path))?;
        Ok(Note(path))
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            log::warn!("{} stays: {error}", self.0.display());
        }
    }
}

fn dir(common_dir: &Path) -> PathBuf {
    common_dir.join("tine/ref-locks")
}

/// Removes the locks that processes which died have left. No process that notes its locks may run.
pub fn release_stale_ref_locks(common_dir: &Path) -> Result<(), GitError> {
    let dir = dir(common_dir);
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(GitError::io("list", &dir)(error)),
    };
    for entry in entries {
        let note = entry.map_err(GitError::io("list", &dir))?.path();
        release_noted(common_dir, &note).map_err(GitError::io("release the locks noted in", &note))?;
    }
    Ok(())
}

fn release_noted(common_dir: &Path, note: &Path) -> io::Result<()> {
    let since = modified(&fs::symlink_metadata(note)?);
    for lock in fs::read(note)?.split(|byte| *byte == 0) {
        let lock = PathBuf::from(std::ffi::OsString::from_vec(lock.to_vec()));
        // Nothing else is ever noted; a damaged note must not lead astray.
        let is_lock =
            lock.starts_with(common_dir) && lock.extension().is_some_and(|extension| extension == "lock");
        if is_lock && is_left_behind(common_dir, &lock, since)? {
            log::info!("removing {}, which a process that died has left", lock.display());
            remove_if_there(&lock)?;
        }
    }
    remove_if_there(note)
}

fn is_left_behind(common_dir: &Path, lock: &Path, since: (i64, i64)) -> io::Result<bool> {
    let Some(before) = stat(lock)? else {
        return Ok(false);
    };
    if modified(&before) < since {
        return Ok(false);
    }
    let is_packed_refs = lock.file_name().is_some_and(|name| name == PACKED_REFS_LOCK);
    thread::sleep(if is_packed_refs {
        PACKED_REFS_PATIENCE
    } else {
        PATIENCE
    });
    let is_same =
        stat(lock)?.is_some_and(|now| now.ino() == before.ino() && modified(&now) == modified(&before));
    Ok(is_same && !(is_packed_refs && stat(&common_dir.join(PACKED_REFS_NEW))?.is_some()))
}

fn modified(meta: &fs::Metadata) -> (i64, i64) {
    (meta.mtime(), meta.mtime_nsec())
}

fn stat(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_a_process_that_died_go_and_those_of_others_stay() {
        let place = tempfile::tempdir().unwrap();
        let common_dir = place.path();
        let lock = |name: &str| common_dir.join(name);
        fs::write(lock("earlier.lock"), "").unwrap();
        // File systems count time in ticks.
        thread::sleep(Duration::from_millis(20));
        let noted = [
            "earlier.lock",
            "ours.lock",
            "gone.lock",
            "packed-refs.lock",
            "HEAD",
        ]
        .map(lock);
        std::mem::forget(Note::of(common_dir, &noted).unwrap());
        for name in [
            "ours.lock",
            "others.lock",
            "packed-refs.lock",
            "packed-refs.new",
            "HEAD",
        ] {
            fs::write(lock(name), "").unwrap();
        }
        let given_back = Note::of(common_dir, &[lock("others.lock")]).unwrap();
        drop(given_back);

        release_stale_ref_locks(common_dir).unwrap();
        assert!(!lock("ours.lock").exists());
        for name in ["earlier.lock", "others.lock", "packed-refs.lock", "HEAD"] {
            assert!(lock(name).exists(), "{name}");
        }
        assert_eq!(fs::read_dir(dir(common_dir)).unwrap().count(), 0);
        release_stale_ref_locks(common_dir).unwrap();
    }
}
