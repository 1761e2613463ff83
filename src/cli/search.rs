//! `tine search`: finds lines in text files, and `tine context`.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use super::context::Context;
use super::routes::RoutedVerb;
use super::{Exit, SUCCESS};
use crate::ops::protocol::{FoundLine, NoSaved, ToolContextShown, ToolFound};
use crate::ops::{Failure, SearchFiles, ShowContext};
use crate::path::text::PathText;
use crate::render::nodes::shown;
use crate::render::text::{counted, one_line, quoted};

impl RoutedVerb<ToolFound, NoSaved> for SearchFiles {
    fn agents_text(&self, found: &ToolFound, context: &Context) -> String {
        for path in &found.too_large {
            context.output.note(&format!(
                "{} is too large, and was not searched",
                shown(path)
            ));
        }
        if found.truncated {
            let lines = counted(found.lines.len(), "line");
            context.output.note(&format!(
                "there are more than {lines}: `--limit` shows more"
            ));
        }
        let mut text = String::new();
        for FoundLine {
            path,
            line,
            text: found,
        } in &found.lines
        {
            let _ = writeln!(text, "{}:{line}:{}", quoted(path), one_line_of(found));
        }
        text
    }

    fn show_saved(&self, answer: &NoSaved, _context: &Context) -> Result<(), Failure> {
        match *answer {}
    }
}

/// Calls [`one_line`] but keeps the leading spaces.
fn one_line_of(found: &str) -> String {
    let rest = found.trim_start();
    let indent = found.get(..found.len() - rest.len()).unwrap_or_default();
    format!("{}{}", indent.replace('\r', ""), one_line(rest))
}

pub(super) fn context(verb: &ShowContext, context: &Context) -> Result<Exit, Failure> {
    let connection = match &verb.fork {
        Some(_) => Some(context.connect_for(verb)?),
        None => context.connect_to_forks()?,
    };
    let answer = match connection {
        Some(mut connection) => connection.call(verb)?,
        // No daemon was started here.
        None => {
            let dir = context.repository()?.main_checkout();
            ToolContextShown {
                working_dir: dir.map(|dir| PathText::from(dir.as_os_str().as_bytes())),
                ..ToolContextShown::default()
            }
        }
    };
    if context.output.is_json() {
        context.output.json(&answer)?;
        return Ok(SUCCESS);
    }
    let mut text = String::new();
    let fork = answer.fork.as_ref().map(ToString::to_string);
    let _ = writeln!(text, "fork        {}", fork.as_deref().unwrap_or("none"));
    let dir = answer.working_dir.as_ref().map(quoted);
    let _ = writeln!(text, "runs in     {}", dir.as_deref().unwrap_or("nowhere"));
    for (name, value) in &answer.environment {
        let _ = writeln!(text, "has         {name}={}", quoted(value));
    }
    for path in &answer.buffers {
        let _ = writeln!(text, "open buffer {}", quoted(path));
    }
    context.output.text(&text)?;
    Ok(SUCCESS)
}
