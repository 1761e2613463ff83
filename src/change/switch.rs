//! Plans a switch to another branch, as `git switch` does.

use super::advance::{Step, UpdateStep, preview, staged};
use super::changeset::{self, Blobs};
use super::fork_point::fork_point;
use super::{Change, ChangeError, branches};
use tine_git::{Head, ObjectId, Repository};
use tine_merge::{MergeInput, MergeOptions, merge};
use tine_store::{Fork, ForkName, Store};
use tine_workspace::{Actor, OperationKind, SwitchMove};

/// Options for a switch.
#[derive(Debug, Clone)]
pub struct SwitchOptions<'a> {
    /// Short name of the branch.
    pub branch: &'a str,
    /// Commit and reflog message of a new branch; `None`: it exists.
    pub begins: Option<(ObjectId, String)>,
    /// True to merge uncommitted changes that are in the way.
    pub merge: bool,
}

/// Plans the switch from `head`, and returns its changes.
///
/// # Errors
/// [`ChangeError::LocalChanges`] if an uncommitted change is in the way; with `merge`, if both
/// sides changed the same lines or something is staged. Also the errors of
/// [`existing`](branches::existing) and [`preview`].
pub fn plan(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    by: Actor<'_>,
    head: &Head,
    options: &SwitchOptions<'_>,
) -> Result<(Step, Vec<Change>), ChangeError> {
    let refs = repository.refs_at(fork.worktree.git_dir());
    let mut begins = options.begins.clone();
    let to = match &begins {
        Some((commit_id, _)) => {
            refs.check_branch_is_free(options.branch)?;
            if fork.worktree.is_own() {
                let git_dir = fork.worktree.git_dir();
                repository.check_hides_no_branch(git_dir, options.branch)?;
            }
            *commit_id
        }
        None => match refs.branch(options.branch)? {
            Some(commit_id) => commit_id,
            None => {
                let commit_id = branches::existing(repository, options.branch)?;
                // The fork gets a branch of its own where the main repository's is now.
                let reflog = format!("branch: Created from {}", options.branch);
                begins = fork.worktree.is_own().then_some((commit_id, reflog));
                commit_id
            }
        },
    };
    let mut step = Step {
        from: head.commit_id(),
        to,
        update: None,
        switch: Some(SwitchMove {
            from: head.short_branch().map(str::to_owned),
            to: Some(options.branch.to_owned()),
            begins: begins.map(|(_, reflog)| reflog),
        }),
        index: None,
        reflog: by.command.to_owned(),
        kind: OperationKind::Switch,
        undoes: None,
    };
    let changes = match preview(repository, fork, &step) {
        Err(ChangeError::LocalChanges(_)) if options.merge => {
            step.update = Some(merge_uncommitted(store, repository, name, fork, &step)?);
            preview(repository, fork, &step)?
        }
        outcome => outcome?,
    };
    Ok((step, changes))
}

/// Merges the uncommitted changes with the target commit's tree.
fn merge_uncommitted(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    step: &Step,
) -> Result<UpdateStep, ChangeError> {
    let local = changeset::changeset(repository, fork, Blobs::Write)?;
    // git refuses it, too: the merge would mix staged and unstaged changes.
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
    // The fork point does not move.
    let point = fork_point(repository, &store.record(name)?, step.from)?;
    Ok(UpdateStep {
        view_from,
        view_to: merged.tree_id,
        point_from: point,
        point_to: point,
    })
}
