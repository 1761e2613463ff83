//! git's hooks around a commit that the daemon makes.
//!
//! They run in the fork's mount in the same environment as with `git commit`. Their index is a
//! temporary one with the content to commit, as with `git commit -a`. Their message is in
//! `COMMIT_EDITMSG`. Their output goes to standard error.

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

/// Hooks of a commit, in the order in which they run.
pub const COMMIT_HOOKS: [&str; 4] = [
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
];

/// Hooks of a merge commit, in the order in which they run.
pub const MERGE_HOOKS: [&str; 3] = ["pre-merge-commit", "prepare-commit-msg", "commit-msg"];

/// Returns whether the repository may have hooks of a commit or merge.
///
/// Does not run git. Returns true if `config` is `None` or does not determine the hooks directory.
pub fn may_run(config: Option<&CallerConfig>) -> bool {
    match config.and_then(CallerConfig::hooks_dir) {
        Some(dir) => COMMIT_HOOKS
            .iter()
            .chain(&MERGE_HOOKS)
            .any(|hook| is_executable(&dir.join(hook))),
        None => true,
    }
}

/// Destination of the output of hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookOutput {
    /// Standard error of this process.
    Shown,
    /// Causes of the failure, if the hook fails. Otherwise the output is dropped.
    Kept,
}

/// Maximum number of lines of a command's output in a failure.
///
/// The last lines are kept.
const MAX_LINES_KEPT: usize = 40;

/// Returns the last lines of a command's output, for a failure.
pub(crate) fn last_lines(lines: Vec<String>) -> impl Iterator<Item = String> {
    let first = lines.len().saturating_sub(MAX_LINES_KEPT);
    lines.into_iter().skip(first)
}

/// Hooks of one commit or merge commit.
#[derive(Debug)]
pub struct Hooks {
    /// Names of the hooks that exist.
    present: BTreeSet<&'static str>,
    /// Directory in which they run: the root of the worktree.
    dir: PathBuf,
    /// Private git directory of the worktree.
    git_dir: PathBuf,
    author: Identity,
    output: HookOutput,
    /// Index of the hooks, set by [`Hooks::make_index`].
    index: Option<Index>,
}

impl Hooks {
    /// Finds which of `hooks` git would run in the worktree `dir`.
    ///
    /// `config` is the configuration for `dir`. If it does not determine the hooks, git is asked.
    /// The hooks get `author` in their environment.
    ///
    /// # Errors
    /// `git-failed` or `git-missing` if git is asked and fails.
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
                let (hooks_dir, git_dir) = ask_git_for_dirs(dir)?;
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

    /// Returns whether none of the hooks exists.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Makes a temporary index with the tree `view_tree` for the hooks.
    ///
    /// `view_tree` is a hexadecimal tree id.
    ///
    /// # Errors
    /// `io` if the index cannot be copied, `git-failed` if git cannot read the tree.
    pub fn make_index(&mut self, view_tree: &str) -> Result<(), Failure> {
        let index = Index::new(&self.git_dir)?;
        // Entries that are equal in the tree keep their cached stat data, so that `git diff` in a
        // hook does not read these files.
        let mut command = program::command(&self.dir);
        command
            .args(["read-tree", "--reset", view_tree])
            .env("GIT_INDEX_FILE", &index.path);
        program::run(&mut command, b"")?;
        self.index = Some(index);
        Ok(())
    }

    /// Runs `pre-commit`, if it exists.
    ///
    /// # Errors
    /// `hook-refused` if the hook fails, `git-missing` if git cannot be run.
    pub fn pre_commit(&self) -> Result<(), Failure> {
        self.run("pre-commit", &[])
    }

    /// Runs `prepare-commit-msg` and, with `verify`, `commit-msg`.
    ///
    /// Returns the message, as changed by the hooks.
    ///
    /// # Errors
    /// `hook-refused` if a hook fails, `io` if the file of the message cannot be written or read.
    pub fn message(&self, message: String, verify: bool) -> Result<String, Failure> {
        self.run_message_hooks("COMMIT_EDITMSG", "message", message, verify)
    }

