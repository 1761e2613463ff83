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
    /// The process that starts or ends, and has no socket.
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
            tell(context, Some(running), Detail::Brief)?;
        }
        Action::Status(status) => {
            let running = running(context)?.map(ask).transpose()?;
            let detail = match status.requests {
                true => Detail::Requests,
                false => Detail::Figures,
            };
            match running {
                None => tell_of_silent(context)?,
                running => tell(context, running, detail)?,
            }
        }
        Action::Stop(verb) => stop(verb, context)?,
        Action::Run(run) => server::run(&run.store_of)?,
    }
    Ok(SUCCESS)
}

/// A connection to the daemon that runs, if one does.
fn running(context: &Context) -> Result<Option<Client>, Failure> {
    let client = Client::connect(context.repository()?.common_dir())?;
    Ok(client)
}

/// How long a daemon may take to get its socket, or to end after it is gone, before it is told of.
const SILENT_PATIENCE: Duration = Duration::from_secs(2);

/// Tells of a daemon that cannot be asked, or that there is none.
fn tell_of_silent(context: &Context) -> Result<(), Failure> {
    let common_dir = context.repository()?.common_dir();
    let Some(pid) = silent::find(common_dir, SILENT_PATIENCE)? else {
        // It may listen by now.
        let running = running(context)?.map(ask).transpose()?;
        return tell(context, running, Detail::Figures);
    };
    match context.output.is_json() {
        true => context.output.json(&State {
            silent_pid: Some(pid),
            ..State::default()
        }),
        false => context.output.text(&format!(
            "a daemon (process {pid}) starts or ends, and does not answer: `tine daemon stop --force` ends it\n"
        )),
    }
}

fn stop(stop: &Stop, context: &Context) -> Result<(), Failure> {
    context.step_out();
    let stopped = ending::stop(context.repository()?, stop.force)?;
    if context.output.is_json() {
        return tell(context, None, Detail::Brief);
    }
    context.output.text(match stopped {
        StopOutcome::Ended => "the daemon has ended\n",
        StopOutcome::Killed => "the daemon did not answer and was killed\n",
        StopOutcome::NotRunning => "no daemon runs\n",
    })
}

/// Who a daemon is and what it holds; one of another version says who it is, and no more.
fn ask(mut connection: Client) -> Result<(DaemonInfo, Option<Metrics>), Failure> {
    let info = connection.call(&ops::DaemonStatus {})?;
    let figures = match info.protocol == PROTOCOL_VERSION {
        true => Some(connection.call(&ops::ReadMetrics {})?),
        false => None,
    };
    Ok((info, figures))
}

/// How much a person is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Brief,
    Figures,
    /// The figures, and what each mount was asked.
    Requests,
}

fn tell(
    context: &Context,
    running: Option<(DaemonInfo, Option<Metrics>)>,
    detail: Detail,
) -> Result<(), Failure> {
    let Some((info, figures)) = running else {
        return match context.output.is_json() {
            true => context.output.json(&State::default()),
            false => context.output.text("no daemon runs\n"),
        };
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
    context.output.text(&described(&figures))?;
    match detail {
        Detail::Requests => context.output.text(&requests(&figures.mounted)),
        Detail::Brief | Detail::Figures => Ok(()),
    }
}

/// What each mount was asked, most frequent first.
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

/// The figures as a table.
fn described(figures: &Metrics) -> String {
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
