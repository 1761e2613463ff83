//! Commits kept without a ref, so that `git log --all` omits them.
//!
//! A ref to a tree keeps the commits' trees as directories, and their raw bytes as blobs. Writing
//! these bytes as commits again gives the same ids.
//!
//! ```text
//! refs/tine/+recover/<id> ─► tree
//!   blobs/<blob id>       blobs that refs name
//!   commits/<commit id>   blob: the raw bytes of the commit
//!   entry.json            blob: the caller's description
//!   tags/<tag id>         blob: the raw bytes of a tag that a ref names
//!   trees/<tree id>       the trees of these commits, and those that refs name
//! ```
//!
//! `git cat-file blob refs/tine/+recover/5:commits/<id> | git hash-object -t commit -w --stdin`
//! restores a commit without tine.

use std::collections::BTreeSet;

use gix::objs::Kind;
use gix::refs::Target;
use gix::refs::transaction::{PreviousValue, RefEdit};

use super::{GitError, ObjectId, Repository, TreeChange, TreeEntryKind, program};
use tine_path::RepoPath;

/// Group of refs under `refs/tine/`, which is not a valid fork name.
pub const RECOVER: &str = "+recover";

const BLOBS: &str = "blobs";
const COMMITS: &str = "commits";
const TAGS: &str = "tags";
const TREES: &str = "trees";
const ENTRY: &str = "entry.json";

/// Commits that no branch, tag or remote branch reaches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnCommits {
    /// Ids of these commits.
    pub commit_ids: BTreeSet<ObjectId>,
    /// Parents of these commits that another ref reaches.
    pub boundary_ids: BTreeSet<ObjectId>,
}

impl Repository {
    /// Finds the commits that only `tips` reach.
    ///
    /// No tag, no remote branch, not HEAD of the main checkout, and no branch except those in
    /// `without` (short names) and their aliases reaches them.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if git cannot list the history; fails if HEAD cannot be read.
    pub fn own_commits(
        &self,
        tips: &BTreeSet<ObjectId>,
        without: &[&str],
    ) -> Result<OwnCommits, GitError> {
        let mut own = OwnCommits::default();
        if tips.is_empty() {
            return Ok(own);
        }
        let mut list = self.list_of_own(without, "--boundary")?;
        for line in program::run(&mut list, &lines(tips))?.split(|&byte| byte == b'\n') {
            let (set, hex) = match line {
                [] => continue,
                [b'-', hex @ ..] => (&mut own.boundary_ids, hex),
                hex => (&mut own.commit_ids, hex),
            };
            set.insert(
                ObjectId::from_hex(hex).map_err(GitError::library("read the list of commits"))?,
            );
        }
        let reached = tips.difference(&own.commit_ids).copied();
        own.boundary_ids.extend(reached.collect::<Vec<_>>());
        Ok(own)
    }

    /// Adds the commits of `tip` that `since` does not reach to `own`.
    ///
    /// Commits that another ref reaches are included. At most the newest `max_count` are added.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if git cannot list the history.
    pub fn add_commits_since(
        &self,
        own: &mut OwnCommits,
        tip: ObjectId,
        since: Option<ObjectId>,
        max_count: usize,
    ) -> Result<(), GitError> {
        let mut list = program::command(self.common_dir());
        list.args(["--no-replace-objects", "rev-list", "--parents"]);
        list.arg(format!("--max-count={max_count}"));
        list.arg(tip.to_string());
        list.args(since.map(|since| format!("^{since}")));
        for line in program::run(&mut list, b"")?.split(|&byte| byte == b'\n') {
            let ids = line
                .split(|&byte| byte == b' ')
                .filter(|hex| !hex.is_empty());
            let ids: Result<Vec<ObjectId>, _> = ids.map(ObjectId::from_hex).collect();
            let ids = ids.map_err(GitError::library("read the list of commits"))?;
            own.commit_ids.extend(ids.first());
            own.boundary_ids.extend(ids.get(1..).unwrap_or_default());
        }
        own.boundary_ids.retain(|id| !own.commit_ids.contains(id));
        Ok(())
    }

