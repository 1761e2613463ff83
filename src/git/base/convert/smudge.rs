//! Blobs as a checkout writes them, from git itself.
//!
//! One `git cat-file --batch --filters` runs for a base while it is needed, and keeps the filters'
//! own processes alive. Its header gives the stored size, not the converted one. Each request is
//! therefore followed by a second one for an object that cannot exist. The answer to that cannot
//! occur in a file, so it marks the end.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::{ConversionSettings, filter_failed};
use crate::base::blobs::{BlobWriter, STREAM_THRESHOLD};
use crate::{GitError, ObjectId, Repository, program};
use tine_path::RepoPath;

/// Maximum bytes of a filter's error output that are kept.
const MAX_ERROR_OUTPUT_BYTES: usize = 4096;

/// Maximum wait for the error output of a failed filter.
const ERROR_OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Converter of blobs for the paths of one tree.
pub(super) struct Smudge {
    repository: Repository,
    tree_id: ObjectId,
    settings: ConversionSettings,
    /// Running process, locked during a conversion.
    process: Mutex<Option<Process>>,
}

impl Smudge {
    pub(super) fn new(
        repository: &Repository,
        tree_id: ObjectId,
        settings: ConversionSettings,
    ) -> Smudge {
        Smudge {
            repository: repository.clone(),
            tree_id,
            settings,
            process: Mutex::new(None),
        }
    }

    pub(super) fn settings(&self) -> &ConversionSettings {
        &self.settings
    }

    /// Writes a checkout's content of the blob at `path` to `writer`.
    ///
    /// A failing required filter is an error.
    pub(super) fn convert(
        &self,
        path: &RepoPath,
        blob_id: ObjectId,
        writer: &mut BlobWriter<'_>,
    ) -> Result<(), GitError> {
        // Fetch a missing object and detect a damaged one here: git does not hash what it converts.
        if self.repository.blob_size(blob_id)? <= STREAM_THRESHOLD {
            self.repository.read_blob(blob_id)?;
        }
        if !fits_in_line(path.as_bytes()) {
            return self.convert_alone(path, blob_id, writer);
        }
        let mut running = self.process.lock();
        // The process is taken out during the conversion, so that after an error a process in an
        // unknown state is not used again.
        let mut process = match running.take().and_then(Process::if_alive) {
            Some(process) => process,
            None => Process::start(self.command()?.args(["--filters", "--batch"]))?,
        };
        match process.convert(path, blob_id, writer) {
            Ok(()) => {
                *running = Some(process);
                Ok(())
            }
            Err(ConvertError::Write(error)) => Err(error),
            Err(ConvertError::Process(reason)) => Err(filter_failed(path, process.end(reason))),
        }
    }

    #[cfg(test)]
    pub(super) fn kill(&self) {
        if let Some(process) = self.process.lock().as_mut() {
            process.child.kill().ok();
            process.child.wait().ok();
        }
    }

    /// Converts in a separate process, for paths with special characters.
    fn convert_alone(
        &self,
        path: &RepoPath,
        blob_id: ObjectId,
        writer: &mut BlobWriter<'_>,
    ) -> Result<(), GitError> {
        let mut command = self.command()?;
        command
            .arg("--filters")
            .arg("--path")
            .arg(path.as_path())
            .arg(blob_id.to_string());
        let finished = program::finish(&mut command, b"")?;
        if !finished.status.success() {
            let error_output = String::from_utf8_lossy(&finished.stderr);
            return Err(filter_failed(path, error_output.trim().to_owned()));
        }
        writer.append(&finished.stdout)
    }

    /// Creates a `git cat-file` command with the tree's attributes.
    ///
    /// It runs in the main worktree, because drivers may name programs there by relative paths, and
    /// never in a fork's mount.
    fn command(&self) -> Result<Command, GitError> {
        let mut command = program::command(self.repository.checkout_dir());
        command.env("GIT_DIR", self.repository.common_dir());
        let now = ConversionSettings::current(&self.repository)?;
        if now != self.settings {
            self.settings.configure(&mut command, &now);
        }
        command
            .arg(format!("--attr-source={}", self.tree_id))
            .arg("cat-file");
        Ok(command)
    }
}

/// Returns whether `cat-file --batch` reads the path unchanged.
///
/// It splits input at line ends and drops leading blanks.
fn fits_in_line(path: &[u8]) -> bool {
    !path.iter().any(|&b| b < b' ') && path.first() != Some(&b' ')
}

