//! Files of an own git directory, read without trusting it.
//!
//! No call here follows a symlink, leaves the directory, or waits for a pipe.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gix::ObjectId;
use gix::hash::Kind as HashKind;

use super::object::{Content, Undecoded, decode_loose, hash_of};
use super::quarantine::Checked;
use super::tips::loose_file;
use crate::GitError;
use tine_attr::FileKind;
use tine_sys::beneath::{self, Access, HostStat};
use tine_sys::calls_beneath;
use tine_sys::parallel::disk_work;

/// An own git directory, opened.
pub(super) struct OwnDir {
    top: File,
    path: PathBuf,
}

/// Result of reading a file that may be anything.
pub(super) enum Found<T> {
    Missing,
    /// Cause, as the end of a sentence.
    Invalid(String),
    Good(T),
}

/// Result of reading a loose object.
pub(super) enum Loose {
    Missing,
    /// Its content has more bytes than the limit.
    TooLarge,
    /// Bytes of the file, and what they contain.
    Read(Vec<u8>, Content),
}

impl OwnDir {
    /// Opens the directory at `path`.
    pub(super) fn open(path: &Path) -> Result<OwnDir, GitError> {
        Ok(OwnDir {
            top: beneath::open_top(path).map_err(GitError::io("open", path))?,
            path: path.to_owned(),
        })
    }

    /// Returns the absolute path of a file, for messages and for syncs.
    pub(super) fn path_of(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.path.join(relative)
    }

