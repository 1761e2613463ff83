//! Commits reviews with their resolutions.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::replanning::{follow_target, request_of};
use super::{open_review, sides};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation, joined_message, paragraphs};
use crate::policy::Signers;
use crate::protocol::{MergeStatus, ReviewOutcome};
use crate::state::slots::Daemon;
use crate::{Merge, merging, sequencing};
use tine_change::rerere;
use tine_change::review::ReviewState;
use tine_path::RepoPath;
use tine_path::shell::shell_word;
use tine_workspace::Actor;

/// Merge with the resolutions of a review
///
/// Refused while a conflict is open. Where the target moved on since it was planned, and the
/// conflicts are the same, the resolutions count for it as it is now; else it is refused until
/// `tine review refresh`.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "\
Make the merge of a review whose conflicts are all resolved.

Refused while one is open, and where a side has moved on since and conflicts otherwise \
(`review-outdated`): then merge again, which plans the same review again and keeps its resolutions.")]
#[command(after_long_help = "\
Example:
  tine review commit 3 -m 'Merge the parser'")]
pub struct CommitReview {
    /// Its number
    #[arg(value_name = "REVIEW")]
    pub review: u64,

    /// The merge commit's message; given again, another paragraph of it
    #[arg(short, long, value_name = "MSG")]
    #[schemars(with = "Option<String>")]
    #[serde(default, with = "paragraphs", skip_serializing_if = "Vec::is_empty")]
    pub message: Vec<String>,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long)]
    #[schemars(skip)]
    #[serde(default)]
    pub dry_run: bool,

    /// Merge also what takes commits of the target's back, after `tine restore --exact` in a fork
    #[arg(long)]
    #[serde(default)]
    pub allow_revert: bool,

    /// Complete message after hooks have changed it.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub whole_message: Option<String>,
}

impl Operation for CommitReview {
    const NAME: &'static str = "commit-review";
    const PROGRESS: &'static str = "merging what is resolved";
    type Answer = ReviewOutcome;

    fn run(self, call: &Call<'_>) -> Result<ReviewOutcome, Failure> {
        commit(call.daemon, call.by(), &self, &call.signers())
    }
}

/// Makes the merge with the resolutions.
///
/// Fails if a conflict is open, or a side moved and the conflicts differ.
fn commit(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    request: &CommitReview,
    signers: &Signers,
) -> Result<ReviewOutcome, Failure> {
    let repository = daemon.repository_now()?;
    let _guard = daemon.reviews.lock();
    let mut record = open_review(daemon, request.review)?;
    let planned = record.clone();
    let gone = follow_target(daemon, by, &mut record)?.gone;
    if record != planned {
        record.save(&daemon.store, &repository)?;
    }
    sides::require_target(&repository, &record, &gone)?;
    if sides::is_merged(daemon, &repository, &record, &gone)? {
        return Err(merging::contained(&record));
    }
    let open = record.open_conflicts();
    if open > 0 {
        let first = record
            .conflicts
            .iter()
            .find(|conflict| conflict.resolution.is_none());
        let path = first
            .map(|conflict| conflict.path.to_bytes())
            .unwrap_or_default();
        return Err(Failure::new(
            ErrorCode::ReviewState,
            match open {
                1 => format!("1 conflict of review {} is open", record.id),
                _ => format!("{open} conflicts of review {} are open", record.id),
            },
        )
        .cause(RepoPath::parse(&path)?.to_string())
        .hint(format!(
            "`tine resolve {} {} --ours` resolves it, as do `--theirs` and `--file`",
            record.id,
            shell_word(&path)
        )));
    }
    let (answer, after) = if record.work.is_some() {
        let done = sequencing::commit_review(daemon, by, &record, request, signers)?;
        let after = (done.status == MergeStatus::Merged)
            .then(|| (done.after.clone(), done.target.branch.clone()));
        (ReviewOutcome::Sequenced(Box::new(done)), after)
    } else {
        let merge = Merge {
            dry_run: request.dry_run,
            allow_revert: request.allow_revert,
            messages: vec![request.whole_message.clone()],
            message: joined_message(&request.message)
                .or_else(|| record.merge.message.clone())
                .into_iter()
                .collect(),
            ..request_of(&record, &gone)
        };
        let merged = merging::merge_with(
            daemon,
            by,
            sides::git_dir_of(&repository, &record),
            &merge,
            signers,
            Some(&record),
        )?;
        let after = (merged.status == MergeStatus::Merged)
            .then(|| (merged.after.clone(), merged.target.branch.clone()));
        (ReviewOutcome::Merge(Box::new(merged)), after)
    };
    if let Some((after, branch)) = after.filter(|_| !request.dry_run) {
        if let Err(error) = rerere::remember(&daemon.store, &repository, &record) {
            log::warn!("git does not remember review {}: {error}", record.id);
        }
        record.state = ReviewState::Committed;
        record.commit = after;
        record.committed_on = branch;
        // The merge is done, so a failure is only logged.
        if let Err(error) = record.save(&daemon.store, &repository) {
            log::error!("review {}: {error}", record.id);
        }
    }
    Ok(answer)
}
