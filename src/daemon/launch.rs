//! Start of a daemon process by a client.
//!
//! The client runs `tine daemon run --store-of <common-dir>` in the directory `/`. The process
//! inherits only these descriptors:
//!
//! | stream | leads to |
//! |---|---|
//! | standard input | `/dev/null` |
//! | standard output | a socket to the client, for the report |
//! | standard error | the log |
//!
//! The report is one line: the daemon listens, or the failure that ended it. After the report, the
//! daemon redirects its standard output to the log. So it keeps no terminal, directory or mount of
//! the client busy.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{journal, socket, wire};
use tine_ops::failure::{ErrorCode, Failure};
use tine_sys::process;

/// Environment variable of a daemon that a client launches.
///
/// If it is set, the daemon goes into the background and reports.
const LAUNCHED_VARIABLE: &str = "TINE_LAUNCHED";

/// Maximum length of a report in bytes.
const MAX_REPORT_BYTES: u64 = 1 << 20;

/// Result of a launch.
#[derive(Debug)]
pub enum Launched {
    /// The new daemon has the store and listens.
    Listening,
    /// Another process has the store, with the failure `store-locked`.
    ///
    /// It is a daemon that starts or ends, or a program that embeds the library.
    StoreLocked(Failure),
}

/// Starts a daemon for a repository and waits for its report.
///
/// `common_dir` is the repository's common git directory. `program` is the program to run; by
/// default it is the current executable if its name begins with `tine`, or else `tine` from `PATH`.
/// Blocks until the report arrives, at most until `deadline`.
///
/// # Errors
/// The failure that the daemon reports. `daemon-unreachable` if the daemon ends without a report or
/// the deadline expires. `io` if the program cannot be run.
pub fn launch(
    common_dir: &Path,
    program: Option<&Path>,
    deadline: Instant,
) -> Result<Launched, Failure> {
    let store_dir = socket::store_dir(common_dir);
    let (log, log_start) = journal::open(&store_dir)?;
    let (ours, theirs) =
        UnixStream::pair().map_err(|error| Failure::io("make a socket for", &store_dir, &error))?;
    let program = program.map_or_else(this_program, Path::to_owned);
    start(&program, common_dir, theirs, log)
        .map_err(|error| Failure::io("start the daemon with", &program, &error))?;

    let report = receive_report(ours, deadline);
    let without_report = |what: &str| {
        let failure = Failure::new(ErrorCode::DaemonUnreachable, what).hint(format!(
            "the reason may be in {}",
            store_dir.join(journal::LOG_NAME).display()
        ));
        match journal::last_error(&store_dir, log_start) {
            Some(line) => failure.cause(line),
            None => failure,
        }
    };
    match report {
        Ok(Some(Ok(_))) => Ok(Launched::Listening),
        Ok(Some(Err(failure))) if failure.code == ErrorCode::StoreLocked => {
            Ok(Launched::StoreLocked(failure))
        }
        Ok(Some(Err(failure))) => Err(failure),
        Ok(None) => Err(without_report("the daemon ended while it started")),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(without_report("the daemon did not start in time"))
        }
        Err(error) => Err(without_report("the daemon did not start").cause(error.to_string())),
    }
}

/// Runs the program that becomes the daemon.
///
/// Returns when it is in the background.
fn start(program: &Path, common_dir: &Path, report: UnixStream, log: File) -> io::Result<()> {
    let mut command = Command::new(program);
    command
        .arg0("tine")
        .args(["daemon", "run", "--store-of"])
        .arg(common_dir)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(report))
        .stderr(log)
        .env(LAUNCHED_VARIABLE, "1");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_for_one_command) {
            command.env_remove(name);
        }
    }
    process::inherit_standard_streams_only(&mut command);
    let mut child = command.spawn()?;
    // The command holds a copy of the daemon's end of the socket. While it is open, the client
    // cannot see the end of the daemon.
    drop(command);
    child.wait()?;
    Ok(())
}

/// Returns whether an environment variable is only for the starting command.
///
/// Such variables are the repository and the dates of one git command. The daemon does not inherit
/// them. It inherits git's configuration, and identities: it needs one if an unmount policy commits
/// after an `umount` by another program. Requests have their own identities.
fn is_for_one_command(variable: &str) -> bool {
    const KEPT: [&str; 10] = [
        "GIT_CONFIG_",
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_SSH",
        "GIT_EXEC_PATH",
        "GIT_ASKPASS",
        "GIT_SSL_",
        "GIT_TRACE",
    ];
    variable.starts_with("GIT_")
        && (variable == "GIT_CONFIG_PARAMETERS"
            || !KEPT.iter().any(|prefix| variable.starts_with(prefix)))
}

