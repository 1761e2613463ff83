//! Restoration of an entry's commits, and of the ancestors they need.

use std::collections::BTreeSet;

use super::{RecoverKind, Recoverable, list, parse};
use crate::ChangeError;
use tine_git::{ObjectId, Repository};

/// Writes the commits of an entry back, with their own ids.
///
/// The entry stays. Ancestors that git no longer has are taken from other entries.
///
/// # Errors
/// [`ChangeError::HistoryGone`] if an ancestor is in no entry either, or a commit of the entry is
/// lost.
pub fn write_again(repository: &Repository, found: &Recoverable) -> Result<(), ChangeError> {
    match find_ancestors(repository, found, &list(repository)?.0)? {
        AncestorSource::Found(holders) => {
            for holder in holders {
                repository.write_commits_again(holder.tree_id)?;
            }
        }
        AncestorSource::Missing(object_id) => {
            return Err(ChangeError::HistoryGone {
                id: found.id,
                object_id,
                tree_id: newest_tree(repository, found),
            });
        }
    }
    Ok(repository.write_commits_again(found.tree_id)?)
}

/// Refuses to restore a commit whose tree is lost.
///
/// # Errors
/// [`ChangeError::HistoryGone`].
pub fn require_tree(
    repository: &Repository,
    found: &Recoverable,
    commit_id: ObjectId,
) -> Result<(), ChangeError> {
    match lost_tree(repository, commit_id)? {
        None => Ok(()),
        Some(object_id) => Err(ChangeError::HistoryGone {
            id: found.id,
            object_id,
            tree_id: None,
        }),
    }
}

/// Returns the tree of a commit if it is lost.
///
/// With a promisor remote, no tree is lost.
fn lost_tree(
    repository: &Repository,
    commit_id: ObjectId,
) -> Result<Option<ObjectId>, ChangeError> {
    let tree_id = repository.commit_info(commit_id)?.tree_id;
    let is_lost = !repository.has_object(tree_id) && repository.promisor_remote().is_none();
    Ok(is_lost.then_some(tree_id))
}

/// Returns an object that `found` needs and that is lost.
///
/// It is lost if neither git nor one of `entries` has it. `None` if `found` can be restored fully.
///
/// # Errors
/// [`ChangeError::Git`] if entries or commits cannot be read.
pub fn missing(
    repository: &Repository,
    found: &Recoverable,
    entries: &[Recoverable],
) -> Result<Option<ObjectId>, ChangeError> {
    if let AncestorSource::Missing(object_id) = find_ancestors(repository, found, entries)? {
        return Ok(Some(object_id));
    }
    if let Some(tree_id) = repository.lost_tree_of(found.tree_id)? {
        return Ok(Some(tree_id));
    }
    for commit_id in needed_commits(found)? {
        if repository.has_object(commit_id)
            && let Some(tree_id) = lost_tree(repository, commit_id)?
        {
            return Ok(Some(tree_id));
        }
    }
    Ok(None)
}

/// Writes the objects of an aborted review back, from its entry.
///
/// No-op if no entry keeps the review.
///
/// # Errors
/// The errors of [`write_again`].
pub fn write_review_again(repository: &Repository, review: u64) -> Result<(), ChangeError> {
    let of_review = |found: &&Recoverable| {
        found.entry.kind == RecoverKind::Review && found.entry.number == Some(review)
    };
    match list(repository)?.0.iter().rfind(of_review) {
        Some(found) => write_again(repository, found),
        None => Ok(()),
    }
}

/// Source of the objects that an entry needs.
pub(super) enum AncestorSource<'a> {
    /// The repository or these entries have them.
    Found(Vec<&'a Recoverable>),
    /// This object is lost.
    Missing(ObjectId),
}

/// Looks for the commits of `found` and their ancestors.
///
/// They are in the repository or in `entries`, which may need further entries.
pub(super) fn find_ancestors<'a>(
    repository: &Repository,
    found: &Recoverable,
    entries: &'a [Recoverable],
) -> Result<AncestorSource<'a>, ChangeError> {
    if let Some(lost) = repository.lost_commit_of(found.tree_id)? {
        return Ok(AncestorSource::Missing(lost));
    }
    let mut wanted = needed_commits(found)?;
    let mut holders: Vec<&Recoverable> = Vec::new();
    let mut held: BTreeSet<ObjectId> = BTreeSet::new();
    while let Some(commit_id) = wanted.pop_first() {
        if held.contains(&commit_id) || repository.has_object(commit_id) {
            continue;
        }
        let holder = entries.iter().find_map(|entry| {
            let kept = repository.recoverable_commits(entry.tree_id).ok()?;
            kept.contains(&commit_id).then_some((entry, kept))
        });
        let Some((holder, kept)) = holder else {
            return Ok(AncestorSource::Missing(commit_id));
        };
        if let Some(lost) = repository.lost_commit_of(holder.tree_id)? {
            return Ok(AncestorSource::Missing(lost));
        }
        held.extend(kept);
        wanted.extend(needed_commits(holder)?);
        holders.push(holder);
    }
    Ok(AncestorSource::Found(holders))
}

/// Returns the ancestors that the entry needs and does not keep.
pub(super) fn needed_commits(found: &Recoverable) -> Result<BTreeSet<ObjectId>, ChangeError> {
    found
        .entry
        .needed_commits
        .iter()
        .map(|hex| parse(hex))
        .collect()
}

/// Returns the tree that the entry restores, if it can be read.
fn newest_tree(repository: &Repository, found: &Recoverable) -> Option<ObjectId> {
    repository.write_commits_again(found.tree_id).ok()?;
    let entry = &found.entry;
    let snapshot = entry.snapshots.last().map(|snapshot| &snapshot.view);
    let newest = entry
        .uncommitted
        .as_ref()
        .or(entry.head.as_ref())
        .or(snapshot)?;
    let tree_id = repository.commit_info(parse(newest).ok()?).ok()?.tree_id;
    repository.has_object(tree_id).then_some(tree_id)
}