    /// Returns the disk usage in bytes of objects that only `tips` reach.
    ///
    /// See [`Repository::own_commits`].
    ///
    /// # Errors
    /// Fails as [`Repository::own_commits`].
    pub fn own_bytes(&self, tips: &BTreeSet<ObjectId>, without: &[&str]) -> Result<u64, GitError> {
        let mut list = self.list_of_own(without, "--objects")?;
        let said = program::run(list.arg("--disk-usage"), &lines(tips))?;
        let said = String::from_utf8_lossy(&said);
        said.trim()
            .parse()
            .map_err(GitError::library("read the size of commits"))
    }

    /// Makes the command that reads tips and lists what only they reach.
    fn list_of_own(&self, without: &[&str], how: &str) -> Result<std::process::Command, GitError> {
        let mut list = program::command(self.common_dir());
        // A replacement would be another commit.
        list.args(["--no-replace-objects", "rev-list", "--ignore-missing", how]);
        list.args(["--stdin", "--not"]);
        // An alias of an excluded branch does not count either.
        let aliases = self.aliases_to(without)?;
        list.args(aliases.iter().map(|alias| format!("--exclude={alias}")));
        list.args(without.iter().map(|branch| format!("--exclude={branch}")));
        list.args(["--branches", "--tags", "--remotes"]);
        list.args(
            self.head_of(self.common_dir())?
                .commit_id()
                .map(|head| head.to_string()),
        );
        Ok(list)
    }

    /// Writes and syncs the tree that keeps `commit_ids` with `entry`.
    ///
    /// `entry` is the caller's description. Of what refs name, `named`, it keeps tags, and the trees
    /// and blobs that refs or these tags name.
    ///
    /// # Errors
    /// [`GitError::MissingObject`] or [`GitError::CorruptObject`] if an object cannot be read;
    /// [`GitError::Io`] if an object cannot be written.
    pub fn write_recoverable(
        &self,
        commit_ids: &BTreeSet<ObjectId>,
        named: &BTreeSet<ObjectId>,
        entry: &[u8],
    ) -> Result<ObjectId, GitError> {
        let failed = "name what is kept";
        let place = |dir: &str, id: ObjectId| {
            RepoPath::parse(format!("{dir}/{id}")).map_err(GitError::library(failed))
        };
        let mut changes = vec![TreeChange {
            path: RepoPath::parse(ENTRY).map_err(GitError::library(failed))?,
            new: Some((TreeEntryKind::File, self.write_object(Kind::Blob, entry)?)),
        }];
        let mut trees: BTreeSet<ObjectId> = BTreeSet::new();
        for commit_id in commit_ids {
            let bytes = self.raw_commit(*commit_id)?;
            let first = bytes
                .split(|&byte| byte == b'\n')
                .next()
                .unwrap_or_default();
            let tree = first
                .strip_prefix(b"tree ")
                .and_then(|hex| ObjectId::from_hex(hex).ok());
            trees.insert(tree.ok_or_else(|| GitError::CorruptObject {
                id: *commit_id,
                reason: "it names no tree".to_owned(),
            })?);
            changes.push(TreeChange {
                path: place(COMMITS, *commit_id)?,
                new: Some((TreeEntryKind::File, self.write_object(Kind::Blob, &bytes)?)),
            });
        }
        for id in named {
            let (tags, target, kind) = self.peel_through(*id)?;
            for (tag_id, bytes) in tags {
                changes.push(TreeChange {
                    path: place(TAGS, tag_id)?,
                    new: Some((TreeEntryKind::File, self.write_object(Kind::Blob, &bytes)?)),
                });
            }
            match kind {
                Kind::Tree => drop(trees.insert(target)),
                Kind::Blob => changes.push(TreeChange {
                    path: place(BLOBS, target)?,
                    new: Some((TreeEntryKind::File, target)),
                }),
                Kind::Commit | Kind::Tag => {}
            }
        }
        trees.remove(&self.empty_tree_id());
        for tree_id in trees {
            changes.push(TreeChange {
                path: place(TREES, tree_id)?,
                new: Some((TreeEntryKind::Directory, tree_id)),
            });
        }
        let tree_id = self.edit_tree(self.empty_tree_id(), &changes)?;
        self.sync_objects()?;
        Ok(tree_id)
    }

