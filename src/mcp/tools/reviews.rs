//! Reviews: merges with conflicts that are being resolved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::ToolCall;
use super::super::session::Session;
use super::super::shown::ChangedPaths;
use super::super::tool::{Hints, Tool, ToolOutput};
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
use tine_ops::protocol::{ResolutionRequest, ReviewInfo, ReviewOutcome, ReviewShown};
use tine_ops::{ErrorCode, Failure, Operation};
use tine_path::RepoPath;

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
pub(super) struct ReviewsShown {
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
        let stands = match self.state {
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
            "review {}: {} into {}, {stands}",
            self.review, self.source, self.into
        )
    }
}

fn shown(session: &Session, shown: &ReviewShown) -> Result<ToolOutput<ReviewsShown>, Failure> {
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
) -> Result<ToolOutput<ReviewsShown>, Failure> {
    let answer = session.with(|connection| connection.call(operation))?;
    shown(session, &answer)
}

impl Tool for ShowReview {
    const NAME: &'static str = "show_review";
    const TITLE: &'static str = "Show a review";
    const HINTS: Hints = Hints::LOOKS;
    type Answer = ReviewsShown;

    fn call(
        self,
        session: &Session,
        _call: &ToolCall,
    ) -> Result<ToolOutput<ReviewsShown>, Failure> {
        if let Some(review) = self.review {
            return ask(session, &ops::ShowReview { review });
        }
        let request = ops::ListReviews { all: false };
        let reviews =
            session.with(|connection| connection.call(&request).map(|answer| answer.reviews))?;
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
}

/// Say what is to become of one conflict of a review. It may be said again, differently, until the
/// review is committed.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ResolveConflict {
    /// As `merge` told it.
    review: u64,
    /// The conflict's.
    path: String,
    /// `content`: the file becomes `content`. Best where both sides must be kept.
    how: How,
    /// The whole file as it is to be, without conflict markers; with `how` = `content` only.
    content: Option<String>,
    /// Why; it goes into the merge commit.
    reason: Option<String>,
}

/// What a conflict becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum How {
    /// The given content.
    Content,
    /// What the target has where both conflict; all else in the file stays merged.
    Ours,
    /// What comes where both conflict; all else in the file stays merged.
    Theirs,
    /// What both began as where both conflict.
    Base,
    /// The lines of both where they conflict.
    Union,
    /// The target's whole file, without any change that comes.
    OursFile,
    /// The whole file that comes, without any change of the target's.
    TheirsFile,
    /// No file.
    Delete,
    /// It is open again.
    Reopen,
}

impl Tool for ResolveConflict {
    const NAME: &'static str = "resolve_conflict";
    const TITLE: &'static str = "Resolve a conflict";
    const HINTS: Hints = Hints::SETS;
    type Answer = ReviewsShown;

    fn call(
        self,
        session: &Session,
        _call: &ToolCall,
    ) -> Result<ToolOutput<ReviewsShown>, Failure> {
        if (self.how == How::Content) != self.content.is_some() {
            return Err(Failure::new(
                ErrorCode::Usage,
                "`content` belongs to `how` = `content`, and must be there then",
            )
            .hint("give the whole file as it is to be, or another `how`"));
        }
        let path = (&RepoPath::parse(&self.path)?).into();
        let content = self
            .content
            .map(|content| outgoing(session, content.as_bytes()))
            .transpose()?;
        let wish = match (self.how, &content) {
            (How::Content, Some(content)) => ResolutionRequest::Content {
                content: content.clone(),
                executable: None,
            },
            (How::Ours, _) => ResolutionRequest::Side(MergeSide::Ours),
            (How::Theirs, _) => ResolutionRequest::Side(MergeSide::Theirs),
            (How::Base, _) => ResolutionRequest::Side(MergeSide::Base),
            (How::Union, _) => ResolutionRequest::Union,
            (How::OursFile, _) => ResolutionRequest::Whole(MergeSide::Ours),
            (How::TheirsFile, _) => ResolutionRequest::Whole(MergeSide::Theirs),
            (How::Delete, _) => ResolutionRequest::Delete,
            (How::Reopen | How::Content, _) => ResolutionRequest::Open,
        };
        let request = ops::Resolve {
            review: self.review,
            path,
            wish,
            by: BY.to_owned(),
            reasoning: self.reason,
            metadata: None,
        };
        ask(session, &request).inspect_err(|_| {
            if let Some(content) = &content {
                content.withdraw(session.store_dir());
            }
        })
    }
}

/// Make the merge of a review whose conflicts are all resolved.
///
/// Refused while one is open, and where a side has moved on since and conflicts otherwise
/// (`review-outdated`): then merge again, which plans the same review again and keeps its
/// resolutions.
#[derive(Deserialize, JsonSchema)]
pub(super) struct CommitReview {
    /// As `merge` told it.
    review: u64,
    /// Of the merge commit. Default: that of the merge.
    message: Option<String>,
    /// Merge also what takes commits of the target's back, after `restore` with `exact`.
    #[serde(default)]
    allow_revert: bool,
}

impl Tool for CommitReview {
    const NAME: &'static str = "commit_review";
    const TITLE: &'static str = "Make a reviewed merge";
    const HINTS: Hints = Hints::CHANGES;
    type Answer = MergeShown;

    fn doing(&self) -> Option<String> {
        Some(format!("merges review {}", self.review))
    }

    fn call(self, session: &Session, call: &ToolCall) -> Result<ToolOutput<MergeShown>, Failure> {
        let place = session.place();
        call.check()?;
        let hooks = HookOptions {
            output: HookOutput::Kept,
            no_verify: false,
        };
        let message = &self.message;
        let answer = session.with(|connection| {
            let (review, message) = (self.review, message.clone());
            client::review::commit(
                &place,
                connection,
                review,
                message,
                false,
                self.allow_revert,
                hooks,
            )
        })?;
        match answer {
            ReviewOutcome::Merge(merged) => format_merge(&place, *merged),
            ReviewOutcome::Sequenced(done) => format_update(&place, *done),
        }
    }
}

/// Let a review go. Neither side was changed by it.
#[derive(Deserialize, JsonSchema)]
pub(super) struct AbortReview {
    /// As `merge` told it.
    review: u64,
}

impl Tool for AbortReview {
    const NAME: &'static str = "abort_review";
    const TITLE: &'static str = "Let a review go";
    const HINTS: Hints = Hints::SETS;
    type Answer = ReviewsShown;

    fn call(
        self,
        session: &Session,
        _call: &ToolCall,
    ) -> Result<ToolOutput<ReviewsShown>, Failure> {
        ask(
            session,
            &ops::AbortReview {
                review: self.review,
            },
        )
    }
}
