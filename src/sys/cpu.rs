//! CPU affinity and scheduling priority of threads.

use std::io;

/// Set of CPUs that a thread may run on.
#[derive(Clone, Copy)]
pub struct CpuSet(rustix::thread::CpuSet);

impl CpuSet {
    /// Makes a set of `cpus`, without those over the kernel's maximum.
    pub fn of(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        let mut set = rustix::thread::CpuSet::new();
        cpus.into_iter()
            .filter(|cpu| *cpu < rustix::thread::CpuSet::MAX_CPU)
            .for_each(|cpu| set.set(cpu));
        CpuSet(set)
    }

    /// Returns the CPUs that the calling thread may run on.
    ///
    /// # Errors
    /// The error of `sched_getaffinity(2)`.
    pub fn current() -> io::Result<CpuSet> {
        Ok(CpuSet(rustix::thread::sched_getaffinity(None)?))
    }

    /// Restricts the calling thread to this set.
    ///
    /// Threads and processes that it starts later inherit the restriction.
    ///
    /// # Errors
    /// `EINVAL` if the set has no CPU that the thread may run on.
    pub fn keep_thread(&self) -> io::Result<()> {
        Ok(rustix::thread::sched_setaffinity(None, &self.0)?)
    }
}

/// I/O priority of a thread that waits while any other does I/O.
///
/// `linux/ioprio.h`, which `libc` lacks.
const IOPRIO_IDLE: libc::c_int = 3 << 13;
/// Selects one thread by its ID.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// Gives the calling thread the lowest CPU and I/O priority.
///
/// # Errors
/// The error of `ioprio_set(2)`, or else of `setpriority(2)`. Both calls are made in any case.
pub fn let_others_go_first() -> io::Result<()> {
    let nice = rustix::process::setpriority_process(None, 19);
    // SAFETY: 0 is the calling thread; no memory is passed.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE) } {
        0 => Ok(nice?),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_where_it_may_be_and_nowhere_else() {
        let before = CpuSet::current().unwrap();
        // SAFETY: sched_getcpu(3) has no arguments.
        let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
        std::thread::spawn(move || {
            CpuSet::of([cpu, usize::MAX]).keep_thread().unwrap();
            // SAFETY: as above.
            assert_eq!(
                usize::try_from(unsafe { libc::sched_getcpu() }).unwrap(),
                cpu
            );
            assert!(CpuSet::of([]).keep_thread().is_err());
            before.keep_thread().unwrap();
        })
        .join()
        .unwrap();
    }
}
