//! `tine tool read`, `write`, `edit`, `delete` and `move`.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;

use super::{Caller, in_buffer};
use crate::change::resolver::JsonBytes;
use crate::cli::Exit;
use crate::cli::contents::{sent_content, store_dir};
use crate::client::failures;
use crate::ops::protocol::{Route, ToolAnswer, ToolOperation};
use crate::ops::{ErrorCode, Failure};
use crate::path::text::PathText;
use crate::render::nodes::shown;
use crate::render::text::counted;
use crate::tools::TextEdit;

/// Print a file as an agent sees it
///
/// Byte for byte; symlinks are followed within the fork. With --json the content is {"text": …} or,
/// where it is not UTF-8, {"base64": …}.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine tool read src/main.rs --json")]
pub(crate) struct Read {
    /// The file
    #[arg(value_name = "PATH")]
    pub path: OsString,
}

/// Write a file: all of it, from standard input or --file
///
/// Directories that are missing are made; a file that is there keeps its mode; a symlink is
/// followed within the fork.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine tool write notes/today.md < today.md")]
pub(crate) struct Write {
    /// The file
    #[arg(value_name = "PATH")]
    pub path: OsString,

    /// Take the content from FILE
    #[arg(short = 'F', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,
}

/// Replace texts in a file: all of the edits, or none
///
/// A text must be in the file exactly once, unless all of them are to be replaced. Edits are made
/// one after another, each in what the one before it left. Where all lines of the file end in CR LF
/// they go on to. A file of edits holds a JSON array: [{"old": "a", "new": "b", "replace_all":
/// true}].
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine tool edit src/main.rs --old 'let x = 1;' --new 'let x = 2;'
  tine tool edit src/main.rs --old foo --new bar --all
  tine tool edit src/main.rs --edits edits.json --json")]
pub(crate) struct Edit {
    /// The file
    #[arg(value_name = "PATH")]
    pub path: OsString,

    /// The text to replace
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        requires = "new",
        required_unless_present = "edits"
    )]
    pub old: Option<String>,

    /// What comes in its place
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        requires = "old"
    )]
    pub new: Option<String>,

    /// Replace it wherever it is
    #[arg(long, requires = "old")]
    pub all: bool,

    /// Take the edits from a JSON file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["old", "new", "all"], value_hint = clap::ValueHint::FilePath)]
    pub edits: Option<PathBuf>,
}

/// Delete a file; a symlink itself
///
/// No directory is deleted. A buffer that is open for it stays open in its editor.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine tool delete src/old.rs")]
pub(crate) struct Delete {
    /// The file
    #[arg(value_name = "PATH")]
    pub path: OsString,
}

/// Move or rename a file or directory; a symlink itself
///
/// It goes into DST where that is a directory. Directories that are missing are made, nothing is
/// replaced. A buffer that is open for it stays where it is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine tool move src/old.rs src/lexer/new.rs")]
pub(crate) struct Move {
    /// What is moved
    #[arg(value_name = "SRC")]
    pub from: OsString,

    /// The new path, or a directory to move into
    #[arg(value_name = "DST")]
    pub to: OsString,
}

fn path_text(path: &OsString) -> PathText {
    PathText::from(path.as_bytes())
}

pub(super) fn read(verb: &Read, caller: &mut Caller<'_>) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Shown {
        route: Route,
        path: PathText,
        size: u64,
        content: JsonBytes,
    }
    let answer = caller.call(ToolOperation::ReadFile {
        path: path_text(&verb.path),
    })?;
    let ToolAnswer::File {
        route,
        path,
        size,
        content,
    } = answer
    else {
        return caller.passed_through(answer);
    };
    let output = &caller.context.output;
    let arrived = content.take(&store_dir(caller.context)?)?;
    if output.is_json() {
        output.json(&Shown {
            route,
            path,
            size,
            content: arrived.into_bytes()?.into(),
        })?;
    } else {
        output.arrived(arrived)?;
    }
    Ok(crate::cli::SUCCESS)
}

