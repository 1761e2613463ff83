//! Bytes and attributes of files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::guarding::NewFile;
use crate::layout::{self, Zone};
use crate::listing::path_of;
use crate::names::own_place;
use crate::nodes::{Body, KeptOpen, State};
use crate::{GitDirectory, errno};
use tine_attr::{Attr, FileKind, Ino};
use tine_sys::beneath::{self, Access};
use tine_sys::host_dir::{self, NewTime};
use tine_workspace::{SetAttr, SetTime, StatFs};

/// Namespace of attributes that any program may use.
const USER: &[u8] = b"user.";

impl GitDirectory {
    /// Returns the attributes, and whether the kernel may cache them.
    ///
    /// # Errors
    /// `ESTALE` if the node is not known or gone, and errors of the host.
    pub fn getattr(&self, ino: Ino) -> io::Result<(Attr, bool)> {
        let mut state = self.state.lock();
        let attr = self.attr_in(&mut state, ino)?;
        if let Body::Own { told, .. } = &mut state.node_mut(ino)?.body {
            (told.size, told.mtime, told.ctime) = (attr.size, attr.mtime, attr.ctime);
        }
        let keeps = match &state.node(ino)?.body {
            Body::Own { .. } | Body::Computed { .. } | Body::Link { .. } => true,
            Body::Lent { .. } => false,
            Body::Dir { .. } => layout::lent(&state.path(ino)?).is_none(),
        };
        Ok((attr, keeps))
    }

    /// Opens the file of a node, or finds it open.
    pub(crate) fn open_file(&self, state: &mut State, ino: Ino) -> io::Result<Arc<File>> {
        let node = state.node(ino)?;
        match &node.body {
            Body::Own {
                file: Some(file), ..
            }
            | Body::Lent {
                file: Some(file), ..
            } => Ok(file.clone()),
            Body::Own { id, .. } => {
                let id = *id;
                let (dir, name) = own_place(state, ino)?.ok_or_else(|| errno(libc::ESTALE))?;
                let file = Arc::new(host_dir::open_file(&dir, &name)?);
                let stat = beneath::stat(&file)?;
                if (stat.dev, stat.ino) != id {
                    return Err(errno(libc::ESTALE));
                }
                state.keep_open(ino, &file, KeptOpen::Shortly);
                Ok(file)
            }
            Body::Lent { at, id, .. } => {
                let (at, id) = (at.clone(), *id);
                let top = self.lent.get(at.top).ok_or_else(|| errno(libc::ESTALE))?;
                let file = beneath::open(top, path_of(&at.path), Access::Read)
                    .map_err(|_| errno(libc::ESTALE))?;
                let stat = beneath::stat(&file)?;
                if (stat.dev, stat.ino) != id {
                    return Err(errno(libc::ESTALE));
                }
                let file = Arc::new(file);
                state.keep_open(ino, &file, KeptOpen::Shortly);
                Ok(file)
            }
            Body::Dir { .. } => Err(errno(libc::EISDIR)),
            Body::Computed { .. } | Body::Link { .. } => Err(errno(libc::EROFS)),
        }
    }

    /// Opens a file to change it.
    ///
    /// A lent one is copied, where that may be done.
    fn open_to_change(&self, ino: Ino) -> io::Result<Arc<File>> {
        let mut state = self.state.lock();
        self.make_own(&mut state, ino)?;
        self.open_file(&mut state, ino)
    }

    /// Makes a lent file the fork's own, where that may be done.
    pub(crate) fn make_own(&self, state: &mut State, ino: Ino) -> io::Result<()> {
        let node = state.node(ino)?;
        let at = match &node.body {
            Body::Own { .. } | Body::Dir { own: Some(_) } => return Ok(()),
            Body::Lent { at, .. } => at.clone(),
            Body::Dir { own: None } | Body::Computed { .. } | Body::Link { .. } => {
                return Err(errno(libc::EPERM));
            }
        };
        let path = state.path(ino)?;
        if layout::zone(&path) != Zone::Copied {
            return Err(errno(libc::EPERM));
        }
        let (parent, name) = node
            .names
            .first()
            .cloned()
            .ok_or_else(|| errno(libc::ESTALE))?;
        self.check_new(state, &path, NewFile::File)?;
        let top = self.lent.get(at.top).ok_or_else(|| errno(libc::ESTALE))?;
        let from = beneath::open(top, path_of(&at.path), Access::Read)?;
        let stat = beneath::stat(&from)?;
        let dir = state.make_own_dir(parent)?;
        let copy = host_dir::create_file(&dir, &name, stat.perm)?;
        io::copy(&mut &from, &mut &copy)?;
        let told = beneath::stat(&copy)?;
        let id = (told.dev, told.ino);
        state.node_mut(ino)?.body = Body::Own {
            id,
            file: Some(Arc::new(copy)),
            told,
        };
        state.by_host.insert(id, ino);
        Ok(())
    }

