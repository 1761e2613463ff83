//! Reading of objects: commits, trees and blobs.
//!
//! Every object read is hashed and compared with its id, because the git library trusts packs and
//! loose files. In a partial clone, the git program fetches missing objects first.

mod protection;
mod tree;

use std::sync::Arc;

use gix::ObjectId;
use gix::objs::{CommitRef, Exists, Find, FindHeader, Kind, TagRef};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

pub(super) use self::protection::Protection;
pub use self::tree::{TreeEntry, TreeEntryKind};
use super::checksum::Checksum;
use super::error::with_causes;
use super::{GitError, Repository, nonblocking, program};
use tine_sys::mapping;

/// The part of a commit that tine uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// Root tree of the commit.
    pub tree_id: ObjectId,
    /// Parents in the commit's order.
    pub parent_ids: Vec<ObjectId>,
    /// Committer time, seconds since 1970.
    pub time_secs: i64,
    /// First paragraph of the message in one line, lossily decoded.
    pub summary: String,
    /// Name of the author, lossily decoded.
    pub author_name: String,
    /// E-mail address of the author, lossily decoded.
    pub author_email: String,
    /// Author time, seconds since 1970.
    pub author_time_secs: i64,
}

/// Maximum size in bytes of a tree, commit or tag: several million entries.
///
/// A larger object is refused by its announced size, before it is loaded or rebuilt from deltas.
const MAX_STRUCTURE_BYTES: u64 = 256 << 20;

/// Maximum size in bytes of a blob in memory.
///
/// Callers stream larger ones.
const MAX_BLOB_BYTES: u64 = 1 << 30;

/// Number of lookups in a reopened object database.
///
/// They are for objects that are on disk, but not where they were.
const REOPEN_ATTEMPTS: usize = 4;

/// Maximum bytes of stored trees in the cache.
///
/// One request reads the same few trees several times.
const MAX_TREE_CACHE_BYTES: u64 = 2 << 20;

/// Cache of trees that were verified or written.
pub(super) struct TreeCache(Cache<ObjectId, Arc<[u8]>, ByLength>);

impl TreeCache {
    pub(crate) fn new() -> Arc<TreeCache> {
        let expected_count = 1024;
        Arc::new(TreeCache(Cache::with_weighter(
            expected_count,
            MAX_TREE_CACHE_BYTES,
            ByLength,
        )))
    }

    fn get(&self, id: ObjectId) -> Option<Vec<u8>> {
        Some(self.0.get(&id)?.to_vec())
    }

    pub(crate) fn put(&self, id: ObjectId, data: &[u8]) {
        self.0.insert(id, data.into());
    }
}

#[derive(Clone)]
struct ByLength;

impl Weighter<ObjectId, Arc<[u8]>> for ByLength {
    fn weight(&self, _: &ObjectId, data: &Arc<[u8]>) -> u64 {
        // Includes the cache's own overhead.
        data.len() as u64 + 64
    }
}

/// Tags with their raw bytes, and the object that they lead to.
type Peeled = (Vec<(ObjectId, Vec<u8>)>, ObjectId, Kind);

impl Repository {
    /// Reads a commit's whole message, lossily decoded.
    ///
    /// # Errors
    /// [`GitError::MissingObject`] or [`GitError::CorruptObject`].
    pub fn commit_message(&self, commit_id: ObjectId) -> Result<String, GitError> {
        let data = self.read_object(commit_id, Kind::Commit)?;
        let commit = CommitRef::from_bytes(&data, commit_id.kind())
            .map_err(|error| corrupt(commit_id, error))?;
        Ok(commit.message.to_string())
    }

    /// Returns the commit's tree, or the empty tree without a commit.
    ///
    /// # Errors
    /// Fails as [`Repository::commit_info`].
    pub fn tree_of(&self, commit_id: Option<ObjectId>) -> Result<ObjectId, GitError> {
        match commit_id {
            Some(commit_id) => Ok(self.commit_info(commit_id)?.tree_id),
            None => Ok(self.empty_tree_id()),
        }
    }

    /// Reads a commit.
    ///
    /// # Errors
    /// [`GitError::MissingObject`] or [`GitError::CorruptObject`].
    pub fn commit_info(&self, commit_id: ObjectId) -> Result<CommitInfo, GitError> {
        let data = self.read_object(commit_id, Kind::Commit)?;
        let corrupt = |error: gix::Error| corrupt(commit_id, error);
        let commit = CommitRef::from_bytes(&data, commit_id.kind()).map_err(corrupt)?;
        let author = commit.author().map_err(corrupt)?;
        let committer = commit.committer().map_err(corrupt)?;
        Ok(CommitInfo {
            tree_id: commit.tree(),
            parent_ids: commit.parents().collect(),
            time_secs: committer.seconds(),
            summary: commit.message_summary().to_string(),
            author_name: author.name.to_string(),
            author_email: author.email.to_string(),
            author_time_secs: author.seconds(),
        })
    }

