//! `tine buffer serve`: an editor's connection, as JSON lines on standard streams.
//!
//! Requests from the editor use one connection to the daemon. When that connection ends, its
//! buffers are closed. A second connection waits for events. If the daemon ends, the editor's next
//! request starts another daemon; a daemon that another process starts is found, too. The editor
//! then gets an `attached` event and opens its buffers again.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::super::context::Context;
use super::super::{Exit, SUCCESS};
use crate::client::Client;
use crate::ops::protocol::{BufferAnswer, BufferRequest};
use crate::ops::{ErrorCode, Failure};
use crate::render::failure::FailureBody;
use crate::tools::buffers::BufferEvent;

/// Longest wait of one request for events, in milliseconds.
const WAIT_MS: u64 = 20_000;

/// Interval between looks for a daemon that another process started.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest accepted line, in bytes. The daemon would end the connection for a longer one.
const MAX_LINE_BYTES: usize = 12 << 20;

/// Line that is written to the editor.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Answer {
        id: &'a Value,
        ok: &'a BufferAnswer,
    },
    Failure {
        id: &'a Value,
        error: FailureBody<'a>,
    },
    Event(&'a BufferEvent),
    Own(OwnEvent),
}

/// Event that this process creates; the daemon does not know it.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum OwnEvent {
    /// Attached to a daemon that has no buffer open. The editor opens all its buffers.
    Attached,
    /// The daemon has ended. The editor may go on: its next request attaches again.
    Detached,
}

/// The editor's connection.
struct Link {
    common_dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// None: the daemon has ended.
    attached: Option<Attached>,
    /// Number of times the editor was attached.
    times: u64,
    /// By path: upper bound of the buffer's versions, over all its openings and all daemons.
    versions: BTreeMap<PathBuf, u64>,
}

struct Attached {
    client: Client,
    session: u64,
}

pub(super) fn run(context: &Context) -> Result<Exit, Failure> {
    let common_dir = context.repository()?.common_dir().to_owned();
    // The editor may have started this process in a mount. That must not keep the mount busy.
    context.step_out();
    let link = Arc::new(Link {
        common_dir,
        state: Mutex::default(),
    });
    link.attach(Start::Yes)?;
    let event_link = link.clone();
    thread::Builder::new()
        .name("events".into())
        .spawn(move || pass_events(&event_link))
        .map_err(|error| Failure::io("start a thread for", Path::new("events"), &error))?;
    for line in std::io::stdin().lock().lines() {
        let line =
            line.map_err(|error| Failure::io("read", Path::new("standard input"), &error))?;
        if line.trim().is_empty() {
            continue;
        }
        if answer(&link, &line).is_err() {
            break;
        }
    }
    Ok(SUCCESS)
}

/// Answers one line. Returns an error if the answer cannot be written.
fn answer(link: &Link, line: &str) -> std::io::Result<()> {
    let (id, request) = match decoded(line) {
        Ok(decoded) => decoded,
        Err(refused) => {
            let (id, failure) = *refused;
            return fail(&id, &failure);
        }
    };
    match link.ask(request) {
        Ok(ok) => print(&Line::Answer { id: &id, ok: &ok }),
        Err(failure) => fail(&id, &failure),
    }
}

fn fail(id: &Value, failure: &Failure) -> std::io::Result<()> {
    print(&Line::Failure {
        id,
        error: failure.into(),
    })
}

/// Decodes a line into the request's id and the request.
fn decoded(line: &str) -> Result<(Value, BufferRequest), Box<(Value, Failure)>> {
    let usage = |id: &Value, what: &str| {
        let failure = Failure::new(ErrorCode::Usage, "the line is not understood").cause(what);
        Box::new((id.clone(), failure.hint("docs/editors.md says what is")))
    };
    let mut value: Value =
        serde_json::from_str(line).map_err(|error| usage(&Value::Null, &error.to_string()))?;
    let id = value
        .as_object_mut()
        .and_then(|object| object.remove("id"))
        .unwrap_or_default();
    if line.len() > MAX_LINE_BYTES {
        return Err(usage(&id, "it is too long"));
    }
    let request = serde_json::from_value(value).map_err(|error| usage(&id, &error.to_string()))?;
    match request {
        BufferRequest::Attach | BufferRequest::Events { .. } => Err(usage(
            &id,
            "`tine buffer serve` attaches, and tells events, by itself",
        )),
        request => Ok((id, request)),
    }
}

