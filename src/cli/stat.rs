//! `tine stat`: describes the node at a path of a fork.

use super::context::Context;
use super::shown::Shown;
use crate::ops::protocol::{NodeLine, TimeLine};
use crate::ops::{Failure, Stat};
use crate::render::nodes::{kind_word, mode_text, shown, with_target};

impl Shown for Stat {
    fn show(&self, node: &NodeLine, context: &Context) -> Result<(), Failure> {
        let time = |time: TimeLine| format!("{}.{:09}", time.secs, time.nanos);
        let text = format!(
            "path      {}\nkind      {}\nsize      {}\nmode      {} ({})\nowner     {}:{}\nlinks     {}\ninode     {}\n\
             modified  {}\nchanged   {}\n",
            with_target(shown(&node.path), node),
            kind_word(node.kind),
            node.size,
            mode_text(node),
            node.mode,
            node.uid,
            node.gid,
            node.links,
            node.ino,
            time(node.modified),
            time(node.changed),
        );
        context.output.text(&text)
    }
}
