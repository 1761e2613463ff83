//! Shell commands that the agent's process runs, limited in time and output.
//!
//! A command leads its own process group. When its time is over or the caller cancels it, the whole
//! group gets `SIGTERM`, and `SIGKILL` if it does not end. When a command has ended by itself, its
//! background processes keep running, as after a shell. Nothing waits for them, although they hold
//! the command's output open.

mod output;

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thiserror::Error;

pub use self::output::RunOutput;
use self::output::capture;
use tine_failure::{Failure, ToFailure};
use tine_git::program::PLACE_VARIABLES;
use tine_store::ForkName;
use tine_sys::process;

/// Time between `SIGTERM` and `SIGKILL` for a group.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Maximum wait for the rest of the output after the command ended.
const REST_PATIENCE: Duration = Duration::from_millis(250);

/// Maximum wait for a group to end after `SIGKILL`.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Returns the variables of git to remove from a command's environment.
///
/// They select a repository, index or object directory, so they would lead out of the fork.
pub fn git_variables() -> impl Iterator<Item = &'static str> {
    PLACE_VARIABLES
        .into_iter()
        .chain(["GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE"])
}

/// Returns the variables to add for a command in a fork.
///
/// `root` is where the command sees the fork's root.
pub fn fork_env(name: &ForkName, root: &Path) -> Vec<(&'static str, PathBuf)> {
    vec![
        ("TINE_FORK", PathBuf::from(name.as_str())),
        ("TINE_MOUNT", root.to_owned()),
    ]
}

/// Command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunCommand {
    /// A program and its arguments.
    Words(Vec<OsString>),
    /// A line for `sh -c`.
    Shell(OsString),
}

/// Command with its directory, environment and limits.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The command.
    pub command: RunCommand,
    /// Working directory.
    pub dir: PathBuf,
    /// Variables to add to this process's environment without [`git_variables`].
    pub env: Vec<(OsString, OsString)>,
    /// Time limit. None for no limit.
    pub timeout: Option<Duration>,
    /// Number of bytes to keep of each of stdout and stderr.
    ///
    /// Half of it is from the beginning, half from the end.
    pub output_max: usize,
}

/// Way in which a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// It exited with this code.
    Exit(i32),
    /// This signal killed it.
    Signal(i32),
    /// It exceeded its time limit and was ended.
    TimedOut,
    /// It was cancelled and ended.
    Cancelled,
}

/// Result of running a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    /// Way in which it ended.
    pub end: RunEnd,
    /// Its standard output.
    pub stdout: RunOutput,
    /// Its standard error.
    pub stderr: RunOutput,
    /// Time from its start to its end.
    pub elapsed: Duration,
    /// True if background processes still hold its output open.
    pub goes_on: bool,
}

/// Error of starting or watching a command.
#[derive(Debug, Error, ToFailure)]
pub enum RunError {
    /// There is no program to run.
    #[error("the command is empty")]
    #[failure(Usage)]
    #[hint("give a program and its arguments")]
    Empty,
    /// The program does not exist.
    #[error("the command {0:?} is not found")]
    #[failure(CommandNotFound)]
    #[hint("it is looked for in PATH; one with a slash is looked for from the working directory")]
    NotFound(OsString),
    /// The program exists but may not be executed.
    #[error("the command {program:?} is not executable")]
    #[failure(PermissionDenied, cause = source)]
    #[hint("`chmod +x` makes it executable; `sh FILE` runs a script as it is")]
    NotExecutable {
        /// The program as given.
        program: OsString,
        /// Error of the system.
        source: io::Error,
    },
    /// The working directory cannot be read.
    #[error("the command cannot be run in {}", dir.display())]
    #[failure(with = Failure::io("enter", dir, source)
        .hint("mount the fork (`tine mount`), or name a directory that is there"))]
    NoDirectory {
        /// The working directory.
        dir: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Another call failed.
    #[error("the command cannot be run")]
    #[failure(Io, cause = _0)]
    Io(#[source] io::Error),
}

/// Handle that cancels the commands run with it.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Mutex<CancelState>>);

#[derive(Default)]
struct CancelState {
    is_cancelled: bool,
    running: Vec<Sender<Event>>,
}

impl Cancel {
    /// Creates a handle that is not cancelled.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Cancels commands that run with this handle, now and later.
    ///
    /// Does not block.
    pub fn cancel(&self) {
        let mut state = self.0.lock();
        state.is_cancelled = true;
        for running in state.running.drain(..) {
            // The receiver is gone if the command has ended.
            let _ = running.send(Event::Cancelled);
        }
    }

    /// Returns whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.lock().is_cancelled
    }

    /// Registers a running command. A cancelled handle cancels it at once.
    fn register(&self, running: &Sender<Event>) {
        let mut state = self.0.lock();
        if state.is_cancelled {
            let _ = running.send(Event::Cancelled);
        } else {
            state.running.push(running.clone());
        }
    }
}