    /// Follows tags from `id`, and returns the object and its kind.
    ///
    /// # Errors
    /// [`GitError::MissingObject`] or [`GitError::CorruptObject`].
    pub fn peel(&self, id: ObjectId) -> Result<(ObjectId, Kind), GitError> {
        let (_, id, kind) = self.peel_through(id)?;
        Ok((id, kind))
    }

    /// Does the same, and returns the tags with their raw bytes, too.
    pub(super) fn peel_through(&self, mut id: ObjectId) -> Result<Peeled, GitError> {
        let mut tags = Vec::new();
        loop {
            match self.object_header(id)?.0 {
                kind @ (Kind::Commit | Kind::Tree | Kind::Blob) => return Ok((tags, id, kind)),
                Kind::Tag => {
                    let data = self.read_object(id, Kind::Tag)?;
                    let tag =
                        TagRef::from_bytes(&data, id.kind()).map_err(|error| corrupt(id, error))?;
                    let target = tag.target();
                    tags.push((id, data));
                    id = target;
                }
            }
        }
    }

    /// Lists the commits reachable from `tip` and not from `hidden`.
    ///
    /// The newest comes first, and at most `limit` are returned.
    ///
    /// # Errors
    /// [`GitError::Library`] if the history cannot be walked; otherwise fails as
    /// [`Repository::commit_info`].
    pub fn log(
        &self,
        tip: ObjectId,
        hidden: Option<ObjectId>,
        limit: usize,
    ) -> Result<Vec<(ObjectId, CommitInfo)>, GitError> {
        use gix::revision::walk::Sorting;
        use gix::traverse::commit::simple::CommitTimeOrder;

        let ids = self.with_local(|local| {
            local
                .rev_walk([tip])
                .with_hidden(hidden)
                .sorting(Sorting::ByCommitTime(CommitTimeOrder::NewestFirst))
                .all()
                .map_err(GitError::library("walk the history"))?
                .take(limit)
                .map(|found| {
                    found
                        .map(|commit| commit.id)
                        .map_err(GitError::library("walk the history"))
                })
                .collect::<Result<Vec<_>, _>>()
        })?;
        ids.into_iter()
            .map(|id| Ok((id, self.commit_info(id)?)))
            .collect()
    }

    /// Reads a blob as stored, unfiltered.
    ///
    /// In a partial clone, git fetches a missing blob first.
    ///
    /// # Errors
    /// [`GitError::MissingObject`] or [`GitError::CorruptObject`].
    pub fn read_blob(&self, blob_id: ObjectId) -> Result<Vec<u8>, GitError> {
        self.read_object(blob_id, Kind::Blob)
    }

    /// Reads a blob whose size [`Repository::blob_size`] has just returned.
    ///
    /// Otherwise it acts as [`Repository::read_blob`].
    pub(super) fn read_blob_of_size(
        &self,
        blob_id: ObjectId,
        size: u64,
    ) -> Result<Vec<u8>, GitError> {
        self.read_announced(blob_id, Kind::Blob, size)
    }

    /// Returns a stored blob's size in bytes, from its header.
    ///
    /// # Errors
    /// [`GitError::MissingObject`]; [`GitError::CorruptObject`] if it is not a blob or claims an
    /// impossible size.
    pub fn blob_size(&self, blob_id: ObjectId) -> Result<u64, GitError> {
        let (kind, size) = self.object_header(blob_id)?;
        check_kind(blob_id, kind, Kind::Blob)?;
        if i64::try_from(size).is_err() {
            // No file is that large, and the kernel would reject the whole listing of its
            // directory.
            return Err(too_large(blob_id, size));
        }
        Ok(size)
    }

    /// Returns kind and size in bytes of an object, from its header.
    pub(super) fn object_header(&self, id: ObjectId) -> Result<(Kind, u64), GitError> {
        self.find_with_retries(id, || {
            let header = self.with_local(|local| local.objects.try_header(&id))?;
            Ok(header.map(|header| (header.kind, header.size)))
        })
    }

    /// Returns whether the object is present, without fetching it.
    pub fn has_object(&self, id: ObjectId) -> bool {
        id == self.empty_tree_id() || self.with_local(|local| local.objects.exists(&id))
    }

