//! Brings many paths to a given state in one undoable operation.
//!
//! Removals come first, and remove directories that become empty; then come additions. A node is
//! replaced and never changed in place, except for its execute bits. So a program that has a file
//! open keeps its bytes, and the trash keeps the file.
//!
//! If the base has the wanted node at the path, and the directory is where the base has it, the
//! base's node comes back under its own number, with the time of this operation. The layer then
//! holds nothing else of it. Every other node gets a new number. A number that is in use elsewhere,
//! or that the kernel remembers, is not taken.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::error::{FsError, OperationError};
use super::fs::{FoundNode, Workspace};
use super::inodes::BaseRef;
use super::mutate::NewNode;
use super::operations::builder::{DIRECTORY, NameInDir, OperationBuilder};
use super::operations::{Actor, FileChange, HeadMove, OperationKind, UndoneChanges};
use super::ops::Caller;
use tine_attr::{FileKind, Ino};
use tine_git::{BlobContent, ObjectId, TreeEntryKind};
use tine_layer::{Content, ContentRef, LogPosition, Touched};
use tine_path::{EntryName, RepoPath};

/// State that a path is brought to.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// Path in the fork.
    pub path: RepoPath,
    /// True if a file or symlink at the path must be replaced.
    ///
    /// Directories do not count.
    pub replaces: bool,
    /// New node; `None` removes the path.
    pub new: Option<NewEntry>,
}

/// New node of a path.
#[derive(Debug, Clone)]
pub enum NewEntry {
    /// Regular file.
    File {
        /// Bytes of the file.
        content: FileContent,
        /// True to set the execute bits that the umask allows.
        executable: bool,
        /// True if the base has just that at this path. The base's node is then taken if possible.
        is_base: bool,
    },
    /// Symlink.
    Symlink {
        /// Target, not followed.
        target: Vec<u8>,
        /// True if the base has just that at this path.
        is_base: bool,
    },
    /// Regular file that is there already, with other execute bits.
    Mode {
        /// True to set the execute bits, false to clear them.
        executable: bool,
    },
    /// Empty directory, as submodules have. A directory that is there stays.
    Directory,
}

/// Bytes of a new file.
#[derive(Debug, Clone)]
pub enum FileContent {
    /// Blob protected from garbage collection, and its size in bytes.
    Blob(ObjectId, u64),
    /// These bytes. They are copied into the layer.
    Bytes(BlobContent),
}

/// Options of [`Workspace::apply`].
#[derive(Debug, Clone, Default)]
pub struct ApplyOptions {
    /// Removes obstacles that are in no changeset, such as ignored files.
    ///
    /// Never removes a repository.
    pub force: bool,
    /// Recorded kind of the operation. Default: [`Revert`](OperationKind::Revert).
    pub kind: Option<OperationKind>,
    /// Move of HEAD that belongs to the operation.
    ///
    /// The caller makes it, before or after.
    pub advance: Option<Advance>,
    /// Moment at which the replaced paths were read. A later change makes the operation fail.
    ///
    /// `None` replaces whatever is there.
    pub since: Option<LogPosition>,
}

/// Move of HEAD, as the operation records it.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The move.
    pub moved: HeadMove,
    /// Operation that this one undoes or redoes.
    pub undoes: Option<UndoneChanges>,
}

impl Workspace {
    /// Brings the paths to their new states, all or none.
    ///
    /// This is one operation.
    ///
    /// # Errors
    /// [`OperationError::DotGit`] for a path in `.git`; [`FsError::Stale`] (in
    /// [`OperationError::Fs`]) if a path is not as its replacement says or has changed since;
    /// [`OperationError::InTheWay`] for an obstacle that may not be removed;
    /// [`OperationError::Source`] if new bytes cannot be read; [`OperationError::Fs`] if the layer
    /// fails.
    pub fn apply(
        &self,
        by: Actor<'_>,
        replacements: &[Replacement],
        options: &ApplyOptions,
    ) -> Result<(), OperationError> {
        if let Some(refused) = replacements
            .iter()
            .find(|replacement| replacement.path.is_in_dot_git())
        {
            return Err(OperationError::DotGit(refused.path.clone()));
        }
        let kind = options.kind.unwrap_or(OperationKind::Revert);
        self.operate(by, kind, |builder| {
            let changed = match options.since {
                Some(since) => builder
                    .changed_since(since)
                    .ok_or_else(|| stale(&RepoPath::root()))?,
                None => Touched::default(),
            };
            if let Some(advance) = &options.advance {
                builder.note(FileChange::Advanced(advance.moved.clone()));
                builder.undoes(advance.undoes.clone());
            }
            let mut applying = Applying {
                workspace: self,
                builder,
                force: options.force,
                changed,
                gone: HashMap::new(),
                made: HashMap::new(),
                coming: coming(replacements),
                stored: Vec::new(),
            };
            let applied = applying.run(replacements);
            if applied.is_err() {
                let Applying {
                    builder, stored, ..
                } = applying;
                builder.abandon(&stored);
            }
            applied
        })
    }
}