pub(super) fn write(verb: &Write, caller: &mut Caller<'_>) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Shown {
        route: Route,
        path: PathText,
        size: u64,
        created: bool,
    }
    if caller.connection.is_none() {
        return caller.passed_through(ToolAnswer::Passthrough);
    }
    if let (Some(connection), Some(fork)) = (&mut caller.connection, &caller.fork) {
        // Fails early if the fork does not exist, before any input is read.
        connection.show(fork)?;
    }
    let store_dir = store_dir(caller.context)?;
    let content = sent_content(&store_dir, verb.file.as_deref())?;
    let answer = caller.call(ToolOperation::WriteFile {
        path: path_text(&verb.path),
        content: content.clone(),
    });
    if !matches!(answer, Ok(ToolAnswer::Written { .. })) {
        content.withdraw(&store_dir);
    }
    let answer = answer?;
    let ToolAnswer::Written {
        route,
        path,
        size,
        created,
    } = answer
    else {
        return caller.passed_through(answer);
    };
    let done = if created { "made" } else { "wrote" };
    let line = format!(
        "{done} {} ({size} bytes){}\n",
        shown(&path),
        in_buffer(route)
    );
    let document = Shown {
        route,
        path,
        size,
        created,
    };
    caller.print(&document, || line)
}

pub(super) fn edit(verb: &Edit, caller: &mut Caller<'_>) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Shown {
        route: Route,
        path: PathText,
        replaced: u64,
        size: u64,
    }
    let answer = caller.call(ToolOperation::EditFile {
        path: path_text(&verb.path),
        edits: edits(verb)?,
    })?;
    let ToolAnswer::Edited {
        route,
        path,
        replaced,
        size,
    } = answer
    else {
        return caller.passed_through(answer);
    };
    let places = counted(usize::try_from(replaced).unwrap_or(usize::MAX), "place");
    let line = format!("edited {} in {places}{}\n", shown(&path), in_buffer(route));
    let document = Shown {
        route,
        path,
        replaced,
        size,
    };
    caller.print(&document, || line)
}

/// Returns the edits of the command line, or of its file.
fn edits(verb: &Edit) -> Result<Vec<TextEdit>, Failure> {
    if let (Some(old), Some(new)) = (&verb.old, &verb.new) {
        return Ok(vec![TextEdit {
            old: old.clone(),
            new: new.clone(),
            replace_all: verb.all,
        }]);
    }
    let mut json = Vec::new();
    match verb.edits.as_deref() {
        Some(file) if file.as_os_str() != "-" => {
            json = std::fs::read(file).map_err(|error| failures::named("read", file, &error))?;
        }
        _ => {
            std::io::stdin()
                .lock()
                .read_to_end(&mut json)
                .map_err(|error| {
                    Failure::new(ErrorCode::Io, "the edits could not be read")
                        .cause(error.to_string())
                        .hint("nothing was changed: try again")
                })?;
        }
    }
    serde_json::from_slice(&json).map_err(|error| {
        Failure::new(ErrorCode::Usage, "the edits are not a JSON array of edits")
            .cause(error.to_string())
            .hint(r#"give them so: `[{"old": "a", "new": "b"}, {"old": "c", "new": "d", "replace_all": true}]`"#)
    })
}

pub(super) fn delete(verb: &Delete, caller: &mut Caller<'_>) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Shown {
        route: Route,
        path: PathText,
    }
    let answer = caller.call(ToolOperation::DeleteFile {
        path: path_text(&verb.path),
    })?;
    let ToolAnswer::Deleted { path } = answer else {
        return caller.passed_through(answer);
    };
    let line = format!("deleted {}\n", shown(&path));
    let route = Route::Fork;
    caller.print(&Shown { route, path }, || line)
}

pub(super) fn rename(verb: &Move, caller: &mut Caller<'_>) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Shown {
        route: Route,
        from: PathText,
        to: PathText,
    }
    let answer = caller.call(ToolOperation::MoveFile {
        from: path_text(&verb.from),
        to: path_text(&verb.to),
    })?;
    let ToolAnswer::Moved { from, to } = answer else {
        return caller.passed_through(answer);
    };
    let line = format!("moved {} to {}\n", shown(&from), shown(&to));
    let route = Route::Fork;
    caller.print(&Shown { route, from, to }, || line)
}
