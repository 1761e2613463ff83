//! What a fork's layers change against its base, as a plain value.
//!
//! A [`DeltaDir`] names the tree that the directory shows where the delta is silent, and the names at which it speaks.
//! Only directories with something to say are in it, so its size is that of the changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::error::FsError;
use super::fs::{Found, Place, State, Workspace};
use crate::attr::{Attr, FileKind, Ino};
use crate::git::{ObjectId, TreeEntryKind};
use crate::layer::{Content, Dentry, LayerIndex, Origin};
use crate::path::EntryName;

/// The link to the repository at a fork's root: part of no changeset.
const DOT_GIT: &[u8] = b".git";

/// The changes of a fork against its base.
#[derive(Debug, Clone)]
pub struct Delta {
    pub root: DeltaDir,
}

/// One directory of the view.
#[derive(Debug, Clone)]
pub struct DeltaDir {
    pub ino: Ino,
    /// The base tree beneath: names that `entries` lacks are as in it. `None` for a directory made in the fork.
    pub base_tree_id: Option<ObjectId>,
    /// Whether the directory is a submodule's (empty in the base).
    pub is_submodule: bool,
    pub entries: BTreeMap<EntryName, DeltaEntry>,
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
    /// The stored blob, if the node's bytes are those of one: an untouched base file or one adopted after a commit.
    pub blob_id: Option<ObjectId>,
    /// A symlink's target.
    pub link_target: Option<Vec<u8>>,
    pub origin: Option<Origin>,
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

/// What the layers say of names, all layers taken together: one answer for each name.
type Names = HashMap<Ino, BTreeMap<EntryName, Dentry>>;

/// Base names, by directory, at which no layer has a dentry but at or beneath which some layer has a node.
type Touched = HashMap<Ino, BTreeSet<EntryName>>;

impl Workspace {
    /// What the layers change, as a value of this instant. Costs O(changes).
    pub fn delta(&self) -> Result<Delta, FsError> {
        let state = self.read_state();
        let stack = &state.stack;
        let layers: Vec<&LayerIndex> = stack
            .frozen()
            .iter()
            .rev()
            .map(|layer| layer.index())
            .chain([stack.open_layer().index()])
            .collect();
        let mut names = Names::new();
        for index in &layers {
            for (parent, delta) in index.dirs() {
                let merged = names.entry(parent).or_default();
                merged.extend(delta.iter().map(|(name, dentry)| (name.clone(), dentry)));
            }
        }
        let mut touched = Touched::new();
        for (ino, _) in layers.iter().flat_map(|index| index.nodes()) {
            if let Some(node) = stack.node(ino)
                && node.nlink > 0
                && let Some(origin) = &node.origin
            {
                self.mark_touched(&mut touched, origin);
            }
        }
        let root = self.find(&state, Ino::ROOT)?;
        let mut root = self.delta_dir(&state, &names, &touched, &root)?;
        root.entries.remove(DOT_GIT);
        Ok(Delta { root })
    }

    /// Marks the way from the root down to a base place.
    fn mark_touched(&self, touched: &mut Touched, origin: &Origin) {
        let mut path = origin.path.clone();
        while let Some((parent, name)) = path.split_last() {
            if !touched
                .entry(self.base.hasher().ino(&parent))
                .or_default()
                .insert(name)
            {
                return;
            }
            path = parent;
        }
    }

    fn delta_dir(
        &self,
        state: &State,
        names: &Names,
        touched: &Touched,
        dir: &Found,
    ) -> Result<DeltaDir, FsError> {
        let base_dir = self.base_dir(state, dir)?;
        let is_submodule = match &dir.place {
            Place::Layer => {
                let origin = self.layer_node(state, dir.ino)?.origin.as_ref();
                origin.is_some_and(|origin| origin.kind == TreeEntryKind::Submodule)
            }
            Place::Base(base) => base.entry().kind == TreeEntryKind::Submodule,
            Place::BaseRoot => false,
        };
        let mut entries = BTreeMap::new();
        let dentries = names.get(&dir.ino);
        for (name, dentry) in dentries.into_iter().flatten() {
            let entry = match dentry {
                Dentry::Whiteout => DeltaEntry::Absent,
                Dentry::Entry(ino) => {
                    let found = Found {
                        ino: *ino,
                        place: Place::Layer,
                    };
                    self.delta_entry(state, names, touched, &found)?
                }
            };
            entries.insert(name.clone(), entry);
        }
        for name in touched.get(&dir.ino).into_iter().flatten() {
            if dentries.is_some_and(|dentries| dentries.contains_key(name)) {
                continue;
            }
            if let Some(base_dir) = &base_dir
                && let Some(index) = base_dir.find(name.as_bytes())
                && let Some(found) = self.base_child(state, base_dir, index)
            {
                entries.insert(name.clone(), self.delta_entry(state, names, touched, &found)?);
            }
        }
        Ok(DeltaDir {
            ino: dir.ino,
            base_tree_id: base_dir.map(|base_dir| base_dir.tree_id),
            is_submodule,
            entries,
        })
    }

    fn delta_entry(
        &self,
        state: &State,
        names: &Names,
        touched: &Touched,
        found: &Found,
    ) -> Result<DeltaEntry, FsError> {
        if self.kind(state, found)? == FileKind::Directory {
            return Ok(DeltaEntry::Directory(
                self.delta_dir(state, names, touched, found)?,
            ));
        }
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
        Ok(DeltaEntry::Node(DeltaNode {
            attr: self.attr(state, found)?,
            blob_id,
            link_target,
            origin: node.origin,
        }))
    }
}
