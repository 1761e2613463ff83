//! Stopping a daemon: by request, or by a kill if it does not answer.
//!
//! A kill loses no acknowledged write, but it leaves dead mounts. tine ends their FUSE connections,
//! so that blocked programs get an error, and detaches them.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::connection::Client;
use super::{killed, silent};
use tine_daemon::socket;
use tine_git::Repository;
use tine_ops::Stop;
use tine_ops::failure::{ErrorCode, Failure};
use tine_store::Store;
use tine_sys::process;

/// Maximum time for the first answer before a forced kill.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for unmounting everything before a forced kill.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Result of [`stop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    /// The repository had no daemon.
    NotRunning,
    /// The daemon unmounted everything and ended.
    Ended,
    /// The daemon did not answer and was killed.
    Killed,
}

/// Stops the daemon of `repository`.
///
/// With `force`, programs that use a mount lose it, and a daemon that does not answer is killed.
/// Blocks until the daemon has ended.
///
/// # Errors
/// `busy` without `force` while programs use a mount. `daemon-unreachable` if the daemon does not
/// answer or cannot be ended.
pub fn stop(repository: &Repository, force: bool) -> Result<StopOutcome, Failure> {
    if !force {
        return match Client::connect(repository.common_dir())? {
            None => match silent::find(repository.common_dir(), ANSWER_TIMEOUT)? {
                None => Ok(StopOutcome::NotRunning),
                Some(pid) => Err(Failure::new(
                    ErrorCode::DaemonUnreachable,
                    format!("the daemon (process {pid}) starts or ends, and does not answer"),
                )
                .hint("`tine daemon stop --force` ends it, whatever state it is in")),
            },
            Some(mut client) => client.call(&Stop { force }).map(|_| StopOutcome::Ended),
        };
    }
    // This connection identifies the process to kill, so it is made before the request.
    let Some(line) = socket::connect(&Store::dir_of(repository))? else {
        return end_silent(repository);
    };
    let asked = match Client::connect_within(repository.common_dir(), ANSWER_TIMEOUT) {
        // The daemon was already ending.
        Ok(None) if killed::has_ended(&line).unwrap_or(false) => return Ok(StopOutcome::Ended),
        Ok(None) => Err(
            Failure::new(ErrorCode::DaemonUnreachable, "the daemon does not end")
                .hint("`tine daemon stop --force` ends it, whatever state it is in"),
        ),
        Ok(Some(mut client)) => client.call_within(&Stop { force }, STOP_TIMEOUT),
        Err(failure) => Err(failure),
    };
    match asked {
        Ok(_) => Ok(StopOutcome::Ended),
        Err(failure) if failure.code == ErrorCode::DaemonUnreachable => {
            log::info!("{failure}");
            kill(repository, &line)?;
            Ok(StopOutcome::Killed)
        }
        Err(failure) => Err(failure),
    }
}

/// Kills a daemon without a socket, if it has none after [`ANSWER_TIMEOUT`].
fn end_silent(repository: &Repository) -> Result<StopOutcome, Failure> {
    let common_dir = repository.common_dir();
    let Some(pid) = silent::find(common_dir, ANSWER_TIMEOUT)? else {
        // The daemon may have bound its socket meanwhile.
        return match socket::connect(&Store::dir_of(repository))? {
            Some(_) => stop(repository, true),
            None => Ok(StopOutcome::NotRunning),
        };
    };
    log::info!("the daemon (process {pid}) starts or ends, and does not answer");
    if !silent::kill(common_dir)? {
        return Err(Failure::new(
            ErrorCode::DaemonUnreachable,
            format!("the daemon (process {pid}) was killed and has not ended"),
        )
        .hint(format!(
            "`cat /proc/{pid}/task/*/stack` as root shows what the kernel waits for"
        )));
    }
    detach_mounts(repository)?;
    Ok(StopOutcome::Killed)
}

/// Detaches the mounts of a daemon that has ended.
fn detach_mounts(repository: &Repository) -> Result<(), Failure> {
    for dir in Store::recorded_mount_dirs(&Store::dir_of(repository)) {
        tine_fuse::detach_stale(&dir)?;
    }
    Ok(())
}

/// Kills the peer of `line`, a daemon, and detaches its mounts.
fn kill(repository: &Repository, line: &UnixStream) -> Result<(), Failure> {
    let failed =
        |action: &str, error: &io::Error| Failure::io(action, &Store::dir_of(repository), error);
    let daemon =
        process::peer_credentials(line).map_err(|error| failed("ask who serves", &error))?;
    process::kill(daemon.pid).map_err(|error| failed("kill the daemon of", &error))?;
    let store_dir = Store::dir_of(repository);
    if !killed::has_ended(line).map_err(|error| failed("wait for the daemon of", &error))? {
        killed::release(&store_dir, line)?;
    }
    detach_mounts(repository)
}
