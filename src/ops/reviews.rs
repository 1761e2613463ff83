//! Operations on reviews: show them, resolve their conflicts, commit them.

pub(crate) mod sides;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sequencing::write_content;
use super::target::{NotedMove, was_taken_back};
use super::{merging, sequencing};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation, joined_message, paragraphs, path_parser};
use crate::policy::Signers;
use crate::protocol::{MergeStatus, ResolveWith, ReviewInfo, ReviewOutcome, ReviewShown, Reviews};
use crate::state::slots::Daemon;
use crate::transfer::Transfer;
use crate::{Merge, report};
use tine_change::compare::compare_trees;
use tine_change::merge::FastForward;
use tine_change::recovery::{self, RecoverEntry, RecoverKind};
use tine_change::review::{
    Amendment, ConflictRecord, ResolutionRecord, ResolvedHow, ReviewRecord, ReviewState, Verdict,
    VersionRecord,
};
use tine_change::{ChangeError, rerere};
use tine_git::{ObjectId, Repository, TreeEntryKind};
use tine_merge::{Favor, Level, MergeSide, settle_content};
use tine_path::RepoPath;
use tine_path::shell::shell_word;
use tine_path::text::PathText;
use tine_store::RecordKind;
use tine_workspace::Actor;

/// List reviews
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine review list --all")]
pub struct ListReviews {
    /// Those too that are committed or aborted
    #[arg(short, long)]
    #[serde(default)]
    pub all: bool,
}

impl Operation for ListReviews {
    const NAME: &'static str = "reviews";
    type Answer = Reviews;

    fn run(self, call: &Call<'_>) -> Result<Reviews, Failure> {
        list(call.daemon, call.by(), self.all)
    }
}

/// Show a review: its conflicts, and how they are resolved
///
/// With --json it has the contents of all three sides.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine review show 3 --json")]
pub struct ShowReview {
    /// Its number
    #[arg(value_name = "REVIEW")]
    pub review: u64,
}

impl Operation for ShowReview {
    const NAME: &'static str = "review";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        show(call.daemon, call.by(), self.review)
    }
}

/// Resolve a conflict of a review
///
/// --ours and --theirs say whose lines stay where both sides changed the same ones, as
/// `git merge -X ours` does: what else either side changed in the file stays merged, its mode, too.
/// Binary files, symlinks and renames have no lines: there they take the whole version; --ours-file
/// and --theirs-file do so for a text. A content that is given goes into a file in the merged mode;
/// if the conflict is about a symlink, it is the link's target.
///
/// Until the review is committed, a conflict can be resolved again, and differently.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Examples:
  tine resolve 3 src/main.rs --theirs
  tine resolve 3 Cargo.lock --theirs-file
  tine resolve 3 src/main.rs --file merged.rs --reason 'both limits are needed'
  sed s/x/y/ old | tine resolve 3 src/main.rs --stdin
  tine resolve 3 notes.md --delete")]
pub struct Resolve {
    /// The review's number
    #[arg(value_name = "REVIEW")]
    pub review: u64,

    /// The conflict's path, from the root of the repository
    #[arg(id = "conflict", value_name = "PATH", value_parser = path_parser())]
    #[schemars(with = "String")]
    pub path: PathText,

    /// Resolution of the conflict.
    #[command(flatten)]
    pub how: ResolveWith,

    /// Bytes of the file, or target of the symlink, if given.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub content: Option<Transfer>,

    /// True for an executable file; `None` keeps the merged mode.
    ///
    /// With `None` a symlink stays a symlink.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub executable: Option<bool>,

    /// Name of the person or program that resolves it.
    #[arg(skip = by_hand())]
    #[schemars(skip)]
    #[serde(default = "by_hand")]
    pub by: String,

    /// Why; it goes into the merge commit
    #[arg(long, value_name = "TEXT")]
    #[serde(default)]
    pub reason: Option<String>,

    /// Further data of the caller, which the review keeps.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub metadata: Option<serde_json::Value>,
}

fn by_hand() -> String {
    "hand".to_owned()
}

