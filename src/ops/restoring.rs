//! Restores and reverts: sets a fork, or paths of it, to another point.
//!
//! HEAD may have commits of others by now that the point lacks. Then the point's own work is
//! applied to HEAD, as a sequence ([`going_back`](tine_change::going_back)). The option `exact`
//! takes the point's tree as it is.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sequencing::{SequenceArgs, carry_out};
use super::snapshots::{record_switch, restore_in, restore_with_git_in};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation, path_parser};
use crate::points::{self, ResolvedPoint};
use crate::policy::Signers;
use crate::protocol::{
    CommitLine, IndexKept, MergeStatus, RestoreMethod, RestoreOutcome, Restored, Reverted,
    ReviewPolicy,
};
use crate::report;
use crate::state::slots::{Daemon, ForkGuard};
use tine_change::fork_point::fork_point;
use tine_change::going_back::{LackedCommits, StateHead, at_paths};
use tine_change::revert_guard::RevertRecord;
use tine_change::sequence::SequenceRequest;
use tine_change::{FoundPoint, Point, RevertOptions, RevertTo, revert as reverting};
use tine_git::{ObjectId, Repository};
use tine_merge::{Level, MergeInput, MergeOptions, Strategy, merge};
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_store::RecordKind;
use tine_store::{ForkName, SnapshotOptions, SnapshotReason, StoreError};
use tine_sys::pause;
use tine_workspace::{Actor, OperationKind};

/// Let a fork, or paths of it, be as they were at a point
///
/// Of a snapshot, and of its fork point, a fork gets everything back as it was, ignored files
/// included. A file that changes gets the present time, an ignored one the time that it had. Of
/// another fork or a revision it gets what git takes; ignored files stay. Programs in the mount see
/// it at once, and what they have open stays as they opened it. HEAD and the index are left alone.
/// What the fork was becomes a snapshot first, which is named.
///
/// Where HEAD has commits of others by now that the point lacks (an update, a merge), what the
/// point had of its own is merged onto HEAD, so that nobody's work is taken back. Conflicts change
/// nothing. --exact takes the files as they were, and says which commits' work they lack.
///
/// With --with-git a fork that is a repository of its own goes back as a whole: files, HEAD, the
/// fork's own branches and tags, and what is staged. The stash and settings stay, and reflogs tell
/// of it. `tine undo` brings back what it replaced.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
pub struct Restore {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[schemars(skip)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// Where to: a snapshot or its tree id, `pristine` (its fork point), another fork, or any
    /// revision of the repository
    #[arg(value_name = "POINT")]
    pub to: String,

    /// Restore only this path, and what is below, as far as git takes it; may be given several
    /// times
    #[arg(long = "path", value_name = "PATH", value_parser = path_parser())]
    #[schemars(with = "Vec<String>")]
    #[serde(default)]
    pub paths: Vec<PathText>,

    /// Let go what is in the way and git ignores, where not all is restored from a snapshot
    #[arg(short, long)]
    #[serde(default)]
    pub force: bool,

    /// Take the files exactly as they are there, also where HEAD has commits of others by now that
    /// they lack
    #[arg(long)]
    #[serde(default)]
    pub exact: bool,

    /// Restore HEAD, the fork's own refs and the index as well, as they were at that snapshot
    #[arg(long, conflicts_with = "paths")]
    #[schemars(skip)]
    #[serde(default)]
    pub with_git: bool,

    /// Choices for conflicts, where the point's own work is applied to HEAD.
    #[command(flatten)]
    #[schemars(skip)]
    #[serde(default)]
    pub choices: ConflictOptions,

    /// Policy for keeping the restore as a review instead of making it.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub review: ReviewPolicy,
}

/// How what conflicts is merged.
#[derive(Debug, Clone, Copy, Default, clap::Args, Serialize, Deserialize)]
pub struct ConflictOptions {
    /// Merge lines and follow renames, or only whole files
    #[arg(
        long,
        value_enum,
        value_name = "LEVEL",
        default_value = "text",
        help_heading = "Conflicts"
    )]
    #[serde(default)]
    pub level: Level,

    /// What becomes of conflicts: `ours` is what the fork has, `theirs` what comes
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value = "abort",
        help_heading = "Conflicts"
    )]
    #[serde(default)]
    pub strategy: Strategy,
}

