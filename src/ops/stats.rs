//! Statistics of requests to the mounts.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{FileStats, ForkStats, OperationStats, Stats};
use crate::state::slots::Slot;
use tine_attr::Timestamp;
use tine_fuse::{KindMetrics, Traffic, Transport};
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_workspace::Workspace;

/// Show what the mounts were asked, and how fast they answered
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct ReadStats {
    /// The fork [default: all that are mounted]
    #[arg(value_name = "FORK")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// True to count reads and writes of each file for a while.
    #[arg(skip)]
    #[serde(default)]
    pub watch: bool,
}

impl Operation for ReadStats {
    const NAME: &'static str = "stats";
    type Answer = Stats;

    fn run(self, call: &Call<'_>) -> Result<Stats, Failure> {
        let daemon = call.daemon;
        let slots = match &self.fork {
            None => daemon.slots(),
            Some(fork) => {
                daemon.store.record(fork)?;
                let slot = daemon.slot(fork);
                if !slot.is_mounted() {
                    return Err(Failure::new(
                        ErrorCode::NotMounted,
                        format!("{fork} is not mounted, and nothing is asked of it"),
                    )
                    .hint(format!("`tine mount {fork}` mounts it")));
                }
                vec![slot]
            }
        };
        let (blob_cache, directory_cache) = daemon.store.cache_uses();
        Ok(Stats {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_secs: Timestamp::now().secs.saturating_sub(daemon.started_secs),
            memory_bytes: super::lifecycle::resident_bytes().unwrap_or(0),
            forks: daemon.store.records().0.len(),
            caches: daemon.store.cache_figures(),
            blob_cache,
            directory_cache,
            mounted: slots
                .iter()
                .filter_map(|slot| of_slot(slot, self.watch))
                .collect(),
        })
    }
}

/// Maximum number of files that the statistics of a fork list.
const MAX_FILES: usize = 20;

fn of_slot(slot: &Slot, watch: bool) -> Option<ForkStats> {
    let (transport, traffic) = slot.traffic(watch)?;
    // The workspace's locks may block, so the slot's state must not be held.
    let workspace = slot.with_open_fork(|fork| fork.workspace.clone())?;
    Some(of_mount(slot.name.clone(), transport, &traffic, &workspace))
}

fn of_mount(
    fork: ForkName,
    transport: Transport,
    traffic: &Traffic,
    workspace: &Workspace,
) -> ForkStats {
    let layer = workspace.stats();
    let came = traffic.kinds.iter().filter(|kind| kind.count > 0);
    ForkStats {
        fork,
        transport: transport.name().to_owned(),
        elapsed_secs: traffic.elapsed.as_secs_f64(),
        operations: came
            .map(|kind| (kind.name.to_owned(), of_kind(kind)))
            .collect(),
        read_bytes: traffic.read_bytes,
        written_bytes: traffic.written_bytes,
        remembered_nodes: workspace.remembered(),
        layer_nodes: layer.nodes,
        layer_names: layer.dentries,
        files: files(traffic, workspace),
    }
}

fn of_kind(kind: &KindMetrics) -> OperationStats {
    OperationStats {
        count: kind.count,
        total_secs: kind.nanos as f64 / 1e9,
        latency: kind.classes.to_vec(),
    }
}

/// Lists the busiest files that still have a name.
fn files(traffic: &Traffic, workspace: &Workspace) -> Vec<FileStats> {
    if traffic.files.is_empty() {
        return Vec::new();
    }
    let numbers: HashSet<_> = traffic.files.iter().map(|file| file.ino).collect();
    let paths = workspace.paths_of_files(&numbers);
    let named = traffic.files.iter().filter_map(|file| {
        Some(FileStats {
            path: PathText::from(paths.get(&file.ino)?),
            reads: file.reads,
            writes: file.writes,
            read_bytes: file.read_bytes,
            written_bytes: file.written_bytes,
        })
    });
    named.take(MAX_FILES).collect()
}
