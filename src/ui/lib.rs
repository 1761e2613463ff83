//! `tine ui`: a page in a browser, served on a loopback port.
//!
//! It is a front end to the daemon like the command line: it decodes a request of the page, asks
//! the daemon over its socket, and replies. It makes no decisions, and the page's files are part of
//! the program.
//!
//! ```text
//! browser ── GET /KEY/… ──► server: Host, key, method ──► routes ──► daemon::Client ──► JSON
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `server` | listens, refuses what is not the page's own request, replies |
//! | `http` | reads requests and sends replies |
//! | `key` | the secret in the address |
//! | `assets` | the page's files |
//! | `routes` | requests that the page may make, and the calls of the daemon for them |
//! | `contents` | contents in addition to the daemon's answers: line counts, texts of conflicts |
//! | `sides` | two texts side by side |
//! | `watch` | waits for a visible change |
//!
//! The key is the first part of the path and not a cookie, because browsers send cookies to all
//! ports of a host, so also to other servers.

mod assets;
mod contents;
pub mod http;
mod key;
mod routes;
mod server;
mod sides;
mod watch;

pub use routes::PageContext;
pub use server::Server;
