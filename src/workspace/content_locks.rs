//! Keeps those apart who read and who change one node's content, so that the state need not be held
//! while much is copied.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::error::FsError;
use tine_attr::Ino;
use tine_git::nonblocking;

/// Nodes share locks, this many for a fork: a large file keeps few others waiting.
const LOCKS: usize = 256;

/// Taken before the state. Who holds one may not take another: two nodes may have the same.
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
    /// While it is held, the node's bytes do not change. Refused to who is in haste and would have
    /// to wait.
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

    /// To change the node's bytes where they are, or how many they are. Refused as
    /// [`ContentLocks::read`] is.
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

    /// While they are held, nobody changes any content in its place.
    pub(crate) fn write_all(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.locks.iter().map(RwLock::write).collect()
    }

    /// Numbers of base nodes are hashes, those of new ones count upwards: the low bits spread both.
    fn lock_of(&self, ino: Ino) -> &RwLock<()> {
        &self.locks[(ino.0 % LOCKS as u64) as usize]
    }
}