/// Event of a running command.
enum Event {
    Ended(io::Result<()>),
    /// All writers have closed one of the two outputs.
    Closed,
    Cancelled,
}

/// State of a running command.
struct Watch {
    events: Receiver<Event>,
    has_ended: bool,
    open_outputs: usize,
    is_cancelled: bool,
}

impl Watch {
    /// Waits until `done` returns true, or until the moment.
    ///
    /// Returns whether `done` returned true.
    fn until(
        &mut self,
        moment: Option<Instant>,
        done: impl Fn(&Watch) -> bool,
    ) -> io::Result<bool> {
        while !done(self) {
            let event = match moment {
                None => self.events.recv().ok(),
                Some(moment) => {
                    let left = moment.saturating_duration_since(Instant::now());
                    self.events.recv_timeout(left).ok()
                }
            };
            match event {
                None => return Ok(false),
                Some(Event::Ended(ended)) => {
                    ended?;
                    self.has_ended = true;
                }
                Some(Event::Closed) => self.open_outputs = self.open_outputs.saturating_sub(1),
                Some(Event::Cancelled) => self.is_cancelled = true,
            }
        }
        Ok(true)
    }

    fn is_over(&self) -> bool {
        self.has_ended && self.open_outputs == 0
    }
}

/// Runs a command and blocks until it has ended.
///
/// # Errors
/// [`RunError`] if the command cannot be started or watched. A command that fails or is killed is
/// an outcome.
pub fn run(spec: &RunSpec, cancel: &Cancel) -> Result<RunOutcome, RunError> {
    let mut child = spawn(spec)?;
    let started = Instant::now();
    let group = child.id();
    let (sender, events) = mpsc::channel();
    let stdout = capture(child.stdout.take(), spec.output_max, &sender);
    let stderr = capture(child.stderr.take(), spec.output_max, &sender);
    let mut watch = Watch {
        events,
        has_ended: false,
        open_outputs: 2,
        is_cancelled: false,
    };
    cancel.register(&sender);
    let watched = thread::Builder::new()
        .name("tine-run".to_owned())
        .spawn(move || {
            // The receiver is gone if `run` has returned.
            let _ = sender.send(Event::Ended(process::await_end(group)));
        });
    let waited = match watched {
        Ok(_) => wait(&mut watch, group, started, spec.timeout),
        Err(error) => process::kill_group(group).and(Err(error)),
    };
    let end = match waited.and_then(|end| Ok((end, reap(child, watch.has_ended)?))) {
        Ok((Some(end), _)) => end,
        Ok((None, status)) => match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => RunEnd::Exit(code),
            Some((None, Some(signal))) => RunEnd::Signal(signal),
            Some((None, None)) | None => return Err(RunError::Io(ErrorKind::Other.into())),
        },
        Err(error) => return Err(RunError::Io(error)),
    };
    let (stdout, stderr) = (stdout.lock().take(), stderr.lock().take());
    Ok(RunOutcome {
        end,
        stdout,
        stderr,
        elapsed: started.elapsed(),
        goes_on: watch.open_outputs > 0,
    })
}

