//! `tine tool`: agents' file tools, for scripts and tools in other languages.

mod files;
mod queries;
mod running;

use serde::Serialize;

use self::files::{Delete, Edit, Move, Read, Write};
use self::queries::{List, Search, Where};
use self::running::Run;
use super::context::Context;
use super::{Exit, SUCCESS};
use crate::client::Client;
use crate::ops;
use crate::ops::protocol::{Route, ToolAnswer, ToolOperation};
use crate::ops::{ErrorCode, ExitCode, Failure};
use crate::store::ForkName;
use crate::tools::AgentId;

/// Do what an agent's file tools do
///
/// Each call goes to an open buffer of an editor at that path, else to the fork, else nowhere: then
/// it says so, and ends with exit code 7, and whoever called does it alone (docs/tools.md). Paths
/// are from the fork's root, or absolute in its mount or in the main checkout; none leads out of
/// the fork. What is changed is an operation that `tine undo` takes back.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine tool --fork fix-parser read src/main.rs
  tine tool edit src/main.rs --old 'let x = 1;' --new 'let x = 2;'
  tine tool search 'fn \\w+_test' --glob '*.rs' --json
  tine tool run --timeout 600 -- cargo test")]
pub(super) struct Tool {
    /// The fork to work in [default: the one whose mount this is]
    #[arg(long, global = true, value_name = "NAME")]
    pub fork: Option<ForkName>,

    /// Leave open buffers of editors alone, and work with what is saved
    #[arg(long, global = true)]
    pub no_buffers: bool,

    /// Whose call it is, where several agents call: what NAME read and wrote is remembered
    /// [default: one agent's]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub agent: String,

    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    Read(Read),
    Write(Write),
    Edit(Edit),
    #[command(aliases = ["rm"])]
    Delete(Delete),
    #[command(aliases = ["mv"])]
    Move(Move),
    #[command(aliases = ["ls"])]
    List(List),
    Search(Search),
    #[command(aliases = ["exec"])]
    Run(Run),
    #[command(name = "context")]
    Where(Where),
}

pub(super) fn run(verb: &Tool, context: &Context) -> Result<Exit, Failure> {
    let mut caller = Caller::new(verb, context)?;
    match &verb.action {
        Action::Read(verb) => files::read(verb, &mut caller),
        Action::Write(verb) => files::write(verb, &mut caller),
        Action::Edit(verb) => files::edit(verb, &mut caller),
        Action::Delete(verb) => files::delete(verb, &mut caller),
        Action::Move(verb) => files::rename(verb, &mut caller),
        Action::List(verb) => queries::list(verb, &mut caller),
        Action::Search(verb) => queries::search(verb, &mut caller),
        Action::Run(verb) => running::run(verb, &mut caller),
        Action::Where(_) => queries::context(&mut caller),
    }
}

/// Caller of a tool, with the active fork and buffers.
struct Caller<'a> {
    context: &'a Context,
    /// `None` if the repository has no store. Nothing is started then.
    connection: Option<Client>,
    fork: Option<ForkName>,
    has_buffers: bool,
    agent: AgentId,
}

impl<'a> Caller<'a> {
    fn new(verb: &Tool, context: &'a Context) -> Result<Caller<'a>, Failure> {
        let (connection, fork) = match &verb.fork {
            Some(fork) => {
                let (connection, fork) = context.connect_to_fork(Some(fork.as_str()))?;
                (Some(connection), Some(fork))
            }
            None => match context.connect_to_forks()? {
                Some(mut connection) => {
                    let fork = context.fork_if_here(&mut connection)?;
                    (Some(connection), fork)
                }
                None => (None, None),
            },
        };
        Ok(Caller {
            context,
            connection,
            fork,
            has_buffers: !verb.no_buffers,
            agent: AgentId(verb.agent.clone()),
        })
    }

    fn call(&mut self, operation: ToolOperation) -> Result<ToolAnswer, Failure> {
        let Some(connection) = &mut self.connection else {
            return Ok(ToolAnswer::Passthrough);
        };
        let request = ops::CallTool {
            fork: self.fork.clone(),
            buffers: self.has_buffers,
            agent: self.agent.clone(),
            operation,
        };
        connection.call(&request)
    }

    /// Notes that nothing was done. Fails if the answer belongs to another tool.
    fn passed_through(&self, answer: ToolAnswer) -> Result<Exit, Failure> {
        #[derive(Serialize)]
        struct PassedThrough {
            route: &'static str,
        }
        let ToolAnswer::Passthrough = answer else {
            return Err(Failure::new(
                ErrorCode::ProtocolMismatch,
                "the daemon answered another tool's call",
            )
            .hint("`tine daemon stop` ends it, and the next command starts one of this version"));
        };
        let output = &self.context.output;
        if output.is_json() {
            output.json(&PassedThrough {
                route: "passthrough",
            })?;
        } else {
            output.note(
                "no fork is active here, and no buffer is open there: nothing was done. `--fork NAME` names a fork",
            );
        }
        Ok(ExitCode::Nothing.code())
    }

    /// Prints `value` as JSON, or `text`.
    fn print(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<Exit, Failure> {
        if self.context.output.is_json() {
            self.context.output.json(value)?;
        } else {
            self.context.output.text(&text())?;
        }
        Ok(SUCCESS)
    }
}

/// Returns a suffix that names the buffer, if one was changed.
fn in_buffer(route: Route) -> &'static str {
    match route {
        Route::Buffer => " in the open buffer",
        Route::Fork => "",
    }
}
