//! Writes a result back to the plain directory that it began as.
//!
//! A three-way check of every path comes first, then the files, each replaced atomically. A path is
//! written if the directory still has the base's entry, and left alone if it has the result's. Any
//! other entry is a change by others, and then nothing is written at all.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::compare::compare_trees;
use super::{Change, ChangeError, Side};
use tine_attr::FileKind;
use tine_git::{ObjectId, Repository, TreeEntryKind};
use tine_path::RepoPath;
use tine_sys::beneath::{self, Access};

/// Paths that were written back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenBack {
    /// Files and links that were written, sorted.
    pub written: Vec<RepoPath>,
    /// Files and links that were deleted, sorted.
    pub deleted: Vec<RepoPath>,
}

/// Writes the changes from `base` to `result` to `directory`.
///
/// `base` and `result` are trees.
///
/// # Errors
/// [`ChangeError::DirectoryChanged`] if the directory has other changes; nothing is written then.
/// [`ChangeError::Store`] if a file cannot be read or written.
pub fn write_back(
    repository: &Repository,
    base: ObjectId,
    result: ObjectId,
    directory: &Path,
) -> Result<WrittenBack, ChangeError> {
    let changes = compare_trees(repository, base, result)?;
    let top = beneath::open_top(directory).map_err(ChangeError::io("open", directory))?;
    let removed: BTreeSet<RepoPath> = changes
        .iter()
        .filter(|change| change.new.is_none())
        .map(|change| change.path.clone())
        .collect();
    let place = WriteBackTarget {
        repository,
        top,
        removed,
    };
    let (mut to_write, mut in_the_way) = (Vec::new(), Vec::new());
    for change in &changes {
        if place.has(&change.path, change.new.as_ref())? {
            continue;
        }
        let is_plain = change
            .new
            .as_ref()
            .is_none_or(|side| side.kind != TreeEntryKind::Submodule);
        if is_plain && place.has(&change.path, change.old.as_ref())? && place.has_room(change)? {
            to_write.push(change);
        } else {
            in_the_way.push(change.path.clone());
        }
    }
    if !in_the_way.is_empty() {
        return Err(ChangeError::DirectoryChanged(in_the_way));
    }
    let mut done = WrittenBack::default();
    // Deletions come first, the deepest first, to make room.
    for change in to_write.iter().rev().filter(|change| change.new.is_none()) {
        delete(directory, &change.path)?;
        done.deleted.push(change.path.clone());
    }
    for change in &to_write {
        if let Some(side) = &change.new {
            write(repository, directory, &change.path, side)?;
            done.written.push(change.path.clone());
        }
    }
    done.deleted.sort();
    Ok(done)
}

/// Directory that a result is written to.
struct WriteBackTarget<'r> {
    repository: &'r Repository,
    top: File,
    /// Paths that will be deleted.
    removed: BTreeSet<RepoPath>,
}

