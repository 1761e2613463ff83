//! Takes paths of a fork back to their state at a point.
//!
//! The view is compared with the point's tree as a diff would, so that a plan, a dry run and the
//! outcome are the same list. Ignored files are not part of it. They stay, and one that is in the
//! way is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::changeset::{self, Blobs, Changeset, Side};
use super::compare::compare_trees;
use super::contents::is_attributes;
use super::{Change, ChangeError};
use tine_git::refs::is_for_layers;
use tine_git::{Base, GitError, ObjectId, Repository, TreeChange, TreeEntryKind};
use tine_path::RepoPath;
use tine_store::{Fork, ForkName};
use tine_workspace::{
    Actor, ApplyOptions, FileContent, FsError, NewEntry, OperationError, Replacement,
};

/// Time for which the revert is retried while files come and go.
const RETRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Target that paths are taken back to.
#[derive(Debug, Clone, Copy)]
pub struct RevertTo {
    /// Tree with the wanted state.
    pub tree_id: ObjectId,
    /// Commit of that tree; `None` for a bare tree.
    pub commit_id: Option<ObjectId>,
}

/// Options for a revert.
#[derive(Debug, Clone, Copy, Default)]
pub struct RevertOptions {
    /// True to remove files in no changeset that are in the way.
    ///
    /// Repositories stay in any case.
    pub force: bool,
    /// True to change nothing.
    pub dry_run: bool,
}

/// Outcome of a revert.
#[derive(Debug, Clone)]
pub struct RevertOutcome {
    /// Changes from the old state to the new one, sorted by path.
    pub changes: Vec<Change>,
    /// Submodules that are at another commit or would have to go.
    ///
    /// Their repositories are left alone.
    pub left_alone: Vec<RepoPath>,
}

