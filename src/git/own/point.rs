//! HEAD, refs and index at one moment, and the way back.
//!
//! A *git point* is a tree of the main repository: the index as a tree (`index`), everything else
//! as JSON (`state`), and tag objects as blobs (`tags`). One commit for each fork has all its
//! points in its tree, and as parents the commits that their HEADs and refs name. So one ref keeps
//! all that the points need. Equal states are the same tree.
//!
//! The stash, and refs of an operation in progress, are not part of a point: they never go back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;

use gix::ObjectId;
use gix::objs::{Find, Kind, TagRefIter};
use gix::refs::file::Store;
use gix::refs::store::WriteReflog;
use gix::refs::transaction::{Change, LogChange, PreviousValue, RefEdit, RefLog};
use gix::refs::{FullName, Target};
use serde::{Deserialize, Serialize};

use super::dir::{OwnDir, is_missing};
use super::logged::KEEPER;
use super::tips::{Tips, Value, read_values};
use crate::index::{IndexTree, intents_to_add};
use crate::refs::{read_if_there, reflog_message, sync_if_there};
use crate::{GitError, Repository, TreeEntryKind, Worktree};
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_sys::pause;

/// Label of the commit with the points of a fork's snapshots.
const POINTS: &str = "git-points";

/// Names in the tree of a point.
const INDEX: &str = "index";
const STATE: &str = "state";
const TAGS: &str = "tags";

/// File with the lent names that the fork removed.
const HIDDEN: &str = "tine/hidden";

/// Refs that never go back: those of the stash and of operations in progress.
const STAYING: [&str; 3] = ["refs/stash", "refs/bisect/", "refs/rewritten/"];

/// State of a point apart from objects, as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// Content of HEAD: an id, or `ref: ` and a name.
    head: String,
    /// Commit of HEAD, in hex; `None` on a branch without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head_commit: Option<String>,
    /// The fork's own refs by full name, each as [`State::head`].
    refs: BTreeMap<String, String>,
    /// Lent names that the fork removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hidden: Vec<PathText>,
    /// Paths that are intended to be added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    intents: Vec<PathText>,
    /// Operation of git that was in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
}

/// HEAD, refs and index of a git directory at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPoint {
    state: State,
    /// Tree of the index; `None` if the index had paths in conflict.
    index_tree: Option<ObjectId>,
    /// Tag objects, in case the main repository has lost them.
    tags: BTreeMap<ObjectId, ObjectId>,
}

impl GitPoint {
    /// Returns the commit of HEAD.
    pub fn head_commit(&self) -> Option<ObjectId> {
        let hex = self.state.head_commit.as_ref()?;
        ObjectId::from_hex(hex.as_bytes()).ok()
    }

    /// Returns the operation of git that was in progress (`rebase`).
    pub fn operation(&self) -> Option<&str> {
        self.state.operation.as_deref()
    }

    /// Returns the index: its tree, and the paths that are intended to be added.
    ///
    /// `None` if it had paths in conflict.
    pub fn index(&self) -> Option<(ObjectId, Vec<RepoPath>)> {
        let intents = self.state.intents.iter();
        let intents = intents.filter_map(|text| RepoPath::parse(text.to_bytes()).ok());
        Some((self.index_tree?, intents.collect()))
    }

    /// Returns this point, with what moved since a tried move began.
    ///
    /// `now` is what there is. A value that is not as in `tried` was not moved, or was moved by
    /// another process, and stays.
    #[must_use]
    pub fn after_failed_move(&self, tried: &GitPoint, now: &GitPoint) -> GitPoint {
        let mut back = now.clone();
        let names: BTreeSet<&String> = self
            .state
            .refs
            .keys()
            .chain(now.state.refs.keys())
            .collect();
        for name in names {
            if now.state.refs.get(name) == tried.state.refs.get(name) {
                match self.state.refs.get(name) {
                    Some(value) => drop(back.state.refs.insert(name.clone(), value.clone())),
                    None => drop(back.state.refs.remove(name)),
                }
            }
        }
        if now.state.head == tried.state.head {
            back.state.head.clone_from(&self.state.head);
            back.state.head_commit.clone_from(&self.state.head_commit);
        }
        if now.state.hidden == tried.state.hidden {
            back.state.hidden.clone_from(&self.state.hidden);
        }
        back
    }

