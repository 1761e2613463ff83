//! The daemon's status, checks of its store, and its end.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{
    Acknowledged, DaemonInfo, Metrics, MountMetrics, PROTOCOL_VERSION, SetAsideList, StoreChecked,
};
use crate::state::room;
use crate::state::slots::{Daemon, Slot, busy};
use tine_fuse::UnmountMode;
use tine_store::{CheckOptions, CheckReport, Depth};
use tine_sys::namespace::mount_namespace_of;
use tine_sys::{parallel, process};

/// Identity of the running daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DaemonStatus {}

impl Operation for DaemonStatus {
    const NAME: &'static str = "status";
    const ANY_VERSION: bool = true;
    type Answer = DaemonInfo;

    fn run(self, call: &Call<'_>) -> Result<DaemonInfo, Failure> {
        status(call.daemon)
    }
}

/// Figures of what the daemon holds in memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadMetrics {}

impl Operation for ReadMetrics {
    const NAME: &'static str = "figures";
    type Answer = Metrics;

    fn run(self, call: &Call<'_>) -> Result<Metrics, Failure> {
        Ok(figures(call.daemon))
    }
}

/// Unmount every fork and end the daemon
///
/// The forks and their changes stay; the next command starts the daemon again, which mounts what
/// was mounted.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine daemon stop
  tine daemon stop --force     even while programs use a mount, or if it hangs")]
pub struct Stop {
    /// Detach mounts that are in use; kill a daemon that does not answer
    #[arg(short, long)]
    pub force: bool,
}

impl Operation for Stop {
    const NAME: &'static str = "stop";
    const ANY_VERSION: bool = true;
    type Answer = Acknowledged;

    fn frees_space(&self) -> bool {
        true
    }

    fn run(self, call: &Call<'_>) -> Result<Acknowledged, Failure> {
        let mode = if self.force {
            StopMode::Force
        } else {
            StopMode::Refuse
        };
        stop(call.daemon, mode)?;
        Ok(Acknowledged {})
    }
}

/// Check that everything the forks need is there and whole
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct Check {
    /// Put right what can be
    #[arg(long)]
    #[serde(default)]
    pub repair: bool,

    /// Say what --repair would do, and do nothing
    #[arg(short = 'n', long, requires = "repair")]
    #[serde(default)]
    pub dry_run: bool,

    /// True to skip reading the bytes of files.
    #[arg(skip)]
    #[serde(default)]
    pub brief: bool,
}

impl Check {
    /// Returns the options for the store's check.
    pub fn options(&self) -> CheckOptions {
        CheckOptions {
            depth: if self.brief {
                Depth::Places
            } else {
                Depth::Bytes
            },
            repair: self.repair,
            dry_run: self.dry_run,
        }
    }
}

impl Operation for Check {
    const NAME: &'static str = "check";
    const PROGRESS: &'static str = "checking";
    type Answer = StoreChecked;

    fn run(self, call: &Call<'_>) -> Result<StoreChecked, Failure> {
        check(call.daemon, self.options()).map(Into::into)
    }
}

/// Lists what repairs set aside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListSetAside {
    /// Number of one that is put back first.
    pub put_back: Option<u64>,
}

impl Operation for ListSetAside {
    const NAME: &'static str = "set-aside";
    const PROGRESS: &'static str = "putting back";
    type Answer = SetAsideList;

    fn run(self, call: &Call<'_>) -> Result<SetAsideList, Failure> {
        let daemon = call.daemon;
        daemon.refuse_if_stopping()?;
        let _rounds = daemon.rounds.lock();
        let _reviews = daemon.reviews.lock();
        let put_back = self
            .put_back
            .map(|number| daemon.store.put_back(number))
            .transpose()?;
        Ok(SetAsideList {
            set_aside: daemon.store.set_aside()?,
            put_back,
        })
    }
}

/// Treatment of mounts that programs use, when the daemon stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Stops nothing if a mount is in use.
    Refuse,
    /// Detaches every mount. The programs get errors.
    Force,
    /// Detaches mounts that are in use, and unmounts the others cleanly.
    ///
    /// This is for a process that must end, as after a signal.
    DetachBusy,
}

