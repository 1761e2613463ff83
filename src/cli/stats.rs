//! `tine stats`: what the mounts were asked, and how fast they answered.

use std::collections::BTreeMap;

use serde::Serialize;

use super::context::Context;
use super::output::{Cell, Output, Tone, table};
use super::{Exit, SUCCESS, metrics};
use crate::client::Client;
use crate::git::{CacheStats, CacheUses};
use crate::ops::protocol::{FileStats, ForkStats, OperationStats, Stats as Told};
use crate::ops::{ErrorCode, Failure, ReadStats};
use crate::render::text::{counted, human_size};
use crate::workspace::ForkName;

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

/// What `--json` prints.
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

/// One mount, with what follows from its counters.
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

/// The requests of one kind; times in microseconds.
#[derive(Serialize)]
pub(super) struct ShownOperation<'a> {
    count: u64,
    per_sec: f64,
    mean_us: f64,
    /// Half of them, and 99 of 100, took less.
    p50_us: Option<f64>,
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
    let told = ask(context, &verb.read)?;
    if verb.prometheus {
        context.output.text(&metrics::text(told.as_ref()))?;
    } else if context.output.is_json() {
        context.output.json(&shown(told.as_ref()))?;
    } else {
        match &told {
            Some(told) => context.output.text(&described(told, &context.output))?,
            None => context.output.note(NONE_RUNS),
        }
    }
    Ok(SUCCESS)
}

/// What is said where nobody counts.
pub(super) const NONE_RUNS: &str =
    "no daemon runs, and nothing is mounted: any command that needs it starts it";

/// What the daemon tells; `None` where none runs. A fork that is named must be mounted.
pub(super) fn ask(context: &Context, read: &ReadStats) -> Result<Option<Told>, Failure> {
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

fn shown(told: Option<&Told>) -> Shown<'_> {
    Shown {
        running: told.is_some(),
        pid: told.map(|told| told.pid),
        version: told.map(|told| told.version.as_str()),
        uptime_secs: told.map(|told| told.uptime_secs),
        memory_bytes: told.map(|told| told.memory_bytes),
        forks: told.map(|told| told.forks),
        caches: told.map(|told| &told.caches),
        blob_cache: told.map(|told| told.blob_cache),
        directory_cache: told.map(|told| told.directory_cache),
        mounted: told
            .map_or(&[][..], |told| &told.mounted)
            .iter()
            .map(shown_fork)
            .collect(),
    }
}

/// A mount as scripts see it.
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

/// Of those that took any time.
fn mean_secs(operation: &OperationStats) -> Option<f64> {
    let timed: u64 = operation.latency.iter().sum();
    (timed > 0).then(|| operation.total_secs / timed as f64)
}

fn described(told: &Told, output: &Output) -> String {
    let mut text = head(told);
    if told.mounted.is_empty() {
        text.push_str("nothing is mounted\n");
    }
    for fork in &told.mounted {
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

/// The daemon in two lines.
pub(super) fn head(told: &Told) -> String {
    let hits = |uses: CacheUses| match uses.hits + uses.misses {
        0 => "not used yet".to_owned(),
        all => format!(
            "{:.1} % of {all} hit",
            uses.hits as f64 * 100.0 / all as f64
        ),
    };
    format!(
        "daemon {}: {} of {} mounted, {} of memory\ncaches: blobs {} ({}), directories {} ({})\n",
        told.pid,
        told.mounted.len(),
        counted(told.forks, "fork"),
        human_size(told.memory_bytes),
        human_size(told.caches.blobs.used),
        hits(told.blob_cache),
        human_size(told.caches.directories.used),
        hits(told.directory_cache),
    )
}

/// The kinds of requests, most frequent first.
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

/// A time as a person reads it.
pub(super) fn time(secs: Option<f64>) -> String {
    match secs {
        None => "-".to_owned(),
        Some(secs) if secs < 1e-3 => format!("{:.0} µs", secs * 1e6),
        Some(secs) if secs < 1.0 => format!("{:.1} ms", secs * 1e3),
        Some(secs) => format!("{secs:.1} s"),
    }
}