    /// Reads bytes and returns their number.
    ///
    /// # Errors
    /// `EISDIR`, `ESTALE` if the file is gone, and errors of the host.
    pub fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let file = {
            let mut state = self.state.lock();
            if let Body::Computed { content, .. } = &state.node(ino)?.body {
                let from = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(content.len());
                let rest = &content[from..];
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                return Ok(count);
            }
            self.open_file(&mut state, ino)?
        };
        let mut count = 0;
        while count < buffer.len() {
            match file.read_at(&mut buffer[count..], offset.saturating_add(count as u64)) {
                Ok(0) => break,
                Ok(read) => count += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// `EPERM` for what is lent, and errors of the host.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> io::Result<()> {
        let file = self.open_to_change(ino)?;
        self.check_write(ino, &file, offset, data)?;
        match file.write_all_at(data, offset) {
            // It was opened when its mode did not allow writing.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                self.reopen_to_write(ino)?.write_all_at(data, offset)
            }
            written => written,
        }
    }

    /// Opens a read-only file for writing.
    ///
    /// The program that created it may go on writing.
    fn reopen_to_write(&self, ino: Ino) -> io::Result<Arc<File>> {
        let mut state = self.state.lock();
        let (dir, name) = own_place(&state, ino)?.ok_or_else(|| errno(libc::EBADF))?;
        let perm = beneath::stat_in(&dir, &name)?.perm;
        tine_sys::calls_beneath::set_mode(&dir, &name, perm | 0o200)?;
        let opened = host_dir::open_file(&dir, &name);
        tine_sys::calls_beneath::set_mode(&dir, &name, perm)?;
        let file = Arc::new(opened?);
        state.keep_open(ino, &file, KeptOpen::Longer);
        Ok(file)
    }

