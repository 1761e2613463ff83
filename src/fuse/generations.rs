//! Generations of directories, which distinguish the kernel's inodes of one number.
//!
//! A removed directory is dead to the kernel for as long as a program has it as its working
//! directory: nothing can be created in it. If a directory comes back under the same inode number
//! (`tine undo`, `tine restore`), the kernel would take it for the dead one. With another
//! generation, the kernel makes a new inode for it and leaves the old one to its users.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use tine_attr::{Ino, InoMap};

/// Numbers of removals, for directories that the kernel may still remember.
#[derive(Default)]
pub(super) struct Generations {
    /// True if `removed` is not empty.
    ///
    /// Each reply with an entry checks this first, without the lock.
    any: AtomicBool,
    /// Number of removals by inode number.
    removed: Mutex<InoMap<u64>>,
}

impl Generations {
    /// Returns the generation of an inode number.
    pub(super) fn of(&self, ino: Ino) -> u64 {
        if self.any.load(Ordering::Acquire) {
            self.removed.lock().get(&ino).copied().unwrap_or(0)
        } else {
            0
        }
    }

    /// Notes that a directory is removed, before the kernel learns of it.
    pub(super) fn note_removed(&self, ino: Ino) {
        let mut removed = self.removed.lock();
        let count = removed.entry(ino).or_insert(0);
        *count = count.saturating_add(1);
        self.any.store(true, Ordering::Release);
    }

    /// Drops the count of a node that the kernel has forgotten.
    ///
    /// `is_remembered` returns whether the kernel still remembers it.
    pub(super) fn note_forgotten(&self, ino: Ino, is_remembered: impl FnOnce() -> bool) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut removed = self.removed.lock();
        if removed.contains_key(&ino) && !is_remembered() {
            removed.remove(&ino);
            self.any.store(!removed.is_empty(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_lasts_until_the_kernel_forgets_the_node() {
        let generations = Generations::default();
        let ino = Ino(5);
        assert_eq!(generations.of(ino), 0);
        generations.note_removed(ino);
        generations.note_removed(ino);
        assert_eq!((generations.of(ino), generations.of(Ino(6))), (2, 0));
        generations.note_forgotten(ino, || true);
        assert_eq!(generations.of(ino), 2);
        generations.note_forgotten(ino, || false);
        assert_eq!(generations.of(ino), 0);
    }
}
