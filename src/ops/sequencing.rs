//! Updates forks, picks commits onto them, and applies patches and handoffs.
//!
//! A request and the present state give a [sequence](tine_change::sequence). The sequence runs on
//! git objects, and the target moves to its result in one step. With conflicts nothing moves. A
//! review then keeps the sequence, and runs it again.

mod building;
mod mailboxes;
mod reviewing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::building::build;
pub(crate) use self::mailboxes::unless_taken_back;
pub(crate) use self::reviewing::{commit_review, find_more, follow, refresh};
use super::locks::retry_while_moved;
use super::merging::outdated;
use super::target::{Holder, Target, find_target};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::policy::Signers;
use crate::protocol::{MergeStatus, ReviewPolicy, Sequenced, SequencedCommit};
use crate::report;
use crate::restoring::ConflictOptions;
use crate::state::slots::Daemon;
use crate::transfer::{Arrived, Transfer};
use tine_change::ChangeError;
use tine_change::advance::{Step, UpdateStep};
use tine_change::commit::refuse_moved_under;
use tine_change::compare::compare_trees;
use tine_change::fork_point::{self, fork_point};
use tine_change::going_back::{KnownGoneBack, RevertSource, refuse_taking_back};
use tine_change::merge::Tip;
use tine_change::review::ReviewRecord;
use tine_change::sequence::{
    Emptied, Item, RunOptions, Sequence, SequenceOutcome, SequenceRequest, run,
};
use tine_change::view::{check_move, move_view, view_tree};
use tine_git::{GitError, ObjectId, Repository};
use tine_merge::MergeOptions;
use tine_workspace::{Actor, ForkName, OperationKind, SnapshotOptions, SnapshotReason};

/// Bring a fork up to date with the branch that it came from
///
/// The fork moves to where that branch is now, or to --from, and its own changes are merged onto
/// it: commits by a merge commit, or with --rebase made again one by one, and what is uncommitted
/// stays uncommitted. A fork without commits of its own merely moves. Mounted or not, it is one
/// step, and only files that differ are touched.
///
/// Conflicts change nothing: they are listed, and the exit code is 3. It is 7 where there is
/// nothing new. `ours` is the fork's, `theirs` what comes; with --rebase it is the other way round,
/// as with git.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine update fix-parser                    to where its branch is now
  tine update fix-parser --fetch --rebase   ask the remote first, and make its commits again
  tine update fix-parser --from v2.0        to a tag
  tine update fix-parser --carried          take up the node_modules that the main checkout has now
  tine update fix-parser --review           keep conflicts, to be resolved one by one")]
pub struct Update {
    /// The fork [default: the one you stand in]
    #[arg(value_name = "FORK")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// What to bring it up to: a revision, or another fork's HEAD [default: the branch that it came
    /// from]
    #[arg(long, value_name = "REV")]
    #[serde(default)]
    pub from: Option<String>,

    /// Make the fork's commits again, instead of merging
    #[arg(long)]
    #[serde(default)]
    pub rebase: bool,

    /// The merge commit's message
    #[arg(short, long, value_name = "MSG", conflicts_with = "rebase")]
    #[serde(default)]
    pub message: Vec<String>,

    #[command(flatten)]
    #[serde(flatten)]
    /// Options that other commands share.
    pub onto: SequenceOptions,
}

impl Operation for Update {
    const NAME: &'static str = "update";
    const PROGRESS: &'static str = "putting commits on it";
    type Answer = Sequenced;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let request = SequenceRequest::Update {
            from: self.from,
            rebase: self.rebase,
        };
        let message = (!self.message.is_empty()).then(|| self.message.join("\n\n"));
        self.onto.run(call, self.fork, request, message)
    }
}

/// Make commits again on a fork
///
/// As `git cherry-pick`, mounted or not, and all or nothing: authors, dates and messages stay. What
/// is uncommitted in the fork stays, too; where a commit would overwrite it, it is refused.
///
/// Conflicts change nothing: they are listed with the commit that they are in, and the exit code is
/// 3.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine cherry-pick fix-parser main~2          one commit
  tine cherry-pick fix-parser main~5..main    a range
  tine cherry-pick fix-parser 3f2a91c -x      and say in the message where it is from")]
