//! Answers about the files of a fork, and operations on them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::transfer::Transfer;
use tine_attr::Timestamp;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_workspace::{NoteKind, OperationKind, OperationState};

/// One operation in a fork's journal.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct OperationLine {
    /// Number of the operation in its fork.
    pub id: u64,
    /// Time of the operation.
    pub time: TimeLine,
    /// Command line that made it.
    pub command: String,
    /// Kind of the change.
    #[schemars(with = "String")]
    pub kind: OperationKind,
    /// Paths that it changed, from the fork's root.
    pub paths: Vec<PathText>,
    /// Number of the operation that it undoes or redoes.
    pub undoes: Option<u64>,
    /// State: done, undone, partly undone, or out of reach of an undo.
    #[schemars(with = "String")]
    pub state: OperationState,
}

/// Answer to an undo or redo.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TakenBackLine {
    /// Fork whose files changed.
    #[schemars(with = "String")]
    pub fork: ForkName,
    /// New operation that undid or redid the other.
    #[schemars(skip)]
    pub operation: OperationLine,
    /// Operation whose changes were undone or redone.
    #[schemars(skip)]
    pub of: OperationLine,
    /// Paths that were not as the operation had left them.
    pub notes: Vec<NoteLine>,
}

/// Path that was not as the operation had left it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NoteLine {
    /// The path, from the fork's root.
    pub path: PathText,
    /// Difference that was found.
    #[schemars(with = "String")]
    pub note: NoteKind,
}

/// One path of a fork with its attributes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NodeLine {
    /// The path, from the fork's root.
    pub path: PathText,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Permission and kind bits, octal (`100644`).
    #[schemars(skip)]
    pub mode: String,
    /// Size in bytes.
    pub size: u64,
    /// Number of hard links.
    #[schemars(skip)]
    pub links: u32,
    /// User id of the owner.
    #[schemars(skip)]
    pub uid: u32,
    /// Group id of the owner.
    #[schemars(skip)]
    pub gid: u32,
    /// Inode number in the mount.
    #[schemars(skip)]
    pub ino: u64,
    /// Time of the last change of the content.
    #[schemars(skip)]
    pub modified: TimeLine,
    /// Time of the last change of content or attributes.
    #[schemars(skip)]
    pub changed: TimeLine,
    /// Target of a symlink.
    pub target: Option<PathText>,
}

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// FIFO, also called a named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// Time since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeLine {
    /// Full seconds.
    pub secs: i64,
    /// Nanoseconds of the last second.
    pub nanos: u32,
}

impl From<Timestamp> for TimeLine {
    fn from(time: Timestamp) -> TimeLine {
        let Timestamp { secs, nanos } = time;
        TimeLine { secs, nanos }
    }
}

/// One file of [`Contents`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileLine {
    /// Path from the fork's root.
    pub path: PathText,
    /// Size in bytes.
    pub size: u64,
}

/// Answer to a write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WrittenLine {
    /// Fork that was written to.
    pub fork: ForkName,
    /// Path from the fork's root, with symlinks resolved.
    pub path: PathText,
    /// Size of the file in bytes.
    pub size: u64,
    /// True if there was no such file before.
    pub created: bool,
}

/// Answer to a move.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MovedLine {
    /// Fork whose file was moved.
    pub fork: ForkName,
    /// Former path, from the fork's root.
    pub from: PathText,
    /// New path, from the fork's root.
    pub to: PathText,
    /// True if a file at the new path was replaced.
    pub replaced: bool,
}

/// Answer to a request for the attributes of paths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Nodes {
    /// Fork that the paths are in.
    pub fork: ForkName,
    /// The paths with their attributes.
    pub nodes: Vec<NodeLine>,
}

/// Files with their contents, one after another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contents {
    /// Fork that the files are in.
    pub fork: ForkName,
    /// Paths and sizes, in the order of the contents.
    pub files: Vec<FileLine>,
    /// Contents of all files, concatenated.
    pub contents: Transfer,
}

/// Answer to a removal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Removed {
    /// Fork whose files were removed.
    pub fork: ForkName,
    /// Removed paths, from the fork's root.
    pub removed: Vec<PathText>,
}

/// Operations of a fork, the newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Operations {
    /// Fork that the operations changed.
    pub fork: ForkName,
    /// The operations.
    pub operations: Vec<OperationLine>,
}
