//! Refs that go with a deleted fork, and their return.

use std::collections::BTreeMap;

use super::{KeptRef, parse};
use crate::ChangeError;
use tine_git::own::{OwnTipKind, is_in_points, tips_of};
use tine_git::{Kind, ObjectId, Repository, Worktree};
use tine_store::ForkName;

/// Refs of a fork's own.
#[derive(Debug, Default)]
pub struct OwnRefs {
    /// Refs that can be kept, by full name.
    pub refs: BTreeMap<String, KeptRef>,
    /// Full names of those whose objects the main repository does not have.
    pub in_fork_alone: Vec<String>,
}

/// Returns the fork's own refs that the main repository lacks.
///
/// Those with another value there are among them, unless a branch there has moved on from that of
/// the fork. Those of a linked worktree are from when it was a repository of its own. The stash and
/// refs of operations in progress are left out.
///
/// # Errors
/// [`ChangeError::Git`] if refs cannot be read.
pub fn own_refs(
    repository: &Repository,
    fork: &ForkName,
    worktree: &Worktree,
) -> Result<OwnRefs, ChangeError> {
    let mut own = OwnRefs::default();
    for tip in tips_of(repository, fork.as_str(), worktree)? {
        let is_symbolic = tip.name.ends_with("/HEAD");
        if tip.kind != OwnTipKind::Ref || is_symbolic || !is_in_points(&tip.name) {
            continue;
        }
        // A fork of a fork has the branches of the other one as they were.
        let may_lag = !worktree.is_own() || !tip.name.starts_with("refs/tags/");
        if let Some(target) = repository.target_of(&tip.name)?
            && (target == tip.id || may_lag && reaches(repository, target, tip.id))
        {
            continue;
        }
        // A tag that is there leads to an object that is there.
        let Ok((target, kind)) = repository.peel(tip.id) else {
            own.in_fork_alone.push(tip.name);
            continue;
        };
        let kept = KeptRef {
            id: tip.id.to_string(),
            commit: (kind == Kind::Commit).then(|| target.to_string()),
        };
        own.refs.insert(tip.name, kept);
    }
    Ok(own)
}

/// Returns whether a branch at `target` may have been at `id` before.
fn reaches(repository: &Repository, target: ObjectId, id: ObjectId) -> bool {
    let is_ancestor = repository.is_ancestor(id, target);
    is_ancestor.unwrap_or(false)
}

/// Creates refs in a fork, and returns their number.
///
/// Names that it has are left out. Does nothing in a linked worktree.
///
/// # Errors
/// [`ChangeError::Git`] if a ref is invalid, or cannot be written.
pub fn bring_refs(
    repository: &Repository,
    worktree: &Worktree,
    refs: &BTreeMap<String, KeptRef>,
    reflog: &str,
) -> Result<usize, ChangeError> {
    if !worktree.is_own() || refs.is_empty() {
        return Ok(0);
    }
    let named = refs
        .iter()
        .map(|(name, kept)| Ok((name.clone(), parse(&kept.id)?)));
    let named: BTreeMap<String, ObjectId> = named.collect::<Result<_, ChangeError>>()?;
    let now = repository.point_now(worktree)?;
    let (then, count) = now.with_missing(&named);
    repository.move_to_point(worktree, &now, &then, reflog)?;
    Ok(count)
}
