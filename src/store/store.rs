//! The open store: its lock, its caches and its records.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::format::{self, Formats};
use super::open_fork::OpenForks;
use super::places::Places;
use super::{ScratchDir, files, leases, misplaced, recover};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use tine_git::{BaseCache, CacheStats, CacheUses, InoHasher, Repository};
use tine_layer::{Loan, Reserve};
use tine_sys::ranked::{Rank, RankedMutex};
use tine_workspace::carry::generation::{Generation, GenerationId};

/// Limit, in bytes, of the small blobs cached by all bases together.
const MAX_BLOB_BYTES: usize = 16 << 20;

/// Longest wait for another holder of the store's lock.
///
/// A released lock may live on for a moment: while a program is being started, its process has a
/// copy of every descriptor until it calls exec.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);

/// Open store of a repository.
///
/// One process at a time has it open. All methods may be called from any thread.
pub struct Store {
    pub(super) repository: Repository,
    pub(super) places: Places,
    pub(super) hasher: InoHasher,
    pub(super) cache: Arc<BaseCache>,
    /// Held while a base's index is built, to build it once.
    pub(super) index_build: Mutex<()>,
    /// Held while records, branches, worktrees or layers are made, changed or removed.
    pub(super) admin: RankedMutex<()>,
    /// Leases of branches and checkouts.
    pub(super) leases: leases::Leases,
    /// Held from a branch's reachability check until the branch is deleted.
    pub(super) removal: RankedMutex<()>,
    /// Held while a generation is made, until a record names it.
    pub(super) making: Mutex<()>,
    /// Generations that this process has open.
    pub(super) generations: Mutex<HashMap<GenerationId, Weak<Generation>>>,
    /// Forks, layers and bases that this process has open.
    pub(super) open: Mutex<OpenForks>,
    /// Disk space and inodes set aside for operations that free space.
    pub(super) reserve: Arc<Reserve>,
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
