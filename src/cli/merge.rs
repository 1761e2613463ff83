//! `tine merge`: brings forks, snapshots, branches, commits and trees together.

use serde::Serialize;
use serde_json::Value;

use super::context::Context;
use super::output::{Cell, Output, Tone, table};
use super::resolving::ResolverArgs;
use super::sequencing::resolve_review;
use super::{Exit, SUCCESS};
use crate::change::review::{ConflictRecord, VersionRecord};
use crate::client::commit::note_agent_texts;
use crate::client::content::{content, hunks};
use crate::client::hooks::HookOutput;
use crate::client::merging::HookOptions;
use crate::client::{Client, identity};
use crate::git::program;
use crate::ops::protocol::{MergeStatus, MergeTarget, Merged, MergedSource, SourceOutcome};
use crate::ops::{ErrorCode, ExitCode, Failure};
use crate::render::merging::{kind_in_words, target_name};
use crate::render::text::{counted, quoted, short_id};
use crate::store::ForkName;
use crate::{client, ops};

// The help is the operation's doc comment.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Merge {
    #[command(flatten)]
    pub operation: ops::Merge,

    /// Keep conflicts as a review, to be resolved one by one
    #[arg(long, conflicts_with = "dry_run")]
    pub review: bool,

    /// On conflicts, begin the merge in the mounted target as git does, with markers in the files:
    /// `git commit` there concludes it, `git merge --abort` takes it back
    #[arg(long, value_enum, value_name = "STYLE", num_args = 0..=1, require_equals = true, default_missing_value = "merge",
          conflicts_with_all = ["dry_run", "review", "resolver", "base", "all_or_nothing"])]
    pub markers: Option<MarkerStyle>,

    #[command(flatten)]
    pub resolving: ResolverArgs,

    /// Skip the hooks pre-commit, pre-merge-commit and commit-msg
    #[arg(long)]
    pub no_verify: bool,
}

/// What conflicts in files look like (`merge.conflictStyle`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum MarkerStyle {
    /// Both sides
    Merge,
    /// The base between them
    Diff3,
    /// The same, without lines that both sides begin or end with
    Zdiff3,
}

impl MarkerStyle {
    fn name(self) -> &'static str {
        match self {
            MarkerStyle::Merge => "merge",
            MarkerStyle::Diff3 => "diff3",
            MarkerStyle::Zdiff3 => "zdiff3",
        }
    }
}

pub(super) fn run(verb: &Merge, context: &Context) -> Result<Exit, Failure> {
    let mut connection = context.connect()?;
    let merged = ask(verb, context, &mut connection)?;
    if let Some(style) = verb
        .markers
        .filter(|_| merged.status == MergeStatus::Conflicts)
    {
        print_answer(context, &merged, true)?;
        return begin_in_mount(verb, style, &merged, context, &mut connection);
    }
    let Some(review) = merged.review.filter(|_| verb.resolving.resolver.is_some()) else {
        return print_merged(context, &merged);
    };
    let commit = ops::CommitReview {
        review,
        allow_revert: verb.operation.allow_revert,
        ..ops::CommitReview::default()
    };
    resolve_review(context, &mut connection, commit, &merged, &verb.resolving)
}

/// Calls the daemon to merge and returns the result.
pub(super) fn ask(
    verb: &Merge,
    context: &Context,
    connection: &mut Client,
) -> Result<Merged, Failure> {
    let signers = identity::signers(context.repository()?.common_dir())?;
    let mut request = verb.operation.clone();
    request.no_ff |= verb.resolving.semantic;
    request.review = verb.resolving.review_policy(verb.review);
    request.markers = verb.markers.is_some();
    let hook_options = HookOptions {
        output: HookOutput::Shown,
        no_verify: verb.no_verify,
    };
    let merged = client::merging::merged(context, connection, request, &signers, hook_options)?;
    for (word, source) in verb.operation.sources.iter().zip(&merged.sources) {
        context.output.note_meaning(word, &source.source);
        if let Some(failure) = &source.not_deleted {
            context.output.trouble(failure);
        }
    }
    Ok(merged)
}

