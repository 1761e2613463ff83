//! Running shell commands for an agent, in the agent's own process: within a time, with so much of
//! their output, and so that nothing of them is left when they are ended.
//!
//! A command leads a process group of its own. When its time is over, or the caller does not want
//! it any more, the whole group is asked to end (`SIGTERM`), and killed where it does not. What
//! goes on in the background after a command has ended by itself goes on, as it does after a shell;
//! nobody waits for it, although it holds the command's output open.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thiserror::Error;

use tine_git::program::PLACE_VARIABLES;
use tine_sys::process;
use tine_workspace::ForkName;

/// How long a group that was asked to end may take before it is killed.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// How long the rest of the output may take when the command has ended, and how long a killed one
/// to be gone.
const REST_PATIENCE: Duration = Duration::from_millis(250);
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Pipes are read in pieces of this many bytes.
const CHUNK: usize = 64 << 10;

/// git's variables that say which repository, index or objects to use: a command in a fork must not
/// have them.
pub fn git_variables() -> impl Iterator<Item = &'static str> {
    PLACE_VARIABLES
        .into_iter()
        .chain(["GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE"])
}

/// What a command has in its environment in a fork whose root is seen at `root`.
pub fn fork_env(name: &ForkName, root: &Path) -> Vec<(&'static str, PathBuf)> {
    vec![
        ("TINE_FORK", PathBuf::from(name.as_str())),
        ("TINE_MOUNT", root.to_owned()),
    ]
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunCommand {
    /// A program and its arguments.
    Words(Vec<OsString>),
    /// A line for `sh`.
    Shell(OsString),
}

/// A command, where it runs, and within what bounds.
#[derive(Debug, Clone)]
pub struct RunSpec {
    pub command: RunCommand,
    pub dir: PathBuf,
    /// Beside what this process has, without [`git_variables`].
    pub env: Vec<(OsString, OsString)>,
    /// `None`: as long as it takes.
    pub timeout: Option<Duration>,
    /// Of each, standard output and standard error, so much is kept: half of it from the beginning,
    /// half from the end.
    pub output_max: usize,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    Exit(i32),
    Signal(i32),
    /// It was ended because its time was over.
    TimedOut,
    /// It was ended because nobody wanted it any more.
    Cancelled,
}

/// What a command printed, as far as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunOutput {
    pub head: Vec<u8>,
    /// Bytes between the two.
    pub left_out: u64,
    pub tail: Vec<u8>,
}

impl RunOutput {
    /// All of it as text, lossily decoded, with a line that says how much is left out.
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.left_out > 0 {
            let end = if text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!(
                "{end}[{} bytes are left out here]\n",
                self.left_out
            ));
        }
        text.push_str(&String::from_utf8_lossy(&self.tail));
        text
    }
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    pub end: RunEnd,
    pub stdout: RunOutput,
    pub stderr: RunOutput,
    pub elapsed: Duration,
    /// Whether something of it goes on in the background, and holds its output open.
    pub goes_on: bool,
}

