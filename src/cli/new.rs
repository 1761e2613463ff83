//! `tine new`: makes a fork, mounts it and prints its path.

use serde::Serialize;

use super::context::Context;
use super::fetch::{fetch_one, head_here, sent};
use super::{Exit, SUCCESS};
use crate::change::state;
use crate::client::after_new::after_new;
use crate::client::commit::note_agent_texts;
use crate::client::embedded_paths::{self, EmbeddedPath};
use crate::client::hooks::HookOutput;
use crate::client::{Client, cargo_target};
use crate::ops::protocol::{ForkInfo, RemoteFork};
use crate::ops::{Failure, New, NewOptions};
use crate::render::failure::FailureBody;
use crate::store::ForkName;

pub(super) fn run(verb: &New, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = make(context, verb.clone())?;
    note_agent_texts(context, &fork.agent_texts);
    context.check_mounted_here(&connection, &fork)?;
    let after = after_new(
        context,
        &mut connection,
        &fork,
        !verb.options.no_setup,
        HookOutput::Shown,
    );
    if context.output.is_json() {
        context.output.json(&Made {
            fork: &fork,
            leads: &after.leads,
            failed: after.failed.iter().map(FailureBody::from).collect(),
        })?;
    } else {
        note_leads(context, &fork, &after.leads);
        note_cargo_target(context, &fork);
        for failure in &after.failed {
            context.output.trouble(failure);
        }
        context.output.path(&fork.mount_dir)?;
        if !fork.mounted {
            context
                .output
                .note(&format!("it is not mounted: `tine mount {}`", fork.name));
        }
    }
    Ok(after.exit.unwrap_or(SUCCESS))
}

/// JSON output of a new fork.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    fork: &'a ForkInfo,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    leads: &'a [EmbeddedPath],
    /// Steps that failed after the fork was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<FailureBody<'a>>,
}

/// Notes trees with embedded paths that lead elsewhere, and the remedy.
pub(super) fn note_leads(context: &Context, fork: &ForkInfo, found: &[EmbeddedPath]) {
    match embedded_paths::notes(context, fork, found) {
        Ok(notes) => notes.iter().for_each(|note| context.output.note(note)),
        Err(failure) => log::warn!("{}: {failure}", fork.name),
    }
}

/// Notes that cargo shares the fork's target directory with other trees.
fn note_cargo_target(context: &Context, fork: &ForkInfo) {
    if let Some(note) = cargo_target::note(context, &fork.mount_dir).filter(|_| fork.mounted) {
        context.output.note(&note);
    }
}

/// Makes a fork. Fetches the remote fork that it takes up first, if needed.
pub(super) fn make(context: &Context, mut operation: New) -> Result<(Client, ForkInfo), Failure> {
    // Reports a problem of the repository before anything is started.
    context.repository()?;
    let options = &mut operation.options;
    if let Some(word) = &options.from_remote {
        options.remote_fork = Some(find_on_remote(context, word)?);
    }
    options.at = options.at.as_deref().map(|dir| context.absolute(dir));
    let mut connection = context.connect()?;
    let fork = connection.call(&operation)?;
    if !context.output.is_json() {
        note_carried(context, &operation.options, &fork);
        if let Some(from) = &operation.options.remote_fork {
            note_taken_up(context, from)?;
        }
    }
    Ok((connection, fork))
}

/// Finds the fork on a remote that `word` names, `[REMOTE/]FORK`.
///
/// Fetches it if it was never seen here.
fn find_on_remote(context: &Context, word: &str) -> Result<RemoteFork, Failure> {
    // Names of remotes may contain slashes, names of forks may not.
    let (remote, name) = match word.rsplit_once('/') {
        Some((remote, name)) => (Some(remote), name),
        None => (None, word),
    };
    let name = ForkName::parse(name)?;
    let repository = context.repository()?;
    let remote = repository.fetch_remote(remote, head_here(context)?.short_branch())?;
    if repository.tracked(&remote, name.as_str())?.is_none() {
        fetch_one(context, &remote, &name)?;
    }
    Ok(RemoteFork { remote, name })
}

/// Notes who sent the state that was taken up, and its limits.
fn note_taken_up(context: &Context, from: &RemoteFork) -> Result<(), Failure> {
    let repository = context.repository()?;
    let Some(commit_id) = repository.tracked(&from.remote, from.name.as_str())? else {
        return Ok(());
    };
    let state = state::read(repository, commit_id)?;
    let uncommitted = if state.is_uncommitted {
        "with what was uncommitted"
    } else {
        "with nothing uncommitted"
    };
    context.output.note(&format!(
        "{}; taken up {uncommitted}, and without what git ignores, staging, times and extended attributes",
        sent(&state, &format!("{} to {}", from.name, from.remote))
    ));
    Ok(())
}

/// Notes files that were not carried, with the reason.
fn note_carried(context: &Context, options: &NewOptions, fork: &ForkInfo) {
    let paths = fork.carry.as_ref().map_or(0, |carry| carry.paths.len());
    let is_asked_for = !options.carry.is_empty() || !options.carry_only.is_empty();
    if is_asked_for && paths == 0 {
        let is_bare = context
            .repository()
            .is_ok_and(|repository| repository.main_checkout().is_none());
        let why = if is_bare {
            "the repository is bare, so there is no main checkout to carry from"
        } else {
            "no path that git ignores in the main checkout, and in the fork, is chosen"
        };
        context.output.note(&format!("nothing is carried: {why}"));
    }
    let held_back = fork.carry.iter().flat_map(|carry| &carry.held_back);
    let held_back: Vec<String> = held_back
        .map(|path| String::from_utf8_lossy(&path.to_bytes()).into_owned())
        .collect();
    if !held_back.is_empty() {
        context.output.note(&format!(
            "not carried, as it may be secret: {} (a pattern that names it carries it)",
            held_back.join(", ")
        ));
    }
}
