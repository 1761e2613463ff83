//! Leases of branches and checkouts: one holder at a time over all forks and commands.
//!
//! A command that checks which checkout has a branch, and then acts on the result, takes the
//! branch's lease before the check. Leases are held in memory: the store is open in one process,
//! and they end with it. They bind only tine's commands. git's refs move by compare-and-swap, and
//! its index has its own lock.
//!
//! All keys of a request are taken together, in the order of the requests, so that no two requests
//! wait for each other. A thread that holds a lease may take it again. It must not wait for a lease
//! that was not in its first request.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Store;
use crate::StoreError;
use tine_sys::ranked::{Held, Rank, RankedGuard};
use tine_sys::{asker, pause};

/// Longest wait for one blocking request.
///
/// If the blocking request changes, the wait starts over.
const PATIENCE: Duration = Duration::from_secs(10);

/// Resource with at most one holder at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseKey {
    /// Branch, by short name.
    Branch(String),
    /// Checkout that is not a fork's, by its directory.
    Checkout(PathBuf),
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaseKey::Branch(branch) => write!(f, "the branch {branch:?}"),
            LeaseKey::Checkout(dir) => write!(f, "the checkout at {}", dir.display()),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<LeaseKey, Holder>,
    /// By number, in order of arrival.
    waiting: BTreeMap<u64, Request>,
    next_number: u64,
}

#[derive(Debug)]
struct Holder {
    number: u64,
    /// Command that holds it.
    by: String,
    thread: ThreadId,
    /// Number of times that its thread has taken it.
    count: usize,
}

#[derive(Debug)]
struct Request {
    keys: Vec<LeaseKey>,
    by: String,
}

/// Leases that are held until this value is dropped.
#[derive(Debug)]
#[must_use = "the leases are given back when this is dropped"]
pub struct Lease<'s> {
    leases: &'s Leases,
    keys: Vec<LeaseKey>,
    _held: Held,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut state = self.leases.state.lock();
        for key in &self.keys {
            if let Some(held) = state.held.get_mut(key) {
                held.count = held.count.saturating_sub(1);
                if held.count == 0 {
                    state.held.remove(key);
                }
            }
        }
        self.leases.freed.notify_all();
    }
}

impl Store {
    /// Takes the leases of `keys` for the command `by`.
    ///
    /// Blocks while other commands hold them, and fails if one of those does not end in time.
    ///
    /// # Errors
    /// [`StoreError::LeaseHeld`] with the holder, or
    /// [`GitError::IndexLocked`](tine_git::GitError::IndexLocked) if git is switching a checkout to
    /// one of the branches.
    pub fn lease(
        &self,
        keys: impl IntoIterator<Item = LeaseKey>,
        by: &str,
    ) -> Result<Lease<'_>, StoreError> {
        pause::at("before-lease");
        // A hook must not wait for the command that runs it.
        let patience = if asker::is_own_program() {
            asker::PATIENCE
        } else {
            PATIENCE
        };
        let keys: Vec<LeaseKey> = keys.into_iter().map(|key| self.behind(key)).collect();
        let lease = self.leases.acquire(keys.clone(), by, patience)?;
        for key in &keys {
            if let LeaseKey::Branch(branch) = key {
                self.repository.await_switch_to(branch)?;
            }
        }
        Ok(lease)
    }

    /// Resolves an alias to the key of its branch.
    fn behind(&self, key: LeaseKey) -> LeaseKey {
        match key {
            LeaseKey::Branch(branch) => LeaseKey::Branch(self.repository.branch_behind(&branch)),
            key => key,
        }
    }

    /// Blocks until no other command removes branches, and returns a guard.
    ///
    /// A command that removes a branch must check under this guard which other refs reach its
    /// commits, and must delete the branch before it drops the guard. Otherwise two branches with
    /// the same commits could both be removed, each because the other exists.
    pub fn removing_branches(&self) -> RankedGuard<'_, ()> {
        pause::at("before-removal");
        self.removal.lock()
    }

    /// Takes one lease without waiting.
    pub(super) fn lease_now(&self, key: LeaseKey, by: &str) -> Result<Lease<'_>, StoreError> {
        self.leases.acquire([self.behind(key)], by, Duration::ZERO)
    }
}

