//! Bringing a result to a plain directory that it began as: a three-way check of every path first,
//! then the files, each at once.
//!
//! A path may be written where the directory still has there what the base has, and is left as it
//! is where it has what the result has. Anything else is somebody's own change: then nothing is
//! written at all.

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

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenBack {
    pub written: Vec<RepoPath>,
    pub deleted: Vec<RepoPath>,
}

/// Brings what leads from the tree `base` to the tree `result` to `directory`.
///
/// # Errors
/// [`ChangeError::DirectoryChanged`], and nothing is written.
pub fn write_back(
    repository: &Repository,
    base: ObjectId,
    result: ObjectId,
    directory: &Path,
) -> Result<WrittenBack, ChangeError> {
    let changes = compare_trees(repository, base, result)?;
    let top = beneath::open_top(directory).map_err(ChangeError::io("open", directory))?;
    let going: BTreeSet<RepoPath> = changes
        .iter()
        .filter(|change| change.new.is_none())
        .map(|change| change.path.clone())
        .collect();
    let place = Place {
        repository,
        top,
        going,
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
        match is_plain && place.has(&change.path, change.old.as_ref())? && place.has_room(change)? {
            true => to_write.push(change),
            false => in_the_way.push(change.path.clone()),
        }
    }
    if !in_the_way.is_empty() {
        return Err(ChangeError::DirectoryChanged(in_the_way));
    }
    let mut done = WrittenBack::default();
    // What goes makes room, the deepest first.
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

struct Place<'r> {
    repository: &'r Repository,
    top: File,
    /// The paths that will be gone.
    going: BTreeSet<RepoPath>,
}

impl Place<'_> {
    /// What is at a path, which no symlink leads to.
    fn kind(&self, path: &RepoPath) -> Result<Option<(File, beneath::HostStat)>, ChangeError> {
        match beneath::open(&self.top, path.as_path(), Access::Look) {
            Ok(file) => {
                let stat =
                    beneath::stat(&file).map_err(ChangeError::io("look at", path.as_path()))?;
                Ok(Some((file, stat)))
            }
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
                // A symlink, or another file system, is where a directory was.
                _ if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EXDEV)) => Ok(None),
                _ => Err(ChangeError::io("open", path.as_path())(error)),
            },
        }
    }

    /// Whether the directory has exactly that there.
    fn has(&self, path: &RepoPath, side: Option<&Side>) -> Result<bool, ChangeError> {
        let found = self.kind(path)?;
        let Some(side) = side else {
            // A directory in which there will be nothing is none to git.
            return Ok(match found {
                None => true,
                Some((_, stat)) if stat.kind == FileKind::Directory => self.empties(path)?,
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

    /// Whether all that a directory holds will be gone, or is: one that is empty is in nobody's
    /// way.
    fn empties(&self, path: &RepoPath) -> Result<bool, ChangeError> {
        let listed = beneath::open(&self.top, path.as_path(), Access::Read)
            .and_then(beneath::list)
            .map_err(ChangeError::io("list", path.as_path()))?;
        for (name, kind) in listed {
            let Ok(child) = RepoPath::parse([path.as_bytes(), b"/", name.as_slice()].concat())
            else {
                return Ok(false);
            };
            let goes = match kind {
                Some(FileKind::Directory) => self.empties(&child)?,
                _ => self.going.contains(&child),
            };
            if !goes {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether what stands above a path are directories, or will be gone.
    fn has_room(&self, change: &Change) -> Result<bool, ChangeError> {
        if change.new.is_none() {
            return Ok(true);
        }
        for dir in change.path.directories_above().filter(|dir| !dir.is_root()) {
            match beneath::open(&self.top, dir.as_path(), Access::Look)
                .and_then(|file| beneath::stat(&file))
            {
                Ok(stat) if stat.kind == FileKind::Directory || self.going.contains(&dir) => {}
                Ok(_) => return Ok(false),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // Something above it is no directory, and was judged itself or will be.
                Err(error) if error.kind() == ErrorKind::NotADirectory => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Removes a file, and the directories that are empty without it.
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
        // It is not empty where anything else is in it.
        if fs::remove_dir(directory.join(parent.as_path())).is_err() {
            break;
        }
        dir = parent;
    }
    Ok(())
}

/// Puts a file in its place, whole.
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
        // It is in nobody's way, but nobody's either.
        let _ = fs::remove_file(&new);
    }
    placed.map_err(ChangeError::io("write", &file))?;
    File::open(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(ChangeError::io("sync", parent))
}

/// Removes a directory in which there is nothing but such ones.
fn remove_empty(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

/// Writes a file that is to take the place of `file`, whose mode it has but for what makes it
/// executable.
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
        // Who may read it may run it.
        let mode = if executable {
            mode | (mode & 0o444) >> 2
        } else {
            mode & !0o111
        };
        made.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    made.sync_all()
}

fn temporary_beside(file: &Path) -> PathBuf {
    let mut name = OsStr::new(".").to_owned();
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".tine-{}", std::process::id()));
    file.with_file_name(name)
}