    /// Reads the description in a tree of [`Repository::write_recoverable`].
    ///
    /// # Errors
    /// [`GitError::MissingObject`], or [`GitError::CorruptObject`] if it has no description.
    pub fn recoverable_entry(&self, tree_id: ObjectId) -> Result<Vec<u8>, GitError> {
        let found = self.read_tree(tree_id)?;
        let found = found
            .iter()
            .find(|entry| entry.name.as_bytes() == ENTRY.as_bytes());
        let entry = found.ok_or_else(|| GitError::CorruptObject {
            id: tree_id,
            reason: format!("it has no {ENTRY}"),
        })?;
        self.read_blob(entry.id)
    }

    /// Lists the commits that the tree keeps.
    ///
    /// # Errors
    /// Fails if the tree cannot be read.
    pub fn recoverable_commits(&self, tree_id: ObjectId) -> Result<BTreeSet<ObjectId>, GitError> {
        let kept = self.kept_below(tree_id, COMMITS)?;
        Ok(kept.into_iter().map(|(commit_id, _)| commit_id).collect())
    }

    /// Returns the first blob of a kept commit that is missing.
    ///
    /// # Errors
    /// Fails if the tree cannot be read.
    pub fn lost_commit_of(&self, tree_id: ObjectId) -> Result<Option<ObjectId>, GitError> {
        self.first_missing_in(tree_id, COMMITS)
    }

    /// Returns the first tree of a kept commit that is missing.
    ///
    /// In a partial clone, the result is always `None`.
    ///
    /// # Errors
    /// Fails if the tree cannot be read.
    pub fn lost_tree_of(&self, tree_id: ObjectId) -> Result<Option<ObjectId>, GitError> {
        match self.promisor_remote() {
            Some(_) => Ok(None),
            None => self.first_missing_in(tree_id, TREES),
        }
    }

    fn first_missing_in(&self, tree_id: ObjectId, dir: &str) -> Result<Option<ObjectId>, GitError> {
        let top = self.read_tree(tree_id)?;
        let Some(dir) = top
            .iter()
            .find(|entry| entry.name.as_bytes() == dir.as_bytes())
        else {
            return Ok(None);
        };
        if !self.has_object(dir.id) {
            return Ok(Some(dir.id));
        }
        let kept = self.read_tree(dir.id)?;
        let lost = kept.iter().find(|entry| !self.has_object(entry.id));
        Ok(lost.map(|entry| entry.id))
    }

    /// Writes and syncs the commits and tags that the tree keeps.
    ///
    /// # Errors
    /// [`GitError::MissingObject`], or [`GitError::CorruptObject`] if the bytes give another id;
    /// [`GitError::Io`] if an object cannot be written.
    pub fn write_commits_again(&self, tree_id: ObjectId) -> Result<(), GitError> {
        for (dir, kind) in [(COMMITS, Kind::Commit), (TAGS, Kind::Tag)] {
            for (id, blob_id) in self.kept_below(tree_id, dir)? {
                let written = self.write_object(kind, &self.read_blob(blob_id)?)?;
                if written != id {
                    return Err(GitError::CorruptObject {
                        id: blob_id,
                        reason: format!("it is kept as the {kind} {id}, and hashes to {written}"),
                    });
                }
            }
        }
        self.sync_objects()
    }

