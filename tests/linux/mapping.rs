//! Files in memory, and programs that run from them.

use std::fs::File;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MsFlags, ProtFlags, mmap, msync, munmap};

/// A mapping of a file's beginning, readable and writable.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    pub fn shared(file: &File, len: usize) -> Mapping {
        Mapping::with(file, len, MapFlags::MAP_SHARED)
    }

    pub fn private(file: &File, len: usize) -> Mapping {
        Mapping::with(file, len, MapFlags::MAP_PRIVATE)
    }

    fn with(file: &File, len: usize, flags: MapFlags) -> Mapping {
        let size = NonZeroUsize::new(len).expect("a mapping has bytes");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the place; only Drop unmaps it.
        let start = unsafe { mmap(None, size, access, flags, file, 0) }.expect("a file can be mapped");
        Mapping {
            start: start.cast(),
            len,
        }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable and `len` bytes long while `self` lives, and borrowed by it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    pub fn sync(&self) {
        // SAFETY: the range is this mapping's own.
        unsafe { msync(self.start.cast(), self.len, MsFlags::MS_SYNC) }
            .expect("the mapping can be written back");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and nothing borrows it any more.
        let _ = unsafe { munmap(self.start.cast(), self.len) };
    }
}
