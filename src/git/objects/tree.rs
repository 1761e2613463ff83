//! Trees: their entries, and the checks before a checkout may have them.

use std::collections::HashMap;

use gix::ObjectId;
use gix::objs::{Kind, TreeRefIter};

use super::corrupt;
use crate::{GitError, Repository};
use tine_path::EntryName;

/// The mode of a tree entry.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum TreeEntryKind {
    /// Regular file, 100644.
    File,
    /// Executable file, 100755.
    Executable,
    /// Symbolic link, 120000.
    Symlink,
    /// Directory, 040000.
    Directory,
    /// Gitlink, 160000, shown as an empty directory.
    Submodule,
}

impl TreeEntryKind {
    /// Returns git's mode, as in `git ls-tree`: 0o100644 …
    pub fn mode(self) -> u32 {
        match self {
            TreeEntryKind::File => 0o100644,
            TreeEntryKind::Executable => 0o100755,
            TreeEntryKind::Symlink => 0o120000,
            TreeEntryKind::Directory => 0o040000,
            TreeEntryKind::Submodule => 0o160000,
        }
    }

    /// Returns the mode in six octal digits: `100644`.
    pub fn mode_text(self) -> String {
        format!("{:06o}", self.mode())
    }

    /// Parses the output of [`mode_text`](Self::mode_text).
    pub fn of_mode_text(text: &[u8]) -> Option<TreeEntryKind> {
        [
            TreeEntryKind::File,
            TreeEntryKind::Executable,
            TreeEntryKind::Symlink,
            TreeEntryKind::Submodule,
            TreeEntryKind::Directory,
        ]
        .into_iter()
        .find(|kind| kind.mode_text().as_bytes() == text)
    }
}

impl From<gix::objs::tree::EntryMode> for TreeEntryKind {
    fn from(mode: gix::objs::tree::EntryMode) -> TreeEntryKind {
        use gix::objs::tree::EntryKind;
        match mode.kind() {
            EntryKind::Blob => TreeEntryKind::File,
            EntryKind::BlobExecutable => TreeEntryKind::Executable,
            EntryKind::Link => TreeEntryKind::Symlink,
            EntryKind::Tree => TreeEntryKind::Directory,
            EntryKind::Commit => TreeEntryKind::Submodule,
        }
    }
}

/// Maximum number of files in a whole tree. git's index of that many takes a gigabyte.
const MAX_FILES: u64 = 10_000_000;

/// One entry of a tree object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Name, checked by [`Repository::read_tree`].
    pub name: EntryName,
    /// Mode of the entry.
    pub kind: TreeEntryKind,
    /// Id of the blob, the tree, or the submodule's commit.
    pub id: ObjectId,
}

