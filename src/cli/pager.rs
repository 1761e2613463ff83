//! Long answers through a pager, the one that git would take.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::git::program;

/// What git sets for its pagers where the environment does not: quit if it fits on one screen,
/// colours, no other screen.
const DEFAULTS: [(&str, &str); 2] = [("LESS", "FRX"), ("LV", "-c")];

/// Shows what is in `text` through the pager until somebody leaves it. False where there is none:
/// nothing was read then.
pub(super) fn show(text: &mut dyn Read) -> bool {
    let Some(mut pager) = begin() else {
        return false;
    };
    if let Some(mut input) = pager.stdin.take() {
        // Whoever leaves before the end has seen enough.
        let _ = io::copy(text, &mut input);
    }
    // What it says with its exit code is its own affair.
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
    // The pager is interrupted by its own user, who goes on reading: this process must not leave it
    // behind.
    let _ = signal_hook::flag::register(
        signal_hook::consts::SIGINT,
        Arc::new(AtomicBool::new(false)),
    );
    shell.spawn().ok()
}

/// `GIT_PAGER`, `core.pager`, `PAGER` or git's own choice; `None` where nothing is to be paged.
fn chosen() -> Option<String> {
    let mut git = program::command(Path::new("."));
    let said = program::run(git.args(["var", "GIT_PAGER"]), b"").ok()?;
    let command = String::from_utf8(said).ok()?.trim().to_owned();
    (!command.is_empty() && command != "cat").then_some(command)
}
