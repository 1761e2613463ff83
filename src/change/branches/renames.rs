//! Branch names in records, which follow renamed branches.

use std::collections::BTreeMap;

use crate::ChangeError;
use tine_git::{GitError, Head, Repository};
use tine_store::{ForkName, ForkRecord, Store};

/// Updates branch names in records after git renamed branches.
///
/// # Errors
/// [`ChangeError::Git`] if refs or reflogs cannot be read.
pub fn follow(store: &Store, repository: &Repository) -> Result<(), ChangeError> {
    let mut is_there: BTreeMap<String, bool> = BTreeMap::new();
    for record in store.records().0 {
        for name in [Some(&record.branch), record.from_branch.as_ref()]
            .into_iter()
            .flatten()
        {
            let there = match is_there.get(name) {
                Some(there) => *there,
                None => {
                    let there = match repository.branch(name) {
                        // An alias keeps its name even if its target was renamed.
                        Err(GitError::DanglingAlias { .. } | GitError::AliasLoop { .. }) => true,
                        // The ref exists, but cannot be read.
                        Err(GitError::DamagedRef { .. }) => true,
                        found => found?.is_some(),
                    };
                    is_there.insert(name.clone(), there);
                    there
                }
            };
            if !there && let Some(now) = repository.renamed_to(name, record.created_secs)? {
                log::info!("{}: the branch {name} is called {now} now", record.name);
                // A record that cannot be written affects only its fork.
                if let Err(error) = note_renamed(store, &record, name, &now) {
                    log::warn!("{}: {error}", record.name);
                }
            }
        }
    }
    Ok(())
}

/// Records the branch that HEAD of a fork is on.
///
/// # Errors
/// [`ChangeError::Store`] if the record cannot be read or written, and the errors of [`follow`].
pub fn note_head(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    head: &Head,
) -> Result<(), ChangeError> {
    let Some(branch) = head.short_branch() else {
        // A detached HEAD returns to the branch in the record, if to any.
        return Ok(());
    };
    let record = store.record(name)?;
    if record.branch != branch && repository.branch(&record.branch)?.is_none() {
        follow(store, repository)?;
    }
    store.update_record(name, |record| {
        record.head_branch = (record.branch != branch).then(|| branch.to_owned());
    })?;
    Ok(())
}

/// Renames a branch in the record of one fork.
pub(super) fn note_renamed(
    store: &Store,
    record: &ForkRecord,
    old: &str,
    new: &str,
) -> Result<(), ChangeError> {
    // A word without a prefix means the fork of that name, if there is one.
    let is_fork = ForkName::parse(old).is_ok_and(|name| store.record(&name).is_ok());
    let rename = |record: &mut ForkRecord| {
        let mut is_renamed = rename_in(&mut record.branch, old, new);
        for branch in [
            &mut record.head_branch,
            &mut record.from_branch,
            &mut record.followed_branch,
        ] {
            is_renamed |= branch
                .as_mut()
                .is_some_and(|branch| rename_in(branch, old, new));
        }
        let target = record.on_unmount.target_mut();
        let target = target.filter(|target| !is_fork || target.as_str() != old);
        is_renamed | target.is_some_and(|target| rename_in(target, old, new))
    };
    if rename(&mut record.clone()) {
        store.update_record(&record.name, |record| {
            rename(record);
        })?;
    }
    Ok(())
}

/// Renames the branch in `word`, and returns whether it was named.
///
/// `word` is a branch name, or a point that names the branch.
pub fn rename_in(word: &mut String, old: &str, new: &str) -> bool {
    for prefix in ["", "branch:", "rev:", "refs/heads/", "rev:refs/heads/"] {
        if word.strip_prefix(prefix) == Some(old) {
            *word = format!("{prefix}{new}");
            return true;
        }
    }
    false
}
