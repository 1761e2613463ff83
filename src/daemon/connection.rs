//! Server side of the socket: checks the peer, reads requests, sends answers.
//!
//! Each connection has a thread.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::wire::{self, Line, MAX_REQUEST_BYTES, Request};
use tine_ops::failure::{ErrorCode, ExitCode, Failure};
use tine_ops::state::slots::Daemon;
use tine_ops::{Call, Editor, Operation, Stop};
use tine_sys::asker;
use tine_sys::process::{self, PeerCredentials};

/// Pause after a failed `accept`, for example with too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of clients, which is also the number of their threads.
const MAX_CLIENTS: usize = 512;

/// Maximum time from the connection to the first request.
///
/// A client sends its first request at once. The time between later requests has no limit.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Read and write timeout of a connection.
///
/// It limits the rest of a request, and the time in which a client must read its answer.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time to wait for a rejected client's request.
///
/// No other connection is accepted during this time.
const REJECT_TIMEOUT: Duration = Duration::from_millis(10);

/// Accepts and serves connections until the process ends.
pub(crate) fn accept_all(daemon: &Arc<Daemon>, listener: &UnixListener) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                log::error!("no connection could be taken: {error}");
                thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        if daemon.presence.arrive() > MAX_CLIENTS {
            daemon.presence.leave();
            // An error means only that the client does not read the answer.
            if let Err(error) = reject(&stream) {
                log::debug!("a client was turned away: {error}");
            }
            continue;
        }
        let serving = daemon.clone();
        let spawned = thread::Builder::new().name("client".into()).spawn(move || {
            if let Err(error) = serve(&serving, &stream) {
                log::debug!("a client went away: {error}");
            }
            serving.presence.leave();
        });
        if let Err(error) = spawned {
            log::error!("no thread for a client: {error}");
            daemon.presence.leave();
        }
    }
}

/// Answers that there are too many clients.
///
/// Reads the request first if it arrives within [`REJECT_TIMEOUT`]. If a request is not read, the
/// client gets a connection reset and assumes that the daemon has ended.
fn reject(mut stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    if process::wait_until_readable(stream, Some(REJECT_TIMEOUT))? {
        let taken = stream.read(&mut [0; 4096])?;
        log::debug!("{taken} bytes of a client that is turned away");
    }
    let failure = Failure::new(
        ErrorCode::Busy,
        format!("{MAX_CLIENTS} programs are connected to the daemon already"),
    )
    .hint("end some of them, or try again later");
    send::<()>(stream, &Err(failure))
}

/// Answers the requests of one connection until its end.
fn serve(daemon: &Arc<Daemon>, stream: &UnixStream) -> io::Result<()> {
    let peer = process::peer_credentials(stream)?;
    if !is_permitted(peer) {
        log::warn!("user {} (process {}) is not served", peer.uid, peer.pid);
        return send::<()>(
            stream,
            &Err(Failure::new(
                ErrorCode::PermissionDenied,
                "the daemon belongs to another user",
            )
            .hint("run as the user who owns the repository")),
        );
    }
    stream.set_read_timeout(Some(TRANSFER_TIMEOUT))?;
    stream.set_write_timeout(Some(TRANSFER_TIMEOUT))?;
    let mut input = BufReader::new(stream);
    let editor = Editor::new(daemon, peer.pid);
    let mut patience = Some(FIRST_REQUEST_TIMEOUT);
    loop {
        if input.buffer().is_empty() && !process::wait_until_readable(stream, patience.take())? {
            return Err(ErrorKind::TimedOut.into());
        }
        let Some(in_flight) = daemon.presence.request() else {
            return Ok(());
        };
        let line = match wire::read_line(&mut input, MAX_REQUEST_BYTES)? {
            Line::Complete(line) => line,
            Line::End => return Ok(()),
            Line::TooLong => {
                let failure = Failure::new(
                    ErrorCode::Usage,
                    format!("the request has more than {MAX_REQUEST_BYTES} bytes"),
                )
                .hint("name fewer things at a time; write a large file in the fork's mount");
                return send::<()>(stream, &Err(failure));
            }
        };
        let request = match wire::decode_request(&line) {
            Ok(request) => request,
            Err(failure) => {
                send::<()>(stream, &Err(failure))?;
                continue;
            }
        };
        if tine_ops::end_if_displaced(daemon) {
            daemon.presence.quit();
        }
        let is_stop = request.entry.name == Stop::NAME;
        let response = answer(daemon, peer, &editor, &request);
        let ends = is_stop && response.is_ok();
        let sent = send(stream, &response);
        drop(in_flight);
        if ends {
            daemon.presence.quit();
        }
        sent?;
    }
}

/// Returns whether the peer is the daemon's user or root.
fn is_permitted(peer: PeerCredentials) -> bool {
    peer.uid == process::effective_uid() || peer.uid == 0
}

/// Answers one request. A panic becomes the failure `internal`.
fn answer(
    daemon: &Arc<Daemon>,
    peer: PeerCredentials,
    editor: &Editor<'_>,
    request: &Request,
) -> Result<Box<RawValue>, Failure> {
    let call = Call {
        daemon,
        editor,
        peer,
        from: &request.from,
    };
    let answered = catch_unwind(AssertUnwindSafe(|| {
        asker::serve(peer.pid, || request.run(&call))
    }));
    let response = answered.unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Failure::new(ErrorCode::Internal, "the daemon failed at this request").cause(what))
    });
    match &response {
        // The system, the disk, the repository or tine failed: the user must repair something.
        Err(failure) if failure.exit == ExitCode::Failure => {
            log::warn!("failed for process {}: {failure}", peer.pid);
        }
        Err(failure) => log::info!("refused: {failure}"),
        Ok(_) => {}
    }
    response
}

fn send<Answer: Serialize>(
    mut stream: &UnixStream,
    response: &Result<Answer, Failure>,
) -> io::Result<()> {
    let line = wire::encode_response(response)
        .or_else(|failure| wire::encode_response::<()>(&Err(failure)))
        .map_err(io::Error::other)?;
    stream.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_and_root_may_ask() {
        let own = process::effective_uid();
        let peer = |uid| PeerCredentials {
            pid: 1,
            uid,
            gid: 0,
        };
        assert!(is_permitted(peer(own)));
        assert!(is_permitted(peer(0)));
        assert!(!is_permitted(peer(own + 4711)));
    }
}