impl Operation for Resolve {
    const NAME: &'static str = "resolve";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        resolve(call.daemon, call.by(), &self)
    }
}

/// Sets the verdict on a review, and changes paths without conflicts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JudgeReview {
    /// Number of the review.
    pub review: u64,
    /// Verdict on the review as a whole.
    pub verdict: Verdict,
    /// New content of each path; `None` deletes the path.
    pub changes: Vec<(PathText, Option<Transfer>)>,
}

impl Operation for JudgeReview {
    const NAME: &'static str = "judge";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        judge(call.daemon, call.by(), &self)
    }
}

/// Plan a review again, of both sides as they are now
///
/// Resolutions stay where the conflict is still the same. One that was aborted is taken up again.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine review refresh 3")]
pub struct RefreshReview {
    /// Its number
    #[arg(value_name = "REVIEW")]
    pub review: u64,
}

impl Operation for RefreshReview {
    const NAME: &'static str = "refresh-review";
    const PROGRESS: &'static str = "planning again";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        refresh(call.daemon, call.by(), self.review)
    }
}

/// Let a review go
///
/// Neither side was changed by it. `tine review show` still shows it, `tine review refresh` takes
/// it up again.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Example:
  tine review abort 3")]
pub struct AbortReview {
    /// Its number
    #[arg(value_name = "REVIEW")]
    pub review: u64,
}

impl Operation for AbortReview {
    const NAME: &'static str = "abort-review";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        abort(call.daemon, call.by(), self.review)
    }
}

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

/// Maximum length of a symlink's target on Linux.
const MAX_LINK_BYTES: u64 = 4096;

pub(crate) fn list(daemon: &Arc<Daemon>, by: Actor<'_>, all: bool) -> Result<Reviews, Failure> {
    let repository = daemon.repository_now()?;
    let (records, damaged) = daemon
        .store
        .documents::<ReviewRecord>(RecordKind::Reviews)?;
    let reviews = records
        .into_iter()
        .map(|record| reopened(daemon, &repository, record))
        .filter(|record| all || record.state == ReviewState::Open)
        .map(|record| info(daemon, by, record))
        .collect();
    Ok(Reviews {
        reviews,
        damaged: damaged.into_iter().map(Failure::from).collect(),
    })
}

pub(crate) fn show(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    review: u64,
) -> Result<ReviewShown, Failure> {
    let record = ReviewRecord::load(&daemon.store, review)?;
    let record = reopened(daemon, &daemon.repository_now()?, record);
    shown(daemon, by, record)
}

