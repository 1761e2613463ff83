//! Whether FUSE works here, and getting rid of mounts whatever state they are in.

use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use tine::fuse::TransportChoice;

use super::{OutputExt, has_program, run_with_timeout};

/// Bit of `CAP_SYS_ADMIN` in the masks of `/proc/self/status`.
const CAP_SYS_ADMIN: u32 = 21;

/// Why FUSE file systems cannot be mounted here; `None` where they can.
pub fn fuse_missing() -> Option<String> {
    let device = Path::new("/dev/fuse");
    if !device.exists() {
        return Some("/dev/fuse is missing".into());
    }
    if let Err(error) = OpenOptions::new().read(true).write(true).open(device) {
        return Some(format!("/dev/fuse cannot be opened: {error}"));
    }
    if !may_mount() && !has_program("fusermount3") {
        return Some("fusermount3 is missing and this process may not mount".into());
    }
    None
}

/// How all mounts shall get their requests, by `TINE_TEST_TRANSPORT`: a value of `tine.transport`.
pub fn transport_name() -> Option<String> {
    std::env::var("TINE_TEST_TRANSPORT").ok()
}

/// The same for mounts of the test's own.
pub fn transport() -> TransportChoice {
    transport_name().map_or_else(TransportChoice::default, |name| {
        name.parse()
            .expect("TINE_TEST_TRANSPORT is auto, device or ring")
    })
}

/// Whether this process has `CAP_SYS_ADMIN`.
fn may_mount() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    mask & (1 << CAP_SYS_ADMIN) != 0
}

/// Mount points at or beneath `dir`, deepest first, as this thread sees them. Touches none of them.
pub fn mounts_beneath(dir: &Path) -> Vec<PathBuf> {
    mounts(dir, |line| {
        !line.windows(GUARD.len()).any(|part| part == GUARD)
    })
}

/// What stands in the mount table of a guard, which keeps a place read-only while its fork is not
/// mounted.
const GUARD: &[u8] = b" - tmpfs tine-guard ";

/// Takes away the guards of places in `dir`, which would keep a disk busy.
pub fn remove_guards_beneath(dir: &Path) {
    for mount in mounts(dir, |line| {
        line.windows(GUARD.len()).any(|part| part == GUARD)
    }) {
        run_with_timeout(Command::new("umount").arg(&mount)).expect_success("umount");
    }
}

fn mounts(dir: &Path, counts: impl Fn(&[u8]) -> bool) -> Vec<PathBuf> {
    let table = std::fs::read("/proc/thread-self/mountinfo").expect("/proc is mounted");
    let mut found: Vec<PathBuf> = table
        .split(|&b| b == b'\n')
        .filter(|line| counts(line))
        .filter_map(|line| line.split(|&b| b == b' ').nth(4))
        .map(unescape)
        .filter(|mount| mount.starts_with(dir))
        .collect();
    found.sort();
    found.reverse();
    found
}

/// Undoes the octal escapes (`\040`) of the mount table.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\' && tail.len() >= 3)
            .then(|| std::str::from_utf8(&tail[..3]).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Detaches whatever is mounted at or beneath `dir`. Whoever waits for a hung mount there gets an
/// error.
pub fn force_unmount_beneath(dir: &Path) {
    for mount in mounts(dir, |_| true) {
        let path = CString::new(mount.as_os_str().as_bytes()).expect("a mount point holds no NUL");
        // MNT_FORCE ends the connection, which frees everybody who waits for it.
        // SAFETY: `path` is a NUL-terminated string that outlives the call.
        let result = unsafe { libc::umount2(path.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
        if result != 0 && has_program("fusermount3") {
            let _ = run_with_timeout(Command::new("fusermount3").arg("-uz").arg(&mount));
        }
    }
}

/// Detaches what is mounted beneath a directory when a test takes longer than its limit, so that
/// the test fails with an error and does not hang.
pub struct Watchdog {
    /// Dropped to call it off.
    _alive: mpsc::Sender<()>,
}

impl Watchdog {
    pub fn start(dir: &Path, limit: Duration) -> Watchdog {
        let dir = dir.to_owned();
        let (alive, gone) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if gone.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!(
                    "the mounts beneath {} are cut off after {limit:?}",
                    dir.display()
                );
                force_unmount_beneath(&dir);
            }
        });
        Watchdog { _alive: alive }
    }
}
