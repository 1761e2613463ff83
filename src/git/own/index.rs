//! Protection of what the index of an own git directory names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::index::State;
use gix::index::entry::Mode;
use gix::index::extension::Tree;
use gix::objs::{FindHeader, Kind};

use super::dir::{Found, Loose, OwnDir};
use super::tips::read_tips;
use crate::index::removed::entries_under;
use crate::index::{check_depth, on_deep_stack};
use crate::{GitError, Repository, TreeEntry, TreeEntryKind};
use tine_path::RepoPath;

/// Label of the tree that names what the index needs.
const INDEX: &str = "git-index";

/// Maximum bytes of a staged blob that is brought.
const MAX_STAGED_BYTES: u64 = 256 << 20;

/// Maximum bytes of an index.
const MAX_INDEX_BYTES: u64 = 1 << 32;

impl Repository {
    /// Keeps the blobs that the index of `own` names.
    ///
    /// Blobs in the tree of HEAD, and those that only the own git directory has, need no
    /// protection. Returns the number of blobs that are kept.
    ///
    /// Costs the difference between index and HEAD, and the reading of the index.
    ///
    /// # Errors
    /// [`GitError::Io`] or [`GitError::Library`] if the index cannot be read; fails if a tree cannot
    /// be read or written, and as [`Repository::keep`].
    pub fn protect_index(&self, own: &Path, fork: &str) -> Result<usize, GitError> {
        self.keep_index(own, fork, false)
    }

    /// Brings the blobs that the index of `own` names, and keeps them.
    ///
    /// They are those that are staged and not committed. Blobs over 256 MiB stay in the own git directory. Otherwise as
    /// [`Repository::protect_index`].
    ///
    /// # Errors
    /// Fails as [`Repository::protect_index`], and if a blob cannot be written.
    pub fn bring_index(&self, own: &Path, fork: &str) -> Result<usize, GitError> {
        self.keep_index(own, fork, true)
    }

    /// Returns whether the own git directory has a loose object.
    ///
    /// Those that were taken over are gone from there, so that few have any.
    ///
    /// # Errors
    /// [`GitError::Io`] if the directory cannot be opened.
    pub fn has_own_loose_objects(&self, own: &Path) -> Result<bool, GitError> {
        let dir = OwnDir::open(own)?;
        let objects = Path::new("objects");
        let names = dir.list(objects).into_iter();
        let mut fan_out = names.filter(|(name, _)| name.len() == 2);
        Ok(fan_out.any(|(name, _)| !dir.list(&objects.join(OsStr::from_bytes(&name))).is_empty()))
    }

    fn keep_index(&self, own: &Path, fork: &str, brings: bool) -> Result<usize, GitError> {
        let dir = OwnDir::open(own)?;
        let path = dir.path_of("index");
        let (named, mut trees) = on_deep_stack(&path, || self.objects_of_index(&dir))?;
        trees.retain(|id| self.has_object(*id));
        let mut ids = BTreeSet::new();
        for id in named {
            let is_kept =
                self.is_blob(id) || (brings && dir.has_loose(&id) && self.copy_blob(&dir, id)?);
            if is_kept {
                ids.insert(id);
            }
        }
        let kept = self.kept_as(fork, INDEX)?;
        if ids.is_empty() && trees.is_empty() {
            if kept.is_some() {
                self.release(fork, INDEX)?;
            }
            return Ok(0);
        }
        let mut tree = Vec::new();
        for id in &ids {
            tree.extend_from_slice(format!("100644 {id}\0").as_bytes());
            tree.extend_from_slice(id.as_slice());
        }
        for id in &trees {
            tree.extend_from_slice(format!("40000 tree-{id}\0").as_bytes());
            tree.extend_from_slice(id.as_slice());
        }
        let tree_id = gix::objs::compute_hash(self.hash_kind(), Kind::Tree, &tree)
            .map_err(GitError::library("hash a tree"))?;
        if kept != Some(tree_id) {
            self.write_object(Kind::Tree, &tree)?;
            self.sync_objects()?;
            self.keep(fork, INDEX, tree_id)?;
        }
        Ok(ids.len())
    }

