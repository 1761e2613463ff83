//! Cleanup, when the store is opened, after a process that died.
//!
//! A fork's record is written last when it is made and removed first when it is removed. So
//! everything that no record names is garbage: worktrees with tine's lock reason, layers,
//! half-written files. If a record is unreadable, or missing although other files name its fork,
//! nothing that may belong to it is touched. Garbage that cannot be removed is logged and stays. It
//! does not prevent the store from being opened.

use std::collections::{BTreeSet, HashSet};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::documents::clean_records;
use super::generations::clean_generations;
use super::home::displaced;
use super::places::{Places, is_there};
use super::times::{clean_times, named_times};
use super::worktree::fork_of_lock_reason;
use super::{Store, files};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord, Traces};
use tine_git::index::release_stale_lock;
use tine_git::own::is_of_git_dir;
use tine_git::refs::{STATE, is_for_layers};
use tine_git::worktree::remove_unfinished;
use tine_git::{ObjectId, Repository, Worktree};
use tine_workspace::TimesId;

/// Number of cached base indexes kept: the most recently used ones.
const MAX_CACHED_INDEXES: usize = 16;

/// Releases the refs below `refs/tine/<fork>/` that end with the fork.
///
/// `discarded-<n>` outlive it.
pub(super) fn release_refs(repository: &Repository, fork: &str) -> Result<(), StoreError> {
    let labels = repository.labels(fork)?.into_iter().map(|(label, _)| label);
    let ends = |label: &String| {
        is_for_layers(label)
            || is_of_git_dir(label)
            || label == STATE
            || label.starts_with("snapshot-")
    };
    let ending: Vec<String> = labels.filter(ends).collect();
    Ok(repository.release_all(fork, &ending)?)
}

/// Forks of a store and the files that they name.
pub(super) struct Inventory {
    pub records: Vec<ForkRecord>,
    /// Forks with a damaged or missing record or snapshot list.
    pub unreadable: HashSet<String>,
    /// Forks that were being made or removed.
    unfinished: Vec<ForkName>,
    /// Layers of forks and of their snapshots.
    pub layers: HashSet<u64>,
    /// Layers of forks that are set aside.
    aside: HashSet<u64>,
    /// Frozen layers of each fork and snapshot, newest first.
    ///
    /// Each layer of a fork set aside is a stack of one.
    pub stacks: Vec<Vec<u64>>,
    /// Tables of times that forks and snapshots name.
    times: HashSet<TimesId>,
}

impl Inventory {
    pub(super) fn of(places: &Places) -> Result<Inventory, StoreError> {
        let mut inventory = Inventory {
            records: Vec::new(),
            unreadable: HashSet::new(),
            unfinished: Vec::new(),
            layers: HashSet::new(),
            aside: super::check::layers_of_aside(places)?,
            stacks: Vec::new(),
            times: HashSet::new(),
        };
        for (text, read) in places.read_records()? {
            match read {
                Some(Ok(record)) => {
                    inventory.stacks.push(record.frozen_layers.clone());
                    inventory.layers.insert(record.open_layer);
                    match places.snapshots_of(&record) {
                        Ok(list) => {
                            inventory.times.extend(named_times(&record, &list));
                            let snapshots = list.snapshots.iter();
                            inventory
                                .stacks
                                .extend(snapshots.map(|snapshot| snapshot.frozen_layers.clone()));
                        }
                        Err(_) => drop(inventory.unreadable.insert(text)),
                    }
                    inventory.records.push(record);
                }
                Some(Err(StoreError::NoSuchFork(_))) => {
                    inventory.unfinished.extend(ForkName::parse(&text));
                }
                Some(Err(_)) => drop(inventory.unreadable.insert(text)),
                None => {}
            }
        }
        inventory.layers.extend(inventory.stacks.iter().flatten());
        // One stack each, so that none is merged with others.
        let aside = inventory.aside.iter().map(|id| vec![*id]);
        inventory.stacks.extend(aside);
        Ok(inventory)
    }

    /// Returns whether a readable record names the layer.
    pub(super) fn names_layer(&self, id: u64) -> bool {
        self.layers.contains(&id) || self.aside.contains(&id)
    }
}

