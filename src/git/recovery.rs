//! Commits kept without a ref that leads to one, so that no `git log --all` shows them.
//!
//! A ref to a tree keeps the trees of the commits as directories, and their raw bytes as blobs.
//! Writing these bytes as commits again gives the same ids.
//!
//! ```text
//! refs/tine/+recover/<id> ─► tree
//!   commits/<commit id>   blob: the raw bytes of the commit
//!   entry.json            blob: what the caller says of it
//!   trees/<tree id>       the trees of these commits
//! ```
//!
//! `git cat-file blob refs/tine/+recover/5:commits/<id> | git hash-object -t commit -w --stdin`
//! brings a commit back without tine.

use std::collections::BTreeSet;

use gix::objs::Kind;
use gix::refs::Target;
use gix::refs::transaction::{PreviousValue, RefEdit};

use super::{GitError, ObjectId, Repository, TreeChange, TreeEntryKind, program};
use tine_path::RepoPath;

/// Beneath `refs/tine/`; no fork can have this name.
pub const RECOVER: &str = "+recover";

const COMMITS: &str = "commits";
const TREES: &str = "trees";
const ENTRY: &str = "entry.json";

/// Commits that no branch, tag or remote branch reaches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnCommits {
    pub commit_ids: BTreeSet<ObjectId>,
    /// Commits on which these stand, and which something else reaches.
    pub stand_on: BTreeSet<ObjectId>,
}

impl Repository {
    /// The commits of `tips` that nothing else reaches: no tag, no remote branch, not HEAD of the
    /// main checkout, no branch but those in `without` (short names) and their aliases.
    pub fn own_commits(
        &self,
        tips: &BTreeSet<ObjectId>,
        without: &[&str],
    ) -> Result<OwnCommits, GitError> {
        let mut own = OwnCommits::default();
        if tips.is_empty() {
            return Ok(own);
        }
        let mut list = self.list_of_own(tips, without, "--boundary")?;
        for line in program::run(&mut list, b"")?.split(|&byte| byte == b'\n') {
            let (set, hex) = match line {
                [] => continue,
                [b'-', hex @ ..] => (&mut own.stand_on, hex),
                hex => (&mut own.commit_ids, hex),
            };
            set.insert(
                ObjectId::from_hex(hex).map_err(GitError::library("read the list of commits"))?,
            );
        }
        let reached = tips.difference(&own.commit_ids).copied();
        own.stand_on.extend(reached.collect::<Vec<_>>());
        Ok(own)
    }

    /// Adds to `own` the commits of `tip` that are not in the history of `since`, also where
    /// something else reaches them: the newest `max_count`.
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
            own.stand_on.extend(ids.get(1..).unwrap_or_default());
        }
        own.stand_on.retain(|id| !own.commit_ids.contains(id));
        Ok(())
    }

    /// How many bytes on the disk the objects take that only `tips` reach, as
    /// [`Repository::own_commits`] takes it.
    pub fn own_bytes(&self, tips: &BTreeSet<ObjectId>, without: &[&str]) -> Result<u64, GitError> {
        let mut list = self.list_of_own(tips, without, "--objects")?;
        let said = program::run(list.arg("--disk-usage"), b"")?;
        let said = String::from_utf8_lossy(&said);
        said.trim()
            .parse()
            .map_err(GitError::library("read the size of commits"))
    }

    fn list_of_own(
        &self,
        tips: &BTreeSet<ObjectId>,
        without: &[&str],
        how: &str,
    ) -> Result<std::process::Command, GitError> {
        let mut list = program::command(self.common_dir());
        // What replaces a commit is another one.
        list.args(["--no-replace-objects", "rev-list", "--ignore-missing", how]);
        list.args(tips.iter().map(ToString::to_string));
        list.arg("--not");
        // An alias of a branch that does not count leads nowhere without it.
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

    /// Writes the tree that keeps `commit_ids` with what `entry` says of them, and brings all of it
    /// to the disk.
    pub fn write_recoverable(
        &self,
        commit_ids: &BTreeSet<ObjectId>,
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

    /// What was said of the tree that [`Repository::write_recoverable`] wrote.
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

    /// The commits that the tree keeps.
    pub fn recoverable_commits(&self, tree_id: ObjectId) -> Result<BTreeSet<ObjectId>, GitError> {
        let kept = self.kept_commits(tree_id)?;
        Ok(kept.into_iter().map(|(commit_id, _)| commit_id).collect())
    }

    /// The first of the kept commits' bytes that are not here.
    pub fn lost_commit_of(&self, tree_id: ObjectId) -> Result<Option<ObjectId>, GitError> {
        self.lost_beneath(tree_id, COMMITS)
    }

    /// The first of the kept commits' trees that is not here, where none can be fetched.
    pub fn lost_tree_of(&self, tree_id: ObjectId) -> Result<Option<ObjectId>, GitError> {
        match self.promisor_remote() {
            Some(_) => Ok(None),
            None => self.lost_beneath(tree_id, TREES),
        }
    }

    fn lost_beneath(&self, tree_id: ObjectId, dir: &str) -> Result<Option<ObjectId>, GitError> {
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

    /// Writes the commits again that the tree keeps, under their own ids, and brings them to the
    /// disk.
    pub fn write_commits_again(&self, tree_id: ObjectId) -> Result<(), GitError> {
        for (commit_id, blob_id) in self.kept_commits(tree_id)? {
            let written = self.write_object(Kind::Commit, &self.read_blob(blob_id)?)?;
            if written != commit_id {
                return Err(GitError::CorruptObject {
                    id: blob_id,
                    reason: format!(
                        "it is kept as the commit {commit_id}, and hashes to {written}"
                    ),
                });
            }
        }
        self.sync_objects()
    }

    /// Each commit with the blob that keeps it.
    fn kept_commits(&self, tree_id: ObjectId) -> Result<Vec<(ObjectId, ObjectId)>, GitError> {
        let top = self.read_tree(tree_id)?;
        let Some(commits) = top
            .iter()
            .find(|entry| entry.name.as_bytes() == COMMITS.as_bytes())
        else {
            return Ok(Vec::new());
        };
        let named = |entry: super::TreeEntry| {
            let commit_id = ObjectId::from_hex(entry.name.as_bytes())
                .map_err(GitError::library("read the name of a kept commit"))?;
            Ok((commit_id, entry.id))
        };
        self.read_tree(commits.id)?.into_iter().map(named).collect()
    }

    /// Points `refs/tine/+recover/<label>` at `tree_id`, which must be on the disk; whether the
    /// label was free.
    pub fn keep_recoverable(&self, label: &str, tree_id: ObjectId) -> Result<bool, GitError> {
        self.point_recoverable(label, tree_id, PreviousValue::MustNotExist)
    }

    /// Points it at another tree, if it is still at `expected`; whether it was.
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
            // The library lets a ref pass that has the wanted value already.
            Ok(Some(_)) => Ok(!is_new),
            Ok(None) => Ok(true),
            Err(GitError::RefMoved { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes refs beneath `refs/tine/+recover/`: one step for git where it can be, else one after
    /// another. Those that stay, and why.
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

    /// The bytes of a commit itself, whatever `refs/replace/` has for it.
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
