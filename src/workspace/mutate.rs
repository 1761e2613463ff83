//! Operations that change names and attributes.
//!
//! They do not check permissions: the kernel does (`default_permissions`), wherever the caller may
//! be refused.

use super::acl;
use super::backing::cut_pinned;
use super::copy_up::Fetched;
use super::edit::LayerEdit;
use super::error::FsError;
use super::flags::{
    check_may_add, check_may_change, check_may_remove, check_may_set, inherit_flags,
};
use super::fs::{FoundNode, NodePlace, ViewState, Workspace};
use super::ops::{Caller, RenameMode, SetAttr, SetTime};
use super::privileges::{S_ISGID, take_privileges};
use super::xattr::{inherit_acl, set_perm};
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_layer::{Content, Node, Xattrs};
use tine_path::EntryName;

/// Type and content of a new node.
pub(super) struct NewNode {
    pub kind: FileKind,
    pub perm: u16,
    pub rdev: u32,
    pub size: u64,
    pub content: Content,
}

impl NewNode {
    /// Device node that an overlay file system takes for a whiteout.
    const OVERLAY_WHITEOUT: NewNode = NewNode {
        kind: FileKind::CharDevice,
        perm: 0,
        rdev: 0,
        size: 0,
        content: Content::Empty,
    };

    /// Returns the node, owned by the caller.
    ///
    /// In a set-group-id directory it gets the directory's group. Its mode is limited by the
    /// directory's default ACL, or by the caller's umask if there is none. It inherits some of the
    /// directory's flags.
    pub(crate) fn into_node(
        self,
        caller: Caller,
        dir: &Node,
        now: Timestamp,
    ) -> Result<Node, FsError> {
        let inherits_group = dir.perm & S_ISGID != 0;
        let is_dir = self.kind == FileKind::Directory;
        let mut node = Node {
            kind: self.kind,
            perm: if inherits_group && is_dir {
                self.perm | S_ISGID
            } else {
                self.perm
            },
            uid: caller.uid,
            gid: if inherits_group { dir.gid } else { caller.gid },
            nlink: if is_dir { 2 } else { 1 },
            rdev: self.rdev,
            size: self.size,
            atime: now,
            mtime: now,
            ctime: now,
            content: self.content,
            origin: None,
            xattrs: Xattrs::new(),
        };
        if node.kind != FileKind::Symlink {
            match dir.xattrs.get(acl::DEFAULT) {
                Some(default) => inherit_acl(&mut node, default)?,
                None => node.perm &= !caller.umask,
            }
        }
        inherit_flags(&mut node, dir);
        Ok(node)
    }
}

