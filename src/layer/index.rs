//! In-memory index of a layer.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;

use hashbrown::HashTable;

use super::{Content, ContentRef, Dentry, Node, Op};
use tine_attr::{FileKind, Ino, InoMap};
use tine_path::EntryName;

/// Bound on the names that arrive in an open layer.
///
/// Each layer of a merged index has this many arrival numbers.
pub const ARRIVALS: u64 = 1 << 40;

/// Returns true if a table of `len` entries should shrink.
///
/// Then it has so much room that it does not shrink again before it has grown.
fn is_sparse(room: usize, len: usize) -> bool {
    room / 4 > len + 1024
}

/// Nodes and names of a layer, in memory.
pub struct LayerIndex {
    /// Nodes by inode number.
    ///
    /// They are boxed, so that growing the table moves only pointers and spare room is cheap.
    nodes: InoMap<Box<Node>>,
    /// Names by directory; never has an empty [`DirDelta`].
    dirs: InoMap<DirDelta>,
    /// Parents of the directories for which the layer has a name.
    dir_places: InoMap<DirPlace>,
    last_arrival: u64,
    dentries: u64,
    inos_below: Ino,
    checkpoint_bytes: u64,
    /// Number of merged layers.
    ///
    /// Each has [`ARRIVALS`] numbers for its names, the oldest layer first.
    span: u64,
}

/// Parent of a directory, and its number of names there.
///
/// There are two names while one step moves the directory within its parent.
struct DirPlace {
    parent: Ino,
    names: u32,
}

/// Names of one directory in a layer.
///
/// A fork may have a million names, so each is stored once.
#[derive(Default)]
pub struct DirDelta {
    /// Names by arrival number.
    ///
    /// The numbers give listings a stable order while names come and go. They start at 1 and are
    /// never reused in one process. A name whose dentry is replaced keeps its number.
    by_arrival: BTreeMap<u64, Named>,
    /// Keys of `by_arrival`, by the hash of the name.
    by_name: HashTable<u64>,
    hasher: RandomState,
}

struct Named {
    name: EntryName,
    /// Inode number of the entry; `None` for a whiteout.
    ino: Option<NonZeroU64>,
}

impl Named {
    fn dentry(&self) -> Dentry {
        match self.ino {
            Some(ino) => Dentry::Entry(Ino(ino.get())),
            None => Dentry::Whiteout,
        }
    }
}

/// Returns the inode number of an entry; never 0.
fn ino_of(dentry: Dentry) -> Option<NonZeroU64> {
    match dentry {
        Dentry::Entry(ino) => NonZeroU64::new(ino.0),
        Dentry::Whiteout => None,
    }
}

/// Effects of a record on contents.
#[derive(Default)]
pub(super) struct Effects {
    /// Contents that a node has now and did not have before.
    pub named: Vec<ContentRef>,
    /// Contents that a node had before and does not have now.
    pub dropped: Vec<ContentRef>,
    /// Nodes that kept their content and became shorter.
    pub shrunk: Vec<(Ino, ContentRef)>,
}

impl Effects {
    pub(crate) fn clear(&mut self) {
        self.named.clear();
        self.dropped.clear();
        self.shrunk.clear();
    }
}

impl Default for LayerIndex {
    fn default() -> LayerIndex {
        LayerIndex {
            nodes: InoMap::default(),
            dirs: InoMap::default(),
            dir_places: InoMap::default(),
            last_arrival: 0,
            dentries: 0,
            inos_below: Ino(Ino::NEW_BIT | 1),
            checkpoint_bytes: 0,
            span: 1,
        }
    }
}

