//! `tine reset`: takes a fork back to HEAD.

use super::context::Context;
use super::restore::told;
use super::shown::Shown;
use crate::client::{Client, embedded_paths};
use crate::ops::protocol::Restored;
use crate::ops::{Failure, Reset};

impl Shown for Reset {
    fn after(&self, restored: &Restored, context: &Context, client: &mut Client) {
        embedded_paths::again(context, client, &restored.fork);
    }

    fn show(&self, restored: &Restored, context: &Context) -> Result<(), Failure> {
        context
            .output
            .text(&told(restored, "is at HEAD, unchanged"))
    }
}
