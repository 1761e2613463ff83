//! `tine completions` and `tine shell-init`: scripts that teach a shell to complete tine's command
//! line, and to go to forks.

use super::context::Context;
use super::{Exit, SUCCESS, completing};
use crate::ops::Failure;

/// Print a completion script for a shell
///
/// It completes commands, flags, and the names of what there is: forks, snapshots, branches,
/// reviews, handoffs, agents. Print it again when tine was replaced by another version.
/// `tine shell-init` has the same, always up to date, and `tcd` with it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine completions bash > ~/.local/share/bash-completion/completions/tine
  tine completions zsh > ~/.zfunc/_tine
  tine completions fish > ~/.config/fish/completions/tine.fish")]
pub(super) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

/// Print what a shell runs when it starts: completions, and `tcd`
///
/// `tcd FORK` goes into a fork's mount, which is mounted first if it is not; `tcd` alone goes back
/// to the main checkout. In zsh it belongs after `compinit`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  eval \"$(tine shell-init bash)\"        in ~/.bashrc
  eval \"$(tine shell-init zsh)\"         in ~/.zshrc
  tine shell-init fish | source         in ~/.config/fish/config.fish")]
pub(super) struct ShellInit {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: InitShell,
}

/// The shells that get `tcd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum InitShell {
    Bash,
    Zsh,
    Fish,
}

#[derive(serde::Serialize)]
struct Script {
    shell: String,
    script: String,
}

pub(super) fn run(verb: &Completions, context: &Context) -> Result<Exit, Failure> {
    print_script(context, verb.shell, &completing::script(verb.shell))
}

/// Completion must be there before something can be said about it.
const ZSH_COMPLETES: &str =
    "(( ${+functions[compdef]} )) || { autoload -Uz compinit && compinit -i }\n";

pub(super) fn init(verb: &ShellInit, context: &Context) -> Result<Exit, Failure> {
    let (shell, own): (_, &[&str]) = match verb.shell {
        InitShell::Bash => (
            clap_complete::Shell::Bash,
            &[
                include_str!("scripts/tcd.sh"),
                include_str!("scripts/tcd-completions.bash"),
            ],
        ),
        InitShell::Zsh => (
            clap_complete::Shell::Zsh,
            &[
                include_str!("scripts/tcd.sh"),
                include_str!("scripts/tcd-completions.zsh"),
            ],
        ),
        InitShell::Fish => (
            clap_complete::Shell::Fish,
            &[include_str!("scripts/tcd.fish")],
        ),
    };
    let mut script = match shell {
        clap_complete::Shell::Zsh => ZSH_COMPLETES.as_bytes().to_vec(),
        _ => Vec::new(),
    };
    script.extend(completing::script(shell));
    script.extend(own.concat().bytes());
    print_script(context, shell, &script)
}

fn print_script(
    context: &Context,
    shell: clap_complete::Shell,
    script: &[u8],
) -> Result<Exit, Failure> {
    context.output.json_or(
        &Script {
            shell: shell.to_string(),
            script: String::from_utf8_lossy(script).into_owned(),
        },
        || context.output.bytes(script),
    )?;
    Ok(SUCCESS)
}
