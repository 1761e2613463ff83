//! `tine commit`: commits what changed in a fork, with hooks and identities as `git commit` has them.

use std::path::Path;

use super::context::Context;
use super::output::Tone;
use super::{Exit, SUCCESS};
use crate::client;
use crate::client::commit::CommitWish;
use crate::client::commit::note_agent_texts;
use crate::client::commit::note_skipped;
pub use crate::client::hooks::HookOutput;
use crate::git::program;
use crate::ops::Failure;
use crate::ops::protocol::Committed;
use crate::render::text::{counted, one_line, quoted, short_id};

/// Commit what changed in a fork
///
/// Everything that `git add -A` would take is committed to the branch the fork is on, and the worktree's index follows. It
/// costs as much as there are changes, however large the tree is. Hooks run as with `git commit`, where the fork is
/// mounted.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine commit fix-parser -m 'Fix the parser'
  tine commit -m 'Fix the parser' -m 'It forgot the last line.'     inside the fork's mount
  tine commit try -m wip --author 'Ada <ada@example.org>' --no-verify")]
pub struct Commit {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// The commit's message; given again, another paragraph of it
    #[arg(short, long, value_name = "MSG", required = true)]
    pub message: Vec<String>,

    /// The author, if it is not you: 'Name <address>', or a part of an earlier author's
    #[arg(long, value_name = "AUTHOR")]
    pub author: Option<String>,

    /// Skip the hooks pre-commit and commit-msg
    #[arg(long)]
    pub no_verify: bool,

    /// Commit also what takes commits of others back, after `tine restore --exact`
    #[arg(long)]
    pub allow_revert: bool,
}

pub fn run(verb: &Commit, context: &Context) -> Result<Exit, Failure> {
    let wish = CommitWish {
        message: verb.message.join("\n\n"),
        author: verb.author.as_deref(),
        no_verify: verb.no_verify,
        allow_revert: verb.allow_revert,
        hook_output: HookOutput::Shown,
    };
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    let fork = connection.show(&name)?;
    let made = client::commit::make(context, &mut connection, &fork, wish, &|| Ok(()))?;
    if made.hooks_skipped && !verb.no_verify {
        note_skipped(context);
    }
    tell(&made.committed, context.repository()?.common_dir(), context)?;
    Ok(SUCCESS)
}

fn tell(committed: &Committed, common_dir: &Path, context: &Context) -> Result<(), Failure> {
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

/// `2 files changed, 3 insertions(+)`, as git counts; `None` where it does not tell. The commit stands either way.
fn short_stat(commit: &str, common_dir: &Path) -> Option<String> {
    let mut command = program::command(common_dir);
    command.args(["diff-tree", "--shortstat", "--root", "--no-commit-id", commit]);
    let printed = program::run(&mut command, b"").ok()?;
    let counts = String::from_utf8_lossy(&printed).trim().to_owned();
    (!counts.is_empty()).then_some(counts)
}