/// Returns the default program of the daemon.
///
/// It is the current executable if its name begins with `tine`, also if the file was replaced. A
/// program that uses the library gets `tine` from `PATH`.
fn this_program() -> PathBuf {
    let is_tine = |program: &Path| {
        let name = program.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("tine"))
    };
    match std::env::current_exe() {
        Ok(program) if !is_tine(&program) => PathBuf::from("tine"),
        Ok(program) if program.exists() => program,
        _ => PathBuf::from("/proc/self/exe"),
    }
}

/// Waits for the report.
///
/// Returns `None` if the daemon ended without one.
fn receive_report(
    report: UnixStream,
    deadline: Instant,
) -> io::Result<Option<Result<(), Failure>>> {
    let patience = deadline.saturating_duration_since(Instant::now());
    report.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
    match wire::read_line(&mut BufReader::new(report), MAX_REPORT_BYTES)? {
        wire::Line::Complete(line) => Ok(Some(wire::decode_response(&line))),
        wire::Line::End | wire::Line::TooLong => Ok(None),
    }
}

/// Sender of the report in the new process.
pub struct Reporter(());

impl Reporter {
    /// Goes into the background if a client launched this process.
    ///
    /// Returns `None` if the process was started by hand. No other thread may run.
    ///
    /// # Errors
    /// `internal` if the process cannot go into the background.
    pub fn new() -> Result<Option<Reporter>, Failure> {
        if std::env::var_os(LAUNCHED_VARIABLE).is_none() {
            return Ok(None);
        }
        process::daemonise().map_err(|error| {
            Failure::new(
                ErrorCode::Internal,
                "the daemon could not go into the background",
            )
            .cause(error.to_string())
        })?;
        Ok(Some(Reporter(())))
    }

    /// Sends the report and closes the connection to the client.
    ///
    /// A client that has ended meanwhile is not an error.
    pub fn report(self, outcome: Result<(), &Failure>) {
        let reported = wire::encode_response(&outcome.map_err(Failure::clone))
            .map_err(io::Error::other)
            .and_then(|line| {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&line)?;
                stdout.flush()
            });
        if let Err(error) = reported.and_then(|()| process::redirect_stdout_to_stderr()) {
            log::warn!("could not report the start: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_does_not_inherit_what_belongs_to_one_command() {
        for name in [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_AUTHOR_DATE",
            "GIT_COMMITTER_DATE",
            "GIT_CONFIG_PARAMETERS",
        ] {
            assert!(is_for_one_command(name), "{name}");
        }
        for name in [
            "GIT_CONFIG_GLOBAL",
            "GIT_CONFIG_KEY_0",
            "HOME",
            "PATH",
            "GIT_SSH_COMMAND",
            "GIT_COMMITTER_EMAIL",
        ] {
            assert!(!is_for_one_command(name), "{name}");
        }
    }

    /// What launching a shell script gives.
    fn launch_script(text: &str) -> Failure {
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("program");
        // Written by another process: a descriptor open for writing here could leak into the child
        // of another test and make the script "busy".
        let mut writer = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&script)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        assert!(writer.wait().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(10);
        launch(place.path(), Some(&script), deadline).unwrap_err()
    }

    #[test]
    fn a_program_that_says_nothing_is_told_apart_with_the_end_of_the_log() {
        let failure = launch_script("#!/bin/sh\necho '2026 ERROR the moon is full' >&2\n");
        assert_eq!(failure.code, ErrorCode::DaemonUnreachable, "{failure}");
        assert_eq!(failure.causes, ["the moon is full"]);
    }

    #[test]
    fn a_failure_of_the_start_arrives_with_its_code() {
        let mut line =
            wire::encode_response::<()>(&Err(Failure::new(ErrorCode::NewerFormat, "too new")))
                .unwrap();
        line.pop();
        let failure = launch_script(&format!(
            "#!/bin/sh\necho '{}'\n",
            String::from_utf8(line).unwrap()
        ));
        assert_eq!(failure.code, ErrorCode::NewerFormat, "{failure}");
        assert_eq!(failure.message, "too new");
    }
}
