//! Format of a log: its header and records, and how to read them.
//!
//! A record's header is bound to the layer and to its own offset. So a reader can distinguish an
//! intact record from bytes that look like one, and can search for intact records after a damaged
//! one. Each record says how much of the log was on disk when it was written. A log that is idle
//! for a while ends with a record that says this of everything before it. With both, a reader
//! distinguishes a torn tail from damage. It truncates a torn tail, which loses nothing beyond what
//! such a crash may lose. It refuses damage.
//!
//! After a power failure, an intact record is not enough: the contents that it names may be missing
//! from the disk. So a sync first syncs the contents and then logs how far that holds. After a
//! power failure, the log is read only that far.

use std::collections::VecDeque;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::index::Effects;
use super::{LayerError, LayerId, LayerIndex, Op};

/// Format version of new logs.
///
/// A newer one is refused. A log keeps the version that it was created with.
pub(super) const FORMAT_VERSION: u32 = 2;
/// Format version whose body checksums are not bound to the header.
const UNBOUND_BODIES: u32 = 1;
/// Format version of a merged layer's log.
///
/// It is written like [`FORMAT_VERSION`]. A program that does not know where the contents are
/// refuses it.
pub(super) const MERGED_VERSION: u32 = 3;

const MAGIC: &[u8; 8] = b"tinelog\n";
/// Length of the header: magic, version, layer id, checksum of these.
pub(super) const HEADER_LEN: usize = 8 + 4 + 8 + 4;
/// Length of a record's header: body length, header checksum, body checksum.
///
/// The header checksum covers the layer id, the offset and the length. The body checksum continues
/// it.
const RECORD_HEADER_LEN: usize = 4 + 4 + 4;
/// Length of a log's first record.
///
/// It is [`Body::Opened`], which has a tag and a [`BootId`].
const OPENED_LEN: usize = RECORD_HEADER_LEN + 1 + 16;
/// Maximum length of a body in bytes.
const RECORD_MAX: u32 = 256 << 20;

/// Identifier of one run of the kernel.
///
/// Unsynced writes of a process survive until the next run.
pub(super) type BootId = [u8; 16];
/// Value if the kernel does not report its run.
///
/// Unsynced tails are then judged as after a power failure.
pub(super) const UNKNOWN_BOOT: BootId = [0; 16];

/// Body of a record.
///
/// It is encoded with postcard. New kinds are added at the end.
#[derive(Deserialize)]
enum Body {
    /// A process under this run of the kernel writes from here on.
    Opened { boot: BootId },
    /// Changes that are one atomic step.
    ///
    /// The first `synced` bytes of the log were known to be on disk at that time. The changes that
    /// a log was created with have the maximum, because all of the log was on disk before it took
    /// its place.
    Ops { synced: u64, ops: Vec<Op> },
    /// Nothing follows.
    Seal,
    /// The contents of the first `upto` bytes are on disk.
    ///
    /// `synced` is as in [`Body::Ops`].
    Complete { synced: u64, upto: u64 },
}

/// Borrowed [`Body`] for writing, with the same encoding.
#[derive(Serialize)]
pub(super) enum BodyRef<'a> {
    Opened { boot: BootId },
    Ops { synced: u64, ops: &'a [Op] },
    Seal,
    Complete { synced: u64, upto: u64 },
}

/// Result of reading a log.
pub(super) struct Replay {
    pub version: u32,
    pub id: LayerId,
    pub index: LayerIndex,
    pub is_sealed: bool,
    /// Length of the valid part, in bytes.
    ///
    /// A torn tail follows, or records that were not synced before a power failure.
    pub good_len: u64,
    /// True if the log says that all its contents are on disk.
    pub is_complete: bool,
    /// Length of the part that the log says is on disk.
    pub synced_len: u64,
    /// Offset of the end of the last record with changes.
    pub changed_len: u64,
    pub last_boot: Option<BootId>,
    /// True if the page cache no longer has the unsynced part.
    ///
    /// Another run of the kernel wrote that part, or it is torn.
    pub is_after_power_loss: bool,
}

/// Encodes the header of a log.
pub(super) fn header(version: u32, id: LayerId) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&version.to_le_bytes());
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

fn body_crc(version: u32, header_crc: u32, body: &[u8]) -> u32 {
    let mut hasher = match version {
        ..=UNBOUND_BODIES => crc32fast::Hasher::new(),
        _ => crc32fast::Hasher::new_with_initial(header_crc),
    };
    hasher.update(body);
    hasher.finalize()
}