    /// Runs the hooks of a merge commit.
    ///
    /// These are `pre-merge-commit` and `commit-msg` if `verify` is set, and always
    /// `prepare-commit-msg`. Returns the message, as changed by the hooks.
    ///
    /// # Errors
    /// `hook-refused` if a hook fails, `io` if the file of the message cannot be written or read.
    pub fn merge_message(&self, message: String, verify: bool) -> Result<String, Failure> {
        if verify {
            self.run("pre-merge-commit", &[])?;
        }
        let reworded = self.run_message_hooks("MERGE_MSG", "merge", message, verify);
        // git would take a remaining file as the message of the next commit.
        match fs::remove_file(self.git_dir.join("MERGE_MSG")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                log::debug!("MERGE_MSG stays: {error}");
            }
            _ => {}
        }
        reworded
    }

    /// Runs `prepare-commit-msg` and, with `verify`, `commit-msg`.
    ///
    /// They edit `file` in the git directory. `kind` is the source of the message, the second
    /// argument of `prepare-commit-msg`.
    fn run_message_hooks(
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

    /// Runs `post-commit`, if it exists.
    ///
    /// Its exit status is ignored, as in git.
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
        let (status, output_lines) = match self.output {
            HookOutput::Shown => (wait(&mut command)?, Vec::new()),
            HookOutput::Kept => {
                let finished = program::finish_reading(&mut command, Stdio::null())?;
                // git redirects the hook's standard output to standard error.
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
        Err(last_lines(output_lines)
            .fold(refused, Failure::cause)
            .hint("do what it asks for; `--no-verify` skips pre-commit and commit-msg"))
    }
}

/// Result of a `post-checkout` hook that failed.
#[derive(Debug)]
pub struct PostCheckout {
    /// Exit code of git, which ran the hook. 1 if a signal ended git.
    pub exit: u8,
    status: std::process::ExitStatus,
    /// Lines of output. Empty with [`HookOutput::Shown`].
    output_lines: Vec<String>,
}

impl PostCheckout {
    /// Returns the failure `hook-failed`, with the output as causes.
    pub fn failure(self) -> Failure {
        let failed = Failure::new(ErrorCode::HookFailed, "the hook post-checkout failed")
            .cause(format!("it ended with {}", self.status));
        last_lines(self.output_lines)
            .fold(failed, Failure::cause)
            .hint("the fork is there, on its branch: `git hook run post-checkout` in it runs the hook again")
    }
}

/// Runs git's `post-checkout` hook in the worktree at `dir`.
///
/// `old` and `new` are HEAD's commits before and after the checkout; `old` is `None` for a new
/// worktree. Returns `None` if there is no such hook or it succeeds. Blocks until the hook ends.
/// The configuration is read from `git_dir`, because a read in `dir` would be a request to the
/// mount.
///
/// # Errors
/// `git-missing` if git cannot be run, `io` if waiting for it fails.
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
    let (status, output_lines) = match output {
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
        output_lines,
    }))
}

/// Asks git for its hooks directory and the worktree's private git directory.
fn ask_git_for_dirs(dir: &Path) -> Result<(PathBuf, PathBuf), Failure> {
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

/// Lists the events for which git's configuration names a hook.
///
/// The key is `hook.<name>.event`, since git 2.54.
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
        // The key is not set.
        Some(1) => Ok(BTreeSet::new()),
        _ => Err(git_failed("read its configuration", &finished.stderr)),
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn wait(command: &mut Command) -> Result<std::process::ExitStatus, Failure> {
    // git redirects the hooks' output to standard error, so it is not mixed with tine's output.
    let mut child = program::spawn(command)?;
    child
        .wait()
        .map_err(|error| Failure::io("wait for git in", Path::new("."), &error))
}

/// Copy of the worktree's index. Dropping it removes the file.
#[derive(Debug)]
struct Index {
    path: PathBuf,
}

impl Index {
    fn new(git_dir: &Path) -> Result<Index, Failure> {
        // One process may make several commits at the same time.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let index = Index {
            path: git_dir.join(format!("tine-commit-{}-{count}.index", std::process::id())),
        };
        match fs::copy(git_dir.join("index"), &index.path) {
            Ok(_) => Ok(index),
            // git creates it.
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
