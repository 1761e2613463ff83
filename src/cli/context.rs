//! Where a command runs: its directory, the repository around it, the daemon, and the fork it means.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::args::Global;
use super::failures;
use super::origin::AtOrigin;
use super::output::Output;
use crate::client::Client;
use crate::fuse;
use crate::git::Repository;
use crate::ops::protocol::{
    Answer, Changes, Collected, CommitLine, Committed, DaemonInfo, Deleted, Difference, Figures, ForkInfo,
    HandoffAnswer, HandoffInfo, HandoffRequest, Merge, Request, Restored, ReviewInfo, RoundAnswer,
    RoundRequest, SnapshotInfo, Unmounted,
};
use crate::ops::{ErrorCode, Failure};
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

/// What [`Connection::ask`] wants of an answer: what is in the one kind that it must be.
macro_rules! only {
    ($answer:pat => $wanted:expr) => {
        |answer| match answer {
            $answer => Some($wanted),
            _ => None,
        }
    };
}
pub(crate) use only;

/// A connection to the daemon, with the answers taken out of their wrapping.
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

    pub fn daemon(&mut self) -> Result<DaemonInfo, Failure> {
        self.ask(&Request::Status, only!(Answer::Daemon(info) => info))
    }

    /// What the daemon holds in memory.
    pub fn figures(&mut self) -> Result<Figures, Failure> {
        self.ask(&Request::Figures, only!(Answer::Figures(figures) => figures))
    }

    /// All forks, and what is wrong with those that cannot be read.
    pub fn forks(&mut self) -> Result<(Vec<ForkInfo>, Vec<Failure>), Failure> {
        self.ask(
            &Request::List,
            only!(Answer::Forks { forks, damaged } => (forks, damaged)),
        )
    }

    pub fn show(&mut self, fork: &ForkName) -> Result<ForkInfo, Failure> {
        self.fork(&Request::Show { fork: fork.clone() })
    }

    /// Sends what is answered with [`Answer::Fork`].
    pub fn fork(&mut self, request: &Request) -> Result<ForkInfo, Failure> {
        self.ask(request, only!(Answer::Fork(info) => info))
    }

    pub fn unmount(&mut self, request: &Request) -> Result<Unmounted, Failure> {
        self.ask(request, only!(Answer::Unmounted(unmounted) => unmounted))
    }

    pub fn delete(&mut self, request: &Request) -> Result<Deleted, Failure> {
        self.ask(request, only!(Answer::Deleted(deleted) => deleted))
    }

    /// Sends what is answered with [`Answer::Done`].
    pub fn done(&mut self, request: &Request) -> Result<(), Failure> {
        self.ask(request, only!(Answer::Done => ()))
    }

    pub fn snapshot(&mut self, request: &Request) -> Result<SnapshotInfo, Failure> {
        self.ask(request, only!(Answer::Snapshot(snapshot) => snapshot))
    }

    /// The fork's snapshots, the oldest first.
    pub fn snapshots(&mut self, fork: &ForkName) -> Result<Vec<SnapshotInfo>, Failure> {
        let request = Request::Snapshots { fork: fork.clone() };
        self.ask(&request, only!(Answer::Snapshots { snapshots } => snapshots))
    }

    /// The reviews, those that are closed too if `all`; and what is wrong with those that cannot be read.
    pub fn reviews(&mut self, all: bool) -> Result<(Vec<ReviewInfo>, Vec<Failure>), Failure> {
        self.ask(
            &Request::Reviews { all },
            only!(Answer::Reviews { reviews, damaged } => (reviews, damaged)),
        )
    }

    /// Asks about handoffs.
    pub fn handoff<T>(
        &mut self,
        request: HandoffRequest,
        take: impl FnOnce(HandoffAnswer) -> Option<T>,
    ) -> Result<T, Failure> {
        self.ask(&Request::Handoff(Box::new(request)), |answer| match answer {
            Answer::Handoff(answer) => take(*answer),
            _ => None,
        })
    }

    /// Sends what is answered with [`HandoffAnswer::Many`]: handoffs, and what is wrong with those that cannot be read.
    pub fn handoffs(&mut self, request: HandoffRequest) -> Result<(Vec<HandoffInfo>, Vec<Failure>), Failure> {
        self.handoff(
            request,
            only!(HandoffAnswer::Many { handoffs, damaged } => (handoffs, damaged)),
        )
    }

    /// Asks about rounds.
    pub fn round<T>(
        &mut self,
        request: RoundRequest,
        take: impl FnOnce(RoundAnswer) -> Option<T>,
    ) -> Result<T, Failure> {
        self.ask(&Request::Round(Box::new(request)), |answer| match answer {
            Answer::Round(answer) => take(*answer),
            _ => None,
        })
    }

    /// Sends what is answered with [`Answer::Restored`].
    pub fn restored(&mut self, request: &Request) -> Result<Restored, Failure> {
        self.ask(request, only!(Answer::Restored(restored) => restored))
    }

    pub fn collected(&mut self, request: &Request) -> Result<Collected, Failure> {
        self.ask(request, only!(Answer::Collected(collected) => collected))
    }

    pub fn changes(&mut self, fork: &ForkName, write: bool) -> Result<Changes, Failure> {
        let request = Request::Changes {
            fork: fork.clone(),
            write,
        };
        self.ask(&request, only!(Answer::Changes(changes) => changes))
    }

    /// Sends what is answered with [`Answer::Difference`].
    pub fn difference(&mut self, request: &Request) -> Result<Difference, Failure> {
        self.ask(request, only!(Answer::Difference(difference) => *difference))
    }

    pub fn commit(&mut self, request: &Request) -> Result<Committed, Failure> {
        self.ask(request, only!(Answer::Committed(committed) => committed))
    }

    /// Sends what is answered with [`Answer::Merge`].
    pub fn merged(&mut self, request: &Request) -> Result<Merge, Failure> {
        self.ask(request, only!(Answer::Merge(merge) => *merge))
    }

    /// The commits since the fork point, newest first.
    pub fn log(&mut self, fork: &ForkName, limit: usize) -> Result<Vec<CommitLine>, Failure> {
        let request = Request::Log {
            fork: fork.clone(),
            limit,
        };
        self.ask(&request, only!(Answer::Log { commits } => commits))
    }

    /// Sends any request, and has `take` take what it wants out of the answer.
    pub fn ask<T>(
        &mut self,
        request: &Request,
        take: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<T, Failure> {
        log::debug!("asks the daemon: {}", name_of(request));
        log::trace!("{request:?}");
        let asked = Instant::now();
        let busy = self.output.and_then(|output| output.busy(doing(request)));
        let answer = self.client.call(request);
        drop(busy);
        log::debug!("the daemon took {:?}", asked.elapsed());
        let answer = answer?;
        take(answer).ok_or_else(|| Failure::unexpected_answer(&format!("{request:?}")))
    }
}

