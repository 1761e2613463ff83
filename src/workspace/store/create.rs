//! Making, resetting and removing forks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use super::recover::{clean_after_damaged, release_refs, remove_traces};
use super::{ForkOptions, IndexStamp, Store, TRACES_NAME, files, lock_reason};
use crate::attr::{FileKind, Ino, Timestamp};
use crate::git::index::{BaseStat, write_base_index};
use crate::git::{Base, ConversionSettings, GitError, Head, LinkedWorktree, ObjectId, TreeEntryKind};
use crate::layer::{Content, Dentry, Layer, LayerId, Node, Op, Origin, Xattrs};
use crate::path::{EntryName, RepoPath};
use crate::sys::parallel::at_once;
use crate::workspace::StoreError;
use crate::workspace::base_nodes::BaseAttrs;
use crate::workspace::changed::{base_name, beginning};
use crate::workspace::fork::{ForkName, ForkRecord, Traces};

/// Base nodes are at least this many seconds older than their index: git reads a file again whose time is not older
/// than the index that lists it.
const RACY_SECS: i64 = 2;

/// What of a git operation under way lies beside HEAD, and goes when the work tree is reset (`git reset --hard`).
const OPERATION_FILES: [&str; 8] = [
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_RR",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "SQUASH_MSG",
];

/// Steps to be undone, last first, unless the whole succeeds.
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
        while let Some(step) = self.steps.pop() {
            if let Err(error) = step() {
                log::warn!("could not undo a step, the next opening of the store will: {error}");
            }
        }
    }
}

/// Where a new fork stands.
struct Start {
    /// Short name.
    branch: String,
    /// Whether the branch is to be made.
    is_new: bool,
    /// `None` in a repository without a commit.
    commit_id: Option<ObjectId>,
}

impl Start {
    /// What goes with the fork, should it never be finished.
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
            Some(commit_id) => Head::Branch { name, commit_id },
            None => Head::Unborn { name },
        }
    }
}

/// The base of a fork that is being made: its tree, the attributes of its nodes, and its index, ready to be copied.
struct PreparedBase {
    base: Arc<Base>,
    attrs: BaseAttrs,
    index: PathBuf,
}

