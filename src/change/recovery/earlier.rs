//! Conversion of refs that an earlier tine wrote to entries.

use super::views::UNCOMMITTED;
use super::{RecoverEntry, RecoverKind, Recoverable, keep, list};
use crate::ChangeError;
use tine_git::{ObjectId, Repository};
use tine_store::{ForkName, Store};

/// Namespace in which an earlier tine kept deleted branches.
const OLD_BRANCHES: &str = "_branches";

/// Converts refs of an earlier tine to entries.
///
/// They are `refs/tine/<fork>/discarded-<n>` and `refs/tine/_branches/deleted-<n>`. If a process
/// died between the two steps, the entry is not made a second time.
///
/// # Errors
/// [`ChangeError::Git`] if refs cannot be listed, or an entry or ref cannot be written.
pub fn convert_refs(store: &Store, repository: &Repository) -> Result<(), ChangeError> {
    let mut known: Option<Vec<Recoverable>> = None;
    for group in repository.keepers()? {
        // An unreadable namespace does not affect the others.
        for (label, commit_id) in repository.kept(&group).unwrap_or_default() {
            let is_branch = group == OLD_BRANCHES && label.starts_with("deleted-");
            if !is_branch && !label.starts_with("discarded-") {
                continue;
            }
            let known = match &mut known {
                Some(known) => known,
                None => known.insert(list(repository)?.0),
            };
            match old_entry(repository, &group, is_branch, commit_id) {
                Ok(entry) => {
                    if !known.iter().any(|found| found.entry.is_same(&entry)) {
                        keep(store, repository, entry, &[])?;
                    }
                    repository.release(&group, &label)?;
                }
                Err(error) => log::warn!("refs/tine/{group}/{label} stays as it is: {error}"),
            }
        }
    }
    Ok(())
}

/// Makes an entry of a ref that an earlier tine wrote.
fn old_entry(
    repository: &Repository,
    group: &str,
    is_branch: bool,
    commit_id: ObjectId,
) -> Result<RecoverEntry, ChangeError> {
    let info = repository.commit_info(commit_id)?;
    let is_view = !is_branch && info.summary.starts_with(UNCOMMITTED);
    let (kind, command) = if is_view {
        (RecoverKind::Fork, format!("tine delete --force {group}"))
    } else if is_branch {
        (RecoverKind::Branch, "tine branch delete --force".to_owned())
    } else {
        (RecoverKind::Branch, format!("tine delete {group}"))
    };
    let head = if is_view {
        info.parent_ids.first().copied()
    } else {
        Some(commit_id)
    };
    Ok(RecoverEntry {
        fork: ForkName::parse(group).ok().filter(|_| !is_branch),
        branch: is_view.then(|| format!("tine/{group}")),
        head: head.map(|id| id.to_string()),
        uncommitted: is_view.then(|| commit_id.to_string()),
        ..RecoverEntry::new(kind, command)
    })
}
