//! Bringing many paths to a given state in one operation, which can be taken back as any other.
//!
//! What goes, goes first, and takes directories along that nothing is left in; then comes what is
//! to be. A node is replaced and never changed in place, except that it may become executable or
//! cease to be: whoever has a file open goes on with what he has, and the attic keeps it.
//!
//! Where the base has what is to be at a path, and the directory stands where the base has it, the
//! base's own node comes back under its own number, with the time of this step: nothing but that is
//! in the layer. Everything else gets a new number. A number that is in use elsewhere, or that the
//! kernel remembers, stays where it is.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::error::{FsError, OperationError};
use super::fs::{Found, Workspace};
use super::inodes::BaseRef;
use super::mutate::NewNode;
use super::operations::builder::{DIRECTORY, Named, OperationBuilder};
use super::operations::{Actor, FileChange, HeadMove, OperationKind, Undoes};
use super::ops::Caller;
use tine_attr::{FileKind, Ino};
use tine_git::{BlobContent, ObjectId, TreeEntryKind};
use tine_layer::{Content, ContentRef, LogPosition, Touched};
use tine_path::{EntryName, RepoPath};

/// What shall be at a path.
#[derive(Debug, Clone)]
pub struct Replacement {
    pub path: RepoPath,
    /// Whether something is there that this is to replace: a file, or a link. Directories are not
    /// spoken of.
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

/// How replacements are made.
#[derive(Debug, Clone, Default)]
pub struct ApplyOptions {
    /// What is in their way and in no changeset, such as ignored files, goes. Repositories stay in
    /// any case.
    pub force: bool,
    /// What kind of operation it is told to be; default: [`Revert`](OperationKind::Revert).
    pub kind: Option<OperationKind>,
    /// HEAD goes with it, or has gone.
    pub advance: Option<Advance>,
    /// When what is replaced was looked at: where it changed since, nothing is done. Default:
    /// whatever is there goes.
    pub since: Option<LogPosition>,
}

/// What is written down of a move of HEAD, in the operation that lets the view follow.
#[derive(Debug, Clone)]
pub struct Advance {
    pub moved: HeadMove,
    /// What this takes back, or does again.
    pub undoes: Option<Undoes>,
}

impl Workspace {
    /// Makes it so, all or nothing. A path that is not as the replacement says, or has changed
    /// since, is [`FsError::Stale`].
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
        self.operate(by, kind, |doing| {
            let changed = match options.since {
                Some(since) => doing
                    .changed_since(since)
                    .ok_or_else(|| stale(&RepoPath::root()))?,
                None => Touched::default(),
            };
            if let Some(advance) = &options.advance {
                doing.note(FileChange::Advanced(advance.moved.clone()));
                doing.undoes(advance.undoes.clone());
            }
            let mut applying = Applying {
                workspace: self,
                doing,
                force: options.force,
                changed,
                gone: HashMap::new(),
                made: HashMap::new(),
                coming: coming(replacements),
                stored: Vec::new(),
            };
            let applied = applying.run(replacements);
            if applied.is_err() {
                let Applying { doing, stored, .. } = applying;
                doing.abandon(&stored);
            }
            applied
        })
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
struct Applying<'a, 'd> {
    workspace: &'a Workspace,
    doing: &'a mut OperationBuilder<'d>,
    force: bool,
    /// What changed since it was looked at.
    changed: Touched,
    /// Names that go, by directory.
    gone: HashMap<Ino, HashSet<EntryName>>,
    /// Directories that are made in this step.
    made: HashMap<RepoPath, Found>,
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
            // What somebody else removed meanwhile, or git leaves out of a sparse checkout, need
            // not go.
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
            // A submodule's directory.
            if self.kind(path, &found)? == FileKind::Directory && !self.is_hollow(path, &found)? {
                return Err(OperationError::InTheWay(path.clone()));
            }
            self.remove(path, &named, &found)?;
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
                self.put(&replacement.path, new)?;
            }
        }
        Ok(())
    }

    fn has_changed(&self, named: &Named, found: &Found) -> bool {
        let name = (named.dir.ino, named.name.clone());
        self.changed.nodes.contains(&found.ino) || self.changed.names.contains(&name)
    }

    fn kind(&self, path: &RepoPath, found: &Found) -> Result<FileKind, OperationError> {
        self.doing.kind(found).map_err(OperationError::at(path))
    }

    /// A directory as it is before this step, if it is there.
    fn dir_before(&self, path: &RepoPath) -> Result<Option<Found>, OperationError> {
        match self.workspace.walk_dir(self.doing.state(), path) {
            Ok(dir) => Ok(Some(dir)),
            Err(FsError::NotFound | FsError::NotADirectory) => Ok(None),
            Err(error) => Err(OperationError::at(path)(error)),
        }
    }

    /// What the name at `path`, in the directory `dir`, leads to now.
    fn named(&self, path: &RepoPath, dir: Found, name: EntryName) -> Result<Named, OperationError> {
        let found = self
            .doing
            .child(&dir, &name)
            .map_err(OperationError::at(path))?;
        Ok(Named { dir, name, found })
    }

    /// Whether something comes to a place beneath the directory.
    fn comes_beneath(&self, dir: &RepoPath) -> bool {
        // What begins alike and goes on with less than a slash stands between a directory and what
        // is in it.
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
        dir: &Found,
    ) -> Result<Vec<(FileKind, EntryName, Found)>, OperationError> {
        let at = || OperationError::at(path);
        let state = self.doing.state();
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

    /// Whether there is nothing in the directory but directories that there is nothing in.
    fn is_hollow(&self, path: &RepoPath, dir: &Found) -> Result<bool, OperationError> {
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

    /// Whether there is a repository in the directory.
    fn holds_repository(&self, path: &RepoPath, dir: &Found) -> Result<bool, OperationError> {
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

    /// Takes the name away, with all that is beneath it.
    fn remove(
        &mut self,
        path: &RepoPath,
        named: &Named,
        found: &Found,
    ) -> Result<(), OperationError> {
        self.doing.remove(path, named, found)?;
        let gone = self.gone.entry(named.dir.ino).or_default();
        gone.insert(named.name.clone());
        Ok(())
    }

    /// The name is free afterwards, or what is in the way is told.
    fn clear(&mut self, path: &RepoPath, named: &mut Named) -> Result<(), OperationError> {
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
        match may_go {
            true => self.remove(path, named, &found),
            false => Err(OperationError::InTheWay(path.clone())),
        }
    }

    /// The directory at `path`, made with those above it where it is missing.
    fn dir_at(&mut self, path: &RepoPath) -> Result<Found, OperationError> {
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
        named: &Named,
    ) -> Result<Found, OperationError> {
        let base = self.base_node(dir_path, named)?;
        let base = base.filter(|base| base.entry().kind == TreeEntryKind::Directory);
        let made = match base {
            Some(base) => self.doing.take_base(path, named, base)?,
            None => self.doing.make(self.owner(), path, named, DIRECTORY)?,
        };
        self.made.insert(path.clone(), made.clone());
        Ok(made)
    }

    /// Whom what comes belongs to.
    fn owner(&self) -> Caller {
        let attrs = self.doing.state().base.attrs;
        Caller::new(attrs.uid, attrs.gid)
    }

    /// The base's own node of this name, if the directory stands where the base has it and nobody
    /// uses the number.
    fn base_node(
        &self,
        dir_path: &RepoPath,
        named: &Named,
    ) -> Result<Option<BaseRef>, OperationError> {
        let state = self.doing.state();
        if state.base.base.hasher().ino(dir_path) != named.dir.ino && !dir_path.is_root() {
            return Ok(None);
        }
        // One that is made in this step has a place in the base or none.
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
        Ok(node.filter(|node| self.doing.is_unused(node.entry().ino)))
    }

    fn put(&mut self, path: &RepoPath, new: &NewEntry) -> Result<(), OperationError> {
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
            let found = self.doing.take_base(path, &named, base)?;
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
        self.doing.make(self.owner(), path, &named, node).map(drop)
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
                let place = self.doing.store(&bytes).map_err(OperationError::at(path))?;
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
        found: &Found,
        executable: bool,
    ) -> Result<(), OperationError> {
        let umask = self.doing.state().base.attrs.umask;
        self.doing.set_perm(path, found, |perm| match executable {
            true => perm | 0o111 & !umask,
            false => perm & !0o111,
        })
    }
}

/// The path is not as the replacements say: somebody changed it meanwhile.
fn stale(path: &RepoPath) -> OperationError {
    OperationError::at(path)(FsError::Stale)
}
