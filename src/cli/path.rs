//! `tine path`: prints a fork's mount place.

use clap_complete::engine::ArgValueCompleter;

use super::context::Context;
use super::{Exit, SUCCESS, completing};
use crate::ops::{ErrorCode, Failure};
use crate::path::text::host_path;

/// Print the directory where a fork is, or would be, mounted
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cd \"$(tine path fix-parser)\" && cargo test
  cd \"$(tine path --main)\"                        back to the main checkout")]
pub(super) struct Path {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(completing::forks))]
    pub name: Option<String>,

    /// Print the main checkout instead
    #[arg(long, conflicts_with = "name")]
    pub main: bool,
}

#[derive(serde::Serialize)]
struct MainCheckout<'a> {
    #[serde(with = "host_path")]
    main_checkout: &'a std::path::Path,
}

pub(super) fn run(verb: &Path, context: &Context) -> Result<Exit, Failure> {
    if verb.main {
        return print_main_checkout(context);
    }
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

fn print_main_checkout(context: &Context) -> Result<Exit, Failure> {
    let repository = context.repository()?;
    let Some(main_checkout) = repository.main_checkout() else {
        return Err(Failure::new(
            ErrorCode::UnsupportedRepository,
            format!(
                "{} is bare: it has no main checkout",
                repository.common_dir().display()
            ),
        )
        .hint("`tine path NAME` prints where a fork is"));
    };
    context
        .output
        .json_or(&MainCheckout { main_checkout }, || {
            context.output.path(main_checkout)
        })?;
    Ok(SUCCESS)
}