/// Takes `paths`, and all below them, back to a tree's state.
///
/// All paths change in one operation, or none does.
///
/// # Errors
/// [`OperationError::NotFound`] for a path that neither the fork nor the tree has,
/// [`OperationError::DotGit`] for one in `.git`, [`ChangeError::Unstable`] if files keep changing,
/// and the errors of applying the changes.
pub fn revert(
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    by: Actor<'_>,
    to: RevertTo,
    paths: &[RepoPath],
    options: RevertOptions,
) -> Result<RevertOutcome, ChangeError> {
    let attempt = || {
        let plan = RevertPlan::make(repository, fork, to, paths)?;
        if options.dry_run || plan.replacements.is_empty() {
            return Ok(plan.outcome);
        }
        hold_blobs(repository, name, &plan.replacements, to.commit_id)?;
        let apply_options = ApplyOptions {
            force: options.force,
            ..ApplyOptions::default()
        };
        match fork.workspace.apply(by, &plan.replacements, &apply_options) {
            Ok(()) => Ok(plan.outcome),
            Err(OperationError::Fs { path, source }) if matches!(*source, FsError::Stale) => {
                Err(ChangeError::Unstable(path))
            }
            Err(error) => Err(error.into()),
        }
    };
    let deadline = Instant::now() + RETRY_TIMEOUT;
    loop {
        match attempt() {
            Err(ChangeError::Unstable(_)) if Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

/// Replacements to apply, and the outcome that they have.
struct RevertPlan {
    replacements: Vec<Replacement>,
    outcome: RevertOutcome,
}

impl RevertPlan {
    fn make(
        repository: &Repository,
        fork: &Fork,
        to: RevertTo,
        paths: &[RepoPath],
    ) -> Result<RevertPlan, ChangeError> {
        if let Some(path) = paths.iter().find(|path| path.is_in_dot_git()) {
            return Err(OperationError::DotGit(path.clone()).into());
        }
        // Contents that go are not written anywhere: there may be no space for them.
        let changeset = changeset::changeset(repository, fork, Blobs::Name)?;
        let is_asked_for = |path: &RepoPath| paths.iter().any(|asked| path.starts_with(asked));
        let mut changes = changes_to(repository, &changeset, to.tree_id)?;
        changes.retain(|change| is_asked_for(&change.path));
        for path in paths {
            let is_changed = changes.iter().any(|change| change.path.starts_with(path));
            if !is_changed && !exists(fork, path)? {
                return Err(OperationError::NotFound(path.clone()).into());
            }
        }
        let (changes, left_alone): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|change| !is_repository(fork, change));
        // Only the attributes of the new view matter for conversion.
        let attributes = changeset.changes.iter().chain(&changes);
        let attributes = attributes.filter(|change| is_attributes(&change.path));
        let attributes: BTreeMap<&RepoPath, TreeChange> = attributes
            .map(|change| (&change.path, change.edit()))
            .collect();
        let edits: Vec<TreeChange> = attributes.into_values().collect();
        let attributes_tree = repository.edit_tree(changeset.head_tree, &edits)?;
        let replacements = replacements(repository, fork, &changes, attributes_tree)?;
        Ok(RevertPlan {
            replacements,
            outcome: RevertOutcome {
                changes,
                left_alone: left_alone.into_iter().map(|change| change.path).collect(),
            },
        })
    }
}

/// Returns the changes from the view to a tree, sorted by path.
///
/// The view is HEAD's tree with the changes of `changeset`; the tree is `to`.
fn changes_to(
    repository: &Repository,
    changeset: &Changeset,
    to: ObjectId,
) -> Result<Vec<Change>, ChangeError> {
    let mut changes: BTreeMap<RepoPath, Change> =
        compare_trees(repository, changeset.head_tree, to)?
            .into_iter()
            .map(|change| (change.path.clone(), change))
            .collect();
    for local in &changeset.changes {
        let new = match changes.remove(&local.path) {
            Some(change) => change.new,
            None => local.old.clone(),
        };
        if new != local.new {
            let change = Change {
                path: local.path.clone(),
                old: local.new.clone(),
                new,
                attr: None,
            };
            changes.insert(local.path.clone(), change);
        }
    }
    Ok(changes.into_values().collect())
}

/// Keeps blobs from `git gc` before the layer names them.
///
/// They are also synced, since from then on they are the only copy of these contents. Blobs of the
/// base and of the fork's own commits are kept already, and so are those of `commit_id` if it is
/// such a commit.
pub(super) fn hold_blobs<'r>(
    repository: &Repository,
    name: &ForkName,
    replacements: impl IntoIterator<Item = &'r Replacement>,
    commit_id: Option<ObjectId>,
) -> Result<(), ChangeError> {
    let named: Vec<(&RepoPath, ObjectId)> = replacements
        .into_iter()
        .filter_map(|replacement| match replacement.new {
            Some(NewEntry::File {
                content: FileContent::Blob(id, 1..),
                is_base: false,
                ..
            }) => Some((&replacement.path, id)),
            _ => None,
        })
        .collect();
    if named.is_empty() {
        return Ok(());
    }
    repository.sync_blobs(named.iter().map(|(_, id)| *id))?;
    let kept = repository.kept(name.as_str())?;
    if let Some(commit_id) = commit_id {
        for (label, id) in &kept {
            if is_for_layers(label) && repository.is_ancestor(commit_id, *id)? {
                return Ok(());
            }
        }
    }
    let edits: Vec<TreeChange> = named
        .into_iter()
        .map(|(path, id)| TreeChange {
            path: path.clone(),
            new: Some((TreeEntryKind::File, id)),
        })
        .collect();
    hold_tree_of(repository, name, &kept, &edits)
}

/// Keeps trees from `git gc`, and syncs them.
///
/// Each pair is a tree and a similar one that is already on disk.
pub(super) fn hold_trees(
    repository: &Repository,
    name: &ForkName,
    trees: [(ObjectId, ObjectId); 2],
) -> Result<(), ChangeError> {
    let mut edits = Vec::new();
    for (tree_id, known) in trees {
        repository.sync_tree(tree_id, known)?;
        edits.push(TreeChange {
            path: RepoPath::parse(tree_id.to_string().as_bytes())
                .map_err(GitError::library("name a tree"))?,
            new: Some((TreeEntryKind::Directory, tree_id)),
        });
    }
    hold_tree_of(repository, name, &repository.kept(name.as_str())?, &edits)
}

/// Holds a tree of these entries, unless `kept` has the same.
fn hold_tree_of(
    repository: &Repository,
    name: &ForkName,
    kept: &[(String, ObjectId)],
    edits: &[TreeChange],
) -> Result<(), ChangeError> {
    let tree_id = repository.edit_tree(repository.empty_tree_id(), edits)?;
    if kept
        .iter()
        .any(|(label, id)| is_for_layers(label) && *id == tree_id)
    {
        return Ok(());
    }
    // This includes the tree, which `keep` does not sync.
    repository.sync_blobs(std::iter::once(tree_id))?;
    Ok(repository.hold(name.as_str(), tree_id)?)
}

/// Returns the replacements in the view for these changes.
///
/// Contents are converted by the attributes of `new_tree`, which are those of the new view.
pub(super) fn replacements(
    repository: &Repository,
    fork: &Fork,
    changes: &[Change],
    new_tree: ObjectId,
) -> Result<Vec<Replacement>, ChangeError> {
    let planner = Planner {
        repository,
        base: fork.workspace.base(),
        rules: fork.conversions_of(new_tree)?,
    };
    changes
        .iter()
        .map(|change| planner.replacement(change))
        .collect()
}

/// Returns whether the path exists, ignored or not.
fn exists(fork: &Fork, path: &RepoPath) -> Result<bool, ChangeError> {
    match fork.workspace.resolve(path) {
        Ok(_) => Ok(true),
        Err(FsError::NotFound | FsError::NotADirectory) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the change affects a repository within the fork.
///
/// Its commit is not the fork's concern. An empty submodule directory that comes or goes is an
/// ordinary change.
pub(super) fn is_repository(fork: &Fork, change: &Change) -> bool {
    let is_gitlink = |side: &Option<Side>| {
        side.as_ref()
            .is_some_and(|side| side.kind == TreeEntryKind::Submodule)
    };
    if !is_gitlink(&change.old) {
        return false;
    }
    is_gitlink(&change.new)
        || fork
            .workspace
            .list_path(&change.path)
            .is_ok_and(|entries| !entries.is_empty())
}

/// Converts changes into replacements.
struct Planner<'a> {
    repository: &'a Repository,
    base: Arc<Base>,
    /// Base with the attributes of the new view.
    rules: Arc<Base>,
}

impl Planner<'_> {
    fn replacement(&self, change: &Change) -> Result<Replacement, ChangeError> {
        let new = match &change.new {
            None => None,
            Some(side) => Some(self.entry(&change.path, change.old.as_ref(), side)?),
        };
        Ok(Replacement {
            path: change.path.clone(),
            replaces: change.old.is_some(),
            new,
        })
    }

    fn entry(
        &self,
        path: &RepoPath,
        old: Option<&Side>,
        new: &Side,
    ) -> Result<NewEntry, ChangeError> {
        let executable = match new.kind {
            TreeEntryKind::Submodule | TreeEntryKind::Directory => return Ok(NewEntry::Directory),
            TreeEntryKind::Symlink => {
                return Ok(NewEntry::Symlink {
                    target: self.repository.read_blob(new.id)?,
                    is_base: self.base_kind(path, new.id)? == Some(TreeEntryKind::Symlink),
                });
            }
            TreeEntryKind::File => false,
            TreeEntryKind::Executable => true,
        };
        let is_file = |kind| matches!(kind, TreeEntryKind::File | TreeEntryKind::Executable);
        if old.is_some_and(|old| old.id == new.id && is_file(old.kind)) {
            return Ok(NewEntry::Mode { executable });
        }
        let is_converted = self.rules.is_converted(path)?;
        let is_base = self.base_kind(path, new.id)?.is_some_and(is_file)
            && self.is_as_in_base(path, new.id, is_converted)?;
        let content = if is_converted {
            FileContent::Bytes(self.rules.content(path, new.id)?)
        } else {
            FileContent::Blob(new.id, self.repository.blob_size(new.id)?)
        };
        Ok(NewEntry::File {
            content,
            executable,
            is_base,
        })
    }

    /// Returns the kind of the base's entry, if it is this blob.
    fn base_kind(
        &self,
        path: &RepoPath,
        blob_id: ObjectId,
    ) -> Result<Option<TreeEntryKind>, ChangeError> {
        let found = self.base.find(path)?;
        let entry = found
            .as_ref()
            .and_then(|(dir, index)| dir.entries.get(*index));
        Ok(entry
            .filter(|entry| entry.id == blob_id)
            .map(|entry| entry.kind))
    }

    /// Returns whether base and new view have the same converted bytes.
    fn is_as_in_base(
        &self,
        path: &RepoPath,
        blob_id: ObjectId,
        is_converted: bool,
    ) -> Result<bool, ChangeError> {
        if self.rules.tree_id() == self.base.tree_id() {
            return Ok(true);
        }
        if !is_converted && !self.base.is_converted(path)? {
            return Ok(true);
        }
        let bytes = |of: &Base| -> Result<Vec<u8>, ChangeError> {
            let content = of.content(path, blob_id)?;
            Ok(content
                .to_vec()
                .map_err(GitError::io("read", path.as_path()))?)
        };
        Ok(bytes(&self.rules)? == bytes(&self.base)?)
    }
}

/// Returns the paths that are not below another one, sorted.
pub fn without_nested(paths: Vec<RepoPath>) -> Vec<RepoPath> {
    let sorted: BTreeSet<RepoPath> = paths.into_iter().collect();
    let mut kept: Vec<RepoPath> = Vec::new();
    for path in sorted {
        if !kept.iter().any(|above| path.starts_with(above)) {
            kept.push(path);
        }
    }
    kept
}
