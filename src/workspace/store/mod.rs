//! The store: all that tine keeps for one repository, in `<git-common-dir>/tine/`.
//!
//! ```text
//! format, format.copy         format version, and the key of the inode hash: the same twice, as nothing else tells the key
//! home                        the repository that the store belongs to
//! lock                        held by the one process that has the store open
//! forks/<name>/fork.json      the fork's record, atomically replaced
//! forks/<name>/snapshots.json the fork's snapshots, atomically replaced
//! forks/<name>/traces.json    there only while the fork is being made or removed: what it has elsewhere
//! layers/<id>/                layers; next id in layers/next
//! bases/                      cached indexes of bases
//! generations/<id>/           dependency trees of the main checkout as they were, by the hash of what was in them
//! damaged/<n>/                what a repair moved aside, under the names that it had
//! reserve                     allocated and never written: what frees space uses it on a full disk
//! spares/                     empty files: their inodes are for the same where the disk has none
//! reviews/, handoffs/         records of what stands above the forks, and files beside them
//! rounds/.records/            sessions of rounds; rounds/<session>/scratch/ what their agents have noted
//! spool/, scratch/            for the life of a process: large blobs, what is above a snapshot that is looked into
//! daemon.sock, daemon.log     the daemon's
//! ```
//!
//! Making and removing forks is in [`create`], with what they begin with in [`beginning`]; their
//! snapshots are in [`snapshots`]; what a dead process left is cleaned by [`recover`].
//!
//! Lock order: `leases`, `removal`, `making`, `admin`, then `open` or `index_build`; `generations`
//! is taken last.

mod beginning;
mod carried;
mod check;
mod collect;
mod create;
mod documents;
mod files;
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
use super::base_times::{BaseTimes, TimesId};
use super::carry::CarryRules;
use super::carry::generation::{Generation, GenerationId};
use super::error::StoreError;
use super::fork::{ForkName, ForkRecord, MountSettings, UnmountPolicy};
use super::fs::Workspace;
use super::snapshot::{SnapshotEvery, SnapshotList};
use tine_git::{
    Base, BaseCache, CacheFigures, CacheUses, ConversionSettings, GitError, InoHasher,
    LinkedWorktree, ObjectId, Repository,
};
use tine_layer::{FrozenLayer, Layer, LayerError, LayerId, LayerStack, Loan, Reserve};
use tine_sys::ranked::{Rank, RankedMutex};

pub use beginning::{ParentOptions, TakeUp};
pub use check::{
    Above, CheckOptions, CheckReport, Checked, Depth, FSCK, Finding, FindingKind, SetAside,
};
pub use collect::Collection;
pub use create::assume_branches;
pub use documents::RecordKind;
pub use files::ScratchDir;
pub use generations::{KeepError, KeptNow, TreeState};
pub use home::Displaced;
pub use leases::{Lease, LeaseKey};
pub use memo::{BlobIdCache, ConvertedAs, IndexStamp, StoredAs};
pub use mend::DotGit;
pub use recover::{BACKSTAGE_NAME, default_mount_root};
pub use snapshots::{SnapshotOptions, tree_label};
pub use usage::disk_usage;

/// What tells where else something of a fork is that is being made or removed.
const TRACES_NAME: &str = "traces.json";

/// The store format that this tine writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// Bytes of small blobs that all bases of a store keep in memory.
const MAX_BLOB_BYTES: usize = 16 << 20;

/// How long a fork's layer may take to be let go of by a thread that is dropping it.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long another holder of the store's lock is waited for. A lock that was let go of lives on
/// for a moment where a program was just being started: its process has every descriptor until it
/// runs the program.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);

