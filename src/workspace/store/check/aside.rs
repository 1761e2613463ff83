//! What repairs moved aside, and the way back.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::repair::{REFS, move_to};
use super::{next_aside, refs_of};
use crate::workspace::StoreError;
use crate::workspace::store::{Shelf, Store, files, is_there};

/// What one repair moved aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    pub number: u64,
    /// Paths in the store, and `worktrees/<id>` of the repository.
    pub paths: Vec<String>,
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
                all.push(SetAside { number, paths });
            }
        }
        all.sort_by_key(|one| one.number);
        Ok(all)
    }

    /// Moves what the repair `number` moved aside back to where it was, refs and all: everything or nothing. What the repair
    /// made in the place of a HEAD, an index or a branch is moved aside in turn.
    ///
    /// # Errors
    /// [`StoreError::NotAside`] where there is nothing of that number, [`StoreError::InTheWay`] where something else has
    /// taken a place since; where the worktree of a HEAD or an index is gone.
    pub fn put_back(&self, number: u64) -> Result<SetAside, StoreError> {
        let _admin = self.admin.lock();
        let aside = self.places.root().join("damaged").join(number.to_string());
        let mut paths = moved_in(&aside)?;
        if paths.is_empty() {
            return Err(StoreError::NotAside(number));
        }
        let home = |path: &Path| match path.starts_with("worktrees") || path.starts_with("refs") {
            true => self.repository.common_dir().join(path),
            false => self.places.root().join(path),
        };
        for path in &paths {
            let to = home(path);
            match was_made_again(path) {
                true if path.starts_with("worktrees") => {
                    let dir = to.parent().unwrap_or(&to);
                    std::fs::read_dir(dir).map_err(StoreError::io("list", dir))?;
                }
                true => {}
                false if is_there(&to) => return Err(StoreError::InTheWay(to)),
                false => {}
            }
        }
        let replaced = next_aside(&self.places)?;
        // A record that cannot be read keeps layers and worktrees from being cleared away: it comes first.
        paths.sort_by_key(|path| !path.starts_with("forks"));
        for path in &paths {
            if was_made_again(path) {
                move_to(&home(path), &replaced.join(path))?;
            }
            move_to(&aside.join(path), &home(path))?;
        }
        self.put_refs_back(number)?;
        files::remove_dir(&aside)?;
        Ok(SetAside {
            number,
            paths: paths.iter().map(|path| path.display().to_string()).collect(),
        })
    }

    /// Sets the refs of what came back, and lets go of those that stood for them.
    fn put_refs_back(&self, number: u64) -> Result<(), StoreError> {
        let forks = self.places.read_records()?.into_iter();
        let forks = forks.map(|(name, _)| (format!("{number}-{name}-"), name));
        let shelves = Shelf::ALL.into_iter().map(|shelf| {
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

/// Whether a repair made anew what has this path in the directory of what it moved aside: HEAD or index of a worktree, or
/// a branch. A worktree that was moved as a whole was not.
fn was_made_again(path: &Path) -> bool {
    path.starts_with("refs") || path.starts_with("worktrees") && path.components().count() > 2
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
            let paths = if is_list_only || is_file_only {
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
