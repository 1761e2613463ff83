//! A layer's index in memory.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;

use hashbrown::HashTable;

use super::{Content, ContentRef, Dentry, Node, Op};
use tine_attr::{FileKind, Ino, InoMap};
use tine_path::EntryName;

/// Fewer names than these arrive in one layer while a process has it open.
pub const ARRIVALS: u64 = 1 << 40;

/// Whether a table of `len` entries has so much room that it should shrink: not again before it has
/// grown.
fn is_sparse(room: usize, len: usize) -> bool {
    room / 4 > len + 1024
}

/// All that a layer says, in memory.
pub struct LayerIndex {
    /// Boxed, so that growing the table moves pointers and its spare room is small.
    nodes: InoMap<Box<Node>>,
    /// Never holds an empty [`DirDelta`].
    dirs: InoMap<DirDelta>,
    /// Where the directories stand that the layer has a name for.
    dir_places: InoMap<DirPlace>,
    last_arrival: u64,
    dentries: u64,
    inos_below: Ino,
    checkpoint_bytes: u64,
    /// Of how many layers it is merged: each has [`ARRIVALS`] numbers for its names, the oldest
    /// first.
    span: u64,
}

/// The directory that holds a directory, and how many names lead there: two while one step moves
/// it.
struct DirPlace {
    parent: Ino,
    names: u32,
}

/// What a layer says of the names in one directory.
///
/// A fork may hold a million names: each stands here once.
#[derive(Default)]
pub struct DirDelta {
    /// Arrival number to name: a stable order for listing while names come and go. Numbers start at
    /// 1, are never given twice in one process, and a name whose dentry is replaced keeps its
    /// number.
    by_arrival: BTreeMap<u64, Named>,
    /// The keys of `by_arrival`, by the hash of the name there.
    by_name: HashTable<u64>,
    hasher: RandomState,
}

struct Named {
    name: EntryName,
    /// The number that the name leads to; a whiteout has none.
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

/// The number of an entry; 0 is never one.
fn ino_of(dentry: Dentry) -> Option<NonZeroU64> {
    match dentry {
        Dentry::Entry(ino) => NonZeroU64::new(ino.0),
        Dentry::Whiteout => None,
    }
}

/// What applying a record means for contents.
#[derive(Default)]
pub(super) struct Effects {
    /// Contents that a node has now and had not before.
    pub named: Vec<ContentRef>,
    /// Contents that a node had and has no longer.
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
    /// What layers say together, one above the other; `indexes` are the oldest first. A name is
    /// where it arrived first, so that listing these layers and listing what is merged of them meet
    /// the same names in the same order, under numbers that tell the same place.
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

    /// Names have numbers below this many times [`ARRIVALS`].
    pub fn span(&self) -> u64 {
        self.span
    }

    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino).map(|node| &**node)
    }

    pub fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(ino, node)| (*ino, &**node))
    }

    pub fn dir(&self, parent: Ino) -> Option<&DirDelta> {
        self.dirs.get(&parent)
    }

    pub fn dirs(&self) -> impl Iterator<Item = (Ino, &DirDelta)> {
        self.dirs.iter().map(|(ino, dir)| (*ino, dir))
    }

    /// The directory that holds the directory `ino`, if the layer has a name for that.
    pub fn dir_parent(&self, ino: Ino) -> Option<Ino> {
        self.dir_places.get(&ino).map(|place| place.parent)
    }

    pub fn node_count(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Names in all directories together, whiteouts included.
    pub fn dentry_count(&self) -> u64 {
        self.dentries
    }

    /// Every number that this layer may have given to a new node is below this one.
    pub fn inos_below(&self) -> Ino {
        self.inos_below
    }

    /// About how many bytes a log of [`LayerIndex::checkpoint`] takes.
    pub(super) fn checkpoint_bytes(&self) -> u64 {
        self.checkpoint_bytes
    }

    /// Takes over one change. A change that speaks of what is not there changes nothing.
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

    /// A name in `parent` leads to what it led to no longer.
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

    /// Changes that make this index out of an empty one. Names keep the order of their arrival.
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

/// About what a node takes in the log, in bytes.
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

/// About what a name takes in the log, in bytes.
fn dentry_bytes(name: &EntryName) -> u64 {
    24 + name.as_bytes().len() as u64
}

impl DirDelta {
    pub fn get(&self, name: &[u8]) -> Option<Dentry> {
        let number = self.number_of(name)?;
        self.by_arrival.get(&number).map(Named::dentry)
    }

    /// Every name, in the order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (&EntryName, Dentry)> {
        self.by_arrival
            .values()
            .map(|named| (&named.name, named.dentry()))
    }

    /// The names that arrived after number `after`, with their numbers.
    pub fn arrived_after(&self, after: u64) -> impl Iterator<Item = (u64, &EntryName, Dentry)> {
        self.by_arrival
            .range(after.saturating_add(1)..)
            .map(|(number, named)| (*number, &named.name, named.dentry()))
    }

    /// The names that arrived before number `before`, with their numbers, the last first.
    pub fn arrived_before(&self, before: u64) -> impl Iterator<Item = (u64, &EntryName, Dentry)> {
        let earlier = self.by_arrival.range(..before).rev();
        earlier.map(|(number, named)| (*number, &named.name, named.dentry()))
    }

    pub fn len(&self) -> usize {
        self.by_arrival.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_arrival.is_empty()
    }

    fn number_of(&self, name: &[u8]) -> Option<u64> {
        let bears_name = |number: &u64| bears(&self.by_arrival, *number, name);
        self.by_name
            .find(self.hasher.hash_one(name), bears_name)
            .copied()
    }

    /// Gives a name that is there another dentry: the one that it had.
    fn replace(&mut self, name: &[u8], dentry: Dentry) -> Option<Dentry> {
        let number = self.number_of(name)?;
        let named = self.by_arrival.get_mut(&number)?;
        let old = named.dentry();
        named.ino = ino_of(dentry);
        Some(old)
    }

    /// Adds a name that is not there.
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

    /// What the name led to, if it was there.
    fn remove(&mut self, name: &[u8]) -> Option<Dentry> {
        let hash = self.hasher.hash_one(name);
        let found = self
            .by_name
            .find_entry(hash, |number| bears(&self.by_arrival, *number, name));
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

fn bears(by_arrival: &BTreeMap<u64, Named>, number: u64, name: &[u8]) -> bool {
    by_arrival
        .get(&number)
        .is_some_and(|named| named.name.as_bytes() == name)
}
