//! Caches that all bases of a store share.
//!
//! They hold directories, small blobs in memory, and large blobs in spool files. If several threads
//! request the same item, one of them reads it and the others wait. Requests for other items never
//! wait, because no lock is held during reading and decoding.

use std::fs::{self, File, OpenOptions};
use std::hash::Hash;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};

use super::BaseDir;
use crate::checksum::Checksum;
use crate::{GitError, ObjectId, Repository, nonblocking, program};
use tine_path::RepoPath;

/// Maximum size in bytes of a content in memory.
///
/// Larger ones are spooled to a file. The limit is lower if the cache is small.
pub const SPOOL_THRESHOLD: u64 = 4 << 20;

/// Maximum size in bytes of a stored blob decoded in memory.
///
/// The git program streams larger ones.
pub(super) const STREAM_THRESHOLD: u64 = 32 << 20;

/// Maximum size in bytes of a blob that a nonblocking thread reads.
const MAX_NONBLOCKING_BYTES: u64 = 1 << 20;

/// Maximum number of open spool files.
const MAX_SPOOLED: u64 = 64;

/// Maximum bytes of decoded directories.
const MAX_DIR_BYTES: u64 = 128 << 20;

/// Maximum number of cached directories with more than about ten thousand entries.
const MAX_LARGE_DIRS: usize = 4;

/// Memory in bytes of a cached item in addition to its content.
const OVERHEAD: u64 = 128;

/// The bytes of a blob in a checkout.
#[derive(Debug, Clone)]
pub enum BlobContent {
    /// Content in memory.
    Memory(Arc<[u8]>),
    /// Spool file, and length in bytes.
    Spooled(Arc<File>, u64),
}

impl BlobContent {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            BlobContent::Memory(bytes) => bytes.len() as u64,
            BlobContent::Spooled(_, len) => *len,
        }
    }

    /// Returns whether the content has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads at `offset` until `buffer` is full or the content ends.
    ///
    /// Returns the number of bytes read.
    ///
    /// # Errors
    /// Fails if the spool file cannot be read.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            BlobContent::Memory(bytes) => {
                let rest = usize::try_from(offset)
                    .ok()
                    .and_then(|offset| bytes.get(offset..))
                    .unwrap_or_default();
                let len = rest.len().min(buffer.len());
                buffer[..len].copy_from_slice(&rest[..len]);
                Ok(len)
            }
            BlobContent::Spooled(file, len) => {
                let mut done = 0;
                while done < buffer.len() && offset < *len {
                    match file.read_at(&mut buffer[done..], offset + done as u64) {
                        Ok(0) => break,
                        Ok(read) => done += read,
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(done)
            }
        }
    }

    /// Returns all bytes.
    ///
    /// # Errors
    /// Fails if the spool file cannot be read, or the content is too large for memory.
    pub fn to_vec(&self) -> io::Result<Vec<u8>> {
        match self {
            BlobContent::Memory(bytes) => Ok(bytes.to_vec()),
            BlobContent::Spooled(_, len) => {
                let mut bytes = vec![0; usize::try_from(*len).map_err(|_| ErrorKind::OutOfMemory)?];
                let read = self.read_at(&mut bytes, 0)?;
                bytes.truncate(read);
                Ok(bytes)
            }
        }
    }
}

/// The cache key of a directory.
///
/// The path is part of it, because inode numbers depend on the path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct DirKey {
    path: RepoPath,
    tree_id: ObjectId,
    /// Fingerprint of the conversions, which determine the sizes.
    fingerprint: u64,
}

/// The cache key of a content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ContentKey {
    Stored(ObjectId),
    /// Content of the blob at `path`, converted by a checkout of `tree_id`.
    ///
    /// The fingerprint identifies the conversions.
    Converted {
        blob_id: ObjectId,
        tree_id: ObjectId,
        fingerprint: u64,
        path: RepoPath,
    },
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<DirKey, Arc<BaseDir>> for ByBytes {
    fn weight(&self, key: &DirKey, dir: &Arc<BaseDir>) -> u64 {
        OVERHEAD + 2 * key.path.as_bytes().len() as u64 + OVERHEAD * dir.entries.len() as u64
    }
}