pub struct CherryPick {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// Commits and ranges, as git understands them
    #[arg(value_name = "COMMIT", required = true)]
    pub commits: Vec<String>,

    /// Say in each message which commit it is from
    #[arg(short = 'x')]
    #[serde(default)]
    pub says_origin: bool,

    /// Of merges: take what changed against this parent, counted from 1
    #[arg(short, long, value_name = "PARENT")]
    #[serde(default)]
    pub mainline: Option<usize>,

    /// What becomes of commits that would change nothing
    #[arg(long, value_enum, value_name = "HOW", default_value = "stop")]
    #[serde(default)]
    pub empty: Emptied,

    #[command(flatten)]
    #[serde(flatten)]
    /// Options that other commands share.
    pub onto: SequenceOptions,
}

impl Operation for CherryPick {
    const NAME: &'static str = "cherry-pick";
    const PROGRESS: &'static str = "putting commits on it";
    type Answer = Sequenced;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let request = SequenceRequest::CherryPick {
            commits: self.commits,
            mainline: self.mainline,
            says_origin: self.says_origin,
            emptied: self.empty,
        };
        self.onto.run(call, self.fork, request, None)
    }
}

// Options of the commands that apply a sequence to a fork.
#[expect(
    missing_docs,
    reason = "a doc comment would become the help of the commands that flatten this"
)]
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
pub struct SequenceOptions {
    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, conflicts_with_all = ["review", "resolver"])]
    #[serde(default)]
    pub dry_run: bool,

    #[command(flatten)]
    #[serde(default)]
    /// Choices for conflicts.
    pub choices: ConflictOptions,

    #[arg(skip)]
    #[serde(default)]
    /// Policy for keeping the sequence as a review instead of applying it.
    pub review: ReviewPolicy,
}

impl SequenceOptions {
    /// Runs the sequence on `fork`. `None` means the caller's fork.
    fn run(
        self,
        call: &Call<'_>,
        fork: Option<ForkName>,
        request: SequenceRequest,
        message: Option<String>,
    ) -> Result<Sequenced, Failure> {
        let fork = call.fork(fork)?;
        let args = SequenceArgs {
            message,
            dry_run: self.dry_run,
            review: self.review,
            ..SequenceArgs::of(
                format!("fork:{fork}"),
                request,
                self.choices,
                call.git_dir()?,
            )
        };
        sequence(call, &args)
    }
}

/// Apply a patch to a fork's files
///
/// As `git apply`, mounted or not: what comes of it is uncommitted, in one step that `tine undo`
/// takes back. Patches of git's and of `diff -u` are understood, with renames, modes and binary
/// files; paths are from the fork's root. A patch that does not fit changes nothing: the files and
/// hunks are listed, and the exit code is 3. --review keeps what fits, to resolve the rest.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine apply fix-parser fix.patch
  git diff | tine apply fix-parser - --3way   merge where the text has moved on
  tine apply fix-parser fix.patch --check     see whether it fits")]
pub struct ApplyPatch {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// The patch; `-` is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    #[serde(skip)]
    pub file: PathBuf,

    /// Merge what the patch was made of with what is there, where the repository has it
    #[arg(short = '3', long = "3way")]
    #[serde(default)]
    pub three_way: bool,

    /// Apply it backwards
    #[arg(short = 'R', long)]
    #[serde(default)]
    pub reverse: bool,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, visible_alias = "dry-run", conflicts_with_all = ["review", "resolver"])]
    #[serde(default)]
    pub check: bool,

    /// How many leading parts to take from the patch's paths
    #[arg(short = 'p', value_name = "N", default_value_t = 1)]
    pub strip: u8,

    #[command(flatten)]
    #[serde(default)]
    /// Choices for conflicts.
    pub choices: ConflictOptions,

    #[arg(skip)]
    #[serde(default)]
    /// Policy for keeping the patch as a review instead of applying it.
    pub review: ReviewPolicy,

    /// Content of the patch, in transit to the daemon.
    #[arg(skip)]
    pub content: Transfer,
}

