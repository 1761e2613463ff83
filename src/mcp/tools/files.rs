//! Reading and changing files of the active fork.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::session::Session;
use super::super::tool::{Call, MAX_TEXT, ToolOutput, ToolResult, cut};
use super::text_path;
use tine_ops as ops;
use tine_ops::protocol::{Route, ToolDeleted, ToolEdited, ToolMoved, ToolWritten};
use tine_ops::transfer::{Outgoing, Transfer};
use tine_ops::{ErrorCode, Failure, MovePath, ReadFiles, RemovePaths};
use tine_path::text::PathText;
use tine_render::text::{counted, human_size, quoted};
use tine_tools::TextEdit;

/// Default number of lines that one read returns.
const DEFAULT_LINES: u64 = 2000;

/// Reads a file of the fork, as the tools see it.
pub(crate) fn read_bytes(
    session: &Session,
    path: &str,
) -> Result<(Route, PathText, Vec<u8>), Failure> {
    let operation = ReadFiles::of(text_path(path));
    let read = session.route(operation, format!("mcp read_file {path}"))?;
    let arrived = read.content.take(session.store_dir())?;
    Ok((read.route, read.path, arrived.into_bytes()?))
}

/// Prepares `bytes` for sending to the daemon.
pub(crate) fn outgoing(session: &Session, bytes: &[u8]) -> Result<Transfer, Failure> {
    let mut outgoing = Outgoing::new(session.store_dir());
    outgoing.add(bytes)?;
    Ok(outgoing.finish())
}

/// Read a text file of the active fork, or a part of it.
///
/// A long file comes in pages: `next_line` says where the next one begins. Of a file that is open
/// in a person's editor you get what you wrote to it, else what the person has there, saved or not.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ReadFile {
    /// From the fork's root, or absolute: in its mount or in the main checkout.
    path: String,
    /// The first line to read, from 1. Default: 1.
    first_line: Option<u64>,
    /// How many lines to read at most. Default: 2000.
    lines: Option<u64>,
}

/// A file, or a part of it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FileShown {
    path: PathText,
    /// `fork`, or `buffer`: it is open in a person's editor.
    #[schemars(with = "String")]
    route: Route,
    /// Bytes of the whole file.
    size: usize,
    /// None: it is not text.
    text: Option<String>,
    /// Of `text`, from 1.
    first_line: u64,
    /// Lines of the whole file.
    total_lines: u64,
    /// Where to go on; none: this was all.
    next_line: Option<u64>,
    /// The last line of `text` is longer than what is shown of it.
    line_cut: bool,
}

pub(super) fn read_file(arguments: ReadFile, call: &Call<'_>) -> ToolResult<FileShown> {
    let first_line = arguments.first_line.unwrap_or(1);
    let lines = arguments.lines.unwrap_or(DEFAULT_LINES);
    if first_line == 0 || lines == 0 {
        return Err(Failure::new(ErrorCode::Usage, "lines are counted from 1")
            .hint("leave `first_line` and `lines` out to read from the beginning"));
    }
    let (route, path, bytes) = read_bytes(call.session, &arguments.path)?;
    let mut shown = FileShown {
        path,
        route,
        size: bytes.len(),
        text: None,
        first_line,
        total_lines: 0,
        next_line: None,
        line_cut: false,
    };
    let Ok(text) = String::from_utf8(bytes) else {
        let text = format!(
            "{} is no text ({}); the resource tine://file/{} has its bytes",
            quoted(&shown.path),
            human_size(shown.size as u64),
            arguments.path
        );
        return Ok(ToolOutput::new(shown, text));
    };
    let page = page(&text, first_line, lines);
    shown.total_lines = page.total_lines;
    if first_line > page.total_lines.max(1) {
        return Err(Failure::new(
            ErrorCode::Usage,
            format!(
                "{} has {} lines, and no line {first_line}",
                quoted(&shown.path),
                page.total_lines
            ),
        )
        .hint("leave `first_line` out to read from the beginning"));
    }
    shown.next_line = page.next_line;
    shown.line_cut = page.line_cut;
    let mut said = page.text.clone();
    if page.line_cut {
        said.push_str("\n[the line goes on: it is too long to be shown whole]");
    }
    if let Some(next) = page.next_line {
        said.push_str(&format!(
            "\n[{} lines in all: go on with first_line {next}]",
            page.total_lines
        ));
    }
    shown.text = Some(page.text);
    Ok(ToolOutput::new(shown, said))
}

struct Page {
    text: String,
    total_lines: u64,
    next_line: Option<u64>,
    line_cut: bool,
}

/// Returns the lines from `first_line` on.
///
/// They are whole lines, unless the first one alone is too long.
fn page(text: &str, first_line: u64, lines: u64) -> Page {
    let mut page = Page {
        text: String::new(),
        total_lines: 0,
        next_line: None,
        line_cut: false,
    };
    for line in text.split_inclusive('\n') {
        page.total_lines += 1;
        let number = page.total_lines;
        if number < first_line || page.next_line.is_some() {
            continue;
        }
        let is_full = number - first_line >= lines
            || page.line_cut
            || page.text.len() + line.len() > MAX_TEXT;
        if is_full && number > first_line {
            page.next_line = Some(number);
            continue;
        }
        page.text.push_str(line);
        page.line_cut = cut(&mut page.text, MAX_TEXT);
    }
    page
}

/// Write a text file of the active fork whole: make it, or replace what it has.
///
/// Directories that are missing are made. To change a part of a file `edit_file` is better.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct WriteFile {
    /// From the fork's root, or absolute: in its mount or in the main checkout.
    path: String,
    /// All that the file is to have.
    content: String,
}

