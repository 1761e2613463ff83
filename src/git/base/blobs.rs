//! Caches that all bases of a store share: directories, small blobs in memory, large ones in spool
//! files.
//!
//! Several threads that ask for one thing make one of them read it while the others wait for it;
//! who asks for another thing is never held up, as no lock is held while something is read or
//! decoded.

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

/// Contents above this many bytes are spooled to a file instead of being held in memory; fewer
/// where the cache is small.
pub const SPOOL_THRESHOLD: u64 = 4 << 20;

/// Stored blobs above this many bytes are decoded by the git program, which streams them, instead
/// of in memory.
pub(super) const STREAM_THRESHOLD: u64 = 32 << 20;

/// Blobs of more than this many bytes are not read in haste.
const QUICK_BLOB: u64 = 1 << 20;

/// Spool files kept open for those who ask again.
const MAX_SPOOLED: u64 = 64;

/// Bytes that decoded directories may take.
const MAX_DIR_BYTES: u64 = 128 << 20;

/// Directories with more than some ten thousand entries that are kept beside the others.
const MAX_LARGE_DIRS: usize = 4;

/// What a cached item costs beside its bytes, in bytes.
const OVERHEAD: u64 = 128;

/// Bytes of a blob as a checkout would hold them.
#[derive(Debug, Clone)]
pub enum BlobContent {
    Memory(Arc<[u8]>),
    /// Spooled; the second field is the length in bytes.
    Spooled(Arc<File>, u64),
}

impl BlobContent {
    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            BlobContent::Memory(bytes) => bytes.len() as u64,
            BlobContent::Spooled(_, len) => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads at `offset` until `buffer` is full or the content ends; the number of bytes read.
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

    /// All bytes at once.
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

/// Under what a directory is cached. Its tree alone will not do: inode numbers come from the path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct DirKey {
    path: RepoPath,
    tree_id: ObjectId,
    /// Of the conversions: they decide over the sizes.
    fingerprint: u64,
}

/// Under what a content is cached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ContentKey {
    Stored(ObjectId),
    /// As a checkout of `tree_id` converts the blob at `path` by the conversions of this
    /// fingerprint.
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

/// Caches that all bases of a store share: decoded directories, blobs, spooled large blobs.
/// Internally synchronised.
pub struct BaseCache {
    spool_dir: PathBuf,
    /// Names the next spool file.
    next_spool: AtomicU64,
    dirs: Cache<DirKey, Arc<BaseDir>, ByBytes>,
    /// Directories that may be too large for `dirs`, by number: decoded anew for each piece of a
    /// listing, the time would grow with the square of their size.
    large_dirs: Cache<DirKey, Arc<BaseDir>>,
    /// What counts as large.
    large_dir_bytes: u64,
    /// Contents above this many bytes go to a file.
    spool_threshold: u64,
    /// Contents up to `spool_threshold`.
    small: Cache<ContentKey, BlobContent, ByBytes>,
    /// Contents above it, by number.
    large: Cache<ContentKey, BlobContent>,
    blob_uses: Uses,
    dir_uses: Uses,
}

/// How often something was in a cache, and how often it was not. Relaxed: for information only.
#[derive(Default)]
struct Uses {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Uses {
    /// Counts what a look found.
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

/// How often something that was needed was in a cache, and how often it had to be read and decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUses {
    pub hits: u64,
    pub misses: u64,
}

impl BaseCache {
    /// `spool_dir` holds the large blobs' files; what is in it from an earlier process is removed.
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
            // A content that its shard could not keep would be decoded again for each of its reads.
            spool_threshold: SPOOL_THRESHOLD.min(small.shard_capacity() / 2),
            small,
            large: Cache::new(MAX_SPOOLED as usize),
            blob_uses: Uses::default(),
            dir_uses: Uses::default(),
        }))
    }

    /// How often blobs and directories of bases were at hand.
    pub fn uses(&self) -> (CacheUses, CacheUses) {
        (self.blob_uses.read(), self.dir_uses.read())
    }

    /// What the caches hold at this moment.
    pub fn figures(&self) -> CacheFigures {
        CacheFigures {
            blobs: Filling::of(&self.small),
            directories: Filling::of(&self.dirs),
            large_directories: Filling::of(&self.large_dirs),
            spooled: Filling::of(&self.large),
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

    /// The stored content of a blob.
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
        if size > QUICK_BLOB {
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
            let mut sink = self.sink();
            if size <= STREAM_THRESHOLD {
                sink.append(&repository.read_blob_of_size(blob_id, size)?)?;
            } else {
                stream_blob(repository, blob_id, size, &mut sink)?;
            }
            sink.finish()
        })
    }

    /// The content that `convert` makes of a blob for one path.
    pub(super) fn converted(
        &self,
        blob_id: ObjectId,
        (tree_id, fingerprint): (ObjectId, u64),
        path: &RepoPath,
        convert: impl FnOnce(&mut Sink<'_>) -> Result<(), GitError>,
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
            let mut sink = self.sink();
            convert(&mut sink)?;
            sink.finish()
        })?;
        if let BlobContent::Spooled(..) = content {
            // How large it becomes is known only now; it belongs where the number of files is
            // bounded.
            self.large.insert(key.clone(), content.clone());
            self.small.remove(&key);
        }
        Ok(content)
    }

    fn sink(&self) -> Sink<'_> {
        Sink {
            cache: self,
            memory: Vec::new(),
            file: None,
            len: 0,
        }
    }

    /// A new file without a name, so that nothing stays behind however the process ends.
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

/// How full the caches of [`BaseCache`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Bytes of blobs in memory.
    pub blobs: Filling,
    /// Bytes of decoded directories.
    pub directories: Filling,
    /// Those that are too large to be among them, counted one by one.
    pub large_directories: Filling,
    /// Large blobs in files of the store, counted one by one.
    pub spooled: Filling,
}

/// How full a cache is; it never holds more than `limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filling {
    pub used: u64,
    pub limit: u64,
}

impl Filling {
    fn of<K: Eq + Hash, V: Clone, W: Weighter<K, V> + Clone>(cache: &Cache<K, V, W>) -> Filling {
        Filling {
            used: cache.weight(),
            limit: cache.capacity(),
        }
    }
}

/// Takes a content of unknown length: in memory at first, in a spool file once it is large.
pub(super) struct Sink<'a> {
    cache: &'a BaseCache,
    memory: Vec<u8>,
    file: Option<File>,
    len: u64,
}

impl Sink<'_> {
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

/// Has the git program write a blob of `size` bytes, and checks that it hashes to its id.
fn stream_blob(
    repository: &Repository,
    blob_id: ObjectId,
    size: u64,
    sink: &mut Sink<'_>,
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
            sink.append(bytes)
        }),
    };
    // Where copying broke off, the program's output has no reader any more, so it ends by itself.
    let status = child.wait().map_err(GitError::GitMissing)?;
    copied?;
    let corrupt = |reason: String| GitError::CorruptObject {
        id: blob_id,
        reason,
    };
    if !status.success() {
        return Err(corrupt(format!("git cat-file: {status}")));
    }
    // The hash says nothing of that: a header that lies is hashed as it is.
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
