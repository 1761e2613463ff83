//! `tine undo` and `tine redo`: take back a command's changes, and redo them.

use super::context::Context;
use super::output::Output;
use super::shown::Shown;
use crate::ops::protocol::{OperationLine, TakenBackLine};
use crate::ops::{Failure, Redo, Undo};
use crate::render::nodes::shown;
use crate::render::text::quoted;
use crate::workspace::NoteKind;

impl Shown for Undo {
    fn show(&self, taken: &TakenBackLine, context: &Context) -> Result<(), Failure> {
        print_taken_back(taken, "took back", &context.output)
    }
}

impl Shown for Redo {
    fn show(&self, taken: &TakenBackLine, context: &Context) -> Result<(), Failure> {
        print_taken_back(taken, "did again", &context.output)
    }
}

fn print_taken_back(taken: &TakenBackLine, done: &str, output: &Output) -> Result<(), Failure> {
    let OperationLine { id, command, .. } = &taken.of;
    // An operation in an open buffer has no number.
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
