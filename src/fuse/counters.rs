//! Statistics of a mount: requests, latencies, and bytes read and written.
//!
//! Counting a request costs a few atomic additions and two clock reads, and takes no lock. Only the
//! statistics of busy files take one, and the mount keeps these only while a client watches.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::busy_files::{BusyFile, BusyFiles};
use tine_attr::Ino;

/// Number of latency classes.
///
/// They are under 1 µs, under 2 µs, and so on to half a second. The last class has all longer
/// latencies.
pub const LATENCY_CLASSES: usize = 21;

/// Returns the upper bound of a latency class in seconds.
///
/// The last class has none.
pub fn latency_bound_secs(class: usize) -> Option<f64> {
    (class + 1 < LATENCY_CLASSES).then(|| (1_u64 << class) as f64 / 1e6)
}

macro_rules! operations {
    ($($variant:ident $name:literal),+ $(,)?) => {
        /// Kind of request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Operation {
            $($variant),+
        }

        impl Operation {
            /// All kinds, in the order of their discriminants.
            const ALL: &'static [Operation] = &[$(Operation::$variant),+];

            /// Returns the FUSE name, in lower case.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Operation::$variant => $name),+
                }
            }
        }
    };
}

operations! {
    Lookup "lookup",
    Forget "forget",
    GetAttr "getattr",
    SetAttr "setattr",
    ReadLink "readlink",
    MkNod "mknod",
    MkDir "mkdir",
    Symlink "symlink",
    Link "link",
    Unlink "unlink",
    RmDir "rmdir",
    Rename "rename",
    Open "open",
    OpenDir "opendir",
    Release "release",
    Create "create",
    Flush "flush",
    Access "access",
    Read "read",
    Write "write",
    Fsync "fsync",
    FsyncDir "fsyncdir",
    ReadDir "readdir",
    ReadDirPlus "readdirplus",
    StatFs "statfs",
    SetXattr "setxattr",
    GetXattr "getxattr",
    ListXattr "listxattr",
    RemoveXattr "removexattr",
    Fallocate "fallocate",
    Lseek "lseek",
    CopyFileRange "copy_file_range",
    Ioctl "ioctl",
    Poll "poll",
}

/// Counters of one kind of request.
#[derive(Default)]
struct Kind {
    /// Number of requests.
    count: AtomicU64,
    /// Sum of the latencies in nanoseconds.
    nanos: AtomicU64,
    /// Number of requests in each latency class.
    classes: [AtomicU64; LATENCY_CLASSES],
}

/// Statistics of one kind of request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindMetrics {
    /// FUSE name in lower case.
    pub name: &'static str,
    /// Number of requests.
    pub count: u64,
    /// Sum of the latencies in nanoseconds.
    ///
    /// Requests that are only counted add nothing.
    pub nanos: u64,
    /// Number of requests in each latency class.
    pub classes: [u64; LATENCY_CLASSES],
}

/// Statistics of a mount since it was mounted.
#[derive(Debug, Clone)]
pub struct Traffic {
    /// Time since the mount started.
    pub elapsed: Duration,
    /// All kinds of requests, including those without a request.
    pub kinds: Vec<KindMetrics>,
    /// Bytes that programs read, except from the kernel's caches.
    pub read_bytes: u64,
    /// Bytes that programs wrote and the kernel sent.
    pub written_bytes: u64,
    /// Files with most traffic; empty unless a client watches.
    pub files: Vec<BusyFile>,
}

/// Counters of a mount.
///
/// All accesses are relaxed, as the values are for information only.
pub(super) struct Counters {
    /// Time when the mount started.
    since: Instant,
    /// Counters by kind of request.
    kinds: [Kind; Operation::ALL.len()],
    /// Bytes that programs read.
    read_bytes: AtomicU64,
    /// Bytes that programs wrote.
    written_bytes: AtomicU64,
    /// Statistics of files, while a client watches.
    files: BusyFiles,
}

impl Counters {
    pub(super) fn new() -> Counters {
        Counters {
            since: Instant::now(),
            kinds: array::from_fn(|_| Kind::default()),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            files: BusyFiles::default(),
        }
    }

