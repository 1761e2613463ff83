//! `tine check`: checks that the store is whole.

use super::context::Context;
use super::output::{Output, Tone};
use super::{Exit, SUCCESS};
use crate::client::Client;
use crate::git::Repository;
use crate::ops::protocol::{SetAsideList, StoreChecked};
use crate::ops::{ExitCode, Failure};
use crate::render::text::{counted, human_size, one_line};
use crate::store::Store;
use crate::store::{CheckReport, Checked, Finding};
use crate::{change, ops};

/// Check that everything the forks need is there and whole
///
/// Reads every record, log and content of the store, and looks for the objects and refs that it
/// needs in the repository. One finding is one line, with a hint. It ends with exit code 1 where
/// something is left that is not as it must be.
///
/// With --repair it sets refs again where the commit is known, registers worktrees again, frees
/// what nothing reaches, and moves damaged records to damaged/ in the store, with all that only
/// they may name. A fork whose newest layer is damaged goes back to what was written before the
/// damage; a copy of the layer is kept. It removes nobody's work: --dry-run says what it would do,
/// --set-aside lists what it moved, and --put-back brings that back. A record that cannot be read,
/// because it is another user's for example, may be whole and stays where it is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine check
  tine check --repair --dry-run
  tine check --repair
  tine check --put-back 1
  tine check --json | jq -r '.findings[] | .kind + \" \" + .what'")]
// Without `skip`, clap's group would have the same name as the operation's group.
#[group(skip)]
pub(super) struct Check {
    #[command(flatten)]
    pub check: ops::Check,

    /// List what repairs moved aside
    #[arg(long, conflicts_with_all = ["repair", "put_back"])]
    pub set_aside: bool,

    /// Bring back what the repair of this number moved aside
    #[arg(long, value_name = "NUMBER", conflicts_with = "repair")]
    pub put_back: Option<u64>,
}

pub(super) fn run(verb: &Check, context: &Context) -> Result<Exit, Failure> {
    if verb.set_aside || verb.put_back.is_some() {
        return run_aside(verb.put_back, context);
    }
    let busy = context.output.busy("checking");
    let checked = checked(context.repository()?, &verb.check)?;
    drop(busy);
    context
        .output
        .json_or_text(&checked, || format_report(&checked.report, &context.output))?;
    Ok(if checked.ok {
        SUCCESS
    } else {
        ExitCode::Failure.code()
    })
}

/// Checks the store in the daemon, which knows what is being written.
///
/// Without a daemon this process checks it, so that nothing is mounted or cleaned up before the
/// check.
pub(super) fn checked(
    repository: &Repository,
    check: &ops::Check,
) -> Result<StoreChecked, Failure> {
    if !Store::dir_of(repository).exists() {
        return Ok(CheckReport::default().into());
    }
    if let Some(mut client) = Client::connect(repository.common_dir())? {
        return client.call(check);
    }
    let store = Store::open_as_found(repository)?;
    Ok(change::check::check(&store, repository, check.options())?.into())
}

/// Lists the data that repairs moved aside, after putting back number `put_back`.
fn run_aside(put_back: Option<u64>, context: &Context) -> Result<Exit, Failure> {
    let repository = context.repository()?;
    let report = match Client::connect(repository.common_dir())? {
        Some(mut client) => {
            let request = ops::ListSetAside { put_back };
            client.call(&request)?
        }
        None if !Store::dir_of(repository).exists() => SetAsideList {
            put_back: None,
            set_aside: Vec::new(),
        },
        None => {
            let store = Store::open_as_found(repository)?;
            SetAsideList {
                put_back: put_back.map(|number| store.put_back(number)).transpose()?,
                set_aside: store.set_aside()?,
            }
        }
    };
    if context.output.is_json() {
        context.output.json(&report)?;
        return Ok(SUCCESS);
    }
    let mut text = String::new();
    for path in report.put_back.iter().flat_map(|back| &back.paths) {
        text.push_str(&format!("put back {}\n", one_line(path)));
    }
    for path in report.put_back.iter().flat_map(|back| &back.left) {
        text.push_str(&format!("left {}: its fork is gone\n", one_line(path)));
    }
    if report.put_back.is_none() {
        for aside in &report.set_aside {
            let paths = one_line(&aside.paths.join(", "));
            text.push_str(&format!("{}  {paths}\n", aside.number));
        }
        if report.set_aside.is_empty() {
            text.push_str("nothing is set aside\n");
        }
    }
    context.output.text(&text)?;
    Ok(SUCCESS)
}

fn format_report(report: &CheckReport, output: &Output) -> String {
    let left = report
        .findings
        .iter()
        .filter(|finding| finding.repaired.is_none())
        .count();
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
        (_, 0) => output.paint(
            Tone::Bad,
            &format!("{} to look after", counted(left, "thing")),
        ),
        (_, _) => output.paint(
            Tone::Bad,
            &format!(
                "{repaired} put right, {} to look after",
                counted(left, "thing")
            ),
        ),
    });
    text.push('\n');
    text
}

fn line_of(finding: &Finding, output: &Output) -> String {
    let (tone, rest) = match &finding.repaired {
        Some(done) => (Tone::Good, format!("     repaired: {}\n", one_line(done))),
        None if finding.planned.is_some() => {
            let planned = finding.planned.as_deref().unwrap_or_default();
            (
                Tone::Careful,
                format!("     --repair would {}\n", one_line(planned)),
            )
        }
        None if finding.kind.is_leak() => (
            Tone::Careful,
            format!("     hint: {}\n", one_line(&finding.hint)),
        ),
        None => (
            Tone::Bad,
            format!("     hint: {}\n", one_line(&finding.hint)),
        ),
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
