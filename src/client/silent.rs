//! Daemons that no socket leads to: one that hangs while it starts, or while it ends.
//!
//! The store's lock tells that there is one, and not which. So they are found by their command
//! line, which names the repository.

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

/// How often it is looked at.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the kernel may take to end a process that was killed.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The daemon of the repository with this common directory, where one still has no socket, or has
/// it no more, when `patience` is over. Waits as long as that.
///
/// # Errors
/// As [`socket::connect`].
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
        thread::sleep(PAUSE);
    }
}

/// Kills every such daemon, and waits until they are gone; whether they are.
///
/// # Errors
/// Where one may not be killed.
pub fn kill(common_dir: &Path) -> Result<bool, Failure> {
    let found = daemons(common_dir);
    for daemon in found.iter().filter(|daemon| daemon.is_running()) {
        process::kill(daemon.pid()).map_err(|error| {
            Failure::io("kill the daemon of", &socket::store_dir(common_dir), &error)
        })?;
    }
    let deadline = Instant::now() + END_PATIENCE;
    while found.iter().any(ProcessId::is_running) {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
    Ok(true)
}

/// The processes that are, or become, a daemon of that repository, of its owner's or root's.
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

/// What `daemon run` in this command line serves: the arguments as `/proc` has them.
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