impl Workspace {
    /// Makes a file, fifo, socket or device node.
    ///
    /// Counts one lookup. In a set-group-id directory the new node gets the directory's group.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::Invalid`] for another type, [`FsError::NotFound`] if the
    /// directory was removed, [`FsError::NotPermitted`] if the directory is immutable;
    /// [`FsError::NoSpace`] or [`FsError::Layer`] if the layer cannot be written.
    pub fn mknod(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr, FsError> {
        let kind = match FileKind::from_mode(mode) {
            None | Some(FileKind::Directory | FileKind::Symlink) => return Err(FsError::Invalid),
            Some(kind) => kind,
        };
        let perm = (mode & 0o7777) as u16;
        let new = NewNode {
            kind,
            perm,
            rdev,
            size: 0,
            content: Content::Empty,
        };
        self.make(caller, parent, name, new)
    }

    /// Makes a directory and counts one lookup.
    ///
    /// # Errors
    /// Those of [`Workspace::mknod`].
    pub fn mkdir(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> Result<Attr, FsError> {
        let perm = (mode & 0o7777) as u16;
        let new = NewNode {
            kind: FileKind::Directory,
            perm,
            rdev: 0,
            size: 0,
            content: Content::Empty,
        };
        self.make(caller, parent, name, new)
    }

    /// Makes a symlink and counts one lookup.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if `target` is empty, [`FsError::NameTooLong`] if it is too long, and
    /// those of [`Workspace::mknod`].
    pub fn symlink(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr, FsError> {
        if target.is_empty() {
            return Err(FsError::NotFound);
        }
        if target.len() >= libc::PATH_MAX as usize {
            return Err(FsError::NameTooLong);
        }
        let new = NewNode {
            kind: FileKind::Symlink,
            perm: 0o777,
            rdev: 0,
            size: target.len() as u64,
            content: Content::Link(target.into()),
        };
        self.make(caller, parent, name, new)
    }

    fn make(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        new: NewNode,
    ) -> Result<Attr, FsError> {
        let name = EntryName::new(name)?;
        let mut state = self.write_state();
        let dir = self.find_dir(&state, parent)?;
        let found = self.make_in(&mut state, caller, &dir, &name, new)?;
        let attr = self.attr(&state, &found)?;
        self.remember(&found)?;
        drop(state);
        self.sync_names_if_flagged(&[parent])?;
        Ok(attr)
    }

    /// Makes a node at a free name.
    pub(super) fn make_in(
        &self,
        state: &mut ViewState,
        caller: Caller,
        dir: &FoundNode,
        name: &EntryName,
        new: NewNode,
    ) -> Result<FoundNode, FsError> {
        self.check_is_linked(state, dir)?;
        if self.child(state, dir, name.as_bytes())?.is_some() {
            return Err(FsError::Exists);
        }
        let mut edit = LayerEdit::new(self, state);
        let made = edit.make(caller, dir, name, new)?;
        edit.commit()?;
        Ok(made)
    }

    /// Checks that the directory was not removed: a removed one takes no new names.
    pub(super) fn check_is_linked(
        &self,
        state: &ViewState,
        dir: &FoundNode,
    ) -> Result<(), FsError> {
        match dir.place {
            NodePlace::Layer if self.layer_node(state, dir.ino)?.nlink == 0 => {
                Err(FsError::NotFound)
            }
            _ => Ok(()),
        }
    }

    /// Adds a name to the node and counts one lookup.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NotPermitted`] for a directory or where inode flags forbid
    /// it, [`FsError::NotFound`] if the node has no name or the directory was removed,
    /// [`FsError::TooManyLinks`]; [`FsError::NoSpace`] or [`FsError::Layer`] if the layer cannot be
    /// written.
    pub fn link(
        &self,
        _caller: Caller,
        ino: Ino,
        new_parent: Ino,
        new_name: &[u8],
    ) -> Result<Attr, FsError> {
        let name = EntryName::new(new_name)?;
        let mut state = self.write_state();
        let found = self.find(&state, ino)?;
        let dir = self.find_dir(&state, new_parent)?;
        let attr = self.attr(&state, &found)?;
        if attr.kind == FileKind::Directory {
            return Err(FsError::NotPermitted);
        }
        self.check_is_linked(&state, &dir)?;
        if attr.nlink == 0 {
            return Err(FsError::NotFound);
        }
        if self.child(&state, &dir, name.as_bytes())?.is_some() {
            return Err(FsError::Exists);
        }
        check_may_add(&state, &dir)?;
        check_may_change(&state, ino)?;
        if self.needs_copy_up(&state, &found)? {
            drop(state);
            self.copy_up_carried(&found)?;
            return self.link(_caller, ino, new_parent, new_name);
        }
        let mut edit = LayerEdit::new(self, &mut state);
        let now = edit.now;
        let node = edit.node_mut(&found)?;
        node.nlink = node.nlink.checked_add(1).ok_or(FsError::TooManyLinks)?;
        node.ctime = now;
        edit.put_name(&dir, &name, ino)?;
        edit.touch_dir(&dir, 0)?;
        edit.commit()?;
        let found = self.find(&state, ino)?;
        let attr = self.attr(&state, &found)?;
        self.remember(&found)?;
        drop(state);
        self.sync_names_if_flagged(&[new_parent])?;
        Ok(attr)
    }

    /// Removes a name of a node that is not a directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsADirectory`], [`FsError::NotPermitted`] where inode
    /// flags forbid it; [`FsError::NoSpace`] or [`FsError::Layer`] if the layer cannot be written.
    pub fn unlink(&self, _caller: Caller, parent: Ino, name: &[u8]) -> Result<(), FsError> {
        let name = EntryName::new(name)?;
        let mut state = self.write_state();
        let dir = self.find_dir(&state, parent)?;
        self.unlink_in(&mut state, &dir, &name)?;
        drop(state);
        self.sync_names_if_flagged(&[parent])
    }

    /// Removes a name of a node that is not a directory. Returns the node's number.
    pub(super) fn unlink_in(
        &self,
        state: &mut ViewState,
        dir: &FoundNode,
        name: &EntryName,
    ) -> Result<Ino, FsError> {
        let found = self
            .child(state, dir, name.as_bytes())?
            .ok_or(FsError::NotFound)?;
        check_may_remove(state, dir, &found)?;
        if self.kind(state, &found)? == FileKind::Directory {
            return Err(FsError::IsADirectory);
        }
        let mut edit = LayerEdit::new(self, state);
        edit.drop_name(dir, name)?;
        edit.lose_link(&found)?;
        edit.touch_dir(dir, 0)?;
        edit.commit()?;
        Ok(found.ino)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotADirectory`], [`FsError::NotEmpty`],
    /// [`FsError::NotPermitted`] where inode flags forbid it; [`FsError::NoSpace`] or
    /// [`FsError::Layer`] if the layer cannot be written.
    pub fn rmdir(&self, _caller: Caller, parent: Ino, name: &[u8]) -> Result<(), FsError> {
        let name = EntryName::new(name)?;
        let mut state = self.write_state();
        let dir = self.find_dir(&state, parent)?;
        self.rmdir_in(&mut state, &dir, &name)?;
        drop(state);
        self.sync_names_if_flagged(&[parent])
    }

    /// Removes an empty directory. Returns its number.
    pub(super) fn rmdir_in(
        &self,
        state: &mut ViewState,
        dir: &FoundNode,
        name: &EntryName,
    ) -> Result<Ino, FsError> {
        let found = self
            .child(state, dir, name.as_bytes())?
            .ok_or(FsError::NotFound)?;
        check_may_remove(state, dir, &found)?;
        if self.kind(state, &found)? != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        if !self.is_empty_dir(state, &found)? {
            return Err(FsError::NotEmpty);
        }
        let mut edit = LayerEdit::new(self, state);
        edit.drop_name(dir, name)?;
        edit.lose_link(&found)?;
        edit.touch_dir(dir, -1)?;
        edit.commit()?;
        Ok(found.ino)
    }

    /// Renames a node, or exchanges two names.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Exists`] if `mode` does not replace, [`FsError::Invalid`]
    /// if a directory would get below itself, [`FsError::NotEmpty`], [`FsError::IsADirectory`],
    /// [`FsError::NotADirectory`], [`FsError::NotPermitted`] where inode flags forbid it;
    /// [`FsError::NoSpace`] or [`FsError::Layer`] if the layer cannot be written.
    pub fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let (name, new_name) = (EntryName::new(name)?, EntryName::new(new_name)?);
        let mut state = self.write_state();
        let from = self.find_dir(&state, parent)?;
        let to = self.find_dir(&state, new_parent)?;
        self.check_is_linked(&state, &to)?;
        let found = self
            .child(&state, &from, name.as_bytes())?
            .ok_or(FsError::NotFound)?;
        let target = self.child(&state, &to, new_name.as_bytes())?;
        let is_dir = self.kind(&state, &found)? == FileKind::Directory;
        if is_dir && self.is_below(&state, &to, found.ino)? {
            return Err(FsError::Invalid);
        }
        match (mode, &target) {
            (RenameMode::NoReplace | RenameMode::LeaveDevice { replace: false }, Some(_)) => {
                return Err(FsError::Exists);
            }
            (RenameMode::Exchange, None) => return Err(FsError::NotFound),
            (_, Some(target)) if target.ino == found.ino => return Ok(()),
            (RenameMode::Exchange, Some(_)) | (_, None) => {}
            (_, Some(target)) if !is_dir && self.kind(&state, target)? == FileKind::Directory => {
                return Err(FsError::IsADirectory);
            }
            _ => {}
        }
        check_may_remove(&state, &from, &found)?;
        match &target {
            Some(target) => check_may_remove(&state, &to, target)?,
            None => check_may_add(&state, &to)?,
        }
        let exchanged = target.as_ref().filter(|_| mode == RenameMode::Exchange);
        for found in [Some(&found), exchanged].into_iter().flatten() {
            if self.needs_copy_up(&state, found)? {
                let found = found.clone();
                drop(state);
                self.copy_up_carried(&found)?;
                let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
                return self.rename(caller, parent, name, new_parent, new_name, mode);
            }
        }
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) => self.exchange(
                &mut state,
                (&from, &name, &found),
                (&to, &new_name, &target),
            ),
            (RenameMode::LeaveDevice { .. }, target) => {
                let dir_node = self.node(&state, &from)?;
                let left =
                    NewNode::OVERLAY_WHITEOUT.into_node(caller, &dir_node, Timestamp::now())?;
                self.move_name(
                    &mut state,
                    (&from, &name, &found),
                    (&to, &new_name, target),
                    Some(left),
                )
            }
            (_, target) => self.move_name(
                &mut state,
                (&from, &name, &found),
                (&to, &new_name, target),
                None,
            ),
        }?;
        drop(state);
        self.sync_names_if_flagged(&[parent, new_parent])
    }