impl Weighter<ContentKey, BlobContent> for ByBytes {
    fn weight(&self, _key: &ContentKey, content: &BlobContent) -> u64 {
        match content {
            BlobContent::Memory(bytes) => OVERHEAD + bytes.len() as u64,
            BlobContent::Spooled(..) => OVERHEAD,
        }
    }
}

/// The caches that all bases of a store share.
///
/// It is internally synchronised.
pub struct BaseCache {
    spool_dir: PathBuf,
    /// Number of the next spool file.
    next_spool: AtomicU64,
    dirs: Cache<DirKey, Arc<BaseDir>, ByBytes>,
    /// Directories that may be too large for `dirs`, limited by number.
    ///
    /// If they were decoded again for each part of a listing, its time would be quadratic in their
    /// size.
    large_dirs: Cache<DirKey, Arc<BaseDir>>,
    /// Minimum weight in bytes of a large directory.
    large_dir_bytes: u64,
    /// Maximum size in bytes of a content in memory.
    spool_threshold: u64,
    /// Contents up to `spool_threshold`.
    small: Cache<ContentKey, BlobContent, ByBytes>,
    /// Contents above `spool_threshold`, limited by number.
    large: Cache<ContentKey, BlobContent>,
    blob_uses: Uses,
    dir_uses: Uses,
}

/// Counters of cache hits and misses. Relaxed, as they are only informative.
#[derive(Default)]
struct Uses {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Uses {
    /// Counts the result of a lookup.
    fn count<T>(&self, found: Option<T>) -> Option<T> {
        let counter = match found {
            Some(_) => &self.hits,
            None => &self.misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn read(&self) -> CacheUses {
        CacheUses {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }
}

/// The number of cache hits and misses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUses {
    /// Number of lookups that found an item.
    pub hits: u64,
    /// Number of lookups after which an item was read and decoded.
    pub misses: u64,
}

impl BaseCache {
    /// Creates the caches, with spool files in `spool_dir`.
    ///
    /// Files of an earlier process there are removed. `max_blob_bytes` limits the blobs in memory.
    ///
    /// # Errors
    /// [`GitError::Io`] if the directory cannot be created or listed.
    pub fn new(spool_dir: &Path, max_blob_bytes: usize) -> Result<Arc<BaseCache>, GitError> {
        fs::create_dir_all(spool_dir).map_err(GitError::io("create", spool_dir))?;
        let entries = fs::read_dir(spool_dir).map_err(GitError::io("list", spool_dir))?;
        for entry in entries {
            let path = entry.map_err(GitError::io("list", spool_dir))?.path();
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    log::warn!("{} cannot be removed: {error}", path.display());
                }
                _ => {}
            }
        }
        let max_blob_bytes = max_blob_bytes as u64;
        let small = Cache::with_weighter((max_blob_bytes / 4096) as usize, max_blob_bytes, ByBytes);
        let dirs = Cache::with_weighter((MAX_DIR_BYTES / 4096) as usize, MAX_DIR_BYTES, ByBytes);
        Ok(Arc::new(BaseCache {
            spool_dir: spool_dir.to_owned(),
            next_spool: AtomicU64::new(0),
            large_dir_bytes: dirs.shard_capacity() / 2,
            dirs,
            large_dirs: Cache::new(MAX_LARGE_DIRS),
            // A content that its shard could not hold would be decoded again for each read.
            spool_threshold: SPOOL_THRESHOLD.min(small.shard_capacity() / 2),
            small,
            large: Cache::new(MAX_SPOOLED as usize),
            blob_uses: Uses::default(),
            dir_uses: Uses::default(),
        }))
    }

