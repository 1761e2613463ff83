//! The FSMN and UNTR extensions of an index that git wrote.
//!
//! FSMN has the entries whose files had not changed at a token, and UNTR the untracked files of
//! each directory. The git library reads only UNTR, and writes neither. The format is described in
//! `gitformat-index(5)`, and in `write_untracked_extension` in git's `dir.c`.

use super::writer::{EXTENDED, encode_bitmap, push_varint};

/// Bytes of an entry before its object id.
const STAT_AND_MODE: usize = 40;
/// Bytes of the stored `stat(2)` of a directory or file.
const STAT: usize = 36;

/// The knowledge of an index about its files at a token.
#[derive(Debug)]
pub(super) struct KnownFiles {
    /// Token that names the state.
    pub token: String,
    /// Dirty bits of the entries, 64 to a word.
    ///
    /// git checks the file of a dirty entry even if no change is reported.
    dirty: Vec<u64>,
    untracked: Untracked,
}

/// The content of an UNTR extension.
#[derive(Debug)]
struct Untracked {
    /// Raw bytes before the number of directories.
    header: Vec<u8>,
    /// Directories, parents first, beginning with the root.
    dirs: Vec<Directory>,
}

#[derive(Debug)]
struct Directory {
    name: Vec<u8>,
    untracked: Vec<Vec<u8>>,
    /// Indices into the list of directories.
    children: Vec<usize>,
    /// Raw `stat(2)`, if the list of untracked files is valid.
    stat: Option<Vec<u8>>,
    is_check_only: bool,
    exclude_id: Option<Vec<u8>>,
}

impl KnownFiles {
    /// Reads the extensions of the index in `bytes`.
    ///
    /// Returns `None` if it lacks one of them, or has an unknown format.
    pub(super) fn read(bytes: &[u8], hash_len: usize) -> Option<KnownFiles> {
        let content = bytes.get(..bytes.len().checked_sub(hash_len)?)?;
        let mut rest = Reader(content);
        if rest.take(4)? != b"DIRC" {
            return None;
        }
        let (version, count) = (rest.u32()?, rest.u32()?);
        for _ in 0..count {
            skip_entry(&mut rest, version, hash_len)?;
        }
        let (mut monitor, mut untracked) = (None, None);
        while !rest.0.is_empty() {
            let signature = rest.take(4)?;
            let len = usize::try_from(rest.u32()?).ok()?;
            let extension = rest.take(len)?;
            match signature {
                b"FSMN" => monitor = Some(read_monitor(extension, count)?),
                b"UNTR" => untracked = Some(Untracked::read(extension, hash_len)?),
                // A required extension: a part of the index is elsewhere.
                [b'a'..=b'z', ..] => return None,
                _ => {}
            }
        }
        let (token, dirty) = monitor?;
        Some(KnownFiles {
            token,
            dirty,
            untracked: untracked?,
        })
    }

    /// Returns whether git must check the file of this entry.
    ///
    /// `entry` counts in the index that was read.
    pub(super) fn is_dirty(&self, entry: usize) -> bool {
        self.dirty
            .get(entry / 64)
            .is_none_or(|word| word >> (entry % 64) & 1 == 1)
    }

    /// Makes git list the directories above `path` again.
    ///
    /// The path was added to the index or removed from it.
    pub(super) fn invalidate(&mut self, path: &[u8]) {
        let mut at = 0;
        let mut components = path.split(|byte| *byte == b'/').peekable();
        while let Some(component) = components.next() {
            let Some(dir) = self.untracked.dirs.get_mut(at) else {
                return;
            };
            dir.stat = None;
            dir.is_check_only = false;
            dir.untracked.clear();
            if components.peek().is_none() {
                return;
            }
            let children = dir.children.clone();
            let named = |child: &usize| {
                let child = self.untracked.dirs.get(*child);
                child.is_some_and(|child| child.name == component)
            };
            match children.into_iter().find(named) {
                Some(child) => at = child,
                None => return,
            }
        }
    }

    /// Encodes the UNTR extension.
    pub(super) fn encode_untracked(&self) -> Vec<u8> {
        let Untracked { header, dirs } = &self.untracked;
        let mut encoded = header.clone();
        push_varint(&mut encoded, dirs.len());
        let mut bits = [(); 3].map(|()| vec![0_u64; dirs.len().div_ceil(64)]);
        let (mut stats, mut ids) = (Vec::new(), Vec::new());
        for (number, dir) in dirs.iter().enumerate() {
            push_varint(&mut encoded, dir.untracked.len());
            push_varint(&mut encoded, dir.children.len());
            for name in std::iter::once(&dir.name).chain(&dir.untracked) {
                encoded.extend_from_slice(name);
                encoded.push(0);
            }
            stats.extend_from_slice(dir.stat.as_deref().unwrap_or_default());
            ids.extend_from_slice(dir.exclude_id.as_deref().unwrap_or_default());
            let set = [
                dir.stat.is_some(),
                dir.is_check_only,
                dir.exclude_id.is_some(),
            ];
            for (words, is_set) in bits.iter_mut().zip(set) {
                if let Some(word) = words.get_mut(number / 64) {
                    *word |= u64::from(is_set) << (number % 64);
                }
            }
        }
        for words in bits {
            let set = words
                .iter()
                .rposition(|word| *word != 0)
                .map_or(0, |last| last + 1);
            encoded.extend_from_slice(&encode_bitmap(
                dirs.len() as u32,
                words.get(..set).unwrap_or_default(),
            ));
        }
        encoded.extend_from_slice(&stats);
        encoded.extend_from_slice(&ids);
        encoded.push(0);
        encoded
    }
}

