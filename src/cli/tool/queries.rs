//! `tine tool list`, `search` and `context`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

use super::Caller;
use crate::cli::Exit;
use crate::ops::Failure;
use crate::ops::protocol::{
    FoundLine, NodeLine, Route, SearchRequest, ToolAnswer, ToolContextShown, ToolOperation,
};
use crate::path::text::PathText;
use crate::render::nodes::{kind_letter, shown, with_target};
use crate::render::text::{counted, one_line, quoted};

/// List a directory, or with --deep everything below it
///
/// Sorted by path; a file is listed itself. Symlinks are followed within the fork, and the fork's
/// own .git is left out.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine tool list src --deep")]
pub(crate) struct List {
    /// The directory
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,

    /// With everything below it
    #[arg(long)]
    pub deep: bool,
}

/// Search text files for lines that match a regular expression
///
/// The syntax is ripgrep's. What git ignores is left out unless it is tracked or --ignored is
/// given, and so are binary files and those of more than 64 MiB, which are named. Where a buffer is
/// open its text is searched.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine tool search 'TODO|FIXME'
  tine tool search 'fn main' src --glob '*.rs' --glob '!*_test.rs' --limit 20")]
pub(crate) struct Search {
    /// The regular expression
    #[arg(value_name = "REGEX", allow_hyphen_values = true)]
    pub pattern: String,

    /// Where to look [default: everywhere]
    #[arg(value_name = "PATH")]
    pub path: Option<OsString>,

    /// Only files that match, as in a .gitignore; with `!` before it, no file that matches
    #[arg(short, long = "glob", value_name = "GLOB")]
    pub globs: Vec<String>,

    /// Let capitals match small letters, too
    #[arg(short, long)]
    pub ignore_case: bool,

    /// Search what git ignores, too
    #[arg(long)]
    pub ignored: bool,

    /// Show at most COUNT lines
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1000)]
    pub limit: usize,
}

/// Show where a tool would work: fork, working directory, buffers
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine tool context --json")]
pub(crate) struct Where {}

pub(super) fn list(verb: &List, caller: &mut Caller<'_>) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Shown {
        route: Route,
        path: PathText,
        entries: Vec<NodeLine>,
    }
    let answer = caller.call(ToolOperation::ListDirectory {
        path: PathText::from(verb.path.as_bytes()),
        deep: verb.deep,
    })?;
    let ToolAnswer::Entries { path, entries } = answer else {
        return caller.passed_through(answer);
    };
    let document = Shown {
        route: Route::Fork,
        path,
        entries,
    };
    caller.print(&document, || {
        let mut text = String::new();
        for node in &document.entries {
            let line = with_target(quoted(&node.path), node);
            let _ = writeln!(text, "{} {line}", kind_letter(node.kind));
        }
        text
    })
}

pub(super) fn search(verb: &Search, caller: &mut Caller<'_>) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Shown {
        route: Route,
        lines: Vec<FoundLine>,
        truncated: bool,
        too_large: Vec<PathText>,
    }
    let answer = caller.call(ToolOperation::Search(SearchRequest {
        pattern: verb.pattern.clone(),
        path: verb
            .path
            .as_ref()
            .map(|path| PathText::from(path.as_bytes())),
        globs: verb.globs.clone(),
        ignore_case: verb.ignore_case,
        ignored: verb.ignored,
        limit: verb.limit,
    }))?;
    let ToolAnswer::Found {
        lines,
        truncated,
        too_large,
    } = answer
    else {
        return caller.passed_through(answer);
    };
    let document = Shown {
        route: Route::Fork,
        lines,
        truncated,
        too_large,
    };
    let output = &caller.context.output;
    if !output.is_json() {
        for path in &document.too_large {
            output.note(&format!(
                "{} is too large, and was not searched",
                shown(path)
            ));
        }
        if document.truncated {
            let lines = counted(document.lines.len(), "line");
            output.note(&format!(
                "there are more than {lines}: `--limit` shows more"
            ));
        }
    }
    caller.print(&document, || {
        let mut text = String::new();
        for FoundLine {
            path,
            line,
            text: found,
        } in &document.lines
        {
            let _ = writeln!(text, "{}:{line}:{}", quoted(path), one_line_of(found));
        }
        text
    })
}

/// Calls [`one_line`] but keeps the leading spaces.
fn one_line_of(found: &str) -> String {
    let rest = found.trim_start();
    let indent = found.get(..found.len() - rest.len()).unwrap_or_default();
    format!("{}{}", indent.replace('\r', ""), one_line(rest))
}

pub(super) fn context(caller: &mut Caller<'_>) -> Result<Exit, Failure> {
    let shown_context = match caller.call(ToolOperation::Context)? {
        ToolAnswer::Context(shown) => shown,
        // No daemon was started here.
        ToolAnswer::Passthrough => {
            let dir = caller.context.repository()?.main_checkout();
            ToolContextShown {
                fork: None,
                working_dir: dir.map(|dir| PathText::from(dir.as_os_str().as_bytes())),
                mounted: false,
                buffers: Vec::new(),
                environment: Vec::new(),
            }
        }
        other => return caller.passed_through(other),
    };
    caller.print(&shown_context, || {
        let mut text = String::new();
        let fork = shown_context.fork.as_ref().map(ToString::to_string);
        let _ = writeln!(text, "fork        {}", fork.as_deref().unwrap_or("none"));
        let dir = shown_context.working_dir.as_ref().map(quoted);
        let _ = writeln!(text, "runs in     {}", dir.as_deref().unwrap_or("nowhere"));
        for (name, value) in &shown_context.environment {
            let _ = writeln!(text, "has         {name}={}", quoted(value));
        }
        for path in &shown_context.buffers {
            let _ = writeln!(text, "open buffer {}", quoted(path));
        }
        text
    })
}
