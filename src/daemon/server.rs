//! Life cycle of the daemon: start, service, maintenance, end.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::launch::Reporter;
use super::{connection, journal, socket};
use tine_attr::Timestamp;
use tine_change::recovery;
use tine_git::{Repository, program};
use tine_ops::failure::{ErrorCode, Failure};
use tine_ops::state::slots::Daemon;
use tine_ops::state::{generations, handoffs, overlay};
use tine_ops::{StopMode, transfer};
use tine_store::Store;
use tine_sys::{mapping, memory, process};

/// Options of a daemon.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Interval of maintenance. The default is 5 seconds.
    ///
    /// Maintenance syncs forks to the disk and adopts contents that git has.
    pub maintenance_every: Duration,
    /// Time without mounts and clients after which the daemon ends.
    ///
    /// The default is 10 minutes.
    pub idle_limit: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            maintenance_every: Duration::from_secs(5),
            idle_limit: Duration::from_secs(600),
        }
    }
}

/// Runs a repository's daemon in this process until it stops.
///
/// The daemon takes the store's lock, detaches stale mounts, mounts the forks that were mounted
/// before, and serves the socket. `common_dir` is the repository's common git directory.
///
/// If a client launched this process, the daemon first goes into the background, so no other thread
/// may run. It reports its start or failure to the client.
///
/// # Errors
/// The failure of the start, such as `store-locked` or `newer-format`. If a client launched this
/// process, only the client gets the failure of the start, and the result is `Ok`.
pub fn run(common_dir: &Path) -> Result<(), Failure> {
    run_with(common_dir, &ServerOptions::default())
}

/// Runs the daemon with these options, like [`run`].
///
/// # Errors
/// The errors of [`run`].
pub fn run_with(common_dir: &Path, options: &ServerOptions) -> Result<(), Failure> {
    let reporter = Reporter::new()?;
    journal::init();
    let (daemon, listener) = match (start(common_dir), reporter) {
        (Ok(started), Some(reporter)) => {
            reporter.report(Ok(()));
            started
        }
        (Ok(started), None) => started,
        (Err(failure), Some(reporter)) => {
            // Not an error: the process that has the store also serves the client.
            if failure.code != ErrorCode::StoreLocked {
                log::error!("{failure}");
            }
            reporter.report(Err(&failure));
            return Ok(());
        }
        (Err(failure), None) => return Err(failure),
    };
    log::info!(
        "tine {} serves {}",
        env!("CARGO_PKG_VERSION"),
        daemon.store.dir().display()
    );
    if let Err(error) = mapping::survive_unreadable_pages() {
        log::warn!("a disk that cannot be read will end this daemon: {error}");
    }
    // Every mount keeps several files open.
    if let Err(error) = process::raise_open_files_limit() {
        log::warn!("the limit of open files stays: {error}");
    }
    overlay::follow_buffers(&daemon);
    tine_ops::recover(&daemon);
    tine_ops::buffers::recover(&daemon);
    handoffs::recover(&daemon);
    generations::make_wanted(&daemon);
    serve(&daemon, listener)?;
    run_maintenance(&daemon, options);
    if daemon.store.is_in_place() {
        socket::remove(daemon.store.dir());
    }
    Ok(())
}

/// Opens the store and binds the socket.
///
/// Clients that connect after this wait until the forks are recovered.
fn start(common_dir: &Path) -> Result<(Arc<Daemon>, UnixListener), Failure> {
    program::check_version()?;
    let repository = Repository::open(common_dir)?;
    let store = Store::open(&repository)?;
    transfer::clear_forgotten(store.dir());
    if let Err(error) = recovery::convert_refs(&store, &repository) {
        log::warn!("what an earlier tine kept stays where it is: {error}");
    }
    let loan = store.lend_inodes();
    let listener = socket::bind(store.dir())?;
    drop(loan);
    // This is read at the start, because the file may be replaced later.
    let program = std::env::current_exe().ok();
    let daemon = Daemon::new(repository, store, program);
    end_on_signals(&daemon)?;
    Ok((daemon, listener))
}

/// Stops the daemon on SIGTERM, SIGINT and SIGHUP.
fn end_on_signals(daemon: &Arc<Daemon>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(ErrorCode::Internal, "signals could not be taken").cause(error.to_string())
    };
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let daemon = daemon.clone();
    let wait = move || {
        for signal in signals.forever() {
            log::info!("told to end by signal {signal}");
            match tine_ops::stop(&daemon, StopMode::DetachBusy) {
                Ok(_) => daemon.presence.quit(),
                Err(failure) => log::warn!("{failure}"),
            }
        }
    };
    let spawned = thread::Builder::new().name("signals".into()).spawn(wait);
    spawned.map(drop).map_err(failed)
}

