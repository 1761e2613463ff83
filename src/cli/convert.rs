//! `tine convert`: prints what the fork is now.

use super::context::Context;
use super::shown::Shown;
use crate::ops::{Convert, Converted, Failure};
use crate::store::GitKind;

impl Shown for Convert {
    fn show(&self, answer: &Converted, context: &Context) -> Result<(), Failure> {
        let kind = match answer.git {
            GitKind::Own => "a repository of its own",
            GitKind::Linked => "a linked worktree",
        };
        let was = if answer.changed { "now" } else { "already" };
        context
            .output
            .text(&format!("{} is {was} {kind}\n", answer.fork))?;
        if !answer.dormant.is_empty() {
            context.output.note(&format!(
                "while it is linked, git does not use what the fork has of its own: {}; `tine convert {} --git own` brings it back",
                answer.dormant.join(", "),
                answer.fork
            ));
        }
        Ok(())
    }
}
