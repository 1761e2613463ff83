//! Changes of a fork's layers against its base, as a plain value.
//!
//! A [`DeltaDir`] names the base tree of a directory, and the names at which the fork may differ
//! from it. Only directories with such names are included, so the size is that of the changes.

use std::collections::{BTreeMap, BTreeSet};

use super::error::FsError;
use super::fs::{FoundNode, NodePlace, ViewState, Workspace};
use tine_attr::{Attr, FileKind, Ino, InoMap};
use tine_git::{InoHasher, ObjectId, TreeEntryKind};
use tine_layer::{Content, Dentry, LayerIndex, Origin};
use tine_path::{DOT_GIT, EntryName};

/// Changes of a fork against its base.
#[derive(Debug, Clone)]
pub struct Delta {
    /// Root directory of the view.
    pub root: DeltaDir,
}

/// One directory of the view.
#[derive(Debug, Clone)]
pub struct DeltaDir {
    /// Inode number of the directory.
    pub ino: Ino,
    /// Base tree below. Names missing in `entries` are as in it.
    ///
    /// `None` for a directory made in the fork.
    pub base_tree_id: Option<ObjectId>,
    /// True if the directory is a submodule's (empty in the base).
    pub is_submodule: bool,
    /// Names at which the fork may differ from the base tree.
    pub entries: BTreeMap<EntryName, DeltaEntry>,
}

/// Frees a deep delta level by level: a thread's stack is small.
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

/// State of the fork at one name.
#[derive(Debug, Clone)]
pub enum DeltaEntry {
    /// Nothing, although the base has a node.
    Absent,
    /// A directory in which something may differ.
    Directory(DeltaDir),
    /// Any other node.
    Node(DeltaNode),
}

/// File, symlink or special node that the layers have.
#[derive(Debug, Clone)]
pub struct DeltaNode {
    /// Attributes of the node.
    pub attr: Attr,
    /// Blob with the node's bytes, if one is stored.
    ///
    /// That is so for an untouched base file and for one adopted after a commit.
    pub blob_id: Option<ObjectId>,
    /// Target; `None` unless the node is a symlink.
    pub link_target: Option<Vec<u8>>,
    /// Place in the base; `None` for a node made in the fork.
    pub origin: Option<Box<Origin>>,
}

impl DeltaNode {
    /// Returns the node's kind in a git tree.
    ///
    /// `None` if git cannot hold it (fifos, sockets, devices).
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

/// Indexes of a fork's layers, oldest first.
type Layers<'a> = [&'a LayerIndex];

/// Base names, by directory, with layer nodes at or below them.
type TouchedNames = InoMap<BTreeSet<EntryName>>;

/// Directory whose entries are incomplete.
struct Unfinished {
    dir: DeltaDir,
    /// Entries that are still to be visited.
    rest: Vec<(EntryName, FoundNode)>,
    /// True below a carried directory that the fork moved.
    ///
    /// Git may not ignore it there, so its whole content is included.
    is_moved: bool,
}

/// Returns the merged dentries of all layers in a directory.
fn names_in<'a>(layers: &Layers<'a>, dir: Ino) -> BTreeMap<&'a EntryName, Dentry> {
    let deltas = layers.iter().filter_map(|index| index.dir(dir));
    deltas.flat_map(|delta| delta.iter()).collect()
}

/// Marks the path from the root to a base place.
fn mark_touched(touched: &mut TouchedNames, hasher: &InoHasher, origin: &Origin) {
    let mut path = origin.path.clone();
    while let Some((parent, name)) = path.split_last() {
        if !touched.entry(hasher.ino(&parent)).or_default().insert(name) {
            return;
        }
        path = parent;
    }
}

impl Workspace {
    /// Returns the changes of the layers, as of now. Costs O(changes).
    ///
    /// # Errors
    /// [`FsError::Base`] or [`FsError::Carried`] if a directory cannot be read, [`FsError::Stale`]
    /// if a dentry names no node.
    pub fn delta(&self) -> Result<Delta, FsError> {
        let state = self.read_state();
        let stack = &state.stack;
        let layers: Vec<&LayerIndex> = stack.indexes().rev().collect();
        let mut touched = TouchedNames::default();
        for (ino, node) in layers.iter().flat_map(|index| index.nodes()) {
            // Only base nodes have an origin. Most nodes in the trash were made in the fork.
            if node.origin.is_some()
                && let Some(node) = stack.node(ino)
                && node.nlink > 0
                && let Some(origin) = &node.origin
            {
                mark_touched(&mut touched, state.base.base.hasher(), origin);
            }
        }
        let root = self.find(&state, Ino::ROOT)?;
        let mut root = self.delta_below(&state, &layers, &touched, &root)?;
        root.entries.remove(DOT_GIT);
        Ok(Delta { root })
    }

    /// Returns the delta of `root` with everything below.
    ///
    /// The walk keeps an explicit stack, because directories may be deeper than a thread's.
    fn delta_below(
        &self,
        state: &ViewState,
        layers: &Layers<'_>,
        touched: &TouchedNames,
        root: &FoundNode,
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

    /// Returns one directory with its whiteouts. Its other entries are still to be visited.
    fn delta_dir(
        &self,
        state: &ViewState,
        layers: &Layers<'_>,
        touched: &TouchedNames,
        dir: &FoundNode,
        is_moved: bool,
    ) -> Result<Unfinished, FsError> {
        let base_dir = self.base_dir(state, dir)?;
        let is_submodule = match &dir.place {
            NodePlace::Layer => {
                let origin = self.layer_node(state, dir.ino)?.origin.as_ref();
                origin.is_some_and(|origin| origin.kind == TreeEntryKind::Submodule)
            }
            NodePlace::Base(base) => base.entry().kind == TreeEntryKind::Submodule,
            NodePlace::Carried(_) | NodePlace::BaseRoot => false,
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
                    let place = NodePlace::Layer;
                    rest.push(((*name).clone(), FoundNode { ino, place }));
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

    /// Returns whether the fork moved a carried directory.
    fn is_moved(&self, state: &ViewState, parent: Ino, name: &EntryName, dir: &FoundNode) -> bool {
        let home = self
            .carried_path(state, dir)
            .and_then(|path| path.split_last());
        home.is_some_and(|(home, home_name)| {
            home_name != *name || state.base.base.hasher().ino(&home) != parent
        })
    }

    fn delta_node(&self, state: &ViewState, found: &FoundNode) -> Result<DeltaNode, FsError> {
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
