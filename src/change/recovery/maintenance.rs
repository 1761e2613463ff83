//! Maintenance of entries: expired ones are deleted, and others stay complete.

use std::collections::BTreeSet;

use super::restore::{AncestorSource, find_ancestors, needed_commits};
use super::{RecoverRules, Recoverable, encoded, highest, list};
use crate::ChangeError;
use tine_git::{GitError, ObjectId, Repository};
use tine_store::Store;

/// Deletes entries.
///
/// Returns those that stay, with the reason.
pub fn purge(store: &Store, repository: &Repository, ids: &[u64]) -> Vec<(u64, GitError)> {
    if ids.is_empty() {
        return Vec::new();
    }
    // A full disk must not prevent a purge. A number may then be used again.
    if let Err(error) =
        highest(store, repository).and_then(|id| Ok(store.note_highest_recoverable(id)?))
    {
        log::warn!("{error}");
    }
    let labels: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let stays = repository.release_recoverable(&labels).into_iter();
    stays
        .filter_map(|(label, error)| Some((label.parse().ok()?, error)))
        .collect()
}

/// Entries that [`maintain`] deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    /// Number of deleted entries.
    pub entries: u64,
    /// Number of bytes that they kept.
    pub bytes: u64,
}

/// Maintains the entries, and returns the expired ones.
///
/// Ancestors that nothing else reaches any more are added to the entries that need them. Entries
/// that the rules expire are deleted. `now_secs` is in seconds since 1970.
///
/// # Errors
/// [`ChangeError::Git`] if entries cannot be read or written.
pub fn maintain(
    store: &Store,
    repository: &Repository,
    now_secs: i64,
) -> Result<Expired, ChangeError> {
    let (found, damaged) = list(repository)?;
    for (id, error) in damaged {
        log::warn!("the entry {id} of `tine recover` cannot be read: {error}");
    }
    let rules = match RecoverRules::configured(repository) {
        Ok(rules) => rules,
        // Without a valid rule, no entry expires.
        Err(reason) => {
            log::warn!("nothing expires: {reason}");
            RecoverRules {
                max_age_secs: None,
                max_bytes: None,
            }
        }
    };
    let of = |found: &Recoverable| (found.id, found.entry.kept_secs, found.entry.size_bytes);
    let outdated = rules.outdated(&found.iter().map(of).collect::<Vec<_>>(), now_secs);
    let (outdated, staying): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| outdated.contains(&found.id));
    keep_ancestors(repository, &staying)?;
    let ids: Vec<u64> = outdated.iter().map(|found| found.id).collect();
    let stays = purge(store, repository, &ids);
    let mut expired = Expired::default();
    for found in outdated {
        match stays.iter().find(|(id, _)| *id == found.id) {
            Some((id, error)) => log::warn!("the entry {id} of `tine recover` stays: {error}"),
            None => {
                expired.entries += 1;
                expired.bytes = expired.bytes.saturating_add(found.entry.size_bytes);
            }
        }
    }
    Ok(expired)
}

/// Adds ancestors that nothing else reaches to the entries that need them.
///
/// # Errors
/// [`ChangeError::Git`] if entries cannot be read or written.
pub fn keep_ancestors(repository: &Repository, entries: &[Recoverable]) -> Result<(), ChangeError> {
    let mut ends: BTreeSet<ObjectId> = BTreeSet::new();
    for found in entries {
        let needed = needed_commits(found)?;
        if !needed
            .iter()
            .all(|commit_id| repository.has_object(*commit_id))
        {
            match find_ancestors(repository, found, &list(repository)?.0)? {
                AncestorSource::Found(holders) => {
                    for holder in holders {
                        repository.write_commits_again(holder.tree_id)?;
                    }
                }
                AncestorSource::Missing(lost) => {
                    log::warn!("the entry {} needs {lost}, which is gone", found.id)
                }
            }
        }
        ends.extend(needed);
    }
    ends.retain(|id| repository.has_object(*id));
    let lost = repository.own_commits(&ends, &[])?.commit_ids;
    for found in entries {
        let needed = needed_commits(found)?;
        if needed.is_disjoint(&lost) {
            continue;
        }
        let more = repository.own_commits(&needed, &[])?;
        let mut commit_ids = repository.recoverable_commits(found.tree_id)?;
        repository.write_commits_again(found.tree_id)?;
        commit_ids.extend(more.commit_ids);
        let mut entry = found.entry.clone();
        entry.needed_commits = more.boundary_ids.iter().map(ToString::to_string).collect();
        let (named, text) = (entry.named()?, encoded(&entry)?);
        let tree_id = repository.write_recoverable(&commit_ids, &named, &text)?;
        // The entry may have been purged meanwhile.
        repository.replace_recoverable(&found.id.to_string(), found.tree_id, tree_id)?;
    }
    Ok(())
}
