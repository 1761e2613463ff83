//! A base's cached index, adapted to the times of one fork.
//!
//! The cached index differs between the forks of a base only in the times of its entries. These
//! fields have a fixed size. One pass over the entries patches them in place, and then the hash at
//! the end is recomputed. This is linear in the size of the index, and reads no objects.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::writer::{EXTENDED, index_time};
use crate::checksum::Checksum;
use crate::{GitError, TreeEntryKind};
use tine_attr::Timestamp;

/// Bytes before the first entry.
const HEADER_LEN: usize = 12;
/// Bytes of an entry before its object id.
const STAT_LEN: usize = 40;

/// The times of a fork's files.
pub struct Stamp<'a> {
    /// Change time of every file.
    pub changed: Timestamp,
    /// Function from a path to the file's modification time.
    pub modified: &'a dyn Fn(&[u8]) -> Timestamp,
    /// Latest of all times.
    pub latest: Timestamp,
}

/// Writes the cached index to `to`, with the times of `stamp`.
///
/// [`write_base_index`](super::write_base_index) wrote `cached`. The new file's mtime is in a
/// later second than its latest entry, because git reads the content of files that are not older
/// than the index (`is_racy_timestamp` in its read-cache.c).
///
/// # Errors
/// [`GitError::Io`] if a file cannot be read or written, or `cached` is not such an index.
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

/// Patches all entries of a version 4 index.
///
/// Returns `None` if it is truncated or of another version.
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
        // git compares no times of a submodule.
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

/// Reads the output of [`push_varint`](super::writer::push_varint), and advances `at`.
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