/// Waits until the command has ended, and ends it if necessary.
///
/// Returns the reason if it was ended.
fn wait(
    watch: &mut Watch,
    group: u32,
    started: Instant,
    timeout: Option<Duration>,
) -> io::Result<Option<RunEnd>> {
    // A timeout beyond the range of the clock is no limit.
    let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
    watch.until(deadline, |watch| watch.has_ended || watch.is_cancelled)?;
    if watch.has_ended {
        watch.until(Some(Instant::now() + REST_PATIENCE), Watch::is_over)?;
        return Ok(None);
    }
    let end = if watch.is_cancelled {
        RunEnd::Cancelled
    } else {
        RunEnd::TimedOut
    };
    process::end_group(group)?;
    watch.until(Some(Instant::now() + END_PATIENCE), Watch::is_over)?;
    // The leader is not reaped yet, so the group id cannot have been reused.
    process::kill_group(group)?;
    watch.until(Some(Instant::now() + KILL_PATIENCE), |watch| {
        watch.has_ended
    })?;
    watch.until(Some(Instant::now() + REST_PATIENCE), Watch::is_over)?;
    Ok(Some(end))
}

/// Reaps the child.
///
/// A thread waits for a child that cannot be killed yet.
fn reap(mut child: Child, has_ended: bool) -> io::Result<Option<ExitStatus>> {
    if has_ended {
        return child.wait().map(Some);
    }
    thread::Builder::new()
        .name("tine-reap".to_owned())
        .spawn(move || child.wait())?;
    Ok(None)
}

