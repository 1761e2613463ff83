//! A base: the immutable tree under a fork's layers.
//!
//! It is read from the object database through caches that all forks share. Sizes and contents are
//! those of a checkout, after end-of-line conversion and filters. Each directory is decoded once
//! and kept ([`BaseDir`]). Small blobs stay in a byte-bounded cache; large blobs are spooled to a
//! file once for all forks ([`blobs`]).
//!
//! ```text
//! Base ─► BaseCache ─► Repository          stored trees and blobs
//!   └───► convert: attributes, smudge, clean   conversions, only where attributes ask
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{GitError, ObjectId, Repository, TreeEntryKind};
use tine_attr::Ino;
use tine_path::{EntryName, RepoPath};

pub mod blobs;
mod convert;
mod ino;

pub use blobs::{BaseCache, BlobContent, CacheStats, CacheUsage, CacheUses};
pub use convert::ConversionSettings;
use convert::Conversions;
pub use ino::InoHasher;

/// One entry of a base directory.
#[derive(Debug)]
pub struct BaseEntry {
    /// Name in the directory.
    pub name: EntryName,
    /// Mode of the entry.
    pub kind: TreeEntryKind,
    /// Id of the blob, the tree, or the submodule's commit.
    pub id: ObjectId,
    /// Inode number, a hash of the base path.
    pub ino: Ino,
}

/// A decoded base directory.
#[derive(Debug)]
pub struct BaseDir {
    /// Path of the directory in the base.
    pub path: RepoPath,
    /// Id of the tree that was decoded.
    pub tree_id: ObjectId,
    /// Entries in byte order of their names, which differs from git's order.
    pub entries: Box<[BaseEntry]>,
    /// Sizes of the entries in a checkout, initially [`UNKNOWN`].
    ///
    /// Threads may write an element more than once, always with the same value.
    sizes: Box<[AtomicU64]>,
}

/// Size of a blob whose header was not read yet. No object is that large.
const UNKNOWN: u64 = u64::MAX;

impl BaseDir {
    /// Returns the index of the entry called `name`.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.entries
            .binary_search_by(|e| e.name.as_bytes().cmp(name))
            .ok()
    }

    /// Reads and sorts the tree.
    fn read(
        repository: &Repository,
        path: &RepoPath,
        tree_id: ObjectId,
        hasher: &InoHasher,
    ) -> Result<BaseDir, GitError> {
        let mut tree = repository.read_tree(tree_id)?;
        tree.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let inos = hasher.in_dir(path);
        let entries: Box<[BaseEntry]> = tree
            .into_iter()
            .map(|entry| BaseEntry {
                ino: inos.ino(&entry.name),
                name: entry.name,
                kind: entry.kind,
                id: entry.id,
            })
            .collect();
        Ok(BaseDir {
            path: path.clone(),
            tree_id,
            sizes: entries.iter().map(|_| AtomicU64::new(UNKNOWN)).collect(),
            entries,
        })
    }
}

/// A base tree with the conversions that a checkout of it applies.
pub struct Base {
    repository: Repository,
    tree_id: ObjectId,
    hasher: InoHasher,
    cache: Arc<BaseCache>,
    conversions: Conversions,
}

impl Base {
    /// Opens the tree `tree_id` with the current conversion settings.
    ///
    /// # Errors
    /// Fails as [`Base::open_with`], and if the configuration cannot be read.
    pub fn open(
        repository: &Repository,
        tree_id: ObjectId,
        cache: &Arc<BaseCache>,
        hasher: InoHasher,
    ) -> Result<Base, GitError> {
        let settings = ConversionSettings::current(repository)?;
        Base::open_with(repository, tree_id, cache, hasher, settings)
    }

    /// Opens the tree `tree_id` without reading a directory.
    ///
    /// `settings`, the current attributes outside the tree, and the tree's own `.gitattributes`
    /// files decide which paths are converted.
    ///
    /// # Errors
    /// [`GitError::Io`] or [`GitError::Library`] if an attributes file outside the tree cannot be
    /// read.
    pub fn open_with(
        repository: &Repository,
        tree_id: ObjectId,
        cache: &Arc<BaseCache>,
        hasher: InoHasher,
        settings: ConversionSettings,
    ) -> Result<Base, GitError> {
        Ok(Base {
            conversions: Conversions::new(repository, tree_id, settings)?,
            repository: repository.clone(),
            tree_id,
            hasher,
            cache: cache.clone(),
        })
    }

