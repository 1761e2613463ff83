//! What a fork's layers change against its base, as a plain value.
//!
//! A [`DeltaDir`] names the tree that the directory shows where the delta is silent, and the names
//! at which it speaks. Only directories with something to say are in it, so its size is that of the
//! changes.

use std::collections::{BTreeMap, BTreeSet};

use super::error::FsError;
use super::fs::{Found, Place, State, Workspace};
use tine_attr::{Attr, FileKind, Ino, InoMap};
use tine_git::{InoHasher, ObjectId, TreeEntryKind};
use tine_layer::{Content, Dentry, LayerIndex, Origin};
use tine_path::{DOT_GIT, EntryName};

/// The changes of a fork against its base.
#[derive(Debug, Clone)]
pub struct Delta {
    pub root: DeltaDir,
}

/// One directory of the view.
#[derive(Debug, Clone)]
pub struct DeltaDir {
    pub ino: Ino,
    /// The base tree beneath: names that `entries` lacks are as in it. `None` for a directory made
    /// in the fork.
    pub base_tree_id: Option<ObjectId>,
    /// Whether the directory is a submodule's (empty in the base).
    pub is_submodule: bool,
    pub entries: BTreeMap<EntryName, DeltaEntry>,
}

/// Nobody limits how deep directories go, and a thread's stack is small: a deep delta is taken
/// apart level by level.
impl Drop for DeltaDir {
    fn drop(&mut self) {
        let mut rest = vec![std::mem::take(&mut self.entries)];
        while let Some(entries) = rest.pop() {
            for entry in entries.into_values() {
                if let DeltaEntry::Directory(mut dir) = entry {
                    rest.push(std::mem::take(&mut dir.entries));
                }
            }
        }
    }
}

/// What the fork has at one name.
#[derive(Debug, Clone)]
pub enum DeltaEntry {
    /// Nothing, though the base has something.
    Absent,
    /// A directory in which something may differ.
    Directory(DeltaDir),
    /// Anything else.
    Node(DeltaNode),
}

/// A file, symlink or special node that the layers name.
#[derive(Debug, Clone)]
pub struct DeltaNode {
    pub attr: Attr,
    /// The stored blob, if the node's bytes are those of one: an untouched base file or one adopted
    /// after a commit.
    pub blob_id: Option<ObjectId>,
    /// A symlink's target.
    pub link_target: Option<Vec<u8>>,
    pub origin: Option<Box<Origin>>,
}

impl DeltaNode {
    /// The node's mode in a tree; `None` for what git cannot hold (fifos, sockets, devices).
    pub fn tree_kind(&self) -> Option<TreeEntryKind> {
        match self.attr.kind {
            FileKind::Regular if self.attr.perm & 0o100 != 0 => Some(TreeEntryKind::Executable),
            FileKind::Regular => Some(TreeEntryKind::File),
            FileKind::Symlink => Some(TreeEntryKind::Symlink),
            FileKind::Directory
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => None,
        }
    }
}

/// The indexes of a fork's layers, the oldest first.
type Layers<'a> = [&'a LayerIndex];

/// Base names, by directory, at which no layer has a dentry but at or beneath which some layer has
/// a node.
type Touched = InoMap<BTreeSet<EntryName>>;

/// A directory whose entries are being put together.
struct Unfinished {
    dir: DeltaDir,
    /// What is still to be looked at.
    rest: Vec<(EntryName, Found)>,
    /// Whether it is a carried directory that the fork moved: git does not ignore it there for
    /// sure, so all that it holds is told.
    is_moved: bool,
}

/// What the layers say of the names in a directory, all layers taken together: one answer for each
/// name.
fn names_in<'a>(layers: &Layers<'a>, dir: Ino) -> BTreeMap<&'a EntryName, Dentry> {
    let deltas = layers.iter().filter_map(|index| index.dir(dir));
    deltas.flat_map(|delta| delta.iter()).collect()
}

/// Marks the way from the root down to a base place.
fn mark_touched(touched: &mut Touched, hasher: &InoHasher, origin: &Origin) {
    let mut path = origin.path.clone();
    while let Some((parent, name)) = path.split_last() {
        if !touched.entry(hasher.ino(&parent)).or_default().insert(name) {
            return;
        }
        path = parent;
    }
}

