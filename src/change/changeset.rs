//! Changes of a fork against its HEAD.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ChangeError;
use super::compare::{
    Candidate, CompareOptions, Comparison, Found, NestedRepository, compare, effective_kind,
};
use super::contents::BlobNamer;
use super::nested;
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_git::index::{RemovedPath, Tracking, removed_paths, tracked_paths};
use tine_git::{
    GitError, IgnoreRules, MAX_IGNORE_FILE_BYTES, ObjectId, Repository, TreeChange, TreeEntryKind,
};
use tine_path::{EntryName, RepoPath};
use tine_store::{Fork, IndexStamp};
use tine_workspace::{DeltaNode, FsError};

/// Number of attempts to compare a view whose files change.
const ATTEMPTS: usize = 4;

/// One side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Kind of the tree entry, with the executable bit.
    pub kind: TreeEntryKind,
    /// Id of the blob, or of a submodule's commit.
    ///
    /// The null id if the file is so large that it was not read to name its blob ([`Blobs::Hash`]),
    /// as in git's raw diffs.
    pub id: ObjectId,
}

/// Kind of change at a path.
// The variants' comments are their descriptions in the schemas that agents get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The path is new.
    Added,
    /// Content or mode changed.
    Modified,
    /// The path no longer exists.
    Deleted,
    /// The kind of the file changed.
    TypeChanged,
}

impl ChangeKind {
    /// Returns git's letter for the kind.
    pub fn letter(self) -> &'static str {
        match self {
            ChangeKind::Added => "A",
            ChangeKind::Modified => "M",
            ChangeKind::Deleted => "D",
            ChangeKind::TypeChanged => "T",
        }
    }
}

/// One path that differs.
///
/// A directory is not a change; the files in it are.
#[derive(Debug, Clone)]
pub struct Change {
    /// Path relative to the root of the repository.
    pub path: RepoPath,
    /// Entry in HEAD; `None` if HEAD has none.
    pub old: Option<Side>,
    /// Entry in the fork; `None` if the fork has none.
    pub new: Option<Side>,
    /// Attributes of the node of `new`; `None` if no layer has one.
    pub attr: Option<Attr>,
}

impl Change {
    /// Returns the change as an edit of a tree.
    pub fn edit(&self) -> TreeChange {
        TreeChange {
            path: self.path.clone(),
            new: self.new.as_ref().map(|side| (side.kind, side.id)),
        }
    }

    /// Returns the kind of the change.
    pub fn kind(&self) -> ChangeKind {
        let (Some(old), Some(new)) = (&self.old, &self.new) else {
            return match self.old {
                None => ChangeKind::Added,
                Some(_) => ChangeKind::Deleted,
            };
        };
        let file_type = |side: &Side| match side.kind {
            TreeEntryKind::Executable => TreeEntryKind::File,
            kind => kind,
        };
        if file_type(old) == file_type(new) {
            ChangeKind::Modified
        } else {
            ChangeKind::TypeChanged
        }
    }
}

/// Changes of a fork against HEAD, as `git add -A` takes them.
#[derive(Debug, Clone)]
pub struct Changeset {
    /// Commit of HEAD; `None` on an unborn branch.
    pub head_commit: Option<ObjectId>,
    /// Tree of `head_commit`; the empty tree without one.
    pub head_tree: ObjectId,
    /// Changes against `head_tree`, sorted by path.
    pub changes: Vec<Change>,
    /// Directories that are repositories and not ignored, submodules included.
    pub repositories: Vec<RepoPath>,
    /// Untracked paths in no changeset though not ignored.
    ///
    /// They are fifos, sockets, devices and nested repositories.
    pub left_out: Vec<RepoPath>,
}

/// Treatment of the blobs of changed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blobs {
    /// Blobs are named, not written. Huge files are not even read.
    Hash,
    /// Blobs are named, huge ones too. Only those of `.gitattributes` are written.
    Name,
    /// Blobs are written to the object database.
    Write,
}

