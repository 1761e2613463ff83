//! An ordinary checkout with its index and the scratch copy of that.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use super::{INTERVAL, ORPHAN_TIMEOUT};
use crate::program::{self, Finished};
use crate::refs::lock_of;
use crate::{GitError, Repository};
use tine_path::RepoPath;
use tine_sys::file;

/// Free bytes below which a failed write counts as a full disk.
const FULL_BELOW_BYTES: u64 = 1 << 20;

/// A checkout, and where its index is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: PathBuf,
    pub(super) git_dir: PathBuf,
}

impl Place {
    pub(super) fn of(dir: &Path) -> Result<Place, GitError> {
        Ok(Place {
            dir: dir.to_owned(),
            git_dir: Repository::git_dir_at(dir)?,
        })
    }

    pub(super) fn file(&self, path: &RepoPath) -> PathBuf {
        self.dir.join(OsStr::from_bytes(path.as_bytes()))
    }

    /// Removes the empty directories above a removed file.
    pub(super) fn remove_empty_above(&self, path: &RepoPath) {
        for dir in path.directories_above() {
            if fs::remove_dir(self.file(&dir)).is_err() {
                return;
            }
        }
    }

    pub(super) fn index(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    /// Returns the second name of the index, on which git works.
    ///
    /// The index itself is locked meanwhile.
    pub(super) fn scratch_index(&self) -> PathBuf {
        self.git_dir.join("index.tine-new")
    }

    /// Creates a git command in the checkout, on the scratch index.
    pub(super) fn git(&self) -> Command {
        let mut command = program::command(&self.dir);
        command.env("GIT_INDEX_FILE", self.scratch_index());
        command
    }

    /// Creates the scratch index as a hard link.
    ///
    /// git replaces an index and never writes into one, so this is safe.
    pub(super) fn take_scratch_index(&self) -> Result<(), GitError> {
        let (index, scratch) = (self.index(), self.scratch_index());
        self.remove_scratch_index()?;
        match fs::hard_link(&index, &scratch) {
            Ok(()) => Ok(()),
            // git treats a missing index as empty.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::Unsupported
                ) =>
            {
                copy_with_time(&index, &scratch).map_err(GitError::io("copy", &index))
            }
            Err(error) => Err(GitError::io("link", &index)(error)),
        }
    }

    pub(super) fn put_scratch_index(&self) -> Result<(), GitError> {
        let scratch = self.scratch_index();
        File::open(&scratch)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&scratch, self.index()))
            .map_err(GitError::io("replace the index by", &scratch))
    }

    pub(super) fn remove_scratch_index(&self) -> Result<(), GitError> {
        let scratch = self.scratch_index();
        for path in [lock_of(&scratch), scratch] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(GitError::io("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the directory for copies of files that a filter rewrites.
    pub(super) fn kept(&self) -> PathBuf {
        self.git_dir.join("tine-kept")
    }

    pub(super) fn kept_file(&self, path: &RepoPath) -> PathBuf {
        self.kept().join(OsStr::from_bytes(path.as_bytes()))
    }

    /// Copies a regular file to its kept place.
    pub(super) fn keep(&self, path: &RepoPath) -> Result<(), GitError> {
        let (place, kept) = (self.file(path), self.kept_file(path));
        if !fs::symlink_metadata(&place).is_ok_and(|found| found.is_file()) {
            return Ok(());
        }
        copy_to(&place, &kept).map_err(GitError::io("keep", &place))
    }

    /// Restores a kept file, and returns whether there was one.
    pub(super) fn restore_kept(&self, path: &RepoPath) -> Result<bool, GitError> {
        let (place, kept) = (self.file(path), self.kept_file(path));
        if !fs::symlink_metadata(&kept).is_ok_and(|found| found.is_file()) {
            return Ok(false);
        }
        match fs::remove_file(&place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(GitError::io("replace", &place)(error));
            }
            _ => {}
        }
        copy_to(&kept, &place).map_err(GitError::io("put back", &place))?;
        Ok(true)
    }

    pub(super) fn remove_kept(&self) -> Result<(), GitError> {
        let kept = self.kept();
        match fs::remove_dir_all(&kept) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(GitError::io("remove", &kept)(error))
            }
            _ => Ok(()),
        }
    }

    /// Waits for a git that writes files after its daemon was killed.
    pub(super) fn wait_for_orphan(&self) -> Result<(), GitError> {
        let mark = self.git_dir.join("index.tine");
        let Ok(held) = File::open(&mark) else {
            return Ok(());
        };
        let deadline = Instant::now() + ORPHAN_TIMEOUT;
        while !file::try_lock(&held).map_err(GitError::io("lock", &mark))? {
            if Instant::now() >= deadline {
                return Err(GitError::IndexLocked { lock: mark });
            }
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Returns the error of a failed move: files in the way, or a failure.
    pub(super) fn move_error(
        &self,
        command: &Command,
        finished: &Finished,
    ) -> Result<(), GitError> {
        let said = String::from_utf8_lossy(&finished.stderr);
        match finished.status.code() {
            Some(0) => Ok(()),
            Some(1 | 128) => Err(match self.io_error(&said) {
                Some(error) => GitError::io("move the checkout at", &self.dir)(error),
                None if could_not_write(&said) => program::failed(command, finished),
                None => GitError::CheckoutInTheWay {
                    dir: self.dir.clone(),
                    reason: said.trim().to_owned(),
                },
            }),
            _ => Err(program::failed(command, finished)),
        }
    }

    /// Returns the failed system call of git's error output, if any.
    ///
    /// For an incomplete file git does not print the cause. In that case the disk counts as the
    /// cause if it is full, as the file still occupies it.
    fn io_error(&self, said: &str) -> Option<io::Error> {
        let told = program::format_io_error(said);
        if told.is_some() || !could_not_write(said) {
            return told;
        }
        let figures = file::fs_figures(&self.dir).ok()?;
        let bytes = figures.blocks_available.saturating_mul(figures.block_size);
        let is_full = bytes < FULL_BELOW_BYTES || figures.files > 0 && figures.files_free == 0;
        is_full.then(|| io::Error::new(ErrorKind::StorageFull, said.trim().to_owned()))
    }
}

/// Returns whether git failed to write or create a file.
fn could_not_write(said: &str) -> bool {
    const FAILURES: [&str; 4] = [
        "unable to write ",
        "unable to create ",
        "cannot create directory ",
        "could not write ",
    ];
    said.lines().any(|line| {
        let said = line
            .strip_prefix("error: ")
            .or(line.strip_prefix("fatal: "));
        said.is_some_and(|said| FAILURES.iter().any(|failure| said.starts_with(failure)))
    })
}

fn copy_with_time(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    let modified = fs::metadata(from)?.modified()?;
    File::options()
        .write(true)
        .open(to)?
        .set_times(FileTimes::new().set_modified(modified))
}

/// Copies a file with its mtime, and creates the directories.
fn copy_to(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    copy_with_time(from, to)
}
