//! How much there may be: mounts, files, names, bytes, open files. Each test prints what it
//! measured; the figures that stand for all sizes are small here and large with `TINE_SOAK=1`.

mod support;

#[path = "limits/entries.rs"]
mod entries;
#[path = "limits/large_files.rs"]
mod large_files;
#[path = "limits/mounts.rs"]
mod mounts;

use std::fs;
use std::io::Write;

use support::{Tine, soaking};

/// `full` where there is time, else `small`.
fn scaled(small: u64, full: u64) -> u64 {
    if soaking() { full } else { small }
}

/// Tells a figure past libtest's capture.
fn tell(what: &str) {
    let line = format!("LIMITS {what}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("stderr can be written");
}

/// The daemon's resident memory in bytes, without asking it.
fn resident(tine: &Tine<'_>) -> u64 {
    let pid = tine.daemon_pid().expect("the daemon runs");
    kibibytes_of(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// The daemon's own memory in bytes, without the pages of the program that it runs: those of a
/// build without optimizations are most of what is resident, and are more with every function.
fn own_memory(tine: &Tine<'_>) -> u64 {
    let pid = tine.daemon_pid().expect("the daemon runs");
    kibibytes_of(&format!("/proc/{pid}/status"), "RssAnon:")
}

/// The most that it ever was.
fn most_resident(tine: &Tine<'_>) -> u64 {
    let pid = tine.daemon_pid().expect("the daemon runs");
    kibibytes_of(&format!("/proc/{pid}/status"), "VmHWM:")
}

fn kibibytes_of(file: &str, key: &str) -> u64 {
    let text = fs::read_to_string(file).expect("the process is there");
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let figure = line.and_then(|line| line.trim().strip_suffix(" kB"));
    1024 * figure
        .and_then(|figure| figure.parse::<u64>().ok())
        .expect("the kernel tells it")
}

/// One figure of `tine daemon status --json`.
fn figure(tine: &Tine<'_>, pointer: &str) -> u64 {
    let status = tine.json(&["daemon", "status"]);
    status
        .pointer(pointer)
        .and_then(serde_json::Value::as_u64)
        .unwrap_or_else(|| panic!("{pointer} is missing in {status}"))
}
