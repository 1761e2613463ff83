//! `tine buffer`: buffers open in editors, and agents' changes to them.

mod serve;

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::context::Context;
use super::output::{Cell, Output, Tone};
use super::{Exit, SUCCESS};
use crate::client::Client;
use crate::ops::protocol::{BufferAnswer, BufferInfo, BufferMerged, BufferRequest, BufferShown};
use crate::ops::{ErrorCode, ExitCode, Failure};
use crate::path::text::PathText;
use crate::render::text::{counted, quoted};
use crate::tools::BufferConflict;
use crate::tools::buffers::BufferSide;

/// Look at what editors have open, and merge what agents wrote to it
///
/// An editor that is connected says what a person has in it. What an agent writes to such a file
/// with its tools goes into the editor, as soon as it fits there, and not into the file under the
/// person's hands.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine buffer list
  tine buffer show src/main.rs
  tine buffer merge src/main.rs --keep both")]
pub(super) struct Buffer {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    List(List),
    Show(Show),
    Merge(Merge),
    Serve(Serve),
}

/// List the files that editors have open
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine buffer list --json")]
pub(super) struct List {}

/// Show what a person and an agent have of an open file
///
/// Where that differs and excludes each other, line by line. With --json it has both texts whole.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine buffer show src/main.rs")]
pub(super) struct Show {
    /// The file, in a fork's mount or in the main checkout
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Merge what an agent wrote to an open file into the editor
///
/// That is done by itself as long as it is clean. Conflicts are shown, and nothing is changed;
/// --keep settles them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine buffer merge src/main.rs
  tine buffer merge src/main.rs --keep person")]
pub(super) struct Merge {
    /// The file, in a fork's mount or in the main checkout
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,

    /// Whose lines stay where both have changed the same
    #[arg(long, value_enum, value_name = "WHOSE")]
    pub keep: Option<KeptSide>,
}

/// Connect an editor: JSON on standard input and output
///
/// For editors' plugins, which run it as long as they live. The buffers that it opens are closed
/// when it ends. docs/editors.md says what goes in and out.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  echo '{\"id\":1,\"buffer\":\"list\"}' | tine buffer serve")]
pub(super) struct Serve {}

/// Whose lines a conflict becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KeptSide {
    Person,
    Agent,
    /// The person's, then the agent's
    Both,
}

impl From<KeptSide> for BufferSide {
    fn from(keep: KeptSide) -> BufferSide {
        match keep {
            KeptSide::Person => BufferSide::Person,
            KeptSide::Agent => BufferSide::Agent,
            KeptSide::Both => BufferSide::Both,
        }
    }
}

#[derive(Serialize)]
struct Buffers {
    buffers: Vec<BufferInfo>,
}

pub(super) fn run(verb: &Buffer, context: &Context) -> Result<Exit, Failure> {
    match &verb.action {
        Action::List(_) => list(context),
        Action::Show(show) => self::show(show, context),
        Action::Merge(merge) => self::merge(merge, context),
        Action::Serve(_) => serve::run(context),
    }
}

fn list(context: &Context) -> Result<Exit, Failure> {
    let buffers = match context.connect_to_forks()? {
        None => Vec::new(),
        Some(mut connection) => ask(
            &mut connection,
            BufferRequest::List,
            |answer| match answer {
                BufferAnswer::Buffers { buffers } => Some(buffers),
                _ => None,
            },
        )?,
    };
    let output = &context.output;
    if output.is_json() {
        output.json(&Buffers { buffers })?;
        return Ok(SUCCESS);
    }
    if buffers.is_empty() {
        output.note("no editor has a file open");
        return Ok(SUCCESS);
    }
    let rows: Vec<Vec<Cell>> = buffers.iter().map(|buffer| row(buffer, output)).collect();
    output.text(&output.table(&rows))?;
    Ok(SUCCESS)
}

fn row(buffer: &BufferInfo, output: &Output) -> Vec<Cell> {
    let (state, tone) = state(buffer);
    vec![
        Cell::new(
            buffer
                .fork
                .as_ref()
                .map_or("-".to_owned(), ToString::to_string),
        )
        .toned(output, Tone::Name),
        Cell::new(quoted(&buffer.path)),
        Cell::new(state).toned(output, tone),
    ]
}

