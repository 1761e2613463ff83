//! Reads of mapped files on a failing disk.
//!
//! The git library maps packs and indexes into memory. If the disk cannot read a page of them, the
//! kernel has no way to return an error and sends SIGBUS, which would end the process. While
//! [`guarded`] runs, a zero page replaces the unreadable one, and the result is dropped.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Page size in bytes; 0 until [`survive_unreadable_pages`] is called.
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(0);

// The signal handler of the thread reads and writes both, so neither may need initialisation or a
// destructor.
thread_local! {
    /// True while [`guarded`] runs in this thread.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
    /// True if the handler replaced a page since [`guarded`] began.
    static IS_STRUCK: Cell<bool> = const { Cell::new(false) };
}

/// Error of reading a mapped file that the disk cannot read.
///
/// From then on the mapping holds zeroes in place of the page, for every thread. The caller must
/// drop all mappings that it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadableMapping;

impl From<UnreadableMapping> for io::Error {
    fn from(_: UnreadableMapping) -> io::Error {
        io::Error::from_raw_os_error(libc::EIO)
    }
}

/// Installs the SIGBUS handler that makes [`guarded`] work.
///
/// # Errors
/// The error of `sigaction(2)`.
pub fn survive_unreadable_pages() -> io::Result<()> {
    PAGE_SIZE.store(rustix::param::page_size(), Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    // SAFETY: all zeroes are a valid sigaction, without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that SA_SIGINFO requires and calls only
    // async-signal-safe functions.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `read`, which may read mapped files.
///
/// # Errors
/// [`UnreadableMapping`] if a page could not be read. The result of `read` is dropped then.
pub fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, UnreadableMapping> {
    let _guard = Guard::new();
    let result = read();
    if IS_STRUCK.get() {
        Err(UnreadableMapping)
    } else {
        Ok(result)
    }
}

/// Restores the thread's state on drop, also during a panic.
struct Guard {
    was_guarded: bool,
    was_struck: bool,
}

impl Guard {
    fn new() -> Guard {
        Guard {
            was_guarded: IS_GUARDED.replace(true),
            was_struck: IS_STRUCK.replace(false),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        IS_GUARDED.set(self.was_guarded);
        IS_STRUCK.set(self.was_struck);
    }
}

/// Handles SIGBUS: replaces the page, or restores the default action.
extern "C" fn on_bus_error(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo, and that of SIGBUS has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    if code == libc::BUS_ADRERR && IS_GUARDED.get() && replace_page(address as usize) {
        IS_STRUCK.set(true);
        return;
    }
    // The access was not guarded: it is repeated on return and ends the process, as it would
    // without this handler. SAFETY: SIG_DFL is a valid disposition; signal(2) touches no memory of
    // this process.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Replaces the page at `address` by a zero page. Async-signal-safe.
fn replace_page(address: usize) -> bool {
    let page_size = PAGE_SIZE.load(Ordering::Relaxed);
    let start = address & !page_size.wrapping_sub(1);
    // SAFETY: the page belongs to a file mapping and could not be read, so no thread has read data
    // from it that the replacement would change. It stays readable. mmap(2) is a plain system call;
    // rustix makes it without a lock or an allocation, and leaves errno alone.
    let replaced = unsafe {
        rustix::mm::mmap_anonymous(
            start as *mut libc::c_void,
            page_size,
            ProtFlags::READ,
            MapFlags::PRIVATE | MapFlags::FIXED,
        )
    };
    replaced.is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// What lies past a file's end is as unreadable as a page that the disk cannot give.
    #[test]
    fn an_unreadable_page_is_an_error() {
        survive_unreadable_pages().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(4).unwrap();
        let len = 2 * PAGE_SIZE.load(Ordering::Relaxed);
        // SAFETY: a new mapping of an open file, at a place that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: `at` is less than the mapping's length, and what cannot be read is replaced.
        let read = |at: usize| unsafe { start.cast::<u8>().add(at).read_volatile() };
        assert_eq!(guarded(|| read(0)), Ok(0));
        assert_eq!(
            guarded(|| (guarded(|| read(len - 1)), read(0))),
            Ok((Err(UnreadableMapping), 0))
        );
        assert_eq!(guarded(|| read(len - 1)), Ok(0), "it was replaced");
        // SAFETY: the mapping is not used any more.
        unsafe { libc::munmap(start, len) };
    }
}
