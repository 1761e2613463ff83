//! The hooks that `git commit` runs, around a commit that the daemon makes.
//!
//! They run in the mount and see what git's would: the index they are given holds what is about to
//! be committed, and stays theirs, as with `git commit -a`; the message is in `COMMIT_EDITMSG`;
//! their output goes to standard error.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failures::{git_failed, lines};
use tine_git::{CallerConfig, CommitTime, Identity, program};
use tine_ops::{ErrorCode, Failure};

/// The hooks around a commit, in the order in which they run.
pub const COMMIT_HOOKS: [&str; 4] = [
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
];

/// The hooks around a merge commit, likewise.
pub const MERGE_HOOKS: [&str; 3] = ["pre-merge-commit", "prepare-commit-msg", "commit-msg"];

/// Whether there may be any of them for the configuration's repository. Quick: one that is
/// configured is not looked for.
pub fn may_run(config: Option<&CallerConfig>) -> bool {
    match config.and_then(CallerConfig::hooks_dir) {
        Some(dir) => COMMIT_HOOKS
            .iter()
            .chain(&MERGE_HOOKS)
            .any(|hook| is_executable(&dir.join(hook))),
        None => true,
    }
}

/// Where what hooks print goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookOutput {
    /// To standard error.
    Shown,
    /// Of one that refuses, into the failure.
    Kept,
}

/// Lines of a hook's output that a failure has at most: its last ones.
pub const MAX_LINES_KEPT: usize = 40;

/// The hooks that a repository has for commits.
#[derive(Debug)]
pub struct Hooks {
    present: BTreeSet<&'static str>,
    /// Where they run: the fork's mount.
    dir: PathBuf,
    /// The worktree's private git directory.
    git_dir: PathBuf,
    author: Identity,
    output: HookOutput,
    /// The index that they are given, once there is one.
    index: Option<Index>,
}

