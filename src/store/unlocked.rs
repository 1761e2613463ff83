//! Reading a store without opening it.
//!
//! The daemon holds the store's lock, and it may not run, or not answer. Records that are damaged
//! or being written are left out.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::places::Places;
use super::{RecordKind, Store, files};
use crate::fork::{ForkName, ForkRecord};
use crate::snapshot::SnapshotRecord;

impl Store {
    /// Reads the records of all forks of a store, by name.
    pub fn recorded_forks(store_dir: &Path) -> Vec<ForkRecord> {
        let places = places(store_dir);
        let dirs = files::list(&places.forks()).unwrap_or_default();
        let mut forks: Vec<ForkRecord> = dirs
            .iter()
            .filter_map(|dir| ForkName::parse(dir.file_name()?.to_str()?).ok())
            .filter_map(|name| places.read_record(&name).ok())
            .collect();
        forks.sort_by(|one, other| one.name.cmp(&other.name));
        forks
    }

    /// Reads the mount directories of all forks of the store.
    pub fn recorded_mount_dirs(store_dir: &Path) -> Vec<PathBuf> {
        let forks = Store::recorded_forks(store_dir).into_iter();
        forks.map(|record| record.mount_dir).collect()
    }

    /// Reads the snapshots of a fork, oldest first.
    pub fn recorded_snapshots(store_dir: &Path, fork: &ForkName) -> Vec<SnapshotRecord> {
        let list = places(store_dir).read_snapshots(fork).unwrap_or_default();
        list.snapshots
    }

    /// Reads the records of a kind, by number.
    pub fn recorded_documents<T: DeserializeOwned>(store_dir: &Path, kind: RecordKind) -> Vec<T> {
        let mut paths: Vec<(u64, PathBuf)> = files::list(&store_dir.join(kind.dir_name()))
            .unwrap_or_default()
            .into_iter()
            .filter_map(|path| {
                let number = path
                    .file_name()?
                    .to_str()?
                    .strip_suffix(".json")?
                    .parse()
                    .ok()?;
                Some((number, path))
            })
            .collect();
        paths.sort_unstable();
        let documents = paths.iter().map(|(_, path)| files::read_json(path));
        documents
            .filter_map(|document| document.ok().flatten())
            .collect()
    }
}

fn places(store_dir: &Path) -> Places {
    Places {
        root: store_dir.to_owned(),
    }
}
