//! The only module in which operations wait for forks, branches and checkouts.
//!
//! An operation first locks all its forks ([`Guards::lock`]), in the order of their names. Then it
//! takes all its leases at once ([`lease`]), because the locked forks determine them. Therefore two
//! operations never wait for each other. [`retry_while_moved`] retries an operation whose plan
//! became outdated before it had its locks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::failure::{ErrorCode, Failure};
use crate::state::slots::{Daemon, ForkGuard, Slot};
use tine_git::{GitError, Repository};
use tine_store::{ForkName, StoreError};
use tine_store::{Lease, LeaseKey};

/// Number of attempts, while forks or branches move before they are locked.
const ATTEMPTS: usize = 4;

/// Retries `attempt_once` while it fails with `ref-moved`, at most [`ATTEMPTS`] times.
pub(crate) fn retry_while_moved<T>(
    mut attempt_once: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut attempt = 1;
    loop {
        match attempt_once() {
            Err(failure) if failure.code == ErrorCode::RefMoved && attempt < ATTEMPTS => {
                log::info!("planned again: {failure}");
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Returns the slots of `forks`, which need not exist.
pub(crate) fn slots_of(
    daemon: &Daemon,
    forks: impl IntoIterator<Item = ForkName>,
) -> BTreeMap<ForkName, Arc<Slot>> {
    let with_slot = |fork: ForkName| {
        let slot = daemon.slot(&fork);
        (fork, slot)
    };
    forks.into_iter().map(with_slot).collect()
}

/// Locks of all forks of one operation.
pub(crate) struct Guards<'a>(BTreeMap<ForkName, ForkGuard<'a>>);

impl<'a> Guards<'a> {
    /// Locks the forks of `slots` in the order of their names. Blocks while others hold them.
    ///
    /// # Errors
    /// Those of [`Daemon::lock_fork`].
    pub(crate) fn lock(
        daemon: &'a Arc<Daemon>,
        slots: &'a BTreeMap<ForkName, Arc<Slot>>,
    ) -> Result<Guards<'a>, Failure> {
        let guards = slots
            .iter()
            .map(|(fork, slot)| Ok((fork.clone(), daemon.lock_fork(slot)?)));
        Ok(Guards(guards.collect::<Result<_, Failure>>()?))
    }

    /// Returns the guard of `fork`.
    ///
    /// # Errors
    /// `no-such-fork` if the operation did not lock it.
    pub(crate) fn get(&self, fork: &ForkName) -> Result<&ForkGuard<'a>, Failure> {
        self.0
            .get(fork)
            .ok_or_else(|| StoreError::NoSuchFork(fork.to_string()).into())
    }

    /// Removes the guard of `fork` and returns it.
    ///
    /// # Errors
    /// `no-such-fork` if the operation did not lock it.
    pub(crate) fn remove(&mut self, fork: &ForkName) -> Result<ForkGuard<'a>, Failure> {
        self.0
            .remove(fork)
            .ok_or_else(|| StoreError::NoSuchFork(fork.to_string()).into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ForkGuard<'a>> {
        self.0.values()
    }
}

/// Returns the lease of the branch that HEAD is on, if any.
///
/// The branches of a fork that is a repository of its own are nobody else's. Only the branch that
/// follows one of them is the main repository's.
pub(crate) fn head_of(
    guard: &ForkGuard<'_>,
    repository: &Repository,
) -> Result<Vec<LeaseKey>, Failure> {
    let record = guard.record()?;
    let branch = guard.head_branch(repository)?;
    let branch = branch.filter(|branch| {
        record.git_kind.is_linked() || record.followed_branch.as_ref() == Some(branch)
    });
    Ok(branch.map(LeaseKey::Branch).into_iter().collect())
}

/// Takes the leases that `resolve` returns, and resolves again under them.
///
/// If the answer differs, it releases these leases and takes the new ones. Blocks while other
/// commands hold them. `by` is the command that holds the leases.
///
/// # Errors
/// `ref-moved` if the answer keeps changing; `lease-held`, which names the command that holds the
/// lease; the errors of `resolve`.
pub(crate) fn lease<'d>(
    daemon: &'d Daemon,
    by: &str,
    resolve: impl Fn() -> Result<Vec<LeaseKey>, Failure>,
) -> Result<Lease<'d>, Failure> {
    let mut keys = resolve()?;
    for _ in 0..ATTEMPTS {
        let lease = daemon.store.lease(keys.iter().cloned(), by)?;
        let now = resolve()?;
        if now == keys {
            return Ok(lease);
        }
        keys = now;
    }
    let name = keys.first().map_or("HEAD".to_owned(), LeaseKey::to_string);
    Err(GitError::RefMoved { name }.into())
}
