//! Operations: changes that tine's commands make to a fork by path, with undo.
//!
//! An operation is one record of the layer. The record also adds a directory to the *trash*, named
//! by the operation's number. It holds a description of the changes ([`FileOperation`]) and what
//! they removed. A removed node moves there, with everything below it; a replaced content belongs
//! to a node there. So undo is as exact and as cheap as the operation, and is an operation itself.
//!
//! ```text
//! trash (number 2, no name leads to it)
//! ├── 17  {"id":17,"kind":"remove","changes":[{"change":"removed","path":"src"}],…}
//! │   └── 0   the node that was at `src`: slot 0 belongs to change 0
//! └── 18  {"id":18,"kind":"undo","undoes":{"operation":17,"changes":[0]},…}
//! ```
//!
//! The trash is part of the layers. So after a fork goes back to a snapshot, undo works on the
//! operations before the snapshot, and later ones are out of reach until the fork returns. The
//! journal ([`journal`]) is for reading only: it lists every operation ever done, and follows the
//! trash.

pub(super) mod builder;
pub(super) mod journal;
pub(super) mod trash;
mod undo;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ops::Caller;
use tine_attr::{Ino, Timestamp};
use tine_path::RepoPath;
use tine_path::text::{PathText, repo_path};

pub use undo::{Direction, Note, NoteKind, UndoOutcome};

/// Author of an operation: the calling process and its command.
#[derive(Debug, Clone, Copy)]
pub struct Actor<'a> {
    /// Identity that owns new files.
    pub caller: Caller,
    /// Command line as it was typed, for display.
    pub command: &'a str,
}

/// One operation: changes that a command made in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOperation {
    /// Number of the operation. Counts up for the life of a fork.
    pub id: u64,
    /// Time of the operation, which every changed node also gets.
    pub time: Timestamp,
    /// Command line as it was typed.
    pub command: String,
    /// Kind of the command.
    pub kind: OperationKind,
    /// Changes, in the order in which they were made.
    pub changes: Vec<FileChange>,
    /// Changes that this operation undoes or redoes; `None` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<UndoneChanges>,
    /// Size in bytes of the contents that the trash keeps for it.
    ///
    /// It is set when the operation is done, and does not change.
    #[serde(default)]
    pub kept_bytes: u64,
}

/// Kind of the command that made an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// A file was written.
    Write,
    /// A node was moved.
    Move,
    /// Nodes were removed.
    Remove,
    /// Paths were taken back to a point.
    Revert,
    /// An operation was undone.
    Undo,
    /// An undone operation was redone.
    Redo,
    /// The fork went to another state, or its HEAD to another branch.
    Switch,
    /// HEAD and the view went to a merged commit.
    Merge,
    /// The fork was brought up to another commit.
    Update,
    /// Commits were applied again on HEAD.
    CherryPick,
    /// A patch was applied, or the commits of patches.
    Apply,
}

/// Changes of an earlier operation that this one undoes or redoes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoneChanges {
    /// Number of the earlier operation.
    pub operation: u64,
    /// Indexes into the earlier operation's changes.
    pub changes: Vec<u32>,
}

/// One change of an operation. It can be undone alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum FileChange {
    /// A node was made at a free path.
    Made {
        /// Path of the node.
        #[serde(with = "repo_path")]
        path: RepoPath,
        /// Inode number of the node.
        ino: Ino,
    },
    /// The node at the path moved to the trash.
    Removed {
        /// Path of the node before.
        #[serde(with = "repo_path")]
        path: RepoPath,
    },
    /// A node came back from the trash, to a free path.
    PutBack {
        /// Path of the node.
        #[serde(with = "repo_path")]
        path: RepoPath,
        /// Inode number of the node.
        ino: Ino,
    },
    /// A node moved to a free path.
    Moved {
        /// Path before.
        #[serde(with = "repo_path")]
        from: RepoPath,
        /// Path after.
        #[serde(with = "repo_path")]
        to: RepoPath,
        /// Inode number of the node.
        ino: Ino,
    },
    /// A file was written. A node in the trash has its former content and attributes.
    Written {
        /// Path of the file.
        #[serde(with = "repo_path")]
        path: RepoPath,
        /// Inode number of the file.
        ino: Ino,
    },
    /// A file's permission bits changed.
    Mode {
        /// Path of the file.
        #[serde(with = "repo_path")]
        path: RepoPath,
        /// Inode number of the file.
        ino: Ino,
        /// Permission bits before: the low 12 bits of the mode.
        perm: u16,
    },
    /// The whole fork went to another state.
    Switched {
        /// Name of the snapshot that keeps the state before.
        before: String,
        /// HEAD after it, if HEAD, refs and index went as well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        git: Option<GitSwitch>,
    },
    /// HEAD moved together with the other changes.
    Advanced(HeadMove),
}

