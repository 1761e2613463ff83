//! The one place where operations wait for forks, and for leases of branches and checkouts.
//!
//! An operation locks all its forks first ([`Guards::lock`]), in the order of their names. Then it
//! takes all its leases at once ([`lease`]), as the locked forks say which those are. So two
//! operations never wait for each other. [`while_it_moves`] retries an operation whose plan was
//! outdated under its locks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::failure::{ErrorCode, Failure};
use crate::state::slots::{Daemon, ForkGuard, Slot};
use tine_git::{GitError, Repository};
use tine_workspace::store::{Lease, LeaseKey};
use tine_workspace::{ForkName, StoreError};

/// Number of attempts where the forks or branches of an operation move while it waits for them.
const ATTEMPTS: usize = 4;

/// Calls `plan_and_do` again while it fails with `ref-moved`, at most [`ATTEMPTS`] times.
pub(crate) fn while_it_moves<T>(
    mut plan_and_do: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut attempt = 1;
    loop {
        match plan_and_do() {
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

/// The locks of all forks of one operation.
pub(crate) struct Guards<'a>(BTreeMap<ForkName, ForkGuard<'a>>);

impl<'a> Guards<'a> {
    /// Locks the forks of `slots` in the order of their names. Blocks while others have them.
    ///
    /// # Errors
    /// As [`Daemon::lock_fork`].
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

    /// Takes the guard of `fork` out, as [`Guards::get`].
    pub(crate) fn remove(&mut self, fork: &ForkName) -> Result<ForkGuard<'a>, Failure> {
        self.0
            .remove(fork)
            .ok_or_else(|| StoreError::NoSuchFork(fork.to_string()).into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ForkGuard<'a>> {
        self.0.values()
    }
}

/// Returns the lease of the branch that the fork's HEAD is on, if it is on one.
pub(crate) fn head_of(
    guard: &ForkGuard<'_>,
    repository: &Repository,
) -> Result<Vec<LeaseKey>, Failure> {
    let branch = guard.head_branch(repository)?;
    Ok(branch.map(LeaseKey::Branch).into_iter().collect())
}

/// Takes the leases that `resolve` returns, for the command `by`, and resolves again under them: if
/// the answer differs, releases them and takes those. Blocks while other commands hold them.
///
/// # Errors
/// `ref-moved` if the answer keeps changing; `lease-held` names the command that does not end;
/// whatever `resolve` fails with.
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
