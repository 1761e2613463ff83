//! Removal of forks.

use super::generations::clean_generations;
use super::places::is_there;
use super::recover::{
    clean_after_damaged, clean_unfinished, release_refs, remove_fork_dir, remove_traces,
};
use super::{Store, files};
use crate::StoreError;
use crate::fork::{ForkName, Traces};

impl Store {
    /// Finishes an earlier, incomplete removal of the fork `name`.
    pub(super) fn finish_removal(&self, name: &ForkName) -> Result<(), StoreError> {
        if !is_there(&self.places.fork(name)) {
            return Ok(());
        }
        let _admin = self.admin.lock();
        // A fork of that name may have been made since.
        self.check_is_free(name)?;
        clean_unfinished(&self.repository, &self.places, name)
    }

    /// Removes the fork: record, refs, unused layers, worktree, in this order.
    ///
    /// The fork must not be open. The branch stays. A damaged record does not prevent the removal.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], [`StoreError::Busy`] if the fork is open, or
    /// [`GitError::RefLocked`](tine_git::GitError::RefLocked).
    pub fn remove_fork(&self, name: &ForkName) -> Result<(), StoreError> {
        self.remove_fork_with(name, &Traces::default()).map(drop)
    }

    /// Checks that git does not lock the fork's refs.
    ///
    /// # Errors
    /// [`GitError::RefLocked`](tine_git::GitError::RefLocked).
    pub fn check_can_remove(&self, name: &ForkName) -> Result<(), StoreError> {
        Ok(self.repository.check_releasable(name.as_str())?)
    }

    /// Removes the fork with `traces`; returns whether the branch was deleted.
    ///
    /// After the record is gone, a failing step is logged and left to the next opening of the
    /// store.
    ///
    /// # Errors
    /// Same as [`Store::remove_fork`].
    pub fn remove_fork_with(&self, name: &ForkName, traces: &Traces) -> Result<bool, StoreError> {
        let _admin = self.admin.lock();
        let mut open = self.open.lock();
        open.check_is_closed(name)?;
        let record = match self.places.read_record(name) {
            Ok(record) => Some(record),
            // The steps below find what the record named.
            Err(StoreError::Damaged { .. }) => None,
            Err(error) => return Err(error),
        };
        self.check_can_remove(name)?;
        open.forks.remove(name);
        open.new_indexes.remove(name);
        // A damaged list names nothing that could be freed now.
        let snapshots = self
            .places
            .read_snapshots(name)
            .unwrap_or_default()
            .snapshots;
        // The directory may be what is lost.
        files::create_private_dirs(&self.places.fork(name))?;
        files::write_json(&self.places.traces(name), traces)?;
        let record_path = self.places.record(name);
        if record_path.is_dir() && !record_path.is_symlink() {
            files::remove_dir(&record_path)?;
        } else {
            files::remove_file(&record_path)?;
        }
        files::sync_parent(&record_path)?;

        let mut failures = Vec::new();
        failures.extend(release_refs(&self.repository, name.as_str()).err());
        let freed = match record {
            None => clean_after_damaged(&self.repository, &self.places),
            Some(record) => {
                let snapshots = snapshots
                    .iter()
                    .flat_map(|snapshot| &snapshot.frozen_layers);
                let mut layers: Vec<u64> = record
                    .frozen_layers
                    .iter()
                    .chain(snapshots)
                    .copied()
                    .collect();
                layers.push(record.open_layer);
                failures.extend(self.free_layers(&mut open, &layers).err());
                match record.open_worktree(&self.repository) {
                    Ok(worktree) => worktree.remove().map_err(StoreError::from),
                    // Damaged or gone. The rest is removed only if it names its fork.
                    Err(error) => {
                        log::warn!("{error}");
                        clean_after_damaged(&self.repository, &self.places)
                    }
                }
            }
        };
        failures.extend(freed.err());
        if let Some(_making) = self.making.try_lock() {
            failures.extend(clean_generations(&self.places).err());
        }
        let branch_deleted = remove_traces(&self.repository, traces.clone());
        let is_deleted = *branch_deleted.as_ref().unwrap_or(&false);
        failures.extend(branch_deleted.err());
        if failures.is_empty() {
            failures.extend(remove_fork_dir(&self.places, name).err());
        }
        for error in failures {
            log::warn!("not all of {name} is removed, the next opening of the store will: {error}");
        }
        Ok(is_deleted)
    }
}
