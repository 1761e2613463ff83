//! `tine rm`: removes paths of a fork.

use super::context::Context;
use super::shown::Shown;
use crate::ops::protocol::Removed;
use crate::ops::{Failure, Remove};
use crate::render::nodes::shown;

impl Shown for Remove {
    fn show(&self, answer: &Removed, context: &Context) -> Result<(), Failure> {
        let Removed { fork, removed } = answer;
        let lines = removed
            .iter()
            .map(|path| format!("removed {}\n", shown(path)));
        let back = format!(
            "`tine undo {fork}` brings {} back\n",
            if removed.len() == 1 { "it" } else { "them" }
        );
        context
            .output
            .text(&lines.chain([back]).collect::<String>())
    }
}
