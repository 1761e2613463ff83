//! Lists a fork's operations, and takes them back.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths::with_workspace;
use super::{branches, snapshots};
use crate::failure::{ErrorCode, Failure};
use crate::locks;
use crate::operation::{self, Call, path_parser};
use crate::protocol::{NoteLine, OperationLine, Operations, TakenBackLine};
use crate::state::slots::ForkGuard;
use tine_attr::Timestamp;
use tine_change::advance::{self, IndexStep, Step, UpdateStep};
use tine_change::branches::BranchUsage;
use tine_change::going_back::StateHead;
use tine_change::recovery::{self, RecoverEntry, RecoverKind};
use tine_git::{ObjectId, Repository};
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_store::LeaseKey;
use tine_store::{Fork, ForkName, SnapshotRecord};
use tine_workspace::{
    Actor, Direction, FileChange, FileOperation, GitSwitch, HeadMove, Note, OperationError,
    OperationKind, OperationState, UndoOutcome, UndoneChanges,
};

/// Show what commands did to the files of a fork
///
/// One line an operation, the newest first: its number, its age, how it stands, the command. `done`
/// can be taken back with `tine undo`; `out of reach` is what is too long ago (the newest 500
/// operations are kept, up to 256 MiB), or was done before the fork went back to another state.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine op log fix-parser
  tine op log fix-parser -n 1 --json")]
pub struct ListOperations {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// Show at most COUNT operations
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub max_count: usize,
}

impl operation::Operation for ListOperations {
    const NAME: &'static str = "operations";
    type Answer = Operations;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Operations, Failure> {
        let name = &call.fork(self.fork)?;
        with_workspace(call.daemon, name, |workspace| {
            let operations = workspace.operations(self.max_count)?;
            Ok(Operations {
                fork: name.clone(),
                operations: operations
                    .iter()
                    .map(|(operation, state)| operation_line(operation, *state))
                    .collect(),
            })
        })
    }
}

/// Take back the last operation on a fork
///
/// Operations are what tine's commands do to files: write, mv, rm. Each undo takes the newest one
/// back that is not taken back yet, with PATH the newest that touched it, and of that what is at or
/// below PATH. What programs did in the mount is not an operation; where it is in the way it is
/// kept, and `tine redo` brings it back. `tine op log` shows what there is.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Examples:
  tine undo fix-parser
  tine undo fix-parser src/main.rs")]
