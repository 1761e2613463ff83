//! Merging frozen layers on the disk.
//!
//! Layers that are adjacent in every record that names one of them are merged into one. This is
//! done if the older layers are small, or not much larger than the newer ones together, so that
//! large layers are merged only a few times.
//!
//! | after this step | a process that dies leaves |
//! |---|---|
//! | the merged layer exists, unnamed | the old state; the next opening of the store removes it |
//! | some records name it, others the old layers | the same views |
//! | no record names the old layers | the old layers; the next opening of the store removes them |

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use super::recover::Inventory;
use super::usage::usage;
use super::{Store, files};
use crate::StoreError;
use crate::fork::ForkName;
use tine_layer::{FrozenLayer, LayerId, runs_by_size};

/// Sizes of logs, in bytes, between which merging depends on proportion.
///
/// Layers with smaller logs in sum are always merged, and larger ones never: there, merging costs
/// more than keeping many layers.
const LOG_BYTES: RangeInclusive<u64> = 1 << 20..=64 << 20;

/// Number of frozen layers above which a fork's layers are merged early.
///
/// Then merging does not wait for a collection.
const DEEP: usize = 64;
/// Number of new layers after which a deep fork is merged again.
///
/// Some of its layers may not be mergeable.
const DEEPER: usize = 16;

/// Result of merging.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Merging {
    /// Number of layers saved.
    pub layers: u64,
    /// Disk space freed, in bytes.
    pub freed_bytes: u64,
}

/// Returns runs of layers that are adjacent in all their stacks.
///
/// Stacks and runs are newest first.
fn runs(stacks: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let mut above: HashMap<u64, HashSet<Option<u64>>> = HashMap::new();
    let mut below: HashMap<u64, HashSet<Option<u64>>> = HashMap::new();
    for stack in stacks {
        let mut newer = None;
        for (at, layer) in stack.iter().enumerate() {
            above.entry(*layer).or_default().insert(newer);
            below
                .entry(*layer)
                .or_default()
                .insert(stack.get(at + 1).copied());
            newer = Some(*layer);
        }
    }
    let only = |neighbours: &HashMap<u64, HashSet<Option<u64>>>, layer: u64| {
        let known = neighbours.get(&layer).filter(|known| known.len() == 1)?;
        known.iter().next().copied().flatten()
    };
    let joined_below =
        |layer: u64| only(&below, layer).filter(|older| only(&above, *older) == Some(layer));
    let joined_above =
        |layer: u64| only(&above, layer).filter(|newer| only(&below, *newer) == Some(layer));
    let mut runs = Vec::new();
    for layer in above.keys().filter(|layer| joined_above(**layer).is_none()) {
        let mut run = vec![*layer];
        let mut oldest = *layer;
        while let Some(older) = joined_below(oldest) {
            run.push(older);
            oldest = older;
        }
        if run.len() > 1 {
            runs.push(run);
        }
    }
    runs.sort_unstable();
    runs
}

/// Replaces `layers` by `merged` in a stack; returns whether it had them.
pub(super) fn exchange(stack: &mut Vec<u64>, layers: &[u64], merged: u64) -> bool {
    match stack
        .windows(layers.len())
        .position(|window| window == layers)
    {
        Some(start) => {
            stack.splice(start..start + layers.len(), [merged]);
            true
        }
        None => false,
    }
}

impl Store {
    /// Merges the layers of a fork with many layers, if possible.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`] or [`StoreError::Damaged`] for the record, or an error of
    /// counting or listing layers.
    pub fn merge_if_deep(&self, name: &ForkName) -> Result<(), StoreError> {
        let depth = self.places.read_record(name)?.frozen_layers.len();
        if depth > DEEP && depth % DEEPER == 0 {
            let _admin = self.admin.lock();
            self.merge_layers()?;
        }
        Ok(())
    }

