//! Heap statistics and trimming.

/// Returns the number of unused bytes in this process's heap.
///
/// Memory that was given back to the kernel counts for as long as the heap keeps its addresses. 0
/// if the C library does not report it.
pub fn unused_heap_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallinfo2(3) has no arguments and returns plain numbers.
    let bytes = unsafe { libc::mallinfo2() }.fordblks as u64;
    #[cfg(not(target_env = "gnu"))]
    let bytes = 0;
    bytes
}

/// Returns unused heap memory to the kernel.
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
        // Other tests allocate from the same heap meanwhile; none of them takes as much again and
        // again.
        let is_counted = (0..100).any(|_| {
            let blocks: Vec<Box<[u8; 1024]>> = (0..8192).map(|_| Box::new([1; 1024])).collect();
            // What is allocated last keeps the heap from ending before it.
            let last = Box::new([1u8; 1024]);
            let in_use = unused_heap_bytes();
            drop(blocks);
            let freed = unused_heap_bytes();
            trim_heap();
            drop(last);
            freed > in_use
        });
        assert!(is_counted || cfg!(not(target_env = "gnu")));
    }
}
