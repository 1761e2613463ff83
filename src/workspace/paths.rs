//! Operations by path, for callers other than the kernel. The mount is notified of changes.

use std::collections::BTreeSet;

use super::edit::LayerEdit;
use super::error::FsError;
use super::flags::check_may_replace;
use super::fs::{FoundNode, Invalidation, ViewState, Workspace};
use super::mutate::NewNode;
use super::ops::Caller;
use super::privileges::take_privileges;
use tine_attr::{Attr, FileKind, Ino};
use tine_layer::{Content, ContentRef};
use tine_path::{EntryName, RepoPath};

impl Workspace {
    /// Returns the attributes of the node at `path`. Does not follow symlinks.
    ///
    /// Counts no lookup.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotADirectory`]; [`FsError::Base`] or [`FsError::Carried`]
    /// if a directory or node cannot be read.
    pub fn resolve(&self, path: &RepoPath) -> Result<Attr, FsError> {
        let state = self.read_state();
        let found = self.walk(&state, path)?;
        self.attr(&state, &found)
    }

    /// Returns a file's content, or a symlink's target.
    ///
    /// # Errors
    /// Those of [`Workspace::resolve`], and [`FsError::IsADirectory`] or [`FsError::Invalid`] for
    /// other nodes.
    pub fn read_path(&self, path: &RepoPath) -> Result<Vec<u8>, FsError> {
        let found = self.lookup_path(path)?;
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

    /// Returns the content of the regular file at `path`.
    ///
    /// `None` if there is none, or it has more than `max_bytes` bytes.
    ///
    /// # Errors
    /// [`FsError::Layer`], [`FsError::Base`] or [`FsError::Carried`] if the file cannot be read,
    /// [`FsError::Stale`] if it is carried and changed meanwhile.
    pub fn read_regular(
        &self,
        path: &RepoPath,
        max_bytes: u64,
    ) -> Result<Option<Vec<u8>>, FsError> {
        let found = match self.lookup_path(path) {
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

    /// Returns name, kind and number of each entry of a directory.
    ///
    /// # Errors
    /// Those of [`Workspace::resolve`], and [`FsError::NotADirectory`] for other nodes.
    pub fn list_path(&self, path: &RepoPath) -> Result<Vec<(EntryName, FileKind, Ino)>, FsError> {
        let state = self.read_state();
        let found = self.walk(&state, path)?;
        match self.kind(&state, &found)? {
            FileKind::Directory => self.entries(&state, &found),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// Replaces the content of the file at `path`, or makes the file.
    ///
    /// A new file has mode 0666 less the umask. The mount is notified.
    ///
    /// # Errors
    /// [`FsError::IsADirectory`], [`FsError::Invalid`] for other nodes, [`FsError::NotFound`] if
    /// the directory is missing, [`FsError::NotPermitted`] where inode flags forbid it;
    /// [`FsError::NoSpace`] or [`FsError::Layer`] if the layer cannot be written.
    pub fn write_path(
        &self,
        caller: Caller,
        path: &RepoPath,
        content: &[u8],
    ) -> Result<(), FsError> {
        self.put_path(caller, path, content, true)
    }

    /// Writes a file that tine itself maintains, whatever its inode flags.
    ///
    /// The directory's flags are ignored, too.
    ///
    /// # Errors
    /// Those of [`Workspace::write_path`], except for inode flags.
    pub fn repair_path(
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
        state: &mut ViewState,
        caller: Caller,
        found: &FoundNode,
        content: &[u8],
    ) -> Result<Invalidation, FsError> {
        let stored = self.store_content(state, content)?;
        let mut edit = LayerEdit::new(self, state);
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
        self.abandon_unless(done, state, stored)?;
        Ok(Invalidation::Node(found.ino))
    }

    fn make_file(
        &self,
        state: &mut ViewState,
        caller: Caller,
        dir: &FoundNode,
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
        self.abandon_unless(made, state, stored)?;
        Ok(Invalidation::Entry {
            parent: dir.ino,
            name: name.clone(),
        })
    }

    /// Stores bytes as a content that no record names yet. `None` for no bytes.
    pub(super) fn store_content(
        &self,
        state: &mut ViewState,
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

    /// Frees the stored content if the step failed. Returns the step's result.
    pub(super) fn abandon_unless<T>(
        &self,
        done: Result<T, FsError>,
        state: &mut ViewState,
        stored: Option<ContentRef>,
    ) -> Result<T, FsError> {
        if let (Err(_), Some(content)) = (&done, stored) {
            state.stack.open_layer_mut().abandon_content(content);
        }
        done
    }

    /// Removes the file or empty directory at `path`. The mount is notified.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotEmpty`], [`FsError::Invalid`] for the root,
    /// [`FsError::NotPermitted`] where inode flags forbid it; [`FsError::NoSpace`] or
    /// [`FsError::Layer`] if the layer cannot be written.
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
    pub(super) fn lookup_path(&self, path: &RepoPath) -> Result<FoundNode, FsError> {
        let state = self.read_state();
        let found = self.walk(&state, path)?;
        self.remember(&found)?;
        Ok(found)
    }

    /// Finds the node at `path`, from the root. Does not follow symlinks.
    pub(super) fn walk(&self, state: &ViewState, path: &RepoPath) -> Result<FoundNode, FsError> {
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

    pub(super) fn walk_dir(
        &self,
        state: &ViewState,
        path: &RepoPath,
    ) -> Result<FoundNode, FsError> {
        let found = self.walk(state, path)?;
        match self.kind(state, &found)? {
            FileKind::Directory => Ok(found),
            _ => Err(FsError::NotADirectory),
        }
    }
}