fn spawn(spec: &RunSpec) -> Result<Child, RunError> {
    let shell = [OsStr::new("sh"), OsStr::new("-c")];
    let words: Vec<&OsStr> = match &spec.command {
        RunCommand::Words(words) => words.iter().map(OsString::as_os_str).collect(),
        RunCommand::Shell(line) => shell.into_iter().chain([line.as_os_str()]).collect(),
    };
    let (program, arguments) = words.split_first().ok_or(RunError::Empty)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&spec.dir)
        .env("PWD", &spec.dir)
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    for variable in git_variables() {
        command.env_remove(variable);
    }
    command.spawn().map_err(|source| {
        if let Err(source) = spec.dir.read_dir() {
            let dir = spec.dir.clone();
            return RunError::NoDirectory { dir, source };
        }
        let program = program.to_os_string();
        match source.kind() {
            ErrorKind::NotFound => RunError::NotFound(program),
            ErrorKind::PermissionDenied => RunError::NotExecutable { program, source },
            _ => RunError::Io(source),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(line: &str) -> RunSpec {
        RunSpec {
            command: RunCommand::Shell(line.into()),
            dir: "/".into(),
            env: vec![("TINE_FORK".into(), "demo".into())],
            timeout: Some(Duration::from_secs(60)),
            output_max: 1 << 20,
        }
    }

    fn ran(line: &str) -> RunOutcome {
        run(&spec(line), &Cancel::new()).unwrap()
    }

    /// The process whose number was printed.
    fn pid_in(output: &RunOutput) -> u32 {
        output.text().trim().parse().unwrap()
    }

    fn is_there(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    /// One that was killed, and is not this process's to wait for, may take a moment.
    #[track_caller]
    fn assert_goes(pid: u32) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while is_there(pid) && !process::main_thread_has_ended(pid) {
            assert!(Instant::now() < deadline, "{pid} is there");
            thread::yield_now();
        }
    }

    #[test]
    fn a_command_tells_how_it_ended_and_what_it_printed() {
        let outcome = ran("pwd; echo $TINE_FORK >&2; exit 3");
        assert_eq!(outcome.end, RunEnd::Exit(3));
        assert_eq!(
            (outcome.stdout.text(), outcome.stderr.text()),
            ("/\n".into(), "demo\n".into())
        );
        assert!(!outcome.goes_on);
        assert_eq!(ran("kill -9 $$").end, RunEnd::Signal(9));
        let words = RunSpec {
            command: RunCommand::Words(vec![
                "printf".into(),
                "%s|".into(),
                "a b".into(),
                "$x".into(),
            ]),
            ..spec("")
        };
        assert_eq!(
            run(&words, &Cancel::new()).unwrap().stdout.text(),
            "a b|$x|"
        );
        assert_eq!(ran("cat").end, RunEnd::Exit(0), "there is nothing to read");
        let outcome = ran("echo $$");
        assert!(!is_there(pid_in(&outcome.stdout)), "it was waited for");
    }

    #[test]
    fn of_much_output_the_beginning_and_the_end_are_kept() {
        let spec = RunSpec {
            output_max: 10,
            ..spec("seq 1 100000; echo end >&2")
        };
        let outcome = run(&spec, &Cancel::new()).unwrap();
        assert_eq!(outcome.stdout.head, b"1\n2\n3");
        assert_eq!(outcome.stdout.tail, b"0000\n");
        let all = (1..=100_000)
            .map(|n: u32| n.to_string().len() as u64 + 1)
            .sum::<u64>();
        assert_eq!(outcome.stdout.left_out, all - 10);
        assert_eq!(
            outcome.stdout.text(),
            format!("1\n2\n3\n[{} bytes are left out here]\n0000\n", all - 10)
        );
        assert_eq!(
            (outcome.stderr.text(), outcome.stderr.left_out),
            ("end\n".into(), 0)
        );
        let nothing = RunSpec {
            output_max: 0,
            ..spec
        };
        let outcome = run(&nothing, &Cancel::new()).unwrap();
        assert_eq!(outcome.stdout.left_out, all);
    }

    #[test]
    fn when_its_time_is_over_all_that_it_started_ends() {
        // A child that does not heed the wish, of a shell that waits for it.
        let spec = RunSpec {
            timeout: Some(Duration::from_millis(300)),
            ..spec("sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1000; done' & wait; wait")
        };
        let outcome = run(&spec, &Cancel::new()).unwrap();
        assert_eq!(outcome.end, RunEnd::TimedOut);
        assert_goes(pid_in(&outcome.stdout));
        assert!(!outcome.goes_on, "its output is closed");
    }

    #[test]
    fn who_is_asked_to_end_may_say_something_about_it() {
        let spec = RunSpec {
            timeout: Some(Duration::from_millis(300)),
            ..spec("trap 'echo bye; exit 5' TERM; echo hi; while :; do sleep 0.01; done")
        };
        let outcome = run(&spec, &Cancel::new()).unwrap();
        assert_eq!(outcome.end, RunEnd::TimedOut);
        assert_eq!(outcome.stdout.text(), "hi\nbye\n");
    }

    #[test]
    fn what_nobody_wants_any_more_ends() {
        let cancel = Cancel::new();
        let place = tempfile::tempdir().unwrap();
        let begun = place.path().join("begun");
        let spec = RunSpec {
            timeout: None,
            dir: place.path().to_owned(),
            ..spec("echo $$; touch begun; sleep 1000")
        };
        let outcome = thread::scope(|scope| {
            let running = scope.spawn(|| run(&spec, &cancel).unwrap());
            while !begun.exists() {
                thread::yield_now();
            }
            cancel.cancel();
            running.join().unwrap()
        });
        assert_eq!(outcome.end, RunEnd::Cancelled);
        assert!(!is_there(pid_in(&outcome.stdout)));
        assert!(cancel.is_cancelled());
        let outcome = run(&spec, &cancel).unwrap();
        assert_eq!(outcome.end, RunEnd::Cancelled, "what begins later, too");
    }

    #[test]
    fn what_goes_on_in_the_background_is_not_waited_for() {
        let outcome = ran("sleep 1000 & echo $!");
        assert_eq!(outcome.end, RunEnd::Exit(0));
        assert!(outcome.goes_on);
        let pid = pid_in(&outcome.stdout);
        assert!(is_there(pid));
        process::kill(pid).unwrap();
        assert_goes(pid);
    }

    #[test]
    fn a_command_that_cannot_be_run_says_why() {
        let words = |words: &[&str]| {
            let spec = RunSpec {
                command: RunCommand::Words(words.iter().map(OsString::from).collect()),
                ..spec("")
            };
            run(&spec, &Cancel::new()).unwrap_err()
        };
        assert!(matches!(words(&[]), RunError::Empty));
        assert!(matches!(words(&["no-such-program"]), RunError::NotFound(_)));
        assert!(matches!(
            words(&["/etc/passwd"]),
            RunError::NotExecutable { .. }
        ));
        let elsewhere = RunSpec {
            dir: "/no/such/directory".into(),
            ..spec("true")
        };
        let error = run(&elsewhere, &Cancel::new()).unwrap_err();
        assert!(matches!(error, RunError::NoDirectory { .. }));
    }
}
