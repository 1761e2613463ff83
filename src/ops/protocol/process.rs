//! What the daemon answers about itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use tine_git::CacheFigures;
use tine_path::text::host_path;
use tine_workspace::ForkName;
use tine_workspace::store::{CheckReport, SetAside};

/// The daemon itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DaemonInfo {
    pub protocol: u32,
    pub version: String,
    pub pid: u32,
    #[serde(with = "host_path")]
    pub store: PathBuf,
    pub started_secs: i64,
    pub forks: usize,
    pub mounts: usize,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// The mount namespace that it mounts in, by the number that the kernel has for it.
    #[serde(default)]
    pub mount_namespace: Option<u64>,
}

/// What the daemon holds, all forks together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figures {
    /// Nodes that the kernel remembers.
    pub remembered_nodes: u64,
    /// Nodes and names in the open layers of mounted forks; all of them are in memory.
    pub layer_nodes: u64,
    pub layer_names: u64,
    pub caches: CacheFigures,
    pub threads: u64,
    pub open_files: u64,
    /// How many files the daemon may have open.
    pub open_files_limit: u64,
    /// One for each mount, by the fork's name.
    #[serde(default)]
    pub mounted: Vec<MountFigures>,
}

/// What one mount was asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MountFigures {
    pub fork: ForkName,
    /// How requests come: `device` (through `/dev/fuse`) or `ring` (through io_uring).
    #[serde(default)]
    pub transport: String,
    /// How many requests of each kind the kernel sent since the fork was mounted, by FUSE's names
    /// in lower case; without the kinds that never came.
    pub requests: BTreeMap<String, u64>,
}

/// Nothing but that it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {}

/// What a check found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreChecked {
    /// Whether nothing is left that is not as it must be.
    pub ok: bool,
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

/// What repairs moved aside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetAsideList {
    /// What is still aside.
    pub set_aside: Vec<SetAside>,
    pub put_back: Option<SetAside>,
}
