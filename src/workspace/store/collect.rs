//! Freeing what nothing reaches.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
    /// Lets go of automatic snapshots that are too old, and frees the layers that nothing reaches. Where a record cannot be
    /// read nothing is freed: it may name anything.
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
            let bytes = disk_usage(&dir);
            match &named {
                Some(named) if !named.contains(&id) && !open.is_in_use(id) => {
                    files::remove_dir(&dir)?;
                    done.layers += 1;
                    done.freed_bytes = done.freed_bytes.saturating_add(bytes);
                }
                _ => done.kept_bytes = done.kept_bytes.saturating_add(bytes),
            }
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
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some(match metadata.is_dir() {
                true => disk_usage(&entry.path()),
                false => metadata.blocks().saturating_mul(512),
            })
        })
        .fold(0, u64::saturating_add)
}
