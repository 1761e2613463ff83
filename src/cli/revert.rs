//! `tine revert`: sets paths of a fork to a point.

use super::context::Context;
use super::output::Output;
use super::restore::lacking;
use super::shown::Shown;
use super::status::change_text;
use crate::client::Client;
use crate::ops::protocol::Reverted;
use crate::ops::{Failure, Revert};
use crate::render::nodes::shown;
use crate::render::text::counted;

impl Shown for Revert {
    fn after(&self, reverted: &Reverted, context: &Context, _client: &mut Client) {
        if let Some(word) = &self.to {
            context.output.note_meaning(word, &reverted.to);
        }
        for path in &reverted.left_alone {
            context.output.note(&format!(
                "{} is left alone: what a submodule stands on is changed in there",
                shown(path)
            ));
        }
    }

    fn show(&self, reverted: &Reverted, context: &Context) -> Result<(), Failure> {
        context
            .output
            .text(&format_reverted(reverted, &context.output))
    }
}

fn format_reverted(reverted: &Reverted, output: &Output) -> String {
    let mut text: String = reverted
        .changes
        .iter()
        .map(|change| change_text(change, output))
        .collect();
    let (count, point) = (reverted.changes.len(), &reverted.to.point);
    text.push_str(&match (count, reverted.dry_run) {
        (0, _) => format!("nothing to take back: it is as at {point}\n"),
        (_, false) => format!(
            "{} taken back to {point}; `tine undo {}` takes that back\n",
            counted(count, "path"),
            reverted.fork
        ),
        (_, true) => format!(
            "{} would be taken back to {point}\n",
            counted(count, "path")
        ),
    });
    text.push_str(&lacking(&reverted.left_out));
    text
}
