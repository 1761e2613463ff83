//! Killed daemons that cannot end because they wait for themselves.
//!
//! The deadlock: a program holds the kernel's lock of a directory and waits for the daemon's
//! answer. A thread of the daemon sends an invalidation and waits in the kernel for that lock.
//! After SIGKILL no thread answers, but the waiting thread keeps `/dev/fuse`, the store's lock and
//! the socket open. The kernel accepts connections to a process that never reads from them.
//!
//! Ending the FUSE connections of the mounts frees the program and the thread, and the process
//! ends.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tine_ops::failure::{ErrorCode, Failure};
use tine_store::Store;
use tine_sys::process;

/// Maximum time for the kernel to end a killed process.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns whether the peer was killed and cannot end.
///
/// Its main thread has ended, but the connection is open. Such a process was killed or has returned
/// from `main`, and never answers. Returns false for every process that may still answer, and if
/// that cannot be known (another pid namespace).
pub(crate) fn is_killed(line: &UnixStream) -> io::Result<bool> {
    let peer = process::peer_credentials(line)?;
    // The open connection proves that the process still exists, so no other process has its id.
    Ok(process::main_thread_has_ended(peer.pid) && !has_ended_within(line, Duration::ZERO)?)
}

/// Ends the FUSE connections of a killed daemon's mounts.
///
/// That allows its process to end.
pub(crate) fn release(store_dir: &Path, line: &UnixStream) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("end the daemon of", store_dir, &error);
    let daemon = process::peer_credentials(line).map_err(failed)?.pid;
    log::info!(
        "the daemon (process {daemon}) was killed and waits for its own mounts, which are cut off"
    );
    let mut refused = None;
    for dir in Store::recorded_mount_dirs(store_dir) {
        // Until the process has ended, no other daemon can have the store and serve the mounts.
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

/// Waits for the peer to end, for [`END_TIMEOUT`] at most.
///
/// Returns whether it has ended. The peer must not send anything more: its end is the end of the
/// connection.
pub(crate) fn has_ended(line: &UnixStream) -> io::Result<bool> {
    has_ended_within(line, END_TIMEOUT)
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
        assert!(!is_killed(&one).unwrap(), "this process lives");
        drop(other);
        assert!(!is_killed(&one).unwrap(), "nothing keeps the connection");
    }
}
