//! The figures of `tine stats` for Prometheus, and their HTTP endpoint.
//!
//! The format: <https://prometheus.io/docs/instrumenting/exposition_formats/>. Names and labels are
//! part of the contract with scripts.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;

use serde::Serialize;

use super::context::Context;
use super::{Exit, stats};
use crate::fuse::latency_bound_secs;
use crate::ops::protocol::{ForkStats, OperationStats, Stats};
use crate::ops::{ErrorCode, Failure, ReadStats};
use crate::ui::http::{Reply, RequestHead};

/// Content type that scrapers expect.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// HTTP path of the metrics.
const PATH: &str = "/metrics";

/// Address of the endpoint, for JSON output.
#[derive(Serialize)]
struct Serving<'a> {
    url: &'a str,
}

/// Metric of each mount: name, type, help text and getter.
type OfFork = (
    &'static str,
    &'static str,
    &'static str,
    fn(&ForkStats) -> u64,
);

const OF_FORKS: [OfFork; 5] = [
    (
        "tine_read_bytes_total",
        "counter",
        "Bytes that programs read through the mount.",
        |fork| fork.read_bytes,
    ),
    (
        "tine_written_bytes_total",
        "counter",
        "Bytes that programs wrote through the mount.",
        |fork| fork.written_bytes,
    ),
    (
        "tine_remembered_nodes",
        "gauge",
        "Nodes that the kernel remembers.",
        |fork| fork.remembered_nodes,
    ),
    (
        "tine_layer_nodes",
        "gauge",
        "Nodes in the open layer.",
        |fork| fork.layer_nodes,
    ),
    (
        "tine_layer_names",
        "gauge",
        "Names in the open layer.",
        |fork| fork.layer_names,
    ),
];

/// Returns the metrics. Without a daemon they say only that there is none.
pub(super) fn text(stats: Option<&Stats>) -> String {
    let mut text = Text::default();
    text.describe("tine_up", "gauge", "Whether the daemon runs.");
    text.sample("tine_up", &[], u64::from(stats.is_some()));
    let Some(stats) = stats else {
        return text.0;
    };
    let mounted = stats.mounted.len() as u64;
    for (name, help, value) in [
        ("tine_forks", "Forks of the repository.", stats.forks as u64),
        ("tine_mounts", "Forks that are mounted.", mounted),
        (
            "tine_memory_bytes",
            "Resident memory of the daemon.",
            stats.memory_bytes,
        ),
    ] {
        text.describe(name, "gauge", help);
        text.sample(name, &[], value);
    }
    let caches = [
        ("blobs", stats.blob_cache, stats.caches.blobs.used),
        (
            "directories",
            stats.directory_cache,
            stats.caches.directories.used,
        ),
    ];
    text.describe(
        "tine_cache_bytes",
        "gauge",
        "Bytes in a cache that all forks share.",
    );
    for (cache, _, used) in caches {
        text.sample("tine_cache_bytes", &[("cache", cache)], used);
    }
    text.describe(
        "tine_cache_hits_total",
        "counter",
        "How often what was needed was in the cache.",
    );
    for (cache, uses, _) in caches {
        text.sample("tine_cache_hits_total", &[("cache", cache)], uses.hits);
    }
    text.describe(
        "tine_cache_misses_total",
        "counter",
        "How often it was not.",
    );
    for (cache, uses, _) in caches {
        text.sample("tine_cache_misses_total", &[("cache", cache)], uses.misses);
    }
    for (name, kind, help, value) in OF_FORKS {
        text.describe(name, kind, help);
        for fork in &stats.mounted {
            text.sample(name, &[("fork", fork.fork.as_str())], value(fork));
        }
    }
    let operations = || {
        let forks = stats.mounted.iter();
        forks.flat_map(|fork| {
            let kinds = fork.operations.iter();
            kinds.map(move |(kind, operation)| {
                let labels = [("fork", fork.fork.as_str()), ("kind", kind.as_str())];
                (labels, operation)
            })
        })
    };
    text.describe(
        "tine_operations_total",
        "counter",
        "Requests of the kernel.",
    );
    for (labels, operation) in operations() {
        text.sample("tine_operations_total", &labels, operation.count);
    }
    let histogram = "tine_operation_seconds";
    text.describe(
        histogram,
        "histogram",
        "How long the daemon took for a request.",
    );
    for (labels, operation) in operations() {
        text.histogram(histogram, labels, operation);
    }
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn describe(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        let _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{}}} {value}", labels.join(","))
        };
    }

    fn histogram(&mut self, name: &str, labels: [(&str, &str); 2], operation: &OperationStats) {
        let [fork, kind] = labels;
        let mut seen = 0;
        for (class, count) in operation.latency.iter().enumerate() {
            seen += count;
            let bound =
                latency_bound_secs(class).map_or("+Inf".to_owned(), |bound| bound.to_string());
            self.sample(
                &format!("{name}_bucket"),
                &[fork, kind, ("le", &bound)],
                seen,
            );
        }
        self.sample(&format!("{name}_sum"), &labels, operation.total_secs);
        self.sample(&format!("{name}_count"), &labels, seen);
    }
}

