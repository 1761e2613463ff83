//! Maps the inode numbers of directories to paths in a view.

use std::collections::HashMap;

use super::fs::ViewState;
use tine_attr::Ino;
use tine_layer::Dentry;
use tine_path::{EntryName, RepoPath};

/// Finder of directory paths, with a memo.
pub(super) struct DirPlaces<'a> {
    state: &'a ViewState,
    /// Known paths; `None` for a directory that no name leads to.
    dirs: HashMap<Ino, Option<RepoPath>>,
    /// For each parent, the names of directories with an entry.
    names_of_dirs: HashMap<Ino, HashMap<Ino, EntryName>>,
}

impl<'a> DirPlaces<'a> {
    pub(crate) fn new(state: &'a ViewState) -> DirPlaces<'a> {
        DirPlaces {
            state,
            dirs: HashMap::new(),
            names_of_dirs: HashMap::new(),
        }
    }

    /// Returns the path of a directory that a layer has.
    ///
    /// `None` if it is gone.
    pub(crate) fn dir_path(&mut self, ino: Ino) -> Option<RepoPath> {
        if ino == Ino::ROOT {
            return Some(RepoPath::root());
        }
        let origin = match self.state.stack.node(ino) {
            Some(node) if node.nlink > 0 => node.origin.as_ref().map(|origin| origin.path.clone()),
            _ => return None,
        };
        self.path_of_dir(ino, origin)
    }

    /// Returns the present path of the base directory `base_path`.
    ///
    /// Like [`DirPlaces::dir_path`], but the directory need not be in a layer.
    pub(crate) fn base_dir_path(&mut self, ino: Ino, base_path: RepoPath) -> Option<RepoPath> {
        match self.state.stack.node(ino) {
            Some(node) if node.nlink == 0 => None,
            _ => self.path_of_dir(ino, Some(base_path)),
        }
    }

    fn path_of_dir(&mut self, ino: Ino, origin: Option<RepoPath>) -> Option<RepoPath> {
        // From the directory upwards to one whose path is known.
        let mut way: Vec<(Ino, EntryName)> = Vec::new();
        let (mut at, mut origin) = (ino, origin);
        let mut path = loop {
            if at == Ino::ROOT {
                break Some(RepoPath::root());
            }
            if let Some(known) = self.dirs.get(&at) {
                break known.clone();
            }
            if let Some(parent) = self.state.stack.dir_parent(at) {
                let Some(name) = self.name_of_dir(parent, at) else {
                    break None;
                };
                way.push((at, name));
                at = parent;
                origin = match self.state.stack.node(parent) {
                    Some(node) if node.nlink > 0 => {
                        node.origin.as_ref().map(|origin| origin.path.clone())
                    }
                    _ => break None,
                };
            } else {
                let Some((parent, name)) = origin.as_ref().and_then(RepoPath::split_last) else {
                    break None;
                };
                way.push((at, name));
                at = self.state.base.base.hasher().ino(&parent);
                origin = Some(parent);
            }
        };
        for (dir, name) in way.into_iter().rev() {
            path = path.map(|parent| parent.join(&name));
            self.dirs.insert(dir, path.clone());
        }
        path
    }

    fn name_of_dir(&mut self, parent: Ino, dir: Ino) -> Option<EntryName> {
        let state = self.state;
        let names = self.names_of_dirs.entry(parent).or_insert_with(|| {
            let mut names = HashMap::new();
            for (name, dentry) in state
                .stack
                .indexes()
                .filter_map(|index| index.dir(parent))
                .flat_map(|dir| dir.iter())
            {
                if let Dentry::Entry(ino) = dentry
                    && state.stack.dir_parent(ino) == Some(parent)
                    && state.stack.dentry(parent, name.as_bytes()) == Some(dentry)
                {
                    names.insert(ino, name.clone());
                }
            }
            names
        });
        names.get(&dir).cloned()
    }
}
