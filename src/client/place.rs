//! The place that a command runs at: its directory, its repository, the daemon, and the fork it
//! means.

use std::any::Any;
use std::cell::OnceCell;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Client;
use crate::origin::AtOrigin;
use tine_fuse as fuse;
use tine_git::Repository;
use tine_ops::protocol::ForkInfo;
use tine_ops::{ErrorCode, Failure, FindFork, Operation};
use tine_path::shell::shell_word;
use tine_sys::file::fs_figures;
use tine_sys::namespace::mount_namespace_of;
use tine_tools::path::beneath;
use tine_workspace::{ForkName, Store};

/// Receives remarks and progress of a call.
pub trait Listener: Send + Sync {
    /// Receives a remark, in one sentence.
    fn note(&self, _text: &str) {}

    /// Receives the start of a long step, such as `committing`. The step ends when the returned
    /// guard is dropped.
    fn begins(&self, _what: &'static str) -> Option<Box<dyn Any>> {
        None
    }
}

/// Ignores remarks and progress.
pub struct Silent;

impl Listener for Silent {}

/// The place that a command runs at.
pub struct Place {
    listener: Arc<dyn Listener>,
    /// Absolute and free of symlinks, as the kernel knows it.
    cwd: PathBuf,
    /// The repository, and the private git directory of the worktree, or the git directory itself.
    found: OnceCell<(Repository, PathBuf)>,
}

impl Place {
    /// Finds the place of `dir`, which may be anywhere inside a checkout.
    ///
    /// # Errors
    /// `not-found` where there is no such directory. Whether a repository is around it is found out
    /// when it is needed.
    pub fn find(dir: &Path, listener: Arc<dyn Listener>) -> Result<Place, Failure> {
        let dir = dir
            .canonicalize()
            .map_err(|error| crate::failures::named("look in", dir, &error))?;
        Ok(Place::at(dir, listener))
    }

    /// As if a command ran in `dir`, which is absolute and free of symlinks.
    pub fn at(dir: PathBuf, listener: Arc<dyn Listener>) -> Place {
        Place {
            listener,
            cwd: dir,
            found: OnceCell::new(),
        }
    }

    /// As if the command ran in another directory, which is absolute and free of symlinks.
    pub fn in_dir(&self, dir: PathBuf) -> Place {
        Place::at(dir, self.listener.clone())
    }

    /// Passes a remark to the listener.
    pub fn note(&self, text: &str) {
        self.listener.note(text);
    }

    /// The directory the command runs in.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The repository around the current directory.
    pub fn repository(&self) -> Result<&Repository, Failure> {
        Ok(&self.found()?.0)
    }

