//! Generations: dependency trees of the main checkout, kept in `<store>/generations/` for the forks
//! that carry them.
//!
//! A generation is made beside its place and renamed there once it is whole and on the disk; then
//! the records of forks name it. What dies in between leaves a directory that no record names,
//! which goes when the store is opened next. The arrivals of what was taken up are there as well.

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
use crate::carry::arrivals::{ARRIVALS, Arrivals, ArrivalsRef};
use crate::carry::difference::TreeDifference;
use crate::carry::generation::{
    Generation, GenerationId, GenerationSummary, MANIFEST, PACK, SUM_BUFFER, SUMMARY, SUMS,
    checksum, read_checked, with_checksum,
};
use crate::carry::tree::{TreeListing, below};
use crate::carry::{Carry, CarryRecord, DependencyTree};
use crate::fork::{ForkName, ForkRecord};
use tine_attr::Timestamp;
use tine_layer::check::Depth;
use tine_path::RepoPath;
use tine_sys::beneath::{self, Access};
use tine_sys::file::fs_figures;

/// A tree that was changed less long ago may be changing still.
const QUIET: Duration = Duration::from_secs(1);

/// Files of this size and more, in bytes, begin at a block of the pack, so that the disk can share
/// their blocks.
const MIN_SHARED: u64 = 16 << 10;
const BLOCK: u64 = 4096;

/// Bytes that stay free on the disk beside the generation that is made.
const SPARE_BYTES: u64 = 64 << 20;

/// Why no generation was made.
#[derive(Debug, Error)]
pub enum KeepError {
    #[error("the main checkout is changing it")]
    Changing,
    #[error("the main checkout does not have it")]
    Missing,
    #[error("the main checkout has removed part of it since the fork was made")]
    Partial,
    #[error(
        "the disk has no room for it: it takes {needed} bytes, {available} are free, and {SPARE_BYTES} of them stay so"
    )]
    NoRoom { needed: u64, available: u64 },
    #[error("the daemon is ending")]
    Ending,
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A generation that was just made, or was there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptNow {
    pub files: u64,
    /// Names where packages stand side by side.
    pub packages: u64,
    /// Bytes that were copied; `None` where the store had it.
    pub copied_bytes: Option<u64>,
    /// The forks that show it now, and showed something else before.
    pub forks: Vec<ForkName>,
}

/// The dependency tree at `path` of the main checkout `from` that the fork carries.
fn tree_at<'r>(record: &'r ForkRecord, from: &Path, path: &RepoPath) -> Option<&'r DependencyTree> {
    let carry = record.carry.as_ref().filter(|carry| carry.from == from)?;
    carry
        .trees
        .iter()
        .find(|tree| tree.path().as_ref() == Some(path))
}

/// What a fork shows of a dependency tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeState {
    /// What the main checkout has, until the generation is whole that is being made.
    Keeping,
    /// A generation.
    Kept {
        /// The main checkout has another tree by now.
        moved_on: bool,
    },
    /// What the main checkout has: no generation was made.
    Following,
    /// The same: the generation is lost or damaged.
    Damaged,
}

impl Store {
    /// Keeps the tree at `path` of the main checkout `from` as it is now, and lets each fork show
    /// it that carries the tree and for which `takes_it` holds, which is told how many packages are
    /// in it. A generation that is there is checked to `depth`. Blocks while files are copied, for
    /// as long as `goes_on` holds.
    ///
    /// # Errors
    /// [`KeepError::Partial`] where it holds for none.
    pub fn keep_tree(
        &self,
        from: &Path,
        path: &RepoPath,
        depth: Depth,
        takes_it: &dyn Fn(&ForkName, &DependencyTree, u64) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<KeptNow, KeepError> {
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
                // One that is damaged may be open.
                self.generations.lock().remove(&id);
                Some(bytes)
            }
        };
        let generation = self.open_generation(&id)?;
        let is_made = copied_bytes.is_some();
        let mut forks = Vec::new();
        for record in self.records().0 {
            // Who shows one that is damaged needs the new one.
            let shows_it = |tree: &DependencyTree| is_made && tree.generation.as_ref() == Some(&id);
            let takes_it = |tree: &DependencyTree| takes_it(&record.name, tree) || shows_it(tree);
            if tree_at(&record, from, path).is_some_and(takes_it)
                && self.show_generation(&record.name, path, &generation, is_made)?
            {
                forks.push(record.name);
            }
        }
        Ok(KeptNow {
            files,
            packages: names,
            copied_bytes,
            forks,
        })
    }

    /// Lets the fork show its dependency trees as it did before others were taken up; those that it
    /// shows otherwise now.
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

    /// Notes that no generation of the tree is made for the forks that wait for one, and whose tree
    /// is given up.
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

    /// Writes the generation into the record, and shows it where the fork is open; whether that is
    /// another than before, or `is_made` anew. The caller holds [`Store::making`].
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

    /// When the fork that carries `tree` got what `now` has, if it shows that from this moment on.
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
            // What came later than the fork was not seen.
            None => TreeDifference {
                arrived: carry
                    .since
                    .map_or_else(Vec::new, |since| now.changed_since(since).collect()),
                ..TreeDifference::default()
            },
        };
        Ok(before.after(&difference, now, Timestamp::now()))
    }

    /// When the fork got what it shows of the tree. Where that is lost, all files may be as new as
    /// the newest.
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

    /// Stores arrivals, unless they are there.
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

    /// Changes what the fork's record says of dependency trees, if the fork is there still.
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

    /// Makes the generation; how many bytes its files have.
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
                // What was changed while it was copied shows now.
                if TreeListing::of(top, path).map_err(could_not_read)?.id() != *id {
                    return Err(KeepError::Changing);
                }
                // One that is damaged.
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
        // Where blocks are shared nothing else reads the bytes.
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

    /// The generation, shared by all forks that show it.
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

    /// Shows what the record names. A tree whose generation is lost or damaged is shown as the main
    /// checkout has it.
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

    /// What a fork that carries `carry` shows of `tree`. Looks at some hundred files of the main
    /// checkout.
    pub fn tree_state(&self, carry: &CarryRecord, tree: &DependencyTree) -> TreeState {
        let (Some(path), Some(id)) = (tree.path(), &tree.generation) else {
            return match tree.is_wanted() {
                true => TreeState::Keeping,
                false => TreeState::Following,
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

    /// What is known of a generation, if its files are there and as long as they must be.
    fn summary(&self, id: &GenerationId) -> Result<GenerationSummary, StoreError> {
        let dir = self.places.generation(id);
        let read = read_checked::<GenerationSummary>(&dir.join(SUMMARY)).and_then(|summary| {
            match fs::metadata(dir.join(PACK))?.len() >= summary.bytes
                && dir.join(MANIFEST).is_file()
            {
                true => Ok(summary),
                false => Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "its pack is cut off",
                )),
            }
        });
        read.map_err(|error| damaged(&dir, error))
    }

    /// Looks whether the generation is whole.
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
        // It was there when its directory was listed.
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

/// Removes generations that no record names, and what was not finished; bytes that were freed. The
/// caller knows that none is being made. Where a record cannot be read nothing is removed.
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
