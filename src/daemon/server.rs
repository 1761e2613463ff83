//! The daemon's life: start, serving, upkeep, end.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::failure::{ErrorCode, Failure};
use super::handlers::{self, Insistence};
use super::launch::Reporter;
use super::slots::Daemon;
use super::{connection, journal, socket};
use crate::git::{Repository, program};
use crate::workspace::Store;

/// How a daemon lives.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// How often what was written is brought to the disk.
    pub sync_every: Duration,
    /// How long a daemon without mounts and clients waits before it ends.
    pub idle_limit: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            sync_every: Duration::from_secs(5),
            idle_limit: Duration::from_secs(600),
        }
    }
}

/// Runs the daemon of the repository with this common directory in this process until it is told to stop: takes the
/// store's lock, detaches stale mounts, mounts again what was mounted, then serves the socket.
///
/// Where a client launched this process, it goes into the background first (so no thread may have been started yet) and
/// reports to that client; a failure to start is then reported and no error here.
pub fn run(common_dir: &Path) -> Result<(), Failure> {
    run_with(common_dir, &ServerOptions::default())
}

/// As [`run`], with choices.
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
            // Who has the store serves the client, too: nothing to log.
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
    handlers::recover(&daemon);
    serve(&daemon, listener)?;
    upkeep(&daemon, options);
    socket::remove(daemon.store.dir());
    Ok(())
}

/// Takes the store and binds the socket. Whoever connects from now on waits until the forks are recovered.
fn start(common_dir: &Path) -> Result<(Arc<Daemon>, UnixListener), Failure> {
    program::check_version()?;
    let repository = Repository::open(common_dir)?;
    let store = Store::open(&repository)?;
    let listener = socket::bind(store.dir())?;
    let daemon = Arc::new(Daemon::new(repository, store));
    end_on_signals(&daemon)?;
    Ok((daemon, listener))
}

/// Ends the daemon in order when the system or a terminal asks for it.
fn end_on_signals(daemon: &Arc<Daemon>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(ErrorCode::Internal, "signals could not be taken").cause(error.to_string())
    };
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let daemon = daemon.clone();
    let wait = move || {
        for signal in signals.forever() {
            log::info!("told to end by signal {signal}");
            match handlers::stop(&daemon, Insistence::DetachBusy) {
                Ok(_) => daemon.presence.quit(),
                Err(failure) => log::warn!("{failure}"),
            }
        }
    };
    let spawned = thread::Builder::new().name("signals".into()).spawn(wait);
    spawned.map(drop).map_err(failed)
}

fn serve(daemon: &Arc<Daemon>, listener: UnixListener) -> Result<(), Failure> {
    let daemon = daemon.clone();
    let accept = move || connection::accept_all(&daemon, &listener);
    let spawned = thread::Builder::new().name("accept".into()).spawn(accept);
    spawned.map(drop).map_err(|error| {
        Failure::new(ErrorCode::Internal, "no thread to serve the socket").cause(error.to_string())
    })
}

/// Brings to the disk what was written, again and again, until the daemon is to end or has nothing to do.
fn upkeep(daemon: &Arc<Daemon>, options: &ServerOptions) {
    let started = Instant::now();
    while !daemon.presence.wait(Instant::now() + options.sync_every) {
        for slot in daemon.slots() {
            slot.sync();
        }
        let is_idle = daemon.mounts() == 0
            && daemon
                .presence
                .alone_since(started)
                .is_some_and(|since| since.elapsed() >= options.idle_limit);
        if is_idle {
            log::info!("nothing is mounted and nobody asked for {:?}", options.idle_limit);
            match handlers::stop(daemon, Insistence::Refuse) {
                Ok(_) => return,
                Err(failure) => log::warn!("{failure}"),
            }
        }
    }
}