    /// Merges all layers that can be merged. The caller holds `admin`.
    ///
    /// If a record cannot be read, nothing is merged.
    pub(super) fn merge_layers(&self) -> Result<Merging, StoreError> {
        let mut done = Merging::default();
        let inventory = Inventory::of(&self.places)?;
        if !inventory.unreadable.is_empty() {
            return Ok(done);
        }
        for run in runs(&inventory.stacks) {
            let sizes: Vec<u64> = run.iter().map(|id| self.log_bytes(*id)).collect();
            for (start, end) in runs_by_size(&sizes, LOG_BYTES) {
                let layers = run.get(start..end).unwrap_or_default();
                if layers.len() < 2 {
                    continue;
                }
                match self.merge(layers, &inventory) {
                    Ok(merged) => {
                        done.layers += merged.layers;
                        done.freed_bytes = done.freed_bytes.saturating_add(merged.freed_bytes);
                    }
                    // The layers stay as they are.
                    Err(error) => log::warn!("the layers {layers:?} are not merged: {error}"),
                }
            }
        }
        Ok(done)
    }

    /// Returns the size of a layer's log, or the maximum if unknown.
    fn log_bytes(&self, id: u64) -> u64 {
        let log = self.places.layer(id).join("log");
        std::fs::metadata(log).map_or(u64::MAX, |meta| meta.len().saturating_add(1))
    }

    fn merge(&self, ids: &[u64], inventory: &Inventory) -> Result<Merging, StoreError> {
        let merged_of = {
            let mut open = self.open.lock();
            // The oldest first, in the order of sealing.
            let layers = ids.iter().rev().map(|id| self.frozen_layer(&mut open, *id));
            let mut layers = layers.collect::<Result<Vec<Arc<FrozenLayer>>, _>>()?;
            layers.reverse();
            layers
        };
        for layer in merged_of.iter().rev() {
            layer.seal()?;
        }
        let old_dirs: Vec<PathBuf> = ids.iter().map(|id| self.places.layer(*id)).collect();
        let before = usage(&old_dirs);
        let id = self.next_layer_id()?;
        self.count_layer(id)?;
        let dir = self.places.layer(id);
        let merged = FrozenLayer::merge(&dir, LayerId(id), &merged_of)?;
        self.open.lock().frozen.insert(id, Arc::downgrade(&merged));

        for record in &inventory.records {
            let mut record = self.places.read_record(&record.name)?;
            if exchange(&mut record.frozen_layers, ids, id) {
                files::write_json(&self.places.record(&record.name), &record)?;
            }
            let mut list = self.places.read_snapshots(&record.name)?;
            let mut exchanged = 0;
            for snapshot in &mut list.snapshots {
                exchanged += usize::from(exchange(&mut snapshot.frozen_layers, ids, id));
            }
            if exchanged > 0 {
                files::write_json(&self.places.snapshots(&record.name), &list)?;
            }
        }

        let workspaces: Vec<_> = {
            let open = self.open.lock();
            let forks = open.forks.values();
            forks
                .filter_map(|(_, workspace)| workspace.upgrade())
                .collect()
        };
        let layer_ids: Vec<LayerId> = ids.iter().map(|id| LayerId(*id)).collect();
        for workspace in workspaces {
            workspace.exchange_layers(&merged, &layer_ids);
        }
        self.open.lock().merged.push((ids.to_vec(), id));
        drop(merged_of);
        for (id, old) in ids.iter().zip(&old_dirs) {
            // If files of it are open, a later collection removes it.
            let open = self.open.lock();
            if !open.is_in_use(*id) {
                files::remove_dir(old)?;
            }
        }
        merged.free_replaced();
        let after = usage(old_dirs.iter().chain([&dir]));
        Ok(Merging {
            layers: (ids.len() as u64).saturating_sub(1),
            freed_bytes: before.saturating_sub(after),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_a_record_ends_or_stacks_part() {
        let stacks = |stacks: &[&[u64]]| {
            stacks
                .iter()
                .map(|stack| stack.to_vec())
                .collect::<Vec<_>>()
        };
        assert_eq!(runs(&stacks(&[&[3, 2, 1]])), [[3, 2, 1]]);
        assert_eq!(runs(&stacks(&[&[4, 3, 2, 1], &[2, 1]])), [[2, 1], [4, 3]]);
        assert_eq!(runs(&stacks(&[&[5, 3, 2, 1], &[4, 3, 2, 1]])), [[3, 2, 1]]);
        let none: [[u64; 2]; 0] = [];
        assert_eq!(runs(&stacks(&[&[3, 2, 1], &[2, 1], &[1]])), none);
        assert_eq!(runs(&stacks(&[&[], &[1]])), none);
    }
}
