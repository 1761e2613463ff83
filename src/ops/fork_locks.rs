//! Turns of several forks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::failure::Failure;
use crate::state::slots::{Daemon, ForkGuard, Slot};
use tine_workspace::ForkName;

/// The slots of forks, which need not exist.
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

/// Waits for all their turns: in the order of the names, so that two requests never wait for each
/// other.
pub(crate) fn lock_forks<'a>(
    daemon: &'a Arc<Daemon>,
    slots: &'a BTreeMap<ForkName, Arc<Slot>>,
) -> Result<BTreeMap<ForkName, ForkGuard<'a>>, Failure> {
    slots
        .iter()
        .map(|(fork, slot)| Ok((fork.clone(), daemon.lock_fork(slot)?)))
        .collect()
}
