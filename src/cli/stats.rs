//! `tine stats`: the mounts' requests and their latency.

use std::collections::BTreeMap;

use serde::Serialize;

use super::context::Context;
use super::output::{Cell, Output, Tone, table};
use super::{Exit, SUCCESS, metrics};
use crate::client::Client;
use crate::git::{CacheStats, CacheUses};
use crate::ops::protocol::{FileStats, ForkStats, OperationStats, Stats as DaemonStats};
use crate::ops::{ErrorCode, Failure, ReadStats};
use crate::render::text::{counted, human_size};
use crate::store::ForkName;

/// Show what the mounts were asked, and how fast they answered
///
/// Numbers are since a fork was mounted. What the kernel answers from its own caches asks nobody,
/// and is not among them. How long a request took is the daemon's part of it, told as the power of
/// two of microseconds that it stayed under.
///
/// --prometheus prints the same in the format that Prometheus scrapes; --serve ADDR offers that at
/// http://ADDR/metrics until it is interrupted, to this machine alone.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine stats
  tine stats fix-parser --json | jq .mounted[0].operations.read
  tine stats --prometheus
  tine stats --serve 127.0.0.1:9464")]
pub(super) struct Stats {
    #[command(flatten)]
    pub read: ReadStats,

    /// Print the text format of Prometheus
    #[arg(long, conflicts_with = "serve")]
    pub prometheus: bool,

    /// Serve that over HTTP at a loopback address
    #[arg(long, value_name = "ADDR", conflicts_with = "fork")]
    pub serve: Option<String>,
}

/// JSON output.
#[derive(Serialize)]
struct Shown<'a> {
    running: bool,
    pid: Option<u32>,
    version: Option<&'a str>,
    uptime_secs: Option<i64>,
    memory_bytes: Option<u64>,
    forks: Option<usize>,
    caches: Option<&'a CacheStats>,
    blob_cache: Option<CacheUses>,
    directory_cache: Option<CacheUses>,
    mounted: Vec<ShownFork<'a>>,
}

/// One mount, with figures computed from its counters.
#[derive(Serialize)]
pub(super) struct ShownFork<'a> {
    fork: &'a ForkName,
    transport: &'a str,
    elapsed_secs: f64,
    operations_per_sec: f64,
    operations: BTreeMap<&'a str, ShownOperation<'a>>,
    read_bytes: u64,
    written_bytes: u64,
    remembered_nodes: u64,
    layer_nodes: u64,
    layer_names: u64,
    files: &'a [FileStats],
}

/// Requests of one kind. Times are in microseconds.
#[derive(Serialize)]
pub(super) struct ShownOperation<'a> {
    count: u64,
    per_sec: f64,
    mean_us: f64,
    /// Median; `None` without timed requests.
    p50_us: Option<f64>,
    /// 99th percentile; `None` without timed requests.
    p99_us: Option<f64>,
    latency: &'a [u64],
}

pub(super) fn run(verb: &Stats, context: &Context) -> Result<Exit, Failure> {
    if let Some(address) = &verb.serve {
        return metrics::serve(address, &verb.read, context);
    }
    if verb.prometheus && context.output.is_json() {
        return Err(Failure::new(
            ErrorCode::Usage,
            "`--prometheus` prints a format of its own, and `--json` another",
        )
        .hint("leave one of them out"));
    }
    let stats = ask(context, &verb.read)?;
    if verb.prometheus {
        context.output.text(&metrics::text(stats.as_ref()))?;
    } else if context.output.is_json() {
        context.output.json(&shown(stats.as_ref()))?;
    } else {
        match &stats {
            Some(stats) => context.output.text(&format_stats(stats, &context.output))?,
            None => context.output.note(NONE_RUNS),
        }
    }
    Ok(SUCCESS)
}

/// Text if no daemon runs.
pub(super) const NONE_RUNS: &str =
    "no daemon runs, and nothing is mounted: any command that needs it starts it";

/// Reads the daemon's figures; `None` if none runs.
///
/// Fails if `read` names a fork that is not mounted.
pub(super) fn ask(context: &Context, read: &ReadStats) -> Result<Option<DaemonStats>, Failure> {
    let Some(mut client) = Client::connect(context.repository()?.common_dir())? else {
        return match &read.fork {
            None => Ok(None),
            Some(fork) => Err(Failure::new(
                ErrorCode::NotMounted,
                format!("no daemon runs, so {fork} is not mounted"),
            )
            .hint(
                "`tine list` starts the daemon, which mounts what was mounted, and shows the forks",
            )),
        };
    };
    client.call(read).map(Some)
}

fn shown(stats: Option<&DaemonStats>) -> Shown<'_> {
    Shown {
        running: stats.is_some(),
        pid: stats.map(|stats| stats.pid),
        version: stats.map(|stats| stats.version.as_str()),
        uptime_secs: stats.map(|stats| stats.uptime_secs),
        memory_bytes: stats.map(|stats| stats.memory_bytes),
        forks: stats.map(|stats| stats.forks),
        caches: stats.map(|stats| &stats.caches),
        blob_cache: stats.map(|stats| stats.blob_cache),
        directory_cache: stats.map(|stats| stats.directory_cache),
        mounted: stats
            .map_or(&[][..], |stats| &stats.mounted)
            .iter()
            .map(shown_fork)
            .collect(),
    }
}

