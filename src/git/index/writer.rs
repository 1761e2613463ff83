//! Encoder of an index in version 4, with extensions.
//!
//! Version 4 compresses paths by their common prefix. The TREE extension is always written, the
//! FSMN extension if changes can be tracked, and the UNTR extension if the old index had one. The
//! git library reads every index, but writes neither version 4 nor these extensions. The format is
//! described in `gitformat-index(5)`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gix::ObjectId;

use crate::checksum::Checksum;
use crate::{GitError, TreeEntryKind};
use tine_attr::{Attr, Timestamp};

/// Flag bit that announces a second pair of flag bytes.
pub(super) const EXTENDED: u16 = 0x4000;
/// Bit of the second pair of flag bytes.
const SKIP_WORKTREE: u16 = 0x4000;
/// Bit of the second pair of flag bytes.
const INTENT_TO_ADD: u16 = 0x2000;
/// Flag bits for the path's length, up to this maximum.
const PATH_LEN_MASK: u16 = 0x0fff;

/// The `stat(2)` fields of an index entry.
///
/// If all are zero, git compares the file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct EntryStat {
    /// Change time in seconds and nanoseconds.
    pub ctime: (u32, u32),
    /// Modification time in seconds and nanoseconds.
    pub mtime: (u32, u32),
    /// Device number, which git does not compare by default.
    pub dev: u32,
    /// Low half of the inode number.
    pub ino: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size from [`index_size`].
    pub size: u32,
}

impl EntryStat {
    /// Returns the fields that git would store for a node with `attr`.
    ///
    /// The device is left out: git compares it only with a build option.
    pub(super) fn of(attr: &Attr) -> EntryStat {
        EntryStat {
            ctime: index_time(attr.ctime),
            mtime: index_time(attr.mtime),
            dev: 0,
            ino: attr.ino.0 as u32,
            uid: attr.uid,
            gid: attr.gid,
            size: index_size(attr.size),
        }
    }
}

/// Converts a time. Seconds wrap at 2³², as in git.
pub(super) fn index_time(time: Timestamp) -> (u32, u32) {
    (time.secs as u32, time.nanos)
}

/// Converts a size, which wraps at 4 GiB.
///
/// A nonempty file never gets size 0, which would make git read its content (`munge_st_size` in
/// git's `statinfo.c`).
pub(super) fn index_size(size: u64) -> u32 {
    match size as u32 {
        0 if size > 0 => 0x8000_0000,
        low => low,
    }
}

/// The flags of an entry on disk, without stage and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct EntryFlags {
    /// True if git assumes that the file is unchanged.
    pub is_assumed_valid: bool,
    /// True if the checkout leaves the file out.
    pub is_skip_worktree: bool,
    /// True if the entry has no content yet (`git add -N`).
    pub is_intent_to_add: bool,
}

/// A node of the TREE extension: a directory with its tree object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CachedTree {
    /// Last component of the path; empty for the root.
    pub name: Vec<u8>,
    /// Id of the tree object.
    pub id: ObjectId,
    /// Number of entries under it, at any depth.
    ///
    /// It is `None` if some of them do not belong in a tree. git then writes the tree again.
    pub entry_count: Option<u32>,
    /// Subdirectories.
    pub children: Vec<CachedTree>,
}

/// Encoder for entries in the order of their paths.
pub(super) struct Encoder {
    hash_kind: gix::hash::Kind,
    encoded: Vec<u8>,
    count: u32,
    previous_path: Vec<u8>,
    /// Dirty bits of the entries, 64 to a word.
    ///
    /// git checks the file of a dirty entry even if no change is reported.
    dirty: Vec<u64>,
}

impl Encoder {
    /// Creates an encoder for about `expected_count` entries.
    pub(super) fn new(hash_kind: gix::hash::Kind, expected_count: usize) -> Encoder {
        let mut encoded =
            Vec::with_capacity(expected_count.saturating_mul(80 + hash_kind.len_in_bytes()));
        encoded.extend_from_slice(b"DIRC\0\0\0\x04");
        // Placeholder for the number of entries.
        encoded.extend_from_slice(&[0; 4]);
        Encoder {
            hash_kind,
            encoded,
            count: 0,
            previous_path: Vec::new(),
            dirty: Vec::new(),
        }
    }

