//! The scratch directory of an agent.
//!
//! It is made in the agent's fork, and copied out as plain files when the agent has finished. Its
//! content is not trusted. Names and links cannot lead elsewhere, since nothing is followed, and
//! the copy is in a directory of the store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use super::ChangeError;
use tine_attr::{Attr, FileKind, Ino};
use tine_path::{EntryName, RepoPath};
use tine_workspace::{Actor, FsError, Workspace};

/// Number of bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// Makes the directory, and replaces one inherited from another fork.
///
/// # Errors
/// [`ChangeError::Operation`] or [`ChangeError::Fs`] if the fork cannot be changed.
pub fn make(workspace: &Workspace, by: Actor<'_>, name: &EntryName) -> Result<(), ChangeError> {
    let path = RepoPath::root().join(name);
    match workspace.resolve(&path) {
        Ok(_) => drop(workspace.remove_paths(by, &[path], true)?),
        Err(FsError::NotFound) => {}
        Err(error) => return Err(error.into()),
    }
    match workspace.mkdir(by.caller, Ino::ROOT, name.as_bytes(), 0o755) {
        Ok(made) => {
            workspace.forget(made.ino, 1);
            Ok(())
        }
        Err(FsError::Exists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the directory exists and is not empty.
///
/// # Errors
/// [`ChangeError::Fs`] if it cannot be read.
pub fn has_something(workspace: &Workspace, name: &EntryName) -> Result<bool, ChangeError> {
    match workspace.list_path(&RepoPath::root().join(name)) {
        Ok(entries) => Ok(!entries.is_empty()),
        Err(FsError::NotFound | FsError::NotADirectory) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies the directory to the new directory `into`.
///
/// Returns false, and makes nothing, if it is empty or missing. Fifos, sockets and devices are left
/// out.
///
/// # Errors
/// [`ChangeError::Fs`] if the fork cannot be read, [`ChangeError::Store`] if the copy cannot be
/// written.
pub fn copy_out(workspace: &Workspace, name: &EntryName, into: &Path) -> Result<bool, ChangeError> {
    let path = RepoPath::root().join(name);
    if !has_something(workspace, name)? {
        return Ok(false);
    }
    if let Some(parent) = into.parent() {
        fs::create_dir_all(parent).map_err(ChangeError::io("create", parent))?;
    }
    let dir = workspace.resolve(&path)?;
    Copier { workspace }.directory(dir, &path, into)?;
    Ok(true)
}

/// Copies nodes of a fork to plain files.
struct Copier<'w> {
    workspace: &'w Workspace,
}

impl Copier<'_> {
    fn directory(&self, attr: Attr, path: &RepoPath, into: &Path) -> Result<(), ChangeError> {
        fs::create_dir(into).map_err(ChangeError::io("create", into))?;
        for (name, ..) in self.workspace.list_path(path)? {
            let child = match self.workspace.lookup(attr.ino, name.as_bytes()) {
                Ok(child) => child,
                // Removed since it was listed.
                Err(FsError::NotFound) => continue,
                Err(error) => return Err(error.into()),
            };
            let copied = self.node(child, &path.join(&name), &into.join(name.as_os_str()));
            self.workspace.forget(child.ino, 1);
            copied?;
        }
        // The store's owner must be able to remove it again.
        let mode = fs::Permissions::from_mode(u32::from(attr.perm & 0o777) | 0o700);
        fs::set_permissions(into, mode).map_err(ChangeError::io("change the mode of", into))?;
        File::open(into)
            .and_then(|dir| dir.sync_all())
            .map_err(ChangeError::io("sync", into))
    }

    fn node(&self, attr: Attr, path: &RepoPath, into: &Path) -> Result<(), ChangeError> {
        match attr.kind {
            FileKind::Directory => self.directory(attr, path, into),
            FileKind::Regular => self.file(attr, into),
            FileKind::Symlink => {
                let target = self.workspace.readlink(attr.ino)?;
                symlink(std::ffi::OsStr::from_bytes(&target), into)
                    .map_err(ChangeError::io("create", into))
            }
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                Ok(())
            }
        }
    }

    fn file(&self, attr: Attr, into: &Path) -> Result<(), ChangeError> {
        let mode = u32::from(attr.perm & 0o777) | 0o600;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(into)
            .map_err(ChangeError::io("create", into))?;
        let mut offset = 0;
        loop {
            let chunk = self.workspace.read(attr.ino, offset, CHUNK)?;
            if chunk.is_empty() {
                break;
            }
            offset = offset.saturating_add(chunk.len() as u64);
            write_sparse(&mut file, &chunk).map_err(ChangeError::io("write", into))?;
        }
        file.set_len(offset)
            .and_then(|()| file.set_permissions(fs::Permissions::from_mode(mode)))
            .and_then(|()| file.sync_all())
            .map_err(ChangeError::io("write", into))
    }
}

/// Writes the bytes, or a hole if all are zero.
fn write_sparse(file: &mut File, chunk: &[u8]) -> io::Result<()> {
    if chunk.iter().all(|byte| *byte == 0) {
        file.seek(SeekFrom::Current(
            i64::try_from(chunk.len()).unwrap_or(i64::MAX),
        ))
        .map(drop)
    } else {
        file.write_all(chunk)
    }
}