/// Why a command could not be run.
#[derive(Debug, Error)]
pub enum RunError {
    #[error("the command is empty")]
    Empty,
    #[error("the command {0:?} is not found")]
    NotFound(OsString),
    #[error("the command {program:?} is not executable")]
    NotExecutable {
        program: OsString,
        source: io::Error,
    },
    #[error("the command cannot be run in {}", dir.display())]
    NoDirectory { dir: PathBuf, source: io::Error },
    #[error("the command cannot be run")]
    Io(#[source] io::Error),
}

/// Ends commands that run with it.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Mutex<CancelState>>);

#[derive(Default)]
struct CancelState {
    is_cancelled: bool,
    running: Vec<Sender<Event>>,
}

impl Cancel {
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Ends what runs with this, and what begins later. Does not wait.
    pub fn cancel(&self) {
        let mut state = self.0.lock();
        state.is_cancelled = true;
        for running in state.running.drain(..) {
            // It has ended.
            let _ = running.send(Event::Cancelled);
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.lock().is_cancelled
    }

    fn tell(&self, running: &Sender<Event>) {
        let mut state = self.0.lock();
        match state.is_cancelled {
            true => {
                let _ = running.send(Event::Cancelled);
            }
            false => state.running.push(running.clone()),
        }
    }
}

/// What happens while a command runs.
enum Event {
    Ended(io::Result<()>),
    /// One of the two outputs is closed by all who had it.
    Closed,
    Cancelled,
}

/// What is known of a command that runs.
struct Watch {
    events: Receiver<Event>,
    has_ended: bool,
    open_outputs: usize,
    is_cancelled: bool,
}

impl Watch {
    /// Waits until `done`, or the moment; whether `done`.
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

/// Runs a command to its end.
pub fn run(spec: &RunSpec, cancel: &Cancel) -> Result<RunOutcome, RunError> {
    let mut child = spawn(spec)?;
    let started = Instant::now();
    let group = child.id();
    let (tell, events) = mpsc::channel();
    let stdout = gather(child.stdout.take(), spec.output_max, &tell);
    let stderr = gather(child.stderr.take(), spec.output_max, &tell);
    let mut watch = Watch {
        events,
        has_ended: false,
        open_outputs: 2,
        is_cancelled: false,
    };
    cancel.tell(&tell);
    let watched = thread::Builder::new()
        .name("tine-run".to_owned())
        .spawn(move || {
            // Who listens may have gone.
            let _ = tell.send(Event::Ended(process::await_end(group)));
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

/// Waits until the command has ended, by itself or because it had to: why it had to.
fn wait(
    watch: &mut Watch,
    group: u32,
    started: Instant,
    timeout: Option<Duration>,
) -> io::Result<Option<RunEnd>> {
    // A time beyond all clocks is none.
    let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
    watch.until(deadline, |watch| watch.has_ended || watch.is_cancelled)?;
    if watch.has_ended {
        watch.until(Some(Instant::now() + REST_PATIENCE), Watch::is_over)?;
        return Ok(None);
    }
    let end = match watch.is_cancelled {
        true => RunEnd::Cancelled,
        false => RunEnd::TimedOut,
    };
    process::end_group(group)?;
    watch.until(Some(Instant::now() + END_PATIENCE), Watch::is_over)?;
    // The leader was not waited for yet, so that the group's number is still its own.
    process::kill_group(group)?;
    watch.until(Some(Instant::now() + KILL_PATIENCE), |watch| {
        watch.has_ended
    })?;
    watch.until(Some(Instant::now() + REST_PATIENCE), Watch::is_over)?;
    Ok(Some(end))
}

/// Waits for the child, so that nothing is left of it; a thread does it for one that has not ended,
/// and cannot be killed yet.
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

/// What a pipe gave so far.
struct Gathered {
    max: usize,
    head: Vec<u8>,
    /// The newest bytes, and some that are not kept in the end.
    tail: Vec<u8>,
    left_out: u64,
    /// What comes now is nobody's.
    is_taken: bool,
}

impl Gathered {
    fn add(&mut self, bytes: &[u8]) {
        if self.is_taken {
            return;
        }
        let room = (self.max - self.max / 2).saturating_sub(self.head.len());
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > self.max.max(CHUNK) {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        let over = self.tail.len().saturating_sub(self.max / 2);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    fn take(&mut self) -> RunOutput {
        self.shorten();
        self.is_taken = true;
        RunOutput {
            head: std::mem::take(&mut self.head),
            left_out: self.left_out,
            tail: std::mem::take(&mut self.tail),
        }
    }
}

/// Reads a pipe to its end, also when nobody wants it any more: who still has it is not to be
/// stopped by a full one.
fn gather(
    pipe: Option<impl Read + Send + 'static>,
    max: usize,
    tell: &Sender<Event>,
) -> Arc<Mutex<Gathered>> {
    let gathered = Arc::new(Mutex::new(Gathered {
        max,
        head: Vec::new(),
        tail: Vec::new(),
        left_out: 0,
        is_taken: false,
    }));
    let (to, closed) = (gathered.clone(), tell.clone());
    let read = move || {
        if let Some(mut pipe) = pipe {
            let mut buffer = vec![0; CHUNK];
            loop {
                match pipe.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => to.lock().add(buffer.get(..count).unwrap_or_default()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
        // Who listens may have gone.
        let _ = closed.send(Event::Closed);
    };
    if let Err(error) = thread::Builder::new()
        .name("tine-output".to_owned())
        .spawn(read)
    {
        log::warn!("a command's output is not read: {error}");
        let _ = tell.send(Event::Closed);
    }
    gathered
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
