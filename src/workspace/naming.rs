//! Where nodes are, by their numbers: for people who look.

use std::collections::{HashMap, HashSet};

use super::fs::{State, Workspace};
use tine_attr::Ino;
use tine_layer::Dentry;
use tine_path::{EntryName, RepoPath};

/// Deeper than any path: what leads in a circle ends.
const DEEP: usize = 4096;

impl Workspace {
    /// A path of each of these nodes that has one and is not a directory; of several names any.
    /// Takes time with what the layers name.
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

    /// Directory and name of a node that is where it was in the base.
    fn place_in_base(&self, state: &State, ino: Ino) -> Option<(Ino, EntryName)> {
        let (parent, name) = self.base_path(state, ino)?.split_last()?;
        Some((state.base.base.hasher().ino(&parent), name))
    }

    fn dir_path(&self, state: &State, dir: Ino) -> Option<RepoPath> {
        let mut names = Vec::new();
        let mut at = dir;
        while at != Ino::ROOT {
            if names.len() > DEEP || at == Ino::TRASH {
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