/// The cause of a failed conversion.
enum ConvertError {
    Process(String),
    Write(GitError),
}

struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Last part of the process's error output.
    error_output: Arc<Mutex<Vec<u8>>>,
    /// Channel that disconnects at the end of the error output.
    errors_ended: Receiver<()>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Process, GitError> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = program::spawn(command)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = stdout.expect("it was piped just above");
        let error_output = Arc::new(Mutex::new(Vec::new()));
        let (end_of_errors, errors_ended) = mpsc::channel();
        if let Some(mut stderr) = child.stderr.take() {
            let error_output = error_output.clone();
            thread::spawn(move || {
                collect(&mut stderr, &error_output);
                drop(end_of_errors);
            });
        }
        Ok(Process {
            child,
            stdin,
            stdout: BufReader::with_capacity(1 << 16, stdout),
            error_output,
            errors_ended,
        })
    }

    /// Returns the process, unless it ended while it was idle.
    fn if_alive(mut self) -> Option<Process> {
        matches!(self.child.try_wait(), Ok(None)).then_some(self)
    }

    fn convert(
        &mut self,
        path: &RepoPath,
        blob_id: ObjectId,
        writer: &mut BlobWriter<'_>,
    ) -> Result<(), ConvertError> {
        let broken = |error: std::io::Error| ConvertError::Process(error.to_string());
        self.error_output.lock().clear();
        let mark = mark();
        let mut question = format!("{blob_id} ").into_bytes();
        question.extend_from_slice(path.as_bytes());
        question.extend_from_slice(format!("\n{mark}\n").as_bytes());
        let stdin = self
            .stdin
            .as_mut()
            .expect("a process whose input was closed is not used again");
        stdin.write_all(&question).map_err(broken)?;

        let mut header = Vec::new();
        self.stdout.read_until(b'\n', &mut header).map_err(broken)?;
        if header.is_empty() {
            return Err(self.ended());
        }
        if !header.starts_with(format!("{blob_id} blob ").as_bytes()) {
            return Err(ConvertError::Process(
                String::from_utf8_lossy(&header).trim().to_owned(),
            ));
        }
        let end = format!("\n{mark} missing\n").into_bytes();
        let mut held = Vec::new();
        loop {
            let read = match self.stdout.fill_buf() {
                Ok([]) => return Err(self.ended()),
                Ok(bytes) => {
                    held.extend_from_slice(bytes);
                    bytes.len()
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(broken(error)),
            };
            self.stdout.consume(read);
            if held.ends_with(&end) {
                held.truncate(held.len() - end.len());
                return writer.append(&held).map_err(ConvertError::Write);
            }
            // The buffer's end may split the mark.
            let sure = held.len().saturating_sub(end.len());
            writer.append(&held[..sure]).map_err(ConvertError::Write)?;
            held.drain(..sure);
        }
    }

    /// Waits for the exit status of a process that closed its output.
    ///
    /// Killing it now would lose the cause.
    fn ended(&mut self) -> ConvertError {
        self.stdin = None;
        match self.child.wait() {
            Ok(status) => ConvertError::Process(format!("git cat-file: {status}")),
            Err(error) => ConvertError::Process(error.to_string()),
        }
    }

    /// Ends a failed process, and returns its error output or `reason`.
    fn end(&mut self, reason: String) -> String {
        self.stop();
        // A driver's child may hold the pipe open for a long time.
        self.errors_ended.recv_timeout(ERROR_OUTPUT_TIMEOUT).ok();
        let error_output = self.error_output.lock();
        let error_output = String::from_utf8_lossy(&error_output).trim().to_owned();
        if error_output.is_empty() {
            reason
        } else {
            error_output
        }
    }

    fn stop(&mut self) {
        self.stdin = None;
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Logs a filter's error output, and keeps the last part.
fn collect(stderr: &mut impl Read, error_output: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer) {
        let bytes = &buffer[..read];
        log::warn!(
            "git cat-file: {}",
            String::from_utf8_lossy(bytes).trim_end()
        );
        let mut kept = error_output.lock();
        kept.extend_from_slice(bytes);
        let excess = kept.len().saturating_sub(MAX_ERROR_OUTPUT_BYTES);
        kept.drain(..excess);
    }
}

/// Returns a random name that no object or file contains.
fn mark() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("end-{:016x}{:016x}", random(), random())
}