    /// Returns the index's blobs and cached trees that HEAD's tree lacks.
    fn objects_of_index(
        &self,
        dir: &OwnDir,
    ) -> Result<(BTreeSet<ObjectId>, BTreeSet<ObjectId>), GitError> {
        let head = read_tips(self, dir).named.get("HEAD").copied();
        // HEAD may lead to something that is not here yet.
        let tree_id = head.and_then(|id| Some(self.commit_info(id).ok()?.tree_id));
        let (mut ids, mut trees) = (BTreeSet::new(), BTreeSet::new());
        let mut open = vec![PathBuf::from("index")];
        while let Some(path) = open.pop() {
            let Some(index) = self.read_own_index(dir, &path)? else {
                continue;
            };
            if let Some(shared) = index.link().map(|link| link.shared_index_checksum) {
                open.push(PathBuf::from(format!("sharedindex.{shared}")));
            }
            let mut search = Search {
                main: self,
                index: &index,
                is_in_head: vec![false; index.entries().len()],
                trees: BTreeSet::new(),
            };
            if let Some(tree_id) = tree_id {
                let all = 0..index.entries().len();
                search.directory(&RepoPath::root(), tree_id, all, index.tree())?;
            }
            trees.append(&mut search.trees);
            let entries = index.entries().iter().zip(&search.is_in_head);
            let other = entries.filter(|(entry, is_in_head)| {
                !**is_in_head && !entry.mode.contains(Mode::COMMIT) && !entry.mode.is_sparse()
            });
            ids.extend(other.map(|(entry, _)| entry.id));
        }
        Ok((ids, trees))
    }

    /// Copies a loose blob of the own git directory. Returns false for anything else.
    fn copy_blob(&self, dir: &OwnDir, id: ObjectId) -> Result<bool, GitError> {
        match dir.read_loose(self.hash_kind(), id, MAX_STAGED_BYTES)? {
            Ok(Loose::Read(_, content)) if content.kind == Kind::Blob => {
                self.write_object(Kind::Blob, &content.data)?;
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(reason) => {
                log::warn!("what is staged is not brought: {reason}");
                Ok(false)
            }
        }
    }

    fn read_own_index(&self, dir: &OwnDir, path: &Path) -> Result<Option<State>, GitError> {
        let bytes = match dir.read(path, MAX_INDEX_BYTES) {
            Found::Good(bytes) => bytes,
            Found::Missing => return Ok(None),
            Found::Invalid(reason) => {
                return Err(GitError::Library {
                    action: "read the index",
                    reason: format!("{}: {reason}", dir.path_of(path).display()),
                });
            }
        };
        let options = gix::index::decode::Options::default();
        // The time only tells which entries may have changed since.
        let time = State::new(self.hash_kind()).timestamp();
        let read = State::from_bytes(&bytes, time, self.hash_kind(), options);
        let (index, _) = read.map_err(GitError::library("read the index"))?;
        Ok(Some(index))
    }

    /// Returns whether the object is a blob here, without fetching it.
    fn is_blob(&self, id: ObjectId) -> bool {
        let header = self.with_local(|local| local.objects.try_header(&id));
        header.is_ok_and(|header| header.is_some_and(|header| header.kind == Kind::Blob))
    }
}

struct Search<'a> {
    main: &'a Repository,
    index: &'a State,
    /// For each entry: whether HEAD's tree has the same blob at its path.
    is_in_head: Vec<bool>,
    /// Cached trees that HEAD's tree lacks at their paths.
    trees: BTreeSet<ObjectId>,
}

impl Search<'_> {
    /// Compares the entries under `dir`, in `range`, with HEAD's tree there.
    fn directory(
        &mut self,
        dir: &RepoPath,
        tree_id: ObjectId,
        range: Range<usize>,
        cached: Option<&Tree>,
    ) -> Result<(), GitError> {
        if cached.is_some_and(|tree| tree.id == tree_id && tree.num_entries.is_some()) {
            if let Some(same) = self.is_in_head.get_mut(range) {
                same.fill(true);
            }
            return Ok(());
        }
        if let Some(tree) = cached.filter(|tree| tree.num_entries.is_some()) {
            self.trees.insert(tree.id);
        }
        check_depth(dir.components().count(), tree_id)?;
        for TreeEntry { name, kind, id } in self.main.read_tree(tree_id)? {
            let path = dir.join(&name);
            if kind == TreeEntryKind::Directory {
                let below = entries_under(self.index, &path, range.clone());
                let child = |tree: &&Tree| tree.name[..] == *name.as_bytes();
                let cached = cached.and_then(|tree| tree.children.iter().find(child));
                if !below.is_empty() {
                    self.directory(&path, id, below, cached)?;
                }
            } else {
                self.note_same(&path, id, range.clone());
            }
        }
        Ok(())
    }

    /// Marks the entries at `path` that have the blob of HEAD.
    fn note_same(&mut self, path: &RepoPath, id: ObjectId, range: Range<usize>) {
        let path = path.as_bytes().as_bstr();
        let entries = self.index.entries().get(range.clone()).unwrap_or_default();
        let start = entries.partition_point(|entry| entry.path(self.index) < path);
        let rest = entries.get(start..).unwrap_or_default().iter();
        let at_path = rest.take_while(|entry| entry.path(self.index) == path);
        for (number, entry) in at_path.enumerate() {
            let position = range.start.saturating_add(start).saturating_add(number);
            if entry.id == id
                && let Some(same) = self.is_in_head.get_mut(position)
            {
                *same = true;
            }
        }
    }
}
