//! Tells the kernel to forget what changed without it, from a thread of its own.
//!
//! An invalidation takes the kernel's lock of the inode, which a program may hold while it waits
//! for one of our handlers. So it is never sent from a handler's thread, and never while a lock is
//! held that a handler needs. Whoever changed the fork (a tool, the command line) waits until the
//! kernel has taken the invalidation: from then on programs see the change. A handler only leaves
//! it in the queue.
//!
//! One of attributes alone takes no such lock, and is sent at once: whoever took a program's
//! privileges by writing to it must not be able to run it with them after the write has returned.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::INodeNo;
use log::{error, warn};

use tine_workspace::Invalidation;

/// How long a change waits for the kernel to take its invalidation. Past that something is stuck,
/// and being late is better than hanging with it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many invalidations are waited for together.
const BATCH: usize = 1024;

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Runs a handler: changes made within do not wait for their invalidations.
pub(super) fn as_handler<T>(run: impl FnOnce() -> T) -> T {
    IN_HANDLER.set(true);
    let result = run();
    IN_HANDLER.set(false);
    result
}

/// Whether the calling thread runs a handler.
pub(super) fn is_in_handler() -> bool {
    IN_HANDLER.get()
}

enum Message {
    Invalidate(Vec<Invalidation>, Option<SyncSender<()>>),
    Stop,
}

/// The queue and its thread.
pub(super) struct NotifierThread {
    kernel: fuser::Notifier,
    queue: Sender<Message>,
    thread: JoinHandle<()>,
}

/// Takes invalidations.
pub(super) type Invalidate = Arc<dyn Fn(Vec<Invalidation>) + Send + Sync>;

impl NotifierThread {
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
                    // The thread has ended only with its mount: there is no cache left to
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

    /// Ends the thread. The connection must be dead, or its last invalidation might wait for ever.
    pub(super) fn stop(self) {
        let _ = self.queue.send(Message::Stop);
        if self.thread.join().is_err() {
            error!("the notifier thread panicked");
        }
    }
}

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

fn send(kernel: &fuser::Notifier, invalidation: &Invalidation) {
    let sent = match invalidation {
        Invalidation::Entry { parent, name } => {
            kernel.inval_entry(INodeNo(parent.0), name.as_os_str())
        }
        // From offset 0 for length 0 means attributes and all of the content, from before the
        // beginning nothing of it.
        Invalidation::Node(ino) => kernel.inval_inode(INodeNo(ino.0), 0, 0),
        Invalidation::Attributes(ino) => kernel.inval_inode(INodeNo(ino.0), -1, 0),
    };
    if let Err(error) = sent {
        report(invalidation, &error);
    }
}

fn report(invalidation: &Invalidation, error: &std::io::Error) {
    match error.raw_os_error() {
        // What the kernel does not know it need not forget (ENOENT), and a connection that has
        // ended knows nothing; a directory that became a file in its cache is ENOTDIR.
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