/// Removes everything that no record names.
pub(super) fn clean(repository: &Repository, places: &Places) -> Result<(), StoreError> {
    let mut inventory = Inventory::of(places)?;
    for dir in files::list(&places.forks())? {
        attempt(remove_temporaries(&dir));
    }
    for record in &mut inventory.records {
        attempt(files::remove_file(&places.traces(&record.name)));
        attempt(places.note_list(record));
    }
    // Before refs are changed.
    attempt(
        repository
            .release_stale_ref_locks()
            .map_err(StoreError::from),
    );
    attempt(repository.release_noted_locks().map_err(StoreError::from));
    // git takes this lock for each change of a ref if there are packed refs.
    attempt(
        repository
            .release_stale_packed_refs_lock()
            .map_err(StoreError::from),
    );
    attempt(clean_worktrees(
        repository,
        &inventory.records,
        &inventory.unreadable,
    ));
    Store::clean_converted(places, &inventory.records);
    clean_indexes(repository, &inventory.records);
    for name in &inventory.unfinished {
        attempt(clean_unfinished_of(repository, places, name, &inventory));
    }
    attempt(clean_generations(places).map(drop));
    if inventory.unreadable.is_empty() {
        attempt(clean_layers(places, &inventory));
        attempt(clean_times(places, &inventory.times));
    }
    attempt(files::remove_dir(&places.scratch()));
    attempt(super::check::clean_unfinished(places.root()));
    attempt(remove_temporaries(places.root()));
    attempt(remove_temporaries(&places.layers()));
    attempt(clean_records(places));
    attempt(clean_bases(places));
    Ok(())
}

fn attempt(cleaned: Result<(), StoreError>) {
    if let Err(error) = cleaned {
        log::warn!("what a process left stays for now: {error}");
    }
}

/// Removes the rest of the fork `name`, which has no record.
pub(super) fn clean_unfinished(
    repository: &Repository,
    places: &Places,
    name: &ForkName,
) -> Result<(), StoreError> {
    let inventory = Inventory::of(places)?;
    if !inventory.unfinished.contains(name) {
        return Ok(());
    }
    clean_worktrees(repository, &inventory.records, &inventory.unreadable)?;
    clean_unfinished_of(repository, places, name, &inventory)
}

fn clean_unfinished_of(
    repository: &Repository,
    places: &Places,
    name: &ForkName,
    inventory: &Inventory,
) -> Result<(), StoreError> {
    log::info!(
        "removing what is left of the fork {name}, which was never finished or half removed"
    );
    if inventory.unreadable.is_empty() {
        let ids = inventory
            .records
            .iter()
            .map(|record| record.worktree_id.as_str());
        remove_unfinished(repository, name.as_str(), &ids.collect::<Vec<_>>())?;
    }
    let mut traces = read_traces(places, name)?;
    // The process may have died while it held the lock.
    if let Some((branch, _)) = &traces.branch {
        repository.release_stale_branch_lock(branch)?;
    }
    // The mount directories of a copy's forks belong to the original.
    if displaced(repository, places).is_some_and(|displaced| displaced.is_copy) {
        traces.mount_dir = None;
    }
    remove_traces(repository, traces)?;
    release_refs(repository, name.as_str())?;
    remove_fork_dir(places, name)
}

/// Removes the directory of a deleted fork.
///
/// Its traces, which mark it as deleted, are removed last.
pub(super) fn remove_fork_dir(places: &Places, name: &ForkName) -> Result<(), StoreError> {
    let dir = places.fork(name);
    let traces = places.traces(name);
    for path in files::list(&dir)?.iter().filter(|path| **path != traces) {
        if path.is_dir() && !path.is_symlink() {
            files::remove_dir(path)?;
        } else {
            files::remove_file(path)?;
        }
    }
    files::remove_dir(&dir)
}

/// Removes worktree and layers of a fork with a damaged record.
///
/// The record itself is gone already.
pub(super) fn clean_after_damaged(
    repository: &Repository,
    places: &Places,
) -> Result<(), StoreError> {
    let inventory = Inventory::of(places)?;
    clean_worktrees(repository, &inventory.records, &inventory.unreadable)?;
    if inventory.unreadable.is_empty() {
        clean_layers(places, &inventory)
    } else {
        Ok(())
    }
}