/// Sets the resolution of a conflict, in place of an earlier one.
pub(crate) fn resolve(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    request: &Resolve,
) -> Result<ReviewShown, Failure> {
    let repository = daemon.repository_now()?;
    let _guard = daemon.reviews.lock();
    let mut record = open_review(daemon, request.review)?;
    // Only the commit of a review fails on a side that cannot be read.
    if let Err(failure) = follow(daemon, by, &mut record) {
        log::info!("review {}: {failure}", record.id);
    }
    let level = record.merge.level;
    let path = RepoPath::parse(request.path.to_bytes())?;
    let Some(conflict) = record.conflict_at(&(&path).into()) else {
        return Err(Failure::new(
            ErrorCode::NoSuchConflict,
            format!("{path} is in no conflict of review {}", request.review),
        )
        .hint(format!("`tine review show {}` lists them", request.review)));
    };
    if (request.how == ResolveWith::Content) != request.content.is_some() {
        return Err(Failure::new(
            ErrorCode::Usage,
            "`content` belongs to `how` = `content`, and must be there then",
        )
        .hint("give the whole file as it is to be, or another `how`"));
    }
    let resolved = |how, versions| {
        Some(ResolutionRecord {
            how,
            versions,
            by: request.by.clone(),
            reasoning: request.reason.clone(),
            metadata: request.metadata.clone(),
        })
    };
    let whole = |how, side| resolved(how, conflict.versions(side).to_vec());
    // A merge at the level of paths merges nothing inside files.
    let settled = |favor| -> Result<_, Failure> {
        Ok(match level {
            Level::Path => None,
            Level::Text => settle_content(&repository, &conflict.conflict()?, favor)?,
        })
    };
    let lines = |how, favor, side| -> Result<_, Failure> {
        Ok(match settled(favor)? {
            Some(version) => resolved(how, vec![(&version).into()]),
            None => whole(how, side),
        })
    };
    let resolution = match request.how {
        ResolveWith::Reopen => None,
        ResolveWith::Delete => resolved(ResolvedHow::Delete, Vec::new()),
        ResolveWith::Base => lines(ResolvedHow::Base, Favor::Base, MergeSide::Base)?,
        ResolveWith::Ours => lines(ResolvedHow::Ours, Favor::Ours, MergeSide::Ours)?,
        ResolveWith::Theirs => lines(ResolvedHow::Theirs, Favor::Theirs, MergeSide::Theirs)?,
        ResolveWith::OursFile => whole(ResolvedHow::OursFile, MergeSide::Ours),
        ResolveWith::TheirsFile => whole(ResolvedHow::TheirsFile, MergeSide::Theirs),
        ResolveWith::Union => {
            match settle_content(&repository, &conflict.conflict()?, Favor::Union)? {
                Some(version) => resolved(ResolvedHow::Union, vec![(&version).into()]),
                None => {
                    return Err(Failure::new(
                        ErrorCode::WrongKind,
                        "both sides can be taken of a text only",
                    )
                    .hint(
                        "take one side (`--ours`, `--theirs`), or give the result (`--file F`)",
                    ));
                }
            }
        }
        ResolveWith::Content => {
            let version = given_version(daemon, &repository, conflict, request)?;
            resolved(ResolvedHow::Content, vec![version])
        }
    };
    conflict.resolution = resolution;
    // The verdict and the amendments were made for another result.
    record.verdict = None;
    record.amendments.clear();
    find_more(daemon, by, &repository, &mut record)?;
    record.save(&daemon.store, &repository)?;
    shown(daemon, by, record)
}

/// Returns the entry with the content that the request gives.
fn given_version(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    conflict: &ConflictRecord,
    request: &Resolve,
) -> Result<VersionRecord, Failure> {
    let (Some(content), Some((path, kind))) = (&request.content, conflict.content_place()?) else {
        return Err(Failure::new(
            ErrorCode::WrongKind,
            format!(
                "{} is a submodule",
                RepoPath::parse(conflict.path.to_bytes())?
            ),
        )
        .hint("take one side: `--ours` or `--theirs`"));
    };
    let kind = match (request.executable, kind) {
        (Some(_), TreeEntryKind::Symlink) => {
            return Err(Failure::new(
                ErrorCode::WrongKind,
                format!("{} is a symlink", RepoPath::parse(path.to_bytes())?),
            )
            .hint("give where it is to lead, without `executable`; or take one side"));
        }
        (None, kind) => kind,
        (Some(true), _) => TreeEntryKind::Executable,
        (Some(false), _) => TreeEntryKind::File,
    };
    let id = given_content(daemon, repository, content, kind)?.to_string();
    Ok(VersionRecord { path, kind, id })
}

/// Sets the verdict and the amendments, in place of earlier ones.
pub(crate) fn judge(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    request: &JudgeReview,
) -> Result<ReviewShown, Failure> {
    let repository = daemon.repository_now()?;
    let _guard = daemon.reviews.lock();
    let mut record = open_review(daemon, request.review)?;
    // Only the commit of a review fails on a side that cannot be read.
    if let Err(failure) = follow(daemon, by, &mut record) {
        log::info!("review {}: {failure}", record.id);
    }
    let (_, merged_tree) = record.trees(&daemon.store, &repository)?;
    let mut amendments = Vec::new();
    for (path, content) in &request.changes {
        let repo_path = RepoPath::parse(path.to_bytes())?;
        let kind = match repository
            .tree_entry(merged_tree, &repo_path)?
            .map(|entry| entry.kind)
        {
            Some(TreeEntryKind::Directory) => {
                return Err(Failure::new(
                    ErrorCode::WrongKind,
                    format!("{repo_path} is a directory"),
                )
                .hint("name a file in it"));
            }
            Some(TreeEntryKind::Submodule) if content.is_some() => {
                return Err(Failure::new(
                    ErrorCode::WrongKind,
                    format!("{repo_path} is a submodule"),
                )
                .hint("change it in its own repository"));
            }
            Some(kind) => kind,
            None => TreeEntryKind::File,
        };
        let new = match content {
            None => None,
            Some(content) => Some(VersionRecord {
                path: path.clone(),
                kind,
                id: given_content(daemon, &repository, content, kind)?.to_string(),
            }),
        };
        amendments.push(Amendment {
            path: path.clone(),
            new,
        });
    }
    record.amendments = amendments;
    record.verdict = Some(request.verdict.clone());
    record.save(&daemon.store, &repository)?;
    shown(daemon, by, record)
}

