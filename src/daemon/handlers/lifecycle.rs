//! The daemon itself: who it is, and its end.

use std::fs;
use std::sync::Arc;

use crate::daemon::failure::{ErrorCode, Failure};
use crate::daemon::protocol::{Answer, DaemonInfo, PROTOCOL_VERSION, Response};
use crate::daemon::slots::{Daemon, Slot};
use crate::fuse::UnmountMode;

/// What a stop does about programs that use a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insistence {
    /// Nothing is stopped.
    Refuse,
    /// Every mount is detached; the programs get errors.
    Force,
    /// Only what is in use is detached, the rest unmounted cleanly: the process is told to end and has no choice.
    DetachBusy,
}

pub fn status(daemon: &Arc<Daemon>) -> Response {
    daemon.refuse_if_stopping()?;
    let (records, _) = daemon.store.records();
    Ok(Answer::Daemon(DaemonInfo {
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        store: daemon.store.dir().to_owned(),
        started_secs: daemon.started_secs,
        forks: records.len(),
        mounts: daemon.mounts(),
        memory_bytes: resident_bytes().unwrap_or(0),
    }))
}

/// The `VmRSS:` line of `/proc/self/status`, which is in KiB.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Unmounts everything, so that the process can end. What was mounted is remembered as such. On a failure everything is
/// as before.
pub fn stop(daemon: &Arc<Daemon>, insistence: Insistence) -> Response {
    daemon.stop_with(|| {
        let slots = daemon.slots();
        match insistence {
            Insistence::Refuse => {
                refuse_if_busy(daemon, &slots)?;
                unmount_all(daemon, &slots)
            }
            Insistence::Force | Insistence::DetachBusy => {
                detach_all(daemon, &slots, insistence);
                Ok(())
            }
        }
    })?;
    log::info!("the daemon ends");
    Ok(Answer::Done)
}

/// Unmounts everything where the repository was moved or removed; whether it was. Every path that this process has
/// leads to nothing then, or into another repository; a daemon at the new place goes on with what the store holds.
pub fn end_if_displaced(daemon: &Arc<Daemon>) -> bool {
    if daemon.store.is_in_place() {
        return false;
    }
    log::warn!("{} is no longer there", daemon.store.dir().display());
    match stop(daemon, Insistence::DetachBusy) {
        Ok(_) => true,
        Err(failure) => {
            // Another thread stopped it.
            log::info!("{failure}");
            true
        }
    }
}

fn refuse_if_busy(daemon: &Arc<Daemon>, slots: &[Arc<Slot>]) -> Result<(), Failure> {
    let busy: Vec<Failure> = slots
        .iter()
        .filter_map(|slot| daemon.turn_even_stopping(slot).refuse_if_busy().err())
        .collect();
    match busy.first() {
        None => Ok(()),
        Some(only) if busy.len() == 1 => Err(only.clone()),
        Some(_) => {
            let failure = Failure::new(ErrorCode::Busy, format!("{} mounts are in use", busy.len()))
                .hint("end these programs or let them leave the mounts, or add `--force`");
            Err(busy
                .iter()
                .fold(failure, |failure, one| failure.cause(one.to_string())))
        }
    }
}

/// Unmounts everything cleanly; if one cannot be, those before it are mounted again.
fn unmount_all(daemon: &Arc<Daemon>, slots: &[Arc<Slot>]) -> Result<(), Failure> {
    let mut unmounted = Vec::new();
    for slot in slots {
        let turn = daemon.turn_even_stopping(slot);
        let Some(dir) = turn.mount_dir() else {
            continue;
        };
        let allow_other = turn.allows_other();
        if let Err(failure) = turn.unmount(UnmountMode::Clean) {
            drop(turn);
            for (slot, dir, allow_other) in unmounted {
                let turn = daemon.turn_even_stopping(slot);
                turn.mount_or_note(dir, allow_other);
            }
            return Err(failure);
        }
        unmounted.push((slot, dir, allow_other));
    }
    Ok(())
}

fn detach_all(daemon: &Arc<Daemon>, slots: &[Arc<Slot>], insistence: Insistence) {
    for slot in slots {
        let turn = daemon.turn_even_stopping(slot);
        let cleanly = match insistence {
            Insistence::Force => Err(None),
            Insistence::Refuse | Insistence::DetachBusy => turn.unmount(UnmountMode::Clean).map_err(Some),
        };
        if let Err(failure) = cleanly {
            if let Some(failure) = failure {
                log::warn!("{failure}");
            }
            if let Err(failure) = turn.unmount(UnmountMode::Force) {
                log::error!("{failure}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_has_memory() {
        assert!(super::resident_bytes().unwrap() > 1 << 20);
    }
}
