//! What outlives a call: the fork that is active, connections to the daemon, calls under way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::call::ToolCall;
use tine_attr::Timestamp;
use tine_client::after_new::after_new;
use tine_client::hooks::HookOutput;
use tine_client::place::{Place, Silent};
use tine_client::{Client, embedded_paths};
use tine_git::Repository;
use tine_ops as ops;
use tine_ops::protocol::{ForkInfo, ToolAnswer, ToolOperation};
use tine_ops::{ErrorCode, Failure, Operation};
use tine_tools::AgentId;
use tine_workspace::{ForkName, Store};

/// Clients that are kept while nobody uses them.
const MAX_IDLE_CONNECTIONS: usize = 4;

/// How long the end of the session waits for calls that were cancelled.
const FAREWELL: Duration = Duration::from_secs(10);

/// What forks are called whose name nobody chose: `mcp-1`, `mcp-2` and so on.
const NAME_PREFIX: &str = "mcp";

/// One client's session.
pub struct Session {
    /// Where the server was started; immutable.
    dir: PathBuf,
    /// Immutable.
    umask: u16,
    common_dir: PathBuf,
    /// Immutable.
    store_dir: PathBuf,
    /// Whether open buffers come first; immutable.
    buffers: bool,
    /// Which agent calls; immutable.
    agent: AgentId,
    /// Internally synchronised, as all that follows.
    active: Mutex<Option<ForkName>>,
    /// A fork that is made and becomes the active one when one is needed first: clients start
    /// servers only to look at them, too. Locked while it is made; taken before `active`.
    wanted: Mutex<Option<ForkRequest>>,
    made: Mutex<Vec<ForkName>>,
    idle: Mutex<Vec<Client>>,
    calls: Mutex<Calls>,
    call_ended: Condvar,
}

#[derive(Default)]
struct Calls {
    last: u64,
    under_way: BTreeMap<u64, Arc<ToolCall>>,
}

/// A fork that is to be made.
#[derive(Debug, Default)]
pub struct ForkRequest {
    /// Default: the first of `mcp-1`, `mcp-2`, … that is free.
    pub name: Option<String>,
    pub from: Option<String>,
    /// A fork, or `FORK@SNAPSHOT`.
    pub from_fork: Option<String>,
    pub branch: Option<String>,
}

/// A fork that was made, and what must be known of it.
pub struct MadeFork {
    pub info: ForkInfo,
    pub notes: Vec<String>,
}

impl Session {
    /// A session of a server that was started where `place` is.
    pub fn new(place: &Place, buffers: bool) -> Result<Session, Failure> {
        let repository = place.repository()?;
        Ok(Session {
            dir: place.cwd().to_owned(),
            umask: tine_client::place::umask(),
            common_dir: repository.common_dir().to_owned(),
            store_dir: Store::dir_of(repository),
            buffers,
            agent: AgentId(format!(
                "mcp-{}-{}",
                std::process::id(),
                Timestamp::now().nanos
            )),
            active: Mutex::default(),
            wanted: Mutex::default(),
            made: Mutex::default(),
            idle: Mutex::default(),
            calls: Mutex::default(),
            call_ended: Condvar::new(),
        })
    }

    pub fn store_dir(&self) -> &Path {
        &self.store_dir
    }

    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// What a command has that runs where the server was started. What such a command would note is
    /// told nobody.
    pub fn place(&self) -> Place {
        Place::at(self.dir.clone(), Arc::new(Silent))
    }

    /// The fork that is active.
    pub fn active(&self) -> Option<ForkName> {
        self.active.lock().clone()
    }

    /// The fork that is active, made if it is wanted; a failure that says what to do where none is.
    pub fn fork(&self) -> Result<ForkName, Failure> {
        self.fork_if_any()?.ok_or_else(no_fork)
    }

    /// The fork that is active, made if it is wanted.
    pub fn fork_if_any(&self) -> Result<Option<ForkName>, Failure> {
        let mut wanted = self.wanted.lock();
        if let Some(wish) = &*wanted {
            for note in self.make(wish)?.notes {
                log::warn!("{note}");
            }
            *wanted = None;
        }
        drop(wanted);
        Ok(self.active())
    }

    /// Wants a fork, to be made when one is needed.
    pub fn want_fork(&self, wish: ForkRequest) -> Result<(), Failure> {
        wish.name.as_deref().map(ForkName::parse).transpose()?;
        *self.wanted.lock() = Some(wish);
        Ok(())
    }

    /// The fork that a call names, or the active one.
    pub fn fork_or(&self, name: Option<&str>) -> Result<ForkName, Failure> {
        match name {
            Some(name) => Ok(ForkName::parse(name)?),
            None => self.fork(),
        }
    }

    /// Forks that the session has made.
    pub fn made(&self) -> Vec<ForkName> {
        self.made.lock().clone()
    }

    /// Lets the fork be the active one, and mounts it where it is not.
    pub fn activate(&self, fork: ForkName) -> Result<ForkInfo, Failure> {
        let info = self.mount(fork)?;
        *self.wanted.lock() = None;
        *self.active.lock() = Some(info.name.clone());
        Ok(info)
    }

    /// Mounts the fork where it is not.
    pub fn mount(&self, fork: ForkName) -> Result<ForkInfo, Failure> {
        self.with(|connection| connection.call(&ops::Mount::of(fork)))
    }

    /// Makes a fork, mounts it, and lets it be the active one.
    pub fn make_fork(&self, wish: &ForkRequest) -> Result<MadeFork, Failure> {
        let made = self.make(wish)?;
        *self.wanted.lock() = None;
        Ok(made)
    }

