//! Running programs with a time limit, and waiting for things.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::process;

/// What a program that touches a mount may take at most, where a test does not say otherwise.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// Runs `command` to its end with [`DEFAULT_LIMIT`] and no input. Panics when it takes longer.
#[track_caller]
pub fn run_with_timeout(command: &mut Command) -> Output {
    run_with_timeout_of(command, DEFAULT_LIMIT, b"")
}

/// Runs `command` to its end with `input`. When it takes longer than `limit` its whole process
/// group is killed and the test panics; should a hung mount keep even that from ending, it is left
/// to the mount's guard.
#[track_caller]
pub fn run_with_timeout_of(command: &mut Command, limit: Duration, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    let group = child.id();
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        // A program that ends without reading its input is none of our business.
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output();
        // A writer that panicked shows in the output.
        let _ = writer.join();
        // Nobody listens any more after the limit.
        let _ = done.send(output);
    });
    match finished.recv_timeout(limit) {
        Ok(output) => {
            output.unwrap_or_else(|error| panic!("{command:?} cannot be waited for: {error}"))
        }
        Err(_) => {
            process::kill_group(group);
            panic!("{command:?} took longer than {limit:?}");
        }
    }
}

/// What tests ask of a finished program.
pub trait OutputExt {
    /// Standard output without the newline at its end, lossily decoded.
    fn text(&self) -> String;
    /// Standard error, lossily decoded.
    fn error_text(&self) -> String;
    /// Panics with both outputs unless the program succeeded.
    fn expect_success(self, what: &str) -> Self;
}

impl OutputExt for Output {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout)
            .trim_end_matches('\n')
            .to_owned()
    }

    fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    #[track_caller]
    fn expect_success(self, what: &str) -> Output {
        assert!(
            self.status.success(),
            "{what}: {}\n--- stdout\n{}\n--- stderr\n{}",
            self.status,
            self.text(),
            self.error_text()
        );
        self
    }
}

/// A shell command in `dir`, which stops at the first failing step.
pub fn shell(dir: impl AsRef<OsStr>, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-euc").arg(script).current_dir(dir.as_ref());
    command
}

/// Waits until `condition` holds, and panics when it does not within `limit`.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "waited {limit:?} in vain: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}
