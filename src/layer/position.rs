//! Moments in the life of a log, and what was written since.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

use super::{LayerId, Op, record};

/// A moment in the life of a log, until it is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    pub instance: u64,
    /// Bytes.
    pub len: u64,
    /// A hash of these bytes, where they are not too many: a log that begins with the same ones
    /// says the same of that moment, whoever opened it.
    pub prefix: Option<u64>,
}

/// Past this many bytes of a log nobody hashes or looks at each change any more.
pub(super) const READ_MAX: u64 = 4 << 20;

/// What was written between two moments. It can be read while the log is written further.
pub(super) struct LogTail {
    pub file: Arc<File>,
    /// The format's.
    pub version: u32,
    pub id: LayerId,
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

impl LogTail {
    /// The steps in it; `None` where it does not begin with a record or cannot be read.
    pub(crate) fn read(&self) -> Option<Vec<Vec<Op>>> {
        let bytes = read(&self.file, self.start, self.len)?;
        record::steps(&bytes, self.start, self.version, self.id)
    }
}

impl LogPosition {
    /// Whether the log in `file`, which is long enough, began like that.
    pub(super) fn is_in(&self, file: &File) -> bool {
        let Some(prefix) = self.prefix.filter(|_| self.len <= READ_MAX) else {
            return false;
        };
        read(file, 0, self.len).is_some_and(|bytes| {
            let mut hasher = SipHasher13::new();
            hasher.write(&bytes);
            hasher.finish() == prefix
        })
    }
}

/// Hashes a log's beginning, each byte once.
#[derive(Default)]
pub(super) struct PrefixHash {
    /// How many bytes were hashed, and their hash in the making.
    hashed: Mutex<(u64, SipHasher13)>,
}

impl PrefixHash {
    /// The hash of the first `len` bytes of the log in `file`; `None` where they are too many, or
    /// cannot be read. `len` never becomes less.
    pub(crate) fn hash(&self, file: &File, len: u64) -> Option<u64> {
        let mut hashed = self.hashed.lock();
        let (hashed_len, hasher) = &mut *hashed;
        if len > READ_MAX {
            return None;
        }
        hasher.write(&read(file, *hashed_len, len.checked_sub(*hashed_len)?)?);
        *hashed_len = len;
        Some(hasher.finish())
    }
}

fn read(file: &File, start: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// A number that no other log has: the keys of [`RandomState`] come from the kernel.
pub(super) fn draw_instance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
