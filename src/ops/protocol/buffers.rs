//! What editors say of their buffers, and what they are told. `docs/editors.md` is the contract
//! with editors.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BufferMerged;
use tine_path::text::{PathText, host_path};
use tine_tools::BufferConflict;
use tine_tools::buffers::{BufferEvent, BufferSide, NewText};
use tine_workspace::ForkName;

/// What an editor asks, and who looks at its buffers. Paths are absolute, as the editor has them:
/// in a fork's mount or in the main checkout.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "buffer", rename_all = "kebab-case")]
pub enum BufferRequest {
    /// Makes this connection an editor's: the buffers that are opened on it are closed when it
    /// ends. Answered with [`BufferAnswer::Attached`].
    Attach,
    /// Opens a buffer, or begins its text anew: `saved` where the file has that text. Answered with
    /// [`BufferAnswer::Version`], as all that changes a buffer.
    Open {
        #[serde(with = "host_path")]
        path: PathBuf,
        text: String,
        saved: bool,
        /// Versions begin behind this one, so that none of an earlier opening is taken for one of
        /// this; without it with 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<u64>,
    },
    /// The person changed the text of version `base`; without one all of the text comes.
    Change {
        #[serde(with = "host_path")]
        path: PathBuf,
        #[serde(default)]
        base: Option<u64>,
        #[serde(flatten)]
        new: NewText,
    },
    /// The edit of the text of version `base` is made.
    Applied {
        #[serde(with = "host_path")]
        path: PathBuf,
        base: u64,
    },
    /// The file has the text of version `base`.
    Save {
        #[serde(with = "host_path")]
        path: PathBuf,
        base: u64,
    },
    /// Answered with [`BufferAnswer::Closed`].
    Close {
        #[serde(with = "host_path")]
        path: PathBuf,
    },
    /// What the editor of that session is to be told: waits for something. It is for another
    /// connection than the editor's own. Answered with [`BufferAnswer::Events`].
    Events { session: u64, wait_ms: u64 },
    /// Answered with [`BufferAnswer::Buffers`].
    List,
    /// Answered with [`BufferAnswer::Buffer`].
    Show {
        #[serde(with = "host_path")]
        path: PathBuf,
    },
    /// Merges what an agent wrote into the person's text. Waits until the editor has it, unless
    /// that is who asks. Answered with [`BufferAnswer::Merged`].
    Merge {
        #[serde(with = "host_path")]
        path: PathBuf,
        /// Settles conflicts.
        #[serde(default)]
        side: Option<BufferSide>,
    },
}

/// The answer to a [`BufferRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "buffer", rename_all = "kebab-case")]
pub enum BufferAnswer {
    Attached {
        session: u64,
    },
    Version {
        #[serde(with = "host_path")]
        path: PathBuf,
        version: u64,
    },
    Closed {
        #[serde(with = "host_path")]
        path: PathBuf,
    },
    Events {
        events: Vec<BufferEvent>,
    },
    Buffers {
        buffers: Vec<BufferInfo>,
    },
    Buffer(Box<BufferShown>),
    Merged(BufferMerged),
}

/// An open buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferInfo {
    /// None: it is in the main checkout.
    pub fork: Option<ForkName>,
    /// From the root of the fork or checkout.
    pub path: PathText,
    /// As the editor names it.
    #[serde(with = "host_path")]
    pub file: PathBuf,
    pub version: u64,
    /// Whether the file has the person's text.
    pub saved: bool,
    /// Whether an agent's text is not merged.
    pub forked: bool,
    /// Whether that excludes what the person has.
    pub conflicted: bool,
    /// Whether something of an agent's is merged, and not saved.
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
    pub fn is_empty(&self) -> bool {
        self.brought.is_empty() && self.left_out.is_empty()
    }
}

/// An open buffer with its texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferShown {
    #[serde(flatten)]
    pub info: BufferInfo,
    pub person: String,
    pub agent: Option<String>,
    pub conflicts: Vec<BufferConflict>,
}
