//! Going back to an earlier state of a fork, or to another fork's, without taking back what others have committed since.
//!
//! A state is a tree over the HEAD that it was at. Where HEAD has commits of others that the state lacks (an update, a merge, another
//! branch), the state's tree would take them back. What the state has of its own, its tree against its HEAD, goes onto the present HEAD
//! instead, as a merge.

use std::collections::BTreeSet;

use super::compare::compare_trees;
use super::point::damaged;
use super::{ChangeError, snapshots};
use crate::git::{Head, ObjectId, Repository};
use crate::path::RepoPath;
use crate::workspace::{ForkName, ForkRecord, SnapshotRecord, Store};

/// The HEAD that a state is of.
#[derive(Debug, Clone)]
pub struct Then {
    pub head: Option<ObjectId>,
    pub branch: Option<String>,
    /// Whether it is a state of the fork that goes back.
    pub is_own: bool,
}

/// What HEAD has that a state lacks.
#[derive(Debug, Clone)]
pub struct Since {
    /// HEAD of the state.
    pub then: ObjectId,
    /// What the state has of its own, it has against this tree.
    pub base_tree: ObjectId,
    /// The commits of others that the state's tree would take back, the newest first.
    pub left_out: Vec<ObjectId>,
}

impl Then {
    /// The HEAD that a snapshot of the fork `of` was taken at.
    pub fn of_snapshot(
        fork: &ForkName,
        of: &ForkName,
        snapshot: &SnapshotRecord,
    ) -> Result<Then, ChangeError> {
        Ok(Then {
            head: snapshots::head_commit(of, snapshot)?,
            branch: snapshot.branch.clone(),
            is_own: fork == of,
        })
    }

    /// What the present HEAD of the fork has that this state lacks; `None` where only the fork's own commits lie between them: those
    /// stay reachable, and the state's tree is what is meant.
    pub fn since(
        &self,
        store: &Store,
        repository: &Repository,
        record: &ForkRecord,
        head: &Head,
    ) -> Result<Option<Since>, ChangeError> {
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
        let base = match self.is_own {
            true => Some(then),
            false => repository.merge_bases(then, now)?.first().copied(),
        };
        let base_tree = match base {
            Some(base) => repository.commit_info(base)?.tree_id,
            None => repository.empty_tree_id(),
        };
        Ok(Some(Since {
            then,
            base_tree,
            left_out,
        }))
    }

    /// The branches whose commits are nobody else's: the fork's, and those of forks that began as it.
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
            // It was put on another branch since, whose commits it did not make.
            Some(then) if self.is_own && now != Some(then) && repository.branch(then)?.is_some() => {
                own.push(then.clone());
            }
            _ => {
                own.push(record.branch.clone());
                own.extend(now.map(str::to_owned));
            }
        }
        for child in store.records().0 {
            if child.parent.is_some_and(|parent| parent.fork == record.name) {
                own.push(child.branch);
                own.extend(child.head_branch);
            }
        }
        Ok(own)
    }
}

/// The tree `from` with what `to` has at `paths` and beneath; without paths `to`.
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
    let edits: Vec<_> = asked.map(super::Change::edit).collect();
    Ok(repository.edit_tree(from, &edits)?)
}

/// Paths that are in the tree `to` as at the commit `then`, before others committed what `from` has: `to` would take their commits back
/// there. The fork itself left them out when it went back to `then`.
pub fn taken_back(
    repository: &Repository,
    record: &ForkRecord,
    then: ObjectId,
    from: ObjectId,
    to: ObjectId,
) -> Result<Vec<RepoPath>, ChangeError> {
    let mut own = vec![record.branch.clone()];
    own.extend(record.head_branch.clone());
    let mut touched = BTreeSet::new();
    for id in repository.commits_of_others(from, then, &own)? {
        let info = repository.commit_info(id)?;
        let before = match info.parent_ids.as_slice() {
            [] => repository.empty_tree_id(),
            [parent_id] => repository.commit_info(*parent_id)?.tree_id,
            // What a merge brings its parents' commits have.
            _ => continue,
        };
        let changes = compare_trees(repository, before, info.tree_id)?;
        touched.extend(changes.into_iter().map(|change| change.path));
    }
    let then_tree = repository.commit_info(then)?.tree_id;
    let differs: BTreeSet<RepoPath> = compare_trees(repository, then_tree, to)?
        .into_iter()
        .map(|change| change.path)
        .collect();
    let from_tree = repository.commit_info(from)?.tree_id;
    let changed = compare_trees(repository, from_tree, to)?;
    Ok(changed
        .into_iter()
        .map(|change| change.path)
        .filter(|path| touched.contains(path) && !differs.contains(path))
        .collect())
}

/// The commit that the fork went back to while HEAD had commits of others, if it did.
pub fn went_back_to(record: &ForkRecord) -> Result<Option<ObjectId>, ChangeError> {
    let id = |hex: &String| ObjectId::from_hex(hex.as_bytes()).map_err(damaged(&record.name));
    record.went_back_to.as_ref().map(id).transpose()
}
