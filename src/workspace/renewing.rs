//! Modification times of files that a change of state brings back.
//!
//! A build tool must see the sources that a restore or reset replaces as after a checkout by git:
//! modified now. So files whose content differs from the present view get the present time. Files
//! with the same content keep the time that they show. Ignored files keep the time that they had in
//! that state: an output that was out of date there must not seem newer than its sources.
//!
//! A file that git neither tracks nor ignores may be a new source, or an output in a project
//! without ignore rules. It gets the present time. Files that were newer than it in that state, and
//! are not ignored, become newer than it again.
//!
//! A directory gets the present time if a name in it comes or goes; otherwise it keeps the time
//! that it shows.

use std::collections::{BTreeSet, HashMap};

use super::changed::Changed;
use super::dir_places::DirPlaces;
use super::error::FsError;
use super::fs::{NodePlace, Workspace};
use super::lower_stack::{BaseDifference, base_differences, differing_layers};
use tine_attr::{FileKind, Ino, InoMap, Timestamp};
use tine_git::{Base, GitError, IgnoreRules, MAX_IGNORE_FILE_BYTES, TreeEntryKind};
use tine_layer::{Content, Node, Touched};
use tine_path::{EntryName, RepoPath};

/// Maximum size of files that are compared, in bytes.
///
/// A larger file that two states hold differently counts as changed, because a comparison takes too
/// long.
const MAX_COMPARED: u64 = 1 << 20;

/// Generator of increasing times, one nanosecond apart, in a former order.
pub(super) struct OrderedTimes {
    time: Timestamp,
    before: Option<Timestamp>,
}

impl OrderedTimes {
    pub(crate) fn from(time: Timestamp) -> OrderedTimes {
        OrderedTimes { time, before: None }
    }

    /// Returns the new time for a file that had `time`.
    ///
    /// Calls must come in the order of `time`.
    pub(crate) fn time_for(&mut self, time: Timestamp) -> Timestamp {
        if self.before.is_some_and(|before| before < time) {
            self.time = self.time.next();
        }
        self.before = Some(time);
        self.time
    }
}

/// Build outputs of a view: the files that git ignores.
pub(super) struct BuildOutputs<'a> {
    base: &'a Base,
    /// Ignore rules; `None` if unreadable. Then every file counts as a source.
    rules: Option<IgnoreRules<'a>>,
}

impl<'a> BuildOutputs<'a> {
    /// Reads the ignore rules of a view.
    ///
    /// `read` returns the content of the regular file at a path, if there is one.
    pub(crate) fn new(
        base: &'a Base,
        read: impl Fn(&RepoPath) -> Result<Option<Vec<u8>>, FsError> + 'a,
    ) -> BuildOutputs<'a> {
        let rules = IgnoreRules::new(base.repository(), move |dir: &RepoPath| {
            let name = EntryName::new(b".gitignore").map_err(GitError::library("read rules"))?;
            read(&dir.join(&name)).map_err(GitError::library("read rules"))
        });
        BuildOutputs {
            base,
            rules: rules
                .inspect_err(|error| log::warn!("what git ignores is taken for sources: {error}"))
                .ok(),
        }
    }

    pub(crate) fn is_tracked(&self, path: &RepoPath) -> bool {
        self.base.find(path).is_ok_and(|found| found.is_some())
    }

    pub(crate) fn has(&mut self, path: &RepoPath) -> bool {
        let is_ignored =
            |rules: &mut IgnoreRules<'a>| rules.is_ignored(path, false).unwrap_or(false);
        self.rules.as_mut().is_some_and(is_ignored) && !self.is_tracked(path)
    }
}

impl Workspace {
    /// Returns nodes with new times for the files of `to`.
    ///
    /// `to` is the state that this fork goes to. Costs O(the records of layers that only one of the
    /// states has, and the names in their directories). Costs O(the layers of `to`) if a file comes
    /// back that git neither tracks nor ignores.
    ///
    /// # Errors
    /// [`FsError::Layer`], [`FsError::Base`] or [`FsError::Carried`] if a view cannot be read.
    pub fn renewed_in(&self, to: &Workspace) -> Result<InoMap<Node>, FsError> {
        let (TreePaths { files, mut dirs }, now) = (self.differing(to)?, Timestamp::now());
        let base = to.base();
        let mut outputs =
            BuildOutputs::new(&base, |path| to.read_regular(path, MAX_IGNORE_FILE_BYTES));
        let (mut same, mut back) = (InoMap::default(), InoMap::default());
        let mut oldest: Option<Timestamp> = None;
        for path in files {
            if outputs.has(&path) {
                continue;
            }
            // For paths without a file as well: a directory may have gone with the file.
            dirs.extend(path.directories_above());
            dirs.insert(RepoPath::root());
            let Some((ino, node)) = to.plain_file(&path)? else {
                continue;
            };
            let time = node.mtime;
            match self.plain_file(&path)? {
                Some((_, before)) if self.is_same(&before, to, &node)? => {
                    same.insert(ino, (before.mtime, node));
                }
                _ => {
                    if !outputs.is_tracked(&path) {
                        oldest = Some(oldest.map_or(time, |oldest| oldest.min(time)));
                    }
                    back.insert(ino, node);
                }
            }
        }
        if let Some(oldest) = oldest {
            for path in to.files_of_layers()? {
                if let Some((ino, node)) = to.plain_file(&path)?
                    && node.mtime > oldest
                    && !outputs.has(&path)
                {
                    back.entry(ino).or_insert(node);
                }
            }
        }
        let mut renewed = InoMap::default();
        let mut renew = |ino: Ino, node: Node, mtime: Timestamp| {
            if mtime != node.mtime {
                let ctime = now;
                renewed.insert(
                    ino,
                    Node {
                        mtime,
                        ctime,
                        ..node
                    },
                );
            }
        };
        for (ino, (mtime, node)) in same {
            renew(ino, node, mtime);
        }
        for dir in dirs {
            let Some((ino, node)) = to.plain_dir(&dir)? else {
                continue;
            };
            let mtime = match self.plain_dir(&dir)? {
                Some((_, before)) if self.names_in(&dir)? == to.names_in(&dir)? => before.mtime,
                _ => now,
            };
            renew(ino, node, mtime);
        }
        let mut back: Vec<(Ino, Node)> = back.into_iter().collect();
        back.sort_by_key(|(ino, node)| (node.mtime, *ino));
        let mut order = OrderedTimes::from(now);
        for (ino, node) in back {
            let mtime = order.time_for(node.mtime);
            renew(ino, node, mtime);
        }
        Ok(renewed)
    }

