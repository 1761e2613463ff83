//! Calls of the git program, where the git library does not suffice.

use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use super::GitError;

/// Oldest supported version of git: major and minor number.
pub const MINIMUM_VERSION: (u32, u32) = (2, 45);

/// Environment variables that bind a process to one repository.
///
/// These are the variables of `git rev-parse --local-env-vars`, without those of the configuration.
/// `GIT_ATTR_SOURCE` is not one of them, but it also replaces a tree's attributes.
pub const PLACE_VARIABLES: [&str; 13] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ATTR_SOURCE",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// Checks git's version, and returns it as text (`2.47.3`).
///
/// # Errors
/// [`GitError::GitMissing`] if git cannot be run, [`GitError::GitTooOld`] if it is older than
/// [`MINIMUM_VERSION`].
pub fn check_version() -> Result<String, GitError> {
    let output = run(command(Path::new("/")).arg("version"), b"")?;
    let output = String::from_utf8_lossy(&output);
    let found = output
        .trim()
        .trim_start_matches("git version ")
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned();
    match parse_version(&found) {
        Some(version) if version >= MINIMUM_VERSION => Ok(found),
        _ => Err(GitError::GitTooOld {
            wanted: format!("{}.{}", MINIMUM_VERSION.0, MINIMUM_VERSION.1),
            found,
        }),
    }
}

fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Creates a git command that runs in `dir`.
///
/// It is free of the caller's `GIT_*` variables that select a repository or settings (`GIT_DIR`,
/// `GIT_WORK_TREE`, `GIT_INDEX_FILE`, `GIT_CONFIG_COUNT` …). Identities and the places of
/// configuration files (`GIT_CONFIG_GLOBAL` …) stay. It never prompts on a terminal, and its
/// messages are untranslated.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    // Its error messages are parsed.
    command
        .current_dir(dir)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LANGUAGE", "en");
    for variable in SETTING_VARIABLES {
        command.env_remove(variable);
    }
    without_places(&mut command);
    command
}

/// Restores the user's language for a command whose output users read.
pub fn speak_as_user(command: &mut Command) {
    match std::env::var_os("LANGUAGE") {
        Some(language) => command.env("LANGUAGE", language),
        None => command.env_remove("LANGUAGE"),
    };
}

fn without_places(command: &mut Command) {
    command.env_remove("GIT_CONFIG");
    for variable in PLACE_VARIABLES {
        command.env_remove(variable);
    }
}

/// Variables with settings, which git itself passes on to other repositories.
const SETTING_VARIABLES: [&str; 2] = ["GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"];

/// Creates a git command that contacts a remote for the user.
///
/// git may ask for a password, and configuration from the environment counts (`GIT_CONFIG_COUNT`
/// …). Messages are untranslated, because they are parsed. See [`command`] for the rest.
pub fn command_of_user(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(dir).env("LANGUAGE", "en");
    without_places(&mut command);
    command
}

/// The result of a finished git command.
#[derive(Debug)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Whole standard output.
    pub stdout: Vec<u8>,
    /// Whole error output.
    pub stderr: Vec<u8>,
}

/// Runs `command` with `input`, and returns its standard output.
///
/// Blocks until git ends.
///
/// # Errors
/// [`GitError::GitFailed`] with stderr if the exit status is not 0; otherwise fails as [`finish`].
pub fn run(command: &mut Command, input: &[u8]) -> Result<Vec<u8>, GitError> {
    let finished = finish(command, input)?;
    if finished.status.success() {
        Ok(finished.stdout)
    } else {
        Err(failed(command, &finished))
    }
}

