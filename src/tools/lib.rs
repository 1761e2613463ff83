//! File tools of agents, and the texts that they share with editors.
//!
//! An operation of a tool goes to an open buffer, else to the fork, else back to its caller, who
//! does its own I/O ([`ToolRouter`]). A tool never overwrites a person's text in an editor: what an
//! agent writes to an open buffer is in a fork of that buffer ([`Buffers`]) until it is merged. The
//! tool's own process runs shell commands ([`run`]).

pub mod buffers;
pub mod edit;
pub mod error;
pub mod path;
pub mod router;
pub mod run;
pub mod search;

pub use buffers::{AgentId, BufferConflict, BufferKey, Buffers, TextPatch};
pub use edit::{EditError, TextEdit};
pub use error::ToolError;
pub use path::Places;
pub use router::{ActiveBuffers, ActiveFork, Routed, ToolContext, ToolRouter};
