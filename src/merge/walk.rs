//! Merge of whole files: walks three trees side by side, from the root down.
//!
//! An entry that is equal on two sides is decided without reading it, so the cost grows with the
//! number of changes. Renames are not followed: a file stays at its path. The contents of a file
//! and its executable bit are merged separately.

use std::collections::BTreeMap;

use super::classify::{by_versions, is_regular};
use super::{Conflict, ConflictKind, Version};
use tine_git::{GitError, ObjectId, TreeChange, TreeEntry, TreeEntryKind};
use tine_path::{EntryName, RepoPath};

/// Source of trees and blobs.
pub(super) trait Trees {
    /// Returns the entries of a tree, each name once.
    fn entries(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError>;

    /// Returns true if the blob cannot be merged as text.
    fn is_binary(&self, blob_id: ObjectId) -> Result<bool, GitError>;
}

/// Result of a walk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    /// Edits that turn ours into the merged tree, without the conflicts.
    pub changes: Vec<TreeChange>,
    /// Conflicts, sorted by path.
    pub conflicts: Vec<Conflict>,
}

type Entry = (TreeEntryKind, ObjectId);

/// Values of the same place in base, ours and theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ThreeWay<T> {
    base: T,
    ours: T,
    theirs: T,
}

impl<T> ThreeWay<T> {
    fn map<U>(self, f: impl Fn(T) -> U) -> ThreeWay<U> {
        ThreeWay {
            base: f(self.base),
            ours: f(self.ours),
            theirs: f(self.theirs),
        }
    }
}

impl<T: PartialEq + Copy> ThreeWay<T> {
    /// Returns the value that both agree on, or that only one changed.
    fn settled(self) -> Option<T> {
        if self.ours == self.theirs || self.base == self.theirs {
            Some(self.ours)
        } else if self.base == self.ours {
            Some(self.theirs)
        } else {
            None
        }
    }
}

/// Merges three trees.
///
/// A missing base is an empty tree.
pub(super) fn walk(
    trees: &impl Trees,
    base: Option<ObjectId>,
    ours: ObjectId,
    theirs: ObjectId,
) -> Result<Walked, GitError> {
    let mut walk = Walk {
        trees,
        open: vec![Directory {
            path: RepoPath::root(),
            trees: ThreeWay {
                base,
                ours: Some(ours),
                theirs: Some(theirs),
            },
            contested_above: None,
        }],
        contested: Vec::new(),
        walked: Walked::default(),
    };
    while let Some(directory) = walk.open.pop() {
        walk.directory(directory)?;
    }
    walk.contested()?;
    walk.walked.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(walk.walked)
}

/// Directory that differs between all sides that have it.
struct Directory {
    path: RepoPath,
    trees: ThreeWay<Option<ObjectId>>,
    /// Index of the innermost contested path above it.
    contested_above: Option<usize>,
}

/// Path where one side has a directory and the other a file.
///
/// The file can only be there if nothing in the directory remains.
struct Contested {
    path: RepoPath,
    files: ThreeWay<Option<Entry>>,
    directory_stays: bool,
    contested_above: Option<usize>,
}

struct Walk<'a, T> {
    trees: &'a T,
    open: Vec<Directory>,
    /// Contested paths, inner ones after outer ones.
    contested: Vec<Contested>,
    walked: Walked,
}