/// Returns the paths that get a node, sorted.
fn coming(replacements: &[Replacement]) -> Vec<RepoPath> {
    let coming = replacements
        .iter()
        .filter(|replacement| replacement.new.is_some());
    let mut paths: Vec<RepoPath> = coming.map(|replacement| replacement.path.clone()).collect();
    paths.sort();
    paths
}

/// Operation under construction.
struct Applying<'a, 'd> {
    workspace: &'a Workspace,
    builder: &'a mut OperationBuilder<'d>,
    force: bool,
    /// Changes since the paths were read.
    changed: Touched,
    /// Removed names, by directory.
    gone: HashMap<Ino, HashSet<EntryName>>,
    /// Directories that this operation made.
    made: HashMap<RepoPath, FoundNode>,
    /// Paths that get a node, sorted.
    coming: Vec<RepoPath>,
    /// Contents that no record names yet.
    stored: Vec<ContentRef>,
}

impl Applying<'_, '_> {
    fn run(&mut self, replacements: &[Replacement]) -> Result<(), OperationError> {
        let mut emptied = BTreeSet::new();
        for Replacement {
            path,
            replaces,
            new,
        } in replacements
        {
            if !replaces || matches!(new, Some(NewEntry::Mode { .. })) {
                continue;
            }
            let (parent, name) = path.split_last().ok_or(OperationError::Root)?;
            // A path that is gone already, or left out of a sparse checkout, need not be removed.
            let Some(dir) = self.dir_before(&parent)? else {
                continue;
            };
            let named = self.named(path, dir, name)?;
            let Some(found) = named.found.clone() else {
                continue;
            };
            if self.has_changed(&named, &found) {
                return Err(stale(path));
            }
            // The directory of a submodule.
            if self.kind(path, &found)? == FileKind::Directory && !self.is_hollow(path, &found)? {
                return Err(OperationError::InTheWay(path.clone()));
            }
            self.remove(path, &named, &found)?;
            emptied.insert(parent);
        }
        // Deepest directories first.
        while let Some(path) = emptied.pop_last() {
            let Some((parent, name)) = path.split_last() else {
                continue;
            };
            if self.has_arrival_below(&path) {
                continue;
            }
            let dir = self.dir_before(&parent)?.ok_or_else(|| stale(&parent))?;
            let named = self.named(&path, dir, name)?;
            let found = named.found.clone().ok_or_else(|| stale(&path))?;
            if self.is_hollow(&path, &found)? {
                self.remove(&path, &named, &found)?;
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
                self.put_entry(&replacement.path, new)?;
            }
        }
        Ok(())
    }

    fn has_changed(&self, named: &NameInDir, found: &FoundNode) -> bool {
        let name = (named.dir.ino, named.name.clone());
        self.changed.nodes.contains(&found.ino) || self.changed.names.contains(&name)
    }

    fn kind(&self, path: &RepoPath, found: &FoundNode) -> Result<FileKind, OperationError> {
        self.builder.kind(found).map_err(OperationError::at(path))
    }

    /// Returns a directory as it is before this operation, if it exists.
    fn dir_before(&self, path: &RepoPath) -> Result<Option<FoundNode>, OperationError> {
        match self.workspace.walk_dir(self.builder.state(), path) {
            Ok(dir) => Ok(Some(dir)),
            Err(FsError::NotFound | FsError::NotADirectory) => Ok(None),
            Err(error) => Err(OperationError::at(path)(error)),
        }
    }

    /// Returns the name at `path` in `dir`, with its present node.
    fn named(
        &self,
        path: &RepoPath,
        dir: FoundNode,
        name: EntryName,
    ) -> Result<NameInDir, OperationError> {
        let found = self
            .builder
            .child(&dir, &name)
            .map_err(OperationError::at(path))?;
        Ok(NameInDir { dir, name, found })
    }

