//! Merging forks, snapshots, branches, commits and trees into a fork or a branch.
//!
//! Everything is planned first, one source after another, each on the commit that the one before would lead to. A dry run ends
//! there. Then what is uncommitted in source forks is committed in them, and the target moves once, to the last commit.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::attr::Timestamp;
use crate::change::advance::{self, Step};
use crate::change::changeset::{self, Blobs};
use crate::change::compare::compare_trees;
use crate::change::merge::{MergeSpec, Planned, Tip, plan};
use crate::change::review::{ConflictRecord, ReviewRecord, ReviewState, ReviewedMerge};
use crate::change::{ChangeError, CommitOptions, FoundPoint, Point, PointTree, commit, rerere, snapshots};
use crate::daemon::failure::{ErrorCode, Failure};
use crate::daemon::points::ResolvedPoint;
use crate::daemon::policy::Signers;
use crate::daemon::protocol::{
    Answer, Merge, MergeRequest, MergeStatus, MergeTarget, MergedHow, MergedSource, Response, ReviewWish,
};
use crate::daemon::report;
use crate::daemon::slots::{Daemon, Slot, Turn};
use crate::git::{CommitSpec, CommitTime, GitError, Head, Identity, ObjectId, Repository};
use crate::merge::{Conflict, MergeOptions};
use crate::workspace::store::Shelf;
use crate::workspace::{By, ForkName, OperationKind, SnapshotOptions, SnapshotReason, StoreError};

/// How often it is planned again where somebody else moves a side meanwhile.
const ATTEMPTS: usize = 4;

/// Merges what `request` says, or says what would come of it.
pub fn merge(daemon: &Arc<Daemon>, by: By<'_>, request: &MergeRequest, signers: &Signers) -> Response {
    merge_with(daemon, by, request, signers, None)
}

/// As [`merge`], with the resolutions of a review.
pub fn merge_with(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    request: &MergeRequest,
    signers: &Signers,
    review: Option<&ReviewRecord>,
) -> Response {
    let mut attempt = 1;
    loop {
        match Merging::begin(daemon, by, request, signers, review)?.run() {
            Err(failure) if failure.code == ErrorCode::RefMoved && attempt < ATTEMPTS => {
                log::info!("planned again: {failure}");
                attempt += 1;
            }
            outcome => return outcome.map(|merge| Answer::Merge(Box::new(merge))),
        }
    }
}

/// Where the target is.
#[derive(Debug, Clone)]
enum Holder {
    /// In nobody's checkout.
    Branch(String),
    /// In one that is no fork's.
    Checkout(String, PathBuf),
    /// A fork, wherever its HEAD is.
    Fork(ForkName),
}

