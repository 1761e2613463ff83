//! Where a command runs: its directory, the repository around it, the daemon, and the fork it means.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::args::Global;
use super::failures;
use super::inside::command_line;
use super::origin::AtOrigin;
use super::output::Output;
use crate::client::Client;
use crate::fuse;
use crate::git::Repository;
use crate::ops::protocol::{Changes, ForkInfo, Forks};
use crate::ops::{ErrorCode, Failure};
use crate::ops::{ListForks, Operation, ShowFork, Signers, Status};
use crate::sys::file::fs_figures;
use crate::sys::namespace::mount_namespace_of;
use crate::tools::path::beneath;
use crate::workspace::{ForkName, Store};

/// What every verb is given.
pub struct Context {
    pub output: Output,
    /// Absolute and free of symlinks, as the kernel knows it.
    cwd: PathBuf,
    repository: OnceCell<Repository>,
}

impl Context {
    /// Goes where `-C` says and looks where that is. The repository is looked for only when it is needed.
    pub fn enter(global: &Global, output: Output) -> Result<Context, Failure> {
        for dir in &global.dirs {
            std::env::set_current_dir(dir).map_err(|error| failures::named("go to", dir, &error))?;
        }
        let cwd = std::env::current_dir().map_err(|error| {
            Failure::new(ErrorCode::Io, "the current directory cannot be found")
                .cause(error.to_string())
                .hint("it may have been removed: go to another one, or say one with `-C DIR`")
        })?;
        Ok(Context {
            output,
            cwd,
            repository: OnceCell::new(),
        })
    }

    /// As if the command ran in another directory.
    pub fn in_dir(&self, dir: PathBuf) -> Context {
        Context::at(dir, self.output)
    }

    /// As if a command ran in `dir`, which is absolute and free of symlinks.
    pub fn at(dir: PathBuf, output: Output) -> Context {
        Context {
            output,
            cwd: dir,
            repository: OnceCell::new(),
        }
    }

    /// The directory the command runs in.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The repository around the current directory.
    pub fn repository(&self) -> Result<&Repository, Failure> {
        if let Some(repository) = self.repository.get() {
            return Ok(repository);
        }
        self.check_mount_is_alive()?;
        let found = Repository::discover(&self.cwd)?;
        Ok(self.repository.get_or_init(|| found))
    }

    /// A directory whose daemon is gone answers nothing: say so, and not that it is no repository. `stat` would not do: the
    /// kernel may still know its answer.
    fn check_mount_is_alive(&self) -> Result<(), Failure> {
        if !fuse::has_lost_daemon(|| fs_figures(&self.cwd).map(|_| ())) {
            return Ok(());
        }
        Err(Failure::new(
            ErrorCode::MountFailed,
            format!("the mount at {} has lost its daemon", self.cwd.display()),
        )
        .hint(
            "leave it with `cd`, run `tine list` in the main checkout, which mounts it again, and come back",
        ))
    }

    /// Refuses where a mounted fork is not to be seen by this command: what is written to its directory goes elsewhere.
    pub fn check_mounted_here(&self, connection: &Connection, fork: &ForkInfo) -> Result<(), Failure> {
        if !fork.mounted || self.at_origin().is_some() || fuse::is_seen_at(&fork.mount_dir) {
            return Ok(());
        }
        // In the daemon's own namespace it is there no longer: the daemon has ended since, or somebody unmounted it.
        let theirs = connection.client.info().mount_namespace;
        if theirs.is_none() || theirs == mount_namespace_of(Path::new("/proc/self")) {
            return Ok(());
        }
        let (name, dir) = (&fork.name, fork.mount_dir.display());
        Err(Failure::new(
            ErrorCode::NotMounted,
            format!("{name} is mounted at {dir} in the mount namespace of the daemon, and not in this one"),
        )
        .hint("work where the daemon was started; or `tine daemon stop`, and the next command here starts one that mounts here"))
    }

    /// How a command that `tine exec --at-origin` runs stands.
    fn at_origin(&self) -> Option<AtOrigin> {
        AtOrigin::of(self.repository.get()?.common_dir())
    }

    /// The private git directory of the worktree that the command runs in, as the daemon knows it.
    pub fn git_dir(&self) -> Result<PathBuf, Failure> {
        let git_dir = Repository::git_dir_at(&self.cwd)?;
        let common_dir = self.repository()?.common_dir();
        Ok(match (self.at_origin(), git_dir.strip_prefix(common_dir)) {
            (Some(at_origin), Ok(rest)) => at_origin.common_dir.join(rest),
            _ => git_dir,
        })
    }

    /// `dir` as the daemon must get it: absolute.
    pub fn absolute(&self, dir: &Path) -> PathBuf {
        self.cwd.join(dir)
    }

    /// Connects to the repository's daemon, which is started where none runs.
    pub fn connect(&self) -> Result<Connection, Failure> {
        let common_dir = self.repository()?.common_dir().to_owned();
        let starting = self.output.busy("waiting for the daemon");
        let client = match self.at_origin() {
            None => Client::connect_or_start(&common_dir)?,
            Some(_) => Client::connect(&common_dir)?.ok_or_else(|| {
                Failure::new(ErrorCode::DaemonUnreachable, "the daemon has ended")
                    .cause("what runs with --at-origin starts none: its mounts would be seen by nobody else")
                    .hint("any tine command outside starts it; then run this one again")
            })?,
        };
        drop(starting);
        let mut client = client;
        client.from.command = command_line();
        Ok(Connection {
            client,
            output: Some(self.output),
        })
    }

