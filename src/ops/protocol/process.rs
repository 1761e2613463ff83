//! Answers of the daemon about itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use tine_git::CacheStats;
use tine_path::text::host_path;
use tine_store::ForkName;
use tine_store::{CheckReport, SetAside};

/// State of the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Version of the socket protocol.
    pub protocol: u32,
    /// Version of tine.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Directory of the store.
    #[serde(with = "host_path")]
    pub store: PathBuf,
    /// Start of the daemon, in seconds since 1970.
    pub started_secs: i64,
    /// Number of forks in the store.
    pub forks: usize,
    /// Number of mounted forks.
    pub mounts: usize,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// Number of the daemon's mount namespace, as the kernel assigns it.
    #[serde(default)]
    pub mount_namespace: Option<u64>,
}

/// Resource use of the daemon, over all forks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Metrics {
    /// Number of nodes that the kernel remembers.
    pub remembered_nodes: u64,
    /// Number of nodes in memory: those of mounted forks' open layers.
    pub layer_nodes: u64,
    /// Number of names in memory: those of mounted forks' open layers.
    pub layer_names: u64,
    /// Fill levels of the caches that all forks share.
    pub caches: CacheStats,
    /// Number of threads.
    pub threads: u64,
    /// Number of open files.
    pub open_files: u64,
    /// Maximum number of files that the daemon may have open.
    pub open_files_limit: u64,
    /// Figures of each mount, sorted by the fork's name.
    #[serde(default)]
    pub mounted: Vec<MountMetrics>,
}

/// Requests that one mount received.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MountMetrics {
    /// Mounted fork.
    pub fork: ForkName,
    /// Transport: `device` (`/dev/fuse`) or `ring` (io_uring).
    #[serde(default)]
    pub transport: String,
    /// Number of requests of each kind since the fork was mounted.
    ///
    /// The keys are FUSE's names in lower case. Kinds without a request are left out.
    pub requests: BTreeMap<String, u64>,
}

/// Answer without content: the operation succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {}

/// Result of a check of the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreChecked {
    /// True if there is no finding, or every finding was repaired.
    pub ok: bool,
    /// Findings of the check.
    #[serde(flatten)]
    pub report: CheckReport,
}

impl From<CheckReport> for StoreChecked {
    fn from(report: CheckReport) -> StoreChecked {
        StoreChecked {
            ok: report
                .findings
                .iter()
                .all(|finding| finding.repaired.is_some()),
            report,
        }
    }
}

/// Files that repairs moved aside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetAsideList {
    /// Files that are still aside.
    pub set_aside: Vec<SetAside>,
    /// Files that this request put back, if any.
    pub put_back: Option<SetAside>,
}
