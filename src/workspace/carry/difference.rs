//! Difference between two generations of a dependency tree.

use super::generation::{Generation, KeptNode};
use super::tree::split;
use super::version_of;
use tine_attr::FileKind;
use tine_sys::beneath::HostStat;

/// Changed paths between two generations, from the root of the tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TreeDifference {
    /// Names that are new, gone, or lead to another version.
    pub names: Vec<Box<[u8]>>,
    /// Directories of both generations with other attributes or names.
    pub dirs: Vec<Box<[u8]>>,
    /// Paths that programs must find changed.
    ///
    /// These are files and symlinks that are new or changed, and directories with changed names.
    pub arrived: Vec<Box<[u8]>>,
}

impl TreeDifference {
    /// Compares two generations.
    pub fn between(before: &Generation, now: &Generation) -> TreeDifference {
        let mut difference = TreeDifference::default();
        if let (Some(one), Some(other)) = (before.stat(b""), now.stat(b"")) {
            difference.add_dir(b"", one, other);
        }
        for (path, node) in now.nodes() {
            match before.stat(&path) {
                Some(stat) => difference.add_both(&path, stat, node),
                None => {
                    difference.names.push(path.clone());
                    difference.arrived.push(path);
                }
            }
        }
        let gone = before.nodes().filter(|(path, _)| now.stat(path).is_none());
        difference.names.extend(gone.map(|(path, _)| path));
        difference.add_parents();
        difference
    }

    fn add_both(&mut self, path: &[u8], before: &HostStat, now: &KeptNode) {
        let is_dir = |stat: &HostStat| stat.kind == FileKind::Directory;
        if is_dir(before) && is_dir(&now.stat) {
            return self.add_dir(path, before, &now.stat);
        }
        if before.kind != now.stat.kind || version_of(before) != version_of(&now.stat) {
            self.names.push(path.into());
            if before.kind != now.stat.kind || !now.is_version(&version_of(before)) {
                self.arrived.push(path.into());
            }
        }
    }

    fn add_dir(&mut self, path: &[u8], before: &HostStat, now: &HostStat) {
        if (before.mtime, before.ctime) != (now.mtime, now.ctime) {
            self.dirs.push(path.into());
        }
        if before.mtime != now.mtime {
            self.arrived.push(path.into());
        }
    }

    /// Adds the directories of changed names.
    ///
    /// A listing has the inode numbers of the files in it, so it changes with them.
    pub fn add_parents(&mut self) {
        let parents = self.names.iter().map(|path| split(path).0.into());
        let parents: Vec<Box<[u8]>> = parents.collect();
        self.dirs.extend(parents);
        self.dirs.sort_unstable();
        self.dirs.dedup();
    }
}
