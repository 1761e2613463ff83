//! FUSE over io_uring: the second transport.
//!
//! It needs Linux 6.14 or newer, and the parameter `enable_uring` of the FUSE module.
//!
//! The kernel has one queue for each CPU. It puts a request into the queue of the CPU that the
//! request was made on. A thread on the same CPU answers it: no other CPU is woken, and one system
//! call sends an answer and takes the next request. INIT, FORGET and INTERRUPT still go through
//! `/dev/fuse`.
//!
//! ```text
//! Prepared::new    before the reply to INIT: threads with a ring each, so that errors are known
//!   │ register     after it: offers all slots to all queues; the kernel holds back all requests
//!   ▼              until then
//! Rings            serve until the connection ends, which returns all slots
//! ```
//!
//! Requests that take long go to [`workers`]. The slot then returns to the thread of its ring, the
//! only one that uses the ring.

mod abi;
mod answer;
mod workers;

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use log::{debug, error, warn};
use parking_lot::Mutex;

use self::answer::WouldBlock;
use self::workers::Workers;
use super::negotiate::MAX_WRITE;
use super::operations::Operations;
use tine_sys::cpu::CpuSet;
use tine_sys::fuse_ring::{Completion, FuseRing, RingSlot, Waker};

/// Largest number of ring threads of a mount.
///
/// If there are more CPUs, each thread serves several.
const MAX_THREADS: usize = 8;
/// Number of requests that one queue can have pending.
const SLOTS: usize = 8;
/// Number of slots for a CPU that is offline.
///
/// The kernel uses rings only if each queue has a slot.
const SLOTS_WHEN_OFFLINE: usize = 1;

/// Callback for a ring that can no longer be served.
///
/// It must abort the connection. Otherwise programs would hang.
pub(crate) type Failed = Arc<dyn Fn() + Send + Sync>;

/// Rings that are not registered yet. Dropping them ends their threads.
pub(crate) struct Prepared {
    /// Threads that wait for their start.
    threads: Vec<Starting>,
    /// Threads for requests that take long.
    workers: Arc<Workers>,
}

/// Ring thread that waits for its start.
struct Starting {
    /// The thread.
    thread: Serving,
    /// Sends the start; if it is dropped, the thread ends.
    start: Sender<Start>,
}

/// Data that a ring thread needs to start.
struct Start {
    /// Callback for a ring that can no longer be served.
    failed: Failed,
    /// Receives the result of the registration.
    registered: Sender<io::Result<()>>,
}

/// Registered rings of one mount.
pub(crate) struct Rings {
    /// Ring threads.
    threads: Vec<Serving>,
    /// Threads for requests that take long.
    workers: Arc<Workers>,
}

/// Handle of a ring thread.
struct Serving {
    /// The thread, to join.
    thread: JoinHandle<()>,
    /// Messages to the thread.
    mailbox: Arc<Mailbox>,
}

/// Messages to a ring thread.
struct Mailbox {
    /// Slots with answers of workers.
    answered: Mutex<Vec<RingSlot>>,
    /// True to end the thread.
    stops: AtomicBool,
    /// Wakes the thread.
    waker: Waker,
}

impl Mailbox {
    /// Returns a slot with an answer to its ring.
    fn return_slot(&self, slot: RingSlot) {
        self.answered.lock().push(slot);
        self.waker.wake();
    }

