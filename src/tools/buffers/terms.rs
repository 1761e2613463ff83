//! Types of buffers: texts, patches, conflicts, events and errors. Values, without I/O.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MAX_TEXT_BYTES;
use tine_failure::ToFailure;
use tine_path::RepoPath;
use tine_path::text::host_path;
use tine_store::{ForkName, StoreError};

/// File that a buffer shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BufferKey {
    /// Fork whose mount the file is in. None is the main checkout.
    pub fork: Option<ForkName>,
    /// Path from the root, without symlinks on the way.
    pub path: RepoPath,
}

/// Name of an agent's session.
///
/// Calls without a name belong to one unnamed agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(pub String);

/// Replacement of lines in a text, as an editor applies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextPatch {
    /// First line to replace, from 0.
    pub first_line: u64,
    /// Number of lines to replace.
    pub lines: u64,
    /// Replacement: whole lines, with their line ends.
    pub text: String,
}

/// Place that the agent and the person changed in different ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BufferConflict {
    /// Line in the person's text, from 1.
    pub line: u64,
    /// Lines before both changes.
    pub ancestor: String,
    /// Lines in the agent's text.
    pub agent: String,
    /// Lines in the person's text.
    pub person: String,
}

/// Text that a person has in an editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonText {
    /// The whole text.
    pub text: Arc<str>,
    /// True if the file holds the text, as the editor reports.
    pub saved: bool,
}

/// New text of a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewText {
    /// Whole text, which replaces the old one.
    Text(String),
    /// Patches in the order of lines.
    ///
    /// Line numbers refer to the text before all of the patches.
    Patches(Vec<TextPatch>),
}

/// Side that wins a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BufferSide {
    /// The person's lines.
    Person,
    /// The agent's lines.
    Agent,
    /// The person's lines, then the agent's.
    Both,
}

/// Event that the daemon sends to an editor.
///
/// The `path` is the absolute path under which the editor opened the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum BufferEvent {
    /// Patches that the editor should apply to that version only.
    Edit {
        /// Path of the file.
        #[serde(with = "host_path")]
        path: PathBuf,
        /// Version that the patches are for.
        version: u64,
        /// Patches in the order of lines.
        patches: Vec<TextPatch>,
    },
    /// An agent's text conflicts with the text of that version. Both are kept.
    Conflict {
        /// Path of the file.
        #[serde(with = "host_path")]
        path: PathBuf,
        /// Version that conflicts.
        version: u64,
        /// All conflicts, in the order of lines.
        conflicts: Vec<BufferConflict>,
    },
    /// Agents' writes were merged into the file, for example for a commit.
    ///
    /// The text of the buffer stays as it is.
    Written {
        /// Path of the file.
        #[serde(with = "host_path")]
        path: PathBuf,
    },
    /// The buffer was closed, because its fork was unmounted or deleted.
    Closed {
        /// Path of the file.
        #[serde(with = "host_path")]
        path: PathBuf,
    },
}

impl BufferEvent {
    pub(super) fn path(&self) -> &Path {
        match self {
            BufferEvent::Edit { path, .. }
            | BufferEvent::Conflict { path, .. }
            | BufferEvent::Written { path }
            | BufferEvent::Closed { path } => path,
        }
    }

    /// Returns whether `self` replaces an earlier undelivered event.
    pub(super) fn replaces(&self, earlier: &BufferEvent) -> bool {
        let is_file = |event: &BufferEvent| matches!(event, BufferEvent::Written { .. });
        self.path() == earlier.path()
            && (matches!(self, BufferEvent::Closed { .. }) || is_file(self) == is_file(earlier))
    }
}

/// State of an open buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferState {
    /// File that the buffer shows.
    pub key: BufferKey,
    /// Absolute path under which the editor opened the file.
    pub name: PathBuf,
    /// Version of the person's text.
    pub version: u64,
    /// The person's text.
    pub person: PersonText,
    /// Text of the oldest buffer fork. None if no agent has its own text.
    pub agent: Option<Arc<str>>,
    /// True if the person's text has agents' writes that the file lacks.
    pub unsaved_merge: bool,
    /// Conflicts between the person's text and agents' texts.
    pub conflicts: Vec<BufferConflict>,
}

/// Result of merging a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergedBuffer {
    /// Conflicts that no side was given for. Nothing is merged if there are any.
    pub conflicts: Vec<BufferConflict>,
    /// Patches that the editor should apply.
    pub patches: Vec<TextPatch>,
    /// True if the editor has not applied the patches yet.
    pub pending: bool,
}

/// Error of a call about a buffer.
#[derive(Debug, thiserror::Error, ToFailure)]
pub enum BufferError {
    /// No editor, or not this session, has the file open.
    #[error("no editor has {} open", .0.display())]
    #[failure(NoSuchBuffer)]
    #[hint("`tine buffer list` shows the buffers that are open")]
    NoBuffer(PathBuf),
    /// Another session has the file open.
    #[error("another editor has {} open", .0.display())]
    #[failure(BufferTaken)]
    #[hint("close it there; one editor at a time has a file's buffer")]
    Taken(PathBuf),
    /// The editor named a version that the buffer is not at.
    #[error("the text of {} is at version {version}, not at {named}", path.display())]
    #[failure(BufferStale)]
    #[hint("send all of the text, without `base`; nothing was changed")]
    Stale {
        /// Path under which the editor opened the file.
        path: PathBuf,
        /// Current version of the buffer.
        version: u64,
        /// Version that the editor named.
        named: u64,
    },
    /// The editor applied an edit, but none is pending.
    #[error("no edit of {} was asked for", .0.display())]
    #[failure(BufferStale)]
    #[hint("apply what an event `edit` names, once; nothing was changed")]
    NotOffered(PathBuf),
    /// A patch does not fit the text.
    #[error("a patch does not fit the text of {}: {reason}", path.display())]
    #[failure(Usage)]
    #[hint("patches are of whole lines, in their order; nothing was changed")]
    BadPatch {
        /// Path under which the editor opened the file.
        path: PathBuf,
        /// Explanation for people.
        reason: &'static str,
    },
    /// The text is longer than [`MAX_TEXT_BYTES`].
    #[error("the text of {} is longer than {MAX_TEXT_BYTES} bytes", .0.display())]
    #[failure(Usage)]
    #[hint("leave such a file to the editor alone")]
    TooLarge(PathBuf),
    /// The session has ended or never existed.
    #[error("no editor has the session {0}")]
    #[failure(NoSuchBuffer)]
    #[hint("its connection has ended: attach again, and open the buffers again")]
    NoSession(u64),
    /// A record cannot be read or written.
    #[error(transparent)]
    #[failure(transparent)]
    Store(#[from] StoreError),
}
