//! Encoding an index: version 4 (paths compressed by their common prefix) with a TREE extension
//! and, where somebody can tell what changed, an FSMN extension and perhaps an UNTR extension.
//!
//! The git library reads every index but writes neither version 4 nor extensions that fit. Format:
//! `gitformat-index(5)`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gix::ObjectId;

use crate::checksum::Checksum;
use crate::{GitError, TreeEntryKind};
use tine_attr::{Attr, Timestamp};

/// Set in an entry's flags where a second pair of flag bytes follows.
pub(super) const EXTENDED: u16 = 0x4000;
/// In the second pair.
const SKIP_WORKTREE: u16 = 0x4000;
const INTENT_TO_ADD: u16 = 0x2000;
/// The bits of an entry's flags that hold the path's length, or that it is longer.
const PATH_LEN_MASK: u16 = 0x0fff;

/// What the index remembers of a file's `stat(2)`. All zero: git compares the file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct EntryStat {
    /// Seconds and nanoseconds, as for `mtime`.
    pub ctime: (u32, u32),
    pub mtime: (u32, u32),
    pub dev: u32,
    pub ino: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u32,
}

impl EntryStat {
    /// What git would remember of a node with `attr`. The device is left out: git does not compare
    /// it unless built to.
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

/// Seconds wrap at 2³², as in git.
pub(super) fn index_time(time: Timestamp) -> (u32, u32) {
    (time.secs as u32, time.nanos)
}

/// Sizes wrap at 4 GiB, but a file that is not empty never gets size 0, which would mean "look at
/// the content" (`munge_st_size` in git's `statinfo.c`).
pub(super) fn index_size(size: u64) -> u32 {
    match size as u32 {
        0 if size > 0 => 0x8000_0000,
        low => low,
    }
}

/// Flags of an entry that git keeps on disk, beyond stage and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct EntryFlags {
    pub is_assumed_valid: bool,
    pub is_skip_worktree: bool,
    /// The entry stands for no content: its path is to be added (`git add -N`).
    pub is_intent_to_add: bool,
}

/// A node of the TREE extension: a directory of the index and the tree object that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CachedTree {
    /// The last component; empty for the root.
    pub name: Vec<u8>,
    pub id: ObjectId,
    /// Entries beneath it, at any depth. `None` where some of them are no part of a tree: git then
    /// makes the tree anew.
    pub entry_count: Option<u32>,
    pub children: Vec<CachedTree>,
}

/// Encodes entries one by one, in the order of their paths.
pub(super) struct Encoder {
    hash_kind: gix::hash::Kind,
    encoded: Vec<u8>,
    count: u32,
    previous_path: Vec<u8>,
    /// For each entry, whether git has to look at the file whatever it is told of changes; 64 to a
    /// word.
    dirty: Vec<u64>,
}

impl Encoder {
    /// `expected_count` entries will come, more or less.
    pub(super) fn new(hash_kind: gix::hash::Kind, expected_count: usize) -> Encoder {
        let mut encoded =
            Vec::with_capacity(expected_count.saturating_mul(80 + hash_kind.len_in_bytes()));
        encoded.extend_from_slice(b"DIRC\0\0\0\x04");
        // The number of entries, known at the end.
        encoded.extend_from_slice(&[0; 4]);
        Encoder {
            hash_kind,
            encoded,
            count: 0,
            previous_path: Vec::new(),
            dirty: Vec::new(),
        }
    }

    /// How many entries there are so far.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Appends the entry at `path`, which must sort behind the one before.
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

    /// Has git look at the file of the entry that was pushed last, whatever it is told of changes.
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

    /// The whole index, with its TREE extension and the hash at its end; with `token` also an FSMN
    /// extension, which says that the files of all entries that are not dirty are as their entries,
    /// as far as they did not change since then; with `untracked` an UNTR extension, which must be
    /// of the same state.
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

/// A bitmap of `bit_count` bits in EWAH form (`gitformat-bitmap(5)`, appendix A): how many bits and
/// words, then markers, each with a number of words of zeroes and of words that follow as they are,
/// then the place of the last marker. Bits that `words` has not are 0.
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

/// git's variable-width integers: seven bits a byte, the highest first, each continuation standing
/// for one more than its bits (`encode_varint` in `varint.c`).
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
    // git keeps children by length first (`subtree_name_cmp`), and reads them fastest in that
    // order.
    let mut children: Vec<&CachedTree> = tree.children.iter().collect();
    children.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    for child in children {
        encode_tree(child, to);
    }
}

/// Writes a file as a whole: under another name beside it, then renamed.
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