/// What a new fork is made from.
#[derive(Clone)]
pub struct ForkOptions {
    pub name: ForkName,
    /// The private git directory of the worktree in which `from` is understood.
    pub git_dir: PathBuf,
    /// The revision to stand on; default: HEAD, or the tip of `branch` where that exists.
    pub from: Option<String>,
    /// The fork to begin as, uncommitted changes and all; then `from` says nothing.
    pub parent: Option<ParentOptions>,
    /// The state to take up; then `from` says nothing either.
    pub take_up: Option<TakeUp>,
    /// The branch (short name) to be on; default `tine/<name>`. Made where it does not exist.
    pub branch: Option<String>,
    /// HEAD is on no branch; then `branch` says nothing.
    pub detached: bool,
    pub mount_dir: PathBuf,
    /// Whether it is about to be mounted, for the record.
    pub mounted: bool,
    pub settings: MountSettings,
    pub on_unmount: UnmountPolicy,
    pub snapshot_every: Option<SnapshotEvery>,
    pub uid: u32,
    pub gid: u32,
    pub umask: u16,
    pub carry: CarryRules,
}

impl ForkOptions {
    /// The branch (short name) that the fork gets.
    pub fn branch(&self) -> String {
        self.branch
            .clone()
            .unwrap_or_else(|| own_branch(&self.name))
    }
}

/// The branch (short name) that a fork gets if none is named.
pub fn own_branch(name: &ForkName) -> String {
    format!("tine/{name}")
}

/// An open fork.
pub struct Fork {
    /// Immutable.
    name: ForkName,
    pub workspace: Arc<Workspace>,
    pub worktree: LinkedWorktree,
    /// The branch (short name) that its record named when it was opened. HEAD may be elsewhere.
    pub made_on: String,
    memo: BlobIdCache,
    cache: Arc<BaseCache>,
    /// The tree whose conversions were asked for last. Protects itself.
    conversions: Mutex<Option<Arc<Base>>>,
    /// Where the open layer of a snapshot is, which nobody keeps.
    _scratch: Option<files::ScratchDir>,
}

impl Fork {
    /// Of a snapshot the fork's.
    pub fn name(&self) -> &ForkName {
        &self.name
    }

    /// What was found out about its files before.
    pub fn memo(&self) -> &BlobIdCache {
        &self.memo
    }

    /// The tree `tree_id` with the conversions that its `.gitattributes` ask for: the fork's own
    /// base, or another tree, of which the last one is remembered.
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

/// The open store. One process at a time has it open. All methods may be called from any thread.
pub struct Store {
    repository: Repository,
    places: Places,
    hasher: InoHasher,
    cache: Arc<BaseCache>,
    /// Held while a base's index is built, so that it is built once.
    index_build: Mutex<()>,
    /// Held while records, branches, worktrees or layers come, change or go.
    admin: RankedMutex<()>,
    /// Who may decide over branches and checkouts.
    leases: leases::Leases,
    /// Held from the look which other ref reaches a branch's commits until the branch is gone.
    removal: RankedMutex<()>,
    /// Held while a generation is made, until records name it.
    making: Mutex<()>,
    /// The generations that this process has open.
    generations: Mutex<HashMap<GenerationId, Weak<Generation>>>,
    /// What this process has open.
    open: Mutex<OpenForks>,
    /// What frees space may use of a full disk.
    reserve: Arc<Reserve>,
    /// Locked for as long as the store is open.
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
    /// By layer.
    frozen: HashMap<u64, Weak<FrozenLayer>>,
    /// Layers that were merged, newest first, and into which: who read a record before that asks
    /// for them still.
    merged: Vec<(Vec<u64>, u64)>,
    /// Layers that no record names, and that somebody had open when they were to be freed: they go
    /// with the next that are.
    awaited: BTreeSet<u64>,
    /// By tree and the fingerprint of the settings.
    bases: HashMap<(ObjectId, u64), Weak<Base>>,
    times: HashMap<TimesId, Weak<BaseTimes>>,
    /// The indexes of forks that were made and not opened yet, which lack nothing of the tree.
    new_indexes: HashMap<ForkName, (IndexStamp, ObjectId)>,
}

impl OpenForks {
    /// Whether somebody has the frozen layer open, which no record need name.
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

/// Where things are in the store.
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

    /// The layers that are there, whoever names them.
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

    /// Where tables of times are.
    fn times_dir(&self) -> PathBuf {
        self.root.join("times")
    }

