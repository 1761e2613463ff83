//! Operations: what tine's commands do to a fork by path, and taking it back.
//!
//! An operation is one record of the layer. The record also says, in a directory of the *attic*
//! which is called like the operation's number, what was done ([`FileOperation`]) and what that
//! took away: a node that was removed has its name there now, whatever is beneath it; a content
//! that was replaced belongs to a node there. So taking an operation back is as exact and as cheap
//! as doing it, and is an operation itself.
//!
//! ```text
//! attic (number 2, nothing leads to it)
//! ├── 17  {"id":17,"kind":"remove","changes":[{"change":"removed","path":"src"}],…}
//! │   └── 0   what stood at `src`: slot 0 belongs to change 0
//! └── 18  {"id":18,"kind":"undo","undoes":{"operation":17,"changes":[0]},…}
//! ```
//!
//! The attic is part of the view like all else of the layers: what is done in a fork that went back
//! to a snapshot is taken back there, and what came after the snapshot is out of reach until the
//! fork returns. The journal ([`journal`]) is for reading: it has everything that was ever done,
//! and follows the attic.

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

pub use undo::{Direction, Note, NoteKind, TakenBack};

/// Who does it, and by which command.
#[derive(Debug, Clone, Copy)]
pub struct Actor<'a> {
    pub caller: Caller,
    /// As it was typed, for people.
    pub command: &'a str,
}

/// What was done in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOperation {
    /// Counts up, for the life of a fork.
    pub id: u64,
    /// The time of every node that it changed.
    pub time: Timestamp,
    pub command: String,
    pub kind: OperationKind,
    /// In the order in which they were done.
    pub changes: Vec<FileChange>,
    /// What it takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<Undoes>,
    /// Bytes of contents that its part of the attic keeps, when it was done.
    #[serde(default)]
    pub kept_bytes: u64,
}

/// What kind of command it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    Write,
    Move,
    Remove,
    Revert,
    Undo,
    Redo,
    /// The whole fork went to another state, or its HEAD to another branch.
    Switch,
    /// HEAD went to a commit that has more, and the view with it.
    Merge,
    /// The fork was brought up to another commit.
    Update,
    CherryPick,
    /// A patch, or the commits of patches.
    Apply,
}

/// Changes of an earlier operation that this one takes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undoes {
    pub operation: u64,
    /// Their places in its list.
    pub changes: Vec<u32>,
}

/// One change, to be taken back by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum FileChange {
    /// A node was made where nothing was.
    Made {
        #[serde(with = "repo_path")]
        path: RepoPath,
        ino: Ino,
    },
    /// What stood here is in the attic.
    Removed {
        #[serde(with = "repo_path")]
        path: RepoPath,
    },
    /// A node came back from the attic, to where nothing was.
    PutBack {
        #[serde(with = "repo_path")]
        path: RepoPath,
        ino: Ino,
    },
    /// Nothing was at `to`.
    Moved {
        #[serde(with = "repo_path")]
        from: RepoPath,
        #[serde(with = "repo_path")]
        to: RepoPath,
        ino: Ino,
    },
    /// A file's content and attributes before are those of a node in the attic.
    Written {
        #[serde(with = "repo_path")]
        path: RepoPath,
        ino: Ino,
    },
    /// A file's permission bits were others before.
    Mode {
        #[serde(with = "repo_path")]
        path: RepoPath,
        ino: Ino,
        perm: u16,
    },
    /// All of the fork was another; that state is kept as the snapshot `before`.
    Switched { before: String },
    /// HEAD went with what the other changes are about.
    Advanced(HeadMove),
}

/// HEAD's way from one commit to another. Ids are in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadMove {
    /// `None`: there was no commit.
    pub from: Option<String>,
    pub to: Option<String>,
    /// Where what is uncommitted was merged along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Box<UpdateMove>>,
    /// Where HEAD is put on another branch, and no branch moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Box<SwitchMove>>,
    /// Where something is staged before or after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Box<IndexMove>>,
}

/// The branches (short names) that HEAD is on before and after; `None` where it is detached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchMove {
    pub from: Option<String>,
    pub to: Option<String>,
    /// Where `to` is made for it: what its reflog says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<String>,
}

impl SwitchMove {
    /// The way back; a branch that was made stays.
    pub fn reversed(&self) -> SwitchMove {
        SwitchMove {
            from: self.to.clone(),
            to: self.from.clone(),
            begins: None,
        }
    }
}

impl HeadMove {
    /// The way back.
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

/// What an update moves beside HEAD. Ids are in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateMove {
    /// The trees of the view before and after, without what is in no changeset.
    pub view_from: String,
    pub view_to: String,
    /// Where the fork's own commits begin, before and after.
    pub point_from: Option<String>,
    pub point_to: Option<String>,
}

/// The index before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexMove {
    pub from: IndexContent,
    pub to: IndexContent,
}

/// What is in an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexContent {
    /// What a commit would be made of, in hex.
    pub tree: String,
    /// Paths that are intended to be added, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intents: Vec<PathText>,
}

impl FileChange {
    /// The paths that it is about.
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

/// How an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationState {
    Done,
    Undone,
    PartlyUndone,
    /// The attic has it no longer, or belongs to another state of the fork.
    OutOfReach,
}

/// The operations that can be taken back, by number.
#[derive(Debug, Clone, Default)]
pub struct Reachable {
    operations: BTreeMap<u64, FileOperation>,
    /// Changes that were taken back.
    undone: BTreeSet<(u64, u32)>,
}

impl Reachable {
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

    pub fn operations(&self) -> impl Iterator<Item = &FileOperation> {
        self.operations.values()
    }

    pub fn get(&self, id: u64) -> Option<&FileOperation> {
        self.operations.get(&id)
    }

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

    /// The command that began it: what is taken back, or done again, by way of others.
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

    /// The changes that are not taken back, if one of them is within `path`. Of several things that
    /// were removed, or came back, those that are; other changes of an operation belong together.
    fn left_of(&self, operation: &FileOperation, path: Option<&RepoPath>) -> Vec<u32> {
        let is_within = |change: &FileChange| path.is_none_or(|path| change.is_within(path));
        // Where what was taken back was gone already, only what went with it says that it was.
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

    /// The changes that the operation took back.
    fn taken_back_by<'o>(
        &'o self,
        operation: &'o FileOperation,
    ) -> impl Iterator<Item = &'o FileChange> {
        let undoes = operation.undoes.as_ref();
        let of = undoes.and_then(|undoes| self.operations.get(&undoes.operation));
        let indexes = undoes.into_iter().flat_map(|undoes| &undoes.changes);
        indexes.filter_map(move |index| of?.changes.get(*index as usize))
    }

    /// The newest operation that there is to take back, and its changes within `path` that are
    /// left.
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
                // Who did something else since goes on from there.
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

    /// The newest operation on a directory above `path` that could be taken back.
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
