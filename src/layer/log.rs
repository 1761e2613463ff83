//! Append-only log of a layer: appending, syncing, compaction and locking.
//!
//! [`record`] has the format.

mod create;
mod open;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault;
use super::position::{LogPosition, LogTail, PrefixHash};
use super::record::{self, BodyRef, BootId, UNKNOWN_BOOT};
use super::{LayerError, LayerId, Op};

/// Disk space that the log reserves past its end, in bytes.
///
/// Records that free space use it, so that they work on a full disk. The log reserves up to this
/// size when less than [`RESERVE_LOW`] is left.
const RESERVE_TOP: u64 = 32 << 10;
/// Reserved bytes below which the log reserves more.
const RESERVE_LOW: u64 = 8 << 10;

/// Part of the reserve, in bytes, for the records of a sync.
///
/// They log before and after a sync what is on disk. Without them nothing can be freed.
const COMPLETE_ROOM: u64 = 128;

/// Size of the recent part of the log, in bytes.
///
/// Programs may not see its changes yet: the kernel uses an answer a moment after it was given.
const RECENT: u64 = 256 << 10;

/// Allocation unit of file systems, in bytes.
const BLOCK: u64 = 4096;

/// Name of the log in a layer's directory.
const LOG_NAME: &str = "log";
/// Name of a log that is being written to replace `log`.
const NEW_LOG_NAME: &str = "log.new";

/// Effect of a record on disk space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpaceUse {
    /// The record makes the layer larger and must not use the reserve.
    Grows,
    /// The record frees space, or a record that frees space needs it.
    Frees,
}

/// Open log of a layer.
///
/// It holds the layer's lock.
pub(super) struct Log {
    file: Arc<File>,
    dir: PathBuf,
    path: PathBuf,
    /// Version of the format.
    version: u32,
    id: LayerId,
    len: u64,
    /// Length of the part known to be on disk, in bytes.
    synced_len: u64,
    /// Length of the part whose contents are on disk, in bytes.
    ///
    /// A record on disk says so.
    complete_len: u64,
    /// Offset of the end of the last record with changes.
    changed_len: u64,
    /// Length of the part that the log says is on disk.
    ///
    /// Damage in that part is not treated as a torn tail.
    logged_synced_len: u64,
    /// Kernel run of this process, until the log has it.
    unlogged_boot: Option<BootId>,
    /// Length up to which disk space is reserved, in bytes.
    ///
    /// It is the maximum if the file system cannot reserve space.
    reserved_len: u64,
    /// Random number of this open log.
    ///
    /// It changes when another file replaces the log, because lengths of the old file do not apply
    /// to the new one.
    instance: u64,
    /// Hash of the beginning of the log, computed incrementally.
    prefix: PrefixHash,
    /// Ends of two records.
    ///
    /// The first is at least [`RECENT`] before the end of the log, or at its beginning.
    recent: [u64; 2],
    is_sealed: bool,
    is_poisoned: bool,
    /// True if a panic may have left the index behind the file.
    is_interrupted: bool,
    /// Buffer for encoding, kept between records.
    buffer: Vec<u8>,
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Err(error) = tine_sys::file::unlock(&self.file) {
            log::warn!(
                "{} stays locked until the process ends: {error}",
                self.path.display()
            );
        }
    }
}

/// State of the log that can be synced while the log grows.
pub(super) struct LogPoint {
    file: Arc<File>,
    path: PathBuf,
    len: u64,
    /// Length of the part that the log says is complete.
    ///
    /// The contents of that part are on disk.
    complete_len: u64,
    instance: u64,
}

impl LogPoint {
    /// Returns the length of the log at this point, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Syncs the log up to this point.
    pub(crate) fn sync(&self) -> Result<(), LayerError> {
        fault::step()
            .and_then(|()| self.file.sync_data())
            .map_err(LayerError::io("sync", &self.path))
    }
}

impl Log {
    pub(crate) fn id(&self) -> LayerId {
        self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the log in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if all changes are on disk.
    pub(crate) fn is_synced(&self) -> bool {
        self.is_complete() && self.synced_len >= self.changed_len
    }

    /// Returns true if the log says that all contents are on disk.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete_len >= self.changed_len
    }

    /// Frees the disk space reserved past the end of a sealed log.
    ///
    /// A failure only wastes space.
    pub(crate) fn release_reserve(&mut self) {
        let cut = fault::step().and_then(|()| self.file.set_len(self.len));
        if let Err(error) = cut {
            log::debug!("{}: {error}", self.path.display());
        }
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_poisoned || self.is_interrupted
    }

