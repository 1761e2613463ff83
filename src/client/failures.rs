//! Failures that begin in the command line itself.

use std::path::Path;

use tine_ops::{ErrorCode, Failure};

/// A failing system call on something that the caller named: what is missing there is the caller's
/// mistake.
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

/// The git program ended with an error where it was needed; its words become the causes.
pub fn git_failed(what: &str, stderr: &[u8]) -> Failure {
    let failure = Failure::new(ErrorCode::GitFailed, format!("git could not {what}"));
    lines(stderr).into_iter().fold(failure, Failure::cause)
}

/// The non-empty lines of a program's output.
pub fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes)
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}
