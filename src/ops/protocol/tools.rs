//! What agents' file tools ask and are answered, and what editors say of their buffers.

use serde::{Deserialize, Serialize};

use super::NodeLine;
use crate::transfer::Transfer;
use tine_path::text::PathText;
use tine_tools::{BufferConflict, TextEdit, TextPatch};
use tine_workspace::ForkName;

/// What is to be done. Paths are from the fork's root, or absolute: in its mount or in the main
/// checkout.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "tool", rename_all = "kebab-case")]
pub enum ToolOperation {
    /// Answered with [`ToolAnswer::Context`].
    Context,
    /// Answered with [`ToolAnswer::File`].
    ReadFile { path: PathText },
    /// Answered with [`ToolAnswer::Written`].
    WriteFile { path: PathText, content: Transfer },
    /// All edits, one after another, or none. Answered with [`ToolAnswer::Edited`].
    EditFile {
        path: PathText,
        edits: Vec<TextEdit>,
    },
    /// Answered with [`ToolAnswer::Deleted`].
    DeleteFile { path: PathText },
    /// Answered with [`ToolAnswer::Moved`].
    MoveFile { from: PathText, to: PathText },
    /// Answered with [`ToolAnswer::Entries`].
    ListDirectory { path: PathText, deep: bool },
    /// Answered with [`ToolAnswer::Found`].
    Search(SearchRequest),
    /// Merges what the agent wrote to an open buffer into that. Answered with
    /// [`ToolAnswer::Buffer`].
    MergeBuffer { path: PathText },
}

/// `search`: lines of text files that match.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SearchRequest {
    /// A regular expression, as ripgrep takes it.
    pub pattern: String,
    /// Where to look; default: everywhere.
    pub path: Option<PathText>,
    /// Only files that match one of these, read as in a `.gitignore`, and none of those with a `!`
    /// before it.
    #[serde(default)]
    pub globs: Vec<String>,
    #[serde(default)]
    pub ignore_case: bool,
    /// Ignored files, too.
    #[serde(default)]
    pub ignored: bool,
    /// At most so many lines.
    pub limit: usize,
}

/// Where an operation went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// To what the agent has of an open buffer.
    Buffer,
    Fork,
}

/// The answer to a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "tool", rename_all = "kebab-case")]
pub enum ToolAnswer {
    /// Neither a buffer nor a fork: the caller does its own I/O.
    Passthrough,
    Context(ToolContextShown),
    File {
        route: Route,
        path: PathText,
        /// Bytes.
        size: u64,
        content: Transfer,
    },
    Written {
        route: Route,
        path: PathText,
        /// Bytes.
        size: u64,
        created: bool,
    },
    Edited {
        route: Route,
        path: PathText,
        /// Places that were replaced.
        replaced: u64,
        /// Bytes, then.
        size: u64,
    },
    Deleted {
        path: PathText,
    },
    Moved {
        from: PathText,
        to: PathText,
    },
    Entries {
        path: PathText,
        entries: Vec<NodeLine>,
    },
    Found {
        lines: Vec<FoundLine>,
        /// Whether there are more than the limit allows.
        truncated: bool,
        /// Files that were not searched.
        too_large: Vec<PathText>,
    },
    Buffer(BufferMerged),
}

/// Where an agent stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolContextShown {
    pub fork: Option<ForkName>,
    /// Where shell commands run: the fork's mount, or the main checkout; none where the repository
    /// is bare.
    pub working_dir: Option<PathText>,
    pub mounted: bool,
    /// Buffers that are open there.
    pub buffers: Vec<PathText>,
    /// What shell commands have in their environment beside what they inherit.
    pub environment: Vec<(String, PathText)>,
}

/// One line that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLine {
    pub path: PathText,
    /// From 1.
    pub line: u64,
    /// Without its end, lossily decoded; of a long one the beginning.
    pub text: String,
}

/// What came of merging a buffer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BufferMerged {
    pub path: PathText,
    /// Empty where the editor's text now has what the agent wrote.
    pub conflicts: Vec<BufferConflict>,
    /// What was changed in the editor's text.
    pub patches: Vec<TextPatch>,
}