/// Writes one whole line and flushes it.
fn print(line: &Line<'_>) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut output = std::io::stdout().lock();
    output.write_all(&text)?;
    output.flush()
}

/// Choice to start a daemon if none runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Yes,
    No,
}

impl State {
    /// Makes a reopened buffer's versions greater than all earlier ones.
    ///
    /// The editor may still have to read an event of an earlier opening, and would otherwise take
    /// it for an event of this one.
    fn number(&mut self, request: &mut BufferRequest) {
        let path = match request {
            BufferRequest::Open { path, after, .. } => {
                *after = self.versions.get(path).copied();
                path
            }
            BufferRequest::Change { path, .. } | BufferRequest::Applied { path, .. } => path,
            _ => return,
        };
        // Each request makes at most one version, also if its answer is lost.
        let highest = self.versions.entry(path.clone()).or_insert(0);
        *highest = highest.saturating_add(1);
    }
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches to a daemon and informs the editor. Returns whether it is attached.
    fn attach(&self, start: Start) -> Result<bool, Failure> {
        let mut state = self.state();
        if state.attached.is_some() {
            return Ok(true);
        }
        if start == Start::Yes {
            Client::connect_or_start(&self.common_dir)?;
        }
        // A client that reconnects to another daemon by itself would lose the session.
        let Some(mut client) = Client::connect(&self.common_dir)? else {
            return Ok(false);
        };
        let BufferAnswer::Attached { session } = asked(&mut client, BufferRequest::Attach)? else {
            return Err(unexpected());
        };
        state.attached = Some(Attached { client, session });
        state.times += 1;
        // Under the lock, so that this line comes before any event of the session.
        if let Err(error) = print(&Line::Own(OwnEvent::Attached)) {
            log::debug!("nobody reads: {error}");
        }
        Ok(true)
    }

    fn ask(&self, mut request: BufferRequest) -> Result<BufferAnswer, Failure> {
        let mut state = self.state();
        state.number(&mut request);
        let Some(link) = state.attached.as_mut() else {
            drop(state);
            // The new daemon does not have the request's buffer open, so the request itself fails.
            self.attach(Start::Yes)?;
            return Err(lost());
        };
        match asked(&mut link.client, request) {
            Err(failure) if failure.code == ErrorCode::DaemonUnreachable => {
                state.attached = None;
                drop(state);
                self.attach(Start::Yes)?;
                Err(lost())
            }
            answer => answer,
        }
    }

    /// Detaches and informs the editor, if attachment number `times` is still current.
    fn lost(&self, times: u64) {
        let mut state = self.state();
        if state.times == times
            && state.attached.take().is_some()
            && let Err(error) = print(&Line::Own(OwnEvent::Detached))
        {
            log::debug!("nobody reads: {error}");
        }
    }
}

fn asked(client: &mut Client, request: BufferRequest) -> Result<BufferAnswer, Failure> {
    client.call(&request)
}

fn unexpected() -> Failure {
    Failure::other_answer("an editor")
}

fn lost() -> Failure {
    Failure::new(
        ErrorCode::DaemonUnreachable,
        "the daemon has ended, and another one has begun",
    )
    .hint("open the buffers again")
}

/// Passes events to the editor until the process ends.
fn pass_events(link: &Link) {
    loop {
        let session = {
            let state = link.state();
            let attached = state.attached.as_ref();
            attached.map(|attached| (attached.session, state.times))
        };
        let outcome = match session {
            None => {
                thread::sleep(LOOK_EVERY);
                link.attach(Start::No).map(drop)
            }
            Some((session, times)) => {
                let outcome = events_of(link, session);
                link.lost(times);
                outcome
            }
        };
        if let Err(failure) = outcome {
            log::info!("{failure}");
        }
    }
}

/// Passes one session's events to the editor until the session ends.
fn events_of(link: &Link, session: u64) -> Result<(), Failure> {
    let Some(mut client) = Client::connect(&link.common_dir)? else {
        return Ok(());
    };
    loop {
        let request = BufferRequest::Events {
            session,
            wait_ms: WAIT_MS,
        };
        let BufferAnswer::Events { events } = asked(&mut client, request)? else {
            return Err(unexpected());
        };
        for event in &events {
            if print(&Line::Event(event)).is_err() {
                return Ok(());
            }
        }
    }
}
