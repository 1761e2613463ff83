//! The append-only log.
//!
//! A record's header is bound to the layer and to its own offset, so that intact records can be told from bytes that
//! merely look like one: behind a damaged record the log is searched for records that are still whole. Each record
//! says up to where the log was on the disk when it was written. With both, a tail that a crash tore (cut, nothing
//! acknowledged is lost beyond what such a crash may lose) is told from damage (refused).

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fault;
use super::index::Effects;
use super::{LayerError, LayerId, LayerIndex, Op};
use crate::sys;

/// The format that is written; newer ones are refused.
pub(super) const FORMAT_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"tinelog\n";
/// Magic, version, layer id, checksum of those.
const HEADER_LEN: usize = 8 + 4 + 8 + 4;
/// Body length, checksum of layer id, offset and length, checksum of the body.
const RECORD_HEADER_LEN: usize = 4 + 4 + 4;
/// Longest body in bytes.
const RECORD_MAX: usize = 256 << 20;
/// Changes that go into one record of a checkpoint.
const CHECKPOINT_RECORD_OPS: usize = 512;

/// Room on the disk that is kept for records which make room, so that a full disk can be emptied again: topped up to
/// the first once it is below the second, in bytes.
const RESERVE_TOP: u64 = 32 << 10;
const RESERVE_LOW: u64 = 8 << 10;

/// The name of the log in a layer's directory, and of one that is being written to replace it.
const LOG_NAME: &str = "log";
const NEW_LOG_NAME: &str = "log.new";

/// Identifies one run of the kernel: what a process wrote and did not sync survives until the next one.
type BootId = [u8; 16];
/// Where the kernel does not tell; unsynced tails are then judged as after a power failure.
const UNKNOWN_BOOT: BootId = [0; 16];

/// What a record says. Encoded with postcard; new kinds are added at the end.
#[derive(Deserialize)]
enum Body {
    /// A process that runs under this kernel writes from here on.
    Opened { boot: BootId },
    /// One atomic step, written while the first `synced` bytes of the log were known to be on the disk. What a log
    /// was made with says the greatest number: it was all on the disk before the log took its place.
    Ops { synced: u64, ops: Vec<Op> },
    /// Nothing follows.
    Seal,
}

/// [`Body`], borrowed for writing; the encodings are the same.
#[derive(Serialize)]
enum BodyRef<'a> {
    Opened { boot: BootId },
    Ops { synced: u64, ops: &'a [Op] },
    Seal,
}

/// What a record may use of a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// The record makes the layer greater: it must leave the reserve alone.
    Needs,
    /// The record makes room, or must be written for others to be.
    Makes,
}

/// What reading a log gave.
pub(super) struct Replay {
    pub id: LayerId,
    pub index: LayerIndex,
    pub is_sealed: bool,
    /// Bytes that are good; what follows is a torn tail.
    good_len: u64,
    last_boot: Option<BootId>,
}

/// The open log of a layer that is being written; it holds the layer's lock.
pub(super) struct Log {
    file: Arc<File>,
    dir: PathBuf,
    path: PathBuf,
    id: LayerId,
    len: u64,
    /// Bytes known to be on the disk.
    synced_len: u64,
    /// The disk has room for the log up to this many bytes. The greatest number where it cannot be told to keep some.
    reserved_len: u64,
    /// Goes up when another file takes the log's place: lengths of the old one mean nothing for the new one.
    generation: u64,
    is_poisoned: bool,
    /// Room for encoding, kept between records.
    buffer: Vec<u8>,
}

/// A state of the log that can be brought to the disk while the log is written further.
pub(super) struct LogPoint {
    file: Arc<File>,
    path: PathBuf,
    len: u64,
    generation: u64,
}

impl LogPoint {
    /// Brings the log up to this point to the disk.
    pub fn sync(&self) -> Result<(), LayerError> {
        fault::step()
            .and_then(|()| self.file.sync_data())
            .map_err(LayerError::io("sync", &self.path))
    }
}