impl Store {
    /// Makes a fork: branch, linked worktree, index, an empty layer with the `.git` file, record. On an error everything
    /// is undone.
    pub fn create_fork(&self, options: &ForkOptions) -> Result<ForkRecord, StoreError> {
        let name = &options.name;
        self.check_is_free(name)?;
        let start = self.start_of(options)?;
        // Outside the lock: a large tree's first index takes a while, and other forks go on meanwhile.
        let prepared = self.prepare_base(start.commit_id, options.uid, options.gid, options.umask, None)?;

        let _admin = self.admin.lock();
        self.check_is_free(name)?;
        let fork_dir = self.places.fork(name);
        let layer_id = self.next_layer_id()?;
        let layer_dir = self.places.layer(layer_id);
        let branch = start.branch.as_str();
        let has_branch = AtomicBool::new(false);
        let mut undo = Rollback::default();
        undo.push(|| files::remove_dir(&fork_dir));
        files::create_private_dir_with(&fork_dir, TRACES_NAME, &start.traces(options))?;

        if let Some(commit_id) = start.commit_id {
            let has_branch = &has_branch;
            undo.push(move || match has_branch.load(Ordering::Relaxed) {
                true => Ok(self.repository.delete_branch(branch, commit_id)?),
                false => Ok(()),
            });
            undo.push(|| release_refs(&self.repository, name.as_str()));
        }
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
            base_commit: start.commit_id.map(|id| id.to_string()),
            base_tree: prepared.base.tree_id().to_string(),
            base_attrs: prepared.attrs,
            conversions: Some(prepared.base.settings().clone()),
            branch: branch.to_owned(),
            worktree_id: worktree.id().to_owned(),
            on_unmount: options.on_unmount,
            mount_dir: options.mount_dir.clone(),
            settings: options.settings,
            mounted: options.mounted,
            open_layer: layer_id,
            frozen_layers: Vec::new(),
        };
        let staged = OnceLock::new();
        let stage = || {
            // Nobody else fills it.
            let _ = staged.set(files::Staged::json(&self.places.record(name), &record)?);
            Ok(())
        };
        let index = || fill_worktree(&prepared.index, &worktree);
        let layer = || create_layer(&layer_dir, layer_id, &prepared, &worktree);
        // Each waits for the disk, none for another; the record takes its place when all are there.
        let mut steps: Vec<Box<dyn Fn() -> Result<(), StoreError> + Sync + '_>> = vec![
            Box::new(layer),
            Box::new(index),
            Box::new(|| self.count_layer(layer_id)),
            Box::new(stage),
        ];
        if let Some(commit_id) = start.commit_id {
            for label in ["base", "head"] {
                steps.push(Box::new(move || {
                    Ok(self.repository.keep(name.as_str(), label, commit_id)?)
                }));
            }
            if start.is_new {
                let has_branch = &has_branch;
                steps.push(Box::new(move || {
                    self.create_branch(branch, commit_id, options)?;
                    has_branch.store(true, Ordering::Relaxed);
                    Ok(())
                }));
            }
        }
        at_once(&steps, |step| step())?;
        if let Some(staged) = staged.get() {
            staged.put_in_place()?;
        }
        undo.disarm();
        drop(steps);
        if let Some(stamp) = IndexStamp::of(&worktree.index_path()) {
            let index = (stamp, prepared.base.tree_id());
            self.open.lock().new_indexes.insert(name.clone(), index);
        }
        // The record stands, so nothing is to go; a list that stays is removed at the next opening.
        if let Err(error) = files::remove_file(&self.places.traces(name)) {
            log::warn!("{error}");
        }
        Ok(record)
    }

    /// Gives the fork an empty layer over its base (with HEAD where it is; a new base where `HEAD` moved), and a fresh
    /// index. Nobody may hold it open. What it held must have been kept before. A merge, cherry-pick or revert that is
    /// under way is forgotten, as `git reset --hard` does.
    pub fn reset_fork(&self, name: &ForkName) -> Result<(), StoreError> {
        let record = self.places.read_record(name)?;
        let worktree = LinkedWorktree::open(&self.repository, &record.worktree_id)?;
        let commit_id = self.repository.head_of(worktree.git_dir())?.commit_id();
        let BaseAttrs { uid, gid, umask, .. } = record.base_attrs;
        let prepared = self.prepare_base(commit_id, uid, gid, umask, record.conversions.as_ref())?;

        let _admin = self.admin.lock();
        let open = self.open.lock();
        open.check_is_closed(name)?;
        let mut record = self.places.read_record(name)?;
        let layer_id = self.next_layer_id()?;
        self.count_layer(layer_id)?;
        let layer_dir = self.places.layer(layer_id);
        let mut undo = Rollback::default();
        undo.push(|| files::remove_dir(&layer_dir));
        create_layer(&layer_dir, layer_id, &prepared, &worktree)?;
        replace_index(&prepared.index, &worktree)?;

        let old_layers: Vec<u64> = record
            .frozen_layers
            .drain(..)
            .chain([record.open_layer])
            .collect();
        record.base_commit = commit_id.map(|id| id.to_string());
        record.base_tree = prepared.base.tree_id().to_string();
        record.base_attrs = prepared.attrs;
        record.conversions = Some(prepared.base.settings().clone());
        record.open_layer = layer_id;
        files::write_json(&self.places.record(name), &record)?;
        undo.disarm();

        for file in OPERATION_FILES {
            files::remove_file(&worktree.git_dir().join(file))?;
        }
        for (label, _) in self.repository.kept(name.as_str())? {
            if label.starts_with("held-") {
                self.repository.release(name.as_str(), &label)?;
            }
        }
        if let Some(commit_id) = commit_id {
            self.repository.keep(name.as_str(), "base", commit_id)?;
            self.repository.keep(name.as_str(), "head", commit_id)?;
        }
        for id in old_layers {
            files::remove_dir(&self.places.layer(id))?;
        }
        Ok(())
    }

    /// Removes the fork: record first, then refs other than `refs/tine/<fork>/discarded-*`, layers and the worktree.
    /// Nobody may hold it open. The branch is left alone. A damaged record is no obstacle.
    pub fn remove_fork(&self, name: &ForkName) -> Result<(), StoreError> {
        self.remove_fork_with(name, &Traces::default()).map(drop)
    }

    /// As [`Store::remove_fork`], with what the fork has elsewhere; whether the branch was deleted. What of that cannot be
    /// removed stays and is logged.
    pub fn remove_fork_with(&self, name: &ForkName, traces: &Traces) -> Result<bool, StoreError> {
        let _admin = self.admin.lock();
        let mut open = self.open.lock();
        open.check_is_closed(name)?;
        let record = match self.places.read_record(name) {
            Ok(record) => Some(record),
            // What it named is found below.
            Err(StoreError::Damaged { .. }) => None,
            Err(error) => return Err(error),
        };
        open.forks.remove(name);
        open.new_indexes.remove(name);
        files::write_json(&self.places.traces(name), traces)?;
        let record_path = self.places.record(name);
        files::remove_file(&record_path)?;
        files::sync_parent(&record_path)?;

        release_refs(&self.repository, name.as_str())?;
        if record.is_none() {
            clean_after_damaged(&self.repository, &self.places)?;
        }
        if let Some(record) = record {
            for id in record.frozen_layers.iter().chain([&record.open_layer]) {
                files::remove_dir(&self.places.layer(*id))?;
            }
            match LinkedWorktree::open(&self.repository, &record.worktree_id) {
                Ok(worktree) => worktree.remove()?,
                // Damaged, or gone: what is left of it goes only if it says whose it is.
                Err(error) => {
                    log::warn!("{error}");
                    clean_after_damaged(&self.repository, &self.places)?;
                }
            }
        }
        let branch_deleted = remove_traces(&self.repository, &self.places, name).unwrap_or_else(|error| {
            log::warn!("not all of {name} is removed: {error}");
            false
        });
        files::remove_dir(&self.places.fork(name))?;
        Ok(branch_deleted)
    }

    pub(super) fn worktree_dir(&self, record: &ForkRecord) -> PathBuf {
        self.repository
            .common_dir()
            .join("worktrees")
            .join(&record.worktree_id)
    }

    /// Registers the worktree of a fork again where it is gone altogether (`git worktree remove --force --force`): what
    /// is in the layers needs it to be reached. HEAD is on the fork's branch, or else on its base, and the index is the
    /// base's, so that everything uncommitted is there and unstaged.
    pub(super) fn restore_worktree(&self, record: &ForkRecord) -> Result<(), StoreError> {
        let dir = self.worktree_dir(record);
        if dir.exists() {
            return Ok(());
        }
        let _admin = self.admin.lock();
        if dir.exists() {
            // Another thread was faster.
            return Ok(());
        }
        log::warn!(
            "the worktree of the fork {} is gone, registering it again",
            record.name
        );
        let branch = format!("refs/heads/{}", record.branch);
        let tip = match self.repository.checked_out_at(&record.branch)? {
            Some(_) => None,
            None => self.repository.branch(&record.branch)?,
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
        let BaseAttrs { uid, gid, umask, .. } = record.base_attrs;
        let prepared = self.prepare_base(base_commit, uid, gid, umask, record.conversions.as_ref())?;
        let worktree = LinkedWorktree::register(
            &self.repository,
            record.name.as_str(),
            &record.mount_dir,
            &head,
            &lock_reason(&record.name),
        )?;
        let mut undo = Rollback::default();
        let registered = worktree.clone();
        undo.push(move || Ok(registered.remove()?));
        if worktree.id() != record.worktree_id {
            // The `.git` file in the layer leads to the old one.
            return Err(StoreError::Damaged {
                path: dir,
                reason: "the fork's worktree is gone and cannot be registered under its name".to_owned(),
            });
        }
        fill_worktree(&prepared.index, &worktree)?;
        undo.disarm();
        Ok(())
    }

    fn check_is_free(&self, name: &ForkName) -> Result<(), StoreError> {
        // A damaged record takes the name, too.
        match self.places.read_record(name) {
            Err(StoreError::NoSuchFork(_)) => Ok(()),
            _ => Err(StoreError::ForkExists(name.clone())),
        }
    }

    /// Decides branch and commit of a new fork. Changes nothing.
    fn start_of(&self, options: &ForkOptions) -> Result<Start, StoreError> {
        let repository = &self.repository;
        let branch = match &options.branch {
            Some(branch) => branch.clone(),
            None => format!("tine/{}", options.name),
        };
        repository.check_branch_name(&branch)?;
        if let Some(at) = repository.checked_out_at(&branch)? {
            return Err(GitError::BranchCheckedOut { branch, at }.into());
        }
        let wanted = match &options.from {
            Some(revision) => Some(repository.resolve_commit(&options.git_dir, revision)?),
            None => None,
        };
        let tip = repository.branch(&branch)?;
        if let Some(tip) = tip {
            let is_asked_for = options.branch.is_some() && wanted.is_none_or(|wanted| wanted == tip);
            if !is_asked_for {
                return Err(GitError::BranchExists(branch).into());
            }
        }
        let commit_id = match tip.or(wanted) {
            Some(commit_id) => Some(commit_id),
            None => repository.head_of(&options.git_dir)?.commit_id(),
        };
        Ok(Start {
            branch,
            is_new: tip.is_none(),
            commit_id,
        })
    }

    fn create_branch(
        &self,
        branch: &str,
        commit_id: ObjectId,
        options: &ForkOptions,
    ) -> Result<(), StoreError> {
        let origin = options.from.as_deref().unwrap_or("HEAD");
        let reflog = format!("branch: Created from {origin}");
        Ok(self.repository.create_branch(branch, commit_id, &reflog)?)
    }

    /// Opens the base of `commit_id` (the empty tree where there is none) with `settings` (or those of now) and makes sure that its index is cached.
    fn prepare_base(
        &self,
        commit_id: Option<ObjectId>,
        uid: u32,
        gid: u32,
        umask: u16,
        settings: Option<&ConversionSettings>,
    ) -> Result<PreparedBase, StoreError> {
        let newest_secs = Timestamp::now().secs - RACY_SECS;
        let (tree_id, secs) = match commit_id {
            Some(commit_id) => {
                let info = self.repository.commit_info(commit_id)?;
                (info.tree_id, info.time_secs.min(newest_secs))
            }
            None => (self.repository.empty_tree_id(), newest_secs),
        };
        // git's index holds seconds since 1970 without a sign, and takes 0 for "unknown".
        let time = Timestamp::from_secs(secs.max(1));
        let base = self.shared_base(&mut self.open.lock(), tree_id, settings)?;

        let attrs = BaseAttrs {
            uid,
            gid,
            umask,
            time,
        };
        // The index has the sizes of converted files.
        let index = self.places.bases().join(base_name(&base, &attrs));
        let _build = self.index_build.lock();
        match File::open(&index) {
            // The time of the last use decides which cached indexes are kept.
            Ok(file) => file
                .set_modified(SystemTime::now())
                .map_err(StoreError::io("touch", &index))?,
            Err(_) => files::replace_atomically(&index, |temporary| {
                let stat = BaseStat { uid, gid, time };
                write_base_index(&base, &stat, &beginning(&base, &attrs), temporary).map_err(StoreError::from)
            })?,
        }
        Ok(PreparedBase { base, attrs, index })
    }

    /// A number that no layer had before, and must not be given again once a record names it
    /// ([`Store::count_layer`]). The caller holds `admin`.
    fn next_layer_id(&self) -> Result<u64, StoreError> {
        let path = self.places.next_layer();
        let counter = match files::read_json::<u64>(&path) {
            Ok(counter) => counter.unwrap_or(1),
            // Directories tell as well.
            Err(StoreError::Damaged { .. }) => 1,
            Err(error) => return Err(error),
        };
        let past_existing = files::list(&self.places.layers())?
            .iter()
            .filter_map(|dir| dir.file_name()?.to_str()?.parse::<u64>().ok())
            .map(|id| id.saturating_add(1))
            .max();
        Ok(counter.max(past_existing.unwrap_or(1)))
    }

    /// Notes that the layer `id` was there.
    fn count_layer(&self, id: u64) -> Result<(), StoreError> {
        files::write_json(&self.places.next_layer(), &id.saturating_add(1))
    }
}