    /// Counts a request whose latency is negligible.
    pub(super) fn count(&self, operation: Operation) {
        if let Some(kind) = self.kinds.get(operation as usize) {
            kind.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that began at `begun`, with its latency.
    pub(super) fn count_since(&self, operation: Operation, begun: Instant) {
        let Some(kind) = self.kinds.get(operation as usize) else {
            return;
        };
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        kind.count.fetch_add(1, Ordering::Relaxed);
        kind.nanos.fetch_add(nanos, Ordering::Relaxed);
        if let Some(class) = kind.classes.get(class_of(nanos)) {
            class.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a program read `bytes` bytes of a file.
    pub(super) fn has_read(&self, ino: Ino, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.files.note(ino, |file| {
            file.reads += 1;
            file.read_bytes += bytes;
        });
    }

    /// Notes that a program wrote `bytes` bytes of a file.
    pub(super) fn has_written(&self, ino: Ino, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.files.note(ino, |file| {
            file.writes += 1;
            file.written_bytes += bytes;
        });
    }

    /// Returns name and number of requests for every kind.
    pub(super) fn read(&self) -> Vec<(&'static str, u64)> {
        Operation::ALL
            .iter()
            .zip(&self.kinds)
            .map(|(operation, kind)| (operation.name(), kind.count.load(Ordering::Relaxed)))
            .collect()
    }

    /// Returns all statistics.
    ///
    /// With `watch`, the mount counts busy files for a while from now on.
    pub(super) fn traffic(&self, watch: bool) -> Traffic {
        if watch {
            self.files.watch();
        }
        let kinds = Operation::ALL
            .iter()
            .zip(&self.kinds)
            .map(|(operation, kind)| KindMetrics {
                name: operation.name(),
                count: kind.count.load(Ordering::Relaxed),
                nanos: kind.nanos.load(Ordering::Relaxed),
                classes: array::from_fn(|class| {
                    kind.classes
                        .get(class)
                        .map_or(0, |count| count.load(Ordering::Relaxed))
                }),
            });
        Traffic {
            elapsed: self.since.elapsed(),
            kinds: kinds.collect(),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            files: self.files.read(),
        }
    }
}

/// Returns the latency class of a latency in nanoseconds.
fn class_of(nanos: u64) -> usize {
    let micros = nanos / 1000;
    let bits = (u64::BITS - micros.leading_zeros()) as usize;
    bits.min(LATENCY_CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_number() {
        let counters = Counters::new();
        counters.count(Operation::Lookup);
        counters.count(Operation::Poll);
        counters.count(Operation::Poll);
        let read = counters.read();
        assert_eq!(read.first(), Some(&("lookup", 1)));
        assert_eq!(read.last(), Some(&("poll", 2)));
        assert_eq!(read.iter().map(|(_, number)| number).sum::<u64>(), 3);
    }

    #[test]
    fn a_class_holds_what_took_less_than_its_bound_and_no_less_than_the_one_before() {
        for (nanos, class) in [
            (0, 0),
            (999, 0),
            (1_000, 1),
            (1_999, 1),
            (2_000, 2),
            (524_287_999, 19),
            (524_288_000, 20),
            (u64::MAX, 20),
        ] {
            assert_eq!(class_of(nanos), class, "{nanos}");
            if let Some(bound) = latency_bound_secs(class) {
                assert!((nanos as f64) < bound * 1e9, "{nanos}");
            }
        }
        assert_eq!(latency_bound_secs(LATENCY_CLASSES - 1), None);
    }

    #[test]
    fn what_was_carried_out_is_in_one_class_and_what_was_left_to_the_kernel_in_none() {
        let counters = Counters::new();
        counters.count_since(Operation::Read, Instant::now());
        counters.count(Operation::Read);
        let traffic = counters.traffic(false);
        let read = traffic
            .kinds
            .iter()
            .find(|kind| kind.name == "read")
            .unwrap();
        assert_eq!((read.count, read.classes.iter().sum::<u64>()), (2, 1));
    }

    #[test]
    fn bytes_are_always_counted_and_files_only_while_somebody_watches() {
        let counters = Counters::new();
        counters.has_read(Ino(7), 100);
        assert!(counters.traffic(true).files.is_empty());
        counters.has_read(Ino(7), 10);
        counters.has_written(Ino(8), 5);
        let traffic = counters.traffic(false);
        assert_eq!((traffic.read_bytes, traffic.written_bytes), (110, 5));
        let busiest = &traffic.files[0];
        assert_eq!(
            (busiest.ino, busiest.reads, busiest.read_bytes),
            (Ino(7), 1, 10)
        );
        assert_eq!(traffic.files.len(), 2);
    }
}
