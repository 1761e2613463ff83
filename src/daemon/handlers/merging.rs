//! Merging forks, snapshots, branches, commits and trees into a fork or a branch.
//!
//! Everything is planned first, one source after another, each on the commit that the one before would lead to. A dry run ends
//! there. Then what is uncommitted in source forks is committed in them, and the target moves once, to the last commit.

mod moving;
mod sides;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::sides::{Source, default_target, find_source};
use super::buffers;
use super::target::{self, Holder, Target, find_target, while_it_moves};
use super::turns::{slots_of, turns_of};
use super::work::refuse_taking_back;
use crate::attr::Timestamp;
use crate::change::commit::refuse_moved_under;
use crate::change::compare::compare_trees;
use crate::change::going_back::{taken_back, went_back_to};
use crate::change::merge::{MergeSpec, Planned, Tip, plan};
use crate::change::review::{ConflictRecord, ReviewRecord, ReviewState, ReviewedMerge};
use crate::change::{ChangeError, Point, rerere};
use crate::daemon::failure::{ErrorCode, Failure};
use crate::daemon::points::ResolvedPoint;
use crate::daemon::policy::Signers;
use crate::daemon::protocol::{
    AgentTexts, Answer, Merge, MergeRequest, MergeStatus, MergedHow, MergedSource, Response, ReviewWish,
};
use crate::daemon::report;
use crate::daemon::slots::{Daemon, Slot, Turn};
use crate::git::{CommitSpec, Identity, ObjectId, Repository};
use crate::merge::{Conflict, MergeOptions};
use crate::workspace::store::Lease;
use crate::workspace::{By, ForkName, StoreError};

/// Merges what `request` says, or says what would come of it.
pub fn merge(daemon: &Arc<Daemon>, by: By<'_>, request: &MergeRequest, signers: &Signers) -> Response {
    merge_with(daemon, by, request, signers, None).map(|merge| Answer::Merge(Box::new(merge)))
}

/// The fork or branch that `word` names, so that it means one thing from here on.
pub fn target_called(daemon: &Arc<Daemon>, word: &str) -> Result<String, Failure> {
    Ok(find_target(daemon, &daemon.repository_now()?, word)?.to_string())
}

/// As [`merge`], with the resolutions of a review.
pub fn merge_with(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    request: &MergeRequest,
    signers: &Signers,
    review: Option<&ReviewRecord>,
) -> Result<Merge, Failure> {
    while_it_moves(|| Merging::begin(daemon, by, request, signers, review)?.run())
}

/// One source, planned.
struct PlannedSource {
    line: MergedSource,
    /// What was uncommitted in a fork, as the commit that it is to become.
    uncommitted: Option<(ForkName, ObjectId)>,
    theirs: Tip,
}

struct Merging<'a> {
    daemon: &'a Arc<Daemon>,
    by: By<'a>,
    request: &'a MergeRequest,
    signers: &'a Signers,
    /// What is to become of conflicts.
    review: Option<&'a ReviewRecord>,
    repository: Repository,
    holder: Holder,
    sources: Vec<Source>,
    slots: BTreeMap<ForkName, Arc<Slot>>,
}

