//! `tine buffer serve`: an editor's connection, as JSON lines on standard input and output.
//!
//! What comes in is asked over one connection, whose end closes the buffers; another one waits for
//! what the editor is to be told. Where the daemon ends, the next thing that the editor says starts
//! another one; one that somebody else started is found, too. Then the editor is told that it is
//! attached anew, and opens its buffers again.

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

/// How long one question for events takes at most.
const WAIT_MS: u64 = 20_000;

/// How often is looked for a daemon that somebody else started.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A longer line is not sent: the daemon would end the connection.
const MAX_LINE_BYTES: usize = 12 << 20;

/// What the editor is told.
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

/// What the daemon knows nothing of.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum OwnEvent {
    /// No buffer is open: the editor opens all that it has.
    Attached,
    /// The daemon has ended. The editor may go on: the next thing that it says begins anew.
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
    /// How often the editor was attached.
    times: u64,
    /// By path: no version of its buffer is greater, of any opening and of any daemon.
    versions: BTreeMap<PathBuf, u64>,
}

struct Attached {
    client: Client,
    session: u64,
}

pub(super) fn run(context: &Context) -> Result<Exit, Failure> {
    let common_dir = context.repository()?.common_dir().to_owned();
    // An editor may have been started in a mount that is to be unmounted.
    context.step_out();
    let link = Arc::new(Link {
        common_dir,
        state: Mutex::default(),
    });
    link.attach(Start::Yes)?;
    let telling = link.clone();
    thread::Builder::new()
        .name("events".into())
        .spawn(move || tell_events(&telling))
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

/// Answers one line; an error where nobody reads the answer.
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

/// The request, and what the editor calls it.
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

/// Writes one line, whole.
fn print(line: &Line<'_>) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut output = std::io::stdout().lock();
    output.write_all(&text)?;
    output.flush()
}

/// Whether a daemon is started where none runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Yes,
    No,
}

impl State {
    /// Lets a buffer that is opened again begin with a version that none of its earlier openings
    /// had: the editor may still have an event of one to read, and would take it for one of this.
    fn number(&mut self, request: &mut BufferRequest) {
        let path = match request {
            BufferRequest::Open { path, after, .. } => {
                *after = self.versions.get(path).copied();
                path
            }
            BufferRequest::Change { path, .. } | BufferRequest::Applied { path, .. } => path,
            _ => return,
        };
        // Each makes one version at most, also where its answer is lost.
        let highest = self.versions.entry(path.clone()).or_insert(0);
        *highest = highest.saturating_add(1);
    }
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches, and tells the editor; whether it is attached.
    fn attach(&self, start: Start) -> Result<bool, Failure> {
        let mut state = self.state();
        if state.attached.is_some() {
            return Ok(true);
        }
        if start == Start::Yes {
            Client::connect_or_start(&self.common_dir)?;
        }
        // One that would go on with another daemon by itself would lose the session.
        let Some(mut client) = Client::connect(&self.common_dir)? else {
            return Ok(false);
        };
        let BufferAnswer::Attached { session } = asked(&mut client, BufferRequest::Attach)? else {
            return Err(unexpected());
        };
        state.attached = Some(Attached { client, session });
        state.times += 1;
        // While it is locked: before any event of that session.
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
            // What it was for is not open there.
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

    /// The daemon has ended, to which the editor was attached for the `times`th time.
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
    .hint("open the buffers anew")
}

/// Tells the editor what comes, for the life of the process.
fn tell_events(link: &Link) {
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

/// Tells the events of one session, as long as it lasts.
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