/// Computes the changes of `fork` against its HEAD, in O(changes).
///
/// # Errors
/// [`ChangeError::Unstable`] if a file keeps changing while it is read, and the errors of reading
/// the fork, HEAD and the index.
pub fn changeset(
    repository: &Repository,
    fork: &Fork,
    blobs: Blobs,
) -> Result<Changeset, ChangeError> {
    let head_commit = repository.head_of(fork.worktree.git_dir())?.commit_id();
    Ok(examine(repository, fork, head_commit, blobs, Scope::Everything)?.changeset)
}

/// Writes the tree of the fork's view: HEAD's tree with the changes applied.
///
/// `changeset` must have been computed with [`Blobs::Write`].
///
/// # Errors
/// [`ChangeError::Git`] if a tree cannot be read or written.
pub fn write_tree(repository: &Repository, changeset: &Changeset) -> Result<ObjectId, ChangeError> {
    let edits: Vec<TreeChange> = changeset.changes.iter().map(Change::edit).collect();
    Ok(repository.edit_tree(changeset.head_tree, &edits)?)
}

/// Part of the view that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All paths; the index decides about ignored and missing ones.
    Everything,
    /// All paths, without an index that belongs to HEAD.
    WithoutIndex,
    /// Paths that HEAD has.
    InHead,
}

/// Node whose content at `ctime` equals a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Adoptable {
    pub ino: Ino,
    pub ctime: Timestamp,
    pub blob_id: ObjectId,
    /// True if HEAD has the blob at the node's path.
    pub is_in_head: bool,
}

/// Changes of a fork, and the layer contents that equal blobs.
pub(super) struct Examined {
    pub changeset: Changeset,
    pub adoptable: Vec<Adoptable>,
}

fn is_in_fork_alone(repository: &Repository, fork: &Fork, id: ObjectId) -> bool {
    fork.worktree.is_own() && repository.has_own_object(fork.worktree.git_dir(), id)
}

/// Computes the changes of `fork` against the commit `head_commit`.
pub(super) fn examine(
    repository: &Repository,
    fork: &Fork,
    head_commit: Option<ObjectId>,
    blobs: Blobs,
    scope: Scope,
) -> Result<Examined, ChangeError> {
    let head_tree = match repository.tree_of(head_commit) {
        Err(GitError::MissingObject { id }) if is_in_fork_alone(repository, fork, id) => {
            return Err(ChangeError::InForkAlone(id));
        }
        tree_id => tree_id?,
    };
    let examiner = Examiner {
        repository,
        fork,
        blobs,
        options: CompareOptions {
            file_mode: repository.config_bool("core.fileMode").unwrap_or(true),
        },
        scope,
    };
    let mut attempt = 1;
    loop {
        match examiner.examine(head_commit, head_tree) {
            Err(ChangeError::Unstable(_)) if attempt < ATTEMPTS => attempt += 1,
            examined => return examined,
        }
    }
}

/// One comparison of a fork with HEAD, and its options.
struct Examiner<'a> {
    repository: &'a Repository,
    fork: &'a Fork,
    blobs: Blobs,
    options: CompareOptions,
    scope: Scope,
}

