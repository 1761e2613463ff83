//! Bringing many paths to a given state in one step, in one record, announced to the mount.
//!
//! What goes, goes first, and takes directories along that nothing is left in; then comes what is to be. A node is replaced
//! and never changed in place, except that it may become executable or cease to be: whoever has a file open goes on with
//! what he has.
//!
//! Where the base has what is to be at a path, and the directory stands where the base has it, the base's own node comes
//! back under its own number, with the time of this step: nothing but that is in the layer. Everything else gets a new
//! number. A number that is in use elsewhere, or that the kernel remembers, stays where it is.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::edit::Edit;
use super::error::{FsError, OperationError};
use super::flags::{check_may_add, check_may_change, check_may_remove};
use super::follow::is_dot_git;
use super::fs::{Found, Invalidation, Place, State, Workspace};
use super::inodes::BaseRef;
use super::mutate::NewNode;
use super::ops::Caller;
use super::xattr::set_perm;
use crate::attr::{FileKind, Ino};
use crate::git::{BlobContent, ObjectId, TreeEntryKind};
use crate::layer::{Content, ContentRef};
use crate::path::{EntryName, RepoPath};

/// What shall be at a path.
#[derive(Debug, Clone)]
pub struct Replacement {
    pub path: RepoPath,
    /// Whether something is there that this is to replace: a file, or a link. Directories are not spoken of.
    pub replaces: bool,
    /// `None`: nothing.
    pub new: Option<NewEntry>,
}

/// What shall come to a path.
#[derive(Debug, Clone)]
pub enum NewEntry {
    File {
        content: FileContent,
        executable: bool,
        /// Whether the base holds just that at this path: where possible its own node is taken.
        is_base: bool,
    },
    Symlink {
        target: Vec<u8>,
        is_base: bool,
    },
    /// The regular file that is there, executable or not.
    Mode {
        executable: bool,
    },
    /// A directory with nothing in it, as submodules have. One that is there stays.
    Directory,
}

/// Bytes of a file.
#[derive(Debug, Clone)]
pub enum FileContent {
    /// Those of the blob, which somebody keeps from being collected, and their number.
    Blob(ObjectId, u64),
    Bytes(BlobContent),
}

/// How replacements treat what is in their way: what no changeset knows, such as ignored files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ApplyOptions {
    /// It goes. Repositories stay in any case.
    pub force: bool,
}

impl Workspace {
    /// Makes it so, all or nothing. A path that is not as the replacement says is [`FsError::Stale`].
    pub fn apply(&self, replacements: &[Replacement], options: ApplyOptions) -> Result<(), OperationError> {
        let mut state = self.write_state();
        let mut stored = Vec::new();
        let mut applying = Applying {
            workspace: self,
            edit: Edit::new(self, &mut state),
            options,
            gone: HashMap::new(),
            made: HashMap::new(),
            coming: coming(replacements),
            changes: Vec::new(),
            touched: Vec::new(),
            stored: &mut stored,
        };
        let applied = applying.run(replacements);
        let Applying {
            edit,
            changes,
            touched,
            ..
        } = applying;
        let done = applied.and_then(|()| edit.commit().map_err(OperationError::at(&RepoPath::root())));
        if let Err(error) = done {
            let layer = state.stack.open_layer_mut();
            stored
                .into_iter()
                .for_each(|content| layer.abandon_content(content));
            return Err(error);
        }
        drop(state);
        self.announce(changes);
        self.sync_names_if_flagged(&touched)
            .map_err(OperationError::at(&RepoPath::root()))
    }
}

/// Paths that come, sorted.
fn coming(replacements: &[Replacement]) -> Vec<RepoPath> {
    let coming = replacements
        .iter()
        .filter(|replacement| replacement.new.is_some());
    let mut paths: Vec<RepoPath> = coming.map(|replacement| replacement.path.clone()).collect();
    paths.sort();
    paths
}

/// A step in the making.
struct Applying<'a, 's> {
    workspace: &'a Workspace,
    edit: Edit<'a>,
    options: ApplyOptions,
    /// Names that go, by directory.
    gone: HashMap<Ino, HashSet<EntryName>>,
    /// Directories that are made in this step.
    made: HashMap<RepoPath, Found>,
    coming: Vec<RepoPath>,
    changes: Vec<Invalidation>,
    /// Directories in which names change.
    touched: Vec<Ino>,
    /// Contents that no record names yet.
    stored: &'s mut Vec<ContentRef>,
}

