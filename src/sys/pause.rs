//! Named points at which a test can hold a request, so that two of them meet in a chosen order. See
//! docs/testing.md.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Names the directory in which a test asks for pauses. Unset outside of tests.
pub const VARIABLE: &str = "TINE_PAUSE_IN";

/// A test that has forgotten a request holds it no longer than this.
const LONGEST: Duration = Duration::from_secs(60);

const INTERVAL: Duration = Duration::from_millis(2);

/// Waits here if a test asks for it: renames the file `<point>` to `<point>.reached` and returns
/// when that file is removed. One request at a time gets the file, so the test decides which one
/// waits. Blocks.
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
