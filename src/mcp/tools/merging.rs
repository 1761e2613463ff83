//! Merges and updates, and their conflicts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::shown::ChangedPaths;
use super::super::tool::{Call, Descriptions, MAX_TEXT, ToolOutput, ToolResult, cut};
use tine_change::resolver::JsonBytes;
use tine_change::review::{ConflictRecord, ResolutionKind, VersionRecord};
use tine_client as client;
use tine_client::content::{content, hunks};
use tine_client::hooks::HookOutput;
use tine_client::identity;
use tine_client::merging::HookOptions;
use tine_client::place::Place;
use tine_merge::{ConflictKind, Strategy};
use tine_ops::protocol::{MergeStatus, Merged, ReviewPolicy, Sequenced};
use tine_ops::{self as ops, Failure};
use tine_path::text::PathText;
use tine_render::merging::{kind_in_words, target_name};
use tine_render::text::{counted, one_line, quoted, short_id};

/// Maximum size of a conflict's side in an answer, in bytes.
///
/// All sides of an answer together have at most twice [`MAX_TEXT`].
const MAX_SIDE: usize = 16 << 10;

/// Maximum number of conflicts with contents in an answer.
///
/// Others have only their kind and path.
const MAX_CONFLICTS: usize = 100;

/// What becomes of conflicts.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Settle {
    /// They are kept as a review, to be resolved one by one.
    #[default]
    Review,
    /// What the target has.
    Ours,
    /// What comes.
    Theirs,
    /// The lines of both.
    Union,
}

impl Settle {
    fn strategy(self) -> Strategy {
        match self {
            Settle::Review => Strategy::Abort,
            Settle::Ours => Strategy::Ours,
            Settle::Theirs => Strategy::Theirs,
            Settle::Union => Strategy::Union,
        }
    }
}

/// Merge the active fork into the branch that it came from, or whatever `source` names into
/// whatever `into` names.
///
/// What is uncommitted in a source fork is not merged into a branch: `commit` it first, with a
/// message, or say `with_uncommitted`. Where the target is checked out its files follow. Conflicts
/// change nothing: they come back with all sides' texts and the number of a review, in which
/// `resolve_conflict` settles each, and `commit_review` makes the merge. Where `source` is given,
/// the default of `into` is the active fork.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Merge {
    #[serde(flatten)]
    operation: ops::Merge,
    /// A fork, `FORK@SNAPSHOT`, branch or commit. Default: the active fork.
    source: Option<String>,
    /// What becomes of conflicts. Default: `review`.
    #[serde(default)]
    settle: Settle,
}

/// What came of a merge, or would.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MergeShown {
    /// `merged`, `nothing-to-merge`, or `conflicts`: nothing was changed.
    #[schemars(with = "String")]
    status: MergeStatus,
    dry_run: bool,
    /// The branch or fork that it went to.
    target: String,
    /// The target's commit before and after.
    before: Option<String>,
    after: Option<String>,
    conflicts: Vec<ConflictShown>,
    /// The number of the review that keeps the conflicts.
    review: Option<u64>,
    /// What changed in the target.
    changes: ChangedPaths,
    /// The snapshot of what the target was, where that is a fork.
    snapshot: Option<String>,
}

/// A conflict, and what is to become of it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConflictShown {
    /// What `resolve_conflict` takes.
    path: PathText,
    /// `both_modified`, `both_added`, `modify_delete`, `rename_rename`, `binary` and so on.
    #[schemars(with = "String")]
    kind: ConflictKind,
    /// The same in words.
    what: String,
    /// All paths that it is about.
    paths: Vec<PathText>,
    /// What both sides began as, what the target has, and what comes. Empty: there is nothing on
    /// that side.
    base: Vec<SideShown>,
    ours: Vec<SideShown>,
    theirs: Vec<SideShown>,
    /// The parts of the text that conflict; the rest is merged.
    hunks: Vec<HunkShown>,
    /// Of several commits that are made again one after another: the one it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<String>,
    resolution: Option<ResolutionShown>,
}

/// One side of a conflict.
#[derive(Serialize, JsonSchema)]
struct SideShown {
    path: PathText,
    /// git's: `100644`, `100755`, `120000`, `160000`.
    mode: String,
    /// Bytes; none: a submodule.
    size: Option<usize>,
    /// None: it is not text.
    text: Option<String>,
    /// `text` is only its beginning.
    truncated: bool,
}

/// A part of a text that conflicts.
#[derive(Serialize, JsonSchema)]
struct HunkShown {
    /// Where it begins in each text, from 1.
    base_line: usize,
    ours_line: usize,
    theirs_line: usize,
    base: String,
    ours: String,
    theirs: String,
}

/// How a conflict is resolved.
#[derive(Serialize, JsonSchema)]
struct ResolutionShown {
    /// `base`, `ours`, `theirs`, `content` or `delete`.
    #[schemars(with = "String")]
    how: ResolutionKind,
    by: String,
    reasoning: Option<String>,
}