/// Plans the merge again with the sides as they are now.
///
/// An aborted review is open again afterwards.
pub(crate) fn refresh(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    review: u64,
) -> Result<ReviewShown, Failure> {
    let repository = daemon.repository_now()?;
    let _guard = daemon.reviews.lock();
    let mut record = ReviewRecord::load(&daemon.store, review)?;
    match record.state {
        ReviewState::Aborted => recovery::write_review_again(&repository, review)?,
        _ => record = open_review(daemon, review)?,
    }
    let gone = sides::find(daemon, &repository, &mut record)?;
    sides::require_target(&repository, &record, &gone)?;
    sides::require_kept(&repository, &record, &gone)?;
    if sides::is_merged(daemon, &repository, &record, &gone)? {
        return Err(all_merged(&record));
    }
    if record.work.is_some() {
        sequencing::refresh(daemon, by, &mut record, &gone)?;
        record.state = ReviewState::Open;
        record.save(&daemon.store, &repository)?;
        return shown(daemon, by, record);
    }
    let request = request_of(&record, &gone);
    let (sides, conflicts) = merging::replan(
        daemon,
        by,
        sides::git_dir_of(&repository, &record),
        &request,
        &record,
    )?;
    let Some(conflicts) = conflicts else {
        return Err(all_merged(&record));
    };
    record.plan_again(&sides, &conflicts);
    record.state = ReviewState::Open;
    record.save(&daemon.store, &repository)?;
    shown(daemon, by, record)
}

fn all_merged(record: &ReviewRecord) -> Failure {
    Failure::new(
        ErrorCode::ReviewState,
        format!(
            "{} has all of {} by now",
            record.merge.into, record.merge.source
        ),
    )
    .hint(nothing_to_plan(record))
}

/// Returns the hint for a review that has nothing left to merge.
pub(crate) fn nothing_to_plan(record: &ReviewRecord) -> String {
    let id = record.id;
    match record.state {
        ReviewState::Aborted => format!("it stays aborted, and `tine review show {id}` shows it"),
        _ => format!("`tine review abort {id}` lets it go"),
    }
}

/// Changes of a review's sides since it was planned.
#[derive(Default)]
struct Followed {
    moved: Vec<MergeSide>,
    gone: Vec<MergeSide>,
}

/// Plans a review again if only its target moved.
///
/// The conflicts must be the same.
///
/// Resolutions stay. A review with a verdict or amendments is not planned again, because they were
/// made for the old result. Neither is one whose source moved, because a reviewer has looked at it.
/// Without its target the review stays as it was planned.
fn follow(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: &mut ReviewRecord,
) -> Result<Followed, Failure> {
    let repository = daemon.repository_now()?;
    let gone = sides::find(daemon, &repository, record)?;
    let moved = if gone.contains(&MergeSide::Ours) {
        Vec::new()
    } else if sides::is_merged(daemon, &repository, record, &gone)? {
        vec![MergeSide::Ours]
    } else if record.work.is_some() {
        sequencing::follow(daemon, by, record, &gone)?
    } else {
        follow_merge(daemon, by, &repository, record, &request_of(record, &gone))?
    };
    Ok(Followed { moved, gone })
}

