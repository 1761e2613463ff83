//! `tine handoff`: finished work as files that outlive their forks.

mod arguments;
mod format;

use std::io::{self, ErrorKind};
use std::path::Path;

pub(super) use self::arguments::Handoff;
use self::arguments::{Action, Apply, Create, Diff, Show};
use self::format::{format_shown, format_table};
use super::contents::{file_or_stdin, send_with};
use super::context::Context;
use super::output::Output;
use super::sequencing::call_and_print;
use super::shown::{self, Shown};
use super::trees::Difference;
use super::{Exit, SUCCESS, pager};
use crate::change::handoff::HandoffState;
use crate::client;
use crate::client::commit::note_agent_texts;
use crate::client::commit::{self, CommitWithHooks};
use crate::client::hooks::HookOutput;
use crate::client::identity;
use crate::ops::protocol::{HandoffDeleted, HandoffInfo, Handoffs};
use crate::ops::{
    ApplyHandoff, AwaitHandoffs, CreateHandoff, DeleteHandoff, ErrorCode, ExitCode, Failure,
    ImportHandoff, ListHandoffs, joined_message, work_message,
};
use crate::render::handoffs::format_line;

pub(super) fn run(verb: &Handoff, context: &Context) -> Result<Exit, Failure> {
    match &verb.action {
        Action::Create(verb) => create(verb, context),
        Action::List(verb) => shown::run(verb, context),
        Action::Show(verb) => show(verb, context),
        Action::Diff(verb) => diff(verb, context),
        Action::Apply(verb) => apply(verb, context),
        Action::Await(verb) => shown::run(verb, context),
        Action::Delete(verb) => shown::run(verb, context),
        Action::Import(verb) => import(verb, context),
    }
}

fn create(verb: &Create, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = context.connect_to(verb.operation.fork.as_ref())?;
    let signers = identity::signers_if_any(context.repository()?.common_dir());
    let request = CreateHandoff {
        fork: Some(fork.clone()),
        ..verb.operation.clone()
    };
    if request.include_uncommitted {
        let message = joined_message(&request.message);
        let mut first_commit = CommitWithHooks::of(message.unwrap_or_else(|| work_message(&fork)));
        first_commit.no_verify = verb.no_verify;
        first_commit.operation.allow_revert = request.allow_revert;
        commit::commit_first(
            context,
            &mut connection,
            &fork,
            first_commit,
            HookOutput::Shown,
        )?;
    }
    let handoff = client::handoff::make(&mut connection, &request, &signers, !verb.background)?;
    note_agent_texts(context, &handoff.agent_texts);
    context
        .output
        .json_or_text(&handoff, || format_line(&handoff))?;
    Ok(match handoff.record.state {
        HandoffState::Pending | HandoffState::Ready => SUCCESS,
        HandoffState::Skipped => ExitCode::Nothing.code(),
        HandoffState::Failed => ExitCode::Failure.code(),
    })
}

fn apply(verb: &Apply, context: &Context) -> Result<Exit, Failure> {
    let mut connection = context.connect()?;
    let request = ApplyHandoff {
        review: verb.conflicts.review_policy(),
        ..verb.operation.clone()
    };
    call_and_print(
        context,
        &mut connection,
        &request,
        &verb.conflicts.resolving,
    )
}

impl Shown for ListHandoffs {
    fn show(&self, listed: &Handoffs, context: &Context) -> Result<(), Failure> {
        for failure in &listed.damaged {
            context.output.trouble(failure);
        }
        context
            .output
            .long(&format_table(&listed.handoffs, &context.output))
    }
}

fn show(verb: &Show, context: &Context) -> Result<Exit, Failure> {
    let (shown, output) = (context.connect()?.call(&verb.handoff)?, &context.output);
    let mailbox = if verb.path || verb.patch {
        Some(mailbox_of(&shown.info)?)
    } else {
        None
    };
    match mailbox {
        // The JSON has the mailbox's path.
        _ if output.is_json() => output.json(&shown)?,
        None => output.long(&format_shown(&shown, output))?,
        Some(path) if verb.path => output.path(path)?,
        Some(path) => print_file(path, output)?,
    }
    Ok(SUCCESS)
}

/// Returns the mailbox's path. Fails if it is not ready.
fn mailbox_of(handoff: &HandoffInfo) -> Result<&Path, Failure> {
    let record = &handoff.record;
    handoff.mailbox.as_deref().ok_or_else(|| {
        let (id, word) = (record.id, record.state.word());
        Failure::new(
            ErrorCode::HandoffState,
            format!("the handoff {id} is {word}: it has no mailbox"),
        )
        .hint(match record.state {
            HandoffState::Pending => format!("`tine handoff await {id}` waits for it"),
            _ => format!("`tine handoff show {id}` says why"),
        })
    })
}

/// Prints a file of any size.
fn print_file(path: &Path, output: &Output) -> Result<(), Failure> {
    let mut file = std::fs::File::open(path).map_err(|error| Failure::io("open", path, &error))?;
    if output.pages() && pager::show(&mut file) {
        return Ok(());
    }
    match io::copy(&mut file, &mut io::stdout().lock()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            ErrorCode::Io,
            "the mailbox could not be printed",
        )
        .cause(error.to_string())),
        _ => Ok(()),
    }
}

fn diff(verb: &Diff, context: &Context) -> Result<Exit, Failure> {
    let shown = context.connect()?.call(&verb.handoff)?;
    let (Some(old_tree), Some(new_tree)) = (&shown.old_tree, &shown.new_tree) else {
        let id = verb.handoff.id;
        mailbox_of(&shown.info)?;
        return Err(Failure::new(
            ErrorCode::HandoffState,
            format!("the commits of handoff {id} are not in this repository"),
        )
        .hint(format!(
            "`tine handoff show {id} --patch` prints its patches"
        )));
    };
    let difference = Difference {
        old_tree,
        new_tree,
        changes: &shown.changes,
    };
    difference.show(context, verb.form.flags())
}

impl Shown for AwaitHandoffs {
    fn show(&self, awaited: &Handoffs, context: &Context) -> Result<(), Failure> {
        let lines = awaited.handoffs.iter().map(format_line);
        context.output.text(&lines.collect::<String>())
    }

    fn exit(awaited: &Handoffs) -> Exit {
        let is_failed = |handoff: &HandoffInfo| handoff.record.state == HandoffState::Failed;
        if awaited.handoffs.iter().any(is_failed) {
            ExitCode::Failure.code()
        } else {
            SUCCESS
        }
    }
}

impl Shown for DeleteHandoff {
    fn show(&self, deleted: &HandoffDeleted, context: &Context) -> Result<(), Failure> {
        context.output.text(&format_deleted(deleted))
    }
}

fn format_deleted(deleted: &HandoffDeleted) -> String {
    let rest = match (&deleted.kept_in, deleted.recover) {
        (Some(branch), _) => format!("; its commits are in {branch}"),
        (None, Some(id)) => {
            format!("; `tine recover {id} NAME` brings its commits back as a branch")
        }
        (None, None) => String::new(),
    };
    format!("deleted handoff {}{rest}\n", deleted.id)
}

fn import(verb: &ImportHandoff, context: &Context) -> Result<Exit, Failure> {
    let mut connection = context.connect()?;
    let handoff = send_with(context, file_or_stdin(&verb.file), |content| {
        connection.call(&ImportHandoff {
            content,
            from: verb.file.display().to_string(),
            ..verb.clone()
        })
    })?;
    context
        .output
        .json_or_text(&handoff, || format_line(&handoff))?;
    Ok(SUCCESS)
}
