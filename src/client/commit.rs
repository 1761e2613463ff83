//! Committing as `git commit` does: with hooks and identities.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::hooks::{COMMIT_HOOKS, HookOutput, Hooks};
use crate::place::Place;
use crate::{Client, identity, merging};
use tine_git::CallerConfig;
use tine_ops::protocol::{AgentTexts, Committed, ForkInfo};
use tine_ops::{self as ops, ErrorCode, Failure, Signers};
use tine_render::text::quoted;
use tine_workspace::ForkName;

/// Commit what changed in a fork
///
/// Everything that `git add -A` would take is committed to the branch the fork is on, and the
/// worktree's index follows. It costs as much as there are changes, however large the tree is.
/// Hooks run as with `git commit`, where the fork is mounted.
#[derive(Debug, Clone, clap::Args, Deserialize, JsonSchema)]
#[group(skip)]
#[command(after_long_help = "\
Examples:
  tine commit fix-parser -m 'Fix the parser'
  tine commit -m 'Fix the parser' -m 'It forgot the last line.'     inside the fork's mount
  tine commit try -m wip --author 'Ada <ada@example.org>' --no-verify")]
pub struct CommitWithHooks {
    #[command(flatten)]
    #[serde(flatten)]
    pub operation: ops::Commit,

    /// The author, if it is not you: 'Name <address>', or a part of an earlier author's
    #[arg(long, value_name = "AUTHOR")]
    #[serde(default)]
    pub author: Option<String>,

    /// Skip the hooks pre-commit and commit-msg
    #[arg(long)]
    #[serde(default)]
    pub no_verify: bool,
}

impl CommitWithHooks {
    /// Everything with this message, where nothing else is said.
    pub fn of(message: String) -> CommitWithHooks {
        CommitWithHooks {
            operation: ops::Commit {
                fork: None,
                message: vec![message],
                allow_revert: false,
            },
            author: None,
            no_verify: false,
        }
    }

    /// Refuses an empty message.
    ///
    /// # Errors
    /// `empty-message`.
    pub fn check(&self) -> Result<(), Failure> {
        let is_empty = |paragraph: &String| paragraph.trim().is_empty();
        match self.operation.message.iter().all(is_empty) {
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
    place: &Place,
    connection: &mut Client,
    fork: &ForkInfo,
    commit: CommitWithHooks,
    output: HookOutput,
    go_on: &dyn Fn() -> Result<(), Failure>,
) -> Result<Made, Failure> {
    commit.check()?;
    let common_dir = place.repository()?.common_dir();
    // Where the fork is mounted git finds its own configuration and hooks there.
    let dir = if fork.mounted {
        fork.mount_dir.as_path()
    } else {
        common_dir
    };
    let config = CallerConfig::of(dir);
    let committer = identity::committer(dir, config.as_ref())?;
    let author = identity::author(dir, config.as_ref(), commit.author.as_deref())?;

    let hooks = Hooks::find(dir, config.as_ref(), &author, output, &COMMIT_HOOKS)?;
    let hooks_skipped = !hooks.is_empty() && !fork.mounted;
    let hooks = prepare_hooks(connection, fork, hooks)?;
    let mut message = commit.operation.message.join("\n\n");
    if let Some(hooks) = &hooks {
        if !commit.no_verify {
            hooks.pre_commit()?;
        }
        message = hooks.message(message, !commit.no_verify)?;
    }
    go_on()?;
    let request = ops::Commit {
        fork: Some(fork.name.clone()),
        message: vec![message],
        ..commit.operation
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

/// Commits what is uncommitted in the fork for a command that would have the daemon commit it,
/// which runs no hooks; the commit, if one was made. Does nothing where the repository has no
/// hooks.
pub fn commit_first(
    place: &Place,
    connection: &mut Client,
    fork: &ForkName,
    commit: CommitWithHooks,
    output: HookOutput,
) -> Result<Option<String>, Failure> {
    let no_verify = commit.no_verify;
    let changes = connection.changes(fork, false)?;
    let is_clean = changes.changes.is_empty() && changes.in_buffers.is_empty();
    if is_clean || !merging::are_there(place)? {
        return Ok(None);
    }
    let info = connection.show(fork)?;
    let made = match make(place, connection, &info, commit, output, &|| Ok(())) {
        // It is in buffers, and fits no file.
        Err(failure) if failure.code == ErrorCode::NothingToCommit => return Ok(None),
        made => made?,
    };
    if made.hooks_skipped && !no_verify {
        note_skipped(place);
    }
    note_agent_texts(place, &made.committed.agent_texts);
    Ok(Some(made.committed.commit))
}

/// Tells that there are hooks which did not run.
pub fn note_skipped(place: &Place) {
    place.note("the hooks are skipped: the fork is not mounted, and they need a checkout");
}

/// The hooks that are to run, with the index that they see; `None` where there is nothing to run
/// them for.
fn prepare_hooks(
    connection: &mut Client,
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

/// Tells what a command found of agents in open buffers.
pub fn note_agent_texts(place: &Place, texts: &AgentTexts) {
    for path in &texts.brought {
        place.note(&format!(
            "{} has now what an agent wrote to its open buffer",
            quoted(path)
        ));
    }
    for path in &texts.left_out {
        place.note(&format!(
            "{} is without what an agent wrote to its open buffer: they exclude each other (`tine buffer merge` settles it)",
            quoted(path)
        ));
    }
}
