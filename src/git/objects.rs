//! Reading of objects: commits, trees and blobs.
//!
//! Every object read is hashed and compared with its id, because the git library trusts packs and
//! loose files. In a partial clone, the git program fetches missing objects first.

use std::collections::HashMap;
use std::sync::Arc;

use gix::ObjectId;
use gix::objs::{CommitRef, Exists, Find, FindHeader, Kind, TagRef, TreeRefIter};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::checksum::Checksum;
use super::error::with_causes;
use super::{GitError, Repository, nonblocking, program};
use tine_path::{DOT_GIT, EntryName, PathError};
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

/// The mode of a tree entry.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum TreeEntryKind {
    /// Regular file, 100644.
    File,
    /// Executable file, 100755.
    Executable,
    /// Symbolic link, 120000.
    Symlink,
    /// Directory, 040000.
    Directory,
    /// Gitlink, 160000, shown as an empty directory.
    Submodule,
}

impl TreeEntryKind {
    /// Returns git's mode, as in `git ls-tree`: 0o100644 …
    pub fn mode(self) -> u32 {
        match self {
            TreeEntryKind::File => 0o100644,
            TreeEntryKind::Executable => 0o100755,
            TreeEntryKind::Symlink => 0o120000,
            TreeEntryKind::Directory => 0o040000,
            TreeEntryKind::Submodule => 0o160000,
        }
    }

    /// Returns the mode in six octal digits: `100644`.
    pub fn mode_text(self) -> String {
        format!("{:06o}", self.mode())
    }

    /// Parses the output of [`mode_text`](Self::mode_text).
    pub fn of_mode_text(text: &[u8]) -> Option<TreeEntryKind> {
        [
            TreeEntryKind::File,
            TreeEntryKind::Executable,
            TreeEntryKind::Symlink,
            TreeEntryKind::Submodule,
            TreeEntryKind::Directory,
        ]
        .into_iter()
        .find(|kind| kind.mode_text().as_bytes() == text)
    }
}

impl From<gix::objs::tree::EntryMode> for TreeEntryKind {
    fn from(mode: gix::objs::tree::EntryMode) -> TreeEntryKind {
        use gix::objs::tree::EntryKind;
        match mode.kind() {
            EntryKind::Blob => TreeEntryKind::File,
            EntryKind::BlobExecutable => TreeEntryKind::Executable,
            EntryKind::Link => TreeEntryKind::Symlink,
            EntryKind::Tree => TreeEntryKind::Directory,
            EntryKind::Commit => TreeEntryKind::Submodule,
        }
    }
}

/// Maximum number of files in a whole tree. git's index of that many takes a gigabyte.
const MAX_FILES: u64 = 10_000_000;

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
const FRESH_LOOKS: usize = 4;

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

