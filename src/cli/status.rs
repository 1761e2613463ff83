//! `tine status`: lists a fork's changes against its HEAD.

use clap_complete::engine::ArgValueCompleter;

use super::context::Context;
use super::list::{note_refused, note_strays, note_trees};
use super::output::{Output, Tone};
use super::{Exit, SUCCESS, completing};
use crate::change::ChangeKind;
use crate::ops::Failure;
use crate::ops::protocol::{ChangeLine, Changes, ForkInfo};
use crate::render::text::{counted, quoted, short_id};

/// Show what changed in a fork since its last commit
///
/// One line a path, as `git add -A` would take it: A added, M modified, D deleted, T changed its
/// type. What git ignores is left out. It costs as much as there are changes, however large the
/// tree is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine status fix-parser
  tine status --json | jq -r '.changes[].path'     inside the fork's mount")]
pub(super) struct Status {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(completing::forks))]
    pub name: Option<String>,
}

pub(super) fn run(verb: &Status, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    let changes = connection.changes(&name, false)?;
    if context.output.is_json() {
        context.output.json(&changes)?;
        return Ok(SUCCESS);
    }
    let fork = connection.show(&name)?;
    if let Some(trouble) = &changes.trouble {
        context.output.note(&trouble.to_string());
    }
    context
        .output
        .text(&format_status(&fork, &changes, &context.output))?;
    note_refused(&name, &changes.refused, &context.output);
    note_strays(&fork, &mut connection, &context.output);
    note_trees(&name, changes.trees.iter(), &context.output);
    if let Some(operation) = changes.operation.as_deref().filter(|_| !fork.mounted) {
        let end = match operation {
            "bisect" => "`git bisect reset` ends it there".to_owned(),
            _ => format!("`git {operation} --continue` or `git {operation} --abort` ends it there"),
        };
        context.output.note(&format!(
            "a {operation} is under way in it, so nothing can be committed: `tine mount {name}` mounts it, {end}"
        ));
    } else if !fork.mounted && !changes.changes.is_empty() {
        context.output.note(&format!(
            "`tine commit {name} -m MESSAGE` commits them, `tine mount {name}` goes on with them"
        ));
    }
    Ok(SUCCESS)
}

fn format_status(fork: &ForkInfo, changes: &Changes, output: &Output) -> String {
    let place = match &changes.branch {
        Some(branch) => format!("on branch {}", output.paint(Tone::Name, branch)),
        None => "with a detached HEAD".to_owned(),
    };
    let stand = match (&changes.head_commit, &fork.fork_point) {
        (None, _) => "no commits yet".to_owned(),
        (Some(head), Some(base)) if head == base => {
            format!("HEAD {}, its fork point", short_id(head))
        }
        (Some(head), Some(base)) => {
            format!("HEAD {}, fork point {}", short_id(head), short_id(base))
        }
        (Some(head), None) => format!("HEAD {}", short_id(head)),
    };
    let mount = if fork.mounted { "" } else { ", not mounted" };
    let trust = if changes.untrusted { ", untrusted" } else { "" };
    let mut text = format!("fork {} {place} ({stand}){mount}{trust}\n", fork.name);
    for change in &changes.changes {
        text.push_str(&change_text(change, output));
    }
    for path in &changes.left_out {
        text.push_str(&format!(
            "! {} (left out: git cannot hold it)\n",
            quoted(path)
        ));
    }
    for path in &changes.in_buffers {
        text.push_str(&format!(
            "b {} (an agent's text in an open buffer only)\n",
            quoted(path)
        ));
    }
    match changes.changes.len() {
        0 => text.push_str("nothing to commit\n"),
        count => text.push_str(&format!("{}\n", counted(count, "change"))),
    }
    text
}

/// Formats one change as a letter and a path.
pub(super) fn change_text(change: &ChangeLine, output: &Output) -> String {
    let tone = match change.kind {
        ChangeKind::Added => Tone::Good,
        ChangeKind::Deleted => Tone::Bad,
        ChangeKind::Modified | ChangeKind::TypeChanged => Tone::Careful,
    };
    let letter = output.paint(tone, change.kind.letter());
    format!("{letter} {}\n", quoted(&change.path))
}