/// [`Restore`] with its fork and paths resolved.
struct ResolvedRestore<'a> {
    fork: ForkName,
    paths: Vec<RepoPath>,
    operation: &'a Restore,
}

impl Operation for Restore {
    const NAME: &'static str = "restore";
    const PROGRESS: &'static str = "restoring";
    type Answer = RestoreOutcome;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<RestoreOutcome, Failure> {
        let fork = call.fork(self.fork.clone())?;
        let paths = call.paths(&fork, &self.paths)?;
        let request = &ResolvedRestore {
            fork,
            paths,
            operation: &self,
        };
        let (daemon, by, name) = (call.daemon, call.by(), &request.fork);
        let repository = daemon.repository_now()?;
        let found = find(daemon, name, &request.operation.to)?;
        if self.with_git {
            return restore_with_git(daemon, by, request, &found).map(RestoreOutcome::Restored);
        }
        let is_whole =
            request.paths.is_empty() && matches!(found.point, Point::Snapshot(_) | Point::Pristine);
        // A whole restore includes ignored files.
        if is_whole && let Some(restored) = restore_whole(daemon, by, &repository, request, &found)?
        {
            return Ok(RestoreOutcome::Restored(restored));
        }
        // This locks the fork that the point names, so it comes before the lock of the fork itself.
        let point = points::complete(daemon, &repository, name, found)?;
        match restore_tree(daemon, by, &repository, request, &point)? {
            Ok(restored) => Ok(RestoreOutcome::Restored(restored)),
            Err(since) => bring_onto_head(daemon, by, request, &point, &since),
        }
    }
}

/// Take paths of a fork back to what they were, mounted or not
///
/// Each path becomes what it was at the fork point, with everything below it: changed and removed
/// files are put back, added ones are removed. --to names another point: a snapshot, another fork,
/// or a revision. It is one step, or nothing changes. Ignored files are not part of it; if one is
/// in the way, it is named, and nothing changes without --force.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine revert fix-parser src/lexer.rs docs
  tine revert fix-parser . --dry-run             what would be taken back
  tine revert fix-parser src --to HEAD           to the fork's last commit
  tine revert fix-parser Cargo.lock --to fork:other")]
pub struct Revert {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount; `.` is everything
    #[arg(value_name = "PATH", required = true, value_parser = path_parser())]
    pub paths: Vec<PathText>,

    /// Take them back to a snapshot, fork or revision [default: pristine]
    #[arg(long, value_name = "POINT")]
    pub to: Option<String>,

    /// Let go what is in the way and in no changeset
    #[arg(short, long)]
    pub force: bool,

    /// Show what would be done, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Take them exactly as they are there, also where HEAD has commits of others by now that they
    /// lack
    #[arg(long)]
    pub exact: bool,
}

impl Operation for Revert {
    const NAME: &'static str = "revert";
    const PROGRESS: &'static str = "taking back";
    type Answer = Reverted;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn frees_space(&self) -> bool {
        true
    }

