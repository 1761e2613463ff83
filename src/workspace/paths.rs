//! Operations by path, for those who do not come through the kernel. What they change is announced
//! to the mount.

use std::collections::BTreeSet;

use super::edit::Edit;
use super::error::FsError;
use super::flags::check_may_replace;
use super::fs::{Found, Invalidation, State, Workspace};
use super::mutate::NewNode;
use super::ops::Caller;
use super::privileges::take_privileges;
use tine_attr::{Attr, FileKind, Ino};
use tine_layer::{Content, ContentRef};
use tine_path::{EntryName, RepoPath};

impl Workspace {
    /// The node at `path`; symlinks are not followed. Counts no lookup.
    pub fn resolve(&self, path: &RepoPath) -> Result<Attr, FsError> {
        let state = self.read_state();
        let found = self.walk(&state, path)?;
        self.attr(&state, &found)
    }

    /// The whole content of the file, or the target of the symlink, at `path`.
    pub fn read_path(&self, path: &RepoPath) -> Result<Vec<u8>, FsError> {
        let found = self.hold(path)?;
        let content = match self.getattr(found.ino).map(|attr| (attr.kind, attr.size)) {
            Ok((FileKind::Symlink, _)) => self.readlink(found.ino),
            Ok((_, size)) => usize::try_from(size)
                .map_err(|_| FsError::TooLarge)
                .and_then(|len| self.read(found.ino, 0, len)),
            Err(error) => Err(error),
        };
        self.forget(found.ino, 1);
        content
    }

    /// The content of the regular file at `path`, for those whom nothing else concerns; `None`
    /// where there is no such file, or one of more than `max_bytes`.
    pub fn read_regular(
        &self,
        path: &RepoPath,
        max_bytes: u64,
    ) -> Result<Option<Vec<u8>>, FsError> {
        let found = match self.hold(path) {
            Ok(found) => found,
            Err(FsError::NotFound | FsError::NotADirectory) => return Ok(None),
            Err(error) => return Err(error),
        };
        let content = match self.getattr(found.ino) {
            Ok(attr) if attr.kind != FileKind::Regular => Ok(None),
            Ok(attr) if attr.size > max_bytes => {
                log::warn!("{path} is left alone, it is too large");
                Ok(None)
            }
            Ok(attr) => usize::try_from(attr.size)
                .map_err(|_| FsError::TooLarge)
                .and_then(|len| self.read(found.ino, 0, len).map(Some)),
            Err(error) => Err(error),
        };
        self.forget(found.ino, 1);
        content
    }