pub(crate) fn status(daemon: &Arc<Daemon>) -> Result<DaemonInfo, Failure> {
    daemon.refuse_if_stopping()?;
    let (records, _) = daemon.store.records();
    Ok(DaemonInfo {
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        store: daemon.store.dir().to_owned(),
        started_secs: daemon.started_secs,
        forks: records.len(),
        mounts: daemon.mounts(),
        memory_bytes: resident_bytes().unwrap_or(0),
        mount_namespace: mount_namespace_of(Path::new("/proc/self")),
    })
}

/// Checks the store, and repairs it if `options` say so.
///
/// During a repair it holds the locks of reviews and rounds, so that reviews, handoffs and sessions
/// do not change.
pub(crate) fn check(daemon: &Arc<Daemon>, options: CheckOptions) -> Result<CheckReport, Failure> {
    daemon.refuse_if_stopping()?;
    let _rounds = options.repair.then(|| daemon.rounds.lock());
    let _reviews = options.repair.then(|| daemon.reviews.lock());
    // Reopening also finds a FIFO in the place of a ref.
    let report = tine_change::check::check(&daemon.store, &daemon.repository.reopened()?, options)?;
    for finding in &report.findings {
        log::warn!(
            "{} {}: {}",
            finding.kind.word(),
            finding.what,
            finding.detail
        );
    }
    Ok(report)
}

fn figures(daemon: &Arc<Daemon>) -> Metrics {
    let mut figures = Metrics {
        remembered_nodes: 0,
        layer_nodes: 0,
        layer_names: 0,
        caches: daemon.store.cache_figures(),
        threads: status_line("Threads:")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        open_files: room::open_files().unwrap_or(0),
        open_files_limit: process::open_files_limit().unwrap_or(0),
        mounted: Vec::new(),
    };
    for slot in daemon.slots() {
        // The workspace's lock may block, so the slot must not be locked meanwhile.
        if let Some(workspace) = slot.with_open_fork(|fork| fork.workspace.clone()) {
            let layer = workspace.stats();
            figures.remembered_nodes += workspace.remembered();
            figures.layer_nodes += layer.nodes;
            figures.layer_names += layer.dentries;
        }
        if let Some((transport, counts)) = slot.requests() {
            let came = counts.into_iter().filter(|(_, count)| *count > 0);
            figures.mounted.push(MountMetrics {
                fork: slot.name.clone(),
                transport: transport.name().to_owned(),
                requests: came.map(|(kind, count)| (kind.to_owned(), count)).collect(),
            });
        }
    }
    figures
}

pub(crate) fn resident_bytes() -> Option<u64> {
    let text = status_line("VmRSS:")?;
    let kibibytes: u64 = text.strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the value of `key` in `/proc/self/status`.
fn status_line(key: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().to_owned())
}

/// Unmounts everything, so that the process can end. Blocks until then.
///
/// The records still say which forks were mounted. On a failure everything is as before.
///
/// # Errors
/// `busy` if a mount is in use, or another error of unmounting; only with [`StopMode::Refuse`].
pub fn stop(daemon: &Arc<Daemon>, mode: StopMode) -> Result<(), Failure> {
    daemon.stop_with(|| {
        let slots = daemon.slots();
        match mode {
            StopMode::Refuse => {
                refuse_if_busy(&slots)?;
                unmount_all(daemon, &slots)
            }
            StopMode::Force | StopMode::DetachBusy => {
                detach_all(daemon, &slots, mode);
                Ok(())
            }
        }
    })?;
    log::info!("the daemon ends");
    Ok(())
}

/// Unmounts everything if the repository is gone, and returns whether it is.
///
/// The repository was moved or removed then. Every path that this process has leads to nothing, or
/// into another repository. A daemon at the new place continues with the content of the store.
pub fn end_if_displaced(daemon: &Arc<Daemon>) -> bool {
    if daemon.store.is_in_place() {
        return false;
    }
    log::warn!("{} is no longer there", daemon.store.dir().display());
    let places: Vec<PathBuf> = daemon
        .slots()
        .iter()
        .filter_map(|slot| slot.mount_dir())
        .collect();
    match stop(daemon, StopMode::DetachBusy) {
        Ok(_) => {
            places.iter().for_each(|dir| tine_fuse::remove_guard(dir));
            true
        }
        Err(failure) => {
            // Another thread has stopped the daemon.
            log::info!("{failure}");
            true
        }
    }
}

