//! What agents' file tools do, and what they share with editors.
//!
//! A tool's operation goes to an open buffer, else to the fork, else back to its caller, who does
//! its own I/O ([`ToolRouter`]). A person's text in an editor is never trampled: what an agent
//! writes to an open buffer is a fork of that ([`Buffers`]) until it is merged. Shell commands are
//! run by the tool's own process ([`run`]).

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
