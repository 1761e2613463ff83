//! The store: all that tine keeps for one repository, in `<git-common-dir>/tine/`.
//!
//! [`Store`] makes, opens and removes forks. It keeps their records, snapshots and leases, and
//! repairs what is damaged. An open [`Fork`] has a [`Workspace`], which knows no store.
//!
//! ```text
//! format, format.copy         format version and inode hash key, twice: only these hold the key
//! home                        the repository that the store belongs to
//! lock                        held by the one process that has the store open
//! forks/<name>/fork.json      the fork's record, atomically replaced
//! forks/<name>/snapshots.json the fork's snapshots, atomically replaced
//! forks/<name>/traces.json    resources outside the store, while the fork is being made or removed
//! layers/<id>/                layers; next id in layers/next
//! bases/                      cached indexes of bases
//! generations/<id>/           former dependency trees of the main checkout, named by their hash
//! damaged/<n>/                files that a repair moved aside, under the names that they had
//! reserve                     allocated, never written: space for freeing space on a full disk
//! spares/                     empty files: their inodes serve the same where no inode is free
//! reviews/, handoffs/         records above the level of a fork, and files beside them
//! rounds/.records/            sessions of rounds; rounds/<session>/scratch/ has agents' notes
//! spool/, scratch/            for a process's life: large blobs, temporary layers over snapshots
//! daemon.sock, daemon.log     the daemon's socket and log
//! ```
//!
//! [`create`] makes and removes forks, [`beginning`] gives them their first content. [`snapshots`]
//! has the snapshots of forks. [`recover`] cleans up after a process that died.
//!
//! Lock order: `leases`, `removal`, `making`, `admin`, then `open` or `index_build`; `generations`
//! is taken last.

mod beginning;
mod carried;
mod check;
mod collect;
mod create;
mod documents;
mod error;
mod files;
mod fork;
mod format;
mod generations;
mod glance;
mod home;
mod leases;
mod memo;
mod mend;
mod merge;
mod misplaced;
mod recover;
mod recoverable;
mod renewing;
mod reset;
mod snapshot;
mod snapshots;
#[cfg(test)]
mod tests;
mod times;
mod untold;
mod usage;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::format::Formats;
use self::snapshot::SnapshotList;
use tine_git::{
    Base, BaseCache, CacheStats, CacheUses, ConversionSettings, GitError, InoHasher,
    LinkedWorktree, ObjectId, Repository,
};
use tine_layer::{FrozenLayer, Layer, LayerError, LayerId, LayerStack, Loan, Reserve};
use tine_sys::ranked::{Rank, RankedMutex};
use tine_workspace::carry::generation::{Generation, GenerationId};
use tine_workspace::{BaseTimes, CarryRules, TimesId, Workspace};

pub use beginning::{ParentOptions, TakeUp};
pub use check::{
    CheckCallbacks, CheckOptions, CheckReport, Checked, Depth, FSCK, Finding, FindingKind, SetAside,
};
pub use collect::Collection;
pub use create::assume_branches;
pub use documents::RecordKind;
pub use error::StoreError;
pub use files::ScratchDir;
pub use fork::{
    Advancing, ForkName, ForkPoint, ForkRecord, MountProfile, MountRequest, MountSettings, Parent,
    Renewed, Traces, UnmountPolicy, VisiblePath,
};
pub use generations::{KeepError, KeepOutcome, TreeState};
pub use home::Displaced;
pub use leases::{Lease, LeaseKey};
pub use memo::{BlobIdCache, ConvertedAs, IndexStamp, StoredAs};
pub use mend::DotGit;
pub use recover::{BACKSTAGE_NAME, default_mount_root};
pub use snapshot::{SnapshotEvery, SnapshotReason, SnapshotRecord};
pub use snapshots::{SnapshotOptions, tree_label};
pub use usage::disk_usage;

/// Name of the file with a fork's [`Traces`].
///
/// It exists while the fork is being made or removed.
const TRACES_NAME: &str = "traces.json";

