//! Builder of an operation: changes by path, recorded so that they can be undone.
//!
//! All changes, and the operation's part of the trash, are one record of the layer. Paths follow no
//! symlinks here. Lookups see the changes made so far.

use std::collections::BTreeSet;

use super::super::edit::LayerEdit;
use super::super::error::{FsError, OperationError};
use super::super::flags::{check_may_add, check_may_change, check_may_remove, check_may_replace};
use super::super::fs::{FoundNode, Invalidation, NodePlace, ViewState, Workspace};
use super::super::inodes::BaseRef;
use super::super::mutate::NewNode;
use super::super::ops::Caller;
use super::super::renewing::{BuildOutputs, OrderedTimes};
use super::super::view_steps::ViewBefore;
use super::super::xattr::set_perm;
use super::trash::{own_bytes, slot};
use super::{FileChange, FileOperation, OperationKind, UndoneChanges};
use tine_attr::{FileKind, Ino, Timestamp};
use tine_git::MAX_IGNORE_FILE_BYTES;
use tine_layer::{Content, ContentRef, LogPosition, Node, Touched, Xattrs};
use tine_path::{EntryName, RepoPath};

/// Missing parent directory that is made on the way to a path.
pub(crate) const DIRECTORY: NewNode = NewNode {
    kind: FileKind::Directory,
    perm: 0o777,
    rdev: 0,
    size: 0,
    content: Content::Empty,
};

/// Operation under construction.
pub(crate) struct OperationBuilder<'a> {
    workspace: &'a Workspace,
    edit: LayerEdit<'a>,
    /// Directory of the operation in the trash.
    part: FoundNode,
    /// Record of the operation.
    operation: FileOperation,
    /// Caches that the kernel must drop.
    changed: Vec<Invalidation>,
    /// Names in `changed`.
    names_changed: BTreeSet<(Ino, EntryName)>,
    /// Directories in which names changed.
    dirs: BTreeSet<Ino>,
    /// Paths that the operation concerns.
    paths: BTreeSet<RepoPath>,
    /// Moves, as source and destination.
    moved: Vec<(RepoPath, RepoPath)>,
    /// Returned nodes that still have their old times.
    returned: Vec<(RepoPath, FoundNode)>,
}

/// Committed operation, for the steps that follow.
pub(crate) struct CommittedOperation {
    /// Record of the operation.
    pub operation: FileOperation,
    /// Caches that the kernel must drop.
    pub changed: Vec<Invalidation>,
    /// Directories in which names changed.
    pub dirs: Vec<Ino>,
    /// Nodes of the names before; `None` without a listener.
    pub before: Option<ViewBefore>,
}

/// Name in a directory, and the node that it leads to.
pub(crate) struct NameInDir {
    pub dir: FoundNode,
    pub name: EntryName,
    pub found: Option<FoundNode>,
}

