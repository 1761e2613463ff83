//! Maps inode numbers to paths, for diagnostics.

use std::collections::{HashMap, HashSet};

use super::fs::{ViewState, Workspace};
use tine_attr::Ino;
use tine_layer::Dentry;
use tine_path::{EntryName, RepoPath};

/// Maximum depth of a path. It ends a walk that goes in a circle.
const DEPTH_MAX: usize = 4096;

impl Workspace {
    /// Returns one path for each of these nodes except directories.
    ///
    /// Nodes without a name are missing from the result. Takes time proportional to the layers'
    /// dentries.
    pub fn paths_of_files(&self, numbers: &HashSet<Ino>) -> HashMap<Ino, RepoPath> {
        let state = self.read_state();
        let mut entries: HashMap<Ino, (Ino, EntryName)> = HashMap::new();
        for (parent, dir) in state.stack.indexes().flat_map(|index| index.dirs()) {
            for (name, dentry) in dir.iter() {
                if let Dentry::Entry(ino) = dentry
                    && numbers.contains(&ino)
                    && state.stack.dentry(parent, name.as_bytes()) == Some(dentry)
                {
                    entries.entry(ino).or_insert_with(|| (parent, name.clone()));
                }
            }
        }
        let path_of = |ino: &Ino| {
            let (parent, name) = match entries.get(ino) {
                Some((parent, name)) => (*parent, name.clone()),
                None => self.place_in_base(&state, *ino)?,
            };
            Some((*ino, self.dir_path(&state, parent)?.join(&name)))
        };
        numbers.iter().filter_map(path_of).collect()
    }

    /// Returns directory and name of a node that never moved.
    fn place_in_base(&self, state: &ViewState, ino: Ino) -> Option<(Ino, EntryName)> {
        let (parent, name) = self.base_path(state, ino)?.split_last()?;
        Some((state.base.base.hasher().ino(&parent), name))
    }

    /// Returns the path of a directory.
    ///
    /// `None` if no name leads to it.
    /// Takes time proportional to the entries of the directories above it.
    pub fn path_of_dir(&self, dir: Ino) -> Option<RepoPath> {
        let known = self.dir_path(&self.read_state(), dir);
        // No layer has the name of a carried directory.
        known.or_else(|| self.listed_path_of_dir(dir))
    }

    /// Finds the path of a directory by listings.
    fn listed_path_of_dir(&self, dir: Ino) -> Option<RepoPath> {
        let mut above = vec![dir];
        let mut at = dir;
        while at != Ino::ROOT {
            at = self.number_of_parent(at).ok()?;
            above.push(at);
            if above.len() > DEPTH_MAX {
                return None;
            }
        }
        let mut path = RepoPath::root();
        for ino in above.into_iter().rev().skip(1) {
            let entries = self.list_path(&path).ok()?;
            let (name, _, _) = entries.into_iter().find(|(_, _, number)| *number == ino)?;
            path.push(&name);
        }
        Some(path)
    }

    fn dir_path(&self, state: &ViewState, dir: Ino) -> Option<RepoPath> {
        let mut names = Vec::new();
        let mut at = dir;
        while at != Ino::ROOT {
            if names.len() > DEPTH_MAX || at == Ino::TRASH {
                return None;
            }
            let entry = state.stack.dir_parent(at).and_then(|parent| {
                let named = |(name, dentry): (&EntryName, Dentry)| {
                    (dentry == Dentry::Entry(at)).then(|| (parent, name.clone()))
                };
                let mut dirs = state.stack.indexes().filter_map(|index| index.dir(parent));
                dirs.find_map(|dir| dir.iter().find_map(named))
            });
            let (parent, name) = match entry {
                Some(entry) => entry,
                None => self.place_in_base(state, at)?,
            };
            names.push(name);
            at = parent;
        }
        let root = RepoPath::root();
        Some(names.iter().rev().fold(root, |path, name| path.join(name)))
    }
}