impl WriteBackTarget<'_> {
    /// Opens the file at a path, without following symlinks.
    fn kind(&self, path: &RepoPath) -> Result<Option<(File, beneath::HostStat)>, ChangeError> {
        match beneath::open(&self.top, path.as_path(), Access::Attributes) {
            Ok(file) => {
                let stat =
                    beneath::stat(&file).map_err(ChangeError::io("look at", path.as_path()))?;
                Ok(Some((file, stat)))
            }
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
                // A symlink or another file system replaced a directory.
                _ if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EXDEV)) => Ok(None),
                _ => Err(ChangeError::io("open", path.as_path())(error)),
            },
        }
    }

    /// Returns whether the directory has exactly this entry.
    fn has(&self, path: &RepoPath, side: Option<&Side>) -> Result<bool, ChangeError> {
        let found = self.kind(path)?;
        let Some(side) = side else {
            // To git, a directory that will be empty does not exist.
            return Ok(match found {
                None => true,
                Some((_, stat)) if stat.kind == FileKind::Directory => self.is_emptied(path)?,
                Some(_) => false,
            });
        };
        let Some((file, stat)) = found else {
            return Ok(false);
        };
        let is_executable = stat.perm & 0o100 != 0;
        match (side.kind, stat.kind) {
            (TreeEntryKind::Symlink, FileKind::Symlink) => {
                let target =
                    beneath::read_link(&file).map_err(ChangeError::io("read", path.as_path()))?;
                Ok(target == self.repository.read_blob(side.id)?)
            }
            (TreeEntryKind::File, FileKind::Regular) if !is_executable => {
                self.has_bytes(path, &stat, side)
            }
            (TreeEntryKind::Executable, FileKind::Regular) if is_executable => {
                self.has_bytes(path, &stat, side)
            }
            _ => Ok(false),
        }
    }

    fn has_bytes(
        &self,
        path: &RepoPath,
        stat: &beneath::HostStat,
        side: &Side,
    ) -> Result<bool, ChangeError> {
        if self.repository.blob_size(side.id)? != stat.size {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        beneath::open(&self.top, path.as_path(), Access::Read)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(ChangeError::io("read", path.as_path()))?;
        Ok(bytes == self.repository.read_blob(side.id)?)
    }

    /// Returns whether a directory is empty or will be.
    fn is_emptied(&self, path: &RepoPath) -> Result<bool, ChangeError> {
        let listed = beneath::open(&self.top, path.as_path(), Access::Read)
            .and_then(beneath::list)
            .map_err(ChangeError::io("list", path.as_path()))?;
        for (name, kind) in listed {
            let Ok(child) = RepoPath::parse([path.as_bytes(), b"/", name.as_slice()].concat())
            else {
                return Ok(false);
            };
            let goes = match kind {
                Some(FileKind::Directory) => self.is_emptied(&child)?,
                _ => self.removed.contains(&child),
            };
            if !goes {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether all parents are directories, missing, or will be gone.
    fn has_room(&self, change: &Change) -> Result<bool, ChangeError> {
        if change.new.is_none() {
            return Ok(true);
        }
        for dir in change.path.directories_above().filter(|dir| !dir.is_root()) {
            match beneath::open(&self.top, dir.as_path(), Access::Attributes)
                .and_then(|file| beneath::stat(&file))
            {
                Ok(stat) if stat.kind == FileKind::Directory || self.removed.contains(&dir) => {}
                Ok(_) => return Ok(false),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // A parent is not a directory. It has its own check.
                Err(error) if error.kind() == ErrorKind::NotADirectory => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Removes a file, and its parent directories that become empty.
fn delete(directory: &Path, path: &RepoPath) -> Result<(), ChangeError> {
    let file = directory.join(path.as_path());
    match fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(ChangeError::io("remove", &file)(error));
        }
        _ => {}
    }
    let mut dir = path.clone();
    while let Some((parent, _)) = dir.split_last().filter(|(parent, _)| !parent.is_root()) {
        // Removal fails if the directory has other files.
        if fs::remove_dir(directory.join(parent.as_path())).is_err() {
            break;
        }
        dir = parent;
    }
    Ok(())
}

/// Writes a file or link, and replaces the old one atomically.
fn write(
    repository: &Repository,
    directory: &Path,
    path: &RepoPath,
    side: &Side,
) -> Result<(), ChangeError> {
    let file = directory.join(path.as_path());
    let parent = file.parent().unwrap_or(directory);
    fs::create_dir_all(parent).map_err(ChangeError::io("create", parent))?;
    if fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_dir()) {
        remove_empty(&file).map_err(ChangeError::io("remove", &file))?;
    }
    let new = temporary_beside(&file);
    let bytes = repository.read_blob(side.id)?;
    let made = match side.kind {
        TreeEntryKind::Symlink => symlink(OsStr::from_bytes(&bytes), &new),
        _ => fill(&new, &file, &bytes, side.kind == TreeEntryKind::Executable),
    };
    let placed = made.and_then(|()| fs::rename(&new, &file));
    if placed.is_err() {
        // Best effort: the error is reported below.
        let _ = fs::remove_file(&new);
    }
    placed.map_err(ChangeError::io("write", &file))?;
    File::open(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(ChangeError::io("sync", parent))
}

/// Removes a directory that holds only empty directories.
fn remove_empty(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

/// Writes the new content of `file` to the temporary file `new`.
///
/// The mode stays, except for the executable bits.
fn fill(new: &Path, file: &Path, bytes: &[u8], executable: bool) -> std::io::Result<()> {
    let mut made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(if executable { 0o777 } else { 0o666 })
        .open(new)?;
    made.write_all(bytes)?;
    if let Ok(meta) = fs::symlink_metadata(file)
        && meta.is_file()
    {
        let mode = meta.permissions().mode() & 0o777;
        // Those who may read it may run it.
        let mode = if executable {
            mode | (mode & 0o444) >> 2
        } else {
            mode & !0o111
        };
        made.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    made.sync_all()
}

/// Returns the path of a temporary file in the same directory.
fn temporary_beside(file: &Path) -> PathBuf {
    let mut name = OsStr::new(".").to_owned();
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".tine-{}", std::process::id()));
    file.with_file_name(name)
}
