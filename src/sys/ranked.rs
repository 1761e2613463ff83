//! Mutexes with a place in the order of locks, which debug builds check whenever one is taken.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// The order in which a thread takes locks: from above to below. See docs/locking.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Whether the daemon is stopped.
    Stopped,
    Rounds,
    Reviews,
    /// The turns of forks; of several in the order of their names.
    Fork,
    /// Leases of branches and checkouts; the thread that has one may take it again.
    Lease,
    /// The removal of branches: one command at a time.
    Removal,
    /// What the daemon knows of one fork in memory.
    Slot,
    /// The store's records, worktrees and layers.
    Admin,
    /// The map of forks: nothing is taken under it.
    Slots,
}

impl Rank {
    /// Whether a thread may hold several of this rank.
    fn is_shared(self) -> bool {
        matches!(self, Rank::Fork | Rank::Lease)
    }
}

thread_local! {
    static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
}

/// Notes that this thread holds a lock of `rank`, until it is dropped.
#[derive(Debug)]
pub struct Held {
    rank: Rank,
    /// It belongs to its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Held {
    /// Checks that the thread may take a lock of `rank` now. Debug builds panic where it may not.
    pub fn wait_for(rank: Rank) -> Held {
        if cfg!(debug_assertions) {
            let above = HELD.with_borrow(|held| held.iter().copied().max());
            let is_in_order =
                above.is_none_or(|above| above < rank || above == rank && rank.is_shared());
            assert!(is_in_order, "a thread that holds {above:?} takes {rank:?}");
            HELD.with_borrow_mut(|held| held.push(rank));
        }
        Held {
            rank,
            _not_send: std::marker::PhantomData,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            // A thread that ends may have lost it already.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|rank| *rank == self.rank) {
                    held.remove(at);
                }
            });
        }
    }
}

/// A mutex that knows its rank.
#[derive(Debug)]
pub struct RankedMutex<T> {
    rank: Rank,
    inner: Mutex<T>,
}

/// The mutex, locked until this is dropped.
#[derive(Debug)]
pub struct RankedGuard<'m, T> {
    guard: MutexGuard<'m, T>,
    _held: Held,
}

impl<T> RankedMutex<T> {
    pub const fn new(rank: Rank, value: T) -> RankedMutex<T> {
        RankedMutex {
            rank,
            inner: Mutex::new(value),
        }
    }

    /// Waits for the mutex.
    pub fn lock(&self) -> RankedGuard<'_, T> {
        let held = Held::wait_for(self.rank);
        RankedGuard {
            guard: self.inner.lock(),
            _held: held,
        }
    }

    /// As [`RankedMutex::lock`], for no longer than `patience`.
    pub fn try_lock_for(&self, patience: Duration) -> Option<RankedGuard<'_, T>> {
        let held = Held::wait_for(self.rank);
        let guard = self.inner.try_lock_for(patience)?;
        Some(RankedGuard { guard, _held: held })
    }

    /// The mutex, unless somebody has it.
    pub fn try_lock(&self) -> Option<RankedGuard<'_, T>> {
        let held = Held::wait_for(self.rank);
        let guard = self.inner.try_lock()?;
        Some(RankedGuard { guard, _held: held })
    }
}

impl<T> Deref for RankedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for RankedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn locks_are_taken_from_above_to_below() {
        let (reviews, turn) = (
            RankedMutex::new(Rank::Reviews, ()),
            RankedMutex::new(Rank::Fork, ()),
        );
        let other = RankedMutex::new(Rank::Fork, ());
        drop((reviews.lock(), turn.lock(), other.lock()));
        let held = turn.lock();
        assert!(catch_unwind(|| drop(RankedMutex::new(Rank::Reviews, ()).lock())).is_err());
        drop(held);
        drop(reviews.lock());
    }
}