impl Applying<'_, '_> {
    fn run(&mut self, replacements: &[Replacement]) -> Result<(), OperationError> {
        let mut emptied = BTreeSet::new();
        for Replacement { path, replaces, new } in replacements {
            if is_dot_git(path) {
                return Err(OperationError::DotGit(path.clone()));
            }
            if !replaces || matches!(new, Some(NewEntry::Mode { .. })) {
                continue;
            }
            let (parent, name) = path.split_last().ok_or(OperationError::Root)?;
            // What somebody else removed meanwhile, or git leaves out of a sparse checkout, need not go.
            let dir = match self.walk_dir(&parent) {
                Err(OperationError::Fs { source, .. }) if matches!(*source, FsError::Stale) => continue,
                walked => walked?,
            };
            let found = self.at(path, |this| {
                this.workspace.child(this.edit.state, &dir, name.as_bytes())
            })?;
            let Some(found) = found else { continue };
            match self.kind(path, &found)? {
                // A submodule's.
                FileKind::Directory => self.remove_hollow(path, &dir, &name, &found)?,
                _ => self.remove(path, &dir, &name, &found)?,
            }
            emptied.insert(parent);
        }
        // The deepest come last.
        while let Some(path) = emptied.pop_last() {
            let Some((parent, name)) = path.split_last() else {
                continue;
            };
            if self.comes_beneath(&path) {
                continue;
            }
            let (dir, found) = (self.walk_dir(&parent)?, self.walk_dir(&path)?);
            if self.is_hollow(&path, &found)? {
                self.remove(&path, &dir, &name, &found)?;
                emptied.insert(parent);
            }
        }
        let mut arriving: Vec<&Replacement> = replacements
            .iter()
            .filter(|replacement| replacement.new.is_some())
            .collect();
        arriving.sort_by(|a, b| a.path.cmp(&b.path));
        for replacement in arriving {
            if let Some(new) = &replacement.new {
                self.put(&replacement.path, new)?;
            }
        }
        Ok(())
    }

    fn at<T>(
        &mut self,
        path: &RepoPath,
        change: impl FnOnce(&mut Self) -> Result<T, FsError>,
    ) -> Result<T, OperationError> {
        change(self).map_err(OperationError::at(path))
    }

    fn kind(&mut self, path: &RepoPath, found: &Found) -> Result<FileKind, OperationError> {
        self.at(path, |this| this.workspace.kind(this.edit.state, found))
    }

    /// A directory as it is before this step. One that is not there is no longer as the replacements say.
    fn walk_dir(&self, path: &RepoPath) -> Result<Found, OperationError> {
        match self.workspace.walk_dir(self.edit.state, path) {
            Err(FsError::NotFound | FsError::NotADirectory) => Err(stale(path)),
            walked => walked.map_err(OperationError::at(path)),
        }
    }

    /// Whether something comes to a place beneath the directory.
    fn comes_beneath(&self, dir: &RepoPath) -> bool {
        self.names_beneath(dir).next().is_some()
    }

    /// The names in the directory at or beneath which something comes, each as often as that.
    fn names_beneath<'p>(&'p self, dir: &'p RepoPath) -> impl Iterator<Item = EntryName> + 'p {
        // What begins alike and goes on with less than a slash stands between a directory and what is in it.
        let first = self.coming.partition_point(|path| path < dir);
        let depth = dir.components().count();
        let prefix = dir.as_bytes();
        self.coming[first..]
            .iter()
            .take_while(move |path| path.as_bytes().starts_with(prefix))
            .filter(move |path| path.starts_with(dir))
            .filter_map(move |path| path.components().nth(depth))
    }

    fn is_gone(&self, dir: Ino, name: &EntryName) -> bool {
        self.gone.get(&dir).is_some_and(|names| names.contains(name))
    }

