//! `tine mv`: moves a path of a fork.

use super::context::Context;
use super::routes::RoutedVerb;
use crate::ops::protocol::{MovedLine, ToolMoved};
use crate::ops::{Failure, MovePath};
use crate::render::nodes::shown;

impl RoutedVerb<ToolMoved, MovedLine> for MovePath {
    fn agents_text(&self, moved: &ToolMoved, _context: &Context) -> String {
        format!("moved {} to {}\n", shown(&moved.from), shown(&moved.to))
    }

    fn show_saved(&self, moved: &MovedLine, context: &Context) -> Result<(), Failure> {
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
