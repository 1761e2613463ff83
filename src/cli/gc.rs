//! `tine gc`: frees data that nothing refers to.

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::ops::protocol::Collected;
use crate::ops::{Collect, Failure};
use crate::render::text::human_size;

pub(super) fn run(verb: &Collect, context: &Context) -> Result<Exit, Failure> {
    let collected = match context.connect_to_forks()? {
        Some(mut connection) => connection.call(verb)?,
        None => Collected::default(),
    };
    context
        .output
        .json_or_text(&collected, || format_collected(&collected))?;
    Ok(SUCCESS)
}

fn format_collected(collected: &Collected) -> String {
    let snapshots = match collected.snapshots {
        0 => String::new(),
        1 => "let go of 1 old snapshot; ".to_owned(),
        count => format!("let go of {count} old snapshots; "),
    };
    let expired = match collected.expired {
        0 => String::new(),
        1 => "1 entry of `tine recover` expired; ".to_owned(),
        count => format!("{count} entries of `tine recover` expired; "),
    };
    format!(
        "{snapshots}{expired}freed {}; forks and snapshots take {}\n",
        human_size(collected.freed_bytes),
        human_size(collected.kept_bytes)
    )
}
