//! Installing tine, what goes with it, and leaving nothing behind.

mod support;

#[path = "install/leaving.rs"]
mod leaving;
#[path = "install/manual.rs"]
mod manual;
#[path = "install/newcomer.rs"]
mod newcomer;
#[path = "install/unit.rs"]
mod unit;

use std::path::{Path, PathBuf};

/// A file of this repository.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
