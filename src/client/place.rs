//! The place of a command: its directory, repository, daemon and fork.

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
use tine_store::{ForkName, Store};
use tine_sys::file::fs_figures;
use tine_sys::namespace::mount_namespace_of;
use tine_tools::path::relative_path;

/// Receiver of notes and progress.
///
/// The library never prints. It passes everything for the user to this trait.
pub trait Listener: Send + Sync {
    /// Receives a note of one sentence.
    fn note(&self, _text: &str) {}

    /// Receives the start of a long step, such as `committing`.
    ///
    /// The library drops the returned guard at the end of the step.
    fn begins(&self, _what: &'static str) -> Option<Box<dyn Any>> {
        None
    }
}

/// Listener that ignores everything.
pub struct Silent;

impl Listener for Silent {}

/// Directory of a command, with its repository.
///
/// The repository is discovered when a method first needs it.
pub struct Place {
    listener: Arc<dyn Listener>,
    /// Absolute path without symlinks.
    cwd: PathBuf,
    /// The repository, and the private git directory of its worktree.
    ///
    /// In the main checkout that is the common git directory.
    found: OnceCell<(Repository, PathBuf)>,
}

impl Place {
    /// Returns the place of `dir`.
    ///
    /// `dir` may be anywhere inside a checkout or a fork's mount. The repository is not looked up
    /// yet.
    ///
    /// # Errors
    /// `io` if `dir` does not exist (with the exit code `not-found`) or cannot be read.
    pub fn find(dir: &Path, listener: Arc<dyn Listener>) -> Result<Place, Failure> {
        let dir = dir
            .canonicalize()
            .map_err(|error| crate::failures::named("look in", dir, &error))?;
        Ok(Place::at(dir, listener))
    }

    /// Returns the place of `dir`, which must be absolute and without symlinks.
    pub fn at(dir: PathBuf, listener: Arc<dyn Listener>) -> Place {
        Place {
            listener,
            cwd: dir,
            found: OnceCell::new(),
        }
    }

    /// Returns the place of another directory, with the same listener.
    ///
    /// `dir` must be absolute and without symlinks.
    pub fn in_dir(&self, dir: PathBuf) -> Place {
        Place::at(dir, self.listener.clone())
    }

    /// Passes a note to the listener.
    pub fn note(&self, text: &str) {
        self.listener.note(text);
    }

    /// Returns the command's directory, an absolute path.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Returns the repository that contains the directory.
    ///
    /// # Errors
    /// `not-a-repository`, `unsupported-repository`, or `mount-failed` if the directory is in a
    /// mount without a daemon.
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

    /// Fails if the directory is in a mount without a daemon.
    ///
    /// Without this check, discovery would report that it is not a repository. `stat` cannot find
    /// this out, because the kernel may have its result in a cache.
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

    /// Fails if a mounted fork is not visible to this process.
    ///
    /// Writes to its mount directory would go to another file system.
    ///
    /// # Errors
    /// `not-mounted` if the mount exists only in the daemon's mount namespace.
    pub fn check_mounted_here(&self, connection: &Client, fork: &ForkInfo) -> Result<(), Failure> {
        if !fork.mounted || self.at_origin().is_some() || fuse::is_seen_at(&fork.mount_dir) {
            return Ok(());
        }
        // In the daemon's namespace, the mount has ended: the daemon has ended, or a program has
        // unmounted it.
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

    /// Returns the paths of `tine exec --at-origin`, if it runs this command.
    fn at_origin(&self) -> Option<AtOrigin> {
        AtOrigin::of(self.found.get()?.0.common_dir())
    }

    /// Returns the worktree's private git directory, as the daemon sees it.
    ///
    /// # Errors
    /// The errors of [`Place::repository`].
    pub fn git_dir(&self) -> Result<PathBuf, Failure> {
        let (repository, git_dir) = self.found()?;
        let rest = git_dir.strip_prefix(repository.common_dir());
        Ok(match (self.at_origin(), rest) {
            (Some(at_origin), Ok(rest)) => at_origin.common_dir.join(rest),
            _ => git_dir.clone(),
        })
    }

    /// Returns `dir` as an absolute path, as requests need it.
    pub fn absolute(&self, dir: &Path) -> PathBuf {
        self.cwd.join(dir)
    }

    /// Connects to the repository's daemon and starts one if none runs.
    ///
    /// Under `tine exec --at-origin` it starts none, because no other process would see its mounts.
    ///
    /// # Errors
    /// The errors of [`Place::repository`] and [`Client::connect_or_start`].
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
        let mut client = client.with_listener(self.listener.clone());
        client.from.command = command_line();
        client.from.dir = Some(self.outside());
        client.from.git_dir = self.git_dir().ok();
        client.from.umask = Some(umask());
        Ok(client)
    }

