//! Every public command in bad conditions: whatever is wrong, a command ends in time, with a
//! documented exit code and a failure that says what to do next; nothing panics, and what failed
//! has changed nothing.
//!
//! The commands are taken from the definitions of the command line, so that a new one is tried as
//! well. Each condition is tried with a part of the commands, another part for each; `TINE_SOAK=1`
//! tries all with all.

mod support;

#[path = "adversity/arguments.rs"]
mod arguments;
#[path = "adversity/commands.rs"]
mod commands;
#[path = "adversity/daemons.rs"]
mod daemons;
#[path = "adversity/disks.rs"]
mod disks;
#[path = "adversity/states.rs"]
mod states;
#[path = "adversity/users.rs"]
mod users;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use commands::Subject;
use support::{OutputExt, TestRepo, Tine, mounts_beneath, run_with_timeout, soaking};
use tine::ops::{ErrorCode, ExitCode};

/// Where commands are tried, and as whom.
struct World<'r> {
    repo: &'r TestRepo,
    /// Where commands run.
    dir: PathBuf,
    common_dir: PathBuf,
    /// What runs the program: empty for the program itself.
    runner: Vec<OsString>,
    /// Daemons end and start meanwhile, and with them mounts go and come.
    daemons_change: bool,
}

impl<'r> World<'r> {
    fn new(repo: &'r TestRepo) -> World<'r> {
        World {
            repo,
            dir: repo.dir().to_owned(),
            common_dir: repo.common_dir(),
            runner: Vec::new(),
            daemons_change: false,
        }
    }

    fn command(&self, words: &[OsString]) -> Command {
        let mut program = self.runner.clone();
        program.push(Tine::program().into());
        program.extend_from_slice(words);
        let mut command = self.repo.command(&program[0], &self.dir);
        command.args(&program[1..]).env("SHELL", "/bin/true");
        command
    }

    fn run(&self, words: &[OsString]) -> Output {
        run_with_timeout(&mut self.command(words))
    }

    /// What a command that failed must leave alone: refs, HEAD and index, the checkout, and which
    /// forks there are.
    fn seen(&self) -> BTreeMap<String, Vec<u8>> {
        let mut seen = BTreeMap::new();
        let git = &self.common_dir;
        collect(&git.join("refs"), "refs", &mut seen, &|path| !follows(path));
        for name in ["HEAD", "packed-refs", "index"] {
            if let Ok(content) = fs::read(git.join(name)) {
                seen.insert(name.to_owned(), content);
            }
        }
        if self.repo.dir() != git {
            collect(self.repo.dir(), "checkout", &mut seen, &|path| {
                !path.split('/').any(|part| part == ".git")
            });
        }
        for dir in mounts_beneath(self.repo.root()) {
            seen.insert(format!("mount {}", dir.display()), Vec::new());
        }
        for dir in [git.join("tine/forks"), self.repo.root().join("repo.forks")] {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                seen.insert(entry.path().display().to_string(), Vec::new());
            }
        }
        seen
    }

    /// Tries the subjects of one condition, each complete and with `--json`; what came of each.
    fn try_all(&self, condition: usize) -> Vec<(Subject, Tried)> {
        let tried = commands::chosen(condition).into_iter().map(|subject| {
            let tried = self.try_one(&subject);
            (subject, tried)
        });
        tried.collect()
    }

    fn try_one(&self, subject: &Subject) -> Tried {
        self.attempt(subject, &subject.with_json())
    }

    /// Runs `words`, which are of `subject`, and checks what any command promises.
    #[track_caller]
    fn attempt(&self, subject: &Subject, words: &[OsString]) -> Tried {
        let before = self.seen();
        let output = self.run(words);
        let what = format!("tine {words:?} in {}", self.dir.display());
        let tried = sound(subject, &output, &what);
        if matches!(tried, Tried::Failed(_)) {
            let after = self.seen();
            // A merge that fails after its fork was unmounted says that it is unmounted.
            let mounts_go = self.daemons_change
                || matches!(&tried, Tried::Failed(error)
                if error["message"].as_str().is_some_and(|said| said.contains("is unmounted and whole")));
            let changed: Vec<&String> = before
                .keys()
                .chain(after.keys())
                .filter(|name| before.get(*name) != after.get(*name))
                .filter(|name| !(mounts_go && name.starts_with("mount ")))
                .collect();
            assert!(changed.is_empty(), "{what}: {tried:?} changed {changed:?}");
        }
        tried
    }

