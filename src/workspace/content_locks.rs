//! Locks between readers and writers of one node's content.
//!
//! They allow large copies without holding the state.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::error::FsError;
use tine_attr::Ino;
use tine_git::nonblocking;

/// Number of locks of a fork. Nodes share them; a large file delays few others.
const LOCKS: usize = 256;

/// Locks of the contents. Taken before the state.
///
/// A thread may hold only one, because two nodes may share it.
pub(super) struct ContentLocks {
    locks: Box<[RwLock<()>]>,
}

impl Default for ContentLocks {
    fn default() -> ContentLocks {
        ContentLocks {
            locks: (0..LOCKS).map(|_| RwLock::default()).collect(),
        }
    }
}

impl ContentLocks {
    /// Locks the node's bytes against changes.
    ///
    /// Refused to a nonblocking thread that would wait.
    pub(crate) fn read(&self, ino: Ino) -> Result<RwLockReadGuard<'_, ()>, FsError> {
        let lock = self.lock_of(ino);
        match lock.try_read() {
            Some(guard) => Ok(guard),
            None => {
                nonblocking::check()?;
                Ok(lock.read())
            }
        }
    }

    /// Locks the node's bytes to change them in place, or their number.
    ///
    /// Refused to a nonblocking thread that would wait.
    pub(crate) fn write(&self, ino: Ino) -> Result<RwLockWriteGuard<'_, ()>, FsError> {
        let lock = self.lock_of(ino);
        match lock.try_write() {
            Some(guard) => Ok(guard),
            None => {
                nonblocking::check()?;
                Ok(lock.write())
            }
        }
    }

    /// Locks all contents against changes in place.
    pub(crate) fn write_all(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.locks.iter().map(RwLock::write).collect()
    }

    /// Returns the lock of a node.
    ///
    /// Numbers of base nodes are hashes, those of new nodes count upwards. The low bits spread
    /// both.
    fn lock_of(&self, ino: Ino) -> &RwLock<()> {
        &self.locks[(ino.0 % LOCKS as u64) as usize]
    }
}
