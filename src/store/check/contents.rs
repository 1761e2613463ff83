//! Findings for incomplete contents, reported by the paths of their files.

use super::finding::{FindingKind, Found};
use tine_attr::Ino;
use tine_layer::Dentry;
use tine_layer::check::{BrokenContent, CheckedLayer, ContentFault};
use tine_path::RepoPath;

pub(super) fn broken_content(
    fork: &str,
    layers: &[&CheckedLayer],
    broken: &BrokenContent,
) -> Found {
    let path = shown(layers, broken.ino);
    let (kind, detail) = match &broken.fault {
        ContentFault::Missing => (
            FindingKind::ContentMissing,
            format!("the bytes of {path} are gone"),
        ),
        ContentFault::Short { size, there } => (
            FindingKind::ContentDamaged,
            format!("{path} has {size} bytes, of which {there} are there; the rest is lost"),
        ),
        ContentFault::Misplaced(reason) => {
            (FindingKind::ContentDamaged, format!("of {path}: {reason}"))
        }
        ContentFault::Unreadable(reason) => (
            FindingKind::ContentDamaged,
            format!("the bytes of {path} cannot be read: {reason}"),
        ),
    };
    Found::new(
        kind,
        Some(fork),
        broken.path.display(),
        detail,
        "write the file anew, or take it back with `tine revert` or `tine restore`; a backup of the store has its bytes",
    )
}

/// Returns a node's path, as far as the layers know it.
pub(super) fn shown(layers: &[&CheckedLayer], ino: Ino) -> String {
    match path_of(layers, ino) {
        Some(path) => path,
        None => format!("the node {}", ino.0),
    }
}

fn path_of(layers: &[&CheckedLayer], ino: Ino) -> Option<String> {
    /// Maximum depth of a path, which ends a search in a cycle.
    const DEEP: usize = 4096;
    let mut names: Vec<String> = Vec::new();
    let mut ino = ino;
    while ino != Ino::ROOT {
        if names.len() > DEEP || ino == Ino::TRASH {
            return None;
        }
        let entry = layers.iter().find_map(|layer| {
            layer.index.dirs().find_map(|(parent, dir)| {
                let mut entries = dir.iter();
                let found = entries.find(|(_, dentry)| *dentry == Dentry::Entry(ino))?;
                Some((parent, found.0.to_string()))
            })
        });
        match entry {
            Some((parent, name)) => {
                names.push(name);
                ino = parent;
            }
            None => {
                let node = layers.iter().find_map(|layer| layer.index.node(ino))?;
                let origin: &RepoPath = &node.origin.as_ref()?.path;
                names.push(origin.to_string());
                break;
            }
        }
    }
    names.reverse();
    Some(names.join("/"))
}
