//! The inode table: which numbers the kernel remembers, and where untouched nodes come from.
//!
//! The kernel names a node by number alone, so for each number it was told the table keeps how
//! often (the *lookups*, given back by FORGET) and, for a node that no layer names, its place in
//! the base or in the carry. Nodes that a layer names are found there.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use super::carry::CarriedNode;
use tine_attr::{Ino, InoHash};
use tine_git::{BaseDir, BaseEntry};
use tine_layer::Origin;
use tine_path::RepoPath;

/// An entry of a decoded base directory.
#[derive(Clone)]
pub(super) struct BaseRef {
    dir: Arc<BaseDir>,
    index: u32,
}

impl BaseRef {
    /// `None` where the directory has no such entry.
    pub(crate) fn new(dir: &Arc<BaseDir>, index: usize) -> Option<BaseRef> {
        dir.entries.get(index)?;
        Some(BaseRef {
            dir: dir.clone(),
            index: u32::try_from(index).ok()?,
        })
    }

    pub(crate) fn entry(&self) -> &BaseEntry {
        &self.dir.entries[self.index()]
    }

    pub(crate) fn dir(&self) -> &Arc<BaseDir> {
        &self.dir
    }

    pub(crate) fn index(&self) -> usize {
        self.index as usize
    }

    pub(crate) fn origin(&self) -> Origin {
        let entry = self.entry();
        Origin {
            path: self.path(),
            kind: entry.kind,
            id: entry.id,
        }
    }

    pub(crate) fn path(&self) -> RepoPath {
        self.dir.path.join(&self.entry().name)
    }

    fn is_same_place(&self, other: &BaseRef) -> bool {
        self.index == other.index
            && (Arc::ptr_eq(&self.dir, &other.dir) || self.dir.path == other.dir.path)
    }
}

/// Where a node comes from that no layer names.
#[derive(Clone)]
pub(super) enum LowerRef {
    Base(BaseRef),
    Carried(Arc<CarriedNode>),
}

impl LowerRef {
    fn is_same_place(&self, other: &LowerRef) -> bool {
        match (self, other) {
            (LowerRef::Base(one), LowerRef::Base(other)) => one.is_same_place(other),
            (LowerRef::Carried(one), LowerRef::Carried(other)) => one.path == other.path,
            // A fork whose base changes may have one after the other.
            (LowerRef::Base(_), LowerRef::Carried(_))
            | (LowerRef::Carried(_), LowerRef::Base(_)) => true,
        }
    }
}

/// A table shrinks once it has this many times the room it needs …
const SPARSE: usize = 4;

/// … and more than this is in question, in nodes.
const MIN_ROOM: usize = 1024;

struct Remembered {
    lookups: u64,
    lower: Option<LowerRef>,
}

/// Two paths hash to one inode number.
#[derive(Debug)]
pub(super) struct InoCollision;

/// Internally synchronised; taken last, with nothing else acquired while it is held.
#[derive(Default)]
pub(super) struct InodeTable {
    remembered: DashMap<Ino, Remembered, InoHash>,
}

impl InodeTable {
    /// Counts one lookup of `ino`.
    pub(crate) fn remember(&self, ino: Ino, lower: Option<&LowerRef>) -> Result<(), InoCollision> {
        match self.remembered.entry(ino) {
            Entry::Vacant(vacant) => {
                vacant.insert(Remembered {
                    lookups: 1,
                    lower: lower.cloned(),
                });
            }
            Entry::Occupied(mut occupied) => {
                let known = occupied.get_mut();
                match (&known.lower, lower) {
                    (Some(known_place), Some(place)) if !known_place.is_same_place(place) => {
                        return Err(InoCollision);
                    }
                    (Some(LowerRef::Base(_)), Some(LowerRef::Base(_))) | (_, None) => {}
                    (_, Some(place)) => known.lower = Some(place.clone()),
                }
                known.lookups += 1;
            }
        }
        Ok(())
    }

    /// Gives back `count` lookups; whether none is left.
    pub(crate) fn forget(&self, ino: Ino, count: u64) -> bool {
        match self.remembered.entry(ino) {
            Entry::Vacant(_) => false,
            Entry::Occupied(mut occupied) => {
                let left = occupied.get().lookups.saturating_sub(count);
                occupied.get_mut().lookups = left;
                if left == 0 {
                    occupied.remove();
                }
                left == 0
            }
        }
    }

    /// Gives back every lookup.
    pub(crate) fn forget_all(&self) {
        self.remembered.clear();
    }

    /// How many nodes the kernel remembers.
    pub(crate) fn len(&self) -> usize {
        self.remembered.len()
    }

    /// Gives up room that many more nodes took before: the table does not shrink by itself.
    pub(crate) fn shrink(&self) {
        if self.remembered.capacity() / SPARSE > self.remembered.len() + MIN_ROOM {
            self.remembered.shrink_to_fit();
        }
    }

    /// Everything that the kernel remembers.
    pub(crate) fn numbers(&self) -> Vec<Ino> {
        self.remembered.iter().map(|entry| *entry.key()).collect()
    }

    /// The carried nodes at or below `dir` that the kernel remembers.
    pub(crate) fn carried_below(&self, dir: &RepoPath) -> Vec<Arc<CarriedNode>> {
        let carried = |known: &Remembered| match &known.lower {
            Some(LowerRef::Carried(node)) if node.path.starts_with(dir) => Some(node.clone()),
            _ => None,
        };
        let entries = self.remembered.iter();
        entries.filter_map(|entry| carried(entry.value())).collect()
    }

    /// A base node that no layer names stands elsewhere now, or nowhere. What is carried stays
    /// where it is.
    pub(crate) fn set_base(&self, ino: Ino, base: Option<BaseRef>) {
        if let Some(mut known) = self.remembered.get_mut(&ino)
            && !(base.is_none() && matches!(known.lower, Some(LowerRef::Carried(_))))
        {
            known.lower = base.map(LowerRef::Base);
        }
    }

    /// The node is a carried one, if no layer names it.
    pub(crate) fn set_carried(&self, ino: Ino, node: Arc<CarriedNode>) {
        if let Some(mut known) = self.remembered.get_mut(&ino) {
            known.lower = Some(LowerRef::Carried(node));
        }
    }

    pub(crate) fn is_remembered(&self, ino: Ino) -> bool {
        self.remembered.contains_key(&ino)
    }

    pub(crate) fn base(&self, ino: Ino) -> Option<BaseRef> {
        match self.lower(ino)? {
            LowerRef::Base(base) => Some(base),
            LowerRef::Carried(_) => None,
        }
    }

    pub(crate) fn lower(&self, ino: Ino) -> Option<LowerRef> {
        self.remembered.get(&ino)?.lower.clone()
    }
}
