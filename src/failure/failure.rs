//! A message, causes, a hint, a stable code and an exit code.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use tine_path::RepoPath;
use tine_path::shell::shell_word;
use tine_path::text::PathText;
use tine_sys::file::NotAFile;

use super::code::{ErrorCode, ExitCode};

/// Failure as commands print it and the daemon sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable code.
    pub code: ErrorCode,
    /// Exit code of the command.
    pub exit: ExitCode,
    /// One line that says what failed, and on what.
    pub message: String,
    /// Causes, the outermost first.
    #[serde(default)]
    pub causes: Vec<String>,
    /// Paths that the failure is about, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathText>,
    /// Suggestion what to do next.
    #[serde(default)]
    pub hint: Option<String>,
}

/// Returns the user whose mount at `path` denies access even to root.
///
/// File modes do not restrict root; FUSE mounts do.
fn user_of_mount(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;

    let looked = std::fs::symlink_metadata(path);
    let is_shut = looked.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if !is_shut || tine_sys::process::effective_uid() != 0 {
        return None;
    }
    Some(std::fs::metadata(path.parent()?).ok()?.uid())
}

impl Failure {
    /// Makes a failure with the code's exit code and default hint.
    ///
    /// Line breaks in `message` become semicolons.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Failure {
        Failure {
            code,
            exit: code.exit(),
            message: one_line(message.into()),
            causes: Vec::new(),
            paths: Vec::new(),
            hint: code.hint().map(str::to_owned),
        }
    }

    /// Adds paths that the failure is about.
    pub fn paths<'p>(mut self, paths: impl IntoIterator<Item = &'p RepoPath>) -> Failure {
        self.paths.extend(paths.into_iter().map(PathText::from));
        self
    }

    /// Makes the failure of an answer that does not fit the request.
    ///
    /// `asked` describes the request in words.
    pub fn other_answer(asked: &str) -> Failure {
        Failure::new(
            ErrorCode::ProtocolMismatch,
            format!("the daemon answered {asked} with something else"),
        )
        .hint("the daemon may be of another version: `tine daemon stop` ends it, and the next command starts this one")
    }

    /// Makes the failure of a fork name that does not exist.
    pub fn no_such_fork(name: &impl fmt::Display) -> Failure {
        Failure::new(
            ErrorCode::NoSuchFork,
            format!("there is no fork called {name}"),
        )
        .hint(format!(
            "`tine list` shows the forks, `tine new {name}` makes this one"
        ))
    }

    /// Makes the failure of a command without a fork, outside all mounts.
    pub fn not_in_fork() -> Failure {
        Failure::new(
            ErrorCode::NotInFork,
            "no fork is named, and this is not inside the mount of one",
        )
        .hint(
            "give its NAME (`tine list` shows them; file commands take `--fork NAME`), or go into its mount first",
        )
    }

    /// Makes the failure of a request that the daemon cannot parse.
    pub fn not_understood(error: serde_json::Error) -> Failure {
        Failure::new(ErrorCode::Usage, "the daemon does not understand the request")
            .cause(error.to_string())
            .hint("the program that asked may be of another version: `tine daemon stop` ends the daemon, and the next command starts one that fits")
    }

    /// Adds a cause.
    pub fn cause(mut self, cause: impl Into<String>) -> Failure {
        self.causes.push(one_line(cause.into()));
        self
    }

    /// Adds causes.
    pub fn causes(self, causes: impl IntoIterator<Item = impl fmt::Display>) -> Failure {
        let causes = causes.into_iter().map(|cause| cause.to_string());
        causes.fold(self, Failure::cause)
    }

    /// Makes a failure with a cause, which `message` may end with.
    ///
    /// `HEAD is damaged: it is empty` becomes the message `HEAD is damaged`.
    pub fn caused(
        code: ErrorCode,
        message: impl Into<String>,
        cause: impl fmt::Display,
    ) -> Failure {
        let (mut message, cause) = (message.into(), cause.to_string());
        if let Some(before) = message.strip_suffix(&format!(": {cause}")) {
            message.truncate(before.len());
        }
        Failure::new(code, message).cause(cause)
    }

    /// Sets the code, with its exit code.
    pub fn code(self, code: ErrorCode) -> Failure {
        Failure {
            code,
            exit: code.exit(),
            ..self
        }
    }

    /// Sets the message.
    pub fn message(mut self, message: impl fmt::Display) -> Failure {
        self.message = one_line(message.to_string());
        self
    }

    /// Sets the hint, in place of an earlier one.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the action that failed as the message.
    ///
    /// The former message becomes the first cause.
    pub fn context(mut self, context: impl Into<String>) -> Failure {
        let message = std::mem::replace(&mut self.message, one_line(context.into()));
        self.causes.insert(0, message);
        self
    }

    /// Makes the failure of an I/O error at `path`.
    ///
    /// `action` is a verb, such as `open`.
    pub fn io(action: &str, path: &Path, error: &io::Error) -> Failure {
        let failure = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => no_space(&path.display().to_string()),
            ErrorKind::PermissionDenied if let Some(uid) = user_of_mount(path) => Failure::new(
                ErrorCode::PermissionDenied,
                format!("not permitted to {action} {}", path.display()),
            )
            .hint(format!(
                "it is mounted by the daemon of user {uid}, and lets in nobody else, not even root: run the command as that user (`sudo -u '#{uid}' tine ...`)"
            )),
            ErrorKind::PermissionDenied => Failure::new(
                ErrorCode::PermissionDenied,
                format!("not permitted to {action} {}", path.display()),
            )
            .hint(format!(
                "`ls -ld {}` shows whose it is: run as that user, or choose another place",
                shell_word(path.as_os_str().as_bytes())
            )),
            ErrorKind::ReadOnlyFilesystem => Failure::new(
                ErrorCode::PermissionDenied,
                format!("not permitted to {action} {}", path.display()),
            )
            .hint("the file system is read-only, as the kernel makes one whose disk fails: see that it is well, and mount it again"),
            _ if error.raw_os_error() == Some(libc::EIO) => {
                Failure::new(ErrorCode::Io, format!("could not {action} {}", path.display()))
                    .hint("the disk answers with errors (`dmesg` tells more): see that it is well, then try again")
            }
            _ if NotAFile::in_error(error).is_some() => {
                Failure::new(ErrorCode::Io, format!("could not {action} {}", path.display())).hint(format!(
                    "`ls -ld {}` says what is there; move it away, then try again",
                    shell_word(path.as_os_str().as_bytes())
                ))
            }
            _ if is_out_of_files(error) => out_of_files(format!("could not {action} {}", path.display())),
            _ => Failure::new(ErrorCode::Io, format!("could not {action} {}", path.display())),
        };
        failure.cause(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for cause in &self.causes {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Makes the failure of a process that may not open more files.
pub fn out_of_files(message: String) -> Failure {
    Failure::new(ErrorCode::Io, message).hint(
        "unmount some forks, or end the daemon (`tine daemon stop`) and start it with a higher limit of open files (`ulimit -Hn`)",
    )
}

/// Returns whether the process or the system is out of file descriptors.
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Replaces line breaks by semicolons, so that a message stays one line.
fn one_line(text: String) -> String {
    if !text.contains(['\n', '\r']) {
        return text;
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// Makes the failure of a full disk.
pub fn no_space(place: &str) -> Failure {
    Failure::new(ErrorCode::NoSpace, format!("the disk is full: {place}"))
        .hint("free some space and try again: `tine recover purge --all`, `tine gc`, or `tine delete` a fork; `tine list` shows the size of each")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_causes_stay_one_line() {
        let failure = Failure::new(ErrorCode::Io, "a\n\n  b\r\n").cause("c\nd");
        assert_eq!(failure.message, "a; b");
        assert_eq!(failure.causes, ["c; d"]);
        assert_eq!(failure.context("e").to_string(), "e: a; b: c; d");
    }

    #[test]
    fn a_cause_at_the_end_of_a_message_is_taken_off() {
        let failure = Failure::caused(ErrorCode::GitFailed, "`git x` failed: a\nb\n", "a\nb\n");
        assert_eq!(failure.message, "`git x` failed");
        assert_eq!(failure.causes, ["a; b"]);
        let failure = Failure::caused(ErrorCode::GitFailed, "it failed", "it");
        assert_eq!(failure.to_string(), "it failed: it");
    }

    #[test]
    fn a_full_disk_is_told_apart_from_other_trouble() {
        let code = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            Failure::io("write", Path::new("/x"), &error).code
        };
        assert_eq!(code(libc::ENOSPC), ErrorCode::NoSpace);
        assert_eq!(code(libc::EDQUOT), ErrorCode::NoSpace);
        assert_eq!(code(libc::EACCES), ErrorCode::PermissionDenied);
        assert_eq!(code(libc::EROFS), ErrorCode::PermissionDenied);
        assert_eq!(code(libc::EIO), ErrorCode::Io);
    }
}