    /// Returns the repository that holds the tree.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Returns the id of the root tree.
    pub fn tree_id(&self) -> ObjectId {
        self.tree_id
    }

    /// Returns the hasher that gives the nodes their inode numbers.
    pub fn hasher(&self) -> &InoHasher {
        &self.hasher
    }

    /// Returns the conversion settings that a fork keeps.
    pub fn settings(&self) -> &ConversionSettings {
        self.conversions.settings()
    }

    /// Returns a number that changes with the conversion settings outside the tree.
    pub fn fingerprint(&self) -> u64 {
        self.conversions.fingerprint()
    }

    /// Reads the root directory.
    ///
    /// # Errors
    /// Fails as [`Base::dir`].
    pub fn root(&self) -> Result<Arc<BaseDir>, GitError> {
        self.dir(&RepoPath::root(), self.tree_id())
    }

    /// Reads the directory at `path`, whose tree id is `tree_id`.
    ///
    /// The caller never asks for a submodule's directory, which is always empty.
    ///
    /// # Errors
    /// [`GitError::MissingObject`], [`GitError::CorruptObject`] or [`GitError::HostileTree`] if the
    /// tree cannot be read.
    pub fn dir(&self, path: &RepoPath, tree_id: ObjectId) -> Result<Arc<BaseDir>, GitError> {
        self.cache.dir(path, tree_id, self.fingerprint(), || {
            BaseDir::read(&self.repository, path, tree_id, &self.hasher)
        })
    }

    /// Finds `path` from the root.
    ///
    /// Returns the directory that contains it and the entry's index there, or `None` if the path
    /// does not exist.
    ///
    /// # Errors
    /// Fails as [`Base::dir`] for each directory on the way.
    pub fn find(&self, path: &RepoPath) -> Result<Option<(Arc<BaseDir>, usize)>, GitError> {
        let mut dir = self.root()?;
        let mut components = path.components().peekable();
        while let Some(name) = components.next() {
            let Some(index) = dir.find(name.as_bytes()) else {
                return Ok(None);
            };
            if components.peek().is_none() {
                return Ok(Some((dir, index)));
            }
            let entry = &dir.entries[index];
            if entry.kind != TreeEntryKind::Directory {
                return Ok(None);
            }
            dir = self.dir(&dir.path.join(&name), entry.id)?;
        }
        Ok(None)
    }

