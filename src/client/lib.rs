//! The client side of the daemon's socket.

mod connection;
pub mod ending;
mod killed;
pub mod silent;

pub use connection::{Client, ConnectOptions, ask_running};
