//! `tine reset`: sets a fork to HEAD.

use super::context::Context;
use super::restore::format_restored;
use super::shown::Shown;
use crate::client::{Client, embedded_paths};
use crate::ops::protocol::Restored;
use crate::ops::{Failure, Reset};

impl Shown for Reset {
    fn after(&self, restored: &Restored, context: &Context, client: &mut Client) {
        embedded_paths::rewrite_again(context, client, &restored.fork);
    }

    fn show(&self, restored: &Restored, context: &Context) -> Result<(), Failure> {
        context
            .output
            .text(&format_restored(restored, "is at HEAD, unchanged"))
    }
}
