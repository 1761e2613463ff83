//! Statistics of the files with most reads and writes.
//!
//! They are kept while a client watches. The memory is bounded. If there is no room for another
//! file, it replaces the one with the fewest requests and continues from that file's number. So a
//! busy file that comes late is not evicted again and again. This is the *space-saving* sketch of
//! Metwally, Agrawal and El Abbadi, 2005.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use tine_attr::Ino;

/// Largest number of files with statistics.
const MAX_FILES: usize = 256;

/// Time for which files are counted after a client has asked.
const PATIENCE: Duration = Duration::from_secs(30);

/// Statistics of one file while it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyFile {
    /// Inode number.
    pub ino: Ino,
    /// Number of read requests.
    pub reads: u64,
    /// Number of write requests.
    pub writes: u64,
    /// Bytes that programs read.
    pub read_bytes: u64,
    /// Bytes that programs wrote.
    pub written_bytes: u64,
    /// Number of requests inherited from files that this one replaced.
    inherited: u64,
}

impl BusyFile {
    /// Returns the number of requests, for eviction.
    fn weight(&self) -> u64 {
        self.reads
            .saturating_add(self.writes)
            .saturating_add(self.inherited)
    }
}

/// Statistics of the busy files of a mount.
#[derive(Default)]
pub(super) struct BusyFiles {
    /// True while a client watches. Checked for every request, without a lock.
    is_watched: AtomicBool,
    /// Statistics, protected by the lock.
    watched: Mutex<Watched>,
}

/// Statistics while a client watches.
#[derive(Default)]
struct Watched {
    /// End of the watch; `None` if there is no watch.
    until: Option<Instant>,
    /// Statistics by inode number, at most [`MAX_FILES`].
    files: HashMap<Ino, BusyFile>,
}

impl BusyFiles {
    /// Starts or prolongs the counting of files.
    pub(crate) fn watch(&self) {
        self.watched.lock().until = Some(Instant::now() + PATIENCE);
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// Applies `change` to a file's statistics, if a client watches.
    pub(crate) fn note(&self, ino: Ino, change: impl FnOnce(&mut BusyFile)) {
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        let mut watched = self.watched.lock();
        if watched.until.is_none_or(|until| Instant::now() > until) {
            self.is_watched.store(false, Ordering::Relaxed);
            *watched = Watched::default();
            return;
        }
        change(watched.file(ino));
    }

    /// Returns the statistics, the busiest file first.
    pub(crate) fn read(&self) -> Vec<BusyFile> {
        let mut files: Vec<BusyFile> = self.watched.lock().files.values().copied().collect();
        files.sort_by_key(|file| {
            (
                std::cmp::Reverse(file.reads.saturating_add(file.writes)),
                file.ino,
            )
        });
        files
    }
}

impl Watched {
    /// Returns the statistics of a file, evicting another if necessary.
    fn file(&mut self, ino: Ino) -> &mut BusyFile {
        let mut inherited = 0;
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&ino) {
            let least = self
                .files
                .values()
                .min_by_key(|file| file.weight())
                .copied();
            if let Some(least) = least {
                self.files.remove(&least.ino);
                inherited = least.weight();
            }
        }
        self.files.entry(ino).or_insert(BusyFile {
            ino,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            written_bytes: 0,
            inherited,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_remembered_while_nobody_watches() {
        let files = BusyFiles::default();
        files.note(Ino(1), |file| file.reads += 1);
        assert_eq!(files.read(), []);
    }

    #[test]
    fn what_is_busy_stays_among_thousands_that_are_met_once() {
        let files = BusyFiles::default();
        files.watch();
        for number in 0..10_000 {
            files.note(Ino(1_000 + number), |file| file.reads += 1);
            for busy in 1..=3 {
                files.note(Ino(busy), |file| file.writes += 1);
            }
        }
        let read = files.read();
        assert_eq!(read.len(), MAX_FILES);
        let busiest: Vec<u64> = read.iter().take(3).map(|file| file.ino.0).collect();
        assert_eq!(busiest, [1, 2, 3]);
        assert!(
            read.iter().take(3).all(|file| file.writes == 10_000),
            "{read:?}"
        );
    }
}
