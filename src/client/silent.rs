//! Daemons without a socket: hung while they start or while they end.
//!
//! The store's lock shows that such a daemon exists, but not its process. Its command line names
//! the repository, so tine searches `/proc` for it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use tine_daemon::socket;
use tine_ops::failure::Failure;
use tine_sys::file::is_same_file;
use tine_sys::process::{self, ProcessId};

/// Interval between two looks at the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time for the kernel to end a killed process.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Finds a daemon of the repository that has no socket after `patience`.
///
/// Returns the daemon's process id. Returns `None` as soon as the repository has no daemon or the
/// daemon has a socket. Otherwise blocks until `patience` is over. `common_dir` is the repository's
/// common git directory.
///
/// # Errors
/// The errors of [`socket::connect`].
pub fn find(common_dir: &Path, patience: Duration) -> Result<Option<u32>, Failure> {
    let deadline = Instant::now() + patience;
    loop {
        let found = daemons(common_dir);
        let Some(first) = found.first() else {
            return Ok(None);
        };
        if socket::connect(&socket::store_dir(common_dir))?.is_some() {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            return Ok(Some(first.pid()));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Kills every daemon of the repository and waits for their end.
///
/// Blocks for at most five seconds. Returns whether all have ended.
///
/// # Errors
/// The system's error if a process cannot be killed.
pub fn kill(common_dir: &Path) -> Result<bool, Failure> {
    let found = daemons(common_dir);
    for daemon in found.iter().filter(|daemon| daemon.is_running()) {
        process::kill(daemon.pid()).map_err(|error| {
            Failure::io("kill the daemon of", &socket::store_dir(common_dir), &error)
        })?;
    }
    let deadline = Instant::now() + END_TIMEOUT;
    while found.iter().any(ProcessId::is_running) {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(true)
}

/// Lists the processes that run `tine daemon run` for the repository.
///
/// Includes only processes of the repository's owner and of root, and not this process.
fn daemons(common_dir: &Path) -> Vec<ProcessId> {
    let owner = fs::metadata(common_dir).map_or(process::effective_uid(), |meta| meta.uid());
    let is_daemon = |proc_dir: &Path| {
        let is_trusted = fs::metadata(proc_dir).is_ok_and(|meta| [0, owner].contains(&meta.uid()));
        is_trusted
            && fs::read(proc_dir.join("cmdline")).is_ok_and(|line| {
                store_of(&line)
                    .is_some_and(|dir| is_same_file(&proc_dir.join("cwd").join(dir), common_dir))
            })
    };
    let mut daemons = ProcessId::all_where(is_daemon);
    daemons.retain(|process| process.pid() != std::process::id() && process.is_running());
    daemons
}

/// Returns the value of `--store-of` in a `daemon run` command line.
///
/// `line` is in the format of `/proc/<pid>/cmdline`.
fn store_of(line: &[u8]) -> Option<&Path> {
    const OPTION: &[u8] = b"--store-of";
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.find(|word| *word == b"daemon")?;
    words.next().filter(|word| *word == b"run")?;
    let option = words.next()?;
    let dir = match option.strip_prefix(OPTION)? {
        b"" => words.next()?,
        rest => rest.strip_prefix(b"=")?,
    };
    Some(Path::new(OsStr::from_bytes(dir)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_known_by_its_command_line() {
        let of = |line: &'static [u8]| store_of(line).map(|dir| dir.to_str().unwrap());
        assert_eq!(
            of(b"tine\0daemon\0run\0--store-of\0/r/.git\0"),
            Some("/r/.git")
        );
        assert_eq!(
            of(b"/bin/tine\0-C\0/r\0daemon\0run\0--store-of=.git\0"),
            Some(".git")
        );
        for other in [
            &b"tine\0daemon\0start\0"[..],
            b"tine\0list\0",
            b"",
            b"sh\0-c\0tine daemon run --store-of /r\0",
        ] {
            assert_eq!(of(other), None);
        }
    }
}
