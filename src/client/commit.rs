//! Committing as `git commit` does: with hooks and identities.

use crate::hooks::{COMMIT_HOOKS, HookOutput, Hooks};
use crate::place::Place;
use crate::{Client, identity, merging};
use tine_git::CallerConfig;
use tine_ops::protocol::{AgentTexts, Committed, ForkInfo};
use tine_ops::{self as ops, ErrorCode, Failure, Signers};
use tine_render::text::quoted;
use tine_workspace::ForkName;

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
    place: &Place,
    connection: &mut Client,
    fork: &ForkInfo,
    wish: CommitWish<'_>,
    go_on: &dyn Fn() -> Result<(), Failure>,
) -> Result<Made, Failure> {
    wish.check()?;
    let common_dir = place.repository()?.common_dir();
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
    place: &Place,
    connection: &mut Client,
    fork: &ForkName,
    wish: CommitWish<'_>,
) -> Result<Option<String>, Failure> {
    let no_verify = wish.no_verify;
    let changes = connection.changes(fork, false)?;
    let is_clean = changes.changes.is_empty() && changes.in_buffers.is_empty();
    if is_clean || !merging::are_there(place)? {
        return Ok(None);
    }
    let info = connection.show(fork)?;
    let made = match make(place, connection, &info, wish, &|| Ok(())) {
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

/// The hooks that are to run, with the index that they see; `None` where there is nothing to run them for.
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
