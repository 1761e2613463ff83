//! Named points at which a test can pause a request.
//!
//! A test uses them to make two requests meet in a chosen order. See docs/testing.md.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Environment variable with the directory of pause files. Set by tests only.
pub const VARIABLE: &str = "TINE_PAUSE_IN";

/// Longest pause, for a test that forgets to release a request.
const LONGEST: Duration = Duration::from_secs(60);

/// Time between two checks for the release.
const INTERVAL: Duration = Duration::from_millis(2);

/// Blocks here if a test asks for it.
///
/// Renames the file `<point>` to `<point>.reached` and returns when that file is removed. Only one
/// request gets the file, so the test decides which one waits.
pub fn at(point: &str) {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(dir) = DIR.get_or_init(|| std::env::var_os(VARIABLE).map(PathBuf::from)) else {
        return;
    };
    let reached = dir.join(format!("{point}.reached"));
    if fs::rename(dir.join(point), &reached).is_err() {
        return;
    }
    let deadline = Instant::now() + LONGEST;
    while reached.exists() && Instant::now() < deadline {
        thread::sleep(INTERVAL);
    }
}
