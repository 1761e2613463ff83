//! What the mounts are asked, and how fast they answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use tine_fuse::latency_bound_secs;
use tine_git::{CacheFigures, CacheUses};
use tine_path::text::PathText;
use tine_workspace::ForkName;

/// The daemon and its mounts, at one moment. Numbers of requests and bytes are since the fork was
/// mounted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stats {
    pub pid: u32,
    pub version: String,
    /// How long the daemon runs.
    pub uptime_secs: i64,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    pub forks: usize,
    /// What is in the caches that all forks share …
    pub caches: CacheFigures,
    /// … and how often something was.
    pub blob_cache: CacheUses,
    pub directory_cache: CacheUses,
    /// By the forks' names.
    pub mounted: Vec<ForkStats>,
}

/// One mount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForkStats {
    pub fork: ForkName,
    /// How requests come: `device` or `ring`.
    pub transport: String,
    /// Since it was mounted.
    pub elapsed_secs: f64,
    /// By FUSE's names in lower case; without the kinds that never came.
    pub operations: BTreeMap<String, OperationStats>,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Nodes that the kernel remembers.
    pub remembered_nodes: u64,
    /// Nodes and names in the open layer.
    pub layer_nodes: u64,
    pub layer_names: u64,
    /// The files that were read and written most since somebody watches, the busiest first.
    pub files: Vec<FileStats>,
}

/// The requests of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationStats {
    pub count: u64,
    /// How long the daemon took for all of them together.
    pub total_secs: f64,
    /// How many took under 1 µs, 2 µs, 4 µs and so on; the last is for those that took half a
    /// second or more.
    pub latency: Vec<u64>,
}

/// What was done with one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStats {
    pub path: PathText,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl OperationStats {
    /// The time under which this part of the requests was answered; `None` where there were none,
    /// or it took longer than is told.
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

    /// These and those together.
    pub fn add(&mut self, other: &OperationStats) {
        self.count += other.count;
        self.total_secs += other.total_secs;
        self.combine(other, u64::saturating_add);
    }

    /// What came since `before`.
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
    /// All kinds together.
    pub fn all(&self) -> OperationStats {
        let mut all = OperationStats::default();
        for operation in self.operations.values() {
            all.add(operation);
        }
        all
    }

    /// What came since `before`, which is of the same fork; all of it where the fork was mounted
    /// anew meanwhile.
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

    /// So many in a second.
    pub fn per_sec(&self, count: u64) -> f64 {
        match self.elapsed_secs > 0.0 {
            true => count as f64 / self.elapsed_secs,
            false => 0.0,
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
