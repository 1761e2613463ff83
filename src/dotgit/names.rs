//! Changes of names.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::conflicts::remove_empty_dirs;
use crate::guarding::NewFile;
use crate::layout::{self, PACKED_LOCK, PACKED_REFS, Zone};
use crate::nodes::{self, Body, KeptOpen, State};
use crate::{GitChange, GitDirectory, LookedUp, errno};
use tine_attr::{FileKind, Ino};
use tine_path::NAME_MAX;
use tine_sys::beneath;
use tine_sys::host_dir;
use tine_workspace::Caller;

/// Bits of `S_IFMT` in a mode.
const KIND: u32 = libc::S_IFMT;

impl GitDirectory {
    /// Checks that a name may be created, and returns its directory.
    fn dir_for_new(
        &self,
        state: &mut State,
        parent: Ino,
        name: &[u8],
        new: NewFile<'_>,
    ) -> io::Result<(Arc<File>, Vec<u8>)> {
        if name.len() > NAME_MAX {
            return Err(errno(libc::ENAMETOOLONG));
        }
        let path = layout::join(&state.path(parent)?, name);
        if layout::zone(&path) == Zone::Fixed {
            return Err(errno(libc::EPERM));
        }
        if self.find(state, parent, name)?.attr.is_some() {
            return Err(errno(libc::EEXIST));
        }
        self.check_new(state, &path, new)?;
        Ok((state.make_own_dir(parent)?, path))
    }

    /// Gives a new file to its creator.
    ///
    /// Returns its entry, and counts one lookup.
    fn created(
        &self,
        state: &mut State,
        caller: Caller,
        (parent, name): (Ino, &[u8]),
        dir: &Arc<File>,
        path: &[u8],
        opened: Option<File>,
    ) -> io::Result<LookedUp> {
        if tine_sys::process::effective_uid() == 0 {
            let above = beneath::stat(dir)?;
            let gid = if above.perm & 0o2000 != 0 {
                above.gid
            } else {
                caller.gid
            };
            host_dir::set_owner(dir, name, Some(caller.uid), Some(gid))?;
        }
        let found = self.find(state, parent, name)?;
        let attr = found.attr.ok_or_else(|| errno(libc::ENOENT))?;
        let is_dir = attr.kind == FileKind::Directory;
        // A ref that the fork hid stays hidden beside a directory of its name.
        if !(is_dir && layout::is_ref(path)) {
            self.show_again(state, path)?;
        }
        if !is_dir {
            self.note_own_ref(state, path, true);
        }
        if let Some(opened) = opened {
            state.keep_open(attr.ino, &Arc::new(opened), KeptOpen::of_own(path));
        }
        state.count_lookup(attr.ino)?;
        Ok(found)
    }

