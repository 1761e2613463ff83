//! The whole command line as types. Each verb's arguments are in the verb's file.

use std::ffi::OsString;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::global::{Color, Global};
use super::{
    apply, branch, buffer, check, cherry_pick, completions, daemon, diff, doctor, exec, fetch,
    handoff, list, log, ls, man, mcp, merge, op, path, push, recover, resolve, restore, review,
    round, run, shell, snapshot, stats, status, top, tree, ui, uninstall, unmount, update,
};
use crate::{client, ops};

const MAIN_JOB: &str = "\
Example:
  tine new fix-parser                     make a fork of HEAD, mount it, print its path
  cd \"$(tine path fix-parser)\"            work in it: it is an ordinary checkout
  tine status                             see what changed
  tine commit -m 'Fix the parser'         commit it to the branch tine/fix-parser
  tine delete fix-parser                  remove the fork; the branch stays

  tine exec demo --new -- make test       the same for one command

`tine` alone shows the forks, what waits for you, and what to do next.
Commands that take [NAME] mean the fork they run in where it is left out.";

/// Give every coding agent its own copy-on-write workspace over a git repository
///
/// A fork is mounted with FUSE and is an ordinary checkout to shells, compilers, editors and git.
/// What is written in it lands in a layer of its own: it costs no disk until something changes, and
/// the main checkout never sees it.
#[derive(Debug, Parser)]
#[command(
    name = "tine",
    version,
    after_long_help = MAIN_JOB,
    max_term_width = 100,
    disable_help_subcommand = false,
    subcommand_value_name = "COMMAND",
    infer_long_args = false
)]
pub(super) struct Cli {
    #[command(flatten)]
    pub global: Global,
    /// None: the forks at a glance.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    #[command(aliases = ["create", "add"])]
    New(crate::ops::New),
    List(list::List),
    Tree(tree::Tree),
    Path(path::Path),
    Mount(crate::ops::Mount),
    #[command(aliases = ["umount"])]
    Unmount(unmount::Unmount),
    #[command(aliases = ["remove", "del"])]
    Delete(ops::Delete),
    Convert(ops::Convert),
    Exec(exec::Exec),
    #[command(aliases = ["sh"])]
    Shell(shell::Shell),
    Mcp(mcp::Mcp),
    #[command(aliases = ["st"])]
    Status(status::Status),
    Diff(diff::Diff),
    Revert(ops::Revert),
    #[command(aliases = ["ci"])]
    Commit(client::commit::CommitWithHooks),
    Branch(branch::Branch),
    Merge(merge::Merge),
    #[command(aliases = ["pull"])]
    Update(update::Update),
    CherryPick(cherry_pick::CherryPick),
    Apply(apply::Apply),
    Review(review::Review),
    Resolve(resolve::Resolve),
    Push(push::Push),
    Fetch(fetch::Fetch),
    Handoff(handoff::Handoff),
    #[command(aliases = ["rounds"])]
    Round(round::Round),
    #[command(aliases = ["buffers"])]
    Buffer(buffer::Buffer),
    Log(log::Log),
    #[command(aliases = ["snap"])]
    Snapshot(snapshot::Snapshot),
    Snapshots(ops::ListSnapshots),
    Restore(restore::Restore),
    Reset(ops::Reset),
    Recover(recover::Recover),
    Gc(ops::Collect),
    Check(check::Check),
    Ls(ls::Ls),
    Stat(ops::Stat),
    Cat(ops::ReadFiles),
    Write(ops::WriteFile),
    Edit(ops::EditFile),
    #[command(aliases = ["move", "rename"])]
    Mv(ops::MovePath),
    Rm(ops::RemovePaths),
    Search(ops::SearchFiles),
    Run(run::Run),
    Context(ops::ShowContext),
    Undo(ops::Undo),
    Redo(ops::Redo),
    Op(op::Op),
    Ui(ui::Ui),
    Daemon(daemon::Daemon),
    Doctor(doctor::Doctor),
    Stats(stats::Stats),
    Top(top::Top),
    Completions(completions::Completions),
    ShellInit(completions::ShellInit),
    Man(man::Man),
    Uninstall(uninstall::Uninstall),
}

impl Verb {
    /// Returns whether this process becomes the daemon.
    pub(super) fn is_daemon_run(&self) -> bool {
        matches!(
            self,
            Verb::Daemon(daemon::Daemon {
                action: daemon::Action::Run(_)
            })
        )
    }
}

/// Returns the command line as a clap command.
pub fn command() -> clap::Command {
    // `tine exec` also has the options of `tine new`. There they require --new.
    let is_of_new = |argument: &clap::Arg| {
        let of_new = crate::ops::NewOptions::augment_args(clap::Command::new("options"));
        of_new
            .get_arguments()
            .any(|option| option.get_id() == argument.get_id())
    };
    let command = Cli::command().mut_subcommand("exec", |exec| {
        exec.mut_args(|argument| {
            if is_of_new(&argument) {
                argument.requires("new")
            } else {
                argument
            }
        })
    });
    let help = groups::help_template(&command);
    command.help_template(help)
}

/// Parses `words`, of which the first is the program's name.
pub(super) fn parse(words: &[OsString], color: Color) -> Result<Cli, clap::Error> {
    let mut command = command().color(match color {
        Color::Auto => clap::ColorChoice::Auto,
        Color::Always => clap::ColorChoice::Always,
        Color::Never => clap::ColorChoice::Never,
    });
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

mod groups;

#[cfg(test)]
mod tests;