    /// The daemon has told of no fault of its own.
    #[track_caller]
    fn assert_no_panic_in_log(&self) {
        let log = fs::read(self.common_dir.join("tine/daemon.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq)]
enum Tried {
    Done,
    /// It told something and ended with another exit code than 0, as `doctor` does.
    Reported(i32),
    Failed(Value),
}

impl Tried {
    fn code(&self) -> &str {
        match self {
            Tried::Failed(error) => error["code"].as_str().unwrap_or_default(),
            _ => "",
        }
    }
}

/// Commands whose exit code tells what they found, or is another program's.
const REPORTING: [&str; 6] = ["doctor", "check", "exec", "run", "buffer serve", "mcp"];

/// What any command promises, however it ends. `output` is that of one with `--json`.
#[track_caller]
fn sound(subject: &Subject, output: &Output, what: &str) -> Tried {
    let (text, said) = (output.text(), output.error_text());
    let told = format!("{what}\n--- stdout\n{text}\n--- stderr\n{said}");
    assert!(!said.contains("panicked"), "{told}");
    let exit = output
        .status
        .code()
        .unwrap_or_else(|| panic!("no exit code: {told}"));
    if exit == 0 {
        return Tried::Done;
    }
    let is_documented = ExitCode::ALL
        .iter()
        .any(|known| i32::from(known.code()) == exit);
    let runs_a_command = ["exec", "run", "shell"].contains(&subject.name().as_str());
    assert!(
        is_documented || runs_a_command && [126, 127].contains(&exit),
        "exit code {exit}: {told}"
    );
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {told}"));
    let Some(error) = value.get("error").filter(|error| error.is_object()) else {
        // Conflicts, and that there is nothing to do, are answers.
        let is_answer = [ExitCode::Refused, ExitCode::Nothing].map(|exit| i32::from(exit.code()));
        assert!(
            is_answer.contains(&exit) || REPORTING.contains(&subject.name().as_str()),
            "{told}"
        );
        return Tried::Reported(exit);
    };
    assert_failure(error, exit, &told);
    Tried::Failed(error.clone())
}

#[track_caller]
fn assert_failure(error: &Value, exit: i32, told: &str) {
    let code = error["code"].as_str().unwrap_or_default();
    assert!(
        ErrorCode::ALL.iter().any(|known| known.as_str() == code),
        "{told}"
    );
    assert_ne!(code, "internal", "{told}");
    assert_eq!(error["exit"].as_i64(), Some(i64::from(exit)), "{told}");
    for field in ["message", "hint"] {
        let line = error[field].as_str().unwrap_or_default();
        assert!(
            !line.trim().is_empty() && !line.contains('\n'),
            "{field}: {told}"
        );
    }
}

/// Refs that the daemon moves by itself: what it keeps of a fork's HEAD from gc.
fn follows(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts.as_slice(), ["refs", "tine", _, name, ..] if *name == "head" || name.starts_with("held-"))
}

/// Files beneath `dir` with their bytes, where their names are `wanted`.
fn collect(
    dir: &Path,
    name: &str,
    seen: &mut BTreeMap<String, Vec<u8>>,
    wanted: &impl Fn(&str) -> bool,
) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if !wanted(&name) {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&entry.path(), &name, seen, wanted),
            Ok(kind) if kind.is_file() => {
                seen.insert(name, fs::read(entry.path()).unwrap_or_default());
            }
            _ => {
                seen.insert(name, Vec::new());
            }
        }
    }
}
