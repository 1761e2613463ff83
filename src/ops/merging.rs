//! Merges forks, snapshots, branches, commits and trees.
//!
//! Everything is planned first, one source after another, each on the commit that the one before
//! would lead to. Uncommitted changes of a target fork are merged along and stay uncommitted. A dry
//! run ends there. Then uncommitted changes of source forks are committed in them, and the target,
//! a fork or a branch, moves once, to the last commit.

mod moving;
mod planning;
mod reviewing;
mod sides;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::reviewing::{contained, outdated, replan, sides};
use self::sides::{Source, default_target, find_source};
use super::buffers;
use super::locks::{Guards, retry_while_moved, slots_of};
use super::target::{self, Holder, Target, find_target, fork_called};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation, joined_message, paragraphs};
use crate::policy::Signers;
use crate::protocol::{AgentTexts, MergeStatus, Merged, MergedSource, ReviewPolicy, SourceOutcome};
use crate::report;
use crate::state::slots::{Daemon, ForkGuard, Slot};
use tine_change::commit::refuse_moved_under;
use tine_change::compare::compare_trees;
use tine_change::merge::{FastForward, Tip};
use tine_change::revert_guard::{RevertRecords, RevertSource, refuse_taking_back};
use tine_change::review::{ConflictRecord, ReviewRecord};
use tine_change::{ChangeError, Point};
use tine_git::{ObjectId, Repository};
use tine_merge::{Level, Strategy};
use tine_store::{ForkName, Lease};
use tine_workspace::Actor;

/// Merge forks, snapshots, branches or commits into a fork or branch
///
/// A source is a fork, `FORK@SNAPSHOT`, a branch, a commit, a tree, or `pristine`. The target is
/// the fork you stand in, or else the branch that the first source came from; --into names another
/// fork or branch. Where the target is checked out it follows: a mounted fork at once, the main
/// checkout as `git merge --ff-only` does.
///
/// Where the target has nothing of its own it moves to the source (--no-ff makes a merge commit
/// even so), else a merge commit is made.
///
/// What is uncommitted in a source fork goes into a branch only with --with-uncommitted, or with
/// `tine.mergeUncommitted` in git's configuration: it is committed in the fork then. A fork that is
/// named as the target takes it in any case. What is uncommitted in a target fork is merged along
/// and stays uncommitted; in another checkout the merge is refused where it would overwrite it.
///
/// Hooks run as with `git commit` in the sources and as with `git merge` in the target, where these
/// are mounted or checked out.
///
/// Conflicts change nothing: they are listed, and the exit code is 3. It is 7 where the target has
/// everything already.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Examples:
  tine merge fix-parser                        into the branch that it came from
  tine merge fix-parser --into main --dry-run  see what would come of it
  tine merge fix-parser --with-uncommitted     commit what is there, and merge it
  tine merge main                              inside a fork: bring it up to date
  tine merge a b c --into main --delete        one after another, and remove them
  tine merge theirs --strategy ours            settle conflicts for the target
  tine merge fix-parser --json                 conflicts with all three contents, and hunks")]
pub struct Merge {
    /// What to merge, one after another
    #[arg(value_name = "SOURCE", required = true)]
    #[schemars(skip)]
    #[serde(default)]
    pub sources: Vec<String>,

    /// The fork or branch to merge into
    #[arg(long, value_name = "TARGET")]
    #[serde(default)]
    pub into: Option<String>,

    /// What both sides began as [default: found in history]
    #[arg(long, value_name = "REV")]
    #[schemars(skip)]
    #[serde(default)]
    pub base: Option<String>,

