//! `tine daemon`: the process that serves the mounts of a repository.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::client::ending::{self, StopOutcome};
use crate::client::{Client, silent};
use crate::daemon::server;
use crate::git::{CacheStats, CacheUsage};
use crate::ops;
use crate::ops::protocol::{DaemonInfo, Metrics, MountMetrics, PROTOCOL_VERSION};
use crate::ops::{Failure, Stop};
use crate::render::text::{counted, human_size};

/// Start, stop or look at the daemon that serves the repository's forks
///
/// Every command that needs it starts it; there is one for each repository. A daemon that starts
/// mounts again what was mounted when the last one ended.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine daemon status
  tine daemon stop")]
pub(super) struct Daemon {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    Start(Start),
    Stop(Stop),
    Status(Status),
    #[command(hide = true)]
    Run(Run),
}

/// Start the daemon if none runs
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine daemon start")]
pub(super) struct Start {}

/// Show whether a daemon runs, and what it serves
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine daemon status --json | jq .running
  tine daemon status --requests")]
pub(super) struct Status {
    /// Count what the kernel asked of each mount since it was mounted
    #[arg(long)]
    pub requests: bool,
}

/// Be the daemon, in the foreground
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine daemon run --store-of /path/to/repository/.git")]
pub(super) struct Run {
    /// The repository's common git directory
    #[arg(long, value_name = "DIR")]
    pub store_of: PathBuf,
}

#[derive(Default, Serialize)]
struct State {
    running: bool,
    /// Process that is starting or ending and has no socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_pid: Option<u32>,
    #[serde(flatten)]
    info: Option<DaemonInfo>,
    #[serde(flatten)]
    figures: Option<Metrics>,
}

pub(super) fn run(verb: &Daemon, context: &Context) -> Result<Exit, Failure> {
    match &verb.action {
        Action::Start(_) => {
            let running = ask(context.connect()?)?;
            print_status(context, Some(running), Detail::Brief)?;
        }
        Action::Status(status) => {
            let running = running(context)?.map(ask).transpose()?;
            let detail = if status.requests {
                Detail::Requests
            } else {
                Detail::Figures
            };
            match running {
                None => print_silent(context)?,
                running => print_status(context, running, detail)?,
            }
        }
        Action::Stop(verb) => stop(verb, context)?,
        Action::Run(run) => server::run(&run.store_of)?,
    }
    Ok(SUCCESS)
}

/// Connects to the running daemon, if there is one.
fn running(context: &Context) -> Result<Option<Client>, Failure> {
    let client = Client::connect(context.repository()?.common_dir())?;
    Ok(client)
}

/// Time after which a starting or ending daemon counts as silent.
const SILENT_PATIENCE: Duration = Duration::from_secs(2);

/// Reports a daemon that does not answer, or that there is none.
fn print_silent(context: &Context) -> Result<(), Failure> {
    let common_dir = context.repository()?.common_dir();
    let Some(pid) = silent::find(common_dir, SILENT_PATIENCE)? else {
        // It may have begun to listen meanwhile.
        let running = running(context)?.map(ask).transpose()?;
        return print_status(context, running, Detail::Figures);
    };
    let state = State {
        silent_pid: Some(pid),
        ..State::default()
    };
    context.output.json_or_text(&state, || format!(
        "a daemon (process {pid}) starts or ends, and does not answer: `tine daemon stop --force` ends it\n"
    ))
}

fn stop(stop: &Stop, context: &Context) -> Result<(), Failure> {
    context.step_out();
    let stopped = ending::stop(context.repository()?, stop.force)?;
    if context.output.is_json() {
        return print_status(context, None, Detail::Brief);
    }
    context.output.text(match stopped {
        StopOutcome::Ended => "the daemon has ended\n",
        StopOutcome::Killed => "the daemon did not answer and was killed\n",
        StopOutcome::NotRunning => "no daemon runs\n",
    })
}