    /// Connects if the repository has a store.
    ///
    /// For commands that need an existing fork. Returns `None` and starts nothing if the repository
    /// has no store, and so no forks.
    ///
    /// # Errors
    /// The errors of [`Place::connect`].
    pub fn connect_to_forks(&self) -> Result<Option<Client>, Failure> {
        if !Store::dir_of(self.repository()?).exists() {
            return Ok(None);
        }
        self.connect().map(Some)
    }

    /// Parses a fork name and calls [`Place::connect_to`].
    ///
    /// # Errors
    /// `invalid-fork-name`, and the errors of [`Place::connect_to`].
    pub fn connect_to_fork(&self, name: Option<&str>) -> Result<(Client, ForkName), Failure> {
        self.connect_to(name.map(ForkName::parse).transpose()?.as_ref())
    }

    /// Connects and returns the fork's name: `name`, or that of the current fork.
    ///
    /// The current fork is the one whose mount contains the directory. The existence of `name` is
    /// checked only if the repository has no store.
    ///
    /// # Errors
    /// `no-such-fork` or `not-in-fork`, and the errors of [`Place::connect`].
    pub fn connect_to(&self, name: Option<&ForkName>) -> Result<(Client, ForkName), Failure> {
        let connection = self.connect_to_forks()?;
        let mut connection = connection.ok_or_else(|| no_such_fork(name))?;
        let fork = match name {
            Some(name) => name.clone(),
            None => self.fork_here(&mut connection)?,
        };
        Ok((connection, fork))
    }

    /// Returns the fork whose mount contains the directory, or fails.
    fn fork_here(&self, connection: &mut Client) -> Result<ForkName, Failure> {
        self.fork_if_here(connection)?
            .ok_or_else(Failure::not_in_fork)
    }

    /// Returns the fork whose mount contains the directory, if any.
    ///
    /// # Errors
    /// The errors of [`Client::call`].
    pub fn fork_if_here(&self, connection: &mut Client) -> Result<Option<ForkName>, Failure> {
        Ok(connection.call(&FindFork {})?.fork)
    }

    /// Returns the one of `forks` whose mount contains the directory.
    ///
    /// `forks` must be all forks of the repository: where mounts are nested, the innermost counts.
    pub fn here_of<'a>(&self, forks: &'a [ForkInfo]) -> Option<&'a ForkInfo> {
        forks
            .iter()
            .filter(|fork| fork.mounted && self.is_beneath(&fork.mount_dir))
            .max_by_key(|fork| fork.mount_dir.as_os_str().len())
    }

    /// Returns whether the directory is `mount_dir` or under it.
    pub fn is_beneath(&self, mount_dir: &Path) -> bool {
        relative_path(mount_dir, &self.outside()).is_some()
    }

    /// Returns the directory as the daemon sees it.
    fn outside(&self) -> PathBuf {
        match self.at_origin() {
            Some(at_origin) => at_origin.outside(&self.cwd),
            None => self.cwd.clone(),
        }
    }

    /// Connects to call `operation`.
    ///
    /// If the operation names a fork and the repository has no store, no daemon is started.
    ///
    /// # Errors
    /// `no-such-fork` or `not-in-fork` if there is no store, and the errors of [`Place::connect`].
    pub fn connect_for<O: Operation + Clone>(&self, operation: &O) -> Result<Client, Failure> {
        match operation.clone().fork() {
            Some(fork) => {
                let connection = self.connect_to_forks()?;
                connection.ok_or_else(|| no_such_fork(fork.as_ref()))
            }
            None => self.connect(),
        }
    }

    /// Changes to the directory `/`, so that no mount is busy.
    pub fn step_out(&self) {
        // If this fails, the unmount reports the process that keeps it busy.
        let _ = std::env::set_current_dir("/");
    }
}

/// Returns the failure for a fork in a repository without a store.
fn no_such_fork(name: Option<&ForkName>) -> Failure {
    match name {
        Some(name) => Failure::no_such_fork(name),
        None => Failure::not_in_fork(),
    }
}

/// Returns this process's command line, quoted for a shell.
fn command_line() -> String {
    let words = std::env::args_os()
        .skip(1)
        .map(|word| shell_word(word.as_bytes()));
    std::iter::once("tine".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the process's umask, or 022 if it is not known.
pub fn umask() -> u16 {
    // umask(2) returns it only by changing it.
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