/// HEAD after HEAD, refs and index went to another state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitSwitch {
    /// Commit of HEAD, in hex; `None` on a branch without one.
    pub head: Option<String>,
}

/// Move of HEAD from one commit to another. Object IDs are in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadMove {
    /// Commit before; `None` if there was none.
    pub from: Option<String>,
    /// Commit after; `None` if there is none.
    pub to: Option<String>,
    /// Moves of an update; `None` unless uncommitted changes were merged along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Box<UpdateMove>>,
    /// Branches of a switch; `None` if HEAD's branch moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Box<SwitchMove>>,
    /// Contents of the index; `None` unless something is staged before or after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Box<IndexMove>>,
}

/// Branches that HEAD is on before and after a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchMove {
    /// Short name of the branch before; `None` if HEAD was detached.
    pub from: Option<String>,
    /// Short name of the branch after; `None` if HEAD is detached.
    pub to: Option<String>,
    /// Reflog message of `to`, if the switch makes that branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<String>,
}

impl SwitchMove {
    /// Returns the opposite move. A branch that was made stays.
    pub fn reversed(&self) -> SwitchMove {
        SwitchMove {
            from: self.to.clone(),
            to: self.from.clone(),
            begins: None,
        }
    }
}

impl HeadMove {
    /// Returns the opposite move.
    pub fn reversed(self) -> HeadMove {
        HeadMove {
            from: self.to,
            to: self.from,
            update: self.update.map(|update| {
                Box::new(UpdateMove {
                    view_from: update.view_to,
                    view_to: update.view_from,
                    point_from: update.point_to,
                    point_to: update.point_from,
                })
            }),
            switch: self.switch.map(|switch| Box::new(switch.reversed())),
            index: self.index.map(|index| {
                Box::new(IndexMove {
                    from: index.to,
                    to: index.from,
                })
            }),
        }
    }
}

/// Moves that an update makes besides HEAD's. Object IDs are in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateMove {
    /// Tree of the view before, without what is in no changeset.
    pub view_from: String,
    /// Tree of the view after, without what is in no changeset.
    pub view_to: String,
    /// Fork point before; `None` if there was none.
    pub point_from: Option<String>,
    /// Fork point after; `None` if there is none.
    pub point_to: Option<String>,
}

/// Contents of the index before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexMove {
    /// Contents before.
    pub from: IndexContent,
    /// Contents after.
    pub to: IndexContent,
}

/// Contents of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexContent {
    /// Tree that a commit of the index would have, in hex.
    pub tree: String,
    /// Paths marked by `git add --intent-to-add`, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intents: Vec<PathText>,
}

impl FileChange {
    /// Returns the paths that the change concerns: two for a move.
    pub fn paths(&self) -> impl Iterator<Item = &RepoPath> {
        let (first, second) = match self {
            FileChange::Made { path, .. }
            | FileChange::Removed { path }
            | FileChange::PutBack { path, .. }
            | FileChange::Written { path, .. }
            | FileChange::Mode { path, .. } => (Some(path), None),
            FileChange::Moved { from, to, .. } => (Some(from), Some(to)),
            FileChange::Switched { .. } | FileChange::Advanced(_) => (None, None),
        };
        first.into_iter().chain(second)
    }

    fn is_within(&self, path: &RepoPath) -> bool {
        self.paths().any(|changed| changed.starts_with(path))
    }
}

impl OperationKind {
    fn takes_back(self) -> bool {
        self == OperationKind::Undo
    }
}

/// Undo state of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationState {
    /// Done, and nothing of it undone.
    Done,
    /// Undone completely.
    Undone,
    /// Undone in part.
    PartlyUndone,
    /// Not in the trash, or of another state of the fork.
    OutOfReach,
}

/// Operations that can be undone, by number.
#[derive(Debug, Clone, Default)]
pub struct Reachable {
    operations: BTreeMap<u64, FileOperation>,
    /// Undone changes, as operation number and index.
    undone: BTreeSet<(u64, u32)>,
}

impl Reachable {
    /// Collects operations and notes which of their changes are undone.
    pub fn new(operations: impl IntoIterator<Item = FileOperation>) -> Reachable {
        let operations: BTreeMap<u64, FileOperation> = operations
            .into_iter()
            .map(|operation| (operation.id, operation))
            .collect();
        let undone = operations
            .values()
            .filter_map(|operation| operation.undoes.as_ref())
            .flat_map(|undoes| {
                undoes
                    .changes
                    .iter()
                    .map(|change| (undoes.operation, *change))
            })
            .collect();
        Reachable { operations, undone }
    }

