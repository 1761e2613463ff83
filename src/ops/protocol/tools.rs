//! Requests and answers of agents' file tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NodeLine;
use crate::transfer::Transfer;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_tools::{BufferConflict, TextEdit, TextPatch};

/// Tool call of an agent.
///
/// A path is relative to the fork's root, or absolute in its mount or in the main checkout.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "tool", rename_all = "kebab-case")]
pub enum ToolOperation {
    /// Asks for the fork, directory and environment; answered with [`ToolAnswer::Context`].
    Context,
    /// Reads a file; answered with [`ToolAnswer::File`].
    ReadFile {
        /// File to read.
        path: PathText,
    },
    /// Writes a whole file; answered with [`ToolAnswer::Written`].
    WriteFile {
        /// File to write.
        path: PathText,
        /// New content of the file.
        content: Transfer,
    },
    /// Edits a file; answered with [`ToolAnswer::Edited`].
    ///
    /// Applies all edits, one after another, or none.
    EditFile {
        /// File to edit.
        path: PathText,
        /// Edits, in order.
        edits: Vec<TextEdit>,
    },
    /// Deletes a file; answered with [`ToolAnswer::Deleted`].
    DeleteFile {
        /// File to delete.
        path: PathText,
    },
    /// Moves a file; answered with [`ToolAnswer::Moved`].
    MoveFile {
        /// Present path.
        from: PathText,
        /// New path.
        to: PathText,
    },
    /// Lists a directory; answered with [`ToolAnswer::Entries`].
    ListDirectory {
        /// Directory to list.
        path: PathText,
        /// True to list subdirectories, too.
        deep: bool,
    },
    /// Searches text files; answered with [`ToolAnswer::Found`].
    Search(SearchRequest),
    /// Merges the agent's text of an open buffer; answered with [`ToolAnswer::Buffer`].
    MergeBuffer {
        /// File that is open as a buffer.
        path: PathText,
    },
}

/// Arguments of a search for matching lines in text files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SearchRequest {
    /// Regular expression in ripgrep's syntax.
    pub pattern: String,
    /// File or directory to search; default: the root.
    pub path: Option<PathText>,
    /// Patterns of files to search, in the syntax of `.gitignore`.
    ///
    /// A pattern with `!` excludes files.
    #[serde(default)]
    pub globs: Vec<String>,
    /// True to ignore case.
    #[serde(default)]
    pub ignore_case: bool,
    /// True to search ignored files, too.
    #[serde(default)]
    pub ignored: bool,
    /// Maximum number of lines in the answer.
    pub limit: usize,
}

/// Store that a tool call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// The agent's text of an open buffer.
    Buffer,
    /// The fork's files.
    Fork,
}

/// Answer to a [`ToolOperation`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "tool", rename_all = "kebab-case")]
pub enum ToolAnswer {
    /// Neither a buffer nor a fork has the path: the caller does its own I/O.
    Passthrough,
    /// Answer to [`ToolOperation::Context`].
    Context(ToolContextShown),
    /// Answer to [`ToolOperation::ReadFile`].
    File {
        /// Store that the file was read from.
        route: Route,
        /// Path from the root of fork or checkout.
        path: PathText,
        /// Size in bytes.
        size: u64,
        /// Content of the file.
        content: Transfer,
    },
    /// Answer to [`ToolOperation::WriteFile`].
    Written {
        /// Store that the file was written to.
        route: Route,
        /// Path from the root of fork or checkout.
        path: PathText,
        /// Size in bytes.
        size: u64,
        /// True if there was no such file before.
        created: bool,
    },
    /// Answer to [`ToolOperation::EditFile`].
    Edited {
        /// Store that the file was written to.
        route: Route,
        /// Path from the root of fork or checkout.
        path: PathText,
        /// Number of replaced places.
        replaced: u64,
        /// Size in bytes after the edits.
        size: u64,
    },
    /// Answer to [`ToolOperation::DeleteFile`].
    Deleted {
        /// Path from the root of the fork.
        path: PathText,
    },
    /// Answer to [`ToolOperation::MoveFile`].
    Moved {
        /// Former path, from the root of the fork.
        from: PathText,
        /// New path, from the root of the fork.
        to: PathText,
    },
    /// Answer to [`ToolOperation::ListDirectory`].
    Entries {
        /// Path of the directory, from the root of the fork.
        path: PathText,
        /// Entries with their attributes.
        entries: Vec<NodeLine>,
    },
    /// Answer to [`ToolOperation::Search`].
    Found {
        /// Matching lines.
        lines: Vec<FoundLine>,
        /// True if the limit cut the answer.
        truncated: bool,
        /// Files that were too large to search.
        too_large: Vec<PathText>,
    },
    /// Answer to [`ToolOperation::MergeBuffer`].
    Buffer(BufferMerged),
}

/// Workspace of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
