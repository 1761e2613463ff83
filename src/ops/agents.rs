//! Agents' file tools: finds the active fork and buffers for the router.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::buffers;
use crate::failure::Failure;
use crate::operation::{Call, Operation, path_parser};
use crate::protocol::{
    BufferMerged, FoundLine, NoSaved, Route, ToolAnswer, ToolContextShown, ToolEdited, ToolFound,
};
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_tools::search::SearchOptions;
use tine_tools::{ActiveBuffers, ActiveFork, AgentId, Routed, TextEdit, ToolContext, ToolRouter};

/// Agent that calls, if one does, and whether it sees open buffers.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
pub struct AgentOptions {
    /// Act as an agent's tool; with NAME, as that agent's, where several call
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_parser = agent_parser()
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,

    /// As an agent's tool, leave open buffers of editors alone, and work with what is saved
    #[arg(long)]
    #[serde(default)]
    pub no_buffers: bool,
}

fn agent_parser() -> impl clap::builder::TypedValueParser<Value = AgentId> {
    use clap::builder::{StringValueParser, TypedValueParser};
    StringValueParser::new().map(AgentId)
}

impl AgentOptions {
    /// Returns whether an agent calls.
    pub fn is_agents(&self) -> bool {
        self.agent.is_some()
    }
}

/// Replace texts in a file: all of the edits, or none
///
/// A text must be in the file exactly once, unless all of them are to be replaced. Edits are made
/// one after another, each in what the one before it left. Where all lines of the file end in CR LF
/// they go on to. A file of edits holds a JSON array: [{"old": "a", "new": "b", "replace_all":
/// true}]. It acts as an agent's tool, with or without --agent.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine edit src/main.rs --old 'let x = 1;' --new 'let x = 2;'
  tine edit src/main.rs --old foo --new bar --all
  tine edit --fork fix-parser src/main.rs --edits edits.json --json")]
pub struct EditFile {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount or in the main checkout
    #[arg(value_name = "PATH", value_parser = path_parser())]
    pub path: PathText,

    /// The text to replace
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        requires = "new",
        required_unless_present = "edits_file"
    )]
    #[serde(skip)]
    pub old: Option<String>,

    /// What comes in its place
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        requires = "old"
    )]
    #[serde(skip)]
    pub new: Option<String>,

    /// Replace it wherever it is
    #[arg(long, requires = "old")]
    #[serde(skip)]
    pub all: bool,

    /// Take the edits from a JSON file; `-` is standard input
    #[arg(long = "edits", value_name = "FILE", conflicts_with_all = ["old", "new", "all"], value_hint = clap::ValueHint::FilePath)]
    #[serde(skip)]
    pub edits_file: Option<PathBuf>,

    /// Edits, in order. The caller takes them from the other fields.
    #[arg(skip)]
    pub edits: Vec<TextEdit>,

    /// The agent.
    #[command(flatten)]
    #[serde(default)]
    pub agent: AgentOptions,
}

impl EditFile {
    /// Makes `edits` in the file at `path`.
    pub fn of(path: PathText, edits: Vec<TextEdit>) -> EditFile {
        EditFile {
            fork: None,
            path,
            old: None,
            new: None,
            all: false,
            edits_file: None,
            edits,
            agent: AgentOptions::default(),
        }
    }
}

impl Operation for EditFile {
    const NAME: &'static str = "edit";
    const PROGRESS: &'static str = "writing";
    type Answer = ToolAnswer<ToolEdited, NoSaved>;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn agent(&mut self) -> Option<&mut AgentOptions> {
        Some(&mut self.agent)
    }

    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure> {
        with_tools(call, self.fork, &self.agent, Effect::Write, |tools| {
            let path = self.path.to_bytes();
            let edited = tools.router.edit_file(call.by(), &path, &self.edits)?;
            Ok(routed(edited, |route, edited| ToolEdited {
                route,
                path: (&edited.path).into(),
                replaced: edited.replaced,
                size: edited.size,
            }))
        })
    }
}

/// Search text files for lines that match a regular expression
///
/// The syntax is ripgrep's. What git ignores is left out unless it is tracked or --ignored is
/// given, and so are binary files and those of more than 64 MiB, which are named. Where a buffer is
/// open its text is searched. It acts as an agent's tool, with or without --agent.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine search 'TODO|FIXME'
  tine search 'fn main' src --glob '*.rs' --glob '!*_test.rs' --limit 20")]
pub struct SearchFiles {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// The regular expression
    #[arg(value_name = "REGEX", allow_hyphen_values = true)]
    pub pattern: String,

    /// Where to look [default: everywhere]
    #[arg(value_name = "PATH", value_parser = path_parser())]
    #[serde(default)]
    pub path: Option<PathText>,

    /// Only files that match, as in a .gitignore; with `!` before it, no file that matches
    #[arg(short, long = "glob", value_name = "GLOB")]
    #[serde(default)]
    pub globs: Vec<String>,

    /// Let capitals match small letters, too
    #[arg(short, long)]
    #[serde(default)]
    pub ignore_case: bool,

    /// Search what git ignores, too
    #[arg(long)]
    #[serde(default)]
    pub ignored: bool,

    /// Show at most COUNT lines
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1000)]
    pub limit: usize,

    /// The agent.
    #[command(flatten)]
    #[serde(default)]
    pub agent: AgentOptions,
}

