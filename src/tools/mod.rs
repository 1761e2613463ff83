//! What agents' file tools do, and what they share with editors.
//!
//! A tool's operation goes to an open buffer, else to the fork, else back to its caller, who does its own I/O
//! ([`ToolRouter`](router)). A person's text in an editor is never trampled: what an agent writes to an open buffer is a
//! fork of that ([`Buffers`]) until it is merged.

pub mod buffers;
pub mod edit;

pub use buffers::{BufferConflict, BufferKey, Buffers, TextPatch};
pub use edit::TextEdit;
