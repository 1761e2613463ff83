//! Ending a daemon from outside: asking it to, and killing one that does not answer.
//!
//! Killing loses no acknowledged write, but leaves mounts behind that answer nothing: they are cut
//! off, which frees whoever waits for them, and detached.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::connection::Client;
use super::{killed, silent};
use tine_daemon::socket;
use tine_git::Repository;
use tine_ops::Stop;
use tine_ops::failure::{ErrorCode, Failure};
use tine_sys::process;
use tine_workspace::Store;

/// How long a daemon may take to say who it is before a forced stop kills it.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// How long it may then take to unmount everything.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// What came of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    NotRunning,
    /// It unmounted everything and ended.
    Ended,
    /// It did not answer and was killed.
    Killed,
}

/// Ends the daemon of `repository`. Refused while programs use a mount; with `force` they are cut
/// off, and a daemon that does not answer is killed.
pub fn stop(repository: &Repository, force: bool) -> Result<StopOutcome, Failure> {
    if !force {
        return match Client::connect(repository.common_dir())? {
            None => match silent::find(repository.common_dir(), ANSWER_PATIENCE)? {
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
    // Connected before it is asked anything, so that it is known whom to kill.
    let Some(line) = socket::connect(&Store::dir_of(repository))? else {
        return end_silent(repository);
    };
    let asked = match Client::connect_within(repository.common_dir(), ANSWER_PATIENCE) {
        // It was ending already.
        Ok(None) if killed::has_ended(&line).unwrap_or(false) => return Ok(StopOutcome::Ended),
        Ok(None) => Err(
            Failure::new(ErrorCode::DaemonUnreachable, "the daemon does not end")
                .hint("`tine daemon stop --force` ends it, whatever state it is in"),
        ),
        Ok(Some(mut client)) => client.call_within(&Stop { force }, STOP_PATIENCE),
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

/// Kills a daemon that has no socket yet, or no more, where it still is like that after a while.
fn end_silent(repository: &Repository) -> Result<StopOutcome, Failure> {
    let common_dir = repository.common_dir();
    let Some(pid) = silent::find(common_dir, ANSWER_PATIENCE)? else {
        // It may listen by now.
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

/// Clears away the mounts of a daemon that is gone.
fn detach_mounts(repository: &Repository) -> Result<(), Failure> {
    for dir in Store::recorded_mount_dirs(&Store::dir_of(repository)) {
        tine_fuse::detach_stale(&dir)?;
    }
    Ok(())
}

/// Kills the daemon at the other end of `line` and clears its mounts away.
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