fn refuse_if_busy(slots: &[Arc<Slot>]) -> Result<(), Failure> {
    let mounted: Vec<(&Slot, PathBuf)> = slots
        .iter()
        .filter_map(|slot| Some((&**slot, slot.mount_dir()?)))
        .collect();
    let dirs: Vec<&Path> = mounted.iter().map(|(_, dir)| dir.as_path()).collect();
    let failures: Vec<Failure> = mounted
        .iter()
        .zip(tine_fuse::users_of_each(&dirs))
        .filter(|(_, users)| !users.is_empty())
        .map(|((slot, dir), users)| busy(&slot.name, dir, users))
        .collect();
    all_in_use(failures)
}

/// Combines `busy` failures into one that names all mounts.
///
/// If there is a failure of another kind, it returns the first of those instead. Without failures
/// it succeeds.
fn all_in_use(mut failures: Vec<Failure>) -> Result<(), Failure> {
    let not_in_use = failures
        .iter()
        .position(|failure| failure.code != ErrorCode::Busy);
    match failures.len() {
        0 => Ok(()),
        1 => Err(failures.remove(0)),
        _ if let Some(other) = not_in_use => Err(failures.remove(other)),
        count => {
            let failure = Failure::new(ErrorCode::Busy, format!("{count} mounts are in use"))
                .hint("end these programs or let them leave the mounts, or add `--force`");
            Err(failures
                .iter()
                .fold(failure, |failure, one| failure.cause(one.to_string())))
        }
    }
}

/// Unmounts everything cleanly. If one unmount fails, it mounts the others again.
fn unmount_all(daemon: &Arc<Daemon>, slots: &[Arc<Slot>]) -> Result<(), Failure> {
    let outcomes = at_once(slots, |slot| {
        let guard = daemon.lock_even_stopping(slot);
        let Some((dir, settings)) = guard.mounted_as() else {
            return Ok(None);
        };
        guard.unmount(UnmountMode::Clean)?;
        Ok(Some((slot, dir, settings)))
    });
    let (unmounted, failures): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    let failures: Vec<Failure> = failures.into_iter().filter_map(Result::err).collect();
    if !failures.is_empty() {
        for (slot, dir, settings) in unmounted.into_iter().filter_map(Result::ok).flatten() {
            let guard = daemon.lock_even_stopping(slot);
            guard.mount_or_note(dir, settings);
        }
    }
    all_in_use(failures)
}

fn detach_all(daemon: &Arc<Daemon>, slots: &[Arc<Slot>], mode: StopMode) {
    at_once(slots, |slot| {
        let guard = daemon.lock_even_stopping(slot);
        let cleanly = match mode {
            StopMode::Force => Err(None),
            StopMode::Refuse | StopMode::DetachBusy => {
                guard.unmount(UnmountMode::Clean).map_err(Some)
            }
        };
        if let Err(failure) = cleanly {
            if let Some(failure) = failure {
                log::warn!("{failure}");
            }
            if let Err(failure) = guard.unmount(UnmountMode::Force) {
                log::error!("{failure}");
            }
        }
    });
}

/// Calls `run` with every slot, in several threads, so that waits overlap.
fn at_once<'s, T: Send>(slots: &'s [Arc<Slot>], run: impl Fn(&'s Arc<Slot>) -> T + Sync) -> Vec<T> {
    let outcomes = Mutex::new(Vec::with_capacity(slots.len()));
    let Ok(()) = parallel::at_once(slots, room::UNMOUNTED_AT_ONCE, |slot| {
        let outcome = run(slot);
        outcomes.lock().push(outcome);
        Ok::<(), Infallible>(())
    });
    outcomes.into_inner()
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_has_memory() {
        assert!(super::resident_bytes().unwrap() > 1 << 20);
    }
}
