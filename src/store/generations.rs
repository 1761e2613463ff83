//! Generations: dependency trees of the main checkout, kept for the forks that carry them.
//!
//! They are in `<store>/generations/`.
//!
//! A generation is made under a temporary name and renamed when it is complete and on the disk.
//! Then the records of forks name it. If the process dies in between, it leaves a directory that no
//! record names, and the next opening of the store removes that. Arrivals are stored there as well.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use thiserror::Error;

use super::files::TEMPORARY_SUFFIX;
use super::{Places, Store, files};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use tine_attr::Timestamp;
use tine_layer::check::Depth;
use tine_path::RepoPath;
use tine_sys::beneath::{self, Access};
use tine_sys::file::fs_figures;
use tine_workspace::carry::arrivals::{ARRIVALS, Arrivals, ArrivalsRef};
use tine_workspace::carry::difference::TreeDifference;
use tine_workspace::carry::generation::{
    Generation, GenerationId, GenerationSummary, MANIFEST, PACK, SUM_BUFFER, SUMMARY, SUMS,
    checksum, read_checked, with_checksum,
};
use tine_workspace::carry::tree::{TreeListing, below};
use tine_workspace::carry::{Carry, CarryRecord, DependencyTree};

/// Minimum time since the last change of a tree to be kept.
///
/// A tree changed more recently may still be changing.
const QUIET: Duration = Duration::from_secs(1);

/// Minimum size, in bytes, of files aligned to blocks in the pack.
///
/// The disk can share the blocks of such files.
const MIN_SHARED: u64 = 16 << 10;
/// Block size, in bytes, to which such files are aligned.
const BLOCK: u64 = 4096;

/// Disk space, in bytes, that must stay free beside a new generation.
const SPARE_BYTES: u64 = 64 << 20;

/// Reason for which no generation was made.
#[derive(Debug, Error)]
pub enum KeepError {
    /// The tree was changed recently, or while it was copied.
    #[error("the main checkout is changing it")]
    Changing,
    /// The main checkout does not have the tree.
    #[error("the main checkout does not have it")]
    Missing,
    /// No fork takes the tree, because part of it was removed.
    #[error("the main checkout has removed part of it since the fork was made")]
    Partial,
    /// The disk does not have enough free space.
    #[error(
        "the disk has no room for it: it takes {needed} bytes, {available} are free, and {SPARE_BYTES} of them stay so"
    )]
    NoRoom {
        /// Total size of the tree's files, in bytes.
        needed: u64,
        /// Free space on the disk, in bytes.
        available: u64,
    },
    /// `goes_on` returned false.
    #[error("the daemon is ending")]
    Ending,
    /// The tree cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// A file or record of the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Generation that was just made, or that existed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepOutcome {
    /// Number of files in it.
    pub files: u64,
    /// Number of package names, as [`TreeListing::package_names`] counts them.
    pub packages: u64,
    /// Number of bytes copied; `None` if the store had the generation.
    pub copied_bytes: Option<u64>,
    /// Forks that show it now and showed something else before.
    pub forks: Vec<ForkName>,
}

/// Returns the dependency tree at `path` that the fork carries.
///
/// `None` if the fork does not carry it from the main checkout `from`.
fn tree_at<'r>(record: &'r ForkRecord, from: &Path, path: &RepoPath) -> Option<&'r DependencyTree> {
    let carry = record.carry.as_ref().filter(|carry| carry.from == from)?;
    carry
        .trees
        .iter()
        .find(|tree| tree.path().as_ref() == Some(path))
}

/// State of a dependency tree in a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeState {
    /// The main checkout's tree, until the generation being made is complete.
    Keeping,
    /// A generation.
    Kept {
        /// True if the main checkout's tree has changed since.
        moved_on: bool,
    },
    /// The main checkout's tree, because no generation was made.
    Following,
    /// The main checkout's tree, because the generation is lost or damaged.
    Damaged,
}