impl<T: Trees> Walk<'_, T> {
    fn directory(&mut self, directory: Directory) -> Result<(), GitError> {
        let mut names: BTreeMap<EntryName, ThreeWay<Option<Entry>>> = BTreeMap::new();
        for entry in self.entries(directory.trees.base)? {
            names.entry(entry.name).or_default().base = Some((entry.kind, entry.id));
        }
        for entry in self.entries(directory.trees.ours)? {
            names.entry(entry.name).or_default().ours = Some((entry.kind, entry.id));
        }
        for entry in self.entries(directory.trees.theirs)? {
            names.entry(entry.name).or_default().theirs = Some((entry.kind, entry.id));
        }
        for (name, entries) in names {
            self.name(
                directory.path.join(&name),
                entries,
                directory.contested_above,
            )?;
        }
        Ok(())
    }

    fn entries(&self, tree_id: Option<ObjectId>) -> Result<Vec<TreeEntry>, GitError> {
        tree_id.map_or(Ok(Vec::new()), |id| self.trees.entries(id))
    }

    fn name(
        &mut self,
        path: RepoPath,
        entries: ThreeWay<Option<Entry>>,
        contested_above: Option<usize>,
    ) -> Result<(), GitError> {
        if let Some(settled) = entries.settled() {
            self.set(path, entries.ours, settled, contested_above);
            return Ok(());
        }
        let is_directory = |entry: &Entry| entry.0 == TreeEntryKind::Directory;
        let directories = entries.map(|entry| entry.filter(is_directory).map(|(_, id)| id));
        let files = entries.map(|entry| entry.filter(|entry| !is_directory(entry)));
        let contested_above = match (directories.ours, directories.theirs) {
            (None, None) => return self.file(path, files, contested_above),
            (Some(_), None) | (None, Some(_)) if files.ours.or(files.theirs).is_some() => {
                self.contested.push(Contested {
                    path: path.clone(),
                    files,
                    directory_stays: false,
                    contested_above,
                });
                Some(self.contested.len() - 1)
            }
            _ => contested_above,
        };
        self.open.push(Directory {
            path,
            trees: directories,
            contested_above,
        });
        Ok(())
    }

    /// Merges an entry that is not a directory on either side.
    fn file(
        &mut self,
        path: RepoPath,
        files: ThreeWay<Option<Entry>>,
        contested_above: Option<usize>,
    ) -> Result<(), GitError> {
        if let Some(settled) = files.settled() {
            self.set(path, files.ours, settled, contested_above);
            return Ok(());
        }
        let (Some(ours), Some(theirs)) = (files.ours, files.theirs) else {
            self.conflict(ConflictKind::ModifyDelete, path, files, contested_above);
            return Ok(());
        };
        let base = files.base.filter(|(kind, _)| is_regular(*kind));
        if is_regular(ours.0) && is_regular(theirs.0) {
            let three = ThreeWay {
                base,
                ours: Some(ours),
                theirs: Some(theirs),
            };
            let kind = three
                .map(|entry| entry.map(|(kind, _)| kind))
                .settled()
                .flatten();
            let id = three
                .map(|entry| entry.map(|(_, id)| id))
                .settled()
                .flatten();
            if let (Some(kind), Some(id)) = (kind, id) {
                self.set(path, files.ours, Some((kind, id)), contested_above);
                return Ok(());
            }
            for blob in [base, Some(ours), Some(theirs)].into_iter().flatten() {
                if id.is_none() && self.trees.is_binary(blob.1)? {
                    self.conflict(ConflictKind::Binary, path, files, contested_above);
                    return Ok(());
                }
            }
        }
        let versions = files.map(|file| versions(&path, file));
        let kind = by_versions(&versions.base, &versions.ours, &versions.theirs);
        self.conflict(kind, path, files, contested_above);
        Ok(())
    }

    /// Decides on the contested paths, inner ones first.
    fn contested(&mut self) -> Result<(), GitError> {
        while let Some(contested) = self.contested.pop() {
            let Contested {
                path,
                files,
                directory_stays,
                contested_above,
            } = contested;
            if directory_stays {
                self.conflict(ConflictKind::DirectoryFile, path, files, contested_above);
                continue;
            }
            if files.ours.is_none() {
                // The directory must go as a whole before the file comes.
                self.change(path.clone(), None);
            }
            self.file(path, files, contested_above)?;
        }
        Ok(())
    }

    /// Sets the merged entry of `path`.
    fn set(
        &mut self,
        path: RepoPath,
        ours: Option<Entry>,
        merged: Option<Entry>,
        contested_above: Option<usize>,
    ) {
        if merged.is_some() {
            self.stays(contested_above);
        }
        if merged != ours {
            // A file replaces a directory, or the reverse.
            if ours.is_some() && merged.is_some() {
                self.change(path.clone(), None);
            }
            self.change(path, merged);
        }
    }

    fn conflict(
        &mut self,
        kind: ConflictKind,
        path: RepoPath,
        files: ThreeWay<Option<Entry>>,
        contested_above: Option<usize>,
    ) {
        self.stays(contested_above);
        if files.ours.is_some() {
            self.change(path.clone(), None);
        }
        let versions = files.map(|file| versions(&path, file));
        self.walked.conflicts.push(Conflict {
            kind,
            paths: vec![path.clone()],
            path,
            base: versions.base,
            ours: versions.ours,
            theirs: versions.theirs,
        });
    }

    fn stays(&mut self, contested_above: Option<usize>) {
        if let Some(contested) = contested_above.and_then(|index| self.contested.get_mut(index)) {
            contested.directory_stays = true;
        }
    }

    fn change(&mut self, path: RepoPath, new: Option<Entry>) {
        self.walked.changes.push(TreeChange { path, new });
    }
}

fn versions(path: &RepoPath, file: Option<Entry>) -> Vec<Version> {
    let version = |(kind, id)| Version {
        path: path.clone(),
        kind,
        id,
    };
    file.map(version).into_iter().collect()
}

#[cfg(test)]
mod tests;