    /// Moves a name, replacing `target`. The node `left`, if any, takes the old name.
    pub(super) fn move_name(
        &self,
        state: &mut ViewState,
        (from, name, found): (&FoundNode, &EntryName, &FoundNode),
        (to, new_name, target): (&FoundNode, &EntryName, Option<FoundNode>),
        left: Option<Node>,
    ) -> Result<(), FsError> {
        let kind = self.kind(state, found)?;
        let is_dir = kind == FileKind::Directory;
        if let Some(target) = &target {
            let target_is_dir = self.kind(state, target)? == FileKind::Directory;
            match (is_dir, target_is_dir) {
                (true, false) => return Err(FsError::NotADirectory),
                (false, true) => return Err(FsError::IsADirectory),
                (true, true) if !self.is_empty_dir(state, target)? => {
                    return Err(FsError::NotEmpty);
                }
                _ => {}
            }
        }
        let mut edit = LayerEdit::new(self, state);
        let now = edit.now;
        match left {
            Some(node) => {
                let ino = edit.new_node(node)?;
                edit.put_name(from, name, ino)?;
            }
            None => edit.drop_name(from, name)?,
        }
        if let Some(target) = &target {
            edit.lose_link(target)?;
        }
        edit.put_name(to, new_name, found.ino)?;
        edit.node_mut(found)?.ctime = now;
        edit.touch_dir(from, -i64::from(is_dir))?;
        edit.touch_dir(
            to,
            i64::from(is_dir) - i64::from(is_dir && target.is_some()),
        )?;
        edit.commit()
    }