/// Returns the forks that own worktrees, by their lock reasons.
///
/// Only worktrees with a `wanted` id count. A worktree without `gitdir` is being made or removed,
/// and does not count.
pub(super) fn forks_of_worktrees(
    common_dir: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeSet<ForkName>, StoreError> {
    let dirs = files::list(&common_dir.join("worktrees"))?;
    let is_wanted = |dir: &&PathBuf| {
        let id = dir.file_name().and_then(|id| id.to_str());
        id.is_some_and(&wanted) && is_there(&dir.join("gitdir"))
    };
    let reasons = dirs
        .iter()
        .filter(is_wanted)
        .filter_map(|dir| tine_sys::file::read_to_string(&dir.join("locked")).ok());
    Ok(reasons
        .filter_map(|reason| fork_of_lock_reason(&reason))
        .collect())
}

fn clean_worktrees(
    repository: &Repository,
    records: &[ForkRecord],
    unreadable: &HashSet<String>,
) -> Result<(), StoreError> {
    for dir in files::list(&repository.common_dir().join("worktrees"))? {
        let Some(id) = dir.file_name().and_then(|id| id.to_str()) else {
            continue;
        };
        let Ok(reason) = tine_sys::file::read_to_string(&dir.join("locked")) else {
            continue;
        };
        let Some(fork) = fork_of_lock_reason(&reason) else {
            continue;
        };
        let record = records.iter().find(|record| record.name == fork);
        if unreadable.contains(fork.as_str())
            || record.is_some_and(|record| record.worktree_id == id)
        {
            continue;
        }
        log::info!("removing the worktree {id} of the fork {fork}, which is no more");
        if record.is_none() {
            release_refs(repository, fork.as_str())?;
        }
        // A worktree that cannot be opened is incomplete. `git worktree prune` removes it once it
        // is unlocked.
        match Worktree::open(repository, id) {
            Ok(worktree) => worktree.remove()?,
            Err(_) => {
                files::remove_dir(&dir)?;
                files::sync_parent(&dir)?;
            }
        }
    }
    Ok(())
}

/// Removes stale index locks and half-written indexes.
///
/// A commit leaves such a lock if it dies, and a reset leaves such an index.
fn clean_indexes(repository: &Repository, records: &[ForkRecord]) {
    for record in records {
        // Opening the fork registers a missing worktree again.
        let Ok(worktree) = record.open_worktree(repository) else {
            continue;
        };
        if let Err(error) = release_stale_lock(repository, &worktree) {
            log::warn!("the index of {} stays locked: {error}", record.name);
        }
        if let Err(error) = remove_temporaries_of(&worktree.index_path()) {
            log::warn!("{}: {error}", record.name);
        }
    }
}

/// Reads `forks/<name>/traces.json`. A damaged file counts as empty.
fn read_traces(places: &Places, name: &ForkName) -> Result<Traces, StoreError> {
    match files::read_json::<Traces>(&places.traces(name)) {
        Ok(traces) => Ok(traces.unwrap_or_default()),
        Err(StoreError::Damaged { .. }) => Ok(Traces::default()),
        Err(error) => Err(error),
    }
}

/// Removes a fork's resources outside the store.
///
/// Returns whether the branch was deleted. A resource that cannot be removed now stays.
pub(super) fn remove_traces(repository: &Repository, traces: Traces) -> Result<bool, StoreError> {
    if let Some(dir) = &traces.mount_dir {
        remove_mount_dir(repository, dir);
    }
    let Some((branch, commit)) = traces.branch else {
        return Ok(false);
    };
    let Ok(commit_id) = ObjectId::from_hex(commit.as_bytes()) else {
        return Ok(false);
    };
    if repository.branch(&branch)? != Some(commit_id)
        || repository.checked_out_at(&branch)?.is_some()
    {
        return Ok(false);
    }
    repository.delete_branch(&branch, commit_id)?;
    Ok(true)
}

/// Name of an empty directory over which commands mount privately.
///
/// It is in [`default_mount_root`]. Nobody else sees those mounts.
pub const BACKSTAGE_NAME: &str = ".tine-backstage";

/// Returns the default directory of mounts: `<repository>.forks`.
///
/// `checkout_dir` is the main checkout.
pub fn default_mount_root(checkout_dir: &Path) -> PathBuf {
    let mut root = checkout_dir.as_os_str().to_owned();
    root.push(".forks");
    PathBuf::from(root)
}

fn dir_holds_files(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}

/// Removes an empty mount directory, and the default root after the last.
fn remove_mount_dir(repository: &Repository, dir: &Path) {
    if dir_holds_files(dir) {
        // From now on the directory belongs to the user.
        let _ = std::fs::metadata(dir).and_then(|meta| {
            let mode = meta.permissions().mode() | 0o200;
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode))
        });
        return;
    }
    let remove = |dir: &Path| match std::fs::remove_dir(dir) {
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory
            ) =>
        {
            log::warn!("{} could not be removed: {error}", dir.display());
        }
        _ => {}
    };
    remove(dir);
    let root = default_mount_root(repository.checkout_dir());
    if dir.parent() == Some(&root) {
        let backstage = root.join(BACKSTAGE_NAME);
        // Removing it would remove a mount over it.
        let is_last = files::list(&root).is_ok_and(|entries| entries == [backstage.as_path()]);
        if is_last {
            remove(&backstage);
        }
        remove(&root);
    }
}