    /// Returns whether a path below the directory gets a node.
    fn has_arrival_below(&self, dir: &RepoPath) -> bool {
        // Paths that continue with a byte less than a slash sort between a directory and its
        // children.
        let first = self.coming.partition_point(|path| path < dir);
        let alike = self.coming.get(first..).unwrap_or_default();
        alike
            .iter()
            .take_while(|path| path.as_bytes().starts_with(dir.as_bytes()))
            .any(|path| path != dir && path.starts_with(dir))
    }

    fn entries(
        &self,
        path: &RepoPath,
        dir: &FoundNode,
    ) -> Result<Vec<(FileKind, EntryName, FoundNode)>, OperationError> {
        let at = || OperationError::at(path);
        let state = self.builder.state();
        let gone = self.gone.get(&dir.ino);
        let mut entries = Vec::new();
        for (name, kind, _) in self.workspace.entries(state, dir).map_err(at())? {
            if gone.is_some_and(|gone| gone.contains(&name)) {
                continue;
            }
            if let Some(child) = self
                .workspace
                .child(state, dir, name.as_bytes())
                .map_err(at())?
            {
                entries.push((kind, name, child));
            }
        }
        Ok(entries)
    }

    /// Returns whether the directory holds nothing but empty directories, at any depth.
    fn is_hollow(&self, path: &RepoPath, dir: &FoundNode) -> Result<bool, OperationError> {
        let mut rest = vec![dir.clone()];
        while let Some(dir) = rest.pop() {
            for (kind, _, child) in self.entries(path, &dir)? {
                match kind {
                    FileKind::Directory => rest.push(child),
                    _ => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// Returns whether a repository is below the directory.
    fn holds_repository(&self, path: &RepoPath, dir: &FoundNode) -> Result<bool, OperationError> {
        let mut rest = vec![dir.clone()];
        while let Some(dir) = rest.pop() {
            for (kind, name, child) in self.entries(path, &dir)? {
                if name.is_dot_git() {
                    return Ok(true);
                }
                if kind == FileKind::Directory {
                    rest.push(child);
                }
            }
        }
        Ok(false)
    }

    /// Removes the name with everything below it.
    fn remove(
        &mut self,
        path: &RepoPath,
        named: &NameInDir,
        found: &FoundNode,
    ) -> Result<(), OperationError> {
        self.builder.remove(path, named, found)?;
        let gone = self.gone.entry(named.dir.ino).or_default();
        gone.insert(named.name.clone());
        Ok(())
    }

    /// Makes the name free, or fails with the obstacle.
    fn clear(&mut self, path: &RepoPath, named: &mut NameInDir) -> Result<(), OperationError> {
        let Some(found) = named.found.take() else {
            return Ok(());
        };
        let may_go = match self.kind(path, &found)? {
            FileKind::Directory => {
                self.is_hollow(path, &found)?
                    || self.force && !self.holds_repository(path, &found)?
            }
            _ => self.force,
        };
        if may_go {
            self.remove(path, named, &found)
        } else {
            Err(OperationError::InTheWay(path.clone()))
        }
    }

    /// Returns the directory at `path`. Makes it and its parents if missing.
    fn dir_at(&mut self, path: &RepoPath) -> Result<FoundNode, OperationError> {
        let mut reached = RepoPath::root();
        let mut dir = self.dir_before(&reached)?.ok_or(OperationError::Root)?;
        for name in path.components() {
            let next = reached.join(&name);
            dir = match self.made.get(&next) {
                Some(made) => made.clone(),
                None => {
                    let mut named = self.named(&next, dir, name)?;
                    match &named.found {
                        Some(found) if self.kind(&next, found)? == FileKind::Directory => {
                            found.clone()
                        }
                        _ => {
                            self.clear(&next, &mut named)?;
                            self.make_dir(&reached, &next, &named)?
                        }
                    }
                }
            };
            reached = next;
        }
        Ok(dir)
    }

    fn make_dir(
        &mut self,
        dir_path: &RepoPath,
        path: &RepoPath,
        named: &NameInDir,
    ) -> Result<FoundNode, OperationError> {
        let base = self.base_node(dir_path, named)?;
        let base = base.filter(|base| base.entry().kind == TreeEntryKind::Directory);
        let made = match base {
            Some(base) => self.builder.take_base(path, named, base)?,
            None => self.builder.make(self.owner(), path, named, DIRECTORY)?,
        };
        self.made.insert(path.clone(), made.clone());
        Ok(made)
    }

    /// Returns the owner of new nodes.
    fn owner(&self) -> Caller {
        let attrs = self.builder.state().base.attrs;
        Caller::new(attrs.uid, attrs.gid)
    }

    /// Returns the base's node of this name, if it may come back.
    ///
    /// The directory must be where the base has it, and the number unused.
    fn base_node(
        &self,
        dir_path: &RepoPath,
        named: &NameInDir,
    ) -> Result<Option<BaseRef>, OperationError> {
        let state = self.builder.state();
        if state.base.base.hasher().ino(dir_path) != named.dir.ino && !dir_path.is_root() {
            return Ok(None);
        }
        // A directory that this operation made may have no place in the base.
        if self.made.contains_key(dir_path) && !named.dir.is_in_base() {
            return Ok(None);
        }
        let base_dir = self.workspace.base_dir(state, &named.dir);
        let base_dir = base_dir.map_err(OperationError::at(dir_path))?;
        let Some(base_dir) = base_dir.filter(|base_dir| base_dir.path == *dir_path) else {
            return Ok(None);
        };
        let node = base_dir
            .find(named.name.as_bytes())
            .and_then(|index| BaseRef::new(&base_dir, index));
        Ok(node.filter(|node| self.builder.is_unused(node.entry().ino)))
    }

    fn put_entry(&mut self, path: &RepoPath, new: &NewEntry) -> Result<(), OperationError> {
        let (parent, name) = path.split_last().ok_or(OperationError::Root)?;
        if let NewEntry::Mode { executable } = new {
            return self.set_mode(path, &parent, name, *executable);
        }
        let dir = self.dir_at(&parent)?;
        let mut named = self.named(path, dir, name)?;
        if let (NewEntry::Directory, Some(found)) = (new, &named.found)
            && self.kind(path, found)? == FileKind::Directory
        {
            return Ok(());
        }
        self.clear(path, &mut named)?;
        if let NewEntry::Directory = new {
            return self.make_dir(&parent, path, &named).map(drop);
        }
        if let NewEntry::File { is_base: true, .. } | NewEntry::Symlink { is_base: true, .. } = new
            && let Some(base) = self.base_node(&parent, &named)?
        {
            let kind = base.entry().kind;
            let found = self.builder.take_base(path, &named, base)?;
            return match (new, kind) {
                (
                    NewEntry::File {
                        executable: true, ..
                    },
                    TreeEntryKind::File,
                ) => self.set_executable(path, &found, true),
                (
                    NewEntry::File {
                        executable: false, ..
                    },
                    TreeEntryKind::Executable,
                ) => self.set_executable(path, &found, false),
                _ => Ok(()),
            };
        }
        let node = self.new_node(path, new)?;
        self.builder
            .make(self.owner(), path, &named, node)
            .map(drop)
    }

    fn new_node(&mut self, path: &RepoPath, new: &NewEntry) -> Result<NewNode, OperationError> {
        let (kind, perm, size, content) = match new {
            NewEntry::File {
                content,
                executable,
                ..
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

    fn content(
        &mut self,
        path: &RepoPath,
        content: &FileContent,
    ) -> Result<(u64, Content), OperationError> {
        match content {
            FileContent::Blob(_, 0) => Ok((0, Content::Empty)),
            FileContent::Blob(id, size) => Ok((*size, Content::Blob(*id))),
            FileContent::Bytes(bytes) => {
                let bytes = bytes.to_vec().map_err(|source| OperationError::Source {
                    path: path.clone(),
                    source,
                })?;
                let place = self
                    .builder
                    .store(&bytes)
                    .map_err(OperationError::at(path))?;
                self.stored.extend(place);
                Ok((
                    bytes.len() as u64,
                    place.map_or(Content::Empty, Content::Own),
                ))
            }
        }
    }

    fn set_mode(
        &mut self,
        path: &RepoPath,
        parent: &RepoPath,
        name: EntryName,
        executable: bool,
    ) -> Result<(), OperationError> {
        let dir = self.dir_before(parent)?.ok_or_else(|| stale(path))?;
        let found = self
            .named(path, dir, name)?
            .found
            .ok_or_else(|| stale(path))?;
        match self.kind(path, &found)? {
            FileKind::Regular => self.set_executable(path, &found, executable),
            _ => Err(stale(path)),
        }
    }

    fn set_executable(
        &mut self,
        path: &RepoPath,
        found: &FoundNode,
        executable: bool,
    ) -> Result<(), OperationError> {
        let umask = self.builder.state().base.attrs.umask;
        self.builder.set_perm(path, found, |perm| {
            if executable {
                perm | 0o111 & !umask
            } else {
                perm & !0o111
            }
        })
    }
}

/// Returns the error for a path that changed meanwhile.
fn stale(path: &RepoPath) -> OperationError {
    OperationError::at(path)(FsError::Stale)
}
