//! Completion of a move that a process began before it died.

use super::plan::AdvancePlan;
use super::{IndexStep, Step, UpdateStep};
use crate::ChangeError;
use crate::point::damaged;
use tine_git::{ObjectId, Repository, Worktree};
use tine_store::{Fork, ForkName, Store};
use tine_workspace::{Actor, Caller, OperationKind, SwitchMove};

/// Finishes a move that a process began before it died.
///
/// # Errors
/// [`ChangeError::Store`] if the record is damaged, and the errors of [`advance`](super::advance).
pub fn finish(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
) -> Result<(), ChangeError> {
    let Some(begun) = store.record(name)?.advancing else {
        return Ok(());
    };
    let id = |hex: &String| ObjectId::from_hex(hex.as_bytes()).map_err(damaged(name));
    let optional = |hex: &Option<String>| hex.as_ref().map(id).transpose();
    let Some(to) = optional(&begun.moved.to)? else {
        return Err(damaged(name)("HEAD is to move nowhere"));
    };
    let update = match &begun.moved.update {
        None => None,
        Some(update) => Some(UpdateStep {
            view_from: id(&update.view_from)?,
            view_to: id(&update.view_to)?,
            point_from: optional(&update.point_from)?,
            point_to: optional(&update.point_to)?,
        }),
    };
    let mut step = Step {
        from: optional(&begun.moved.from)?,
        to,
        update,
        reflog: begun.reflog,
        kind: match (&begun.moved.switch, update) {
            (Some(_), _) => OperationKind::Switch,
            (None, Some(_)) => OperationKind::Update,
            (None, None) => OperationKind::Merge,
        },
        switch: begun.moved.switch.map(|switch| *switch),
        index: None,
        undoes: None,
    };
    let head = repository.head_of(fork.worktree.git_dir())?;
    if step.starts_at(&head) && !step.ends_at(&head) {
        if let Some(switch) = &mut step.switch {
            detach_head_if_taken(repository, &fork.worktree, switch, to)?;
        }
        step.index = IndexStep::begun(
            repository,
            fork,
            (step.from, to),
            begun.moved.index.as_deref(),
        )?;
        let plan = AdvancePlan::make(repository, fork, &step)?;
        let attrs = fork.workspace.base_attrs();
        let by = Actor {
            caller: Caller::new(attrs.uid, attrs.gid),
            command: &begun.command,
        };
        plan.execute(repository, name, fork, by, &step)?;
        log::info!("{name}: what was begun is done: HEAD is {}", step.to);
    }
    let is_done = step.ends_at(&repository.head_of(fork.worktree.git_dir())?);
    match &step.switch {
        _ if !is_done => {}
        Some(switch) => {
            let (from, to) = (switch.from.as_deref(), switch.to.as_deref());
            repository.finish_switch(&fork.worktree, (from, step.from), (to, step.to))?;
        }
        None => repository.finish_advance(&fork.worktree, step.from, step.to, &step.reflog)?,
    }
    store.update_record(name, |record| step.note_done(record, is_done))?;
    Ok(())
}

/// Detaches HEAD if another process moved or checked out the branch.
///
/// It may have done so since the switch was planned.
fn detach_head_if_taken(
    repository: &Repository,
    worktree: &Worktree,
    switch: &mut SwitchMove,
    to: ObjectId,
) -> Result<(), ChangeError> {
    let repository = &repository.refs_at(worktree.git_dir());
    let Some(branch) = &switch.to else {
        return Ok(());
    };
    if switch.begins.is_some() {
        // The process may have died while it held the lock.
        repository.release_stale_branch_lock(branch)?;
    }
    let is_there = match repository.branch(branch)? {
        None => switch.begins.is_some(),
        Some(tip) => tip == to,
    };
    let is_taken = !worktree.is_own() && repository.checked_out_at(branch)?.is_some();
    if !is_there || is_taken {
        log::warn!("the branch {branch} is elsewhere by now: HEAD is detached at {to}");
        switch.to = None;
    }
    Ok(())
}
