//! Mutexes with a rank in the lock order.
//!
//! Debug builds check the order whenever a thread takes a lock.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// Rank of a lock: a thread takes locks from first to last.
///
/// See docs/locking.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Stopped state of the daemon.
    Stopped,
    /// The daemon's rounds.
    Rounds,
    /// The daemon's reviews.
    Reviews,
    /// Locks of forks (`ForkGuard`); several in the order of their names.
    Fork,
    /// Leases of branches and checkouts.
    ///
    /// The thread that holds one may take it again.
    Lease,
    /// Removal of branches, by one command at a time.
    Removal,
    /// In-memory state of one fork in the daemon.
    Slot,
    /// Records, worktrees and layers of the store.
    Admin,
    /// Map of the forks. A thread takes no lock while it holds this one.
    Slots,
}

impl Rank {
    /// Returns whether a thread may hold several locks of this rank.
    fn is_shared(self) -> bool {
        matches!(self, Rank::Fork | Rank::Lease)
    }
}

thread_local! {
    /// Ranks of the locks that this thread holds, oldest first.
    static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
}

/// Note that this thread holds a lock of one rank, until dropped.
#[derive(Debug)]
pub struct Held {
    rank: Rank,
    /// Keeps the note in its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Held {
    /// Notes that the thread takes a lock of `rank` now.
    ///
    /// Does not block.
    ///
    /// # Panics
    /// In debug builds, if the lock order forbids it.
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
            // A thread that is ending may have dropped its list already.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|rank| *rank == self.rank) {
                    held.remove(at);
                }
            });
        }
    }
}

/// Mutex that checks its rank when it is locked.
#[derive(Debug)]
pub struct RankedMutex<T> {
    rank: Rank,
    inner: Mutex<T>,
}

/// Guard of a [`RankedMutex`], which unlocks it on drop.
#[derive(Debug)]
pub struct RankedGuard<'m, T> {
    guard: MutexGuard<'m, T>,
    _held: Held,
}

impl<T> RankedMutex<T> {
    /// Makes an unlocked mutex.
    pub const fn new(rank: Rank, value: T) -> RankedMutex<T> {
        RankedMutex {
            rank,
            inner: Mutex::new(value),
        }
    }

    /// Locks the mutex. Blocks until it is free.
    pub fn lock(&self) -> RankedGuard<'_, T> {
        let held = Held::wait_for(self.rank);
        RankedGuard {
            guard: self.inner.lock(),
            _held: held,
        }
    }

    /// Locks the mutex, or returns `None` after `patience`. Blocks.
    pub fn try_lock_for(&self, patience: Duration) -> Option<RankedGuard<'_, T>> {
        let held = Held::wait_for(self.rank);
        let guard = self.inner.try_lock_for(patience)?;
        Some(RankedGuard { guard, _held: held })
    }

    /// Locks the mutex if it is free, without blocking.
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