    /// Returns this point with a renamed branch (short names), which HEAD follows.
    fn with_renamed_branch(&self, old: &str, new: &str) -> GitPoint {
        let mut renamed = self.clone();
        let (old, new) = (format!("refs/heads/{old}"), format!("refs/heads/{new}"));
        if renamed.state.head == format!("ref: {old}") {
            renamed.state.head = format!("ref: {new}");
        }
        if let Some(value) = renamed.state.refs.remove(&old) {
            renamed.state.refs.insert(new, value);
        }
        renamed
    }

    /// Returns this point with refs that it lacks, and their number.
    ///
    /// The names are full.
    #[must_use]
    pub fn with_missing(&self, refs: &BTreeMap<String, ObjectId>) -> (GitPoint, usize) {
        let mut more = self.clone();
        let taken = &self.state.refs;
        let is_free = |name: &&String| !taken.contains_key(*name) && !is_in_the_way(taken, name);
        for name in refs.keys().filter(is_free) {
            more.state.refs.insert(name.clone(), refs[name].to_string());
        }
        let count = more.state.refs.len() - self.state.refs.len();
        (more, count)
    }

    /// Returns the ids that HEAD and refs name directly.
    fn ids(&self) -> BTreeSet<ObjectId> {
        let values = self.state.refs.values().chain([&self.state.head]);
        let ids = values.filter_map(|value| ObjectId::from_hex(value.as_bytes()).ok());
        ids.chain(self.head_commit()).collect()
    }
}

impl Repository {
    /// Checks that a fork's new branch hides none that is lent.
    ///
    /// `git_dir` is the fork's own git directory.
    ///
    /// # Errors
    /// [`GitError::BranchExists`], or [`GitError::Io`] if the list of hidden refs cannot be read.
    pub fn check_hides_no_branch(&self, git_dir: &Path, name: &str) -> Result<(), GitError> {
        let hidden = read_if_there(&git_dir.join(HIDDEN))?.unwrap_or_default();
        let full_name = format!("refs/heads/{name}");
        let mut hidden = hidden.split(|&byte| byte == b'\n');
        if hidden.any(|path| path == full_name.as_bytes()) {
            return Ok(());
        }
        self.check_branch_is_free(name)
    }

    /// Records HEAD, refs and index of a fork as a tree.
    ///
    /// With `last`, a point of the fork whose index was the same, the index is not read. What the
    /// main repository has not taken over is named by the point, and not kept by it. The caller
    /// lets a ref keep the point ([`Repository::keep_points`]).
    ///
    /// Runs git if the index changed.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be read, [`GitError::GitFailed`] if the index names blobs
    /// that the main repository lacks, and the errors of writing objects.
    pub fn record_point(
        &self,
        worktree: &Worktree,
        fork: &str,
        last: Option<ObjectId>,
    ) -> Result<ObjectId, GitError> {
        let mut point = self.point_now(worktree)?;
        match last.map(|last| self.point(last)).transpose()? {
            Some(last) => {
                point.index_tree = last.index_tree;
                point.state.intents = last.state.intents;
            }
            None => {
                if let IndexTree::Whole(tree_id) = self.index_tree(worktree)? {
                    point.index_tree = Some(tree_id);
                    let intents = intents_to_add(self, worktree)?;
                    point.state.intents = intents.iter().map(PathText::from).collect();
                    self.sync_tree(tree_id, self.tree_of(point.head_commit())?)?;
                }
            }
        }
        self.write_point(fork, point)
    }