    /// What is at the name, unless it goes in this step.
    fn child(
        &mut self,
        dir_path: &RepoPath,
        dir: &Found,
        name: &EntryName,
    ) -> Result<Option<Found>, OperationError> {
        if self.made.contains_key(dir_path) || self.is_gone(dir.ino, name) {
            return Ok(None);
        }
        let path = dir_path.join(name);
        self.at(&path, |this| {
            this.workspace.child(this.edit.state, dir, name.as_bytes())
        })
    }

    /// Whether there is nothing in the directory but directories that there is nothing in.
    fn is_hollow(&mut self, path: &RepoPath, dir: &Found) -> Result<bool, OperationError> {
        let mut rest = vec![dir.clone()];
        while let Some(dir) = rest.pop() {
            let entries = self.at(path, |this| this.workspace.entries(this.edit.state, &dir))?;
            for (name, kind, _) in entries {
                if self.is_gone(dir.ino, &name) {
                    continue;
                }
                match kind {
                    FileKind::Directory => {
                        let child = self.at(path, |this| {
                            this.workspace.child(this.edit.state, &dir, name.as_bytes())
                        })?;
                        rest.extend(child);
                    }
                    _ => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// Whether there is a repository in the directory.
    fn holds_repository(&mut self, path: &RepoPath, dir: &Found) -> Result<bool, OperationError> {
        let mut rest = vec![dir.clone()];
        while let Some(dir) = rest.pop() {
            for (name, kind, _) in self.at(path, |this| this.workspace.entries(this.edit.state, &dir))? {
                if name.as_bytes() == b".git" {
                    return Ok(true);
                }
                if kind == FileKind::Directory {
                    let child = self.at(path, |this| {
                        this.workspace.child(this.edit.state, &dir, name.as_bytes())
                    })?;
                    rest.extend(child);
                }
            }
        }
        Ok(false)
    }

    fn remove_hollow(
        &mut self,
        path: &RepoPath,
        dir: &Found,
        name: &EntryName,
        found: &Found,
    ) -> Result<(), OperationError> {
        match self.is_hollow(path, found)? {
            true => self.remove(path, dir, name, found),
            false => Err(OperationError::InTheWay(path.clone())),
        }
    }

    /// Takes the name away, with all that is beneath it.
    fn remove(
        &mut self,
        path: &RepoPath,
        dir: &Found,
        name: &EntryName,
        found: &Found,
    ) -> Result<(), OperationError> {
        let is_dir = self.kind(path, found)? == FileKind::Directory;
        self.at(path, |this| {
            check_may_remove(this.edit.state, dir, found)?;
            this.edit.drop_name(dir, name)?;
            if is_dir {
                let none = HashSet::new();
                let gone = &this.gone;
                let is_gone = |dir: Ino, name: &EntryName| gone.get(&dir).unwrap_or(&none).contains(name);
                this.edit.empty_dir_but(found, &is_gone)?;
            }
            this.edit.lose_link(found)?;
            this.edit.touch_dir(dir, -i64::from(is_dir))
        })?;
        self.gone.entry(dir.ino).or_default().insert(name.clone());
        self.note_name(dir, name);
        self.changes.push(Invalidation::Node(found.ino));
        Ok(())
    }

    fn note_name(&mut self, dir: &Found, name: &EntryName) {
        self.touched.push(dir.ino);
        self.changes.push(Invalidation::Entry {
            parent: dir.ino,
            name: name.clone(),
        });
    }

    /// The name is free afterwards, or what is in the way is told.
    fn clear(
        &mut self,
        path: &RepoPath,
        dir: &Found,
        name: &EntryName,
        found: &Found,
    ) -> Result<(), OperationError> {
        let may_go = match self.kind(path, found)? {
            FileKind::Directory => {
                self.is_hollow(path, found)? || self.options.force && !self.holds_repository(path, found)?
            }
            _ => self.options.force,
        };
        match may_go {
            true => self.remove(path, dir, name, found),
            false => Err(OperationError::InTheWay(path.clone())),
        }
    }

    /// The directory at `path`, made with those above it where it is missing.
    fn dir_at(&mut self, path: &RepoPath) -> Result<Found, OperationError> {
        let mut reached = RepoPath::root();
        let mut dir = self.walk_dir(&reached)?;
        for name in path.components() {
            let next = reached.join(&name);
            dir = match self.made.get(&next) {
                Some(made) => made.clone(),
                None => match self.child(&reached, &dir, &name)? {
                    Some(found) if self.kind(&next, &found)? == FileKind::Directory => found,
                    Some(found) => {
                        self.clear(&next, &dir, &name, &found)?;
                        self.make_dir(&reached, &dir, &name)?
                    }
                    None => self.make_dir(&reached, &dir, &name)?,
                },
            };
            reached = next;
        }
        Ok(dir)
    }

    fn make_dir(
        &mut self,
        dir_path: &RepoPath,
        dir: &Found,
        name: &EntryName,
    ) -> Result<Found, OperationError> {
        let path = dir_path.join(name);
        let base = self.base_node(dir_path, dir, name)?;
        let base = base.filter(|base| base.entry().kind == TreeEntryKind::Directory);
        let made = match base {
            Some(base) => self.take_base_dir(&path, dir, name, base)?,
            None => {
                let new = NewNode {
                    kind: FileKind::Directory,
                    perm: 0o777,
                    rdev: 0,
                    size: 0,
                    content: Content::Empty,
                };
                self.make(&path, dir, name, new)?
            }
        };
        self.note_name(dir, name);
        self.made.insert(path, made.clone());
        Ok(made)
    }

    /// Makes a node that belongs to the fork's owner.
    fn make(
        &mut self,
        path: &RepoPath,
        dir: &Found,
        name: &EntryName,
        new: NewNode,
    ) -> Result<Found, OperationError> {
        let attrs = self.edit.state.base.attrs;
        let caller = Caller {
            umask: attrs.umask,
            ..Caller::new(attrs.uid, attrs.gid)
        };
        self.at(path, |this| this.edit.make(caller, dir, name, new))
    }

    /// The base's own node of this name, if the directory stands where the base has it and nobody uses the number.
    fn base_node(
        &mut self,
        dir_path: &RepoPath,
        dir: &Found,
        name: &EntryName,
    ) -> Result<Option<BaseRef>, OperationError> {
        self.at(dir_path, |this| {
            let state: &State = this.edit.state;
            if state.base.base.hasher().ino(dir_path) != dir.ino && !dir_path.is_root() {
                return Ok(None);
            }
            let base_dir = this.workspace.base_dir(state, dir)?;
            let Some(base_dir) = base_dir.filter(|base_dir| base_dir.path == *dir_path) else {
                return Ok(None);
            };
            let node = base_dir
                .find(name.as_bytes())
                .and_then(|index| BaseRef::new(&base_dir, index));
            Ok(node.filter(|node| this.edit.is_unused(node.entry().ino)))
        })
    }

    /// The base's directory under its own number, without what does not come back.
    fn take_base_dir(
        &mut self,
        path: &RepoPath,
        dir: &Found,
        name: &EntryName,
        base: BaseRef,
    ) -> Result<Found, OperationError> {
        let wanted: HashSet<EntryName> = self.names_beneath(path).collect();
        let found = self.take_base(path, dir, name, base)?;
        self.at(path, |this| {
            // What was carried there went with the directory, too.
            for (name, ..) in this.workspace.entries(this.edit.state, &found)? {
                if !wanted.contains(&name) {
                    this.edit.drop_name(&found, &name)?;
                }
            }
            let node = this.edit.node_mut(&found)?;
            node.nlink = 2;
            Ok(())
        })?;
        Ok(found)
    }

    /// The base's node under its own number, with the time of this step.
    fn take_base(
        &mut self,
        path: &RepoPath,
        dir: &Found,
        name: &EntryName,
        base: BaseRef,
    ) -> Result<Found, OperationError> {
        let is_dir = base.entry().kind == TreeEntryKind::Directory;
        self.at(path, |this| {
            check_may_add(this.edit.state, dir)?;
            let found = Found {
                ino: base.entry().ino,
                place: Place::Base(base),
            };
            let mut node = this.workspace.node(this.edit.state, &found)?;
            let now = this.edit.now;
            (node.atime, node.mtime, node.ctime) = (now, now, now);
            this.edit.put_node(found.ino, node);
            this.edit.put_name(dir, name, found.ino)?;
            this.edit.touch_dir(dir, i64::from(is_dir))?;
            Ok(found)
        })
    }

    fn put(&mut self, path: &RepoPath, new: &NewEntry) -> Result<(), OperationError> {
        let (parent, name) = path.split_last().ok_or(OperationError::Root)?;
        if let NewEntry::Mode { executable } = new {
            return self.set_mode(path, &parent, &name, *executable);
        }
        let dir = self.dir_at(&parent)?;
        if let Some(found) = self.child(&parent, &dir, &name)? {
            let is_dir = self.kind(path, &found)? == FileKind::Directory;
            if is_dir && matches!(new, NewEntry::Directory) {
                return Ok(());
            }
            self.clear(path, &dir, &name, &found)?;
        }
        if let NewEntry::Directory = new {
            return self.make_dir(&parent, &dir, &name).map(drop);
        }
        if let NewEntry::File { is_base: true, .. } | NewEntry::Symlink { is_base: true, .. } = new
            && let Some(base) = self.base_node(&parent, &dir, &name)?
        {
            let found = self.take_base(path, &dir, &name, base)?;
            if let NewEntry::File { executable, .. } = new {
                let kind = file_kind_of(*executable);
                let perm = self.edit.state.base.attrs.perm(kind);
                self.at(path, |this| set_perm(this.edit.node_mut(&found)?, perm))?;
            }
        } else {
            let made = self.new_node(path, new)?;
            self.make(path, &dir, &name, made)?;
        }
        self.note_name(&dir, &name);
        Ok(())
    }

    fn new_node(&mut self, path: &RepoPath, new: &NewEntry) -> Result<NewNode, OperationError> {
        let (kind, perm, size, content) = match new {
            NewEntry::File {
                content, executable, ..
            } => {
                let (size, content) = self.content(path, content)?;
                let perm = if *executable { 0o777 } else { 0o666 };
                (FileKind::Regular, perm, size, content)
            }
            NewEntry::Symlink { target, .. } => {
                let content = Content::Link(target.clone().into());
                (FileKind::Symlink, 0o777, target.len() as u64, content)
            }
            NewEntry::Directory | NewEntry::Mode { .. } => return Err(stale(path)),
        };
        Ok(NewNode {
            kind,
            perm,
            rdev: 0,
            size,
            content,
        })
    }

    fn content(&mut self, path: &RepoPath, content: &FileContent) -> Result<(u64, Content), OperationError> {
        match content {
            FileContent::Blob(_, 0) => Ok((0, Content::Empty)),
            FileContent::Blob(id, size) => Ok((*size, Content::Blob(*id))),
            FileContent::Bytes(bytes) => {
                let bytes = bytes.to_vec().map_err(|source| OperationError::Source {
                    path: path.clone(),
                    source,
                })?;
                let place = self.at(path, |this| this.workspace.store_content(this.edit.state, &bytes))?;
                self.stored.extend(place);
                Ok((bytes.len() as u64, place.map_or(Content::Empty, Content::Own)))
            }
        }
    }

    fn set_mode(
        &mut self,
        path: &RepoPath,
        parent: &RepoPath,
        name: &EntryName,
        executable: bool,
    ) -> Result<(), OperationError> {
        let dir = self.walk_dir(parent)?;
        let found = self.child(parent, &dir, name)?.ok_or_else(|| stale(path))?;
        if self.kind(path, &found)? != FileKind::Regular {
            return Err(stale(path));
        }
        let umask = self.edit.state.base.attrs.umask;
        self.at(path, |this| {
            check_may_change(this.edit.state, found.ino)?;
            let now = this.edit.now;
            let node = this.edit.node_mut(&found)?;
            let perm = match executable {
                true => node.perm | 0o111 & !umask,
                false => node.perm & !0o111,
            };
            node.ctime = now;
            set_perm(node, perm)
        })?;
        self.changes.push(Invalidation::Attributes(found.ino));
        Ok(())
    }
}

fn file_kind_of(executable: bool) -> TreeEntryKind {
    match executable {
        true => TreeEntryKind::Executable,
        false => TreeEntryKind::File,
    }
}

/// The path is not as the replacements say: somebody changed it meanwhile.
fn stale(path: &RepoPath) -> OperationError {
    OperationError::at(path)(FsError::Stale)
}
