//! Differences of two lower stacks, and of two bases.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::error::FsError;
use tine_attr::Ino;
use tine_git::{Base, BaseDir, ObjectId, TreeEntryKind};
use tine_layer::{FrozenLayer, LayerId, LayerIndex, LayerStack};
use tine_path::{EntryName, RepoPath};

/// Names and nodes that may differ between two lower stacks.
#[derive(Default)]
pub(super) struct StackDifference {
    pub(super) names: HashSet<(Ino, EntryName)>,
    pub(super) nodes: HashSet<Ino>,
    /// Names at which both bases have a file, with different contents.
    pub(super) rewritten: Vec<(Ino, EntryName)>,
}

impl StackDifference {
    fn add_layer(&mut self, index: &LayerIndex) {
        self.nodes.extend(index.nodes().map(|(ino, _)| ino));
        for (parent, dir) in index.dirs() {
            self.names
                .extend(dir.iter().map(|(name, _)| (parent, name.clone())));
        }
    }

    /// Collects names and nodes of layers that only one stack has.
    pub(super) fn of(old: &LayerStack, new: &[Arc<FrozenLayer>]) -> StackDifference {
        let mut differing = StackDifference::default();
        differing.add_layer(old.open_layer().index());
        for index in differing_layers(old.frozen(), new) {
            differing.add_layer(index);
        }
        differing
    }

    /// Leaves out `.git`, whose number `ino` stays the same.
    ///
    /// A command that mounts something on it, as at the main checkout's path, would lose that mount
    /// if the name were invalidated.
    pub(super) fn leave_out_dot_git(&mut self, ino: Ino) {
        self.names
            .retain(|(parent, name)| *parent != Ino::ROOT || !name.is_dot_git());
        self.nodes.remove(&ino);
    }

    /// Adds names that only one base has, or with another kind.
    pub(super) fn add_bases(&mut self, old: &Base, new: &Base) -> Result<(), FsError> {
        for BaseDifference {
            dir,
            name,
            old: before,
            new: now,
        } in base_differences(old, new)?
        {
            let at = (old.hasher().ino(&dir), name);
            match (before, now) {
                (Some((before, _)), Some((now, _))) if before == now => self.rewritten.push(at),
                _ => drop(self.names.insert(at)),
            }
        }
        Ok(())
    }
}

/// Returns the layers that only one of two stacks has.
pub(crate) fn differing_layers<'l>(
    old: &'l [Arc<FrozenLayer>],
    new: &'l [Arc<FrozenLayer>],
) -> impl Iterator<Item = &'l LayerIndex> {
    let ids = |layers: &[Arc<FrozenLayer>]| layers.iter().map(|layer| layer.id()).collect();
    let (old_ids, new_ids): (BTreeSet<LayerId>, BTreeSet<LayerId>) = (ids(old), ids(new));
    let layers = old.iter().chain(new);
    layers
        .filter(move |layer| !(old_ids.contains(&layer.id()) && new_ids.contains(&layer.id())))
        .map(|layer| layer.index())
}

/// Name at which two bases differ. Common directories are compared entry by entry.
pub(crate) struct BaseDifference {
    /// Directory that holds the name.
    pub dir: RepoPath,
    /// Name in the directory.
    pub name: EntryName,
    /// Kind and object in the old base, if it has the name.
    pub old: Option<(TreeEntryKind, ObjectId)>,
    /// Kind and object in the new base, if it has the name.
    pub new: Option<(TreeEntryKind, ObjectId)>,
}

/// Returns the differences of two bases. Reads only directories that differ.
pub(crate) fn base_differences(old: &Base, new: &Base) -> Result<Vec<BaseDifference>, FsError> {
    let mut differences = Vec::new();
    let mut pairs = vec![(old.root()?, new.root()?)];
    while let Some((old_dir, new_dir)) = pairs.pop() {
        if old_dir.tree_id == new_dir.tree_id {
            continue;
        }
        let names = old_dir.entries.iter().chain(&new_dir.entries);
        let names: BTreeSet<&EntryName> = names.map(|entry| &entry.name).collect();
        for name in names {
            let dir = &old_dir.path;
            match (entry(&old_dir, name), entry(&new_dir, name)) {
                (before, now) if before == now => {}
                (
                    Some((TreeEntryKind::Directory, before)),
                    Some((TreeEntryKind::Directory, now)),
                ) => {
                    let path = dir.join(name);
                    pairs.push((old.dir(&path, before)?, new.dir(&path, now)?));
                }
                (before, now) => differences.push(BaseDifference {
                    dir: dir.clone(),
                    name: name.clone(),
                    old: before,
                    new: now,
                }),
            }
        }
    }
    Ok(differences)
}

fn entry(dir: &BaseDir, name: &EntryName) -> Option<(TreeEntryKind, ObjectId)> {
    let entry = dir.entries.get(dir.find(name.as_bytes())?)?;
    Some((entry.kind, entry.id))
}