    /// Returns the counters for blobs and for directories.
    pub fn uses(&self) -> (CacheUses, CacheUses) {
        (self.blob_uses.read(), self.dir_uses.read())
    }

    /// Returns the current fill levels of the caches.
    pub fn figures(&self) -> CacheStats {
        CacheStats {
            blobs: CacheUsage::of(&self.small),
            directories: CacheUsage::of(&self.dirs),
            large_directories: CacheUsage::of(&self.large_dirs),
            spooled: CacheUsage::of(&self.large),
        }
    }

    pub(super) fn dir(
        &self,
        path: &RepoPath,
        tree_id: ObjectId,
        fingerprint: u64,
        read: impl FnOnce() -> Result<BaseDir, GitError>,
    ) -> Result<Arc<BaseDir>, GitError> {
        let key = DirKey {
            path: path.clone(),
            tree_id,
            fingerprint,
        };
        let known = self.dirs.get(&key).or_else(|| self.large_dirs.get(&key));
        if let Some(dir) = self.dir_uses.count(known) {
            return Ok(dir);
        }
        let dir = self
            .dirs
            .get_or_insert_with(&key, || read().map(Arc::new))?;
        if ByBytes.weight(&key, &dir) > self.large_dir_bytes {
            self.large_dirs.insert(key, dir.clone());
        }
        Ok(dir)
    }

    /// Returns the stored content of a blob.
    pub(super) fn stored(
        &self,
        repository: &Repository,
        blob_id: ObjectId,
    ) -> Result<BlobContent, GitError> {
        let key = ContentKey::Stored(blob_id);
        let known = self.small.get(&key).or_else(|| self.large.get(&key));
        if let Some(content) = self.blob_uses.count(known) {
            return Ok(content);
        }
        let size = repository.blob_size(blob_id)?;
        if size > MAX_NONBLOCKING_BYTES {
            nonblocking::check()?;
        }
        let read = || {
            Ok(BlobContent::Memory(
                repository.read_blob_of_size(blob_id, size)?.into(),
            ))
        };
        if size <= self.spool_threshold {
            return self.small.get_or_insert_with(&key, read);
        }
        self.large.get_or_insert_with(&key, || {
            let mut writer = self.writer();
            if size <= STREAM_THRESHOLD {
                writer.append(&repository.read_blob_of_size(blob_id, size)?)?;
            } else {
                stream_blob(repository, blob_id, size, &mut writer)?;
            }
            writer.finish()
        })
    }

    /// Returns the result of `convert` for a blob at one path.
    pub(super) fn converted(
        &self,
        blob_id: ObjectId,
        (tree_id, fingerprint): (ObjectId, u64),
        path: &RepoPath,
        convert: impl FnOnce(&mut BlobWriter<'_>) -> Result<(), GitError>,
    ) -> Result<BlobContent, GitError> {
        let key = ContentKey::Converted {
            blob_id,
            tree_id,
            fingerprint,
            path: path.clone(),
        };
        let known = self.small.get(&key).or_else(|| self.large.get(&key));
        if let Some(content) = self.blob_uses.count(known) {
            return Ok(content);
        }
        nonblocking::check()?;
        let content = self.small.get_or_insert_with(&key, || {
            let mut writer = self.writer();
            convert(&mut writer)?;
            writer.finish()
        })?;
        if let BlobContent::Spooled(..) = content {
            // The converted size is known only now. This cache limits the number of files.
            self.large.insert(key.clone(), content.clone());
            self.small.remove(&key);
        }
        Ok(content)
    }

    fn writer(&self) -> BlobWriter<'_> {
        BlobWriter {
            cache: self,
            memory: Vec::new(),
            file: None,
            len: 0,
        }
    }