    fn exchange(
        &self,
        state: &mut ViewState,
        (from, name, found): (&FoundNode, &EntryName, &FoundNode),
        (to, new_name, target): (&FoundNode, &EntryName, &FoundNode),
    ) -> Result<(), FsError> {
        let (kind, target_kind) = (self.kind(state, found)?, self.kind(state, target)?);
        if target_kind == FileKind::Directory && self.is_below(state, from, target.ino)? {
            return Err(FsError::Invalid);
        }
        let links = |kind| i64::from(kind == FileKind::Directory);
        let mut edit = LayerEdit::new(self, state);
        let now = edit.now;
        edit.put_name(to, new_name, found.ino)?;
        edit.put_name(from, name, target.ino)?;
        edit.node_mut(found)?.ctime = now;
        edit.node_mut(target)?.ctime = now;
        edit.touch_dir(from, links(target_kind) - links(kind))?;
        edit.touch_dir(to, links(kind) - links(target_kind))?;
        edit.commit()
    }

    /// Returns whether `dir` is the directory `ancestor` or below it.
    pub(super) fn is_below(
        &self,
        state: &ViewState,
        dir: &FoundNode,
        ancestor: Ino,
    ) -> Result<bool, FsError> {
        let origin_path = |ino| Some(state.stack.node(ino)?.origin.as_ref()?.path.clone());
        let mut ino = dir.ino;
        let mut base_path = match &dir.place {
            NodePlace::Base(base) => Some(base.path()),
            NodePlace::Carried(node) => Some(node.path.clone()),
            NodePlace::BaseRoot => None,
            NodePlace::Layer => origin_path(ino),
        };
        while ino != Ino::ROOT && ino != ancestor {
            if let Some(parent) = state.stack.dir_parent(ino) {
                ino = parent;
                base_path = origin_path(ino);
            } else {
                let Some((parent, _)) = base_path.and_then(|path| path.split_last()) else {
                    return Ok(false);
                };
                ino = state.base.base.hasher().ino(&parent);
                base_path = Some(parent);
            }
        }
        Ok(ino == ancestor)
    }

