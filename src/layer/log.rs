//! The append-only log: appending, syncing, replacing it by a checkpoint, and its lock. The format
//! is in [`record`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault;
use super::position::{LogPosition, LogTail, PrefixHash, draw_instance};
use super::record::{self, BodyRef, BootId, Remains, Replay, UNKNOWN_BOOT};
use super::{LayerError, LayerId, LayerIndex, Op};

/// Changes that go into one record of a checkpoint.
const CHECKPOINT_RECORD_OPS: usize = 512;

/// Room on the disk that is kept for records which make room, so that a full disk can be emptied
/// again: topped up to the first once it is below the second, in bytes.
const RESERVE_TOP: u64 = 32 << 10;
const RESERVE_LOW: u64 = 8 << 10;

/// … of which this much, in bytes, is kept for saying that what was written is on the disk, before
/// the sync and after it: without that nothing can be freed.
const COMPLETE_ROOM: u64 = 128;

/// What was appended last, in bytes, may be news to programs still: the kernel takes note of an
/// answer a moment after it was given.
const RECENT: u64 = 256 << 10;

/// What disks give out room in, in bytes.
const BLOCK: u64 = 4096;

/// The name of the log in a layer's directory, and of one that is being written to replace it.
const LOG_NAME: &str = "log";
const NEW_LOG_NAME: &str = "log.new";

/// What a record may use of a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// The record makes the layer greater: it must leave the reserve alone.
    Needs,
    /// The record makes room, or must be written for others to be.
    Makes,
}

/// The open log of a layer that is being written; it holds the layer's lock.
pub(super) struct Log {
    file: Arc<File>,
    dir: PathBuf,
    path: PathBuf,
    /// The format's.
    version: u32,
    id: LayerId,
    len: u64,
    /// Bytes known to be on the disk.
    synced_len: u64,
    /// Bytes of which the log on the disk says that all they name is there, too.
    complete_len: u64,
    /// Where the last record ends that changes something.
    changed_len: u64,
    /// Bytes of which the log says that they are on the disk: damage in them is not taken for what
    /// a crash tore.
    vouched_len: u64,
    /// The run of the kernel under which this is written, until the log says so.
    unannounced: Option<BootId>,
    /// The disk has room for the log up to this many bytes. The greatest number where it cannot be
    /// told to keep some.
    reserved_len: u64,
    /// Drawn when the log is opened and when another file takes its place: lengths of the old one
    /// mean nothing for the new one.
    instance: u64,
    /// The log's beginning, as far as it was hashed.
    prefix: PrefixHash,
    /// Ends of records, the first at least [`RECENT`] before the log's end or at its beginning.
    recent: [u64; 2],
    is_sealed: bool,
    is_poisoned: bool,
    /// A panic may have kept memory from what the file holds.
    is_interrupted: bool,
    /// Room for encoding, kept between records.
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

/// A state of the log that can be brought to the disk while the log is written further.
pub(super) struct LogPoint {
    file: Arc<File>,
    path: PathBuf,
    len: u64,
    /// Of these, the log up to this point says that all they name is on the disk.
    complete_len: u64,
    instance: u64,
}

impl LogPoint {
    /// Bytes of the log up to here.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Brings the log up to this point to the disk.
    pub(crate) fn sync(&self) -> Result<(), LayerError> {
        fault::step()
            .and_then(|()| self.file.sync_data())
            .map_err(LayerError::io("sync", &self.path))
    }
}

impl Log {
    /// Begins a new log in `dir` and locks it. It is nobody's log before [`Log::take_place`].
    pub(crate) fn prepare(dir: &Path, id: LayerId) -> Result<Log, LayerError> {
        Log::start(dir, id, boot_id(), record::FORMAT_VERSION)
    }

