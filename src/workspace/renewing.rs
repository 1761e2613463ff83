//! Modification times of files that are brought back when a fork goes to another state.
//!
//! A build tool must see each source that a restore or a reset replaces as git shows it after a checkout: changed now. So files whose
//! content differs from what the fork shows get the time of now; those that have the same content keep the time that they show. What
//! git ignores keeps the time that it had in that state: an output that was out of date there must not seem newer than its sources.
//!
//! A file that git neither tracks nor ignores may be either, a new source or an output in a project that ignores none. It gets the time
//! of now, and whatever was newer than it in that state, and is not ignored, becomes newer than it again.
//!
//! A directory in which a name comes or goes gets the time of now, too, and another one keeps the time that it shows.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::changed::Changed;
use super::dir_places::DirPlaces;
use super::error::FsError;
use super::fs::{Found, Place, State, Workspace};
use tine_attr::{FileKind, Ino, InoMap, Timestamp};
use tine_git::{Base, BaseDir, GitError, IgnoreRules, MAX_IGNORE_FILE_BYTES, TreeEntryKind};
use tine_layer::{Content, FrozenLayer, LayerId, Node, Touched};
use tine_path::{EntryName, RepoPath};

/// A file of more bytes that two states hold differently counts as changed: nobody waits for it to be compared.
const MAX_COMPARED: u64 = 1 << 20;

/// Times for files that come at one moment: in the order of those that they had, a nanosecond apart.
pub(super) struct InOrder {
    time: Timestamp,
    before: Option<Timestamp>,
}

impl InOrder {
    pub fn from(time: Timestamp) -> InOrder {
        InOrder { time, before: None }
    }

    /// The time for a file that had `time`, which none before it had a later one than.
    pub fn time_for(&mut self, time: Timestamp) -> Timestamp {
        if self.before.is_some_and(|before| before < time) {
            self.time = self.time.next();
        }
        self.before = Some(time);
        self.time
    }
}

/// Which files of a view git ignores: what builds put out.
pub(super) struct Outputs<'a> {
    base: &'a Base,
    /// `None` where they cannot be read: then each file counts as a source.
    rules: Option<IgnoreRules<'a>>,
}

impl<'a> Outputs<'a> {
    /// `read` gives the content of the regular file of the view at a path, if there is one.
    pub fn new(
        base: &'a Base,
        read: impl Fn(&RepoPath) -> Result<Option<Vec<u8>>, FsError> + 'a,
    ) -> Outputs<'a> {
        let rules = IgnoreRules::new(base.repository(), move |dir: &RepoPath| {
            let name = EntryName::new(b".gitignore").map_err(GitError::library("read rules"))?;
            read(&dir.join(&name)).map_err(GitError::library("read rules"))
        });
        Outputs {
            base,
            rules: rules
                .inspect_err(|error| log::warn!("what git ignores is taken for sources: {error}"))
                .ok(),
        }
    }

    pub fn is_tracked(&self, path: &RepoPath) -> bool {
        self.base.find(path).is_ok_and(|found| found.is_some())
    }

    pub fn has(&mut self, path: &RepoPath) -> bool {
        let is_ignored = |rules: &mut IgnoreRules<'a>| rules.is_ignored(path, false).unwrap_or(false);
        self.rules.as_mut().is_some_and(is_ignored) && !self.is_tracked(path)
    }
}

/// A file whose time is to be told.
struct ComingBack {
    /// What it had there.
    time: Timestamp,
    ino: Ino,
    node: Node,
}

