//! Client side of the daemon's socket.
//!
//! If no daemon answers, [`Client::connect_or_start`] runs [`ConnectOptions::program`] as
//! `tine daemon run --store-of <common-dir>`. That command must call
//! [`run`](tine_daemon::server::run) before it starts any thread.

use std::io::{self, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::killed;
use crate::place::Listener;
use tine_daemon::launch::{self, Launched};
use tine_daemon::{journal, socket, wire};
use tine_git::Repository;
use tine_ops::failure::{ErrorCode, Failure};
use tine_ops::protocol::{Changes, DaemonInfo, ForkInfo, Forks, PROTOCOL_VERSION};
use tine_ops::{
    CallerContext, DaemonStatus, ListForks, Operation, ShowFork, Signers, Status, Stop,
};
use tine_store::{ForkName, Store};
use tine_sys::process;

/// Maximum time for the first answer on a connection.
///
/// A daemon that starts binds its socket before it mounts forks, and answers after that.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time to wait for the socket of another client's daemon.
///
/// A client whose daemon did not get the store's lock waits for this time, then starts a daemon
/// again.
const WINNER_TIMEOUT: Duration = Duration::from_millis(500);

/// Minimum time for one start, even if less of [`ConnectOptions::patience`] is left.
const MIN_LAUNCH_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval at which a waiting client checks that the daemon is alive.
///
/// A killed daemon has usually ended within this time.
const LIFE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Number of consecutive checks after which a stopped daemon is an error.
const MAX_STOPPED_CHECKS: u32 = 3;

/// Options of the connection to a daemon.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Program of a daemon that is started.
    ///
    /// `None`: the current executable if its name begins with `tine`, or else `tine` from `PATH`.
    pub program: Option<PathBuf>,
    /// Maximum time for starting a daemon. The default is 10 seconds.
    pub patience: Duration,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            program: None,
            patience: Duration::from_secs(10),
        }
    }
}

/// Connection to the daemon of one store.
///
/// Requests are answered one at a time. Use one client for each thread.
pub struct Client {
    /// The repository's common git directory.
    common_dir: PathBuf,
    /// Options to connect again if the daemon ends. `None` to fail instead.
    restart: Option<ConnectOptions>,
    stream: BufReader<UnixStream>,
    store_dir: PathBuf,
    info: DaemonInfo,
    /// Surroundings of the caller, sent with every operation.
    pub from: CallerContext,
    /// Receiver of progress, if any.
    listener: Option<Arc<dyn Listener>>,
    /// Length in bytes of the daemon's log at connection time.
    log_start: u64,
}

impl Client {
    /// Connects to a repository's daemon and starts one if necessary.
    ///
    /// `common_dir` is the repository's common git directory. Blocks until the daemon answers. A
    /// new daemon first recovers its forks and mounts those that were mounted before. If several
    /// clients start daemons at the same time, the store's lock makes sure that only one of them
    /// runs.
    ///
    /// # Errors
    /// The failure of the start, with the code from the daemon, such as `newer-format` or
    /// `store-locked`. `daemon-unreachable` if the daemon does not answer in time.
    pub fn connect_or_start(common_dir: &Path) -> Result<Client, Failure> {
        Client::connect_or_start_with(common_dir, &ConnectOptions::default())
    }

    /// Connects with these options, like [`Client::connect_or_start`].
    ///
    /// # Errors
    /// The errors of [`Client::connect_or_start`].
    pub fn connect_or_start_with(
        common_dir: &Path,
        options: &ConnectOptions,
    ) -> Result<Client, Failure> {
        let mut client = Client::find_or_start(common_dir, options)?;
        client.restart = Some(options.clone());
        Ok(client)
    }

    fn find_or_start(common_dir: &Path, options: &ConnectOptions) -> Result<Client, Failure> {
        let deadline = Instant::now() + options.patience;
        loop {
            if let Some(client) = Client::connect(common_dir)? {
                return Ok(client);
            }
            Store::refuse_as_root(&Repository::open(common_dir)?)?;
            // A start that begins shortly before the deadline gets enough time to report a failure.
            let launch_deadline = deadline.max(Instant::now() + MIN_LAUNCH_TIMEOUT);
            let locked =
                match launch::launch(common_dir, options.program.as_deref(), launch_deadline)? {
                    Launched::Listening => None,
                    Launched::StoreLocked(failure) => Some(failure),
                };
            if let Some(client) =
                wait_for_socket(common_dir, deadline.min(Instant::now() + WINNER_TIMEOUT))?
            {
                return Ok(client);
            }
            if Instant::now() >= deadline {
                return Err(
                    locked.unwrap_or_else(|| unreachable(&socket::store_dir(common_dir), 0))
                );
            }
        }
    }

