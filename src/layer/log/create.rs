//! Logs written as a whole: new, compacted, merged or repaired ones.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::{LOG_NAME, Log, NEW_LOG_NAME, SpaceUse, boot_id, lock, sync_dir};
use crate::position::{PrefixHash, draw_instance};
use crate::record::{self, BootId};
use crate::{LayerError, LayerId, Op, fault};

/// Number of changes in one record of a checkpoint.
const CHECKPOINT_RECORD_OPS: usize = 512;

impl Log {
    /// Creates and locks a log in `dir`, under a temporary name.
    ///
    /// [`Log::rename_into_place`] renames it.
    pub(crate) fn prepare(dir: &Path, id: LayerId) -> Result<Log, LayerError> {
        Log::start(dir, id, boot_id(), record::FORMAT_VERSION)
    }

    /// Creates a log under a temporary name, locked, with its header.
    pub(super) fn start(
        dir: &Path,
        id: LayerId,
        boot: BootId,
        version: u32,
    ) -> Result<Log, LayerError> {
        let path = dir.join(NEW_LOG_NAME);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600);
        let file = tine_sys::file::open_with(&path, &mut options)
            .map_err(LayerError::io("create", &path))?;
        lock(&file, &path)?;
        let mut log = Log {
            file: Arc::new(file),
            dir: dir.to_owned(),
            path,
            version,
            id,
            len: 0,
            // No reader sees this file before all of it is on disk.
            synced_len: u64::MAX,
            complete_len: 0,
            changed_len: 0,
            logged_synced_len: 0,
            unlogged_boot: Some(boot),
            reserved_len: 0,
            instance: draw_instance(),
            prefix: PrefixHash::default(),
            recent: [record::HEADER_LEN as u64; 2],
            is_sealed: false,
            is_poisoned: false,
            is_interrupted: false,
            buffer: Vec::new(),
        };
        log.buffer.extend_from_slice(&record::header(version, id));
        log.write_buffer()?;
        Ok(log)
    }

    /// Syncs a log that [`Log::start`] created and renames it into place.
    ///
    /// The contents that it names must be on disk before.
    pub(crate) fn rename_into_place(&mut self) -> Result<(), LayerError> {
        let place = self.dir.join(LOG_NAME);
        // With an intact record at the end, no other record can be mistaken for a torn tail.
        let upto = self.len;
        self.append_complete(upto)?;
        fault::step()
            .and_then(|()| self.file.sync_data())
            .map_err(LayerError::io("sync", &self.path))?;
        fault::step()
            .and_then(|()| std::fs::rename(&self.path, &place))
            .map_err(LayerError::io("rename to", &place))?;
        self.path = place;
        self.synced_len = self.len;
        self.complete_len = upto;
        self.logged_synced_len = self.len;
        sync_dir(&self.dir)
    }

    /// Replaces the log by one with only `ops`.
    ///
    /// The new log is on disk when this returns. On an error, the old one stays.
    pub(crate) fn rewrite(&mut self, ops: impl Iterator<Item = Op>) -> Result<(), LayerError> {
        self.check()?;
        let result = self.try_rewrite(ops);
        if result.is_err() {
            // Best effort: the next rewrite replaces it, and the next opening removes it.
            let _ = fault::step().and_then(|()| std::fs::remove_file(self.dir.join(NEW_LOG_NAME)));
        }
        result
    }

    /// Writes the sealed log of a merged layer.
    ///
    /// It is on disk when this returns. The contents that it names must be on disk before.
    pub(crate) fn write_merged(
        dir: &Path,
        id: LayerId,
        ops: impl Iterator<Item = Op>,
    ) -> Result<(), LayerError> {
        let mut log = Log::start(dir, id, boot_id(), record::MERGED_VERSION)?;
        log.append_all(ops)?;
        log.rename_into_place()?;
        log.seal()?;
        log.point().sync()
    }

    /// Replaces the log in `dir` by one with only `ops`.
    ///
    /// It is on disk when this returns. The contents that it names must exist before.
    pub(crate) fn replace(
        dir: &Path,
        id: LayerId,
        ops: impl Iterator<Item = Op>,
    ) -> Result<(), LayerError> {
        let mut log = Log::start(dir, id, boot_id(), record::FORMAT_VERSION)?;
        log.append_all(ops)?;
        log.sync_fs()?;
        log.rename_into_place()
    }

    /// Appends the changes that a log begins with.
    fn append_all(&mut self, ops: impl Iterator<Item = Op>) -> Result<(), LayerError> {
        let mut record = Vec::with_capacity(CHECKPOINT_RECORD_OPS);
        for op in ops {
            record.push(op);
            if record.len() == CHECKPOINT_RECORD_OPS {
                self.append(&record, SpaceUse::Frees)?;
                record.clear();
            }
        }
        if record.is_empty() {
            return Ok(());
        }
        self.append(&record, SpaceUse::Frees)
    }

    fn try_rewrite(&mut self, ops: impl Iterator<Item = Op>) -> Result<(), LayerError> {
        let mut new = Log::start(&self.dir, self.id, boot_id(), record::FORMAT_VERSION)?;
        new.append_all(ops)?;
        match new.rename_into_place() {
            Ok(()) => {}
            // The rename succeeded and only the sync of the directory failed: the new file is the
            // log.
            Err(error) if new.path == self.path => {
                new.synced_len = 0;
                new.complete_len = 0;
                log::error!("{error}");
            }
            Err(error) => return Err(error),
        }
        new.recent = [new.len; 2];
        *self = new;
        Ok(())
    }
}