/// The store format that this tine writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// Limit, in bytes, of the small blobs cached by all bases together.
const MAX_BLOB_BYTES: usize = 16 << 20;

/// Longest wait for a thread that is closing a fork's layer.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait for another holder of the store's lock.
///
/// A released lock may live on for a moment: while a program is being started, its process has a
/// copy of every descriptor until it calls exec.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);

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
    /// State to take up. Then `from` is ignored as well.
    pub take_up: Option<TakeUp>,
    /// Branch (short name) to check out, made if it does not exist.
    ///
    /// Default: `tine/<name>`.
    pub branch: Option<String>,
    /// True if HEAD is on no branch. Then `branch` is ignored.
    pub detached: bool,
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

/// Returns the default branch (short name) of the fork `name`.
pub fn own_branch(name: &ForkName) -> String {
    format!("tine/{name}")
}

/// Open fork: its file system and its worktree.
pub struct Fork {
    /// Immutable.
    name: ForkName,
    /// The fork's file system.
    pub workspace: Arc<Workspace>,
    /// The worktree that git has of the fork.
    pub worktree: LinkedWorktree,
    /// Branch (short name) in the record at opening. HEAD may be on another.
    pub made_on: String,
    memo: BlobIdCache,
    cache: Arc<BaseCache>,
    /// Tree whose conversions were requested last. Protects itself.
    conversions: Mutex<Option<Arc<Base>>>,
    /// Directory of the temporary open layer over a snapshot, removed on drop.
    _scratch: Option<files::ScratchDir>,
}

impl Fork {
    /// Returns the fork's name. For a snapshot it is the name of its fork.
    pub fn name(&self) -> &ForkName {
        &self.name
    }

    /// Returns the cache of blob ids of the fork's files.
    pub fn memo(&self) -> &BlobIdCache {
        &self.memo
    }

    /// Returns the tree `tree_id` with the conversions of its `.gitattributes`.
    ///
    /// This is the fork's own base or another tree. The last other tree is cached.
    ///
    /// # Errors
    /// [`GitError`] if the tree or its `.gitattributes` cannot be read.
    pub fn conversions_of(&self, tree_id: ObjectId) -> Result<Arc<Base>, GitError> {
        let base = self.workspace.base();
        if base.tree_id() == tree_id {
            return Ok(base);
        }
        let mut last = self.conversions.lock();
        if let Some(last) = last.as_ref().filter(|last| last.tree_id() == tree_id) {
            return Ok(last.clone());
        }
        let opened = Base::open_with(
            base.repository(),
            tree_id,
            &self.cache,
            base.hasher().clone(),
            base.settings().clone(),
        )?;
        Ok(last.insert(Arc::new(opened)).clone())
    }
}

/// Open store of a repository.
///
/// One process at a time has it open. All methods may be called from any thread.
pub struct Store {
    repository: Repository,
    places: Places,
    hasher: InoHasher,
    cache: Arc<BaseCache>,
    /// Held while a base's index is built, to build it once.
    index_build: Mutex<()>,
    /// Held while records, branches, worktrees or layers are made, changed or removed.
    admin: RankedMutex<()>,
    /// Leases of branches and checkouts.
    leases: leases::Leases,
    /// Held from a branch's reachability check until the branch is deleted.
    removal: RankedMutex<()>,
    /// Held while a generation is made, until a record names it.
    making: Mutex<()>,
    /// Generations that this process has open.
    generations: Mutex<HashMap<GenerationId, Weak<Generation>>>,
    /// Forks, layers and bases that this process has open.
    open: Mutex<OpenForks>,
    /// Disk space and inodes set aside for operations that free space.
    reserve: Arc<Reserve>,
    /// Lock file, locked as long as the store is open.
    lock: File,
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = tine_sys::file::unlock(&self.lock) {
            log::warn!(
                "{} stays locked until the process ends: {error}",
                self.places.root().display()
            );
        }
    }
}