impl Log {
    /// Writes a new log into `dir` and locks it.
    pub fn create(dir: &Path, id: LayerId) -> Result<Log, LayerError> {
        let mut log = Log::start(dir, id, boot_id())?;
        log.take_place()?;
        Ok(log)
    }

    /// A log under a temporary name, locked, with its header.
    fn start(dir: &Path, id: LayerId, boot: BootId) -> Result<Log, LayerError> {
        let path = dir.join(NEW_LOG_NAME);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .map_err(LayerError::io("create", &path))?;
        lock(&file, &path)?;
        let mut log = Log {
            file: Arc::new(file),
            dir: dir.to_owned(),
            path,
            id,
            len: 0,
            // Nobody sees this file before all of it is on the disk.
            synced_len: u64::MAX,
            reserved_len: 0,
            generation: 0,
            is_poisoned: false,
            buffer: Vec::new(),
        };
        log.buffer.extend_from_slice(&header(id));
        log.write_buffer()?;
        log.append_body(&BodyRef::Opened { boot })?;
        Ok(log)
    }

    /// Brings a log that [`Log::start`] made to the disk and renames it to its place.
    fn take_place(&mut self) -> Result<(), LayerError> {
        let place = self.dir.join(LOG_NAME);
        // An intact record behind all others, so that none of those can be taken for a torn tail.
        self.append(&[], Room::Makes)?;
        fault::step()
            .and_then(|()| self.file.sync_data())
            .map_err(LayerError::io("sync", &self.path))?;
        fault::step()
            .and_then(|()| std::fs::rename(&self.path, &place))
            .map_err(LayerError::io("rename to", &place))?;
        self.path = place;
        self.synced_len = self.len;
        sync_dir(&self.dir)
    }

    /// Locks and reads the log in `dir`, and cuts its torn tail.
    ///
    /// Errors: [`LayerError::Locked`], [`LayerError::Corrupt`], [`LayerError::NewerFormat`], and
    /// [`LayerError::Frozen`] for a sealed one.
    pub fn open(dir: &Path) -> Result<(Log, LayerIndex), LayerError> {
        Log::open_under(dir, boot_id())
    }

    fn open_under(dir: &Path, boot: BootId) -> Result<(Log, LayerIndex), LayerError> {
        let path = dir.join(LOG_NAME);
        let file = open_locked(&path)?;
        let bytes = read_all(&file, &path)?;
        let replay = replay(&bytes, &path, boot)?;
        if replay.is_sealed {
            return Err(LayerError::Frozen { path });
        }
        if replay.good_len < bytes.len() as u64 {
            log::warn!(
                "{}: cut a torn tail of {} bytes",
                path.display(),
                bytes.len() as u64 - replay.good_len
            );
            file.set_len(replay.good_len)
                .map_err(LayerError::io("truncate", &path))?;
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
            id: replay.id,
            len: replay.good_len,
            synced_len: 0,
            reserved_len: 0,
            generation: 0,
            is_poisoned: false,
            buffer: Vec::new(),
        };
        if replay.last_boot != Some(boot) {
            log.append_body(&BodyRef::Opened { boot })?;
        }
        Ok((log, replay.index))
    }

    /// Reads the sealed log in `dir`.
    pub fn read_sealed(dir: &Path) -> Result<Replay, LayerError> {
        let path = dir.join(LOG_NAME);
        let file = File::open(&path).map_err(LayerError::io("open", &path))?;
        let bytes = read_all(&file, &path)?;
        let replay = replay(&bytes, &path, boot_id())?;
        let unsealed = |offset, reason: &str| {
            Err(LayerError::Corrupt {
                path: path.clone(),
                offset,
                reason: reason.to_owned(),
            })
        };
        if replay.good_len < bytes.len() as u64 {
            return unsealed(
                replay.good_len,
                "the record is torn, in a layer that should be frozen",
            );
        }
        if !replay.is_sealed {
            return unsealed(replay.good_len, "the layer is not frozen: its log has no seal");
        }
        Ok(replay)
    }

