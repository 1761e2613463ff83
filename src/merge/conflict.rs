//! Conflicts and their resolutions.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use tine_git::{ObjectId, TreeChange, TreeEntryKind};
use tine_path::RepoPath;

/// One of the three trees of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeSide {
    /// The common ancestor.
    Base,
    /// The side that is merged into.
    Ours,
    /// The side that is merged.
    Theirs,
}

/// Reason why the changes of both sides exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Both sides changed the same part of a text.
    ///
    /// With whole files: the same file.
    BothModified,
    /// Both sides added different files at one path.
    BothAdded,
    /// One side changed a file that the other deleted.
    ModifyDelete,
    /// One file got two names, or two files got one.
    RenameRename,
    /// One side renamed a file that the other deleted.
    RenameDelete,
    /// One side has a file, the other a symlink or submodule.
    TypeChanged,
    /// The sides differ only in the executable bit.
    ModeChanged,
    /// Both sides changed a binary file.
    Binary,
    /// One side has a file, the other a directory.
    DirectoryFile,
    /// One side added a file to a directory that the other renamed.
    ///
    /// See `merge.directoryRenames`.
    DirectoryRenamed,
    /// Both sides moved a submodule, and neither commit contains the other.
    Submodule,
    /// A patch does not apply.
    ///
    /// Ours is the current version, theirs the version with the hunks that apply.
    Rejected,
}

/// File, symlink or submodule that one side of a conflict has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Path at which the merge would put it.
    ///
    /// Renames are followed, so the side may have it at another path.
    pub path: RepoPath,
    /// Kind of the entry; never a directory.
    pub kind: TreeEntryKind,
    /// Id of the blob or, for a submodule, of the commit.
    pub id: ObjectId,
}

/// Changes of both sides that exclude each other.
///
/// Compatible parts of the changes, such as a rename on one side and an edit on the other, are
/// already in the versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Reason for the conflict.
    pub kind: ConflictKind,
    /// Path that identifies the conflict.
    ///
    /// No two conflicts of a merge have the same.
    pub path: RepoPath,
    /// All paths of the conflict, sorted; `path` is one of them.
    ///
    /// No two conflicts of a merge share a path.
    pub paths: Vec<RepoPath>,
    /// Versions of the base, sorted by path.
    ///
    /// Mostly one; several if one file got several names.
    pub base: Vec<Version>,
    /// Versions of ours, sorted by path.
    pub ours: Vec<Version>,
    /// Versions of theirs, sorted by path.
    pub theirs: Vec<Version>,
}

/// Decision that settles a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The versions of one side, and nothing of the others.
    Side(MergeSide),
    /// Exactly these versions, at any paths.
    ///
    /// An empty list leaves nothing of the conflict.
    Versions(Vec<Version>),
}

impl Conflict {
    /// Returns the versions that `side` has.
    pub fn versions(&self, side: MergeSide) -> &[Version] {
        match side {
            MergeSide::Base => &self.base,
            MergeSide::Ours => &self.ours,
            MergeSide::Theirs => &self.theirs,
        }
    }

    /// Returns true if the conflict is about files.
    ///
    /// Other conflicts are only about the new name of a directory.
    pub(super) fn has_versions(&self) -> bool {
        !(self.base.is_empty() && self.ours.is_empty() && self.theirs.is_empty())
    }

    /// Returns the edits that apply a resolution to the merged tree.
    ///
    /// The merged tree leaves conflicts out.
    pub fn edits(&self, resolution: &Resolution) -> Vec<TreeChange> {
        let versions = match resolution {
            Resolution::Side(side) => self.versions(*side),
            Resolution::Versions(versions) => versions,
        };
        // A version replaces a directory of the other side, with everything in it.
        let removals = versions.iter().map(|version| TreeChange {
            path: version.path.clone(),
            new: None,
        });
        let additions = versions.iter().map(|version| TreeChange {
            path: version.path.clone(),
            new: Some((version.kind, version.id)),
        });
        removals.chain(additions).collect()
    }
}

/// Removes edits below paths at which another edit puts a file.
///
/// The edits resolve several conflicts in one tree. Nothing can be added to a directory that a file
/// replaces.
pub fn without_entries_below_files(mut edits: Vec<TreeChange>) -> Vec<TreeChange> {
    let files: BTreeSet<RepoPath> = edits
        .iter()
        .filter(|edit| edit.new.is_some())
        .map(|edit| edit.path.clone())
        .collect();
    edits.retain(|edit| {
        !edit
            .path
            .directories_above()
            .any(|dir| files.contains(&dir))
    });
    edits
}
