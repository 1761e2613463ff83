//! Invalidation of the kernel's caches, from a separate thread.
//!
//! An invalidation takes the kernel's lock of the inode. A program may hold that lock while it
//! waits for one of our handlers. So an invalidation is never sent from a handler's thread, and
//! never while holding a lock that a handler needs. A handler only queues it. Other threads that
//! change the fork, for a tool or the command line, wait until the kernel has processed the
//! invalidation: from then on programs see the change.
//!
//! An invalidation of attributes alone takes no such lock and is sent at once. If a write removes a
//! program's privileges, nobody may run the program with them after the write has returned.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::INodeNo;
use log::{error, warn};

use tine_workspace::Invalidation;

/// Time for which a change waits for its invalidation.
///
/// Past that, something is stuck, and a late invalidation is better than a hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Number of invalidations that are sent and awaited together.
const BATCH: usize = 1024;

thread_local! {
    /// True while the thread runs a handler.
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Runs a handler, whose changes do not wait for their invalidations.
pub(super) fn as_handler<T>(run: impl FnOnce() -> T) -> T {
    IN_HANDLER.set(true);
    let result = run();
    IN_HANDLER.set(false);
    result
}

/// Returns whether the calling thread runs a handler.
pub(super) fn is_in_handler() -> bool {
    IN_HANDLER.get()
}

/// Message to the notifier thread.
enum Message {
    /// Send these, then signal the channel, if there is one.
    Invalidate(Vec<Invalidation>, Option<SyncSender<()>>),
    /// End the thread.
    Stop,
}

/// Notifier thread and its queue.
pub(super) struct NotifierThread {
    kernel: fuser::Notifier,
    queue: Sender<Message>,
    thread: JoinHandle<()>,
}

/// Function that invalidates caches, and waits unless called in a handler.
pub(super) type Invalidate = Arc<dyn Fn(Vec<Invalidation>) + Send + Sync>;

impl NotifierThread {
    /// Starts the thread.
    pub(super) fn start(kernel: fuser::Notifier) -> std::io::Result<NotifierThread> {
        let (queue, messages) = channel();
        let to_kernel = kernel.clone();
        let thread = thread::Builder::new()
            .name("tine-notify".into())
            .spawn(move || serve(&to_kernel, &messages))?;
        Ok(NotifierThread {
            kernel,
            queue,
            thread,
        })
    }

    /// Returns the function that sends invalidations.
    pub(super) fn invalidate(&self) -> Invalidate {
        let queue = self.queue.clone();
        let kernel = self.kernel.clone();
        Arc::new(move |invalidations| {
            let is_of_attributes =
                |invalidation: &Invalidation| matches!(invalidation, Invalidation::Attributes(_));
            let (at_once, mut others): (Vec<_>, Vec<_>) =
                invalidations.into_iter().partition(is_of_attributes);
            for invalidation in &at_once {
                send(&kernel, invalidation);
            }
            while !others.is_empty() {
                let rest = others.split_off(others.len().min(BATCH));
                let batch = std::mem::replace(&mut others, rest);
                if IN_HANDLER.get() {
                    // If the thread has ended, so has the mount, and there is no cache to
                    // invalidate.
                    let _ = queue.send(Message::Invalidate(batch, None));
                    continue;
                }
                let (done, wait) = sync_channel(1);
                if queue.send(Message::Invalidate(batch, Some(done))).is_err() {
                    return;
                }
                if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(PATIENCE)
                {
                    warn!("the kernel has not taken an invalidation for {PATIENCE:?}");
                }
            }
        })
    }

    /// Ends the thread and waits for it.
    ///
    /// The connection must be dead. Otherwise the last invalidation might block forever.
    pub(super) fn stop(self) {
        let _ = self.queue.send(Message::Stop);
        if self.thread.join().is_err() {
            error!("the notifier thread panicked");
        }
    }
}

/// Runs the notifier thread.
fn serve(kernel: &fuser::Notifier, messages: &Receiver<Message>) {
    while let Ok(Message::Invalidate(invalidations, done)) = messages.recv() {
        for invalidation in &invalidations {
            send(kernel, invalidation);
        }
        if let Some(done) = done {
            let _ = done.send(());
        }
    }
}

/// Sends an invalidation to the kernel.
fn send(kernel: &fuser::Notifier, invalidation: &Invalidation) {
    let sent = match invalidation {
        Invalidation::Entry { parent, name } => {
            kernel.inval_entry(INodeNo(parent.0), name.as_os_str())
        }
        // Offset 0 and length 0 invalidate the attributes and all content; a negative offset, the
        // attributes only.
        Invalidation::Node(ino) => kernel.inval_inode(INodeNo(ino.0), 0, 0),
        Invalidation::Attributes(ino) => kernel.inval_inode(INodeNo(ino.0), -1, 0),
    };
    if let Err(error) = sent {
        report(invalidation, &error);
    }
}

/// Logs a failed invalidation, unless the kernel has nothing to invalidate.
fn report(invalidation: &Invalidation, error: &std::io::Error) {
    match error.raw_os_error() {
        // ENOENT: the kernel does not know the node. ENOTDIR: a directory in its cache has become a
        // file. The other ones: the connection has ended.
        Some(
            libc::ENOENT
            | libc::ENOTDIR
            | libc::ENODEV
            | libc::ENOTCONN
            | libc::ECONNABORTED
            | libc::EPERM,
        ) => {}
        _ => error!("the kernel refused {invalidation:?}: {error}"),
    }
}
