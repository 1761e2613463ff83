//! The command line: a front end to the daemon. It decodes arguments, asks, and shows the answer.
//!
//! One file per verb, each with its arguments, their help and what it does; beside them:
//!
//! | file | what it holds |
//! |---|---|
//! | `args` | the whole command line as types |
//! | `usage` | what clap refuses, turned into a [`Failure`] with a hint that fits |
//! | `completing`, `names` | what shells complete, and the names of what there is |
//! | `suggest` | names like the one that was mistyped |
//! | `table`, `terminal`, `pager`, `progress` | what is shown to who sits at a terminal |
//! | `context` | where the command runs: directory, repository, connection, the fork it means |
//! | `output` | standard output and standard error: text or JSON, colour, quoting |
//! | `metrics` | what `stats` tells, as Prometheus reads it |
//! | `contents` | contents on their way to the daemon |
//! | `reference` | all commands in Markdown, `docs/reference.md` |
//! | `identity`, `hooks` | what `git commit` does around a commit: identities and hooks |
//!
//! Nothing outside this folder prints. Standard output holds the answer and nothing else: text, or
//! with `--json` one JSON value; notes, progress and failures in words go to standard error.
//! `docs/scripting.md` is the contract with scripts.

mod apply;
mod args;
mod branch;
mod buffer;
mod cat;
mod check;
mod checks;
mod cherry_pick;
mod commit;
mod completing;
mod completions;
mod contents;
mod context;
mod daemon;
mod delete;
mod diff;
mod doctor;
mod exec;
mod fetch;
mod fsmonitor;
mod gc;
mod graph;
mod handoff;
mod list;
mod log;
mod ls;
mod man;
mod mcp;
mod merge;
mod metrics;
mod mount;
mod mv;
mod names;
mod new;
mod op;
mod origin;
mod output;
mod overview;
mod pager;
mod path;
mod progress;
mod push;
mod recover;
mod reference;
mod reset;
mod resolve;
mod resolving;
mod restore;
mod revert;
mod review;
mod rm;
mod round;
mod sequencing;
mod shell;
mod shown;
mod snapshot;
mod snapshots;
mod stat;
mod stats;
mod status;
mod suggest;
mod table;
mod terminal;
mod tool;
mod top;
mod tree;
mod trees;
mod ui;
mod undo;
mod uninstall;
mod unmount;
mod update;
mod usage;
mod walk;
mod write;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::ops::Failure;
pub use args::command;
use args::{Cli, Verb};
use context::Context;
use output::Output;

/// How a verb ended that did not fail: the process's exit code.
type Exit = u8;

/// The exit code of success.
const SUCCESS: Exit = 0;

/// Runs the program; the process's exit code.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = fsmonitor::run(&words).or_else(completing::run) {
        return code;
    }
    // What is refused must already be told in the form that was asked for.
    let output = Output::new(usage::asks_for_json(&words), usage::color_of(&words));
    match args::parse(&words, output.color()) {
        Ok(cli) => {
            let output = output.with(&cli.global);
            let outcome = run(&cli, output);
            match outcome {
                Ok(exit) => ExitCode::from(exit),
                Err(failure) => ExitCode::from(output.failure(&failure)),
            }
        }
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // A reader that went away, as `tine --help | head -1` does, is no failure.
                let _ = error.print();
                ExitCode::SUCCESS
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !output.is_json() => {
                let _ = error.print();
                ExitCode::from(crate::ops::ExitCode::Usage.code())
            }
            _ => ExitCode::from(output.failure(&usage::explain(&error, &words))),
        },
    }
}