/// Converts a mount's figures for JSON output.
pub(super) fn shown_fork(fork: &ForkStats) -> ShownFork<'_> {
    let operations = fork
        .operations
        .iter()
        .map(|(kind, operation)| (kind.as_str(), shown_operation(fork, operation)));
    ShownFork {
        fork: &fork.fork,
        transport: &fork.transport,
        elapsed_secs: fork.elapsed_secs,
        operations_per_sec: fork.per_sec(fork.all().count),
        operations: operations.collect(),
        read_bytes: fork.read_bytes,
        written_bytes: fork.written_bytes,
        remembered_nodes: fork.remembered_nodes,
        layer_nodes: fork.layer_nodes,
        layer_names: fork.layer_names,
        files: &fork.files,
    }
}

fn shown_operation<'a>(fork: &ForkStats, operation: &'a OperationStats) -> ShownOperation<'a> {
    let micros = |secs: f64| secs * 1e6;
    ShownOperation {
        count: operation.count,
        per_sec: fork.per_sec(operation.count),
        mean_us: mean_secs(operation).map_or(0.0, micros),
        p50_us: operation.quantile_secs(0.5).map(micros),
        p99_us: operation.quantile_secs(0.99).map(micros),
        latency: &operation.latency,
    }
}

/// Returns the mean latency of the requests that were timed.
fn mean_secs(operation: &OperationStats) -> Option<f64> {
    let timed: u64 = operation.latency.iter().sum();
    (timed > 0).then(|| operation.total_secs / timed as f64)
}

fn format_stats(stats: &DaemonStats, output: &Output) -> String {
    let mut text = head(stats);
    if stats.mounted.is_empty() {
        text.push_str("nothing is mounted\n");
    }
    for fork in &stats.mounted {
        text.push_str(&format!(
            "\n{} ({}): {:.1} requests a second, {} read, {} written, {} nodes remembered\n",
            output.paint(Tone::Name, fork.fork.as_str()),
            fork.transport,
            fork.per_sec(fork.all().count),
            human_size(fork.read_bytes),
            human_size(fork.written_bytes),
            fork.remembered_nodes,
        ));
        text.push_str(&operations_table(fork, output));
    }
    text
}

/// Formats the daemon's figures in two lines.
pub(super) fn head(stats: &DaemonStats) -> String {
    let hits = |uses: CacheUses| match uses.hits + uses.misses {
        0 => "not used yet".to_owned(),
        all => format!(
            "{:.1} % of {all} hit",
            uses.hits as f64 * 100.0 / all as f64
        ),
    };
    format!(
        "daemon {}: {} of {} mounted, {} of memory\ncaches: blobs {} ({}), directories {} ({})\n",
        stats.pid,
        stats.mounted.len(),
        counted(stats.forks, "fork"),
        human_size(stats.memory_bytes),
        human_size(stats.caches.blobs.used),
        hits(stats.blob_cache),
        human_size(stats.caches.directories.used),
        hits(stats.directory_cache),
    )
}

/// Formats the kinds of requests, most frequent first.
pub(super) fn operations_table(fork: &ForkStats, output: &Output) -> String {
    let mut operations: Vec<(&String, &OperationStats)> = fork
        .operations
        .iter()
        .filter(|(_, operation)| operation.count > 0)
        .collect();
    operations.sort_by_key(|(_, operation)| std::cmp::Reverse(operation.count));
    let heads = [
        "request",
        "count",
        "a second",
        "mean",
        "half under",
        "99 % under",
    ];
    let mut rows = vec![
        heads
            .iter()
            .enumerate()
            .map(|(column, head)| {
                let cell = match column {
                    0 => Cell::indented(head),
                    _ => Cell::new(*head).right(),
                };
                cell.toned(output, Tone::Faint)
            })
            .collect::<Vec<Cell>>(),
    ];
    for (kind, operation) in operations {
        rows.push(vec![
            Cell::indented(kind),
            Cell::new(operation.count.to_string()).right(),
            Cell::new(format!("{:.1}", fork.per_sec(operation.count))).right(),
            Cell::new(time(mean_secs(operation))).right(),
            Cell::new(time(operation.quantile_secs(0.5))).right(),
            Cell::new(time(operation.quantile_secs(0.99))).right(),
        ]);
    }
    table(&rows)
}

/// Formats a duration in a readable unit.
pub(super) fn time(secs: Option<f64>) -> String {
    match secs {
        None => "-".to_owned(),
        Some(secs) if secs < 1e-3 => format!("{:.0} µs", secs * 1e6),
        Some(secs) if secs < 1.0 => format!("{:.1} ms", secs * 1e3),
        Some(secs) => format!("{secs:.1} s"),
    }
}