/// A source as it was named.
struct Source {
    point: Point,
    tree: PointTree,
    others: Vec<Point>,
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
        let holder = match (&request.into, &request.here, sources.first()) {
            (Some(word), ..) => find_target(daemon, &repository, word)?,
            (None, Some(here), _) => Holder::Fork(here.clone()),
            (None, None, Some(source)) => default_target(daemon, &repository, source)?,
            (None, None, None) => {
                return Err(Failure::new(ErrorCode::Usage, "no source is named").hint("`tine help merge`"));
            }
        };
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
        let slots = forks
            .into_iter()
            .map(|fork| {
                let slot = daemon.slot(&fork);
                (fork, slot)
            })
            .collect();
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
            self.run_in(&turns)?
        };
        Ok(self.delete_merged(merge))
    }

    /// The turns of all forks that this is about: in the order of their names, so that two requests never wait for each other.
    fn turns(&self) -> Result<BTreeMap<ForkName, Turn<'_>>, Failure> {
        let mut turns = BTreeMap::new();
        for (name, slot) in &self.slots {
            let turn = self.daemon.turn(slot)?;
            turn.settle(&self.repository, &*turn.open_existing()?)?;
            turns.insert(name.clone(), turn);
        }
        Ok(turns)
    }

    fn run_in(&self, turns: &BTreeMap<ForkName, Turn<'_>>) -> Result<Merge, Failure> {
        if let Holder::Fork(fork) = &self.holder
            && let Some(operation) = turn_of(turns, fork)?.open()?.worktree.operation_in_progress()
        {
            return Err(ChangeError::OperationInProgress(operation).into());
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

    /// Commits what is uncommitted in the source that conflicts with a mounted target, so that git can merge it there.
    fn prepare_for_markers(
        &self,
        turns: &BTreeMap<ForkName, Turn<'_>>,
        sources: &[PlannedSource],
    ) -> Result<(), Failure> {
        let is_mounted = match &self.holder {
            Holder::Fork(fork) => turn_of(turns, fork)?.is_mounted(),
            Holder::Branch(_) | Holder::Checkout(..) => false,
        };
        if !is_mounted {
            return Err(Failure::new(
                ErrorCode::NotMounted,
                "markers need a fork that is mounted to merge into",
            )
            .hint("`tine mount FORK`, and `--into FORK`; or `--review` instead"));
        }
        if let Some((fork, planned)) = sources.last().and_then(|source| source.uncommitted.as_ref()) {
            self.commit_source(turn_of(turns, fork)?, *planned)?;
        }
        Ok(())
    }

    /// Keeps the merge of `source` into `ours` as a review; its number.
    fn keep_review(&self, source: &PlannedSource, ours: Tip, conflicts: &[Conflict]) -> Result<u64, Failure> {
        let request = self.request;
        let merge = ReviewedMerge {
            source: source.line.source.point.clone(),
            into: match &self.holder {
                Holder::Fork(fork) => format!("fork:{fork}"),
                Holder::Branch(branch) | Holder::Checkout(branch, _) => format!("branch:{branch}"),
            },
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
        let mut record = store.add_document(Shelf::Reviews, |id| ReviewRecord {
            id,
            created_secs: Timestamp::now().secs,
            state: ReviewState::Open,
            merge,
            ours_commit: ours.commit_id.map(|id| id.to_string()),
            theirs_commit: source.theirs.commit_id.map(|id| id.to_string()),
            theirs_tree: source.theirs.tree_id.to_string(),
            conflicts: conflicts.iter().map(ConflictRecord::of).collect(),
            verdict: None,
            amendments: Vec::new(),
            commit: None,
        })?;
        if let Err(error) = rerere::recall(store, &self.repository, &mut record) {
            log::warn!("what git remembers is not used: {error}");
        }
        record.save(store, &self.repository)?;
        log::info!(
            "review {}: {} into {}",
            record.id,
            record.merge.source,
            record.merge.into
        );
        Ok(record.id)
    }

    /// What the target stands on. What is uncommitted in a fork is no part of it.
    fn target_tip(&self, turns: &BTreeMap<ForkName, Turn<'_>>) -> Result<Tip, Failure> {
        let commit_id = match &self.holder {
            Holder::Fork(fork) => {
                let open = turn_of(turns, fork)?.open()?;
                self.repository.head_of(open.worktree.git_dir())?.commit_id()
            }
            Holder::Branch(branch) | Holder::Checkout(branch, _) => self.repository.branch(branch)?,
        };
        Ok(Tip {
            commit_id,
            tree_id: self.tree_of(commit_id)?,
        })
    }

    fn tree_of(&self, commit_id: Option<ObjectId>) -> Result<ObjectId, Failure> {
        Ok(match commit_id {
            Some(commit_id) => self.repository.commit_info(commit_id)?.tree_id,
            None => self.repository.empty_tree_id(),
        })
    }

    fn target_line(&self, turns: &BTreeMap<ForkName, Turn<'_>>) -> Result<MergeTarget, Failure> {
        Ok(match &self.holder {
            Holder::Branch(branch) => MergeTarget {
                branch: Some(branch.clone()),
                fork: None,
                checkout: None,
            },
            Holder::Checkout(branch, dir) => MergeTarget {
                branch: Some(branch.clone()),
                fork: None,
                checkout: Some(dir.clone()),
            },
            Holder::Fork(fork) => {
                let open = turn_of(turns, fork)?.open()?;
                let head = self.repository.head_of(open.worktree.git_dir())?;
                MergeTarget {
                    branch: head.short_branch().map(str::to_owned),
                    fork: Some(fork.clone()),
                    checkout: None,
                }
            }
        })
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
                self.repository.sync_tree(outcome.tree_id, ours.tree_id)?;
                next = Tip {
                    tree_id: outcome.tree_id,
                    commit_id: Some(self.repository.write_commit(&CommitSpec {
                        tree_id: outcome.tree_id,
                        parent_ids: ours.commit_id.into_iter().chain(theirs.commit_id).collect(),
                        message: self.message(turns, source, theirs)?,
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

    /// What is to be merged. What is uncommitted in a fork or snapshot becomes a commit that no ref leads to yet.
    fn source_tip(
        &self,
        turns: &BTreeMap<ForkName, Turn<'_>>,
        source: &Source,
    ) -> Result<(Tip, Option<(ForkName, ObjectId)>), Failure> {
        let store = &self.daemon.store;
        match (&source.point, source.tree) {
            (Point::Fork(name), _) => {
                let open = turn_of(turns, name)?.open()?;
                let changeset = changeset::changeset(&self.repository, &open, Blobs::Write)?;
                if changeset.changes.is_empty() {
                    let tip = Tip {
                        commit_id: changeset.head_commit,
                        tree_id: changeset.head_tree,
                    };
                    return Ok((tip, None));
                }
                if let Some(operation) = open.worktree.operation_in_progress() {
                    return Err(ChangeError::OperationInProgress(operation).into());
                }
                let tree_id = changeset::write_tree(&self.repository, &changeset)?;
                let message = work_message(name);
                let commit_id = self.write_view(tree_id, changeset.head_commit, &message, None)?;
                Ok((
                    Tip {
                        commit_id: Some(commit_id),
                        tree_id,
                    },
                    Some((name.clone(), commit_id)),
                ))
            }
            (Point::SnapshotOf(fork, snapshot), _) => {
                let record = store.snapshot(fork, snapshot)?;
                let tree_id = snapshots::snapshot_tree(store, &self.repository, fork, &record)?;
                let head = match &record.head_commit {
                    Some(hex) => Some(ObjectId::from_hex(hex.as_bytes()).map_err(|error| {
                        Failure::new(
                            ErrorCode::StoreDamaged,
                            format!("the snapshot {snapshot} is damaged"),
                        )
                        .cause(error.to_string())
                        .hint("`tine doctor` shows what is whole")
                    })?),
                    None => None,
                };
                let commit_id = match self.tree_of(head)? == tree_id {
                    true => head,
                    false => {
                        let message = format!("tine: {fork} as of {snapshot}");
                        // Merged again it is the same commit, which the target has already.
                        let time = CommitTime {
                            secs: record.created_secs,
                            offset_secs: 0,
                        };
                        Some(self.write_view(tree_id, head, &message, Some(time))?)
                    }
                };
                Ok((Tip { commit_id, tree_id }, None))
            }
            (_, PointTree::Known { tree_id, commit_id }) => Ok((Tip { commit_id, tree_id }, None)),
            (point, PointTree::Unwritten) => {
                Err(Failure::new(ErrorCode::Internal, format!("{point} has no tree"))
                    .hint(crate::daemon::convert::REPORT))
            }
        }
    }

    fn write_view(
        &self,
        tree_id: ObjectId,
        head: Option<ObjectId>,
        message: &str,
        time: Option<CommitTime>,
    ) -> Result<ObjectId, Failure> {
        let at_that_time = |identity: &Option<Identity>| {
            identity.clone().map(|identity| Identity {
                time: time.or(identity.time),
                ..identity
            })
        };
        Ok(self.repository.write_commit(&CommitSpec {
            tree_id,
            parent_ids: head.into_iter().collect(),
            message: message.to_owned(),
            author: at_that_time(&self.signers.author),
            committer: at_that_time(&self.signers.committer),
        })?)
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

    fn is_branch(&self, word: &str) -> bool {
        matches!(self.repository.branch(word), Ok(Some(_)))
    }

    /// Commits what is uncommitted in the sources, and moves the target; the snapshot of what it was. In a dry run looks
    /// only whether that would do.
    fn move_target(
        &self,
        turns: &BTreeMap<ForkName, Turn<'_>>,
        sources: &[PlannedSource],
        before: Tip,
        after: Tip,
    ) -> Result<Option<ForkName>, Failure> {
        let Some(to) = after.commit_id else {
            return Err(Failure::new(ErrorCode::Internal, "a merge made no commit")
                .hint(crate::daemon::convert::REPORT));
        };
        let step = Step {
            from: before.commit_id,
            to,
            reflog: self.request.command.clone(),
            kind: OperationKind::Merge,
            undoes: None,
        };
        match &self.holder {
            Holder::Fork(fork) => {
                let open = turn_of(turns, fork)?.open()?;
                advance::preview(&self.repository, &open, &step)?;
            }
            Holder::Checkout(branch, dir) => {
                self.check_checkout(branch, dir)?;
                self.repository.check_fast_forward(dir, to)?;
            }
            Holder::Branch(_) => {}
        }
        if self.request.dry_run {
            return Ok(None);
        }
        let merged = sources.iter().filter(|source| source.line.commit.is_some());
        for (fork, planned) in merged.filter_map(|source| source.uncommitted.as_ref()) {
            self.commit_source(turn_of(turns, fork)?, *planned)?;
        }
        match &self.holder {
            Holder::Branch(branch) => {
                let Some(from) = before.commit_id else {
                    return Err(GitError::UnknownRevision(branch.clone()).into());
                };
                self.repository.move_branch(branch, from, to, &step.reflog)?;
                Ok(None)
            }
            Holder::Checkout(branch, dir) => {
                let moved = self.repository.fast_forward_checkout(dir, to, &step.reflog);
                if moved.is_err() && self.repository.branch(branch)? != before.commit_id {
                    return Err(GitError::RefMoved { name: branch.clone() }.into());
                }
                moved?;
                Ok(None)
            }
            Holder::Fork(fork) => self.advance_fork(turn_of(turns, fork)?, &step).map(Some),
        }
    }

    /// What is checked out there may be a rebase of the branch, which no merge must touch.
    fn check_checkout(&self, branch: &str, dir: &std::path::Path) -> Result<(), Failure> {
        let head = self.repository.head_of(&Repository::git_dir_at(dir)?)?;
        match head.short_branch() == Some(branch) {
            true => Ok(()),
            false => Err(GitError::BranchCheckedOut {
                branch: branch.to_owned(),
                at: dir.to_owned(),
            }
            .into()),
        }
    }

    /// Commits what is uncommitted in a fork. If that is another commit than planned, it is planned again.
    fn commit_source(&self, turn: &Turn<'_>, planned: ObjectId) -> Result<(), Failure> {
        let name = turn.name();
        let options = CommitOptions {
            message: work_message(name),
            author: self.signers.author.clone(),
            committer: self.signers.committer.clone(),
        };
        let made = match commit::commit(&self.repository, name, &*turn.open()?, &options) {
            Ok(made) => made.commit_id,
            // Somebody took it back meanwhile.
            Err(ChangeError::NothingToCommit) => {
                return Err(GitError::RefMoved {
                    name: name.to_string(),
                }
                .into());
            }
            Err(error) => return Err(error.into()),
        };
        turn.note_settled(made);
        match made == planned {
            true => Ok(()),
            false => Err(GitError::RefMoved {
                name: name.to_string(),
            }
            .into()),
        }
    }

    /// Moves a fork's HEAD and view, after a snapshot, which is given.
    fn advance_fork(&self, turn: &Turn<'_>, step: &Step) -> Result<ForkName, Failure> {
        let store = &self.daemon.store;
        let name = turn.name();
        let open = turn.open()?;
        let kept = SnapshotOptions::because(SnapshotReason::BeforeMerge);
        let before = store.take_snapshot(name, &open, &kept)?.name;
        if let Err(error) = advance::advance(store, &self.repository, name, &open, self.by, step) {
            store.remove_snapshot(name, &before)?;
            return Err(error.into());
        }
        turn.forget_settled();
        log::info!("{name}: merged, HEAD is {}; what it was is {before}", step.to);
        Ok(before)
    }

    /// Removes the sources that were merged, where that was asked for. The merge stands in any case.
    fn delete_merged(&self, mut merge: Merge) -> Merge {
        let is_kept = !self.request.delete || self.request.dry_run || merge.status != MergeStatus::Merged;
        if is_kept {
            return merge;
        }
        for (line, source) in merge.sources.iter_mut().zip(&self.sources) {
            if let Err(failure) = self.delete_source(line, source) {
                line.not_deleted = Some(failure);
            }
        }
        merge
    }

    fn delete_source(&self, line: &mut MergedSource, source: &Source) -> Result<(), Failure> {
        let branch = match &source.point {
            Point::Fork(fork) => {
                let worktree = self.daemon.store.worktree_of(fork)?;
                let head = self.repository.head_of(worktree.git_dir())?;
                let branch = head.short_branch().map(str::to_owned);
                super::forks::delete(self.daemon, fork, false, self.signers.committer.clone())?;
                line.deleted_fork = Some(fork.clone());
                branch
            }
            Point::Revision(revision) if self.is_branch(revision) => Some(revision.clone()),
            _ => None,
        };
        let Some(branch) = branch else {
            return Ok(());
        };
        match self.repository.branch(&branch)? {
            // It went with its fork.
            None => line.deleted_branch = Some(branch),
            Some(tip) => {
                if let Some(at) = self.repository.checked_out_at(&branch)? {
                    return Err(GitError::BranchCheckedOut { branch, at }.into());
                }
                if line.source.commit.as_deref() == Some(tip.to_string().as_str()) {
                    self.repository.delete_branch(&branch, tip)?;
                    line.deleted_branch = Some(branch);
                }
            }
        }
        Ok(())
    }
}

fn outdated(review: &ReviewRecord) -> Failure {
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
        Ok((merging.target_tip(turns)?, merging.source_tip(turns, source)?.0))
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
        return Err(Failure::new(ErrorCode::Usage, "no source is named"));
    };
    let turns = merging.turns()?;
    look(&merging, &turns, source)
}

/// The message of the commit that is made of what is uncommitted in a fork.
fn work_message(name: &ForkName) -> String {
    format!("tine: work in {name}")
}

fn turn_of<'t, 's>(
    turns: &'t BTreeMap<ForkName, Turn<'s>>,
    fork: &ForkName,
) -> Result<&'t Turn<'s>, Failure> {
    turns
        .get(fork)
        .ok_or_else(|| StoreError::NoSuchFork(fork.to_string()).into())
}

/// What `word` names: with a fork to speak of (the one the caller stands in, else the target) also its snapshots and base.
fn find_source(
    daemon: &Daemon,
    repository: &Repository,
    request: &MergeRequest,
    word: &str,
) -> Result<Source, Failure> {
    let spoken_of = match (&request.here, &request.into) {
        (Some(here), _) => Some(here.clone()),
        (None, Some(into)) => fork_called(daemon, into),
        (None, None) => None,
    };
    let found = match &spoken_of {
        Some(fork) => Point::find(&daemon.store, fork, word)?,
        None => Point::find_anywhere(&daemon.store, &request.git_dir, word)?,
    };
    let FoundPoint { point, tree, others } = found;
    Ok(match (point, spoken_of) {
        // Of which fork is said from here on.
        (Point::Snapshot(snapshot), Some(fork)) => Source {
            point: Point::SnapshotOf(fork, snapshot),
            tree,
            others,
        },
        // A branch that is named where the caller stands is meant as it is there.
        (Point::Revision(revision), _) => {
            let (tree_id, commit_id) = repository.resolve_tree(&request.git_dir, &revision)?;
            Source {
                point: Point::Revision(revision),
                tree: PointTree::Known { tree_id, commit_id },
                others,
            }
        }
        (point, _) => Source { point, tree, others },
    })
}

fn fork_called(daemon: &Daemon, word: &str) -> Option<ForkName> {
    let name = ForkName::parse(word.strip_prefix("fork:").unwrap_or(word)).ok()?;
    daemon.store.record(&name).is_ok().then_some(name)
}

/// What `word` names: a fork, or a branch.
fn find_target(daemon: &Daemon, repository: &Repository, word: &str) -> Result<Holder, Failure> {
    if let Some(fork) = word.strip_prefix("fork:") {
        let fork = ForkName::parse(fork)?;
        daemon.store.record(&fork)?;
        return Ok(Holder::Fork(fork));
    }
    let (branch, only_branch) = match word.strip_prefix("branch:") {
        Some(branch) => (branch, true),
        None => (word.strip_prefix("refs/heads/").unwrap_or(word), false),
    };
    if !only_branch && let Some(fork) = fork_called(daemon, word) {
        return Ok(Holder::Fork(fork));
    }
    holder_of(daemon, repository, branch)
}

/// Who has the branch checked out.
fn holder_of(daemon: &Daemon, repository: &Repository, branch: &str) -> Result<Holder, Failure> {
    if repository.branch(branch)?.is_none() {
        return Err(Failure::new(
            ErrorCode::UnknownRevision,
            format!("{branch} is no fork and no branch"),
        )
        .hint("`tine list` shows the forks, `git branch` the branches; `git branch NAME` makes one"));
    }
    let (records, _) = daemon.store.records();
    for record in records {
        let worktree = daemon.store.worktree_of(&record.name)?;
        if let Head::Branch { name, .. } = repository.head_of(worktree.git_dir())?
            && name.strip_prefix("refs/heads/") == Some(branch)
        {
            return Ok(Holder::Fork(record.name));
        }
    }
    Ok(match repository.checked_out_at(branch)? {
        Some(dir) => Holder::Checkout(branch.to_owned(), dir),
        None => Holder::Branch(branch.to_owned()),
    })
}

/// The branch that a source came from.
fn default_target(daemon: &Daemon, repository: &Repository, source: &Source) -> Result<Holder, Failure> {
    let fork = match &source.point {
        Point::Fork(fork) | Point::SnapshotOf(fork, _) => fork,
        _ => {
            return Err(Failure::new(ErrorCode::Usage, "no target is named")
                .hint("name a fork or branch: `--into TARGET`"));
        }
    };
    match daemon.store.record(fork)?.from_branch {
        Some(branch) => holder_of(daemon, repository, &branch),
        None => Err(Failure::new(
            ErrorCode::Usage,
            format!("{fork} began at a commit, and on no branch"),
        )
        .hint("name a fork or branch: `--into TARGET`")),
    }
}
