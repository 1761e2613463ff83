//! Blobs as a checkout writes them, from git itself.
//!
//! One `git cat-file --batch --filters` runs for a base while it is needed; it keeps the filters'
//! own processes alive, too. The header that it prints tells the stored size, not the converted
//! one, so each question is followed by one for an object that cannot exist: the answer to that,
//! unlike anything a file could hold, marks the end.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::{ConversionSettings, filter_failed};
use crate::base::blobs::{STREAM_THRESHOLD, Sink};
use crate::{GitError, ObjectId, Repository, program};
use tine_path::RepoPath;

/// Bytes of a filter's complaints that are kept for the error.
const MAX_COMPLAINT: usize = 4096;

/// How long to wait for a failed filter's complaint.
const MAX_COMPLAINT_WAIT: Duration = Duration::from_secs(2);

/// Converts blobs for the paths of one tree.
pub(super) struct Smudge {
    repository: Repository,
    tree_id: ObjectId,
    settings: ConversionSettings,
    /// The running process; whoever converts holds it.
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

    /// Writes to `sink` what a checkout would have for the blob at `path`. A required filter that
    /// fails is an error.
    pub(super) fn convert(
        &self,
        path: &RepoPath,
        blob_id: ObjectId,
        sink: &mut Sink<'_>,
    ) -> Result<(), GitError> {
        // A missing object is fetched, and a damaged one found out, here: git would not hash what
        // it converts.
        if self.repository.blob_size(blob_id)? <= STREAM_THRESHOLD {
            self.repository.read_blob(blob_id)?;
        }
        if !fits_on_a_line(path.as_bytes()) {
            return self.convert_alone(path, blob_id, sink);
        }
        let mut running = self.process.lock();
        // Taken out meanwhile: whatever goes wrong, a process in an unknown state is not used
        // again.
        let mut process = match running.take().and_then(Process::if_alive) {
            Some(process) => process,
            None => Process::start(self.command()?.args(["--filters", "--batch"]))?,
        };
        match process.convert(path, blob_id, sink) {
            Ok(()) => {
                *running = Some(process);
                Ok(())
            }
            Err(Broken::Sink(error)) => Err(error),
            Err(Broken::Process(reason)) => Err(filter_failed(path, process.end(reason))),
        }
    }

    #[cfg(test)]
    pub(super) fn kill(&self) {
        if let Some(process) = self.process.lock().as_mut() {
            process.child.kill().ok();
            process.child.wait().ok();
        }
    }

    /// The same with a process of its own, for paths that cannot stand on a line of input.
    fn convert_alone(
        &self,
        path: &RepoPath,
        blob_id: ObjectId,
        sink: &mut Sink<'_>,
    ) -> Result<(), GitError> {
        let mut command = self.command()?;
        command
            .arg("--filters")
            .arg("--path")
            .arg(path.as_path())
            .arg(blob_id.to_string());
        let finished = program::finish(&mut command, b"")?;
        if !finished.status.success() {
            let complaint = String::from_utf8_lossy(&finished.stderr);
            return Err(filter_failed(path, complaint.trim().to_owned()));
        }
        sink.append(&finished.stdout)
    }

    /// `git cat-file` with the tree's attributes. It runs in the main worktree, as drivers may name
    /// programs there by a relative path, and never in a fork's mount.
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

/// Whether `cat-file --batch` would take the path as it is: it divides input at line ends and drops
/// leading blanks.
fn fits_on_a_line(path: &[u8]) -> bool {
    !path.iter().any(|&b| b < b' ') && path.first() != Some(&b' ')
}

/// Why a conversion broke off.
enum Broken {
    Process(String),
    Sink(GitError),
}

struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// The last of what it wrote to its standard error.
    complaint: Arc<Mutex<Vec<u8>>>,
    /// Disconnected once its standard error has ended.
    complained: Receiver<()>,
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
        let complaint = Arc::new(Mutex::new(Vec::new()));
        let (complaining, complained) = mpsc::channel();
        if let Some(mut stderr) = child.stderr.take() {
            let complaint = complaint.clone();
            thread::spawn(move || {
                collect(&mut stderr, &complaint);
                drop(complaining);
            });
        }
        Ok(Process {
            child,
            stdin,
            stdout: BufReader::with_capacity(1 << 16, stdout),
            complaint,
            complained,
        })
    }

    /// The process, unless somebody ended it while it was idle.
    fn if_alive(mut self) -> Option<Process> {
        matches!(self.child.try_wait(), Ok(None)).then_some(self)
    }

    fn convert(
        &mut self,
        path: &RepoPath,
        blob_id: ObjectId,
        sink: &mut Sink<'_>,
    ) -> Result<(), Broken> {
        let broken = |error: std::io::Error| Broken::Process(error.to_string());
        self.complaint.lock().clear();
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
            return Err(Broken::Process(
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
                return sink.append(&held).map_err(Broken::Sink);
            }
            // The mark may be cut in two by the buffer's end.
            let sure = held.len().saturating_sub(end.len());
            sink.append(&held[..sure]).map_err(Broken::Sink)?;
            held.drain(..sure);
        }
    }

    /// It closed its output, so it is about to exit; killed now, it would not say why.
    fn ended(&mut self) -> Broken {
        self.stdin = None;
        match self.child.wait() {
            Ok(status) => Broken::Process(format!("git cat-file: {status}")),
            Err(error) => Broken::Process(error.to_string()),
        }
    }

    /// Waits for the end of a process that broke; what it complained of, or `reason`.
    fn end(&mut self, reason: String) -> String {
        self.stop();
        // A driver's own child may hold the pipe open for longer than the message is worth waiting
        // for.
        self.complained.recv_timeout(MAX_COMPLAINT_WAIT).ok();
        let complaint = self.complaint.lock();
        let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
        if complaint.is_empty() {
            reason
        } else {
            complaint
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

/// Reads a filter's complaints to their end, logs them and keeps the last of them.
fn collect(stderr: &mut impl Read, complaint: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer) {
        let bytes = &buffer[..read];
        log::warn!(
            "git cat-file: {}",
            String::from_utf8_lossy(bytes).trim_end()
        );
        let mut kept = complaint.lock();
        kept.extend_from_slice(bytes);
        let excess = kept.len().saturating_sub(MAX_COMPLAINT);
        kept.drain(..excess);
    }
}

/// A name that no object has and no file can foresee.
fn mark() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("end-{:016x}{:016x}", random(), random())
}
