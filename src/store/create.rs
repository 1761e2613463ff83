//! Making and removing forks.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::beginning::{Beginning, IndexSource, ParentOptions};
use super::check::{move_to, next_aside};
use super::generations::clean_generations;
use super::recover::{
    clean_after_damaged, clean_unfinished, release_refs, remove_fork_dir, remove_traces,
};
use super::{ForkOptions, IndexStamp, LeaseKey, Store, TRACES_NAME, files, is_there, lock_reason};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord, Traces};
use tine_attr::Timestamp;
use tine_git::refs::is_for_layers;
use tine_git::{Checkout, GitError, Head, LinkedWorktree, ObjectId};
use tine_sys::parallel::disk_work;
use tine_workspace::{BaseAttrs, CarryRecord};

/// Undo steps, run in reverse order on drop unless disarmed.
#[derive(Default)]
struct Rollback<'a> {
    steps: Vec<Box<dyn FnOnce() -> Result<(), StoreError> + 'a>>,
}

impl<'a> Rollback<'a> {
    fn push(&mut self, step: impl FnOnce() -> Result<(), StoreError> + 'a) {
        self.steps.push(Box::new(step));
    }

    fn disarm(mut self) {
        self.steps.clear();
    }
}

impl Drop for Rollback<'_> {
    fn drop(&mut self) {
        let mut is_undone = true;
        while let Some(step) = self.steps.pop() {
            if !is_undone && self.steps.is_empty() {
                // The first step removes the list of what must be removed. Keep it for the next
                // opening.
                return;
            }
            if let Err(error) = step() {
                is_undone = false;
                log::warn!("could not undo a step, the next opening of the store will: {error}");
            }
        }
    }
}

/// Branch and commit at which a new fork begins.
struct Start {
    /// Short name.
    branch: String,
    /// True if the branch must be made.
    is_new: bool,
    /// True if HEAD is on no branch.
    is_detached: bool,
    /// `None` in a repository without a commit.
    commit_id: Option<ObjectId>,
    /// Branch that the fork comes from (short name).
    from_branch: Option<String>,
    /// Commit after which the own commits begin; `None` if all are own.
    fork_point: Option<ObjectId>,
}

impl Start {
    /// Returns the resources outside the store to remove if creation fails.
    fn traces(&self, options: &ForkOptions) -> Traces {
        let branch = self.commit_id.filter(|_| self.is_new);
        Traces {
            branch: branch.map(|commit_id| (self.branch.clone(), commit_id.to_string())),
            mount_dir: (!options.mount_dir.exists()).then(|| options.mount_dir.clone()),
        }
    }

    fn head(&self) -> Head {
        let name = format!("refs/heads/{}", self.branch);
        match self.commit_id {
            Some(commit_id) if self.is_detached => Head::Detached { commit_id },
            Some(commit_id) => Head::Branch { name, commit_id },
            None => Head::Unborn { name },
        }
    }
}

