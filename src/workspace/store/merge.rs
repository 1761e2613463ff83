//! Merging frozen layers on the disk.
//!
//! Layers that stand right above one another in every record that names them are one layer to all
//! of these. Such a run is merged where the older layers are small, or not much greater than the
//! newer ones together, so that great ones are merged a few times only.
//!
//! | step | a process that dies after it leaves |
//! |---|---|
//! | the merged layer is there, which no record names | what was before; the layer is removed when the store is opened |
//! | some records name it, others the layers that it was merged of | the same views |
//! | no record names those | they are removed when the store is opened |

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

/// Layers are always merged whose logs have fewer bytes together than the first, and never if more
/// than the last: past that it costs more than many layers do.
const LOG_BYTES: RangeInclusive<u64> = 1 << 20..=64 << 20;

/// A fork with more frozen layers than this has them merged without waiting for a collection.
const DEEP: usize = 64;
/// … whenever its layers have become this many more, because some may have to stay as they are.
const DEEPER: usize = 16;

/// What merging did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Merging {
    /// How many layers fewer there are.
    pub layers: u64,
    /// Bytes on the disk.
    pub freed_bytes: u64,
}

/// Runs of layers that stand right above one another in each of `stacks` that has one of them; all
/// are newest first.
fn runs(stacks: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let mut above: HashMap<u64, HashSet<Option<u64>>> = HashMap::new();
    let mut beneath: HashMap<u64, HashSet<Option<u64>>> = HashMap::new();
    for stack in stacks {
        let mut newer = None;
        for (at, layer) in stack.iter().enumerate() {
            above.entry(*layer).or_default().insert(newer);
            beneath
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
    let joined_beneath =
        |layer: u64| only(&beneath, layer).filter(|older| only(&above, *older) == Some(layer));
    let joined_above =
        |layer: u64| only(&above, layer).filter(|newer| only(&beneath, *newer) == Some(layer));
    let mut runs = Vec::new();
    for layer in above.keys().filter(|layer| joined_above(**layer).is_none()) {
        let mut run = vec![*layer];
        let mut oldest = *layer;
        while let Some(older) = joined_beneath(oldest) {
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

/// Names `merged` in the place of `layers`; whether the stack has them.
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
    /// Merges the layers of a fork that has many, where they can be.
    pub fn merge_if_deep(&self, name: &ForkName) -> Result<(), StoreError> {
        let depth = self.places.read_record(name)?.frozen_layers.len();
        if depth > DEEP && depth % DEEPER == 0 {
            let _admin = self.admin.lock();
            self.merge_layers()?;
        }
        Ok(())
    }

    /// Merges what can be merged of all layers. Where a record cannot be read nothing is. The
    /// caller holds `admin`.
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
                    // They are as good as before.
                    Err(error) => log::warn!("the layers {layers:?} are not merged: {error}"),
                }
            }
        }
        Ok(done)
    }

    /// The greatest number where it cannot be told.
    fn log_bytes(&self, id: u64) -> u64 {
        let log = self.places.layer(id).join("log");
        std::fs::metadata(log).map_or(u64::MAX, |meta| meta.len().saturating_add(1))
    }

    fn merge(&self, ids: &[u64], inventory: &Inventory) -> Result<Merging, StoreError> {
        let merged_of = {
            let mut open = self.open.lock();
            // The oldest first, as they are sealed.
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
            // A collection removes it once nobody has files of it open.
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
