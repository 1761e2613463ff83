//! Commits that only a fork keeps.
//!
//! They are earlier commits of its HEAD, from before a revert, amend or reset, and stashes of an
//! unfinished operation. They go with the fork, so an entry of `tine recover` keeps them.

use std::collections::BTreeSet;

use super::ChangeError;
use super::recovery::{KeptSnapshot, parse};
use tine_git::refs::is_for_layers;
use tine_git::worktree::OwnObject;
use tine_git::{LinkedWorktree, ObjectId, Repository};
use tine_store::{ForkName, SnapshotReason};

/// Returns commits that only the fork `name` reaches, as kept snapshots.
///
/// Only the newest ones are returned, not their ancestors. `known` are commits that the entry keeps
/// anyway.
///
/// # Errors
/// [`ChangeError::Git`] if refs or commits cannot be read.
pub fn superseded(
    repository: &Repository,
    name: &ForkName,
    worktree: Option<&LinkedWorktree>,
    known: &BTreeSet<ObjectId>,
    snapshots: &[KeptSnapshot],
) -> Result<Vec<KeptSnapshot>, ChangeError> {
    let mut candidates: Vec<(OwnObject, ObjectId)> = worktree
        .map(LinkedWorktree::own_objects)
        .unwrap_or_default();
    let kept = repository.kept(name.as_str())?.into_iter();
    let of_layers = kept.filter(|(label, _)| is_for_layers(label));
    candidates.extend(of_layers.map(|(_, id)| (OwnObject::Ref, id)));
    let mut is_new = BTreeSet::new();
    let is_commit = |id| repository.has_object(id) && repository.commit_info(id).is_ok();
    candidates.retain(|(_, id)| is_commit(*id) && is_new.insert(*id));

    let mut tips: BTreeSet<ObjectId> = candidates.iter().map(|(_, id)| *id).collect();
    tips.extend(known);
    for snapshot in snapshots {
        tips.insert(parse(&snapshot.view)?);
    }
    let own = repository.own_commits(&tips, &[])?.commit_ids;
    let mut below = known.clone();
    for id in &own {
        below.extend(repository.commit_info(*id)?.parent_ids);
    }
    let mut found = Vec::new();
    for (kind, id) in candidates {
        if !own.contains(&id) || below.contains(&id) {
            continue;
        }
        let info = repository.commit_info(id)?;
        let (stem, head) = match kind {
            // The first parent is HEAD of that time, the tree has the uncommitted changes.
            OwnObject::Autostash => ("autostash", info.parent_ids.first().copied()),
            OwnObject::Ref => ("superseded", Some(id)),
        };
        found.push(KeptSnapshot {
            name: free_name(stem, snapshots.iter().chain(&found))?,
            created_secs: info.time_secs,
            message: Some(info.summary),
            reason: SnapshotReason::Asked,
            head: head.map(|id| id.to_string()),
            view: id.to_string(),
        });
    }
    Ok(found)
}

/// Returns the first `<stem>-<n>` that no snapshot has.
fn free_name<'s>(
    stem: &str,
    taken: impl Iterator<Item = &'s KeptSnapshot> + Clone,
) -> Result<ForkName, ChangeError> {
    let is_free = |name: &String| !taken.clone().any(|snapshot| snapshot.name.as_str() == name);
    let name = (1_u32..).map(|n| format!("{stem}-{n}")).find(is_free);
    Ok(ForkName::parse(&name.unwrap_or_default())?)
}
