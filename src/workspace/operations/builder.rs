//! An operation in the making: changes by path, each noted so that it can be taken back, in one
//! step with its part of the attic.
//!
//! Paths go through no symlink here; what they lead to is looked up with the changes so far taken
//! into account.

use std::collections::BTreeSet;

use super::super::edit::Edit;
use super::super::error::{FsError, OperationError};
use super::super::flags::{check_may_add, check_may_change, check_may_remove, check_may_replace};
use super::super::fs::{Found, Invalidation, Place, State, Workspace};
use super::super::inodes::BaseRef;
use super::super::mutate::NewNode;
use super::super::ops::Caller;
use super::super::renewing::{InOrder, Outputs};
use super::super::view_steps::ViewBefore;
use super::super::xattr::set_perm;
use super::trash::{own_bytes, slot};
use super::{FileChange, FileOperation, OperationKind, Undoes};
use tine_attr::{FileKind, Ino};
use tine_git::MAX_IGNORE_FILE_BYTES;
use tine_layer::{Content, ContentRef, LogPosition, Node, Touched, Xattrs};
use tine_path::{EntryName, RepoPath};

/// A directory that is missing on the way to something.
pub(crate) const DIRECTORY: NewNode = NewNode {
    kind: FileKind::Directory,
    perm: 0o777,
    rdev: 0,
    size: 0,
    content: Content::Empty,
};

pub(crate) struct OperationBuilder<'a> {
    workspace: &'a Workspace,
    edit: Edit<'a>,
    /// Its part of the attic.
    part: Found,
    operation: FileOperation,
    changed: Vec<Invalidation>,
    /// The names among them.
    names_changed: BTreeSet<(Ino, EntryName)>,
    /// Directories in which names changed.
    dirs: BTreeSet<Ino>,
    /// What it is about.
    paths: BTreeSet<RepoPath>,
    /// From where to where.
    moved: Vec<(RepoPath, RepoPath)>,
    /// What was given its place or its content again, as old as it was.
    came_back: Vec<(RepoPath, Found)>,
}

/// What is left to do when an operation is in the layer.
pub(crate) struct Done {
    pub operation: FileOperation,
    pub changed: Vec<Invalidation>,
    pub dirs: Vec<Ino>,
    /// What names led to before it.
    pub before: Option<ViewBefore>,
}

/// A name in a directory, and what it leads to.
pub(crate) struct Named {
    pub dir: Found,
    pub name: EntryName,
    pub found: Option<Found>,
}