impl Examiner<'_> {
    fn examine(
        &self,
        head_commit: Option<ObjectId>,
        head_tree: ObjectId,
    ) -> Result<Examined, ChangeError> {
        let delta = self.fork.workspace.delta()?;
        let mut rules = IgnoreRules::new(self.repository, |dir: &RepoPath| {
            read_ignore_file(self.fork, dir)
        })?;
        let mut is_ignored = |path: &RepoPath, is_dir| match self.scope {
            Scope::Everything | Scope::WithoutIndex => rules.is_ignored(path, is_dir),
            // Untracked paths are not compared, so the rules do not matter.
            Scope::InHead => Ok(false),
        };
        let Comparison {
            mut candidates,
            ignored,
            nested,
            mut left_out,
        } = compare(
            self.repository,
            &delta,
            head_tree,
            self.options,
            &mut is_ignored,
        )?;
        if self.scope == Scope::Everything {
            candidates = self.apply_index(candidates, ignored)?;
            self.add_index_removals(&mut candidates, head_tree, &mut is_ignored)?;
        }
        let repositories = nested
            .iter()
            .filter(|nested| !nested.is_ignored)
            .map(|nested| nested.path.clone())
            .collect();
        if self.scope != Scope::InHead {
            let (gitlinks, unknown) = self.gitlinks(nested)?;
            candidates.extend(gitlinks);
            left_out.extend(unknown);
            left_out.sort();
        }
        let contents = BlobNamer {
            repository: self.repository,
            fork: self.fork,
            blobs: self.blobs,
            rules: self
                .fork
                .conversions_of(self.attributes_tree(head_tree, &candidates)?)?,
        };
        if self.scope == Scope::InHead {
            candidates.retain(|candidate| candidate.old.is_some());
        }
        candidates.sort_by(|a, b| a.path.cmp(&b.path));

        let mut changes = Vec::new();
        let mut adoptable = Vec::new();
        for candidate in candidates {
            let (change, adopted) = self.decide(&contents, candidate)?;
            adoptable.extend(adopted);
            changes.extend(change);
        }
        Ok(Examined {
            changeset: Changeset {
                head_commit,
                head_tree,
                changes,
                repositories,
                left_out,
            },
            adoptable,
        })
    }

    /// Returns HEAD's tree with the `.gitattributes` files of the view.
    fn attributes_tree(
        &self,
        head_tree: ObjectId,
        candidates: &[Candidate<'_>],
    ) -> Result<ObjectId, ChangeError> {
        let is_attributes = |candidate: &&Candidate<'_>| {
            let name = candidate.path.split_last().map(|(_, name)| name);
            name.is_some_and(|name| name.as_bytes() == b".gitattributes")
        };
        if !candidates.iter().any(|candidate| is_attributes(&candidate)) {
            return Ok(head_tree);
        }
        let remove = |path: &RepoPath| TreeChange {
            path: path.clone(),
            new: None,
        };
        // Removals come first: a directory may be where HEAD has a file.
        let gone = candidates
            .iter()
            .filter(|candidate| matches!(candidate.new, Found::Nothing));
        let mut edits: Vec<TreeChange> = gone.map(|candidate| remove(&candidate.path)).collect();
        for Candidate { path, new, .. } in candidates.iter().filter(is_attributes) {
            let side = match new {
                Found::Nothing => continue,
                Found::Stored(side) => Some((side.kind, side.id)),
                Found::Node(node) => self.attributes_file(path, node)?,
            };
            edits.push(TreeChange {
                path: path.clone(),
                new: side,
            });
        }
        Ok(self.repository.edit_tree(head_tree, &edits)?)
    }

    /// Writes the `.gitattributes` of a layer unconverted.
    ///
    /// Returns `None` for a symlink, which git does not follow.
    fn attributes_file(
        &self,
        path: &RepoPath,
        node: &DeltaNode,
    ) -> Result<Option<(TreeEntryKind, ObjectId)>, ChangeError> {
        if node.attr.kind != FileKind::Regular {
            return Ok(None);
        }
        let contents = BlobNamer {
            repository: self.repository,
            fork: self.fork,
            blobs: Blobs::Write,
            rules: self.fork.conversions_of(self.repository.empty_tree_id())?,
        };
        Ok(Some((TreeEntryKind::File, contents.of(path, node)?.id)))
    }

    /// Returns a candidate's change, and its content if HEAD may adopt it.
    fn decide(
        &self,
        contents: &BlobNamer<'_>,
        candidate: Candidate<'_>,
    ) -> Result<(Option<Change>, Option<Adoptable>), ChangeError> {
        let Candidate { path, old, new } = candidate;
        let mut adoptable = None;
        let (new, attr) = match new {
            Found::Nothing => (None, None),
            // HEAD moved and the file did not: the file counts as `git add` would convert it.
            Found::Stored(side) if old.is_some() && self.scope != Scope::InHead => {
                let id = contents.of_stored(&path, &side)?;
                (Some(Side { id, ..side }), None)
            }
            Found::Stored(side) => (Some(side), None),
            Found::Node(node)
                if self.scope != Scope::InHead
                    && contents.differs_without_reading(&path, node, old.as_ref())? =>
            {
                let kind = node
                    .tree_kind()
                    .ok_or_else(|| ChangeError::Unstable(path.clone()))?;
                let side = Side {
                    kind: effective_kind(self.options, old.as_ref(), kind),
                    id: ObjectId::null(self.repository.hash_kind()),
                };
                (Some(side), Some(node.attr))
            }
            Found::Node(node) => {
                let held = contents.of(&path, node)?;
                let now = DeltaNode {
                    attr: held.attr,
                    ..node.clone()
                };
                let kind = now
                    .tree_kind()
                    .ok_or_else(|| ChangeError::Unstable(path.clone()))?;
                let side = Side {
                    kind: effective_kind(self.options, old.as_ref(), kind),
                    id: held.id,
                };
                if held.may_leave_layer {
                    adoptable = Some(Adoptable {
                        ino: held.attr.ino,
                        ctime: held.attr.ctime,
                        blob_id: held.id,
                        is_in_head: old.as_ref().is_some_and(|old| old.id == held.id),
                    });
                }
                (Some(side), Some(held.attr))
            }
        };
        let change = (old != new).then_some(Change {
            path,
            old,
            new,
            attr,
        });
        Ok((change, adoptable))
    }

    /// Applies what the index knows about candidates.
    ///
    /// An ignored candidate counts if the index tracks it. A missing one counts unless a sparse
    /// checkout skips it. If there are no such candidates, the index is not read. Answers for the
    /// same index come from the memo.
    fn apply_index<'c>(
        &self,
        candidates: Vec<Candidate<'c>>,
        ignored: Vec<Candidate<'c>>,
    ) -> Result<Vec<Candidate<'c>>, ChangeError> {
        let (missing, mut counted): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .partition(|candidate| matches!(candidate.new, Found::Nothing));
        let asked: Vec<&RepoPath> = missing.iter().chain(&ignored).map(|c| &c.path).collect();
        let answers = self.tracking_of(&asked)?;
        let (of_missing, of_ignored) = answers.split_at(missing.len());
        let wanted = of_missing
            .iter()
            .map(|&tracking| tracking != Tracking::Skipped);
        let tracked = of_ignored
            .iter()
            .map(|&tracking| tracking != Tracking::Untracked);
        let counts: Vec<bool> = wanted.chain(tracked).collect();
        let undecided = missing.into_iter().chain(ignored);
        counted.extend(
            undecided
                .zip(counts)
                .filter_map(|(candidate, counts)| counts.then_some(candidate)),
        );
        Ok(counted)
    }

    /// Splits nested repositories into gitlinks and untracked ones.
    ///
    /// A repository becomes a gitlink to its HEAD commit if HEAD or the index has a gitlink there.
    fn gitlinks(
        &self,
        nested: Vec<NestedRepository>,
    ) -> Result<(Vec<Candidate<'static>>, Vec<RepoPath>), ChangeError> {
        let asked: Vec<&RepoPath> = nested.iter().map(|nested| &nested.path).collect();
        let answers = match self.scope {
            Scope::WithoutIndex => vec![Tracking::Untracked; asked.len()],
            Scope::Everything | Scope::InHead => self.tracking_of(&asked)?,
        };
        let (mut gitlinks, mut unknown) = (Vec::new(), Vec::new());
        for (
            NestedRepository {
                path,
                old,
                is_ignored,
            },
            tracking,
        ) in nested.into_iter().zip(answers)
        {
            let is_tracked = old.is_some() || tracking != Tracking::Untracked;
            let commit_id = if is_tracked {
                nested::head_of(self.repository, self.fork, &path)?
            } else {
                None
            };
            match commit_id {
                Some(id) => gitlinks.push(Candidate {
                    path,
                    old,
                    new: Found::Stored(Side {
                        kind: TreeEntryKind::Submodule,
                        id,
                    }),
                }),
                None if old.is_none() && !is_ignored => unknown.push(path),
                None => {}
            }
        }
        Ok((gitlinks, unknown))
    }

    /// Counts ignored paths that left the index as deleted.
    ///
    /// `git rm --cached` removed them, and `git add -A` would not add them again.
    fn add_index_removals(
        &self,
        candidates: &mut Vec<Candidate<'_>>,
        head_tree: ObjectId,
        is_ignored: &mut dyn FnMut(&RepoPath, bool) -> Result<bool, GitError>,
    ) -> Result<(), ChangeError> {
        let mut deleted = BTreeMap::new();
        for removed in self.removed_from_index(head_tree)?.iter() {
            let RemovedPath { path, kind, id } = removed.clone();
            if is_ignored(&path, kind == TreeEntryKind::Submodule)? {
                deleted.insert(path, Side { kind, id });
            }
        }
        candidates.retain(|candidate| !deleted.contains_key(&candidate.path));
        candidates.extend(deleted.into_iter().map(|(path, old)| Candidate {
            path,
            old: Some(old),
            new: Found::Nothing,
        }));
        Ok(())
    }

    /// Returns the paths that HEAD's tree has and the worktree's index lacks.
    ///
    /// A missing or damaged index gives an empty list, so that the fork's files can still be shown
    /// and kept.
    fn removed_from_index(&self, head_tree: ObjectId) -> Result<Arc<[RemovedPath]>, ChangeError> {
        let Some(stamp) = IndexStamp::of(&self.fork.worktree.index_path()) else {
            return Ok(Arc::new([]));
        };
        let memo = self.fork.memo();
        if let Some(removed) = memo.removed(&stamp, head_tree) {
            return Ok(removed);
        }
        let removed = removed_paths(self.repository, &self.fork.worktree, head_tree)
            .unwrap_or_else(|error| {
                log::warn!("{}: {error}", self.fork.worktree.index_path().display());
                Vec::new()
            });
        let removed: Arc<[RemovedPath]> = removed.into();
        memo.remember_removed(&stamp, head_tree, removed.clone());
        Ok(removed)
    }

    /// Returns how the worktree's index tracks each of `paths`.
    fn tracking_of(&self, paths: &[&RepoPath]) -> Result<Vec<Tracking>, ChangeError> {
        let Some(stamp) = IndexStamp::of(&self.fork.worktree.index_path()) else {
            return Ok(vec![Tracking::Untracked; paths.len()]);
        };
        let memo = self.fork.memo();
        let mut known: Vec<_> = paths
            .iter()
            .map(|path| memo.tracking(&stamp, path))
            .collect();
        let unknown: Vec<RepoPath> = paths
            .iter()
            .zip(&known)
            .filter(|(_, tracking)| tracking.is_none())
            .map(|(&path, _)| path.clone())
            .collect();
        let answers = tracked_paths(self.repository, &self.fork.worktree, &unknown)?;
        let gaps = known.iter_mut().filter(|tracking| tracking.is_none());
        for (gap, (path, tracking)) in gaps.zip(unknown.iter().zip(answers)) {
            memo.remember_tracking(&stamp, path, tracking);
            *gap = Some(tracking);
        }
        Ok(known.into_iter().flatten().collect())
    }
}

/// Reads the `.gitignore` in a directory of the view.
///
/// Returns `None` if there is none, or not a regular file, as git does.
///
/// # Errors
/// [`GitError`] if the file cannot be read.
pub fn read_ignore_file(fork: &Fork, dir: &RepoPath) -> Result<Option<Vec<u8>>, GitError> {
    let name = EntryName::new(".gitignore").expect("a plain name");
    match fork
        .workspace
        .read_regular(&dir.join(&name), MAX_IGNORE_FILE_BYTES)
    {
        Err(FsError::Base(error)) => Err(error),
        read => read.map_err(GitError::library("read .gitignore")),
    }
}