/// What is asked, without what is said of it: that may be long, or nobody else's business.
fn name_of(request: &Request) -> String {
    let told = format!("{request:?}");
    let end = told.find(|c: char| !c.is_alphanumeric()).unwrap_or(told.len());
    told.get(..end).unwrap_or_default().to_owned()
}

/// What the daemon does meanwhile, for who waits.
fn doing(request: &Request) -> &'static str {
    match request {
        Request::New(_) => "making the fork",
        Request::Mount { .. } => "mounting",
        Request::Unmount { .. } => "unmounting",
        Request::Delete { .. } => "deleting the fork",
        Request::Snapshot { .. } => "taking the snapshot",
        Request::Restore(_) => "restoring",
        Request::Recover(_) => "looking at what was dropped",
        Request::Reset { .. } => "resetting",
        Request::Revert(_) => "taking back",
        Request::TakeUpTrees { .. } => "taking up dependency trees",
        Request::Collect => "freeing what nothing reaches",
        Request::Check { .. } => "checking",
        Request::SetAside { .. } => "putting back",
        Request::Changes { .. } | Request::Diff { .. } => "comparing",
        Request::Commit { .. } => "committing",
        Request::State(_) => "making the state to send",
        Request::Merge(_) => "merging",
        Request::Sequence(_) => "putting commits on it",
        Request::SwitchBranch(_) => "switching",
        Request::RefreshReview { .. } => "planning again",
        Request::CommitReview(_) => "merging what is resolved",
        Request::Handoff(_) => "waiting for handoffs",
        Request::Round(_) => "playing the round",
        Request::Write(_) => "writing",
        Request::Remove { .. } => "removing",
        Request::TakeBack { .. } => "taking back",
        Request::Tool(_) => "looking",
        _ => "waiting for the daemon",
    }
}
