//! On which CPUs a thread may run, and when.

use std::io;

/// A set of CPUs.
#[derive(Clone, Copy)]
pub struct CpuSet(rustix::thread::CpuSet);

impl CpuSet {
    /// Those of `cpus` that the kernel's fixed-size set has room for.
    pub fn of(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        let mut set = rustix::thread::CpuSet::new();
        cpus.into_iter()
            .filter(|cpu| *cpu < rustix::thread::CpuSet::MAX_CPU)
            .for_each(|cpu| set.set(cpu));
        CpuSet(set)
    }

    /// Where the calling thread may run.
    pub fn current() -> io::Result<CpuSet> {
        Ok(CpuSet(rustix::thread::sched_getaffinity(None)?))
    }

    /// Has the calling thread run there, and the threads and processes that it starts.
    pub fn keep_thread(&self) -> io::Result<()> {
        Ok(rustix::thread::sched_setaffinity(None, &self.0)?)
    }
}

/// `linux/ioprio.h`, which `libc` lacks: the class of those that read and write only while nobody
/// else does.
const IOPRIO_IDLE: libc::c_int = 3 << 13;
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// Lets all others go before the calling thread, at CPUs and disks.
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
