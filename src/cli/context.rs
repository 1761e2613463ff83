//! The context that every verb gets.

use std::any::Any;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use super::global::Global;
use super::output::Output;
use crate::client::failures;
use crate::client::place::{Listener, Place};
use crate::ops::{ErrorCode, Failure};

/// Directory, repository and connection of a command, and its output.
pub(super) struct Context {
    pub output: Output,
    place: Place,
}

impl Context {
    /// Changes to the directories of `-C` and makes the context there.
    ///
    /// The repository is discovered later, when it is needed.
    pub(super) fn enter(global: &Global, output: Output) -> Result<Context, Failure> {
        for dir in &global.dirs {
            std::env::set_current_dir(dir)
                .map_err(|error| failures::named("go to", dir, &error))?;
        }
        let cwd = std::env::current_dir().map_err(|error| {
            Failure::new(ErrorCode::Io, "the current directory cannot be found")
                .cause(error.to_string())
                .hint("it may have been removed: go to another one, or say one with `-C DIR`")
        })?;
        Ok(Context {
            output,
            place: Place::at(cwd, Arc::new(output)),
        })
    }

    /// Returns this context with `dir` as the current directory.
    pub(super) fn in_dir(&self, dir: PathBuf) -> Context {
        Context {
            output: self.output,
            place: self.place.in_dir(dir),
        }
    }
}

impl Deref for Context {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Listener for Output {
    fn note(&self, text: &str) {
        Output::note(self, text);
    }

    fn begins(&self, what: &'static str) -> Option<Box<dyn Any>> {
        Some(Box::new(self.busy(what)?))
    }
}
