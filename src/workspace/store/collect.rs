//! Freeing what nothing reaches.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::recover::named_layers;
use super::{Store, files};
use crate::attr::Timestamp;
use crate::workspace::StoreError;
use crate::workspace::fork::ForkName;

/// Snapshots that tine took by itself before something was thrown away are kept for so many seconds: as long as git keeps
/// what only a reflog reaches.
const KEPT_SECS: i64 = 30 * 24 * 60 * 60;

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
        let oldest_secs = Timestamp::now().secs.saturating_sub(KEPT_SECS);
        for record in self.records().0 {
            done.snapshots += self.expire_snapshots(&record.name, oldest_secs)?;
        }
        let _admin = self.admin.lock();
        let named = named_layers(&self.places)?;
        for dir in files::list(&self.places.layers())? {
            let id = dir.file_name().and_then(|id| id.to_str()).map(str::parse::<u64>);
            let Some(Ok(id)) = id else {
                continue;
            };
            let bytes = disk_usage(&dir);
            match &named {
                Some(named) if !named.contains(&id) => {
                    files::remove_dir(&dir)?;
                    done.layers += 1;
                    done.freed_bytes = done.freed_bytes.saturating_add(bytes);
                }
                _ => done.kept_bytes = done.kept_bytes.saturating_add(bytes),
            }
        }
        Ok(done)
    }

    fn expire_snapshots(&self, name: &ForkName, oldest_secs: i64) -> Result<u64, StoreError> {
        let snapshots = match self.snapshots(name) {
            Ok(snapshots) => snapshots,
            // Deleted at this moment.
            Err(StoreError::NoSuchFork(_)) => return Ok(0),
            Err(error) => return Err(error),
        };
        let old = snapshots
            .iter()
            .filter(|snapshot| snapshot.reason.is_automatic() && snapshot.created_secs < oldest_secs);
        let mut expired = 0;
        for snapshot in old {
            self.remove_snapshot(name, &snapshot.name)?;
            expired += 1;
        }
        Ok(expired)
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