    /// Connects to a running daemon of any version.
    ///
    /// Returns `None` if none runs. Blocks until the daemon answers, for about a minute at most.
    /// The client never starts a daemon.
    ///
    /// # Errors
    /// `daemon-unreachable` if the daemon does not answer, `permission-denied` if it runs as
    /// another user.
    pub fn connect(common_dir: &Path) -> Result<Option<Client>, Failure> {
        Client::connect_within(common_dir, FIRST_ANSWER_TIMEOUT)
    }

    /// Connects like [`Client::connect`], with this timeout for the first answer.
    pub(super) fn connect_within(
        common_dir: &Path,
        timeout: Duration,
    ) -> Result<Option<Client>, Failure> {
        let store_dir = socket::store_dir(common_dir);
        let Some(stream) = socket::connect(&store_dir)? else {
            return Ok(None);
        };
        let failed =
            |error: io::Error| Failure::io("talk to", &store_dir.join(socket::SOCKET_NAME), &error);
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        let mut stream = BufReader::new(stream);
        let from = CallerContext::default();
        let asked = exchange(
            &mut stream,
            &store_dir,
            &wire::encode_request(&from, &DaemonStatus {})?,
        );
        let info: DaemonInfo = match asked {
            Exchange::Answered(response) => response?,
            // The daemon was ending when it accepted.
            Exchange::NotTaken | Exchange::HungUp => return Ok(None),
            Exchange::Stuck(failure) => return Err(failure),
            Exchange::Lost(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                return Err(hanging(&store_dir, stream.get_ref(), timeout));
            }
            Exchange::Lost(error) => {
                return Err(unreachable(&store_dir, 0).cause(error.to_string()));
            }
        };
        stream.get_ref().set_read_timeout(None).map_err(failed)?;
        let log_start =
            std::fs::metadata(store_dir.join(journal::LOG_NAME)).map_or(0, |log| log.len());
        Ok(Some(Client {
            common_dir: common_dir.to_owned(),
            restart: None,
            stream,
            store_dir,
            info,
            from,
            listener: None,
            log_start,
        }))
    }

    /// Returns the daemon's description of itself.
    pub fn info(&self) -> &DaemonInfo {
        &self.info
    }

    /// Sets the receiver of progress.
    #[must_use]
    pub fn with_listener(self, listener: Arc<dyn Listener>) -> Client {
        Client {
            listener: Some(listener),
            ..self
        }
    }

    /// Lists all forks, and a failure for each unreadable fork.
    ///
    /// # Errors
    /// The errors of [`Client::call`].
    pub fn forks(&mut self) -> Result<(Vec<ForkInfo>, Vec<Failure>), Failure> {
        let Forks { forks, damaged } = self.call(&ListForks {})?;
        Ok((forks, damaged))
    }

    /// Returns the description of one fork.
    ///
    /// # Errors
    /// `no-such-fork`, and the errors of [`Client::call`].
    pub fn show(&mut self, fork: &ForkName) -> Result<ForkInfo, Failure> {
        self.call(&ShowFork { fork: fork.clone() })
    }

    /// Lists the changes of a fork against HEAD.
    ///
    /// With `write`, the daemon also writes the view to git's objects and returns the tree's id.
    ///
    /// # Errors
    /// `no-such-fork`, and the errors of [`Client::call`].
    pub fn changes(&mut self, fork: &ForkName, write: bool) -> Result<Changes, Failure> {
        self.call(&Status {
            fork: fork.clone(),
            write,
        })
    }

    /// Calls an operation that makes commits, with this author and committer.
    ///
    /// # Errors
    /// The errors of [`Client::call`].
    pub fn call_as<O: Operation>(
        &mut self,
        operation: &O,
        signers: &Signers,
    ) -> Result<O::Answer, Failure> {
        let Signers { author, committer } = signers.clone();
        self.from.author = author;
        self.from.committer = committer;
        let answer = self.call(operation);
        self.from.author = None;
        self.from.committer = None;
        answer
    }

    /// Calls an operation with a timeout for its answer.
    ///
    /// The timeout stays set for later calls.
    pub(super) fn call_within<O: Operation>(
        &mut self,
        operation: &O,
        timeout: Duration,
    ) -> Result<O::Answer, Failure> {
        let set = self.stream.get_ref().set_read_timeout(Some(timeout));
        set.map_err(|error| {
            Failure::io("talk to", &self.store_dir.join(socket::SOCKET_NAME), &error)
        })?;
        self.call(operation)
    }