    /// Changes attributes, and returns them as [`GitDirectory::getattr`] does.
    ///
    /// # Errors
    /// `EPERM` for what is lent, and errors of the host.
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> io::Result<(Attr, bool)> {
        if let Some(size) = set.size {
            let file = self.open_to_change(ino)?;
            match file.set_len(size) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBADF | libc::EINVAL)) => {
                    self.reopen_to_write(ino)?.set_len(size)?;
                }
                done => done?,
            }
        }
        {
            let mut state = self.state.lock();
            self.make_own(&mut state, ino)?;
            self.set_in(&mut state, ino, set)?;
        }
        self.getattr(ino)
    }

    fn set_in(&self, state: &mut State, ino: Ino, set: &SetAttr) -> io::Result<()> {
        let (dir, name) = match state.node(ino)?.names.first() {
            Some((parent, name)) => (
                state.own_dir(*parent)?.ok_or_else(|| errno(libc::EPERM))?,
                name.clone(),
            ),
            // The git directory itself, or a file without a name.
            None => match &state.node(ino)?.body {
                Body::Dir { own: Some(_) } => {
                    let own = state.own_dir(ino)?.ok_or_else(|| errno(libc::EPERM))?;
                    (own, b".".to_vec())
                }
                Body::Own {
                    file: Some(file), ..
                } => {
                    if let Some(perm) = set.perm {
                        let mode = std::os::unix::fs::PermissionsExt::from_mode(u32::from(perm));
                        file.set_permissions(mode)?;
                    }
                    return Ok(());
                }
                _ => return Err(errno(libc::EPERM)),
            },
        };
        if set.uid.is_some() || set.gid.is_some() {
            host_dir::set_owner(&dir, &name, set.uid, set.gid)?;
        }
        if let Some(perm) = set.perm {
            tine_sys::calls_beneath::set_mode(&dir, &name, perm)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            host_dir::set_times(&dir, &name, new_time(set.atime), new_time(set.mtime))?;
        }
        Ok(())
    }

    /// Returns the target of a symlink.
    ///
    /// # Errors
    /// `EINVAL` if the node is no symlink, and errors of the host.
    pub fn readlink(&self, ino: Ino) -> io::Result<Vec<u8>> {
        let state = self.state.lock();
        match &state.node(ino)?.body {
            Body::Lent { at, .. } => {
                let top = self.lent.get(at.top).ok_or_else(|| errno(libc::ESTALE))?;
                host_dir::read_link(top, &at.path)
            }
            Body::Link { target } => Ok(target.to_vec()),
            _ => {
                let (dir, name) = own_place(&state, ino)?.ok_or_else(|| errno(libc::EINVAL))?;
                host_dir::read_link(&dir, &name)
            }
        }
    }

    /// Flushes a file or directory to disk.
    ///
    /// # Errors
    /// `ESTALE`, and errors of the host.
    pub fn fsync(&self, ino: Ino) -> io::Result<()> {
        let file = {
            let mut state = self.state.lock();
            match &state.node(ino)?.body {
                Body::Dir { .. } => {
                    let own = state.own_dir(ino)?;
                    drop(state);
                    return own.map_or(Ok(()), |own| host_dir::sync_dir(&own));
                }
                Body::Lent { .. } | Body::Computed { .. } | Body::Link { .. } => return Ok(()),
                Body::Own { .. } => self.open_file(&mut state, ino)?,
            }
        };
        file.sync_all()
    }

    /// Changes the allocation of a file. `mode` is that of `fallocate(2)`.
    ///
    /// # Errors
    /// `EPERM` for what is lent, and errors of the host.
    pub fn fallocate(&self, ino: Ino, offset: u64, len: u64, mode: i32) -> io::Result<()> {
        host_dir::allocate(
            &*self.open_to_change(ino)?,
            offset,
            len,
            mode.unsigned_abs(),
        )
    }

    /// Finds data or a hole after `offset`.
    ///
    /// # Errors
    /// `ENXIO` past the end, and errors of the host.
    pub fn seek(&self, ino: Ino, offset: u64, is_data: bool) -> io::Result<u64> {
        let file = {
            let mut state = self.state.lock();
            if let Body::Computed { content, .. } = &state.node(ino)?.body {
                let len = content.len() as u64;
                return match (offset < len, is_data) {
                    (false, _) => Err(errno(libc::ENXIO)),
                    (true, true) => Ok(offset),
                    (true, false) => Ok(len),
                };
            }
            self.open_file(&mut state, ino)?
        };
        let found = if is_data {
            tine_sys::file::seek_data(&file, offset)?
        } else {
            tine_sys::file::seek_hole(&file, offset)?
        };
        found.ok_or_else(|| errno(libc::ENXIO))
    }

    /// Copies bytes between files and returns their number.
    ///
    /// # Errors
    /// As in [`GitDirectory::read`] and [`GitDirectory::write`].
    pub fn copy(
        &self,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: usize,
    ) -> io::Result<usize> {
        let mut buffer = vec![0; len.min(1 << 20)];
        let count = self.read(from, from_offset, &mut buffer)?;
        self.write(to, to_offset, &buffer[..count])?;
        Ok(count)
    }

    /// Returns the statistics of the file system of the fork's own files.
    ///
    /// # Errors
    /// The error of `statvfs(2)`.
    pub fn statfs(&self) -> io::Result<StatFs> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/thread-self/fd/{}", self.own.as_raw_fd());
        let figures = tine_sys::file::fs_figures(std::path::Path::new(&path))?;
        Ok(StatFs {
            block_size: u32::try_from(figures.block_size).unwrap_or(4096),
            blocks: figures.blocks,
            blocks_free: figures.blocks_free,
            blocks_available: figures.blocks_available,
            files: figures.files,
            files_free: figures.files_free,
            name_max: u32::try_from(figures.name_max).unwrap_or(255),
        })
    }

    /// Checks that a file has an executable bit.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check_executable(&self, ino: Ino) -> io::Result<()> {
        let (attr, _) = self.getattr(ino)?;
        if attr.kind == FileKind::Directory || attr.perm & 0o111 != 0 {
            Ok(())
        } else {
            Err(errno(libc::EACCES))
        }
    }

    /// Returns an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> io::Result<Vec<u8>> {
        if !name.starts_with(USER) {
            return Err(errno(libc::ENODATA));
        }
        match self.open_for_xattrs(ino)? {
            Some(file) => host_dir::xattr(&file, name),
            None => Err(errno(libc::ENODATA)),
        }
    }

    /// Sets an extended attribute. `flags` are those of `setxattr(2)`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` outside the namespace `user.`, `EPERM` for what is lent.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: i32) -> io::Result<()> {
        if !name.starts_with(USER) {
            return Err(errno(libc::EOPNOTSUPP));
        }
        host_dir::set_xattr(
            &*self.open_to_change(ino)?,
            name,
            value,
            flags.unsigned_abs(),
        )
    }

    /// Lists extended attributes, each name followed by a zero byte.
    ///
    /// # Errors
    /// Errors of the host.
    pub fn listxattr(&self, ino: Ino) -> io::Result<Vec<u8>> {
        let names = match self.open_for_xattrs(ino)? {
            Some(file) => host_dir::xattrs(&file)?,
            None => Vec::new(),
        };
        let of_users = names.split_inclusive(|&byte| byte == 0);
        Ok(of_users
            .filter(|name| name.starts_with(USER))
            .flatten()
            .copied()
            .collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As in [`GitDirectory::setxattr`].
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> io::Result<()> {
        if !name.starts_with(USER) {
            return Err(errno(libc::EOPNOTSUPP));
        }
        host_dir::remove_xattr(&*self.open_to_change(ino)?, name)
    }

    fn open_for_xattrs(&self, ino: Ino) -> io::Result<Option<Arc<File>>> {
        let mut state = self.state.lock();
        let attr = self.attr_in(&mut state, ino)?;
        if attr.kind != FileKind::Regular || matches!(state.node(ino)?.body, Body::Computed { .. })
        {
            return Ok(None);
        }
        self.open_file(&mut state, ino).map(Some)
    }
}

fn new_time(time: Option<SetTime>) -> NewTime {
    match time {
        None => NewTime::Same,
        Some(SetTime::Now) => NewTime::Now,
        Some(SetTime::At(time)) => NewTime::At(time),
    }
}