fn state(buffer: &BufferInfo) -> (&'static str, Tone) {
    match buffer {
        BufferInfo {
            conflicted: true, ..
        } => ("an agent's text conflicts", Tone::Bad),
        BufferInfo { forked: true, .. } => ("an agent's text is being merged", Tone::Careful),
        BufferInfo {
            unsaved_merge: true,
            ..
        } => ("an agent's text is merged and not saved", Tone::Careful),
        BufferInfo { saved: false, .. } => ("not saved", Tone::Careful),
        _ => ("saved", Tone::Good),
    }
}

fn show(verb: &Show, context: &Context) -> Result<Exit, Failure> {
    let request = BufferRequest::Show {
        path: context.absolute(&verb.file),
    };
    let shown: BufferShown = ask(
        &mut connect(context, &verb.file)?,
        request,
        |answer| match answer {
            BufferAnswer::Buffer(shown) => Some(*shown),
            _ => None,
        },
    )?;
    let output = &context.output;
    if output.is_json() {
        output.json(&shown)?;
        return Ok(SUCCESS);
    }
    let (state, tone) = state(&shown.info);
    let mut text = format!(
        "{}: {}\n",
        quoted(&shown.info.path),
        output.paint(tone, state)
    );
    text.push_str(&conflict_text(&shown.conflicts, output));
    output.text(&text)?;
    Ok(SUCCESS)
}

fn merge(verb: &Merge, context: &Context) -> Result<Exit, Failure> {
    let request = BufferRequest::Merge {
        path: context.absolute(&verb.file),
        side: verb.keep.map(BufferSide::from),
    };
    let merged: BufferMerged =
        ask(
            &mut connect(context, &verb.file)?,
            request,
            |answer| match answer {
                BufferAnswer::Merged(merged) => Some(merged),
                _ => None,
            },
        )?;
    let output = &context.output;
    output.json_or_text(&merged, || merged_text(&merged, output))?;
    Ok(if merged.conflicts.is_empty() {
        SUCCESS
    } else {
        ExitCode::Refused.code()
    })
}

fn merged_text(merged: &BufferMerged, output: &Output) -> String {
    let path = quoted(&merged.path);
    if merged.conflicts.is_empty() {
        return match merged.patches.len() {
            0 => format!("{path}: the editor has it all\n"),
            count => format!(
                "{path}: merged, {} changed; the editor's own undo takes that back\n",
                counted(count, "place")
            ),
        };
    }
    let count = counted(merged.conflicts.len(), "conflict");
    format!(
        "{path}: {count}, nothing is changed; `tine buffer merge FILE --keep person|agent|both` settles them\n{}",
        conflict_text(&merged.conflicts, output)
    )
}

/// Formats the conflicts, each with its three texts.
fn conflict_text(conflicts: &[BufferConflict], output: &Output) -> String {
    let mut text = String::new();
    for conflict in conflicts {
        text.push_str(&output.paint(Tone::Name, &format!("line {}\n", conflict.line)));
        for (sign, lines, tone) in [
            ("before ", &conflict.ancestor, Tone::Faint),
            ("agent  ", &conflict.agent, Tone::Careful),
            ("person ", &conflict.person, Tone::Good),
        ] {
            for line in lines.lines() {
                text.push_str(&format!(
                    "  {}{}\n",
                    output.paint(tone, sign),
                    shown_line(line)
                ));
            }
        }
    }
    text
}

/// Returns a line with control characters replaced, safe for a terminal.
fn shown_line(line: &str) -> String {
    let plain = |c: char| c == '\t' || !c.is_control();
    line.chars()
        .map(|c| if plain(c) { c } else { '\u{fffd}' })
        .collect()
}

/// Connects to the daemon. Fails if no editor can have `file` open.
fn connect(context: &Context, file: &Path) -> Result<Client, Failure> {
    context.connect_to_forks()?.ok_or_else(|| {
        let file = quoted(&PathText::from(file.as_os_str().as_encoded_bytes()));
        Failure::new(
            ErrorCode::NoSuchBuffer,
            format!("no editor has {file} open"),
        )
        .hint("`tine buffer list` shows the buffers that are open")
    })
}

fn ask<T>(
    connection: &mut Client,
    request: BufferRequest,
    take: impl FnOnce(BufferAnswer) -> Option<T>,
) -> Result<T, Failure> {
    let answer = connection.call(&request)?;
    take(answer).ok_or_else(|| Failure::other_answer("a question about buffers"))
}
