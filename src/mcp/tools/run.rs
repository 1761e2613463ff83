//! Shell commands in the active fork.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::cancelled;
use super::super::tool::{Call, MAX_TEXT, ToolOutput, ToolResult};
use super::unexpected;
use tine_client::after_new::THIS_PROGRAM;
use tine_client::{cargo_target, origin};
use tine_ops::ShowContext;
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_tools::run::{RunCommand, RunEnd, RunOutput, RunSpec, run};

/// Default time limit of a command, in seconds.
const DEFAULT_TIMEOUT_SECS: u64 = 600;

/// Run a shell command at the root of the active fork: build, test, format, use git.
///
/// It sees the same files as the other tools, and what it writes they see at once. It gets no
/// input. When its time is over, or you cancel the call, it is ended with all that it started. Of
/// long output the beginning and the end are kept. A command that fails is not an error of the
/// tool: look at `exit_code`. It can reach what lies outside the fork as any command can: keep to
/// the fork.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Run {
    /// As `sh` takes it.
    command: String,
    /// Where to run it, from the fork's root. Default: the root.
    dir: Option<String>,
    /// After how many seconds it is ended. Default: 600.
    timeout_secs: Option<u64>,
}

/// What came of a command.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunShown {
    /// None: it ended otherwise.
    exit_code: Option<i32>,
    /// The signal that ended it.
    signal: Option<i32>,
    /// It was ended because its time was over.
    timed_out: bool,
    stdout: String,
    stderr: String,
    /// Bytes that are left out in the middle of each.
    stdout_left_out: u64,
    stderr_left_out: u64,
    elapsed_ms: u64,
    /// Something of it goes on in the background.
    goes_on: bool,
}

pub(super) fn run_command(arguments: Run, call: &Call<'_>) -> ToolResult<RunShown> {
    // A command needs the fork's directory.
    let info = call.session.mount(call.session.fork()?)?;
    let origin = origin::by_default(&call.session.place(), &info)?;
    let fork = info.name;
    let context = call.session.ask_as_agent(
        Some(fork.clone()),
        ShowContext::default(),
        "mcp run".to_owned(),
    )?;
    let root = context.working_dir.as_ref().ok_or_else(unexpected)?;
    let mut dir = host_path(root);
    if let Some(dir_in_fork) = &arguments.dir {
        dir.push(RepoPath::parse(dir_in_fork)?.as_path());
    }
    let env = context.environment.iter();
    let own_target = match origin {
        Some(_) => None,
        None => cargo_target::variable(&call.session.place(), &host_path(root)),
    };
    let own_target = own_target.map(|(name, dir)| (OsString::from(name), dir));
    let spec = RunSpec {
        command: match origin {
            // Only a separate process can enter the main checkout's path.
            Some(_) => RunCommand::Words(
                [
                    THIS_PROGRAM,
                    "exec",
                    fork.as_str(),
                    "--at-origin",
                    "--",
                    "sh",
                    "-c",
                    &arguments.command,
                ]
                .map(OsString::from)
                .to_vec(),
            ),
            None => RunCommand::Shell(arguments.command.into()),
        },
        dir,
        env: env
            .map(|(name, value)| (OsString::from(name), host_path(value).into_os_string()))
            .chain(own_target)
            .collect(),
        timeout: Some(Duration::from_secs(
            arguments.timeout_secs.unwrap_or(DEFAULT_TIMEOUT_SECS),
        )),
        output_max: MAX_TEXT / 2,
    };
    let outcome = run(&spec, call.canceller())?;
    let (exit_code, signal) = match outcome.end {
        RunEnd::Exit(code) => (Some(code), None),
        RunEnd::Signal(signal) => (None, Some(signal)),
        RunEnd::TimedOut => (None, None),
        RunEnd::Cancelled => return Err(cancelled()),
    };
    let shown = RunShown {
        exit_code,
        signal,
        timed_out: outcome.end == RunEnd::TimedOut,
        stdout: kept(&outcome.stdout),
        stderr: kept(&outcome.stderr),
        stdout_left_out: outcome.stdout.left_out,
        stderr_left_out: outcome.stderr.left_out,
        elapsed_ms: u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX),
        goes_on: outcome.goes_on,
    };
    let text = format_run(&shown);
    Ok(ToolOutput::new(shown, text))
}

fn host_path(path: &PathText) -> PathBuf {
    PathBuf::from(OsString::from_vec(path.to_bytes()))
}

/// Returns the kept output, with a line about omitted bytes.
fn kept(output: &RunOutput) -> String {
    let mut text = String::from_utf8_lossy(&output.head).into_owned();
    if output.left_out > 0 {
        text.push_str(&format!("\n[{} bytes left out]\n", output.left_out));
    }
    text.push_str(&String::from_utf8_lossy(&output.tail));
    text
}

fn format_run(shown: &RunShown) -> String {
    let end = match (shown.exit_code, shown.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended because its time was over".to_owned(),
    };
    let mut text = format!("{end} after {:.1} s", shown.elapsed_ms as f64 / 1000.0);
    if shown.goes_on {
        text.push_str("; something of it goes on in the background");
    }
    for (name, output) in [("stdout", &shown.stdout), ("stderr", &shown.stderr)] {
        if !output.is_empty() {
            text.push_str(&format!("\n--- {name}\n{output}"));
        }
    }
    text
}