    /// Changes attributes and returns the new ones. Truncates or extends the content.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::NotPermitted`] where inode flags forbid it; with a size also
    /// [`FsError::IsADirectory`], [`FsError::Invalid`] and [`FsError::TooLarge`];
    /// [`FsError::NoSpace`] or [`FsError::Layer`] if the layer cannot be written.
    pub fn setattr(&self, caller: Caller, ino: Ino, set: &SetAttr) -> Result<Attr, FsError> {
        let done = match set.size {
            Some(size) => self.contents.write(ino).and_then(|_content| {
                self.copying_up(
                    ino,
                    |len| len.min(size),
                    size,
                    |fetched| self.set_fetched(caller, ino, set, fetched),
                )
            }),
            None => self
                .copy_up_if_needed(ino)
                .and_then(|()| self.set_fetched(caller, ino, set, &mut None)),
        };
        let attr = self.note_stale(ino, done)?;
        self.sync_if_flagged(ino)?;
        Ok(attr)
    }

    fn set_fetched(
        &self,
        caller: Caller,
        ino: Ino,
        set: &SetAttr,
        fetched: &mut Option<Fetched>,
    ) -> Result<Attr, FsError> {
        let mut state = self.write_state();
        let found = self.find(&state, ino)?;
        check_may_set(&state, ino, set)?;
        let mut node = self.node(&state, &found)?;
        let now = Timestamp::now();
        if let Some(size) = set.size {
            match node.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(FsError::IsADirectory),
                _ => return Err(FsError::Invalid),
            }
            if size > i64::MAX as u64 {
                return Err(FsError::TooLarge);
            }
            node.content = self.resize(&mut state, ino, &node, size, fetched)?;
            node.size = size;
            node.mtime = now;
            if !caller.is_privileged() {
                take_privileges(&mut node, caller);
            }
        }
        if let Some(perm) = set.perm {
            set_perm(&mut node, perm & 0o7777)?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            if set.perm.is_none() {
                take_privileges(&mut node, caller);
            }
            node.uid = set.uid.unwrap_or(node.uid);
            node.gid = set.gid.unwrap_or(node.gid);
        }
        let at = |time| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        if let Some(time) = set.atime {
            node.atime = at(time);
        }
        if let Some(time) = set.mtime {
            node.mtime = at(time);
        }
        node.ctime = now;
        self.put_content(&mut state, ino, node)?;
        if set.size.is_some() {
            cut_pinned(&mut state, ino)?;
        }
        let found = self.find(&state, ino)?;
        self.attr(&state, &found)
    }
}