/// One entry of a tree object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Name, checked by [`Repository::read_tree`].
    pub name: EntryName,
    /// Mode of the entry.
    pub kind: TreeEntryKind,
    /// Id of the blob, the tree, or the submodule's commit.
    pub id: ObjectId,
}

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
    pub(super) fn peel(&self, mut id: ObjectId) -> Result<(ObjectId, Kind), GitError> {
        loop {
            match self.object_header(id)?.0 {
                kind @ (Kind::Commit | Kind::Tree | Kind::Blob) => return Ok((id, kind)),
                Kind::Tag => {
                    let data = self.read_object(id, Kind::Tag)?;
                    let tag =
                        TagRef::from_bytes(&data, id.kind()).map_err(|error| corrupt(id, error))?;
                    id = tag.target();
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

    /// Reads a tree, in git's order. The empty tree is always readable.
    ///
    /// # Errors
    /// [`GitError::HostileTree`] for a name that a checkout must refuse (`..`, slashes, a variant
    /// of `.git` that `core.protectHFS` or `core.protectNTFS` detects); [`GitError::MissingObject`]
    /// or [`GitError::CorruptObject`].
    pub fn read_tree(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError> {
        if tree_id == self.empty_tree_id() {
            return Ok(Vec::new());
        }
        let data = self.read_object(tree_id, Kind::Tree)?;
        check_modes(&data, tree_id)?;
        let protect = self.protection();
        let mut entries: Vec<TreeEntry> = Vec::new();
        for entry in TreeRefIter::from_bytes(&data, tree_id.kind()) {
            let entry = entry.map_err(|error| corrupt(tree_id, error))?;
            let kind = TreeEntryKind::from(entry.mode);
            let hostile = |source| GitError::HostileTree { tree_id, source };
            let name = EntryName::new(entry.filename).map_err(hostile)?;
            protect.check(&name, kind).map_err(hostile)?;
            if let Some(last) = entries.last() {
                check_order(last, &name, kind).map_err(|reason| GitError::CorruptObject {
                    id: tree_id,
                    reason,
                })?;
            }
            entries.push(TreeEntry {
                name,
                kind,
                id: entry.oid.to_owned(),
            });
        }
        check_duplicates(&entries).map_err(|reason| GitError::CorruptObject {
            id: tree_id,
            reason,
        })?;
        Ok(entries)
    }

    /// Refuses a tree with more files than any checkout could have.
    ///
    /// A few objects can make such a tree, if each directory contains the next one many times. Each
    /// tree is therefore read once and its count reused.
    ///
    /// # Errors
    /// [`GitError::TooManyFiles`]; otherwise fails as [`Repository::read_tree`].
    pub fn check_file_count(&self, tree_id: ObjectId) -> Result<(), GitError> {
        struct Counting {
            tree_id: ObjectId,
            files: u64,
            /// Directories that are not counted yet.
            children: Vec<ObjectId>,
        }
        let start = |tree_id| -> Result<Counting, GitError> {
            let entries = self.read_tree(tree_id)?;
            let is_dir = |entry: &&TreeEntry| entry.kind == TreeEntryKind::Directory;
            let children: Vec<ObjectId> = entries
                .iter()
                .filter(is_dir)
                .map(|entry| entry.id)
                .collect();
            Ok(Counting {
                tree_id,
                files: (entries.len() - children.len()) as u64,
                children,
            })
        };
        let mut known: HashMap<ObjectId, u64> = HashMap::new();
        let mut above = Vec::new();
        let mut current = start(tree_id)?;
        loop {
            if current.files > MAX_FILES {
                return Err(GitError::TooManyFiles {
                    tree_id,
                    limit: MAX_FILES,
                });
            }
            match current.children.pop() {
                Some(child) => match known.get(&child) {
                    Some(files) => current.files = current.files.saturating_add(*files),
                    None => above.push(std::mem::replace(&mut current, start(child)?)),
                },
                None => {
                    known.insert(current.tree_id, current.files);
                    let Some(mut parent): Option<Counting> = above.pop() else {
                        return Ok(());
                    };
                    parent.files = parent.files.saturating_add(current.files);
                    current = parent;
                }
            }
        }
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
        for _ in 0..FRESH_LOOKS {
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

/// Checks that every tree entry has a mode, as git's `get_mode`.
///
/// The library accepts a missing mode as 0.
fn check_modes(mut entries: &[u8], tree_id: ObjectId) -> Result<(), GitError> {
    while let Some(name_at) = entries.iter().position(|&byte| byte == b' ') {
        if name_at == 0 {
            return Err(GitError::CorruptObject {
                id: tree_id,
                reason: "an entry has no mode".to_owned(),
            });
        }
        let name_end = entries.iter().skip(name_at).position(|&byte| byte == 0);
        let next = name_end.map(|len| name_at + len + 1 + tree_id.kind().len_in_bytes());
        entries = next
            .and_then(|next| entries.get(next..))
            .unwrap_or_default();
    }
    Ok(())
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

/// Checks that an entry may follow `last`.
///
/// Readers find names by bisection and compare trees side by side, so a tree out of order would
/// hide entries.
fn check_order(last: &TreeEntry, name: &EntryName, kind: TreeEntryKind) -> Result<(), String> {
    let is_tree = |kind| kind == TreeEntryKind::Directory;
    let order = gix::objs::tree::name_order(
        last.name.as_bytes(),
        is_tree(last.kind),
        name.as_bytes(),
        is_tree(kind),
    );
    match order {
        std::cmp::Ordering::Less => Ok(()),
        _ => Err(format!("{name} stands behind {} in the tree", last.name)),
    }
}

/// Checks that no name occurs twice.
///
/// A file and a directory of one name need not be neighbours in git's order.
fn check_duplicates(entries: &[TreeEntry]) -> Result<(), String> {
    let directories: std::collections::HashSet<&[u8]> = entries
        .iter()
        .filter(|entry| entry.kind == TreeEntryKind::Directory)
        .map(|entry| entry.name.as_bytes())
        .collect();
    let double = entries.iter().find(|entry| {
        entry.kind != TreeEntryKind::Directory && directories.contains(entry.name.as_bytes())
    });
    match double {
        Some(entry) => Err(format!("the tree names {} twice", entry.name)),
        None => Ok(()),
    }
}

/// Variants of `.git` that are refused, as in `verify_path` of git's read-cache.c.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protection {
    hfs: bool,
    ntfs: bool,
}

impl Protection {
    /// Reads the settings. The defaults are git's outside macOS and Windows: NTFS on, HFS off.
    pub(super) fn new(config: &gix::config::File) -> Protection {
        let is_on = |key| config.boolean(key).ok().flatten();
        Protection {
            hfs: is_on("core.protectHFS").unwrap_or(false),
            ntfs: is_on("core.protectNTFS").unwrap_or(true),
        }
    }

    fn check(self, name: &EntryName, kind: TreeEntryKind) -> Result<(), PathError> {
        use gix::validate::path::component;

        let bytes = name.as_bytes();
        let mode = (kind == TreeEntryKind::Symlink).then_some(component::Mode::Symlink);
        let options = component::Options {
            protect_windows: false,
            protect_hfs: self.hfs,
            protect_ntfs: self.ntfs,
        };
        let refused = || PathError::Reserved(bytes.to_vec());
        if bytes.eq_ignore_ascii_case(DOT_GIT) {
            return Err(refused());
        }
        gix::validate::path::component(bytes.into(), mode, options).map_err(|_| refused())?;
        let ends_in_disguise = |part: &[u8]| {
            matches!(
                gix::validate::path::component(part.into(), mode, options),
                Err(component::Error::DotGitDir | component::Error::SymlinkedGitModules)
            )
        };
        // git ends a name at the first byte that is not UTF-8.
        if self.hfs && ends_in_disguise(utf8_start(bytes)) {
            return Err(refused());
        }
        if self.ntfs {
            // On NTFS a backslash separates names, so check each part as a name.
            for part in bytes.split(|&b| b == b'\\') {
                if ends_in_disguise(part) {
                    return Err(refused());
                }
            }
        }
        Ok(())
    }
}

/// Returns the leading part that git accepts as UTF-8.
///
/// git (`pick_one_utf8_char`) also refuses the last two code points of each plane.
fn utf8_start(bytes: &[u8]) -> &[u8] {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let end = valid.find(|c| u32::from(c) & 0xfffe == 0xfffe);
    &bytes[..end.unwrap_or(valid.len())]
}

#[cfg(test)]
mod tests;
