//! `tine mount`: mounts a fork that is not, or says where it is.

use std::path::PathBuf;

use super::context::Context;
use super::list::tell_what_was_done;
use super::new::MountFlags;
use super::{Exit, SUCCESS};
use crate::client::embedded_paths;
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::SnapshotPolicy;
use crate::workspace::SnapshotEvery;

/// Mount a fork and print its path
///
/// A fork that is mounted already stays where it is. With --at the place is remembered.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine mount fix-parser
  tine mount fix-parser --at /srv/agents/3
  tine mount fix-parser --overlay-buffers     tests read what you have typed and not saved")]
pub(super) struct Mount {
    /// The fork
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Where to mount; an empty or missing directory [default: where it was last]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub at: Option<PathBuf>,

    /// Take a snapshot every so often from now on, as with `tine new`; or `never`
    #[arg(long, value_name = "30s|100ops|never", value_parser = snapshot_policy)]
    pub snapshot_every: Option<SnapshotPolicy>,

    #[command(flatten)]
    pub settings: MountFlags,
}

fn snapshot_policy(word: &str) -> Result<SnapshotPolicy, String> {
    match word {
        "never" => Ok(SnapshotPolicy::Never),
        _ => SnapshotEvery::try_from(word.to_owned()).map(SnapshotPolicy::Every),
    }
}

pub(super) fn run(verb: &Mount, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(Some(&verb.name))?;
    let dir = verb.at.as_deref().map(|dir| context.absolute(dir));
    let fork = connection.call(&ops::Mount {
        fork: name,
        dir,
        wishes: (&verb.settings).into(),
        snapshot_every: verb.snapshot_every,
    })?;
    context.check_mounted_here(&connection, &fork)?;
    match context.output.is_json() {
        true => context.output.json(&fork)?,
        false => context.output.path(&fork.mount_dir)?,
    }
    embedded_paths::again(context, &mut connection, &fork.name);
    tell_what_was_done(&fork, &mut connection, &context.output);
    Ok(SUCCESS)
}
