//! Long answers through the pager that git would use.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::git::program;

/// Variables that git sets for its pagers if the environment does not.
///
/// They mean: quit if the text fits on one screen, colours, no alternate screen.
const DEFAULTS: [(&str, &str); 2] = [("LESS", "FRX"), ("LV", "-c")];

/// Shows `text` through the pager until the user leaves it.
///
/// Returns false if there is no pager. Nothing was read then.
pub(super) fn show(text: &mut dyn Read) -> bool {
    let Some(mut pager) = begin() else {
        return false;
    };
    if let Some(mut input) = pager.stdin.take() {
        // Fails if the user leaves the pager before the end.
        let _ = io::copy(text, &mut input);
    }
    // The pager's exit code does not matter.
    let _ = pager.wait();
    true
}

/// Starts the pager.
fn begin() -> Option<Child> {
    let command = chosen()?;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(&command).stdin(Stdio::piped());
    for (name, value) in DEFAULTS {
        if std::env::var_os(name).is_none() {
            shell.env(name, value);
        }
    }
    // Ctrl-C is for the pager, in which the user reads on. This process must not end before it.
    let _ = signal_hook::flag::register(
        signal_hook::consts::SIGINT,
        Arc::new(AtomicBool::new(false)),
    );
    shell.spawn().ok()
}

/// Returns `GIT_PAGER`, `core.pager`, `PAGER` or git's choice; `None` for no pager.
fn chosen() -> Option<String> {
    let mut git = program::command(Path::new("."));
    let printed = program::run(git.args(["var", "GIT_PAGER"]), b"").ok()?;
    let command = String::from_utf8(printed).ok()?.trim().to_owned();
    (!command.is_empty() && command != "cat").then_some(command)
}
