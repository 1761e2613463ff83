//! An ordinary checkout: its files, its index, and the second name over which git works on that.

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

/// A disk with less room than this counts as full where git could not write a file.
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

    /// Removes the directories above a file that was removed, as far as nothing is in them.
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

    /// The name over which git works on the index while that is locked.
    pub(super) fn scratch_index(&self) -> PathBuf {
        self.git_dir.join("index.tine-new")
    }

    /// git in the checkout, on the scratch index.
    pub(super) fn git(&self) -> Command {
        let mut command = program::command(&self.dir);
        command.env("GIT_INDEX_FILE", self.scratch_index());
        command
    }

    /// Gives the index its second name. git replaces an index, and never writes into one.
    pub(super) fn take_scratch_index(&self) -> Result<(), GitError> {
        let (index, scratch) = (self.index(), self.scratch_index());
        self.remove_scratch_index()?;
        match fs::hard_link(&index, &scratch) {
            Ok(()) => Ok(()),
            // git takes a missing one for an empty one.
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

    /// Where files are kept while a filter writes new ones in their places.
    pub(super) fn kept(&self) -> PathBuf {
        self.git_dir.join("tine-kept")
    }

    pub(super) fn kept_file(&self, path: &RepoPath) -> PathBuf {
        self.kept().join(OsStr::from_bytes(path.as_bytes()))
    }

    /// Copies a file to where it is kept, if it is one.
    pub(super) fn keep(&self, path: &RepoPath) -> Result<(), GitError> {
        let (place, kept) = (self.file(path), self.kept_file(path));
        if !fs::symlink_metadata(&place).is_ok_and(|found| found.is_file()) {
            return Ok(());
        }
        copy_to(&place, &kept).map_err(GitError::io("keep", &place))
    }

    /// Puts a file back as it was kept; whether it was.
    pub(super) fn put_back_kept(&self, path: &RepoPath) -> Result<bool, GitError> {
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

    /// Waits for a git that goes on writing files after its daemon was killed.
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

    /// Why git did not move the checkout: what is in the way, or what failed.
    pub(super) fn refusal(&self, command: &Command, finished: &Finished) -> Result<(), GitError> {
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

    /// The failing system call that git tells of. Of a file that it could not write to its end it
    /// does not say why: then the disk is looked at, which that file still fills.
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

/// Whether git says that it could not write a file, or make one.
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

/// As [`copy_with_time`], in directories that are made.
fn copy_to(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    copy_with_time(from, to)
}