#[derive(Default)]
struct OpenForks {
    forks: HashMap<ForkName, (Weak<Fork>, Weak<Workspace>)>,
    /// By layer id.
    frozen: HashMap<u64, Weak<FrozenLayer>>,
    /// Merged layers, newest first, and the layer that replaced them.
    ///
    /// A reader with an older record still asks for the merged layers.
    merged: Vec<(Vec<u64>, u64)>,
    /// Layers without a record that were in use when last freed.
    ///
    /// The next freeing of layers tries them again.
    awaited: BTreeSet<u64>,
    /// By tree and fingerprint of the settings.
    bases: HashMap<(ObjectId, u64), Weak<Base>>,
    times: HashMap<TimesId, Weak<BaseTimes>>,
    /// Index and tree of each new fork not opened yet. The index covers the whole tree.
    new_indexes: HashMap<ForkName, (IndexStamp, ObjectId)>,
}

impl OpenForks {
    /// Returns whether the frozen layer is open, with or without a record.
    fn is_in_use(&self, layer: u64) -> bool {
        let known = self.frozen.get(&layer);
        known.is_some_and(|layer| layer.strong_count() > 0)
    }

    fn check_is_closed(&self, name: &ForkName) -> Result<(), StoreError> {
        match self.forks.get(name) {
            Some((fork, workspace)) if fork.strong_count() + workspace.strong_count() > 0 => {
                Err(StoreError::Busy(name.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// Paths of the files in a store.
struct Places {
    root: PathBuf,
}

impl Places {
    fn root(&self) -> &Path {
        &self.root
    }

    fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    fn spares(&self) -> PathBuf {
        self.root.join("spares")
    }

    fn format(&self) -> PathBuf {
        self.root.join("format")
    }

    fn format_copy(&self) -> PathBuf {
        self.root.join("format.copy")
    }

    fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    fn forks(&self) -> PathBuf {
        self.root.join("forks")
    }

    fn fork(&self, name: &ForkName) -> PathBuf {
        self.forks().join(name.as_str())
    }

    fn record(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join("fork.json")
    }

    fn operations(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join("operations")
    }

    fn traces(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join(TRACES_NAME)
    }

    fn untold(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join("untold.json")
    }

    fn snapshots(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join("snapshots.json")
    }

    fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    fn layer(&self, id: u64) -> PathBuf {
        self.layers().join(id.to_string())
    }

    /// Lists all layers on the disk, with or without a record.
    fn layer_dirs(&self) -> Result<Vec<(u64, PathBuf)>, StoreError> {
        let with_id = |dir: PathBuf| Some((dir.file_name()?.to_str()?.parse().ok()?, dir));
        Ok(files::list(&self.layers())?
            .into_iter()
            .filter_map(with_id)
            .collect())
    }

    fn next_layer(&self) -> PathBuf {
        self.layers().join("next")
    }

    fn bases(&self) -> PathBuf {
        self.root.join("bases")
    }

    fn generations(&self) -> PathBuf {
        self.root.join("generations")
    }

    fn generation(&self, id: &GenerationId) -> PathBuf {
        self.generations().join(id.as_str())
    }

    /// Returns the directory of the time tables.
    fn times_dir(&self) -> PathBuf {
        self.root.join("times")
    }

    fn times(&self, id: TimesId) -> PathBuf {
        self.times_dir().join(id.to_string())
    }

    /// Reads the snapshots of the fork with this record.
    ///
    /// A fork without snapshots need not have a list.
    fn snapshots_of(&self, record: &ForkRecord) -> Result<SnapshotList, StoreError> {
        let path = self.snapshots(&record.name);
        match files::read_json(&path)? {
            Some(list) => Ok(list),
            None if record.has_snapshots => Err(missing(path)),
            None => Ok(SnapshotList::default()),
        }
    }

    /// Sets `has_snapshots` in the record if a snapshot list exists.
    fn note_list(&self, record: &mut ForkRecord) -> Result<(), StoreError> {
        if record.has_snapshots || !is_there(&self.snapshots(&record.name)) {
            return Ok(());
        }
        record.has_snapshots = true;
        files::write_json(&self.record(&record.name), record)
    }

    /// Reads the snapshots of the fork `name`, as [`Places::snapshots_of`] does.
    fn read_snapshots(&self, name: &ForkName) -> Result<SnapshotList, StoreError> {
        match files::read_json(&self.snapshots(name))? {
            Some(list) => Ok(list),
            None => match files::read_json::<ForkRecord>(&self.record(name)) {
                Ok(Some(record)) => self.snapshots_of(&record),
                // Reading the record reports that error.
                _ => Ok(SnapshotList::default()),
            },
        }
    }

    fn read_record(&self, name: &ForkName) -> Result<ForkRecord, StoreError> {
        let path = self.record(name);
        let mut found = files::read_json::<ForkRecord>(&path)?;
        if found.is_none() && self.is_lost(name) {
            // The fork may have been made since.
            found = files::read_json(&path)?;
            if found.is_none() {
                return Err(missing(path));
            }
        }
        let Some(record) = found else {
            return Err(StoreError::NoSuchFork(name.to_string()));
        };
        if record.name != *name {
            return Err(StoreError::Damaged {
                path,
                reason: format!("it is the record of {}", record.name),
            });
        }
        Ok(record)
    }

    /// Returns whether a missing record of a fork is lost.
    ///
    /// A fork that is being made has its traces before anything else, and one that is being removed
    /// keeps them last. With traces, the record is not lost.
    fn is_lost(&self, name: &ForkName) -> bool {
        if is_there(&self.traces(name)) {
            return false;
        }
        let is_of_it = |id: &str| LinkedWorktree::may_be_of(name.as_str(), id);
        let has_files = !files::list(&self.fork(name)).unwrap_or_default().is_empty();
        has_files
            || recover::forks_of_worktrees(self.common_dir(), is_of_it)
                .is_ok_and(|forks| forks.contains(name))
    }

    /// Returns the common git directory that holds the store.
    fn common_dir(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }

    /// Reads the fork records that directories and worktrees name, by name.
    ///
    /// `None`: the name is not a valid fork name.
    fn read_records(&self) -> Result<Vec<(String, Option<ReadRecord>)>, StoreError> {
        let mut found = BTreeMap::new();
        for dir in files::list(&self.forks())? {
            let text = dir
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let read = ForkName::parse(&text)
                .ok()
                .map(|name| self.read_record(&name));
            found.insert(text, read);
        }
        let known: HashSet<String> = found
            .values()
            .filter_map(|read| Some(read.as_ref()?.as_ref().ok()?.worktree_id.clone()))
            .collect();
        for name in recover::forks_of_worktrees(self.common_dir(), |id| !known.contains(id))? {
            found
                .entry(name.to_string())
                .or_insert_with(|| Some(self.read_record(&name)));
        }
        Ok(found.into_iter().collect())
    }
}

/// Result of reading a record.
type ReadRecord = Result<ForkRecord, StoreError>;

/// Returns the error for a file that must exist and does not.
fn missing(path: PathBuf) -> StoreError {
    StoreError::Damaged {
        path,
        reason: "it is missing".to_owned(),
    }
}

/// Returns whether the path exists, without following a symbolic link.
fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Returns the reason with which git locks the worktree of a fork.
///
/// git shows it to a user who tries to remove the worktree.
fn lock_reason(name: &ForkName) -> String {
    format!("tine fork {name}, which `tine delete {name}` removes")
}

/// Parses the fork's name out of a lock reason that tine wrote.
fn fork_of_lock_reason(reason: &str) -> Option<ForkName> {
    let (name, _) = reason.strip_prefix("tine fork ")?.split_once(',')?;
    ForkName::parse(name).ok()
}

impl Store {
    /// Returns `<git-common-dir>/tine`, the store's directory.
    pub fn dir_of(repository: &Repository) -> PathBuf {
        repository.common_dir().join("tine")
    }

    /// Returns whether there is a store at `dir`. Checks only the directory.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] if another user may have put the directory there.
    pub fn exists_at(dir: &Path) -> Result<bool, StoreError> {
        files::is_private_dir(dir)
    }

    /// Refuses the store of another user's repository if the process is root.
    ///
    /// Every file that root made there would lock that user out. Allowed are a store that root owns
    /// already, and a repository with `tine.asRoot` set.
    ///
    /// # Errors
    /// [`StoreError::NotRoots`] with the owner's user id.
    pub fn refuse_as_root(repository: &Repository) -> Result<(), StoreError> {
        if tine_sys::process::effective_uid() != 0 {
            return Ok(());
        }
        let dir = Store::dir_of(repository);
        let owner = files::owner_of(&dir).or_else(|| files::owner_of(repository.common_dir()));
        match owner {
            Some(owner) if owner != 0 && repository.config_bool("tine.asRoot") != Some(true) => {
                Err(StoreError::NotRoots { owner })
            }
            _ => Ok(()),
        }
    }

    /// Opens the store of `repository` and takes its lock. Makes a missing store.
    ///
    /// Removes the unfinished work of a process that died.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process has it open, [`StoreError::Foreign`] or
    /// [`StoreError::NotRoots`] if it must not be used, [`StoreError::NewerFormat`], or an I/O
    /// error.
    pub fn open(repository: &Repository) -> Result<Store, StoreError> {
        let store = Store::open_as_found(repository)?;
        let _loan = store.lend_inodes();
        if let Err(error) = Formats::read(&store.places).settle(&store.places) {
            log::warn!("the store's format is there once only: {error}");
        }
        recover::clean(repository, &store.places)?;
        Ok(store)
    }

    /// Opens the store like [`Store::open`], but keeps unfinished work for inspection.
    ///
    /// # Errors
    /// Same as [`Store::open`].
    pub fn open_as_found(repository: &Repository) -> Result<Store, StoreError> {
        let root = Store::dir_of(repository);
        let exists = Store::exists_at(&root)?;
        Store::refuse_as_root(repository)?;
        if !exists {
            files::create_private_dir(&root)?;
            Store::exists_at(&root)?;
        }
        let places = Places { root };
        let lock = take_lock(&places)?;
        misplaced::set_aside(&places)?;
        let key = format::open(&places)?;
        for dir in [places.forks(), places.layers(), places.bases()] {
            files::create_private_dir(&dir)?;
        }
        let reserve = Arc::new(Reserve::open(&places.reserve(), &places.spares()));
        let _loan = reserve.lend_inodes();
        let cache = BaseCache::new(&places.root.join("spool"), MAX_BLOB_BYTES)?;
        Ok(Store {
            repository: repository.clone(),
            places,
            hasher: InoHasher::new(key),
            cache,
            index_build: Mutex::new(()),
            admin: RankedMutex::new(Rank::Admin, ()),
            leases: leases::Leases::default(),
            removal: RankedMutex::new(Rank::Removal, ()),
            making: Mutex::new(()),
            generations: Mutex::default(),
            open: Mutex::new(OpenForks::default()),
            reserve: reserve.clone(),
            lock,
        })
    }

    /// Returns the repository that the store belongs to.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Returns the fill levels of the caches that all forks share.
    pub fn cache_figures(&self) -> CacheStats {
        self.cache.figures()
    }

    /// Returns hits and misses of the blob cache and directory cache.
    pub fn cache_uses(&self) -> (CacheUses, CacheUses) {
        self.cache.uses()
    }

    /// Returns the store's directory.
    pub fn dir(&self) -> &Path {
        self.places.root()
    }

    /// Returns whether the store is still where it was opened.
    ///
    /// False after the repository was moved or removed. Whatever is at that path then is not this
    /// store.
    pub fn is_in_place(&self) -> bool {
        let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let ours = self.lock.metadata().map(identity);
        match (ours, std::fs::metadata(self.places.lock()).map(identity)) {
            (Ok(ours), Ok(found)) => ours == found,
            (Ok(_), Err(error)) => {
                !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            }
            (Err(_), _) => true,
        }
    }

    /// Reads the records of all forks, sorted by name.
    ///
    /// The second list has the errors of damaged records.
    pub fn records(&self) -> (Vec<ForkRecord>, Vec<StoreError>) {
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        let read = self.places.read_records().unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        for (text, read) in read {
            match read.unwrap_or_else(|| {
                ForkName::parse(&text).and_then(|name| self.places.read_record(&name))
            }) {
                Ok(record) => records.push(record),
                // The fork is being made or removed at this moment.
                Err(StoreError::NoSuchFork(_)) => {}
                Err(error) => errors.push(error),
            }
        }
        (records, errors)
    }

    /// Reads the record of the fork `name`.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], or [`StoreError::Damaged`] if the record is lost or unreadable.
    pub fn record(&self, name: &ForkName) -> Result<ForkRecord, StoreError> {
        self.places.read_record(name)
    }

    /// Opens the worktree of the fork `name` without opening the fork.
    ///
    /// A worktree that was removed outside tine is registered again.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`] or [`StoreError::Damaged`] for the record, or the error of git
    /// that prevents the worktree from being opened or registered.
    pub fn worktree_of(&self, name: &ForkName) -> Result<LinkedWorktree, StoreError> {
        let record = self.places.read_record(name)?;
        self.restore_worktree(&record)?;
        Ok(LinkedWorktree::open(&self.repository, &record.worktree_id)?)
    }

    /// Opens a fork's file system, shared with other holders in this process.
    ///
    /// A worktree that was removed outside tine is registered again.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], [`StoreError::Damaged`] if the record or a layer is unusable, or
    /// an error of git or of the layers.
    pub fn open_fork(&self, name: &ForkName) -> Result<Arc<Fork>, StoreError> {
        self.restore_worktree(&self.places.read_record(name)?)?;
        let mut open = self.open.lock();
        let (fork, workspace) = match open.forks.get(name) {
            Some((fork, workspace)) => (fork.upgrade(), workspace.upgrade()),
            None => (None, None),
        };
        if let Some(fork) = fork {
            return Ok(fork);
        }
        let record = self.places.read_record(name)?;
        let worktree = LinkedWorktree::open(&self.repository, &record.worktree_id)?;
        let workspace = match workspace {
            Some(workspace) => workspace,
            None => Arc::new(self.open_workspace(&mut open, &record)?),
        };
        mend::mend_dot_git(&workspace, &worktree)?;
        let memo = BlobIdCache::default();
        if let Some((stamp, tree_id)) = open.new_indexes.remove(name) {
            memo.remember_removed(&stamp, tree_id, Arc::new([]));
        }
        let fork = Arc::new(Fork {
            name: name.clone(),
            workspace,
            worktree,
            made_on: record.branch,
            memo,
            cache: self.cache.clone(),
            conversions: Mutex::new(None),
            _scratch: None,
        });
        open.forks
            .retain(|_, (_, workspace)| workspace.strong_count() > 0);
        open.forks.insert(
            name.clone(),
            (Arc::downgrade(&fork), Arc::downgrade(&fork.workspace)),
        );
        Ok(fork)
    }

    fn open_workspace(
        &self,
        open: &mut OpenForks,
        record: &ForkRecord,
    ) -> Result<Workspace, StoreError> {
        let lower_stack = self.lower_stack_of(open, record)?;
        let dir = self.places.layer(record.open_layer);
        // The store's lock keeps other processes out.
        let mut layer = wait_while_locked(|| Layer::open(&dir))?;
        layer.draw_on(self.reserve.clone());
        check_identity(&dir, record.open_layer, layer.id())?;
        self.set_missing_times(open, record, &mut layer, &lower_stack)?;
        let stack = LayerStack::new(layer, lower_stack.frozen.clone());
        let workspace = Workspace::on_lower_stack(&lower_stack, stack)?;
        let workspace = self.with_carried(workspace, record);
        workspace.keep_journal(self.places.operations(&record.name));
        Ok(workspace)
    }

    /// Opens the base of the fork with this record.
    fn base_of(&self, open: &mut OpenForks, record: &ForkRecord) -> Result<Arc<Base>, StoreError> {
        let damaged = |reason: String| StoreError::Damaged {
            path: self.places.record(&record.name),
            reason,
        };
        let base_tree_id = ObjectId::from_hex(record.base_tree.as_bytes())
            .map_err(|_| damaged(format!("{:?} is not an object id", record.base_tree)))?;
        let base = self.shared_base(open, base_tree_id, record.conversions.as_ref())?;
        base.root()
            .map_err(|error| damaged(format!("its base {base_tree_id} cannot be read: {error}")))?;
        Ok(base)
    }

    /// Opens the base with this tree, shared between forks.
    ///
    /// Forks share it if their conversion settings are equal. Without `settings` it uses those
    /// configured now.
    fn shared_base(
        &self,
        open: &mut OpenForks,
        tree_id: ObjectId,
        settings: Option<&ConversionSettings>,
    ) -> Result<Arc<Base>, StoreError> {
        let settings = match settings {
            Some(settings) => settings.clone(),
            None => ConversionSettings::current(&self.repository)?,
        };
        let key = (tree_id, settings.fingerprint());
        if let Some(base) = open.bases.get(&key).and_then(Weak::upgrade) {
            return Ok(base);
        }
        let base = Arc::new(Base::open_with(
            &self.repository,
            tree_id,
            &self.cache,
            self.hasher.clone(),
            settings,
        )?);
        open.bases.retain(|_, base| base.strong_count() > 0);
        open.bases.insert(key, Arc::downgrade(&base));
        Ok(base)
    }

    /// Allows this thread to use the reserve on a full disk.
    ///
    /// For commands that free space. The permission ends when the loan is dropped.
    pub fn lend_reserve(&self) -> Loan {
        self.reserve.lend()
    }

    /// Allows this thread to use spare inodes if the disk has none.
    ///
    /// For files that a daemon must make when it starts.
    pub fn lend_inodes(&self) -> Loan {
        self.reserve.lend_inodes()
    }

    /// Returns whether the disk is full and the reserve in use.
    pub fn reserve_is_short(&self) -> bool {
        self.reserve.is_short()
    }

    /// Makes an empty directory that is removed when the value is dropped.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the directory cannot be made.
    pub fn scratch_dir(&self) -> Result<ScratchDir, StoreError> {
        ScratchDir::create(&self.places.scratch())
    }

    /// Changes a fork's record and returns it. The name cannot be changed.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`] or [`StoreError::Damaged`] if the record cannot be read, or an
    /// I/O error if it cannot be written.
    pub fn update_record(
        &self,
        name: &ForkName,
        change: impl FnOnce(&mut ForkRecord),
    ) -> Result<ForkRecord, StoreError> {
        let _admin = self.admin.lock();
        let mut record = self.places.read_record(name)?;
        let before = record.clone();
        change(&mut record);
        record.name = name.clone();
        if record != before {
            files::write_json(&self.places.record(name), &record)?;
        }
        Ok(record)
    }
}

fn take_lock(places: &Places) -> Result<File, StoreError> {
    let path = places.lock();
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let file =
        tine_sys::file::open_with(&path, &mut options).map_err(StoreError::io("open", &path))?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    while !tine_sys::file::try_lock(&file).map_err(StoreError::io("lock", &path))? {
        if Instant::now() >= deadline {
            return Err(StoreError::Locked {
                path: places.root().to_owned(),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(file)
}

/// Checks that the layer in `dir` has the expected id.
///
/// A wrong layer would show another fork's files.
fn check_identity(dir: &Path, id: u64, found: LayerId) -> Result<(), StoreError> {
    if found == LayerId(id) {
        Ok(())
    } else {
        Err(StoreError::Damaged {
            path: dir.to_owned(),
            reason: format!("it holds layer {}", found.0),
        })
    }
}

/// Opens a layer, waiting while it is locked.
///
/// A locked layer is being closed by a thread of this process that just dropped its workspace.
fn wait_while_locked<T>(open: impl Fn() -> Result<T, LayerError>) -> Result<T, LayerError> {
    let deadline = Instant::now() + CLOSING_TIMEOUT;
    loop {
        match open() {
            Err(LayerError::Locked { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}
