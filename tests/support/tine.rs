//! The built binary, run as a person would, and its daemon.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use super::{
    OutputExt, TestRepo, force_unmount_beneath, process, run_with_timeout, run_with_timeout_of,
};

/// How long stopping a daemon may take.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Runs `tine` on a [`TestRepo`] with that repository's home. Dropping it, also by a panic, stops
/// the daemon, kills what is left of it, and detaches its mounts.
pub struct Tine<'r> {
    repo: &'r TestRepo,
}

impl<'r> Tine<'r> {
    pub fn new(repo: &'r TestRepo) -> Tine<'r> {
        Tine { repo }
    }

    /// The binary under test.
    pub fn program() -> &'static Path {
        Path::new(env!("CARGO_BIN_EXE_tine"))
    }

    /// `tine` with `args`, in the checkout.
    pub fn command(&self, args: &[&str]) -> Command {
        self.command_in(self.repo.dir(), args)
    }

    /// `tine` with `args`, in `dir`.
    pub fn command_in(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = self.repo.command(Tine::program(), dir);
        command.args(args);
        command
    }

    /// Runs `tine` in the checkout, with a time limit.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Output {
        run_with_timeout(&mut self.command(args))
    }

    /// Runs `tine` in `dir`, with a time limit.
    #[track_caller]
    pub fn run_in(&self, dir: &Path, args: &[&str]) -> Output {
        run_with_timeout(&mut self.command_in(dir, args))
    }

    /// Runs `tine` in the checkout; its standard output without the last newline. Panics when it
    /// fails.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        self.run(args)
            .expect_success(&format!("tine {args:?}"))
            .text()
    }

    /// As [`Tine::ok`], in `dir`.
    #[track_caller]
    pub fn ok_in(&self, dir: &Path, args: &[&str]) -> String {
        self.run_in(dir, args)
            .expect_success(&format!("tine {args:?} in {}", dir.display()))
            .text()
    }

    /// Runs `tine`, which must end with `exit_code`; its standard error.
    #[track_caller]
    pub fn fails(&self, exit_code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(
            output.status.code(),
            Some(exit_code),
            "tine {args:?}\n--- stdout\n{}\n--- stderr\n{}",
            output.text(),
            output.error_text()
        );
        output.error_text()
    }

    /// Runs `tine` with `--json` after `args`; what it prints, parsed. Panics when it fails.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let args = [args, &["--json"]].concat();
        let text = self.ok(&args);
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("tine {args:?}: {error} in {text:?}"))
    }

    /// Makes the fork `name` from HEAD, mounted; the directory.
    #[track_caller]
    pub fn new_fork(&self, name: &str) -> PathBuf {
        PathBuf::from(self.ok(&["new", name]))
    }

    /// What the file at `path` is in what the entry `id` of `tine recover` keeps, without bringing
    /// it back.
    #[track_caller]
    pub fn recoverable_file(&self, repo: &TestRepo, id: u64, path: &str) -> String {
        let entry = self.json(&["recover", "show", &id.to_string()]);
        let named = [&entry["uncommitted"], &entry["head"]];
        let commit = named.iter().find_map(|id| id.as_str());
        let commit = commit.unwrap_or_else(|| panic!("no commit: {entry}"));
        let reference = format!("refs/tine/+recover/{id}");
        let raw = repo.git(&["cat-file", "blob", &format!("{reference}:commits/{commit}")]);
        let tree = raw
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("tree "));
        let tree = tree.unwrap_or_else(|| panic!("no tree: {raw}"));
        repo.git(&["show", &format!("{reference}:trees/{tree}/{path}")])
    }

    /// The daemon's process id, found without asking the daemon.
    pub fn daemon_pid(&self) -> Option<u32> {
        self.processes().first().copied()
    }

    /// Kills the daemon as a crash would (SIGKILL) and waits until it is gone. Its mounts stay
    /// behind, dead.
    pub fn kill_daemon(&self) {
        for pid in self.processes() {
            process::kill_and_wait(pid);
        }
    }

    /// The processes that are, or become, a daemon: without those that only ask one.
    pub fn daemons(&self) -> Vec<u32> {
        let is_daemon = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                line.split(|&b| b == 0)
                    .skip(1)
                    .take(2)
                    .eq([&b"daemon"[..], b"run"])
            })
        };
        self.processes().into_iter().filter(is_daemon).collect()
    }

    /// Every process of this test that runs the binary.
    pub fn processes(&self) -> Vec<u32> {
        let program = Tine::program()
            .canonicalize()
            .unwrap_or_else(|_| Tine::program().to_owned());
        process::find(&program, "HOME", self.repo.home().as_os_str())
    }
}

impl Drop for Tine<'_> {
    fn drop(&mut self) {
        if !self.processes().is_empty() {
            // A daemon that cannot be stopped is killed below; a panic here would end the test run.
            let mut stop = self.command(&["daemon", "stop", "--force"]);
            let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run_with_timeout_of(&mut stop, STOP_LIMIT, b"")
            }));
            if !stopped.is_ok_and(|output| output.status.success()) {
                eprintln!("tine daemon stop --force failed; the daemon is killed");
            }
        }
        for pid in self.processes() {
            process::kill(pid);
        }
        force_unmount_beneath(self.repo.root());
    }
}
