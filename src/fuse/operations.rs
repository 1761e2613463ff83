//! Implementation of the requests, for all transports.
//!
//! Each method counts its request, carries it out on the [`Workspace`], and maps a failure to an
//! errno. A transport decodes a request, calls one method, and encodes the answer.
//!
//! `opendir`, `flush` and `create` answer ENOSYS once each. The kernel then does them itself
//! (create as mknod and open). So it does with `open`, which then costs nothing. The exceptions are
//! mounts for large files ([`super::opens`]) and mounts that show unsaved text
//! ([`super::overlay`]). No operation needs a handle: a node lives until the kernel forgets it.

mod attributes;
mod contents;
mod dot_git;
mod guarding;
mod names;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use log::{debug, error};

use super::counters::{Counters, Operation};
use super::entries::Entry;
use super::errno::{self, Errno};
use super::generations::Generations;
use super::host_view::HostView;
use super::notifier;
use super::overlay::Overlay;
use super::priming::PrimingFile;
use super::replay::{Act, Replay, Unacknowledged};
use tine_attr::{Attr, Ino};
use tine_dotgit::GitDirectory;
use tine_git::nonblocking;
use tine_workspace::{Caller, FsError, Workspace, is_text_node};

/// Answer to a request.
pub(super) type Answer<T> = Result<T, Errno>;

/// Reason why a request fails.
enum Refusal {
    /// The workspace failed or refused.
    Fs(FsError),
    /// The arguments are not valid here.
    Errno(Errno),
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Refusal {
        Refusal::Fs(error)
    }
}

impl From<Unacknowledged> for Refusal {
    fn from(reason: Unacknowledged) -> Refusal {
        match reason {
            Unacknowledged::Fs(error) => Refusal::Fs(error),
            Unacknowledged::Errno(errno) => Refusal::Errno(errno),
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Errno(errno)
    }
}

/// Runs a handler and maps its failure to an errno.
///
/// Logs errors of the machine or the store. A panic becomes EIO, so that the thread keeps serving.
fn guarded<T>(
    operation: Operation,
    ino: Ino,
    run: impl FnOnce() -> Result<T, Refusal>,
) -> Answer<T> {
    match notifier::as_handler(|| catch_unwind(AssertUnwindSafe(run))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Refusal::Errno(errno))) => Err(errno),
        // Another thread will carry out the request.
        Ok(Err(Refusal::Fs(_))) if nonblocking::was_refused() => Err(Errno::EAGAIN),
        Ok(Err(Refusal::Fs(failure))) => {
            let errno = errno::of(&failure);
            if errno == Errno::EIO {
                error!("{} of inode {}: {failure}", operation.name(), ino.0);
            } else {
                debug!("{} of inode {}: {failure}", operation.name(), ino.0);
            }
            Err(errno)
        }
        Err(_panic) => {
            error!("{} of inode {} panicked", operation.name(), ino.0);
            Err(Errno::EIO)
        }
    }
}

/// File system of one mount. Any thread may call any method.
pub(super) struct Operations {
    /// Workspace that the mount shows.
    workspace: Arc<Workspace>,
    /// Statistics of the requests.
    counters: Arc<Counters>,
    /// File for the first open on the mount.
    priming: PrimingFile,
    /// State of the replay of a change.
    replay: Arc<Replay>,
    /// Generations of removed directories.
    generations: Generations,
    /// State for unsaved text, on a mount that shows it.
    overlay: Option<Overlay>,
    /// The fork's own git directory, if it has one.
    git_dir: Option<Arc<GitDirectory>>,
    /// Files that the daemon reaches.
    host_view: HostView,
    /// Nodes that matter in an untrusted fork. Internally synchronised.
    guarded: guarding::GuardedNodes,
}

impl Operations {
    pub(super) fn new(
        workspace: Arc<Workspace>,
        counters: Arc<Counters>,
        priming: PrimingFile,
        replay: Arc<Replay>,
        shows_texts: bool,
        git_dir: Option<Arc<GitDirectory>>,
    ) -> Operations {
        Operations {
            workspace,
            counters,
            priming,
            replay,
            generations: Generations::default(),
            overlay: shows_texts.then(Overlay::default),
            git_dir,
            host_view: HostView::of_daemon(),
            guarded: guarding::GuardedNodes::default(),
        }
    }

