//! `tine op log`: the operations of commands on a fork's files.

use super::Exit;
use super::context::Context;
use super::output::{Cell, Tone};
use super::shown::{self, Shown};
use crate::ops::protocol::Operations;
use crate::ops::{Failure, ListOperations};
use crate::render::text::{human_age, now_secs};
use crate::workspace::OperationState;

/// Look at the operations on a fork
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine op log fix-parser")]
pub(super) struct Op {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    Log(ListOperations),
}

pub(super) fn run(verb: &Op, context: &Context) -> Result<Exit, Failure> {
    let Action::Log(verb) = &verb.action;
    shown::run(verb, context)
}

impl Shown for ListOperations {
    fn show(&self, listed: &Operations, context: &Context) -> Result<(), Failure> {
        let (operations, output) = (&listed.operations, &context.output);
        if operations.is_empty() {
            output.note("no command has changed a file yet");
        }
        let now_secs = now_secs();
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
        output.long(&output.table(&rows))
    }
}