    /// Asks the thread to end.
    fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Prepared {
    /// Prepares everything that does not need the kernel's consent.
    ///
    /// `device` is the connection.
    ///
    /// # Errors
    /// An error if io_uring is not permitted, or memory or descriptors run out.
    pub(crate) fn new(operations: &Arc<Operations>, device: OwnedFd) -> io::Result<Prepared> {
        let device = Arc::new(device);
        let possible = cpus("possible")?;
        let online = cpus("online")?;
        let thread_count = online.len().clamp(1, MAX_THREADS);
        let workers = Workers::new()?;
        let mut threads = Vec::with_capacity(thread_count);
        for number in 0..thread_count {
            let queues = possible.iter().skip(number).step_by(thread_count);
            let queues = queues.map(|&cpu| Queue {
                cpu,
                slots: if online.contains(&cpu) {
                    SLOTS
                } else {
                    SLOTS_WHEN_OFFLINE
                },
            });
            threads.push(start_thread(
                queues.collect(),
                device.clone(),
                operations.clone(),
                workers.clone(),
            )?);
        }
        Ok(Prepared { threads, workers })
    }

    /// Offers the slots to the kernel, after it has agreed to rings.
    ///
    /// # Errors
    /// The kernel's refusal of a slot. The kernel then uses `/dev/fuse` only.
    pub(crate) fn register(self, failed: &Failed) -> io::Result<Rings> {
        let (registered, outcomes) = channel();
        let mut threads = Vec::with_capacity(self.threads.len());
        for Starting { thread, start } in self.threads {
            let start_now = Start {
                failed: failed.clone(),
                registered: registered.clone(),
            };
            // A thread that has ended sends no result.
            let _ = start.send(start_now);
            threads.push(thread);
        }
        drop(registered);
        let outcomes: Vec<io::Result<()>> = outcomes.iter().collect();
        let all_told = outcomes.len() == threads.len();
        let outcome = match outcomes.into_iter().find(Result::is_err) {
            Some(refused) => refused,
            None if all_told => Ok(()),
            None => Err(io::Error::other("a thread has ended")),
        };
        let workers = self.workers;
        let rings = Rings { threads, workers };
        match outcome {
            Ok(()) => Ok(rings),
            Err(error) => {
                rings.end(true);
                Err(error)
            }
        }
    }
}

impl Rings {
    /// Waits until the connection has returned all slots.
    ///
    /// It does so when it ends.
    ///
    /// If the connection cannot be aborted, closing the rings (`by_force`) helps to end it.
    pub(crate) fn end(self, by_force: bool) {
        for serving in self.threads {
            if by_force {
                serving.mailbox.stop();
            }
            if serving.thread.join().is_err() {
                error!("a ring's thread panicked");
            }
        }
        self.workers.close();
    }
}

/// Queue of one CPU.
struct Queue {
    /// Number of the CPU, which is also that of the queue.
    cpu: u16,
    /// Number of slots to register.
    slots: usize,
}

/// Starts a thread and waits until it has made its ring.
fn start_thread(
    queues: Vec<Queue>,
    device: Arc<OwnedFd>,
    operations: Arc<Operations>,
    workers: Arc<Workers>,
) -> io::Result<Starting> {
    let (ready, made) = channel();
    let (start, started) = channel();
    let thread = thread::Builder::new()
        .name("tine-ring".into())
        .spawn(
            move || match RingThread::new(queues, &device, operations, workers) {
                Ok((thread, slots)) => {
                    let _ = ready.send(Ok(thread.mailbox.clone()));
                    thread.run(slots, &started);
                }
                Err(error) => drop(ready.send(Err(error))),
            },
        )?;
    let mailbox = made
        .recv()
        .map_err(|_| io::Error::other("a ring's thread panicked"))??;
    Ok(Starting {
        thread: Serving { thread, mailbox },
        start,
    })
}

/// State of a ring thread.
struct RingThread {
    /// The ring, used by this thread only.
    ring: FuseRing,
    /// Messages to this thread.
    mailbox: Arc<Mailbox>,
    /// Queues that this thread serves.
    queues: Vec<Queue>,
    /// Implementation of the requests.
    operations: Arc<Operations>,
    /// Threads for requests that take long.
    workers: Arc<Workers>,
    /// Number of slots that were neither refused nor returned for good.
    live: usize,
}

impl RingThread {
    /// Makes the ring, on the thread that will serve it.
    ///
    /// Moves the calling thread to the CPUs of its queues.
    fn new(
        queues: Vec<Queue>,
        device: &OwnedFd,
        operations: Arc<Operations>,
        workers: Arc<Workers>,
    ) -> io::Result<(RingThread, Vec<RingSlot>)> {
        if let Err(error) = CpuSet::of(queues.iter().map(|queue| queue.cpu.into())).keep_thread() {
            debug!("a ring's thread runs anywhere: {error}");
        }
        let count = queues.iter().map(|queue| queue.slots).sum();
        let (ring, slots) = FuseRing::new(device.as_fd(), count, MAX_WRITE as usize)?;
        let mailbox = Arc::new(Mailbox {
            answered: Mutex::new(Vec::new()),
            stops: AtomicBool::new(false),
            waker: ring.waker(),
        });
        let thread = RingThread {
            ring,
            mailbox,
            queues,
            operations,
            workers,
            live: 0,
        };
        Ok((thread, slots))
    }