impl Operation for ApplyPatch {
    const NAME: &'static str = "apply";
    const PROGRESS: &'static str = "applying the patch";
    type Answer = Sequenced;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let fork = call.fork(self.fork)?;
        let patch = write_content(call.daemon, &call.daemon.repository_now()?, &self.content)?;
        let request = SequenceRequest::Patch {
            patch: patch.to_string(),
            strip: self.strip,
            reverse: self.reverse,
            three_way: self.three_way,
        };
        let args = SequenceArgs {
            dry_run: self.check,
            review: self.review,
            ..SequenceArgs::of(
                format!("fork:{fork}"),
                request,
                self.choices,
                call.git_dir()?,
            )
        };
        sequence(call, &args)
    }
}

/// Apply a handoff to a fork or branch
///
/// As `git am --3way` does, all or nothing: authors, dates and messages stay. Patches that are
/// there already are left out. Conflicts change nothing: they are listed with the commit that they
/// are in, and the exit code is 3.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine handoff apply 3                       to whom it is for
  tine handoff apply 3 --into main --dry-run
  tine handoff apply 3 --review              keep conflicts, to be resolved one by one")]
pub struct ApplyHandoff {
    /// Its number
    #[arg(value_name = "ID")]
    pub handoff: u64,

    /// The fork or branch to apply it to [default: whom it is for]
    #[arg(long, value_name = "TARGET")]
    #[serde(default)]
    pub into: Option<String>,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, conflicts_with_all = ["review", "resolver"])]
    #[serde(default)]
    pub dry_run: bool,

    /// Do not merge where a patch does not fit as it stands
    #[arg(long)]
    #[serde(default)]
    pub no_3way: bool,

    /// Apply it even if it was applied, or something is uncommitted there
    #[arg(long)]
    #[serde(default)]
    pub force: bool,

    /// Apply also what takes commits of the target's back, after `tine restore --exact` in the fork
    #[arg(long)]
    #[serde(default)]
    pub allow_revert: bool,

    #[command(flatten)]
    #[serde(default)]
    /// Choices for conflicts.
    pub choices: ConflictOptions,

    #[arg(skip)]
    #[serde(default)]
    /// Policy for keeping the handoff as a review instead of applying it.
    pub review: ReviewPolicy,
}

impl Operation for ApplyHandoff {
    const NAME: &'static str = "apply-handoff";
    const PROGRESS: &'static str = "applying the handoff";
    type Answer = Sequenced;

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let parent = mailboxes::check(call.daemon, self.handoff, self.force)?;
        let Some(into) = self.into.or(parent) else {
            return Err(Failure::new(ErrorCode::Usage, "no target is named")
                .hint("name a fork or branch: `--into TARGET`"));
        };
        let request = SequenceRequest::Mailbox {
            handoff: self.handoff,
            three_way: !self.no_3way,
        };
        let args = SequenceArgs {
            is_clean: !self.force,
            dry_run: self.dry_run,
            review: self.review,
            allow_revert: self.allow_revert,
            ..SequenceArgs::of(into, request, self.choices, call.git_dir()?)
        };
        sequence(call, &args)
    }
}

/// Request for a sequence, by any of the commands.
pub(crate) struct SequenceArgs {
    /// Word that names the target, a fork or branch.
    pub into: String,
    /// True to refuse a target with uncommitted changes.
    pub is_clean: bool,
    /// Kind of the sequence, with its arguments.
    pub request: SequenceRequest,
    /// Git directory in which revisions are resolved.
    pub git_dir: PathBuf,
    /// Level and strategy of all merges in the sequence.
    pub merge: MergeOptions,
    /// True to merge histories without a common commit.
    pub allow_unrelated: bool,
    /// Message of an update's merge commit. `None` means git's default.
    pub message: Option<String>,
    /// True to change nothing.
    pub dry_run: bool,
    /// Policy for keeping the sequence as a review.
    pub review: ReviewPolicy,
    /// True if a handoff may take commits of others back.
    pub allow_revert: bool,
}

/// State of the target when the sequence is planned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TargetState {
    /// Commit and tree, without uncommitted changes.
    pub tip: Tip,
    /// Tree of the view, if uncommitted changes take part.
    pub view: Option<ObjectId>,
}

