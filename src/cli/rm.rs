//! `tine rm`: removes paths of a fork.

use super::context::Context;
use super::routes::RoutedVerb;
use crate::ops::protocol::{Removed, ToolDeleted};
use crate::ops::{Failure, RemovePaths};
use crate::render::nodes::shown;

impl RoutedVerb<ToolDeleted, Removed> for RemovePaths {
    fn agents_text(&self, deleted: &ToolDeleted, _context: &Context) -> String {
        format!("deleted {}\n", shown(&deleted.path))
    }

    fn show_saved(&self, answer: &Removed, context: &Context) -> Result<(), Failure> {
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