    /// Waits for the start, registers the slots, and serves the ring.
    fn run(mut self, slots: Vec<RingSlot>, started: &Receiver<Start>) {
        // The start is dropped if the rings are not used.
        let Ok(start) = started.recv() else {
            return;
        };
        let mut guard = FailureGuard(Some(start.failed));
        let registered = self.register(slots);
        let served = match registered {
            Ok(outcome) => {
                let _ = start.registered.send(outcome);
                drop(start.registered);
                self.serve()
            }
            Err(error) => {
                let _ = start.registered.send(Err(error));
                Ok(())
            }
        };
        match served {
            Ok(()) => guard.disarm(),
            Err(error) => error!("a ring cannot be served any more: {error}"),
        }
    }

    /// Offers all slots to the kernel.
    ///
    /// The inner result is the last refusal, if any.
    fn register(&mut self, slots: Vec<RingSlot>) -> io::Result<io::Result<()>> {
        let mut slots = slots.into_iter();
        for queue in &self.queues {
            for slot in slots.by_ref().take(queue.slots) {
                self.ring.register(queue.cpu, slot)?;
                self.live += 1;
            }
        }
        self.ring.submit()?;
        let mut outcome = Ok(());
        while let Some(completion) = self.ring.take()? {
            match completion {
                Completion::Returned(_slot, error) => {
                    self.live -= 1;
                    outcome = Err(error);
                }
                other => self.handle(other)?,
            }
        }
        Ok(outcome)
    }

    /// Serves the ring until it has no more slots or must stop.
    fn serve(&mut self) -> io::Result<()> {
        while self.live > 0 && !self.mailbox.stops.load(Ordering::Acquire) {
            self.ring.wait()?;
            while let Some(completion) = self.ring.take()? {
                self.handle(completion)?;
            }
        }
        Ok(())
    }

    /// Handles one event of the ring.
    fn handle(&mut self, completion: Completion) -> io::Result<()> {
        match completion {
            Completion::Request(slot) => self.serve_request(slot)?,
            Completion::Returned(_slot, error) => self.lose(&error),
            Completion::Woken => {
                let answered = std::mem::take(&mut *self.mailbox.answered.lock());
                for slot in answered {
                    self.ring.commit(slot)?;
                }
            }
        }
        Ok(())
    }

    /// Answers a request, or leaves a slow one to the workers.
    fn serve_request(&mut self, mut slot: RingSlot) -> io::Result<()> {
        match answer::answer_without_blocking(&self.operations, &mut slot) {
            Ok(()) => self.ring.commit(slot),
            Err(WouldBlock) => {
                let (operations, mailbox) = (self.operations.clone(), self.mailbox.clone());
                self.workers.run(Box::new(move || {
                    answer::answer(&operations, &mut slot);
                    // By the time the ring's owner sees the end, no worker may hold the file
                    // system.
                    drop(operations);
                    mailbox.return_slot(slot);
                }));
                Ok(())
            }
        }
    }

    /// Counts a slot that the kernel returned for good.
    fn lose(&mut self, error: &io::Error) {
        self.live -= 1;
        match error.raw_os_error() {
            Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED) => {}
            _ => warn!("the kernel gave a slot of a ring back: {error}"),
        }
    }
}

/// Aborts the connection when dropped while armed, as by a panic.
struct FailureGuard(Option<Failed>);

impl FailureGuard {
    /// Makes dropping a no-op.
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for FailureGuard {
    fn drop(&mut self) {
        if let Some(failed) = self.0.take() {
            failed();
        }
    }
}

/// Reads the CPU numbers in `/sys/devices/system/cpu/<list>`.
fn cpus(list: &str) -> io::Result<Vec<u16>> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/{list}"))?;
    parse_cpus(text.trim()).ok_or_else(|| io::Error::other(format!("no list of CPUs: {text:?}")))
}

/// Parses a list of CPU numbers such as `0-3,8`.
fn parse_cpus(list: &str) -> Option<Vec<u16>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        assert_eq!(parse_cpus("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_cpus(""), None);
        assert_eq!(parse_cpus("0-"), None);
        assert!(cpus("possible").unwrap().contains(&0));
    }
}
