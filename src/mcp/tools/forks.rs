//! The session's active fork, and other forks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::session::ForkRequest;
use super::super::shown::ForkShown;
use super::super::tool::{Call, ToolOutput, ToolResult};
use tine_ops::{ErrorCode, Failure, ShowContext};
use tine_path::text::PathText;
use tine_render::text::quoted;
use tine_store::ForkName;

/// Tell where you stand: the active fork, its branch, its root directory, and which files a person
/// has open in an editor.
///
/// Call this first. Without an active fork the other tools have nothing to work on: `fork` makes
/// one.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Context {}

/// Where the session stands.
#[derive(Serialize, JsonSchema)]
pub(super) struct ContextShown {
    /// None: no fork is active.
    fork: Option<ForkShown>,
    /// Where `run` runs commands, absolute.
    working_dir: Option<PathText>,
    /// Files of the fork that are open in a person's editor: writing to one makes your own version
    /// of it, merged with theirs.
    buffers: Vec<PathText>,
}

pub(super) fn context(_: Context, call: &Call<'_>) -> ToolResult<ContextShown> {
    let Some(name) = call.session.fork_if_any()? else {
        let shown = ContextShown {
            fork: None,
            working_dir: None,
            buffers: Vec::new(),
        };
        return Ok(ToolOutput::new(
            shown,
            "no fork is active: `fork` makes one, `use_fork` chooses one that is there",
        ));
    };
    let context = call.session.ask_as_agent(
        Some(name.clone()),
        ShowContext::default(),
        "mcp context".to_owned(),
    )?;
    let fork = ForkShown::of(
        call.session.with(|connection| connection.show(&name))?,
        true,
    );
    let mut text = fork.text();
    for path in &context.buffers {
        text.push_str(&format!("\nopen in an editor: {}", quoted(path)));
    }
    let shown = ContextShown {
        fork: Some(fork),
        working_dir: context.working_dir,
        buffers: context.buffers,
    };
    Ok(ToolOutput::new(shown, text))
}

/// Make a new fork and let it be the active one: your own workspace on a branch of its own, in
/// milliseconds.
///
/// It begins as the main checkout's HEAD, or as the active fork's where `from_active` is set
/// (uncommitted changes and all: to try something in two ways), or as named by `from` or
/// `from_fork`. The fork that was active before stays as it is; `use_fork` goes back to it.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Fork {
    #[serde(flatten)]
    request: ForkRequest,
    /// Begin as the active fork is now.
    #[serde(default)]
    from_active: bool,
}

pub(super) fn fork(arguments: Fork, call: &Call<'_>) -> ToolResult<NewForkShown> {
    let mut request = arguments.request;
    let begins = [
        request.options.from.is_some(),
        request.options.from_fork.is_some(),
        arguments.from_active,
    ];
    if begins.iter().filter(|given| **given).count() > 1 {
        return Err(
            Failure::new(ErrorCode::Usage, "a fork begins as one thing only")
                .hint("give one of `from`, `from_fork` and `from_active`"),
        );
    }
    if arguments.from_active {
        request.options.from_fork = Some(call.session.fork()?.to_string());
    }
    let made = call.session.make_fork(&request)?;
    let fork = ForkShown::of(made.info, true);
    let lines = std::iter::once(fork.text()).chain(made.notes.iter().cloned());
    let text = lines.collect::<Vec<_>>().join("\n");
    let shown = NewForkShown {
        fork,
        notes: made.notes,
    };
    Ok(ToolOutput::new(shown, text))
}

/// A fork that was made.
#[derive(Serialize, JsonSchema)]
pub(super) struct NewForkShown {
    #[serde(flatten)]
    fork: ForkShown,
    /// What must be known of it: steps that failed, and files that lead to other trees.
    notes: Vec<String>,
}

/// Let another fork that is there be the active one; it is mounted if it is not.
#[derive(Deserialize, JsonSchema)]
pub(super) struct UseFork {
    /// As `list_forks` tells it.
    name: String,
}

pub(super) fn use_fork(arguments: UseFork, call: &Call<'_>) -> ToolResult<ForkShown> {
    let shown = ForkShown::of(
        call.session.activate(ForkName::parse(&arguments.name)?)?,
        true,
    );
    let text = shown.text();
    Ok(ToolOutput::new(shown, text))
}

/// List all forks of the repository, those of other agents and people too.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ListForks {}

/// Forks.
#[derive(Serialize, JsonSchema)]
pub(super) struct ForksShown {
    forks: Vec<ForkShown>,
    /// What is wrong with forks that cannot be read.
    damaged: Vec<String>,
}

pub(super) fn list_forks(_: ListForks, call: &Call<'_>) -> ToolResult<ForksShown> {
    let (forks, damaged) = call.session.with(|connection| connection.forks())?;
    let active = call.session.active();
    let shown = ForksShown {
        forks: forks
            .into_iter()
            .map(|info| {
                let is_active = Some(&info.name) == active.as_ref();
                ForkShown::of(info, is_active)
            })
            .collect(),
        damaged: damaged.iter().map(Failure::to_string).collect(),
    };
    let lines = shown.forks.iter().map(ForkShown::text);
    let text: Vec<String> = lines.chain(shown.damaged.iter().cloned()).collect();
    let text = if text.is_empty() {
        "there are no forks".to_owned()
    } else {
        text.join("\n")
    };
    Ok(ToolOutput::new(shown, text))
}