impl Leases {
    fn acquire(
        &self,
        keys: impl IntoIterator<Item = LeaseKey>,
        by: &str,
        patience: Duration,
    ) -> Result<Lease<'_>, StoreError> {
        let mut keys: Vec<LeaseKey> = keys.into_iter().collect();
        keys.sort();
        keys.dedup();
        let thread = thread::current().id();
        let rank = Held::wait_for(Rank::Lease);
        let mut state = self.state.lock();
        let is_mine = |state: &State, key: &LeaseKey| {
            state
                .held
                .get(key)
                .is_some_and(|held| held.thread == thread)
        };
        let wanted: Vec<LeaseKey> = keys
            .iter()
            .filter(|key| !is_mine(&state, key))
            .cloned()
            .collect();
        debug_assert!(
            wanted.is_empty()
                || patience.is_zero()
                || state.held.values().all(|held| held.thread != thread),
            "{by} holds leases and waits for more: {wanted:?}"
        );
        let number = state.next_number;
        state.next_number = number.saturating_add(1);
        let request = Request {
            keys: wanted.clone(),
            by: by.to_owned(),
        };
        state.waiting.insert(number, request);
        let mut waited_for = None;
        let mut deadline = Instant::now();
        while let Some((key, blocker, who)) = state.blocker(number, &wanted) {
            if waited_for != Some(blocker) {
                waited_for = Some(blocker);
                deadline = Instant::now() + patience;
            }
            let error = StoreError::LeaseHeld { key, by: who };
            if Instant::now() >= deadline {
                state.waiting.remove(&number);
                self.freed.notify_all();
                return Err(error);
            }
            self.freed.wait_until(&mut state, deadline);
        }
        state.waiting.remove(&number);
        for key in &keys {
            let held = state.held.entry(key.clone()).or_insert_with(|| Holder {
                number,
                by: by.to_owned(),
                thread,
                count: 0,
            });
            held.count = held.count.saturating_add(1);
        }
        Ok(Lease {
            leases: self,
            keys,
            _held: rank,
        })
    }
}

impl State {
    /// Returns what blocks the request: key, other request's number, and command.
    fn blocker(&self, number: u64, wanted: &[LeaseKey]) -> Option<(LeaseKey, u64, String)> {
        let held = wanted
            .iter()
            .find_map(|key| Some((key.clone(), self.held.get(key)?)));
        if let Some((key, held)) = held {
            return Some((key, held.number, held.by.clone()));
        }
        self.waiting.range(..number).find_map(|(earlier, request)| {
            let key = request.keys.iter().find(|key| wanted.contains(key))?;
            Some((key.clone(), *earlier, request.by.clone()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn branch(name: &str) -> LeaseKey {
        LeaseKey::Branch(name.to_owned())
    }

    #[test]
    fn a_lease_has_one_holder_and_is_named_where_it_is_refused() {
        let leases = Leases::default();
        let held = leases
            .acquire([branch("a"), branch("b")], "tine merge x", PATIENCE)
            .unwrap();
        thread::scope(|scope| {
            let other = || {
                leases
                    .acquire([branch("b")], "tine new y", Duration::ZERO)
                    .map(drop)
            };
            let refused = scope.spawn(other).join().unwrap().unwrap_err();
            assert_eq!(
                refused.to_string(),
                r#"the branch "b" is in use by `tine merge x`"#
            );
            let free = || {
                leases
                    .acquire([branch("c")], "tine new y", Duration::ZERO)
                    .map(drop)
            };
            scope.spawn(free).join().unwrap().unwrap();
        });
        drop(held);
        let freed = leases.acquire([branch("b")], "tine new y", Duration::ZERO);
        assert!(freed.is_ok(), "the lease is free");
    }

    #[test]
    fn the_thread_that_holds_a_lease_takes_it_again() {
        let leases = Leases::default();
        let outer = leases.acquire([branch("a")], "outer", PATIENCE).unwrap();
        drop(
            leases
                .acquire([branch("a")], "inner", Duration::ZERO)
                .unwrap(),
        );
        let taken = thread::scope(|scope| {
            let other = || {
                leases
                    .acquire([branch("a")], "other", Duration::ZERO)
                    .is_ok()
            };
            scope.spawn(other).join().unwrap()
        });
        assert!(!taken, "the outer lease is still held");
        drop(outer);
        assert!(leases.state.lock().held.is_empty());
    }

    #[test]
    fn many_that_want_several_keys_all_get_them_one_after_another() {
        let leases = Leases::default();
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for n in 0..16 {
                let (leases, inside, most) = (&leases, &inside, &most);
                scope.spawn(move || {
                    for _ in 0..20 {
                        let other = branch(["b", "c", "d"][n % 3]);
                        let _lease = leases
                            .acquire([other, branch("a")], "tine", PATIENCE)
                            .unwrap();
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 1, "all of them want the branch a");
        assert!(leases.state.lock().held.is_empty() && leases.state.lock().waiting.is_empty());
    }
}