    /// Opens a regular file of at most `limit` bytes.
    pub(super) fn open_file(&self, relative: &Path, limit: u64) -> Found<(File, HostStat)> {
        let opened = beneath::open(&self.top, relative, Access::Read)
            .and_then(|file| Ok((beneath::stat(&file)?, file)));
        match opened {
            Ok((stat, _)) if stat.kind == FileKind::Directory => Found::Missing,
            Ok((stat, _)) if stat.kind != FileKind::Regular => {
                Found::Invalid("it is not a regular file".to_owned())
            }
            Ok((stat, _)) if stat.size > limit => {
                Found::Invalid(format!("it has {} bytes", stat.size))
            }
            Ok((stat, file)) => Found::Good((file, stat)),
            Err(error) if is_missing(&error) => Found::Missing,
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                Found::Invalid("it is a symlink".to_owned())
            }
            Err(error) => Found::Invalid(error.to_string()),
        }
    }

    /// Reads a regular file of at most `limit` bytes.
    pub(super) fn read(&self, relative: &Path, limit: u64) -> Found<Vec<u8>> {
        match self.open_file(relative, limit) {
            Found::Good((file, stat)) => {
                let mut bytes = Vec::with_capacity(usize::try_from(stat.size).unwrap_or(0));
                // Another program may be appending.
                match file.take(limit).read_to_end(&mut bytes) {
                    Ok(_) => Found::Good(bytes),
                    Err(error) => Found::Invalid(error.to_string()),
                }
            }
            Found::Missing => Found::Missing,
            Found::Invalid(reason) => Found::Invalid(reason),
        }
    }

    /// Returns the attributes of a file or directory.
    pub(super) fn stat(&self, relative: &Path) -> Option<HostStat> {
        let path = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            relative
        };
        let file = beneath::open(&self.top, path, Access::Attributes).ok()?;
        beneath::stat(&file).ok()
    }

    /// Returns the attributes of a file, if it is a regular one.
    pub(super) fn stat_file(&self, relative: &Path) -> Option<HostStat> {
        let file = beneath::open(&self.top, relative, Access::Attributes).ok()?;
        let stat = beneath::stat(&file).ok()?;
        (stat.kind == FileKind::Regular).then_some(stat)
    }

    /// Lists names and kinds in a directory. A missing one is empty.
    pub(super) fn list(&self, relative: &Path) -> Vec<(Vec<u8>, FileKind)> {
        let Ok(dir) = beneath::open(&self.top, relative, Access::Read) else {
            return Vec::new();
        };
        let Ok(again) = dir.try_clone() else {
            return Vec::new();
        };
        let names = beneath::list(dir).unwrap_or_default();
        let kinds = names.into_iter().filter_map(|(name, kind)| {
            let kind = match kind {
                Some(kind) => kind,
                None => beneath::stat_in(&again, &name).ok()?.kind,
            };
            Some((name, kind))
        });
        kinds.collect()
    }

    /// Visits all files below a directory.
    ///
    /// Paths are relative to the git directory.
    ///
    /// Symlinks are visited too, but not followed.
    pub(super) fn visit_files(&self, dir: &Path, visit: &mut dyn FnMut(&Path, FileKind)) {
        /// git makes no path that is longer.
        const MAX_DEPTH: usize = 64;

        let mut open = vec![(dir.to_owned(), 0_usize)];
        while let Some((dir, depth)) = open.pop() {
            for (name, kind) in self.list(&dir) {
                let path = dir.join(OsStr::from_bytes(&name));
                if kind != FileKind::Directory {
                    visit(&path, kind);
                } else if depth < MAX_DEPTH {
                    open.push((path, depth.saturating_add(1)));
                }
            }
        }
    }

    /// Removes a file. A missing one is not an error.
    pub(super) fn remove(&self, relative: &Path) -> io::Result<()> {
        let (dir, name) = self.parent_of(relative)?;
        match calls_beneath::remove(&dir, name, false) {
            Err(error) if !is_missing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Flushes a regular file or a directory to disk. A missing one is not an error.
    pub(super) fn sync(&self, relative: &Path) -> Result<(), GitError> {
        match beneath::open(&self.top, relative, Access::Read).and_then(|file| file.sync_all()) {
            Err(error) if !is_missing(&error) && error.raw_os_error() != Some(libc::ELOOP) => {
                Err(GitError::io("sync", self.path_of(relative))(error))
            }
            _ => Ok(()),
        }
    }

    /// Flushes files and their directories to disk.
    pub(super) fn sync_all(&self, files: &BTreeSet<PathBuf>) -> Result<(), GitError> {
        let mut paths = files.clone();
        paths.extend(
            files
                .iter()
                .filter_map(|file| file.parent().map(Path::to_owned)),
        );
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        disk_work(&paths, |path| self.sync(path))
    }

    /// Reads a loose object, and verifies its hash.
    ///
    /// Also returns the file's bytes, of which there are at most `limit`.
    ///
    /// The inner error is the reason why it cannot be read.
    pub(super) fn read_loose(
        &self,
        hash_kind: HashKind,
        id: ObjectId,
        limit: u64,
    ) -> Checked<Loose> {
        let unreadable = |reason| Ok(Err(format!("the object {id} cannot be read: {reason}")));
        let raw = match self.read(&loose_file(&id), limit) {
            Found::Good(raw) => raw,
            Found::Missing => return Ok(Ok(Loose::Missing)),
            Found::Invalid(reason) => return unreadable(reason),
        };
        let content = match decode_loose(&raw, usize::try_from(limit).unwrap_or(usize::MAX)) {
            Ok(content) => content,
            Err(Undecoded::TooLarge) => return Ok(Ok(Loose::TooLarge)),
            Err(Undecoded::Corrupt) => return unreadable("its file is corrupt".to_owned()),
        };
        let hash = hash_of(hash_kind, &content)?;
        if hash != id {
            return Ok(Err(format!(
                "the content of the object {id} hashes to {hash}"
            )));
        }
        Ok(Ok(Loose::Read(raw, content)))
    }

    /// Returns whether the object has a loose file.
    pub(super) fn has_loose(&self, id: &ObjectId) -> bool {
        self.stat_file(&loose_file(id)).is_some()
    }

    fn parent_of<'p>(&self, relative: &'p Path) -> io::Result<(File, &'p [u8])> {
        let name = relative.file_name().unwrap_or_default().as_bytes();
        let parent = relative.parent().unwrap_or(Path::new(""));
        Ok((beneath::open(&self.top, parent, Access::Read)?, name))
    }
}

/// Returns whether there is no file of a name.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
