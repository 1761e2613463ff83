//! Positions in a log, and the records since a position.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

use super::{LayerId, Op, record};

/// Position in a log, valid until the log is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// Random number of the open log.
    pub instance: u64,
    /// Length of the log at this position, in bytes.
    pub len: u64,
    /// Hash of the log up to this position.
    ///
    /// `None` if that is too long. A log that begins with the same bytes has the same state at this
    /// position, no matter which process opened it.
    pub prefix: Option<u64>,
}

/// Maximum length to hash or to read changes from, in bytes.
pub(super) const READ_MAX: u64 = 4 << 20;

/// Records between two positions.
///
/// They can be read while the log grows.
pub(super) struct LogTail {
    pub file: Arc<File>,
    /// Version of the format.
    pub version: u32,
    pub id: LayerId,
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

impl LogTail {
    /// Decodes the changes.
    ///
    /// `None` if the tail does not begin with a record or cannot be read.
    pub(crate) fn read(&self) -> Option<Vec<Vec<Op>>> {
        let bytes = read(&self.file, self.start, self.len)?;
        record::steps(&bytes, self.start, self.version, self.id)
    }
}

impl LogPosition {
    /// Returns true if the log in `file` began like this.
    ///
    /// `file` must be long enough.
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

/// Incremental hash of the beginning of a log.
///
/// It hashes each byte once.
#[derive(Default)]
pub(super) struct PrefixHash {
    /// Number of hashed bytes, and the state of the hash.
    hashed: Mutex<(u64, SipHasher13)>,
}

impl PrefixHash {
    /// Returns the hash of the first `len` bytes of the log.
    ///
    /// `None` if there are too many or they cannot be read. `len` must not decrease.
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

/// Draws a number that no other log has.
///
/// The keys of [`RandomState`] come from the kernel.
pub(super) fn draw_instance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
