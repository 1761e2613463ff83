//! A base: the immutable tree that forks stand on, read from the object database through caches
//! that all forks share.
//!
//! What is read here is what a checkout would hold: sizes and contents are those after end-of-line
//! conversion and filters. Directories are decoded once and kept ([`BaseDir`]); small blobs stay in
//! a byte-bounded cache, large ones are spooled to a file once for all forks ([`blobs`]).
//!
//! ```text
//! Base ─► BaseCache ─► Repository          stored trees and blobs
//!   └───► convert: attributes, smudge, clean   what a checkout makes of them, only where attributes say so
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{GitError, ObjectId, Repository, TreeEntryKind};
use tine_attr::Ino;
use tine_path::{EntryName, RepoPath};

pub mod blobs;
mod convert;
mod ino;

pub use blobs::{BaseCache, BlobContent, CacheFigures, CacheUses, Filling};
pub use convert::ConversionSettings;
use convert::Conversions;
pub use ino::InoHasher;

/// One entry of a base directory.
#[derive(Debug)]
pub struct BaseEntry {
    pub name: EntryName,
    pub kind: TreeEntryKind,
    pub id: ObjectId,
    pub ino: Ino,
}

/// A decoded base directory: its entries sorted by name (plain byte order, unlike git's own order).
#[derive(Debug)]
pub struct BaseDir {
    pub path: RepoPath,
    pub tree_id: ObjectId,
    pub entries: Box<[BaseEntry]>,
    /// The entries' sizes as stored, [`UNKNOWN`] until somebody asked; each written once, to the
    /// same value by all.
    sizes: Box<[AtomicU64]>,
}

/// The size of a blob whose header was not read yet. No object is that large.
const UNKNOWN: u64 = u64::MAX;

impl BaseDir {
    /// The index of the entry called `name`.
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

/// A base tree together with the conversions that a checkout of it would do.
pub struct Base {
    repository: Repository,
    tree_id: ObjectId,
    hasher: InoHasher,
    cache: Arc<BaseCache>,
    conversions: Conversions,
}

impl Base {
    /// Opens the tree `tree_id` with the settings that are configured now.
    pub fn open(
        repository: &Repository,
        tree_id: ObjectId,
        cache: &Arc<BaseCache>,
        hasher: InoHasher,
    ) -> Result<Base, GitError> {
        let settings = ConversionSettings::current(repository)?;
        Base::open_with(repository, tree_id, cache, hasher, settings)
    }

    /// Opens the tree `tree_id`. Reads no directory yet. Which paths a checkout would convert is
    /// decided from `settings`, the attributes outside the tree as they are now, and the tree's own
    /// `.gitattributes` files.
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

    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    pub fn tree_id(&self) -> ObjectId {
        self.tree_id
    }

    pub fn hasher(&self) -> &InoHasher {
        &self.hasher
    }

    /// What it is converted by, in so far as a fork keeps that.
    pub fn settings(&self) -> &ConversionSettings {
        self.conversions.settings()
    }

    /// A number that changes with whatever decides over conversions outside the tree.
    pub fn fingerprint(&self) -> u64 {
        self.conversions.fingerprint()
    }

    /// The root directory.
    pub fn root(&self) -> Result<Arc<BaseDir>, GitError> {
        self.dir(&RepoPath::root(), self.tree_id())
    }

    /// The directory at `path`, whose tree is known to be `tree_id` (a submodule's directory is not
    /// asked for: it is empty).
    pub fn dir(&self, path: &RepoPath, tree_id: ObjectId) -> Result<Arc<BaseDir>, GitError> {
        self.cache.dir(path, tree_id, self.fingerprint(), || {
            BaseDir::read(&self.repository, path, tree_id, &self.hasher)
        })
    }

    /// Finds `path` from the root: the directory that holds it and the entry's index there. `None`
    /// where nothing is.
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

    /// Size in bytes of `dir.entries[index]` as a checkout would hold it: from the object's header,
    /// remembered; where a conversion applies, from the converted content. Symlinks: the target's
    /// length. Directories: 0.
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

    /// The size in the blob's header. What a partial clone lacks of the whole directory is fetched
    /// at once, as whoever asks for one size there mostly asks for all.
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

    /// Size in bytes of the blob at base path `path`, as [`Base::size`], for nodes whose directory
    /// is not at hand.
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

    /// The content of the blob at base path `path` as a checkout would hold it. In a partial clone
    /// a missing blob is fetched through git first. For a symlink's target use
    /// [`Base::raw_content`].
    pub fn content(&self, path: &RepoPath, blob_id: ObjectId) -> Result<BlobContent, GitError> {
        if self.conversions.of_path(self, path)?.to_worktree && !self.is_symlink(path, blob_id)? {
            self.converted(path, blob_id)
        } else {
            self.raw_content(blob_id)
        }
    }

    /// Whether the base has `blob_id` at `path` as a symlink's target, which no checkout converts.
    fn is_symlink(&self, path: &RepoPath, blob_id: ObjectId) -> Result<bool, GitError> {
        Ok(self.find(path)?.is_some_and(|(dir, index)| {
            let entry = &dir.entries[index];
            entry.kind == TreeEntryKind::Symlink && entry.id == blob_id
        }))
    }

    /// The content of a blob as it is stored, unconverted, through the same cache.
    pub fn raw_content(&self, blob_id: ObjectId) -> Result<BlobContent, GitError> {
        self.cache.stored(&self.repository, blob_id)
    }

    fn converted(&self, path: &RepoPath, blob_id: ObjectId) -> Result<BlobContent, GitError> {
        let tree = (self.tree_id, self.fingerprint());
        self.cache.converted(blob_id, tree, path, |sink| {
            self.conversions.smudge(path, blob_id, sink)
        })
    }

    /// Whether the file at `path` is converted (end of line, `ident`, `filter`, encoding) on its
    /// way out of the repository or into it, so that its bytes may differ from the blob's.
    pub fn is_converted(&self, path: &RepoPath) -> Result<bool, GitError> {
        let conversion = self.conversions.of_path(self, path)?;
        Ok(conversion.to_worktree || conversion.to_git)
    }

    /// Turns file content back into what git would store for `path` (the "clean" direction), as
    /// `git add` does.
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