    fn run(self, call: &Call<'_>) -> Result<Reverted, Failure> {
        let (daemon, name) = (call.daemon, &call.fork(self.fork.clone())?);
        let paths = &call.paths(name, &self.paths)?;
        if paths.is_empty() {
            return Err(
                Failure::new(ErrorCode::Usage, "no path is named").hint(format!(
                    "`.` is everything; `tine status {name}` shows what changed"
                )),
            );
        }
        let repository = daemon.repository_now()?;
        let point = match &self.to {
            Some(word) => points::resolve(daemon, &repository, name, word)?,
            None => points::pristine(daemon, &repository, name)?,
        };
        let options = RevertOptions {
            force: self.force,
            dry_run: self.dry_run,
        };
        let slot = daemon.slot(name);
        let guard = daemon.lock_fork(&slot)?;
        let fork = guard.open_existing()?;
        guard.settle(&repository, &fork)?;
        let git_dir = fork.worktree.git_dir();
        let mut lacks = None;
        let to = match since(&guard, &repository, git_dir, &point.point)? {
            Some(since) if !self.exact => {
                let head = repository.head_of(git_dir)?.commit_id();
                let head_tree = repository.tree_of(head)?;
                RevertTo {
                    tree_id: tree_on_head(&repository, &point, &since, head_tree, paths)?,
                    commit_id: None,
                }
            }
            since => {
                lacks = lacking(&guard, &repository, git_dir, &point.point, since, paths)?;
                RevertTo {
                    tree_id: point.tree_id,
                    commit_id: point.commit_id,
                }
            }
        };
        let noted = lacks.as_ref().filter(|_| !self.dry_run);
        let outcome = going_back(&guard, &repository, noted, || {
            Ok(reverting(
                &repository,
                name,
                &fork,
                call.by(),
                to,
                paths,
                options,
            )?)
        })?;
        guard.sync_if_unmounted(&fork)?;
        Ok(Reverted {
            fork: name.clone(),
            to: (&point).into(),
            changes: outcome.changes.iter().map(report::change_line).collect(),
            left_alone: outcome.left_alone.iter().map(Into::into).collect(),
            left_out: left_out(&repository, lacks)?,
            dry_run: self.dry_run,
        })
    }
}

/// Resolves `word` to a point. A tree id names the snapshot with that tree.
fn find(daemon: &Daemon, name: &ForkName, word: &str) -> Result<FoundPoint, Failure> {
    let snapshots = daemon.store.snapshots(name)?;
    let by_tree = snapshots
        .iter()
        .rfind(|snapshot| snapshot.tree.as_deref() == Some(word));
    Ok(match by_tree {
        Some(snapshot) => Point::Snapshot(snapshot.name.clone()).found(&daemon.store, name)?,
        None => points::find(daemon, name, word)?,
    })
}

/// Returns the work of others that HEAD has and the point lacks.
///
/// Returns `None` for a revision and for the fork point, which are taken as they are.
fn since(
    guard: &ForkGuard<'_>,
    repository: &Repository,
    git_dir: &Path,
    point: &Point,
) -> Result<Option<LackedCommits>, Failure> {
    let (store, name) = (&guard.daemon.store, guard.name());
    let then = match point {
        Point::Snapshot(snapshot) => {
            StateHead::of_snapshot(name, name, &store.snapshot(name, snapshot)?)?
        }
        Point::SnapshotOf(fork, snapshot) => {
            StateHead::of_snapshot(name, fork, &store.snapshot(fork, snapshot)?)?
        }
        Point::Fork(fork) if fork != name => {
            let worktree = store.worktree_of(fork)?;
            let head = repository.head_of(worktree.git_dir())?;
            StateHead {
                head: repository.head_left_at(
                    &worktree,
                    fork.as_str(),
                    &store.record(fork)?.branch,
                )?,
                branch: head.short_branch().map(str::to_owned),
                is_own: false,
            }
        }
        Point::Fork(_) | Point::Pristine | Point::Revision(_) => return Ok(None),
    };
    let head = repository.head_of(git_dir)?;
    Ok(then.since(store, repository, &guard.record()?, &head)?)
}

/// Returns the work that the fork lacks at `paths` after going back.
///
/// For the fork point this is the work that the fork has merged. For other points it is `since`.
fn lacking(
    guard: &ForkGuard<'_>,
    repository: &Repository,
    git_dir: &Path,
    point: &Point,
    since: Option<LackedCommits>,
    paths: &[RepoPath],
) -> Result<Option<LackedCommits>, Failure> {
    let since = match point {
        Point::Pristine => {
            let (record, head) = (guard.record()?, repository.head_of(git_dir)?);
            match fork_point(repository, &record, head.commit_id())? {
                Some(point) => StateHead::since_fork_point(
                    &guard.daemon.store,
                    repository,
                    &record,
                    &head,
                    point,
                )?,
                None => None,
            }
        }
        _ => since,
    };
    let is_everything = paths.iter().all(RepoPath::is_root);
    Ok(match since {
        Some(since) if !is_everything => Some(since.within(repository, paths)?),
        since => since,
    })
}

