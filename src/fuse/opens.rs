//! Open files, on a mount where opening a file is a request.
//!
//! The kernel reads a large file itself (*passthrough*) if that gives the same bytes as a request:
//!
//! ```text
//! first opened for reading:   passthrough ─► later writers bypass the kernel's cache (direct)
//! first opened for writing:   cached, as long as it is open
//! ```
//!
//! The kernel's rule is that a file is open through its cache or passed through, never both. It
//! counts open files as this table does, and its counts are never ahead: it drops an open file from
//! its own count before it sends RELEASE.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use tine_attr::Ino;

/// Way in which an open file reaches its bytes.
///
/// The discriminant is the file handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Through the kernel's cache.
    Cached = 1,
    /// By a request each time; mappings are of the backing file.
    Direct = 2,
    /// Directly in the backing file.
    Passthrough = 3,
}

impl Access {
    /// Returns the file handle.
    pub(crate) fn handle(self) -> u64 {
        self as u64
    }

    /// Returns the access for a file handle.
    pub(crate) fn of_handle(handle: u64) -> Option<Access> {
        [Access::Cached, Access::Direct, Access::Passthrough]
            .into_iter()
            .find(|access| access.handle() == handle)
    }
}

/// Reply to an open request. `B` is a registered backing file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened<B> {
    /// The file is open through the kernel's cache.
    Cached {
        /// True if the cached content is valid.
        keep: bool,
    },
    /// The file is open past the cache.
    Direct(Arc<B>),
    /// The file is passed through to the backing file.
    Passthrough(Arc<B>),
}

/// Open files of one inode.
struct OpenFiles<B> {
    /// Number of files open through the cache.
    cached: u32,
    /// Number of files open otherwise.
    uncached: u32,
    /// Backing file, while `uncached` is not 0. Its content is pinned.
    backing: Option<Arc<B>>,
}

impl<B> Default for OpenFiles<B> {
    fn default() -> OpenFiles<B> {
        OpenFiles {
            cached: 0,
            uncached: 0,
            backing: None,
        }
    }
}

/// All open files of a mount.
pub(super) struct Opens<B> {
    /// The table, protected by the lock.
    table: Mutex<Table<B>>,
}

/// Open files by inode.
struct Table<B> {
    /// Inodes that have open files.
    files: HashMap<Ino, OpenFiles<B>>,
    /// Inodes that were written past the kernel's cache, which may be outdated.
    stale: HashSet<Ino>,
}

impl<B> Opens<B> {
    pub(crate) fn new() -> Opens<B> {
        Opens {
            table: Mutex::new(Table {
                files: HashMap::new(),
                stale: HashSet::new(),
            }),
        }
    }

    /// Counts another open file.
    ///
    /// `back` pins the content and registers its file with the kernel, if there is one.
    pub(crate) fn open(
        &self,
        ino: Ino,
        only_to_read: bool,
        back: impl FnOnce() -> Option<B>,
    ) -> Opened<B> {
        let mut table = self.table.lock();
        let Table { files, stale } = &mut *table;
        let open = files.entry(ino).or_default();
        if open.cached == 0 && open.uncached == 0 && only_to_read {
            open.backing = back().map(Arc::new);
        }
        let Some(backing) = &open.backing else {
            open.cached = open.cached.saturating_add(1);
            return Opened::Cached {
                keep: !stale.remove(&ino),
            };
        };
        open.uncached = open.uncached.saturating_add(1);
        if only_to_read {
            return Opened::Passthrough(backing.clone());
        }
        stale.insert(ino);
        Opened::Direct(backing.clone())
    }

    /// Counts one open file less.
    ///
    /// Returns whether to unpin the content that was pinned for it.
    pub(crate) fn release(&self, ino: Ino, access: Access) -> bool {
        let mut table = self.table.lock();
        let Entry::Occupied(mut entry) = table.files.entry(ino) else {
            return false;
        };
        let open = entry.get_mut();
        match access {
            Access::Cached => open.cached = open.cached.saturating_sub(1),
            Access::Direct | Access::Passthrough => open.uncached = open.uncached.saturating_sub(1),
        }
        open.cached == 0 && open.uncached == 0 && entry.remove().backing.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(7);

    fn open(opens: &Opens<&'static str>, only_to_read: bool) -> Opened<&'static str> {
        opens.open(FILE, only_to_read, || Some("file"))
    }

    #[test]
    fn who_opens_first_decides_and_all_others_follow() {
        let opens = Opens::new();
        assert_eq!(open(&opens, false), Opened::Cached { keep: true });
        assert_eq!(open(&opens, true), Opened::Cached { keep: true });
        assert!(!opens.release(FILE, Access::Cached));
        assert_eq!(open(&opens, true), Opened::Cached { keep: true });
        assert!(!opens.release(FILE, Access::Cached));
        assert!(!opens.release(FILE, Access::Cached));

        assert!(matches!(open(&opens, true), Opened::Passthrough(_)));
        assert!(matches!(open(&opens, false), Opened::Direct(_)));
        assert!(!opens.release(FILE, Access::Passthrough));
        assert!(matches!(open(&opens, true), Opened::Passthrough(_)));
        assert!(!opens.release(FILE, Access::Direct));
        assert!(opens.release(FILE, Access::Passthrough));
    }

    #[test]
    fn the_cache_is_dropped_once_after_it_was_written_past() {
        let opens = Opens::new();
        open(&opens, true);
        open(&opens, false);
        opens.release(FILE, Access::Direct);
        opens.release(FILE, Access::Passthrough);
        assert_eq!(open(&opens, false), Opened::Cached { keep: false });
        assert_eq!(open(&opens, false), Opened::Cached { keep: true });
    }

    #[test]
    fn a_file_that_the_kernel_cannot_read_is_cached() {
        let opens: Opens<&str> = Opens::new();
        assert_eq!(
            opens.open(FILE, true, || None),
            Opened::Cached { keep: true }
        );
        assert!(!opens.release(FILE, Access::Cached));
    }
}
