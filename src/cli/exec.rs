//! `tine exec`: runs a command in a fork.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap_complete::engine::ArgValueCompleter;

use super::context::Context;
use super::new;
use super::origin::OriginFlags;
use super::{Exit, completing, round};
use crate::client::after_new::after_new;
use crate::client::hooks::HookOutput;
use crate::client::{cargo_target, origin};
use crate::ops;
use crate::ops::protocol::ForkInfo;
use crate::ops::{ErrorCode, Failure};
use crate::store::ForkName;
use crate::tools::run::{fork_env, git_variables};

/// Exit code for a command that is not found, as in shells.
const NOT_FOUND: Exit = 127;
/// Exit code for a command that cannot be executed, as in shells.
const NOT_EXECUTABLE: Exit = 126;

/// Run a command in a fork
///
/// The fork is mounted first if it is not, or made with --new. The command takes tine's place: its
/// output, its exit code and the signals it gets are its own (127: not found, 126: not executable).
/// It runs at the fork's root with TINE_FORK (the name) and TINE_MOUNT (the path) in its
/// environment, and without git's variables that would lead it elsewhere (GIT_DIR and the like).
///
/// With --at-origin the fork is at the path of the main checkout, for the command and what it
/// starts: build caches and files that hold absolute paths go on to fit. Nobody else sees that. The
/// command runs in the directory in which you are, if it is in the main checkout or the fork and
/// the fork has it. An ordinary user's command runs in a user namespace then: programs like sudo
/// have no effect there.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine exec fix-parser -- cargo test
  tine exec demo --new -- sh -c 'echo hi > hi.txt && git add -A && git commit -qm hi'
  tine exec fix-parser --at-origin -- cargo build     at the main checkout's path, with its caches
  tine exec nightly --new --from origin/main --on-unmount discard -- make check")]
pub(super) struct Exec {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME", required_if_eq("new", "true"), add = ArgValueCompleter::new(completing::forks))]
    pub name: Option<String>,

    /// Make the fork first, as `tine new` does
    #[arg(long)]
    pub new: bool,

    #[command(flatten)]
    pub origin: OriginFlags,

    /// Count it as a verification attempt of the agent whose fork it is, and do not run it when its
    /// budget is spent (`tine round`)
    #[arg(long, conflicts_with = "new")]
    pub attempt: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,

    #[command(flatten, next_help_heading = "With --new")]
    pub options: ops::NewOptions,
}

pub(super) fn run(verb: &Exec, context: &Context) -> Result<Exit, Failure> {
    verb.origin.check(context)?;
    let fork = match (verb.new, verb.name.as_deref()) {
        (true, Some(name)) => made(verb, context, ForkName::parse(name)?)?,
        _ => mounted(context, verb.name.as_deref())?,
    };
    let origin = verb.origin.place(context, &fork)?;
    if verb.attempt {
        round::count_attempt(context, &fork.name)?;
    }
    if context.output.is_json() {
        // Standard output belongs to the command.
        context.output.json_aside(&fork)?;
    }
    let mut words = verb.command.iter();
    let program = words.next().ok_or_else(|| {
        Failure::new(ErrorCode::Usage, "no command is given")
            .hint("name a program and its arguments after `--`")
    })?;
    let (root, dir) = origin::place(context, &fork, origin)?;
    // Only for a person at a terminal. A program that reads this output got the note from `tine
    // new`.
    if std::io::stderr().is_terminal()
        && let Some(note) = cargo_target::note(context, &root)
    {
        context.output.note(&note);
    }
    let mut command = command_in(context, &fork, &root, &dir, program);
    command.args(words);
    Ok(replace(&mut command, program, &dir, context))
}

/// Makes the fork `name` and runs all steps that follow.
fn made(verb: &Exec, context: &Context, name: ForkName) -> Result<ForkInfo, Failure> {
    let (mut connection, fork) = new::make(
        context,
        ops::New {
            options: verb.options.clone(),
            ..ops::New::of(name)
        },
    )?;
    let is_set_up = !verb.options.no_setup;
    let after = after_new(
        context,
        &mut connection,
        &fork,
        is_set_up,
        HookOutput::Shown,
    );
    new::note_leads(context, &fork, &after.leads);
    match after.failed.into_iter().next() {
        Some(failure) => Err(failure),
        None => Ok(fork),
    }
}

/// Finds the fork meant by `name` and mounts it if needed.
pub(super) fn mounted(context: &Context, name: Option<&str>) -> Result<ForkInfo, Failure> {
    let (mut connection, fork) = context.connect_to_fork(name)?;
    connection.call(&ops::Mount::of(fork))
}

/// Prepares `program` to run in `dir` of the fork at `root`.
pub(super) fn command_in(
    context: &Context,
    fork: &ForkInfo,
    root: &Path,
    dir: &Path,
    program: &OsStr,
) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(dir)
        .env("PWD", dir)
        .envs(fork_env(&fork.name, root))
        .envs(cargo_target::variable(context, root));
    for variable in git_variables() {
        command.env_remove(variable);
    }
    command
}

/// Replaces this process by `command`.
///
/// Returns only if that fails: shows the failure and returns the exit code.
pub(super) fn replace(
    command: &mut Command,
    program: &OsStr,
    dir: &Path,
    context: &Context,
) -> Exit {
    let error = command.exec();
    let name = program.to_string_lossy();
    let is_missing = match error.kind() {
        ErrorKind::NotFound => dir.is_dir(),
        // execvp(3) reports this for any name if it may not search one of the directories in PATH.
        ErrorKind::PermissionDenied => dir.is_dir() && !is_there(program, dir),
        _ => false,
    };
    let (exit, failure) = match error.kind() {
        _ if is_missing => (
            NOT_FOUND,
            Failure::new(
                ErrorCode::CommandNotFound,
                format!("the command {name:?} is not found"),
            )
            .hint("it is looked for in PATH; one with a slash is looked for from the fork's root"),
        ),
        ErrorKind::PermissionDenied if dir.join(".").metadata().is_err() => {
            (NOT_EXECUTABLE, Failure::io("enter", dir, &error))
        }
        ErrorKind::PermissionDenied => (
            NOT_EXECUTABLE,
            Failure::new(
                ErrorCode::PermissionDenied,
                format!("the command {name:?} is not executable"),
            )
            .hint("`chmod +x` makes it so; `sh FILE` runs a script as it is"),
        ),
        _ => (
            NOT_EXECUTABLE,
            Failure::new(
                ErrorCode::Io,
                format!("the command {name:?} cannot be run in {}", dir.display()),
            )
            .hint("`tine doctor` looks after the mount"),
        ),
    };
    context
        .output
        .failure_as(&failure.cause(error.to_string()), exit);
    exit
}

/// Returns whether `program`, run in `dir`, can name a file that exists.
fn is_there(program: &OsStr, dir: &Path) -> bool {
    if program.as_bytes().contains(&b'/') {
        return dir.join(program).symlink_metadata().is_ok();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|place| dir.join(place).join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::program;

    #[test]
    fn every_variable_that_leads_git_elsewhere_is_taken_away() {
        let mut git = program::command(Path::new("/"));
        let listed = program::run(git.args(["rev-parse", "--local-env-vars"]), b"").unwrap();
        for variable in String::from_utf8(listed).unwrap().lines() {
            let is_configuration = variable.starts_with("GIT_CONFIG");
            assert!(
                is_configuration || git_variables().any(|known| known == variable),
                "{variable}"
            );
        }
    }
}
