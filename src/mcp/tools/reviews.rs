//! Reviews: merges with conflicts that are being resolved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::session::Session;
use super::super::shown::ChangedPaths;
use super::super::tool::{Call, Descriptions, ToolOutput, ToolResult};
use super::files::outgoing;
use super::merging::{
    ConflictShown, MergeShown, conflicts_shown, conflicts_text, format_merge, format_update,
};
use tine_change::review::ReviewState;
use tine_client as client;
use tine_client::hooks::HookOutput;
use tine_client::merging::HookOptions;
use tine_merge::MergeSide;
use tine_ops as ops;
use tine_ops::protocol::{ReviewInfo, ReviewOutcome, ReviewShown};
use tine_ops::{AbortReview, CommitReview, Operation};

/// Resolver's name in the trailers of the merge commit.
const BY: &str = "mcp";

/// Show a review: a merge with conflicts that is kept, each with all sides' texts and how it is
/// resolved. Without a number: list those that are open.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ShowReview {
    /// As `merge` told it.
    review: Option<u64>,
}

/// Reviews.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReviewsShown {
    reviews: Vec<ReviewLine>,
    /// Of the one that was asked for.
    conflicts: Vec<ConflictShown>,
    /// What committing that would change in the target.
    changes: Option<ChangedPaths>,
}

#[derive(Serialize, JsonSchema)]
struct ReviewLine {
    review: u64,
    /// `open`, `committed` or `aborted`.
    #[schemars(with = "String")]
    state: ReviewState,
    source: String,
    into: String,
    /// How many conflicts there are, and how many are open.
    conflicts: usize,
    open: usize,
    /// A side has moved on since and conflicts otherwise: merge again.
    outdated: bool,
    /// The target was deleted: nothing can be merged into it.
    target_gone: bool,
}

impl ReviewLine {
    fn of(info: &ReviewInfo) -> ReviewLine {
        ReviewLine {
            review: info.record.id,
            state: info.record.state,
            source: info.record.merge.source.clone(),
            into: info.record.merge.into.clone(),
            conflicts: info.record.conflicts.len(),
            open: info.open,
            outdated: !info.moved.is_empty(),
            target_gone: info.gone.contains(&MergeSide::Ours),
        }
    }

    fn text(&self) -> String {
        let state = match self.state {
            ReviewState::Committed => "committed".to_owned(),
            ReviewState::Aborted => "aborted".to_owned(),
            ReviewState::Open if self.target_gone => "its target is gone".to_owned(),
            ReviewState::Open if self.outdated => {
                "outdated: merge again, which plans it again".to_owned()
            }
            ReviewState::Open if self.open == 0 => {
                "resolved: `commit_review` makes the merge".to_owned()
            }
            ReviewState::Open => format!("{} of {} conflicts open", self.open, self.conflicts),
        };
        format!(
            "review {}: {} into {}, {state}",
            self.review, self.source, self.into
        )
    }
}

fn shown(session: &Session, shown: &ReviewShown) -> ToolResult<ReviewsShown> {
    let conflicts = conflicts_shown(&session.place(), &shown.info.record.conflicts)?;
    let line = ReviewLine::of(&shown.info);
    let text = format!("{}{}", line.text(), conflicts_text(&conflicts));
    let answer = ReviewsShown {
        reviews: vec![line],
        conflicts,
        changes: Some(ChangedPaths::of(&shown.changes)),
    };
    Ok(ToolOutput::new(answer, text))
}

fn ask(
    session: &Session,
    operation: &impl Operation<Answer = ReviewShown>,
) -> ToolResult<ReviewsShown> {
    let answer = session.with(|connection| connection.call(operation))?;
    shown(session, &answer)
}

pub(super) fn show_review(arguments: ShowReview, call: &Call<'_>) -> ToolResult<ReviewsShown> {
    if let Some(review) = arguments.review {
        return ask(call.session, &ops::ShowReview { review });
    }
    let request = ops::ListReviews { all: false };
    let reviews = call
        .session
        .with(|connection| connection.call(&request).map(|answer| answer.reviews))?;
    let lines: Vec<ReviewLine> = reviews.iter().map(ReviewLine::of).collect();
    let text = if lines.is_empty() {
        "no review is open".to_owned()
    } else {
        lines
            .iter()
            .map(ReviewLine::text)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let answer = ReviewsShown {
        reviews: lines,
        conflicts: Vec::new(),
        changes: None,
    };
    Ok(ToolOutput::new(answer, text))
}

/// Say what is to become of one conflict of a review. It may be said again, differently, until the
/// review is committed.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ResolveConflict {
    #[serde(flatten)]
    operation: ops::Resolve,
    /// The whole file as it is to be, without conflict markers; with `how` = `content` only. Best
    /// where both sides must be kept.
    content: Option<String>,
}

pub(super) fn resolve_conflict(
    arguments: ResolveConflict,
    call: &Call<'_>,
) -> ToolResult<ReviewsShown> {
    let content = arguments
        .content
        .map(|content| outgoing(call.session, content.as_bytes()))
        .transpose()?;
    let request = ops::Resolve {
        content: content.clone(),
        by: BY.to_owned(),
        ..arguments.operation
    };
    ask(call.session, &request).inspect_err(|_| {
        if let Some(content) = &content {
            content.withdraw(call.session.store_dir());
        }
    })
}

/// Descriptions of `commit_review` and its arguments.
pub(super) const COMMIT_REVIEW: Descriptions = &[
    (
        "allow_revert",
        "Merge also what takes commits of the target's back, after `restore` with `exact`.",
    ),
    (
        "message",
        "Of the merge commit. Default: that of the merge.",
    ),
    ("review", "As `merge` told it."),
];

pub(super) fn commit_review(operation: CommitReview, call: &Call<'_>) -> ToolResult<MergeShown> {
    let place = call.session.place();
    call.check()?;
    let hooks = HookOptions {
        output: HookOutput::Kept,
        no_verify: false,
    };
    let answer = call
        .session
        .with(|connection| client::review::commit(&place, connection, operation, hooks))?;
    match answer {
        ReviewOutcome::Merge(merged) => format_merge(&place, *merged),
        ReviewOutcome::Sequenced(done) => format_update(&place, *done),
    }
}

/// Descriptions of `abort_review` and its arguments.
pub(super) const ABORT_REVIEW: Descriptions = &[
    ("", "Let a review go. Neither side was changed by it."),
    ("review", "As `merge` told it."),
];

pub(super) fn abort_review(operation: AbortReview, call: &Call<'_>) -> ToolResult<ReviewsShown> {
    ask(call.session, &operation)
}