/// Encodes a record for `offset` of a log, in `buffer`.
///
/// `None` if the record would be too long.
pub(super) fn encode(
    body: &BodyRef<'_>,
    version: u32,
    id: LayerId,
    offset: u64,
    mut buffer: Vec<u8>,
) -> Option<Vec<u8>> {
    buffer.clear();
    buffer.extend_from_slice(&[0; RECORD_HEADER_LEN]);
    let mut record = postcard::to_extend(body, buffer)
        .expect("a vector takes any length and these types always encode");
    let (header, body) = record.split_at_mut(RECORD_HEADER_LEN);
    let body_len = u32::try_from(body.len())
        .ok()
        .filter(|len| *len <= RECORD_MAX)?;
    let header_crc = header_crc(id, offset, body_len);
    let body_crc = body_crc(version, header_crc, body);
    header[..4].copy_from_slice(&body_len.to_le_bytes());
    header[4..8].copy_from_slice(&header_crc.to_le_bytes());
    header[8..].copy_from_slice(&body_crc.to_le_bytes());
    Some(record)
}

/// Data at one offset of a log.
enum Found<'a> {
    Record {
        body: &'a [u8],
        next: usize,
    },
    /// The file ends within the record, as after an interrupted write.
    Short,
    Damaged(&'static str),
}