impl Repository {
    /// Reads a tree, in git's order. The empty tree is always readable.
    ///
    /// # Errors
    /// [`GitError::HostileTree`] for a name that a checkout must refuse (`..`, slashes, a variant
    /// of `.git` that `core.protectHFS` or `core.protectNTFS` detects); [`GitError::MissingObject`]
    /// or [`GitError::CorruptObject`].
    pub fn read_tree(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError> {
        if tree_id == self.empty_tree_id() {
            return Ok(Vec::new());
        }
        let data = self.read_object(tree_id, Kind::Tree)?;
        check_modes(&data, tree_id)?;
        let protect = self.protection();
        let mut entries: Vec<TreeEntry> = Vec::new();
        for entry in TreeRefIter::from_bytes(&data, tree_id.kind()) {
            let entry = entry.map_err(|error| corrupt(tree_id, error))?;
            let kind = TreeEntryKind::from(entry.mode);
            let hostile = |source| GitError::HostileTree { tree_id, source };
            let name = EntryName::new(entry.filename).map_err(hostile)?;
            protect.check(&name, kind).map_err(hostile)?;
            if let Some(last) = entries.last() {
                check_order(last, &name, kind).map_err(|reason| GitError::CorruptObject {
                    id: tree_id,
                    reason,
                })?;
            }
            entries.push(TreeEntry {
                name,
                kind,
                id: entry.oid.to_owned(),
            });
        }
        check_duplicates(&entries).map_err(|reason| GitError::CorruptObject {
            id: tree_id,
            reason,
        })?;
        Ok(entries)
    }

    /// Refuses a tree with more files than any checkout could have.
    ///
    /// A few objects can make such a tree, if each directory contains the next one many times. Each
    /// tree is therefore read once and its count reused.
    ///
    /// # Errors
    /// [`GitError::TooManyFiles`]; otherwise fails as [`Repository::read_tree`].
    pub fn check_file_count(&self, tree_id: ObjectId) -> Result<(), GitError> {
        struct Counting {
            tree_id: ObjectId,
            files: u64,
            /// Directories that are not counted yet.
            children: Vec<ObjectId>,
        }
        let start = |tree_id| -> Result<Counting, GitError> {
            let entries = self.read_tree(tree_id)?;
            let is_dir = |entry: &&TreeEntry| entry.kind == TreeEntryKind::Directory;
            let children: Vec<ObjectId> = entries
                .iter()
                .filter(is_dir)
                .map(|entry| entry.id)
                .collect();
            Ok(Counting {
                tree_id,
                files: (entries.len() - children.len()) as u64,
                children,
            })
        };
        let mut known: HashMap<ObjectId, u64> = HashMap::new();
        let mut above = Vec::new();
        let mut current = start(tree_id)?;
        loop {
            if current.files > MAX_FILES {
                return Err(GitError::TooManyFiles {
                    tree_id,
                    limit: MAX_FILES,
                });
            }
            match current.children.pop() {
                Some(child) => match known.get(&child) {
                    Some(files) => current.files = current.files.saturating_add(*files),
                    None => above.push(std::mem::replace(&mut current, start(child)?)),
                },
                None => {
                    known.insert(current.tree_id, current.files);
                    let Some(mut parent): Option<Counting> = above.pop() else {
                        return Ok(());
                    };
                    parent.files = parent.files.saturating_add(current.files);
                    current = parent;
                }
            }
        }
    }
}

/// Checks that every tree entry has a mode, as git's `get_mode`.
///
/// The library accepts a missing mode as 0.
fn check_modes(mut entries: &[u8], tree_id: ObjectId) -> Result<(), GitError> {
    while let Some(name_at) = entries.iter().position(|&byte| byte == b' ') {
        if name_at == 0 {
            return Err(GitError::CorruptObject {
                id: tree_id,
                reason: "an entry has no mode".to_owned(),
            });
        }
        let name_end = entries.iter().skip(name_at).position(|&byte| byte == 0);
        let next = name_end.map(|len| name_at + len + 1 + tree_id.kind().len_in_bytes());
        entries = next
            .and_then(|next| entries.get(next..))
            .unwrap_or_default();
    }
    Ok(())
}

/// Checks that an entry may follow `last`.
///
/// Readers find names by bisection and compare trees side by side, so a tree out of order would
/// hide entries.
fn check_order(last: &TreeEntry, name: &EntryName, kind: TreeEntryKind) -> Result<(), String> {
    let is_tree = |kind| kind == TreeEntryKind::Directory;
    let order = gix::objs::tree::name_order(
        last.name.as_bytes(),
        is_tree(last.kind),
        name.as_bytes(),
        is_tree(kind),
    );
    match order {
        std::cmp::Ordering::Less => Ok(()),
        _ => Err(format!("{name} stands behind {} in the tree", last.name)),
    }
}

/// Checks that no name occurs twice.
///
/// A file and a directory of one name need not be neighbours in git's order.
fn check_duplicates(entries: &[TreeEntry]) -> Result<(), String> {
    let directories: std::collections::HashSet<&[u8]> = entries
        .iter()
        .filter(|entry| entry.kind == TreeEntryKind::Directory)
        .map(|entry| entry.name.as_bytes())
        .collect();
    let double = entries.iter().find(|entry| {
        entry.kind != TreeEntryKind::Directory && directories.contains(entry.name.as_bytes())
    });
    match double {
        Some(entry) => Err(format!("the tree names {} twice", entry.name)),
        None => Ok(()),
    }
}