    /// Lists the objects that are kept as blobs in `dir`, with these.
    fn kept_below(
        &self,
        tree_id: ObjectId,
        dir: &str,
    ) -> Result<Vec<(ObjectId, ObjectId)>, GitError> {
        let top = self.read_tree(tree_id)?;
        let Some(dir) = top
            .iter()
            .find(|entry| entry.name.as_bytes() == dir.as_bytes())
        else {
            return Ok(Vec::new());
        };
        let named = |entry: super::TreeEntry| {
            let id = ObjectId::from_hex(entry.name.as_bytes())
                .map_err(GitError::library("read the name of a kept object"))?;
            Ok((id, entry.id))
        };
        self.read_tree(dir.id)?.into_iter().map(named).collect()
    }

    /// Creates `refs/tine/+recover/<label>` at `tree_id`, which must be on disk.
    ///
    /// Returns whether the label was free.
    ///
    /// # Errors
    /// [`GitError::RefLocked`], or [`GitError::Io`] if the ref cannot be written.
    pub fn keep_recoverable(&self, label: &str, tree_id: ObjectId) -> Result<bool, GitError> {
        self.point_recoverable(label, tree_id, PreviousValue::MustNotExist)
    }

    /// Moves the ref from `expected` to `tree_id`.
    ///
    /// Returns whether it was at `expected`.
    ///
    /// # Errors
    /// [`GitError::RefLocked`], or [`GitError::Io`] if the ref cannot be written.
    pub fn replace_recoverable(
        &self,
        label: &str,
        expected: ObjectId,
        tree_id: ObjectId,
    ) -> Result<bool, GitError> {
        let expected = PreviousValue::MustExistAndMatch(Target::Object(expected));
        self.point_recoverable(label, tree_id, expected)
    }

    fn point_recoverable(
        &self,
        label: &str,
        tree_id: ObjectId,
        expected: PreviousValue,
    ) -> Result<bool, GitError> {
        let (full_name, path) = self.keeping_ref(RECOVER, label)?;
        let is_new = expected == PreviousValue::MustNotExist;
        let edit = RefEdit::update(full_name, tree_id, expected, "");
        match self.apply_ref_edit(&self.keeping_store(), edit, &path) {
            // The library accepts a ref that already has the wanted value.
            Ok(Some(_)) => Ok(!is_new),
            Ok(None) => Ok(true),
            Err(GitError::RefMoved { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes refs under `refs/tine/+recover/`, in one git call if possible.
    ///
    /// Returns the labels that remain, with the errors.
    pub fn release_recoverable(&self, labels: &[String]) -> Vec<(String, GitError)> {
        let mut input = Vec::new();
        for label in labels {
            input.extend(format!("delete refs/tine/{RECOVER}/{label}\0\0").into_bytes());
        }
        let mut update = program::command(self.common_dir());
        update.args(["update-ref", "--no-deref", "--stdin", "-z"]);
        if labels.len() > 1 && program::run(&mut update, &input).is_ok() {
            return Vec::new();
        }
        let released = labels
            .iter()
            .map(|label| (label, self.release(RECOVER, label)));
        released
            .filter_map(|(label, released)| Some((label.clone(), released.err()?)))
            .collect()
    }

    /// Reads the raw bytes of a commit, ignoring `refs/replace/`.
    fn raw_commit(&self, commit_id: ObjectId) -> Result<Vec<u8>, GitError> {
        let bytes = self.read_object(commit_id, Kind::Commit)?;
        let hash = gix::objs::compute_hash(self.hash_kind(), Kind::Commit, &bytes)
            .map_err(GitError::library("hash an object"))?;
        if hash == commit_id {
            return Ok(bytes);
        }
        let mut cat = program::command(self.common_dir());
        cat.args(["--no-replace-objects", "cat-file", "commit"])
            .arg(commit_id.to_string());
        program::run(&mut cat, b"")
    }
}

/// Returns the ids, each in a line.
fn lines(ids: &BTreeSet<ObjectId>) -> Vec<u8> {
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    lines.into_bytes()
}
