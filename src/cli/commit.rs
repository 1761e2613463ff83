//! `tine commit`: commits a fork's changes with `git commit`'s hooks and identities.

use std::path::Path;

use super::context::Context;
use super::output::Tone;
use super::{Exit, SUCCESS};
use crate::client::commit::{self, CommitWithHooks, note_agent_texts, note_skipped};
pub(super) use crate::client::hooks::HookOutput;
use crate::git::program;
use crate::ops::Failure;
use crate::ops::protocol::Committed;
use crate::render::text::{counted, one_line, quoted, short_id};

pub(super) fn run(verb: &CommitWithHooks, context: &Context) -> Result<Exit, Failure> {
    verb.check()?;
    let (mut connection, name) = context.connect_to(verb.operation.fork.as_ref())?;
    let fork = connection.show(&name)?;
    let made = commit::make(
        context,
        &mut connection,
        &fork,
        verb.clone(),
        HookOutput::Shown,
        &|| Ok(()),
    )?;
    if made.hooks_skipped && !verb.no_verify {
        note_skipped(context);
    }
    print_committed(&made.committed, context.repository()?.common_dir(), context)?;
    Ok(SUCCESS)
}

fn print_committed(
    committed: &Committed,
    common_dir: &Path,
    context: &Context,
) -> Result<(), Failure> {
    let output = &context.output;
    for path in &committed.left_out {
        output.note(&format!("{} is left out: git cannot hold it", quoted(path)));
    }
    note_agent_texts(context, &committed.agent_texts);
    if output.is_json() {
        return output.json(committed);
    }
    let place = committed.branch.as_deref().unwrap_or("detached HEAD");
    let root = if committed.parent.is_none() {
        " (root-commit)"
    } else {
        ""
    };
    let id = output.paint(Tone::Careful, short_id(&committed.commit));
    let counts = short_stat(&committed.commit, common_dir)
        .unwrap_or_else(|| counted(committed.changes.len(), "file") + " changed");
    output.text(&format!(
        "[{place}{root} {id}] {}\n {counts}\n",
        one_line(&committed.summary)
    ))
}

/// Returns `2 files changed, 3 insertions(+)`, as git counts.
///
/// `None` if git fails, which does not affect the commit.
fn short_stat(commit: &str, common_dir: &Path) -> Option<String> {
    let mut command = program::command(common_dir);
    command.args([
        "diff-tree",
        "--shortstat",
        "--root",
        "--no-commit-id",
        commit,
    ]);
    let printed = program::run(&mut command, b"").ok()?;
    let counts = String::from_utf8_lossy(&printed).trim().to_owned();
    (!counts.is_empty()).then_some(counts)
}
