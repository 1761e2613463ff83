//! Names that a command line may use, for completions and suggestions.
//!
//! They are read from the store and the repository without the daemon, which may not run or may be
//! busy. Unreadable names are left out.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::change::handoff::HandoffRecord;
use crate::change::recovery::{self, Recoverable};
use crate::change::review::ReviewRecord;
use crate::change::round::RoundRecord;
use crate::git::{BranchTip, Repository};
use crate::store::RecordKind;
use crate::store::{ForkName, ForkRecord, SnapshotRecord, Store};

/// The names of one repository.
pub(super) struct Names {
    repository: Repository,
    store_dir: PathBuf,
}

impl Names {
    /// Returns the names of the repository around `dir`; `None` without a repository.
    pub(super) fn around(dir: &Path) -> Option<Names> {
        Repository::discover(dir)
            .ok()
            .map(|repository| Names::of(&repository))
    }

    pub(super) fn of(repository: &Repository) -> Names {
        Names {
            store_dir: Store::dir_of(repository),
            repository: repository.clone(),
        }
    }

    /// Returns the store's directory, if it exists and belongs to this user.
    fn store(&self) -> Option<&Path> {
        let is_there = Store::exists_at(&self.store_dir).unwrap_or(false);
        is_there.then_some(self.store_dir.as_path())
    }

    pub(super) fn forks(&self) -> Vec<ForkRecord> {
        self.store().map(Store::recorded_forks).unwrap_or_default()
    }

    /// Finds the fork in whose mount `dir` is.
    pub(super) fn fork_at(&self, dir: &Path) -> Option<ForkRecord> {
        let forks = self.forks().into_iter();
        forks
            .filter(|fork| dir.starts_with(&fork.mount_dir))
            .max_by_key(|fork| fork.mount_dir.as_os_str().len())
    }

    /// Returns the snapshots of a fork, oldest first.
    pub(super) fn snapshots(&self, fork: &ForkName) -> Vec<SnapshotRecord> {
        let store = self.store();
        store
            .map(|dir| Store::recorded_snapshots(dir, fork))
            .unwrap_or_default()
    }

    pub(super) fn reviews(&self) -> Vec<ReviewRecord> {
        self.documents(RecordKind::Reviews)
    }

    pub(super) fn handoffs(&self) -> Vec<HandoffRecord> {
        self.documents(RecordKind::Handoffs)
    }

    /// Returns the entries of `tine recover`, oldest first.
    pub(super) fn recoverable(&self) -> Vec<Recoverable> {
        recovery::list(&self.repository)
            .map(|(found, _)| found)
            .unwrap_or_default()
    }

    pub(super) fn sessions(&self) -> Vec<RoundRecord> {
        self.documents(RecordKind::Rounds)
    }

    fn documents<T: DeserializeOwned>(&self, kind: RecordKind) -> Vec<T> {
        let store = self.store();
        store
            .map(|dir| Store::recorded_documents(dir, kind))
            .unwrap_or_default()
    }

    pub(super) fn branches(&self) -> Vec<BranchTip> {
        self.repository.branch_tips(None).unwrap_or_default()
    }

    pub(super) fn remotes(&self) -> Vec<String> {
        self.repository.remotes().unwrap_or_default()
    }

    /// Returns the last fetched forks of remotes: pairs of remote and name.
    pub(super) fn remote_forks(&self) -> Vec<(String, String)> {
        let mut forks = Vec::new();
        for remote in self.remotes() {
            let tracked = self.repository.all_tracked(&remote).unwrap_or_default();
            forks.extend(tracked.into_iter().map(|(name, _)| (remote.clone(), name)));
        }
        forks
    }
}