/// Sets the whole fork to a snapshot or the fork point.
///
/// Ignored files are included. Returns `None` if HEAD has commits of others by now and `exact` is
/// not set.
fn restore_whole(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    repository: &Repository,
    request: &ResolvedRestore<'_>,
    found: &FoundPoint,
) -> Result<Option<Restored>, Failure> {
    let name = &request.fork;
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let open = guard.open_existing()?;
    let since = since(&guard, repository, open.worktree.git_dir(), &found.point)?;
    if since.is_some() && !request.operation.exact {
        return Ok(None);
    }
    let since = lacking(
        &guard,
        repository,
        open.worktree.git_dir(),
        &found.point,
        since,
        &[],
    )?;
    let before = going_back(&guard, repository, since.as_ref(), || match &found.point {
        Point::Snapshot(snapshot) => {
            restore_in(&guard, &open, &daemon.store.snapshot(name, snapshot)?)
        }
        _ => {
            // Settling may move the fork point.
            guard.settle(repository, &open)?;
            let head = repository.head_of(open.worktree.git_dir())?.commit_id();
            let point = fork_point(repository, &guard.record()?, head)?;
            let reason = SnapshotReason::BeforeRestore;
            Ok(daemon
                .store
                .restore_commit(name, &open, point, reason)?
                .name)
        }
    })?;
    guard.forget_settled();
    record_switch(&guard, by, &before, OperationKind::Switch, None, None);
    log::info!(
        "{name}: restored to {}; what it was is {before}",
        found.point
    );
    restored_exactly(name, repository, &found.point, before, since).map(Some)
}

/// Sets the whole fork to a snapshot, with HEAD, refs and index.
fn restore_with_git(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    request: &ResolvedRestore<'_>,
    found: &FoundPoint,
) -> Result<Restored, Failure> {
    let name = &request.fork;
    let Point::Snapshot(snapshot) = &found.point else {
        return Err(StoreError::NoGitPoint {
            fork: name.clone(),
            reason: "only a snapshot of the fork has them",
        }
        .into());
    };
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let open = guard.open_existing()?;
    let snapshot = daemon.store.snapshot(name, snapshot)?;
    let (before, git) = restore_with_git_in(&guard, &open, &snapshot, by)?;
    guard.forget_settled();
    record_switch(
        &guard,
        by,
        &before,
        OperationKind::Switch,
        None,
        Some(git.clone()),
    );
    Ok(Restored {
        fork: name.clone(),
        to: Some(found.point.to_string()),
        before: Some(before),
        how: RestoreMethod::Exact,
        left_out: Vec::new(),
        git: Some(git),
        index: IndexKept::default(),
    })
}

/// Sets paths of the fork to the point's tree.
///
/// Returns `Err` with the work that HEAD has and the point lacks, if `exact` is not set.
fn restore_tree(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    repository: &Repository,
    request: &ResolvedRestore<'_>,
    point: &ResolvedPoint,
) -> Result<Result<Restored, LackedCommits>, Failure> {
    let name = &request.fork;
    let mut paths = request.paths.clone();
    if paths.is_empty() {
        paths.push(RepoPath::root());
    }
    let to = RevertTo {
        tree_id: point.tree_id,
        commit_id: point.commit_id,
    };
    let options = RevertOptions {
        force: request.operation.force,
        dry_run: false,
    };
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let fork = guard.open_existing()?;
    guard.settle(repository, &fork)?;
    let since = match since(&guard, repository, fork.worktree.git_dir(), &point.point)? {
        Some(since) if !request.operation.exact => return Ok(Err(since)),
        since => lacking(
            &guard,
            repository,
            fork.worktree.git_dir(),
            &point.point,
            since,
            &paths,
        )?,
    };
    let kept = SnapshotOptions::because(SnapshotReason::BeforeRestore);
    let before = daemon.store.take_snapshot(name, &fork, &kept)?.name;
    let reverted = going_back(&guard, repository, since.as_ref(), || {
        Ok(reverting(repository, name, &fork, by, to, &paths, options)?)
    });
    if let Err(failure) = reverted {
        daemon.store.remove_snapshot(name, &before)?;
        return Err(failure);
    }
    guard.sync_if_unmounted(&fork)?;
    log::info!(
        "{name}: restored to {}; what it was is {before}",
        point.point
    );
    restored_exactly(name, repository, &point.point, before, since).map(Ok)
}

