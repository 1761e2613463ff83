//! Options that choose the path at which a command sees the fork.

use std::path::PathBuf;

use super::context::Context;
use crate::client::origin;
use crate::ops::Failure;
use crate::ops::protocol::ForkInfo;
use crate::store::VisiblePath;

/// Where a command sees the fork.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct OriginFlags {
    /// Have the fork at the main checkout's own path, for the command alone [default: what the fork
    /// was made with, or tine.atOrigin says]
    #[arg(long)]
    pub at_origin: bool,

    /// Have it at the path of the fork that it began as, where what it inherited was built
    #[arg(long, conflicts_with = "at_origin")]
    pub at_parent: bool,

    /// Have it at its own path
    #[arg(long, conflicts_with_all = ["at_origin", "at_parent"])]
    pub no_at_origin: bool,
}

impl OriginFlags {
    /// Fails if the options cannot work, before anything is made or mounted.
    pub(super) fn check(&self, context: &Context) -> Result<(), Failure> {
        match (self.at_origin, self.at_parent) {
            (true, _) => {
                origin::check(context)?;
                origin::main_checkout(context.repository()?)?;
            }
            (false, true) => origin::check(context)?,
            (false, false) => {}
        }
        Ok(())
    }

    /// Returns the path at which `fork` appears, if not its mount place.
    pub(super) fn place(
        &self,
        context: &Context,
        fork: &ForkInfo,
    ) -> Result<Option<PathBuf>, Failure> {
        match (self.at_origin, self.at_parent, self.no_at_origin) {
            (true, ..) => origin::place_of(context, fork, VisiblePath::Origin),
            (_, true, _) => origin::place_of(context, fork, VisiblePath::Parent),
            (.., true) => Ok(None),
            (false, false, false) => origin::by_default(context, fork),
        }
    }
}