/// Begins a merge with conflicts in the target's mount, with git.
fn begin_in_mount(
    verb: &Merge,
    style: MarkerStyle,
    merged: &Merged,
    context: &Context,
    connection: &mut Client,
) -> Result<Exit, Failure> {
    let commit = merged
        .sources
        .last()
        .and_then(|source| source.source.commit.as_deref());
    let (Some(fork), Some(commit)) = (&merged.target.fork, commit) else {
        return Err(Failure::new(
            ErrorCode::NotMounted,
            "markers need a commit, and a fork to merge it into",
        )
        .hint("`--review` keeps the conflicts instead"));
    };
    let dir = connection.show(fork)?.mount_dir;
    let mut git = program::command(&dir);
    git.arg("-c")
        .arg(format!("merge.conflictStyle={}", style.name()))
        .args(["merge", "--no-ff", "--quiet"]);
    for paragraph in &verb.operation.message {
        git.args(["-m", paragraph]);
    }
    git.arg(commit);
    let finished = program::finish(&mut git, b"")?;
    match finished.status.code() {
        Some(0 | 1) => {
            context.output.note(&format!(
                "the merge is under way in {}: edit the files and `git add` them, then `git commit`; or `git merge --abort`",
                dir.display()
            ));
            Ok(ExitCode::Refused.code())
        }
        _ => Err(program::failed(&git, &finished).into()),
    }
}

/// Shows the result of a merge. Returns its exit code.
pub(super) fn print_merged(context: &Context, merged: &Merged) -> Result<Exit, Failure> {
    print_answer(context, merged, false)
}

fn print_answer(context: &Context, merged: &Merged, is_begun: bool) -> Result<Exit, Failure> {
    for source in &merged.sources {
        note_agent_texts(context, &source.agent_texts);
    }
    print_with_contents(context, merged, &merged.conflicts, || {
        format_merged(merged, is_begun, &context.output)
    })?;
    Ok(exit_of(merged.status))
}

/// Returns the exit code of a merge's status.
pub(super) fn exit_of(status: MergeStatus) -> Exit {
    match status {
        MergeStatus::Merged => SUCCESS,
        MergeStatus::NothingToMerge => ExitCode::Nothing.code(),
        MergeStatus::Conflicts | MergeStatus::Reviewed => ExitCode::Refused.code(),
    }
}

/// Prints an answer as text, or as JSON with its conflicts' contents.
pub(super) fn print_with_contents(
    context: &Context,
    answer: &impl Serialize,
    conflicts: &[ConflictRecord],
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if context.output.is_json() {
        let answer = with_contents(context, answer, conflicts)?;
        context.output.json(&answer)
    } else {
        context.output.text(&text())
    }
}

/// Serializes an answer, with file contents in its conflicts.
pub(super) fn with_contents(
    context: &Context,
    answer: &impl Serialize,
    conflicts: &[ConflictRecord],
) -> Result<Value, Failure> {
    let conflicts = conflicts
        .iter()
        .map(|conflict| conflict_with_contents(context, conflict));
    let conflicts: Value = conflicts.collect::<Result<_, _>>()?;
    let mut document = to_json(answer)?;
    document["conflicts"] = conflicts;
    Ok(document)
}

/// Serializes a conflict, with its hunks and the contents of its versions.
fn conflict_with_contents(context: &Context, conflict: &ConflictRecord) -> Result<Value, Failure> {
    // Submodules have no content.
    let content = |version: &VersionRecord| {
        content(context, Some(&version.kind.mode_text()), Some(&version.id))
    };
    let mut document = to_json(conflict)?;
    let (base, ours, theirs) = (&conflict.base, &conflict.ours, &conflict.theirs);
    for (side, versions) in [("base", base), ("ours", ours), ("theirs", theirs)] {
        for (at, version) in versions.iter().enumerate() {
            document[side][at]["content"] = to_json(&content(version)?)?;
        }
    }
    document["hunks"] = to_json(&hunks(context, conflict)?)?;
    if let Some(resolution) = &conflict.resolution {
        let contents = resolution.versions.iter().map(content);
        document["resolution"]["contents"] = to_json(&contents.collect::<Result<Vec<_>, _>>()?)?;
    }
    Ok(document)
}

fn to_json(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| {
        Failure::new(ErrorCode::Internal, "the answer cannot be told").cause(error.to_string())
    })
}

