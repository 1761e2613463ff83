//! What repairs moved aside, and the way back.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::repair::{REFS, move_to};
use super::{is_there, refs_of};
use crate::workspace::StoreError;
use crate::workspace::store::{Shelf, Store, files};

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

    /// Moves what the repair `number` moved aside back to where it was, refs and all: everything or nothing.
    ///
    /// # Errors
    /// [`StoreError::NotAside`] where there is nothing of that number, [`StoreError::InTheWay`] where something else has
    /// taken a place since.
    pub fn put_back(&self, number: u64) -> Result<SetAside, StoreError> {
        let _admin = self.admin.lock();
        let aside = self.places.root().join("damaged").join(number.to_string());
        let mut paths = moved_in(&aside)?;
        if paths.is_empty() {
            return Err(StoreError::NotAside(number));
        }
        let home = |path: &Path| match path.starts_with("worktrees") {
            true => self.repository.common_dir().join(path),
            false => self.places.root().join(path),
        };
        if let Some(taken) = paths.iter().map(|path| home(path)).find(|path| is_there(path)) {
            return Err(StoreError::InTheWay(taken));
        }
        // A record that cannot be read keeps layers and worktrees from being cleared away: it comes first.
        paths.sort_by_key(|path| !path.starts_with("forks"));
        for path in &paths {
            move_to(&aside.join(path), &home(path))?;
        }
        self.put_refs_back(number, &paths)?;
        files::remove_dir(&aside)?;
        Ok(SetAside {
            number,
            paths: paths.iter().map(|path| path.display().to_string()).collect(),
        })
    }

    /// Sets the refs of what came back, and lets go of those that stood for them.
    fn put_refs_back(&self, number: u64, paths: &[PathBuf]) -> Result<(), StoreError> {
        let forks = paths.iter().filter_map(|path| {
            let name = path.strip_prefix("forks").ok()?.components().next()?;
            let name = name.as_os_str().to_str()?.to_owned();
            Some((format!("{number}-{name}-"), name))
        });
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

/// What is in the directory of one repair, by the places that it had.
fn moved_in(aside: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut moved = Vec::new();
    for dir in files::list(aside)? {
        let rounds = dir.join(".records");
        let dir = if rounds.is_dir() { rounds } else { dir };
        for path in files::list(&dir)? {
            // Of a fork whose list of snapshots alone was damaged.
            let is_list_only = dir.ends_with("forks") && !path.join("fork.json").exists();
            let paths = if is_list_only {
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
