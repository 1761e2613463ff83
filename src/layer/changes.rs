//! Changes of a layer since a position in its log.
//!
//! The log has the changes: they are the records appended since the caller asked for
//! [`Layer::position`](super::Layer::position). So the layer keeps no other state for this, and no
//! change can be missing. Another process can use the position as long as the log begins with the
//! same bytes, because the same bytes give the same state.

use std::collections::HashSet;

use super::position::{LogTail, READ_MAX};
use super::{Dentry, LayerIndex, Node, Op};
use tine_attr::{FileKind, Ino};
use tine_path::EntryName;

/// Nodes and names that changed, or may have changed.
#[derive(Debug, Clone, Default)]
pub struct Touched {
    /// Changed nodes.
    ///
    /// A directory is included only if more changed than its names and times.
    pub nodes: HashSet<Ino>,
    /// Changed names, each with its directory.
    pub names: HashSet<(Ino, EntryName)>,
}

/// Records of a layer that can be read without holding the layer.
pub struct ChangesSince(pub(super) LogTail);

impl ChangesSince {
    /// Reads the changes.
    ///
    /// `None` if there are too many of them, or if the records cannot be read.
    pub fn read(&self) -> Option<Touched> {
        if self.0.len > READ_MAX {
            return None;
        }
        let mut touched = Touched::default();
        for step in self.0.read()? {
            touched.add_step(step);
        }
        Some(touched)
    }
}

#[cfg(any(test, feature = "testing"))]
impl ChangesSince {
    /// Returns the number of records.
    pub fn steps(&self) -> usize {
        self.0.read().expect("whole records").len()
    }
}

impl Touched {
    /// Adds all nodes and names of a layer.
    ///
    /// It skips a directory if `is_as_in_base` returns true, which means that the base has the same
    /// node.
    pub fn add_layer(&mut self, index: &LayerIndex, is_as_in_base: impl Fn(&Node) -> bool) {
        for (ino, node) in index.nodes() {
            if node.kind != FileKind::Directory || !is_as_in_base(node) {
                self.nodes.insert(ino);
            }
        }
        for (parent, dir) in index.dirs() {
            self.names.extend(
                dir.iter()
                    .map(|(name, _): (_, Dentry)| (parent, name.clone())),
            );
        }
    }

    fn add_step(&mut self, step: Vec<Op>) {
        let parents: HashSet<Ino> = step
            .iter()
            .filter_map(|op| match op {
                Op::PutDentry { parent, .. } | Op::DropDentry { parent, .. } => Some(*parent),
                _ => None,
            })
            .collect();
        for op in step {
            match op {
                // The times and links of a directory change with its names. No record changes
                // anything else of it together with names.
                Op::PutNode(ino, node)
                    if node.kind == FileKind::Directory && parents.contains(&ino) => {}
                Op::PutNode(ino, _) | Op::Written { ino, .. } => {
                    self.nodes.insert(ino);
                }
                Op::PutDentry { parent, name, .. } | Op::DropDentry { parent, name } => {
                    self.names.insert((parent, name));
                }
                // An earlier record removed the names of the node.
                Op::DropNode(_) | Op::ReserveInos { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, Layer, LayerId, LogPosition, Xattrs};
    use tine_attr::Timestamp;

    fn node(kind: FileKind) -> Node {
        Node {
            kind,
            perm: 0o644,
            uid: 1,
            gid: 1,
            nlink: 1,
            rdev: 0,
            size: 0,
            atime: Timestamp::from_secs(1),
            mtime: Timestamp::from_secs(1),
            ctime: Timestamp::from_secs(1),
            content: Content::Empty,
            origin: None,
            xattrs: Xattrs::new(),
        }
    }

    fn name_in(parent: u64, name: &str, ino: u64) -> Op {
        Op::PutDentry {
            parent: Ino(parent),
            name: EntryName::new(name).unwrap(),
            dentry: Dentry::Entry(Ino(ino)),
        }
    }

    fn sorted(touched: &Touched) -> (Vec<u64>, Vec<String>) {
        let mut nodes: Vec<u64> = touched.nodes.iter().map(|ino| ino.0).collect();
        let mut names: Vec<String> = touched
            .names
            .iter()
            .map(|(dir, name)| format!("{}/{name}", dir.0))
            .collect();
        nodes.sort_unstable();
        names.sort_unstable();
        (nodes, names)
    }

    #[test]
    fn what_was_logged_since_a_moment_is_told_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let mut layer = Layer::create(&place.path().join("layer"), LayerId(7)).unwrap();
        let made = |ino| Op::PutNode(Ino(ino), node(FileKind::Regular));
        let directory = |ino| Op::PutNode(Ino(ino), node(FileKind::Directory));
        layer
            .commit(vec![made(2), name_in(1, "before", 2), directory(1)])
            .unwrap();
        let moment = layer.position();
        assert_eq!(
            sorted(&layer.changes_since(moment).unwrap().read().unwrap()),
            Default::default()
        );

        layer
            .commit(vec![made(3), name_in(1, "new", 3), directory(1)])
            .unwrap();
        layer.sync().unwrap();
        let (size, time) = (5, Timestamp::from_secs(9));
        let ino = Ino(2);
        layer.commit(vec![Op::Written { ino, size, time }]).unwrap();
        layer.commit(vec![directory(4)]).unwrap();
        let changes = layer.changes_since(moment).unwrap();
        layer.commit(vec![name_in(1, "later", 3)]).unwrap();
        assert_eq!(
            sorted(&changes.read().unwrap()),
            (vec![2, 3, 4], vec!["1/new".to_owned()])
        );
    }

    #[test]
    fn a_moment_is_known_as_long_as_the_log_begins_alike() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("layer");
        let mut layer = Layer::create(&dir, LayerId(7)).unwrap();
        layer
            .commit(vec![Op::PutNode(Ino(2), node(FileKind::Regular))])
            .unwrap();
        let moment = layer.position();
        layer.compact().unwrap();
        assert!(layer.changes_since(moment).is_none());
        let moment = layer.position();
        assert!(layer.changes_since(moment).is_some());
        let beyond = LogPosition {
            len: moment.len + 1,
            ..moment
        };
        assert!(layer.changes_since(beyond).is_none());
        let amid = LogPosition {
            len: moment.len - 1,
            ..moment
        };
        assert!(layer.changes_since(amid).unwrap().read().is_none());
        // Another process.
        drop(layer);
        let mut layer = Layer::open(&dir).unwrap();
        let (size, time) = (5, Timestamp::from_secs(9));
        let ino = Ino(2);
        layer.commit(vec![Op::Written { ino, size, time }]).unwrap();
        let changes = layer.changes_since(moment).unwrap();
        assert_eq!(sorted(&changes.read().unwrap()), (vec![2], Vec::new()));
        let unhashed = LogPosition {
            prefix: None,
            ..moment
        };
        assert!(layer.changes_since(unhashed).is_none());

        // What was written is lost, and something else was written in its place.
        let moment = layer.position();
        let log = dir.join("log");
        let lost = std::fs::read(&log).unwrap();
        let size = 6;
        layer.commit(vec![Op::Written { ino, size, time }]).unwrap();
        let later = layer.position();
        drop(layer);
        std::fs::write(&log, &lost).unwrap();
        let mut layer = Layer::open(&dir).unwrap();
        assert!(layer.changes_since(moment).is_some());
        assert!(layer.changes_since(later).is_none());
        let size = 7;
        layer.commit(vec![Op::Written { ino, size, time }]).unwrap();
        assert!(layer.position().len >= later.len);
        assert!(layer.changes_since(later).is_none());
    }
}
