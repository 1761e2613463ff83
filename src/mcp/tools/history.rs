//! Snapshots, and the history of a fork.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::ToolCall;
use super::super::session::Session;
use super::super::tool::{Hints, Tool, ToolOutput, Words};
use super::command;
use super::merging::{ConflictShown, advice, conflicts_shown, conflicts_text};
use tine_ops as ops;
use tine_ops::protocol::{
    CommitLine, OperationLine, RestoreOutcome, RestoredHow, ReviewPolicy, Sequenced, SnapshotInfo,
    Snapshots, TakenBackLine,
};
use tine_ops::{Failure, ListSnapshots, Operation, Redo, Restore, TakeSnapshot, Undo};
use tine_path::text::PathText;
use tine_render::text::{counted, one_line, quoted, short_id};
use tine_workspace::OperationState;

/// Default number of commits and operations in one answer.
const DEFAULT_LIMIT: usize = 20;

/// Maximum number of commits and operations in one answer.
const MAX_LIMIT: usize = 500;

impl Tool for TakeSnapshot {
    const NAME: &'static str = "snapshot";
    const TITLE: &'static str = "Take a snapshot";
    const WORDS: Words = &[
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
    const HINTS: Hints = Hints::ADDS;
    type Answer = SnapshotInfo;

    fn call(
        self,
        session: &Session,
        _call: &ToolCall,
    ) -> Result<ToolOutput<SnapshotInfo>, Failure> {
        let snapshot = session.call(self, String::new())?;
        let text = format!(
            "snapshot {}; `restore` to {0} comes back here",
            snapshot.name
        );
        Ok(ToolOutput::new(snapshot, text))
    }
}

impl Tool for ListSnapshots {
    const NAME: &'static str = "list_snapshots";
    const TITLE: &'static str = "List snapshots";
    const WORDS: Words = &[(
        "",
        "List the snapshots of the active fork, the oldest first.",
    )];
    const HINTS: Hints = Hints::LOOKS;
    type Answer = Snapshots;

    fn call(self, session: &Session, _call: &ToolCall) -> Result<ToolOutput<Snapshots>, Failure> {
        let listed = session.call(self, String::new())?;
        let lines = listed.snapshots.iter().map(|snapshot| {
            let message = snapshot.message.as_deref().unwrap_or_default();
            format!("{} {}", snapshot.name, one_line(message))
                .trim()
                .to_owned()
        });
        let text = if listed.snapshots.is_empty() {
            format!("{} has no snapshots", listed.fork)
        } else {
            lines.collect::<Vec<_>>().join("\n")
        };
        Ok(ToolOutput::new(listed, text))
    }
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

impl Tool for Restore {
    const NAME: &'static str = "restore";
    const TITLE: &'static str = "Go back to a point";
    const WORDS: Words = &[
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
    const HINTS: Hints = Hints::SETS;
    type Answer = RestoredShown;

    fn call(
        self,
        session: &Session,
        _call: &ToolCall,
    ) -> Result<ToolOutput<RestoredShown>, Failure> {
        let to = self.to.clone();
        let command = command(<Restore as Tool>::NAME, &to);
        let operation = Restore {
            review: ReviewPolicy::OnConflict,
            ..self
        };
        let restored = match session.call(operation, command)? {
            RestoreOutcome::Restored(restored) => restored,
            RestoreOutcome::Sequenced(done) => return in_conflict(session, &to, *done),
        };
        let shown = RestoredShown {
            fork: restored.fork.to_string(),
            to: restored.to,
            before: restored.before.map(|before| before.to_string()),
            how: match restored.how {
                RestoredHow::Exact => "exact".to_owned(),
                RestoredHow::OntoHead => "onto-head".to_owned(),
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
            RestoredHow::Exact => format!("restored to {at}"),
            RestoredHow::OntoHead => {
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
}

/// Reports the conflicts of a restore, which are in a review.
fn in_conflict(
    session: &Session,
    to: &str,
    done: Sequenced,
) -> Result<ToolOutput<RestoredShown>, Failure> {
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

impl Tool for Undo {
    const NAME: &'static str = "undo";
    const TITLE: &'static str = "Undo";
    const WORDS: Words = &[
        (
            "",
            "Take back the last operation on the active fork's files (an edit, a write, a move, a restore, an update …), or with a path the last one that touched that.\n\nWhat commands that you ran wrote by themselves is not an operation: `snapshot` and `restore` are for that.",
        ),
        (
            "path",
            "Take back only what was done to this path, from the fork's root.",
        ),
    ];
    const HINTS: Hints = Hints::CHANGES;
    type Answer = TakenBackShown;

    fn call(
        self,
        session: &Session,
        _call: &ToolCall,
    ) -> Result<ToolOutput<TakenBackShown>, Failure> {
        let path = self.path.clone();
        take_back(
            session,
            self,
            <Undo as Tool>::NAME,
            path.as_ref(),
            "took back",
        )
    }
}

impl Tool for Redo {
    const NAME: &'static str = "redo";
    const TITLE: &'static str = "Redo";
    const WORDS: Words = &[
        ("", "Do again what `undo` took back last."),
        (
            "path",
            "Do again only what was done to this path, from the fork's root.",
        ),
    ];
    const HINTS: Hints = Hints::CHANGES;
    type Answer = TakenBackShown;

    fn call(
        self,
        session: &Session,
        _call: &ToolCall,
    ) -> Result<ToolOutput<TakenBackShown>, Failure> {
        let path = self.path.clone();
        take_back(
            session,
            self,
            <Redo as Tool>::NAME,
            path.as_ref(),
            "did again",
        )
    }
}

fn take_back(
    session: &Session,
    operation: impl Operation<Answer = TakenBackLine>,
    name: &str,
    path: Option<&PathText>,
    did: &str,
) -> Result<ToolOutput<TakenBackShown>, Failure> {
    let path = path.map(quoted).unwrap_or_default();
    let taken = session.call(operation, command(name, &path).trim().to_owned())?;
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

impl Tool for Log {
    const NAME: &'static str = "log";
    const TITLE: &'static str = "What was done";
    const HINTS: Hints = Hints::LOOKS;
    type Answer = LogShown;

    fn call(self, session: &Session, _call: &ToolCall) -> Result<ToolOutput<LogShown>, Failure> {
        let fork = session.fork()?;
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let (commits, operations) = session.with(|connection| {
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
}