impl Store {
    /// Makes a fork: branch, linked worktree, index, layer and record.
    ///
    /// The layer is empty except for the `.git` file. On an error all steps are rolled back.
    ///
    /// # Errors
    /// [`StoreError::ForkExists`], [`StoreError::LeaseHeld`] for the branch, [`GitError`] if the
    /// branch or commit cannot be used, or an I/O error.
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
                let stands_on = match &options.take_up {
                    Some(take_up) => Some(take_up.commit_id),
                    None => start.commit_id,
                };
                let base = self.base_at(stands_on)?;
                let chosen = self.choose_carried(&options.carry, &base)?;
                let from = chosen.as_ref().and_then(CarryRecord::shows_files_of);
                // Build outputs that are carried were made before this moment.
                let attrs = BaseAttrs::now(options.uid, options.gid, options.umask);
                let prepared = self.prepare_base(stands_on, attrs, None, from)?;
                Some((prepared, chosen))
            }
            Some(_) => None,
        };

        let _admin = self.admin.lock();
        self.check_is_free(name)?;
        let beginning = match (&options.parent, prepared) {
            (Some(parent), _) => self.beginning_in(parent, start.commit_id, &options.carry)?,
            (None, Some((prepared, chosen))) => match &options.take_up {
                Some(take_up) => self.beginning_with(prepared, take_up, chosen)?,
                None => Beginning::at(prepared, start.commit_id, chosen),
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
        let worktree = LinkedWorktree::register(
            &self.repository,
            name.as_str(),
            &options.mount_dir,
            &start.head(),
            &lock_reason(name),
        )?;
        let registered = worktree.clone();
        undo.push(move || Ok(registered.remove()?));
        undo.push(|| files::remove_dir(&layer_dir));

        let record = ForkRecord {
            name: name.clone(),
            created_secs: Timestamp::now().secs,
            base_commit: beginning.base_commit.clone(),
            base_tree: beginning.base.tree_id().to_string(),
            base_attrs: beginning.attrs,
            conversions: Some(beginning.base.settings().clone()),
            parent: beginning.parent.clone(),
            branch: branch.to_owned(),
            head_branch: None,
            from_branch: start.from_branch.clone(),
            fork_point: Some(start.fork_point.into()),
            former_fork_point: None,
            advancing: None,
            worktree_id: worktree.id().to_owned(),
            on_unmount: options.on_unmount.clone(),
            snapshot_every: options.snapshot_every,
            mount_dir: options.mount_dir.clone(),
            settings: options.settings,
            mounted: options.mounted,
            carry: beginning.carry.clone(),
            stands_since: beginning.stands_since,
            open_layer: layer_id,
            frozen_layers: beginning.frozen.iter().map(|layer| layer.id().0).collect(),
            has_snapshots: false,
            renewed: None,
        };
        let staged = OnceLock::new();
        let stage = || {
            // This is the only place that sets it.
            let _ = staged.set(files::Staged::json(&self.places.record(name), &record)?);
            Ok(())
        };
        let index = || beginning.fill_worktree(&worktree);
        let layer = || beginning.create_layer(&layer_dir, layer_id, &worktree);
        // Each step waits for the disk and for no other step. The record is put in place when all
        // are done.
        let mut steps: Vec<Box<dyn Fn() -> Result<(), StoreError> + Sync + '_>> = vec![
            Box::new(layer),
            Box::new(index),
            Box::new(|| self.count_layer(layer_id)),
            Box::new(stage),
        ];
        if let Some(parent) = &beginning.parent {
            // The parent's layers may hold blobs of every HEAD that it had.
            steps.push(Box::new(|| self.hold_kept(&parent.fork, name)));
        }
        if let Some(take_up) = &options.take_up {
            // The base's tree is that of the commit, which may have no other ref.
            steps.push(Box::new(|| {
                let tree_id = self.repository.commit_info(take_up.commit_id)?.tree_id;
                Ok(self.repository.hold(name.as_str(), tree_id)?)
            }));
        }
        let base_commit = beginning
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
            staged.put_in_place()?;
        }
        undo.disarm();
        drop(steps);
        if let IndexSource::Base(_) = beginning.index
            && let Some(stamp) = IndexStamp::of(&worktree.index_path())
        {
            let index = (stamp, beginning.base.tree_id());
            self.open.lock().new_indexes.insert(name.clone(), index);
        }
        // The record is in place. If this file stays, the next opening of the store removes it.
        if let Err(error) = files::remove_file(&self.places.traces(name)) {
            log::warn!("{error}");
        }
        Ok(record)
    }

    /// Finishes an earlier, incomplete removal of the fork `name`.
    fn finish_removal(&self, name: &ForkName) -> Result<(), StoreError> {
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
    /// [`GitError::RefLocked`].
    pub fn remove_fork(&self, name: &ForkName) -> Result<(), StoreError> {
        self.remove_fork_with(name, &Traces::default()).map(drop)
    }

    /// Checks that git does not lock the fork's refs.
    ///
    /// # Errors
    /// [`GitError::RefLocked`].
    pub fn check_can_remove(&self, name: &ForkName) -> Result<(), StoreError> {
        Ok(self.repository.check_releasable(name.as_str())?)
    }

    /// Removes the fork with `traces`; returns whether the branch was deleted.
    ///
    /// After the record is gone, a failing step is logged and left to the next opening of the
    /// store.
    /// store tries again.
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
                match LinkedWorktree::open(&self.repository, &record.worktree_id) {
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

    pub(super) fn worktree_dir(&self, record: &ForkRecord) -> PathBuf {
        self.repository
            .common_dir()
            .join("worktrees")
            .join(&record.worktree_id)
    }

    /// Registers the worktree of a fork again if git has removed it.
    ///
    /// `git worktree remove --force --force` removes it, and the layers can be reached only through
    /// it. HEAD is put on the fork's branch, or else on its base. The index is that of the commit
    /// at which the fork left the branch, so that all uncommitted work is there, unstaged. The
    /// reflog of HEAD says where the fork left its branch.
    pub(super) fn restore_worktree(&self, record: &ForkRecord) -> Result<(), StoreError> {
        let dir = self.worktree_dir(record);
        if dir.is_dir() {
            return Ok(LinkedWorktree::mend(&dir, &record.mount_dir)?);
        }
        let name = record.head_branch.as_ref().unwrap_or(&record.branch);
        let by = format!("tine mount {}", record.name);
        let _lease = self.lease_now(LeaseKey::Branch(name.clone()), &by)?;
        let _admin = self.admin.lock();
        if dir.is_dir() {
            // Another thread was faster.
            return Ok(());
        }
        // A link that cannot be followed now may lead to the whole worktree.
        if fs::symlink_metadata(&dir).is_ok_and(|found| !found.is_symlink()) {
            let aside = next_aside(&self.places)?;
            let id = dir.file_name().unwrap_or_default();
            move_to(&dir, &aside.join("worktrees").join(id))?;
        }
        log::warn!(
            "the worktree of the fork {} is gone, registering it again",
            record.name
        );
        let branch = format!("refs/heads/{name}");
        let tip = match self.checked_out_at(name)? {
            Some(_) => None,
            None => self.repository.branch(name)?,
        };
        let base_commit = record
            .base_commit
            .as_deref()
            .and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok());
        let head = match (tip, base_commit) {
            (Some(commit_id), _) => Head::Branch {
                name: branch,
                commit_id,
            },
            (None, Some(commit_id)) => Head::Detached { commit_id },
            (None, None) => Head::Unborn { name: branch },
        };
        let left_at = match &head {
            Head::Branch { commit_id, .. } => Some(self.kept_left_at(record, *commit_id)?),
            head => head.commit_id(),
        };
        // With the base's index, `git commit` would revert what was committed since.
        let indexed = left_at
            .filter(|id| self.repository.has_object(*id))
            .or(base_commit);
        let prepared = self.prepare_base(
            indexed,
            record.base_attrs,
            record.conversions.as_ref(),
            None,
        )?;
        let worktree = LinkedWorktree::register_again(
            &self.repository,
            record.name.as_str(),
            &record.mount_dir,
            &head,
            left_at,
            &lock_reason(&record.name),
        )?;
        let mut undo = Rollback::default();
        let registered = worktree.clone();
        undo.push(move || Ok(registered.remove()?));
        if worktree.id() != record.worktree_id {
            // The `.git` file in the layer leads to the old worktree.
            return Err(StoreError::Damaged {
                path: dir,
                reason: "the fork's worktree is gone and cannot be registered under its name"
                    .to_owned(),
            });
        }
        Beginning::at(prepared, indexed, None).fill_worktree(&worktree)?;
        undo.disarm();
        Ok(())
    }

    /// Returns the commit at which the fork left its branch.
    ///
    /// This is the branch's current commit `tip` if the kept refs show that the fork had that
    /// commit, if git moved the branch there in a checkout, which can only have been the fork's, or
    /// if no HEAD is kept. Otherwise it is the kept HEAD.
    fn kept_left_at(&self, record: &ForkRecord, tip: ObjectId) -> Result<ObjectId, StoreError> {
        let mut head = None;
        for (label, id) in self.repository.kept(record.name.as_str())? {
            if !is_for_layers(&label) || !self.repository.has_object(id) {
                continue;
            }
            if tip == id || self.repository.is_ancestor(tip, id)? {
                return Ok(tip);
            }
            if label == "head" {
                head = Some(id);
            }
        }
        let branch = record.head_branch.as_ref().unwrap_or(&record.branch);
        Ok(match head {
            Some(head) if !self.repository.was_moved_in_checkout(branch, head, tip)? => head,
            _ => tip,
        })
    }

    fn check_is_free(&self, name: &ForkName) -> Result<(), StoreError> {
        // A damaged record takes the name, too.
        match self.places.read_record(name) {
            Err(StoreError::NoSuchFork(_)) => Ok(()),
            _ => Err(StoreError::ForkExists(name.clone())),
        }
    }

    /// Returns where the branch (short name) is checked out, if anywhere.
    ///
    /// A fork with an unreadable HEAD counts as on the branch in its record.
    fn checked_out_at(&self, branch: &str) -> Result<Option<PathBuf>, StoreError> {
        let mut checkouts = self.repository.checkouts()?;
        assume_branches(&mut checkouts, &self.records().0);
        let full_name = format!("refs/heads/{}", self.repository.branch_behind(branch));
        let mut checkouts = checkouts.into_iter();
        let found = checkouts.find(|checkout| checkout.uses(full_name.as_bytes()));
        Ok(found.map(|checkout| checkout.dir))
    }

    /// Decides branch and commit of a new fork. Changes nothing.
    ///
    /// The caller holds the branch's lease.
    fn start_of(&self, options: &ForkOptions) -> Result<Start, StoreError> {
        let repository = &self.repository;
        let branch = options.branch();
        repository.check_branch_name(&branch)?;
        if let Some(at) = self.checked_out_at(&branch)? {
            return Err(GitError::BranchCheckedOut { branch, at }.into());
        }
        let wanted = match (&options.take_up, &options.from) {
            (Some(take_up), _) => take_up.head,
            (None, Some(revision)) => Some(repository.resolve_commit(&options.git_dir, revision)?),
            (None, None) => None,
        };
        let tip = if options.detached {
            None
        } else {
            repository.branch(&branch)?
        };
        if let Some(tip) = tip {
            // The parent's changes are relative to its HEAD, so the branch must be at that commit.
            let wanted = match &options.parent {
                Some(parent) => self.head_of_parent(parent)?,
                None => wanted,
            };
            let is_asked_for = match &options.take_up {
                // The branch must have the commits of the state.
                Some(_) => wanted == Some(tip),
                None => options.branch.is_some() && wanted.is_none_or(|wanted| wanted == tip),
            };
            if !is_asked_for {
                return Err(GitError::BranchExists(branch).into());
            }
        }
        let commit_id = match (&options.parent, tip.or(wanted)) {
            (None, None) if options.take_up.is_some() => None,
            (None, Some(commit_id)) => Some(commit_id),
            (None, None) => repository.head_of(&options.git_dir)?.commit_id(),
            (Some(parent), _) => self.head_of_parent(parent)?,
        };
        if options.detached && commit_id.is_none() {
            return Err(GitError::UnknownRevision("HEAD".to_owned()).into());
        }
        let mut from_branch = self
            .branch_it_comes_from(options)?
            .filter(|from| *from != branch);
        if tip.is_some()
            && from_branch.is_none()
            && options.parent.is_none()
            && options.take_up.is_none()
        {
            // `--from` names the branch itself.
            let head = repository.head_of(&options.git_dir)?;
            from_branch = head
                .short_branch()
                .map(str::to_owned)
                .filter(|from| *from != branch);
        }
        let fork_point = match (&options.take_up, tip) {
            (Some(take_up), _) => take_up.fork_point,
            (None, Some(tip)) if options.parent.is_none() => {
                self.fork_point_of_branch(options, tip, from_branch.as_deref())?
            }
            (None, _) => commit_id,
        };
        Ok(Start {
            from_branch,
            fork_point,
            branch,
            is_new: tip.is_none() && !options.detached,
            is_detached: options.detached,
            commit_id,
        })
    }

    /// Returns the fork point for a fork on an existing branch.
    ///
    /// The branch is at `tip`. The fork point is its merge base with the branch that the fork comes
    /// from (`from`), or with HEAD. Of several it is the one that git lists first.
    fn fork_point_of_branch(
        &self,
        options: &ForkOptions,
        tip: ObjectId,
        from: Option<&str>,
    ) -> Result<Option<ObjectId>, StoreError> {
        let origin = match from {
            Some(from) => self.repository.branch(from)?,
            None => self.repository.head_of(&options.git_dir)?.commit_id(),
        };
        Ok(match origin {
            Some(origin) => self.repository.merge_bases(tip, origin)?.first().copied(),
            None => None,
        })
    }

    /// Returns the branch from which the fork begins.
    fn branch_it_comes_from(&self, options: &ForkOptions) -> Result<Option<String>, StoreError> {
        let repository = &self.repository;
        let head_of = |git_dir: &Path| -> Result<Option<String>, StoreError> {
            let head = repository.head_of(git_dir)?;
            if let Head::Unborn { .. } = head
                && let Some(branch) = head.short_branch()
            {
                // An alias to a missing branch is refused before a fork comes from it.
                repository.branch(branch)?;
            }
            Ok(head.short_branch().map(str::to_owned))
        };
        if let Some(take_up) = &options.take_up {
            return Ok(take_up.from_branch.clone());
        }
        match (&options.parent, options.from.as_deref()) {
            (Some(parent), _) => head_of(parent.fork.worktree.git_dir()),
            (None, None | Some("HEAD" | "@")) => head_of(&options.git_dir),
            (None, Some(revision)) => {
                let name = revision.strip_prefix("refs/heads/").unwrap_or(revision);
                let is_branch = repository.check_branch_name(name).is_ok()
                    && repository.branch(name)?.is_some();
                Ok(is_branch.then(|| name.to_owned()))
            }
        }
    }

    fn head_of_parent(&self, parent: &ParentOptions) -> Result<Option<ObjectId>, StoreError> {
        match &parent.snapshot {
            None => Ok(self.repository.head_left_at(
                &parent.fork.worktree,
                parent.fork.name().as_str(),
                &parent.fork.made_on,
            )?),
            Some(snapshot) => {
                let hex = snapshot.head_commit.as_deref();
                Ok(hex.and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok()))
            }
        }
    }

    fn create_branch(
        &self,
        branch: &str,
        commit_id: ObjectId,
        options: &ForkOptions,
    ) -> Result<(), StoreError> {
        let origin = match (&options.parent, &options.take_up) {
            (Some(parent), _) => parent.name.as_str(),
            (None, Some(take_up)) => &take_up.origin,
            (None, None) => options.from.as_deref().unwrap_or("HEAD"),
        };
        let reflog = format!("branch: Created from {origin}");
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

/// Gives checkouts with an unreadable HEAD the branch of their fork's record.
///
/// So no other checkout can take that branch.
pub fn assume_branches(checkouts: &mut [Checkout], records: &[ForkRecord]) {
    for checkout in checkouts
        .iter_mut()
        .filter(|checkout| checkout.damage.is_some())
    {
        let id = checkout.git_dir.file_name().and_then(|id| id.to_str());
        if let Some(record) = records
            .iter()
            .find(|record| Some(record.worktree_id.as_str()) == id)
        {
            let branch = record.head_branch.as_ref().unwrap_or(&record.branch);
            checkout.branch = Some(format!("refs/heads/{branch}").into_bytes());
        }
    }
}
