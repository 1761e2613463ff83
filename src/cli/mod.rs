//! The command line: decodes arguments, calls the daemon, shows the answer.
//!
//! Each verb has its own file with its arguments, their help and its code. The other files:
//!
//! | file | content |
//! |---|---|
//! | `args` | the whole command line as types |
//! | `usage` | errors of clap as a [`Failure`] with a fitting hint |
//! | `completing`, `names` | shell completion, and the names that exist in a repository |
//! | `suggest` | names similar to a mistyped one |
//! | `table`, `terminal`, `pager`, `progress` | output on a terminal |
//! | `context` | the command's directory, repository, connection and fork |
//! | `output` | standard output and standard error: text or JSON, colour, quoting |
//! | `shown` | verbs whose arguments are an operation |
//! | `routes` | operations on files that an agent may call |
//! | `sequencing`, `resolving` | the shared part of merges, updates and picks: reviews and resolvers |
//! | `metrics` | the figures of `stats` in the format of Prometheus |
//! | `contents` | contents on their way to the daemon |
//! | `reference` | all commands in Markdown, `docs/reference.md` |
//!
//! Nothing outside this folder prints. Standard output holds only the answer: text, or one JSON
//! value with `--json`. Notes, progress and failures as text go to standard error.
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
mod convert;
mod daemon;
mod delete;
mod diff;
mod doctor;
mod edit;
mod exec;
mod fetch;
mod fsmonitor;
mod gc;
mod global;
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
mod routes;
mod run;
mod search;
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
mod top;
mod tree;
mod trees;
mod ui;
mod undo;
mod uninstall;
mod unmount;
mod update;
mod usage;
mod write;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::ops::Failure;
pub use args::command;
use args::{Cli, Verb};
use context::Context;
use output::Output;

/// Exit code of a verb that did not fail.
type Exit = u8;

/// Exit code of success.
const SUCCESS: Exit = 0;

/// Runs the program and returns the process's exit code.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = fsmonitor::run(&words).or_else(completing::run) {
        return code;
    }
    // A parse error is also printed in the requested form, so the form is found before the parse.
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
                // A reader that closes the pipe, as `tine --help | head -1` does, is not a failure.
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

/// Runs one verb, or the overview if there is none.
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
        Verb::Convert(verb) => shown::run(verb, &context),
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
        Verb::Stat(verb) => shown::run(verb, &context),
        Verb::Cat(verb) => cat::run(verb, &context),
        Verb::Write(verb) => write::run(verb, &context),
        Verb::Mv(verb) => routes::run(verb, &context),
        Verb::Rm(verb) => routes::run(verb, &context),
        Verb::Undo(verb) => shown::run(verb, &context),
        Verb::Redo(verb) => shown::run(verb, &context),
        Verb::Op(verb) => op::run(verb, &context),
        Verb::Edit(verb) => edit::run(verb, &context),
        Verb::Search(verb) => routes::run_as_agent(verb, &context),
        Verb::Run(verb) => run::run(verb, &context),
        Verb::Context(verb) => search::context(verb, &context),
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

/// Starts the log on standard error.
///
/// The log is silent unless `-v` or `TINE_LOG` is given. A daemon starts its own log.
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
    // Fails if the process has a logger already, which then stays.
    let _ = env_logger::Builder::from_env(env)
        .format_timestamp_millis()
        .try_init();
}