    /// Writes a point as a tree.
    fn write_point(&self, fork: &str, mut point: GitPoint) -> Result<ObjectId, GitError> {
        let kept = self.kept(fork)?.into_iter().map(|(_, id)| id);
        let ids = point.ids();
        let mut open: Vec<ObjectId> = kept.filter(|id| ids.contains(id)).collect();
        while let Some(id) = open.pop() {
            if let Some((Kind::Tag, bytes)) = self.find_in_main(id) {
                point
                    .tags
                    .insert(id, self.write_object(Kind::Blob, &bytes)?);
                open.extend(tagged(&bytes, id));
            }
        }
        let state = serde_json::to_vec(&point.state).map_err(GitError::library("write JSON"))?;
        let mut tree = Vec::new();
        if let Some(index_tree) = point.index_tree {
            tree.extend(entry("40000", INDEX, index_tree));
        }
        let state = self.write_object(Kind::Blob, &state)?;
        tree.extend(entry("100644", STATE, state));
        if !point.tags.is_empty() {
            let mut tags = Vec::new();
            for (id, blob_id) in &point.tags {
                tags.extend(entry("100644", &id.to_string(), *blob_id));
            }
            tree.extend(entry("40000", TAGS, self.write_object(Kind::Tree, &tags)?));
        }
        self.write_object(Kind::Tree, &tree)
    }

    fn find_in_main(&self, id: ObjectId) -> Option<(Kind, Vec<u8>)> {
        let mut data = Vec::new();
        let kind = self.with_local(|local| {
            let found = local.objects.try_find(&id, &mut data);
            found.ok().flatten().map(|found| found.kind)
        })?;
        Some((kind, data))
    }

    /// Reads a point.
    ///
    /// # Errors
    /// [`GitError`] if it is missing or is not a point.
    pub fn point(&self, tree_id: ObjectId) -> Result<GitPoint, GitError> {
        let mut point = GitPoint {
            state: State::default(),
            index_tree: None,
            tags: BTreeMap::new(),
        };
        let mut state = None;
        for entry in self.read_tree(tree_id)? {
            match (entry.name.as_bytes(), entry.kind) {
                (b"index", TreeEntryKind::Directory) => point.index_tree = Some(entry.id),
                (b"state", _) => state = self.find_in_main(entry.id),
                (b"tags", TreeEntryKind::Directory) => {
                    for tag in self.read_tree(entry.id)? {
                        if let Ok(id) = ObjectId::from_hex(tag.name.as_bytes()) {
                            point.tags.insert(id, tag.id);
                        }
                    }
                }
                _ => {}
            }
        }
        let (_, state) = state.unwrap_or((Kind::Blob, Vec::new()));
        point.state = serde_json::from_slice(&state).map_err(GitError::library("read a point"))?;
        Ok(point)
    }

    /// Reads HEAD and refs of a fork, without its index.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be read, [`GitError::Library`] if a ref is invalid.
    pub fn point_now(&self, worktree: &Worktree) -> Result<GitPoint, GitError> {
        let git_dir = worktree.git_dir();
        let mut tips = Tips::default();
        let mut values = read_values(self.hash_kind(), &OwnDir::open(git_dir)?, &mut tips);
        if let Some((name, reason)) = tips.invalid.into_iter().next() {
            return Err(GitError::Library {
                action: "read the refs",
                reason: format!("{name}: {reason}"),
            });
        }
        let head_commit = self.head_of(git_dir)?.commit_id();
        let head = values.remove("HEAD").map(text_of).unwrap_or_default();
        values.retain(|name, _| is_in_points(name));
        let hidden = read_if_there(&git_dir.join(HIDDEN))?.unwrap_or_default();
        let hidden = hidden.split(|&byte| byte == b'\n');
        let hidden = hidden.filter_map(|name| RepoPath::parse(name).ok());
        Ok(GitPoint {
            state: State {
                head,
                head_commit: head_commit.map(|id| id.to_string()),
                refs: values
                    .into_iter()
                    .map(|(name, value)| (name, text_of(value)))
                    .collect(),
                hidden: hidden
                    .filter(|path| !path.is_root())
                    .map(|path| PathText::from(&path))
                    .collect(),
                intents: Vec::new(),
                operation: worktree.operation_in_progress().map(str::to_owned),
            },
            index_tree: None,
            tags: BTreeMap::new(),
        })
    }

