//! The Model Context Protocol: a front end to the daemon for agents, like the command line.
//!
//! It decodes a call, asks the daemon, and replies. Tools work in the session's active fork, as
//! commands work in the fork that they run in.
//!
//! ```text
//! client ─► rmcp ─► server ─► tool: arguments ─► tools::*: daemon, git, shell ─► tool: answer
//!                     │                            └─ session: active fork, connections, calls
//!                     └─ resources
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `server` | the protocol: lists, calls, progress, cancellation |
//! | `session` | what outlives a call |
//! | `call` | one running call and its cancellation |
//! | `tool` | entries of the list of tools, and the form of answers and failures |
//! | `schema` | JSON schemas that all kinds of clients accept |
//! | `shown` | parts of answers that several tools share |
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
