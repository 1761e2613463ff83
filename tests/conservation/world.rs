//! Where the actors work: a repository, a remote, the marks, and the running of commands.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents::Agent;
use crate::chance::{SHARED_BRANCHES, SHARED_FILES};
use crate::editors::Editor;
use crate::marks::{Kind, Mark, MarkId, Marks};
use crate::oracle::Failure;
use crate::plan::{Plan, Role, Step};
use crate::rounds::Rounds;
use crate::support::fuse::Watchdog;
use crate::support::{OutputExt, TestRepo, Tine, path_text, process, run_with_timeout_of};
use crate::users::User;

/// How long one command may take on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(90);
/// How long an actor waits for others at a meeting.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The directory of a clone of the remote.
const COLLEAGUE: &str = "colleague";
/// Each actor has a line in the shared files.
const LINES: usize = 16;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Yes,
    /// It was refused, or there was nothing to do: nothing was changed.
    No,
    /// The daemon, or what it waited for, was killed meanwhile: it happened or not.
    Perhaps,
}

impl Done {
    /// Whether it may have happened.
    pub fn maybe(self) -> bool {
        self != Done::No
    }
}

/// An answer of tine's.
pub struct Answer {
    pub done: Done,
    pub value: Value,
}

pub struct World<'r> {
    pub repo: &'r TestRepo,
    pub tine: &'r Tine<'r>,
    pub marks: Marks,
    /// Forks in which somebody took an operation back, and the paths that it was about; an empty
    /// one stands for all. HEAD may have those as they were.
    pub undone: Mutex<BTreeSet<(String, String)>>,
    /// What the files of agents' private forks lack of HEAD because they went back past it with
    /// `--exact`.
    pub exact: Mutex<BTreeMap<usize, BTreeSet<MarkId>>>,
    /// Held by who works in the clone.
    pub colleague: Mutex<()>,
    /// Paths that the person in the main checkout has touched and not committed; none when that is
    /// not known.
    pub touched_in_main: Mutex<Option<BTreeSet<String>>>,
    /// Held alone by a command of git's in the main checkout that looks at a branch before it locks
    /// anything (`switch`, `merge`, `stash`): one who moves the branch meanwhile is undone, by git
    /// itself, too.
    git_alone: RwLock<()>,
    /// `tine merge` takes uncommitted work into a branch only when it is told to.
    pub asks_for_uncommitted: bool,
    began: Instant,
    trace: Mutex<Vec<String>>,
    failures: Mutex<Vec<Failure>>,
    expected: HashMap<u16, usize>,
    met: Mutex<HashMap<u16, usize>>,
    meeting: Condvar,
    daemon_may_end: bool,
    root: PathBuf,
}

