//! Merged indexes of frozen layers, for lookups.
//!
//! A stack may have hundreds of layers, most of them small. Adjacent layers share one merged index.
//! The runs of layers are chosen by size, so that a lookup in a stack of any depth reads only a few
//! indexes.

use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use super::{FrozenLayer, LayerId, LayerIndex};

/// Maximum number of nodes and names in a merged index.
///
/// A larger one costs more memory than it saves time.
const ENTRIES_MAX: u64 = 1 << 16;

/// Merged indexes of a stack of frozen layers.
pub struct MergedIndexes {
    /// Layers, newest first.
    layers: Vec<LayerId>,
    /// Indexes, newest first, each of one layer or of adjacent ones.
    indexes: Vec<Arc<LayerIndex>>,
}

/// Merged index of a layer and the ones directly below it.
pub(super) struct Run {
    layers: Vec<LayerId>,
    index: Weak<LayerIndex>,
}

impl MergedIndexes {
    /// Merges the indexes of `frozen`, newest first.
    ///
    /// It costs O(size of the small layers), or nothing if another stack on the same layers was
    /// merged before.
    pub fn of(frozen: &[Arc<FrozenLayer>]) -> MergedIndexes {
        let sizes: Vec<u64> = frozen.iter().map(|layer| size(layer.index())).collect();
        MergedIndexes {
            layers: ids(frozen),
            indexes: plan(&sizes)
                .into_iter()
                .filter_map(|(start, end)| frozen.get(start..end).and_then(index_of))
                .collect(),
        }
    }

    /// Returns the merged layers, newest first.
    pub(super) fn layers(&self) -> &[LayerId] {
        &self.layers
    }

    pub(super) fn indexes(&self) -> &[Arc<LayerIndex>] {
        &self.indexes
    }
}

fn ids(layers: &[Arc<FrozenLayer>]) -> Vec<LayerId> {
    layers.iter().map(|layer| layer.id()).collect()
}

fn size(index: &LayerIndex) -> u64 {
    index.node_count() + index.dentry_count() + 1
}

/// Chooses the runs of adjacent layers that share an index.
///
/// `sizes` is newest first; the runs cover all layers in order. The end of a run depends only on
/// the layers below it, so that stacks share their older runs.
fn plan(sizes: &[u64]) -> Vec<(usize, usize)> {
    runs_by_size(sizes, 0..=ENTRIES_MAX)
}

/// Splits adjacent sizes, newest first, into runs (start, end).
///
/// Each run is at least twice as large as the one before, unless the sum of both is past the end of
/// `sums`. That sum is never below the start of `sums`.
pub fn runs_by_size(sizes: &[u64], sums: RangeInclusive<u64>) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize, u64)> = Vec::new();
    for (at, size) in sizes.iter().enumerate().rev() {
        let mut run = (at, at + 1, *size);
        while let Some((_, end, below)) = runs.last().copied()
            && let sum = below.saturating_add(run.2)
            && (sum < *sums.start() || below < run.2.saturating_mul(2))
            && sum <= *sums.end()
        {
            run = (at, end, sum);
            runs.pop();
        }
        runs.push(run);
    }
    runs.iter()
        .rev()
        .map(|(start, end, _)| (*start, *end))
        .collect()
}