impl LayerIndex {
    /// Merges the indexes of a stack of layers, the oldest first.
    ///
    /// A name keeps its first arrival. So the names have the same order in a listing of the layers
    /// and in a listing of the merged index, and a number means the same place in both.
    pub(super) fn merged<'a>(indexes: impl Iterator<Item = &'a LayerIndex>) -> LayerIndex {
        let mut merged = LayerIndex {
            span: 0,
            ..LayerIndex::default()
        };
        for index in indexes {
            merged.add_above(index);
        }
        merged
    }

    fn add_above(&mut self, index: &LayerIndex) {
        let before = self.span.saturating_mul(ARRIVALS);
        self.span = self.span.saturating_add(index.span);
        self.inos_below = self.inos_below.max(index.inos_below);
        for (ino, node) in &index.nodes {
            self.checkpoint_bytes += node_bytes(node);
            if let Some(old) = self.nodes.insert(*ino, node.clone()) {
                self.checkpoint_bytes = self.checkpoint_bytes.saturating_sub(node_bytes(&old));
            }
        }
        for (parent, names) in &index.dirs {
            let dir = self.dirs.entry(*parent).or_default();
            for (number, named) in &names.by_arrival {
                let name = &named.name;
                if dir.replace(name.as_bytes(), named.dentry()).is_none() {
                    self.dentries += 1;
                    self.checkpoint_bytes += dentry_bytes(name);
                    dir.insert(before.saturating_add(*number), name.clone(), named.dentry());
                }
            }
        }
        for (ino, DirPlace { parent, names }) in &index.dir_places {
            let (parent, names) = (*parent, *names);
            self.dir_places.insert(*ino, DirPlace { parent, names });
        }
    }

    /// Returns the number of merged layers.
    ///
    /// Arrival numbers are below this many times [`ARRIVALS`].
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Returns a node of the layer.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino).map(|node| &**node)
    }

    /// Returns all nodes of the layer, in no particular order.
    pub fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(ino, node)| (*ino, &**node))
    }

    /// Returns the names that the layer has in a directory, if any.
    pub fn dir(&self, parent: Ino) -> Option<&DirDelta> {
        self.dirs.get(&parent)
    }

    /// Returns all directories in which the layer has names.
    pub fn dirs(&self) -> impl Iterator<Item = (Ino, &DirDelta)> {
        self.dirs.iter().map(|(ino, dir)| (*ino, dir))
    }

    /// Returns the parent of a directory.
    ///
    /// `None` if the layer has no name for the directory.
    pub fn dir_parent(&self, ino: Ino) -> Option<Ino> {
        self.dir_places.get(&ino).map(|place| place.parent)
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Returns the number of names in all directories, including whiteouts.
    pub fn dentry_count(&self) -> u64 {
        self.dentries
    }

    /// Returns the end of the numbers for new nodes.
    ///
    /// Every number that this layer may have assigned is below it.
    pub fn inos_below(&self) -> Ino {
        self.inos_below
    }

    /// Returns the approximate size of a log with only [`LayerIndex::checkpoint`].
    pub(super) fn checkpoint_bytes(&self) -> u64 {
        self.checkpoint_bytes
    }

    /// Applies one change.
    ///
    /// A change of a node or name that does not exist has no effect.
    pub(super) fn apply(&mut self, op: Op, effects: &mut Effects) {
        match op {
            Op::PutNode(ino, node) => self.put_node(ino, node, effects),
            Op::Written { ino, size, time } => {
                if let Some(node) = self.nodes.get_mut(&ino) {
                    if let Some(content) = node.content.own()
                        && size < node.size
                    {
                        effects.shrunk.push((ino, content));
                    }
                    node.size = size;
                    node.mtime = time;
                    node.ctime = time;
                }
            }
            Op::DropNode(ino) => {
                if let Some(node) = self.nodes.remove(&ino) {
                    self.checkpoint_bytes = self.checkpoint_bytes.saturating_sub(node_bytes(&node));
                    effects.dropped.extend(node.content.own());
                }
                if is_sparse(self.nodes.capacity(), self.nodes.len()) {
                    self.nodes.shrink_to_fit();
                }
                self.dir_places.remove(&ino);
                if let Some(dir) = self.dirs.remove(&ino) {
                    self.dentries -= dir.len() as u64;
                    for (name, _) in dir.iter() {
                        self.checkpoint_bytes =
                            self.checkpoint_bytes.saturating_sub(dentry_bytes(name));
                    }
                }
            }
            Op::PutDentry {
                parent,
                name,
                dentry,
            } => self.put_dentry(parent, name, dentry),
            Op::DropDentry { parent, name } => {
                let Some(dir) = self.dirs.get_mut(&parent) else {
                    return;
                };
                let removed = dir.remove(name.as_bytes());
                if dir.is_empty() {
                    self.dirs.remove(&parent);
                }
                if let Some(dentry) = removed {
                    self.dentries -= 1;
                    self.checkpoint_bytes =
                        self.checkpoint_bytes.saturating_sub(dentry_bytes(&name));
                    self.leave_dir(parent, dentry);
                }
            }
            Op::ReserveInos { below } => self.inos_below = self.inos_below.max(below),
        }
    }

    fn put_node(&mut self, ino: Ino, node: Node, effects: &mut Effects) {
        self.checkpoint_bytes += node_bytes(&node);
        if ino.is_new() {
            self.inos_below = self.inos_below.max(Ino(ino.0.saturating_add(1)));
        }
        let (new_content, new_size) = (node.content.own(), node.size);
        let mut old_content = None;
        match self.nodes.get_mut(&ino) {
            Some(slot) => {
                let old = std::mem::replace(&mut **slot, node);
                self.checkpoint_bytes = self.checkpoint_bytes.saturating_sub(node_bytes(&old));
                old_content = old.content.own();
                if let Some(content) = old_content
                    && new_content == old_content
                    && new_size < old.size
                {
                    effects.shrunk.push((ino, content));
                }
            }
            None => {
                self.nodes.insert(ino, Box::new(node));
            }
        }
        if new_content != old_content {
            effects.named.extend(new_content);
            effects.dropped.extend(old_content);
        }
    }

    fn put_dentry(&mut self, parent: Ino, name: EntryName, dentry: Dentry) {
        if let Dentry::Entry(ino) = dentry
            && self
                .nodes
                .get(&ino)
                .is_some_and(|node| node.kind == FileKind::Directory)
        {
            let names = match self.dir_places.get(&ino) {
                Some(place) if place.parent == parent => place.names.saturating_add(1),
                _ => 1,
            };
            self.dir_places.insert(ino, DirPlace { parent, names });
        }
        let dir = self.dirs.entry(parent).or_default();
        if let Some(old) = dir.replace(name.as_bytes(), dentry) {
            self.leave_dir(parent, old);
            return;
        }
        self.last_arrival += 1;
        self.dentries += 1;
        self.checkpoint_bytes += dentry_bytes(&name);
        dir.insert(self.last_arrival, name, dentry);
    }

    /// Records that a name in `parent` no longer leads to `dentry`.
    fn leave_dir(&mut self, parent: Ino, dentry: Dentry) {
        if let Dentry::Entry(ino) = dentry
            && let Some(place) = self.dir_places.get_mut(&ino)
            && place.parent == parent
        {
            place.names = place.names.saturating_sub(1);
            if place.names == 0 {
                self.dir_places.remove(&ino);
            }
        }
    }

    /// Returns the changes that build this index from an empty one.
    ///
    /// Names keep their order of arrival.
    pub(super) fn checkpoint(&self) -> impl Iterator<Item = Op> + '_ {
        let reserved = std::iter::once(Op::ReserveInos {
            below: self.inos_below,
        });
        let nodes = self
            .nodes
            .iter()
            .map(|(ino, node)| Op::PutNode(*ino, (**node).clone()));
        let dentries = self.dirs.iter().flat_map(|(parent, dir)| {
            dir.arrived_after(0).map(|(_, name, dentry)| Op::PutDentry {
                parent: *parent,
                name: name.clone(),
                dentry,
            })
        });
        reserved.chain(nodes).chain(dentries)
    }
}