/// Reads the record at `offset` of `bytes`.
///
/// `bytes` begin at `start` of the log.
fn record_at(bytes: &[u8], start: u64, offset: usize, version: u32, id: LayerId) -> Found<'_> {
    let rest = bytes.get(offset..).unwrap_or_default();
    let Some((header, rest)) = rest.split_first_chunk::<RECORD_HEADER_LEN>() else {
        return Found::Short;
    };
    let [l0, l1, l2, l3, h0, h1, h2, h3, b0, b1, b2, b3] = *header;
    let body_len = u32::from_le_bytes([l0, l1, l2, l3]);
    let header_crc = header_crc(id, start + offset as u64, body_len);
    if u32::from_le_bytes([h0, h1, h2, h3]) != header_crc {
        return Found::Damaged("the record's header has a wrong checksum");
    }
    let Some(body) = rest.get(..body_len as usize) else {
        return Found::Short;
    };
    if u32::from_le_bytes([b0, b1, b2, b3]) != body_crc(version, header_crc, body) {
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

/// Reads a log's bytes into an index.
///
/// `boot` is the kernel run of the reader.
pub(super) fn replay(bytes: &[u8], path: &Path, boot: BootId) -> Result<Replay, LayerError> {
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
    if version > MERGED_VERSION {
        return Err(LayerError::NewerFormat {
            path: path.to_owned(),
            found: version,
            known: MERGED_VERSION,
        });
    }
    let id = LayerId(u64::from_le_bytes([*i0, *i1, *i2, *i3, *i4, *i5, *i6, *i7]));
    if version < UNBOUND_BODIES || !bytes.starts_with(&header(version, id)) {
        return Err(corrupt(0, "the header has a wrong checksum"));
    }

    let mut replay = Replay {
        version,
        id,
        index: LayerIndex::default(),
        is_sealed: false,
        good_len: HEADER_LEN as u64,
        is_complete: false,
        synced_len: 0,
        changed_len: HEADER_LEN as u64,
        last_boot: None,
        is_after_power_loss: true,
    };
    // Changes that are not known to be complete yet, each with its end.
    let mut pending: VecDeque<(usize, Vec<Op>)> = VecDeque::new();
    let mut complete_len: Option<u64> = None;
    let mut at = HEADER_LEN;
    while at < bytes.len() {
        let (body, next) = match record_at(bytes, 0, at, version, id) {
            Found::Record { body, next } => (body, next),
            Found::Short | Found::Damaged(_) => {
                if let Some(reason) = damage_at(bytes, at, version, id, !replay.is_after_power_loss)
                {
                    // A file system that failed and was mounted again has lost the same writes as a
                    // power failure.
                    if complete_len.is_none() || damage_at(bytes, at, version, id, false).is_some()
                    {
                        return Err(corrupt(at, reason));
                    }
                    replay.is_after_power_loss = true;
                }
                break;
            }
        };
        if replay.is_sealed {
            return Err(corrupt(at, "a record follows the seal"));
        }
        match decode(body).map_err(|reason| corrupt(at, reason))? {
            Body::Opened { boot: written } => {
                replay.last_boot = Some(written);
                replay.is_after_power_loss = written != boot || boot == UNKNOWN_BOOT;
            }
            Body::Ops { synced, ops } => {
                replay.note_synced(synced, next);
                replay.changed_len = next as u64;
                pending.push_back((next, ops));
            }
            Body::Seal => replay.is_sealed = true,
            Body::Complete { synced, upto } => {
                replay.note_synced(synced, next);
                if upto > at as u64 {
                    return Err(corrupt(
                        at,
                        "the record speaks of more than there is before it",
                    ));
                }
                complete_len = complete_len.max(Some(upto));
                replay.apply(&mut pending, upto);
            }
        }
        at = next;
        replay.good_len = at as u64;
    }
    replay.is_complete = pending.is_empty() && complete_len.is_some();
    match complete_len {
        // Later records may be partly lost.
        Some(complete_len)
            if replay.is_after_power_loss && !replay.is_sealed && !pending.is_empty() =>
        {
            replay.good_len = complete_len;
            replay.synced_len = replay.synced_len.min(complete_len);
            replay.changed_len = replay.changed_len.min(complete_len);
        }
        _ => replay.apply(&mut pending, u64::MAX),
    }
    Ok(replay)
}

/// Remains of a damaged log.
pub(super) struct Remains {
    /// State before the first damaged record.
    pub index: LayerIndex,
    /// Length of the log before that record, in bytes.
    pub good_len: u64,
    /// Changes in intact records after the damage, in order.
    ///
    /// Changes that they build on may be lost.
    pub later: Vec<Op>,
    /// Number of intact records that `index` does not include.
    pub later_records: u64,
}

/// Reads the remains of the log of the layer `id`.
///
/// Any part of the log may be damaged. `boot` is the kernel run of the reader. Like [`replay`], it
/// leaves out records whose contents may be missing after a power failure.
pub(super) fn remains(bytes: &[u8], id: LayerId, boot: BootId) -> Remains {
    let versions = [FORMAT_VERSION, UNBOUND_BODIES];
    let is_first = |version: &u32| {
        bytes.starts_with(&header(*version, id))
            || matches!(
                record_at(bytes, 0, HEADER_LEN, *version, id),
                Found::Record { .. }
            )
    };
    let version = versions
        .into_iter()
        .find(is_first)
        .unwrap_or(FORMAT_VERSION);
    let whole_at = |at: usize| match record_at(bytes, 0, at, version, id) {
        Found::Record { body, next } => decode(body).ok().map(|body| (body, next)),
        Found::Short | Found::Damaged(_) => None,
    };
    let mut replay = Replay {
        version,
        id,
        index: LayerIndex::default(),
        is_sealed: false,
        good_len: 0,
        is_complete: false,
        synced_len: 0,
        changed_len: 0,
        last_boot: None,
        is_after_power_loss: true,
    };
    let mut pending: VecDeque<(usize, Vec<Op>)> = VecDeque::new();
    let mut complete_len: Option<u64> = None;
    let mut at = HEADER_LEN;
    if whole_at(at).is_none() && whole_at(at + OPENED_LEN).is_some() {
        // A log begins with a record without changes.
        at += OPENED_LEN;
    }
    while let Some((body, next)) = whole_at(at) {
        match body {
            Body::Opened { boot: written } => {
                replay.is_after_power_loss = written != boot || boot == UNKNOWN_BOOT;
            }
            Body::Ops { ops, .. } => pending.push_back((next, ops)),
            Body::Complete { upto, .. } if upto <= at as u64 => {
                complete_len = complete_len.max(Some(upto));
            }
            Body::Seal | Body::Complete { .. } => break,
        }
        at = next;
        replay.good_len = at as u64;
    }
    let (mut later, mut later_records) = (Vec::new(), 0);
    let mut offset = at.saturating_add(1);
    while offset < bytes.len() {
        let Some((body, next)) = whole_at(offset) else {
            offset += 1;
            continue;
        };
        later_records += 1;
        match body {
            Body::Ops { ops, .. } => later.extend(ops),
            // It also covers the records before the damage.
            Body::Complete { upto, .. } if upto <= offset as u64 => {
                complete_len = complete_len.max(Some(upto));
            }
            Body::Opened { .. } | Body::Seal | Body::Complete { .. } => {}
        }
        offset = next;
    }
    let upto = complete_len.filter(|_| replay.is_after_power_loss);
    replay.apply(&mut pending, upto.unwrap_or(u64::MAX));
    later_records += pending.len() as u64;
    Remains {
        index: replay.index,
        good_len: replay.good_len,
        later,
        later_records,
    }
}

/// Decodes the changes in `bytes`, which begin at `start` of a log.
///
/// `None` if `bytes` are not whole records.
pub(super) fn steps(bytes: &[u8], start: u64, version: u32, id: LayerId) -> Option<Vec<Vec<Op>>> {
    let mut steps = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let Found::Record { body, next } = record_at(bytes, start, at, version, id) else {
            return None;
        };
        match decode(body).ok()? {
            Body::Ops { ops, .. } => steps.push(ops),
            Body::Opened { .. } | Body::Seal | Body::Complete { .. } => {}
        }
        at = next;
    }
    Some(steps)
}