/// Runs one verb.
fn run(cli: &Cli, output: Output) -> Result<Exit, Failure> {
    start_log(cli);
    let context = Context::enter(&cli.global, output)?;
    let Some(verb) = &cli.verb else {
        return overview::run(&context);
    };
    let outcome = match verb {
        Verb::New(verb) => new::run(verb, &context),
        Verb::List(verb) => list::run(verb, &context),
        Verb::Tree(verb) => tree::run(verb, &context),
        Verb::Path(verb) => path::run(verb, &context),
        Verb::Mount(verb) => mount::run(verb, &context),
        Verb::Unmount(verb) => unmount::run(verb, &context),
        Verb::Delete(verb) => delete::run(verb, &context),
        Verb::Exec(verb) => exec::run(verb, &context),
        Verb::Mcp(verb) => mcp::run(verb, &context),
        Verb::Shell(verb) => shell::run(verb, &context),
        Verb::Status(verb) => status::run(verb, &context),
        Verb::Diff(verb) => diff::run(verb, &context),
        Verb::Revert(verb) => shown::run(verb, &context),
        Verb::Commit(verb) => commit::run(verb, &context),
        Verb::Branch(verb) => branch::run(verb, &context),
        Verb::Merge(verb) => merge::run(verb, &context),
        Verb::Update(verb) => update::run(verb, &context),
        Verb::CherryPick(verb) => cherry_pick::run(verb, &context),
        Verb::Apply(verb) => apply::run(verb, &context),
        Verb::Review(verb) => review::run(verb, &context),
        Verb::Resolve(verb) => resolve::run(verb, &context),
        Verb::Push(verb) => push::run(verb, &context),
        Verb::Fetch(verb) => fetch::run(verb, &context),
        Verb::Handoff(verb) => handoff::run(verb, &context),
        Verb::Round(verb) => round::run(verb, &context),
        Verb::Buffer(verb) => buffer::run(verb, &context),
        Verb::Log(verb) => log::run(verb, &context),
        Verb::Snapshot(verb) => snapshot::run(verb, &context),
        Verb::Snapshots(verb) => shown::run(verb, &context),
        Verb::Restore(verb) => restore::run(verb, &context),
        Verb::Recover(verb) => recover::run(verb, &context),
        Verb::Reset(verb) => shown::run(verb, &context),
        Verb::Gc(verb) => gc::run(verb, &context),
        Verb::Check(verb) => check::run(verb, &context),
        Verb::Ls(verb) => ls::run(verb, &context),
        Verb::Walk(verb) => shown::run(verb, &context),
        Verb::Stat(verb) => shown::run(verb, &context),
        Verb::Cat(verb) => cat::run(verb, &context),
        Verb::Write(verb) => write::run(verb, &context),
        Verb::Mv(verb) => shown::run(verb, &context),
        Verb::Rm(verb) => shown::run(verb, &context),
        Verb::Undo(verb) => shown::run(verb, &context),
        Verb::Redo(verb) => shown::run(verb, &context),
        Verb::Op(verb) => op::run(verb, &context),
        Verb::Tool(verb) => tool::run(verb, &context),
        Verb::Ui(verb) => ui::run(verb, &context),
        Verb::Daemon(verb) => daemon::run(verb, &context),
        Verb::Doctor(verb) => doctor::run(verb, &context),
        Verb::Stats(verb) => stats::run(verb, &context),
        Verb::Top(verb) => top::run(verb, &context),
        Verb::Completions(verb) => completions::run(verb, &context),
        Verb::ShellInit(verb) => completions::init(verb, &context),
        Verb::Man(verb) => man::run(verb, &context),
        Verb::Uninstall(verb) => uninstall::run(verb, &context),
    };
    outcome.map_err(|failure| {
        let words = std::env::args_os().skip(1);
        let words: Vec<String> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        suggest::with_suggestion(failure, &words, context.cwd())
    })
}

/// Starts the log on standard error: silent unless `-v` or `TINE_LOG` ask for it. A daemon starts
/// its own.
fn start_log(cli: &Cli) {
    if cli.verb.as_ref().is_some_and(Verb::is_daemon_run) {
        return;
    }
    let default = match cli.global.verbose {
        0 => "off",
        1 => "tine=debug",
        _ => "trace",
    };
    let env = env_logger::Env::new().filter_or("TINE_LOG", default);
    // A second logger is refused: the first one stays.
    let _ = env_logger::Builder::from_env(env)
        .format_timestamp_millis()
        .try_init();
}