    /// Returns the number of entries so far.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Appends the entry at `path`, which must sort after the previous one.
    pub(super) fn push(
        &mut self,
        path: &[u8],
        kind: TreeEntryKind,
        id: ObjectId,
        stat: &EntryStat,
        flags: EntryFlags,
    ) {
        debug_assert!(self.count == 0 || self.previous_path.as_slice() < path);
        let words = [
            stat.ctime.0,
            stat.ctime.1,
            stat.mtime.0,
            stat.mtime.1,
            stat.dev,
            stat.ino,
            kind.mode(),
            stat.uid,
            stat.gid,
            stat.size,
        ];
        for word in words {
            self.encoded.extend_from_slice(&word.to_be_bytes());
        }
        self.encoded.extend_from_slice(id.as_slice());
        let mut low_flags =
            u16::try_from(path.len()).map_or(PATH_LEN_MASK, |len| len.min(PATH_LEN_MASK));
        low_flags |= u16::from(flags.is_assumed_valid) << 15;
        let mut high_flags = 0;
        if flags.is_skip_worktree {
            high_flags |= SKIP_WORKTREE;
        }
        if flags.is_intent_to_add {
            high_flags |= INTENT_TO_ADD;
        }
        if high_flags != 0 {
            self.encoded
                .extend_from_slice(&(low_flags | EXTENDED).to_be_bytes());
            self.encoded.extend_from_slice(&high_flags.to_be_bytes());
        } else {
            self.encoded.extend_from_slice(&low_flags.to_be_bytes());
        }
        let common = common_prefix_len(&self.previous_path, path);
        push_varint(&mut self.encoded, self.previous_path.len() - common);
        self.encoded.extend_from_slice(&path[common..]);
        self.encoded.push(0);
        self.previous_path.truncate(common);
        self.previous_path.extend_from_slice(&path[common..]);
        self.count += 1;
    }

    /// Marks the last entry as dirty, so that git checks its file.
    pub(super) fn mark_dirty(&mut self) {
        let Some(last) = self.count.checked_sub(1) else {
            return;
        };
        let word = last as usize / 64;
        if self.dirty.len() <= word {
            self.dirty.resize(word + 1, 0);
        }
        self.dirty[word] |= 1 << (last % 64);
    }

    /// Completes the index with its extensions and the hash at its end.
    ///
    /// It always has a TREE extension. With `token` it has an FSMN extension: the files of all
    /// entries that are not dirty match their entries, unless they changed after the token. With
    /// `untracked` it has an UNTR extension, which must be of the same state.
    pub(super) fn finish(
        mut self,
        tree: &CachedTree,
        token: Option<&str>,
        untracked: Option<&[u8]>,
    ) -> Result<Vec<u8>, GitError> {
        self.encoded[8..12].copy_from_slice(&self.count.to_be_bytes());
        let mut extension = Vec::new();
        encode_tree(tree, &mut extension);
        self.push_extension(b"TREE", &extension)?;
        if let Some(untracked) = untracked {
            self.push_extension(b"UNTR", untracked)?;
        }
        if let Some(token) = token {
            let bits = encode_bitmap(self.count, &self.dirty);
            let bits_len =
                u32::try_from(bits.len()).map_err(GitError::library("write the index"))?;
            let mut extension = 2u32.to_be_bytes().to_vec();
            extension.extend_from_slice(token.as_bytes());
            extension.push(0);
            extension.extend_from_slice(&bits_len.to_be_bytes());
            extension.extend_from_slice(&bits);
            self.push_extension(b"FSMN", &extension)?;
        }
        let mut checksum = Checksum::new(self.hash_kind);
        checksum.update(&self.encoded);
        self.encoded
            .extend_from_slice(checksum.finish()?.as_slice());
        Ok(self.encoded)
    }

    fn push_extension(&mut self, signature: &[u8; 4], extension: &[u8]) -> Result<(), GitError> {
        let len = u32::try_from(extension.len()).map_err(GitError::library("write the index"))?;
        self.encoded.extend_from_slice(signature);
        self.encoded.extend_from_slice(&len.to_be_bytes());
        self.encoded.extend_from_slice(extension);
        Ok(())
    }
}