    /// Merge lines and follow renames, or only whole files
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "text")]
    #[schemars(skip)]
    #[serde(default)]
    pub level: Level,

    /// What becomes of conflicts
    #[arg(long, value_enum, value_name = "HOW", default_value = "abort")]
    #[schemars(skip)]
    #[serde(default)]
    pub strategy: Strategy,

    /// Make a merge commit even where the target could simply move
    #[arg(long, group = "ff")]
    #[schemars(skip)]
    #[serde(default)]
    pub no_ff: bool,

    /// Refuse anything but moving the target
    #[arg(long, group = "ff")]
    #[schemars(skip)]
    #[serde(default)]
    pub ff_only: bool,

    /// The merge commit's message
    #[arg(short, long, value_name = "MSG")]
    #[schemars(with = "Option<String>")]
    #[serde(default, with = "paragraphs", skip_serializing_if = "Vec::is_empty")]
    pub message: Vec<String>,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long)]
    #[serde(default)]
    pub dry_run: bool,

    /// Commit what is uncommitted in source forks, and merge it, too
    #[arg(long)]
    #[serde(default)]
    pub with_uncommitted: bool,

    /// Remove the source forks and branches when they are merged
    #[arg(long)]
    #[schemars(skip)]
    #[serde(default)]
    pub delete: bool,

    /// Merge also what takes commits of the target's back, after `tine restore --exact` in a source
    #[arg(long)]
    #[serde(default)]
    pub allow_revert: bool,

    /// Merge nothing at all where one of several sources has conflicts
    #[arg(long)]
    #[schemars(skip)]
    #[serde(default)]
    pub all_or_nothing: bool,

    /// Merge histories that have nothing in common
    #[arg(long)]
    #[schemars(skip)]
    #[serde(default)]
    pub allow_unrelated: bool,

    /// Fork in which sources are resolved, and target if `into` is `None`.
    ///
    /// `None` means the fork whose mount contains the caller's directory.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub here: Option<ForkName>,

    /// Policy for keeping the merge as a review instead of making it.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub review: ReviewPolicy,

    /// True if the caller will write conflict markers into the mounted target.
    ///
    /// Uncommitted changes of the source are committed for that.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub markers: bool,

    /// Messages of merge commits as hooks left them, one per source.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub messages: Vec<Option<String>>,
}

impl Merge {
    /// Returns the merge of `source` with the default options.
    pub fn of(source: String) -> Merge {
        Merge {
            sources: vec![source],
            ..Merge::default()
        }
    }

    fn fast_forward(&self) -> FastForward {
        match (self.no_ff, self.ff_only) {
            (true, _) => FastForward::Never,
            (false, true) => FastForward::Only,
            (false, false) => FastForward::WherePossible,
        }
    }
}

impl Operation for Merge {
    const NAME: &'static str = "merge";
    const PROGRESS: &'static str = "merging";
    type Answer = Merged;

    fn run(mut self, call: &Call<'_>) -> Result<Merged, Failure> {
        self.here = call.fork_if_any(self.here);
        let git_dir = call.git_dir()?;
        merge(call.daemon, call.by(), git_dir, &self, &call.signers())
    }
}

/// Merges as `request` says. A dry run only returns what would happen.
pub(crate) fn merge(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    git_dir: &Path,
    request: &Merge,
    signers: &Signers,
) -> Result<Merged, Failure> {
    // The lock makes two equal merges share one review.
    let _reviews = (request.review != ReviewPolicy::Never).then(|| daemon.reviews.lock());
    merge_with(daemon, by, git_dir, request, signers, None)
}

/// Resolves `word`, and returns an unambiguous word for the target.
pub(crate) fn target_called(daemon: &Arc<Daemon>, word: &str) -> Result<String, Failure> {
    Ok(find_target(daemon, &daemon.repository_now()?, word)?.to_string())
}

/// Merges like [`merge`], with the resolutions of `review`.
///
/// The caller holds the lock of reviews if the merge uses or keeps a review.
pub(crate) fn merge_with(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    git_dir: &Path,
    request: &Merge,
    signers: &Signers,
    review: Option<&ReviewRecord>,
) -> Result<Merged, Failure> {
    retry_while_moved(|| Merging::begin(daemon, by, git_dir, request, signers, review)?.run())
}

/// Source with the result of its plan.
struct PlannedSource {
    line: MergedSource,
    /// Commit that the fork's uncommitted changes will become.
    uncommitted: Option<(ForkName, ObjectId)>,
    theirs: Tip,
}

/// Place of the target, now or after sources that are planned.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Position {
    tip: Tip,
    /// Tree of the view, if the target has uncommitted changes.
    view: Option<ObjectId>,
}

/// Result of planning one source.
struct Planning {
    source: PlannedSource,
    next: Position,
    /// Open conflicts. If there are any, the source is not merged.
    conflicts: Vec<ConflictRecord>,
}

/// Merge of all sources of one request.
struct Merging<'a> {
    daemon: &'a Arc<Daemon>,
    by: Actor<'a>,
    /// Private git directory of the worktree in which revisions are read.
    git_dir: &'a Path,
    request: &'a Merge,
    signers: &'a Signers,
    /// Review with resolutions of the conflicts.
    review: Option<&'a ReviewRecord>,
    repository: Repository,
    holder: Holder,
    sources: Vec<Source>,
    /// True if the merge may commit uncommitted changes of a source.
    takes_uncommitted: bool,
    slots: BTreeMap<ForkName, Arc<Slot>>,
}

