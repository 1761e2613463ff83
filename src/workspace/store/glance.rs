//! What a store has, for who does not open it: its lock belongs to the daemon, which may not run,
//! or not answer. Records that are damaged, or being written, say nothing.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::{Places, RecordKind, Store, files};
use crate::fork::{ForkName, ForkRecord};
use crate::snapshot::SnapshotRecord;

impl Store {
    /// The forks of the store in `store_dir`, by name.
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

    /// Where they are, or would be, mounted.
    pub fn recorded_mount_dirs(store_dir: &Path) -> Vec<PathBuf> {
        let forks = Store::recorded_forks(store_dir).into_iter();
        forks.map(|record| record.mount_dir).collect()
    }

    /// The snapshots of one of them, the oldest first.
    pub fn recorded_snapshots(store_dir: &Path, fork: &ForkName) -> Vec<SnapshotRecord> {
        let list = places(store_dir).read_snapshots(fork).unwrap_or_default();
        list.snapshots
    }

    /// The records of a shelf, by number.
    pub fn recorded_documents<T: DeserializeOwned>(store_dir: &Path, shelf: RecordKind) -> Vec<T> {
        let mut paths: Vec<(u64, PathBuf)> = files::list(&store_dir.join(shelf.dir_name()))
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