    /// Calls an operation and returns its answer.
    ///
    /// Blocks until the daemon answers, without a time limit. After [`Stop`] it also waits until
    /// the daemon's process has ended. If the daemon was ending and did not start the operation, a
    /// client from [`Client::connect_or_start`] starts another daemon and sends the request again.
    ///
    /// # Errors
    /// The operation's errors. `daemon-unreachable` if the daemon ends without an answer: the
    /// operation may have been executed. `protocol-mismatch` if the daemon has another version and
    /// the operation is not [for every version](Operation::ANY_VERSION).
    pub fn call<O: Operation>(&mut self, operation: &O) -> Result<O::Answer, Failure> {
        if self.info.protocol != PROTOCOL_VERSION && !O::ANY_VERSION {
            return Err(wire::version_mismatch(
                &PROTOCOL_VERSION.to_string(),
                &self.info.protocol.to_string(),
            ));
        }
        log::debug!("asks the daemon: {}", O::NAME);
        log::trace!("{operation:?}");
        let asked = Instant::now();
        let busy = self
            .listener
            .as_ref()
            .and_then(|listener| listener.begins(O::PROGRESS));
        let line = wire::encode_request(&self.from, operation)?;
        let mut exchanged = exchange(&mut self.stream, &self.store_dir, &line);
        if let Some(options) = self.restart.clone() {
            let deadline = Instant::now() + options.patience;
            while matches!(exchanged, Exchange::NotTaken) && Instant::now() < deadline {
                let (from, listener) = (std::mem::take(&mut self.from), self.listener.take());
                *self = Client::connect_or_start_with(&self.common_dir, &options)?;
                (self.from, self.listener) = (from, listener);
                exchanged = exchange(&mut self.stream, &self.store_dir, &line);
            }
        }
        drop(busy);
        log::debug!("the daemon took {:?}", asked.elapsed());
        let lost = || unreachable(&self.store_dir, self.log_start);
        let answer = match exchanged {
            Exchange::Answered(response) => response?,
            Exchange::NotTaken | Exchange::HungUp => return Err(lost()),
            Exchange::Stuck(failure) => return Err(failure),
            Exchange::Lost(error) => return Err(lost().cause(error.to_string())),
        };
        if O::NAME == Stop::NAME {
            // The connection ends with the process.
            let end = io::copy(&mut self.stream, &mut io::sink());
            if let Err(error) = end {
                log::debug!("the daemon's connection ended with {error}");
            }
        }
        Ok(answer)
    }
}

/// Calls one operation of a running daemon, with a timeout.
///
/// `store_dir` is the store's directory. `patience` limits each write and each read.
///
/// # Errors
/// The operation's errors. `daemon-unreachable` if no daemon runs or it ends without an answer.
/// `io` if the timeout expires.
pub fn ask_running<O: Operation>(
    store_dir: &Path,
    operation: &O,
    patience: Duration,
) -> Result<O::Answer, Failure> {
    let lost = || unreachable(store_dir, 0);
    let stream = socket::connect(store_dir)?.ok_or_else(lost)?;
    let failed =
        |error: io::Error| Failure::io("talk to", &store_dir.join(socket::SOCKET_NAME), &error);
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    stream.set_write_timeout(Some(patience)).map_err(failed)?;
    match exchange(
        &mut BufReader::new(stream),
        store_dir,
        &wire::encode_request(&CallerContext::default(), operation)?,
    ) {
        Exchange::Answered(response) => response,
        Exchange::NotTaken | Exchange::HungUp => Err(lost()),
        Exchange::Stuck(failure) => Err(failure),
        Exchange::Lost(error) => Err(failed(error)),
    }
}

/// Result of a request.
enum Exchange<Answer> {
    Answered(Result<Answer, Failure>),
    /// The daemon ended before it started the request. A retry is safe.
    NotTaken,
    /// The daemon ended without an answer. It may have executed the request.
    HungUp,
    /// The daemon is stopped, or was killed and cannot end. It never answers.
    Stuck(Failure),
    /// Writing or reading failed.
    Lost(io::Error),
}

/// Sends a request line and reads the answer.
fn exchange<Answer: DeserializeOwned>(
    stream: &mut BufReader<UnixStream>,
    store_dir: &Path,
    request: &[u8],
) -> Exchange<Answer> {
    match stream.get_mut().write_all(request) {
        Ok(()) => {}
        Err(error) if is_hangup(&error) => return Exchange::NotTaken,
        Err(error) => return Exchange::Lost(error),
    }
    match wait_for_answer(stream.get_ref()) {
        Ok(Waited::Answer) => {}
        Ok(Waited::Killed) => {
            if let Err(failure) = killed::release(store_dir, stream.get_ref()) {
                return Exchange::Stuck(failure);
            }
        }
        Ok(Waited::Stopped(daemon)) => return Exchange::Stuck(stopped(store_dir, daemon)),
        Err(error) => return Exchange::Lost(error),
    }
    match wire::read_line(stream, u64::MAX) {
        Ok(wire::Line::Complete(line)) => match wire::decode_response(&line) {
            // The daemon itself sends this code only while it is ending.
            Err(failure) if failure.code == ErrorCode::DaemonUnreachable => Exchange::NotTaken,
            response => Exchange::Answered(response),
        },
        Ok(wire::Line::End | wire::Line::TooLong) => Exchange::HungUp,
        // The kernel returns this if the peer closed the socket without reading the request.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Exchange::NotTaken,
        Err(error) => Exchange::Lost(error),
    }
}