/// Returns the index of a run.
///
/// The newest layer caches it for other stacks.
fn index_of(run: &[Arc<FrozenLayer>]) -> Option<Arc<LayerIndex>> {
    let (newest, older) = run.split_first()?;
    if older.is_empty() {
        return Some(newest.shared_index().clone());
    }
    let layers = ids(run);
    let mut known = newest.runs().lock();
    known.retain(|run| run.index.strong_count() > 0);
    let found = known.iter().find(|known| known.layers == layers);
    if let Some(index) = found.and_then(|known| known.index.upgrade()) {
        return Some(index);
    }
    let index = Arc::new(LayerIndex::merged(
        run.iter().rev().map(|layer| layer.index()),
    ));
    known.push(Run {
        layers,
        index: Arc::downgrade(&index),
    });
    Some(index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::index::{ARRIVALS, Effects};
    use crate::{Content, Dentry, Node, Op, Xattrs};
    use tine_attr::{FileKind, Ino, Timestamp};
    use tine_path::EntryName;

    fn node(kind: FileKind, uid: u32) -> Node {
        let time = Timestamp::from_secs(1);
        Node {
            kind,
            perm: 0o644,
            uid,
            gid: 1,
            nlink: 1,
            rdev: 0,
            size: 0,
            atime: time,
            mtime: time,
            ctime: time,
            content: Content::Empty,
            origin: None,
            xattrs: Xattrs::new(),
        }
    }

    fn op() -> impl Strategy<Value = Op> {
        let ino = || (1..9_u64).prop_map(Ino);
        let name = || "[a-f]".prop_map(|name| EntryName::new(name).unwrap());
        // Those with small numbers are directories.
        let kind = |ino: Ino| match ino.0 {
            ..5 => FileKind::Directory,
            _ => FileKind::Regular,
        };
        prop_oneof![
            (ino(), any::<u32>())
                .prop_map(move |(ino, uid)| Op::PutNode(ino, node(kind(ino), uid))),
            ino().prop_map(Op::DropNode),
            (ino(), name(), ino()).prop_map(|(parent, name, ino)| Op::PutDentry {
                parent,
                name,
                dentry: Dentry::Entry(ino)
            }),
            (ino(), name()).prop_map(|(parent, name)| Op::PutDentry {
                parent,
                name,
                dentry: Dentry::Whiteout
            }),
            (ino(), name()).prop_map(|(parent, name)| Op::DropDentry { parent, name }),
            (1..99_u64).prop_map(|below| Op::ReserveInos {
                below: Ino(Ino::NEW_BIT | below)
            }),
        ]
    }

    /// All that indexes answer, the oldest first; names as they are listed, under their numbers.
    fn view(indexes: &[&LayerIndex]) -> impl PartialEq + std::fmt::Debug + use<> {
        let newest = || indexes.iter().rev();
        let nodes: Vec<_> = (1..9)
            .map(|ino| newest().find_map(|index| index.node(Ino(ino))).cloned())
            .collect();
        let parents: Vec<_> = (1..9)
            .map(|ino| newest().find_map(|index| index.dir_parent(Ino(ino))))
            .collect();
        let mut listed = Vec::new();
        for parent in 1..9 {
            let mut names = Vec::new();
            let mut band = 0;
            for index in indexes {
                for (number, name, _) in index
                    .dir(Ino(parent))
                    .into_iter()
                    .flat_map(|dir| dir.arrived_after(0))
                {
                    let is_below = names.iter().any(|(_, known, _)| known == name);
                    let dentry =
                        newest().find_map(|index| index.dir(Ino(parent))?.get(name.as_bytes()));
                    if !is_below {
                        names.push((band + number, name.clone(), dentry));
                    }
                }
                band += index.span() * ARRIVALS;
            }
            listed.push(names);
        }
        let below = indexes.iter().map(|index| index.inos_below()).max();
        (nodes, parents, listed, below)
    }

    proptest! {
        #[test]
        fn what_is_merged_says_what_the_layers_said(
            layers in prop::collection::vec(prop::collection::vec(op(), 0..30), 1..9),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let indexes: Vec<LayerIndex> = layers
                .into_iter()
                .map(|ops| {
                    let mut index = LayerIndex::default();
                    ops.into_iter().for_each(|op| index.apply(op, &mut Effects::default()));
                    index
                })
                .collect();
            let mut merged: Vec<LayerIndex> = Vec::new();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(indexes.len())).collect();
            cuts.extend([0, indexes.len()]);
            cuts.sort_unstable();
            for pair in cuts.windows(2).filter(|pair| pair[0] < pair[1]) {
                merged.push(LayerIndex::merged(indexes[pair[0]..pair[1]].iter()));
            }
            let (indexes, merged): (Vec<_>, Vec<_>) = (indexes.iter().collect(), merged.iter().collect());
            prop_assert_eq!(view(&indexes), view(&merged));
            // Merged once more.
            let all = LayerIndex::merged(merged.iter().copied());
            prop_assert_eq!(view(&indexes), view(&[&all]));
            let names = all.dirs().map(|(_, dir)| dir.len() as u64).sum::<u64>();
            prop_assert_eq!(names, all.dentry_count());
        }
    }

    #[test]
    fn any_number_of_small_layers_is_a_few_runs() {
        for count in 0..2000 {
            let runs = plan(&vec![3; count]);
            assert!(runs.len() <= 12, "{count}: {}", runs.len());
            let mut next = 0;
            for (start, end) in runs {
                assert_eq!(start, next);
                next = end;
            }
            assert_eq!(next, count);
        }
    }

    #[test]
    fn large_layers_stay_by_themselves() {
        assert_eq!(plan(&[5, ENTRIES_MAX, 5]), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(plan(&[1, 1, 100]), [(0, 2), (2, 3)]);
    }
}