    /// Names, kinds and numbers in the directory at `path`.
    pub fn list_path(&self, path: &RepoPath) -> Result<Vec<(EntryName, FileKind, Ino)>, FsError> {
        let state = self.read_state();
        let found = self.walk(&state, path)?;
        match self.kind(&state, &found)? {
            FileKind::Directory => self.entries(&state, &found),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// Replaces the content of the file at `path`, making it (mode 0666 less the umask) where it is
    /// missing. Announced to the mount.
    pub fn write_path(
        &self,
        caller: Caller,
        path: &RepoPath,
        content: &[u8],
    ) -> Result<(), FsError> {
        self.put_path(caller, path, content, true)
    }

    /// As [`Workspace::write_path`], whatever flags the file or its directory has: for what tine
    /// itself must keep right.
    pub(super) fn repair_path(
        &self,
        caller: Caller,
        path: &RepoPath,
        content: &[u8],
    ) -> Result<(), FsError> {
        self.put_path(caller, path, content, false)
    }

    fn put_path(
        &self,
        caller: Caller,
        path: &RepoPath,
        content: &[u8],
        heeds_flags: bool,
    ) -> Result<(), FsError> {
        let (parent, name) = path.split_last().ok_or(FsError::IsADirectory)?;
        let (change, steps) = {
            let mut state = self.write_state();
            let dir = self.walk_dir(&state, &parent)?;
            let child = self.child(&state, &dir, name.as_bytes())?;
            let before = self.view_before(&state, BTreeSet::from([path.clone()]), Vec::new());
            let change = match child {
                Some(found) => match self.kind(&state, &found)? {
                    FileKind::Regular => {
                        if heeds_flags {
                            check_may_replace(&state, found.ino)?;
                        }
                        self.replace_content(&mut state, caller, &found, content)?
                    }
                    FileKind::Directory => return Err(FsError::IsADirectory),
                    _ => return Err(FsError::Invalid),
                },
                None => self.make_file(&mut state, caller, &dir, &name, content)?,
            };
            let steps = before.map_or_else(Vec::new, |before| self.view_steps(&state, before));
            (change, steps)
        };
        self.announce_steps([change], steps);
        Ok(())
    }

    fn replace_content(
        &self,
        state: &mut State,
        caller: Caller,
        found: &Found,
        content: &[u8],
    ) -> Result<Invalidation, FsError> {
        let stored = self.store_content(state, content)?;
        let mut edit = Edit::new(self, state);
        let now = edit.now;
        let node = edit.node_mut(found)?;
        (node.content, node.size) = (
            stored.map_or(Content::Empty, Content::Own),
            content.len() as u64,
        );
        (node.mtime, node.ctime) = (now, now);
        if !caller.is_privileged() {
            take_privileges(node, caller);
        }
        let done = edit.commit();
        self.give_back_unless(done, state, stored)?;
        Ok(Invalidation::Node(found.ino))
    }

    fn make_file(
        &self,
        state: &mut State,
        caller: Caller,
        dir: &Found,
        name: &EntryName,
        content: &[u8],
    ) -> Result<Invalidation, FsError> {
        let stored = self.store_content(state, content)?;
        let new = NewNode {
            kind: FileKind::Regular,
            perm: 0o666,
            rdev: 0,
            size: content.len() as u64,
            content: stored.map_or(Content::Empty, Content::Own),
        };
        let caller = Caller {
            umask: state.base.attrs.umask,
            ..caller
        };
        let made = self.make_in(state, caller, dir, name, new);
        self.give_back_unless(made, state, stored)?;
        Ok(Invalidation::Entry {
            parent: dir.ino,
            name: name.clone(),
        })
    }

    /// A content of the open layer that no record names yet; `None` for no bytes.
    pub(super) fn store_content(
        &self,
        state: &mut State,
        content: &[u8],
    ) -> Result<Option<ContentRef>, FsError> {
        if content.is_empty() {
            return Ok(None);
        }
        let layer = state.stack.open_layer_mut();
        let fresh = layer.new_content(content.len() as u64)?;
        match layer.write_content(fresh, 0, 0, content) {
            Ok(place) => {
                if place != fresh {
                    layer.abandon_content(fresh);
                }
                Ok(Some(place))
            }
            Err(error) => {
                layer.abandon_content(fresh);
                Err(error.into())
            }
        }
    }

    pub(super) fn give_back_unless<T>(
        &self,
        done: Result<T, FsError>,
        state: &mut State,
        stored: Option<ContentRef>,
    ) -> Result<T, FsError> {
        if let (Err(_), Some(content)) = (&done, stored) {
            state.stack.open_layer_mut().abandon_content(content);
        }
        done
    }

    /// Removes the file or empty directory at `path`. Announced to the mount.
    pub fn remove_path(&self, _caller: Caller, path: &RepoPath) -> Result<(), FsError> {
        let (parent, name) = path.split_last().ok_or(FsError::Invalid)?;
        let (parent, removed, steps) = {
            let mut state = self.write_state();
            let dir = self.walk_dir(&state, &parent)?;
            let found = self
                .child(&state, &dir, name.as_bytes())?
                .ok_or(FsError::NotFound)?;
            let before = self.view_before(&state, BTreeSet::from([path.clone()]), Vec::new());
            let removed = match self.kind(&state, &found)? {
                FileKind::Directory => self.rmdir_in(&mut state, &dir, &name)?,
                _ => self.unlink_in(&mut state, &dir, &name)?,
            };
            let steps = before.map_or_else(Vec::new, |before| self.view_steps(&state, before));
            (dir.ino, removed, steps)
        };
        self.announce_steps(
            [
                Invalidation::Entry { parent, name },
                Invalidation::Node(removed),
            ],
            steps,
        );
        Ok(())
    }

    /// Finds the node at `path` and counts one lookup of it.
    pub(super) fn hold(&self, path: &RepoPath) -> Result<Found, FsError> {
        let state = self.read_state();
        let found = self.walk(&state, path)?;
        self.remember(&found)?;
        Ok(found)
    }

    /// Finds the node at `path` from the root.
    pub(super) fn walk(&self, state: &State, path: &RepoPath) -> Result<Found, FsError> {
        let mut found = self.find(state, Ino::ROOT)?;
        for name in path.components() {
            if self.kind(state, &found)? != FileKind::Directory {
                return Err(FsError::NotADirectory);
            }
            found = self
                .child(state, &found, name.as_bytes())?
                .ok_or(FsError::NotFound)?;
        }
        Ok(found)
    }

    pub(super) fn walk_dir(&self, state: &State, path: &RepoPath) -> Result<Found, FsError> {
        let found = self.walk(state, path)?;
        match self.kind(state, &found)? {
            FileKind::Directory => Ok(found),
            _ => Err(FsError::NotADirectory),
        }
    }
}