impl<'r> World<'r> {
    pub fn new(repo: &'r TestRepo, tine: &'r Tine<'r>, plan: &Plan) -> World<'r> {
        for file in 0..SHARED_FILES {
            let lines =
                (0..LINES).map(|line| format!("a{line}: \nbetween\nthis {line}\nand the next\n"));
            repo.write(&format!("shared/f{file}"), lines.collect::<String>());
        }
        repo.write("u/first", "first\n");
        repo.commit_all("shared files");
        for branch in 0..SHARED_BRANCHES {
            repo.git(&["branch", &format!("s{branch}")]);
        }
        let remote = repo.root().join("remote.git");
        repo.git(&["init", "-q", "--bare", path_text(&remote)]);
        repo.git(&["remote", "add", "origin", path_text(&remote)]);
        repo.git(&["push", "-q", "-u", "origin", "main"]);
        let clone = repo.root().join(COLLEAGUE);
        repo.git(&["clone", "-q", path_text(&remote), path_text(&clone)]);
        let steps = || plan.0.iter().flat_map(|actor| &actor.steps);
        let mut expected = HashMap::new();
        for step in steps() {
            if let Step::Meet(number) = step {
                *expected.entry(*number).or_insert(0) += 1;
            }
        }
        let help = tine.ok(&["merge", "--help"]);
        World {
            repo,
            tine,
            marks: Marks::default(),
            undone: Mutex::default(),
            exact: Mutex::default(),
            colleague: Mutex::default(),
            touched_in_main: Mutex::new(Some(BTreeSet::new())),
            asks_for_uncommitted: help.contains("--with-uncommitted"),
            git_alone: RwLock::default(),
            began: Instant::now(),
            trace: Mutex::default(),
            failures: Mutex::default(),
            expected,
            met: Mutex::default(),
            meeting: Condvar::new(),
            daemon_may_end: steps().any(|step| matches!(step, Step::KillDaemon | Step::StopDaemon)),
            root: repo.root().to_owned(),
        }
    }

    /// All actors at the same time, each its steps one after the other.
    pub fn carry_out(&self, plan: &Plan) {
        let _guard = Watchdog::start(&self.root, LIMIT + Duration::from_secs(plan.steps() as u64));
        thread::scope(|scope| {
            for actor in &plan.0 {
                scope.spawn(move || {
                    let acts = || self.act(actor.role, actor.number, &actor.steps);
                    if catch_unwind(AssertUnwindSafe(acts)).is_err() {
                        self.fail(Failure::Panicked(format!(
                            "{:?} {}",
                            actor.role, actor.number
                        )));
                    }
                });
            }
        });
    }

    fn act(&self, role: Role, number: usize, steps: &[Step]) {
        let mut carry_out: Box<dyn FnMut(Step) + '_> = match role {
            Role::Agent => {
                let mut agent = Agent::new(self, number);
                Box::new(move |step| agent.step(step))
            }
            Role::User => {
                let mut user = User::new(self, number);
                Box::new(move |step| user.step(step))
            }
            Role::Editor => {
                let mut editor = Editor::new(self, number);
                Box::new(move |step| editor.step(step))
            }
            Role::Rounds => {
                let mut rounds = Rounds::new(self, number);
                Box::new(move |step| rounds.step(step))
            }
            Role::Keeper => Box::new(move |step| self.keep(step)),
        };
        for &step in steps {
            self.say(number, &format!("--- {step:?}"));
            match step {
                Step::Meet(meeting) => self.meet(meeting),
                Step::Pause(millis) => thread::sleep(Duration::from_millis(millis.into())),
                step => carry_out(step),
            }
        }
    }

    /// Waits until all who will come here are here, or for a moment.
    fn meet(&self, number: u16) {
        let mut met = self.met.lock().expect("no holder panics");
        *met.entry(number).or_insert(0) += 1;
        self.meeting.notify_all();
        let expected = self.expected[&number];
        let waited = self
            .meeting
            .wait_timeout_while(met, PATIENCE, |met| met[&number] < expected);
        drop(waited);
    }

    fn keep(&self, step: Step) {
        let dir = self.repo.dir();
        match step {
            Step::KillDaemon => {
                for pid in self.tine.daemons() {
                    process::kill_and_wait(pid);
                }
            }
            Step::StopDaemon => drop(self.tine(KEEPER, dir, &["daemon", "stop"], b"")),
            Step::Gc => drop(self.tine(KEEPER, dir, &["gc"], b"")),
            Step::GitGc => drop(self.git(KEEPER, dir, &["gc", "-q"])),
            Step::Check => drop(self.tine(KEEPER, dir, &["check"], b"")),
            other => panic!("no step of a keeper's: {other:?}"),
        }
    }