impl<'a> OperationBuilder<'a> {
    pub(crate) fn begin(
        workspace: &'a Workspace,
        state: &'a mut State,
        id: u64,
        kind: OperationKind,
        command: &str,
    ) -> Result<OperationBuilder<'a>, FsError> {
        let mut edit = Edit::new(workspace, state);
        let trash = Found::in_layer(Ino::TRASH);
        if edit.state.stack.node(Ino::TRASH).is_none() {
            let node = attic_node(&edit);
            edit.put_node(Ino::TRASH, node);
        }
        let node = attic_node(&edit);
        let part = Found::in_layer(edit.new_node(node)?);
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
            came_back: Vec::new(),
        })
    }

    pub(crate) fn state(&self) -> &State {
        self.edit.state
    }

    /// What others changed since; `None` where that cannot be told.
    pub(crate) fn changed_since(&self, since: LogPosition) -> Option<Touched> {
        let layer = self.edit.state.stack.open_layer();
        layer.changes_since(since)?.read()
    }

    pub(crate) fn id(&self) -> u64 {
        self.operation.id
    }

    pub(crate) fn undoes(&mut self, undoes: Option<Undoes>) {
        self.operation.undoes = undoes;
    }

    pub(crate) fn node(&self, found: &Found) -> Result<Node, FsError> {
        self.edit.node(found)
    }

    pub(crate) fn kind(&self, found: &Found) -> Result<FileKind, FsError> {
        self.edit.kind(found)
    }

    pub(crate) fn is_empty(&self, dir: &Found) -> Result<bool, FsError> {
        self.edit.is_empty(dir)
    }

    /// Notes a change that says all by itself.
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

    /// The name at `path`, in a directory that is there.
    pub(crate) fn named(&self, path: &RepoPath) -> Result<Named, OperationError> {
        let (named, missing) = self.deepest(path)?;
        match missing.is_empty() {
            true => Ok(named),
            false => Err(OperationError::NotFound(above(path, missing.len())?)),
        }
    }

    /// What is at `path`; `None` also where a directory on the way is missing or no directory.
    pub(crate) fn find(&self, path: &RepoPath) -> Result<Option<Named>, OperationError> {
        match self.deepest(path) {
            Ok((named, missing)) if missing.is_empty() && named.found.is_some() => Ok(Some(named)),
            Ok(_) | Err(OperationError::NotADirectory(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first name on the way to `path` that leads nowhere, or the last one, and the names
    /// behind it.
    fn deepest(&self, path: &RepoPath) -> Result<(Named, Vec<EntryName>), OperationError> {
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
                    return Ok((Named { dir, name, found }, behind.to_vec()));
                }
            }
        }
        Err(OperationError::Root)
    }

    /// Makes the directories that are missing on the way to `path`: how many. Then the name there.
    pub(crate) fn with_parents(
        &mut self,
        caller: Caller,
        path: &RepoPath,
    ) -> Result<(Named, usize), OperationError> {
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
        named: &Named,
        new: NewNode,
    ) -> Result<Found, OperationError> {
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

    /// Whether a node of the base may come back under its own number.
    pub(crate) fn is_unused(&self, ino: Ino) -> bool {
        self.edit.is_unused(ino)
    }

    /// Brings the base's node to a free name, under its own number, which is unused, and with the
    /// time of this step. A directory has nothing in it then.
    pub(crate) fn take_base(
        &mut self,
        path: &RepoPath,
        named: &Named,
        base: BaseRef,
    ) -> Result<Found, OperationError> {
        let found = Found {
            ino: base.entry().ino,
            place: Place::Base(base),
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

    fn try_take_base(&mut self, named: &Named, found: &Found) -> Result<(), FsError> {
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
            // What was carried there went with the directory, too.
            for (name, ..) in self.workspace.entries(self.edit.state, found)? {
                self.edit.drop_name(found, &name)?;
            }
        }
        Ok(())
    }

    /// Gives a file other permission bits.
    pub(crate) fn set_perm(
        &mut self,
        path: &RepoPath,
        found: &Found,
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
        found: &Found,
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

    /// A content of the layer that nothing names yet.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Result<Option<ContentRef>, FsError> {
        self.workspace.store_content(self.edit.state, bytes)
    }

    /// Gives back what [`OperationBuilder::store`] gave.
    pub(crate) fn abandon(&mut self, contents: &[ContentRef]) {
        let layer = self.edit.state.stack.open_layer_mut();
        contents
            .iter()
            .for_each(|content| layer.abandon_content(*content));
    }

    pub(crate) fn child(&self, dir: &Found, name: &EntryName) -> Result<Option<Found>, FsError> {
        self.edit.child(dir, name)
    }

    /// Moves what is at `path` to the attic, with all beneath it.
    pub(crate) fn remove(
        &mut self,
        path: &RepoPath,
        named: &Named,
        found: &Found,
    ) -> Result<(), OperationError> {
        let removed = self.try_remove(named, found);
        removed.map_err(OperationError::at(path))?;
        self.changed.push(Invalidation::Node(found.ino));
        self.note(FileChange::Removed { path: path.clone() });
        Ok(())
    }

    fn try_remove(&mut self, named: &Named, found: &Found) -> Result<(), FsError> {
        check_may_remove(self.edit.state, &named.dir, found)?;
        let is_dir = self.edit.kind(found)? == FileKind::Directory;
        // One that is made in this step has nothing yet.
        if self.workspace.find_again(self.edit.state, found) {
            let bytes = self.workspace.weigh(self.edit.state, found)?;
            self.operation.kept_bytes = self.operation.kept_bytes.saturating_add(bytes);
        }
        self.edit.drop_name(&named.dir, &named.name)?;
        self.edit.touch_dir(&named.dir, -i64::from(is_dir))?;
        // A layer must know the node for a name of the layer to lead there.
        self.edit.node_mut(found)?;
        let slot = slot(self.operation.changes.len())?;
        self.edit.put_name(&self.part, &slot, found.ino)?;
        self.edit.touch_dir(&self.part, i64::from(is_dir))?;
        self.name_changed(named);
        Ok(())
    }

    /// Gives the node that an earlier operation took away its place again, which is free.
    pub(crate) fn put_back(
        &mut self,
        path: &RepoPath,
        named: &Named,
        (part, slot): (&Found, &EntryName),
    ) -> Result<(), OperationError> {
        let back = self.try_put_back(named, part, slot);
        let found = back.map_err(OperationError::at(path))?;
        self.note(FileChange::PutBack {
            path: path.clone(),
            ino: found.ino,
        });
        self.came_back(path, found);
        Ok(())
    }

    fn try_put_back(
        &mut self,
        named: &Named,
        part: &Found,
        slot: &EntryName,
    ) -> Result<Found, FsError> {
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

    /// Notes that this is at `path` again, for [`OperationBuilder::renew`].
    pub(crate) fn came_back(&mut self, path: &RepoPath, found: Found) {
        self.came_back.push((path.clone(), found));
    }

    /// Gives what came back the modification time of this step, as git does with what it brings
    /// back: what was made meanwhile was made of other bytes. All files keep their order in time, a
    /// nanosecond apart. What git ignores stays as old as it was: an output must not seem newer
    /// than a source that was changed meanwhile.
    pub(crate) fn renew(&mut self) -> Result<(), FsError> {
        let mut files = Vec::new();
        let mut rest = std::mem::take(&mut self.came_back);
        while let Some((path, found)) = rest.pop() {
            let node = match &found.place {
                // It is the main checkout's.
                Place::Carried(_) => continue,
                Place::Base(_) | Place::BaseRoot | Place::Layer => self.edit.node(&found)?,
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
        let mut outputs = Outputs::new(&self.edit.state.base.base, |path| self.read_regular(path));
        files.retain(|(_, path, _)| !outputs.has(path));
        drop(outputs);
        files.sort_by_key(|(mtime, ..)| *mtime);
        let mut order = InOrder::from(self.edit.now);
        for (mtime, _, found) in files {
            let ctime = self.edit.now;
            let node = self.edit.node_mut(&found)?;
            (node.mtime, node.ctime) = (order.time_for(mtime), ctime);
            self.changed.push(Invalidation::Attributes(found.ino));
        }
        Ok(())
    }

    /// The bytes of the regular file at `path` as it is after this step, if there is one of a size
    /// that git reads rules from.
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

    /// Moves what is at one name to another, which is free.
    pub(crate) fn rename(
        &mut self,
        (from, source, found): (&RepoPath, &Named, &Found),
        (to, target): (&RepoPath, &Named),
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

    fn try_rename(&mut self, source: &Named, found: &Found, target: &Named) -> Result<(), FsError> {
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

    /// Replaces a file's content: `change` says how. What it had goes to a new node in the attic.
    pub(crate) fn write(
        &mut self,
        path: &RepoPath,
        found: &Found,
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
        found: &Found,
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

    /// Gives a file what the node in an earlier operation's part of the attic has, and that node
    /// what the file had.
    pub(crate) fn exchange(
        &mut self,
        path: &RepoPath,
        found: &Found,
        (part, slot_before): (&Found, &EntryName),
    ) -> Result<(), OperationError> {
        let exchanged = self.try_exchange(found, part, slot_before);
        exchanged.map_err(OperationError::at(path))?;
        self.came_back(path, found.clone());
        self.note(FileChange::Written {
            path: path.clone(),
            ino: found.ino,
        });
        Ok(())
    }

    fn try_exchange(
        &mut self,
        found: &Found,
        part: &Found,
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

    fn name_changed(&mut self, named: &Named) {
        if self
            .names_changed
            .insert((named.dir.ino, named.name.clone()))
        {
            self.changed.push(Invalidation::Entry {
                parent: named.dir.ino,
                name: named.name.clone(),
            });
        }
        // Told of a name that it does not know, the kernel leaves what it knows of the directory as
        // it is.
        if self.dirs.insert(named.dir.ino) {
            self.changed.push(Invalidation::Node(named.dir.ino));
        }
    }

    /// Makes it so, in one record.
    pub(crate) fn commit(mut self) -> Result<Done, FsError> {
        // A record of this kind can be told in JSON: all of it is numbers and text.
        let told = serde_json::to_vec(&self.operation).map_err(|_| FsError::Invalid)?;
        self.edit.node_mut(&self.part)?.set_operation(&told);
        let before = self
            .workspace
            .view_before(self.edit.state, self.paths, self.moved);
        self.edit.commit()?;
        Ok(Done {
            operation: self.operation,
            changed: self.changed,
            dirs: self.dirs.into_iter().collect(),
            before,
        })
    }
}

/// The directory so many levels above `path`.
fn above(path: &RepoPath, levels: usize) -> Result<RepoPath, OperationError> {
    let mut dir = path.clone();
    for _ in 0..levels {
        (dir, _) = dir.split_last().ok_or(OperationError::Root)?;
    }
    Ok(dir)
}

/// An empty directory of the attic.
fn attic_node(edit: &Edit<'_>) -> Node {
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
