//! `tine undo` and `tine redo`: take back what commands did to a fork's files, and do it again.

use std::ffi::OsString;

use super::context::Context;
use super::inside::Inside;
use super::output::Output;
use super::{Exit, SUCCESS};
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::{OperationLine, TakenBackLine};
use crate::render::nodes::shown;
use crate::render::text::quoted;
use crate::workspace::{Direction, NoteKind};

/// Take back the last operation on a fork
///
/// Operations are what tine's commands do to files: write, mv, rm. Each undo takes the newest one back that is not taken
/// back yet, with PATH the newest that touched it, and of that what is at or beneath PATH. What programs did in the mount
/// is no operation; where it is in the way it is kept, and `tine redo` brings it back. `tine op log` shows what there is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine undo fix-parser
  tine undo fix-parser src/main.rs")]
pub struct Undo {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// Take back what was done to PATH alone
    #[arg(value_name = "PATH")]
    pub path: Option<OsString>,
}

/// Do again what was taken back last on a fork
///
/// As long as nothing else was done since by a command; with PATH nothing else to that.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine redo fix-parser
  tine redo fix-parser src/main.rs")]
pub struct Redo {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// Do again what was taken back of PATH alone
    #[arg(value_name = "PATH")]
    pub path: Option<OsString>,
}

pub fn undo(verb: &Undo, context: &Context) -> Result<Exit, Failure> {
    take_back(context, Direction::Undo, &verb.fork, verb.path.as_ref())
}

pub fn redo(verb: &Redo, context: &Context) -> Result<Exit, Failure> {
    take_back(context, Direction::Redo, &verb.fork, verb.path.as_ref())
}

fn take_back(
    context: &Context,
    direction: Direction,
    fork: &str,
    path: Option<&OsString>,
) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, fork)?;
    let path = path.map(|path| inside.path(path)).transpose()?;
    let request = ops::TakeBack {
        fork: inside.fork.clone(),
        direction,
        path,
    };
    let taken = inside.connection.call(&request)?;
    match context.output.is_json() {
        true => context.output.json(&taken)?,
        false => tell(&taken, direction, &context.output)?,
    }
    Ok(SUCCESS)
}

fn tell(taken: &TakenBackLine, direction: Direction, output: &Output) -> Result<(), Failure> {
    let done = match direction {
        Direction::Undo => "took back",
        Direction::Redo => "did again",
    };
    let OperationLine { id, command, .. } = &taken.of;
    // What was done in an open buffer has no number.
    let number = match id {
        0 => String::new(),
        id => format!("{id}: "),
    };
    output.text(&format!("{done} {number}{command}\n"))?;
    let paths = taken
        .operation
        .paths
        .iter()
        .map(|path| format!("  {}\n", quoted(path)));
    output.text(&paths.collect::<String>())?;
    for note in &taken.notes {
        let path = shown(&note.path);
        output.note(&match note.note {
            NoteKind::Changed => format!(
                "{path} had changed since; what it was is kept, and comes back with the opposite command"
            ),
            NoteKind::InTheWay => {
                format!("something else was at {path}; it is kept, and comes back with the opposite command")
            }
            NoteKind::Gone => format!("{path} was gone already"),
            NoteKind::NotEmpty => format!("{path} stays: there is something in it"),
            NoteKind::ParentMade => format!("directories above {path} were missing and are made"),
        });
    }
    Ok(())
}