pub struct Undo {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[schemars(skip)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// Take back what was done to PATH alone
    #[arg(value_name = "PATH", value_parser = path_parser())]
    #[schemars(with = "Option<String>")]
    #[serde(default)]
    pub path: Option<PathText>,

    /// Take HEAD, the fork's own refs and the index back as well, where the operation was a restore
    /// or a reset
    #[arg(long, conflicts_with = "path")]
    #[schemars(skip)]
    #[serde(default)]
    pub with_git: bool,
}

impl operation::Operation for Undo {
    const NAME: &'static str = "undo";
    const PROGRESS: &'static str = "taking back";
    type Answer = TakenBackLine;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<TakenBackLine, Failure> {
        take_back(
            call,
            self.fork,
            Direction::Undo,
            self.path.as_ref(),
            self.with_git,
        )
    }
}

/// Do again what was taken back last on a fork
///
/// As long as nothing else was done since by a command; with PATH nothing else to that.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Examples:
  tine redo fix-parser
  tine redo fix-parser src/main.rs")]
pub struct Redo {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[schemars(skip)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// Do again what was taken back of PATH alone
    #[arg(value_name = "PATH", value_parser = path_parser())]
    #[schemars(with = "Option<String>")]
    #[serde(default)]
    pub path: Option<PathText>,

    /// Bring HEAD, the fork's own refs and the index back as well, where the operation was a restore
    /// or a reset
    #[arg(long, conflicts_with = "path")]
    #[schemars(skip)]
    #[serde(default)]
    pub with_git: bool,
}

impl operation::Operation for Redo {
    const NAME: &'static str = "redo";
    const PROGRESS: &'static str = "taking back";
    type Answer = TakenBackLine;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<TakenBackLine, Failure> {
        take_back(
            call,
            self.fork,
            Direction::Redo,
            self.path.as_ref(),
            self.with_git,
        )
    }
}

/// Number of newest operations that are compared with edits in open buffers.
const MAX_LOOKED_AT: usize = 1000;

fn take_back(
    call: &Call<'_>,
    fork: Option<ForkName>,
    direction: Direction,
    path: Option<&PathText>,
    with_git: bool,
) -> Result<TakenBackLine, Failure> {
    let (daemon, by, name) = (call.daemon, call.by(), &call.fork(fork)?);
    let path = path.map(|path| call.path(name, path)).transpose()?;
    let path = path.as_ref();
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let open = guard.open_existing()?;
    let before = open.workspace.reachable()?;
    if with_git {
        refuse_without_point(name, &open.workspace.next_to_take_back(direction, None)?)?;
    } else if let Some(answer) = take_back_in_buffer(&guard, by, &open, direction, path)? {
        return Ok(answer);
    }
    let taken = match open.workspace.take_back(by, direction, path) {
        Err(OperationError::IsSwitch {
            id,
            before: name,
            git,
        }) => {
            let switched = if with_git || git.is_some() {
                let git = git.filter(|_| !with_git);
                switch_back_with_git(&guard, by, direction, id, &name, git.as_ref())?
            } else {
                switch_back(&guard, by, direction, id, &name)?
            };
            let of = before.get(id).map(|of| before.beginning_of(of).clone());
            UndoOutcome {
                of: of.unwrap_or_else(|| switched.clone()),
                operation: switched,
                notes: Vec::new(),
            }
        }
        Err(OperationError::IsAdvance { undoes, moved }) if path.is_none() => {
            let id = undoes.operation;
            let moved = move_back(&guard, by, direction, undoes, &moved)?;
            let of = before.get(id).map(|of| before.beginning_of(of).clone());
            UndoOutcome {
                of: of.unwrap_or_else(|| moved.clone()),
                operation: moved,
                notes: Vec::new(),
            }
        }
        taken => taken?,
    };
    guard.sync_if_unmounted(&open)?;
    let reachable = open.workspace.reachable()?;
    let line =
        |operation: &FileOperation| operation_line(operation, reachable.state_of(operation.id));
    let note = |note: &Note| NoteLine {
        path: (&note.path).into(),
        note: note.kind,
    };
    Ok(TakenBackLine {
        fork: name.clone(),
        operation: line(&taken.operation),
        of: line(&taken.of),
        notes: taken.notes.iter().map(note).collect(),
    })
}

/// Takes back an agent's newest edit of an open buffer.
///
/// Returns `None` if there is none, or if an operation to take back is newer.
fn take_back_in_buffer(
    guard: &ForkGuard<'_>,
    by: Actor<'_>,
    open: &Fork,
    direction: Direction,
    path: Option<&RepoPath>,
) -> Result<Option<TakenBackLine>, Failure> {
    let (buffers, store) = (&guard.daemon.buffers, &guard.daemon.store);
    let Some(edit) = buffers.newest_edit(guard.name(), path, direction) else {
        return Ok(None);
    };
    let operations = open.workspace.operations(MAX_LOOKED_AT)?;
    let is_about = |operation: &FileOperation| {
        let mut paths = operation.changes.iter().flat_map(|change| change.paths());
        path.is_none_or(|path| paths.any(|changed| changed.starts_with(path)))
    };
    let is_next = |(operation, state): &&(FileOperation, OperationState)| {
        let is_undo = operation.kind == OperationKind::Undo;
        *state == OperationState::Done
            && is_undo == (direction == Direction::Redo)
            && is_about(operation)
    };
    let next = operations.iter().find(is_next);
    if next.is_some_and(|(operation, _)| operation.time > edit.time) {
        return Ok(None);
    }
    if !buffers.take_back(store, &edit, direction)? {
        return Err(Failure::new(
            ErrorCode::CannotUndo,
            format!("{} was changed in the editor since", edit.key.path),
        )
        .hint("change it there; `tine undo FORK PATH` takes back what was done to another file"));
    }
    let line = |kind, time: Timestamp, state| OperationLine {
        id: 0,
        time: time.into(),
        command: by.command.to_owned(),
        kind,
        paths: vec![(&edit.key.path).into()],
        undoes: None,
        state,
    };
    let state = match direction {
        Direction::Undo => OperationState::Undone,
        Direction::Redo => OperationState::Done,
    };
    Ok(Some(TakenBackLine {
        fork: guard.name().clone(),
        operation: line(direction.kind(), Timestamp::now(), OperationState::Done),
        of: OperationLine {
            command: "in the open buffer".to_owned(),
            ..line(OperationKind::Write, edit.time, state)
        },
        notes: Vec::new(),
    }))
}

/// Takes back a switch of the fork to another state.
///
/// It restores the snapshot `before`, which was taken before the operation `of`, and records that
/// as an operation.
fn switch_back(
    guard: &ForkGuard<'_>,
    by: Actor<'_>,
    direction: Direction,
    of: u64,
    before: &str,
) -> Result<FileOperation, Failure> {
    let snapshot = snapshot_before(guard, before)?;
    let open = guard.open()?;
    let repository = guard.daemon.repository_now()?;
    let head = repository.head_of(open.worktree.git_dir())?;
    let then = StateHead::of_snapshot(guard.name(), guard.name(), &snapshot)?;
    if then
        .since(&guard.daemon.store, &repository, &guard.record()?, &head)?
        .is_some()
    {
        return Err(Failure::new(
            ErrorCode::CannotUndo,
            "HEAD has commits of others since the operation, which it would take back",
        )
        .hint(format!(
            "`tine restore {} {before}` brings what the fork had of its own onto HEAD",
            guard.name()
        )));
    }
    let now = snapshots::restore_in(guard, &open, &snapshot)?;
    Ok(switched(guard, by, direction, of, &now, None))
}

/// Takes back a switch together with HEAD, refs and index.
///
/// `git` is HEAD after the operation, if it must still be there.
fn switch_back_with_git(
    guard: &ForkGuard<'_>,
    by: Actor<'_>,
    direction: Direction,
    of: u64,
    before: &str,
    git: Option<&GitSwitch>,
) -> Result<FileOperation, Failure> {
    let snapshot = snapshot_before(guard, before)?;
    let open = guard.open()?;
    let repository = guard.daemon.repository_now()?;
    let head = repository.head_of(open.worktree.git_dir())?.commit_id();
    if let Some(git) = git
        && git.head != head.map(|id| id.to_string())
    {
        return Err(Failure::new(
            ErrorCode::CannotUndo,
            "HEAD has moved on since the operation, which moved HEAD, refs and index",
        )
        .hint("`--with-git` takes them back even so; what there is becomes a snapshot first"));
    }
    let (now, git) = snapshots::restore_with_git_in(guard, &open, &snapshot, by)?;
    guard.forget_settled();
    Ok(switched(guard, by, direction, of, &now, Some(git)))
}

/// Returns the snapshot that was taken before a switch.
fn snapshot_before(guard: &ForkGuard<'_>, before: &str) -> Result<SnapshotRecord, Failure> {
    let name = ForkName::parse(before)?;
    Ok(guard.daemon.store.snapshot(guard.name(), &name)?)
}

/// Records a switch that takes back the operation `of`.
fn switched(
    guard: &ForkGuard<'_>,
    by: Actor<'_>,
    direction: Direction,
    of: u64,
    before: &ForkName,
    git: Option<GitSwitch>,
) -> FileOperation {
    let kind = direction.kind();
    let id = snapshots::record_switch(guard, by, before, kind, Some(of), git.clone());
    FileOperation {
        id: id.unwrap_or_default(),
        time: Timestamp::now(),
        command: by.command.to_owned(),
        kind,
        changes: vec![FileChange::Switched {
            before: before.to_string(),
            git,
        }],
        undoes: None,
        kept_bytes: 0,
    }
}

/// Refuses to take refs back with an operation that recorded none.
fn refuse_without_point(fork: &ForkName, of: &FileOperation) -> Result<(), Failure> {
    let is_switch = |change: &FileChange| matches!(change, FileChange::Switched { .. });
    if of.changes.iter().any(is_switch) {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::NoGitPoint,
        format!(
            "the operation {} was no restore or reset: HEAD, refs and index were not recorded with it",
            of.id
        ),
    )
    .hint(format!(
        "`tine undo {fork}` takes it back, and HEAD and index with it if it moved them; `tine restore {fork} SNAPSHOT --with-git` restores them as at a snapshot"
    )))
}

/// Takes back a move of HEAD and the view.
fn move_back(
    guard: &ForkGuard<'_>,
    by: Actor<'_>,
    direction: Direction,
    undoes: UndoneChanges,
    moved: &HeadMove,
) -> Result<FileOperation, Failure> {
    let id = |hex: &String| {
        ObjectId::from_hex(hex.as_bytes()).map_err(|error| {
            Failure::new(
                ErrorCode::StoreDamaged,
                format!("the operation {} is damaged", undoes.operation),
            )
            .cause(error.to_string())
        })
    };
    let (Some(back_to), Some(head_at)) = (&moved.from, &moved.to) else {
        return Err(Failure::new(
            ErrorCode::CannotUndo,
            "the operation made the first commit of its branch",
        )
        .hint("`git update-ref -d HEAD` in the mount leaves the branch without one"));
    };
    let (back_to, head_at) = (id(back_to)?, id(head_at)?);
    let daemon = guard.daemon;
    let repository = daemon.repository_now()?;
    let open = guard.open()?;
    let head = repository.head_of(open.worktree.git_dir())?;
    let back_on = moved
        .switch
        .as_ref()
        .map_or(head.short_branch(), |switch| switch.from.as_deref());
    let keys = back_on.map(|branch| LeaseKey::Branch(branch.to_owned()));
    let _lease = locks::lease(daemon, by.command, || {
        Ok(keys.clone().into_iter().collect())
    })?;
    if let Some(switch) = &moved.switch {
        branches::check_switch_can_be_undone(
            daemon,
            &repository,
            guard.name(),
            &head,
            (switch, back_to, head_at),
        )?;
    } else if let Some(branch) = head
        .short_branch()
        .filter(|_| head.commit_id() == Some(head_at))
    {
        BranchUsage::now(&daemon.store, &repository)?.refuse_held_twice(branch)?;
    } else if head.commit_id() != Some(head_at) {
        let failure = Failure::new(
            ErrorCode::CannotUndo,
            "HEAD has moved on since the operation",
        );
        let is_merge = match repository.commit_info(head_at) {
            Ok(info) => info.parent_ids.len() > 1 && info.parent_ids.first() == Some(&back_to),
            Err(_) => false,
        };
        return Err(failure.hint(if is_merge {
            format!("`git revert -m 1 {head_at}` in the mount takes it back by a commit of its own")
        } else {
            // An update or rebase brought several commits, which no single revert takes back.
            format!(
                "`git log {head_at}..` in the mount shows what came since: take that back first"
            )
        }));
    }
    let update = match &moved.update {
        None => None,
        Some(update) => Some(UpdateStep::back(
            &repository,
            &open,
            (id(&update.view_from)?, id(&update.view_to)?),
            (
                update.point_from.as_ref().map(id).transpose()?,
                update.point_to.as_ref().map(id).transpose()?,
            ),
        )?),
    };
    let index = match &moved.index {
        None => None,
        Some(index) => Some(IndexStep::back(
            &repository,
            &open,
            &IndexStep::read(index)?,
        )?),
    };
    let step = Step {
        from: Some(head_at),
        to: back_to,
        update,
        switch: moved.switch.as_ref().map(|switch| switch.reversed()),
        index,
        reflog: by.command.to_owned(),
        kind: direction.kind(),
        undoes: Some(undoes),
    };
    let kept = keep_left(guard, &repository, back_on, (head_at, back_to), by.command)?;
    let moved = advance::advance(&daemon.store, &repository, guard.name(), &open, by, &step);
    if let (Err(_), Some(entry)) = (&moved, kept) {
        recovery::purge(&daemon.store, &repository, &[entry]);
    }
    moved?;
    guard.forget_settled();
    let done = open.workspace.operations(1)?;
    done.into_iter()
        .next()
        .map(|(operation, _)| operation)
        .ok_or_else(|| Failure::new(ErrorCode::Internal, "an operation was not written down"))
}

/// Keeps commits that HEAD is leaving and that nothing else reaches.
///
/// HEAD goes from `from` back to `to`. The source of a merge may be gone by now, and its author
/// does not see this fork. Returns the number of the entry, if one was made.
fn keep_left(
    guard: &ForkGuard<'_>,
    repository: &Repository,
    branch: Option<&str>,
    (from, to): (ObjectId, ObjectId),
    command: &str,
) -> Result<Option<u64>, Failure> {
    let without: Vec<&str> = branch.into_iter().collect();
    let own = |tip| repository.own_commits(&BTreeSet::from([tip]), &without);
    let mut left = own(from)?.commit_ids;
    for stays in own(to)?.commit_ids {
        left.remove(&stays);
    }
    // `tine redo` makes the merge commit again.
    if left.contains(&from) && repository.commit_info(from)?.parent_ids.len() > 1 {
        left.remove(&from);
    }
    if left.is_empty() {
        return Ok(None);
    }
    let entry = RecoverEntry {
        fork: Some(guard.name().clone()),
        // The branch stays, at another commit.
        branch: None,
        head: Some(from.to_string()),
        ..RecoverEntry::new(RecoverKind::Branch, command)
    };
    Ok(Some(recovery::keep(
        &guard.daemon.store,
        repository,
        entry,
        &without,
    )?))
}

fn operation_line(operation: &FileOperation, state: OperationState) -> OperationLine {
    let mut paths: Vec<&RepoPath> = operation
        .changes
        .iter()
        .flat_map(|change| change.paths())
        .collect();
    paths.dedup();
    OperationLine {
        id: operation.id,
        time: operation.time.into(),
        command: operation.command.clone(),
        kind: operation.kind,
        paths: paths.into_iter().map(Into::into).collect(),
        undoes: operation.undoes.as_ref().map(|undoes| undoes.operation),
        state,
    }
}
