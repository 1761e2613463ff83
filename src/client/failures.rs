//! Failures with a cause in the caller's process.

use std::path::Path;

use tine_ops::{ErrorCode, Failure};

/// Returns the failure of a system call on the caller's path.
///
/// If the path does not exist, the exit code is `not-found`. `action` is a verb, such as `open`.
pub fn named(action: &str, path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::io(action, path, error);
    match error.kind() {
        std::io::ErrorKind::NotFound => Failure {
            exit: tine_ops::ExitCode::NotFound,
            ..failure.hint("name one that is there")
        },
        _ => failure,
    }
}

/// Returns the failure `git-failed`, with git's messages as causes.
///
/// `what` completes "git could not …".
pub fn git_failed(what: &str, stderr: &[u8]) -> Failure {
    let failure = Failure::new(ErrorCode::GitFailed, format!("git could not {what}"));
    lines(stderr).into_iter().fold(failure, Failure::cause)
}

/// Returns the non-empty lines of a program's output, without surrounding white space.
pub fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes)
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}