    /// Fetches those of `ids` that a partial clone lacks, in one request.
    ///
    /// It is a no-op if the clone is complete. Blocks on the network.
    ///
    /// # Errors
    /// [`GitError::TakesLong`] on a nonblocking thread, [`GitError::GitFailed`] if the fetch fails.
    pub fn fetch_missing(&self, ids: &[ObjectId]) -> Result<(), GitError> {
        let Some(remote) = self.promisor_remote() else {
            return Ok(());
        };
        // Another thread may be fetching.
        nonblocking::check()?;
        let _fetching = self.fetching().lock();
        let mut wanted = String::new();
        for id in ids.iter().filter(|id| !self.has_object(**id)) {
            wanted.push_str(&format!("{id}\n"));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        // These are the arguments of git's own fetch of a missing object (promisor-remote.c).
        let mut command = program::command(self.common_dir());
        command
            .args(["-c", "fetch.negotiationAlgorithm=noop", "fetch", remote])
            .args([
                "--no-tags",
                "--no-write-fetch-head",
                "--recurse-submodules=no",
            ])
            .args(["--filter=blob:none", "--stdin"]);
        program::run(&mut command, wanted.as_bytes()).map(drop)
    }

    /// Reads an object of the `wanted` kind and verifies its hash.
    ///
    /// The hash must be `id`, or that of its replacement in `refs/replace/`.
    pub(super) fn read_object(&self, id: ObjectId, wanted: Kind) -> Result<Vec<u8>, GitError> {
        if wanted != Kind::Tree {
            return self.read_stored_object(id, wanted);
        }
        if let Some(data) = self.trees().get(id) {
            return Ok(data);
        }
        let data = self.read_stored_object(id, wanted)?;
        self.trees().put(id, &data);
        Ok(data)
    }

    fn read_stored_object(&self, id: ObjectId, wanted: Kind) -> Result<Vec<u8>, GitError> {
        // The library allocates the size that the header announces, so check that first.
        let (kind, size) = self.object_header(id)?;
        check_kind(id, kind, wanted)?;
        self.read_announced(id, wanted, size)
    }

    /// Reads an object whose header announces `size` bytes.
    fn read_announced(&self, id: ObjectId, wanted: Kind, size: u64) -> Result<Vec<u8>, GitError> {
        let limit = match wanted {
            Kind::Blob => MAX_BLOB_BYTES,
            Kind::Tree | Kind::Commit | Kind::Tag => MAX_STRUCTURE_BYTES,
        };
        if size > limit {
            return Err(too_large(id, size));
        }
        let (kind, data) = self.find_with_retries(id, || {
            let mut data = Vec::new();
            let kind = self.with_local(|local| {
                local
                    .objects
                    .try_find(&id, &mut data)
                    .map(|found| found.map(|found| found.kind))
            })?;
            Ok(kind.map(|kind| (kind, data)))
        })?;
        check_kind(id, kind, wanted)?;
        let mut checksum = Checksum::of_object(id.kind(), kind, data.len() as u64);
        checksum.update(&data);
        let hash = checksum.finish()?;
        if hash != id && !self.is_replacement(id, hash) {
            return Err(GitError::CorruptObject {
                id,
                reason: format!("its content hashes to {hash}"),
            });
        }
        Ok(data)
    }

    /// Returns whether `refs/replace/` replaces `id` by `replacement`.
    pub(super) fn is_replacement(&self, id: ObjectId, replacement: ObjectId) -> bool {
        self.with_local(|local| {
            let mut replacements = local.objects.store_ref().replacements();
            replacements.any(|(replaced, by)| replaced == id && by == replacement)
        })
    }

    /// Looks up an object, with retries.
    ///
    /// It retries if the object may have moved into a pack, and after fetching it if the clone is
    /// partial.
    fn find_with_retries<T>(
        &self,
        id: ObjectId,
        find: impl Fn() -> Result<Option<T>, gix::Error>,
    ) -> Result<T, GitError> {
        let find = || match mapping::guarded(&find) {
            Ok(found) => found.map_err(|error| corrupt(id, error)),
            Err(unreadable) => {
                self.forget_mappings()?;
                Err(GitError::io("read", self.common_dir().join("objects"))(
                    unreadable.into(),
                ))
            }
        };
        if let Ok(Some(found)) = find() {
            return Ok(found);
        }
        let mut second = find();
        for _ in 0..REOPEN_ATTEMPTS {
            if let Ok(Some(found)) = second {
                return Ok(found);
            }
            // `git repack` can replace packs faster than the mappings are refreshed.
            if !self.is_on_disk(id) {
                break;
            }
            self.forget_mappings()?;
            second = find();
        }
        if let Some(found) = second? {
            return Ok(found);
        }
        if self.rewrite_recent(id)?
            && let Some(found) = find()?
        {
            return Ok(found);
        }
        if self.promisor_remote().is_some() {
            if let Err(error) = self.fetch_missing(&[id]) {
                if let GitError::TakesLong = error {
                    return Err(error);
                }
                log::error!("the missing object {id} cannot be fetched: {error}");
                return Err(GitError::MissingObject { id });
            }
            if let Some(found) = find()? {
                return Ok(found);
            }
        }
        Err(GitError::MissingObject { id })
    }
}

fn corrupt(id: ObjectId, error: gix::Error) -> GitError {
    GitError::CorruptObject {
        id,
        reason: with_causes(&error),
    }
}

fn too_large(id: ObjectId, size: u64) -> GitError {
    GitError::CorruptObject {
        id,
        reason: format!("it claims to have {size} bytes"),
    }
}

fn check_kind(id: ObjectId, kind: Kind, wanted: Kind) -> Result<(), GitError> {
    if kind == wanted {
        return Ok(());
    }
    Err(GitError::CorruptObject {
        id,
        reason: format!("it is a {kind}, not a {wanted}"),
    })
}

#[cfg(test)]
mod tests;
