//! Bringing forks up to date, making commits again on them, and applying patches.
//!
//! A wish becomes a [sequence](tine_change::sequence), of how things are; the sequence is run over
//! objects, and what it comes to is where the target goes, in one step. With conflicts nothing
//! moves; a review keeps the sequence, and runs it again.

mod building;
mod mailboxes;
mod reviewing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::building::build;
pub(crate) use self::mailboxes::unless_taken_back;
pub(crate) use self::reviewing::{commit_review, find_more, follow, refresh};
use super::locks::while_it_moves;
use super::merging::outdated;
use super::target::{Holder, Target, find_target};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::policy::Signers;
use crate::protocol::{MergeStatus, ReviewPolicy, Sequenced, SequencedCommit};
use crate::report;
use crate::restoring::ConflictChoices;
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
use tine_change::sequence::{Emptied, Item, Ran, RunOptions, Sequence, SequenceRequest, run};
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
    pub onto: OntoFork,
}

impl Operation for Update {
    const NAME: &'static str = "update";
    const DOING: &'static str = "putting commits on it";
    type Answer = Sequenced;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let wish = SequenceRequest::Update {
            from: self.from,
            rebase: self.rebase,
        };
        let message = (!self.message.is_empty()).then(|| self.message.join("\n\n"));
        self.onto.run(call, self.fork, wish, message)
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
    pub onto: OntoFork,
}

impl Operation for CherryPick {
    const NAME: &'static str = "cherry-pick";
    const DOING: &'static str = "putting commits on it";
    type Answer = Sequenced;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let wish = SequenceRequest::CherryPick {
            commits: self.commits,
            mainline: self.mainline,
            says_origin: self.says_origin,
            emptied: self.empty,
        };
        self.onto.run(call, self.fork, wish, None)
    }
}

// How a sequence goes onto a fork. (A doc comment here would become a verb's help.)
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
pub struct OntoFork {
    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, conflicts_with_all = ["review", "resolver"])]
    #[serde(default)]
    pub dry_run: bool,

    #[command(flatten)]
    #[serde(default)]
    pub choices: ConflictChoices,

    #[arg(skip)]
    #[serde(default)]
    pub review: ReviewPolicy,
}

impl OntoFork {
    /// Runs the sequence on `fork`, by default the caller's.
    fn run(
        self,
        call: &Call<'_>,
        fork: Option<ForkName>,
        wish: SequenceRequest,
        message: Option<String>,
    ) -> Result<Sequenced, Failure> {
        let fork = call.fork(fork)?;
        let asked = Asked {
            message,
            dry_run: self.dry_run,
            review: self.review,
            ..Asked::of(format!("fork:{fork}"), wish, self.choices, call.git_dir()?)
        };
        sequence(call, &asked)
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
    pub choices: ConflictChoices,

    #[arg(skip)]
    #[serde(default)]
    pub review: ReviewPolicy,

    /// The patch, on its way to the daemon.
    #[arg(skip)]
    pub content: Transfer,
}

impl Operation for ApplyPatch {
    const NAME: &'static str = "apply";
    const DOING: &'static str = "applying the patch";
    type Answer = Sequenced;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let fork = call.fork(self.fork)?;
        let patch = write_content(call.daemon, &call.daemon.repository_now()?, &self.content)?;
        let wish = SequenceRequest::Patch {
            patch: patch.to_string(),
            strip: self.strip,
            reverse: self.reverse,
            three_way: self.three_way,
        };
        let asked = Asked {
            dry_run: self.check,
            review: self.review,
            ..Asked::of(format!("fork:{fork}"), wish, self.choices, call.git_dir()?)
        };
        sequence(call, &asked)
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
    pub choices: ConflictChoices,

