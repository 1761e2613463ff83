//! `tine ui`: a page in a browser, served on a loopback port. A front end to the daemon like the
//! command line: it decodes what the page asks, asks the daemon over its socket, and replies. No
//! decision lives here, and the page's files are part of the program.
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
//! | `routes` | what the page may ask, and what is asked of the daemon for it |
//! | `contents` | contents beside what the daemon tells: line counts, texts of conflicts |
//! | `sides` | two texts side by side |
//! | `watch` | waits until something is otherwise |
//!
//! The key is the first part of the path, not a cookie: browsers send cookies to every port of a
//! host, so also to servers of others.

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