/// Returns every layer that a record names.
///
/// `None` if a record cannot be read, because it may name any layer.
pub(super) fn named_layers(places: &Places) -> Result<Option<HashSet<u64>>, StoreError> {
    let mut inventory = Inventory::of(places)?;
    inventory.layers.extend(&inventory.aside);
    if inventory.unreadable.is_empty() {
        Ok(Some(inventory.layers))
    } else {
        Ok(None)
    }
}

fn clean_layers(places: &Places, inventory: &Inventory) -> Result<(), StoreError> {
    for (id, dir) in places.layer_dirs()? {
        if !inventory.names_layer(id) && dir.is_dir() {
            log::info!("removing the layer {id}, which no fork names");
            files::remove_dir(&dir)?;
        }
    }
    Ok(())
}

fn clean_bases(places: &Places) -> Result<(), StoreError> {
    let dir = places.bases();
    if std::fs::read_dir(&dir).is_err() {
        // It holds only what can be rebuilt, and every new fork needs it.
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700))
            .map_err(StoreError::io("open up", &dir))?;
    }
    remove_temporaries(&dir)?;
    let mut indexes = Vec::new();
    for path in files::list(&places.bases())? {
        let used = std::fs::metadata(&path)
            .and_then(|metadata| metadata.modified())
            .map_err(StoreError::io("inspect", &path))?;
        indexes.push((used, path));
    }
    indexes.sort();
    let surplus = indexes.len().saturating_sub(MAX_CACHED_INDEXES);
    for (_, path) in indexes.iter().take(surplus) {
        files::remove_file(path)?;
    }
    Ok(())
}

fn remove_temporaries(dir: &Path) -> Result<(), StoreError> {
    remove_where(dir, |name| name.ends_with(files::TEMPORARY_SUFFIX))
}

/// Removes temporary files for `path`. Others may use the directory, too.
fn remove_temporaries_of(path: &Path) -> Result<(), StoreError> {
    let (Some(dir), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Ok(());
    };
    remove_where(dir, |found| {
        let rest = found
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('.'));
        let ids = rest.and_then(|rest| rest.strip_suffix(files::TEMPORARY_SUFFIX)?.split_once('-'));
        ids.is_some_and(|(pid, number)| pid.parse::<u32>().is_ok() && number.parse::<u64>().is_ok())
    })
}

fn remove_where(dir: &Path, goes: impl Fn(&str) -> bool) -> Result<(), StoreError> {
    for path in files::list(dir)? {
        if path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(&goes)
        {
            files::remove_file(&path)?;
        }
    }
    Ok(())
}
