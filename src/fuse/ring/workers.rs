//! Threads for requests that take long.
//!
//! A thread is started if there is a job and no idle thread. It ends after some time without jobs.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use log::debug;
use parking_lot::{Condvar, Mutex};

use tine_sys::cpu::CpuSet;

/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(5);

/// Request that takes long.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Pool of threads.
pub(super) struct Workers {
    /// State, protected by the lock.
    state: Mutex<State>,
    /// Signalled for a new job and for the end.
    changed: Condvar,
    /// CPUs that the threads may run on, whichever thread starts them.
    cpus: CpuSet,
}

/// State of the pool.
struct State {
    /// Jobs that no thread has taken yet.
    jobs: VecDeque<Job>,
    /// Number of threads that wait for a job.
    idle: usize,
    /// True once no more jobs will come.
    is_closed: bool,
}

impl Workers {
    /// Makes a pool whose threads may run on the calling thread's CPUs.
    pub(super) fn new() -> io::Result<Arc<Workers>> {
        Ok(Arc::new(Workers {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                idle: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
            cpus: CpuSet::current()?,
        }))
    }

    /// Runs a job on a thread of the pool.
    ///
    /// Runs it on the calling thread if no thread can be started.
    /// There are never more threads than there were jobs at the same time.
    pub(super) fn run(self: &Arc<Workers>, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle {
            self.changed.notify_one();
            return;
        }
        drop(state);
        let workers = self.clone();
        let started = thread::Builder::new()
            .name("tine-worker".into())
            .spawn(move || workers.serve());
        if let Err(error) = started {
            debug!("no thread for what takes long: {error}");
            if let Some(job) = self.state.lock().jobs.pop_front() {
                job();
            }
        }
    }

    /// Ends all threads, after they have done their jobs.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Runs jobs until the pool is closed or there are none.
    fn serve(&self) {
        if let Err(error) = self.cpus.keep_thread() {
            debug!("a thread runs where the one runs that started it: {error}");
        }
        let mut state = self.state.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
            }
            if state.is_closed {
                return;
            }
            state.idle += 1;
            let waited = self.changed.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn no_job_waits_for_another() {
        let workers = Workers::new().unwrap();
        let (first, from_first) = channel();
        let (tell, told) = channel::<()>();
        let waiting = tell.clone();
        workers.run(Box::new(move || {
            // Ends only when the second job has.
            let _ = told.recv();
            first.send(1).unwrap();
        }));
        workers.run(Box::new(move || waiting.send(()).unwrap_or_default()));
        assert_eq!(from_first.recv(), Ok(1));
        drop(tell);
        workers.close();
        // Nobody is left who holds it.
        while Arc::strong_count(&workers) > 1 {
            thread::yield_now();
        }
    }
}