impl Store {
    /// Keeps a tree of the main checkout `from` as a generation.
    ///
    /// The tree is at `path`. Each fork that carries it shows the generation if `takes_it` returns
    /// true. The last argument of `takes_it` is the number of packages. An existing generation is
    /// checked to `depth` first.
    ///
    /// Blocks while files are copied, as long as `goes_on` returns true.
    ///
    /// # Errors
    /// [`KeepError::Partial`] if `takes_it` returns false for every fork, or another variant of
    /// [`KeepError`].
    pub fn keep_tree(
        &self,
        from: &Path,
        path: &RepoPath,
        depth: Depth,
        takes_it: &dyn Fn(&ForkName, &DependencyTree, u64) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<KeepOutcome, KeepError> {
        let _making = self.making.lock();
        let top = beneath::open_top(from).map_err(could_not_read)?;
        beneath::open(&top, path.as_path(), Access::Look).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => KeepError::Missing,
            _ => KeepError::Read(error),
        })?;
        let listing = TreeListing::of(&top, path).map_err(could_not_read)?;
        if !listing.is_quiet(QUIET) {
            return Err(KeepError::Changing);
        }
        let names = listing.package_names();
        let takes_it = |name: &ForkName, tree: &DependencyTree| takes_it(name, tree, names);
        let takes_any = |record: &ForkRecord| {
            tree_at(record, from, path).is_some_and(|tree| takes_it(&record.name, tree))
        };
        if !self.records().0.iter().any(takes_any) {
            return Err(KeepError::Partial);
        }
        let id = listing.id();
        let files = listing
            .entries
            .iter()
            .filter(|entry| entry.is_file())
            .count() as u64;
        let copied_bytes = match self.check_generation(&id, depth) {
            Ok(()) => None,
            Err(_) => {
                let bytes = self.make_generation(&top, path, listing, &id, goes_on)?;
                // A damaged one may be open.
                self.generations.lock().remove(&id);
                Some(bytes)
            }
        };
        let generation = self.open_generation(&id)?;
        let is_made = copied_bytes.is_some();
        let mut forks = Vec::new();
        for record in self.records().0 {
            // Forks that show a damaged one need the new one.
            let shows_it = |tree: &DependencyTree| is_made && tree.generation.as_ref() == Some(&id);
            let takes_it = |tree: &DependencyTree| takes_it(&record.name, tree) || shows_it(tree);
            if tree_at(&record, from, path).is_some_and(takes_it)
                && self.show_generation(&record.name, path, &generation, is_made)?
            {
                forks.push(record.name);
            }
        }
        Ok(KeepOutcome {
            files,
            packages: names,
            copied_bytes,
            forks,
        })
    }

    /// Returns the fork to the previous generations of its dependency trees.
    ///
    /// Returns the paths of the trees that the fork shows differently now.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], or [`StoreError::Damaged`] if a previous generation is unusable.
    pub fn take_up_previous(&self, name: &ForkName) -> Result<Vec<RepoPath>, StoreError> {
        let _making = self.making.lock();
        let record = self.record(name)?;
        let mut back = Vec::new();
        for tree in record.carry.iter().flat_map(|carry| &carry.trees) {
            if let (Some(path), Some(previous)) = (tree.path(), &tree.previous)
                && self.show_generation(name, &path, &self.open_generation(previous)?, false)?
            {
                back.push(path);
            }
        }
        Ok(back)
    }

    /// Records the reason for which forks get no generation of the tree.
    ///
    /// This affects only forks that wait for one and for which `is_given_up` returns true.
    ///
    /// # Errors
    /// An error of reading or writing a record.
    pub fn give_up_tree(
        &self,
        from: &Path,
        path: &RepoPath,
        why: &str,
        is_given_up: impl Fn(&DependencyTree) -> bool,
    ) -> Result<(), StoreError> {
        for record in self.records().0 {
            self.change_trees(&record.name, |carry| {
                if carry.from == from {
                    let mut trees = carry.trees.iter_mut();
                    let tree =
                        trees.find(|tree| tree.is_wanted() && tree.path().as_ref() == Some(path));
                    if let Some(tree) = tree.filter(|tree| is_given_up(tree)) {
                        tree.given_up = Some(why.to_owned());
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Records the generation and shows it if the fork is open.
    ///
    /// Returns whether the fork shows another generation than before. `is_made` counts as another.
    /// The caller holds [`Store::making`].
    fn show_generation(
        &self,
        name: &ForkName,
        path: &RepoPath,
        generation: &Arc<Generation>,
        is_made: bool,
    ) -> Result<bool, StoreError> {
        let record = match self.record(name) {
            Err(StoreError::NoSuchFork(_)) => return Ok(false),
            record => record?,
        };
        let Some(carry) = &record.carry else {
            return Ok(false);
        };
        let Some(tree) = carry
            .trees
            .iter()
            .find(|tree| tree.path().as_ref() == Some(path))
        else {
            return Ok(false);
        };
        let arrivals = self.arrivals_after(carry, tree, generation)?;
        let stored = self.keep_arrivals(&arrivals)?;
        let mut is_new = false;
        self.change_trees(name, |carry| {
            let mut trees = carry.trees.iter_mut();
            if let Some(tree) = trees.find(|tree| tree.path().as_ref() == Some(path)) {
                is_new = tree.take_up(generation.id.clone(), stored) || is_made;
            }
        })?;
        let known = self.open.lock().forks.get(name).cloned();
        let workspace = known.and_then(|(_, workspace)| workspace.upgrade());
        if let Some(workspace) = workspace.filter(|_| is_new) {
            workspace.show_generation(path.clone(), generation.clone(), arrivals.into());
        }
        Ok(is_new)
    }

    /// Returns the fork's arrivals if it shows `now` from this moment.
    fn arrivals_after(
        &self,
        carry: &CarryRecord,
        tree: &DependencyTree,
        now: &Generation,
    ) -> Result<Arrivals, StoreError> {
        let before = self.arrivals(tree);
        let difference = match &tree.generation {
            Some(id) if *id == now.id => return Ok(before),
            Some(id) => match self.open_generation(id) {
                Ok(shown) => TreeDifference::between(&shown, now),
                Err(StoreError::Damaged { .. }) => return Ok(Arrivals::all_at(Timestamp::now())),
                Err(error) => return Err(error),
            },
            // Changes later than the fork were not shown.
            None => TreeDifference {
                arrived: carry
                    .since
                    .map_or_else(Vec::new, |since| now.changed_since(since).collect()),
                ..TreeDifference::default()
            },
        };
        Ok(before.after(&difference, now, Timestamp::now()))
    }

    /// Returns the arrivals of files in a fork's tree.
    ///
    /// If they are lost, every file counts as new as the newest.
    fn arrivals(&self, tree: &DependencyTree) -> Arrivals {
        let Some(known) = &tree.arrivals else {
            return Arrivals::default();
        };
        let dir = self.places.generation(&known.id);
        Arrivals::open(&dir).unwrap_or_else(|error| {
            log::warn!("{}: {error}", dir.display());
            Arrivals::all_at(known.latest)
        })
    }

    /// Stores arrivals not stored yet; `None` if there are none.
    fn keep_arrivals(&self, arrivals: &Arrivals) -> Result<Option<ArrivalsRef>, StoreError> {
        let place = self.places.generations();
        let Some((stored, bytes)) = arrivals
            .encode()
            .map_err(StoreError::io("encode", &place))?
        else {
            return Ok(None);
        };
        let place = self.places.generation(&stored.id);
        if Arrivals::open(&place).is_ok() {
            return Ok(Some(stored));
        }
        let dir = files::temporary_beside(&place);
        files::create_private_dir(&dir)?;
        let path = dir.join(ARRIVALS);
        create(&path)?
            .write_all(&bytes)
            .map_err(StoreError::io("write", &path))?;
        files::sync_files_in(&dir)?;
        files::remove_dir(&place)?;
        fs::rename(&dir, &place).map_err(StoreError::io("replace", &place))?;
        files::sync_parent(&place)?;
        Ok(Some(stored))
    }

    /// Changes the carried part of the fork's record, if the fork exists.
    fn change_trees(
        &self,
        name: &ForkName,
        change: impl FnOnce(&mut CarryRecord),
    ) -> Result<(), StoreError> {
        match self.update_record(name, |record| {
            if let Some(carry) = &mut record.carry {
                change(carry);
            }
        }) {
            Ok(_) | Err(StoreError::NoSuchFork(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes the generation; returns the total size of its files.
    fn make_generation(
        &self,
        top: &File,
        path: &RepoPath,
        mut listing: TreeListing,
        id: &GenerationId,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, KeepError> {
        let place = self.places.generation(id);
        let dir = files::temporary_beside(&place);
        files::create_private_dir(&self.places.generations())?;
        files::create_private_dir(&dir)?;
        let made = self
            .fill(&dir, top, path, &mut listing, goes_on)
            .and_then(|bytes| {
                // Files that changed during the copy show now.
                if TreeListing::of(top, path).map_err(could_not_read)?.id() != *id {
                    return Err(KeepError::Changing);
                }
                // A damaged one may be in the place.
                files::remove_dir(&place)?;
                fs::rename(&dir, &place).map_err(StoreError::io("replace", &place))?;
                files::sync_parent(&place)?;
                Ok(bytes)
            });
        if made.is_err()
            && let Err(error) = files::remove_dir(&dir)
        {
            log::warn!("{error}");
        }
        made
    }

    fn fill(
        &self,
        dir: &Path,
        top: &File,
        path: &RepoPath,
        listing: &mut TreeListing,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, KeepError> {
        let sizes = listing.entries.iter().filter(|entry| entry.is_file());
        let needed: u64 = sizes.map(|entry| entry.stat.size).sum();
        let figures = fs_figures(dir).map_err(StoreError::io("look at", dir))?;
        let available = figures.block_size.saturating_mul(figures.blocks_available);
        if available < needed.saturating_add(SPARE_BYTES) {
            return Err(KeepError::NoRoom { needed, available });
        }
        let no_room = |error: StoreError| match &error {
            StoreError::Io { source, .. }
                if matches!(
                    source.kind(),
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded
                ) =>
            {
                KeepError::NoRoom { needed, available }
            }
            _ => error.into(),
        };
        let landmarks = listing.landmarks();
        let pack_path = dir.join(PACK);
        let pack = create(&pack_path)?;
        let in_pack = |action| StoreError::io(action, &pack_path);
        let mut end = 0_u64;
        let mut gone = BTreeSet::new();
        // Copying may share blocks and not read the bytes, so they are read for the checksum.
        let mut sums = Vec::new();
        let mut buffer = vec![0; SUM_BUFFER];
        for (index, entry) in listing.entries.iter_mut().enumerate() {
            if !entry.is_file() {
                continue;
            }
            if !goes_on() {
                return Err(KeepError::Ending);
            }
            if entry.stat.size >= MIN_SHARED {
                end = end.next_multiple_of(BLOCK);
            }
            entry.offset = end;
            (&pack)
                .seek(SeekFrom::Start(end))
                .map_err(|error| no_room(in_pack("write")(error)))?;
            let full = below(path, &entry.path).map_err(KeepError::Read)?;
            let is_as_listed = |source: &File| {
                let found = beneath::stat(source).map_err(could_not_read)?;
                let is_it = (found.ino, found.size, found.mtime, found.ctime)
                    == (
                        entry.stat.ino,
                        entry.stat.size,
                        entry.stat.mtime,
                        entry.stat.ctime,
                    );
                Ok::<_, KeepError>(is_it || found.nlink > 1 && found.mtime == entry.stat.mtime)
            };
            let copied = match beneath::open(top, full.as_path(), Access::Read) {
                Ok(source) if is_as_listed(&source)? => {
                    let copied = io::copy(&mut (&source).take(entry.stat.size), &mut &pack)
                        .map_err(|error| no_room(in_pack("write")(error)))?;
                    (&source).rewind().map_err(could_not_read)?;
                    let (sum, read) = checksum((&source).take(entry.stat.size), &mut buffer)
                        .map_err(could_not_read)?;
                    let is_whole =
                        copied == entry.stat.size && read == copied && is_as_listed(&source)?;
                    sums.extend(is_whole.then_some(sum));
                    is_whole
                }
                Ok(_) => false,
                Err(error) => match could_not_read(error) {
                    KeepError::Changing => false,
                    failed => return Err(failed),
                },
            };
            match copied {
                true => end = end.saturating_add(entry.stat.size),
                false if entry.is_cache() => drop(gone.insert(index)),
                false => return Err(KeepError::Changing),
            }
        }
        let mut index = 0;
        listing.entries.retain(|_| {
            index += 1;
            !gone.contains(&(index - 1))
        });
        pack.sync_all()
            .map_err(|error| no_room(in_pack("sync")(error)))?;
        let files = listing
            .entries
            .iter()
            .filter(|entry| entry.is_file())
            .count() as u64;
        let summary = GenerationSummary {
            files,
            bytes: end,
            landmarks,
        };
        for (name, bytes) in [
            (MANIFEST, with_checksum(&listing)),
            (SUMMARY, with_checksum(&summary)),
            (SUMS, with_checksum(&sums)),
        ] {
            let path = dir.join(name);
            let bytes = bytes.map_err(StoreError::io("encode", &path))?;
            let mut file = create(&path)?;
            file.write_all(&bytes)
                .map_err(StoreError::io("write", &path))
                .map_err(no_room)?;
        }
        files::sync_files_in(dir).map_err(no_room)?;
        Ok(needed)
    }

    /// Opens a generation, shared by all forks that show it.
    fn open_generation(&self, id: &GenerationId) -> Result<Arc<Generation>, StoreError> {
        let mut generations = self.generations.lock();
        if let Some(generation) = generations.get(id).and_then(Weak::upgrade) {
            return Ok(generation);
        }
        let dir = self.places.generation(id);
        let opened = Generation::open(&dir, id.clone()).map_err(|error| damaged(&dir, error))?;
        let generation = Arc::new(opened);
        generations.retain(|_, generation| generation.strong_count() > 0);
        generations.insert(id.clone(), Arc::downgrade(&generation));
        Ok(generation)
    }

    /// Shows the generations that the record names.
    ///
    /// For a lost or damaged generation the fork shows the main checkout's tree.
    pub(super) fn show_generations(
        &self,
        record: &ForkRecord,
        carried: &CarryRecord,
        carry: &Carry,
    ) {
        for tree in &carried.trees {
            let (Some(path), Some(id)) = (tree.path(), &tree.generation) else {
                continue;
            };
            match self.open_generation(id) {
                Ok(generation) => {
                    drop(carry.show_generation(path, generation, self.arrivals(tree).into()))
                }
                Err(error) => log::warn!(
                    "{} follows {path} of the main checkout: {error}",
                    record.name
                ),
            }
        }
    }

    /// Returns the state of `tree` in a fork that carries `carry`.
    ///
    /// Looks at some hundred files of the main checkout.
    pub fn tree_state(&self, carry: &CarryRecord, tree: &DependencyTree) -> TreeState {
        let (Some(path), Some(id)) = (tree.path(), &tree.generation) else {
            return if tree.is_wanted() {
                TreeState::Keeping
            } else {
                TreeState::Following
            };
        };
        let Ok(summary) = self.summary(id) else {
            return TreeState::Damaged;
        };
        let stands = beneath::open_top(&carry.from).is_ok_and(|top| {
            summary
                .landmarks
                .iter()
                .all(|mark| mark.stands(&top, &path))
        });
        TreeState::Kept { moved_on: !stands }
    }

    /// Reads a generation's summary and checks that its files are complete.
    fn summary(&self, id: &GenerationId) -> Result<GenerationSummary, StoreError> {
        let dir = self.places.generation(id);
        let read = read_checked::<GenerationSummary>(&dir.join(SUMMARY)).and_then(|summary| {
            if fs::metadata(dir.join(PACK))?.len() >= summary.bytes && dir.join(MANIFEST).is_file()
            {
                Ok(summary)
            } else {
                Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "its pack is cut off",
                ))
            }
        });
        read.map_err(|error| damaged(&dir, error))
    }

    /// Checks a generation to the given depth.
    pub(super) fn check_generation(
        &self,
        id: &GenerationId,
        depth: Depth,
    ) -> Result<(), StoreError> {
        self.summary(id)?;
        let dir = self.places.generation(id);
        Generation::open(&dir, id.clone()).map_err(|error| damaged(&dir, error))?;
        match depth {
            Depth::Places => Ok(()),
            Depth::Bytes => Generation::verify(&dir).map_err(|error| damaged(&dir, error)),
        }
    }
}

fn create(path: &Path) -> Result<File, StoreError> {
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map_err(StoreError::io("create", path))
}

fn could_not_read(error: io::Error) -> KeepError {
    match error.kind() {
        // It existed when its directory was listed.
        ErrorKind::NotFound | ErrorKind::NotADirectory => KeepError::Changing,
        _ => KeepError::Read(error),
    }
}

fn damaged(dir: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::InvalidData | ErrorKind::NotFound => StoreError::Damaged {
            path: dir.to_owned(),
            reason: error.to_string(),
        },
        _ => StoreError::io("read", dir)(error),
    }
}

/// Removes unnamed and unfinished generations; returns the bytes freed.
///
/// The caller knows that none is being made. If a record cannot be read, only unfinished ones are
/// removed.
pub(super) fn clean_generations(places: &Places) -> Result<u64, StoreError> {
    let dirs = files::list(&places.generations())?;
    if dirs.is_empty() {
        return Ok(0);
    }
    let mut named = BTreeSet::new();
    let mut is_all = true;
    let mut aside = Vec::new();
    for aside_dir in files::list(&places.root().join("damaged"))? {
        let forks = aside_dir.join("forks");
        if forks.is_dir() {
            aside.extend(files::list(&forks)?);
        }
    }
    let aside = aside.iter().filter_map(|dir| {
        files::read_json::<ForkRecord>(&dir.join("fork.json"))
            .ok()
            .flatten()
    });
    let mut note = |record: &ForkRecord| {
        let carried = record.carry.iter().flat_map(CarryRecord::generations);
        let arrivals = record.carry.iter().flat_map(CarryRecord::arrivals);
        let ids = carried.chain(arrivals.map(|arrivals| &arrivals.id));
        named.extend(ids.map(|id| id.as_str().to_owned()));
    };
    aside.for_each(|record| note(&record));
    for (_, read) in places.read_records()? {
        match read {
            Some(Ok(record)) => note(&record),
            Some(Err(StoreError::NoSuchFork(_))) | None => {}
            Some(Err(_)) => is_all = false,
        }
    }
    let mut freed = 0_u64;
    for dir in dirs {
        let name = dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.ends_with(TEMPORARY_SUFFIX) || is_all && !named.contains(&name) {
            freed = freed.saturating_add(super::usage::sole_usage(&dir));
            files::remove_dir(&dir)?;
        }
    }
    Ok(freed)
}