    /// A log under a temporary name, locked, with its header.
    fn start(dir: &Path, id: LayerId, boot: BootId, version: u32) -> Result<Log, LayerError> {
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
            // Nobody sees this file before all of it is on the disk.
            synced_len: u64::MAX,
            complete_len: 0,
            changed_len: 0,
            vouched_len: 0,
            unannounced: Some(boot),
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

    /// Brings a log that [`Log::start`] made to the disk and renames it to its place. What it names
    /// must be there before.
    pub(crate) fn take_place(&mut self) -> Result<(), LayerError> {
        let place = self.dir.join(LOG_NAME);
        // An intact record behind all others, so that none of those can be taken for a torn tail.
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
        self.vouched_len = self.len;
        sync_dir(&self.dir)
    }

    /// Locks and reads the log in `dir`, and cuts its torn tail.
    ///
    /// Errors: [`LayerError::Locked`], [`LayerError::Corrupt`], [`LayerError::NewerFormat`], and
    /// [`LayerError::Frozen`] for a sealed one.
    pub(crate) fn open(dir: &Path) -> Result<(Log, LayerIndex), LayerError> {
        Log::open_under(dir, boot_id())
    }

    pub(super) fn open_under(dir: &Path, boot: BootId) -> Result<(Log, LayerIndex), LayerError> {
        let path = dir.join(LOG_NAME);
        let file = open_locked(&path)?;
        let bytes = read_all(&file, &path)?;
        let replay = record::replay(&bytes, &path, boot)?;
        if replay.is_sealed {
            return Err(LayerError::Frozen { path });
        }
        let leftover = dir.join(NEW_LOG_NAME);
        match std::fs::remove_file(&leftover) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LayerError::io("remove", leftover)(error));
            }
            _ => {}
        }
        let mut log = Log {
            file: Arc::new(file),
            dir: dir.to_owned(),
            path,
            version: replay.version,
            id: replay.id,
            len: replay.good_len,
            synced_len: replay.synced_len,
            complete_len: if replay.is_complete {
                replay.good_len
            } else {
                0
            },
            changed_len: replay.changed_len,
            vouched_len: replay.synced_len,
            unannounced: (replay.last_boot != Some(boot)).then_some(boot),
            reserved_len: 0,
            instance: draw_instance(),
            prefix: PrefixHash::default(),
            recent: [replay.good_len; 2],
            is_sealed: false,
            is_poisoned: false,
            is_interrupted: false,
            buffer: Vec::new(),
        };
        let tail_len = bytes.len() as u64 - replay.good_len;
        if tail_len > 0 {
            log::warn!(
                "{}: cut a torn tail of {tail_len} bytes",
                log.path.display()
            );
            log.cut_tail(bytes.len() as u64, replay.is_after_power_loss)?;
        }
        if let Err(error) = log.announce() {
            // A layer opens on a full disk, too; it says so before it says anything else.
            log::warn!("{error}");
            log.check()?;
        }
        Ok((log, replay.index))
    }

    /// Cuts off what lies behind the log's end, in a file of `file_len` bytes.
    fn cut_tail(&mut self, file_len: u64, is_after_power_loss: bool) -> Result<(), LayerError> {
        if is_after_power_loss {
            // All that was read has been on the disk. It must be said before the record is cut that
            // said it up to now: in the tail's own place, which needs no room.
            let boot = self.unannounced.take();
            let upto = self.len;
            self.append_complete(upto)?;
            self.unannounced = boot;
            self.point().sync()?;
            self.synced_len = self.len;
            self.complete_len = upto;
        }
        if self.len < file_len {
            self.file
                .set_len(self.len)
                .map_err(LayerError::io("truncate", &self.path))?;
        }
        self.vouch();
        Ok(())
    }

    /// Reads the log in `dir` as it is, sealed or not, without a lock. Of one that is being written
    /// it may see the end half written, which it takes for a torn tail.
    pub(crate) fn look(dir: &Path) -> Result<Replay, LayerError> {
        let path = dir.join(LOG_NAME);
        let file = tine_sys::file::open(&path).map_err(LayerError::io("open", &path))?;
        record::replay(&read_all(&file, &path)?, &path, boot_id())
    }

    /// Reads the sealed log in `dir`.
    pub(crate) fn read_sealed(dir: &Path) -> Result<Replay, LayerError> {
        let path = dir.join(LOG_NAME);
        let file = tine_sys::file::open(&path).map_err(LayerError::io("open", &path))?;
        let bytes = read_all(&file, &path)?;
        let replay = record::replay(&bytes, &path, boot_id())?;
        if !replay.is_sealed {
            return Err(LayerError::Unsealed { path });
        }
        match replay.good_len == bytes.len() as u64 {
            true => Ok(replay),
            false => Err(LayerError::Corrupt {
                path,
                offset: replay.good_len,
                reason: "something follows the seal".to_owned(),
            }),
        }
    }

    pub(crate) fn id(&self) -> LayerId {
        self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether all that was changed is on the disk.
    pub(crate) fn is_synced(&self) -> bool {
        self.is_complete() && self.synced_len >= self.changed_len
    }

    /// Whether the log says of all that was changed that what it names is on the disk.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete_len >= self.changed_len
    }

    /// Gives back the room that was kept behind the end of a log to which nothing is added any
    /// more. Without it only space is lost.
    pub(crate) fn give_back_reserve(&mut self) {
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

    /// Says whether the file may hold what memory does not, because a panic came between.
    pub(crate) fn set_interrupted(&mut self, is_interrupted: bool) {
        self.is_interrupted = is_interrupted;
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// [`LayerError::Poisoned`] or [`LayerError::Interrupted`] once the file may hold what the
    /// index does not.
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

    /// Appends one record of `ops`. On an error the log is as it was, or poisoned.
    pub(crate) fn append(&mut self, ops: &[Op], room: Room) -> Result<(), LayerError> {
        if room == Room::Needs {
            self.keep_reserve()?;
        }
        let body = BodyRef::Ops {
            synced: self.synced_len,
            ops,
        };
        self.append_body(&body, COMPLETE_ROOM)?;
        self.changed_len = self.len;
        self.vouched_len = self.vouched_len.max(self.synced_len.min(self.len));
        if self.len - self.recent[1] >= RECENT {
            self.recent = [self.recent[1], self.len];
        }
        Ok(())
    }

    /// Says that all that the first `upto` bytes name is on the disk. That holds for a reader once
    /// it is there itself.
    pub(crate) fn append_complete(&mut self, upto: u64) -> Result<(), LayerError> {
        let synced = self.synced_len;
        self.append_body(&BodyRef::Complete { synced, upto }, 0)
    }

    /// As [`Log::append_complete`], where it was not said before; the log's end then.
    pub(crate) fn complete(&mut self, upto: u64) -> Result<LogPoint, LayerError> {
        if self.complete_len < upto.min(self.changed_len) {
            self.append_complete(upto)?;
        }
        let mut point = self.point();
        point.complete_len = upto;
        Ok(point)
    }

    /// Appends the record after which nothing may follow, once.
    pub(crate) fn seal(&mut self) -> Result<(), LayerError> {
        if !self.is_sealed {
            self.append_body(&BodyRef::Seal, 0)?;
            self.is_sealed = true;
        }
        Ok(())
    }

    /// Makes sure that records which make room will find some.
    fn keep_reserve(&mut self) -> Result<(), LayerError> {
        self.check()?;
        if self.reserved_len >= self.len + RESERVE_LOW {
            return Ok(());
        }
        self.reserve(self.len + RESERVE_TOP)
    }

    /// Keeps room on the disk for a log of `len` bytes, where the disk can be told to.
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

    /// Keeps room on the disk for `more` bytes behind the log's end.
    pub(crate) fn extend(&mut self, more: u64) -> Result<(), LayerError> {
        self.reserve(self.len.saturating_add(more))
    }

    /// Appends a record behind which there is still room for `leaving` bytes.
    fn append_body(&mut self, body: &BodyRef<'_>, leaving: u64) -> Result<(), LayerError> {
        self.check()?;
        self.announce()?;
        self.encode(body)?;
        let needed = self.len + self.buffer.len() as u64 + leaving;
        if leaving > 0 && needed > self.reserved_len {
            self.reserve(needed.next_multiple_of(BLOCK))?;
        }
        self.write_buffer()
    }

    /// Says under which run of the kernel the log is written from here on, if it does not yet.
    fn announce(&mut self) -> Result<(), LayerError> {
        let Some(boot) = self.unannounced else {
            return Ok(());
        };
        self.encode(&BodyRef::Opened { boot })?;
        self.write_buffer()?;
        self.unannounced = None;
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

    /// Writes the buffer behind the log's end, or nothing.
    fn write_buffer(&mut self) -> Result<(), LayerError> {
        let written = fault::step().and_then(|()| {
            // Half of it first, where a test wants to see torn records.
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
                // A rare giant must not keep its room for ever.
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

    /// The log's present end, to be synced and then handed to [`Log::mark_synced`].
    pub(crate) fn point(&self) -> LogPoint {
        LogPoint {
            file: self.file.clone(),
            path: self.path.clone(),
            len: self.len,
            complete_len: 0,
            instance: self.instance,
        }
    }

    /// Brings everything on the log's file system to the disk.
    pub(crate) fn sync_fs(&self) -> Result<(), LayerError> {
        fault::step()
            .and_then(|()| tine_sys::file::sync_fs(&self.file))
            .map_err(LayerError::io("sync the file system of", &self.path))
    }

    /// The log's present end, for [`Log::since`].
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition {
            instance: self.instance,
            len: self.len,
            prefix: self.prefix.hash(&self.file, self.len),
        }
    }

    /// A moment some while ago.
    pub(crate) fn recent(&self) -> LogPosition {
        LogPosition {
            instance: self.instance,
            len: self.recent[0],
            prefix: None,
        }
    }

    /// What was written since `position`; `None` where this log does not know it.
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

    /// Remembers that everything up to `point` is on the disk.
    pub(crate) fn mark_synced(&mut self, point: &LogPoint) {
        if point.instance == self.instance {
            self.synced_len = self.synced_len.max(point.len);
            self.complete_len = self.complete_len.max(point.complete_len);
            self.vouch();
        }
    }

    /// Says that all of the log is on the disk, where no later change says so. What this record
    /// says holds whenever it comes to the disk, so nobody waits for that.
    fn vouch(&mut self) {
        if self.is_sealed || !self.is_synced() || self.vouched_len >= self.changed_len {
            return;
        }
        let vouched_len = self.synced_len;
        match self.append_complete(self.complete_len) {
            Ok(()) => self.vouched_len = vouched_len,
            Err(error) => log::warn!("{error}"),
        }
    }

    /// What the kernel still had to write may be lost for good: no sync of this log can be trusted
    /// any more.
    pub(crate) fn poison(&mut self) {
        self.is_poisoned = true;
    }

    /// Replaces the log by one that holds just `ops`, on the disk when this returns. On an error
    /// the old one stays.
    pub(crate) fn rewrite(&mut self, ops: impl Iterator<Item = Op>) -> Result<(), LayerError> {
        self.check()?;
        let result = self.try_rewrite(ops);
        if result.is_err() {
            // Best effort: a later one takes its place, and opening removes it, too.
            let _ = fault::step().and_then(|()| std::fs::remove_file(self.dir.join(NEW_LOG_NAME)));
        }
        result
    }

    /// Writes the sealed log of a merged layer, on the disk when this returns. What it names must
    /// be there before.
    pub(crate) fn write_merged(
        dir: &Path,
        id: LayerId,
        ops: impl Iterator<Item = Op>,
    ) -> Result<(), LayerError> {
        let mut log = Log::start(dir, id, boot_id(), record::MERGED_VERSION)?;
        log.append_all(ops)?;
        log.take_place()?;
        log.seal()?;
        log.point().sync()
    }

    /// What the log in `dir`, which cannot be read as a whole, still says of the layer `id`; and
    /// its length. One that is missing, or no file, says nothing.
    pub(crate) fn remains(dir: &Path, id: LayerId) -> Result<(Remains, u64), LayerError> {
        let path = dir.join(LOG_NAME);
        let bytes = match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => {
                tine_sys::file::read(&path).map_err(LayerError::io("read", &path))?
            }
            Ok(_) => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(LayerError::io("look at", &path)(error)),
        };
        Ok((record::remains(&bytes, id, boot_id()), bytes.len() as u64))
    }

    /// Writes a log that holds just `ops` in the place of the one in `dir`, on the disk when this
    /// returns. What it names must be there before.
    pub(crate) fn replace(
        dir: &Path,
        id: LayerId,
        ops: impl Iterator<Item = Op>,
    ) -> Result<(), LayerError> {
        let mut log = Log::start(dir, id, boot_id(), record::FORMAT_VERSION)?;
        log.append_all(ops)?;
        log.sync_fs()?;
        log.take_place()
    }

    /// Appends all that a log begins with.
    fn append_all(&mut self, ops: impl Iterator<Item = Op>) -> Result<(), LayerError> {
        let mut record = Vec::with_capacity(CHECKPOINT_RECORD_OPS);
        for op in ops {
            record.push(op);
            if record.len() == CHECKPOINT_RECORD_OPS {
                self.append(&record, Room::Makes)?;
                record.clear();
            }
        }
        match record.is_empty() {
            true => Ok(()),
            false => self.append(&record, Room::Makes),
        }
    }

    fn try_rewrite(&mut self, ops: impl Iterator<Item = Op>) -> Result<(), LayerError> {
        let mut new = Log::start(&self.dir, self.id, boot_id(), record::FORMAT_VERSION)?;
        new.append_all(ops)?;
        match new.take_place() {
            Ok(()) => {}
            // The rename happened and only its way to the disk failed: the new file is the log now.
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

/// Opens the log at `path` and takes its lock; the kernel gives it back when the process is gone.
fn open_locked(path: &Path) -> Result<File, LayerError> {
    loop {
        let file = tine_sys::file::open_with(path, OpenOptions::new().read(true).write(true))
            .map_err(LayerError::io("open", path))?;
        lock(&file, path)?;
        // Between opening and locking another process may have replaced the log and gone.
        let mine = file.metadata().map_err(LayerError::io("stat", path))?;
        let there = std::fs::metadata(path).map_err(LayerError::io("stat", path))?;
        if (mine.dev(), mine.ino()) == (there.dev(), there.ino()) {
            return Ok(file);
        }
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

fn read_all(file: &File, path: &Path) -> Result<Vec<u8>, LayerError> {
    let mut bytes = Vec::new();
    let mut reader = file;
    reader
        .read_to_end(&mut bytes)
        .map_err(LayerError::io("read", path))?;
    Ok(bytes)
}

/// Brings a directory's names to the disk.
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
