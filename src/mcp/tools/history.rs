//! Snapshots, and the history of a fork.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::session::Session;
use super::super::tool::{Call, Descriptions, ToolOutput, ToolResult};
use super::merging::{ConflictShown, advice, conflicts_shown, conflicts_text};
use tine_ops as ops;
use tine_ops::protocol::{
    CommitLine, OperationLine, RestoreMethod, RestoreOutcome, ReviewPolicy, Sequenced,
    SnapshotInfo, Snapshots, TakenBackLine,
};
use tine_ops::{Operation, Redo, Restore, Undo};
use tine_path::text::PathText;
use tine_render::text::{counted, one_line, quoted, short_id};
use tine_workspace::OperationState;

/// Default number of commits and operations in one answer.
const DEFAULT_LIMIT: usize = 20;

/// Maximum number of commits and operations in one answer.
const MAX_LIMIT: usize = 500;

/// Descriptions of `snapshot` and its arguments.
pub(super) const SNAPSHOT: Descriptions = &[
    (
        "",
        "Mark the active fork as it is now, ignored files and all, to come back to with `restore`.\n\nIt costs next to nothing: take one before anything risky.",
    ),
    ("message", "What it is for, in words."),
    (
        "name",
        "Letters, digits, '.', '_' and '-'. Default: `snapshot-NUMBER`.",
    ),
];

pub(super) fn snapshot_text(snapshot: &SnapshotInfo) -> String {
    format!(
        "snapshot {}; `restore` to {0} comes back here",
        snapshot.name
    )
}

/// Descriptions of `list_snapshots` and its arguments.
pub(super) const LIST_SNAPSHOTS: Descriptions = &[(
    "",
    "List the snapshots of the active fork, the oldest first.",
)];