/// Escapes a label's value as the format requires.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Serves the metrics at `address` until the process ends.
pub(super) fn serve(address: &str, read: &ReadStats, context: &Context) -> Result<Exit, Failure> {
    context.repository()?;
    let address = loopback(address)?;
    let failed = |error: std::io::Error| {
        Failure::new(ErrorCode::Io, format!("could not listen at {address}"))
            .cause(error.to_string())
            .hint(
                "another program may have the port: choose another one, or 0 for any that is free",
            )
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let url = format!("http://{}{PATH}", listener.local_addr().map_err(failed)?);
    context.output.json_or_text(&Serving { url: &url }, || {
        format!("serving {url} until interrupted\n")
    })?;
    let (heads, asked) = mpsc::channel();
    thread::Builder::new()
        .spawn(move || listen(&listener, &heads))
        .map_err(failed)?;
    for (mut stream, head) in asked {
        let (status, text) = match (head.method.as_str(), head.target.as_str()) {
            _ if !is_named_loopback(&head) => (403, "this machine alone is served\n".to_owned()),
            ("GET", PATH) => match stats::ask(context, read) {
                Ok(stats) => (200, text(stats.as_ref())),
                Err(failure) => (503, format!("{failure}\n")),
            },
            ("GET", _) => (404, format!("only {PATH} is here\n")),
            _ => (405, "only GET is understood\n".to_owned()),
        };
        let reply = Reply {
            status,
            media_type: CONTENT_TYPE,
            content: text.into_bytes(),
        };
        // The client may have closed the connection.
        if let Err(error) = reply.send(&mut stream, &[]) {
            log::debug!("a reply was not taken: {error}");
        }
    }
    Err(Failure::new(ErrorCode::Io, "no more requests come").hint("run it again"))
}

/// Reads request heads, one thread for each connection.
///
/// A client that sends nothing therefore blocks no other.
fn listen(listener: &TcpListener, heads: &mpsc::Sender<(TcpStream, RequestHead)>) {
    for stream in listener.incoming() {
        let heads = heads.clone();
        let read = move || {
            let mut stream = stream?;
            if let Some(head) = RequestHead::read(&mut stream)? {
                // The receiver lives as long as the process.
                let _ = heads.send((stream, head));
            }
            Ok::<(), std::io::Error>(())
        };
        let spawned = thread::Builder::new().spawn(move || {
            if let Err(error) = read() {
                log::debug!("a connection ended: {error}");
            }
        });
        if let Err(error) = spawned {
            log::warn!("a connection gets no thread: {error}");
        }
    }
}

/// Returns whether the request's `Host` is a loopback address or `localhost`.
///
/// Any other name could belong to a web page, which could then read the answer.
fn is_named_loopback(head: &RequestHead) -> bool {
    head.values("Host").all(|host| {
        host.parse::<SocketAddr>()
            .is_ok_and(|address| address.ip().is_loopback())
            || host.split(':').next() == Some("localhost")
    })
}

/// Parses `text` and requires a loopback address. Other machines must not see fork names.
fn loopback(text: &str) -> Result<SocketAddr, Failure> {
    let usage = |message: String| {
        Failure::new(ErrorCode::Usage, message)
            .hint("give a loopback address and a port: `--serve 127.0.0.1:9464`")
    };
    let mut addresses = text
        .to_socket_addrs()
        .map_err(|error| usage(format!("{text:?} is not an address")).cause(error.to_string()))?;
    match addresses.next() {
        Some(address) if address.ip().is_loopback() => Ok(address),
        Some(_) => Err(usage(format!("{text} can be reached by other machines"))),
        None => Err(usage(format!("{text:?} is not an address"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::git::{CacheStats, CacheUsage, CacheUses};
    use crate::store::ForkName;

    fn stats() -> Stats {
        let filling = CacheUsage { used: 5, limit: 10 };
        let read = OperationStats {
            count: 4,
            total_secs: 0.5,
            latency: vec![1, 2],
        };
        Stats {
            pid: 1,
            version: "x".to_owned(),
            uptime_secs: 1,
            memory_bytes: 7,
            forks: 2,
            caches: CacheStats {
                blobs: filling,
                directories: filling,
                large_directories: filling,
                spooled: filling,
            },
            blob_cache: CacheUses { hits: 3, misses: 1 },
            directory_cache: CacheUses::default(),
            mounted: vec![ForkStats {
                fork: ForkName::parse("demo").unwrap(),
                transport: "ring".to_owned(),
                elapsed_secs: 1.0,
                operations: BTreeMap::from([("read".to_owned(), read)]),
                read_bytes: 9,
                written_bytes: 0,
                remembered_nodes: 0,
                layer_nodes: 0,
                layer_names: 0,
                files: Vec::new(),
            }],
        }
    }

    #[test]
    fn the_text_is_what_a_scraper_reads() {
        let text = text(Some(&stats()));
        for line in [
            "tine_up 1",
            "tine_forks 2",
            "tine_cache_hits_total{cache=\"blobs\"} 3",
            "# TYPE tine_operation_seconds histogram",
            "tine_operations_total{fork=\"demo\",kind=\"read\"} 4",
            "tine_operation_seconds_bucket{fork=\"demo\",kind=\"read\",le=\"0.000001\"} 1",
            "tine_operation_seconds_bucket{fork=\"demo\",kind=\"read\",le=\"0.000002\"} 3",
            "tine_operation_seconds_sum{fork=\"demo\",kind=\"read\"} 0.5",
            "tine_operation_seconds_count{fork=\"demo\",kind=\"read\"} 3",
            "tine_read_bytes_total{fork=\"demo\"} 9",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(super::text(None).ends_with("tine_up 0\n"));
    }

    #[test]
    fn every_metric_is_described_once_before_its_first_sample() {
        let text = text(Some(&stats()));
        let mut described = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap();
                assert!(!described.contains(&name), "{name}");
                described.push(name);
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let known = described.last().unwrap();
                assert!(
                    name == *known || name.starts_with(&format!("{known}_")),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn labels_are_escaped_and_only_this_machine_is_served() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        assert!(loopback("127.0.0.1:0").is_ok());
        assert!(loopback("[::1]:0").is_ok());
        for refused in ["0.0.0.0:9464", "192.0.2.1:9464", "nonsense", "127.0.0.1"] {
            let failure = loopback(refused).unwrap_err();
            assert_eq!(failure.code, ErrorCode::Usage, "{refused}");
            assert!(failure.hint.is_some());
        }
    }
}
