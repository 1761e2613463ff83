//! `tine commit`: commits what changed in a fork, with hooks and identities as `git commit` has them.

use std::path::Path;

use super::buffer::note_agent_texts;
use super::context::{Connection, Context};
pub use super::hooks::HookOutput;
use super::hooks::{COMMIT_HOOKS, Hooks};
use super::output::{Tone, counted, one_line, quoted, short_id};
use super::{Exit, SUCCESS, identity, merge_hooks};
use crate::git::{CallerConfig, program};
use crate::ops;
use crate::ops::protocol::{Committed, ForkInfo};
use crate::ops::{ErrorCode, Failure, Signers};
use crate::workspace::ForkName;

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
    wish.check()?;
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    let fork = connection.show(&name)?;
    let made = make(context, &mut connection, &fork, wish, &|| Ok(()))?;
    if made.hooks_skipped && !verb.no_verify {
        note_skipped(context);
    }
    tell(&made.committed, context.repository()?.common_dir(), context)?;
    Ok(SUCCESS)
}

/// What is to be committed, and how.
pub struct CommitWish<'a> {
    pub message: String,
    /// As `--author` takes it.
    pub author: Option<&'a str>,
    pub no_verify: bool,
    pub allow_revert: bool,
    pub hook_output: HookOutput,
}

impl CommitWish<'_> {
    fn check(&self) -> Result<(), Failure> {
        match self.message.trim().is_empty() {
            true => Err(
                Failure::new(ErrorCode::EmptyMessage, "the commit message is empty")
                    .hint("say what was done: `tine commit -m MESSAGE`"),
            ),
            false => Ok(()),
        }
    }
}

/// A commit that was made.
pub struct Made {
    pub committed: Committed,
    /// There are hooks, and they did not run because the fork is not mounted.
    pub hooks_skipped: bool,
}

/// Commits what changed in the fork, with its hooks. `go_on` is asked when they have run.
pub fn make(
    context: &Context,
    connection: &mut Connection,
    fork: &ForkInfo,
    wish: CommitWish<'_>,
    go_on: &dyn Fn() -> Result<(), Failure>,
) -> Result<Made, Failure> {
    wish.check()?;
    let common_dir = context.repository()?.common_dir();
    // Where the fork is mounted git finds its own configuration and hooks there.
    let dir = if fork.mounted {
        fork.mount_dir.as_path()
    } else {
        common_dir
    };
    let config = CallerConfig::of(dir);
    let committer = identity::committer(dir, config.as_ref())?;
    let author = identity::author(dir, config.as_ref(), wish.author)?;

    let hooks = Hooks::find(dir, config.as_ref(), &author, wish.hook_output, &COMMIT_HOOKS)?;
    let hooks_skipped = !hooks.is_empty() && !fork.mounted;
    let hooks = prepare_hooks(connection, fork, hooks)?;
    let message = match &hooks {
        Some(hooks) => {
            if !wish.no_verify {
                hooks.pre_commit()?;
            }
            hooks.message(wish.message, !wish.no_verify)?
        }
        None => wish.message,
    };
    go_on()?;
    let allow_revert = wish.allow_revert;
    let request = ops::Commit {
        fork: fork.name.clone(),
        message,
        allow_revert,
    };
    let signers = Signers {
        author: Some(author),
        committer: Some(committer),
    };
    let committed = connection.call_as(&request, &signers)?;
    if let Some(hooks) = hooks {
        hooks.post_commit();
    }
    Ok(Made {
        committed,
        hooks_skipped,
    })
}

/// Commits what is uncommitted in the fork for a command that would have the daemon commit it, which runs no hooks; the commit, if one
/// was made. Does nothing where the repository has no hooks.
pub fn commit_first(
    context: &Context,
    connection: &mut Connection,
    fork: &ForkName,
    wish: CommitWish<'_>,
) -> Result<Option<String>, Failure> {
    let no_verify = wish.no_verify;
    let changes = connection.changes(fork, false)?;
    let is_clean = changes.changes.is_empty() && changes.in_buffers.is_empty();
    if is_clean || !merge_hooks::are_there(context)? {
        return Ok(None);
    }
    let info = connection.show(fork)?;
    let made = match make(context, connection, &info, wish, &|| Ok(())) {
        // It is in buffers, and fits no file.
        Err(failure) if failure.code == ErrorCode::NothingToCommit => return Ok(None),
        made => made?,
    };
    if made.hooks_skipped && !no_verify {
        note_skipped(context);
    }
    note_agent_texts(&context.output, &made.committed.agent_texts);
    Ok(Some(made.committed.commit))
}

fn note_skipped(context: &Context) {
    context
        .output
        .note("the hooks are skipped: the fork is not mounted, and they need a checkout");
}

/// The hooks that are to run, with the index that they see; `None` where there is nothing to run them for.
fn prepare_hooks(
    connection: &mut Connection,
    fork: &ForkInfo,
    mut hooks: Hooks,
) -> Result<Option<Hooks>, Failure> {
    if hooks.is_empty() || !fork.mounted {
        return Ok(None);
    }
    let changes = connection.changes(&fork.name, true)?;
    match changes.view_tree {
        // Where nothing changed there is nothing to ask the hooks about, and the daemon refuses.
        Some(view_tree) if !changes.changes.is_empty() => {
            hooks.give_index(&view_tree)?;
            Ok(Some(hooks))
        }
        _ => Ok(None),
    }
}

fn tell(committed: &Committed, common_dir: &Path, context: &Context) -> Result<(), Failure> {
    let output = &context.output;
    for path in &committed.left_out {
        output.note(&format!("{} is left out: git cannot hold it", quoted(path)));
    }
    note_agent_texts(output, &committed.agent_texts);
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
