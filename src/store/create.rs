//! Making of forks.

pub(super) mod start;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::initial::{ForkState, IndexSource, InitialContent, ParentOptions};
use super::places::TRACES_NAME;
use super::recover::{release_refs, remove_fork_dir};
use super::rollback::Rollback;
use super::{IndexStamp, LeaseKey, Store, files};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord, GitKind, MountSettings, UnmountPolicy};
use crate::snapshot::SnapshotEvery;
use tine_attr::Timestamp;
use tine_git::ObjectId;
use tine_sys::parallel::disk_work;
use tine_workspace::{BaseAttrs, CarryRecord, CarryRules};

/// Options for a new fork.
#[derive(Clone)]
pub struct ForkOptions {
    /// Name of the fork. It must be free.
    pub name: ForkName,
    /// Private git directory of the worktree in which `from` is resolved.
    pub git_dir: PathBuf,
    /// Revision to begin at. Default: the tip of `branch` if it exists, else HEAD.
    pub from: Option<String>,
    /// Fork to begin as, with its uncommitted changes. Then `from` is ignored.
    pub parent: Option<ParentOptions>,
    /// State to begin as. Then `from` is ignored as well.
    pub state: Option<ForkState>,
    /// Branch (short name) to check out, made if it does not exist.
    ///
    /// Default: `tine/<name>`.
    pub branch: Option<String>,
    /// True if HEAD is on no branch. Then `branch` is ignored.
    pub detached: bool,
    /// Kind of the git directory.
    pub git_kind: GitKind,
    /// True if programs in the fork are not trusted.
    ///
    /// Only for a fork with a git directory of its own.
    pub untrusted: bool,
    /// True if an existing branch follows the fork's.
    ///
    /// Only for a fork with a git directory of its own.
    pub follow: bool,
    /// Directory at which the fork is, or would be, mounted.
    pub mount_dir: PathBuf,
    /// True if the fork is about to be mounted. Written to the record.
    pub mounted: bool,
    /// Settings of the mount.
    pub settings: MountSettings,
    /// Policy for the fork's changes when it is unmounted.
    pub on_unmount: UnmountPolicy,
    /// Interval of automatic snapshots while mounted, in time or changes.
    ///
    /// `None`: none are taken.
    pub snapshot_every: Option<SnapshotEvery>,
    /// User id of the owner of base files.
    pub uid: u32,
    /// Group id of base files.
    pub gid: u32,
    /// Permission bits that base files do not get.
    pub umask: u16,
    /// Choice of the ignored files to carry from the main checkout.
    pub carry: CarryRules,
}

impl ForkOptions {
    /// Returns the branch (short name) that the fork gets.
    pub fn branch(&self) -> String {
        self.branch
            .clone()
            .unwrap_or_else(|| own_branch(&self.name))
    }
}

impl ForkOptions {
    /// Returns the reflog message of the fork's branch.
    pub(super) fn reflog(&self) -> String {
        let origin = match (&self.parent, &self.state) {
            (Some(parent), _) => parent.name.as_str(),
            (None, Some(state)) => &state.origin,
            (None, None) => self.from.as_deref().unwrap_or("HEAD"),
        };
        format!("branch: Created from {origin}")
    }
}

/// Returns the default branch (short name) of the fork `name`.
pub fn own_branch(name: &ForkName) -> String {
    format!("tine/{name}")
}

