//! Files that repairs moved aside, and their return.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::next_aside;
use super::refs::refs_of;
use super::repair::{REFS, move_to};
use crate::fork::{ForkName, ForkRecord};
use crate::places::{NamedLayers, Places, is_there};
use crate::{RecordKind, Store, StoreError, files};
use tine_layer::FILES_NAME;

/// Files that one repair moved aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// Number of the repair, and of its directory in `damaged/`.
    pub number: u64,
    /// Paths in the store, and `worktrees/<id>` of the repository.
    pub paths: Vec<String>,
    /// Paths that stay aside, because what they belong to is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl Store {
    /// Lists files that repairs moved aside and that are still there.
    ///
    /// Sorted by number, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the directories cannot be listed.
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

    /// Moves the files of repair `number` back, with their refs.
    ///
    /// It moves all that still have a place, or nothing. A HEAD, index, branch or layer that the
    /// repair made in their place is moved aside. After a process died in the middle, a second call
    /// does the rest.
    ///
    /// # Errors
    /// [`StoreError::NotAside`] if there is nothing of that number. [`StoreError::InTheWay`] if
    /// another file has taken a place. [`StoreError::AsideOfGone`] if the forks of all files are
    /// gone. [`StoreError::Busy`] if the fork of a layer is open.
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
        // The record first: while it is unreadable, it protects layers and worktrees from cleanup.
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

    /// Returns the original path of a file moved aside.
    fn home_of(&self, path: &Path) -> PathBuf {
        if path.starts_with("worktrees") || path.starts_with("refs") {
            self.repository.common_dir().join(path)
        } else {
            self.places.root().join(path)
        }
    }

    /// Returns how `path` of an entry with these paths comes back.
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
            // A file of a worktree. A worktree that was moved as a whole has two parts.
            ["worktrees", _, _, ..] | ["forks", _, "git", _, ..] => {
                let dir = to.parent().unwrap_or(&to);
                match std::fs::read_dir(dir) {
                    Ok(_) => Return::Exchange(None),
                    Err(error) if error.kind() == ErrorKind::NotFound => Return::Gone,
                    Err(error) => return Err(StoreError::io("list", dir)(error)),
                }
            }
            // Only a snapshot list; nothing else could have been lost with a record.
            ["forks", fork, "snapshots.json"] if paths.len() == 1 => {
                if is_there(&self.places.forks().join(fork).join("fork.json")) {
                    Return::Free
                } else {
                    Return::Gone
                }
            }
            // The copy of a layer that was cut. Together with a record, or with what is left of its
            // fork, layers come back unchanged.
            ["layers", id] if paths.len() == 1 => {
                let id: Option<u64> = id.parse().ok();
                match records.iter().find(|record| Some(record.open_layer) == id) {
                    Some(record) if is_there(&to) => Return::Exchange(Some(&record.name)),
                    Some(_) => Return::Free,
                    // A snapshot may use the layer now, and must not change.
                    None if is_there(&to) => Return::Free,
                    None => Return::Gone,
                }
            }
            // A file that was in the place of a directory that exists again.
            ["layers", id, _] => {
                if is_there(&self.places.layers().join(id)) {
                    Return::Exchange(None)
                } else {
                    Return::Gone
                }
            }
            _ => Return::Free,
        })
    }

    /// Sets the refs of returned files and removes their substitutes.
    fn put_refs_back(&self, number: u64) -> Result<(), StoreError> {
        let forks = self.places.read_records()?.into_iter();
        let forks = forks.map(|(name, _)| (format!("{number}-{name}-"), name));
        let kinds = RecordKind::ALL.into_iter().map(|kind| {
            let group = refs_of(kind);
            (
                format!("{number}-{}-", group.trim_start_matches('+')),
                group.to_owned(),
            )
        });
        let mut groups: Vec<(String, String)> = forks.chain(kinds).collect();
        // One name may be a prefix of another.
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

/// Returns the layers that fork records set aside name.
///
/// These layers have not moved, and must exist when a fork comes back.
pub(crate) fn layers_of_aside(places: &Places) -> Result<HashSet<u64>, StoreError> {
    let mut layers = HashSet::new();
    for aside in files::list(&places.root().join("damaged"))? {
        let forks = aside.join("forks");
        if forks.is_dir() {
            // With an unreadable record, the layers that nothing else names were moved.
            layers.extend(NamedLayers::in_dir(&forks)?.layers);
        }
    }
    Ok(layers)
}

/// Way in which a file comes back to its place.
enum Return<'r> {
    /// Its place must be free.
    Free,
    /// The file that a repair made in its place is moved aside.
    ///
    /// If a fork is named, it must be closed.
    Exchange(Option<&'r ForkName>),
    /// The fork or worktree that it belongs to is gone.
    Gone,
}

/// Lists the files below `dir`, at any depth.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    for path in files::list(dir)? {
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_below(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// Lists the files in a repair's directory by their original paths.
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
            // Of a fork of which only the snapshot list was damaged.
            let is_list_only = dir.ends_with("forks") && !path.join("fork.json").exists();
            // Of a worktree that stayed.
            let is_file_only = dir.ends_with("worktrees") && !is_there(&path.join("locked"));
            // Of a layer that stayed.
            let is_part_only = dir.ends_with("layers")
                && path.is_dir()
                && !is_there(&path.join("log"))
                && is_there(&path.join(FILES_NAME))
                && !path.join(FILES_NAME).is_dir();
            let mut paths = if is_list_only || is_file_only || is_part_only {
                files::list(&path)?
            } else {
                vec![path]
            };
            // Of a fork's own git directory, which stayed, as did its objects.
            for dir in ["git", "git/objects"] {
                let is_it = |path: &PathBuf| is_list_only && path.ends_with(dir) && path.is_dir();
                if let Some(at) = paths.iter().position(is_it) {
                    let dir = paths.remove(at);
                    paths.extend(files::list(&dir)?);
                }
            }
            for path in paths {
                moved.extend(path.strip_prefix(aside).map(Path::to_owned));
            }
        }
    }
    Ok(moved)
}