/// Applies the point's own work to the fork's HEAD.
fn bring_onto_head(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    request: &ResolvedRestore<'_>,
    point: &ResolvedPoint,
    since: &LackedCommits,
) -> Result<RestoreOutcome, Failure> {
    let restore = SequenceRequest::Restore {
        point: point.point.to_string(),
        base_tree: since.base_tree.to_string(),
        view_tree: point.tree_id.to_string(),
        paths: request.paths.iter().map(Into::into).collect(),
    };
    let args = SequenceArgs {
        review: request.operation.review,
        ..SequenceArgs::of(
            format!("fork:{}", request.fork),
            restore,
            request.operation.choices,
            daemon.repository.common_dir(),
        )
    };
    let done = carry_out(daemon, by, &args, &Signers::default(), None).map_err(|failure| match failure.code {
        ErrorCode::OperationInProgress => failure.hint(
            "end it in the mount first (`git status` says how), or take the very files of that point with `--exact`; nothing was changed",
        ),
        _ => failure,
    })?;
    if matches!(done.status, MergeStatus::Conflicts | MergeStatus::Reviewed) {
        return Ok(RestoreOutcome::Sequenced(Box::new(done)));
    }
    Ok(RestoreOutcome::Restored(Restored {
        fork: request.fork.clone(),
        to: Some(point.point.to_string()),
        before: done.snapshot,
        how: RestoreMethod::OntoHead,
        left_out: Vec::new(),
        git: None,
        index: IndexKept::default(),
    }))
}

/// Runs `go`, which takes the fork back past others' work.
///
/// It first notes `since`, because the daemon may be killed when the files are already old.
fn going_back<T>(
    guard: &ForkGuard<'_>,
    repository: &Repository,
    since: Option<&LackedCommits>,
    go: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let store = &guard.daemon.store;
    let noted = match since {
        Some(since) => RevertRecord::note(store, repository, &guard.record()?, since)?,
        None => None,
    };
    let done = go();
    if let (Err(_), Some(id)) = (&done, noted)
        && let Err(error) = store.remove_document(RecordKind::Reverts, id, None)
    {
        log::warn!(
            "{}: a note of what was not done stays: {error}",
            guard.name()
        );
    }
    pause::at("files-restored");
    done
}

/// Returns the answer to a restore of the point's exact files.
fn restored_exactly(
    name: &ForkName,
    repository: &Repository,
    to: &Point,
    before: ForkName,
    since: Option<LackedCommits>,
) -> Result<Restored, Failure> {
    Ok(Restored {
        fork: name.clone(),
        to: Some(to.to_string()),
        before: Some(before),
        how: RestoreMethod::Exact,
        left_out: left_out(repository, since)?,
        git: None,
        index: IndexKept::default(),
    })
}

fn left_out(
    repository: &Repository,
    since: Option<LackedCommits>,
) -> Result<Vec<CommitLine>, Failure> {
    let commit_ids = since.into_iter().flat_map(|since| since.left_out);
    let line = |id| Ok(report::commit_line(id, &repository.commit_info(id)?));
    commit_ids.map(line).collect()
}

/// Returns the tree for a revert: the point's own work, merged onto the fork's HEAD.
///
/// Fails with `merge-conflicts` if both changed a path.
fn tree_on_head(
    repository: &Repository,
    point: &ResolvedPoint,
    since: &LackedCommits,
    head_tree: ObjectId,
    paths: &[RepoPath],
) -> Result<ObjectId, Failure> {
    let input = MergeInput {
        base: Some(since.base_tree),
        ours: head_tree,
        theirs: at_paths(repository, since.base_tree, point.tree_id, paths)?,
        allow_unrelated: false,
    };
    let merged = merge(repository, &input, &MergeOptions::default())?;
    let Some(conflict) = merged.conflicts.first() else {
        return Ok(merged.tree_id);
    };
    Err(Failure::new(
        ErrorCode::MergeConflicts,
        format!(
            "{} and HEAD, which has commits of others by now, both changed {}",
            point.point, conflict.path
        ),
    )
    .hint("`--exact` takes it as it was there; `tine restore` with `--path` and `--review` keeps the conflicts for resolving"))
}