impl<'a> Merging<'a> {
    fn begin(
        daemon: &'a Arc<Daemon>,
        by: By<'a>,
        request: &'a MergeRequest,
        signers: &'a Signers,
        review: Option<&'a ReviewRecord>,
    ) -> Result<Merging<'a>, Failure> {
        if request
            .message
            .as_ref()
            .is_some_and(|message| message.trim().is_empty())
        {
            return Err(ChangeError::EmptyMessage.into());
        }
        let repository = daemon.repository_now()?;
        let mut sources = Vec::new();
        for word in &request.sources {
            sources.push(find_source(daemon, &repository, request, word)?);
        }
        let holder = find_holder(daemon, &repository, request, &sources)?;
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
            request,
            signers,
            review,
            repository,
            holder,
            sources,
            slots,
        })
    }

    fn run(&self) -> Result<Merge, Failure> {
        let merge = {
            let turns = self.turns()?;
            let _lease = match self.request.dry_run {
                true => None,
                false => Some(self.lease(&turns)?),
            };
            self.run_with_agent_texts(&turns)?
        };
        if merge.after != merge.before && !merge.dry_run {
            Target::after(&self.repository, &self.holder);
        }
        Ok(self.delete_merged(merge))
    }

    /// The turns of all forks that this is about.
    fn turns(&self) -> Result<BTreeMap<ForkName, Turn<'_>>, Failure> {
        let turns = turns_of(self.daemon, &self.slots)?;
        for turn in turns.values() {
            turn.settle(&self.repository, &*turn.open_existing()?)?;
        }
        Ok(turns)
    }

    /// Takes the leases of the target's branch and checkout, and of the branches of all forks that this is about.
    fn lease(&self, turns: &BTreeMap<ForkName, Turn<'_>>) -> Result<Lease<'_>, Failure> {
        let (daemon, repository) = (self.daemon, &self.repository);
        let turns: Vec<&Turn<'_>> = turns.values().collect();
        target::lease(
            daemon,
            repository,
            &self.request.command,
            &self.holder,
            &turns,
            || find_holder(daemon, repository, self.request, &self.sources),
        )
    }

    /// What agents wrote to open buffers of the sources is theirs to merge; a dry run names it.
    fn run_with_agent_texts(&self, turns: &BTreeMap<ForkName, Turn<'_>>) -> Result<Merge, Failure> {
        let mut sources: Vec<&ForkName> = Vec::new();
        for source in &self.sources {
            match &source.point {
                Point::Fork(fork) if !matches!(&self.holder, Holder::Fork(target) if target == fork) => {
                    sources.push(fork);
                }
                _ => {}
            }
        }
        let mut found: Vec<(String, AgentTexts)> = Vec::new();
        let mut merge = match self.request.dry_run {
            true => {
                for fork in sources {
                    let left_out = buffers::in_buffers_only(self.daemon, fork);
                    let texts = AgentTexts {
                        brought: Vec::new(),
                        left_out: left_out.iter().map(Into::into).collect(),
                    };
                    found.push((Point::Fork(fork.clone()).to_string(), texts));
                }
                self.run_in(turns)?
            }
            false => self.run_when_brought(turns, &sources, &mut found)?,
        };
        for source in &mut merge.sources {
            let of_source = found.iter().find(|(point, _)| *point == source.source.point);
            source.agent_texts = of_source.map(|(_, texts)| texts.clone()).unwrap_or_default();
        }
        Ok(merge)
    }

    fn run_when_brought(
        &self,
        turns: &BTreeMap<ForkName, Turn<'_>>,
        sources: &[&ForkName],
        found: &mut Vec<(String, AgentTexts)>,
    ) -> Result<Merge, Failure> {
        let Some((fork, others)) = sources.split_first() else {
            return self.run_in(turns);
        };
        let (merge, texts) = buffers::with_agent_texts(turn_of(turns, fork)?, || {
            self.run_when_brought(turns, others, found)
        })?;
        found.push((Point::Fork((*fork).clone()).to_string(), texts));
        Ok(merge)
    }

    fn run_in(&self, turns: &BTreeMap<ForkName, Turn<'_>>) -> Result<Merge, Failure> {
        if let Holder::Fork(fork) = &self.holder {
            let open = turn_of(turns, fork)?.open()?;
            if let Some(operation) = open.worktree.operation_in_progress() {
                return Err(ChangeError::OperationInProgress(operation).into());
            }
            refuse_moved_under(&self.repository, &open)?;
        }
        let before = self.target_tip(turns)?;
        let mut tip = before;
        let mut sources: Vec<PlannedSource> = Vec::new();
        let mut conflicts: Vec<Conflict> = Vec::new();
        for source in &self.sources {
            let (planned, next, found) = self.plan_source(turns, source, tip)?;
            sources.push(planned);
            conflicts = found;
            if !conflicts.is_empty() {
                break;
            }
            tip = next;
        }
        let is_looked_at = self.request.review == ReviewWish::Always
            && matches!(sources.as_slice(), [source] if source.line.how == MergedHow::MergeCommit);
        if is_looked_at || !conflicts.is_empty() && self.request.all_or_nothing {
            tip = before;
        }
        let status = match (conflicts.is_empty(), tip == before) {
            (false, _) => MergeStatus::Conflicts,
            (true, _) if is_looked_at => MergeStatus::Reviewed,
            (true, true) => MergeStatus::NothingToMerge,
            (true, false) => MergeStatus::Merged,
        };
        if self.request.markers && !conflicts.is_empty() {
            self.prepare_for_markers(turns, &sources)?;
        }
        if tip != before && !self.request.allow_revert {
            self.refuse_taking_back(before, tip)?;
        }
        let snapshot = match tip == before {
            true => None,
            false => self.move_target(turns, &sources, before, tip)?,
        };
        for source in &mut sources {
            // Nothing became of what was only planned.
            if self.request.dry_run || tip == before || source.line.commit.is_none() {
                source.line.committed = None;
            }
        }
        let review = match sources.last() {
            Some(source)
                if is_looked_at || self.request.review != ReviewWish::Never && !conflicts.is_empty() =>
            {
                Some(self.keep_review(source, tip, &conflicts)?)
            }
            _ => None,
        };
        let changes = compare_trees(&self.repository, before.tree_id, tip.tree_id)?;
        let hex = |tip: Tip| tip.commit_id.map(|id| id.to_string());
        Ok(Merge {
            status,
            dry_run: self.request.dry_run,
            target: self.target_line(turns)?,
            before: hex(before),
            after: hex(tip),
            sources: sources.into_iter().map(|source| source.line).collect(),
            conflicts: conflicts.iter().map(ConflictRecord::of).collect(),
            review,
            changes: changes.iter().map(report::change_line).collect(),
            snapshot,
        })
    }

    /// Refuses where a source fork went back past commits that the target has, and the merge would take those back.
    fn refuse_taking_back(&self, before: Tip, after: Tip) -> Result<(), Failure> {
        let Some(from) = before.commit_id else {
            return Ok(());
        };
        for source in &self.sources {
            let Point::Fork(fork) = &source.point else {
                continue;
            };
            let record = self.daemon.store.record(fork)?;
            if let Some(then) = went_back_to(&record)? {
                let paths = taken_back(&self.repository, &record, then, from, after.tree_id)?;
                refuse_taking_back(paths, "the merge")?;
            }
        }
        Ok(())
    }

    /// Keeps the merge of `source` into `ours` as a review; its number.
    fn keep_review(&self, source: &PlannedSource, ours: Tip, conflicts: &[Conflict]) -> Result<u64, Failure> {
        let request = self.request;
        let merge = ReviewedMerge {
            source: source.line.source.point.clone(),
            into: self.holder.to_string(),
            here: request.here.clone(),
            git_dir: request.git_dir.clone(),
            base: match &request.base {
                Some(word) => Some(self.base_of(word)?.to_string()),
                None => None,
            },
            level: request.level,
            strategy: request.strategy,
            fast_forward: request.fast_forward,
            allow_unrelated: request.allow_unrelated,
            delete: request.delete,
            message: request.message.clone(),
        };
        let store = &self.daemon.store;
        let mut record = ReviewRecord {
            id: 0,
            created_secs: Timestamp::now().secs,
            state: ReviewState::Open,
            merge,
            work: None,
            ours_commit: ours.commit_id.map(|id| id.to_string()),
            theirs_commit: source.theirs.commit_id.map(|id| id.to_string()),
            theirs_tree: source.theirs.tree_id.to_string(),
            conflicts: conflicts.iter().map(ConflictRecord::of).collect(),
            verdict: None,
            amendments: Vec::new(),
            commit: None,
        };
        if let Err(error) = rerere::recall(store, &self.repository, &mut record) {
            log::warn!("what git remembers is not used: {error}");
        }
        let what = format!("{} into {}", record.merge.source, record.merge.into);
        let id = record.add(store, &self.repository)?;
        log::info!("review {id}: {what}");
        Ok(id)
    }

    /// Plans one source on top of `ours`: what is to be told of it, where the target would be, and the conflicts.
    fn plan_source(
        &self,
        turns: &BTreeMap<ForkName, Turn<'_>>,
        source: &Source,
        ours: Tip,
    ) -> Result<(PlannedSource, Tip, Vec<Conflict>), Failure> {
        let request = self.request;
        let (theirs, uncommitted) = self.source_tip(turns, source)?;
        let spec = MergeSpec {
            base: match &request.base {
                Some(word) => Some(self.base_of(word)?),
                None => None,
            },
            options: MergeOptions {
                level: request.level,
                strategy: request.strategy,
                ..MergeOptions::default()
            },
            fast_forward: request.fast_forward,
            allow_unrelated: request.allow_unrelated,
        };
        let mut line = MergedSource {
            source: (&ResolvedPoint {
                point: source.point.clone(),
                tree_id: theirs.tree_id,
                commit_id: theirs.commit_id,
                others: source.others.clone(),
            })
                .into(),
            how: MergedHow::Contained,
            commit: None,
            committed: uncommitted.as_ref().map(|(_, commit_id)| commit_id.to_string()),
            settled: Vec::new(),
            deleted_fork: None,
            deleted_branch: None,
            not_deleted: None,
            agent_texts: AgentTexts::default(),
        };
        let mut next = ours;
        let mut conflicts = Vec::new();
        let mut planned = plan(&self.repository, &ours, &theirs, &spec)?;
        if let Some(review) = self.review {
            planned = match planned {
                Planned::Merged(outcome) if review.moved(&ours, &theirs).is_empty() => {
                    Planned::Merged(review.put_into(&self.repository, outcome)?)
                }
                _ => return Err(outdated(review)),
            };
        }
        match planned {
            Planned::Contained => {}
            Planned::FastForward(commit_id) => {
                line.how = MergedHow::FastForward;
                next = theirs;
                next.commit_id = Some(commit_id);
            }
            Planned::Merged(outcome) if outcome.conflicts.is_empty() => {
                line.how = MergedHow::MergeCommit;
                line.settled = outcome.settled.iter().map(ConflictRecord::of).collect();
                next = Tip {
                    tree_id: outcome.tree_id,
                    commit_id: Some(self.repository.write_commit(&CommitSpec {
                        tree_id: outcome.tree_id,
                        parent_ids: ours.commit_id.into_iter().chain(theirs.commit_id).collect(),
                        message: self.message(turns, source, theirs)?.into(),
                        author: self.signers.author.clone(),
                        committer: self.signers.committer.clone(),
                    })?),
                };
            }
            Planned::Merged(outcome) => {
                line.how = MergedHow::Conflicts;
                line.settled = outcome.settled.iter().map(ConflictRecord::of).collect();
                conflicts = outcome.conflicts;
            }
        }
        if next != ours {
            line.commit = next.commit_id.map(|id| id.to_string());
        }
        let planned = PlannedSource {
            line,
            uncommitted,
            theirs,
        };
        Ok((planned, next, conflicts))
    }

    fn base_of(&self, word: &str) -> Result<ObjectId, Failure> {
        let (tree_id, commit_id) = self.repository.resolve_tree(&self.request.git_dir, word)?;
        Ok(commit_id.unwrap_or(tree_id))
    }

    /// What was asked for, else as git words it; and what is to be said of resolutions.
    fn message(
        &self,
        turns: &BTreeMap<ForkName, Turn<'_>>,
        source: &Source,
        theirs: Tip,
    ) -> Result<String, Failure> {
        let message = match &self.request.message {
            Some(message) => message.clone(),
            None => self.default_message(turns, source, theirs)?,
        };
        Ok(match self.review.map(ReviewRecord::trailers) {
            Some(trailers) if !trailers.is_empty() => format!("{message}\n\n{trailers}\n"),
            _ => message,
        })
    }

    fn default_message(
        &self,
        turns: &BTreeMap<ForkName, Turn<'_>>,
        source: &Source,
        theirs: Tip,
    ) -> Result<String, Failure> {
        let what = match &source.point {
            Point::Fork(fork) => format!("fork '{fork}'"),
            Point::SnapshotOf(fork, snapshot) => format!("snapshot '{snapshot}' of '{fork}'"),
            Point::Snapshot(snapshot) => format!("snapshot '{snapshot}'"),
            Point::Pristine => "the base".to_owned(),
            Point::Revision(revision) if self.is_branch(revision) => format!("branch '{revision}'"),
            Point::Revision(revision) => match theirs.commit_id {
                Some(_) => format!("commit '{revision}'"),
                None => format!("tree '{revision}'"),
            },
        };
        Ok(match self.target_line(turns)?.branch {
            // As `merge.suppressDest` has it by default.
            Some(branch) if branch != "master" => format!("Merge {what} into {branch}"),
            _ => format!("Merge {what}"),
        })
    }
}

