//! What repairs moved aside, and the way back.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::repair::{REFS, move_to};
use super::{next_aside, refs_of};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use crate::snapshot::SnapshotList;
use crate::store::{Places, RecordKind, Store, files, is_there};
use tine_layer::FILES_NAME;

/// What one repair moved aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    pub number: u64,
    /// Paths in the store, and `worktrees/<id>` of the repository.
    pub paths: Vec<String>,
    /// What stays aside, because what it belongs to is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl Store {
    /// What repairs moved aside and nobody brought back, oldest first.
    ///
    /// # Errors
    /// Where the directories cannot be listed.
    pub fn set_aside(&self) -> Result<Vec<SetAside>, StoreError> {
        let mut all = Vec::new();
        for dir in files::list(&self.places.root().join("damaged"))? {
            let Some(number) = dir.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
                continue;
            };
            let paths: Vec<String> = moved_in(&dir)?
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            if !paths.is_empty() {
                all.push(SetAside {
                    number,
                    paths,
                    left: Vec::new(),
                });
            }
        }
        all.sort_by_key(|one| one.number);
        Ok(all)
    }

    /// Moves what the repair `number` moved aside back to where it was, refs and all: all that
    /// still has a place, or nothing. What the repair made in the place of a HEAD, an index, a
    /// branch or a layer is moved aside in turn. Done again after a process died in the middle, it
    /// does the rest.
    ///
    /// # Errors
    /// [`StoreError::NotAside`] where there is nothing of that number, [`StoreError::InTheWay`]
    /// where something else has taken a place since, [`StoreError::AsideOfGone`] where the forks of
    /// all of it are gone, [`StoreError::Busy`] where the fork whose layer it is is in use.
    pub fn put_back(&self, number: u64) -> Result<SetAside, StoreError> {
        let _admin = self.admin.lock();
        let open = self.open.lock();
        let aside = self.places.root().join("damaged").join(number.to_string());
        let mut paths = moved_in(&aside)?;
        if paths.is_empty() && !is_there(&aside) {
            return Err(StoreError::NotAside(number));
        }
        let records: Vec<ForkRecord> = (self.places.read_records()?.into_iter())
            .filter_map(|(_, read)| read?.ok())
            .collect();
        let mut left = Vec::new();
        let mut exchanged = Vec::new();
        for path in &paths {
            let to = self.home_of(path);
            match self.return_of(path, &paths, &records)? {
                Return::Free if is_there(&to) => return Err(StoreError::InTheWay(to)),
                Return::Free => {}
                Return::Exchange(fork) => {
                    if let Some(fork) = fork {
                        open.check_is_closed(fork)?;
                    }
                    exchanged.push(path.clone());
                }
                Return::Gone => left.push(path.clone()),
            }
        }
        paths.retain(|path| !left.contains(path));
        if let (true, Some(path)) = (paths.is_empty(), left.first()) {
            return Err(StoreError::AsideOfGone(aside.join(path)));
        }
        let replaced = next_aside(&self.places)?;
        // A record that cannot be read keeps layers and worktrees from being cleared away: it comes
        // first.
        paths.sort_by_key(|path| !path.starts_with("forks"));
        for path in &paths {
            let to = self.home_of(path);
            if exchanged.contains(path) {
                move_to(&to, &replaced.join(path))?;
            }
            move_to(&aside.join(path), &to)?;
        }
        drop(open);
        self.put_refs_back(number)?;
        if left.is_empty() {
            files::remove_dir(&aside)?;
        }
        let shown = |paths: &[PathBuf]| {
            paths
                .iter()
                .map(|path| path.display().to_string())
                .collect()
        };
        Ok(SetAside {
            number,
            paths: shown(&paths),
            left: shown(&left),
        })
    }

    /// Where what was moved aside comes from.
    fn home_of(&self, path: &Path) -> PathBuf {
        match path.starts_with("worktrees") || path.starts_with("refs") {
            true => self.repository.common_dir().join(path),
            false => self.places.root().join(path),
        }
    }

    /// How `path` of an entry with these paths comes back.
    fn return_of<'r>(
        &self,
        path: &Path,
        paths: &[PathBuf],
        records: &'r [ForkRecord],
    ) -> Result<Return<'r>, StoreError> {
        let to = self.home_of(path);
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        Ok(match parts.as_slice() {
            ["refs", ..] => Return::Exchange(None),
            // A file of a worktree; a worktree that was moved as a whole has two parts.
            ["worktrees", _, _, ..] => {
                let dir = to.parent().unwrap_or(&to);
                match std::fs::read_dir(dir) {
                    Ok(_) => Return::Exchange(None),
                    Err(error) if error.kind() == ErrorKind::NotFound => Return::Gone,
                    Err(error) => return Err(StoreError::io("list", dir)(error)),
                }
            }
            // A list of snapshots, and nothing else that could have been lost with a record.
            ["forks", fork, "snapshots.json"] if paths.len() == 1 => {
                match is_there(&self.places.forks().join(fork).join("fork.json")) {
                    true => Return::Free,
                    false => Return::Gone,
                }
            }
            // The copy of a layer that was cut; with a record, or what is left of its fork, layers
            // come back as they are.
            ["layers", id] if paths.len() == 1 => {
                let id: Option<u64> = id.parse().ok();
                match records.iter().find(|record| Some(record.open_layer) == id) {
                    Some(record) if is_there(&to) => Return::Exchange(Some(&record.name)),
                    Some(_) => Return::Free,
                    // A snapshot may stand on it now, which must not change.
                    None if is_there(&to) => Return::Free,
                    None => Return::Gone,
                }
            }
            // A file that was in the place of a directory, which was made since.
            ["layers", id, _] => match is_there(&self.places.layers().join(id)) {
                true => Return::Exchange(None),
                false => Return::Gone,
            },
            _ => Return::Free,
        })
    }

    /// Sets the refs of what came back, and lets go of those that stood for them.
    fn put_refs_back(&self, number: u64) -> Result<(), StoreError> {
        let forks = self.places.read_records()?.into_iter();
        let forks = forks.map(|(name, _)| (format!("{number}-{name}-"), name));
        let shelves = RecordKind::ALL.into_iter().map(|shelf| {
            let group = refs_of(shelf);
            (
                format!("{number}-{}-", group.trim_start_matches('+')),
                group.to_owned(),
            )
        });
        let mut groups: Vec<(String, String)> = forks.chain(shelves).collect();
        // A name may begin as another does.
        groups.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        for (kept, id) in self.repository.kept(REFS)? {
            let found = groups
                .iter()
                .find_map(|(prefix, group)| Some((group, kept.strip_prefix(prefix.as_str())?)));
            let Some((group, label)) = found else {
                continue;
            };
            // HEAD is in the worktree, which came back.
            if label != "HEAD" && self.repository.kept_as(group, label)?.is_none() {
                self.repository.keep(group, label, id)?;
            }
            self.repository.release(REFS, &kept)?;
        }
        Ok(())
    }
}