    /// Returns the file behind a text node, and any other number itself.
    fn file(&self, ino: Ino) -> Result<Ino, FsError> {
        match &self.overlay {
            Some(_) => self.workspace.file_of_text(ino),
            None => Ok(ino),
        }
    }

    /// Checks that a request to change bytes is not for a text.
    ///
    /// # Errors
    /// ESTALE for a text node; the kernel then retries.
    fn check_is_file(&self, overlay: &Overlay, caller: Caller, ino: Ino) -> Result<(), Errno> {
        if is_text_node(ino) {
            return Err(overlay.request_retry(caller));
        }
        overlay.note_retried(caller);
        Ok(())
    }

    /// Returns whether a node is the text of a file.
    fn is_text(&self, ino: Ino) -> bool {
        self.overlay.is_some() && is_text_node(ino)
    }

    /// Sets the generation of an entry.
    fn with_generation(&self, entry: Entry) -> Entry {
        Entry {
            generation: entry.attr.map_or(0, |attr| self.generations.of(attr.ino)),
            ..entry
        }
    }

    /// Answers a request of a thread that replays changes.
    ///
    /// Such a request is not counted. `None` for any other thread.
    fn replayed<T>(
        &self,
        caller: Caller,
        (operation, ino): (Operation, Ino),
        answer: impl FnOnce(&Replay, usize) -> Result<T, Refusal>,
    ) -> Option<Answer<T>> {
        let worker = self.replay.replayed_by(caller)?;
        Some(self.guarded(operation, ino, || answer(&self.replay, worker)))
    }

    /// Acknowledges a call of a replaying thread, without carrying it out.
    fn acknowledged(
        &self,
        caller: Caller,
        request: (Operation, Ino),
        act: Act<'_>,
    ) -> Option<Answer<()>> {
        self.replayed(caller, request, |replay, worker| {
            Ok(replay.acknowledge(&self.workspace, worker, act)?)
        })
    }

    /// Runs a request and counts it, unless another thread must rerun it.
    fn call<T>(
        &self,
        operation: Operation,
        ino: Ino,
        run: impl FnOnce(&Workspace) -> Result<T, Refusal>,
    ) -> Answer<T> {
        let begun = Instant::now();
        let answer = self.guarded(operation, ino, || run(&self.workspace));
        if !nonblocking::was_refused() {
            self.counters.count_since(operation, begun);
        }
        answer
    }

    /// Runs a handler; if it panics, the fork accepts no more changes.
    fn guarded<T>(
        &self,
        operation: Operation,
        ino: Ino,
        run: impl FnOnce() -> Result<T, Refusal>,
    ) -> Answer<T> {
        let mut has_returned = false;
        let answer = guarded(operation, ino, || {
            let done = run();
            has_returned = true;
            done
        });
        if !has_returned {
            self.workspace.interrupt();
        }
        answer
    }

    /// Counts a request that the transport answers.
    pub(super) fn count(&self, operation: Operation) {
        self.counters.count(operation);
    }

    /// Counts a request and returns ENOSYS.
    ///
    /// The kernel then does these requests itself.
    pub(super) fn leave_to_kernel(&self, operation: Operation) -> Errno {
        self.counters.count(operation);
        Errno::ENOSYS
    }

    /// Adjusts the times of a file of which text was shown.
    fn with_time(&self, attr: Attr) -> Attr {
        match &self.overlay {
            Some(_) => self.workspace.uncovered(attr),
            None => attr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_panics_answers_eio_and_the_next_one_works() {
        let panicked: Answer<()> = guarded(Operation::Read, Ino(5), || panic!("on purpose"));
        assert_eq!(panicked, Err(Errno::EIO));
        assert_eq!(guarded(Operation::Read, Ino(5), || Ok(7)), Ok(7));
    }

    #[test]
    fn a_refusal_becomes_its_errno() {
        let by_workspace: Answer<()> =
            guarded(Operation::RmDir, Ino(5), || Err(FsError::NotEmpty.into()));
        assert_eq!(by_workspace, Err(Errno::ENOTEMPTY));
        let by_decoding: Answer<()> =
            guarded(Operation::Lseek, Ino(5), || Err(Errno::ENXIO.into()));
        assert_eq!(by_decoding, Err(Errno::ENXIO));
    }
}
