//! What is asked and answered about the files of a fork, and operations on them.

use serde::{Deserialize, Serialize};

use crate::transfer::Transfer;
use tine_attr::Timestamp;
use tine_path::text::PathText;
use tine_workspace::{ForkName, NoteKind, OperationKind, OperationState};

/// One operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperationLine {
    pub id: u64,
    pub time: TimeLine,
    pub command: String,
    pub kind: OperationKind,
    pub paths: Vec<PathText>,
    /// The operation that it takes back or does again.
    pub undoes: Option<u64>,
    pub state: OperationState,
}

/// The answer to taking back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakenBackLine {
    pub fork: ForkName,
    /// The operation that did it.
    pub operation: OperationLine,
    /// The operation whose changes these were.
    pub of: OperationLine,
    pub notes: Vec<NoteLine>,
}

/// What was not as the operation had left it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NoteLine {
    pub path: PathText,
    pub note: NoteKind,
}

/// One path of a fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeLine {
    pub path: PathText,
    pub kind: NodeKind,
    /// Permission bits with the kind's, octal (`100644`).
    pub mode: String,
    /// Bytes.
    pub size: u64,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub ino: u64,
    pub modified: TimeLine,
    pub changed: TimeLine,
    /// A symlink's.
    pub target: Option<PathText>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// A time since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLine {
    pub secs: i64,
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
    pub path: PathText,
    /// Bytes.
    pub size: u64,
}

/// The answer to a write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WrittenLine {
    pub fork: ForkName,
    /// Without symlinks on the way.
    pub path: PathText,
    /// Bytes.
    pub size: u64,
    /// Whether there was no such file before.
    pub created: bool,
}

/// The answer to a move.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MovedLine {
    pub fork: ForkName,
    pub from: PathText,
    pub to: PathText,
    /// Whether a file was there.
    pub replaced: bool,
}

/// What is at paths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Nodes {
    pub fork: ForkName,
    pub nodes: Vec<NodeLine>,
}

/// Files, and their contents one after the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contents {
    pub fork: ForkName,
    pub files: Vec<FileLine>,
    pub contents: Transfer,
}

/// What was removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Removed {
    pub fork: ForkName,
    pub removed: Vec<PathText>,
}

/// Operations, the newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Operations {
    pub fork: ForkName,
    pub operations: Vec<OperationLine>,
}
