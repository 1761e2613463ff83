//! A base's cached index with the times of one fork.
//!
//! The cached index is the same for all forks of a base but for the times of its entries. Those
//! fields have a fixed size, so the entries are walked once, patched in place, and the hash at the
//! end is made again: linear in the index, with no object read.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::writer::{EXTENDED, index_time};
use crate::checksum::Checksum;
use crate::{GitError, TreeEntryKind};
use tine_attr::Timestamp;

/// Bytes before the first entry, and of an entry before its object id.
const HEADER_LEN: usize = 12;
const STAT_LEN: usize = 40;

/// The times that a fork's files have.
pub struct Stamp<'a> {
    /// Change time of every file.
    pub changed: Timestamp,
    /// Modification time of the file at a path.
    pub modified: &'a dyn Fn(&[u8]) -> Timestamp,
    /// The latest of all times.
    pub latest: Timestamp,
}

/// Writes to `to` the index at `cached`, which [`write_base_index`](super::write_base_index) wrote,
/// with the times of `stamp`.
///
/// The new file is dated into the second after the latest of its entries: git reads the content of
/// a file that is not older than the index (`is_racy_timestamp` in its read-cache.c).
///
/// # Errors
/// [`GitError::Io`] where a file cannot be read or written, or `cached` is not such an index.
pub fn write_stamped_index(
    cached: &Path,
    hash_kind: gix::hash::Kind,
    stamp: &Stamp<'_>,
    to: &Path,
) -> Result<(), GitError> {
    let mut index = tine_sys::file::read(cached).map_err(GitError::io("read", cached))?;
    stamp_entries(&mut index, hash_kind, stamp).ok_or_else(|| {
        let damaged =
            std::io::Error::new(ErrorKind::InvalidData, "it is not an index of version 4");
        GitError::io("read", cached)(damaged)
    })?;
    let end = index.len().saturating_sub(hash_kind.len_in_bytes());
    let mut checksum = Checksum::new(hash_kind);
    checksum.update(index.get(..end).unwrap_or_default());
    let hash = checksum.finish()?;
    if let Some(trailer) = index.get_mut(end..) {
        trailer.copy_from_slice(hash.as_slice());
    }
    let written = File::create(to).and_then(|mut file| {
        file.write_all(&index)?;
        file.set_modified(second_after(stamp.latest))
    });
    written.map_err(GitError::io("write", to))
}

fn second_after(time: Timestamp) -> SystemTime {
    let secs = u64::try_from(time.secs).unwrap_or(0).saturating_add(1);
    let after = UNIX_EPOCH.checked_add(Duration::from_secs(secs));
    after.map_or_else(SystemTime::now, |after| after.max(SystemTime::now()))
}

/// Patches all entries of a version 4 index; `None` where it is cut off or of another version.
fn stamp_entries(index: &mut [u8], hash_kind: gix::hash::Kind, stamp: &Stamp<'_>) -> Option<()> {
    let (version, count) = (word(index, 4)?, word(index, 8)?);
    if version != 4 {
        return None;
    }
    let changed = index_time(stamp.changed);
    let flags_at = STAT_LEN + hash_kind.len_in_bytes();
    let mut path: Vec<u8> = Vec::new();
    let mut at = HEADER_LEN;
    for _ in 0..count {
        let flags = u16::from_be_bytes(index.get(at + flags_at..)?.first_chunk().copied()?);
        let mut name_at = at + flags_at + if flags & EXTENDED == 0 { 2 } else { 4 };
        let stripped = read_varint(index, &mut name_at)?;
        let name_len = index.get(name_at..)?.iter().position(|byte| *byte == 0)?;
        path.truncate(path.len().checked_sub(stripped)?);
        path.extend_from_slice(index.get(name_at..name_at + name_len)?);
        // Of a submodule git compares no times.
        if word(index, at + 24)? != TreeEntryKind::Submodule.mode() {
            let modified = index_time((stamp.modified)(&path));
            let times = [changed.0, changed.1, modified.0, modified.1].map(u32::to_be_bytes);
            index
                .get_mut(at..at + 16)?
                .copy_from_slice(times.as_flattened());
        }
        at = name_at + name_len + 1;
    }
    Some(())
}

fn word(index: &[u8], at: usize) -> Option<u32> {
    index
        .get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes))
}

/// Reads what [`push_varint`](super::writer::push_varint) writes, and moves `at` behind it.
fn read_varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0usize;
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value = value.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?.checked_mul(0x80)?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::writer::push_varint;
    use super::*;

    #[test]
    fn varints_are_read_as_they_are_written() {
        for value in [0, 1, 127, 128, 300, 16_511, 16_512, 70_000, 1 << 30] {
            let mut bytes = vec![9];
            push_varint(&mut bytes, value);
            let mut at = 1;
            assert_eq!(read_varint(&bytes, &mut at), Some(value));
            assert_eq!(at, bytes.len());
        }
    }
}