    /// Sets whether the file may have changes that the index lacks.
    ///
    /// A panic between a write and its application to the index has this effect.
    pub(crate) fn set_interrupted(&mut self, is_interrupted: bool) {
        self.is_interrupted = is_interrupted;
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Checks that the log takes changes.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`] or [`LayerError::Interrupted`] if the file may have changes that
    /// the index lacks.
    pub(crate) fn check(&self) -> Result<(), LayerError> {
        if self.is_interrupted {
            return Err(LayerError::Interrupted {
                path: self.path.clone(),
            });
        }
        if self.is_poisoned {
            return Err(LayerError::Poisoned {
                path: self.path.clone(),
            });
        }
        Ok(())
    }

    /// Appends one record of `ops`.
    ///
    /// On an error, the log is unchanged or poisoned.
    pub(crate) fn append(&mut self, ops: &[Op], space_use: SpaceUse) -> Result<(), LayerError> {
        if space_use == SpaceUse::Grows {
            self.keep_reserve()?;
        }
        let body = BodyRef::Ops {
            synced: self.synced_len,
            ops,
        };
        self.append_body(&body, COMPLETE_ROOM)?;
        self.changed_len = self.len;
        self.logged_synced_len = self.logged_synced_len.max(self.synced_len.min(self.len));
        if self.len - self.recent[1] >= RECENT {
            self.recent = [self.recent[1], self.len];
        }
        Ok(())
    }

    /// Logs that the contents of the first `upto` bytes are on disk.
    ///
    /// A reader relies on the record once it is on disk itself.
    pub(crate) fn append_complete(&mut self, upto: u64) -> Result<(), LayerError> {
        let synced = self.synced_len;
        self.append_body(&BodyRef::Complete { synced, upto }, 0)
    }

    /// Calls [`Log::append_complete`] if needed, and returns the log's end.
    pub(crate) fn complete(&mut self, upto: u64) -> Result<LogPoint, LayerError> {
        if self.complete_len < upto.min(self.changed_len) {
            self.append_complete(upto)?;
        }
        let mut point = self.point();
        point.complete_len = upto;
        Ok(point)
    }

    /// Appends the seal, after which nothing may follow, once.
    pub(crate) fn seal(&mut self) -> Result<(), LayerError> {
        if !self.is_sealed {
            self.append_body(&BodyRef::Seal, 0)?;
            self.is_sealed = true;
        }
        Ok(())
    }

    /// Reserves disk space for records that free space.
    fn keep_reserve(&mut self) -> Result<(), LayerError> {
        self.check()?;
        if self.reserved_len >= self.len + RESERVE_LOW {
            return Ok(());
        }
        self.reserve(self.len + RESERVE_TOP)
    }

    /// Reserves disk space for a log of `len` bytes.
    ///
    /// This has no effect if the file system cannot reserve space.
    fn reserve(&mut self, len: u64) -> Result<(), LayerError> {
        match fault::step()
            .and_then(|()| tine_sys::file::reserve(&self.file, self.len, len - self.len))
        {
            Ok(()) => self.reserved_len = len,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                return Err(LayerError::io("append to", &self.path)(error));
            }
            Err(_) => self.reserved_len = u64::MAX,
        }
        Ok(())
    }

    /// Reserves disk space for `more` bytes past the end.
    pub(crate) fn extend(&mut self, more: u64) -> Result<(), LayerError> {
        self.reserve(self.len.saturating_add(more))
    }

    /// Appends a record, with `leaving` bytes of reserved space after it.
    fn append_body(&mut self, body: &BodyRef<'_>, leaving: u64) -> Result<(), LayerError> {
        self.check()?;
        self.log_boot()?;
        self.encode(body)?;
        let needed = self.len + self.buffer.len() as u64 + leaving;
        if leaving > 0 && needed > self.reserved_len {
            self.reserve(needed.next_multiple_of(BLOCK))?;
        }
        self.write_buffer()
    }

    /// Logs the kernel run of this process, unless the log has it.
    fn log_boot(&mut self) -> Result<(), LayerError> {
        let Some(boot) = self.unlogged_boot else {
            return Ok(());
        };
        self.encode(&BodyRef::Opened { boot })?;
        self.write_buffer()?;
        self.unlogged_boot = None;
        Ok(())
    }

    fn encode(&mut self, body: &BodyRef<'_>) -> Result<(), LayerError> {
        let buffer = std::mem::take(&mut self.buffer);
        self.buffer =
            record::encode(body, self.version, self.id, self.len, buffer).ok_or_else(|| {
                LayerError::io("append to", &self.path)(io::ErrorKind::FileTooLarge.into())
            })?;
        Ok(())
    }

    /// Writes the whole buffer at the end of the log, or nothing.
    fn write_buffer(&mut self) -> Result<(), LayerError> {
        let written = fault::step().and_then(|()| {
            // For tests of torn records, write the first half alone.
            if fault::is_armed() {
                let (first, second) = self.buffer.split_at(self.buffer.len() / 2);
                self.file.write_all_at(first, self.len)?;
                fault::step()?;
                return self
                    .file
                    .write_all_at(second, self.len + first.len() as u64);
            }
            self.file.write_all_at(&self.buffer, self.len)
        });
        match written {
            Ok(()) => {
                self.len += self.buffer.len() as u64;
                // Do not keep the memory of a rare, very large record.
                if self.buffer.capacity() > 1 << 20 {
                    self.buffer = Vec::new();
                }
                Ok(())
            }
            Err(error) => {
                self.reserved_len = 0;
                if let Err(second) = fault::step().and_then(|()| self.file.set_len(self.len)) {
                    log::error!("{}: cannot be rolled back: {second}", self.path.display());
                    self.is_poisoned = true;
                }
                Err(LayerError::io("append to", &self.path)(error))
            }
        }
    }

    /// Returns the log's end, to sync it and then call [`Log::mark_synced`].
    pub(crate) fn point(&self) -> LogPoint {
        LogPoint {
            file: self.file.clone(),
            path: self.path.clone(),
            len: self.len,
            complete_len: 0,
            instance: self.instance,
        }
    }

    /// Syncs the file system of the log.
    pub(crate) fn sync_fs(&self) -> Result<(), LayerError> {
        fault::step()
            .and_then(|()| tine_sys::file::sync_fs(&self.file))
            .map_err(LayerError::io("sync the file system of", &self.path))
    }

    /// Returns the position of the log's end, for [`Log::since`].
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition {
            instance: self.instance,
            len: self.len,
            prefix: self.prefix.hash(&self.file, self.len),
        }
    }

    /// Returns the position before the recent records.
    pub(crate) fn recent(&self) -> LogPosition {
        LogPosition {
            instance: self.instance,
            len: self.recent[0],
            prefix: None,
        }
    }

    /// Returns the records since `position`.
    ///
    /// `None` if this log does not have that position.
    pub(crate) fn since(&self, position: LogPosition) -> Option<LogTail> {
        let is_known = position.len <= self.len
            && (position.instance == self.instance || position.is_in(&self.file));
        is_known.then(|| LogTail {
            file: self.file.clone(),
            version: self.version,
            id: self.id,
            start: position.len,
            len: self.len - position.len,
        })
    }

    /// Records that everything up to `point` is on disk.
    pub(crate) fn mark_synced(&mut self, point: &LogPoint) {
        if point.instance == self.instance {
            self.synced_len = self.synced_len.max(point.len);
            self.complete_len = self.complete_len.max(point.complete_len);
            self.log_synced_len();
        }
    }

    /// Logs that the whole log is on disk, if necessary.
    ///
    /// The record is true whenever it reaches the disk, so no caller waits for it.
    fn log_synced_len(&mut self) {
        if self.is_sealed || !self.is_synced() || self.logged_synced_len >= self.changed_len {
            return;
        }
        let logged_synced_len = self.synced_len;
        match self.append_complete(self.complete_len) {
            Ok(()) => self.logged_synced_len = logged_synced_len,
            Err(error) => log::warn!("{error}"),
        }
    }

    /// Marks the log as unusable after a failed sync.
    ///
    /// The kernel may have lost writes for good, so no later sync of this log can be trusted.
    pub(crate) fn poison(&mut self) {
        self.is_poisoned = true;
    }
}

fn lock(file: &File, path: &Path) -> Result<(), LayerError> {
    match tine_sys::file::try_lock(file) {
        Ok(true) => Ok(()),
        Ok(false) => Err(LayerError::Locked {
            path: path.to_owned(),
        }),
        Err(error) => Err(LayerError::io("lock", path)(error)),
    }
}

/// Syncs the names in a directory.
pub(super) fn sync_dir(dir: &Path) -> Result<(), LayerError> {
    fault::step()
        .and_then(|()| tine_sys::file::sync(dir))
        .map_err(LayerError::io("sync", dir))
}

fn boot_id() -> BootId {
    static BOOT_ID: std::sync::LazyLock<BootId> = std::sync::LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).map_or(UNKNOWN_BOOT, u128::to_be_bytes)
    });
    *BOOT_ID
}
