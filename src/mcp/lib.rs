//! The Model Context Protocol: a front end to the daemon for agents, beside the command line.
//!
//! It decodes a call, asks the daemon, and replies. Tools mean the fork that is active in the
//! session, as commands mean the one that they run in.
//!
//! ```text
//! client ─► rmcp ─► server ─► tool: arguments ─► tools::*: the daemon, git, a shell ─► tool: structured answer and text
//!                       └─ resources                └─ session: the active fork, connections, calls under way
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `server` | the protocol: lists, calls, progress, cancellation |
//! | `session` | what outlives a call |
//! | `call` | one call under way: whether it is still wanted |
//! | `tool` | what a tool is, and how answers and failures are told |
//! | `schema` | JSON schemas as clients of all kinds take them |
//! | `shown` | answers that several tools give |
//! | `resources` | changesets and files by their URIs |
//! | `tools/` | the tools, grouped by what they work on |

mod call;
mod resources;
mod schema;
mod server;
mod session;
mod shown;
mod tool;
mod tools;

pub use self::server::serve;
pub use self::session::{ForkRequest, Session};