impl<'a> OperationBuilder<'a> {
    pub(crate) fn begin(
        workspace: &'a Workspace,
        state: &'a mut ViewState,
        id: u64,
        kind: OperationKind,
        command: &str,
    ) -> Result<OperationBuilder<'a>, FsError> {
        let mut edit = LayerEdit::new(workspace, state);
        let trash = FoundNode::in_layer(Ino::TRASH);
        if edit.state.stack.node(Ino::TRASH).is_none() {
            let node = trash_dir_node(&edit);
            edit.put_node(Ino::TRASH, node);
        }
        let node = trash_dir_node(&edit);
        let part = FoundNode::in_layer(edit.new_node(node)?);
        edit.put_name(
            &trash,
            &EntryName::new(id.to_string().as_bytes())?,
            part.ino,
        )?;
        edit.touch_dir(&trash, 1)?;
        let operation = FileOperation {
            id,
            time: edit.now,
            command: command.to_owned(),
            kind,
            changes: Vec::new(),
            undoes: None,
            kept_bytes: 0,
        };
        Ok(OperationBuilder {
            workspace,
            edit,
            part,
            operation,
            changed: Vec::new(),
            names_changed: BTreeSet::new(),
            dirs: BTreeSet::new(),
            paths: BTreeSet::new(),
            moved: Vec::new(),
            returned: Vec::new(),
        })
    }

    pub(crate) fn state(&self) -> &ViewState {
        self.edit.state
    }

    /// Returns the changes of others since then, if known.
    pub(crate) fn changed_since(&self, since: LogPosition) -> Option<Touched> {
        let layer = self.edit.state.stack.open_layer();
        layer.changes_since(since)?.read()
    }

    /// Returns the change time of the nodes that the operation changes.
    pub(crate) fn time(&self) -> Timestamp {
        self.edit.now
    }

    pub(crate) fn id(&self) -> u64 {
        self.operation.id
    }

    pub(crate) fn undoes(&mut self, undoes: Option<UndoneChanges>) {
        self.operation.undoes = undoes;
    }

    pub(crate) fn node(&self, found: &FoundNode) -> Result<Node, FsError> {
        self.edit.node(found)
    }

    pub(crate) fn kind(&self, found: &FoundNode) -> Result<FileKind, FsError> {
        self.edit.kind(found)
    }

    pub(crate) fn is_empty(&self, dir: &FoundNode) -> Result<bool, FsError> {
        self.edit.is_empty(dir)
    }

    /// Records a change that needs no further data.
    pub(crate) fn note(&mut self, change: FileChange) {
        match &change {
            FileChange::Made { path, .. }
            | FileChange::PutBack { path, .. }
            | FileChange::Removed { path }
            | FileChange::Written { path, .. }
            | FileChange::Mode { path, .. } => {
                self.paths.insert(path.clone());
            }
            FileChange::Moved { from, to, .. } => {
                self.paths.extend([from.clone(), to.clone()]);
                self.moved.push((from.clone(), to.clone()));
            }
            FileChange::Switched { .. } | FileChange::Advanced(_) => {}
        }
        self.operation.changes.push(change);
    }

    /// Returns the name at `path`. Its directory must exist.
    pub(crate) fn named(&self, path: &RepoPath) -> Result<NameInDir, OperationError> {
        let (named, missing) = self.deepest(path)?;
        if missing.is_empty() {
            Ok(named)
        } else {
            Err(OperationError::NotFound(above(path, missing.len())?))
        }
    }

    /// Returns the node at `path`.
    ///
    /// `None` also if a parent is missing or not a directory.
    pub(crate) fn find(&self, path: &RepoPath) -> Result<Option<NameInDir>, OperationError> {
        match self.deepest(path) {
            Ok((named, missing)) if missing.is_empty() && named.found.is_some() => Ok(Some(named)),
            Ok(_) | Err(OperationError::NotADirectory(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the first missing name on the way to `path`.
    ///
    /// Also returns the names after it. Returns the last name if none is missing.
    fn deepest(&self, path: &RepoPath) -> Result<(NameInDir, Vec<EntryName>), OperationError> {
        let at = || OperationError::at(path);
        let names: Vec<EntryName> = path.components().collect();
        let mut dir = self
            .workspace
            .find(self.edit.state, Ino::ROOT)
            .map_err(at())?;
        let mut reached = RepoPath::root();
        for (index, name) in names.iter().enumerate() {
            reached.push(name);
            let found = self.edit.child(&dir, name).map_err(at())?;
            let behind = &names[index + 1..];
            match found {
                Some(child) if !behind.is_empty() => {
                    if self.edit.kind(&child).map_err(at())? != FileKind::Directory {
                        return Err(OperationError::NotADirectory(reached));
                    }
                    dir = child;
                }
                found => {
                    let name = name.clone();
                    return Ok((NameInDir { dir, name, found }, behind.to_vec()));
                }
            }
        }
        Err(OperationError::Root)
    }

    /// Makes the missing parents of `path`. Returns the name there, and the number made.
    pub(crate) fn with_parents(
        &mut self,
        caller: Caller,
        path: &RepoPath,
    ) -> Result<(NameInDir, usize), OperationError> {
        let mut made = 0;
        loop {
            let (named, missing) = self.deepest(path)?;
            if missing.is_empty() {
                return Ok((named, made));
            }
            let parent = above(path, missing.len())?;
            self.make(caller, &parent, &named, DIRECTORY)?;
            made += 1;
        }
    }

    /// Makes a node at a free name.
    pub(crate) fn make(
        &mut self,
        caller: Caller,
        path: &RepoPath,
        named: &NameInDir,
        new: NewNode,
    ) -> Result<FoundNode, OperationError> {
        let caller = Caller {
            umask: self.edit.state.base.attrs.umask,
            ..caller
        };
        let made = self
            .edit
            .make(caller, &named.dir, &named.name, new)
            .map_err(OperationError::at(path))?;
        self.name_changed(named);
        self.note(FileChange::Made {
            path: path.clone(),
            ino: made.ino,
        });
        Ok(made)
    }

    /// Returns whether a base node may take its number again.
    pub(crate) fn is_unused(&self, ino: Ino) -> bool {
        self.edit.is_unused(ino)
    }

    /// Puts the base's node at a free name, under its own number.
    ///
    /// The number must be unused. The node gets the time of this operation. A directory comes back
    /// empty.
    pub(crate) fn take_base(
        &mut self,
        path: &RepoPath,
        named: &NameInDir,
        base: BaseRef,
    ) -> Result<FoundNode, OperationError> {
        let found = FoundNode {
            ino: base.entry().ino,
            place: NodePlace::Base(base),
        };
        self.try_take_base(named, &found)
            .map_err(OperationError::at(path))?;
        self.name_changed(named);
        self.note(FileChange::Made {
            path: path.clone(),
            ino: found.ino,
        });
        Ok(found)
    }

    fn try_take_base(&mut self, named: &NameInDir, found: &FoundNode) -> Result<(), FsError> {
        check_may_add(self.edit.state, &named.dir)?;
        let mut node = self.workspace.node(self.edit.state, found)?;
        let now = self.edit.now;
        (node.atime, node.mtime, node.ctime) = (now, now, now);
        let is_dir = node.kind == FileKind::Directory;
        if is_dir {
            node.nlink = 2;
        }
        self.edit.put_node(found.ino, node);
        self.edit.put_name(&named.dir, &named.name, found.ino)?;
        self.edit.touch_dir(&named.dir, i64::from(is_dir))?;
        if is_dir {
            // Carried children went with the directory.
            for (name, ..) in self.workspace.entries(self.edit.state, found)? {
                self.edit.drop_name(found, &name)?;
            }
        }
        Ok(())
    }

    /// Changes the permission bits of a file.
    pub(crate) fn set_perm(
        &mut self,
        path: &RepoPath,
        found: &FoundNode,
        perm: impl FnOnce(u16) -> u16,
    ) -> Result<(), OperationError> {
        let before = self
            .try_set_perm(found, perm)
            .map_err(OperationError::at(path))?;
        self.changed.push(Invalidation::Attributes(found.ino));
        self.note(FileChange::Mode {
            path: path.clone(),
            ino: found.ino,
            perm: before,
        });
        Ok(())
    }

    fn try_set_perm(
        &mut self,
        found: &FoundNode,
        perm: impl FnOnce(u16) -> u16,
    ) -> Result<u16, FsError> {
        check_may_change(self.edit.state, found.ino)?;
        let now = self.edit.now;
        let node = self.edit.node_mut(found)?;
        let before = node.perm;
        node.ctime = now;
        set_perm(node, perm(before))?;
        Ok(before)
    }

    /// Stores bytes as a content that no record names yet.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Result<Option<ContentRef>, FsError> {
        self.workspace.store_content(self.edit.state, bytes)
    }

    /// Frees contents from [`OperationBuilder::store`].
    pub(crate) fn abandon(&mut self, contents: &[ContentRef]) {
        let layer = self.edit.state.stack.open_layer_mut();
        contents
            .iter()
            .for_each(|content| layer.abandon_content(*content));
    }

    pub(crate) fn child(
        &self,
        dir: &FoundNode,
        name: &EntryName,
    ) -> Result<Option<FoundNode>, FsError> {
        self.edit.child(dir, name)
    }

    /// Moves the node at `path` to the trash, with everything below it.
    pub(crate) fn remove(
        &mut self,
        path: &RepoPath,
        named: &NameInDir,
        found: &FoundNode,
    ) -> Result<(), OperationError> {
        let removed = self.try_remove(named, found);
        removed.map_err(OperationError::at(path))?;
        self.changed.push(Invalidation::Node(found.ino));
        self.note(FileChange::Removed { path: path.clone() });
        Ok(())
    }

    fn try_remove(&mut self, named: &NameInDir, found: &FoundNode) -> Result<(), FsError> {
        check_may_remove(self.edit.state, &named.dir, found)?;
        let is_dir = self.edit.kind(found)? == FileKind::Directory;
        // A node that this operation made has no bytes to keep.
        if self.workspace.has_node(self.edit.state, found) {
            let bytes = self.workspace.removable_bytes(self.edit.state, found)?;
            self.operation.kept_bytes = self.operation.kept_bytes.saturating_add(bytes);
        }
        self.edit.drop_name(&named.dir, &named.name)?;
        self.edit.touch_dir(&named.dir, -i64::from(is_dir))?;
        // A dentry of a layer needs a node in a layer.
        self.edit.node_mut(found)?;
        let slot = slot(self.operation.changes.len())?;
        self.edit.put_name(&self.part, &slot, found.ino)?;
        self.edit.touch_dir(&self.part, i64::from(is_dir))?;
        self.name_changed(named);
        Ok(())
    }

    /// Moves a node from the trash back to its path.
    ///
    /// The path must be free.
    pub(crate) fn put_back(
        &mut self,
        path: &RepoPath,
        named: &NameInDir,
        (part, slot): (&FoundNode, &EntryName),
    ) -> Result<(), OperationError> {
        let back = self.try_put_back(named, part, slot);
        let found = back.map_err(OperationError::at(path))?;
        self.note(FileChange::PutBack {
            path: path.clone(),
            ino: found.ino,
        });
        self.note_returned(path, found);
        Ok(())
    }

    fn try_put_back(
        &mut self,
        named: &NameInDir,
        part: &FoundNode,
        slot: &EntryName,
    ) -> Result<FoundNode, FsError> {
        let found = self.edit.child(part, slot)?.ok_or(FsError::Stale)?;
        let is_dir = self.edit.kind(&found)? == FileKind::Directory;
        check_may_add(self.edit.state, &named.dir)?;
        self.edit.drop_name(part, slot)?;
        self.edit.touch_dir(part, -i64::from(is_dir))?;
        self.edit.put_name(&named.dir, &named.name, found.ino)?;
        self.edit.touch_dir(&named.dir, i64::from(is_dir))?;
        let now = self.edit.now;
        self.edit.node_mut(&found)?.ctime = now;
        self.name_changed(named);
        self.changed.push(Invalidation::Attributes(found.ino));
        Ok(found)
    }

    /// Notes that the node is back at `path`, for [`OperationBuilder::renew`].
    pub(crate) fn note_returned(&mut self, path: &RepoPath, found: FoundNode) {
        self.returned.push((path.clone(), found));
    }

    /// Gives returned files the modification time of this operation, as git does.
    ///
    /// Builds since then used other bytes. The files keep their order in time, one nanosecond
    /// apart. Ignored files keep their time: a build output must not seem newer than a source that
    /// changed meanwhile.
    pub(crate) fn renew(&mut self) -> Result<(), FsError> {
        let mut files = Vec::new();
        let mut rest = std::mem::take(&mut self.returned);
        while let Some((path, found)) = rest.pop() {
            let node = match &found.place {
                // The main checkout decides a carried file's time.
                NodePlace::Carried(_) => continue,
                NodePlace::Base(_) | NodePlace::BaseRoot | NodePlace::Layer => {
                    self.edit.node(&found)?
                }
            };
            match node.kind {
                FileKind::Directory => {
                    for (name, ..) in self.workspace.entries(self.edit.state, &found)? {
                        let child = self.edit.child(&found, &name)?;
                        rest.extend(child.map(|child| (path.join(&name), child)));
                    }
                }
                FileKind::Regular | FileKind::Symlink => files.push((node.mtime, path, found)),
                FileKind::Fifo
                | FileKind::Socket
                | FileKind::CharDevice
                | FileKind::BlockDevice => {}
            }
        }
        if files.is_empty() {
            return Ok(());
        }
        let mut outputs =
            BuildOutputs::new(&self.edit.state.base.base, |path| self.read_regular(path));
        files.retain(|(_, path, _)| !outputs.has(path));
        drop(outputs);
        files.sort_by_key(|(mtime, ..)| *mtime);
        let mut order = OrderedTimes::from(self.edit.now);
        for (mtime, _, found) in files {
            let ctime = self.edit.now;
            let node = self.edit.node_mut(&found)?;
            (node.mtime, node.ctime) = (order.time_for(mtime), ctime);
            self.changed.push(Invalidation::Attributes(found.ino));
        }
        Ok(())
    }

    /// Returns the bytes of the regular file at `path` after this operation.
    ///
    /// `None` if there is none, or it is larger than git's limit for ignore files.
    fn read_regular(&self, path: &RepoPath) -> Result<Option<Vec<u8>>, FsError> {
        let found = match self.find(path) {
            Ok(named) => named.and_then(|named| named.found),
            Err(OperationError::Fs { source, .. }) => return Err(*source),
            Err(_) => None,
        };
        let Some(found) = found else { return Ok(None) };
        let node = self.edit.node(&found)?;
        if node.kind != FileKind::Regular || node.size > MAX_IGNORE_FILE_BYTES {
            return Ok(None);
        }
        self.workspace.whole(self.edit.state, &node).map(Some)
    }

    /// Moves a node to another name, which is free.
    pub(crate) fn rename(
        &mut self,
        (from, source, found): (&RepoPath, &NameInDir, &FoundNode),
        (to, target): (&RepoPath, &NameInDir),
    ) -> Result<(), OperationError> {
        check_may_remove(self.edit.state, &source.dir, found).map_err(OperationError::at(from))?;
        let renamed = self.try_rename(source, found, target);
        renamed.map_err(OperationError::at(to))?;
        self.note(FileChange::Moved {
            from: from.clone(),
            to: to.clone(),
            ino: found.ino,
        });
        Ok(())
    }

    fn try_rename(
        &mut self,
        source: &NameInDir,
        found: &FoundNode,
        target: &NameInDir,
    ) -> Result<(), FsError> {
        let is_dir = i64::from(self.edit.kind(found)? == FileKind::Directory);
        check_may_add(self.edit.state, &target.dir)?;
        self.edit.drop_name(&source.dir, &source.name)?;
        self.edit.put_name(&target.dir, &target.name, found.ino)?;
        let now = self.edit.now;
        self.edit.node_mut(found)?.ctime = now;
        self.edit.touch_dir(&source.dir, -is_dir)?;
        self.edit.touch_dir(&target.dir, is_dir)?;
        self.name_changed(source);
        self.name_changed(target);
        self.changed.push(Invalidation::Attributes(found.ino));
        Ok(())
    }

    /// Replaces a file's content by `change`. A new node in the trash keeps the old one.
    pub(crate) fn write(
        &mut self,
        path: &RepoPath,
        found: &FoundNode,
        change: impl FnOnce(&mut Node) -> Result<(), FsError>,
    ) -> Result<(), OperationError> {
        self.try_write(found, change)
            .map_err(OperationError::at(path))?;
        self.note(FileChange::Written {
            path: path.clone(),
            ino: found.ino,
        });
        Ok(())
    }

    fn try_write(
        &mut self,
        found: &FoundNode,
        change: impl FnOnce(&mut Node) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        check_may_replace(self.edit.state, found.ino)?;
        let now = self.edit.now;
        let before = self.edit.node(found)?;
        let node = self.edit.node_mut(found)?;
        change(node)?;
        (node.mtime, node.ctime) = (now, now);
        self.operation.kept_bytes = self.operation.kept_bytes.saturating_add(own_bytes(&before));
        let kept = self.edit.new_node(Node { nlink: 1, ..before })?;
        let slot = slot(self.operation.changes.len())?;
        self.edit.put_name(&self.part, &slot, kept)?;
        self.changed.push(Invalidation::Node(found.ino));
        Ok(())
    }

    /// Exchanges a file with its former state in the trash.
    ///
    /// That is, content and attributes. The node is in an earlier operation's part.
    pub(crate) fn exchange(
        &mut self,
        path: &RepoPath,
        found: &FoundNode,
        (part, slot_before): (&FoundNode, &EntryName),
    ) -> Result<(), OperationError> {
        let exchanged = self.try_exchange(found, part, slot_before);
        exchanged.map_err(OperationError::at(path))?;
        self.note_returned(path, found.clone());
        self.note(FileChange::Written {
            path: path.clone(),
            ino: found.ino,
        });
        Ok(())
    }

    fn try_exchange(
        &mut self,
        found: &FoundNode,
        part: &FoundNode,
        slot_before: &EntryName,
    ) -> Result<(), FsError> {
        check_may_replace(self.edit.state, found.ino)?;
        let kept = self.edit.child(part, slot_before)?.ok_or(FsError::Stale)?;
        let (now, then) = (self.edit.node(found)?, self.edit.node(&kept)?);
        self.operation.kept_bytes = self.operation.kept_bytes.saturating_add(own_bytes(&now));
        let (links, origin) = (now.nlink, now.origin.clone());
        self.edit.put_node(kept.ino, Node { nlink: 1, ..now });
        let back = Node {
            nlink: links,
            origin,
            ctime: self.edit.now,
            ..then
        };
        self.edit.put_node(found.ino, back);
        self.edit.drop_name(part, slot_before)?;
        let slot = slot(self.operation.changes.len())?;
        self.edit.put_name(&self.part, &slot, kept.ino)?;
        self.changed.push(Invalidation::Node(found.ino));
        Ok(())
    }

    fn name_changed(&mut self, named: &NameInDir) {
        if self
            .names_changed
            .insert((named.dir.ino, named.name.clone()))
        {
            self.changed.push(Invalidation::Entry {
                parent: named.dir.ino,
                name: named.name.clone(),
            });
        }
        // The kernel ignores the invalidation of a name that it does not know, and would keep its
        // cached listing.
        if self.dirs.insert(named.dir.ino) {
            self.changed.push(Invalidation::Node(named.dir.ino));
        }
    }

    /// Commits the operation as one record of the layer.
    pub(crate) fn commit(mut self) -> Result<CommittedOperation, FsError> {
        // Serialization cannot fail: the record consists of numbers and text.
        let json = serde_json::to_vec(&self.operation).map_err(|_| FsError::Invalid)?;
        self.edit.node_mut(&self.part)?.set_operation(&json);
        let before = self
            .workspace
            .view_before(self.edit.state, self.paths, self.moved);
        self.edit.commit()?;
        Ok(CommittedOperation {
            operation: self.operation,
            changed: self.changed,
            dirs: self.dirs.into_iter().collect(),
            before,
        })
    }
}

/// Returns the directory `levels` levels above `path`.
fn above(path: &RepoPath, levels: usize) -> Result<RepoPath, OperationError> {
    let mut dir = path.clone();
    for _ in 0..levels {
        (dir, _) = dir.split_last().ok_or(OperationError::Root)?;
    }
    Ok(dir)
}

/// Returns an empty directory for the trash.
fn trash_dir_node(edit: &LayerEdit<'_>) -> Node {
    let attrs = &edit.state.base.attrs;
    Node {
        kind: FileKind::Directory,
        perm: 0o700,
        uid: attrs.uid,
        gid: attrs.gid,
        nlink: 2,
        rdev: 0,
        size: 0,
        atime: edit.now,
        mtime: edit.now,
        ctime: edit.now,
        content: Content::Empty,
        origin: None,
        xattrs: Xattrs::new(),
    }
}
