//! Executes a planned merge: commits in sources, the target's move, and removal of sources.

use super::sides::Source;
use super::{Merging, PlannedSource, Position};
use crate::failure::{ErrorCode, Failure};
use crate::locks::{self, Guards};
use crate::policy::{stays_committed, work_message};
use crate::protocol::{MergeStatus, Merged, MergedSource};
use crate::state::slots::ForkGuard;
use crate::target::Holder;
use tine_change::advance::{Step, UpdateStep};
use tine_change::fork_point::fork_point;
use tine_change::revert_guard::RevertRecords;
use tine_change::{ChangeError, CommitOptions, Point, branches, commit};
use tine_git::{GitError, ObjectId};
use tine_store::LeaseKey;
use tine_store::{ForkName, SnapshotReason};
use tine_workspace::OperationKind;

impl Merging<'_> {
    /// Commits uncommitted changes of the conflicting source, for a merge with markers.
    ///
    /// git can then merge it in the mounted target.
    pub(super) fn prepare_for_markers(
        &self,
        guards: &Guards<'_>,
        sources: &[PlannedSource],
    ) -> Result<(), Failure> {
        let is_mounted = match &self.holder {
            Holder::Fork(fork) => guards.get(fork)?.is_mounted(),
            Holder::Branch(_) | Holder::Checkout(..) => false,
        };
        if !is_mounted {
            let failure = Failure::new(
                ErrorCode::NotMounted,
                "markers need a fork that is mounted to merge into",
            );
            return Err(match &self.holder {
                Holder::Fork(fork) => {
                    failure.hint(format!("`tine mount {fork}`, or `--review` instead"))
                }
                Holder::Branch(_) | Holder::Checkout(..) => {
                    failure.hint("name a fork that is mounted with `--into`, or `--review` instead")
                }
            });
        }
        if let Some((fork, planned)) = sources
            .last()
            .and_then(|source| source.uncommitted.as_ref())
        {
            self.commit_source(guards.get(fork)?, *planned)?;
        }
        Ok(())
    }

    /// Commits the sources' uncommitted changes, and moves the target.
    ///
    /// Returns the snapshot of a fork's state before. A dry run only checks whether the move is
    /// possible.
    pub(super) fn move_target(
        &self,
        guards: &Guards<'_>,
        sources: &[PlannedSource],
        before: Position,
        after: Position,
    ) -> Result<Option<ForkName>, Failure> {
        let Some(to) = after.tip.commit_id else {
            return Err(Failure::new(ErrorCode::Internal, "a merge made no commit"));
        };
        let mut step = Step {
            from: before.tip.commit_id,
            to,
            update: None,
            switch: None,
            index: None,
            reflog: self.by.command.to_owned(),
            kind: OperationKind::Merge,
            undoes: None,
        };
        let target = self.target(guards)?;
        let ready = match (target.check(&step), before.view, after.view) {
            (Err(failure), Some(view_from), Some(view_to))
                if failure.code == ErrorCode::LocalChanges =>
            {
                let point = self.recorded_fork_point(guards, before)?;
                step.update = Some(UpdateStep {
                    view_from,
                    view_to,
                    point_from: point,
                    point_to: point,
                });
                target.check(&step)?
            }
            (checked, ..) => checked?,
        };
        if self.request.dry_run {
            return Ok(None);
        }
        let merged = sources.iter().filter(|source| source.line.commit.is_some());
        let mut committed = Vec::new();
        let commit_and_go = || {
            for (fork, planned) in merged.filter_map(|source| source.uncommitted.as_ref()) {
                self.commit_source(guards.get(fork)?, *planned)?;
                committed.push((fork, *planned));
            }
            target.go(ready, &step, SnapshotReason::BeforeMerge)
        };
        let moved = commit_and_go();
        moved.map_err(|failure| {
            let committed = committed.into_iter();
            committed.fold(failure, |failure, (fork, commit_id)| {
                failure.cause(stays_committed(fork.as_str(), &commit_id.to_string()))
            })
        })
    }

    /// Returns the target's recorded fork point, which a merge keeps.
    fn recorded_fork_point(
        &self,
        guards: &Guards<'_>,
        before: Position,
    ) -> Result<Option<ObjectId>, Failure> {
        let Holder::Fork(fork) = &self.holder else {
            return Ok(None);
        };
        let record = guards.get(fork)?.record()?;
        Ok(fork_point(&self.repository, &record, before.tip.commit_id)?)
    }

    /// Commits uncommitted changes of a fork.
    ///
    /// Fails with `ref-moved` if the commit is not the planned one, so that the merge is planned
    /// again.
    pub(super) fn commit_source(
        &self,
        guard: &ForkGuard<'_>,
        planned: ObjectId,
    ) -> Result<(), Failure> {
        let name = guard.name();
        let options = CommitOptions {
            message: work_message(name),
            author: self.signers.author.clone(),
            committer: self.signers.committer.clone(),
            // The whole merge was already checked for commits that it takes back.
            reverts: RevertRecords::default(),
        };
        let made = match commit::commit(&self.repository, name, &*guard.open()?, &options) {
            Ok(made) => made,
            // The changes were taken back meanwhile.
            Err(ChangeError::NothingToCommit) => {
                return Err(GitError::RefMoved {
                    name: name.to_string(),
                }
                .into());
            }
            Err(error) => return Err(error.into()),
        };
        guard.note_settled(&made);
        if made.commit_id == planned {
            return Ok(());
        }
        Err(GitError::RefMoved {
            name: name.to_string(),
        }
        .into())
    }

    /// Removes the merged sources if the request says so. The merge stays even if this fails.
    pub(super) fn delete_merged(&self, mut merge: Merged) -> Merged {
        let is_kept =
            !self.request.delete || self.request.dry_run || merge.status != MergeStatus::Merged;
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

    pub(super) fn delete_source(
        &self,
        line: &mut MergedSource,
        source: &Source,
    ) -> Result<(), Failure> {
        let branch = match &source.point {
            Point::Fork(fork) => {
                let worktree = self.daemon.store.worktree_of(fork)?;
                let head = self.repository.head_of(worktree.git_dir())?;
                let branch = head.short_branch().map(str::to_owned);
                crate::deleting::delete(
                    self.daemon,
                    fork,
                    false,
                    self.signers.committer.clone(),
                    Some(self.by.command),
                )?;
                line.deleted_fork = Some(fork.clone());
                branch
            }
            Point::Revision(revision) if self.is_branch(revision) => Some(revision.clone()),
            _ => None,
        };
        let Some(branch) = branch else {
            return Ok(());
        };
        let _lease = locks::lease(self.daemon, self.by.command, || {
            Ok(vec![LeaseKey::Branch(branch.clone())])
        })?;
        match self.repository.branch(&branch)? {
            // The branch was deleted with its fork.
            None => line.deleted_branch = Some(branch),
            Some(tip) => {
                if let Some(at) = self.repository.checked_out_at(&branch)? {
                    return Err(GitError::BranchCheckedOut { branch, at }.into());
                }
                if line.source.commit.as_deref() == Some(tip.to_string().as_str()) {
                    // The target may be gone by now, or moved back.
                    branches::remove(&self.daemon.store, &self.repository, (&branch, tip), None)?;
                    line.deleted_branch = Some(branch);
                }
            }
        }
        Ok(())
    }
}
