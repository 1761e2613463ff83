//! Putting a fork on another branch, as `git switch` does: what it takes, before anything moves.

use super::advance::{Step, UpdateStep, preview, staged};
use super::changeset::{self, Blobs};
use super::fork_point::fork_point;
use super::{Change, ChangeError, branches};
use tine_git::{Head, ObjectId, Repository};
use tine_merge::{MergeInput, MergeOptions, merge};
use tine_workspace::{Actor, Fork, ForkName, OperationKind, Store, SwitchMove};

/// Where a fork is to go.
#[derive(Debug, Clone)]
pub struct SwitchOptions<'a> {
    /// Short name.
    pub branch: &'a str,
    /// The commit at which it is made for that, and what its reflog says.
    pub begins: Option<(ObjectId, String)>,
    /// Uncommitted changes that are in the way are merged with what the branch has there.
    pub merge: bool,
}

/// The step that takes the fork there from `head`, and what it changes; fails where that would.
///
/// # Errors
/// [`ChangeError::LocalChanges`] where something uncommitted is in the way, with `merge` where both
/// changed the same lines or something is staged.
pub fn plan(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    by: Actor<'_>,
    head: &Head,
    wish: &SwitchOptions<'_>,
) -> Result<(Step, Vec<Change>), ChangeError> {
    let to = match &wish.begins {
        Some((commit_id, _)) => {
            repository.check_branch_is_free(wish.branch)?;
            *commit_id
        }
        None => branches::existing(repository, wish.branch)?,
    };
    let mut step = Step {
        from: head.commit_id(),
        to,
        update: None,
        switch: Some(SwitchMove {
            from: head.short_branch().map(str::to_owned),
            to: Some(wish.branch.to_owned()),
            begins: wish.begins.as_ref().map(|(_, reflog)| reflog.clone()),
        }),
        index: None,
        reflog: by.command.to_owned(),
        kind: OperationKind::Switch,
        undoes: None,
    };
    let changes = match preview(repository, fork, &step) {
        Err(ChangeError::LocalChanges(_)) if wish.merge => {
            step.update = Some(merged_along(store, repository, name, fork, &step)?);
            preview(repository, fork, &step)?
        }
        outcome => outcome?,
    };
    Ok((step, changes))
}

/// What the view becomes where what is uncommitted is merged with what the commit has.
fn merged_along(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    step: &Step,
) -> Result<UpdateStep, ChangeError> {
    let local = changeset::changeset(repository, fork, Blobs::Write)?;
    // git refuses it, too: what is staged by itself would be lost in one with the rest.
    let staged = staged(repository, fork, local.head_tree)?;
    if !staged.is_empty() {
        return Err(ChangeError::LocalChanges(
            staged.into_iter().map(|change| change.path).collect(),
        ));
    }
    let view_from = changeset::write_tree(repository, &local)?;
    let input = MergeInput {
        base: Some(local.head_tree),
        ours: repository.commit_info(step.to)?.tree_id,
        theirs: view_from,
        allow_unrelated: false,
    };
    let merged = merge(repository, &input, &MergeOptions::default())?;
    if !merged.conflicts.is_empty() {
        let paths = merged.conflicts.into_iter().map(|conflict| conflict.path);
        return Err(ChangeError::LocalChanges(paths.collect()));
    }
    // The fork's commits begin where they did.
    let point = fork_point(repository, &store.record(name)?, step.from)?;
    Ok(UpdateStep {
        view_from,
        view_to: merged.tree_id,
        point_from: point,
        point_to: point,
    })
}
