//! `tine op log`: what commands did to a fork's files.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::context::Context;
use super::inside::Inside;
use super::output::{Cell, Tone};
use super::{Exit, SUCCESS};
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::OperationLine;
use crate::render::text::human_age;
use crate::workspace::{ForkName, OperationState};

/// Look at the operations on a fork
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine op log fix-parser")]
pub struct Op {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub enum Action {
    Log(Log),
}

/// Show what commands did to the files of a fork
///
/// One line an operation, the newest first: its number, its age, how it stands, the command. `done` can be taken back with
/// `tine undo`; `out of reach` is what is too long ago (the newest 500 operations are kept, up to 256 MiB), or was done
/// before the fork went back to another state.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine op log fix-parser
  tine op log fix-parser -n 1 --json")]
pub struct Log {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// Show at most COUNT operations
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub max_count: usize,
}

#[derive(Serialize)]
struct Operations {
    fork: ForkName,
    operations: Vec<OperationLine>,
}

pub fn run(verb: &Op, context: &Context) -> Result<Exit, Failure> {
    let Action::Log(verb) = &verb.action;
    let mut inside = Inside::new(context, &verb.fork)?;
    let fork = inside.fork.clone();
    let request = ops::ListOperations {
        fork: fork.clone(),
        limit: verb.max_count,
    };
    let operations = inside.connection.call(&request)?.operations;
    let output = &context.output;
    if output.is_json() {
        output.json(&Operations { fork, operations })?;
        return Ok(SUCCESS);
    }
    if operations.is_empty() {
        output.note("no command has changed a file yet");
    }
    let now_secs = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let rows: Vec<Vec<Cell>> = operations
        .iter()
        .map(|operation| {
            let (state, tone) = match operation.state {
                OperationState::Done => ("done", Tone::Good),
                OperationState::Undone => ("undone", Tone::Faint),
                OperationState::PartlyUndone => ("partly undone", Tone::Careful),
                OperationState::OutOfReach => ("out of reach", Tone::Faint),
            };
            vec![
                Cell::new(operation.id.to_string()).right(),
                Cell::new(human_age(operation.time.secs, now_secs)).right(),
                Cell::new(state).toned(output, tone),
                Cell::new(operation.command.clone()),
            ]
        })
        .collect();
    output.long(&output.table(&rows))?;
    Ok(SUCCESS)
}