    /// Connects for a command that needs a fork to be there: where the repository has no store, nothing is started.
    pub fn connect_to_forks(&self) -> Result<Option<Connection>, Failure> {
        if !Store::dir_of(self.repository()?).exists() {
            return Ok(None);
        }
        self.connect().map(Some)
    }

    /// Connects, and says which fork is meant: `name`, or the one whose mount the command runs in.
    pub fn connect_to_fork(&self, name: Option<&str>) -> Result<(Connection, ForkName), Failure> {
        let name = name.map(ForkName::parse).transpose()?;
        let Some(mut connection) = self.connect_to_forks()? else {
            return Err(match name {
                Some(name) => no_such_fork(&name),
                None => not_in_fork(),
            });
        };
        let fork = match name {
            Some(name) => name,
            None => self.fork_here(&mut connection)?,
        };
        Ok((connection, fork))
    }

    /// The fork in whose mount the command runs.
    fn fork_here(&self, connection: &mut Connection) -> Result<ForkName, Failure> {
        self.fork_if_here(connection)?.ok_or_else(not_in_fork)
    }

    /// The fork in whose mount the command runs, if it does.
    pub fn fork_if_here(&self, connection: &mut Connection) -> Result<Option<ForkName>, Failure> {
        let (forks, _) = connection.forks()?;
        Ok(self.here_of(&forks).map(|fork| fork.name.clone()))
    }

    /// The one of all `forks` in whose mount the command runs.
    pub fn here_of<'a>(&self, forks: &'a [ForkInfo]) -> Option<&'a ForkInfo> {
        forks
            .iter()
            .filter(|fork| fork.mounted && self.is_beneath(&fork.mount_dir))
            .max_by_key(|fork| fork.mount_dir.as_os_str().len())
    }

    /// Whether the command runs in `mount_dir` or beneath it.
    pub fn is_beneath(&self, mount_dir: &Path) -> bool {
        let cwd = match self.at_origin() {
            Some(at_origin) => at_origin.outside(&self.cwd),
            None => self.cwd.clone(),
        };
        beneath(mount_dir, &cwd).is_some()
    }

    /// Steps out of the current directory, so that this process does not keep a mount busy.
    pub fn step_out(&self) {
        // Where even the root cannot be entered the unmount tells what is in its way.
        let _ = std::env::set_current_dir("/");
    }
}

fn no_such_fork(name: &ForkName) -> Failure {
    Failure::new(ErrorCode::NoSuchFork, format!("there is no fork called {name}")).hint(format!(
        "`tine list` shows the forks, `tine new {name}` makes this one"
    ))
}

fn not_in_fork() -> Failure {
    Failure::new(
        ErrorCode::NotInFork,
        "no fork is named, and this is not inside the mount of one",
    )
    .hint("give its NAME (`tine list` shows them), or go into its mount first")
}

/// A connection to the daemon.
pub struct Connection {
    client: Client,
    /// Where it is told what takes long; `None`: nowhere.
    output: Option<Output>,
}

impl Connection {
    /// For verbs that must not start a daemon.
    pub fn over(client: Client) -> Connection {
        Connection { client, output: None }
    }

    /// Tells on `output` what takes long.
    pub fn telling(self, output: Output) -> Connection {
        Connection {
            output: Some(output),
            ..self
        }
    }

    /// All forks, and what is wrong with those that cannot be read.
    pub fn forks(&mut self) -> Result<(Vec<ForkInfo>, Vec<Failure>), Failure> {
        let Forks { forks, damaged } = self.call(&ListForks {})?;
        Ok((forks, damaged))
    }

    pub fn show(&mut self, fork: &ForkName) -> Result<ForkInfo, Failure> {
        self.call(&ShowFork { fork: fork.clone() })
    }

    pub fn changes(&mut self, fork: &ForkName, write: bool) -> Result<Changes, Failure> {
        self.call(&Status {
            fork: fork.clone(),
            write,
        })
    }

    /// As [`Connection::call`], of an operation that makes commits.
    pub fn call_as<O: Operation>(&mut self, operation: &O, signers: &Signers) -> Result<O::Answer, Failure> {
        let Signers { author, committer } = signers.clone();
        self.client.from.author = author;
        self.client.from.committer = committer;
        let answer = self.call(operation);
        self.client.from.author = None;
        self.client.from.committer = None;
        answer
    }

    /// Says what the log of operations is to name as the command.
    pub fn name_command(&mut self, command: String) {
        self.client.from.command = command;
    }

    /// Calls an operation, and tells whoever waits at a terminal what takes long.
    pub fn call<O: Operation>(&mut self, operation: &O) -> Result<O::Answer, Failure> {
        log::debug!("asks the daemon: {}", O::NAME);
        log::trace!("{operation:?}");
        let asked = Instant::now();
        let busy = self.output.and_then(|output| output.busy(O::DOING));
        let answer = self.client.call(operation);
        drop(busy);
        log::debug!("the daemon took {:?}", asked.elapsed());
        answer
    }
}