/// Result of waiting for an answer.
enum Waited {
    /// The stream is readable.
    Answer,
    /// The daemon was killed and never answers.
    Killed,
    /// The daemon was stopped by a signal. The field is its process id.
    Stopped(u32),
}

/// Waits for an answer, for at most the stream's read timeout.
fn wait_for_answer(stream: &UnixStream) -> io::Result<Waited> {
    let deadline = stream.read_timeout()?.map(|limit| Instant::now() + limit);
    let mut stopped_checks = 0;
    loop {
        let left = deadline.map_or(LIFE_CHECK_INTERVAL, |at| {
            at.saturating_duration_since(Instant::now())
        });
        if process::wait_until_readable(stream, Some(left.min(LIFE_CHECK_INTERVAL)))? {
            return Ok(Waited::Answer);
        }
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        if left < LIFE_CHECK_INTERVAL {
            continue;
        }
        if killed::is_killed(stream)? {
            return Ok(Waited::Killed);
        }
        let daemon = process::peer_credentials(stream)?.pid;
        stopped_checks = if process::is_stopped(daemon) {
            stopped_checks + 1
        } else {
            0
        };
        if stopped_checks >= MAX_STOPPED_CHECKS {
            return Ok(Waited::Stopped(daemon));
        }
    }
}

fn is_hangup(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    )
}

/// Polls the socket until `deadline`, at growing intervals.
fn wait_for_socket(common_dir: &Path, deadline: Instant) -> Result<Option<Client>, Failure> {
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(client) = Client::connect(common_dir)? {
            return Ok(Some(client));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Returns the failure for a daemon that does not answer.
///
/// It holds the store's lock, so no other daemon can replace it while it is alive.
fn hanging(store_dir: &Path, stream: &UnixStream, silent_for: Duration) -> Failure {
    let log = store_dir.join(journal::LOG_NAME);
    let failure = Failure::new(
        ErrorCode::DaemonUnreachable,
        format!("the daemon of {} hangs", store_dir.display()),
    )
    .cause(format!("it has not answered for {silent_for:?}"));
    match process::peer_credentials(stream) {
        Ok(daemon) => failure.hint(format!(
            "`tine daemon stop --force` kills it (process {}), no acknowledged write is lost; the next command starts it again; what it logged is in {}",
            daemon.pid,
            log.display()
        )),
        Err(_) => failure.hint(format!("what it logged is in {}", log.display())),
    }
}

/// Returns the failure for a daemon stopped by a signal (Ctrl-Z).
fn stopped(store_dir: &Path, daemon: u32) -> Failure {
    Failure::new(
        ErrorCode::DaemonUnreachable,
        format!("the daemon of {} is stopped by a signal", store_dir.display()),
    )
    .hint(format!(
        "`kill -CONT {daemon}` lets it go on; `tine daemon stop --force` kills it, no acknowledged write is lost; the next command starts it again"
    ))
}

fn unreachable(store_dir: &Path, log_start: u64) -> Failure {
    let failure = Failure::new(
        ErrorCode::DaemonUnreachable,
        format!("the daemon of {} does not answer", store_dir.display()),
    )
    .hint(format!(
        "try again: the next command starts it again; what it logged is in {}",
        store_dir.join(journal::LOG_NAME).display()
    ));
    match journal::last_error(store_dir, log_start) {
        Some(line) => failure.cause(line),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_hangs_is_named_so_that_it_can_be_ended() {
        let place = tempfile::tempdir().unwrap();
        let store_dir = socket::store_dir(place.path());
        std::fs::create_dir(&store_dir).unwrap();
        // The kernel takes the connection; nobody reads from it.
        let _listener = socket::bind(&store_dir).unwrap();
        let Err(failure) = Client::connect_within(place.path(), Duration::from_millis(20)) else {
            panic!("nobody answered");
        };
        assert_eq!(failure.code, ErrorCode::DaemonUnreachable);
        let hint = failure.hint.unwrap();
        assert!(
            hint.contains(&format!("(process {})", std::process::id())),
            "{hint}"
        );
    }
}
