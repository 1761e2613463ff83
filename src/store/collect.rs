//! Freeing of unreachable layers and outdated snapshots.

use super::generations::clean_generations;
use super::recover::named_layers;
use super::usage::{sole_usage, usage};
use super::{Store, files};
use crate::StoreError;
use crate::fork::ForkName;
use crate::snapshot::outdated;
use tine_attr::Timestamp;

/// Result of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collection {
    /// Number of layers removed.
    pub layers: u64,
    /// Number of outdated snapshots removed.
    pub snapshots: u64,
    /// Disk space freed, in bytes.
    pub freed_bytes: u64,
    /// Disk space of the remaining layers and generations, in bytes.
    pub kept_bytes: u64,
}

impl Store {
    /// Removes outdated snapshots and unreachable layers, and merges layers.
    ///
    /// Outdated are automatic snapshots that are too old or too many. Layers that all their forks
    /// share in the same order are merged. If a record cannot be read, no layer is freed: it may
    /// name any.
    ///
    /// # Errors
    /// [`StoreError`] if a layer or generation cannot be listed, merged or removed.
    pub fn collect(&self) -> Result<Collection, StoreError> {
        let mut done = Collection::default();
        for record in self.records().0 {
            match self.thin_snapshots(&record.name) {
                Ok(count) => done.snapshots += count,
                Err(error) => log::warn!("snapshots of {} stay: {error}", record.name),
            }
        }
        let _admin = self.admin.lock();
        let named = named_layers(&self.places)?;
        let open = self.open.lock();
        for (id, dir) in self.places.layer_dirs()? {
            let is_free = named.as_ref().is_some_and(|named| !named.contains(&id));
            // A file in the place of a layer is not tine's. A repair sets it aside.
            if is_free && !open.is_in_use(id) && dir.is_dir() {
                let bytes = sole_usage(&dir);
                files::remove_dir(&dir)?;
                done.layers += 1;
                done.freed_bytes = done.freed_bytes.saturating_add(bytes);
            }
        }
        drop(open);
        let merged = self.merge_layers()?;
        done.layers += merged.layers;
        done.freed_bytes = done.freed_bytes.saturating_add(merged.freed_bytes);
        if let Some(_making) = self.making.try_lock() {
            done.freed_bytes = done
                .freed_bytes
                .saturating_add(clean_generations(&self.places)?);
        }
        let mut kept = files::list(&self.places.layers())?;
        kept.extend(files::list(&self.places.generations())?);
        done.kept_bytes = usage(&kept);
        Ok(done)
    }

    /// Removes outdated automatic snapshots of a fork; returns their number.
    ///
    /// # Errors
    /// [`StoreError`] if the list cannot be read or written. A missing fork or damaged list is no
    /// error.
    pub fn thin_snapshots(&self, name: &ForkName) -> Result<u64, StoreError> {
        let snapshots = match self.snapshots(name) {
            Ok(snapshots) => snapshots,
            // Deleted at this moment, or damaged; then nothing is freed.
            Err(StoreError::NoSuchFork(_) | StoreError::Damaged { .. }) => return Ok(0),
            Err(error) => return Err(error),
        };
        let outdated = outdated(&snapshots, Timestamp::now().secs);
        for snapshot in &outdated {
            self.remove_snapshot(name, snapshot)?;
        }
        Ok(outdated.len() as u64)
    }
}
