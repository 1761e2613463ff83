//! `tine completions`: scripts that teach a shell to complete tine's command line.

use super::context::Context;
use super::{Exit, SUCCESS, args};
use crate::daemon::Failure;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine completions bash > ~/.local/share/bash-completion/completions/tine
  tine completions zsh > ~/.zfunc/_tine
  tine completions fish > ~/.config/fish/completions/tine.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(serde::Serialize)]
struct Script {
    shell: String,
    script: String,
}

pub fn run(verb: &Completions, context: &Context) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(verb.shell, &mut args::command(), "tine", &mut script);
    if context.output.is_json() {
        context.output.json(&Script {
            shell: verb.shell.to_string(),
            script: String::from_utf8_lossy(&script).into_owned(),
        })?;
    } else {
        context.output.bytes(&script)?;
    }
    Ok(SUCCESS)
}