/// Encodes a bitmap of `bit_count` bits in EWAH form.
///
/// It consists of the numbers of bits and words, then markers, each with a number of zero words and
/// of the literal words that follow it, then the place of the last marker (`gitformat-bitmap(5)`,
/// appendix A). Bits past the end of `words` are 0.
pub(super) fn encode_bitmap(bit_count: u32, words: &[u64]) -> Vec<u8> {
    const ZEROES_SHIFT: u32 = 1;
    const LITERALS_SHIFT: u32 = 33;
    let mut encoded: Vec<u64> = Vec::new();
    let mut rest = words;
    let last_marker = loop {
        let zeroes = rest.iter().take_while(|word| **word == 0).count();
        let literals = rest[zeroes..].iter().take_while(|word| **word != 0).count();
        let marker = encoded.len();
        encoded.push((zeroes as u64) << ZEROES_SHIFT | (literals as u64) << LITERALS_SHIFT);
        encoded.extend_from_slice(&rest[zeroes..zeroes + literals]);
        rest = &rest[zeroes + literals..];
        if rest.is_empty() {
            break marker;
        }
    };
    let bit_count = bit_count.min(words.len() as u32 * 64);
    let mut bytes = Vec::with_capacity(12 + encoded.len() * 8);
    bytes.extend_from_slice(&bit_count.to_be_bytes());
    bytes.extend_from_slice(&(encoded.len() as u32).to_be_bytes());
    for word in &encoded {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(&(last_marker as u32).to_be_bytes());
    bytes
}

fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Appends an integer in git's variable-width encoding.
///
/// Each byte has seven bits, the highest first, and each continuation adds one (`encode_varint` in
/// `varint.c`).
pub(super) fn push_varint(to: &mut Vec<u8>, mut value: usize) {
    let mut bytes = [0; 10];
    let mut start = bytes.len() - 1;
    bytes[start] = (value & 0x7f) as u8;
    value >>= 7;
    while value > 0 {
        value -= 1;
        start -= 1;
        bytes[start] = 0x80 | (value & 0x7f) as u8;
        value >>= 7;
    }
    to.extend_from_slice(&bytes[start..]);
}

fn encode_tree(tree: &CachedTree, to: &mut Vec<u8>) {
    to.extend_from_slice(&tree.name);
    match tree.entry_count {
        Some(count) => {
            to.extend_from_slice(format!("\0{count} {}\n", tree.children.len()).as_bytes());
            to.extend_from_slice(tree.id.as_slice());
        }
        None => to.extend_from_slice(format!("\0-1 {}\n", tree.children.len()).as_bytes()),
    }
    // git sorts children by length first (`subtree_name_cmp`), and reads them fastest in that
    // order.
    let mut children: Vec<&CachedTree> = tree.children.iter().collect();
    children.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    for child in children {
        encode_tree(child, to);
    }
}

/// Writes a file under another name, and renames it into place.
pub(super) fn replace_file(to: &Path, content: &[u8]) -> Result<(), GitError> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".new-{}-{number}", std::process::id()));
    let new_path = PathBuf::from(name);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&new_path)
        .and_then(|mut file| file.write_all(content))
        .map_err(GitError::io("write", &new_path))
        .and_then(|()| fs::rename(&new_path, to).map_err(GitError::io("replace", to)));
    if written.is_err() {
        let _ = fs::remove_file(&new_path);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_those_of_git() {
        for (value, expected) in [
            (0, vec![0]),
            (127, vec![0x7f]),
            (128, vec![0x80, 0x00]),
            (16_511, vec![0xff, 0x7f]),
            (16_512, vec![0x80, 0x80, 0x00]),
        ] {
            let mut encoded = Vec::new();
            push_varint(&mut encoded, value);
            assert_eq!(encoded, expected, "{value}");
        }
    }

    #[test]
    fn sizes_of_whole_gigabytes_are_not_taken_for_empty() {
        assert_eq!(index_size(0), 0);
        assert_eq!(index_size(5), 5);
        assert_eq!(index_size(4 << 30), 0x8000_0000);
        assert_eq!(index_size((4 << 30) + 7), 7);
    }
}
