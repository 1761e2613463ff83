//! Which files are read and written most, while somebody watches.
//!
//! The memory is bounded: where there is no room for another file, the one with the fewest requests
//! makes room, and the new one goes on from its number (the *space-saving* sketch of Metwally,
//! Agrawal and El Abbadi, 2005), so that a busy file that comes late is not thrown out again and
//! again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use tine_attr::Ino;

/// Files that are remembered at most.
const MAX_FILES: usize = 256;

/// How long files are counted after somebody looked.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was done with one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyFile {
    pub ino: Ino,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Requests that it went on from: those of files that made room for it.
    inherited: u64,
}

impl BusyFile {
    fn weight(&self) -> u64 {
        self.reads
            .saturating_add(self.writes)
            .saturating_add(self.inherited)
    }
}

#[derive(Default)]
pub(super) struct BusyFiles {
    /// Whether anything is to be noted: looked at for every request, without a lock.
    is_watched: AtomicBool,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    until: Option<Instant>,
    files: HashMap<Ino, BusyFile>,
}

impl BusyFiles {
    /// Somebody looks: files are counted for a while.
    pub(crate) fn watch(&self) {
        self.watched.lock().until = Some(Instant::now() + PATIENCE);
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// Notes that something was done with a file, if somebody watches.
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

    /// The busiest first.
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