    /// Since the run began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn say(&self, actor: usize, line: &str) {
        let now = self.now();
        let line = format!("{:8.3} {:>2} {line}", now.as_secs_f64(), actor_text(actor));
        self.trace.lock().expect("no holder panics").push(line);
    }

    pub fn trace(&self) -> String {
        self.trace.lock().expect("no holder panics").join("\n")
    }

    pub fn fail(&self, failure: Failure) {
        self.failures
            .lock()
            .expect("no holder panics")
            .push(failure);
    }

    /// What was found while the actors worked.
    pub fn failures(&self) -> Vec<Failure> {
        self.failures.lock().expect("no holder panics").clone()
    }

    pub fn fork_dir(&self, fork: &str) -> PathBuf {
        self.root.join("repo.forks").join(fork)
    }

    /// Makes a mark that is not written yet.
    pub fn mark(&self, actor: usize, kind: Kind, fork: Option<&str>, path: &str) -> MarkId {
        self.marks.add(Mark {
            actor,
            kind,
            fork: fork.map(str::to_owned),
            path: path.to_owned(),
            began: self.now(),
            acknowledged: false,
            released: false,
            taken_back: false,
        })
    }

    /// Runs tine in `dir`.
    pub fn tine(&self, actor: usize, dir: &Path, args: &[&str], input: &[u8]) -> Answer {
        let _shared = self.git_alone.read().expect("no holder panics");
        let began = self.now();
        let command = format!("tine {}", args.join(" "));
        let args = [&["--json"], args].concat();
        let mut process = self.tine.command_in(dir, &args);
        let run = || run_with_timeout_of(&mut process, LIMIT, input);
        let Ok(output) = catch_unwind(AssertUnwindSafe(run)) else {
            self.fail(Failure::Hangs(command));
            return Answer {
                done: Done::Perhaps,
                value: Value::Null,
            };
        };
        let value: Value = serde_json::from_slice(&output.stdout)
            .or_else(|_| serde_json::from_slice(&output.stderr))
            .unwrap_or(Value::Null);
        let code = value["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        // A child of the daemon's is killed with it, and may be the first: then the daemon can
        // still say so.
        let is_killed = self.daemon_may_end && output.text().contains("(SIGKILL)");
        // What was asked for is done; the hook that runs in the mount after it lost that with the
        // daemon.
        let is_hook_cut = self.daemon_may_end && value["failed"][0]["code"] == "hook-failed";
        let done = match (output.status.code(), code.as_str()) {
            (Some(0), _) => Done::Yes,
            _ if is_hook_cut => Done::Yes,
            (_, "daemon-unreachable") if self.daemon_may_end => Done::Perhaps,
            (_, "git-failed") if is_killed => Done::Perhaps,
            _ => Done::No,
        };
        let is_strange = match output.status.code() {
            None | Some(101) => true,
            Some(0) => false,
            Some(_) if is_killed || is_hook_cut => false,
            // What a killed command left, `tine gc` frees.
            Some(1) if args[1] == "check" && code.is_empty() => {
                let mut findings = value["findings"].as_array().into_iter().flatten();
                value["ok"] != false || findings.any(|finding| finding["kind"] != "layer-leaked")
            }
            // The program's own.
            Some(_) if matches!(args[1], "exec" | "run") && code.is_empty() => false,
            // The daemon was killed while, or before, the program was started from its mount.
            Some(126) if self.daemon_may_end && output.text().contains("os error 103") => false,
            Some(126) if self.daemon_may_end && output.text().contains("os error 107") => false,
            // A merge can be picked against one of its parents alone; a branch may follow none.
            Some(2) if args[1] == "cherry-pick" || args.contains(&"--fetch") => false,
            // Conflicts, and that there is nothing to do, are answers.
            Some(3 | 7 | 8) if value.is_object() && code.is_empty() => false,
            Some(_) => {
                STRANGE.contains(&code.as_str())
                    || (code == "daemon-unreachable" && done == Done::No)
            }
        };
        let took = self.now() - began;
        let said = match done {
            Done::Yes if value["of"].is_object() => format!(" of {}", value["of"]["command"]),
            Done::Yes => String::new(),
            _ => format!(
                " {code} {}",
                value["error"]["message"].as_str().unwrap_or("")
            ),
        };
        self.say(
            actor,
            &format!("{command}: {:?} in {took:.0?}{said}", output.status.code()),
        );
        if is_strange {
            self.fail(Failure::Strange(format!(
                "{command}: {}\n{}{}",
                output.status,
                output.text(),
                output.error_text()
            )));
        }
        Answer { done, value }
    }

    /// Runs git in `dir`; whether it succeeded.
    pub fn git(&self, actor: usize, dir: &Path, args: &[&str]) -> bool {
        self.git_output(actor, dir, args)
            .is_some_and(|output| output.status.success())
    }

    /// As [`World::git`], while no command of tine's is under way.
    pub fn git_alone(&self, actor: usize, dir: &Path, args: &[&str]) -> bool {
        let _alone = self.git_alone.write().expect("no holder panics");
        self.git(actor, dir, args)
    }

    pub fn git_output(&self, actor: usize, dir: &Path, args: &[&str]) -> Option<Output> {
        let began = self.now();
        let mut process = self.repo.command("git", self.repo.dir());
        process.arg("-C").arg(dir).args(args);
        let run = || run_with_timeout_of(&mut process, LIMIT, b"");
        let output = catch_unwind(AssertUnwindSafe(run)).ok();
        if output.is_none() {
            self.fail(Failure::Hangs(format!("git {}", args.join(" "))));
        }
        let said = output.as_ref().map_or(String::new(), |output| {
            format!(
                "{:?} {}",
                output.status.code(),
                output.error_text().trim_end()
            )
        });
        let took = self.now() - began;
        self.say(
            actor,
            &format!(
                "git {} in {}: {said} in {took:.0?}",
                args.join(" "),
                dir.display()
            ),
        );
        output
    }

    /// Locks of refs that killed processes left. git and tine leave them to the person, and say
    /// where they are.
    pub fn remove_locks(&self) {
        let mut dirs = vec![self.repo.common_dir().join("refs")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    dirs.push(path);
                } else if self.daemon_may_end && path.extension().is_some_and(|kind| kind == "lock")
                {
                    self.say(KEEPER, &format!("{} was left", path.display()));
                    fs::remove_file(path).expect("a lock can be removed");
                }
            }
        }
    }

    pub fn colleague_dir(&self) -> PathBuf {
        self.root.join(COLLEAGUE)
    }

    /// Unmounts a fork with the system's own program; whether it did.
    pub fn unmount_outside(&self, actor: usize, fork: &str) -> bool {
        let dir = self.fork_dir(fork);
        let run = || run_with_timeout_of(Command::new("umount").arg(&dir), LIMIT, b"");
        let output = catch_unwind(AssertUnwindSafe(run)).ok();
        if output.is_none() {
            self.fail(Failure::Hangs(format!("umount {}", dir.display())));
        }
        let done = output.is_some_and(|output| output.status.success());
        self.say(actor, &format!("umount {fork}: {done}"));
        done
    }

    /// Starts a server for agents, and calls one of its tools. A tool that refuses is told as
    /// invalid input.
    pub fn mcp(&self, actor: usize, fork: &str, tool: &str, arguments: &Value) -> io::Result<()> {
        let _shared = self.git_alone.read().expect("no holder panics");
        let client = json!({"name": "test", "version": "0"});
        let hello =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let call = json!({"name": tool, "arguments": arguments});
        let messages = [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
        ];
        let input: String = messages
            .iter()
            .map(|message| format!("{message}\n"))
            .collect();
        let mut process = self.tine.command(&["mcp", "--fork", fork]);
        let run = || run_with_timeout_of(&mut process, LIMIT, input.as_bytes());
        let Ok(output) = catch_unwind(AssertUnwindSafe(run)) else {
            self.fail(Failure::Hangs(format!("tine mcp: {tool}")));
            return Err(io::ErrorKind::TimedOut.into());
        };
        let text = output.text();
        if output.status.code().is_none_or(|code| code == 101) {
            self.fail(Failure::Strange(format!(
                "tine mcp: {tool} {arguments}: {}\n{text}{}",
                output.status,
                output.error_text()
            )));
        }
        let answers = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let answer = answers.into_iter().find(|answer| answer["id"] == 2);
        let result = answer.map_or(Value::Null, |answer| answer["result"].clone());
        self.say(actor, &format!("mcp {fork} {tool} {arguments}: {result}"));
        match &result["isError"] {
            Value::Bool(false) => Ok(()),
            Value::Bool(true)
                if result["structuredContent"]["error"]["code"] != "daemon-unreachable" =>
            {
                Err(io::ErrorKind::InvalidInput.into())
            }
            _ => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// The directory where a fork is mounted at other times.
    pub fn place(&self, fork: &str) -> io::Result<Entered> {
        self.beneath(fork, false)
    }

    /// A path into a mount that keeps leading into it, or nowhere, when it is unmounted.
    pub fn entered(&self, fork: &str) -> io::Result<Entered> {
        self.beneath(fork, true)
    }

    fn beneath(&self, fork: &str, mounted: bool) -> io::Result<Entered> {
        let dir = self.fork_dir(fork);
        let root = File::open(&dir)?;
        let parent = fs::metadata(dir.parent().expect("it has one"))?;
        if (root.metadata()?.dev() != parent.dev()) != mounted {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Entered(root))
    }
}

/// A directory that is held.
pub struct Entered(File);

impl Entered {
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// The keeper's number in the trace.
const KEEPER: usize = usize::MAX;

fn actor_text(actor: usize) -> String {
    match actor {
        KEEPER => "K".to_owned(),
        actor => actor.to_string(),
    }
}

/// Failures that no command of these actors should come to.
const STRANGE: [&str; 9] = [
    "internal",
    "git-failed",
    "io",
    "corrupt-object",
    "store-damaged",
    "usage",
    "hostile-tree",
    "no-space",
    "",
];
