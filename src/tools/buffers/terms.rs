//! What is said of buffers: texts, edits, conflicts, events, refusals. Values, without I/O.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::MAX_TEXT_BYTES;
use tine_path::RepoPath;
use tine_path::text::host_path;
use tine_workspace::{ForkName, StoreError};

/// Which file a buffer shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BufferKey {
    /// In whose mount; none: in the main checkout.
    pub fork: Option<ForkName>,
    /// Without symlinks on the way.
    pub path: RepoPath,
}

/// One agent's session. Calls that name none are those of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(pub String);

/// Lines of a buffer that become others, as an editor applies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextPatch {
    /// From 0.
    pub first_line: u64,
    /// How many lines go.
    pub lines: u64,
    /// What comes there: whole lines, with their ends.
    pub text: String,
}

/// A place that the agent and the person changed in different ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferConflict {
    /// In the person's text, from 1.
    pub line: u64,
    pub ancestor: String,
    pub agent: String,
    pub person: String,
}

/// What a person has in an editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonText {
    pub text: Arc<str>,
    /// Whether the file holds it, as the editor says.
    pub saved: bool,
}

/// A new text of a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewText {
    /// All of it, whatever was there.
    Text(String),
    /// In the order of their lines, which are counted in the text as it was before all of them.
    Patches(Vec<TextPatch>),
}

/// Whose lines a conflict becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BufferSide {
    Person,
    Agent,
    /// The person's, then the agent's.
    Both,
}

/// What an editor is told without having asked. A file is called as the editor calls it, absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum BufferEvent {
    /// The text of that version, and no other one, is to have these patches.
    Edit {
        #[serde(with = "host_path")]
        path: PathBuf,
        version: u64,
        patches: Vec<TextPatch>,
    },
    /// What an agent wrote does not fit to the text of that version. Both are kept.
    Conflict {
        #[serde(with = "host_path")]
        path: PathBuf,
        version: u64,
        conflicts: Vec<BufferConflict>,
    },
    /// What agents wrote was brought into the file, for a commit or the like. The text of the
    /// buffer stays as it is.
    Written {
        #[serde(with = "host_path")]
        path: PathBuf,
    },
    /// The buffer is not open any more: its fork was unmounted or deleted.
    Closed {
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

    /// Whether `self` takes the place of one that nobody was told yet.
    pub(super) fn replaces(&self, earlier: &BufferEvent) -> bool {
        let is_file = |event: &BufferEvent| matches!(event, BufferEvent::Written { .. });
        self.path() == earlier.path()
            && (matches!(self, BufferEvent::Closed { .. }) || is_file(self) == is_file(earlier))
    }
}

/// An open buffer as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferState {
    pub key: BufferKey,
    /// As the editor names the file.
    pub name: PathBuf,
    pub version: u64,
    pub person: PersonText,
    /// The agent's own text, where it has one.
    pub agent: Option<Arc<str>>,
    /// Whether the person's text has something of an agent's that the file does not have.
    pub unsaved_merge: bool,
    pub conflicts: Vec<BufferConflict>,
}

/// What came of a merge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergedBuffer {
    pub conflicts: Vec<BufferConflict>,
    pub patches: Vec<TextPatch>,
    /// Whether the editor still has to take them.
    pub pending: bool,
}

/// Why something cannot be done with a buffer.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    #[error("no editor has {} open", .0.display())]
    NoBuffer(PathBuf),
    #[error("another editor has {} open", .0.display())]
    Taken(PathBuf),
    #[error("the text of {} is at version {version}, not at {named}", path.display())]
    Stale {
        path: PathBuf,
        version: u64,
        named: u64,
    },
    #[error("no edit of {} was asked for", .0.display())]
    NotOffered(PathBuf),
    #[error("a patch does not fit the text of {}: {reason}", path.display())]
    BadPatch { path: PathBuf, reason: &'static str },
    #[error("the text of {} is longer than {MAX_TEXT_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
    #[error("no editor has the session {0}")]
    NoSession(u64),
    #[error(transparent)]
    Store(#[from] StoreError),
}
