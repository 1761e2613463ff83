//! Taking paths of a fork back to what they are at a point.
//!
//! What differs is what a diff shows: the view and the point's tree are compared, so that a plan, a
//! dry run and the outcome are the same list. Ignored files are no part of it: they stay, and in
//! the way of something they are an error.

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
use tine_workspace::{
    Actor, ApplyOptions, FileContent, Fork, ForkName, FsError, NewEntry, OperationError,
    Replacement,
};

/// How long the whole is done again while files come and go.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where paths are taken back to.
#[derive(Debug, Clone, Copy)]
pub struct RevertTo {
    pub tree_id: ObjectId,
    pub commit_id: Option<ObjectId>,
}

/// How paths are taken back.
#[derive(Debug, Clone, Copy, Default)]
pub struct RevertOptions {
    /// What is in the way and in no changeset goes; repositories stay in any case.
    pub force: bool,
    /// Nothing is changed.
    pub dry_run: bool,
}

/// What was taken back.
#[derive(Debug, Clone)]
pub struct RevertOutcome {
    /// From what it was to what it is, sorted by path.
    pub changes: Vec<Change>,
    /// Submodules that stand on another commit, or would have to go: their repositories are left
    /// alone.
    pub left_alone: Vec<RepoPath>,
}

/// Takes `paths`, and all beneath them, back to what they are in a tree. In one step, or not at
/// all. A path that neither the fork nor the tree has is an error.
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
        let plan = Plan::make(repository, fork, to, paths)?;
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
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(ChangeError::Unstable(_)) if Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

/// What is to be done.
struct Plan {
    replacements: Vec<Replacement>,
    outcome: RevertOutcome,
}

impl Plan {
    fn make(
        repository: &Repository,
        fork: &Fork,
        to: RevertTo,
        paths: &[RepoPath],
    ) -> Result<Plan, ChangeError> {
        if let Some(path) = paths.iter().find(|path| path.is_in_dot_git()) {
            return Err(OperationError::DotGit(path.clone()).into());
        }
        // What goes is not written anywhere: there may be no room for it.
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
        // Of the view as it will be, what matters are its attributes.
        let attributes = changeset.changes.iter().chain(&changes);
        let attributes = attributes.filter(|change| is_attributes(&change.path));
        let attributes: BTreeMap<&RepoPath, TreeChange> = attributes
            .map(|change| (&change.path, change.edit()))
            .collect();
        let edits: Vec<TreeChange> = attributes.into_values().collect();
        let attributes_tree = repository.edit_tree(changeset.head_tree, &edits)?;
        let replacements = replacements(repository, fork, &changes, attributes_tree)?;
        Ok(Plan {
            replacements,
            outcome: RevertOutcome {
                changes,
                left_alone: left_alone.into_iter().map(|change| change.path).collect(),
            },
        })
    }
}

/// From what the view is, which is HEAD's tree with the changes of `changeset`, to the tree `to`;
/// sorted by path.
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

/// Keeps from `git gc` what the layer is about to name, and brings it to the disk: from then on it
/// is all there is of these contents. What the base and the fork's own commits have is kept
/// already, and so is what `commit_id` has where that is one of them.
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

/// Keeps trees from `git gc`, and brings them to the disk. Each comes with one that is there for
/// good.
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

/// Holds a tree of these entries, if none of those that are `kept` is the same.
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
    // With the tree, which `keep` does not wait for.
    repository.sync_blobs(std::iter::once(tree_id))?;
    Ok(repository.hold(name.as_str(), tree_id)?)
}

/// What has to be done to the view for these changes. What is written is converted as the
/// attributes say that are in force when all is done, which are those of `new_tree`.
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

/// Whether something is at the path, ignored or not.
fn exists(fork: &Fork, path: &RepoPath) -> Result<bool, ChangeError> {
    match fork.workspace.resolve(path) {
        Ok(_) => Ok(true),
        Err(FsError::NotFound | FsError::NotADirectory) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the change is one of a repository within the fork. What it stands on is its own affair;
/// that an empty directory of a submodule comes or goes is not.
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

/// Turns changes into what is to be done about them.
struct Planner<'a> {
    repository: &'a Repository,
    base: Arc<Base>,
    /// With the attributes of the view as it will be.
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
        let content = match is_converted {
            true => FileContent::Bytes(self.rules.content(path, new.id)?),
            false => FileContent::Blob(new.id, self.repository.blob_size(new.id)?),
        };
        Ok(NewEntry::File {
            content,
            executable,
            is_base,
        })
    }

    /// What the base has at the path, if that is this blob.
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

    /// Whether a checkout of the base has the same bytes for the blob as one of the view as it will
    /// be.
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

/// The paths without those beneath another, sorted.
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
