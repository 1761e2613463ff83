//! The scratch directory of an agent: made in its fork, and copied out of it as plain files when
//! the agent has finished.
//!
//! What is copied was written by somebody who is not trusted: names and links lead nowhere, because
//! nothing is ever followed, and the directory that the copy goes to belongs to the store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use super::ChangeError;
use tine_attr::{Attr, FileKind, Ino};
use tine_path::{EntryName, RepoPath};
use tine_workspace::{Actor, FsError, Workspace};

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

/// Makes the directory, in the place of one that came along from another fork.
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

/// Whether something is in the directory.
pub fn has_something(workspace: &Workspace, name: &EntryName) -> Result<bool, ChangeError> {
    match workspace.list_path(&RepoPath::root().join(name)) {
        Ok(entries) => Ok(!entries.is_empty()),
        Err(FsError::NotFound | FsError::NotADirectory) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies all that is in the directory to `into`, which is made; `false`, and nothing is made,
/// where it is empty or missing. Fifos, sockets and devices are left out.
pub fn copy_out(workspace: &Workspace, name: &EntryName, into: &Path) -> Result<bool, ChangeError> {
    let path = RepoPath::root().join(name);
    if !has_something(workspace, name)? {
        return Ok(false);
    }
    if let Some(parent) = into.parent() {
        fs::create_dir_all(parent).map_err(ChangeError::io("create", parent))?;
    }
    let dir = workspace.resolve(&path)?;
    Copying { workspace }.directory(dir, &path, into)?;
    Ok(true)
}

struct Copying<'w> {
    workspace: &'w Workspace,
}

impl Copying<'_> {
    fn directory(&self, attr: Attr, path: &RepoPath, into: &Path) -> Result<(), ChangeError> {
        fs::create_dir(into).map_err(ChangeError::io("create", into))?;
        for (name, ..) in self.workspace.list_path(path)? {
            let child = match self.workspace.lookup(attr.ino, name.as_bytes()) {
                Ok(child) => child,
                // Removed at this moment.
                Err(FsError::NotFound) => continue,
                Err(error) => return Err(error.into()),
            };
            let copied = self.node(child, &path.join(&name), &into.join(name.as_os_str()));
            self.workspace.forget(child.ino, 1);
            copied?;
        }
        // Whoever owns it must be able to remove it again.
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
            put(&mut file, &chunk).map_err(ChangeError::io("write", into))?;
        }
        file.set_len(offset)
            .and_then(|()| file.set_permissions(fs::Permissions::from_mode(mode)))
            .and_then(|()| file.sync_all())
            .map_err(ChangeError::io("write", into))
    }
}

/// Writes the bytes, or leaves a hole where there is nothing but zeroes.
fn put(file: &mut File, chunk: &[u8]) -> io::Result<()> {
    match chunk.iter().all(|byte| *byte == 0) {
        true => file
            .seek(SeekFrom::Current(
                i64::try_from(chunk.len()).unwrap_or(i64::MAX),
            ))
            .map(drop),
        false => file.write_all(chunk),
    }
}
