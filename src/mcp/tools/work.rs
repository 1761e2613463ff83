//! Changes of the active fork: status, diff, commit and the rest.

use std::ffi::OsString;
use std::io::Read;
use std::process::{Command, Stdio};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::session::Session;
use super::super::shown::ChangedPaths;
use super::super::tool::{Call, Descriptions, MAX_TEXT, ToolOutput, ToolResult, cut};
use tine_client::commit::{self, CommitWithHooks};
use tine_client::diff::{check_paths, git_diff};
use tine_client::handoff::make as make_handoff;
use tine_client::hooks::HookOutput;
use tine_client::identity;
use tine_git::{GitError, program};
use tine_ops as ops;
use tine_ops::protocol::{Changes, Committed, Difference, HandoffInfo};
use tine_ops::{CreateHandoff, Failure, work_message};
use tine_render::handoffs::format_line;
use tine_render::text::{counted, one_line, short_id};

/// Tell what is uncommitted in the active fork, as `git add -A` would take it: ignored files are
/// left out.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Status {}

/// What is uncommitted.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StatusShown {
    #[serde(flatten)]
    status: Changes,
    pub changes: ChangedPaths,
}

/// Returns the uncommitted changes of a fork.
pub(crate) fn status_of(session: &Session, fork: Option<&str>) -> Result<StatusShown, Failure> {
    let fork = session.fork_or(fork)?;
    let status = session.with(|connection| connection.changes(&fork, false))?;
    Ok(StatusShown {
        changes: ChangedPaths::of(&status.changes),
        status,
    })
}

pub(super) fn status(_: Status, call: &Call<'_>) -> ToolResult<StatusShown> {
    let shown = status_of(call.session, None)?;
    let branch = shown.status.branch.as_deref();
    let text = format!(
        "fork {} on {}\n{}",
        shown.status.fork,
        branch.unwrap_or("a detached HEAD"),
        shown.changes.text()
    );
    Ok(ToolOutput::new(shown, text))
}

/// Show what differs between the active fork and its last commit, or another point, as git's patch.
/// New files are in it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Diff {
    /// What to compare with: a snapshot, another fork, `pristine` (the fork point: its commits
    /// too), or a revision. Default: HEAD.
    against: Option<String>,
    /// Only these paths, from the fork's root, and what is below them.
    #[serde(default)]
    paths: Vec<String>,
    /// Only how many lines change in each file.
    #[serde(default)]
    stat: bool,
}

/// What differs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DiffShown {
    fork: String,
    /// What it is compared with, with a prefix that leaves it no other meaning. None: HEAD.
    against: Option<String>,
    /// All paths that differ, also where `paths` narrows the patch.
    changes: ChangedPaths,
    pub diff: String,
    /// There is more than `diff` shows: ask with `stat`, or for some `paths`.
    pub truncated: bool,
}

/// Returns the differences, with at most `limit` bytes of the patch.
pub(crate) fn diff_of(
    session: &Session,
    fork: Option<&str>,
    against: Option<String>,
    paths: &[String],
    flags: &[&str],
    limit: usize,
) -> Result<DiffShown, Failure> {
    let fork = session.fork_or(fork)?;
    let request = ops::Diff {
        fork,
        against,
        reverse: false,
    };
    let difference = session.with(|connection| connection.call(&request))?;
    let (diff, truncated) = patch(session, &difference, paths, flags, limit)?;
    Ok(DiffShown {
        fork: difference.fork.to_string(),
        against: difference.against.as_ref().map(|point| point.point.clone()),
        changes: ChangedPaths::of(&difference.changes),
        diff,
        truncated,
    })
}

fn patch(
    session: &Session,
    difference: &Difference,
    paths: &[String],
    flags: &[&str],
    limit: usize,
) -> Result<(String, bool), Failure> {
    let paths: Vec<OsString> = paths.iter().map(OsString::from).collect();
    let flags = [&["--no-color", "--no-ext-diff", "--no-textconv"], flags].concat();
    check_paths(difference, session.common_dir(), &paths)?;
    let mut git = git_diff(difference, session.common_dir(), &flags, &paths);
    // Makes git take each path literally.
    git.env("GIT_LITERAL_PATHSPECS", "1");
    beginning(&mut git, limit)
}