/// Gives the worktree the cached index in the place of its own.
fn replace_index(cached: &Path, worktree: &LinkedWorktree) -> Result<(), StoreError> {
    files::replace_atomically(&worktree.index_path(), |temporary| copy_index(cached, temporary))
}

/// Gives a worktree that was just registered the cached index, and brings all of it to the disk: no record may name a
/// worktree that a power loss took.
fn fill_worktree(cached: &Path, worktree: &LinkedWorktree) -> Result<(), StoreError> {
    copy_index(cached, &worktree.index_path())?;
    files::sync_files_in(worktree.git_dir())
}

/// Copies an index: shared blocks where the disk can. A hard link would not do, as some programs write an index in place.
fn copy_index(cached: &Path, to: &Path) -> Result<(), StoreError> {
    fs::copy(cached, to)
        .map(|_| ())
        .map_err(StoreError::io("write", to))
}

/// Makes an empty layer: nothing but the `.git` file that makes the fork's root a checkout of `worktree`.
fn create_layer(
    dir: &Path,
    id: u64,
    prepared: &PreparedBase,
    worktree: &LinkedWorktree,
) -> Result<(), StoreError> {
    let PreparedBase { base, attrs, .. } = prepared;
    let is_dir = |kind| matches!(kind, TreeEntryKind::Directory | TreeEntryKind::Submodule);
    let subdirs = base
        .root()?
        .entries
        .iter()
        .filter(|entry| is_dir(entry.kind))
        .count();
    let root = Node {
        kind: FileKind::Directory,
        perm: 0o777 & !attrs.umask,
        uid: attrs.uid,
        gid: attrs.gid,
        nlink: u32::try_from(subdirs).unwrap_or(u32::MAX).saturating_add(2),
        rdev: 0,
        size: 0,
        atime: attrs.time,
        mtime: attrs.time,
        ctime: attrs.time,
        content: Content::Empty,
        origin: Some(Box::new(Origin {
            path: RepoPath::root(),
            kind: TreeEntryKind::Directory,
            id: base.tree_id(),
        })),
        xattrs: Xattrs::new(),
    };

    let name = EntryName::new(".git")?;
    let text = worktree.dot_git();
    let len = text.len() as u64;
    Layer::create_with(dir, LayerId(id), |layer| {
        let ino = layer.allocate_ino()?;
        let place = layer.new_content(len)?;
        let place = layer.write_content(place, 0, 0, &text)?;
        let dot_git = Node {
            kind: FileKind::Regular,
            perm: 0o644,
            nlink: 1,
            size: len,
            content: Content::Own(place),
            origin: None,
            ..root.clone()
        };
        layer.commit(vec![
            Op::PutNode(ino, dot_git),
            Op::PutNode(Ino::ROOT, root),
            Op::PutDentry {
                parent: Ino::ROOT,
                name,
                dentry: Dentry::Entry(ino),
            },
        ])
    })?;
    Ok(())
}