impl Untracked {
    fn read(extension: &[u8], hash_len: usize) -> Option<Untracked> {
        let mut rest = Reader(extension);
        let ident_len = rest.varint()?;
        rest.take(ident_len)?;
        // Stats, flags and ids of .git/info/exclude and core.excludesFile.
        rest.take(2 * STAT + 4 + 2 * hash_len)?;
        rest.until_nul()?;
        let header = extension.get(..extension.len() - rest.0.len())?.to_vec();
        let count = rest.varint()?;
        if count == 0 || count > rest.0.len() {
            return None;
        }
        let mut dirs: Vec<Directory> = Vec::with_capacity(count);
        // Directories with children left to read, and their number.
        let mut open: Vec<(usize, usize)> = Vec::new();
        while dirs.len() < count {
            let (untracked_count, child_count) = (rest.varint()?, rest.varint()?);
            if untracked_count > rest.0.len() || child_count > count {
                return None;
            }
            let number = dirs.len();
            dirs.push(Directory {
                name: rest.until_nul()?.to_vec(),
                untracked: (0..untracked_count)
                    .map(|_| Some(rest.until_nul()?.to_vec()))
                    .collect::<Option<_>>()?,
                children: Vec::with_capacity(child_count),
                stat: None,
                is_check_only: false,
                exclude_id: None,
            });
            while open.last().is_some_and(|(_, left)| *left == 0) {
                open.pop();
            }
            match open.last_mut() {
                Some((parent, left)) => {
                    *left -= 1;
                    dirs.get_mut(*parent)?.children.push(number);
                }
                None if number > 0 => return None,
                None => {}
            }
            open.push((number, child_count));
        }
        if open.iter().any(|(_, left)| *left > 0) {
            return None;
        }
        let count = u32::try_from(count).ok()?;
        let valid = rest.bitmap(count)?;
        let check_only = rest.bitmap(count)?;
        let with_exclude = rest.bitmap(count)?;
        let is_set = |words: &[u64], bit: usize| {
            words
                .get(bit / 64)
                .is_some_and(|word| word >> (bit % 64) & 1 == 1)
        };
        for (number, dir) in dirs.iter_mut().enumerate() {
            dir.is_check_only = is_set(&check_only, number);
            if is_set(&valid, number) {
                dir.stat = Some(rest.take(STAT)?.to_vec());
            }
        }
        for (number, dir) in dirs.iter_mut().enumerate() {
            if is_set(&with_exclude, number) {
                dir.exclude_id = Some(rest.take(hash_len)?.to_vec());
            }
        }
        (rest.0 == [0]).then_some(Untracked { header, dirs })
    }
}

/// Reads the token and the bitmap of an FSMN extension.
fn read_monitor(extension: &[u8], count: u32) -> Option<(String, Vec<u64>)> {
    let mut rest = Reader(extension);
    if rest.u32()? != 2 {
        return None;
    }
    let token = String::from_utf8(rest.until_nul()?.to_vec()).ok()?;
    rest.u32()?;
    let mut dirty = rest.bitmap(count)?;
    dirty.resize((count as usize).div_ceil(64), 0);
    Some((token, dirty))
}

fn skip_entry(rest: &mut Reader<'_>, version: u32, hash_len: usize) -> Option<()> {
    let before = rest.0.len();
    rest.take(STAT_AND_MODE + hash_len)?;
    if rest.u16()? & EXTENDED != 0 {
        rest.u16()?;
    }
    if version == 4 {
        rest.varint()?;
        rest.until_nul()?;
        return Some(());
    }
    rest.until_nul()?;
    // One to eight NULs pad the entry to a multiple of eight. One of them was read.
    let len = before - rest.0.len();
    rest.take(len.next_multiple_of(8) - len)?;
    Some(())
}

/// The bytes that are left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn until_nul(&mut self) -> Option<&'a [u8]> {
        let len = self.0.iter().position(|byte| *byte == 0)?;
        let taken = self.take(len)?;
        self.take(1)?;
        Some(taken)
    }

    /// Reads an integer, as `decode_varint` in git's `varint.c`.
    fn varint(&mut self) -> Option<usize> {
        let mut byte = *self.take(1)?.first()?;
        let mut value = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = *self.take(1)?.first()?;
            value = value.checked_add(1)?.checked_mul(128)? | usize::from(byte & 0x7f);
        }
        Some(value)
    }

    /// Reads an EWAH bitmap of at most `max_bits` bits: see [`encode_bitmap`].
    fn bitmap(&mut self, max_bits: u32) -> Option<Vec<u64>> {
        let (bits, word_count) = (self.u32()?, self.u32()?);
        if bits > max_bits {
            return None;
        }
        let most = (bits as usize).div_ceil(64);
        let mut words: Vec<u64> = Vec::with_capacity(most);
        let mut left = word_count;
        while left > 0 {
            let marker = self.u64()?;
            let run = usize::try_from(marker >> 1 & 0xffff_ffff).ok()?;
            let literals = u32::try_from(marker >> 33).ok()?;
            if run > most - words.len() {
                return None;
            }
            words.resize(
                words.len() + run,
                if marker & 1 == 1 { u64::MAX } else { 0 },
            );
            left = left.checked_sub(1)?.checked_sub(literals)?;
            for _ in 0..literals {
                words.push(self.u64()?);
            }
            if words.len() > most {
                return None;
            }
        }
        // Skip the place of the last marker.
        self.u32()?;
        Some(words)
    }
}