impl Replay {
    pub(crate) fn is_merged(&self) -> bool {
        self.version == MERGED_VERSION
    }

    /// Updates the synced length from a record that ends at `end`.
    fn note_synced(&mut self, synced: u64, end: usize) {
        self.synced_len = self.synced_len.max(synced.min(end as u64));
    }

    /// Applies the pending changes that end in the first `upto` bytes.
    fn apply(&mut self, pending: &mut VecDeque<(usize, Vec<Op>)>, upto: u64) {
        let mut effects = Effects::default();
        while pending.front().is_some_and(|(end, _)| *end as u64 <= upto) {
            for op in pending.pop_front().into_iter().flat_map(|(_, ops)| ops) {
                self.index.apply(op, &mut effects);
            }
            effects.clear();
        }
    }
}

/// Returns why the damaged record at `at` is not a torn tail.
///
/// `None` if it is a torn tail. Under the kernel run that wrote it (`same_boot`), only the last
/// write can be cut short: anything else is damage. After another run began, any unsynced write may
/// be lost. Then only a record that a later record knows to be synced counts as damaged.
fn damage_at(
    bytes: &[u8],
    at: usize,
    version: u32,
    id: LayerId,
    same_boot: bool,
) -> Option<&'static str> {
    const DAMAGED: &str = "the record is damaged and intact ones follow";
    if same_boot && let Found::Damaged(reason) = record_at(bytes, 0, at, version, id) {
        return Some(reason);
    }
    let mut offset = at + 1;
    while offset < bytes.len() {
        let Found::Record { body, next } = record_at(bytes, 0, offset, version, id) else {
            offset += 1;
            continue;
        };
        match decode(body) {
            Ok(Body::Ops { synced, .. } | Body::Complete { synced, .. })
                if synced <= at as u64 && !same_boot => {}
            Ok(Body::Opened { .. }) if !same_boot => {}
            _ => return Some(DAMAGED),
        }
        offset = next;
    }
    None
}

/// Access to the format for tests and fuzzers of damaged logs.
#[cfg(any(test, fuzzing))]
pub(super) mod testing {
    pub(crate) use super::HEADER_LEN;
    use super::*;

    pub(crate) const BOOT: BootId = [1; 16];
    pub(crate) const OTHER_BOOT: BootId = [2; 16];

    /// A log in memory, written under [`BOOT`].
    pub(crate) struct Bytes {
        pub(crate) bytes: Vec<u8>,
        version: u32,
        id: LayerId,
    }

    impl Bytes {
        pub(crate) fn new(id: LayerId) -> Bytes {
            Bytes::of_version(FORMAT_VERSION, id)
        }

        pub(crate) fn of_version(version: u32, id: LayerId) -> Bytes {
            let bytes = header(version, id).to_vec();
            let mut log = Bytes { bytes, version, id };
            log.push(&BodyRef::Opened { boot: BOOT });
            log.push_ops(usize::MAX, &[]);
            log
        }

        /// Appends a record that says that `synced` bytes were on the disk.
        pub(crate) fn push_ops(&mut self, synced: usize, ops: &[Op]) {
            let synced = synced as u64;
            self.push(&BodyRef::Ops { synced, ops });
        }

        /// Appends a record that says that the first `upto` bytes are complete.
        pub(crate) fn push_complete(&mut self, upto: usize) {
            let upto = upto as u64;
            self.push(&BodyRef::Complete { synced: 0, upto });
        }

        /// Appends a record that says that all before it is synced.
        pub(crate) fn push_synced(&mut self) {
            let upto = self.bytes.len() as u64;
            self.push(&BodyRef::Complete { synced: upto, upto });
        }

        pub(crate) fn push_seal(&mut self) {
            self.push(&BodyRef::Seal);
        }

        fn push(&mut self, body: &BodyRef<'_>) {
            self.push_body(&postcard::to_stdvec(body).unwrap());
        }

        /// Appends a record with right checksums, whatever is in it.
        pub(crate) fn push_body(&mut self, body: &[u8]) {
            let len = body.len() as u32;
            let crc = header_crc(self.id, self.bytes.len() as u64, len);
            for number in [len, crc, body_crc(self.version, crc, body)] {
                self.bytes.extend(number.to_le_bytes());
            }
            self.bytes.extend(body);
        }
    }

    /// Reads a log: its index and the length of its valid part.
    pub(crate) fn read(bytes: &[u8], boot: BootId) -> Result<(LayerIndex, usize), LayerError> {
        let replay = replay(bytes, Path::new("log"), boot)?;
        Ok((replay.index, replay.good_len as usize))
    }
}