    fn make(&self, wish: &ForkRequest) -> Result<MadeFork, Failure> {
        let make = |fork: ForkName| {
            let request = ops::New {
                options: ops::NewOptions {
                    from: wish.from.clone(),
                    from_fork: wish.from_fork.clone(),
                    branch: wish.branch.clone(),
                    ..ops::NewOptions::default()
                },
                ..ops::New::of(fork)
            };
            self.with_revisions(String::new(), |connection| connection.call(&request))
        };
        let info = match &wish.name {
            Some(name) => make(ForkName::parse(name)?)?,
            None => {
                let mut number = 1u32;
                loop {
                    match make(ForkName::parse(&format!("{NAME_PREFIX}-{number}"))?) {
                        // The branch of one that was deleted may still have its commits.
                        Err(failure)
                            if matches!(
                                failure.code,
                                ErrorCode::ForkExists | ErrorCode::BranchExists
                            ) && number < 10_000 =>
                        {
                            number += 1;
                        }
                        made => break made?,
                    }
                }
            }
        };
        self.made.lock().push(info.name.clone());
        *self.active.lock() = Some(info.name.clone());
        let place = self.place();
        let after = self
            .with(|connection| Ok(after_new(&place, connection, &info, true, HookOutput::Kept)))?;
        let notes = embedded_paths::notes(&place, &info, &after.leads);
        let mut notes = notes.unwrap_or_else(|failure| vec![told(&failure)]);
        notes.extend(after.failed.iter().map(told));
        Ok(MadeFork { info, notes })
    }

    /// The private git directory in which revisions are understood: that of the active fork, while
    /// it is mounted, else that of the place where the server was started.
    fn git_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(fork) = self.active() {
            let info = self.with(|connection| connection.show(&fork))?;
            if info.mounted {
                return Ok(Repository::git_dir_at(&info.mount_dir)?);
            }
        }
        self.place().git_dir()
    }

    /// Asks the daemon over a connection that nobody else uses meanwhile.
    pub fn with<T>(
        &self,
        ask: impl FnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_named(String::new(), ask)
    }

    /// As [`Session::with_named`], with the git directory in which revisions are read.
    pub fn with_revisions<T>(
        &self,
        command: String,
        ask: impl FnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let git_dir = self.git_dir()?;
        self.with_named(command, |connection| {
            connection.from.git_dir = Some(git_dir);
            let answer = ask(connection);
            connection.from.git_dir = None;
            answer
        })
    }

    /// The same; the log of operations has `command`.
    pub fn with_named<T>(
        &self,
        command: String,
        ask: impl FnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let kept = self.idle.lock().pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => Client::connect_or_start(&self.common_dir)?,
        };
        connection.from.umask = Some(self.umask);
        connection.from.command = command;
        let answer = ask(&mut connection);
        // What has failed may have lost its place in the conversation.
        if answer.is_ok() {
            let mut idle = self.idle.lock();
            if idle.len() < MAX_IDLE_CONNECTIONS {
                idle.push(connection);
            }
        }
        answer
    }

    /// Calls an operation on the active fork, which is made if it is wanted; the log of operations
    /// has `command`.
    pub fn call<O: Operation>(
        &self,
        mut operation: O,
        command: String,
    ) -> Result<O::Answer, Failure> {
        if let Some(fork) = operation.fork() {
            *fork = Some(self.fork()?);
        }
        self.with_named(command, |connection| connection.call(&operation))
    }

    /// Has the router do something in the active fork, which is made if it is wanted, or in an open
    /// buffer.
    pub fn route(&self, operation: ToolOperation, command: String) -> Result<ToolAnswer, Failure> {
        self.route_in(self.fork_if_any()?, operation, command)
    }

    /// As [`Session::route`], in a fork that may be the active one no longer.
    pub fn route_in(
        &self,
        fork: Option<ForkName>,
        operation: ToolOperation,
        command: String,
    ) -> Result<ToolAnswer, Failure> {
        let request = ops::CallTool {
            fork,
            buffers: self.buffers,
            agent: self.agent.clone(),
            operation,
        };
        match self.with_named(command, |connection| connection.call(&request))? {
            // The main checkout is the person's: an agent works in a fork.
            ToolAnswer::Passthrough => Err(no_fork()),
            answer => Ok(answer),
        }
    }

    /// Counts a call until it is [ended](Session::end).
    pub fn begin(&self) -> (u64, Arc<ToolCall>) {
        let call = Arc::new(ToolCall::default());
        let mut calls = self.calls.lock();
        calls.last += 1;
        let id = calls.last;
        calls.under_way.insert(id, Arc::clone(&call));
        (id, call)
    }

    pub fn end(&self, id: u64) {
        self.calls.lock().under_way.remove(&id);
        self.call_ended.notify_all();
    }

    /// Cancels what is under way, and waits until it has ended, so that no command outlives the
    /// session.
    pub fn close(&self) {
        let deadline = Instant::now() + FAREWELL;
        let mut calls = self.calls.lock();
        for call in calls.under_way.values() {
            call.cancel();
        }
        while !calls.under_way.is_empty() {
            if self.call_ended.wait_until(&mut calls, deadline).timed_out() {
                return;
            }
        }
    }
}

/// A failure in one text.
fn told(failure: &Failure) -> String {
    let hint = failure.hint.iter().map(String::as_str);
    let parts = std::iter::once(failure.message.as_str());
    let parts = parts
        .chain(failure.causes.iter().map(String::as_str))
        .chain(hint);
    parts.collect::<Vec<_>>().join("; ")
}

fn no_fork() -> Failure {
    Failure::new(ErrorCode::NotInFork, "no fork is active in this session").hint(
        "the tool `fork` makes one and lets it be active, `use_fork` chooses one that is there",
    )
}
