//! Generations: states of a dependency tree of the main checkout, kept in the store.
//!
//! A generation is immutable and shared by all forks whose records name it. Its files are stored
//! one after another in one file, the *pack*. The *manifest* has the attributes that each had in
//! the main checkout, including inode number and ctime. So a fork that switches from the main
//! checkout to a generation of the same tree sees the same versions of files, with the same inode
//! numbers.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::changed_in_tree;
use super::tree::{ListedFile, TreeListing, split};
use tine_attr::{FileKind, Timestamp};
use tine_layer::FileVersion;
use tine_path::EntryName;
use tine_sys::beneath::HostStat;
use tine_sys::file;

/// Name of the file with the contents of a generation's files.
pub const PACK: &str = "pack";
/// Name of the file with the [`TreeListing`] of a generation.
pub const MANIFEST: &str = "manifest";
/// Name of the file with checksums of the files, in manifest order.
///
/// Generations of earlier versions have none.
pub const SUMS: &str = "sums";
/// Name of the file with the [`GenerationSummary`].
///
/// It is read to detect that the main checkout's tree has changed.
pub const SUMMARY: &str = "summary";

/// Number of bytes read at once for a checksum.
pub const SUM_BUFFER: usize = 64 << 10;

/// Hash that names a generation or [arrivals](super::arrivals).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GenerationId(String);

impl GenerationId {
    pub(super) fn of(hash: [u8; 20]) -> GenerationId {
        GenerationId(hash.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the hash in hex.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<GenerationId> for String {
    fn from(id: GenerationId) -> String {
        id.0
    }
}

impl TryFrom<String> for GenerationId {
    type Error = String;

    fn try_from(hex: String) -> Result<GenerationId, String> {
        if hex.len() == 40 && hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            Ok(GenerationId(hex))
        } else {
            Err(format!("{hex:?} is not the name of a generation"))
        }
    }
}

/// Facts about a generation that a listing of forks needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationSummary {
    /// Number of files.
    pub files: u64,
    /// Length of the pack, in bytes.
    pub bytes: u64,
    /// Directories and files that reveal a change of the tree.
    pub landmarks: Vec<super::tree::Landmark>,
}

/// File, directory or symlink of a generation.
pub(super) struct KeptNode {
    name: EntryName,
    pub stat: HostStat,
    target: Option<Box<[u8]>>,
    offset: u64,
}

/// Open generation.
pub struct Generation {
    /// Name of the generation.
    pub id: GenerationId,
    pack: File,
    root: HostStat,
    /// Nodes of each directory, sorted by name. Immutable.
    ///
    /// The key is the directory's path from the root of the tree.
    dirs: HashMap<Box<[u8]>, Vec<KeptNode>>,
}

impl Generation {
    /// Opens the generation in `dir`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is incomplete or damaged, or any error of reading it.
    pub fn open(dir: &Path, id: GenerationId) -> io::Result<Generation> {
        let TreeListing { root, entries } = read_checked(&dir.join(MANIFEST))?;
        let pack = file::open(&dir.join(PACK))?;
        let ends = entries.iter().filter(|entry| entry.is_file());
        let len = ends
            .map(|entry| entry.offset.saturating_add(entry.stat.size))
            .max();
        if pack.metadata()?.len() < len.unwrap_or(0) {
            return Err(damaged("its pack is cut off"));
        }
        let mut dirs: HashMap<Box<[u8]>, Vec<KeptNode>> = HashMap::new();
        for entry in entries {
            let (dir, name) = split(&entry.path);
            let name = EntryName::new(name)
                .map_err(|_| damaged("its manifest has a name that is none"))?;
            let node = KeptNode {
                name,
                stat: entry.stat,
                target: entry.target,
                offset: entry.offset,
            };
            match dirs.get_mut(dir) {
                Some(nodes) => nodes.push(node),
                None => drop(dirs.insert(dir.into(), vec![node])),
            }
        }
        for nodes in dirs.values_mut() {
            nodes.sort_unstable_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
        }
        Ok(Generation {
            id,
            pack,
            root,
            dirs,
        })
    }

