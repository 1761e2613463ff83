//! Goes back to an earlier state without taking back others' commits.
//!
//! The state is of the same fork or of another. It is a tree over the HEAD of that time. If HEAD
//! has commits of others since (by an update, a merge or another branch), the state's tree would
//! take them back. The state's own changes, its tree against its HEAD, are merged into the present
//! HEAD instead.

use std::collections::BTreeSet;

use super::compare::compare_trees;
use super::fork_point::made_in;
use super::{Change, ChangeError, snapshots};
use tine_git::{Head, ObjectId, Repository};
use tine_path::RepoPath;
use tine_store::{ForkName, ForkRecord, SnapshotRecord, Store};

/// HEAD of a state.
#[derive(Debug, Clone)]
pub struct StateHead {
    /// Commit of that HEAD; `None` on an unborn branch.
    pub head: Option<ObjectId>,
    /// Short name of its branch; `None` if HEAD was detached.
    pub branch: Option<String>,
    /// True if the state is of the fork that goes back.
    pub is_own: bool,
}

/// Commits of HEAD that a state lacks.
#[derive(Debug, Clone)]
pub struct LackedCommits {
    /// Commit of the state's HEAD.
    pub then: ObjectId,
    /// Tree that the state's own changes are relative to.
    pub base_tree: ObjectId,
    /// Commits of others that the state lacks, the newest first.
    pub left_out: Vec<ObjectId>,
}

impl StateHead {
    /// Returns the HEAD at which a snapshot of `of` was taken.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged.
    pub fn of_snapshot(
        fork: &ForkName,
        of: &ForkName,
        snapshot: &SnapshotRecord,
    ) -> Result<StateHead, ChangeError> {
        Ok(StateHead {
            head: snapshots::head_commit(of, snapshot)?,
            branch: snapshot.branch.clone(),
            is_own: fork == of,
        })
    }

    /// Returns the commits of the fork's HEAD that this state lacks.
    ///
    /// `None` if only the fork's own commits are between them. Those stay reachable, and the user
    /// means the state's tree.
    ///
    /// # Errors
    /// [`ChangeError::Git`] if history cannot be read, [`ChangeError::Store`] if records cannot.
    pub fn since(
        &self,
        store: &Store,
        repository: &Repository,
        record: &ForkRecord,
        head: &Head,
    ) -> Result<Option<LackedCommits>, ChangeError> {
        let (Some(then), Some(now)) = (self.head, head.commit_id()) else {
            return Ok(None);
        };
        if then == now {
            return Ok(None);
        }
        let own = self.own_branches(store, repository, record, head)?;
        let left_out = repository.commits_of_others(now, then, &own)?;
        if left_out.is_empty() && repository.commits_of_others(then, now, &own)?.is_empty() {
            return Ok(None);
        }
        let base = if self.is_own {
            Some(then)
        } else {
            repository.merge_bases(then, now)?.first().copied()
        };
        let base_tree = repository.tree_of(base)?;
        Ok(Some(LackedCommits {
            then,
            base_tree,
            left_out,
        }))
    }

    /// Returns the commits of others that HEAD has since the fork point.
    ///
    /// The fork merged them. The fork point `point` has no changes of its own, so the user always
    /// means its tree.
    ///
    /// # Errors
    /// [`ChangeError::Git`] if history cannot be read, [`ChangeError::Store`] if records cannot.
    pub fn since_fork_point(
        store: &Store,
        repository: &Repository,
        record: &ForkRecord,
        head: &Head,
        point: ObjectId,
    ) -> Result<Option<LackedCommits>, ChangeError> {
        let then = StateHead {
            head: Some(point),
            branch: None,
            is_own: true,
        };
        let Some(now) = head.commit_id().filter(|now| *now != point) else {
            return Ok(None);
        };
        let own = then.own_branches(store, repository, record, head)?;
        let mut left_out = repository.commits_of_others(now, point, &own)?;
        if left_out.is_empty() {
            return Ok(None);
        }
        // Commits made here are the fork's own even if others have taken them over.
        let made_here = made_in(store.worktree_of(&record.name)?.git_dir());
        left_out.retain(|id| !made_here.contains(id));
        let since = LackedCommits {
            then: point,
            base_tree: repository.commit_info(point)?.tree_id,
            left_out,
        };
        Ok(Some(since.within(repository, &[RepoPath::root()])?)
            .filter(|since| !since.left_out.is_empty()))
    }

    /// Returns the branches whose commits are the fork's own.
    ///
    /// They are the fork's branches, and those of forks that began as it.
    fn own_branches(
        &self,
        store: &Store,
        repository: &Repository,
        record: &ForkRecord,
        head: &Head,
    ) -> Result<Vec<String>, ChangeError> {
        let now = head.short_branch();
        let mut own = Vec::new();
        match &self.branch {
            // The fork was put on another branch since, whose commits are not its own.
            Some(then)
                if self.is_own && now != Some(then) && repository.branch(then)?.is_some() =>
            {
                own.push(then.clone());
            }
            _ => {
                own.push(record.branch.clone());
                own.extend(now.map(str::to_owned));
            }
        }
        for child in store.records().0 {
            if child
                .parent
                .is_some_and(|parent| parent.fork == record.name)
            {
                own.push(child.branch);
                own.extend(child.head_branch);
            }
        }
        Ok(own)
    }
}

impl LackedCommits {
    /// Drops the commits that changed nothing at or below `paths`.
    ///
    /// # Errors
    /// [`ChangeError::Git`] if a commit cannot be read.
    pub fn within(
        mut self,
        repository: &Repository,
        paths: &[RepoPath],
    ) -> Result<LackedCommits, ChangeError> {
        let mut left_out = Vec::new();
        for id in self.left_out {
            let touched = touched_by(repository, id)?;
            if touched
                .iter()
                .any(|touched| paths.iter().any(|path| touched.starts_with(path)))
            {
                left_out.push(id);
            }
        }
        self.left_out = left_out;
        Ok(self)
    }
}

/// Returns the tree `from` with `to`'s entries at and below `paths`.
///
/// Returns `to` if `paths` is empty.
///
/// # Errors
/// [`ChangeError::Git`] if trees cannot be read or written.
pub fn at_paths(
    repository: &Repository,
    from: ObjectId,
    to: ObjectId,
    paths: &[RepoPath],
) -> Result<ObjectId, ChangeError> {
    if paths.is_empty() {
        return Ok(to);
    }
    let changes = compare_trees(repository, from, to)?;
    let asked = changes
        .iter()
        .filter(|change| paths.iter().any(|path| change.path.starts_with(path)));
    let edits: Vec<_> = asked.map(Change::edit).collect();
    Ok(repository.edit_tree(from, &edits)?)
}

/// Returns the paths that a commit changed.
///
/// Merges have none: the commits of their parents have their changes.
pub(super) fn touched_by(
    repository: &Repository,
    commit_id: ObjectId,
) -> Result<BTreeSet<RepoPath>, ChangeError> {
    let info = repository.commit_info(commit_id)?;
    let before = match info.parent_ids.as_slice() {
        [] => repository.empty_tree_id(),
        [parent_id] => repository.commit_info(*parent_id)?.tree_id,
        _ => return Ok(BTreeSet::new()),
    };
    let changes = compare_trees(repository, before, info.tree_id)?;
    Ok(changes.into_iter().map(|change| change.path).collect())
}