/// Formats a merge. `is_begun`: git continues it in the mount.
pub(super) fn format_merged(merged: &Merged, is_begun: bool, output: &Output) -> String {
    let target = target_name(&merged.target);
    let mut text = String::new();
    let nothing_moves = merged.before == merged.after;
    for source in &merged.sources {
        text.push_str(&format_of(source, &target, merged.dry_run || nothing_moves));
    }
    if !nothing_moves {
        let changed = counted(merged.changes.len(), "path");
        let after = short_id(merged.after.as_deref().unwrap_or_default());
        let would = if merged.dry_run { "would be" } else { "is" };
        text.push_str(&format!("{target} {would} at {after}, {changed} changed\n"));
    }
    text.push_str(&undo_line(&merged.target, merged.snapshot.as_ref()));
    if !merged.conflicts.is_empty() {
        text.push_str(&conflict_table(&merged.conflicts, output, |conflict| {
            Some(format!("with {}", conflict.of.as_ref()?))
        }));
        text.push_str(match (nothing_moves, merged.dry_run, is_begun) {
            (true, _, true) => "nothing is merged",
            (true, true, _) => "nothing would be changed",
            (true, false, _) => "nothing was changed",
            (false, true, _) => "what comes before would be merged",
            (false, false, _) => "what came before is merged",
        });
        text.push_str(&match merged.review {
            Some(review) => next_step(review),
            None if is_begun => "\n".to_owned(),
            None => "; `--review` keeps it for resolving, `--strategy` settles it, `--json` shows it whole\n"
                .to_owned(),
        });
    } else if let Some(review) = merged.review {
        text.push_str("nothing was changed");
        text.push_str(&next_step(review));
    }
    text
}

/// Formats the command that undoes the move of a fork.
pub(super) fn undo_line(target: &MergeTarget, snapshot: Option<&ForkName>) -> String {
    match (&target.fork, snapshot) {
        (Some(fork), Some(snapshot)) => {
            format!("`tine undo {fork}` takes that back; what it was is the snapshot {snapshot}\n")
        }
        _ => String::new(),
    }
}

/// Formats conflicts as a table: their kinds, paths and details.
pub(super) fn conflict_table(
    conflicts: &[ConflictRecord],
    output: &Output,
    detail: impl Fn(&ConflictRecord) -> Option<String>,
) -> String {
    let rows = conflicts.iter().map(|conflict| {
        let mut row = vec![
            Cell::new(format!("  {}", kind_in_words(conflict))).toned(output, Tone::Bad),
            Cell::new(quoted(&conflict.path)),
        ];
        row.extend(detail(conflict).map(Cell::new));
        row
    });
    table(&rows.collect::<Vec<_>>())
}

fn next_step(review: u64) -> String {
    format!("; `tine review show {review}` is where to go on\n")
}

/// Formats the result of one source; `is_planned` for a dry run.
fn format_of(source: &MergedSource, target: &str, is_planned: bool) -> String {
    let from = source
        .source
        .point
        .trim_start_matches("rev:")
        .trim_start_matches("fork:");
    let commit = short_id(source.commit.as_deref().unwrap_or_default());
    let would = if is_planned { "would be " } else { "" };
    let mut text = match source.how {
        SourceOutcome::Contained => format!("nothing to merge: {target} has all of {from}\n"),
        SourceOutcome::FastForward => format!("{from} {would}merged into {target}: fast-forward\n"),
        SourceOutcome::MergeCommit if commit.is_empty() => {
            format!("{from} {would}merged into {target}: merge commit\n")
        }
        SourceOutcome::MergeCommit => {
            format!("{from} {would}merged into {target}: merge commit {commit}\n")
        }
        SourceOutcome::Conflicts => format!("{from} has conflicts with {target}:\n"),
    };
    if let Some(committed) = source
        .committed
        .as_ref()
        .filter(|_| source.commit.is_some() && !is_planned)
    {
        text.push_str(&format!(
            "what was uncommitted in {from} is commit {}\n",
            short_id(committed)
        ));
    }
    if !source.settled.is_empty() {
        let count = counted(source.settled.len(), "conflict");
        text.push_str(&format!("{count} {would}settled\n"));
    }
    match (&source.deleted_fork, &source.deleted_branch) {
        (Some(fork), Some(branch)) => {
            text.push_str(&format!("deleted {fork} and its branch {branch}\n"))
        }
        (Some(fork), None) => text.push_str(&format!("deleted {fork}\n")),
        (None, Some(branch)) => text.push_str(&format!("deleted the branch {branch}\n")),
        (None, None) => {}
    }
    text
}
