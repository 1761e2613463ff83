//! Paths of a store's files, and reading of its records.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use super::check::layers_of_aside;
use super::{files, recover};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use crate::snapshot::SnapshotList;
use tine_git::Worktree;
use tine_git::own::forks_with_kept_head;
use tine_workspace::TimesId;
use tine_workspace::carry::generation::GenerationId;

/// Name of the file with a fork's [`Traces`](crate::Traces).
///
/// It exists while the fork is being made or removed.
pub(super) const TRACES_NAME: &str = "traces.json";

/// Name of the file with a fork's record.
const RECORD_NAME: &str = "fork.json";

/// Name of the file with a fork's snapshots.
const SNAPSHOTS_NAME: &str = "snapshots.json";

/// Paths of the files in a store.
pub(super) struct Places {
    pub(super) root: PathBuf,
}

impl Places {
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    pub(super) fn spares(&self) -> PathBuf {
        self.root.join("spares")
    }

    pub(super) fn format(&self) -> PathBuf {
        self.root.join("format")
    }

    pub(super) fn format_copy(&self) -> PathBuf {
        self.root.join("format.copy")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub(super) fn forks(&self) -> PathBuf {
        self.root.join("forks")
    }

    pub(super) fn fork(&self, name: &ForkName) -> PathBuf {
        self.forks().join(name.as_str())
    }

    pub(super) fn record(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join(RECORD_NAME)
    }

    pub(super) fn operations(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join("operations")
    }

    /// Returns the fork's own git directory, which a linked worktree lacks.
    pub(super) fn git_dir(&self, name: &ForkName) -> PathBuf {
        tine_git::own::dir_of(self.common_dir(), name.as_str())
    }

    /// Returns the former git directory of a fork that is linked now.
    pub(super) fn former_git_dir(&self, name: &ForkName) -> PathBuf {
        tine_git::own::former_dir_of(self.common_dir(), name.as_str())
    }

    pub(super) fn traces(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join(TRACES_NAME)
    }

    pub(super) fn notices(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join("untold.json")
    }

    pub(super) fn snapshots(&self, name: &ForkName) -> PathBuf {
        self.fork(name).join(SNAPSHOTS_NAME)
    }

    pub(super) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    pub(super) fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(super) fn layer(&self, id: u64) -> PathBuf {
        self.layers().join(id.to_string())
    }

    /// Lists all layers on the disk, with or without a record.
    pub(super) fn layer_dirs(&self) -> Result<Vec<(u64, PathBuf)>, StoreError> {
        let with_id = |dir: PathBuf| Some((dir.file_name()?.to_str()?.parse().ok()?, dir));
        Ok(files::list(&self.layers())?
            .into_iter()
            .filter_map(with_id)
            .collect())
    }

    pub(super) fn next_layer(&self) -> PathBuf {
        self.layers().join("next")
    }

    pub(super) fn bases(&self) -> PathBuf {
        self.root.join("bases")
    }

    pub(super) fn generations(&self) -> PathBuf {
        self.root.join("generations")
    }

    pub(super) fn generation(&self, id: &GenerationId) -> PathBuf {
        self.generations().join(id.as_str())
    }

    /// Returns the directory of the time tables.
    pub(super) fn times_dir(&self) -> PathBuf {
        self.root.join("times")
    }

    pub(super) fn times(&self, id: TimesId) -> PathBuf {
        self.times_dir().join(id.to_string())
    }

    /// Reads the snapshots of the fork with this record.
    ///
    /// A fork without snapshots need not have a list.
    pub(super) fn snapshots_of(&self, record: &ForkRecord) -> Result<SnapshotList, StoreError> {
        let path = self.snapshots(&record.name);
        match files::read_json(&path)? {
            Some(list) => Ok(list),
            None if record.has_snapshots => Err(missing(path)),
            None => Ok(SnapshotList::default()),
        }
    }

    /// Sets `has_snapshots` in the record if a snapshot list exists.
    pub(super) fn note_list(&self, record: &mut ForkRecord) -> Result<(), StoreError> {
        if record.has_snapshots || !is_there(&self.snapshots(&record.name)) {
            return Ok(());
        }
        record.has_snapshots = true;
        files::write_json(&self.record(&record.name), record)
    }

    /// Reads the snapshots of the fork `name`, as [`Places::snapshots_of`] does.
    pub(super) fn read_snapshots(&self, name: &ForkName) -> Result<SnapshotList, StoreError> {
        match files::read_json(&self.snapshots(name))? {
            Some(list) => Ok(list),
            None => match files::read_json::<ForkRecord>(&self.record(name)) {
                Ok(Some(record)) => self.snapshots_of(&record),
                // Reading the record reports that error.
                _ => Ok(SnapshotList::default()),
            },
        }
    }

    pub(super) fn read_record(&self, name: &ForkName) -> Result<ForkRecord, StoreError> {
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
        if is_there(&self.git_dir(name)) {
            return true;
        }
        let is_of_it = |id: &str| Worktree::may_be_of(name.as_str(), id);
        let has_files = !files::list(&self.fork(name)).unwrap_or_default().is_empty();
        has_files
            || is_kept(self.common_dir(), name) && self.has_layer_of_nobody()
            || recover::forks_of_worktrees(self.common_dir(), is_of_it)
                .is_ok_and(|forks| forks.contains(name))
    }

    /// Returns whether a layer may belong to a lost fork.
    ///
    /// A clone with all refs has those of the forks, too, and nothing that is lost.
    fn has_layer_of_nobody(&self) -> bool {
        let found = || -> Result<bool, StoreError> {
            let named = NamedLayers::in_dir(&self.forks())?;
            let aside = layers_of_aside(self)?;
            let is_named = |id: &u64| named.layers.contains(id) || aside.contains(id);
            // What cannot be read may name the others.
            Ok(!named.is_whole || self.layer_dirs()?.iter().any(|(id, _)| !is_named(id)))
        };
        found().unwrap_or(true)
    }

    /// Returns the common git directory that holds the store.
    pub(super) fn common_dir(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }

    /// Reads the fork records that directories and worktrees name, by name.
    ///
    /// `None`: the name is not a valid fork name.
    pub(super) fn read_records(&self) -> Result<Vec<(String, Option<ReadRecord>)>, StoreError> {
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
        let kept = forks_with_kept_head(self.common_dir(), |text| {
            !found.contains_key(text) && ForkName::parse(text).is_ok()
        })?;
        if !kept.is_empty() && self.has_layer_of_nobody() {
            for text in kept {
                let read = ForkName::parse(&text)
                    .ok()
                    .map(|name| self.read_record(&name));
                found.insert(text, read);
            }
        }
        Ok(found.into_iter().collect())
    }
}

/// Returns whether the main repository keeps HEAD of the fork.
///
/// A removal takes its refs away while its directory is there.
fn is_kept(common_dir: &Path, name: &ForkName) -> bool {
    forks_with_kept_head(common_dir, |text| text == name.as_str())
        .is_ok_and(|forks| !forks.is_empty())
}

/// Layers that forks and their snapshots name.
pub(super) struct NamedLayers {
    pub layers: HashSet<u64>,
    /// False if a record or a snapshot list cannot be read.
    pub is_whole: bool,
}

impl NamedLayers {
    /// Reads the records in a directory of forks.
    pub(super) fn in_dir(forks: &Path) -> Result<NamedLayers, StoreError> {
        let mut named = NamedLayers {
            layers: HashSet::new(),
            is_whole: true,
        };
        for dir in files::list(forks)? {
            let record = files::read_json::<ForkRecord>(&dir.join(RECORD_NAME));
            let list = files::read_json::<SnapshotList>(&dir.join(SNAPSHOTS_NAME));
            let has_snapshots = matches!(&record, Ok(Some(record)) if record.has_snapshots);
            named.is_whole &= record.is_ok() && list.is_ok();
            named.is_whole &= !has_snapshots || matches!(list, Ok(Some(_)));
            if let Ok(Some(record)) = record {
                named.layers.insert(record.open_layer);
                named.layers.extend(record.frozen_layers);
            }
            let snapshots = list.ok().flatten().unwrap_or_default().snapshots;
            named
                .layers
                .extend(snapshots.into_iter().flat_map(|one| one.frozen_layers));
        }
        Ok(named)
    }
}

/// Result of reading a record.
pub(super) type ReadRecord = Result<ForkRecord, StoreError>;

/// Returns the error for a file that must exist and does not.
pub(super) fn missing(path: PathBuf) -> StoreError {
    StoreError::Damaged {
        path,
        reason: "it is missing".to_owned(),
    }
}

/// Returns whether the path exists, without following a symbolic link.
pub(super) fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
