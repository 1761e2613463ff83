//! Answers about requests to the mounts and their latency.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use tine_fuse::latency_bound_secs;
use tine_git::{CacheStats, CacheUses};
use tine_path::text::PathText;
use tine_store::ForkName;

/// Statistics of the daemon and its mounts at one moment.
///
/// Numbers of requests and bytes count from the mount of the fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stats {
    /// Process id of the daemon.
    pub pid: u32,
    /// Version of tine.
    pub version: String,
    /// Running time of the daemon in seconds.
    pub uptime_secs: i64,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// Number of forks in the store.
    pub forks: usize,
    /// Fill levels of the caches that all forks share.
    pub caches: CacheStats,
    /// Hits and misses of the blob cache.
    pub blob_cache: CacheUses,
    /// Hits and misses of the directory cache.
    pub directory_cache: CacheUses,
    /// Statistics of each mount, sorted by the fork's name.
    pub mounted: Vec<ForkStats>,
}

/// Statistics of one mount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForkStats {
    /// Mounted fork.
    pub fork: ForkName,
    /// Transport of requests: `device` or `ring`.
    pub transport: String,
    /// Time since the mount, in seconds.
    pub elapsed_secs: f64,
    /// Requests by kind.
    ///
    /// The keys are FUSE's names in lower case. Kinds without a request are left out.
    pub operations: BTreeMap<String, OperationStats>,
    /// Number of bytes that programs read.
    pub read_bytes: u64,
    /// Number of bytes that programs wrote.
    pub written_bytes: u64,
    /// Number of nodes that the kernel remembers.
    pub remembered_nodes: u64,
    /// Number of nodes in the open layer.
    pub layer_nodes: u64,
    /// Number of names in the open layer.
    pub layer_names: u64,
    /// Busiest files since a client began to watch, the busiest first.
    pub files: Vec<FileStats>,
}

/// Statistics of the requests of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationStats {
    /// Number of requests.
    pub count: u64,
    /// Total time of the daemon for all of them, in seconds.
    pub total_secs: f64,
    /// Histogram of latencies.
    ///
    /// The classes are under 1 µs, 2 µs, 4 µs and so on. The last class is half a second or more.
    pub latency: Vec<u64>,
}

/// Requests for one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStats {
    /// Path from the fork's root.
    pub path: PathText,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of bytes read.
    pub read_bytes: u64,
    /// Number of bytes written.
    pub written_bytes: u64,
}

impl OperationStats {
    /// Returns the latency bound of a fraction of the requests, in seconds.
    ///
    /// `None` if there are no requests, or the bound is in the last class.
    pub fn quantile_secs(&self, part: f64) -> Option<f64> {
        let total: u64 = self.latency.iter().sum();
        let wanted = (total as f64 * part).ceil().max(1.0);
        let mut seen = 0;
        for (class, count) in self.latency.iter().enumerate() {
            seen += count;
            if total > 0 && seen as f64 >= wanted {
                return latency_bound_secs(class);
            }
        }
        None
    }

    /// Adds the requests of `other`.
    pub fn add(&mut self, other: &OperationStats) {
        self.count += other.count;
        self.total_secs += other.total_secs;
        self.combine(other, u64::saturating_add);
    }

    /// Returns the requests since `before`.
    pub fn since(&self, before: Option<&OperationStats>) -> OperationStats {
        let mut rest = self.clone();
        if let Some(before) = before {
            rest.count = self.count.saturating_sub(before.count);
            rest.total_secs = (self.total_secs - before.total_secs).max(0.0);
            rest.combine(before, u64::saturating_sub);
        }
        rest
    }

    fn combine(&mut self, other: &OperationStats, with: impl Fn(u64, u64) -> u64) {
        self.latency
            .resize(self.latency.len().max(other.latency.len()), 0);
        for (own, theirs) in self.latency.iter_mut().zip(&other.latency) {
            *own = with(*own, *theirs);
        }
    }
}

impl ForkStats {
    /// Returns the sum over all kinds.
    pub fn all(&self) -> OperationStats {
        let mut all = OperationStats::default();
        for operation in self.operations.values() {
            all.add(operation);
        }
        all
    }

    /// Returns the statistics since `before`, which are of the same fork.
    ///
    /// Returns all of them if the fork was mounted again since.
    pub fn since(&self, before: Option<&ForkStats>) -> ForkStats {
        let before = before.filter(|before| before.elapsed_secs <= self.elapsed_secs);
        let operations = self.operations.iter().map(|(kind, now)| {
            let then = before.and_then(|before| before.operations.get(kind));
            (kind.clone(), now.since(then))
        });
        ForkStats {
            elapsed_secs: self.elapsed_secs - before.map_or(0.0, |before| before.elapsed_secs),
            operations: operations.collect(),
            read_bytes: self
                .read_bytes
                .saturating_sub(before.map_or(0, |before| before.read_bytes)),
            written_bytes: self
                .written_bytes
                .saturating_sub(before.map_or(0, |before| before.written_bytes)),
            ..self.clone()
        }
    }

    /// Returns `count` per second of the elapsed time.
    pub fn per_sec(&self, count: u64) -> f64 {
        if self.elapsed_secs > 0.0 {
            count as f64 / self.elapsed_secs
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(latency: &[u64]) -> OperationStats {
        OperationStats {
            count: latency.iter().sum(),
            total_secs: 1.0,
            latency: latency.to_vec(),
        }
    }

    #[test]
    fn a_quantile_is_the_bound_of_the_class_that_it_falls_into() {
        let stats = operations(&[98, 1, 1]);
        assert_eq!(stats.quantile_secs(0.5), Some(1e-6));
        assert_eq!(stats.quantile_secs(0.99), Some(2e-6));
        assert_eq!(stats.quantile_secs(1.0), Some(4e-6));
        assert_eq!(operations(&[0, 0]).quantile_secs(0.5), None);
        assert_eq!(OperationStats::default().quantile_secs(0.5), None);
    }

    #[test]
    fn what_came_since_is_the_difference_unless_the_fork_was_mounted_anew() {
        let at = |elapsed_secs, count| ForkStats {
            fork: ForkName::parse("demo").unwrap(),
            transport: "device".to_owned(),
            elapsed_secs,
            operations: BTreeMap::from([("read".to_owned(), operations(&[count]))]),
            read_bytes: count * 10,
            written_bytes: 0,
            remembered_nodes: 0,
            layer_nodes: 0,
            layer_names: 0,
            files: Vec::new(),
        };
        let since = at(10.0, 30).since(Some(&at(8.0, 20)));
        assert_eq!((since.all().count, since.read_bytes), (10, 100));
        assert_eq!(since.per_sec(10), 5.0);
        assert_eq!(at(1.0, 4).since(Some(&at(8.0, 20))).all().count, 4);
    }
}