/// Asks a daemon for its identity and its figures.
///
/// A daemon of another version gives its identity only.
fn ask(mut connection: Client) -> Result<(DaemonInfo, Option<Metrics>), Failure> {
    let info = connection.call(&ops::DaemonStatus {})?;
    let figures = if info.protocol == PROTOCOL_VERSION {
        Some(connection.call(&ops::ReadMetrics {})?)
    } else {
        None
    };
    Ok((info, figures))
}

/// Amount of detail in the text output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Brief,
    Figures,
    /// The figures, and each mount's number of requests by kind.
    Requests,
}

fn print_status(
    context: &Context,
    running: Option<(DaemonInfo, Option<Metrics>)>,
    detail: Detail,
) -> Result<(), Failure> {
    let Some((info, figures)) = running else {
        return context
            .output
            .json_or_text(&State::default(), || "no daemon runs\n".to_owned());
    };
    if context.output.is_json() {
        return context.output.json(&State {
            running: true,
            silent_pid: None,
            info: Some(info),
            figures,
        });
    }
    context.output.text(&format!(
        "the daemon runs (process {}, version {}): {}, {}, {} of memory\n",
        info.pid,
        info.version,
        counted(info.forks, "fork"),
        counted(info.mounts, "mount"),
        human_size(info.memory_bytes),
    ))?;
    let Some(figures) = figures.filter(|_| detail != Detail::Brief) else {
        return Ok(());
    };
    context.output.text(&format_figures(&figures))?;
    match detail {
        Detail::Requests => context.output.text(&requests(&figures.mounted)),
        Detail::Brief | Detail::Figures => Ok(()),
    }
}

/// Formats the requests of each mount, most frequent first.
fn requests(mounted: &[MountMetrics]) -> String {
    let mut text = String::new();
    for mount in mounted {
        let total: u64 = mount.requests.values().sum();
        text.push_str(&format!(
            "  {:<28}{total}\n",
            format!("requests to {}", mount.fork)
        ));
        let mut counts: Vec<(&String, &u64)> = mount.requests.iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (kind, count) in counts {
            text.push_str(&format!("    {kind:<26}{count}\n"));
        }
    }
    text
}

/// Formats the figures as a table.
fn format_figures(figures: &Metrics) -> String {
    let CacheStats {
        blobs,
        directories,
        large_directories,
        spooled,
    } = figures.caches;
    let bytes = |filling: CacheUsage| {
        format!(
            "{} of {}",
            human_size(filling.used),
            human_size(filling.limit)
        )
    };
    let lines = [
        (
            "nodes the kernel remembers",
            figures.remembered_nodes.to_string(),
        ),
        (
            "nodes and names in layers",
            format!("{} and {}", figures.layer_nodes, figures.layer_names),
        ),
        ("blobs in memory", bytes(blobs)),
        ("base directories in memory", bytes(directories)),
        (
            "huge base directories",
            format!("{} of {}", large_directories.used, large_directories.limit),
        ),
        (
            "large blobs in files",
            format!("{} of {}", spooled.used, spooled.limit),
        ),
        ("threads", figures.threads.to_string()),
        (
            "open files",
            format!("{} of {}", figures.open_files, figures.open_files_limit),
        ),
    ];
    let transports = [
        ("ring", "served through io_uring"),
        ("device", "served through /dev/fuse"),
    ];
    let transports = transports.map(|(transport, what)| {
        let of_it = figures
            .mounted
            .iter()
            .filter(|mount| mount.transport == transport);
        let forks: Vec<&str> = of_it.map(|mount| mount.fork.as_str()).collect();
        (what, forks.join(", "))
    });
    lines
        .into_iter()
        .chain(
            transports
                .into_iter()
                .filter(|(_, forks)| !forks.is_empty()),
        )
        .map(|(what, value)| format!("  {what:<28}{value}\n"))
        .collect()
}