/// What is merged into.
fn find_holder(
    daemon: &Daemon,
    repository: &Repository,
    request: &MergeRequest,
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

pub fn outdated(review: &ReviewRecord) -> Failure {
    Failure::new(
        ErrorCode::ReviewOutdated,
        format!(
            "{} or {} has moved on since review {} was planned",
            review.merge.into, review.merge.source, review.id
        ),
    )
    .hint(format!(
        "`tine review refresh {}` plans it again; resolutions of conflicts that are the same stay",
        review.id
    ))
}

/// Both sides as they are now: the target's, and that of the only source.
pub fn sides(daemon: &Arc<Daemon>, by: By<'_>, request: &MergeRequest) -> Result<(Tip, Tip), Failure> {
    looking(daemon, by, request, |merging, turns, source| {
        Ok((merging.target_tip(turns)?, merging.source_view(turns, source)?.0))
    })
}

/// Both sides as they are now, and the conflicts that they have; `None` where no merge commit would be made of them.
pub fn replan(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    request: &MergeRequest,
) -> Result<(Tip, Tip, Option<Vec<Conflict>>), Failure> {
    looking(daemon, by, request, |merging, turns, source| {
        let ours = merging.target_tip(turns)?;
        let (planned, _, conflicts) = merging.plan_source(turns, source, ours)?;
        let is_merge = matches!(planned.line.how, MergedHow::MergeCommit | MergedHow::Conflicts);
        Ok((ours, planned.theirs, is_merge.then_some(conflicts)))
    })
}

/// Calls `look` with the turns of all forks that the request is about.
fn looking<T>(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    request: &MergeRequest,
    look: impl FnOnce(&Merging<'_>, &BTreeMap<ForkName, Turn<'_>>, &Source) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // What it commits, nobody sees.
    let signers = Signers {
        author: Some(Identity::tine()),
        committer: Some(Identity::tine()),
    };
    let merging = Merging::begin(daemon, by, request, &signers, None)?;
    let Some(source) = merging.sources.first() else {
        return Err(Failure::new(ErrorCode::Usage, "no source is named")
            .hint("name what to merge: `tine merge FORK`"));
    };
    let turns = merging.turns()?;
    look(&merging, &turns, source)
}

fn turn_of<'t, 's>(
    turns: &'t BTreeMap<ForkName, Turn<'s>>,
    fork: &ForkName,
) -> Result<&'t Turn<'s>, Failure> {
    turns
        .get(fork)
        .ok_or_else(|| StoreError::NoSuchFork(fork.to_string()).into())
}