/// Starts the thread that accepts connections.
fn serve(daemon: &Arc<Daemon>, listener: UnixListener) -> Result<(), Failure> {
    let daemon = daemon.clone();
    let accept = move || connection::accept_all(&daemon, &listener);
    let spawned = thread::Builder::new().name("accept".into()).spawn(accept);
    spawned.map(drop).map_err(|error| {
        Failure::new(ErrorCode::Internal, "no thread to serve the socket").cause(error.to_string())
    })
}

/// Runs maintenance periodically until the daemon is stopped or idle.
fn run_maintenance(daemon: &Arc<Daemon>, options: &ServerOptions) {
    let mut heap = Heap::default();
    // Opening the store has already collected garbage of earlier processes.
    let mut collected_at = Instant::now();
    let mut expired_at: Option<Instant> = None;
    while !daemon
        .presence
        .wait(Instant::now() + options.maintenance_every)
    {
        if tine_ops::end_if_displaced(daemon) {
            break;
        }
        for slot in daemon.slots() {
            daemon.maintain(&slot);
        }
        daemon.repository.confirm_pending();
        if let Err(error) = daemon.repository.restore_held() {
            log::warn!("objects that forks made could not be looked at: {error}");
        }
        if expired_at.is_none_or(|at| at.elapsed() >= COLLECT_EVERY) {
            expired_at = Some(Instant::now());
            expire_recover_entries(daemon);
        }
        if collected_at.elapsed() >= COLLECT_EVERY {
            collected_at = Instant::now();
            if let Err(error) = daemon.store.collect() {
                log::warn!("what nothing reaches could not be freed: {error}");
            }
        }
        heap.trim();
        let alone_for = daemon.presence.alone_for();
        let is_idle = alone_for.is_some_and(|time| time >= options.idle_limit)
            && daemon.mounts() == 0
            && !daemon.handoffs.is_busy();
        if is_idle {
            log::info!(
                "nothing is mounted and nobody asked for {:?}",
                options.idle_limit
            );
            match tine_ops::stop(daemon, StopMode::Refuse) {
                Ok(_) => break,
                Err(failure) => log::warn!("{failure}"),
            }
        }
    }
    daemon.presence.close();
}

/// Removes expired entries of `tine recover`.
///
/// Entries expire if they are too old or too many.
fn expire_recover_entries(daemon: &Daemon) {
    let expired = daemon.repository_now().and_then(|repository| {
        Ok(recovery::maintain(
            &daemon.store,
            &repository,
            Timestamp::now().secs,
        )?)
    });
    match expired {
        Ok(expired) if expired.entries > 0 => {
            log::info!("{} entries of `tine recover` expired", expired.entries);
        }
        Ok(_) => {}
        Err(failure) => log::warn!("what was dropped could not be looked after: {failure}"),
    }
}

/// Interval of garbage collection in the store.
///
/// Commands that remove something also collect.
const COLLECT_EVERY: Duration = Duration::from_secs(60 * 60);

/// Minimum number of unused bytes that are returned to the kernel.
const MIN_TRIM_BYTES: u64 = 16 << 20;

/// Unused memory of the C library's heap.
///
/// By itself, the library returns only memory at the end of the heap to the kernel.
#[derive(Default)]
struct Heap {
    /// Unused bytes that are already returned to the kernel.
    returned_bytes: u64,
}

impl Heap {
    /// Returns unused memory to the kernel, if there is enough of it.
    fn trim(&mut self) {
        let unused = memory::unused_heap_bytes();
        if unused > self.returned_bytes.saturating_add(MIN_TRIM_BYTES) {
            memory::trim_heap();
        } else if unused > self.returned_bytes {
            return;
        }
        // If `unused` has decreased, the heap uses returned memory again.
        self.returned_bytes = unused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tine_git::testing::TestRepository;

    #[test]
    fn a_daemon_ends_when_nobody_needs_it_and_not_before() {
        let place = TestRepository::new();
        let repository = place.open();
        let store = Store::open(&repository).expect("a new store");
        let daemon = Daemon::new(repository, store, None);
        let options = ServerOptions {
            maintenance_every: Duration::from_millis(1),
            idle_limit: Duration::from_millis(5),
        };
        daemon.presence.arrive();
        thread::scope(|scope| {
            let life = scope.spawn(|| run_maintenance(&daemon, &options));
            // Many rounds of maintenance: a client is there.
            let patience = Instant::now() + 20 * options.idle_limit;
            assert!(!daemon.presence.wait(patience));
            assert!(!life.is_finished());
            daemon.presence.leave();
            life.join().expect("it ends");
        });
        let ended = daemon.refuse_if_stopping().expect_err("it has stopped");
        assert_eq!(ended.code, ErrorCode::DaemonUnreachable);
    }
}
