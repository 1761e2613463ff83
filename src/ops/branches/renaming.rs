//! Renames branches, with the forks and records that name them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{lease, taken};
use crate::failure::Failure;
use crate::locks::{Guards, slots_of};
use crate::operation::{Call, Operation};
use crate::protocol::BranchRenamed;
use crate::state::handoffs;
use crate::state::slots::Daemon;
use tine_change::ChangeError;
use tine_change::branches::{BranchUsage, follow};
use tine_change::handoff::HandoffRecord;
use tine_change::review::ReviewRecord;
use tine_change::round::RoundRecord;
use tine_git::Repository;
use tine_store::{ForkName, RecordKind};

/// Rename a branch
///
/// Its reflog and its settings go with it. Whoever is on it stays on it, forks as well as checkouts
/// of git's, and forks that came from it go on to be merged into it.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine branch rename tine/fix-parser parser")]
pub struct RenameBranch {
    /// The branch
    #[arg(value_name = "OLD")]
    pub from: String,

    /// The new name
    #[arg(value_name = "NEW")]
    pub to: String,
}

impl Operation for RenameBranch {
    const NAME: &'static str = "rename-branch";
    type Answer = BranchRenamed;

    fn run(self, call: &Call<'_>) -> Result<BranchRenamed, Failure> {
        let (daemon, old, new) = (call.daemon, &self.from, &self.to);
        // Reviews and rounds name branches in their records.
        let _rounds = daemon.rounds.lock();
        let _reviews = daemon.reviews.lock();
        let repository = daemon.repository_now()?;
        follow(&daemon.store, &repository)?;
        let forks = loop {
            if let Some(forks) = rename_on(daemon, &repository, old, new)? {
                break forks;
            }
        };
        // The branch is renamed by now, so a record that cannot be changed is not a failure.
        if let Err(failure) = rename_in_documents(daemon, old, new) {
            log::warn!("what names the branch {old} still does: {failure}");
        }
        log::info!("the branch {old} is called {new} now");
        Ok(BranchRenamed {
            from: old.to_owned(),
            branch: new.to_owned(),
            forks,
        })
    }
}

/// Renames the branch, and moves the HEADs and records that name it.
///
/// Returns the forks that follow. `None` means that the branch came to other forks before this call
/// held the locks of `forks`.
fn rename_on(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    old: &str,
    new: &str,
) -> Result<Option<Vec<ForkName>>, Failure> {
    let forks = BranchUsage::now(&daemon.store, repository)?.forks_on(old);
    let slots = slots_of(daemon, forks.clone());
    let _guards = Guards::lock(daemon, &slots)?;
    let _lease = lease(
        daemon,
        &[old, new],
        &format!("tine branch rename {old} {new}"),
    )?;
    let known = BranchUsage::now(&daemon.store, repository)?;
    if known.forks_on(old) != forks {
        return Ok(None);
    }
    let renamed = known.rename(old, new).map_err(|error| match error {
        ChangeError::Git(error) => taken(repository, error),
        error => error.into(),
    })?;
    Ok(Some(renamed))
}

/// Renames the branch in reviews, handoffs and sessions.
///
/// The caller holds the locks of reviews and rounds.
fn rename_in_documents(daemon: &Arc<Daemon>, old: &str, new: &str) -> Result<(), Failure> {
    let store = &daemon.store;
    for mut review in store.documents::<ReviewRecord>(RecordKind::Reviews)?.0 {
        if review.rename_branch(old, new) {
            store.write_document(RecordKind::Reviews, review.id, &review)?;
        }
    }
    for handoff in store.documents::<HandoffRecord>(RecordKind::Handoffs)?.0 {
        if handoff.clone().rename_branch(old, new) {
            handoffs::update(daemon, handoff.id, |record| {
                record.rename_branch(old, new);
                Ok(())
            })?;
        }
    }
    for mut round in store.documents::<RoundRecord>(RecordKind::Rounds)?.0 {
        if round.rename_branch(old, new) {
            round.save(store)?;
        }
    }
    Ok(())
}
