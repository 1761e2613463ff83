//! What was done to a fork by commands, and taking it back.

use std::sync::Arc;

use super::paths::{looking, parse};
use super::snapshots;
use crate::attr::Timestamp;
use crate::daemon::failure::Failure;
use crate::daemon::protocol::{Answer, NoteLine, OperationLine, Response, TakenBackLine};
use crate::daemon::slots::{Daemon, Turn};
use crate::path::RepoPath;
use crate::path::text::PathText;
use crate::workspace::{
    By, Change, Direction, ForkName, Note, Operation, OperationError, OperationKind, OperationState,
    TakenBack,
};

pub fn list(daemon: &Arc<Daemon>, name: &ForkName, limit: usize) -> Response {
    looking(daemon, name, |workspace| {
        let operations = workspace.operations(limit)?;
        Ok(Answer::Operations {
            operations: operations
                .iter()
                .map(|(operation, state)| operation_line(operation, *state))
                .collect(),
        })
    })
}

pub fn take_back(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    name: &ForkName,
    direction: Direction,
    path: Option<&PathText>,
) -> Response {
    let path = path.map(parse).transpose()?;
    let path = path.as_ref();
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let open = turn.open_existing()?;
    let before = open.workspace.reachable()?;
    let taken = match open.workspace.take_back(by, direction, path) {
        Err(OperationError::IsSwitch { id, before: name }) => {
            let switched = switch_back(&turn, by, direction, id, &name)?;
            let of = before.get(id).map(|of| before.beginning_of(of).clone());
            TakenBack {
                of: of.unwrap_or_else(|| switched.clone()),
                operation: switched,
                notes: Vec::new(),
            }
        }
        taken => taken?,
    };
    if !turn.is_mounted() {
        open.workspace.sync()?;
    }
    let reachable = open.workspace.reachable()?;
    let line = |operation: &Operation| operation_line(operation, reachable.state_of(operation.id));
    let note = |note: &Note| NoteLine {
        path: (&note.path).into(),
        note: note.kind,
    };
    Ok(Answer::TakenBack(TakenBackLine {
        fork: name.clone(),
        operation: line(&taken.operation),
        of: line(&taken.of),
        notes: taken.notes.iter().map(note).collect(),
    }))
}

/// Takes back that the fork went to another state, by going to the snapshot of the one before: as an operation.
fn switch_back(
    turn: &Turn<'_>,
    by: By<'_>,
    direction: Direction,
    of: u64,
    before: &str,
) -> Result<Operation, Failure> {
    let snapshot = turn
        .daemon
        .store
        .snapshot(turn.name(), &ForkName::parse(before)?)?;
    let open = turn.open()?;
    let now = snapshots::restore_in(turn, &open, &snapshot)?;
    let kind = match direction {
        Direction::Undo => OperationKind::Undo,
        Direction::Redo => OperationKind::Redo,
    };
    let id = snapshots::record_switch(turn, by, &now, kind, Some(of)).unwrap_or_default();
    Ok(Operation {
        id,
        time: Timestamp::now(),
        command: by.command.to_owned(),
        kind,
        changes: vec![Change::Switched {
            before: now.to_string(),
        }],
        undoes: None,
        kept_bytes: 0,
    })
}

fn operation_line(operation: &Operation, state: OperationState) -> OperationLine {
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
