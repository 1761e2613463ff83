//! `tine mv`: moves a path of a fork.

use super::context::Context;
use super::shown::Shown;
use crate::ops::protocol::MovedLine;
use crate::ops::{Failure, Move};
use crate::render::nodes::shown;

impl Shown for Move {
    fn show(&self, moved: &MovedLine, context: &Context) -> Result<(), Failure> {
        let back = if moved.replaced {
            format!("; `tine undo {}` brings back what was there", moved.fork)
        } else {
            String::new()
        };
        let line = format!(
            "moved {} to {}{back}\n",
            shown(&moved.from),
            shown(&moved.to)
        );
        context.output.text(&line)
    }
}
