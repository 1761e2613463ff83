//! Freeing what nothing reaches.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::merge::sole_usage;
use super::recover::named_layers;
use super::{Store, files};
use crate::attr::Timestamp;
use crate::workspace::StoreError;
use crate::workspace::fork::ForkName;
use crate::workspace::snapshot::outdated;

/// What a collection did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collection {
    /// Layers that were removed.
    pub layers: u64,
    /// Snapshots that were too old.
    pub snapshots: u64,
    /// Bytes on the disk.
    pub freed_bytes: u64,
    /// Bytes on the disk of the layers that are left.
    pub kept_bytes: u64,
}

impl Store {
    /// Lets go of automatic snapshots that are too old, frees the layers that nothing reaches, and merges what is left where
    /// several are one to all that stand on them. Where a record cannot be read nothing is freed: it may name anything.
    pub fn collect(&self) -> Result<Collection, StoreError> {
        let mut done = Collection::default();
        for record in self.records().0 {
            done.snapshots += self.thin_snapshots(&record.name)?;
        }
        let _admin = self.admin.lock();
        let named = named_layers(&self.places)?;
        let open = self.open.lock();
        for dir in files::list(&self.places.layers())? {
            let id = dir.file_name().and_then(|id| id.to_str()).map(str::parse::<u64>);
            let Some(Ok(id)) = id else {
                continue;
            };
            if named.as_ref().is_some_and(|named| !named.contains(&id)) && !open.is_in_use(id) {
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
        let mut kept = DiskUsage::default();
        for dir in files::list(&self.places.layers())? {
            done.kept_bytes = done.kept_bytes.saturating_add(kept.of(&dir));
        }
        Ok(done)
    }

    /// Lets go of the fork's snapshots that tine took by itself and that are too old or too many; how many went.
    pub fn thin_snapshots(&self, name: &ForkName) -> Result<u64, StoreError> {
        let snapshots = match self.snapshots(name) {
            Ok(snapshots) => snapshots,
            // Deleted at this moment, or damaged, and then nothing is freed.
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

/// Bytes on the disk of the files beneath `dir`; what cannot be read counts nothing.
pub fn disk_usage(dir: &Path) -> u64 {
    DiskUsage::default().of(dir)
}

/// Counts bytes on the disk, those of a file with several names once.
#[derive(Default)]
pub(super) struct DiskUsage {
    /// Device and number of the files with several names, and how many of those were met.
    met: HashMap<(u64, u64), u64>,
}

impl DiskUsage {
    /// Of the files beneath `dir` that were not met before.
    pub fn of(&mut self, dir: &Path) -> u64 {
        self.count(dir, &|_, met| met == 1)
    }

    /// Of the files beneath `dir` that have no name elsewhere.
    pub fn sole(&mut self, dir: &Path) -> u64 {
        self.count(dir, &|names, met| names == met)
    }

    fn count(&mut self, dir: &Path, counts: &dyn Fn(u64, u64) -> bool) -> u64 {
        let Ok(entries) = std::fs::read_dir(dir) else {
            return 0;
        };
        let mut bytes = 0_u64;
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                bytes = bytes.saturating_add(self.count(&entry.path(), counts));
                continue;
            }
            let met = match metadata.nlink() {
                1 => 1,
                _ => {
                    let met = self.met.entry((metadata.dev(), metadata.ino())).or_default();
                    *met += 1;
                    *met
                }
            };
            if counts(metadata.nlink(), met) {
                bytes = bytes.saturating_add(metadata.blocks().saturating_mul(512));
            }
        }
        bytes
    }
}