fn follow_merge(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    repository: &Repository,
    record: &mut ReviewRecord,
    request: &Merge,
) -> Result<Vec<MergeSide>, Failure> {
    let git_dir = sides::git_dir_of(repository, record).to_owned();
    let moved = record.moved(&merging::sides(daemon, by, &git_dir, request)?);
    if moved != [MergeSide::Ours] || record.verdict.is_some() || !record.amendments.is_empty() {
        return Ok(moved);
    }
    let (sides, conflicts) = merging::replan(daemon, by, &git_dir, request, record)?;
    match conflicts {
        Some(conflicts) if record.has_conflicts(&conflicts) && record.moved(&sides) == moved => {
            record.plan_again(&sides, &conflicts);
            Ok(Vec::new())
        }
        _ => Ok(moved),
    }
}

/// Finds later conflicts of a review without open ones.
fn find_more(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    repository: &Repository,
    record: &mut ReviewRecord,
) -> Result<(), Failure> {
    if record.work.is_some() {
        return sequencing::find_more(daemon, repository, record);
    }
    if record.view.is_none() || record.open_conflicts() > 0 {
        return Ok(());
    }
    let gone = sides::find(daemon, repository, record)?;
    if gone.contains(&MergeSide::Ours) {
        return Ok(());
    }
    let request = request_of(record, &gone);
    let (sides, conflicts) = merging::replan(
        daemon,
        by,
        sides::git_dir_of(repository, record),
        &request,
        record,
    )?;
    if let Some(conflicts) = conflicts.filter(|_| record.moved(&sides).is_empty()) {
        record.plan_again(&sides, &conflicts);
    }
    Ok(())
}

/// Opens a committed review again if its commit was undone.
///
/// It was undone if the target no longer has the commit.
fn reopened(daemon: &Daemon, repository: &Repository, mut record: ReviewRecord) -> ReviewRecord {
    if record.state == ReviewState::Committed
        && let Some(commit) = &record.commit
    {
        let noted = NotedMove {
            target: &record.merge.into,
            branch: record.committed_on.as_deref(),
            before: record.ours_commit.as_deref(),
            after: commit,
        };
        if was_taken_back(daemon, repository, &noted) {
            record.state = ReviewState::Open;
            record.commit = None;
            record.committed_on = None;
        }
    }
    record
}

/// Aborts the review. Neither side was changed by it.
pub(crate) fn abort(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    review: u64,
) -> Result<ReviewShown, Failure> {
    let repository = daemon.repository_now()?;
    let _guard = daemon.reviews.lock();
    let mut record = open_review(daemon, review)?;
    let before = record.clone();
    let gone = sides::find(daemon, &repository, &mut record).unwrap_or_default();
    // A review without resolutions can be planned again from both sides.
    let is_resolved = |conflict: &ConflictRecord| conflict.resolution.is_some();
    if (record.conflicts.iter().any(is_resolved) || !gone.is_empty())
        && let Some(commit_id) = record.kept_commit(&repository)?
    {
        let entry = RecoverEntry {
            head: Some(commit_id.to_string()),
            number: Some(review),
            ..RecoverEntry::new(RecoverKind::Review, format!("tine review abort {review}"))
        };
        recovery::keep(&daemon.store, &repository, entry, &[])?;
    }
    record.state = ReviewState::Aborted;
    record.save(&daemon.store, &repository)?;
    shown_as(daemon, info(daemon, by, record), &before)
}

