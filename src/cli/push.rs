//! `tine push`: sends the state of a fork to a git remote.

use serde::Serialize;

use super::context::Context;
use super::fetch::{head_here, sent};
use super::output::Tone;
use super::{Exit, SUCCESS};
use crate::change::state;
use crate::client::commit::note_agent_texts;
use crate::client::identity;
use crate::git::{GitError, ObjectId, Repository};
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::StateMade;
use crate::render::text::{counted, one_line, quoted, short_id};
use crate::store::ForkName;

/// Send the state of a fork to a git remote
///
/// The state is HEAD with all its commits, and what is uncommitted as one more commit, which no
/// branch leads to: it becomes refs/tine/forks/FORK on the remote, and nothing else changes there.
/// `tine new --from-remote` takes it up, on any machine.
///
/// Where another user pushed a fork of that name meanwhile it is refused. What git ignores does
/// not travel, nor do times, extended attributes and commits within submodules.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine push fix-parser                       to the remote that git would push to
  tine push fix-parser backup --as ada-fix   to another, under another name
  tine push --delete fix-parser              remove it from the remote")]
pub(super) struct Push {
    /// The fork; with --delete its name on the remote
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// The remote [default: as git has it for the fork's branch, or else for the branch that it
    /// came from]
    #[arg(value_name = "REMOTE")]
    pub remote: Option<String>,

    /// What it is called on the remote [default: FORK]
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,

    /// Replace what is there, whoever pushed it
    #[arg(short, long)]
    pub force: bool,

    /// Remove the fork from the remote; the one here stays
    #[arg(short, long, conflicts_with = "name")]
    pub delete: bool,
}

#[derive(Serialize)]
struct Sent<'a> {
    #[serde(flatten)]
    state: &'a StateMade,
    /// True if the remote had something else before.
    changed: bool,
}

#[derive(Serialize)]
struct Deleted<'a> {
    remote: &'a str,
    name: &'a ForkName,
    deleted: bool,
}

pub(super) fn run(verb: &Push, context: &Context) -> Result<Exit, Failure> {
    let fork = ForkName::parse(&verb.fork)?;
    if verb.delete {
        return delete(verb, &fork, context);
    }
    let name = verb.name.as_deref().map(ForkName::parse).transpose()?;
    let repository = context.repository()?;
    let (mut connection, fork) = context.connect_to_fork(Some(fork.as_str()))?;
    let signers = identity::signers(repository.common_dir())?;
    let request = ops::MakeState {
        fork,
        remote: verb.remote.clone(),
        name,
    };
    let state = connection.call_as(&request, &signers)?;
    let commit_id = ObjectId::from_hex(state.commit.as_bytes())
        .map_err(GitError::library("read the state's id"))?;
    let changed = send(
        context,
        &state.remote,
        &state.name,
        Some(commit_id),
        verb.force,
    )?;
    print_sent(&state, changed, context)?;
    Ok(SUCCESS)
}

fn delete(verb: &Push, name: &ForkName, context: &Context) -> Result<Exit, Failure> {
    let repository = context.repository()?;
    let own = format!("tine/{name}");
    let here = head_here(context)?;
    let branches = [Some(own.as_str()), here.short_branch()];
    let branches: Vec<&str> = branches.into_iter().flatten().collect();
    let remote = repository.push_remote(verb.remote.as_deref(), &branches)?;
    send(context, &remote, name, None, verb.force)?;
    context.output.json_or_text(
        &Deleted {
            remote: &remote,
            name,
            deleted: true,
        },
        || format!("removed {name} from {remote}\n"),
    )?;
    Ok(SUCCESS)
}

/// Changes or removes a fork on a remote. Returns whether the remote changed.
fn send(
    context: &Context,
    remote: &str,
    name: &ForkName,
    commit_id: Option<ObjectId>,
    force: bool,
) -> Result<bool, Failure> {
    let repository = context.repository()?;
    let output = &context.output;
    output
        .with_progress(|progress| {
            repository.send_state(remote, name.as_str(), commit_id, force, progress)
        })
        .map_err(|error| refused(repository, error))
}

/// Converts the error. If another push came first, adds its sender.
fn refused(repository: &Repository, error: GitError) -> Failure {
    let found = match error {
        GitError::RemoteMoved { found, .. } => found,
        _ => None,
    };
    let failure = Failure::from(error);
    match found.map(|id| state::read(repository, id)) {
        Some(Ok(state)) => failure.cause(sent(&state, "it")),
        Some(Err(error)) => failure.cause(error.to_string()),
        None => failure,
    }
}

fn print_sent(state: &StateMade, changed: bool, context: &Context) -> Result<(), Failure> {
    let output = &context.output;
    for path in &state.left_out {
        output.note(&format!("{} is left out: git cannot hold it", quoted(path)));
    }
    for path in &state.submodules {
        output.note(&format!(
            "what was committed in the submodule {} does not travel: push it from there",
            quoted(path)
        ));
    }
    if let Some(operation) = &state.operation {
        output.note(&format!("that a {operation} is under way does not travel"));
    }
    note_agent_texts(context, &state.agent_texts);
    if output.is_json() {
        return output.json(&Sent { state, changed });
    }
    let StateMade {
        fork, remote, name, ..
    } = state;
    if !changed {
        return output.text(&format!("{remote} has {name} as it is here\n"));
    }
    let other_name = if fork == name {
        String::new()
    } else {
        format!(" as {name}")
    };
    let head = match &state.head_commit {
        Some(commit) => output.paint(Tone::Careful, short_id(commit)),
        None => "no commit".to_owned(),
    };
    let branch = state.branch.as_deref().unwrap_or("detached HEAD");
    let uncommitted = match state.uncommitted {
        0 => "nothing uncommitted".to_owned(),
        count => counted(count, "uncommitted path"),
    };
    output.text(&format!(
        "pushed {fork} to {remote}{other_name}: {head} ({}), {uncommitted}\n",
        one_line(branch)
    ))
}