    fn times(&self, id: TimesId) -> PathBuf {
        self.times_dir().join(id.to_string())
    }

    /// The snapshots of the fork with this record. A fork without any need not have a list.
    fn snapshots_of(&self, record: &ForkRecord) -> Result<SnapshotList, StoreError> {
        let path = self.snapshots(&record.name);
        match files::read_json(&path)? {
            Some(list) => Ok(list),
            None if record.has_snapshots => Err(missing(path)),
            None => Ok(SnapshotList::default()),
        }
    }

    /// Notes in the record that the fork has a list of snapshots, where that is on the disk.
    fn note_list(&self, record: &mut ForkRecord) -> Result<(), StoreError> {
        if record.has_snapshots || !is_there(&self.snapshots(&record.name)) {
            return Ok(());
        }
        record.has_snapshots = true;
        files::write_json(&self.record(&record.name), record)
    }

    /// As [`Places::snapshots_of`], of the fork `name`.
    fn read_snapshots(&self, name: &ForkName) -> Result<SnapshotList, StoreError> {
        match files::read_json(&self.snapshots(name))? {
            Some(list) => Ok(list),
            None => match files::read_json::<ForkRecord>(&self.record(name)) {
                Ok(Some(record)) => self.snapshots_of(&record),
                // That is told by whoever asks for the record.
                _ => Ok(SnapshotList::default()),
            },
        }
    }

    fn read_record(&self, name: &ForkName) -> Result<ForkRecord, StoreError> {
        let path = self.record(name);
        let mut found = files::read_json::<ForkRecord>(&path)?;
        if found.is_none() && self.is_lost(name) {
            // It may have been made since.
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

    /// Whether the record of a fork, which is not there, is lost. Its traces stand in its directory
    /// before anything else of a fork that is being made, and after anything else of one that is
    /// being removed.
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

    /// The directory of git that the store is in.
    fn common_dir(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }

    /// The record of each fork that something tells of, by name: its directory, or a worktree.
    /// `None` is a name that no fork can have.
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

/// What came of reading a record.
type ReadRecord = Result<ForkRecord, StoreError>;

/// What is to be there, and is not.
fn missing(path: PathBuf) -> StoreError {
    StoreError::Damaged {
        path,
        reason: "it is missing".to_owned(),
    }
}

/// Whether anything has this path, whatever it is.
fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// What the worktrees of forks are locked with; git shows it to whoever tries to remove one.
fn lock_reason(name: &ForkName) -> String {
    format!("tine fork {name}, which `tine delete {name}` removes")
}

/// The fork that a lock reason of ours names.
fn fork_of_lock_reason(reason: &str) -> Option<ForkName> {
    let (name, _) = reason.strip_prefix("tine fork ")?.split_once(',')?;
    ForkName::parse(name).ok()
}

impl Store {
    /// `<git-common-dir>/tine`.
    pub fn dir_of(repository: &Repository) -> PathBuf {
        repository.common_dir().join("tine")
    }

    /// Whether there is a store at `dir`, by its directory alone. One that another user may have
    /// put there is refused ([`StoreError::Foreign`]).
    pub fn exists_at(dir: &Path) -> Result<bool, StoreError> {
        files::is_private_dir(dir)
    }

    /// Refuses root the store of another user's repository: every file that root leaves there locks
    /// that user out. A store that is root's already, and a repository whose configuration says so
    /// (`tine.asRoot`), may be used.
    ///
    /// # Errors
    /// [`StoreError::NotRoots`].
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

    /// Opens the store of `repository`, making it where it is missing, and takes its lock. What a
    /// process that died left unfinished is removed.
    pub fn open(repository: &Repository) -> Result<Store, StoreError> {
        let store = Store::open_as_found(repository)?;
        let _loan = store.lend_inodes();
        if let Err(error) = Formats::read(&store.places).settle(&store.places) {
            log::warn!("the store's format is there once only: {error}");
        }
        recover::clean(repository, &store.places)?;
        Ok(store)
    }

    /// As [`Store::open`], with what a process that died left unfinished: for looking at it.
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

    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// How full the caches are that all forks share.
    pub fn cache_figures(&self) -> CacheFigures {
        self.cache.figures()
    }

    /// How often blobs, and directories, of bases were in these caches.
    pub fn cache_uses(&self) -> (CacheUses, CacheUses) {
        self.cache.uses()
    }

    pub fn dir(&self) -> &Path {
        self.places.root()
    }

    /// Whether the store is still where it was opened: false once the repository was moved or
    /// removed. What is found at its path then is nothing or belongs to somebody else.
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

    /// The records of all forks, by name. A damaged record is reported in the second list, not
    /// hidden.
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
                // Being made or removed at this moment.
                Err(StoreError::NoSuchFork(_)) => {}
                Err(error) => errors.push(error),
            }
        }
        (records, errors)
    }