impl Workspace {
    /// Returns the nodes that give the files of `to`, a state that this fork is about to go to, the times that they must have there.
    /// Costs O(what one of the two states has in a layer that the other has not), and O(what the layers of `to` have) where a file
    /// comes back that git neither tracks nor ignores.
    pub(super) fn renewed_in(&self, to: &Workspace) -> Result<InoMap<Node>, FsError> {
        let (Paths { files, mut dirs }, now) = (self.differing(to)?, Timestamp::now());
        let base = to.base();
        let mut outputs = Outputs::new(&base, |path| to.read_regular(path, MAX_IGNORE_FILE_BYTES));
        let (mut same, mut back) = (InoMap::default(), InoMap::default());
        let mut oldest: Option<Timestamp> = None;
        for path in files {
            let there = to.plain_file(&to.read_state(), &path)?;
            let before = self.plain_file(&self.read_state(), &path)?;
            if outputs.has(&path) {
                continue;
            }
            // Also of what is a file in neither: a directory may have gone with it.
            dirs.extend(above(&path));
            let Some((found, node)) = there else {
                continue;
            };
            let (time, ino) = (node.mtime, found.ino);
            match before {
                Some((_, before)) if self.is_same(&before, to, &node)? => {
                    same.insert(ino, (before.mtime, node));
                }
                _ => {
                    if !outputs.is_tracked(&path) {
                        oldest = Some(oldest.map_or(time, |oldest| oldest.min(time)));
                    }
                    back.insert(ino, ComingBack { time, ino, node });
                }
            }
        }
        if let Some(oldest) = oldest {
            for path in to.files_of_layers()? {
                if let Some((found, node)) = to.plain_file(&to.read_state(), &path)?
                    && node.mtime > oldest
                    && !outputs.has(&path)
                {
                    let (time, ino) = (node.mtime, found.ino);
                    back.entry(ino).or_insert(ComingBack { time, ino, node });
                }
            }
        }
        let mut back: Vec<ComingBack> = back.into_values().collect();
        back.sort_by_key(|file| (file.time, file.ino));
        let mut renewed = InoMap::default();
        for (ino, (mtime, node)) in same {
            if mtime != node.mtime {
                let ctime = now;
                renewed.insert(ino, Node { mtime, ctime, ..node });
            }
        }
        for dir in dirs {
            let Some((ino, node)) = to.plain_dir(&dir)? else {
                continue;
            };
            let before = self.plain_dir(&dir)?;
            let mtime = match before {
                Some((_, before)) if self.names_in(&dir)? == to.names_in(&dir)? => before.mtime,
                _ => now,
            };
            if mtime != node.mtime {
                let ctime = now;
                renewed.insert(ino, Node { mtime, ctime, ..node });
            }
        }
        let mut order = InOrder::from(now);
        for ComingBack { time, ino, node } in back {
            let (mtime, ctime) = (order.time_for(time), now);
            renewed.insert(ino, Node { mtime, ctime, ..node });
        }
        Ok(renewed)
    }