    /// Lets one ref keep these points of the fork, and no others.
    ///
    /// # Errors
    /// Fails as [`Repository::keep`], and if the commit cannot be written.
    pub fn keep_points(&self, fork: &str, points: &BTreeSet<ObjectId>) -> Result<(), GitError> {
        let kept = self.kept_as(fork, POINTS)?;
        if points.is_empty() {
            return match kept {
                Some(_) => self.release(fork, POINTS),
                None => Ok(()),
            };
        }
        let mut tree = Vec::new();
        for id in points {
            tree.extend(entry("40000", &id.to_string(), *id));
        }
        let tree_id = self.write_object(Kind::Tree, &tree)?;
        if let Some(kept) = kept
            && self
                .commit_info(kept)
                .is_ok_and(|commit| commit.tree_id == tree_id)
        {
            return Ok(());
        }
        // All of these are here, with what they need.
        let known = self.kept(fork)?.into_iter().map(|(_, id)| id);
        let known: BTreeSet<ObjectId> = known.chain(self.kept_by_keeper(kept)).collect();
        let mut parents = BTreeSet::new();
        for id in points {
            let point = self.point(*id)?;
            let mut commits = point.ids();
            commits.retain(|id| known.contains(id));
            for (id, blob_id) in &point.tags {
                let tag = self.find_in_main(*blob_id);
                commits.extend(tag.and_then(|(_, bytes)| tagged(&bytes, *id)));
            }
            let is_commit =
                |id: &ObjectId| matches!(self.find_in_main(*id), Some((Kind::Commit, _)));
            parents.extend(commits.into_iter().filter(is_commit));
        }
        let keeper = self.write_keeping_commit(tree_id, &parents, "Git points of snapshots")?;
        self.keep(fork, POINTS, keeper)
    }

    /// Checks that a point's objects exist, and writes its tags again.
    ///
    /// # Errors
    /// [`GitError::MissingObject`], and the errors of writing tags.
    pub fn check_point(&self, worktree: &Worktree, point: &GitPoint) -> Result<(), GitError> {
        let dir = OwnDir::open(worktree.git_dir())?;
        for (id, blob_id) in &point.tags {
            if !self.has_object(*id)
                && let Some((_, bytes)) = self.find_in_main(*blob_id)
            {
                self.write_object(Kind::Tag, &bytes)?;
            }
        }
        self.sync_objects()?;
        // What was refused, or not taken over yet, is in the fork alone.
        let missing = point
            .ids()
            .into_iter()
            .find(|id| !self.has_object(*id) && !dir.has_loose(id));
        match missing {
            Some(id) if super::transfer::pack_names(&dir).is_empty() => {
                Err(GitError::MissingObject { id })
            }
            _ => Ok(()),
        }
    }