    pub fn id(&self) -> LayerId {
        self.id
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_synced(&self) -> bool {
        self.synced_len == self.len
    }

    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    /// [`LayerError::Poisoned`] once the file may hold what the index does not.
    pub fn check(&self) -> Result<(), LayerError> {
        if self.is_poisoned {
            return Err(LayerError::Poisoned {
                path: self.path.clone(),
            });
        }
        Ok(())
    }

    /// Appends one record of `ops`. On an error the log is as it was, or poisoned.
    pub fn append(&mut self, ops: &[Op], room: Room) -> Result<(), LayerError> {
        if room == Room::Needs {
            self.keep_reserve()?;
        }
        self.append_body(&BodyRef::Ops {
            synced: self.synced_len,
            ops,
        })
    }

    /// Appends the record after which nothing may follow.
    pub fn seal(&mut self) -> Result<(), LayerError> {
        self.append_body(&BodyRef::Seal)
    }

    /// Makes sure that records which make room will find some.
    fn keep_reserve(&mut self) -> Result<(), LayerError> {
        if self.reserved_len >= self.len + RESERVE_LOW {
            return self.check();
        }
        self.check()?;
        match fault::step().and_then(|()| sys::file::reserve(&self.file, self.len, RESERVE_TOP)) {
            Ok(()) => self.reserved_len = self.len + RESERVE_TOP,
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

    fn append_body(&mut self, body: &BodyRef<'_>) -> Result<(), LayerError> {
        self.check()?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(&[0; RECORD_HEADER_LEN]);
        self.buffer = postcard::to_extend(body, buffer)
            .expect("a vector takes any length and these types always encode");
        let body_len = self.buffer.len() - RECORD_HEADER_LEN;
        if body_len > RECORD_MAX {
            self.buffer = Vec::new();
            return Err(LayerError::io("append to", &self.path)(
                io::ErrorKind::FileTooLarge.into(),
            ));
        }
        let body_len = body_len as u32;
        let (header, body) = self.buffer.split_at_mut(RECORD_HEADER_LEN);
        let body_crc = crc32fast::hash(body);
        header[..4].copy_from_slice(&body_len.to_le_bytes());
        header[4..8].copy_from_slice(&header_crc(self.id, self.len, body_len).to_le_bytes());
        header[8..].copy_from_slice(&body_crc.to_le_bytes());
        self.write_buffer()
    }

    /// Writes the buffer behind the log's end, or nothing.
    fn write_buffer(&mut self) -> Result<(), LayerError> {
        let written = fault::step().and_then(|()| {
            // Half of it first, where a test wants to see torn records.
            if fault::is_armed() {
                let (first, second) = self.buffer.split_at(self.buffer.len() / 2);
                self.file.write_all_at(first, self.len)?;
                fault::step()?;
                return self.file.write_all_at(second, self.len + first.len() as u64);
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
    pub fn point(&self) -> LogPoint {
        LogPoint {
            file: self.file.clone(),
            path: self.path.clone(),
            len: self.len,
            generation: self.generation,
        }
    }

    /// Remembers that everything up to `point` is on the disk.
    pub fn mark_synced(&mut self, point: &LogPoint) {
        if point.generation == self.generation {
            self.synced_len = self.synced_len.max(point.len);
        }
    }

    /// What the kernel still had to write may be lost for good: no sync of this log can be trusted any more.
    pub fn poison(&mut self) {
        self.is_poisoned = true;
    }

    /// Replaces the log by one that holds just `ops`, on the disk when this returns. On an error the old one stays.
    pub fn rewrite(&mut self, ops: impl Iterator<Item = Op>) -> Result<(), LayerError> {
        self.check()?;
        let result = self.try_rewrite(ops);
        if result.is_err() {
            // Best effort: a later one takes its place, and opening removes it, too.
            let _ = fault::step().and_then(|()| std::fs::remove_file(self.dir.join(NEW_LOG_NAME)));
        }
        result
    }

    fn try_rewrite(&mut self, ops: impl Iterator<Item = Op>) -> Result<(), LayerError> {
        let mut new = Log::start(&self.dir, self.id, boot_id())?;
        let mut record = Vec::with_capacity(CHECKPOINT_RECORD_OPS);
        for op in ops {
            record.push(op);
            if record.len() == CHECKPOINT_RECORD_OPS {
                new.append(&record, Room::Makes)?;
                record.clear();
            }
        }
        if !record.is_empty() {
            new.append(&record, Room::Makes)?;
        }
        new.generation = self.generation + 1;
        match new.take_place() {
            Ok(()) => {}
            // The rename happened and only its way to the disk failed: the new file is the log now.
            Err(error) if new.path == self.path => {
                new.synced_len = 0;
                log::error!("{error}");
            }
            Err(error) => return Err(error),
        }
        *self = new;
        Ok(())
    }
}

fn header(id: LayerId) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[12..20].copy_from_slice(&id.0.to_le_bytes());
    let crc = crc32fast::hash(&header[..20]);
    header[20..].copy_from_slice(&crc.to_le_bytes());
    header
}

fn header_crc(id: LayerId, offset: u64, body_len: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.0.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(&body_len.to_le_bytes());
    hasher.finalize()
}

/// What stands at one offset of a log.
enum Found<'a> {
    Record {
        body: &'a [u8],
        next: usize,
    },
    /// The file ends before the record does, as after a write that was cut short.
    Short,
    Damaged(&'static str),
}

fn record_at(bytes: &[u8], offset: usize, id: LayerId) -> Found<'_> {
    let rest = bytes.get(offset..).unwrap_or_default();
    let Some((header, rest)) = rest.split_first_chunk::<RECORD_HEADER_LEN>() else {
        return Found::Short;
    };
    let [l0, l1, l2, l3, h0, h1, h2, h3, b0, b1, b2, b3] = *header;
    let body_len = u32::from_le_bytes([l0, l1, l2, l3]);
    if u32::from_le_bytes([h0, h1, h2, h3]) != header_crc(id, offset as u64, body_len) {
        return Found::Damaged("the record's header has a wrong checksum");
    }
    let Some(body) = rest.get(..body_len as usize) else {
        return Found::Short;
    };
    if u32::from_le_bytes([b0, b1, b2, b3]) != crc32fast::hash(body) {
        return Found::Damaged("the record has a wrong checksum");
    }
    Found::Record {
        body,
        next: offset + RECORD_HEADER_LEN + body.len(),
    }
}

fn decode(body: &[u8]) -> Result<Body, &'static str> {
    match postcard::take_from_bytes::<Body>(body) {
        Ok((body, [])) => Ok(body),
        Ok(_) => Err("the record holds more than its changes"),
        Err(_) => Err("the record cannot be decoded"),
    }
}

/// Reads a log's bytes into an index. `boot` is the kernel run of the reader.
fn replay(bytes: &[u8], path: &Path, boot: BootId) -> Result<Replay, LayerError> {
    let corrupt = |offset: usize, reason: &str| LayerError::Corrupt {
        path: path.to_owned(),
        offset: offset as u64,
        reason: reason.to_owned(),
    };
    let Some((
        [
            magic @ ..,
            v0,
            v1,
            v2,
            v3,
            i0,
            i1,
            i2,
            i3,
            i4,
            i5,
            i6,
            i7,
            _,
            _,
            _,
            _,
        ],
        _,
    )) = bytes.split_first_chunk::<HEADER_LEN>()
    else {
        return Err(corrupt(0, "the header is incomplete"));
    };
    if magic != MAGIC {
        return Err(corrupt(0, "this is no layer's log"));
    }
    let version = u32::from_le_bytes([*v0, *v1, *v2, *v3]);
    if version > FORMAT_VERSION {
        return Err(LayerError::NewerFormat {
            path: path.to_owned(),
            found: version,
            known: FORMAT_VERSION,
        });
    }
    let id = LayerId(u64::from_le_bytes([*i0, *i1, *i2, *i3, *i4, *i5, *i6, *i7]));
    if !bytes.starts_with(&header(id)) {
        return Err(corrupt(0, "the header has a wrong checksum"));
    }

    let mut replay = Replay {
        id,
        index: LayerIndex::default(),
        is_sealed: false,
        good_len: HEADER_LEN as u64,
        last_boot: None,
    };
    let mut effects = Effects::default();
    let mut at = HEADER_LEN;
    while at < bytes.len() {
        let (body, next) = match record_at(bytes, at, id) {
            Found::Record { body, next } => (body, next),
            Found::Short | Found::Damaged(_) => {
                let same_boot = boot != UNKNOWN_BOOT && replay.last_boot == Some(boot);
                if let Some(reason) = damage_at(bytes, at, id, same_boot) {
                    return Err(corrupt(at, reason));
                }
                break;
            }
        };
        if replay.is_sealed {
            return Err(corrupt(at, "a record follows the seal"));
        }
        match decode(body).map_err(|reason| corrupt(at, reason))? {
            Body::Opened { boot } => replay.last_boot = Some(boot),
            Body::Ops { ops, .. } => {
                for op in ops {
                    replay.index.apply(op, &mut effects);
                }
                effects.clear();
            }
            Body::Seal => replay.is_sealed = true,
        }
        at = next;
        replay.good_len = at as u64;
    }
    Ok(replay)
}

/// Why the record at `at`, which is not whole, is more than a torn tail; `None` where it is one.
///
/// Under the kernel run that wrote it (`same_boot`) nothing but the last write can be cut short: anything else is
/// damage. After another one began, whatever was not synced may be lost in any order: then only what a later record
/// knows to have been synced counts.
fn damage_at(bytes: &[u8], at: usize, id: LayerId, same_boot: bool) -> Option<&'static str> {
    const DAMAGED: &str = "the record is damaged and intact ones follow";
    if same_boot && let Found::Damaged(reason) = record_at(bytes, at, id) {
        return Some(reason);
    }
    let mut offset = at + 1;
    while offset < bytes.len() {
        let Found::Record { body, next } = record_at(bytes, offset, id) else {
            offset += 1;
            continue;
        };
        match decode(body) {
            Ok(Body::Ops { synced, .. }) if synced <= at as u64 && !same_boot => {}
            Ok(Body::Opened { .. }) if !same_boot => {}
            _ => return Some(DAMAGED),
        }
        offset = next;
    }
    None
}

/// Opens the log at `path` and takes its lock; the kernel gives it back when the process is gone.
fn open_locked(path: &Path) -> Result<File, LayerError> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
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
    match sys::file::try_lock(file) {
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
        .and_then(|()| File::open(dir)?.sync_all())
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

/// Ways into the format for tests of damaged logs.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub const BOOT: BootId = [1; 16];
    pub const OTHER_BOOT: BootId = [2; 16];

    /// A log in memory, written under [`BOOT`].
    pub struct Bytes {
        pub bytes: Vec<u8>,
        id: LayerId,
    }

    impl Bytes {
        pub fn new(id: LayerId) -> Bytes {
            let bytes = header(id).to_vec();
            let mut log = Bytes { bytes, id };
            log.push(&BodyRef::Opened { boot: BOOT });
            log.push_ops(usize::MAX, &[]);
            log
        }

        /// Appends a record that says that `synced` bytes were on the disk.
        pub fn push_ops(&mut self, synced: usize, ops: &[Op]) {
            let synced = synced as u64;
            self.push(&BodyRef::Ops { synced, ops });
        }

        pub fn push_seal(&mut self) {
            self.push(&BodyRef::Seal);
        }

        fn push(&mut self, body: &BodyRef<'_>) {
            self.push_body(&postcard::to_stdvec(body).unwrap());
        }

        /// Appends a record with right checksums, whatever is in it.
        pub fn push_body(&mut self, body: &[u8]) {
            let len = body.len() as u32;
            let crc = header_crc(self.id, self.bytes.len() as u64, len);
            for number in [len, crc, crc32fast::hash(body)] {
                self.bytes.extend(number.to_le_bytes());
            }
            self.bytes.extend(body);
        }
    }

    /// Reads a log: its index and how many bytes of it are good.
    pub fn read(bytes: &[u8], boot: BootId) -> Result<(LayerIndex, usize), LayerError> {
        let replay = replay(bytes, Path::new("log"), boot)?;
        Ok((replay.index, replay.good_len as usize))
    }
}
