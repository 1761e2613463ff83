//! The heap of this process.

/// How much this process holds that nobody uses, in bytes; what was given back to the kernel counts, too, as long as
/// its addresses are kept. 0 where the C library does not say.
pub fn unused_heap_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallinfo2(3) has no arguments and returns plain numbers.
    let bytes = unsafe { libc::mallinfo2() }.fordblks as u64;
    #[cfg(not(target_env = "gnu"))]
    let bytes = 0;
    bytes
}

/// Gives back to the kernel what nobody uses.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time; it takes a number.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_counts_as_unused() {
        let before = unused_heap_bytes();
        let blocks: Vec<Box<[u8; 1024]>> = (0..8192).map(|_| Box::new([1; 1024])).collect();
        // What is allocated last keeps the heap from ending before it.
        let last = Box::new([1u8; 1024]);
        drop(blocks);
        if cfg!(target_env = "gnu") {
            assert!(unused_heap_bytes() > before);
        }
        trim_heap();
        drop(last);
    }
}
