//! FUSE over io_uring: the second transport, on where the kernel has it (Linux 6.14, `enable_uring`
//! of the module).
//!
//! The kernel keeps one queue for each CPU and puts a request into that of the CPU it was made on.
//! A thread that runs there answers it: no other CPU is woken, and one system call gives an answer
//! and takes the next request. INIT, FORGET and INTERRUPT go through `/dev/fuse` all the same.
//!
//! ```text
//! Prepared::new    before INIT is answered: threads with a ring each, so that all that can be missing is known
//!   │ register     after it: all slots are offered to all queues; until then the kernel holds every request back
//!   ▼
//! Rings            serve until the connection ends, which gives all slots back
//! ```
//!
//! What takes long goes to [`workers`]; its slot comes back to the ring's thread, which alone talks
//! to the ring.

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

use self::answer::TakesLong;
use self::workers::Workers;
use super::negotiate::MAX_WRITE;
use super::operations::Operations;
use tine_sys::cpu::CpuSet;
use tine_sys::fuse_ring::{Completion, FuseRing, RingSlot, Waker};

/// Threads of one mount that serve rings, at most. Where there are more CPUs, each serves several.
const MAX_THREADS: usize = 8;
/// Requests that one queue can have under way: an idle CPU's needs one for the kernel to use the
/// ring at all.
const SLOTS: usize = 8;
const SLOTS_WHEN_OFFLINE: usize = 1;

/// Called when a ring can no longer be served: the connection must end, or its programs would wait
/// for ever.
pub(crate) type Failed = Arc<dyn Fn() + Send + Sync>;

/// Rings that no connection knows of yet. Dropping it ends their threads.
pub(crate) struct Prepared {
    threads: Vec<Starting>,
    workers: Arc<Workers>,
}

struct Starting {
    thread: Serving,
    start: Sender<Start>,
}

/// What a thread needs to begin.
struct Start {
    failed: Failed,
    /// Gets the outcome of registering.
    registered: Sender<io::Result<()>>,
}

/// The rings of one mount.
pub(crate) struct Rings {
    threads: Vec<Serving>,
    workers: Arc<Workers>,
}

struct Serving {
    thread: JoinHandle<()>,
    mailbox: Arc<Mailbox>,
}

/// How a ring's thread is spoken to.
struct Mailbox {
    answered: Mutex<Vec<RingSlot>>,
    stops: AtomicBool,
    waker: Waker,
}

impl Mailbox {
    /// Gives back a slot in which the answer stands.
    fn put(&self, slot: RingSlot) {
        self.answered.lock().push(slot);
        self.waker.wake();
    }

    fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Prepared {
    /// Makes all that does not need the kernel's consent, for the connection of `device`. Fails
    /// where io_uring may not be used, or memory or descriptors lack.
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

    /// Offers the slots to the kernel, which has agreed to rings. Where it refuses one, it goes on
    /// with `/dev/fuse` alone.
    pub(crate) fn register(self, failed: &Failed) -> io::Result<Rings> {
        let (registered, outcomes) = channel();
        let mut threads = Vec::with_capacity(self.threads.len());
        for Starting { thread, start } in self.threads {
            let start_now = Start {
                failed: failed.clone(),
                registered: registered.clone(),
            };
            // A thread that is gone sends no outcome.
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
    /// Waits until the connection has given all slots back, which it does when it ends. Where it
    /// cannot be brought to an end, closing the rings is part of that: `by_force`.
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

/// One CPU's queue, which is named by the CPU.
struct Queue {
    cpu: u16,
    slots: usize,
}

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

/// What a ring's thread owns.
struct RingThread {
    ring: FuseRing,
    mailbox: Arc<Mailbox>,
    queues: Vec<Queue>,
    operations: Arc<Operations>,
    workers: Arc<Workers>,
    /// Slots that were neither refused nor given back for good.
    live: usize,
}

impl RingThread {
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

    fn run(mut self, slots: Vec<RingSlot>, started: &Receiver<Start>) {
        // Whoever prepared it may have found no use for it.
        let Ok(start) = started.recv() else {
            return;
        };
        let mut alarm = Alarm(Some(start.failed));
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
            Ok(()) => alarm.disarm(),
            Err(error) => error!("a ring cannot be served any more: {error}"),
        }
    }

    /// Offers all slots. The first refusal, if there is one.
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

    fn serve(&mut self) -> io::Result<()> {
        while self.live > 0 && !self.mailbox.stops.load(Ordering::Acquire) {
            self.ring.wait()?;
            while let Some(completion) = self.ring.take()? {
                self.handle(completion)?;
            }
        }
        Ok(())
    }

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

    fn serve_request(&mut self, mut slot: RingSlot) -> io::Result<()> {
        match answer::answer_without_blocking(&self.operations, &mut slot) {
            Ok(()) => self.ring.commit(slot),
            Err(TakesLong) => {
                let (operations, mailbox) = (self.operations.clone(), self.mailbox.clone());
                self.workers.run(Box::new(move || {
                    answer::answer(&operations, &mut slot);
                    // Whoever waits for the end of the ring finds nobody with the file system any
                    // more.
                    drop(operations);
                    mailbox.put(slot);
                }));
                Ok(())
            }
        }
    }

    /// A slot is gone: for good, when the connection has ended.
    fn lose(&mut self, error: &io::Error) {
        self.live -= 1;
        match error.raw_os_error() {
            Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED) => {}
            _ => warn!("the kernel gave a slot of a ring back: {error}"),
        }
    }
}

/// Calls for the end of the connection when it is dropped armed, as by a panic.
struct Alarm(Option<Failed>);

impl Alarm {
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(failed) = self.0.take() {
            failed();
        }
    }
}

/// The numbers in `/sys/devices/system/cpu/<list>`.
fn cpus(list: &str) -> io::Result<Vec<u16>> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/{list}"))?;
    parse_cpus(text.trim()).ok_or_else(|| io::Error::other(format!("no list of CPUs: {text:?}")))
}

/// As in `0-3,8`.
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
