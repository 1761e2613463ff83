//! Lookups and changes of names.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::guarding::NewFile;
use crate::layout::{
    self, ALIAS, ALIAS_OF_TINE, CHANGED, Lent, PACKED_LOCK, PACKED_REFS, TINE, Zone,
};
use crate::listing::path_of;
use crate::nodes::{self, Body, ROOT, State};
use crate::{GitChange, GitDirectory, LookedUp, errno};
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_path::NAME_MAX;
use tine_sys::beneath::{self, HostStat};
use tine_sys::host_dir;
use tine_workspace::Caller;

/// Bits of `S_IFMT` in a mode.
const KIND: u32 = libc::S_IFMT;

impl GitDirectory {
    /// Looks up a name, and counts one lookup of its node.
    ///
    /// # Errors
    /// `ESTALE` or `ENOTDIR` for the directory, and errors of the host.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> io::Result<LookedUp> {
        if name.len() > NAME_MAX {
            return Err(errno(libc::ENAMETOOLONG));
        }
        let mut state = self.state.lock();
        let found = self.find(&mut state, parent, name)?;
        if let Some(attr) = found.attr {
            state.count_lookup(attr.ino)?;
        }
        Ok(found)
    }

    /// Looks up lent objects for a program that reaches the host's files.
    ///
    /// It gets a symlink to them, so git reads them as it does in the main repository: without a
    /// request, and from the same page cache. All other programs get the directory itself. The
    /// kernel must ask again each time.
    pub fn lookup_link(&self, parent: Ino, name: &[u8]) -> Option<LookedUp> {
        let top = layout::objects_number(name).filter(|top| *top < self.lent.len())?;
        let mut state = self.state.lock();
        let dir = state.path(parent).ok()?;
        if dir != TINE && dir != ALIAS_OF_TINE {
            return None;
        }
        Some(LookedUp {
            attr: Some(self.attr_in(&mut state, nodes::link(top)).ok()?),
            keeps_name: false,
            keeps_attr: true,
        })
    }

    /// Counts one lookup of a directory that the kernel knows by number.
    ///
    /// # Errors
    /// `ESTALE` if the node is not known, and errors of the host.
    pub fn lookup_number(&self, ino: Ino) -> io::Result<LookedUp> {
        let mut state = self.state.lock();
        let attr = self.attr_in(&mut state, ino)?;
        state.count_lookup(ino)?;
        Ok(LookedUp {
            attr: Some(attr),
            keeps_name: false,
            keeps_attr: false,
        })
    }

    /// Forgets lookups of a node.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        let mut state = self.state.lock();
        let Some(node) = state.nodes.get_mut(&ino) else {
            return;
        };
        if ino == ROOT || matches!(node.body, Body::Link { .. }) {
            return;
        }
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 {
            state.drop_node(ino);
        }
    }

    /// Returns the directory that holds the directory `ino`; the root holds itself.
    ///
    /// # Errors
    /// `ESTALE` if the node is not known.
    pub fn parent_of(&self, ino: Ino) -> io::Result<Ino> {
        let state = self.state.lock();
        Ok(state
            .node(ino)?
            .names
            .first()
            .map_or(ROOT, |(parent, _)| *parent))
    }

    /// Finds what is at a name, without counting a lookup.
    pub(crate) fn find(&self, state: &mut State, parent: Ino, name: &[u8]) -> io::Result<LookedUp> {
        let own = state.own_dir(parent)?;
        let dir = state.path(parent)?;
        let path = layout::join(&dir, name);
        if layout::is_at_or_below(&path, TINE) {
            if let Some(found) = self.find_computed(state, parent, name, &path) {
                return found;
            }
        } else if path == ALIAS || path == ALIAS_OF_TINE {
            return self.find_computed_dir(state, parent, name);
        } else if path == PACKED_REFS {
            return self.find_packed(state, parent, name);
        } else if let Some(own) = &own
            && let Some(stat) = nodes::stat_if_there(own, name)?
        {
            if let Some(found) = self.find_guarded(state, (parent, name), &stat, &path)? {
                return Ok(found);
            }
            let mut found = found_own(state, (parent, name), own, &stat, &path)?;
            if stat.kind == FileKind::Directory && !found.keeps_attr {
                let attr = found.attr.map(|attr| self.attr_in(state, attr.ino));
                found.attr = attr.transpose()?;
            }
            found.keeps_name &= !self.is_fleeting(name);
            return Ok(found);
        }
        let lent = layout::lent(&path).filter(|_| !state.hidden.contains(&path));
        let Some(lent) = lent else {
            let keeps_name =
                layout::is_at_or_below(&path, b"objects") || state.note_missing(parent, name);
            return Ok(LookedUp {
                attr: None,
                keeps_name,
                keeps_attr: true,
            });
        };
        match self.stat_lent(&lent)? {
            Some(stat) if self.shows_lent(&path, &stat)? => {
                if self.refusals().is_some() && stat.kind != FileKind::Directory {
                    // A program can change what the kernel has cached of a hook.
                    state.take_name(parent, name);
                }
                Ok(self.found_lent(state, (parent, name), lent, &stat, &path))
            }
            _ => Ok(LookedUp::MISSING),
        }
    }

    /// Returns the attributes of what the main repository has.
    pub(crate) fn stat_lent(&self, lent: &Lent) -> io::Result<Option<HostStat>> {
        let Some(top) = self.lent.get(lent.top) else {
            return Ok(None);
        };
        if lent.path.is_empty() {
            return beneath::stat(top).map(Some);
        }
        nodes::stat_if_there(top, &lent.path)
    }

    /// Returns whether the lent file at `path` is visible.
    fn shows_lent(&self, path: &[u8], stat: &HostStat) -> io::Result<bool> {
        if stat.kind == FileKind::Directory || !layout::is_ref(path) {
            return Ok(true);
        }
        // A loose ref would win over the fork's own packed one.
        Ok(!self.own_packed()?.contains_key(path))
    }

    /// Returns the entry of what is lent at a name.
    ///
    /// A file is opened now: a git program that finds it goes on reading it, also if the main
    /// repository removes it meanwhile.
    pub(crate) fn found_lent(
        &self,
        state: &mut State,
        (parent, name): (Ino, &[u8]),
        at: Lent,
        stat: &HostStat,
        path: &[u8],
    ) -> LookedUp {
        let id = (stat.dev, stat.ino);
        let body = if stat.kind == FileKind::Directory {
            Body::Dir { own: None }
        } else {
            Body::Lent {
                id,
                version: nodes::version_of(stat),
                file: None,
                at: at.clone(),
            }
        };
        let ino = state.enter(parent, name, body);
        let is_closed = state
            .node(ino)
            .is_ok_and(|node| matches!(node.body, Body::Lent { file: None, .. }));
        if is_closed
            && stat.kind == FileKind::Regular
            && let Some(top) = self.lent.get(at.top)
            && let Ok(file) = beneath::open(top, path_of(&at.path), beneath::Access::Read)
            && beneath::stat(&file).is_ok_and(|opened| (opened.dev, opened.ino) == id)
        {
            state.keep_open(ino, &Arc::new(file), nodes::is_mapped(path));
        }
        LookedUp {
            attr: Some(nodes::lent_attr(ino, stat)),
            keeps_name: stat.kind == FileKind::Directory && layout::is_steady(path),
            keeps_attr: false,
        }
    }

    /// Finds what is computed. `None`: the path is that of something lent.
    fn find_computed(
        &self,
        state: &mut State,
        parent: Ino,
        name: &[u8],
        path: &[u8],
    ) -> Option<io::Result<LookedUp>> {
        if path == TINE || path == CHANGED {
            return Some(self.find_computed_dir(state, parent, name));
        }
        if path.starts_with(b"tine/objects") {
            return None;
        }
        let callbacks = self.callbacks.read().clone();
        let content: Option<Arc<[u8]>> = match path.strip_prefix(b"tine/".as_slice()) {
            Some(b"fork") => Some(self.identity.clone()),
            Some(b"config") => callbacks
                .settings
                .and_then(|settings| settings())
                .map(Arc::from),
            Some(rest) => {
                let token = rest.strip_prefix(b"changed/".as_slice())?;
                callbacks
                    .changed
                    .and_then(|answer| answer(token))
                    .map(Arc::from)
            }
            None => None,
        };
        let Some(content) = content else {
            return Some(Ok(LookedUp::MISSING));
        };
        // A program can change what the kernel has cached of a node.
        let known = state
            .known_at(parent, name)
            .filter(|_| self.refusals().is_none());
        let same = known.filter(|ino| {
            matches!(state.nodes.get(ino).map(|node| &node.body), Some(Body::Computed { content: known, .. }) if *known == content)
        });
        let ino = match same {
            Some(ino) => ino,
            None => {
                state.take_name(parent, name);
                state.enter(
                    parent,
                    name,
                    Body::Computed {
                        content,
                        time: Timestamp::now(),
                        of: None,
                    },
                )
            }
        };
        Some(self.attr_in(state, ino).map(|attr| LookedUp {
            attr: Some(attr),
            keeps_name: false,
            keeps_attr: true,
        }))
    }

    /// Finds a directory that is computed.
    fn find_computed_dir(
        &self,
        state: &mut State,
        parent: Ino,
        name: &[u8],
    ) -> io::Result<LookedUp> {
        let ino = state.enter(parent, name, Body::Dir { own: None });
        self.dir_attr(ino).map(|attr| LookedUp {
            attr: Some(attr),
            keeps_name: true,
            keeps_attr: true,
        })
    }

    /// Returns the attributes of a directory that is computed.
    fn dir_attr(&self, ino: Ino) -> io::Result<Attr> {
        let stat = beneath::stat(&self.own)?;
        Ok(Attr {
            perm: 0o555,
            nlink: 2,
            size: 0,
            blocks: 0,
            ..nodes::attr_of(ino, &stat)
        })
    }

    /// Returns the attributes of a node now.
    pub(crate) fn attr_in(&self, state: &mut State, ino: Ino) -> io::Result<Attr> {
        let path = state.path(ino);
        let node = state.node(ino)?;
        match &node.body {
            Body::Dir { own: Some(own) } => {
                let stat = beneath::stat(own)?;
                // A directory that was removed has no path.
                let lent = path.ok().and_then(|path| layout::lent(&path));
                let lent = lent.and_then(|lent| self.stat_lent(&lent).ok().flatten());
                Ok(nodes::merged_attr(ino, &stat, lent.as_ref()))
            }
            Body::Dir { own: None } => {
                let path = path?;
                match layout::lent(&path) {
                    Some(lent) => match self.stat_lent(&lent)? {
                        Some(stat) => Ok(nodes::lent_attr(ino, &stat)),
                        None => Err(errno(libc::ESTALE)),
                    },
                    None => self.dir_attr(ino),
                }
            }
            Body::Own {
                file: Some(file), ..
            } => Ok(nodes::attr_of(ino, &beneath::stat(file)?)),
            Body::Own { id, .. } => {
                let (id, (parent, name)) = (
                    *id,
                    node.names
                        .first()
                        .cloned()
                        .ok_or_else(|| errno(libc::ESTALE))?,
                );
                let dir = state.own_dir(parent)?.ok_or_else(|| errno(libc::ESTALE))?;
                let stat = beneath::stat_in(&dir, &name).map_err(|_| errno(libc::ESTALE))?;
                if (stat.dev, stat.ino) != id {
                    return Err(errno(libc::ESTALE));
                }
                Ok(nodes::attr_of(ino, &stat))
            }
            Body::Lent {
                file: Some(file), ..
            } => Ok(nodes::lent_attr(ino, &beneath::stat(file)?)),
            Body::Lent { at, id, .. } => match self.stat_lent(at)? {
                Some(stat) if (stat.dev, stat.ino) == *id => Ok(nodes::lent_attr(ino, &stat)),
                _ => Err(errno(libc::ESTALE)),
            },
            Body::Link { target } => {
                let stat = beneath::stat(&self.own)?;
                Ok(Attr {
                    kind: FileKind::Symlink,
                    perm: 0o777,
                    nlink: 1,
                    size: target.len() as u64,
                    blocks: 0,
                    ..nodes::attr_of(ino, &stat)
                })
            }
            Body::Computed {
                content,
                of: Some(stat),
                ..
            } => Ok(Attr {
                size: content.len() as u64,
                ..nodes::attr_of(ino, stat)
            }),
            Body::Computed {
                content,
                time,
                of: None,
            } => {
                let stat = beneath::stat(&self.own)?;
                Ok(Attr {
                    kind: FileKind::Regular,
                    perm: 0o444,
                    nlink: 1,
                    size: content.len() as u64,
                    blocks: (content.len() as u64).div_ceil(512),
                    atime: *time,
                    mtime: *time,
                    ctime: *time,
                    ..nodes::attr_of(ino, &stat)
                })
            }
        }
    }

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
        self.show_again(state, path)?;
        let found = self.find(state, parent, name)?;
        let attr = found.attr.ok_or_else(|| errno(libc::ENOENT))?;
        if let Some(opened) = opened {
            state.keep_open(attr.ino, &Arc::new(opened), nodes::is_precious(path));
        }
        state.count_lookup(attr.ino)?;
        Ok(found)
    }

    /// Creates a file of any kind except a directory or symlink.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` where nothing can be changed, and errors of the host.
    pub fn mknod(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
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
            libc::S_IFCHR | libc::S_IFBLK => return Err(errno(libc::EPERM)),
            kind => {
                host_dir::make_node(&dir, name, kind, perm, rdev.into())?;
                None
            }
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
                self.hide_what_is_lent(&mut state, &path)?;
            } else if !self.is_pruned(&mut state, &path)? {
                self.hide(&mut state, &path)?;
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
        if !layout::is_ref(&path) {
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
                }
                host_dir::rename((&dir, name), (&to, new_name), flags)?;
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
                self.show_again(&mut state, &new_path)?;
                if new_path == b"HEAD" {
                    self.adopt_head_in(&mut state)?;
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
            state.keep_open(ino, &file, true);
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

/// Returns the entry of what the fork has at a name.
fn found_own(
    state: &mut State,
    (parent, name): (Ino, &[u8]),
    dir: &Arc<File>,
    stat: &HostStat,
    path: &[u8],
) -> io::Result<LookedUp> {
    if stat.kind == FileKind::Directory {
        let is_known = state
            .known_at(parent, name)
            .is_some_and(|ino| matches!(state.own_dir(ino), Ok(Some(_))));
        let own = if is_known {
            None
        } else {
            Some(Arc::new(host_dir::open_dir(dir, name)?))
        };
        let ino = state.enter(parent, name, Body::Dir { own });
        return Ok(LookedUp {
            attr: Some(nodes::attr_of(ino, stat)),
            keeps_name: true,
            keeps_attr: layout::lent(path).is_none(),
        });
    }
    let body = Body::Own {
        id: (stat.dev, stat.ino),
        file: None,
        told: *stat,
    };
    let ino = state.enter(parent, name, body);
    let is_closed = matches!(state.node(ino)?.body, Body::Own { file: None, .. });
    if is_closed && stat.kind == FileKind::Regular && nodes::is_precious(path) {
        let file = Arc::new(host_dir::open_file(dir, name)?);
        state.keep_open(ino, &file, true);
    }
    Ok(LookedUp {
        attr: Some(nodes::attr_of(ino, stat)),
        keeps_name: true,
        keeps_attr: true,
    })
}

pub(crate) fn beneath_remove(dir: &File, name: &[u8], is_dir: bool) -> io::Result<()> {
    tine_sys::calls_beneath::remove(dir, name, is_dir)
}