impl Hooks {
    /// Finds those of `hooks` that git would run in `dir`, whose configuration is `config`.
    pub fn find(
        dir: &Path,
        config: Option<&CallerConfig>,
        author: &Identity,
        output: HookOutput,
        hooks: &[&'static str],
    ) -> Result<Hooks, Failure> {
        let plain = config.and_then(|config| Some((config.hooks_dir()?, config.git_dir())));
        let (hooks_dir, git_dir, configured) = match plain {
            Some((hooks_dir, git_dir)) => (hooks_dir, git_dir.to_owned(), BTreeSet::new()),
            None => {
                let (hooks_dir, git_dir) = places(dir)?;
                (hooks_dir, git_dir, configured(dir)?)
            }
        };
        let present = hooks
            .iter()
            .copied()
            .filter(|hook| configured.contains(*hook) || is_executable(&hooks_dir.join(hook)))
            .collect();
        Ok(Hooks {
            present,
            dir: dir.to_owned(),
            git_dir,
            author: author.clone(),
            output,
            index: None,
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Gives the hooks an index that holds `view_tree`.
    pub fn give_index(&mut self, view_tree: &str) -> Result<(), Failure> {
        let index = Index::new(&self.git_dir)?;
        // Entries that are in the tree keep what they know of the files, so that a hook's
        // `git diff` reads none.
        let mut command = program::command(&self.dir);
        command
            .args(["read-tree", "--reset", view_tree])
            .env("GIT_INDEX_FILE", &index.path);
        program::run(&mut command, b"")?;
        self.index = Some(index);
        Ok(())
    }

    /// Runs `pre-commit`.
    pub fn pre_commit(&self) -> Result<(), Failure> {
        self.run("pre-commit", &[])
    }

    /// Lets `prepare-commit-msg` and, with `verify`, `commit-msg` have the message; what they make
    /// of it.
    pub fn message(&self, message: String, verify: bool) -> Result<String, Failure> {
        self.reworded("COMMIT_EDITMSG", "message", message, verify)
    }

    /// Runs `pre-merge-commit`, and lets the hooks of the message have that of a merge commit; what
    /// they make of it.
    pub fn merge_message(&self, message: String, verify: bool) -> Result<String, Failure> {
        if verify {
            self.run("pre-merge-commit", &[])?;
        }
        let reworded = self.reworded("MERGE_MSG", "merge", message, verify);
        // Left there it would be the message of the next commit.
        match fs::remove_file(self.git_dir.join("MERGE_MSG")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                log::debug!("MERGE_MSG stays: {error}");
            }
            _ => {}
        }
        reworded
    }

    /// Lets the hooks of a message have it in `file`, which says that it is of `kind`.
    fn reworded(
        &self,
        file: &str,
        kind: &str,
        message: String,
        verify: bool,
    ) -> Result<String, Failure> {
        let asked = ["prepare-commit-msg", "commit-msg"]
            .iter()
            .any(|hook| self.present.contains(hook));
        if !asked {
            return Ok(message);
        }
        let file = self.git_dir.join(file);
        let mut text = message;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        fs::write(&file, &text).map_err(|error| Failure::io("write", &file, &error))?;
        self.run("prepare-commit-msg", &[file.as_os_str(), OsStr::new(kind)])?;
        if verify {
            self.run("commit-msg", &[file.as_os_str()])?;
        }
        let text = fs::read(&file).map_err(|error| Failure::io("read", &file, &error))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs `post-commit`; how it ends changes nothing, as with git.
    pub fn post_commit(mut self) {
        self.index = None;
        if let Err(failure) = self.run("post-commit", &[]) {
            log::debug!("{failure}");
        }
    }

    fn run(&self, hook: &'static str, arguments: &[&OsStr]) -> Result<(), Failure> {
        if !self.present.contains(hook) {
            return Ok(());
        }
        let mut command = program::command(&self.dir);
        command
            .args(["hook", "run", "--ignore-missing", hook, "--"])
            .args(arguments)
            .env("GIT_EDITOR", ":")
            .env("GIT_AUTHOR_NAME", &self.author.name)
            .env("GIT_AUTHOR_EMAIL", &self.author.email)
            .stdin(Stdio::null());
        program::speak_as_user(&mut command);
        if let Some(CommitTime { secs, offset_secs }) = self.author.time {
            let minutes = offset_secs.abs() / 60;
            let sign = if offset_secs < 0 { '-' } else { '+' };
            let zone = format!("{sign}{:02}{:02}", minutes / 60, minutes % 60);
            command.env("GIT_AUTHOR_DATE", format!("@{secs} {zone}"));
        }
        if let Some(index) = &self.index {
            command.env("GIT_INDEX_FILE", &index.path);
        }
        let (status, said) = match self.output {
            HookOutput::Shown => (wait(&mut command)?, Vec::new()),
            HookOutput::Kept => {
                let finished = program::finish_reading(&mut command, Stdio::null())?;
                // git leads both to standard error.
                (finished.status, lines(&finished.stderr))
            }
        };
        if status.success() {
            return Ok(());
        }
        let refused = Failure::new(
            ErrorCode::HookRefused,
            format!("the hook {hook} refused the commit"),
        )
        .cause(format!("it ended with {status}"));
        let first = said.len().saturating_sub(MAX_LINES_KEPT);
        Err(said
            .into_iter()
            .skip(first)
            .fold(refused, Failure::cause)
            .hint("do what it asks for; `--no-verify` skips pre-commit and commit-msg"))
    }
}

/// How a `post-checkout` hook ended that failed.
#[derive(Debug)]
pub struct PostCheckout {
    /// The exit code of git, which ran it.
    pub exit: u8,
    status: std::process::ExitStatus,
    /// What it printed, where that is kept.
    said: Vec<String>,
}

impl PostCheckout {
    /// What is told of it.
    pub fn failure(self) -> Failure {
        let failed = Failure::new(ErrorCode::HookFailed, "the hook post-checkout failed")
            .cause(format!("it ended with {}", self.status));
        let first = self.said.len().saturating_sub(MAX_LINES_KEPT);
        let said = self.said.into_iter().skip(first);
        said.fold(failed, Failure::cause)
            .hint("the fork is there, on its branch: `git hook run post-checkout` in it runs the hook again")
    }
}

/// Runs git's `post-checkout` in the worktree at `dir`, whose HEAD went from the commit `old`
/// (none: it is new) to `new`. `None` where there is no such hook, or it succeeds. The
/// configuration is that of `git_dir`: a look for it in `dir` would ask the mount. Blocks until it
/// has ended.
pub fn post_checkout(
    dir: &Path,
    git_dir: &Path,
    old: Option<&str>,
    new: &str,
    output: HookOutput,
) -> Result<Option<PostCheckout>, Failure> {
    let plain = CallerConfig::of(git_dir).and_then(|config| config.hooks_dir());
    if plain.is_some_and(|hooks| !is_executable(&hooks.join("post-checkout"))) {
        return Ok(None);
    }
    let zeros = "0".repeat(new.len());
    let mut command = program::command(dir);
    command
        .args(["hook", "run", "--ignore-missing", "post-checkout", "--"])
        .args([old.unwrap_or(&zeros), new, "1"])
        .stdin(Stdio::null());
    program::speak_as_user(&mut command);
    let (status, said) = match output {
        HookOutput::Shown => (wait(&mut command)?, Vec::new()),
        HookOutput::Kept => {
            let finished = program::finish_reading(&mut command, Stdio::null())?;
            (finished.status, lines(&finished.stderr))
        }
    };
    Ok((!status.success()).then(|| PostCheckout {
        exit: status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
        status,
        said,
    }))
}

/// Where git looks for hooks in `dir`, and the worktree's private git directory.
fn places(dir: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let mut command = program::command(dir);
    command.args([
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "hooks",
        "--git-dir",
    ]);
    let printed = program::run(&mut command, b"")?;
    let mut places = printed.split(|&byte| byte == b'\n').map(OsStr::from_bytes);
    let mut next = || PathBuf::from(places.next().unwrap_or_default());
    Ok((next(), next()))
}

/// The events that hooks in the configuration (`hook.<name>.event`, from git 2.54 on) listen to.
fn configured(dir: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut command = program::command(dir);
    command.args(["config", "--get-regexp", r"^hook\..*\.event$"]);
    let finished = program::finish(&mut command, b"")?;
    match finished.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&finished.stdout)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(_, event)| event.to_owned())
            .collect()),
        // Nothing is configured.
        Some(1) => Ok(BTreeSet::new()),
        _ => Err(git_failed("read its configuration", &finished.stderr)),
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn wait(command: &mut Command) -> Result<std::process::ExitStatus, Failure> {
    // The hooks' output is no answer of ours: git leads it to standard error.
    let mut child = program::spawn(command)?;
    child
        .wait()
        .map_err(|error| Failure::io("wait for git in", Path::new("."), &error))
}

/// A copy of the worktree's index; removed with this value.
#[derive(Debug)]
struct Index {
    path: PathBuf,
}

impl Index {
    fn new(git_dir: &Path) -> Result<Index, Failure> {
        // One process may make several commits at a time.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let index = Index {
            path: git_dir.join(format!("tine-commit-{}-{count}.index", std::process::id())),
        };
        match fs::copy(git_dir.join("index"), &index.path) {
            Ok(_) => Ok(index),
            // git makes one.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(index),
            Err(error) => Err(Failure::io("write", &index.path, &error)),
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            log::debug!("{} stays: {error}", self.path.display());
        }
    }
}