    /// The directory at `path`, if it is the fork's own or its base's.
    fn plain_dir(&self, path: &RepoPath) -> Result<Option<(Ino, Node)>, FsError> {
        let state = self.read_state();
        match self.walk_dir(&state, path) {
            Ok(found) if matches!(found.place, Place::Carried(_)) => Ok(None),
            Ok(found) => Ok(Some((found.ino, self.node(&state, &found)?))),
            Err(FsError::NotFound | FsError::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// But for the fork's own `.git`, which is not there before it stands there.
    fn names_in(&self, dir: &RepoPath) -> Result<BTreeSet<EntryName>, FsError> {
        let names = self.list_path(dir)?.into_iter().map(|(name, ..)| name);
        Ok(names
            .filter(|name| !(dir.is_root() && name.is_dot_git()))
            .collect())
    }

    /// The paths of regular files and symlinks that a layer speaks of, and of others.
    fn files_of_layers(&self) -> Result<BTreeSet<RepoPath>, FsError> {
        let mut touched = Touched::default();
        for index in self.read_state().stack.indexes() {
            touched.add_layer(index, |_| true);
        }
        let mut paths = Paths::default();
        self.add_touched(touched, self, &mut paths)?;
        Ok(paths.files)
    }

    /// Whether the file of this view has the bytes of the one of `to`: told without reading where it can be.
    fn is_same(&self, before: &Node, to: &Workspace, node: &Node) -> Result<bool, FsError> {
        if before.kind != node.kind || before.size != node.size {
            return Ok(false);
        }
        let blob = |node: &Node| match (&node.content, &node.origin) {
            (Content::Base, Some(origin)) => Some(origin.id),
            (Content::Blob(id), _) => Some(*id),
            _ => None,
        };
        match (blob(before), blob(node)) {
            (Some(before), Some(now)) => return Ok(before == now),
            (None, None) if before.content == node.content => return Ok(true),
            _ => {}
        }
        if node.kind != FileKind::Regular || node.size > MAX_COMPARED {
            return Ok(false);
        }
        Ok(self.whole(&self.read_state(), before)? == to.whole(&to.read_state(), node)?)
    }

    /// The regular file or symlink at `path` that is the fork's own or its base's.
    fn plain_file(&self, state: &State, path: &RepoPath) -> Result<Option<(Found, Node)>, FsError> {
        let found = match self.walk(state, path) {
            Ok(found) => found,
            Err(FsError::NotFound | FsError::NotADirectory) => return Ok(None),
            Err(error) => return Err(error),
        };
        if matches!(found.place, Place::Carried(_)) {
            return Ok(None);
        }
        let node = self.node(state, &found)?;
        let is_plain = matches!(node.kind, FileKind::Regular | FileKind::Symlink);
        Ok(is_plain.then_some((found, node)))
    }

    /// The paths at which a layer that only one of the two states has says something, or at which their bases differ. Directories are
    /// those of `to`.
    fn differing(&self, to: &Workspace) -> Result<Paths, FsError> {
        let (mut paths, mut named) = (Paths::default(), BTreeSet::new());
        let mut touched = Touched::default();
        {
            let (here, there) = (self.read_state(), to.read_state());
            let mut dirs: HashMap<Ino, Option<RepoPath>> = HashMap::new();
            let (here_ids, there_ids) = (ids(here.stack.frozen()), ids(there.stack.frozen()));
            let frozen = here.stack.frozen().iter().chain(there.stack.frozen());
            let differing = frozen
                .filter(|layer| !(here_ids.contains(&layer.id()) && there_ids.contains(&layer.id())))
                .map(|layer| layer.index());
            for index in std::iter::once(here.stack.open_layer().index()).chain(differing) {
                touched.add_layer(index, |_| true);
                // What no layer of `to` speaks of is there as its base has it, and known by where that is.
                for (ino, node) in index.nodes() {
                    let origin = node.origin.as_ref().map(|origin| origin.path.clone());
                    match node.kind {
                        FileKind::Directory => drop(dirs.insert(ino, origin)),
                        _ => paths.files.extend(origin),
                    }
                }
                for (parent, dir) in index.dirs() {
                    let parent = match parent {
                        Ino::ROOT => Some(RepoPath::root()),
                        _ => index
                            .node(parent)
                            .and_then(|node| Some(node.origin.as_ref()?.path.clone())),
                    };
                    let names = parent
                        .iter()
                        .flat_map(|parent| dir.iter().map(|(name, _)| parent.join(name)));
                    named.extend(names);
                }
            }
            let mut places = DirPlaces::new(&there);
            for (ino, origin) in dirs {
                let path = places.dir_path(ino);
                let path = path.or_else(|| places.base_dir_path(ino, origin?));
                paths.dirs.extend(path);
            }
        }
        for path in named {
            match to.resolve(&path) {
                Ok(attr) if attr.kind == FileKind::Directory => to.add_beneath_to(&path, &mut paths)?,
                Ok(_) => drop(paths.files.insert(path)),
                Err(FsError::NotFound | FsError::NotADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        // A file of the base in a directory that was renamed is found by its name in the view that has a node for it.
        for view in [self, to] {
            view.add_touched(touched.clone(), to, &mut paths)?;
        }
        let (here, there) = (self.base(), to.base());
        if here.tree_id() != there.tree_id() {
            add_differing(&here, &there, &mut paths.files)?;
        }
        paths.files.retain(|path| !path.is_in_dot_git());
        Ok(paths)
    }

    /// Adds where this view has what was touched, and what `of` has beneath directories among that.
    fn add_touched(&self, touched: Touched, of: &Workspace, paths: &mut Paths) -> Result<(), FsError> {
        let Changed::Paths(found) = self.paths_touched(touched)? else {
            return of.add_beneath_to(&RepoPath::root(), paths);
        };
        for path in found {
            let (path, is_dir) = match path.strip_suffix(b"/") {
                Some(dir) => (dir.to_vec(), true),
                None => (path, false),
            };
            let Ok(path) = RepoPath::parse(path) else {
                continue;
            };
            match is_dir {
                true => of.add_beneath_to(&path, paths)?,
                false => drop(paths.files.insert(path)),
            }
        }
        Ok(())
    }

    /// Adds the directory, and all that is in it.
    fn add_beneath_to(&self, dir: &RepoPath, paths: &mut Paths) -> Result<(), FsError> {
        let mut rest = vec![dir.clone()];
        while let Some(dir) = rest.pop() {
            let entries = match self.list_path(&dir) {
                Ok(entries) => entries,
                Err(FsError::NotFound | FsError::NotADirectory) => continue,
                Err(error) => return Err(error),
            };
            for (name, kind, _) in entries {
                match kind {
                    FileKind::Directory => rest.push(dir.join(&name)),
                    _ => drop(paths.files.insert(dir.join(&name))),
                }
            }
            paths.dirs.insert(dir);
        }
        Ok(())
    }
}

/// Paths of files, symlinks among them, and of directories.
#[derive(Default)]
struct Paths {
    files: BTreeSet<RepoPath>,
    dirs: BTreeSet<RepoPath>,
}

/// The directories above `path`.
fn above(path: &RepoPath) -> impl Iterator<Item = RepoPath> {
    let dir_of = |path: &RepoPath| path.split_last().map(|(dir, _)| dir);
    std::iter::successors(dir_of(path), dir_of)
}

fn ids(layers: &[Arc<FrozenLayer>]) -> BTreeSet<LayerId> {
    layers.iter().map(|layer| layer.id()).collect()
}

/// Adds the files that one of the two has and the other has not, or has otherwise.
fn add_differing(from: &Base, to: &Base, files: &mut BTreeSet<RepoPath>) -> Result<(), FsError> {
    let mut pairs = vec![(Some(from.root()?), Some(to.root()?))];
    while let Some((before, now)) = pairs.pop() {
        let of = |dir: &Option<Arc<BaseDir>>| {
            let entries = dir.iter().flat_map(|dir| dir.entries.iter());
            entries.map(|entry| entry.name.clone()).collect::<BTreeSet<_>>()
        };
        let Some(path) = before.as_ref().or(now.as_ref()).map(|dir| dir.path.clone()) else {
            continue;
        };
        for name in &of(&before) | &of(&now) {
            let entry_in = |dir: &Option<Arc<BaseDir>>| {
                let dir = dir.as_ref()?;
                let entry = &dir.entries[dir.find(name.as_bytes())?];
                Some((entry.kind, entry.id))
            };
            let (before, now) = (entry_in(&before), entry_in(&now));
            if before == now {
                continue;
            }
            let path = path.join(&name);
            let is_file = |entry: Option<(TreeEntryKind, _)>| {
                let kind = entry.map(|(kind, _)| kind);
                kind.is_some_and(|kind| !matches!(kind, TreeEntryKind::Directory | TreeEntryKind::Submodule))
            };
            let dir_of = |base: &Base, entry| match entry {
                Some((TreeEntryKind::Directory, id)) => base.dir(&path, id).map(Some),
                _ => Ok(None),
            };
            if is_file(before) || is_file(now) {
                files.insert(path.clone());
            }
            pairs.push((dir_of(from, before)?, dir_of(to, now)?));
        }
    }
    Ok(())
}
