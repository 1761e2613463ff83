//! Generations of directories: which of the kernel's inodes of a number is meant.
//!
//! A directory that was removed is dead to the kernel for as long as a program stands in it:
//! nothing can be made there. One that comes back under its number (`tine undo`, `tine restore`)
//! would be that dead one. With another generation the kernel takes a new inode for it, and leaves
//! the old one to those who have it.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use tine_attr::{Ino, InoMap};

/// How often directories were removed that the kernel may still have.
#[derive(Default)]
pub(super) struct Generations {
    /// Whether there are any: each entry that is answered asks.
    any: AtomicBool,
    removed: Mutex<InoMap<u64>>,
}

impl Generations {
    pub(super) fn of(&self, ino: Ino) -> u64 {
        match self.any.load(Ordering::Acquire) {
            true => self.removed.lock().get(&ino).copied().unwrap_or(0),
            false => 0,
        }
    }

    /// A directory is removed, and the kernel not told of it yet.
    pub(super) fn note_removed(&self, ino: Ino) {
        let mut removed = self.removed.lock();
        let count = removed.entry(ino).or_insert(0);
        *count = count.saturating_add(1);
        self.any.store(true, Ordering::Release);
    }

    /// The kernel may have forgotten the node: `is_remembered` says.
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