    /// Moves HEAD and refs of a fork from a point to another.
    ///
    /// `from` is what they are now. The index is not touched. On return, the move is on disk. A
    /// process that dies in between leaves some old and some new values; a further call from
    /// [`Repository::point_now`] moves the rest.
    ///
    /// # Errors
    /// [`GitError::RefMoved`] if a ref is not as in `from`, [`GitError::RefLocked`] if git holds a
    /// lock. Some refs may have moved then.
    pub fn move_to_point(
        &self,
        worktree: &Worktree,
        from: &GitPoint,
        to: &GitPoint,
        reflog: &str,
    ) -> Result<(), GitError> {
        let git_dir = worktree.git_dir();
        let store = self.ref_store(Some(git_dir));
        let reflog = reflog_message(reflog);
        let mut hidden = Vec::new();
        for path in &to.state.hidden {
            hidden.extend_from_slice(&path.to_bytes());
            hidden.push(b'\n');
        }
        if to.state.hidden != from.state.hidden {
            replace(&git_dir.join(HIDDEN), &hidden)?;
        }
        let (before, after) = (&from.state.refs, &to.state.refs);
        let goes = |name: &&String| !after.contains_key(*name);
        // A name must go before a name below it comes, and the reverse.
        let is_in_the_way = |name: &&String| is_in_the_way(after, name);
        let signature = self.reflog_signature();
        let delete = |name: &String| {
            let expected = expected(before.get(name).map(String::as_str))?;
            Ok((
                RefEdit::delete(full_name(name)?, expected),
                git_dir.join(name),
            ))
        };
        let first = before.keys().filter(goes).filter(is_in_the_way);
        let first = first.map(delete).collect::<Result<Vec<_>, GitError>>()?;
        let gone = before
            .keys()
            .filter(goes)
            .filter(|name| !is_in_the_way(name));
        let mut edits = gone.map(delete).collect::<Result<Vec<_>, GitError>>()?;
        for (name, value) in after {
            let old = before.get(name);
            if old != Some(value) {
                let edit = update(name, old, value, &reflog)?;
                edits.push((edit, git_dir.join(name)));
            }
        }
        self.apply_ref_edits(&store, first, Some(&signature))?;
        pause::at("refs-going-back");
        self.apply_ref_edits(&store, edits, Some(&signature))?;
        pause::at("refs-went-back");
        self.move_head_to_point(worktree, store, (from, to), &reflog)
    }

    /// Renames a branch in a fork's own git directory.
    ///
    /// The names are short. The reflog goes along, and HEAD follows, also in a fork without the
    /// branch.
    ///
    /// # Errors
    /// As in [`Repository::move_to_point`], and [`GitError::Io`] if the reflog cannot be moved.
    pub fn rename_in_own(&self, worktree: &Worktree, old: &str, new: &str) -> Result<(), GitError> {
        let logs = worktree.git_dir().join("logs/refs/heads");
        // One name may be a directory of the other.
        let between = worktree.git_dir().join("logs/tine-renamed");
        let is_logged = match fs::rename(logs.join(old), &between) {
            Err(error) if is_missing(&error) => false,
            moved => moved
                .map(|()| true)
                .map_err(GitError::io("rename", logs.join(old)))?,
        };
        let now = self.point_now(worktree)?;
        let to = now.with_renamed_branch(old, new);
        let message = format!("Branch: renamed refs/heads/{old} to refs/heads/{new}");
        let moved = self.move_to_point(worktree, &now, &to, &message);
        if is_logged {
            let to = logs.join(if moved.is_ok() { new } else { old });
            let added = read_if_there(&to)?.unwrap_or_default();
            fs::OpenOptions::new()
                .append(true)
                .open(&between)
                .and_then(|mut log| log.write_all(&added))
                .and_then(|()| to.parent().map_or(Ok(()), fs::create_dir_all))
                .and_then(|()| fs::rename(&between, &to))
                .map_err(GitError::io("write", to))?;
        }
        moved
    }

    /// Moves HEAD, and writes the line of its reflog.
    fn move_head_to_point(
        &self,
        worktree: &Worktree,
        mut store: Store,
        (from, to): (&GitPoint, &GitPoint),
        reflog: &str,
    ) -> Result<(), GitError> {
        let is_logged = store.write_reflog != WriteReflog::Disable;
        if from.state.head != to.state.head {
            store.write_reflog = WriteReflog::Disable;
            let edit = update("HEAD", Some(&from.state.head), &to.state.head, "")?;
            let path = worktree.git_dir().join("HEAD");
            self.apply_ref_edits(&store, vec![(edit, path)], None)?;
        }
        let now = to.head_commit();
        let is_moved = from.state.head != to.state.head || from.head_commit() != now;
        if let (true, true, Some(now)) = (is_logged, is_moved, now) {
            self.log_head(worktree.git_dir(), from.head_commit(), now, reflog)?;
        }
        Ok(())
    }