/// Makes the merge with the resolutions.
///
/// Fails if a conflict is open, or a side moved and the conflicts differ.
pub(crate) fn commit(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    request: &CommitReview,
    signers: &Signers,
) -> Result<ReviewOutcome, Failure> {
    let repository = daemon.repository_now()?;
    let _guard = daemon.reviews.lock();
    let mut record = open_review(daemon, request.review)?;
    let planned = record.clone();
    let gone = follow(daemon, by, &mut record)?.gone;
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

/// Writes a sent content as the blob of a file or symlink.
fn given_content(
    daemon: &Daemon,
    repository: &Repository,
    content: &Transfer,
    kind: TreeEntryKind,
) -> Result<ObjectId, Failure> {
    let id = write_content(daemon, repository, content)?;
    if kind != TreeEntryKind::Symlink {
        return Ok(id);
    }
    let refused = |why: &str| {
        Err(Failure::new(
            ErrorCode::WrongKind,
            format!("the content cannot be where a symlink leads: {why}"),
        )
        .hint("give the path that it is to lead to; or take one side"))
    };
    if repository.blob_size(id)? > MAX_LINK_BYTES {
        return refused("it is too long");
    }
    let content = repository.read_blob(id)?;
    // Text files end with a line break; targets do not.
    let target = content.strip_suffix(b"\n").unwrap_or(&content);
    match target {
        [] => refused("it is empty"),
        _ if target.contains(&0) || target.contains(&b'\n') => refused("it is more than a path"),
        _ if target.len() == content.len() => Ok(id),
        mut target => {
            let len = target.len() as u64;
            Ok(repository.write_blob(&mut target, len)?)
        }
    }
}

fn open_review(daemon: &Daemon, review: u64) -> Result<ReviewRecord, Failure> {
    let record = ReviewRecord::load(&daemon.store, review)?;
    let record = reopened(daemon, &daemon.repository_now()?, record);
    let how = match record.state {
        ReviewState::Open => return Ok(record),
        ReviewState::Committed => "committed",
        ReviewState::Aborted => "aborted",
    };
    Err(Failure::new(
        ErrorCode::ReviewState,
        format!("review {review} is {how} already"),
    )
    .hint("`tine review list` shows the open ones"))
}

/// Returns the merge request that the review was made for.
///
/// If the source is gone, the request names the commit that the review keeps.
fn request_of(record: &ReviewRecord, gone: &[MergeSide]) -> Merge {
    let merge = &record.merge;
    let is_kept = gone.contains(&MergeSide::Theirs);
    let source = if is_kept {
        sides::kept_source(record)
    } else {
        merge.source.clone()
    };
    Merge {
        into: Some(merge.into.clone()),
        here: merge.here.clone().filter(|_| !is_kept),
        base: merge.base.clone(),
        level: merge.level,
        strategy: merge.strategy,
        no_ff: merge.fast_forward == FastForward::Never,
        ff_only: merge.fast_forward == FastForward::Only,
        allow_unrelated: merge.allow_unrelated,
        delete: merge.delete && !is_kept,
        with_uncommitted: merge.with_uncommitted,
        ..Merge::of(source)
    }
}

fn info(daemon: &Arc<Daemon>, by: Actor<'_>, mut record: ReviewRecord) -> ReviewInfo {
    let mut followed = Followed::default();
    if record.state == ReviewState::Open {
        match follow(daemon, by, &mut record) {
            Ok(found) => followed = found,
            // Only the commit of a review fails on a side that cannot be read.
            Err(failure) => {
                log::info!("review {}: {failure}", record.id);
                followed.moved.extend([MergeSide::Ours, MergeSide::Theirs]);
            }
        }
    }
    ReviewInfo {
        open: record.open_conflicts(),
        record,
        moved: followed.moved,
        gone: followed.gone,
    }
}

fn shown(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    record: ReviewRecord,
) -> Result<ReviewShown, Failure> {
    let info = info(daemon, by, record);
    let of = info.record.clone();
    shown_as(daemon, info, &of)
}

/// Describes a review with the trees of the record `of`.
fn shown_as(
    daemon: &Arc<Daemon>,
    info: ReviewInfo,
    of: &ReviewRecord,
) -> Result<ReviewShown, Failure> {
    let repository = daemon.repository_now()?;
    let (old_tree, new_tree) = match (of.state, of.trees(&daemon.store, &repository)) {
        (_, Ok(trees)) => trees,
        (ReviewState::Open, Err(error)) => return Err(error.into()),
        // `git gc` has removed objects of a closed review.
        (_, Err(ChangeError::Git(_))) => (repository.empty_tree_id(), repository.empty_tree_id()),
        (_, Err(error)) => return Err(error.into()),
    };
    let changes = compare_trees(&repository, old_tree, new_tree)?;
    Ok(ReviewShown {
        info,
        old_tree: old_tree.to_string(),
        new_tree: new_tree.to_string(),
        changes: changes.iter().map(report::change_line).collect(),
    })
}
