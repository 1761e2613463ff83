//! The client side of the daemon's socket.
//!
//! Where no daemon answers, [`Client::connect_or_start`] runs this very program as
//! `tine daemon run --store-of <common-dir>`, which must call [`run`](tine_daemon::server::run)
//! before it starts any thread.

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
use tine_ops::{DaemonStatus, ListForks, Operation, ShowFork, Signers, Status, Stop, Surroundings};
use tine_sys::process;
use tine_workspace::{ForkName, Store};

/// How long a daemon that has accepted may take for its first answer: it may be mounting many
/// forks.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client that lost the race for the store looks for the winner's socket before it tries
/// to start one again.
const WINNER_PATIENCE: Duration = Duration::from_millis(500);

/// How long one start may take at least, however little is left of a client's patience.
const MIN_LAUNCH_PATIENCE: Duration = Duration::from_secs(3);

/// How long a daemon is silent before a client looks whether it lives. One that was killed has
/// mostly ended by then.
const LIFE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How often in a row a daemon is seen stopped by a signal before a client waits no longer.
const STOPPED_LOOKS: u32 = 3;

/// How a client comes to its daemon.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The program that is started; default: the one that runs, if it is tine, or else the `tine`
    /// that `PATH` leads to.
    pub program: Option<PathBuf>,
    /// How long a start may take.
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

/// A connection to the daemon of one store.
pub struct Client {
    common_dir: PathBuf,
    /// How to come to another daemon when this one ends; `None` for a client of a running daemon
    /// only.
    restart: Option<ConnectOptions>,
    stream: BufReader<UnixStream>,
    store_dir: PathBuf,
    info: DaemonInfo,
    /// What operations are called from.
    pub from: Surroundings,
    /// Who is told what takes long.
    listener: Option<Arc<dyn Listener>>,
    /// The log's length in bytes when the connection was made.
    log_start: u64,
}

impl Client {
    /// Connects to the daemon of the repository with this common directory, starting it if none
    /// runs, and waits until it answers (a daemon that starts first recovers its forks and mounts
    /// those that were mounted).
    ///
    /// However many clients start at once, one daemon runs in the end: the store's lock decides. A
    /// start that fails is reported with the code that it had in the daemon (newer format, locked,
    /// …).
    pub fn connect_or_start(common_dir: &Path) -> Result<Client, Failure> {
        Client::connect_or_start_with(common_dir, &ConnectOptions::default())
    }

    /// As [`Client::connect_or_start`], with choices.
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
            // Also the last try gets the time that it takes to be told no.
            let launch_deadline = deadline.max(Instant::now() + MIN_LAUNCH_PATIENCE);
            let locked =
                match launch::launch(common_dir, options.program.as_deref(), launch_deadline)? {
                    Launched::Listening => None,
                    Launched::StoreLocked(failure) => Some(failure),
                };
            if let Some(client) =
                wait_for_socket(common_dir, deadline.min(Instant::now() + WINNER_PATIENCE))?
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

    /// Connects to a running daemon, of whatever version; `None` where none runs.
    pub fn connect(common_dir: &Path) -> Result<Option<Client>, Failure> {
        Client::connect_within(common_dir, FIRST_ANSWER_TIMEOUT)
    }

    /// As [`Client::connect`]; a daemon that says nothing for `timeout` hangs.
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
        let from = Surroundings::default();
        let asked = exchange(
            &mut stream,
            &store_dir,
            &wire::encode_request(&from, &DaemonStatus {})?,
        );
        let info: DaemonInfo = match asked {
            Exchange::Answered(response) => response?,
            // It was ending when it accepted.
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

    /// The daemon as it introduced itself.
    pub fn info(&self) -> &DaemonInfo {
        &self.info
    }

    /// Reports progress to `listener`.
    #[must_use]
    pub fn heard_by(self, listener: Arc<dyn Listener>) -> Client {
        Client {
            listener: Some(listener),
            ..self
        }
    }

    /// Lists all forks, and a failure for each that cannot be read.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn forks(&mut self) -> Result<(Vec<ForkInfo>, Vec<Failure>), Failure> {
        let Forks { forks, damaged } = self.call(&ListForks {})?;
        Ok((forks, damaged))
    }

