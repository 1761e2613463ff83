//! On which CPUs a thread may run.

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
        for cpu in cpus.into_iter().filter(|cpu| *cpu < libc::CPU_SETSIZE as usize) {
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
        match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
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
            assert_eq!(usize::try_from(unsafe { libc::sched_getcpu() }).unwrap(), cpu);
            assert!(CpuSet::of([]).keep_thread().is_err());
            before.keep_thread().unwrap();
        })
        .join()
        .unwrap();
    }
}
