//! Inode table: the numbers that the kernel remembers, and the lower nodes among them.
//!
//! The kernel names a node by number alone. For each number it got, the table keeps the *lookup
//! count*, which FORGET lowers. For a node that no layer has, it also keeps the place in the
//! base or in the carry. A node of a layer is found in the layer.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use super::carry::CarriedNode;
use tine_attr::{Ino, InoHash};
use tine_git::{BaseDir, BaseEntry};
use tine_layer::Origin;
use tine_path::RepoPath;

/// Entry of a decoded base directory.
#[derive(Clone)]
pub(super) struct BaseRef {
    dir: Arc<BaseDir>,
    index: u32,
}

impl BaseRef {
    /// Returns `None` if the directory has no such entry.
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

/// Place of a node that no layer has.
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
            // If the base of a fork changes, a carried path may become the base's, or the reverse.
            (LowerRef::Base(_), LowerRef::Carried(_))
            | (LowerRef::Carried(_), LowerRef::Base(_)) => true,
        }
    }
}

/// Factor of capacity over length above which the table shrinks.
const SPARSE: usize = 4;

/// Number of nodes below which the table does not shrink.
const MIN_ROOM: usize = 1024;

/// Table entry of one number.
struct Remembered {
    lookups: u64,
    lower: Option<LowerRef>,
}

/// Collision: two paths have one inode number.
#[derive(Debug)]
pub(super) struct InoCollision;

/// Table of the numbers that the kernel remembers.
///
/// It synchronizes itself. Its locks are taken last, and nothing is acquired while they are held.
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

    /// Subtracts `count` from the lookup count. Returns true if none is left.
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

    /// Clears all lookup counts.
    pub(crate) fn forget_all(&self) {
        self.remembered.clear();
    }

    /// Returns the number of nodes that the kernel remembers.
    pub(crate) fn len(&self) -> usize {
        self.remembered.len()
    }

    /// Frees room that many more nodes needed before. The table does not shrink by itself.
    pub(crate) fn shrink(&self) {
        if self.remembered.capacity() / SPARSE > self.remembered.len() + MIN_ROOM {
            self.remembered.shrink_to_fit();
        }
    }

    /// Returns all numbers that the kernel remembers.
    pub(crate) fn numbers(&self) -> Vec<Ino> {
        self.remembered.iter().map(|entry| *entry.key()).collect()
    }

    /// Returns the carried nodes at or below `dir` that the kernel remembers.
    pub(crate) fn carried_below(&self, dir: &RepoPath) -> Vec<Arc<CarriedNode>> {
        let carried = |known: &Remembered| match &known.lower {
            Some(LowerRef::Carried(node)) if node.path.starts_with(dir) => Some(node.clone()),
            _ => None,
        };
        let entries = self.remembered.iter();
        entries.filter_map(|entry| carried(entry.value())).collect()
    }

    /// Sets the base place of a node that no layer has. `None` if it has none now.
    ///
    /// A carried node stays where it is when `base` is `None`.
    pub(crate) fn set_base(&self, ino: Ino, base: Option<BaseRef>) {
        if let Some(mut known) = self.remembered.get_mut(&ino)
            && !(base.is_none() && matches!(known.lower, Some(LowerRef::Carried(_))))
        {
            known.lower = base.map(LowerRef::Base);
        }
    }

    /// Makes the node a carried one while no layer has it.
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