/// Returns conflicts with their contents, as far as one answer holds them.
pub(super) fn conflicts_shown(
    place: &Place,
    conflicts: &[ConflictRecord],
) -> Result<Vec<ConflictShown>, Failure> {
    let mut room = 2 * MAX_TEXT;
    let shown = conflicts.iter().take(MAX_CONFLICTS);
    shown
        .map(|conflict| conflict_shown(place, conflict, &mut room))
        .collect()
}

fn conflict_shown(
    place: &Place,
    conflict: &ConflictRecord,
    room: &mut usize,
) -> Result<ConflictShown, Failure> {
    let mut fit = |mut text: String| {
        let is_cut = cut(&mut text, MAX_SIDE.min(*room));
        *room = room.saturating_sub(text.len());
        (text, is_cut)
    };
    let mut hunks_shown = Vec::new();
    for hunk in hunks(place, conflict)? {
        let mut text = |content: JsonBytes| match content {
            JsonBytes::Text(text) => fit(text).0,
            JsonBytes::Base64(_) => String::new(),
        };
        hunks_shown.push(HunkShown {
            base_line: hunk.base_line,
            ours_line: hunk.ours_line,
            theirs_line: hunk.theirs_line,
            base: text(hunk.base),
            ours: text(hunk.ours),
            theirs: text(hunk.theirs),
        });
    }
    let mut side = |versions: &[VersionRecord]| -> Result<Vec<SideShown>, Failure> {
        let mut shown = Vec::new();
        for version in versions {
            let mode = version.kind.mode_text();
            let (size, text) = match content(place, Some(&mode), Some(&version.id))? {
                Some(JsonBytes::Text(text)) => (Some(text.len()), Some(fit(text))),
                Some(JsonBytes::Base64(text)) => (Some(text.len() / 4 * 3), None),
                None => (None, None),
            };
            let truncated = text.as_ref().is_some_and(|(_, is_cut)| *is_cut);
            shown.push(SideShown {
                path: version.path.clone(),
                mode,
                size,
                text: text.map(|(text, _)| text),
                truncated,
            });
        }
        Ok(shown)
    };
    Ok(ConflictShown {
        path: conflict.path.clone(),
        kind: conflict.kind,
        what: kind_in_words(conflict),
        paths: conflict.paths.clone(),
        base: side(&conflict.base)?,
        ours: side(&conflict.ours)?,
        theirs: side(&conflict.theirs)?,
        hunks: hunks_shown,
        of: conflict.of.clone(),
        resolution: conflict
            .resolution
            .as_ref()
            .map(|resolution| ResolutionShown {
                how: resolution.how,
                by: resolution.by.clone(),
                reasoning: resolution.reasoning.clone(),
            }),
    })
}

/// Describes conflicts in words, with the texts of their hunks.
pub(super) fn conflicts_text(conflicts: &[ConflictShown]) -> String {
    let mut text = String::new();
    for conflict in conflicts {
        let state = match &conflict.resolution {
            None => "open",
            Some(_) => "resolved",
        };
        text.push_str(&format!(
            "\n{}: {}, {state}",
            quoted(&conflict.path),
            conflict.what
        ));
        if conflict.resolution.is_some() {
            continue;
        }
        for hunk in &conflict.hunks {
            text.push_str(&format!(
                "\n<<<<<<< ours, line {}\n{}||||||| base\n{}=======\n{}>>>>>>> theirs, line {}",
                hunk.ours_line, hunk.ours, hunk.base, hunk.theirs, hunk.theirs_line
            ));
        }
    }
    text
}

/// Returns the advice on conflicts at the end of a text.
pub(super) fn advice(review: Option<u64>) -> String {
    match review {
        Some(review) => format!(
            "\nnothing was changed; review {review} keeps them: `resolve_conflict` for each, then `commit_review`"
        ),
        None => "\nnothing was changed".to_owned(),
    }
}

/// Formats the result of a merge.
pub(super) fn format_merge(place: &Place, merged: Merged) -> ToolResult<MergeShown> {
    let target = target_name(&merged.target);
    let conflicts = conflicts_shown(place, &merged.conflicts)?;
    let would = if merged.dry_run { "would be " } else { "" };
    let sources: Vec<&str> = merged
        .sources
        .iter()
        .map(|source| source.source.point.as_str())
        .collect();
    let sources = sources.join(", ");
    let mut text = match merged.status {
        MergeStatus::Merged => format!(
            "{sources} {would}merged into {target}, {} changed; {target} {} {}",
            counted(merged.changes.len(), "path"),
            if merged.dry_run {
                "would be at"
            } else {
                "is at"
            },
            short_id(merged.after.as_deref().unwrap_or_default())
        ),
        MergeStatus::NothingToMerge => format!("nothing to merge: {target} has all of {sources}"),
        MergeStatus::Conflicts | MergeStatus::Reviewed => format!(
            "{} between {sources} and {target}:{}{}",
            counted(merged.conflicts.len(), "conflict"),
            conflicts_text(&conflicts),
            advice(merged.review)
        ),
    };
    for source in &merged.sources {
        let committed = source.committed.as_ref().filter(|_| !merged.dry_run);
        if let (Some(committed), Some(_)) = (committed, &source.commit) {
            text.push_str(&format!(
                "\nwhat was uncommitted is commit {}",
                short_id(committed)
            ));
        }
    }
    let shown = MergeShown {
        status: merged.status,
        dry_run: merged.dry_run,
        target,
        before: merged.before,
        after: merged.after,
        conflicts,
        review: merged.review,
        changes: ChangedPaths::of(&merged.changes),
        snapshot: merged.snapshot.map(|snapshot| snapshot.to_string()),
    };
    Ok(ToolOutput::new(shown, text))
}