/// A file that was written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FileWritten {
    path: PathText,
    /// `fork`, or `buffer`: it is open in a person's editor, and this is your version until it is
    /// merged with theirs.
    #[schemars(with = "String")]
    route: Route,
    /// Bytes.
    size: u64,
    /// Whether there was no such file before.
    created: bool,
}

pub(super) fn write_file(arguments: WriteFile, call: &Call<'_>) -> ToolResult<FileWritten> {
    let content = outgoing(call.session, arguments.content.as_bytes())?;
    let operation = ops::WriteFile::of(text_path(&arguments.path), content.clone());
    let ToolWritten {
        route,
        path,
        size,
        created,
    } = call
        .route(operation, &arguments.path)
        .inspect_err(|_| content.withdraw(call.session.store_dir()))?;
    let did = if created { "made" } else { "replaced" };
    let text = format!(
        "{did} {} ({}){}",
        quoted(&path),
        human_size(size),
        open_in_editor(route)
    );
    let shown = FileWritten {
        path,
        route,
        size,
        created,
    };
    Ok(ToolOutput::new(shown, text))
}

fn open_in_editor(route: Route) -> &'static str {
    match route {
        Route::Buffer => "; it is open in a person's editor",
        Route::Fork => "",
    }
}

/// Change a text file of the active fork by replacing exact texts: all edits, or none.
///
/// Each `old` must stand in the file exactly once, with its white space and line ends, unless
/// `replace_all` is set; give enough of the lines around it. Each edit sees what the one before it
/// left. An `old` that is not there, or that is there several times, is an error of its own, and
/// nothing is changed.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EditFile {
    /// From the fork's root, or absolute: in its mount or in the main checkout.
    path: String,
    /// One after another.
    edits: Vec<Edit>,
}

/// One replacement.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The text to replace, exactly as it is in the file.
    old: String,
    /// What comes in its place; empty to remove it.
    new: String,
    /// Replace it everywhere.
    #[serde(default)]
    replace_all: bool,
}

/// A file that was edited.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FileEdited {
    path: PathText,
    /// `fork`, or `buffer`: it is open in a person's editor, and this is your version until it is
    /// merged with theirs.
    #[schemars(with = "String")]
    route: Route,
    /// How many places were replaced.
    replaced: u64,
    /// Bytes, now.
    size: u64,
}

pub(super) fn edit_file(arguments: EditFile, call: &Call<'_>) -> ToolResult<FileEdited> {
    let edits = arguments.edits.into_iter().map(|edit| TextEdit {
        old: edit.old,
        new: edit.new,
        replace_all: edit.replace_all,
    });
    let operation = ops::EditFile::of(text_path(&arguments.path), edits.collect());
    let ToolEdited {
        route,
        path,
        replaced,
        size,
    } = call.route(operation, &arguments.path)?;
    let places = usize::try_from(replaced).unwrap_or(usize::MAX);
    let text = format!(
        "{} replaced in {}{}",
        counted(places, "place"),
        quoted(&path),
        open_in_editor(route)
    );
    let shown = FileEdited {
        path,
        route,
        replaced,
        size,
    };
    Ok(ToolOutput::new(shown, text))
}

/// Delete a file of the active fork. `undo` brings it back.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct DeleteFile {
    /// From the fork's root, or absolute: in its mount or in the main checkout.
    path: String,
}

/// A file that was deleted.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FileDeleted {
    path: PathText,
}

pub(super) fn delete_file(arguments: DeleteFile, call: &Call<'_>) -> ToolResult<FileDeleted> {
    let operation = RemovePaths::of(text_path(&arguments.path));
    let ToolDeleted { path, .. } = call.route(operation, &arguments.path)?;
    let text = format!("deleted {}", quoted(&path));
    Ok(ToolOutput::new(FileDeleted { path }, text))
}

/// Move or rename a file or directory of the active fork.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct MoveFile {
    /// What to move: from the fork's root, or absolute.
    from: String,
    /// Where it is to be, likewise, with its new name.
    to: String,
}

/// A file that was moved.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FileMoved {
    from: PathText,
    to: PathText,
}

pub(super) fn move_file(arguments: MoveFile, call: &Call<'_>) -> ToolResult<FileMoved> {
    let operation = MovePath::of(text_path(&arguments.from), text_path(&arguments.to));
    let what = format!("{} {}", arguments.from, arguments.to);
    let ToolMoved { from, to, .. } = call.route(operation, &what)?;
    let text = format!("moved {} to {}", quoted(&from), quoted(&to));
    Ok(ToolOutput::new(FileMoved { from, to }, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_whole_lines_and_say_where_to_go_on() {
        let all = page("a\nb\nc", 1, 10);
        assert_eq!(
            (all.text.as_str(), all.total_lines, all.next_line),
            ("a\nb\nc", 3, None)
        );
        let some = page("a\nb\nc", 2, 1);
        assert_eq!(
            (some.text.as_str(), some.total_lines, some.next_line),
            ("b\n", 3, Some(3))
        );
        let none = page("", 1, 10);
        assert_eq!(
            (none.text.as_str(), none.total_lines, none.next_line),
            ("", 0, None)
        );
    }

    #[test]
    fn a_page_is_bounded_and_pages_reach_the_end() {
        let long = "x".repeat(MAX_TEXT + 10);
        let text = format!("é\n{long}\nlast");
        let mut next = Some(1);
        let mut pages = Vec::new();
        while let Some(first) = next {
            let page = page(&text, first, 100);
            assert!(page.text.len() <= MAX_TEXT);
            next = page.next_line;
            pages.push((page.text.len(), page.line_cut));
        }
        assert_eq!(pages, [(3, false), (MAX_TEXT, true), (4, false)]);
    }
}