impl<'a> Merging<'a> {
    fn begin(
        daemon: &'a Arc<Daemon>,
        by: Actor<'a>,
        git_dir: &'a Path,
        request: &'a Merge,
        signers: &'a Signers,
        review: Option<&'a ReviewRecord>,
    ) -> Result<Merging<'a>, Failure> {
        if joined_message(&request.message).is_some_and(|message| message.trim().is_empty()) {
            return Err(ChangeError::EmptyMessage.into());
        }
        let repository = daemon.repository_now()?;
        let mut sources = Vec::new();
        for word in &request.sources {
            sources.push(find_source(daemon, &repository, git_dir, request, word)?);
        }
        let holder = find_holder(daemon, &repository, request, &sources)?;
        let is_named_as_fork = match (&request.into, &request.here) {
            (Some(word), _) => !word.starts_with("branch:") && fork_called(daemon, word).is_some(),
            (None, here) => here.is_some(),
        };
        let takes_uncommitted = is_named_as_fork
            || request.with_uncommitted
            || repository.config_bool("tine.mergeUncommitted") == Some(true);
        let mut forks: Vec<ForkName> = sources
            .iter()
            .filter_map(|source| match &source.point {
                Point::Fork(fork) | Point::SnapshotOf(fork, _) => Some(fork.clone()),
                _ => None,
            })
            .collect();
        if let Holder::Fork(fork) = &holder {
            forks.push(fork.clone());
        }
        let slots = slots_of(daemon, forks);
        Ok(Merging {
            daemon,
            by,
            git_dir,
            request,
            signers,
            review,
            repository,
            holder,
            sources,
            takes_uncommitted,
            slots,
        })
    }

    fn run(&self) -> Result<Merged, Failure> {
        let merge = {
            let guards = self.guards()?;
            let _lease = if self.request.dry_run {
                None
            } else {
                Some(self.lease(&guards)?)
            };
            self.run_with_agent_texts(&guards)?
        };
        if merge.after != merge.before && !merge.dry_run {
            Target::after(&self.repository, &self.holder);
        }
        Ok(self.delete_merged(merge))
    }

    /// Locks all forks of the merge, and settles them.
    fn guards(&self) -> Result<Guards<'_>, Failure> {
        let guards = Guards::lock(self.daemon, &self.slots)?;
        for guard in guards.iter() {
            guard.settle(&self.repository, &*guard.open_existing()?)?;
        }
        Ok(guards)
    }

    /// Takes the leases of the target and of all forks' branches.
    fn lease(&self, guards: &Guards<'_>) -> Result<Lease<'_>, Failure> {
        let (daemon, repository) = (self.daemon, &self.repository);
        let guards: Vec<&ForkGuard<'_>> = guards.iter().collect();
        target::lease(
            daemon,
            repository,
            self.by.command,
            &self.holder,
            &guards,
            || find_holder(daemon, repository, self.request, &self.sources),
        )
    }

    /// Runs the merge with agents' texts in open buffers of the sources.
    ///
    /// The texts are merged as part of their sources. A dry run only lists them.
    fn run_with_agent_texts(&self, guards: &Guards<'_>) -> Result<Merged, Failure> {
        let mut sources: Vec<&ForkName> = Vec::new();
        for source in &self.sources {
            match &source.point {
                Point::Fork(fork) if !matches!(&self.holder, Holder::Fork(target) if target == fork) =>
                {
                    sources.push(fork);
                }
                _ => {}
            }
        }
        let mut found: Vec<(String, AgentTexts)> = Vec::new();
        let mut merge = if self.request.dry_run {
            for fork in sources {
                let left_out = buffers::in_buffers_only(self.daemon, fork);
                let texts = AgentTexts {
                    brought: Vec::new(),
                    left_out: left_out.iter().map(Into::into).collect(),
                };
                found.push((Point::Fork(fork.clone()).to_string(), texts));
            }
            self.run_in(guards)?
        } else {
            self.run_when_brought(guards, &sources, &mut found)?
        };
        for source in &mut merge.sources {
            let of_source = found
                .iter()
                .find(|(point, _)| *point == source.source.point);
            source.agent_texts = of_source
                .map(|(_, texts)| texts.clone())
                .unwrap_or_default();
        }
        Ok(merge)
    }

    /// Runs the merge while the agents' texts are in the sources' files.
    fn run_when_brought(
        &self,
        guards: &Guards<'_>,
        sources: &[&ForkName],
        found: &mut Vec<(String, AgentTexts)>,
    ) -> Result<Merged, Failure> {
        let Some((fork, others)) = sources.split_first() else {
            return self.run_in(guards);
        };
        let (merge, texts) = buffers::with_agent_texts(guards.get(fork)?, || {
            self.run_when_brought(guards, others, found)
        })?;
        found.push((Point::Fork((*fork).clone()).to_string(), texts));
        Ok(merge)
    }

    fn run_in(&self, guards: &Guards<'_>) -> Result<Merged, Failure> {
        if let Holder::Fork(fork) = &self.holder {
            let open = guards.get(fork)?.open()?;
            if let Some(operation) = open.worktree.operation_in_progress() {
                return Err(ChangeError::OperationInProgress(operation).into());
            }
            refuse_moved_under(&self.repository, &open)?;
        }
        let before = self.position(guards)?;
        let mut position = before;
        let mut sources: Vec<PlannedSource> = Vec::new();
        let mut conflicts: Vec<ConflictRecord> = Vec::new();
        let mut messages = self.request.messages.iter();
        for source in &self.sources {
            let message = messages.next().and_then(Option::as_deref);
            let planned = self.plan_source(guards, source, position, message)?;
            sources.push(planned.source);
            conflicts = planned.conflicts;
            if !conflicts.is_empty() {
                break;
            }
            position = planned.next;
        }
        let is_for_review = self.request.review == ReviewPolicy::Always
            && matches!(sources.as_slice(), [source] if source.line.how == SourceOutcome::MergeCommit);
        if is_for_review || !conflicts.is_empty() && self.request.all_or_nothing {
            position = before;
        }
        let moves = position.tip != before.tip;
        let status = match (conflicts.is_empty(), moves) {
            (false, _) => MergeStatus::Conflicts,
            (true, _) if is_for_review => MergeStatus::Reviewed,
            (true, false) => MergeStatus::NothingToMerge,
            (true, true) => MergeStatus::Merged,
        };
        if self.request.markers && !conflicts.is_empty() {
            self.prepare_for_markers(guards, &sources)?;
        }
        if moves && !self.request.allow_revert {
            let reverts = RevertRecords::of(&self.daemon.store);
            let (from, to) = (before.tip.commit_id, position.tip.tree_id);
            let of = match self.sources.as_slice() {
                [
                    Source {
                        point: Point::Fork(fork),
                        ..
                    },
                ] => Some(fork),
                _ => None,
            };
            refuse_taking_back(
                &self.repository,
                &reverts,
                from,
                to,
                RevertSource::Merge(of),
            )?;
        }
        let snapshot = if moves {
            self.move_target(guards, &sources, before, position)?
        } else {
            None
        };
        for source in &mut sources {
            // The commits of sources that were only planned do not stay.
            if self.request.dry_run || !moves || source.line.commit.is_none() {
                source.line.committed = None;
            }
            if !moves {
                source.line.commit = None;
            }
        }
        let review = match sources.last() {
            Some(source)
                if is_for_review
                    || self.request.review != ReviewPolicy::Never && !conflicts.is_empty() =>
            {
                Some(self.keep_review(source, position, &conflicts, &self.target_line(guards)?)?)
            }
            _ => None,
        };
        let (before, tip) = (before.tip, position.tip);
        let changes = compare_trees(&self.repository, before.tree_id, tip.tree_id)?;
        let hex = |tip: Tip| tip.commit_id.map(|id| id.to_string());
        Ok(Merged {
            status,
            dry_run: self.request.dry_run,
            target: self.target_line(guards)?,
            before: hex(before),
            after: hex(tip),
            sources: sources.into_iter().map(|source| source.line).collect(),
            conflicts,
            review,
            changes: changes.iter().map(report::change_line).collect(),
            snapshot,
        })
    }
}

/// Returns the holder of the merge's target.
fn find_holder(
    daemon: &Daemon,
    repository: &Repository,
    request: &Merge,
    sources: &[Source],
) -> Result<Holder, Failure> {
    match (&request.into, &request.here, sources.first()) {
        (Some(word), ..) => find_target(daemon, repository, word),
        (None, Some(here), _) => Ok(Holder::Fork(here.clone())),
        (None, None, Some(source)) => default_target(daemon, repository, source),
        (None, None, None) => Err(Failure::new(ErrorCode::Usage, "no source is named")
            .hint("name what to merge: `tine merge FORK`")),
    }
}