    #[arg(skip)]
    #[serde(default)]
    pub review: ReviewPolicy,
}

impl Operation for ApplyHandoff {
    const NAME: &'static str = "apply-handoff";
    const DOING: &'static str = "applying the handoff";
    type Answer = Sequenced;

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let parent = mailboxes::check(call.daemon, self.handoff, self.force)?;
        let Some(into) = self.into.or(parent) else {
            return Err(Failure::new(ErrorCode::Usage, "no target is named")
                .hint("name a fork or branch: `--into TARGET`"));
        };
        let wish = SequenceRequest::Mailbox {
            handoff: self.handoff,
            three_way: !self.no_3way,
        };
        let asked = Asked {
            is_clean: !self.force,
            dry_run: self.dry_run,
            review: self.review,
            allow_revert: self.allow_revert,
            ..Asked::of(into, wish, self.choices, call.git_dir()?)
        };
        sequence(call, &asked)
    }
}

/// What was asked for, whoever asked.
pub(crate) struct Asked {
    /// A fork or branch.
    pub into: String,
    /// Whether anything uncommitted is in the way.
    pub is_clean: bool,
    pub wish: SequenceRequest,
    /// Where revisions are understood.
    pub git_dir: PathBuf,
    pub merge: MergeOptions,
    pub allow_unrelated: bool,
    pub message: Option<String>,
    pub dry_run: bool,
    pub review: ReviewPolicy,
    /// Whether a handoff may take commits of others back.
    pub allow_revert: bool,
}

/// The target as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TargetState {
    pub tip: Tip,
    /// The view, where uncommitted changes play a part: a tree.
    pub view: Option<ObjectId>,
}