impl Store {
    /// Makes a fork: branch, worktree, index, layer and record.
    ///
    /// The layer is empty except for the `.git` file of a linked worktree. On an error all steps are rolled back.
    ///
    /// # Errors
    /// [`StoreError::ForkExists`], [`StoreError::LeaseHeld`] for the branch,
    /// [`GitError`](tine_git::GitError) if the branch or commit cannot be used, or an I/O error.
    pub fn create_fork(&self, options: &ForkOptions) -> Result<ForkRecord, StoreError> {
        let name = &options.name;
        self.check_is_free(name)?;
        self.finish_removal(name)?;
        let by = format!("tine new {name}");
        let _lease = self.lease([LeaseKey::Branch(options.branch())], &by)?;
        let start = self.start_of(options)?;
        // Outside the lock: the first index of a large tree takes a while, and work on other forks
        // must go on.
        let prepared = match options.parent {
            None => {
                let commit_id = match &options.state {
                    Some(state) => Some(state.commit_id),
                    None => start.commit_id,
                };
                let base = self.base_at(commit_id)?;
                let chosen = self.choose_carried(&options.carry, &base)?;
                let from = chosen.as_ref().and_then(CarryRecord::shows_files_of);
                // Build outputs that are carried were made before this moment.
                let attrs = BaseAttrs::now(options.uid, options.gid, options.umask);
                let prepared = self.prepare_base(commit_id, attrs, None, from)?;
                Some((prepared, chosen))
            }
            Some(_) => None,
        };

        let _admin = self.admin.lock();
        self.check_is_free(name)?;
        let initial = match (&options.parent, prepared) {
            (Some(parent), _) => self.content_of_parent(parent, start.commit_id, &options.carry)?,
            (None, Some((prepared, chosen))) => match &options.state {
                Some(state) => self.content_of_state(prepared, state, chosen)?,
                None => InitialContent::of_base(prepared, start.commit_id, chosen),
            },
            (None, None) => return Err(StoreError::NoSuchFork(name.to_string())),
        };
        let fork_dir = self.places.fork(name);
        let layer_id = self.next_layer_id()?;
        let layer_dir = self.places.layer(layer_id);
        let branch = start.branch.as_str();
        let has_branch = AtomicBool::new(false);
        let mut undo = Rollback::default();
        undo.push(|| remove_fork_dir(&self.places, name));
        files::create_private_dir_with(&fork_dir, TRACES_NAME, &start.traces(options))?;
        // Left by a fork of that name whose removal was not finished.
        files::remove_file(&self.places.snapshots(name))?;

        if let Some(commit_id) = start.commit_id {
            let has_branch = &has_branch;
            undo.push(move || {
                if has_branch.load(Ordering::Relaxed) {
                    Ok(self.repository.delete_branch(branch, commit_id)?)
                } else {
                    Ok(())
                }
            });
        }
        undo.push(|| release_refs(&self.repository, name.as_str()));
        let worktree = self.create_worktree(options, &start)?;
        let registered = worktree.clone();
        undo.push(move || Ok(registered.remove()?));
        undo.push(|| files::remove_dir(&layer_dir));

        let record = ForkRecord {
            name: name.clone(),
            created_secs: Timestamp::now().secs,
            base_commit: initial.base_commit.clone(),
            base_tree: initial.base.tree_id().to_string(),
            base_attrs: initial.attrs,
            conversions: Some(initial.base.settings().clone()),
            parent: initial.parent.clone(),
            branch: branch.to_owned(),
            head_branch: None,
            from_branch: start.from_branch.clone(),
            fork_point: Some(start.fork_point.into()),
            former_fork_point: None,
            advancing: None,
            restoring: None,
            git_kind: options.git_kind,
            untrusted: options.untrusted,
            worktree_id: worktree.id().unwrap_or_default().to_owned(),
            followed_branch: self.followed_by(&start, options),
            on_unmount: options.on_unmount.clone(),
            snapshot_every: options.snapshot_every,
            mount_dir: options.mount_dir.clone(),
            settings: options.settings,
            mounted: options.mounted,
            carry: initial.carry.clone(),
            min_ctime: initial.min_ctime,
            open_layer: layer_id,
            frozen_layers: initial.frozen.iter().map(|layer| layer.id().0).collect(),
            has_snapshots: false,
            renewed: None,
        };
        let staged = OnceLock::new();
        let stage = || {
            // This is the only place that sets it.
            let _ = staged.set(files::Staged::json(&self.places.record(name), &record)?);
            Ok(())
        };
        let index = || initial.fill_worktree(&self.repository, &worktree);
        let layer = || initial.create_layer(&layer_dir, layer_id, &worktree);
        // Each step waits for the disk and for no other step. The record is put in place when all
        // are done.
        let mut steps: Vec<Box<dyn Fn() -> Result<(), StoreError> + Sync + '_>> = vec![
            Box::new(layer),
            Box::new(index),
            Box::new(|| self.count_layer(layer_id)),
            Box::new(stage),
        ];
        if let Some(parent) = &initial.parent {
            // The parent's layers may hold blobs of every HEAD that it had.
            steps.push(Box::new(|| self.hold_kept(&parent.fork, name)));
        }
        if let Some(state) = &options.state {
            // The base's tree is that of the commit, which may have no other ref.
            steps.push(Box::new(|| {
                let tree_id = self.repository.commit_info(state.commit_id)?.tree_id;
                Ok(self.repository.hold(name.as_str(), tree_id)?)
            }));
        }
        let base_commit = initial
            .base_commit
            .as_deref()
            .and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok());
        for (label, commit_id) in [("base", base_commit), ("head", start.commit_id)] {
            if let Some(commit_id) = commit_id {
                steps.push(Box::new(move || {
                    Ok(self.repository.keep(name.as_str(), label, commit_id)?)
                }));
            }
        }
        if let Some(commit_id) = start.commit_id.filter(|_| start.is_new) {
            let has_branch = &has_branch;
            steps.push(Box::new(move || {
                self.create_branch(branch, commit_id, options)?;
                has_branch.store(true, Ordering::Relaxed);
                Ok(())
            }));
        }
        disk_work(&steps, |step| step())?;
        if let Some(staged) = staged.get() {
            staged.publish()?;
        }
        undo.disarm();
        drop(steps);
        if let IndexSource::Base(_) = initial.index
            && let Some(stamp) = IndexStamp::of(&worktree.index_path())
        {
            let index = (stamp, initial.base.tree_id());
            self.open.lock().new_indexes.insert(name.clone(), index);
        }
        // The record is in place. If this file stays, the next opening of the store removes it.
        if let Err(error) = files::remove_file(&self.places.traces(name)) {
            log::warn!("{error}");
        }
        Ok(record)
    }

    pub(super) fn check_is_free(&self, name: &ForkName) -> Result<(), StoreError> {
        // A damaged record takes the name, too.
        match self.places.read_record(name) {
            Err(StoreError::NoSuchFork(_)) => Ok(()),
            _ => Err(StoreError::ForkExists(name.clone())),
        }
    }

    fn create_branch(
        &self,
        branch: &str,
        commit_id: ObjectId,
        options: &ForkOptions,
    ) -> Result<(), StoreError> {
        let reflog = options.reflog();
        Ok(self.repository.create_branch(branch, commit_id, &reflog)?)
    }

    /// Returns a layer id that was never used. The caller holds `admin`.
    ///
    /// [`Store::count_layer`] must count it before a record names it.
    pub(super) fn next_layer_id(&self) -> Result<u64, StoreError> {
        let path = self.places.next_layer();
        let counter = match files::read_json::<u64>(&path) {
            Ok(counter) => counter.unwrap_or(1),
            // The existing directories are evidence as well.
            Err(StoreError::Damaged { .. }) => 1,
            Err(error) => return Err(error),
        };
        // Layers that were set aside come back under their ids.
        let aside = super::check::layer_ids_aside(&self.places)?;
        let existing = self.places.layer_dirs()?.into_iter().map(|(id, _)| id);
        let past_existing = existing.chain(aside).map(|id| id.saturating_add(1)).max();
        Ok(counter.max(past_existing.unwrap_or(1)))
    }

    /// Counts the id of a new layer as used.
    pub(super) fn count_layer(&self, id: u64) -> Result<(), StoreError> {
        files::write_json(&self.places.next_layer(), &id.saturating_add(1))
    }
}