    /// Creates a regular file or a socket.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` where nothing can be changed and for other kinds, and errors of the host.
    /// A program that opens a pipe in the place of a file waits for its writer.
    pub fn mknod(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> io::Result<LookedUp> {
        let mut state = self.state.lock();
        let (dir, path) = self.dir_for_new(&mut state, parent, name, NewFile::File)?;
        if self.is_outdated(&state, parent, name)? {
            drop(state);
            self.tell(GitChange::Outdated);
            return Err(errno(libc::EEXIST));
        }
        if path == PACKED_LOCK {
            self.note_packed_lock(&mut state)?;
        }
        let perm = (mode & 0o7777) as u16 & !caller.umask;
        let opened = match mode & KIND {
            0 | libc::S_IFREG => Some(host_dir::create_file(&dir, name, perm)?),
            libc::S_IFSOCK => {
                host_dir::make_socket(&dir, name, perm)?;
                None
            }
            _ => return Err(errno(libc::EPERM)),
        };
        self.created(&mut state, caller, (parent, name), &dir, &path, opened)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As in [`GitDirectory::mknod`].
    pub fn mkdir(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> io::Result<LookedUp> {
        let mut state = self.state.lock();
        let (dir, path) = self.dir_for_new(&mut state, parent, name, NewFile::Dir)?;
        let setgid = beneath::stat(&dir)?.perm & 0o2000;
        host_dir::make_dir(&dir, name, (mode & 0o7777) as u16 & !caller.umask | setgid)?;
        self.created(&mut state, caller, (parent, name), &dir, &path, None)
    }

    /// Creates a symlink.
    ///
    /// # Errors
    /// As in [`GitDirectory::mknod`].
    pub fn symlink(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> io::Result<LookedUp> {
        let (found, path) = {
            let mut state = self.state.lock();
            let new = NewFile::Symlink(target);
            let (dir, path) = self.dir_for_new(&mut state, parent, name, new)?;
            host_dir::make_symlink(&dir, name, target)?;
            (
                self.created(&mut state, caller, (parent, name), &dir, &path, None)?,
                path,
            )
        };
        self.observe(&path);
        Ok(found)
    }

    /// Creates a hard link.
    ///
    /// # Errors
    /// `EXDEV` for a file that is not the fork's own; as in [`GitDirectory::mknod`].
    pub fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> io::Result<LookedUp> {
        let mut state = self.state.lock();
        let (dir, name) = own_place(&state, ino)?.ok_or_else(|| errno(libc::EXDEV))?;
        let (to, path) = self.dir_for_new(&mut state, new_parent, new_name, NewFile::Link)?;
        host_dir::link((&dir, &name), (&to, new_name))?;
        self.note_own_ref(&mut state, &path, true);
        self.show_again(&mut state, &path)?;
        let found = self.find(&mut state, new_parent, new_name)?;
        let attr = found.attr.ok_or_else(|| errno(libc::ENOENT))?;
        state.count_lookup(attr.ino)?;
        drop(state);
        self.observe(&path);
        Ok(found)
    }

    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EPERM` where nothing can be changed, and errors of the host.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> io::Result<()> {
        let path = {
            let mut state = self.state.lock();
            let path = layout::join(&state.path(parent)?, name);
            if layout::zone(&path) == Zone::Fixed {
                return Err(errno(libc::EPERM));
            }
            let found = self.find(&mut state, parent, name)?;
            let attr = found.attr.ok_or_else(|| errno(libc::ENOENT))?;
            if attr.kind == FileKind::Directory {
                return Err(errno(libc::EISDIR));
            }
            if path == PACKED_REFS {
                self.remove_packed(&mut state)?;
            } else if let (Some(dir), Body::Own { .. } | Body::Computed { of: Some(_), .. }) =
                (state.own_dir(parent)?, &state.node(attr.ino)?.body)
            {
                self.pin(&mut state, attr.ino)?;
                beneath_remove(&dir, name, false)?;
                self.note_own_ref(&mut state, &path, false);
                self.hide_what_is_lent(&mut state, &path)?;
            } else if !state.is_pruned(&path) {
                self.hide(&mut state, &path)?;
            }
            if path == PACKED_LOCK {
                state.seen_since_lock = None;
            }
            state.take_name(parent, name);
            path
        };
        self.observe(&path);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY`, also for a lent directory, and as in [`GitDirectory::unlink`].
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let path = layout::join(&state.path(parent)?, name);
        if layout::zone(&path) == Zone::Fixed {
            return Err(errno(libc::EPERM));
        }
        let found = self.find(&mut state, parent, name)?;
        let attr = found.attr.ok_or_else(|| errno(libc::ENOENT))?;
        if attr.kind != FileKind::Directory {
            return Err(errno(libc::ENOTDIR));
        }
        if !self.entries(&mut state, attr.ino)?.is_empty() {
            return Err(errno(libc::ENOTEMPTY));
        }
        if let (Some(dir), Some(_)) = (state.own_dir(parent)?, state.own_dir(attr.ino)?) {
            beneath_remove(&dir, name, true)?;
        }
        // git removes empty directories of refs, in which the main repository may make others.
        if layout::is_ref(&path) {
            self.note_removed_dir(&mut state, &path)?;
        } else {
            self.hide_what_is_lent(&mut state, &path)?;
        }
        state.take_name(parent, name);
        Ok(())
    }

    /// Hides what is lent where the fork removed its own.
    fn hide_what_is_lent(&self, state: &mut State, path: &[u8]) -> io::Result<()> {
        let is_lent = if layout::is_ref(path) {
            self.is_lent_ref(path)? && !self.own_packed()?.contains_key(path)
        } else {
            !self.is_own_only(path)?
        };
        if is_lent {
            self.hide(state, path)?;
        }
        Ok(())
    }

    /// Renames a file. `flags` are those of `renameat2(2)`.
    ///
    /// # Errors
    /// `EXDEV` for what is lent, `EPERM` where nothing can be changed, and errors of the host.
    pub fn rename(
        &self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        flags: u32,
    ) -> io::Result<()> {
        let (path, new_path) = {
            let mut state = self.state.lock();
            let path = layout::join(&state.path(parent)?, name);
            let new_path = layout::join(&state.path(new_parent)?, new_name);
            if [&path, &new_path]
                .iter()
                .any(|path| layout::zone(path) == Zone::Fixed)
            {
                return Err(errno(libc::EPERM));
            }
            let moved = self
                .find(&mut state, parent, name)?
                .attr
                .ok_or_else(|| errno(libc::ENOENT))?;
            if matches!(state.node(moved.ino)?.body, Body::Lent { .. })
                && layout::zone(&path) == Zone::Copied
            {
                self.make_own(&mut state, moved.ino)?;
            }
            let dir = state.own_dir(parent)?.ok_or_else(|| errno(libc::EXDEV))?;
            match &state.node(moved.ino)?.body {
                Body::Own { .. } => {}
                Body::Dir { own: Some(_) } if self.is_own_only(&path)? => {}
                _ => return Err(errno(libc::EXDEV)),
            }
            let as_copy = self.check_rename(&mut state, (&path, &new_path), moved.kind, flags)?;
            let target = self.find(&mut state, new_parent, new_name)?.attr;
            if target.is_some() && flags & libc::RENAME_NOREPLACE != 0 {
                return Err(errno(libc::EEXIST));
            }
            if let Some(content) = as_copy {
                let to = state.make_own_dir(new_parent)?;
                self.put_copy((&dir, name), (&to, new_name), &content)?;
                self.pin(&mut state, moved.ino)?;
                beneath_remove(&dir, name, false)?;
                state.take_name(parent, name);
                state.take_name(new_parent, new_name);
            } else if new_path == PACKED_REFS {
                self.take_packed(&mut state, &dir, name)?;
                state.take_name(parent, name);
                state.take_name(new_parent, new_name);
            } else {
                let to = state.make_own_dir(new_parent)?;
                if let Some(target) = target {
                    self.pin(&mut state, target.ino)?;
                    if target.kind == FileKind::Directory
                        && !self.entries(&mut state, target.ino)?.is_empty()
                    {
                        return Err(errno(libc::ENOTEMPTY));
                    }
                    let is_lent = matches!(state.node(target.ino)?.body, Body::Lent { .. });
                    if is_lent && layout::is_ref(&new_path) {
                        clear_way(&to, new_name)?;
                    }
                }
                host_dir::rename((&dir, name), (&to, new_name), flags)?;
                if flags & libc::RENAME_EXCHANGE == 0 && moved.kind != FileKind::Directory {
                    self.note_own_ref(&mut state, &path, false);
                    self.note_own_ref(&mut state, &new_path, true);
                } else {
                    state.own_loose.forget();
                }
                if flags & libc::RENAME_EXCHANGE == 0 {
                    if target.is_some_and(|target| target.ino != moved.ino) || target.is_none() {
                        state.take_name(new_parent, new_name);
                        state.rename((parent, name), (new_parent, new_name));
                        if !layout::is_ref(&path) {
                            self.hide_what_is_lent(&mut state, &path)?;
                        }
                    }
                } else {
                    state.take_name(parent, name);
                    state.take_name(new_parent, new_name);
                }
                if !(moved.kind == FileKind::Directory && layout::is_ref(&new_path)) {
                    self.show_again(&mut state, &new_path)?;
                }
                if layout::is_head(&new_path) {
                    self.adopt_head(&mut state, &new_path)?;
                }
                self.refresh_told(&mut state, new_parent, new_name);
            }
            (path, new_path)
        };
        self.observe(&new_path);
        self.observe(&path);
        Ok(())
    }

    /// Returns whether nothing is lent at a path.
    fn is_own_only(&self, path: &[u8]) -> io::Result<bool> {
        match layout::lent(path) {
            Some(lent) => Ok(self.stat_lent(&lent)?.is_none()),
            None => Ok(true),
        }
    }

    /// Keeps a file open that is about to lose its name.
    ///
    /// Programs may have it open, and the kernel does not say so.
    pub(crate) fn pin(&self, state: &mut State, ino: Ino) -> io::Result<()> {
        let node = state.node(ino)?;
        if node.lookups == 0 || !matches!(node.body, Body::Own { file: None, .. }) {
            return Ok(());
        }
        if let Some((dir, name)) = own_place(state, ino)?
            && beneath::stat_in(&dir, &name).is_ok_and(|stat| stat.kind == FileKind::Regular)
        {
            let file = Arc::new(host_dir::open_file(&dir, &name)?);
            state.keep_open(ino, &file, KeptOpen::Always);
        }
        Ok(())
    }

    /// Notes the attributes of a file as the kernel knows them.
    pub(crate) fn refresh_told(&self, state: &mut State, parent: Ino, name: &[u8]) {
        let Some(ino) = state.known_at(parent, name) else {
            return;
        };
        let stat = state.own_dir(parent).ok().flatten();
        let stat = stat.and_then(|dir| beneath::stat_in(&dir, name).ok());
        if let (Some(stat), Some(node)) = (stat, state.nodes.get_mut(&ino))
            && let Body::Own { told, .. } = &mut node.body
        {
            *told = stat;
        }
    }
}

/// Returns directory and name of the fork's own file.
pub(crate) fn own_place(state: &State, ino: Ino) -> io::Result<Option<(Arc<File>, Vec<u8>)>> {
    let node = state.node(ino)?;
    if !matches!(node.body, Body::Own { .. }) {
        return Ok(None);
    }
    let Some((parent, name)) = node.names.first() else {
        return Ok(None);
    };
    Ok(state.own_dir(*parent)?.map(|dir| (dir, name.clone())))
}

/// Removes an own empty directory that a lent ref replaces.
fn clear_way(dir: &File, name: &[u8]) -> io::Result<()> {
    match nodes::stat_if_there(dir, name)? {
        Some(stat) if stat.kind == FileKind::Directory => remove_empty_dirs(dir, name),
        _ => Ok(()),
    }
}

pub(crate) fn beneath_remove(dir: &File, name: &[u8], is_dir: bool) -> io::Result<()> {
    tine_sys::calls_beneath::remove(dir, name, is_dir)
}