    /// Creates an unnamed file, which vanishes when the process ends.
    fn spool_file(&self) -> Result<File, GitError> {
        loop {
            let number = self.next_spool.fetch_add(1, Ordering::Relaxed);
            let path = self
                .spool_dir
                .join(format!("{}-{number}", std::process::id()));
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
            match opened {
                Ok(file) => {
                    fs::remove_file(&path).map_err(GitError::io("remove", path))?;
                    return Ok(file);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(GitError::io("create", path)(error)),
            }
        }
    }
}

/// The fill levels of the caches of [`BaseCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStats {
    /// Bytes of blobs in memory.
    pub blobs: CacheUsage,
    /// Bytes of decoded directories.
    pub directories: CacheUsage,
    /// Number of directories that are too large for `directories`.
    pub large_directories: CacheUsage,
    /// Number of large blobs in spool files.
    pub spooled: CacheUsage,
}

/// The fill level of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUsage {
    /// Current amount.
    pub used: u64,
    /// Maximum amount, which is never exceeded.
    pub limit: u64,
}

impl CacheUsage {
    fn of<K: Eq + Hash, V: Clone, W: Weighter<K, V> + Clone>(cache: &Cache<K, V, W>) -> CacheUsage {
        CacheUsage {
            used: cache.weight(),
            limit: cache.capacity(),
        }
    }
}

/// A writer for a content of unknown length.
///
/// It starts in memory, and moves to a spool file once it is large.
pub(super) struct BlobWriter<'a> {
    cache: &'a BaseCache,
    memory: Vec<u8>,
    file: Option<File>,
    len: u64,
}

impl BlobWriter<'_> {
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), GitError> {
        self.len += bytes.len() as u64;
        if self.file.is_none() {
            if self.len <= self.cache.spool_threshold {
                self.memory.extend_from_slice(bytes);
                return Ok(());
            }
            self.file = Some(self.cache.spool_file()?);
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let kept = std::mem::take(&mut self.memory);
        file.write_all(&kept)
            .and_then(|()| file.write_all(bytes))
            .map_err(GitError::io("write", &self.cache.spool_dir))
    }

    fn finish(self) -> Result<BlobContent, GitError> {
        Ok(match self.file {
            None => BlobContent::Memory(self.memory.into()),
            Some(file) => BlobContent::Spooled(Arc::new(file), self.len),
        })
    }
}

/// Streams a blob of `size` bytes from git, and verifies its hash.
fn stream_blob(
    repository: &Repository,
    blob_id: ObjectId,
    size: u64,
    writer: &mut BlobWriter<'_>,
) -> Result<(), GitError> {
    let mut command = program::command(repository.common_dir());
    command
        .args(["cat-file", "blob"])
        .arg(blob_id.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = program::spawn(&mut command)?;
    let mut checksum = Checksum::of_object(blob_id.kind(), gix::objs::Kind::Blob, size);
    let mut len = 0;
    let copied = match child.stdout.take() {
        None => Ok(()),
        Some(mut output) => copy(&mut output, |bytes| {
            len += bytes.len() as u64;
            checksum.update(bytes);
            writer.append(bytes)
        }),
    };
    // If copying failed, the closed pipe ends git.
    let status = child.wait().map_err(GitError::GitMissing)?;
    copied?;
    let corrupt = |reason: String| GitError::CorruptObject {
        id: blob_id,
        reason,
    };
    if !status.success() {
        return Err(corrupt(format!("git cat-file: {status}")));
    }
    // The hash does not prove the length: it covers a wrong header as it is.
    if len != size {
        return Err(corrupt(format!(
            "it has {len} bytes and claims to have {size}"
        )));
    }
    let hash = checksum.finish()?;
    if hash != blob_id && !repository.is_replacement(blob_id, hash) {
        return Err(corrupt(format!("its content hashes to {hash}")));
    }
    Ok(())
}

fn copy(
    reader: &mut impl Read,
    mut take: impl FnMut(&[u8]) -> Result<(), GitError>,
) -> Result<(), GitError> {
    let mut buffer = vec![0; 1 << 17];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => take(&buffer[..read])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(GitError::GitMissing(error)),
        }
    }
}