    fn found(&self) -> Result<&(Repository, PathBuf), Failure> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        self.check_mount_is_alive()?;
        let found = Repository::discover_worktree(&self.cwd)?;
        Ok(self.found.get_or_init(|| found))
    }

    /// A directory whose daemon is gone answers nothing: say so, and not that it is no repository.
    /// `stat` would not do: the kernel may still know its answer.
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

    /// Refuses where a mounted fork is not to be seen by this command: what is written to its
    /// directory goes elsewhere.
    pub fn check_mounted_here(&self, connection: &Client, fork: &ForkInfo) -> Result<(), Failure> {
        if !fork.mounted || self.at_origin().is_some() || fuse::is_seen_at(&fork.mount_dir) {
            return Ok(());
        }
        // In the daemon's own namespace it is there no longer: the daemon has ended since, or
        // somebody unmounted it.
        let theirs = connection.info().mount_namespace;
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
        AtOrigin::of(self.found.get()?.0.common_dir())
    }

    /// The private git directory of the worktree that the command runs in, as the daemon knows it.
    pub fn git_dir(&self) -> Result<PathBuf, Failure> {
        let (repository, git_dir) = self.found()?;
        let rest = git_dir.strip_prefix(repository.common_dir());
        Ok(match (self.at_origin(), rest) {
            (Some(at_origin), Ok(rest)) => at_origin.common_dir.join(rest),
            _ => git_dir.clone(),
        })
    }

    /// `dir` as the daemon must get it: absolute.
    pub fn absolute(&self, dir: &Path) -> PathBuf {
        self.cwd.join(dir)
    }

    /// Connects to the repository's daemon, which is started where none runs.
    pub fn connect(&self) -> Result<Client, Failure> {
        let common_dir = self.repository()?.common_dir().to_owned();
        let starting = self.listener.begins("waiting for the daemon");
        let client = match self.at_origin() {
            None => Client::connect_or_start(&common_dir)?,
            Some(_) => Client::connect(&common_dir)?.ok_or_else(|| {
                Failure::new(ErrorCode::DaemonUnreachable, "the daemon has ended")
                    .cause("what runs with --at-origin starts none: its mounts would be seen by nobody else")
                    .hint("any tine command outside starts it; then run this one again")
            })?,
        };
        drop(starting);
        let mut client = client.heard_by(self.listener.clone());
        client.from.command = command_line();
        client.from.dir = Some(self.outside());
        client.from.git_dir = self.git_dir().ok();
        client.from.umask = Some(umask());
        Ok(client)
    }

    /// Connects for a command that needs a fork to be there: where the repository has no store,
    /// nothing is started.
    pub fn connect_to_forks(&self) -> Result<Option<Client>, Failure> {
        if !Store::dir_of(self.repository()?).exists() {
            return Ok(None);
        }
        self.connect().map(Some)
    }

    /// As [`Place::connect_to`], of a name that was typed.
    ///
    /// # Errors
    /// As [`Place::connect_to`]; `invalid-fork-name`.
    pub fn connect_to_fork(&self, name: Option<&str>) -> Result<(Client, ForkName), Failure> {
        self.connect_to(name.map(ForkName::parse).transpose()?.as_ref())
    }

    /// Connects, and says which fork is meant: `name`, or the one whose mount the command runs in.
    ///
    /// # Errors
    /// `no-such-fork` or `not-in-fork`; others where the daemon cannot be reached.
    pub fn connect_to(&self, name: Option<&ForkName>) -> Result<(Client, ForkName), Failure> {
        let connection = self.connect_to_forks()?;
        let mut connection = connection.ok_or_else(|| no_fork(name))?;
        let fork = match name {
            Some(name) => name.clone(),
            None => self.fork_here(&mut connection)?,
        };
        Ok((connection, fork))
    }

    /// The fork in whose mount the command runs.
    fn fork_here(&self, connection: &mut Client) -> Result<ForkName, Failure> {
        self.fork_if_here(connection)?
            .ok_or_else(Failure::not_in_fork)
    }

    /// The fork in whose mount the command runs, if it does.
    pub fn fork_if_here(&self, connection: &mut Client) -> Result<Option<ForkName>, Failure> {
        Ok(connection.call(&FindFork {})?.fork)
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
        beneath(mount_dir, &self.outside()).is_some()
    }

    /// The directory, as the daemon knows it.
    fn outside(&self) -> PathBuf {
        match self.at_origin() {
            Some(at_origin) => at_origin.outside(&self.cwd),
            None => self.cwd.clone(),
        }
    }

    /// Connects for an operation. Starts no daemon for a fork in a repository without a store.
    ///
    /// # Errors
    /// `no-such-fork` or `not-in-fork` where there is no store; others where the daemon cannot be
    /// reached.
    pub fn connect_for<O: Operation + Clone>(&self, operation: &O) -> Result<Client, Failure> {
        match operation.clone().fork() {
            Some(fork) => {
                let connection = self.connect_to_forks()?;
                connection.ok_or_else(|| no_fork(fork.as_ref()))
            }
            None => self.connect(),
        }
    }

    /// Steps out of the current directory, so that this process does not keep a mount busy.
    pub fn step_out(&self) {
        // Where even the root cannot be entered the unmount tells what is in its way.
        let _ = std::env::set_current_dir("/");
    }
}

/// Says that the fork is not there: a repository without a store has none.
fn no_fork(name: Option<&ForkName>) -> Failure {
    match name {
        Some(name) => Failure::no_such_fork(name),
        None => Failure::not_in_fork(),
    }
}

/// How this process was called, as a shell would take it.
fn command_line() -> String {
    let words = std::env::args_os()
        .skip(1)
        .map(|word| shell_word(word.as_bytes()));
    std::iter::once("tine".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The process's umask; the usual one where the kernel does not tell.
pub fn umask() -> u16 {
    // umask(2) tells it only by changing it.
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("Umask:"))?;
            u16::from_str_radix(line.trim(), 8).ok()
        })
        .unwrap_or(0o022)
}