/// Layers that records of forks name which were set aside: they have not moved, and are there when
/// a fork comes back.
pub(in crate::store) fn layers_of_aside(places: &Places) -> Result<HashSet<u64>, StoreError> {
    let mut layers = HashSet::new();
    for aside in files::list(&places.root().join("damaged"))? {
        let forks = aside.join("forks");
        let dirs = match forks.is_dir() {
            true => files::list(&forks)?,
            false => Vec::new(),
        };
        for dir in dirs {
            // One that cannot be read took the layers along that nothing else names.
            if let Ok(Some(record)) = files::read_json::<ForkRecord>(&dir.join("fork.json")) {
                layers.insert(record.open_layer);
                layers.extend(record.frozen_layers);
            }
            if let Ok(Some(list)) = files::read_json::<SnapshotList>(&dir.join("snapshots.json")) {
                let snapshots = list.snapshots.into_iter();
                layers.extend(snapshots.flat_map(|snapshot| snapshot.frozen_layers));
            }
        }
    }
    Ok(layers)
}

/// How something comes back to its place.
enum Return<'r> {
    /// Nothing may be there.
    Free,
    /// What a repair made there is moved aside in turn; the fork must be closed, where one is
    /// named.
    Exchange(Option<&'r ForkName>),
    /// What it belongs to is gone.
    Gone,
}

/// The files below `dir`, at any depth.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    for path in files::list(dir)? {
        match path.is_dir() && !path.is_symlink() {
            true => found.extend(files_below(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

/// What is in the directory of one repair, by the places that it had.
fn moved_in(aside: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut moved = Vec::new();
    for dir in files::list(aside)? {
        if !dir.is_dir() {
            moved.extend(dir.strip_prefix(aside).map(Path::to_owned));
            continue;
        }
        let rounds = dir.join(".records");
        let dir = if rounds.is_dir() { rounds } else { dir };
        if dir.ends_with("refs") {
            let below = files_below(&dir)?.into_iter();
            moved.extend(below.filter_map(|path| Some(path.strip_prefix(aside).ok()?.to_owned())));
            continue;
        }
        for path in files::list(&dir)? {
            // Of a fork whose list of snapshots alone was damaged.
            let is_list_only = dir.ends_with("forks") && !path.join("fork.json").exists();
            // Of a worktree that stayed.
            let is_file_only = dir.ends_with("worktrees") && !is_there(&path.join("locked"));
            // Of a layer that stayed, likewise.
            let is_part_only = dir.ends_with("layers")
                && path.is_dir()
                && !is_there(&path.join("log"))
                && is_there(&path.join(FILES_NAME))
                && !path.join(FILES_NAME).is_dir();
            let paths = if is_list_only || is_file_only || is_part_only {
                files::list(&path)?
            } else {
                vec![path]
            };
            for path in paths {
                moved.extend(path.strip_prefix(aside).map(Path::to_owned));
            }
        }
    }
    Ok(moved)
}
