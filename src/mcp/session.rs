//! State that outlives a call: active fork, connections, running calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use schemars::JsonSchema;
use serde::Deserialize;

use super::call::ToolCall;
use tine_attr::Timestamp;
use tine_client::after_new::after_new;
use tine_client::hooks::HookOutput;
use tine_client::place::{Place, Silent};
use tine_client::{Client, embedded_paths};
use tine_git::Repository;
use tine_ops as ops;
use tine_ops::protocol::{ForkInfo, ToolAnswer};
use tine_ops::{AgentOptions, ErrorCode, Failure, Operation};
use tine_store::{ForkName, Store};
use tine_tools::AgentId;

/// Maximum number of idle connections to the daemon.
const MAX_IDLE_CONNECTIONS: usize = 4;

/// Maximum wait for cancelled calls at the end of the session.
const FAREWELL: Duration = Duration::from_secs(10);

/// Prefix of generated fork names: `mcp-1`, `mcp-2` and so on.
const NAME_PREFIX: &str = "mcp";

/// Session of one client.
pub struct Session {
    /// Directory in which the server was started. Immutable.
    dir: PathBuf,
    /// The server's umask. Immutable.
    umask: u16,
    /// The repository's common git directory. Immutable.
    common_dir: PathBuf,
    /// The store's directory. Immutable.
    store_dir: PathBuf,
    /// True if tools use open buffers first. Immutable.
    buffers: bool,
    /// Agent that makes the session's calls. Immutable.
    agent: AgentId,
    /// Active fork. Internally synchronised, as all that follows.
    active: Mutex<Option<ForkName>>,
    /// Fork to make and activate when a call first needs one.
    ///
    /// It is not made earlier, because clients also start servers only to list their tools. Locked
    /// while the fork is made; taken before `active`.
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

/// Request to make a fork.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct ForkRequest {
    /// Letters, digits, '.', '_' and '-'. Default: the first free one of `mcp-1`, `mcp-2`, …
    pub name: Option<String>,
    /// Options of the operation that makes it.
    #[serde(flatten)]
    pub options: ops::NewOptions,
}

/// Fork that was made, with notes about it.
pub struct MadeFork {
    /// State of the fork.
    pub info: ForkInfo,
    /// Notes for the agent, for example failed hooks.
    pub notes: Vec<String>,
}

impl Session {
    /// Creates the session of a server that was started at `place`.
    ///
    /// `buffers` says whether tools use open buffers first.
    ///
    /// # Errors
    /// [`Failure`] if `place` is not in a repository.
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

    /// Returns the store's directory.
    pub fn store_dir(&self) -> &Path {
        &self.store_dir
    }

    /// Returns the repository's common git directory.
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Returns the place where the server was started, for client code.
    ///
    /// It discards notes for people.
    pub fn place(&self) -> Place {
        Place::at(self.dir.clone(), Arc::new(Silent))
    }

    /// Returns the active fork.
    pub fn active(&self) -> Option<ForkName> {
        self.active.lock().clone()
    }

    /// Returns the active fork, and makes a wanted one first.
    ///
    /// # Errors
    /// [`ErrorCode::NotInFork`] if no fork is active, and any [`Failure`] of making one.
    pub fn fork(&self) -> Result<ForkName, Failure> {
        self.fork_if_any()?.ok_or_else(no_fork)
    }

    /// Returns the active fork, if any, and makes a wanted one first.
    ///
    /// # Errors
    /// Any [`Failure`] of making the fork.
    pub fn fork_if_any(&self) -> Result<Option<ForkName>, Failure> {
        let mut wanted = self.wanted.lock();
        if let Some(request) = &*wanted {
            for note in self.make(request)?.notes {
                log::warn!("{note}");
            }
            *wanted = None;
        }
        drop(wanted);
        Ok(self.active())
    }

    /// Requests a fork, which is made when a call needs one.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidForkName`] if its name is not valid.
    pub fn want_fork(&self, request: ForkRequest) -> Result<(), Failure> {
        request.name.as_deref().map(ForkName::parse).transpose()?;
        *self.wanted.lock() = Some(request);
        Ok(())
    }

    /// Returns the named fork, or else the active one.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidForkName`] if the name is not valid, and any failure of
    /// [`Session::fork`].
    pub fn fork_or(&self, name: Option<&str>) -> Result<ForkName, Failure> {
        match name {
            Some(name) => Ok(ForkName::parse(name)?),
            None => self.fork(),
        }
    }

    /// Returns the forks that the session has made.
    pub fn made(&self) -> Vec<ForkName> {
        self.made.lock().clone()
    }

    /// Makes the fork the active one, and mounts it if necessary.
    ///
    /// # Errors
    /// Any [`Failure`] of [`Session::mount`].
    pub fn activate(&self, fork: ForkName) -> Result<ForkInfo, Failure> {
        let info = self.mount(fork)?;
        *self.wanted.lock() = None;
        *self.active.lock() = Some(info.name.clone());
        Ok(info)
    }

    /// Mounts the fork if it is not mounted.
    ///
    /// # Errors
    /// [`Failure`] if the fork does not exist, cannot be mounted, or the daemon cannot be reached.
    pub fn mount(&self, fork: ForkName) -> Result<ForkInfo, Failure> {
        self.with(|connection| connection.call(&ops::Mount::of(fork)))
    }

