//! A daemon that was killed and cannot end: one of its threads waits in the kernel for a mount that
//! the process served.
//!
//! An invalidation waits for a directory that a program has locked while it waits for an answer.
//! After SIGKILL nobody answers, yet the thread holds `/dev/fuse`, the store's lock and the socket:
//! the kernel takes connections for a process that will never read from them. Cutting off its
//! mounts frees the program, the thread and with it the rest.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tine_ops::failure::{ErrorCode, Failure};
use tine_sys::process;
use tine_workspace::Store;

/// How long the kernel may take to end a process that was killed.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Whether the process at the other end of `line` was killed, or has returned from `main`, and yet
/// keeps the connection. False of every process that may still answer, and where that cannot be
/// known (another pid namespace).
pub(crate) fn is_at(line: &UnixStream) -> io::Result<bool> {
    let peer = process::peer_credentials(line)?;
    // A connection that lasts even now has kept the process, and with it the number, from going to
    // another.
    Ok(process::main_thread_has_ended(peer.pid) && !has_ended_within(line, Duration::ZERO)?)
}

/// Lets a daemon end that was killed, by cutting off the mounts of the store in `store_dir`.
pub(crate) fn release(store_dir: &Path, line: &UnixStream) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("end the daemon of", store_dir, &error);
    let daemon = process::peer_credentials(line).map_err(failed)?.pid;
    log::info!(
        "the daemon (process {daemon}) was killed and waits for its own mounts, which are cut off"
    );
    let mut refused = None;
    for dir in Store::recorded_mount_dirs(store_dir) {
        // As long as it has not ended, no other has the store and serves the mounts.
        let is_its = || has_ended_within(line, Duration::ZERO).is_ok_and(|ended| !ended);
        if let Err(error) = tine_fuse::cut_off(&dir, is_its) {
            refused = Some(error);
        }
    }
    if has_ended(line).map_err(failed)? {
        return Ok(());
    }
    let failure = Failure::new(
        ErrorCode::DaemonUnreachable,
        format!("the daemon (process {daemon}) was killed and has not ended"),
    )
    .hint(format!(
        "`tine daemon stop --force` as root, where the forks are mounted, cuts off its mounts; `cat /proc/{daemon}/task/*/stack` as root shows what the kernel waits for",
    ));
    Err(match refused {
        Some(error) => failure.cause(error.to_string()),
        None => failure,
    })
}

/// Whether the process at the other end, which says nothing more, has ended, or does so in time:
/// the connection lasts as long as it.
pub(crate) fn has_ended(line: &UnixStream) -> io::Result<bool> {
    has_ended_within(line, END_PATIENCE)
}

fn has_ended_within(line: &UnixStream, patience: Duration) -> io::Result<bool> {
    process::wait_until_readable(line, Some(patience))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_lives_and_one_that_is_gone_are_not_taken_for_killed() {
        let (one, other) = UnixStream::pair().unwrap();
        assert!(!is_at(&one).unwrap(), "this process lives");
        drop(other);
        assert!(!is_at(&one).unwrap(), "nothing keeps the connection");
    }
}
