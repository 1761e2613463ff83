//! Conflicts, and what may become of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use tine_git::{ObjectId, TreeChange, TreeEntryKind};
use tine_path::RepoPath;

/// One of the three trees of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeSide {
    Base,
    /// What is merged into.
    Ours,
    /// What is merged.
    Theirs,
}

/// Why both sides' changes cannot simply stand beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Both changed the same part of a text; with whole files: the same file.
    BothModified,
    /// Both added a file at one path, and not the same.
    BothAdded,
    ModifyDelete,
    /// One file got two names, or two files got one.
    RenameRename,
    RenameDelete,
    /// A file on one side, a symlink or submodule on the other.
    TypeChanged,
    /// Only the executable bit differs.
    ModeChanged,
    /// Both changed a file that is no text.
    Binary,
    /// A file on one side, a directory on the other.
    DirectoryFile,
    /// One side added a file to a directory that the other renamed (`merge.directoryRenames`).
    DirectoryRenamed,
    /// Both moved a submodule, and neither commit has the other.
    Submodule,
    /// A patch does not fit: ours is what is there, theirs that with what fits.
    Rejected,
}

/// What one side has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Where the merge would put it. Renames are followed: it need not be where the side has it.
    pub path: RepoPath,
    /// Never a directory.
    pub kind: TreeEntryKind,
    pub id: ObjectId,
}

/// Changes of both sides that exclude each other. What of them does not, such as a rename on one
/// side and an edit on the other, is in the versions already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub kind: ConflictKind,
    /// The path to speak of it: no two conflicts of a merge have the same.
    pub path: RepoPath,
    /// All paths it is about, sorted; `path` is one of them. No two conflicts share one.
    pub paths: Vec<RepoPath>,
    /// What each side has, sorted by path: mostly one, several where one file got several names.
    pub base: Vec<Version>,
    pub ours: Vec<Version>,
    pub theirs: Vec<Version>,
}

/// What becomes of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// What that side has, and nothing of the others.
    Side(MergeSide),
    /// Exactly these, at any paths; none: all of it goes.
    Versions(Vec<Version>),
}

impl Conflict {
    /// What `side` has.
    pub fn versions(&self, side: MergeSide) -> &[Version] {
        match side {
            MergeSide::Base => &self.base,
            MergeSide::Ours => &self.ours,
            MergeSide::Theirs => &self.theirs,
        }
    }

    /// Whether it is about files, and not only about where a directory went.
    pub(super) fn has_versions(&self) -> bool {
        !(self.base.is_empty() && self.ours.is_empty() && self.theirs.is_empty())
    }

    /// What resolving it does to the tree that leaves conflicts out.
    pub fn edits(&self, resolution: &Resolution) -> Vec<TreeChange> {
        let versions = match resolution {
            Resolution::Side(side) => self.versions(*side),
            Resolution::Versions(versions) => versions,
        };
        // A version where the other side has a directory takes the place of all that is in it.
        let goes = versions.iter().map(|version| TreeChange {
            path: version.path.clone(),
            new: None,
        });
        let comes = versions.iter().map(|version| TreeChange {
            path: version.path.clone(),
            new: Some((version.kind, version.id)),
        });
        goes.chain(comes).collect()
    }
}

/// Edits of several conflicts in one tree: where a file takes the place of a directory, nothing
/// more can come into that.
pub fn without_what_is_beneath_files(mut edits: Vec<TreeChange>) -> Vec<TreeChange> {
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