impl Asked {
    /// Returns a request with the default options.
    fn of(into: String, wish: SequenceRequest, choices: ConflictChoices, git_dir: &Path) -> Asked {
        Asked {
            into,
            is_clean: false,
            wish,
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

/// Does what was asked for, or says what would come of it.
fn sequence(call: &Call<'_>, asked: &Asked) -> Result<Sequenced, Failure> {
    let daemon = call.daemon;
    // Two of the same become one review.
    let _reviews = (asked.review != ReviewPolicy::Never).then(|| daemon.reviews.lock());
    let done = carry_out(daemon, call.by(), asked, &call.signers(), None)?;
    mailboxes::note_applied(daemon, asked, &done);
    Ok(done)
}

/// What was sent, as a blob.
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

/// Plans it, and does it; planned again where the target moves meanwhile. With a review: with its
/// resolutions, and of what it was planned of.
pub(crate) fn carry_out(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    asked: &Asked,
    signers: &Signers,
    review: Option<&ReviewRecord>,
) -> Result<Sequenced, Failure> {
    let (done, holder) = while_it_moves(|| {
        on_target(daemon, by, asked, |target| {
            let _lease = match asked.dry_run {
                true => None,
                false => {
                    Some(target.lease(|| find_target(daemon, target.repository, &asked.into))?)
                }
            };
            if asked.is_clean {
                target.refuse_uncommitted()?;
            }
            let now = standing(target, asked)?;
            let sequence = match review.and_then(|review| Some((review, review.work.as_ref()?))) {
                Some((review, _)) if !reviewing::moved_from(review, &now).is_empty() => {
                    return Err(outdated(review));
                }
                Some((_, work)) => work.sequence.clone(),
                None => build(target, asked, &now)?,
            };
            let options = options(asked, signers, review);
            let ran = run(
                &daemon.store,
                target.repository,
                &sequence,
                now.tip,
                now.view,
                &options,
            )?;
            let done = finish(target, asked, &now, sequence, &ran)?;
            Ok((done, target.holder.clone()))
        })
    })?;
    if done.status == MergeStatus::Merged && !asked.dry_run {
        Target::after(&daemon.repository, &holder);
    }
    Ok(done)
}

fn options<'a>(
    asked: &Asked,
    signers: &Signers,
    review: Option<&'a ReviewRecord>,
) -> RunOptions<'a> {
    RunOptions {
        merge: asked.merge,
        allow_unrelated: asked.allow_unrelated,
        author: signers.author.clone(),
        committer: signers.committer.clone(),
        review,
    }
}

/// Calls `work` with the target, in the turn of the fork that it is.
fn on_target<T>(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    asked: &Asked,
    work: impl FnOnce(&Target<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let repository = daemon.repository_now()?;
    let holder = find_target(daemon, &repository, &asked.into)?;
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

fn standing(target: &Target<'_>, asked: &Asked) -> Result<TargetState, Failure> {
    let view = match (&asked.wish, target.guard) {
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

/// Moves the target to where the sequence led, or keeps its conflicts; says what came of it.
fn finish(
    target: &Target<'_>,
    asked: &Asked,
    now: &TargetState,
    sequence: Sequence,
    ran: &Ran,
) -> Result<Sequenced, Failure> {
    let old_tree = now.view.unwrap_or(now.tip.tree_id);
    let is_looked_at = asked.review == ReviewPolicy::Always && ran.tree_id() != old_tree;
    let is_same = ran.tip == now.tip && ran.view == now.view;
    let status = match (&ran.stopped, is_looked_at, is_same) {
        (Some(_), ..) => MergeStatus::Conflicts,
        (None, true, _) => MergeStatus::Reviewed,
        (None, false, true) => MergeStatus::NothingToMerge,
        (None, false, false) => MergeStatus::Merged,
    };
    if status == MergeStatus::Merged
        && matches!(asked.wish, SequenceRequest::Mailbox { .. })
        && !asked.allow_revert
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
        MergeStatus::Merged => snapshot = go(target, asked, now, ran)?,
        MergeStatus::NothingToMerge if !asked.dry_run => note_fork_point(target, asked, ran)?,
        _ => {}
    }
    let review = match status {
        MergeStatus::Conflicts if asked.review != ReviewPolicy::Never => {
            Some(reviewing::keep(target, asked, now, &sequence, ran)?)
        }
        MergeStatus::Reviewed => Some(reviewing::keep(target, asked, now, &sequence, ran)?),
        _ => None,
    };
    let moves = status == MergeStatus::Merged;
    let (after, new_tree) = match moves {
        true => (ran.tip, ran.tree_id()),
        false => (now.tip, old_tree),
    };
    let changes = compare_trees(target.repository, old_tree, new_tree)?;
    let hex = |tip: Tip| tip.commit_id.map(|id| id.to_string());
    Ok(Sequenced {
        status,
        dry_run: asked.dry_run,
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

/// Moves the target; the snapshot of what it was. In a dry run looks only whether that would do.
fn go(
    target: &Target<'_>,
    asked: &Asked,
    now: &TargetState,
    ran: &Ran,
) -> Result<Option<ForkName>, Failure> {
    let (kind, reason) = match &asked.wish {
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
    ) = (&asked.wish, target.guard, now.view, ran.view)
    {
        let open = guard.open()?;
        if asked.dry_run {
            check_move(target.repository, &open, (from, to))?;
            return Ok(None);
        }
        let (store, name) = (&target.daemon.store, guard.name());
        let before = match &asked.wish {
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
    let update = match (&asked.wish, target.guard, now.view, ran.view) {
        (SequenceRequest::Update { .. }, Some(guard), Some(view_from), Some(view_to)) => {
            let record = guard.record()?;
            Some(UpdateStep {
                view_from,
                view_to,
                point_from: fork_point(target.repository, &record, now.tip.commit_id)?,
                point_to: building::upstream(target, asked)?,
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
    match asked.dry_run {
        true => Ok(None),
        false => target.go(ready, &step, reason),
    }
}

/// A fork that has all of what it was to be brought up to begins there from now on.
fn note_fork_point(target: &Target<'_>, asked: &Asked, ran: &Ran) -> Result<(), Failure> {
    let (SequenceRequest::Update { .. }, Some(guard), Some(head)) =
        (&asked.wish, target.guard, ran.tip.commit_id)
    else {
        return Ok(());
    };
    let Some(upstream) = building::upstream(target, asked)? else {
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

/// What became of each commit.
fn commits(
    repository: &Repository,
    sequence: &Sequence,
    ran: &Ran,
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