pub(super) fn list_snapshots_text(listed: &Snapshots) -> String {
    if listed.snapshots.is_empty() {
        return format!("{} has no snapshots", listed.fork);
    }
    let lines = listed.snapshots.iter().map(|snapshot| {
        let message = snapshot.message.as_deref().unwrap_or_default();
        let line = format!("{} {}", snapshot.name, one_line(message));
        line.trim().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What was restored.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RestoredShown {
    fork: String,
    /// The point that it is at now.
    to: Option<String>,
    /// The snapshot of what the fork was, if that was anything.
    before: Option<String>,
    /// `exact`; `onto-head`: what the point had of its own is on HEAD, which has commits of others
    /// by now; `conflicts`: nothing was changed.
    how: String,
    /// The commits of others whose work the files lack now.
    left_out: Vec<String>,
    conflicts: Vec<ConflictShown>,
    /// The number of the review that keeps the conflicts.
    review: Option<u64>,
}

/// Descriptions of `restore` and its arguments.
pub(super) const RESTORE: Descriptions = &[
    (
        "",
        "Let the active fork, or some paths of it, be as at a snapshot or another point.\n\nCommits and HEAD stay; only files change. What the fork was becomes a snapshot first, named in `before`: restoring to that takes this back.",
    ),
    (
        "exact",
        "Where HEAD has commits of others by now that the point lacks: take its very files all the same. Default: what the point had of its own is merged onto HEAD.",
    ),
    ("force", "Let go of ignored files that are in the way."),
    (
        "paths",
        "Only these paths, from the fork's root, and what is below them. Default: everything.",
    ),
    (
        "to",
        "A snapshot of the fork, `pristine` (its fork point), another fork, or a revision such as `HEAD` or `main`.",
    ),
];

pub(super) fn restore(operation: Restore, call: &Call<'_>) -> ToolResult<RestoredShown> {
    let to = operation.to.clone();
    let command = call.command(&to);
    let operation = Restore {
        review: ReviewPolicy::OnConflict,
        ..operation
    };
    let restored = match call.session.call(operation, command)? {
        RestoreOutcome::Restored(restored) => restored,
        RestoreOutcome::Sequenced(done) => return in_conflict(call.session, &to, *done),
    };
    let shown = RestoredShown {
        fork: restored.fork.to_string(),
        to: restored.to,
        before: restored.before.map(|before| before.to_string()),
        how: match restored.how {
            RestoreMethod::Exact => "exact".to_owned(),
            RestoreMethod::OntoHead => "onto-head".to_owned(),
        },
        left_out: restored
            .left_out
            .into_iter()
            .map(|commit| commit.commit)
            .collect(),
        conflicts: Vec::new(),
        review: None,
    };
    let at = shown.to.as_deref().unwrap_or_default();
    let mut text = match restored.how {
        RestoreMethod::Exact => format!("restored to {at}"),
        RestoreMethod::OntoHead => {
            format!("what {at} had of its own is on HEAD, which has commits of others by now")
        }
    };
    if !shown.left_out.is_empty() {
        text.push_str(&format!(
            "; the files lack the work of {}",
            shown.left_out.join(", ")
        ));
    }
    if let Some(before) = &shown.before {
        text.push_str(&format!("; `restore` to {before} takes that back"));
    }
    Ok(ToolOutput::new(shown, text))
}

/// Reports the conflicts of a restore, which are in a review.
fn in_conflict(session: &Session, to: &str, done: Sequenced) -> ToolResult<RestoredShown> {
    let conflicts = conflicts_shown(&session.place(), &done.conflicts)?;
    let text = format!(
        "HEAD has commits of others by now that {to} lacks, and {}:{}{}",
        counted(done.conflicts.len(), "conflict"),
        conflicts_text(&conflicts),
        advice(done.review)
    );
    let shown = RestoredShown {
        fork: session.fork()?.to_string(),
        to: None,
        before: None,
        how: "conflicts".to_owned(),
        left_out: Vec::new(),
        conflicts,
        review: done.review,
    };
    Ok(ToolOutput::new(shown, text))
}

/// What was taken back, or done again.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TakenBackShown {
    #[serde(flatten)]
    taken: TakenBackLine,
    /// The operation whose changes these were.
    operation: u64,
    command: String,
    paths: Vec<PathText>,
}

/// Descriptions of `undo` and its arguments.
pub(super) const UNDO: Descriptions = &[
    (
        "",
        "Take back the last operation on the active fork's files (an edit, a write, a move, a restore, an update …), or with a path the last one that touched that.\n\nWhat commands that you ran wrote by themselves is not an operation: `snapshot` and `restore` are for that.",
    ),
    (
        "path",
        "Take back only what was done to this path, from the fork's root.",
    ),
];

pub(super) fn undo(operation: Undo, call: &Call<'_>) -> ToolResult<TakenBackShown> {
    let path = operation.path.clone();
    take_back(call, operation, path.as_ref(), "took back")
}

/// Descriptions of `redo` and its arguments.
pub(super) const REDO: Descriptions = &[
    ("", "Do again what `undo` took back last."),
    (
        "path",
        "Do again only what was done to this path, from the fork's root.",
    ),
];

pub(super) fn redo(operation: Redo, call: &Call<'_>) -> ToolResult<TakenBackShown> {
    let path = operation.path.clone();
    take_back(call, operation, path.as_ref(), "did again")
}

fn take_back(
    call: &Call<'_>,
    operation: impl Operation<Answer = TakenBackLine>,
    path: Option<&PathText>,
    did: &str,
) -> ToolResult<TakenBackShown> {
    let path = path.map(quoted).unwrap_or_default();
    let taken = call.session.call(operation, call.command(&path))?;
    let mut text = format!("{did} {}: {}", taken.of.id, taken.of.command);
    for path in &taken.operation.paths {
        text.push_str(&format!("\n  {}", quoted(path)));
    }
    if !taken.notes.is_empty() {
        text.push_str(&format!(
            "\n{} not as the operation had left them; what they were is kept, and the opposite tool brings it back",
            match taken.notes.len() {
                1 => "1 path was".to_owned(),
                count => format!("{count} paths were"),
            }
        ));
    }
    let shown = TakenBackShown {
        operation: taken.of.id,
        command: taken.of.command.clone(),
        paths: taken.operation.paths.clone(),
        taken,
    };
    Ok(ToolOutput::new(shown, text))
}

/// Tell what was done in the active fork: its own commits, and operations on its files, the newest
/// first.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Log {
    /// How many of each to tell at most, up to 500. Default: 20.
    limit: Option<usize>,
}

/// What was done.
#[derive(Serialize, JsonSchema)]
pub(super) struct LogShown {
    fork: String,
    /// Since the fork's base.
    commits: Vec<CommitLine>,
    operations: Vec<OperationLine>,
}

pub(super) fn log(arguments: Log, call: &Call<'_>) -> ToolResult<LogShown> {
    let fork = call.session.fork()?;
    let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let (commits, operations) = call.session.with(|connection| {
        let request = ops::Log {
            fork: fork.clone(),
            limit,
        };
        let commits = connection.call(&request)?.commits;
        let request = ops::ListOperations {
            fork: Some(fork.clone()),
            max_count: limit,
        };
        let operations = connection.call(&request)?.operations;
        Ok((commits, operations))
    })?;
    let shown = LogShown {
        fork: fork.to_string(),
        commits,
        operations,
    };
    let mut text = format!(
        "{}, {}",
        counted(shown.commits.len(), "commit"),
        counted(shown.operations.len(), "operation")
    );
    for commit in &shown.commits {
        text.push_str(&format!(
            "\n{} {}",
            short_id(&commit.commit),
            one_line(&commit.summary)
        ));
    }
    for operation in &shown.operations {
        let state = match operation.state {
            OperationState::Done => "",
            OperationState::Undone => " (undone)",
            OperationState::PartlyUndone => " (partly undone)",
            OperationState::OutOfReach => " (out of reach)",
        };
        text.push_str(&format!(
            "\n{}: {}{state}",
            operation.id,
            one_line(&operation.command)
        ));
    }
    Ok(ToolOutput::new(shown, text))
}
