//! What goes with tine when it is installed.

mod support;

#[path = "install/manual.rs"]
mod manual;

use std::path::{Path, PathBuf};

/// A file of this repository.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
