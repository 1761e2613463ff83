//! `tine walk`: every path of a fork, or every path under one.

use super::context::Context;
use super::output::{Cell, table};
use super::shown::Shown;
use crate::ops::protocol::Nodes;
use crate::ops::{Failure, Walk};
use crate::render::nodes::{kind_letter, with_target};
use crate::render::text::quoted;

impl Shown for Walk {
    fn show(&self, listed: &Nodes, context: &Context) -> Result<(), Failure> {
        let rows: Vec<Vec<Cell>> = listed
            .nodes
            .iter()
            .map(|node| {
                vec![
                    Cell::new(kind_letter(node.kind).to_string()),
                    Cell::new(node.size.to_string()).right(),
                    Cell::new(with_target(quoted(&node.path), node)),
                ]
            })
            .collect();
        context.output.long(&table(&rows))
    }
}