    /// The record of the fork `name`.
    pub fn record(&self, name: &ForkName) -> Result<ForkRecord, StoreError> {
        self.places.read_record(name)
    }

    /// The worktree of the fork `name`, without opening the fork. One that was removed behind the
    /// store's back is registered again.
    pub fn worktree_of(&self, name: &ForkName) -> Result<LinkedWorktree, StoreError> {
        let record = self.places.read_record(name)?;
        self.restore_worktree(&record)?;
        Ok(LinkedWorktree::open(&self.repository, &record.worktree_id)?)
    }

    /// Opens a fork's file system; the same one for everybody in this process while somebody holds
    /// it. A worktree that was removed behind the store's back is registered again.
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
        self.renew_again(open, record, &mut layer, &lower_stack)?;
        let stack = LayerStack::new(layer, lower_stack.frozen.clone());
        let workspace = Workspace::on_lower_stack(&lower_stack, stack)?;
        let workspace = self.with_carried(workspace, record);
        workspace.keep_journal(self.places.operations(&record.name));
        Ok(workspace)
    }

    /// The base that `record` stands on.
    fn base_of(&self, open: &mut OpenForks, record: &ForkRecord) -> Result<Arc<Base>, StoreError> {
        let damaged = |reason: String| StoreError::Damaged {
            path: self.places.record(&record.name),
            reason,
        };
        let base_tree_id = ObjectId::from_hex(record.base_tree.as_bytes())
            .map_err(|_| damaged(format!("{:?} is no object id", record.base_tree)))?;
        let base = self.shared_base(open, base_tree_id, record.conversions.as_ref())?;
        base.root()
            .map_err(|error| damaged(format!("its base {base_tree_id} cannot be read: {error}")))?;
        Ok(base)
    }

    /// The base with this tree, shared by all forks that stand on it with the same settings;
    /// without any it has those of this moment.
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

    /// Lets this thread use a part of the store's reserve on a full disk, for a command that frees
    /// space.
    pub fn lend_reserve(&self) -> Loan {
        self.reserve.lend()
    }

    /// Lets this thread use the store's spare inodes where the disk has none, for what a daemon
    /// must make when it starts.
    pub fn lend_inodes(&self) -> Loan {
        self.reserve.lend_inodes()
    }

    /// Whether the disk is full, so that the reserve is in use.
    pub fn reserve_is_short(&self) -> bool {
        self.reserve.is_short()
    }

    /// An empty directory, which goes when this is dropped.
    pub fn scratch_dir(&self) -> Result<ScratchDir, StoreError> {
        ScratchDir::create(&self.places.scratch())
    }

    /// Changes a fork's record. The name cannot be changed.
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

/// That the layer in `dir` is the one that belongs there: another one would show another fork's
/// files.
fn check_identity(dir: &Path, id: u64, found: LayerId) -> Result<(), StoreError> {
    match found == LayerId(id) {
        true => Ok(()),
        false => Err(StoreError::Damaged {
            path: dir.to_owned(),
            reason: format!("it holds layer {}", found.0),
        }),
    }
}

/// Opens a layer. One that is locked is being let go of by a thread of this process that just
/// dropped its workspace: it is waited for.
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
