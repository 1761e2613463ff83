//! Requests of editors about their buffers, and the answers.
//!
//! `docs/editors.md` is the contract with editors.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BufferMerged;
use tine_path::text::{PathText, host_path};
use tine_store::ForkName;
use tine_tools::BufferConflict;
use tine_tools::buffers::{BufferEvent, BufferSide, NewText};

/// Request of an editor, or of a client that reads buffers.
///
/// Paths are absolute, as the editor names them: in a fork's mount or in the main checkout.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "buffer", rename_all = "kebab-case")]
pub enum BufferRequest {
    /// Makes this connection an editor's; answered with [`BufferAnswer::Attached`].
    ///
    /// The buffers opened on the connection are closed when it ends.
    Attach,
    /// Opens a buffer, or replaces its text; answered with [`BufferAnswer::Version`].
    ///
    /// All requests that change a buffer get this answer.
    Open {
        /// File that the editor opened.
        #[serde(with = "host_path")]
        path: PathBuf,
        /// Text of the buffer.
        text: String,
        /// True if the file has that text.
        saved: bool,
        /// Version after which this buffer's versions begin; by default 0.
        ///
        /// It keeps versions of an earlier opening distinct from those of this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<u64>,
    },
    /// Records a change of the text by the person.
    Change {
        /// File of the buffer.
        #[serde(with = "host_path")]
        path: PathBuf,
        /// Version that was changed; `None` if `new` is the whole text.
        #[serde(default)]
        base: Option<u64>,
        /// The change.
        #[serde(flatten)]
        new: NewText,
    },
    /// Records that the editor made an edit that an event asked for.
    Applied {
        /// File of the buffer.
        #[serde(with = "host_path")]
        path: PathBuf,
        /// Version that the edit was made to.
        base: u64,
    },
    /// Records that the editor saved the text.
    Save {
        /// File of the buffer.
        #[serde(with = "host_path")]
        path: PathBuf,
        /// Version whose text the file now has.
        base: u64,
    },
    /// Closes a buffer; answered with [`BufferAnswer::Closed`].
    Close {
        /// File of the buffer.
        #[serde(with = "host_path")]
        path: PathBuf,
    },
    /// Waits for events for an editor; answered with [`BufferAnswer::Events`].
    ///
    /// The request comes on another connection than the editor's own.
    Events {
        /// Session of the editor, from [`BufferAnswer::Attached`].
        session: u64,
        /// Time to wait for an event, in milliseconds.
        wait_ms: u64,
    },
    /// Lists open buffers; answered with [`BufferAnswer::Buffers`].
    List,
    /// Shows a buffer with its texts; answered with [`BufferAnswer::Buffer`].
    Show {
        /// File of the buffer.
        #[serde(with = "host_path")]
        path: PathBuf,
    },
    /// Merges an agent's text into the person's; answered with [`BufferAnswer::Merged`].
    ///
    /// Waits until the editor has the merged text, unless the editor itself sent the request.
    Merge {
        /// File of the buffer.
        #[serde(with = "host_path")]
        path: PathBuf,
        /// Side that wins conflicts; `None` leaves them open.
        #[serde(default)]
        side: Option<BufferSide>,
    },
}

/// Answer to a [`BufferRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "buffer", rename_all = "kebab-case")]
pub enum BufferAnswer {
    /// The connection is an editor's now.
    Attached {
        /// Number of the editor's session.
        session: u64,
    },
    /// The buffer has this version now.
    Version {
        /// File of the buffer.
        #[serde(with = "host_path")]
        path: PathBuf,
        /// The version.
        version: u64,
    },
    /// The buffer is closed.
    Closed {
        /// File of the buffer.
        #[serde(with = "host_path")]
        path: PathBuf,
    },
    /// Events since the last request for them.
    Events {
        /// The events, the oldest first; empty after the waiting time.
        events: Vec<BufferEvent>,
    },
    /// Open buffers.
    Buffers {
        /// The buffers.
        buffers: Vec<BufferInfo>,
    },
    /// One buffer with its texts.
    Buffer(Box<BufferShown>),
    /// Outcome of a merge.
    Merged(BufferMerged),
}

/// An open buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferInfo {
    /// Fork that has the file; `None` for the main checkout.
    pub fork: Option<ForkName>,
    /// Path from the root of the fork or checkout.
    pub path: PathText,
    /// Path as the editor names it.
    #[serde(with = "host_path")]
    pub file: PathBuf,
    /// Version of the person's text.
    pub version: u64,
    /// True if the file has the person's text.
    pub saved: bool,
    /// True if an agent's text is not merged.
    pub forked: bool,
    /// True if that text conflicts with the person's.
    pub conflicted: bool,
    /// True if the text contains merged, unsaved changes of an agent.
    pub unsaved_merge: bool,
}

/// What a command found of agents in open buffers, before it took the files. Paths are from the
/// fork's root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentTexts {
    /// Files that have now what agents wrote.
    pub brought: Vec<PathText>,
    /// Files whose saved content excludes some of it: that is in the buffer only.
    pub left_out: Vec<PathText>,
}

impl AgentTexts {
    /// Returns true if the command met no agent's text.
    pub fn is_empty(&self) -> bool {
        self.brought.is_empty() && self.left_out.is_empty()
    }
}

/// An open buffer with its texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferShown {
    /// The buffer.
    #[serde(flatten)]
    pub info: BufferInfo,
    /// Text of the person.
    pub person: String,
    /// Text of the agent that is not merged, if any.
    pub agent: Option<String>,
    /// Conflicts of the two texts.
    pub conflicts: Vec<BufferConflict>,
}
