//! Commits with hooks and identities, as `git commit` makes them.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::hooks::{COMMIT_HOOKS, HookOutput, Hooks};
use crate::place::Place;
use crate::{Client, identity, merging};
use tine_git::CallerConfig;
use tine_ops::protocol::{AgentTexts, Committed, ForkInfo};
use tine_ops::{self as ops, ErrorCode, Failure, Signers};
use tine_render::text::quoted;
use tine_store::ForkName;

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
    /// Operation of the daemon, without hooks and identities.
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
    /// Returns a commit of all changes with this message.
    ///
    /// The fork is the one whose mount contains the caller's directory.
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

    /// Checks that the message is not empty.
    ///
    /// # Errors
    /// `empty-message` if every paragraph is empty.
    pub fn check(&self) -> Result<(), Failure> {
        let is_empty = |paragraph: &String| paragraph.trim().is_empty();
        if self.operation.message.iter().all(is_empty) {
            return Err(
                Failure::new(ErrorCode::EmptyMessage, "the commit message is empty")
                    .hint("say what was done: `tine commit -m MESSAGE`"),
            );
        }
        Ok(())
    }
}

/// Result of [`make`].
pub struct Made {
    /// Answer of the daemon.
    pub committed: Committed,
    /// True if hooks did not run because the fork is not mounted.
    pub hooks_skipped: bool,
}

/// Commits the changes of `fork`, with its hooks.
///
/// The fork of the operation in `commit` is ignored. `go_on` is called after the hooks that can
/// refuse and before the commit; an error from it ends the command without a commit. Blocks while
/// hooks run.
///
/// # Errors
/// `empty-message`, `no-identity`, `hook-refused` with the hook's output as causes, the error of
/// `go_on`, and the errors of [`Commit`](ops::Commit).
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
    // In a mounted fork, git also finds the configuration and hooks of its worktree.
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

/// Commits a fork's uncommitted work with its hooks, before another operation.
///
/// For operations in which the daemon would commit the work itself, without hooks. Does nothing if
/// the repository has no hooks or the fork has no changes. Returns the commit id in hex, if it made
/// one.
///
/// # Errors
/// The errors of [`make`], and of [`Client::call`].
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
    if is_clean || !merging::may_have_hooks(place)? {
        return Ok(None);
    }
    let info = connection.show(fork)?;
    let made = match make(place, connection, &info, commit, output, &|| Ok(())) {
        // The changes are only in buffers and cannot be merged into the files.
        Err(failure) if failure.code == ErrorCode::NothingToCommit => return Ok(None),
        made => made?,
    };
    if made.hooks_skipped && !no_verify {
        note_skipped(place);
    }
    note_agent_texts(place, &made.committed.agent_texts);
    Ok(Some(made.committed.commit))
}

/// Passes the note that hooks did not run to the listener.
pub fn note_skipped(place: &Place) {
    place.note("the hooks are skipped: the fork is not mounted, and they need a checkout");
}

/// Makes the index of the hooks.
///
/// Returns `None` if no hook must run: there is none, the fork is not mounted, or nothing changed.
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
        // Without changes the daemon refuses the commit, so no hook runs.
        Some(view_tree) if !changes.changes.is_empty() => {
            hooks.make_index(&view_tree)?;
            Ok(Some(hooks))
        }
        _ => Ok(None),
    }
}

/// Passes notes about texts of agents in open buffers to the listener.
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
