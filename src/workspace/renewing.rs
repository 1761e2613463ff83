//! Modification times of files that are brought back when a fork goes to another state.
//!
//! A build tool must see each source that a restore or a reset replaces as git shows it after a checkout: changed now. So files whose
//! content differs from what the fork shows get the time of now; those that have the same content keep the time that they show. What
//! git ignores keeps the time that it had in that state: an output that was out of date there must not seem newer than its sources.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::changed::Changed;
use super::error::FsError;
use super::fs::{Found, Place, State, Workspace};
use crate::attr::{FileKind, Ino, InoMap, Timestamp};
use crate::git::{Base, TreeEntryKind};
use crate::layer::{Content, FrozenLayer, LayerId, Node, Touched};
use crate::path::RepoPath;

impl Workspace {
    /// Returns the nodes that give the files of `to`, a state that this fork is about to go to, the times that they must have there.
    /// Files for which `keeps_time` holds are left out. Costs O(what one of the two states has in a layer that the other has not).
    pub(super) fn renewed_in(
        &self,
        to: &Workspace,
        mut keeps_time: impl FnMut(&RepoPath) -> bool,
    ) -> Result<InoMap<Node>, FsError> {
        let (paths, now) = (self.differing_files(to)?, Timestamp::now());
        let mut renewed = InoMap::default();
        let (here, there) = (self.read_state(), to.read_state());
        for path in paths {
            let Some((found, node)) = to.plain_file(&there, &path)? else {
                continue;
            };
            let before = self.plain_file(&here, &path)?;
            let time = match before {
                Some((_, before)) if is_same(&before, &node) => before.mtime,
                _ => now,
            };
            if time != node.mtime && !keeps_time(&path) {
                let node = Node {
                    mtime: time,
                    ctime: now,
                    ..node
                };
                renewed.insert(found.ino, node);
            }
        }
        Ok(renewed)
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

    /// The paths of `to` at which a layer that only one of the two states has says something, or at which their bases differ.
    fn differing_files(&self, to: &Workspace) -> Result<BTreeSet<RepoPath>, FsError> {
        let (mut files, mut named) = (BTreeSet::new(), BTreeSet::new());
        let mut touched = Touched::default();
        {
            let (here, there) = (self.read_state(), to.read_state());
            let (here_ids, there_ids) = (ids(here.stack.frozen()), ids(there.stack.frozen()));
            let frozen = here.stack.frozen().iter().chain(there.stack.frozen());
            let differing = frozen
                .filter(|layer| !(here_ids.contains(&layer.id()) && there_ids.contains(&layer.id())))
                .map(|layer| layer.index());
            for index in std::iter::once(here.stack.open_layer().index()).chain(differing) {
                touched.add_layer(index, |_| true);
                // What no layer of `to` speaks of is there as its base has it, and known by where that is.
                let origins = index.nodes().filter_map(|(_, node)| node.origin.as_ref());
                files.extend(origins.map(|origin| origin.path.clone()));
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
        }
        for path in named {
            match to.resolve(&path) {
                Ok(attr) if attr.kind == FileKind::Directory => to.add_files_beneath(&path, &mut files)?,
                Ok(_) => drop(files.insert(path)),
                Err(FsError::NotFound | FsError::NotADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        // A file of the base in a directory that was renamed is found by its name in the view that has a node for it.
        for view in [self, to] {
            let Changed::Paths(paths) = view.paths_touched(touched.clone())? else {
                to.add_files_beneath(&RepoPath::root(), &mut files)?;
                break;
            };
            for path in paths {
                let (path, is_dir) = match path.strip_suffix(b"/") {
                    Some(dir) => (dir.to_vec(), true),
                    None => (path, false),
                };
                let Ok(path) = RepoPath::parse(path) else {
                    continue;
                };
                match is_dir {
                    true => to.add_files_beneath(&path, &mut files)?,
                    false => drop(files.insert(path)),
                }
            }
        }
        let (here, there) = (self.base(), to.base());
        if here.tree_id() != there.tree_id() {
            add_differing(&here, &there, &mut files)?;
        }
        files.retain(|path| !path.is_in_dot_git());
        Ok(files)
    }

    fn add_files_beneath(&self, dir: &RepoPath, files: &mut BTreeSet<RepoPath>) -> Result<(), FsError> {
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
                    _ => drop(files.insert(dir.join(&name))),
                }
            }
        }
        Ok(())
    }
}

fn ids(layers: &[Arc<FrozenLayer>]) -> BTreeSet<LayerId> {
    layers.iter().map(|layer| layer.id()).collect()
}

/// Whether two nodes of one path certainly have the same bytes.
fn is_same(a: &Node, b: &Node) -> bool {
    let blob = |node: &Node| match (&node.content, &node.origin) {
        (Content::Base, Some(origin)) => Some(origin.id),
        (Content::Blob(id), _) => Some(*id),
        _ => None,
    };
    let is_same_blob = blob(a).is_some_and(|id| blob(b) == Some(id));
    a.kind == b.kind && a.size == b.size && (is_same_blob || a.content == b.content && blob(a).is_none())
}

/// Adds the files that `to` has and `from` has not, or has otherwise.
fn add_differing(from: &Base, to: &Base, files: &mut BTreeSet<RepoPath>) -> Result<(), FsError> {
    let mut pairs = vec![(Some(from.root()?), to.root()?)];
    while let Some((from_dir, to_dir)) = pairs.pop() {
        if from_dir.as_ref().is_some_and(|dir| dir.tree_id == to_dir.tree_id) {
            continue;
        }
        for entry in &to_dir.entries {
            let path = to_dir.path.join(&entry.name);
            let before = from_dir
                .as_ref()
                .and_then(|dir| dir.entries.get(dir.find(entry.name.as_bytes())?));
            if before.is_some_and(|before| (before.id, before.kind) == (entry.id, entry.kind)) {
                continue;
            }
            match entry.kind {
                TreeEntryKind::Directory => {
                    let before = before.filter(|before| before.kind == TreeEntryKind::Directory);
                    let before = before.map(|before| from.dir(&path, before.id)).transpose()?;
                    pairs.push((before, to.dir(&path, entry.id)?));
                }
                TreeEntryKind::Submodule => {}
                _ => drop(files.insert(path)),
            }
        }
    }
    Ok(())
}