impl SequenceArgs {
    /// Returns a request with the default options.
    fn of(
        into: String,
        request: SequenceRequest,
        choices: ConflictOptions,
        git_dir: &Path,
    ) -> SequenceArgs {
        SequenceArgs {
            into,
            is_clean: false,
            request,
            git_dir: git_dir.to_owned(),
            merge: MergeOptions {
                level: choices.level,
                strategy: choices.strategy,
                ..MergeOptions::default()
            },
            allow_unrelated: false,
            message: None,
            dry_run: false,
            review: ReviewPolicy::Never,
            allow_revert: false,
        }
    }
}

/// Carries out the request. A dry run only returns what would happen.
fn sequence(call: &Call<'_>, args: &SequenceArgs) -> Result<Sequenced, Failure> {
    let daemon = call.daemon;
    // The lock makes two equal requests share one review.
    let _reviews = (args.review != ReviewPolicy::Never).then(|| daemon.reviews.lock());
    let done = carry_out(daemon, call.by(), args, &call.signers(), None)?;
    mailboxes::note_applied(daemon, args, &done);
    Ok(done)
}

/// Writes the transferred content as a blob.
pub(crate) fn write_content(
    daemon: &Daemon,
    repository: &Repository,
    content: &Transfer,
) -> Result<ObjectId, Failure> {
    Ok(match content.take(daemon.store.dir())? {
        Arrived::Bytes(bytes) => {
            repository.write_blob(&mut bytes.as_slice(), bytes.len() as u64)?
        }
        Arrived::File(mut file) => {
            let len = file
                .metadata()
                .map_err(GitError::io("look at", "what was sent"))?
                .len();
            repository.write_blob(&mut file, len)?
        }
    })
}

/// Plans the request and carries it out. Plans again if the target moves meanwhile.
///
/// With `review` it runs the review's sequence with its resolutions, and fails if the target is no
/// longer at the planned state.
pub(crate) fn carry_out(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    args: &SequenceArgs,
    signers: &Signers,
    review: Option<&ReviewRecord>,
) -> Result<Sequenced, Failure> {
    let (done, holder) = retry_while_moved(|| {
        on_target(daemon, by, args, |target| {
            let _lease = if args.dry_run {
                None
            } else {
                Some(target.lease(|| find_target(daemon, target.repository, &args.into))?)
            };
            if args.is_clean {
                target.refuse_uncommitted()?;
            }
            let now = target_state(target, args)?;
            let sequence = match review.and_then(|review| Some((review, review.work.as_ref()?))) {
                Some((review, _)) if !reviewing::moved_from(review, &now).is_empty() => {
                    return Err(outdated(review));
                }
                Some((_, work)) => work.sequence.clone(),
                None => build(target, args, &now)?,
            };
            let options = options(args, signers, review);
            let ran = run(
                &daemon.store,
                target.repository,
                &sequence,
                now.tip,
                now.view,
                &options,
            )?;
            let done = finish(target, args, &now, sequence, &ran)?;
            Ok((done, target.holder.clone()))
        })
    })?;
    if done.status == MergeStatus::Merged && !args.dry_run {
        Target::after(&daemon.repository, &holder);
    }
    Ok(done)
}

fn options<'a>(
    args: &SequenceArgs,
    signers: &Signers,
    review: Option<&'a ReviewRecord>,
) -> RunOptions<'a> {
    RunOptions {
        merge: args.merge,
        allow_unrelated: args.allow_unrelated,
        author: signers.author.clone(),
        committer: signers.committer.clone(),
        review,
    }
}

