//! Merging trees by whole files: three trees side by side, from the root downwards.
//!
//! What is equal on two sides is decided without looking into it, so that the costs grow with the
//! changes. A file stays at its path: renames are not followed. What a file holds and whether it is
//! executable are merged apart.

use std::collections::BTreeMap;

use super::classify::{by_versions, is_regular};
use super::{Conflict, ConflictKind, Version};
use tine_git::{GitError, ObjectId, TreeChange, TreeEntry, TreeEntryKind};
use tine_path::{EntryName, RepoPath};

/// Where trees are read.
pub(super) trait Trees {
    /// What the tree holds, each name once.
    fn entries(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError>;

    /// Whether the blob is no text that could be merged.
    fn is_binary(&self, blob_id: ObjectId) -> Result<bool, GitError>;
}

/// What merging gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    /// What makes ours the merged tree, without what is in conflict.
    pub changes: Vec<TreeChange>,
    /// Sorted by path.
    pub conflicts: Vec<Conflict>,
}

type Entry = (TreeEntryKind, ObjectId);

/// The same place in base, ours and theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Three<T> {
    base: T,
    ours: T,
    theirs: T,
}

impl<T> Three<T> {
    fn map<U>(self, f: impl Fn(T) -> U) -> Three<U> {
        Three {
            base: f(self.base),
            ours: f(self.ours),
            theirs: f(self.theirs),
        }
    }
}

impl<T: PartialEq + Copy> Three<T> {
    /// What both agree on, or only one changed.
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

/// Merges three trees; a missing one is empty.
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
            trees: Three {
                base,
                ours: Some(ours),
                theirs: Some(theirs),
            },
            beneath: None,
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

/// A directory that differs on all sides that have it.
struct Directory {
    path: RepoPath,
    trees: Three<Option<ObjectId>>,
    /// The innermost contested path above it.
    beneath: Option<usize>,
}

/// A path at which one side has a directory and the other a file: the file can be there if nothing
/// of the directory stays.
struct Contested {
    path: RepoPath,
    files: Three<Option<Entry>>,
    directory_stays: bool,
    beneath: Option<usize>,
}

struct Walk<'a, T> {
    trees: &'a T,
    open: Vec<Directory>,
    /// Inner ones after outer ones.
    contested: Vec<Contested>,
    walked: Walked,
}

impl<T: Trees> Walk<'_, T> {
    fn directory(&mut self, directory: Directory) -> Result<(), GitError> {
        let mut names: BTreeMap<EntryName, Three<Option<Entry>>> = BTreeMap::new();
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
            self.name(directory.path.join(&name), entries, directory.beneath)?;
        }
        Ok(())
    }

    fn entries(&self, tree_id: Option<ObjectId>) -> Result<Vec<TreeEntry>, GitError> {
        tree_id.map_or(Ok(Vec::new()), |id| self.trees.entries(id))
    }

    fn name(
        &mut self,
        path: RepoPath,
        entries: Three<Option<Entry>>,
        beneath: Option<usize>,
    ) -> Result<(), GitError> {
        if let Some(settled) = entries.settled() {
            self.set(path, entries.ours, settled, beneath);
            return Ok(());
        }
        let is_directory = |entry: &Entry| entry.0 == TreeEntryKind::Directory;
        let directories = entries.map(|entry| entry.filter(is_directory).map(|(_, id)| id));
        let files = entries.map(|entry| entry.filter(|entry| !is_directory(entry)));
        let beneath = match (directories.ours, directories.theirs) {
            (None, None) => return self.file(path, files, beneath),
            (Some(_), None) | (None, Some(_)) if files.ours.or(files.theirs).is_some() => {
                self.contested.push(Contested {
                    path: path.clone(),
                    files,
                    directory_stays: false,
                    beneath,
                });
                Some(self.contested.len() - 1)
            }
            _ => beneath,
        };
        self.open.push(Directory {
            path,
            trees: directories,
            beneath,
        });
        Ok(())
    }

    /// Merges what is no directory on either side.
    fn file(
        &mut self,
        path: RepoPath,
        files: Three<Option<Entry>>,
        beneath: Option<usize>,
    ) -> Result<(), GitError> {
        if let Some(settled) = files.settled() {
            self.set(path, files.ours, settled, beneath);
            return Ok(());
        }
        let (Some(ours), Some(theirs)) = (files.ours, files.theirs) else {
            self.conflict(ConflictKind::ModifyDelete, path, files, beneath);
            return Ok(());
        };
        let base = files.base.filter(|(kind, _)| is_regular(*kind));
        if is_regular(ours.0) && is_regular(theirs.0) {
            let three = Three {
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
                self.set(path, files.ours, Some((kind, id)), beneath);
                return Ok(());
            }
            for blob in [base, Some(ours), Some(theirs)].into_iter().flatten() {
                if id.is_none() && self.trees.is_binary(blob.1)? {
                    self.conflict(ConflictKind::Binary, path, files, beneath);
                    return Ok(());
                }
            }
        }
        let versions = files.map(|file| versions(&path, file));
        let kind = by_versions(&versions.base, &versions.ours, &versions.theirs);
        self.conflict(kind, path, files, beneath);
        Ok(())
    }

    /// Decides on the paths that both a directory and a file want, inner ones first.
    fn contested(&mut self) -> Result<(), GitError> {
        while let Some(contested) = self.contested.pop() {
            let Contested {
                path,
                files,
                directory_stays,
                beneath,
            } = contested;
            if directory_stays {
                self.conflict(ConflictKind::DirectoryFile, path, files, beneath);
                continue;
            }
            if files.ours.is_none() {
                // Before the file comes, and not only what was in it.
                self.change(path.clone(), None);
            }
            self.file(path, files, beneath)?;
        }
        Ok(())
    }

    /// Lets `path` be as `merged`.
    fn set(
        &mut self,
        path: RepoPath,
        ours: Option<Entry>,
        merged: Option<Entry>,
        beneath: Option<usize>,
    ) {
        if merged.is_some() {
            self.stays(beneath);
        }
        if merged != ours {
            // A file takes the place of a directory, or the reverse.
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
        files: Three<Option<Entry>>,
        beneath: Option<usize>,
    ) {
        self.stays(beneath);
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

    fn stays(&mut self, beneath: Option<usize>) {
        if let Some(contested) = beneath.and_then(|index| self.contested.get_mut(index)) {
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