/// Returns at most `limit` bytes of the output of a git command.
///
/// The second value says whether there is more.
fn beginning(command: &mut Command, limit: usize) -> Result<(String, bool), Failure> {
    let mut child = program::spawn(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )?;
    let mut bytes = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let enough = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        stdout
            .take(enough)
            .read_to_end(&mut bytes)
            .map_err(GitError::GitMissing)?;
    }
    // A command that has more to print ends, because its pipe is closed.
    let finished = child.wait_with_output().map_err(GitError::GitMissing)?;
    let is_more = bytes.len() > limit;
    if !finished.status.success() && !is_more {
        let finished = program::Finished {
            status: finished.status,
            stdout: finished.stdout,
            stderr: finished.stderr,
        };
        return Err(program::failed(command, &finished).into());
    }
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    let is_cut = cut(&mut text, limit);
    Ok((text, is_cut || is_more))
}

pub(super) fn diff(arguments: Diff, call: &Call<'_>) -> ToolResult<DiffShown> {
    let flags: &[&str] = if arguments.stat { &["--stat=120"] } else { &[] };
    let shown = diff_of(
        call.session,
        None,
        arguments.against,
        &arguments.paths,
        flags,
        MAX_TEXT,
    )?;
    let mut text = if shown.diff.is_empty() {
        "nothing differs".to_owned()
    } else {
        shown.diff.clone()
    };
    if shown.truncated {
        text.push_str("\n[cut: `stat` tells what there is, `paths` shows some of it]");
    }
    Ok(ToolOutput::new(shown, text))
}

/// A commit that was made.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CommitMade {
    #[serde(flatten)]
    committed: Committed,
    changes: ChangedPaths,
    /// The repository's hooks did not run, because the fork is not mounted.
    hooks_skipped: bool,
}

/// Descriptions of `commit` and its arguments.
pub(super) const COMMIT: Descriptions = &[
    (
        "",
        "Commit everything that is uncommitted in the active fork to its branch, as `git add -A && git commit` would, hooks and all.",
    ),
    (
        "allow_revert",
        "Commit also what takes commits of others back, after `restore` with `exact`.",
    ),
    (
        "author",
        "The author, if not whom git is configured for: `Name <address>`.",
    ),
    (
        "message",
        "The commit's message: a short first line in the imperative; then, after an empty line, why.",
    ),
];

pub(super) fn commit(commit: CommitWithHooks, call: &Call<'_>) -> ToolResult<CommitMade> {
    let fork = call.session.fork()?;
    let place = call.session.place();
    let made = call.session.with(|connection| {
        let fork = connection.show(&fork)?;
        commit::make(&place, connection, &fork, commit, HookOutput::Kept, &|| {
            call.check()
        })
    })?;
    let committed = made.committed;
    let mut text = format!(
        "[{} {}] {}\n{} changed",
        committed.branch.as_deref().unwrap_or("detached HEAD"),
        short_id(&committed.commit),
        one_line(&committed.summary),
        counted(committed.changes.len(), "file")
    );
    let shown = CommitMade {
        changes: ChangedPaths::of(&committed.changes),
        committed,
        hooks_skipped: made.hooks_skipped,
    };
    if shown.hooks_skipped {
        text.push_str("\nthe hooks were skipped: the fork is not mounted");
    }
    Ok(ToolOutput::new(shown, text))
}

/// Descriptions of `handoff` and its arguments.
pub(super) const HANDOFF: Descriptions = &[
    (
        "",
        "Hand the active fork's commits over as patches that outlive the fork, for somebody else to apply (`tine handoff apply`).\n\nFor work that you are not to merge yourself.",
    ),
    (
        "allow_revert",
        "Hand over also what takes commits of others back, after `restore` with `exact`.",
    ),
    (
        "base",
        "The revision that the commits come after. Default: the fork point.",
    ),
    ("include_uncommitted", "Commit what is uncommitted first."),
    ("message", "The message of that commit."),
    (
        "to",
        "The fork or branch that is to apply it. Default: what the fork came from.",
    ),
];

pub(super) fn handoff(operation: CreateHandoff, call: &Call<'_>) -> ToolResult<HandoffInfo> {
    let signers = identity::signers_if_any(call.session.common_dir());
    let fork = call.session.fork()?;
    let request = CreateHandoff {
        fork: Some(fork.clone()),
        ..operation
    };
    let place = call.session.place();
    let info = call.session.with(|connection| {
        if request.include_uncommitted {
            let message = ops::joined_message(&request.message);
            let mut commit = CommitWithHooks::of(message.unwrap_or_else(|| work_message(&fork)));
            commit.operation.allow_revert = request.allow_revert;
            commit::commit_first(&place, connection, &fork, commit, HookOutput::Kept)?;
        }
        make_handoff(connection, &request, &signers, true)
    })?;
    let text = format_line(&info).trim_end().to_owned();
    Ok(ToolOutput::new(info, text))
}