impl Workspace {
    /// What the layers change, as a value of this instant. Costs O(changes).
    pub fn delta(&self) -> Result<Delta, FsError> {
        let state = self.read_state();
        let stack = &state.stack;
        let layers: Vec<&LayerIndex> = stack.indexes().rev().collect();
        let mut touched = Touched::default();
        for (ino, node) in layers.iter().flat_map(|index| index.nodes()) {
            // What was made here was never a node of the base; most of what the attic keeps is of
            // that kind.
            if node.origin.is_some()
                && let Some(node) = stack.node(ino)
                && node.nlink > 0
                && let Some(origin) = &node.origin
            {
                mark_touched(&mut touched, state.base.base.hasher(), origin);
            }
        }
        let root = self.find(&state, Ino::ROOT)?;
        let mut root = self.delta_beneath(&state, &layers, &touched, &root)?;
        root.entries.remove(DOT_GIT);
        Ok(Delta { root })
    }

    /// The delta of `root` with all beneath it. The walk keeps its own stack: directories may be
    /// deeper than a thread's.
    fn delta_beneath(
        &self,
        state: &State,
        layers: &Layers<'_>,
        touched: &Touched,
        root: &Found,
    ) -> Result<DeltaDir, FsError> {
        let mut above: Vec<(Unfinished, EntryName)> = Vec::new();
        let mut current = self.delta_dir(state, layers, touched, root, false)?;
        loop {
            match current.rest.pop() {
                Some((name, found)) if self.kind(state, &found)? == FileKind::Directory => {
                    let is_moved =
                        current.is_moved || self.is_moved(state, current.dir.ino, &name, &found);
                    let child = self.delta_dir(state, layers, touched, &found, is_moved)?;
                    above.push((std::mem::replace(&mut current, child), name));
                }
                Some((name, found)) => {
                    let node = self.delta_node(state, &found)?;
                    current.dir.entries.insert(name, DeltaEntry::Node(node));
                }
                None => {
                    let Some((mut parent, name)) = above.pop() else {
                        return Ok(current.dir);
                    };
                    parent
                        .dir
                        .entries
                        .insert(name, DeltaEntry::Directory(current.dir));
                    current = parent;
                }
            }
        }
    }

    /// One directory, with its whiteouts; everything else in it is still to be looked at.
    fn delta_dir(
        &self,
        state: &State,
        layers: &Layers<'_>,
        touched: &Touched,
        dir: &Found,
        is_moved: bool,
    ) -> Result<Unfinished, FsError> {
        let base_dir = self.base_dir(state, dir)?;
        let is_submodule = match &dir.place {
            Place::Layer => {
                let origin = self.layer_node(state, dir.ino)?.origin.as_ref();
                origin.is_some_and(|origin| origin.kind == TreeEntryKind::Submodule)
            }
            Place::Base(base) => base.entry().kind == TreeEntryKind::Submodule,
            Place::Carried(_) | Place::BaseRoot => false,
        };
        let mut entries = BTreeMap::new();
        let mut rest = Vec::new();
        let dentries = names_in(layers, dir.ino);
        for (name, dentry) in &dentries {
            match *dentry {
                Dentry::Whiteout => {
                    entries.insert((*name).clone(), DeltaEntry::Absent);
                }
                Dentry::Entry(ino) => {
                    let place = Place::Layer;
                    rest.push(((*name).clone(), Found { ino, place }));
                }
            }
        }
        for name in touched.get(&dir.ino).into_iter().flatten() {
            if dentries.contains_key(name) {
                continue;
            }
            if let Some(base_dir) = &base_dir
                && let Some(index) = base_dir.find(name.as_bytes())
                && let Some(found) = self.base_child(state, base_dir, index)
            {
                rest.push((name.clone(), found));
            }
        }
        if is_moved {
            for (name, found) in self.carried_children(state, dir)? {
                if !dentries.contains_key(&name) {
                    rest.push((name, found));
                }
            }
        }
        let dir = DeltaDir {
            ino: dir.ino,
            base_tree_id: base_dir.map(|base_dir| base_dir.tree_id),
            is_submodule,
            entries,
        };
        Ok(Unfinished {
            dir,
            rest,
            is_moved,
        })
    }

    /// Whether a carried directory stands elsewhere than in the main checkout.
    fn is_moved(&self, state: &State, parent: Ino, name: &EntryName, dir: &Found) -> bool {
        let home = self
            .carried_path(state, dir)
            .and_then(|path| path.split_last());
        home.is_some_and(|(home, home_name)| {
            home_name != *name || state.base.base.hasher().ino(&home) != parent
        })
    }

    fn delta_node(&self, state: &State, found: &Found) -> Result<DeltaNode, FsError> {
        let node = self.node(state, found)?;
        let blob_id = match (&node.content, &node.origin) {
            (Content::Base, Some(origin)) => Some(origin.id),
            (Content::Blob(id), _) => Some(*id),
            _ => None,
        };
        let link_target = match node.content {
            Content::Link(target) => Some(target.into_vec()),
            _ => None,
        };
        Ok(DeltaNode {
            attr: self.attr(state, found)?,
            blob_id,
            link_target,
            origin: node.origin,
        })
    }
}
