//! Generations: dependency trees of the main checkout, kept for the forks that carry them.
//!
//! They are in `<store>/generations/`.
//!
//! A generation is made under a temporary name and renamed when it is complete and on the disk.
//! Then the records of forks name it. If the process dies in between, it leaves a directory that no
//! record names, and the next opening of the store removes that. Arrivals are stored there as well.

mod arrivals;
mod cleanup;
mod make;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use thiserror::Error;

pub(super) use self::cleanup::clean_generations;
use super::Store;
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use tine_layer::check::Depth;
use tine_path::RepoPath;
use tine_sys::beneath::{self, Access};
use tine_workspace::carry::generation::{
    Generation, GenerationId, GenerationSummary, MANIFEST, PACK, SUMMARY, read_checked,
};
use tine_workspace::carry::tree::TreeListing;
use tine_workspace::carry::{Carry, CarryRecord, DependencyTree};

/// Minimum time since the last change of a tree to be kept.
///
/// A tree changed more recently may still be changing.
const QUIET: Duration = Duration::from_secs(1);

/// Disk space, in bytes, that must stay free beside a new generation.
const SPARE_BYTES: u64 = 64 << 20;

/// Reason for which no generation was made.
#[derive(Debug, Error)]
pub enum GenerationError {
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
pub struct MadeGeneration {
    /// Number of files in it.
    pub files: u64,
    /// Number of package names, as [`TreeListing::package_names`] counts them.
    pub packages: u64,
    /// Number of bytes copied; `None` if the store had the generation.
    pub copied_bytes: Option<u64>,
    /// Forks that show it now and showed something else before.
    pub forks: Vec<ForkName>,
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
    /// [`GenerationError::Partial`] if `takes_it` returns false for every fork, or another variant of
    /// [`GenerationError`].
    pub fn keep_tree(
        &self,
        from: &Path,
        path: &RepoPath,
        depth: Depth,
        takes_it: &dyn Fn(&ForkName, &DependencyTree, u64) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<MadeGeneration, GenerationError> {
        let _making = self.making.lock();
        let top = beneath::open_top(from).map_err(could_not_read)?;
        beneath::open(&top, path.as_path(), Access::Attributes).map_err(|error| {
            match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => GenerationError::Missing,
                _ => GenerationError::Read(error),
            }
        })?;
        let listing = TreeListing::of(&top, path).map_err(could_not_read)?;
        if !listing.is_quiet(QUIET) {
            return Err(GenerationError::Changing);
        }
        let names = listing.package_names();
        let takes_it = |name: &ForkName, tree: &DependencyTree| takes_it(name, tree, names);
        let takes_any = |record: &ForkRecord| {
            tree_at(record, from, path).is_some_and(|tree| takes_it(&record.name, tree))
        };
        if !self.records().0.iter().any(takes_any) {
            return Err(GenerationError::Partial);
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
        Ok(MadeGeneration {
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
        let stored = self.store_arrivals(&arrivals)?;
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
                .all(|mark| mark.is_unchanged(&top, &path))
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

fn could_not_read(error: io::Error) -> GenerationError {
    match error.kind() {
        // It existed when its directory was listed.
        ErrorKind::NotFound | ErrorKind::NotADirectory => GenerationError::Changing,
        _ => GenerationError::Read(error),
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
