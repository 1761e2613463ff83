//! On which CPUs a thread may run, and when.

use std::io;
use std::mem::{MaybeUninit, size_of};

/// A set of CPUs.
#[derive(Clone, Copy)]
pub struct CpuSet(libc::cpu_set_t);

impl CpuSet {
    /// Those of `cpus` that the kernel's fixed-size set has room for.
    pub fn of(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        // SAFETY: all zeroes are a valid set, the empty one.
        let mut set: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
        for cpu in cpus
            .into_iter()
            .filter(|cpu| *cpu < libc::CPU_SETSIZE as usize)
        {
            // SAFETY: the number is within the set, which lives on the stack.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        CpuSet(set)
    }

    /// Where the calling thread may run.
    pub fn current() -> io::Result<CpuSet> {
        let mut set = CpuSet::of([]);
        // SAFETY: 0 is the calling thread; the kernel writes at most the size of the set.
        match unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set.0) } {
            0 => Ok(set),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has the calling thread run there, and the threads and processes that it starts.
    pub fn keep_thread(&self) -> io::Result<()> {
        // SAFETY: 0 is the calling thread; the kernel reads the set.
        match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) }
        {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// `linux/ioprio.h`, which `libc` lacks: the class of those that read and write only while nobody
/// else does.
const IOPRIO_IDLE: libc::c_int = 3 << 13;
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// Lets all others go before the calling thread, at CPUs and disks.
pub fn let_others_go_first() -> io::Result<()> {
    // SAFETY: 0 is the calling thread; no memory is passed.
    let nice = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    // SAFETY: as above.
    let idle = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE) };
    match (nice, idle) {
        (0, 0) => Ok(()),
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
