//! `tine run`: runs a command within bounds, as an agent's tool does.

use std::ffi::OsString;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::context::Context;
use super::{Exit, exec};
use crate::ops::{ErrorCode, Failure};
use crate::store::ForkName;
use crate::tools::run::{self, Cancel, RunCommand, RunEnd, RunSpec, fork_env};

/// Added to a signal's number, the exit code of a killed command.
const SIGNALLED: i32 = 128;

/// Run a command where an agent works, within bounds
///
/// It runs at the fork's root, which is mounted first if it is not, or in the main checkout where
/// no fork is active, with nothing on standard input. What it prints is shown when it has ended,
/// the beginning and the end of it where that is much. A command that takes longer than --timeout
/// is ended with all that it started (exit code 8). Its exit code is tine's.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine run --timeout 600 -- cargo test
  tine run --shell 'make 2>&1 | tail' --json")]
pub(super) struct Run {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    pub fork: Option<ForkName>,

    /// A line for sh, in place of a command
    #[arg(
        long,
        value_name = "LINE",
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    pub shell: Option<OsString>,

    /// End it after so many seconds; 0: never
    #[arg(long, value_name = "SECS", default_value_t = 120)]
    pub timeout: u64,

    /// Keep so many bytes of each, standard output and standard error
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub max_output: usize,

    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// JSON result of a command.
#[derive(Serialize)]
struct Shown {
    fork: Option<ForkName>,
    end: &'static str,
    exit_code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stdout_left_out: u64,
    stderr: String,
    stderr_left_out: u64,
    elapsed_ms: u64,
    goes_on: bool,
}

pub(super) fn run(verb: &Run, context: &Context) -> Result<Exit, Failure> {
    let active = match &verb.fork {
        Some(fork) => Some(fork.clone()),
        None => match context.connect_to_forks()? {
            Some(mut connection) => context.fork_if_here(&mut connection)?,
            None => None,
        },
    };
    let (dir, env) = match &active {
        Some(fork) => {
            let fork = exec::mounted(context, Some(fork.as_str()))?;
            let env = fork_env(&fork.name, &fork.mount_dir);
            (fork.mount_dir, env)
        }
        None => {
            let checkout_dir = context.repository()?.main_checkout();
            (checkout_dir.unwrap_or(context.cwd()).to_owned(), Vec::new())
        }
    };
    let spec = RunSpec {
        command: match &verb.shell {
            Some(line) => RunCommand::Shell(line.clone()),
            None => RunCommand::Words(verb.command.clone()),
        },
        dir,
        env: env
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        timeout: (verb.timeout > 0).then(|| Duration::from_secs(verb.timeout)),
        output_max: verb.max_output,
    };
    let outcome = run::run(&spec, &cancelled_by_signals()?)?;
    let (end, exit_code, signal) = match outcome.end {
        RunEnd::Exit(code) => ("exit", Some(code), None),
        RunEnd::Signal(signal) => ("signal", None, Some(signal)),
        RunEnd::TimedOut => ("timed-out", None, None),
        RunEnd::Cancelled => ("cancelled", None, None),
    };
    let exit = match outcome.end {
        RunEnd::Exit(code) => code,
        RunEnd::Signal(signal) => SIGNALLED + signal,
        RunEnd::TimedOut => i32::from(ErrorCode::Timeout.exit().code()),
        RunEnd::Cancelled => SIGNALLED + SIGTERM,
    };
    let output = &context.output;
    if output.is_json() {
        output.json(&Shown {
            fork: active.clone(),
            end,
            exit_code,
            signal,
            stdout: outcome.stdout.text(),
            stdout_left_out: outcome.stdout.left_out,
            stderr: outcome.stderr.text(),
            stderr_left_out: outcome.stderr.left_out,
            elapsed_ms: u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX),
            goes_on: outcome.goes_on,
        })?;
        return Ok(u8::try_from(exit).unwrap_or(u8::MAX));
    }
    output.bytes(&outcome.stdout.head)?;
    output.bytes(&outcome.stdout.tail)?;
    output.bytes_aside(&outcome.stderr.head);
    output.bytes_aside(&outcome.stderr.tail);
    for (name, printed) in [("output", &outcome.stdout), ("error", &outcome.stderr)] {
        if printed.left_out > 0 {
            let left_out = printed.left_out;
            output.note(&format!(
                "{left_out} bytes in the middle of standard {name} are left out: `--max-output` keeps more"
            ));
        }
    }
    if outcome.goes_on {
        output.note("something that it started goes on in the background");
    }
    if outcome.end == RunEnd::TimedOut {
        return Err(Failure::new(
            ErrorCode::Timeout,
            format!(
                "the command took longer than {} s, and was ended",
                verb.timeout
            ),
        )
        .hint("`--timeout SECS` gives it more time"));
    }
    Ok(u8::try_from(exit).unwrap_or(u8::MAX))
}

/// Returns a [`Cancel`] that SIGINT, SIGTERM or SIGHUP triggers.
///
/// It ends the command, which has its own process group, to which a terminal sends nothing.
fn cancelled_by_signals() -> Result<Cancel, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(ErrorCode::Io, "signals cannot be waited for")
            .cause(error.to_string())
            .hint("try again")
    };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let cancel = Cancel::new();
    let cancelled = cancel.clone();
    let wait = move || {
        if signals.forever().next().is_some() {
            cancelled.cancel();
        }
    };
    thread::Builder::new()
        .name("tine-signals".to_owned())
        .spawn(wait)
        .map_err(failed)?;
    Ok(cancel)
}