    /// Returns the operations by ascending number.
    pub fn operations(&self) -> impl Iterator<Item = &FileOperation> {
        self.operations.values()
    }

    /// Returns the operation with this number.
    pub fn get(&self, id: u64) -> Option<&FileOperation> {
        self.operations.get(&id)
    }

    /// Returns the state of the operation with this number.
    pub fn state_of(&self, id: u64) -> OperationState {
        let Some(operation) = self.operations.get(&id) else {
            return OperationState::OutOfReach;
        };
        let count = self.undone.range((id, 0)..=(id, u32::MAX)).count();
        match count {
            0 => OperationState::Done,
            count if count >= operation.changes.len() => OperationState::Undone,
            _ => OperationState::PartlyUndone,
        }
    }

    /// Returns the first operation of a chain of undo and redo.
    pub fn beginning_of<'o>(&'o self, operation: &'o FileOperation) -> &'o FileOperation {
        let mut first = operation;
        while let Some(undoes) = &first.undoes
            && let Some(before) = self.operations.get(&undoes.operation)
            && before.id < first.id
        {
            first = before;
        }
        first
    }

    /// Returns the indexes of the operation's changes that are not undone.
    ///
    /// Empty if the operation does not concern `path`. If the operation only removed, or only put
    /// back, just the changes within `path`. The changes of any other operation belong together.
    fn left_of(&self, operation: &FileOperation, path: Option<&RepoPath>) -> Vec<u32> {
        let is_within = |change: &FileChange| path.is_none_or(|path| change.is_within(path));
        // If the undone change had no effect any more, only the changes it undid name the path.
        let is_about = self.taken_back_by(operation).any(is_within);
        let mut left: Vec<(u32, &FileChange)> = (0_u32..)
            .zip(&operation.changes)
            .filter(|(index, _)| !self.undone.contains(&(operation.id, *index)))
            .collect();
        let changes = &operation.changes;
        let are_apart = changes
            .iter()
            .all(|change| matches!(change, FileChange::Removed { .. }))
            || changes
                .iter()
                .all(|change| matches!(change, FileChange::PutBack { .. }));
        let has_within = left.iter().any(|(_, change)| is_within(change));
        if has_within && are_apart || !has_within && !is_about {
            left.retain(|(_, change)| is_within(change));
        }
        left.into_iter().map(|(index, _)| index).collect()
    }

    /// Returns the changes that the operation undid.
    fn taken_back_by<'o>(
        &'o self,
        operation: &'o FileOperation,
    ) -> impl Iterator<Item = &'o FileChange> {
        let undoes = operation.undoes.as_ref();
        let of = undoes.and_then(|undoes| self.operations.get(&undoes.operation));
        let indexes = undoes.into_iter().flat_map(|undoes| &undoes.changes);
        indexes.filter_map(move |index| of?.changes.get(*index as usize))
    }

    /// Returns the newest operation to undo or redo.
    ///
    /// Also returns its changes that are left. `path` limits the search to changes within it.
    pub fn next(
        &self,
        direction: Direction,
        path: Option<&RepoPath>,
    ) -> Option<(&FileOperation, Vec<u32>)> {
        for operation in self.operations.values().rev() {
            let left = self.left_of(operation, path);
            match (direction, operation.kind) {
                (Direction::Undo, kind) if !kind.takes_back() && !left.is_empty() => {
                    return Some((operation, left));
                }
                (Direction::Redo, OperationKind::Undo) if !left.is_empty() => {
                    return Some((operation, left));
                }
                // A new operation ends redo, unless it concerns other paths only.
                (
                    Direction::Redo,
                    OperationKind::Write
                    | OperationKind::Move
                    | OperationKind::Remove
                    | OperationKind::Revert
                    | OperationKind::Switch
                    | OperationKind::Merge
                    | OperationKind::Update
                    | OperationKind::CherryPick
                    | OperationKind::Apply,
                ) if path.is_none_or(|path| {
                    operation
                        .changes
                        .iter()
                        .any(|change| change.is_within(path))
                }) =>
                {
                    return None;
                }
                _ => {}
            }
        }
        None
    }

    /// Returns the closest directory above `path` with an operation left.
    ///
    /// That is one to undo or redo, as `direction` says.
    fn above(&self, direction: Direction, path: &RepoPath) -> Option<RepoPath> {
        let mut above = path.clone();
        while let Some((parent, _)) = above.split_last().filter(|(parent, _)| !parent.is_root()) {
            if let Some((operation, left)) = self.next(direction, Some(&parent))
                && left.iter().any(|index| {
                    let change = operation.changes.get(*index as usize);
                    change.is_some_and(|change| change.paths().any(|changed| *changed == parent))
                })
            {
                return Some(parent);
            }
            above = parent;
        }
        None
    }
}