impl Operation for SearchFiles {
    const NAME: &'static str = "search";
    const PROGRESS: &'static str = "looking";
    type Answer = ToolAnswer<ToolFound, NoSaved>;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn agent(&mut self) -> Option<&mut AgentOptions> {
        Some(&mut self.agent)
    }

    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure> {
        let options = SearchOptions {
            pattern: self.pattern,
            path: self.path.as_ref().map(PathText::to_bytes),
            globs: self.globs,
            ignore_case: self.ignore_case,
            ignored: self.ignored,
            limit: self.limit,
        };
        with_tools(call, self.fork, &self.agent, Effect::Read, |tools| {
            Ok(routed(tools.router.search(&options)?, |route, found| {
                ToolFound {
                    route,
                    lines: found
                        .lines
                        .into_iter()
                        .map(|line| FoundLine {
                            path: (&line.path).into(),
                            line: line.line,
                            text: line.text,
                        })
                        .collect(),
                    truncated: found.truncated,
                    too_large: found.too_large.iter().map(Into::into).collect(),
                }
            }))
        })
    }
}

/// Show where an agent's tools work: fork, directory, open buffers
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine context --json")]
pub struct ShowContext {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// The agent.
    #[command(flatten)]
    #[serde(default)]
    pub agent: AgentOptions,
}

impl Operation for ShowContext {
    const NAME: &'static str = "context";
    type Answer = ToolContextShown;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn agent(&mut self) -> Option<&mut AgentOptions> {
        Some(&mut self.agent)
    }

    fn run(self, call: &Call<'_>) -> Result<ToolContextShown, Failure> {
        let path = |path: &Path| PathText::from(path.as_os_str().as_bytes());
        with_tools(call, self.fork, &self.agent, Effect::Read, |tools| {
            let router = &tools.router;
            let buffers = router.buffers();
            let environment = router.command_env().into_iter();
            Ok(ToolContextShown {
                fork: router.context().fork.map(|active| active.name.clone()),
                working_dir: router.working_dir().map(path),
                mounted: tools.is_mounted,
                buffers: buffers.iter().map(|key| (&key.path).into()).collect(),
                environment: environment
                    .map(|(name, value)| (name.to_owned(), path(&value)))
                    .collect(),
            })
        })
    }
}

/// Merges an agent's text of an open buffer into the person's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MergeBuffer {
    /// Fork that the agent works in; `None` is the main checkout.
    #[serde(default)]
    pub fork: Option<ForkName>,
    /// File that is open as a buffer.
    pub path: PathText,
    /// The agent.
    #[serde(default)]
    pub agent: AgentOptions,
}

impl Operation for MergeBuffer {
    const NAME: &'static str = "merge-buffer";
    type Answer = ToolAnswer<BufferMerged, NoSaved>;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn agent(&mut self) -> Option<&mut AgentOptions> {
        Some(&mut self.agent)
    }

    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure> {
        let key = with_tools(call, self.fork, &self.agent, Effect::Write, |tools| {
            let router = &tools.router;
            let key = router.file_key(&self.path.to_bytes())?;
            Ok(router.context().buffers.and(key))
        })?;
        let Some(key) = key else {
            return Ok(ToolAnswer::passthrough());
        };
        // The fork's lock is released: this waits for an editor, which may need the fork.
        let name = key.path.as_path().to_owned();
        let merged = buffers::merge(call.daemon, &key, &name, None)?;
        Ok(ToolAnswer::Agents(merged))
    }
}

/// Effect of an agent's call on the fork's files.
#[derive(Clone, Copy)]
pub(super) enum Effect<'a> {
    Read,
    Write,
    /// It moves or deletes the file at the path.
    Unlink(&'a PathText),
}

/// Router of a call.
pub(super) struct Tools<'a> {
    pub router: ToolRouter<'a>,
    is_mounted: bool,
}

/// Calls `act` with a router. If a fork is active, it is locked.
pub(super) fn with_tools<T>(
    call: &Call<'_>,
    named: Option<ForkName>,
    options: &AgentOptions,
    effect: Effect<'_>,
    act: impl FnOnce(&Tools<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let daemon = call.daemon;
    let agent = options.agent.clone().unwrap_or_default();
    let context = ToolContext {
        fork: None,
        buffers: (!options.no_buffers).then_some(ActiveBuffers {
            buffers: &daemon.buffers,
            store: &daemon.store,
            agent: &agent,
        }),
        checkout_dir: daemon.repository.main_checkout(),
    };
    let Some(name) = &call.fork_if_any(named) else {
        return act(&Tools {
            router: ToolRouter::new(context),
            is_mounted: false,
        });
    };
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let record = guard.record()?;
    let fork = guard.open()?;
    let active = ActiveFork {
        name,
        repository: &daemon.repository,
        fork: &fork,
        mount_dir: &record.mount_dir,
    };
    let tools = Tools {
        router: ToolRouter::new(ToolContext {
            fork: Some(active),
            ..context
        }),
        is_mounted: guard.is_mounted(),
    };
    let taken = match effect {
        // If there is no such path, the operation fails with that error.
        Effect::Unlink(path) => tools.router.file_key(&path.to_bytes()).ok().flatten(),
        Effect::Read | Effect::Write => None,
    };
    let answer = match taken {
        Some(key) => buffers::with_agent_texts_at(&guard, &[key.path], || act(&tools))?.0,
        None => act(&tools)?,
    };
    if !matches!(effect, Effect::Read) {
        guard.sync_if_unmounted(&fork)?;
    }
    Ok(answer)
}

/// Converts the router's answer with `answer`.
pub(super) fn routed<T, A, S>(
    outcome: Routed<T>,
    answer: impl FnOnce(Route, T) -> A,
) -> ToolAnswer<A, S> {
    match outcome {
        Routed::Buffer(value) => ToolAnswer::Agents(answer(Route::Buffer, value)),
        Routed::Fork(value) => ToolAnswer::Agents(answer(Route::Fork, value)),
        Routed::Passthrough => ToolAnswer::passthrough(),
    }
}