    /// Writes a commit that only keeps others. Equal contents give the same commit.
    pub(super) fn write_keeping_commit(
        &self,
        tree_id: ObjectId,
        parents: &BTreeSet<ObjectId>,
        message: &str,
    ) -> Result<ObjectId, GitError> {
        let mut text = format!("tree {tree_id}\n");
        for id in parents {
            text.push_str(&format!("parent {id}\n"));
        }
        text.push_str(&format!(
            "author {KEEPER}\ncommitter {KEEPER}\n\n{message}\n"
        ));
        let commit_id = self.write_object(Kind::Commit, text.as_bytes())?;
        self.sync_objects()?;
        Ok(commit_id)
    }
}

fn entry(mode: &str, name: &str, id: ObjectId) -> Vec<u8> {
    let mut bytes = format!("{mode} {name}\0").into_bytes();
    bytes.extend_from_slice(id.as_slice());
    bytes
}

/// Returns the object that a tag names.
fn tagged(tag: &[u8], id: ObjectId) -> Option<ObjectId> {
    TagRefIter::from_bytes(tag, id.kind()).target_id().ok()
}

/// Returns whether one name is a directory of the other's.
fn is_in_the_way<V>(names: &BTreeMap<String, V>, name: &str) -> bool {
    let below = format!("{name}/");
    let mut after = names.range(below.clone()..);
    let mut above = name
        .match_indices('/')
        .filter_map(|(slash, _)| name.get(..slash));
    above.any(|above| names.contains_key(above))
        || after
            .next()
            .is_some_and(|(other, _)| other.starts_with(&below))
}

/// Returns whether a ref (full name) is a part of points.
pub fn is_in_points(name: &str) -> bool {
    !STAYING.iter().any(|stays| name.starts_with(stays))
}

fn text_of(value: Value) -> String {
    match value {
        Value::Id(id) => id.to_string(),
        Value::Symbolic(target) => format!("ref: {target}"),
    }
}

fn full_name(name: &str) -> Result<FullName, GitError> {
    FullName::try_from(name).map_err(GitError::library("name the ref"))
}

fn target_of(value: &str) -> Result<Target, GitError> {
    Ok(match value.strip_prefix("ref: ") {
        Some(target) => Target::Symbolic(full_name(target)?),
        None => Target::Object(
            ObjectId::from_hex(value.as_bytes()).map_err(GitError::library("read a ref"))?,
        ),
    })
}

fn expected(value: Option<&str>) -> Result<PreviousValue, GitError> {
    Ok(match value {
        Some(value) => PreviousValue::MustExistAndMatch(target_of(value)?),
        None => PreviousValue::MustNotExist,
    })
}

fn update(name: &str, old: Option<&String>, new: &str, reflog: &str) -> Result<RefEdit, GitError> {
    Ok(RefEdit {
        name: full_name(name)?,
        change: Change::Update {
            log: LogChange {
                mode: RefLog::AndReference,
                force_create_reflog: false,
                message: reflog.into(),
            },
            expected: expected(old.map(String::as_str))?,
            new: target_of(new)?,
        },
        deref: false,
    })
}

/// Replaces a file of the own git directory, durably.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), GitError> {
    let new = path.with_extension("tine-new");
    let written = fs::File::create(&new).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_data()?;
        fs::rename(&new, path)
    });
    written.map_err(GitError::io("write", path))?;
    path.parent().map_or(Ok(()), sync_if_there)
}
