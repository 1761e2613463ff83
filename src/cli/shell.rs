//! `tine shell`: an interactive shell in a fork.

use std::ffi::OsString;
use std::io::IsTerminal;

use clap_complete::engine::ArgValueCompleter;

use super::context::Context;
use super::origin::OriginFlags;
use super::{Exit, completing, exec};
use crate::client::origin;
use crate::ops::Failure;

/// Open a shell in a fork
///
/// It is $SHELL, or /bin/sh where that is not set, at the fork's root. The fork is mounted first if
/// it is not. TINE_FORK holds the fork's name, for your prompt.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine shell fix-parser
  tine shell fix-parser --at-origin         at the main checkout's path
  PS1='${TINE_FORK:+($TINE_FORK) }'$PS1     in ~/.bashrc: the fork in the prompt")]
pub(super) struct Shell {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(completing::forks))]
    pub name: Option<String>,

    #[command(flatten)]
    pub origin: OriginFlags,
}

pub(super) fn run(verb: &Shell, context: &Context) -> Result<Exit, Failure> {
    verb.origin.check(context)?;
    let fork = exec::mounted(context, verb.name.as_deref())?;
    let origin = verb.origin.place(context, &fork)?;
    let shell = std::env::var_os("SHELL")
        .filter(|shell| !shell.is_empty())
        .unwrap_or_else(|| OsString::from("/bin/sh"));
    if context.output.is_json() {
        context.output.json_aside(&fork)?;
    } else if std::io::stderr().is_terminal() {
        let place = fork.mount_dir.display();
        context.output.note(&format!(
            "a shell in the fork {} at {place}; `exit` leaves it",
            fork.name
        ));
    }
    let (root, dir) = origin::place(context, &fork, origin)?;
    let mut command = exec::command_in(context, &fork, &root, &dir, &shell);
    Ok(exec::replace(&mut command, &shell, &dir, context))
}
