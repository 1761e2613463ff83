//! Deletion of branches.

use std::collections::{BTreeMap, BTreeSet};

use super::{BranchUsage, existing, full_name};
use crate::ChangeError;
use crate::recovery::{self, RecoverEntry, RecoverKind};
use tine_git::{GitError, ObjectId, Repository};
use tine_store::Store;

/// Branch that was deleted.
#[derive(Debug, Clone)]
pub struct DeletedBranch {
    /// Short name of the branch.
    pub branch: String,
    /// Commit that it was at.
    pub commit_id: ObjectId,
    /// Entry of `tine recover` that restores it.
    ///
    /// `None`: something else reaches its commits.
    pub recover: Option<u64>,
    /// Full name of the ref behind it, if it was an alias.
    pub alias_of: Option<String>,
}

impl BranchUsage<'_> {
    /// Refuses if deleting the branch would leave a checkout without one.
    ///
    /// Deleting an alias keeps the branch behind it.
    fn refuse_deletion(&self, name: &str) -> Result<(), ChangeError> {
        if self.repository.alias_of(name).is_none() {
            return self.refuse_held(name);
        }
        let full_name = full_name(name.as_bytes());
        let mut checkouts = self.checkouts.iter();
        match checkouts.find(|checkout| checkout.named.as_deref() == Some(&full_name)) {
            None => Ok(()),
            Some(checkout) => Err(ChangeError::BranchHeld {
                branch: name.to_owned(),
                holder: self.holder_at(checkout),
            }),
        }
    }

    /// Deletes branches (short names), all or none.
    ///
    /// Without `force`, a branch is refused if commits would be lost. With it, such commits become
    /// an entry of `tine recover`.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchBranch`], [`ChangeError::BranchHeld`],
    /// [`ChangeError::BranchNotMerged`], and the errors of writing refs.
    pub fn delete(&self, names: &[String], force: bool) -> Result<Vec<DeletedBranch>, ChangeError> {
        let _removing = self.store.removing_branches();
        let mut going: BTreeMap<&str, ObjectId> = BTreeMap::new();
        for name in names {
            going.insert(name, existing(self.repository, name)?);
            self.refuse_deletion(name)?;
        }
        let without: Vec<&str> = going.keys().copied().collect();
        let mut lost = BTreeSet::new();
        for (name, tip) in &going {
            let behind = self.repository.branch_behind(name);
            if behind != *name && !going.contains_key(behind.as_str()) {
                // The branch behind an alias stays.
                continue;
            }
            if self.repository.reached_otherwise(*tip, &without)?.is_some() {
                continue;
            }
            if !force {
                return Err(ChangeError::BranchNotMerged {
                    branch: (*name).to_owned(),
                    commit_id: *tip,
                });
            }
            lost.insert(*tip);
        }
        let mut kept: BTreeMap<&str, u64> = BTreeMap::new();
        let is_alias = |name: &str| self.repository.alias_of(name).is_some();
        for (name, tip) in &going {
            if lost.contains(tip) && !is_alias(name) {
                let entry = RecoverEntry {
                    branch: Some((*name).to_owned()),
                    head: Some(tip.to_string()),
                    ..RecoverEntry::new(
                        RecoverKind::Branch,
                        format!("tine branch delete {name} --force"),
                    )
                };
                kept.insert(
                    name,
                    recovery::keep(self.store, self.repository, entry, &without)?,
                );
            }
        }
        let mut deleted = Vec::new();
        for (name, commit_id) in going {
            let alias_of = self.repository.alias_of(name);
            delete_with_settings(self.repository, name, commit_id)?;
            deleted.push(DeletedBranch {
                alias_of,
                branch: name.to_owned(),
                commit_id,
                recover: kept.get(name).copied(),
            });
        }
        Ok(deleted)
    }
}

/// Deletes a free branch (short name) at `tip`.
///
/// Commits that nothing else reaches become the entry `kept` of `tine recover` first. Returns the
/// entry's number, or `None` if it was not needed. The caller holds the branch's lease.
///
/// # Errors
/// [`GitError::BranchCheckedOut`], and [`ChangeError::BranchNotMerged`] if `kept` is needed and
/// `None`. The branch stays then.
pub fn remove(
    store: &Store,
    repository: &Repository,
    (branch, tip): (&str, ObjectId),
    kept: Option<RecoverEntry>,
) -> Result<Option<u64>, ChangeError> {
    let _removing = store.removing_branches();
    if let Some(at) = repository.checked_out_at(branch)? {
        let branch = branch.to_owned();
        return Err(GitError::BranchCheckedOut { branch, at }.into());
    }
    let recover = match (repository.reached_otherwise(tip, &[branch])?, kept) {
        (Some(_), _) => None,
        (None, Some(entry)) => Some(recovery::keep(store, repository, entry, &[branch])?),
        (None, None) => {
            return Err(ChangeError::BranchNotMerged {
                branch: branch.to_owned(),
                commit_id: tip,
            });
        }
    };
    delete_with_settings(repository, branch, tip)?;
    Ok(recover)
}

/// Deletes a branch at `tip`, with its section in git's configuration.
fn delete_with_settings(
    repository: &Repository,
    branch: &str,
    tip: ObjectId,
) -> Result<(), ChangeError> {
    repository.delete_branch(branch, tip)?;
    // Leftover settings do no harm until a branch of that name is made again.
    if let Err(error) = repository.forget_branch_settings(branch) {
        log::warn!("what is configured for the branch {branch} stays: {error}");
    }
    Ok(())
}