/// Calls `work` with the target, under the lock of a target fork.
fn on_target<T>(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    args: &SequenceArgs,
    work: impl FnOnce(&Target<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let repository = daemon.repository_now()?;
    let holder = find_target(daemon, &repository, &args.into)?;
    let slot = match &holder {
        Holder::Fork(fork) => Some(daemon.slot(fork)),
        Holder::Branch(_) | Holder::Checkout(..) => None,
    };
    let guard = slot
        .as_ref()
        .map(|slot| daemon.lock_fork(slot))
        .transpose()?;
    if let Some(guard) = &guard {
        let open = guard.open_existing()?;
        guard.settle(&repository, &open)?;
        if let Some(operation) = open.worktree.operation_in_progress() {
            return Err(ChangeError::OperationInProgress(operation).into());
        }
        refuse_moved_under(&repository, &open)?;
    }
    work(&Target {
        daemon,
        by,
        repository: &repository,
        holder: &holder,
        guard: guard.as_ref(),
    })
}

/// Returns the target's present state.
fn target_state(target: &Target<'_>, args: &SequenceArgs) -> Result<TargetState, Failure> {
    let view = match (&args.request, target.guard) {
        (
            SequenceRequest::Update { .. }
            | SequenceRequest::Patch { .. }
            | SequenceRequest::Restore { .. },
            Some(guard),
        ) => Some(view_tree(target.repository, &*guard.open()?)?),
        _ => None,
    };
    Ok(TargetState {
        tip: target.tip()?,
        view,
    })
}

/// Moves the target or keeps a review, and returns the answer.
fn finish(
    target: &Target<'_>,
    args: &SequenceArgs,
    now: &TargetState,
    sequence: Sequence,
    ran: &SequenceOutcome,
) -> Result<Sequenced, Failure> {
    let old_tree = now.view.unwrap_or(now.tip.tree_id);
    let is_for_review = args.review == ReviewPolicy::Always && ran.tree_id() != old_tree;
    let is_same = ran.tip == now.tip && ran.view == now.view;
    let status = match (&ran.stopped, is_for_review, is_same) {
        (Some(_), ..) => MergeStatus::Conflicts,
        (None, true, _) => MergeStatus::Reviewed,
        (None, false, true) => MergeStatus::NothingToMerge,
        (None, false, false) => MergeStatus::Merged,
    };
    if status == MergeStatus::Merged
        && matches!(args.request, SequenceRequest::Mailbox { .. })
        && !args.allow_revert
    {
        let gone_back = KnownGoneBack::of(&target.daemon.store);
        let (from, to) = (now.tip.commit_id, ran.tip.tree_id);
        refuse_taking_back(
            target.repository,
            &gone_back,
            from,
            to,
            RevertSource::Handoff(None),
        )?;
    }
    let mut snapshot = None;
    match status {
        MergeStatus::Merged => snapshot = go(target, args, now, ran)?,
        MergeStatus::NothingToMerge if !args.dry_run => note_fork_point(target, args, ran)?,
        _ => {}
    }
    let review = match status {
        MergeStatus::Conflicts if args.review != ReviewPolicy::Never => {
            Some(reviewing::keep(target, args, now, &sequence, ran)?)
        }
        MergeStatus::Reviewed => Some(reviewing::keep(target, args, now, &sequence, ran)?),
        _ => None,
    };
    let moves = status == MergeStatus::Merged;
    let (after, new_tree) = if moves {
        (ran.tip, ran.tree_id())
    } else {
        (now.tip, old_tree)
    };
    let changes = compare_trees(target.repository, old_tree, new_tree)?;
    let hex = |tip: Tip| tip.commit_id.map(|id| id.to_string());
    Ok(Sequenced {
        status,
        dry_run: args.dry_run,
        target: target.line()?,
        before: hex(now.tip),
        after: hex(after),
        commits: commits(target.repository, &sequence, ran)?,
        conflicts: ran
            .stopped
            .as_ref()
            .map(|stopped| stopped.conflicts.clone())
            .unwrap_or_default(),
        review,
        changes: changes.iter().map(report::change_line).collect(),
        snapshot,
    })
}

/// Moves the target, and returns the snapshot of its state before.
///
/// A dry run only checks whether the move is possible.
fn go(
    target: &Target<'_>,
    args: &SequenceArgs,
    now: &TargetState,
    ran: &SequenceOutcome,
) -> Result<Option<ForkName>, Failure> {
    let (kind, reason) = match &args.request {
        SequenceRequest::Update { .. } => (OperationKind::Update, SnapshotReason::BeforeUpdate),
        SequenceRequest::CherryPick { .. } => {
            (OperationKind::CherryPick, SnapshotReason::BeforeCherryPick)
        }
        SequenceRequest::Restore { .. } => (OperationKind::Switch, SnapshotReason::BeforeRestore),
        SequenceRequest::Patch { .. } | SequenceRequest::Mailbox { .. } => {
            (OperationKind::Apply, SnapshotReason::BeforeApply)
        }
    };
    if let (
        SequenceRequest::Patch { .. } | SequenceRequest::Restore { .. },
        Some(guard),
        Some(from),
        Some(to),
    ) = (&args.request, target.guard, now.view, ran.view)
    {
        let open = guard.open()?;
        if args.dry_run {
            check_move(target.repository, &open, (from, to))?;
            return Ok(None);
        }
        let (store, name) = (&target.daemon.store, guard.name());
        let before = match &args.request {
            SequenceRequest::Restore { .. } => {
                let kept = SnapshotOptions::because(reason);
                Some(store.take_snapshot(name, &open, &kept)?.name)
            }
            _ => None,
        };
        if let Err(error) = move_view(target.repository, name, &open, target.by, (from, to), kind) {
            if let Some(before) = &before {
                store.remove_snapshot(name, before)?;
            }
            return Err(error.into());
        }
        if !guard.is_mounted() {
            open.workspace.sync()?;
        }
        return Ok(before);
    }
    let Some(to) = ran.tip.commit_id else {
        return Err(GitError::UnknownRevision("HEAD".to_owned()).into());
    };
    let update = match (&args.request, target.guard, now.view, ran.view) {
        (SequenceRequest::Update { .. }, Some(guard), Some(view_from), Some(view_to)) => {
            let record = guard.record()?;
            Some(UpdateStep {
                view_from,
                view_to,
                point_from: fork_point(target.repository, &record, now.tip.commit_id)?,
                point_to: building::upstream(target, args)?,
            })
        }
        _ => None,
    };
    let step = Step {
        from: now.tip.commit_id,
        to,
        update,
        switch: None,
        index: None,
        reflog: target.by.command.to_owned(),
        kind,
        undoes: None,
    };
    let ready = target.check(&step)?;
    if args.dry_run {
        return Ok(None);
    }
    target.go(ready, &step, reason)
}

/// Moves the fork point to the upstream commit, if HEAD contains it.
fn note_fork_point(
    target: &Target<'_>,
    args: &SequenceArgs,
    ran: &SequenceOutcome,
) -> Result<(), Failure> {
    let (SequenceRequest::Update { .. }, Some(guard), Some(head)) =
        (&args.request, target.guard, ran.tip.commit_id)
    else {
        return Ok(());
    };
    let Some(upstream) = building::upstream(target, args)? else {
        return Ok(());
    };
    let point = fork_point(target.repository, &guard.record()?, Some(head))?;
    let is_further = match point {
        Some(point) => point != upstream && target.repository.is_ancestor(point, upstream)?,
        None => true,
    };
    if is_further {
        fork_point::note(&target.daemon.store, guard.name(), Some(upstream))?;
    }
    Ok(())
}

/// Returns the result of each commit.
fn commits(
    repository: &Repository,
    sequence: &Sequence,
    ran: &SequenceOutcome,
) -> Result<Vec<SequencedCommit>, Failure> {
    let stopped = ran.stopped.as_ref().map(|stopped| stopped.item);
    let mut lines = Vec::new();
    for (index, item) in sequence.items.iter().enumerate() {
        let done = ran.done.iter().find(|done| done.item == index);
        if done.is_none() && stopped != Some(index) {
            continue;
        }
        let (source, subject) = match item {
            Item::Merge { commit, .. } | Item::Pick { commit, .. } => {
                let id = ObjectId::from_hex(commit.as_bytes())
                    .map_err(GitError::library("read an id"))?;
                (Some(commit.clone()), repository.commit_info(id)?.summary)
            }
            Item::Mail {
                commit, subject, ..
            } => (commit.clone(), subject.clone()),
            Item::Patch { .. } | Item::Restored { .. } | Item::Uncommitted { .. } => continue,
        };
        lines.push(SequencedCommit {
            source,
            subject,
            how: done.map(|done| done.how),
            commit: done
                .and_then(|done| done.commit_id)
                .map(|id| id.to_string()),
        });
    }
    Ok(lines)
}