    /// Returns one fork.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn show(&mut self, fork: &ForkName) -> Result<ForkInfo, Failure> {
        self.call(&ShowFork { fork: fork.clone() })
    }

    /// Lists the changes of a fork against HEAD. With `write` the view is also written as a tree.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn changes(&mut self, fork: &ForkName, write: bool) -> Result<Changes, Failure> {
        self.call(&Status {
            fork: fork.clone(),
            write,
        })
    }

    /// Calls an operation that makes commits, with their author and committer.
    ///
    /// # Errors
    /// As [`Client::call`].
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

    /// As [`Client::call`] of a client that starts no other daemon; one that says nothing for
    /// `timeout` hangs.
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

    /// Calls an operation and waits for its answer, however long that takes. After [`Stop`] it also
    /// waits until the daemon's process has let go of the store.
    ///
    /// # Errors
    /// The operation's; `daemon-unreachable`; `protocol-mismatch` where the daemon is of another
    /// version and the operation is not for every version.
    pub fn call<O: Operation>(&mut self, operation: &O) -> Result<O::Answer, Failure> {
        if self.info.protocol != PROTOCOL_VERSION && !O::FOR_EVERY_VERSION {
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
            .and_then(|listener| listener.begins(O::DOING));
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
            // The connection lasts as long as the process.
            let end = io::copy(&mut self.stream, &mut io::sink());
            if let Err(error) = end {
                log::debug!("the daemon's connection ended with {error}");
            }
        }
        Ok(answer)
    }
}

/// Asks the daemon of the store in `store_dir` one thing, if it runs, and waits no longer than
/// `patience` for each part of the answer.
///
/// # Errors
/// The operation's; `daemon-unreachable` where none runs or it does not answer.
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
        &wire::encode_request(&Surroundings::default(), operation)?,
    ) {
        Exchange::Answered(response) => response,
        Exchange::NotTaken | Exchange::HungUp => Err(lost()),
        Exchange::Stuck(failure) => Err(failure),
        Exchange::Lost(error) => Err(failed(error)),
    }
}

/// What came of a request.
enum Exchange<Answer> {
    Answered(Result<Answer, Failure>),
    /// The daemon was ending, or had ended, and did nothing.
    NotTaken,
    /// It ended without an answer; what it did before is not known.
    HungUp,
    /// It was killed and cannot be made to end, or was stopped: it will never answer.
    Stuck(Failure),
    Lost(io::Error),
}

/// Sends a line to the daemon of the store in `store_dir` and reads the answer.
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
            // Said by the daemon itself, this is the one thing that it means.
            Err(failure) if failure.code == ErrorCode::DaemonUnreachable => Exchange::NotTaken,
            response => Exchange::Answered(response),
        },
        Ok(wire::Line::End | wire::Line::TooLong) => Exchange::HungUp,
        // The kernel says so where the other side left without having read the request.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Exchange::NotTaken,
        Err(error) => Exchange::Lost(error),
    }
}

/// What came of waiting for an answer.
enum Waited {
    /// There is something to read.
    Answer,
    /// The daemon was killed and will never say anything.
    Killed,
    /// The process with this number, the daemon, was stopped by a signal.
    Stopped(u32),
}

/// Waits for an answer, as long as the stream's own limit lets it.
fn wait_for_answer(stream: &UnixStream) -> io::Result<Waited> {
    let deadline = stream.read_timeout()?.map(|limit| Instant::now() + limit);
    let mut stopped_looks = 0;
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
        if killed::is_at(stream)? {
            return Ok(Waited::Killed);
        }
        let daemon = process::peer_credentials(stream)?.pid;
        stopped_looks = match process::is_stopped(daemon) {
            true => stopped_looks + 1,
            false => 0,
        };
        if stopped_looks >= STOPPED_LOOKS {
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

/// Tries to connect, soon and then less often, until `deadline`.
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

/// A daemon that has the store and says nothing: as long as it lives no other can take its place.
fn hanging(store_dir: &Path, stream: &UnixStream, silent_for: Duration) -> Failure {
    let log = store_dir.join(journal::LOG_NAME);
    let failure = Failure::new(
        ErrorCode::DaemonUnreachable,
        format!("the daemon of {} hangs", store_dir.display()),
    )
    .cause(format!("it has not answered for {silent_for:?}"));
    match process::peer_credentials(stream) {
        Ok(daemon) => failure.hint(format!(
            "`tine daemon stop --force` kills it (process {}), no acknowledged write is lost; the next command starts it anew; what it logged is in {}",
            daemon.pid,
            log.display()
        )),
        Err(_) => failure.hint(format!("what it logged is in {}", log.display())),
    }
}

/// A daemon that was stopped by a signal, as Ctrl-Z does it: it has the store, and does nothing.
fn stopped(store_dir: &Path, daemon: u32) -> Failure {
    Failure::new(
        ErrorCode::DaemonUnreachable,
        format!("the daemon of {} is stopped by a signal", store_dir.display()),
    )
    .hint(format!(
        "`kill -CONT {daemon}` lets it go on; `tine daemon stop --force` kills it, no acknowledged write is lost; the next command starts it anew"
    ))
}

fn unreachable(store_dir: &Path, log_start: u64) -> Failure {
    let failure = Failure::new(
        ErrorCode::DaemonUnreachable,
        format!("the daemon of {} does not answer", store_dir.display()),
    )
    .hint(format!(
        "try again: the next command starts it anew; what it logged is in {}",
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