    /// Returns the node at `path`, unless it is carried.
    fn plain(&self, path: &RepoPath) -> Result<Option<(Ino, Node)>, FsError> {
        let state = self.read_state();
        match self.walk(&state, path) {
            Ok(found) if matches!(found.place, NodePlace::Carried(_)) => Ok(None),
            Ok(found) => Ok(Some((found.ino, self.node(&state, &found)?))),
            Err(FsError::NotFound | FsError::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn plain_dir(&self, path: &RepoPath) -> Result<Option<(Ino, Node)>, FsError> {
        let plain = self.plain(path)?;
        Ok(plain.filter(|(_, node)| node.kind == FileKind::Directory))
    }

    /// Returns the regular file or symlink at `path`, unless it is carried.
    fn plain_file(&self, path: &RepoPath) -> Result<Option<(Ino, Node)>, FsError> {
        let plain = self.plain(path)?;
        Ok(plain.filter(|(_, node)| matches!(node.kind, FileKind::Regular | FileKind::Symlink)))
    }

    /// Returns the names in a directory, without the fork's `.git`.
    ///
    /// That is missing in a state that the fork does not have yet.
    fn names_in(&self, dir: &RepoPath) -> Result<BTreeSet<EntryName>, FsError> {
        let names = self.list_path(dir)?.into_iter().map(|(name, ..)| name);
        Ok(names
            .filter(|name| !(dir.is_root() && name.is_dot_git()))
            .collect())
    }

    /// Returns the paths of files and symlinks in layers, and perhaps others.
    fn files_of_layers(&self) -> Result<BTreeSet<RepoPath>, FsError> {
        let mut touched = Touched::default();
        for index in self.read_state().stack.indexes() {
            touched.add_layer(index, |_| true);
        }
        let mut paths = TreePaths::default();
        self.add_touched(touched, self, &mut paths)?;
        Ok(paths.files)
    }

    /// Returns whether the two files have the same bytes. Avoids reading where possible.
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

    /// Returns the paths at which the two states differ.
    ///
    /// Directories are those of `to`.
    fn differing(&self, to: &Workspace) -> Result<TreePaths, FsError> {
        let (mut paths, mut named) = (TreePaths::default(), BTreeSet::new());
        let mut touched = Touched::default();
        {
            let (here, there) = (self.read_state(), to.read_state());
            let mut dirs: HashMap<Ino, Option<RepoPath>> = HashMap::new();
            let differing = differing_layers(here.stack.frozen(), there.stack.frozen());
            for index in std::iter::once(here.stack.open_layer().index()).chain(differing) {
                touched.add_layer(index, |_| true);
                // A node that no layer of `to` has is the base's there, at its origin.
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
                Ok(attr) if attr.kind == FileKind::Directory => {
                    to.add_below_to(&path, &mut paths)?
                }
                Ok(_) => drop(paths.files.insert(path)),
                Err(FsError::NotFound | FsError::NotADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        // A base file in a renamed directory is found by its name in the view that has a node for
        // it.
        for view in [self, to] {
            view.add_touched(touched.clone(), to, &mut paths)?;
        }
        for BaseDifference {
            dir,
            name,
            old,
            new,
        } in base_differences(&self.base(), &to.base())?
        {
            let path = dir.join(&name);
            for (view, entry) in [(self, old), (to, new)] {
                if let Some((TreeEntryKind::Directory, _)) = entry {
                    view.add_below_to(&path, &mut paths)?;
                }
            }
            // For paths that are directories in both views as well: one may be empty.
            paths.files.insert(path);
        }
        paths.files.retain(|path| !path.is_in_dot_git());
        Ok(paths)
    }

    /// Adds touched paths of this view, and everything below touched directories.
    ///
    /// The latter as `of` has it.
    fn add_touched(
        &self,
        touched: Touched,
        of: &Workspace,
        paths: &mut TreePaths,
    ) -> Result<(), FsError> {
        let Changed::Paths(found) = self.paths_touched(touched)? else {
            return of.add_below_to(&RepoPath::root(), paths);
        };
        for path in found {
            let (path, is_dir) = match path.strip_suffix(b"/") {
                Some(dir) => (dir.to_vec(), true),
                None => (path, false),
            };
            let Ok(path) = RepoPath::parse(path) else {
                continue;
            };
            if is_dir {
                of.add_below_to(&path, paths)?;
            } else {
                paths.files.insert(path);
            }
        }
        Ok(())
    }

    /// Adds the directory and everything below it.
    fn add_below_to(&self, dir: &RepoPath, paths: &mut TreePaths) -> Result<(), FsError> {
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

/// Paths of files (with symlinks) and of directories.
#[derive(Default)]
struct TreePaths {
    files: BTreeSet<RepoPath>,
    dirs: BTreeSet<RepoPath>,
}
