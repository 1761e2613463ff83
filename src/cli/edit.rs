//! `tine edit`: replaces texts in a file of a fork.

use std::io::Read as _;

use super::context::Context;
use super::{Exit, routes};
use crate::client::failures;
use crate::ops::protocol::{NoSaved, ToolEdited};
use crate::ops::{EditFile, ErrorCode, Failure};
use crate::render::nodes::shown;
use crate::render::text::counted;
use crate::tools::TextEdit;

pub(super) fn run(verb: &EditFile, context: &Context) -> Result<Exit, Failure> {
    let verb = EditFile {
        edits: edits(verb)?,
        ..verb.clone()
    };
    routes::run_as_agent(&verb, context)
}

impl routes::RoutedVerb<ToolEdited, NoSaved> for EditFile {
    fn agents_text(&self, edited: &ToolEdited, _context: &Context) -> String {
        let places = usize::try_from(edited.replaced).unwrap_or(usize::MAX);
        let (path, places) = (shown(&edited.path), counted(places, "place"));
        format!(
            "edited {path} in {places}{}\n",
            routes::in_buffer(edited.route)
        )
    }

    fn show_saved(&self, answer: &NoSaved, _context: &Context) -> Result<(), Failure> {
        match *answer {}
    }
}

/// Returns the edits of the command line, or of its file.
fn edits(verb: &EditFile) -> Result<Vec<TextEdit>, Failure> {
    if let (Some(old), Some(new)) = (&verb.old, &verb.new) {
        return Ok(vec![TextEdit {
            old: old.clone(),
            new: new.clone(),
            replace_all: verb.all,
        }]);
    }
    let mut json = Vec::new();
    match verb.edits_file.as_deref() {
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
