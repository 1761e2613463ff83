//! Lists and shows forks, and records which strays a client has reported.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::operation::{Call, Operation};
use crate::protocol::{Acknowledged, ForkInfo, Forks, Stray};
use crate::report;
use crate::state::slots::Daemon;
use crate::state::strays::UnreportedStrays;
use crate::state::taking;
use tine_git::Repository;
use tine_store::{ForkName, ForkRecord};

/// Lists all forks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListForks {}

impl Operation for ListForks {
    const NAME: &'static str = "list";
    type Answer = Forks;

    fn run(self, call: &Call<'_>) -> Result<Forks, Failure> {
        let (daemon, store) = (call.daemon, &call.daemon.store);
        let (records, errors) = store.records();
        let mut damaged: Vec<Failure> = errors.into_iter().map(Failure::from).collect();
        let mut forks = Vec::with_capacity(records.len());
        for record in &records {
            let slot = daemon.slot(&record.name);
            match report::fork_info(daemon, &slot, record) {
                Ok(info) => forks.push(info),
                Err(failure) => {
                    damaged.push(failure.context(format!("{} is not whole", record.name)));
                }
            }
            damaged.extend(slot.trouble());
            damaged.extend(UnreportedStrays::of(store, &record.name).failed);
        }
        Ok(Forks { forks, damaged })
    }
}

/// Finds the fork whose mount contains the caller's directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FindFork {}

/// The fork that was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundFork {
    /// `None` if the directory is in no mount.
    pub fork: Option<ForkName>,
}

impl Operation for FindFork {
    const NAME: &'static str = "find-fork";
    type Answer = FoundFork;

    fn run(self, call: &Call<'_>) -> Result<FoundFork, Failure> {
        Ok(FoundFork {
            fork: call.fork_if_any(None),
        })
    }
}

/// Shows one fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShowFork {
    /// Fork to show.
    pub fork: ForkName,
}

impl Operation for ShowFork {
    const NAME: &'static str = "show";
    type Answer = ForkInfo;

    fn run(self, call: &Call<'_>) -> Result<ForkInfo, Failure> {
        // Who asks goes on with the commit of HEAD in the main repository.
        taking::bring_fork(call.daemon, &self.fork);
        show(call.daemon, &self.fork)
    }
}

/// Records that a client has reported these strays.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MarkStraysReported {
    /// Fork at whose mount place the strays are.
    pub fork: ForkName,
    /// Strays that the client reported.
    pub strays: Vec<Stray>,
}

impl Operation for MarkStraysReported {
    const NAME: &'static str = "told-strays";
    type Answer = Acknowledged;

    fn run(self, call: &Call<'_>) -> Result<Acknowledged, Failure> {
        UnreportedStrays::remove_reported(&call.daemon.store, &self.fork, &self.strays);
        Ok(Acknowledged {})
    }
}

/// Returns the fork's branch and the branch's tip, in hex.
pub(crate) fn tip_of(repository: &Repository, record: &ForkRecord) -> Option<(String, String)> {
    let tip = repository.branch(&record.branch).ok()??;
    Some((record.branch.clone(), tip.to_string()))
}

pub(crate) fn show(daemon: &Arc<Daemon>, name: &ForkName) -> Result<ForkInfo, Failure> {
    let record = daemon.store.record(name)?;
    report::fork_info(daemon, &daemon.slot(name), &record)
}