    /// Returns the size in bytes of `dir.entries[index]` in a checkout.
    ///
    /// It comes from the object's header, or from the converted content where a conversion applies,
    /// and is cached. A symlink's size is the length of its target; a directory's is 0.
    ///
    /// # Errors
    /// [`GitError::MissingObject`] or [`GitError::CorruptObject`] if the blob cannot be read,
    /// [`GitError::GitFailed`] if a filter fails, [`GitError::TakesLong`] if the blob has to be
    /// fetched on a nonblocking thread.
    pub fn size(&self, dir: &BaseDir, index: usize) -> Result<u64, GitError> {
        let entry = &dir.entries[index];
        match entry.kind {
            TreeEntryKind::Directory | TreeEntryKind::Submodule => return Ok(0),
            TreeEntryKind::File | TreeEntryKind::Executable | TreeEntryKind::Symlink => {}
        }
        let known = dir.sizes[index].load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Ok(known);
        }
        let size = if entry.kind == TreeEntryKind::Symlink {
            self.stored_size(dir, entry.id)?
        } else if self
            .conversions
            .of_entry(self, dir, &entry.name)?
            .to_worktree
        {
            self.converted(&dir.path.join(&entry.name), entry.id)?.len()
        } else {
            self.stored_size(dir, entry.id)?
        };
        dir.sizes[index].store(size, Ordering::Relaxed);
        Ok(size)
    }

    /// Returns the size in the blob's header.
    ///
    /// In a partial clone, fetches all missing blobs of the directory at once, because a caller
    /// that asks for one size usually asks for all of them.
    fn stored_size(&self, dir: &BaseDir, blob_id: ObjectId) -> Result<u64, GitError> {
        if self.repository.promisor_remote().is_some() && !self.repository.has_object(blob_id) {
            let blobs: Vec<ObjectId> = dir
                .entries
                .iter()
                .filter(|e| !matches!(e.kind, TreeEntryKind::Directory | TreeEntryKind::Submodule))
                .map(|e| e.id)
                .collect();
            match self.repository.fetch_missing(&blobs) {
                Err(GitError::TakesLong) => return Err(GitError::TakesLong),
                Err(error) => log::warn!(
                    "the missing objects of {} cannot be fetched: {error}",
                    dir.path
                ),
                Ok(()) => {}
            }
        }
        self.repository.blob_size(blob_id)
    }

    /// Returns the size in bytes of the blob at base path `path`.
    ///
    /// It is for nodes whose directory is not at hand; see [`Base::size`].
    ///
    /// # Errors
    /// Fails as [`Base::find`] and [`Base::size`].
    pub fn size_at(&self, path: &RepoPath, blob_id: ObjectId) -> Result<u64, GitError> {
        if let Some((dir, index)) = self.find(path)?
            && dir.entries[index].id == blob_id
        {
            return self.size(&dir, index);
        }
        if self.conversions.of_path(self, path)?.to_worktree {
            Ok(self.converted(path, blob_id)?.len())
        } else {
            self.repository.blob_size(blob_id)
        }
    }

    /// Returns the checkout's content of the blob at base path `path`.
    ///
    /// In a partial clone, git fetches a missing blob first. For a symlink's target use
    /// [`Base::raw_content`].
    ///
    /// # Errors
    /// [`GitError::MissingObject`] or [`GitError::CorruptObject`] if the blob cannot be read,
    /// [`GitError::GitFailed`] if a filter fails, [`GitError::TakesLong`] if it would be slow on a
    /// nonblocking thread.
    pub fn content(&self, path: &RepoPath, blob_id: ObjectId) -> Result<BlobContent, GitError> {
        if self.conversions.of_path(self, path)?.to_worktree && !self.is_symlink(path, blob_id)? {
            self.converted(path, blob_id)
        } else {
            self.raw_content(blob_id)
        }
    }

    /// Returns whether `blob_id` at `path` is a symlink's target.
    ///
    /// Symlink targets are never converted.
    fn is_symlink(&self, path: &RepoPath, blob_id: ObjectId) -> Result<bool, GitError> {
        Ok(self.find(path)?.is_some_and(|(dir, index)| {
            let entry = &dir.entries[index];
            entry.kind == TreeEntryKind::Symlink && entry.id == blob_id
        }))
    }

    /// Returns a blob's stored content, unconverted, through the same cache.
    ///
    /// # Errors
    /// [`GitError::MissingObject`] or [`GitError::CorruptObject`] if the blob cannot be read.
    pub fn raw_content(&self, blob_id: ObjectId) -> Result<BlobContent, GitError> {
        self.cache.stored(&self.repository, blob_id)
    }

    fn converted(&self, path: &RepoPath, blob_id: ObjectId) -> Result<BlobContent, GitError> {
        let tree = (self.tree_id, self.fingerprint());
        self.cache.converted(blob_id, tree, path, |writer| {
            self.conversions.smudge(path, blob_id, writer)
        })
    }

    /// Returns whether the file at `path` is converted in either direction.
    ///
    /// A conversion (end of line, `ident`, `filter`, encoding) may make its bytes differ from the
    /// blob's.
    ///
    /// # Errors
    /// Fails if the attributes of `path` cannot be read.
    pub fn is_converted(&self, path: &RepoPath) -> Result<bool, GitError> {
        let conversion = self.conversions.of_path(self, path)?;
        Ok(conversion.to_worktree || conversion.to_git)
    }

    /// Converts file content to the form that `git add` stores for `path`.
    ///
    /// This is the "clean" direction.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if a filter fails; otherwise fails as [`Base::is_converted`].
    pub fn clean(&self, path: &RepoPath, content: Vec<u8>) -> Result<Vec<u8>, GitError> {
        if self.conversions.of_path(self, path)?.to_git {
            self.conversions.clean(self, path, content)
        } else {
            Ok(content)
        }
    }
}

#[cfg(test)]
mod tests;