    /// Reads the whole generation in `dir` and compares checksums. Blocks.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if a file differs from its checksum, or any error of reading
    /// it.
    pub fn verify(dir: &Path) -> io::Result<()> {
        let sums: Vec<u32> = match read_checked(&dir.join(SUMS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            sums => sums?,
        };
        let TreeListing { entries, .. } = read_checked(&dir.join(MANIFEST))?;
        let mut pack = file::open(&dir.join(PACK))?;
        let mut files = entries.iter().filter(|entry| entry.is_file());
        let mut buffer = vec![0; SUM_BUFFER];
        for sum in sums {
            let Some(entry) = files.next() else {
                return Err(damaged("it has checksums of other files"));
            };
            pack.seek(SeekFrom::Start(entry.offset))?;
            if checksum((&pack).take(entry.stat.size), &mut buffer)? != (sum, entry.stat.size) {
                let path = String::from_utf8_lossy(&entry.path);
                return Err(damaged(&format!("{path} is not as it was copied")));
            }
        }
        match files.next() {
            None => Ok(()),
            Some(_) => Err(damaged("it lacks checksums")),
        }
    }

    /// Returns the attributes of `path`, from the root of the tree.
    pub fn stat(&self, path: &[u8]) -> Option<&HostStat> {
        if path.is_empty() {
            Some(&self.root)
        } else {
            self.node(path).map(|node| &node.stat)
        }
    }

    fn node(&self, path: &[u8]) -> Option<&KeptNode> {
        let (dir, name) = split(path);
        let nodes = self.dirs.get(dir)?;
        let at = nodes
            .binary_search_by(|node| node.name.as_bytes().cmp(name))
            .ok()?;
        nodes.get(at)
    }

    /// Returns the names in the directory at `path`.
    pub fn names(&self, path: &[u8]) -> impl Iterator<Item = &EntryName> {
        self.dirs
            .get(path)
            .into_iter()
            .flatten()
            .map(|node| &node.name)
    }

    /// Returns whether it has this version of the file at `path`.
    pub fn has(&self, path: &[u8], version: &FileVersion) -> bool {
        self.version(path, version).is_some()
    }

    fn version(&self, path: &[u8], version: &FileVersion) -> Option<&KeptNode> {
        self.node(path).filter(|node| node.is_version(version))
    }

    /// Returns all nodes with their paths from the root of the tree.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (Box<[u8]>, &KeptNode)> {
        self.dirs.iter().flat_map(|(dir, nodes)| {
            nodes.iter().map(move |node| {
                if dir.is_empty() {
                    (node.name.as_bytes().into(), node)
                } else {
                    ([dir, &b"/"[..], node.name.as_bytes()].concat().into(), node)
                }
            })
        })
    }

    /// Fills `buffer` from `offset` of this version of the file.
    ///
    /// The range must be within the file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the generation lacks the version, or any error of reading the
    /// pack.
    pub fn read_exact_at(
        &self,
        path: &[u8],
        version: &FileVersion,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let node = self.version(path, version).ok_or(io::ErrorKind::NotFound)?;
        self.pack
            .read_exact_at(buffer, node.offset.saturating_add(offset))
    }

    /// Returns the target of this version of the symlink at `path`.
    pub fn read_link(&self, path: &[u8], version: &FileVersion) -> Option<&[u8]> {
        self.version(path, version)?.target.as_deref()
    }

    /// Returns the files that changed at `since` or later.
    ///
    /// A fork made at `since` does not show them while it follows the main checkout. Paths are from
    /// the root of the tree.
    pub fn changed_since(&self, since: Timestamp) -> impl Iterator<Item = Box<[u8]>> {
        let is_later = move |node: &KeptNode| {
            node.stat.kind != FileKind::Directory && changed_in_tree(&node.stat) >= since
        };
        let changed = self.nodes().filter(move |(_, node)| is_later(node));
        changed.map(|(path, _)| path)
    }
}

impl KeptNode {
    /// Returns whether it has the bytes of this version of the file.
    pub(super) fn is_version(&self, version: &FileVersion) -> bool {
        let stat = &self.stat;
        (stat.ino, stat.size, stat.mtime) == (version.host_ino, version.size, version.mtime)
            // Another hard link to the file changes its ctime.
            && (stat.ctime == version.ctime || stat.nlink > 1)
    }
}

impl ListedFile {
    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.stat.kind == FileKind::Regular
    }
}

fn damaged(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Reads to the end; returns the CRC-32 and the number of bytes.
///
/// `buffer` is scratch space.
///
/// # Errors
/// Any error of reading, except interruptions, which are retried.
pub fn checksum(mut from: impl Read, buffer: &mut [u8]) -> io::Result<(u32, u64)> {
    let mut hasher = crc32fast::Hasher::new();
    let mut len = 0_u64;
    loop {
        match from.read(buffer) {
            Ok(0) => return Ok((hasher.finalize(), len)),
            Ok(read) => {
                hasher.update(buffer.get(..read).unwrap_or_default());
                len = len.saturating_add(read as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Encodes `value` followed by a checksum.
///
/// # Errors
/// [`io::Error`] if `value` cannot be encoded.
pub fn with_checksum<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = postcard::to_stdvec(value).map_err(io::Error::other)?;
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

/// Reads and verifies a file that [`with_checksum`] encoded.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the checksum is wrong, or any error of reading the file.
pub fn read_checked<T: for<'de> Deserialize<'de>>(path: &Path) -> io::Result<T> {
    let mut bytes = Vec::new();
    file::open(path)?.read_to_end(&mut bytes)?;
    let broken = || damaged("its manifest is not as it was written");
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or_else(broken)?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err(broken());
    }
    postcard::from_bytes(body).map_err(|_| broken())
}
