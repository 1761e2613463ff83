//! Commits that only a fork keeps.
//!
//! They are earlier commits of its HEAD, from before a revert, amend or reset, and stashes of an
//! unfinished operation. They go with the fork, so an entry of `tine recover` keeps them.

use std::collections::BTreeSet;

use super::ChangeError;
use super::recovery::{KeptSnapshot, parse};
use tine_git::own::{OwnTipKind, tips_of};
use tine_git::refs::is_for_layers;
use tine_git::worktree::OwnObject;
use tine_git::{ObjectId, Repository, Worktree};
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
    worktree: Option<&Worktree>,
    known: &BTreeSet<ObjectId>,
    snapshots: &[KeptSnapshot],
) -> Result<Vec<KeptSnapshot>, ChangeError> {
    let mut candidates = worktree
        .map(|worktree| candidates_of(repository, name, worktree))
        .transpose()?
        .unwrap_or_default();
    let kept = repository.kept(name.as_str())?.into_iter();
    let of_layers = kept.filter(|(label, _)| is_for_layers(label));
    candidates.extend(of_layers.map(|(_, id)| Candidate::superseded(id)));
    let mut is_new = BTreeSet::new();
    let is_commit = |id| repository.has_object(id) && repository.commit_info(id).is_ok();
    candidates.retain(|found| is_commit(found.id) && is_new.insert(found.id));

    let mut tips: BTreeSet<ObjectId> = candidates.iter().map(|found| found.id).collect();
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
    for Candidate {
        stem,
        id,
        is_named,
        is_stash,
        message,
    } in candidates
    {
        if !own.contains(&id) || (below.contains(&id) && !is_named) {
            continue;
        }
        let info = repository.commit_info(id)?;
        let head = if is_stash {
            // The first parent is HEAD of that time, the tree has the uncommitted changes.
            info.parent_ids.first().copied()
        } else {
            Some(id)
        };
        found.push(KeptSnapshot {
            name: free_name(&stem, snapshots.iter().chain(&found))?,
            created_secs: info.time_secs,
            message: message.or(Some(info.summary)),
            reason: SnapshotReason::Asked,
            head: head.map(|id| id.to_string()),
            view: id.to_string(),
        });
    }
    Ok(found)
}

/// Commit that may be the fork's alone.
struct Candidate {
    /// Name of the kept snapshot, without its number.
    stem: String,
    id: ObjectId,
    /// True if a ref or an entry of the stash names it.
    is_named: bool,
    is_stash: bool,
    message: Option<String>,
}

impl Candidate {
    fn superseded(id: ObjectId) -> Candidate {
        Candidate {
            stem: "superseded".to_owned(),
            id,
            is_named: false,
            is_stash: false,
            message: None,
        }
    }
}

/// Lists the commits that git keeps for the worktree alone.
///
/// They include those that the fork had when it was a repository of its own before.
fn candidates_of(
    repository: &Repository,
    fork: &ForkName,
    worktree: &Worktree,
) -> Result<Vec<Candidate>, ChangeError> {
    let mut candidates = Vec::new();
    if !worktree.is_own() {
        let own = worktree.own_objects().into_iter();
        candidates.extend(own.map(|(kind, id)| Candidate {
            is_stash: kind == OwnObject::Autostash,
            stem: match kind {
                OwnObject::Autostash => "autostash".to_owned(),
                OwnObject::Ref => "superseded".to_owned(),
            },
            ..Candidate::superseded(id)
        }));
    }
    let tips = tips_of(repository, fork.as_str(), worktree)?.into_iter();
    candidates.extend(tips.map(|tip| match tip.kind {
        OwnTipKind::Stash { message } => Candidate {
            stem: "stash".to_owned(),
            id: tip.id,
            is_named: true,
            is_stash: true,
            message: Some(message),
        },
        OwnTipKind::Ref if tip.name != "refs/stash" => Candidate {
            stem: stem_of(&tip.name),
            is_named: true,
            ..Candidate::superseded(tip.id)
        },
        OwnTipKind::Pseudo if tip.name.contains("autostash") || tip.name == "MERGE_AUTOSTASH" => {
            Candidate {
                stem: "autostash".to_owned(),
                is_stash: true,
                ..Candidate::superseded(tip.id)
            }
        }
        _ => Candidate::superseded(tip.id),
    }));
    // A stash is known by its entry, which tells its message.
    candidates.sort_by_key(|found| (!found.is_stash, !found.is_named));
    Ok(candidates)
}

/// Returns the name of a kept ref: its short name, with the characters that a snapshot may have.
fn stem_of(full_name: &str) -> String {
    let short = ["refs/heads/", "refs/tags/", "refs/"]
        .iter()
        .find_map(|prefix| full_name.strip_prefix(prefix))
        .unwrap_or(full_name);
    let valid = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let stem: String = short.chars().map(valid).take(48).collect();
    let stem = stem.trim_matches('-');
    if stem.is_empty() {
        "ref".to_owned()
    } else {
        stem.to_owned()
    }
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
