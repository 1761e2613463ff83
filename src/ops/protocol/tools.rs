//! Answers of agents' file tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NodeLine;
use crate::transfer::Transfer;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_tools::{BufferConflict, TextPatch};

/// Store that a tool call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// The agent's text of an open buffer.
    Buffer,
    /// The fork's files.
    Fork,
}

/// Answer to an operation on files: an agent's `A`, or `S` about the saved files.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ToolAnswer<A, S> {
    /// Answer to an agent's tool.
    Agents(A),
    /// Neither a buffer nor a fork has the path: the caller does its own I/O.
    Passthrough {
        /// The word `passthrough`.
        route: PassthroughWord,
    },
    /// Answer to a call without an agent.
    Saved(S),
}

impl<A, S> ToolAnswer<A, S> {
    /// Returns the answer that nothing was done.
    pub fn passthrough() -> ToolAnswer<A, S> {
        let route = PassthroughWord::Passthrough;
        ToolAnswer::Passthrough { route }
    }

    /// Returns the answer to an agent; `None` if nothing was done.
    pub fn agents(self) -> Option<A> {
        match self {
            ToolAnswer::Agents(answer) => Some(answer),
            ToolAnswer::Passthrough { .. } | ToolAnswer::Saved(_) => None,
        }
    }
}

/// Route of a call that nothing was done for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassthroughWord {
    /// The only value.
    Passthrough,
}

/// Absent answer about saved files, of an operation that only agents have.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum NoSaved {}

/// File that an agent read. The content is in transit, or has arrived as `C`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolRead<C = Transfer> {
    /// Store that the file was read from.
    pub route: Route,
    /// Path from the root of fork or checkout.
    pub path: PathText,
    /// Size in bytes.
    pub size: u64,
    /// Content of the file.
    pub content: C,
}

/// File that an agent wrote.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolWritten {
    /// Store that the file was written to.
    pub route: Route,
    /// Path from the root of fork or checkout.
    pub path: PathText,
    /// Size in bytes.
    pub size: u64,
    /// True if there was no such file before.
    pub created: bool,
}

/// File that an agent edited.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolEdited {
    /// Store that the file was written to.
    pub route: Route,
    /// Path from the root of fork or checkout.
    pub path: PathText,
    /// Number of replaced places.
    pub replaced: u64,
    /// Size in bytes after the edits.
    pub size: u64,
}

/// File that an agent deleted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolDeleted {
    /// Always the fork.
    pub route: Route,
    /// Path from the root of the fork.
    pub path: PathText,
}

/// Path that an agent moved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolMoved {
    /// Always the fork.
    pub route: Route,
    /// Former path, from the root of the fork.
    pub from: PathText,
    /// New path, from the root of the fork.
    pub to: PathText,
}

/// Directory that an agent listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolListed {
    /// Always the fork.
    pub route: Route,
    /// Path of the directory, from the root of the fork.
    pub path: PathText,
    /// Entries with their attributes.
    pub entries: Vec<NodeLine>,
}

/// Lines that a search found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolFound {
    /// Always the fork.
    pub route: Route,
    /// Matching lines.
    pub lines: Vec<FoundLine>,
    /// True if the limit cut the answer.
    pub truncated: bool,
    /// Files that were too large to search.
    pub too_large: Vec<PathText>,
}

/// Workspace of an agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ToolContextShown {
    /// Fork that the agent works in; `None` in the main checkout.
    pub fork: Option<ForkName>,
    /// Directory to run shell commands in.
    ///
    /// It is the fork's mount or the main checkout; `None` if the repository is bare.
    pub working_dir: Option<PathText>,
    /// True if the fork is mounted.
    pub mounted: bool,
    /// Open buffers there, as paths from the root.
    pub buffers: Vec<PathText>,
    /// Environment variables for shell commands, in addition to those they inherit.
    pub environment: Vec<(String, PathText)>,
}

/// One matching line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundLine {
    /// File with the line, from the fork's root.
    pub path: PathText,
    /// Line number, from 1.
    pub line: u64,
    /// Text without the line end, lossily decoded.
    ///
    /// Only the beginning of a long line.
    pub text: String,
}

/// Outcome of merging a buffer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct BufferMerged {
    /// File that is open as a buffer.
    pub path: PathText,
    /// Conflicts; empty if the editor's text now has the agent's changes.
    pub conflicts: Vec<BufferConflict>,
    /// Changes that were made to the editor's text.
    #[schemars(skip)]
    pub patches: Vec<TextPatch>,
}