    /// Makes a fork, mounts it, and makes it the active one.
    ///
    /// # Errors
    /// [`Failure`] if the request is not valid, the fork cannot be made, or the daemon cannot be
    /// reached.
    pub fn make_fork(&self, request: &ForkRequest) -> Result<MadeFork, Failure> {
        let made = self.make(request)?;
        *self.wanted.lock() = None;
        Ok(made)
    }

    fn make(&self, request: &ForkRequest) -> Result<MadeFork, Failure> {
        let make = |fork: ForkName| {
            let request = ops::New {
                options: request.options.clone(),
                ..ops::New::of(fork)
            };
            self.with_revisions(String::new(), |connection| connection.call(&request))
        };
        let info = match &request.name {
            Some(name) => make(ForkName::parse(name)?)?,
            None => {
                let mut number = 1u32;
                loop {
                    match make(ForkName::parse(&format!("{NAME_PREFIX}-{number}"))?) {
                        // The branch of a deleted fork may still exist with its commits.
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
        let mut notes = notes.unwrap_or_else(|failure| vec![one_line(&failure)]);
        notes.extend(after.failed.iter().map(one_line));
        Ok(MadeFork { info, notes })
    }

    /// Returns the private git directory in which revisions resolve.
    ///
    /// It is that of the active fork while it is mounted, else that of the server's place.
    ///
    /// # Errors
    /// [`Failure`] if the daemon cannot be reached or the directory cannot be found.
    fn git_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(fork) = self.active() {
            let info = self.with(|connection| connection.show(&fork))?;
            if info.mounted {
                return Ok(Repository::git_dir_at(&info.mount_dir)?);
            }
        }
        self.place().git_dir()
    }

    /// Calls `ask` with an exclusive connection to the daemon.
    ///
    /// # Errors
    /// The failure of `ask`, or [`Failure`] if the daemon cannot be reached.
    pub fn with<T>(
        &self,
        ask: impl FnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_named(String::new(), ask)
    }

    /// Does the same as [`Session::with_named`], and sets where revisions resolve.
    ///
    /// # Errors
    /// The same as [`Session::with`]; others if the git directory cannot be found.
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

    /// Does the same as [`Session::with`], and logs operations under `command`.
    ///
    /// # Errors
    /// The same as [`Session::with`].
    pub fn with_named<T>(
        &self,
        command: String,
        ask: impl FnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let kept = self.idle.lock().pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => {
                let mut connection = Client::connect_or_start(&self.common_dir)?;
                connection.from.umask = Some(self.umask);
                connection
            }
        };
        connection.from.command = command;
        let answer = ask(&mut connection);
        // After a failure, requests and replies of the connection may be out of step.
        if answer.is_ok() {
            let mut idle = self.idle.lock();
            if idle.len() < MAX_IDLE_CONNECTIONS {
                idle.push(connection);
            }
        }
        answer
    }

    /// Calls an operation on the active fork.
    ///
    /// It makes a wanted fork first. The log of operations has `command`.
    ///
    /// # Errors
    /// Failures of [`Session::fork`] and of the operation.
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

    /// Routes a tool operation to the active fork or an open buffer.
    ///
    /// It makes a wanted fork first.
    ///
    /// # Errors
    /// [`ErrorCode::NotInFork`] if the operation would be passed through, and failures of the
    /// operation.
    pub fn route<O, A, S>(&self, operation: O, command: String) -> Result<A, Failure>
    where
        O: Operation<Answer = ToolAnswer<A, S>>,
    {
        let answer = self.ask_as_agent(self.fork_if_any()?, operation, command)?;
        // The main checkout belongs to the person. An agent works in a fork.
        answer.agents().ok_or_else(no_fork)
    }

    /// Calls an operation in a fork as the session's agent.
    ///
    /// The fork need not be the active one.
    ///
    /// # Errors
    /// The same as [`Session::with`].
    pub fn ask_as_agent<O: Operation>(
        &self,
        fork: Option<ForkName>,
        mut operation: O,
        command: String,
    ) -> Result<O::Answer, Failure> {
        if let Some(named) = operation.fork() {
            *named = fork;
        }
        if let Some(agent) = operation.agent() {
            *agent = AgentOptions {
                agent: Some(self.agent.clone()),
                no_buffers: !self.buffers,
            };
        }
        self.with_named(command, |connection| connection.call(&operation))
    }

    /// Registers a call until it is [ended](Session::end).
    pub fn begin(&self) -> (u64, Arc<ToolCall>) {
        let call = Arc::new(ToolCall::default());
        let mut calls = self.calls.lock();
        calls.last += 1;
        let id = calls.last;
        calls.under_way.insert(id, Arc::clone(&call));
        (id, call)
    }

    /// Removes a call that has ended.
    pub fn end(&self, id: u64) {
        self.calls.lock().under_way.remove(&id);
        self.call_ended.notify_all();
    }

    /// Cancels running calls and waits until they have ended.
    ///
    /// It waits ten seconds at most. So no command outlives the session.
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

/// Returns a failure as one line of text.
fn one_line(failure: &Failure) -> String {
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
