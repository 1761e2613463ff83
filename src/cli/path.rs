//! `tine path`: where a fork is mounted.

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::daemon::Failure;

/// Print the directory where a fork is, or would be, mounted
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  cd \"$(tine path fix-parser)\" && cargo test")]
pub struct Path {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

pub fn run(verb: &Path, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    let fork = connection.show(&name)?;
    if context.output.is_json() {
        context.output.json(&fork)?;
        return Ok(SUCCESS);
    }
    context.output.path(&fork.mount_dir)?;
    if !fork.mounted {
        context
            .output
            .note(&format!("it is not mounted: `tine mount {name}`"));
    }
    Ok(SUCCESS)
}