/// Returns when conflicts become a review: not in a dry run, which changes nothing.
fn review_policy(dry_run: bool) -> ReviewPolicy {
    if dry_run {
        ReviewPolicy::Never
    } else {
        ReviewPolicy::OnConflict
    }
}

/// Descriptions of `merge` and its arguments.
pub(super) const MERGE: Descriptions = &[
    (
        "allow_revert",
        "Merge also what takes commits of the target's back, after `restore` with `exact`.",
    ),
    (
        "into",
        "A fork or branch. Default: the branch that the active fork came from; where `source` is given, the active fork.",
    ),
    ("message", "Of the merge commit, where one is made."),
    (
        "with_uncommitted",
        "Commit what is uncommitted in the source, too.",
    ),
];

pub(super) fn merge(arguments: Merge, call: &Call<'_>) -> ToolResult<MergeShown> {
    let place = call.session.place();
    let signers = identity::signers(call.session.common_dir())?;
    let (source, here) = match arguments.source {
        Some(source) => (source, call.session.active()),
        None => (format!("fork:{}", call.session.fork()?), None),
    };
    let request = ops::Merge {
        sources: vec![source.clone()],
        here,
        strategy: arguments.settle.strategy(),
        review: review_policy(arguments.operation.dry_run),
        ..arguments.operation
    };
    call.check()?;
    let hooks = HookOptions {
        output: HookOutput::Kept,
        no_verify: false,
    };
    let merged = call
        .session
        .with_revisions(call.command(&source), |connection| {
            client::merging::merged(&place, connection, request.clone(), &signers, hooks)
        })?;
    format_merge(&place, merged)
}

/// Bring the active fork up to date: what the branch that it came from has got since comes in, with
/// all of the fork's work on top.
///
/// What is uncommitted stays uncommitted. Conflicts change nothing and become a review, as with
/// `merge`; there `ours` is the fork's, and with `rebase` what comes.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Update {
    #[serde(flatten)]
    operation: ops::Update,
    /// What becomes of conflicts. Default: `review`.
    #[serde(default)]
    settle: Settle,
}

/// Formats the result of an update.
pub(super) fn format_update(place: &Place, done: Sequenced) -> ToolResult<MergeShown> {
    let target = match &done.target.fork {
        Some(fork) => fork.to_string(),
        None => target_name(&done.target),
    };
    let conflicts = conflicts_shown(place, &done.conflicts)?;
    let mut text = match done.status {
        MergeStatus::NothingToMerge => format!("nothing to do: {target} has all of it"),
        MergeStatus::Merged => format!(
            "{target} {} at {}, {} changed",
            if done.dry_run { "would be" } else { "is" },
            short_id(done.after.as_deref().unwrap_or_default()),
            counted(done.changes.len(), "path")
        ),
        MergeStatus::Conflicts | MergeStatus::Reviewed => format!(
            "{} in {target}:{}{}",
            counted(done.conflicts.len(), "conflict"),
            conflicts_text(&conflicts),
            advice(done.review)
        ),
    };
    for commit in &done.commits {
        text.push_str(&format!("\n  {}", one_line(&commit.subject)));
    }
    let shown = MergeShown {
        status: done.status,
        dry_run: done.dry_run,
        target,
        before: done.before,
        after: done.after,
        conflicts,
        review: done.review,
        changes: ChangedPaths::of(&done.changes),
        snapshot: done.snapshot.map(|snapshot| snapshot.to_string()),
    };
    Ok(ToolOutput::new(shown, text))
}

pub(super) fn update(arguments: Update, call: &Call<'_>) -> ToolResult<MergeShown> {
    let place = call.session.place();
    let signers = identity::signers(call.session.common_dir())?;
    let fork = call.session.fork()?;
    let from = arguments.operation.from.as_deref().unwrap_or_default();
    let command = call.command(from);
    let mut request = ops::Update {
        fork: Some(fork),
        ..arguments.operation
    };
    request.onto.choices.strategy = arguments.settle.strategy();
    request.onto.review = review_policy(request.onto.dry_run);
    call.check()?;
    let done = call
        .session
        .with_revisions(command, |connection| connection.call_as(&request, &signers))?;
    format_update(&place, done)
}
