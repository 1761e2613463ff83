//! Growth, compaction, and records on a full disk.

use std::io;
use std::time::Duration;

use super::Layer;
use crate::log::SpaceUse;
use crate::{Dentry, LayerError, Op};

/// Minimum size of a log that is compacted, in bytes.
pub(super) const COMPACT_MIN_BYTES: u64 = 4 << 20;

/// Minimum ratio of the log to a checkpoint for a compaction.
///
/// A sync compacts at its end, when little is left to sync.
const COMPACT_FACTOR: u64 = 4;

/// Minimum ratio for a compaction on a full disk.
const COMPACT_FULL_FACTOR: u64 = 2;

/// Margin for the compacted size on a full disk, in bytes.
///
/// The size is an estimate.
const COMPACT_FULL_MARGIN: u64 = 64 << 10;

/// Bytes that a log takes from the store's reserve at a time.
const RESERVE_STEP: u64 = 256 << 10;

/// Minimum of freed bytes given back at once on a full disk.
const FREED_AT_ONCE: u64 = 1 << 20;

/// Attempts to extend the log for one record.
const EXTEND_ATTEMPTS: u32 = 4;

/// Waits for freed space, one after each failed attempt.
const EXTEND_WAITS: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(16),
];

impl Layer {
    /// Fails if the store's reserve must be refilled first.
    ///
    /// Before it fails, it frees space with a sync.
    pub(super) fn check_growth(&mut self) -> Result<(), LayerError> {
        let Some(reserve) = self.reserve.clone() else {
            return Ok(());
        };
        let mut checked = reserve.check_growth();
        if checked.is_err() && self.contents.has_freed() && self.sync_to_free_space().is_ok() {
            checked = reserve.check_growth();
        }
        checked.map_err(LayerError::io("refill", reserve.path()))
    }

    /// Classifies `ops` by their need for space.
    ///
    /// Changes that remove something may use the reserve of a full disk.
    pub(super) fn space_use_of(&self, ops: &[Op]) -> SpaceUse {
        let frees_space = |op: &Op| match op {
            Op::DropNode(_) | Op::DropDentry { .. } => true,
            Op::PutDentry { dentry, .. } => *dentry == Dentry::Whiteout,
            Op::Written { ino, size, .. } => {
                self.index.node(*ino).is_some_and(|node| *size < node.size)
            }
            Op::PutNode(ino, new) => self
                .index
                .node(*ino)
                .is_some_and(|node| node.content.own().is_some() && new.content.own().is_none()),
            Op::ReserveInos { .. } => false,
        };
        if ops.iter().any(frees_space) {
            SpaceUse::Frees
        } else {
            SpaceUse::Grows
        }
    }

    /// Gives freed space back at once if the disk is full.
    ///
    /// Programs that wait for the space write elsewhere, so they do not sync this layer.
    pub(super) fn free_if_full(&mut self) {
        let Some(reserve) = self
            .reserve
            .as_ref()
            .filter(|_| self.contents.freed_bytes() >= FREED_AT_ONCE)
        else {
            return;
        };
        if reserve.is_disk_full()
            && let Err(error) = self.sync_to_free_space()
        {
            log::warn!("{}: nothing is given back: {error}", self.dir.display());
        }
    }

    /// Extends the log from the store's reserve on a full disk.
    ///
    /// Returns false if the reserve is used up. A log that is much longer than needed is compacted,
    /// which gives back more than it takes.
    pub(super) fn extend_log(&mut self) -> bool {
        let Some(reserve) = self.reserve.clone() else {
            return false;
        };
        let compacted = self
            .index
            .checkpoint_bytes()
            .saturating_add(COMPACT_FULL_MARGIN);
        if self.log.len() / COMPACT_FULL_FACTOR >= compacted
            && let Some(_loan) = reserve.take(compacted)
        {
            match self.compact() {
                Ok(()) => return true,
                Err(error) => log::warn!("{}: not compacted: {error}", self.log.path().display()),
            }
        }
        // Another program may take the freed space first.
        for _ in 0..EXTEND_ATTEMPTS {
            let Some(_loan) = reserve.take(RESERVE_STEP) else {
                return false;
            };
            // ext4 wakes the caller of a sync before it releases the blocks of that commit.
            for wait in EXTEND_WAITS {
                if self.log.extend(RESERVE_STEP).is_ok() {
                    return true;
                }
                std::thread::sleep(wait);
            }
        }
        false
    }

    pub(super) fn compact_if_due(&mut self) {
        if self.log.len() < self.compact_at
            || self.log.len() / COMPACT_FACTOR < self.index.checkpoint_bytes()
        {
            return;
        }
        if let Err(error) = self.compact() {
            log::warn!("{}: not compacted: {error}", self.log.path().display());
            self.compact_at = self.log.len().saturating_add(COMPACT_MIN_BYTES);
        } else {
            self.compact_at = COMPACT_MIN_BYTES;
        }
    }

    /// Replaces the log by a shorter one with the same state.
    pub(crate) fn compact(&mut self) -> Result<(), LayerError> {
        // The new log is on disk at once, so the contents that it names must be there before.
        self.sync_to_free_space()?;
        let recent = self.changes_since(self.log.recent());
        self.log.rewrite(self.index.checkpoint())?;
        let recent = recent
            .and_then(|changes| changes.read())
            .unwrap_or_default();
        *self.recent_before.lock() = recent;
        Ok(())
    }

    /// Runs `write`, and once more if a sync frees disk space.
    pub(super) fn with_freed_space<T>(
        &mut self,
        mut write: impl FnMut(&mut Layer) -> Result<T, LayerError>,
    ) -> Result<T, LayerError> {
        match write(self) {
            Err(error)
                if is_disk_full(&error)
                    && self.contents.has_freed()
                    && self.sync_to_free_space().is_ok() =>
            {
                write(self)
            }
            result => result,
        }
    }

    /// Syncs in the middle of a change.
    ///
    /// It does not truncate files that became shorter: one of them may have been written past the
    /// length that its node still has.
    fn sync_to_free_space(&mut self) -> Result<(), LayerError> {
        let mut job = self.begin_sync()?;
        let shrunk = std::mem::take(&mut job.shrunk);
        let result = self.run_sync(&mut job);
        self.finish_job(job);
        self.shrunk.extend(shrunk);
        result
    }
}

pub(super) fn is_disk_full(error: &LayerError) -> bool {
    matches!(error, LayerError::Io { source, .. }
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}