/// Estimates the size of a node in the log, in bytes.
fn node_bytes(node: &Node) -> u64 {
    let origin = node
        .origin
        .as_ref()
        .map_or(0, |origin| origin.path.as_bytes().len() + 36);
    let link = match &node.content {
        Content::Link(target) => target.len(),
        Content::Carried(carried) => carried.path.as_bytes().len() + 40,
        Content::Empty | Content::Base | Content::Blob(_) | Content::Own(_) => 0,
    };
    let xattrs: usize = node
        .xattrs
        .iter()
        .map(|(name, value)| name.len() + value.len() + 4)
        .sum();
    72 + (origin + link + xattrs) as u64
}

/// Estimates the size of a name in the log, in bytes.
fn dentry_bytes(name: &EntryName) -> u64 {
    24 + name.as_bytes().len() as u64
}

impl DirDelta {
    /// Returns the dentry of a name, if the layer has one.
    pub fn get(&self, name: &[u8]) -> Option<Dentry> {
        let number = self.number_of(name)?;
        self.by_arrival.get(&number).map(Named::dentry)
    }

    /// Returns all names, in the order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (&EntryName, Dentry)> {
        self.by_arrival
            .values()
            .map(|named| (&named.name, named.dentry()))
    }

    /// Returns the names after number `after`, with their numbers.
    pub fn arrived_after(&self, after: u64) -> impl Iterator<Item = (u64, &EntryName, Dentry)> {
        self.by_arrival
            .range(after.saturating_add(1)..)
            .map(|(number, named)| (*number, &named.name, named.dentry()))
    }

    /// Returns the names before number `before`, with their numbers, the last first.
    pub fn arrived_before(&self, before: u64) -> impl Iterator<Item = (u64, &EntryName, Dentry)> {
        let earlier = self.by_arrival.range(..before).rev();
        earlier.map(|(number, named)| (*number, &named.name, named.dentry()))
    }

    /// Returns the number of names, including whiteouts.
    pub fn len(&self) -> usize {
        self.by_arrival.len()
    }

    /// Returns true if the layer has no names here.
    pub fn is_empty(&self) -> bool {
        self.by_arrival.is_empty()
    }

    fn number_of(&self, name: &[u8]) -> Option<u64> {
        let is_named = |number: &u64| has_name(&self.by_arrival, *number, name);
        self.by_name
            .find(self.hasher.hash_one(name), is_named)
            .copied()
    }

    /// Replaces the dentry of an existing name, and returns the old one.
    fn replace(&mut self, name: &[u8], dentry: Dentry) -> Option<Dentry> {
        let number = self.number_of(name)?;
        let named = self.by_arrival.get_mut(&number)?;
        let old = named.dentry();
        named.ino = ino_of(dentry);
        Some(old)
    }

    /// Adds a name that does not exist.
    fn insert(&mut self, number: u64, name: EntryName, dentry: Dentry) {
        let hash = self.hasher.hash_one(name.as_bytes());
        let ino = ino_of(dentry);
        self.by_arrival.insert(number, Named { name, ino });
        let DirDelta {
            by_arrival,
            by_name,
            hasher,
        } = self;
        by_name.insert_unique(hash, number, |number| hash_of(by_arrival, hasher, *number));
    }

    /// Removes a name, and returns its dentry.
    fn remove(&mut self, name: &[u8]) -> Option<Dentry> {
        let hash = self.hasher.hash_one(name);
        let found = self
            .by_name
            .find_entry(hash, |number| has_name(&self.by_arrival, *number, name));
        let (number, _) = found.ok()?.remove();
        let removed = self.by_arrival.remove(&number)?;
        if is_sparse(self.by_name.capacity(), self.by_name.len()) {
            let DirDelta {
                by_arrival,
                by_name,
                hasher,
            } = self;
            by_name.shrink_to_fit(|number| hash_of(by_arrival, hasher, *number));
        }
        Some(removed.dentry())
    }
}

fn hash_of(by_arrival: &BTreeMap<u64, Named>, hasher: &RandomState, number: u64) -> u64 {
    let named = by_arrival.get(&number);
    named.map_or(0, |named| hasher.hash_one(named.name.as_bytes()))
}

fn has_name(by_arrival: &BTreeMap<u64, Named>, number: u64, name: &[u8]) -> bool {
    by_arrival
        .get(&number)
        .is_some_and(|named| named.name.as_bytes() == name)
}
