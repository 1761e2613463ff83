//! `tine check`: whether the store is whole.

use serde::Serialize;

use super::context::{Connection, Context, only};
use super::output::{Output, Tone, counted, human_size, one_line};
use super::{Exit, SUCCESS};
use crate::change;
use crate::daemon::protocol::{Answer, Request};
use crate::daemon::{Client, ExitCode, Failure};
use crate::git::Repository;
use crate::workspace::Store;
use crate::workspace::store::{CheckOptions, CheckReport, Checked, Depth, Finding};

/// Check that everything the forks need is there and whole
///
/// Reads every record, log and content of the store, and looks for the objects and refs that it needs in the repository.
/// One finding is one line, with a hint. It ends with exit code 1 where something is left that is not as it must be.
///
/// With --repair it sets refs anew where the commit is known, registers worktrees again, frees what nothing reaches, and
/// moves records that cannot be read to damaged/ in the store, with all that only they may name. It removes nobody's work.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine check
  tine check --repair
  tine check --json | jq -r '.findings[] | .kind + \" \" + .what'")]
pub struct Check {
    /// Put right what can be
    #[arg(long)]
    pub repair: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    #[serde(flatten)]
    report: &'a CheckReport,
}

pub fn run(check: &Check, context: &Context) -> Result<Exit, Failure> {
    let options = CheckOptions {
        depth: Depth::Bytes,
        repair: check.repair,
    };
    let busy = context.output.busy("checking");
    let report = checked(context.repository()?, options)?;
    drop(busy);
    let left = report
        .findings
        .iter()
        .filter(|finding| finding.repaired.is_none());
    let left = left.count();
    match context.output.is_json() {
        true => context.output.json(&Report {
            ok: left == 0,
            report: &report,
        })?,
        false => context.output.text(&told(&report, left, &context.output))?,
    }
    Ok(if left == 0 {
        SUCCESS
    } else {
        ExitCode::Failure.code()
    })
}

/// By the daemon, which knows what is being written; without one by this process, so that nothing is mounted or cleared away
/// before it was seen.
pub fn checked(repository: &Repository, options: CheckOptions) -> Result<CheckReport, Failure> {
    if !Store::dir_of(repository).exists() {
        return Ok(CheckReport::default());
    }
    if let Some(client) = Client::connect(repository.common_dir())? {
        let request = Request::Check {
            repair: options.repair,
            brief: options.depth == Depth::Places,
        };
        return Connection::over(client).ask(&request, only!(Answer::Checked(report) => report));
    }
    let store = Store::open_as_found(repository)?;
    Ok(change::check::check(&store, repository, options)?)
}

fn told(report: &CheckReport, left: usize, output: &Output) -> String {
    let mut text: String = report
        .findings
        .iter()
        .map(|finding| line_of(finding, output))
        .collect();
    let Checked {
        forks,
        snapshots,
        layers,
        contents,
        content_bytes,
        records,
    } = report.checked;
    let many = |count: u64, one: &str| counted(usize::try_from(count).unwrap_or(usize::MAX), one);
    text.push_str(&format!(
        "checked {}, {}, {}, {} ({}), {}: ",
        many(forks, "fork"),
        many(snapshots, "snapshot"),
        many(layers, "layer"),
        many(contents, "content"),
        human_size(content_bytes),
        many(records, "other record"),
    ));
    let repaired = report.findings.len() - left;
    text.push_str(&match (left, repaired) {
        (0, 0) => output.paint(Tone::Good, "all is whole"),
        (0, _) => output.paint(Tone::Good, &format!("{repaired} put right, all is whole")),
        (_, 0) => output.paint(Tone::Bad, &format!("{} to look after", counted(left, "thing"))),
        (_, _) => output.paint(
            Tone::Bad,
            &format!("{repaired} put right, {} to look after", counted(left, "thing")),
        ),
    });
    text.push('\n');
    text
}

fn line_of(finding: &Finding, output: &Output) -> String {
    let (tone, rest) = match &finding.repaired {
        Some(done) => (Tone::Good, format!("     repaired: {}\n", one_line(done))),
        None if finding.kind.is_leak() => {
            (Tone::Careful, format!("     hint: {}\n", one_line(&finding.hint)))
        }
        None => (Tone::Bad, format!("     hint: {}\n", one_line(&finding.hint))),
    };
    let fork = finding
        .fork
        .as_ref()
        .map_or(String::new(), |fork| format!("{fork}: "));
    format!(
        "{} {fork}{}: {}\n{rest}",
        output.paint(tone, finding.kind.word()),
        one_line(&finding.what),
        one_line(&finding.detail)
    )
}