/// Runs `command` with `input` to its end.
///
/// The exit status may be any. Input and output may have any size, because all pipes are served at
/// the same time.
///
/// # Errors
/// [`GitError::GitMissing`] if git cannot be run, [`GitError::Io`] if its directory is missing or
/// inaccessible.
pub fn finish(command: &mut Command, input: &[u8]) -> Result<Finished, GitError> {
    command
        .stdin(if input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(command)?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let (mut stdout, mut errors) = (Vec::new(), Vec::new());
    let errors_end = &mut errors;
    let read = thread::scope(|scope| {
        if let Some(mut stdin) = stdin {
            // A program may close the pipe without reading its input. That is not an error.
            scope.spawn(move || stdin.write_all(input).ok());
        }
        if let Some(mut stderr) = stderr {
            scope.spawn(move || stderr.read_to_end(errors_end).ok());
        }
        match child.stdout.take() {
            Some(mut pipe) => pipe.read_to_end(&mut stdout),
            None => Ok(0),
        }
    });
    let status = child.wait().map_err(GitError::GitMissing)?;
    read.map_err(GitError::GitMissing)?;
    Ok(Finished {
        status,
        stdout,
        stderr: errors,
    })
}

/// Runs `command` to its end with the standard input of this process.
///
/// The exit status may be any. Error output also goes to `told` as it comes.
///
/// # Errors
/// Fails as [`finish`].
pub fn converse(command: &mut Command, told: &mut dyn FnMut(&[u8])) -> Result<Finished, GitError> {
    command
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(command)?;
    let (stdout_pipe, stderr_pipe) = (child.stdout.take(), child.stderr.take());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let stdout_end = &mut stdout;
    thread::scope(|scope| {
        if let Some(mut pipe) = stdout_pipe {
            scope.spawn(move || pipe.read_to_end(stdout_end).ok());
        }
        let Some(mut pipe) = stderr_pipe else {
            return;
        };
        let mut buffer = [0; 4096];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => return,
                Ok(len) => {
                    let said = buffer.get(..len).unwrap_or_default();
                    told(said);
                    stderr.extend_from_slice(said);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    let status = child.wait().map_err(GitError::GitMissing)?;
    Ok(Finished {
        status,
        stdout,
        stderr,
    })
}

/// Runs `command` to its end with `input` as its standard input.
///
/// The exit status may be any.
///
/// # Errors
/// Fails as [`finish`].
pub fn finish_reading(command: &mut Command, input: Stdio) -> Result<Finished, GitError> {
    let child = spawn(
        command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )?;
    let output = child.wait_with_output().map_err(GitError::GitMissing)?;
    Ok(Finished {
        status: output.status,
        stdout: output.stdout,
        stderr: output.stderr,
    })
}

/// Starts `command`.
///
/// # Errors
/// [`GitError::Io`] if its directory is missing or inaccessible, and [`GitError::GitMissing`] if
/// git cannot be run.
pub fn spawn(command: &mut Command) -> Result<Child, GitError> {
    log::debug!("runs git {}", words(command));
    command
        .spawn()
        .map_err(|source| match command.get_current_dir() {
            // Another user's mount denies access to its directory.
            Some(dir) if is_dirs_fault(dir, source.kind()) => GitError::Io {
                action: "enter",
                path: dir.to_owned(),
                source,
            },
            _ => GitError::GitMissing(source),
        })
}

/// Returns whether a program failed to start because of its directory.
fn is_dirs_fault(dir: &Path, kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::NotFound => !dir.is_dir(),
        ErrorKind::PermissionDenied => dir.join(".").metadata().is_err(),
        _ => false,
    }
}

/// Returns the command's arguments for messages.
fn words(command: &Command) -> String {
    let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    arguments.join(" ")
}

/// Parses the failed system call out of git's error output.
///
/// The error contains git's message. The result is `None` if the output names no known failure.
pub fn format_io_error(said: &str) -> Option<std::io::Error> {
    const TOLD: [i32; 8] = [
        libc::ENOSPC,
        libc::EDQUOT,
        libc::EROFS,
        libc::EIO,
        libc::EACCES,
        libc::EPERM,
        libc::EMFILE,
        libc::ENFILE,
    ];
    let lines = || {
        let lines = said.lines().map(str::trim_end);
        lines.filter(|line| line.starts_with("error: ") || line.starts_with("fatal: "))
    };
    TOLD.into_iter().find_map(|number| {
        let error = std::io::Error::from_raw_os_error(number);
        let text = error.to_string();
        let (text, _) = text.split_once(" (os error")?;
        let line = lines().find(|line| line.ends_with(&format!(": {text}")))?;
        Some(match error.kind() {
            // These are known by their numbers.
            _ if matches!(number, libc::EIO | libc::EMFILE | libc::ENFILE) => error,
            kind => std::io::Error::new(kind, line.to_owned()),
        })
    })
}

/// Returns the error for a command that ended with a failing status.
pub fn failed(command: &Command, finished: &Finished) -> GitError {
    let stderr = String::from_utf8_lossy(&finished.stderr).trim().to_owned();
    GitError::GitFailed {
        command: words(command),
        stderr: if stderr.is_empty() {
            finished.status.to_string()
        } else {
            stderr
        },
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_installed_git_is_new_enough() {
        assert!(check_version().unwrap().starts_with("2."));
    }

    #[test]
    fn a_system_call_that_git_tells_of_is_found_in_what_it_says() {
        use std::io;

        let kind = |said: &str| format_io_error(said).map(|error| error.kind());
        let full =
            "error: unable to write file big: No space left on device\nfatal: could not finish\n";
        assert_eq!(kind(full), Some(io::ErrorKind::StorageFull));
        assert!(
            format_io_error(full)
                .unwrap()
                .to_string()
                .contains("file big")
        );
        let said = "fatal: unable to create 'x/index.lock': Disk quota exceeded";
        assert_eq!(kind(said), Some(io::ErrorKind::QuotaExceeded));
        let said = "error: unable to create file x: Permission denied";
        assert_eq!(kind(said), Some(io::ErrorKind::PermissionDenied));
        let said = "error: unable to write file x: Input/output error";
        assert_eq!(
            format_io_error(said).unwrap().raw_os_error(),
            Some(libc::EIO)
        );
        for said in [
            "",
            "error: Your local changes to the following files would be overwritten by merge:\n\tNo space left on device",
            "warning: unable to unlink 'x': Permission denied",
        ] {
            assert_eq!(kind(said), None, "{said}");
        }
    }

    #[test]
    fn versions_of_all_kinds_are_read() {
        assert_eq!(parse_version("2.47.3"), Some((2, 47)));
        assert_eq!(parse_version("2.50.0-rc1"), Some((2, 50)));
        assert_eq!(parse_version("3.0"), Some((3, 0)));
        assert_eq!(parse_version("unknown"), None);
    }

    #[test]
    fn every_variable_that_git_calls_local_is_cleared() {
        let listed = run(
            command(Path::new("/")).args(["rev-parse", "--local-env-vars"]),
            b"",
        )
        .unwrap();
        let git = command(Path::new("/"));
        for variable in String::from_utf8(listed).unwrap().lines() {
            let is_cleared =
                |(name, value): (&OsStr, Option<&OsStr>)| name == variable && value.is_none();
            assert!(git.get_envs().any(is_cleared), "{variable}");
        }
    }

    #[test]
    fn big_input_and_output_do_not_block_each_other() {
        let dir = tempfile::tempdir().unwrap();
        run(command(dir.path()).args(["init", "-q"]), b"").unwrap();
        let mut asked = Vec::new();
        for n in 0..100_000 {
            asked.extend_from_slice(format!("{n:040x}\n").as_bytes());
        }
        let answer = run(
            command(dir.path()).args(["cat-file", "--batch-check"]),
            &asked,
        )
        .unwrap();
        assert_eq!(answer.iter().filter(|&&b| b == b'\n').count(), 100_000);
    }

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let error = run(
            command(Path::new("/")).args(["cat-file", "--no-such-option"]),
            b"",
        )
        .unwrap_err();
        let GitError::GitFailed { command, stderr } = error else {
            panic!("{error}");
        };
        assert_eq!(command, "cat-file --no-such-option");
        assert!(!stderr.is_empty());
        let gone = run(command_in_gone_dir().arg("version"), b"").unwrap_err();
        assert!(
            matches!(
                gone,
                GitError::Io {
                    action: "enter",
                    ..
                }
            ),
            "{gone}"
        );
    }

    fn command_in_gone_dir() -> Command {
        command(Path::new("/nonexistent/directory"))
    }
}
