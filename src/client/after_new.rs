//! Steps in the caller's process after a fork was made: what leads to other trees is made right,
//! git's `post-checkout` hook runs, then the repository's setup command.
//!
//! They need the mounted fork, and the daemon never waits on its own mount. None of them takes the
//! fork back when it fails.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use crate::Client;
use crate::embedded_paths::{self, EmbeddedPath};
use crate::failures::lines;
use crate::hooks::{HookOutput, MAX_LINES_KEPT, post_checkout};
use crate::place::Place;
use tine_ops::protocol::ForkInfo;
use tine_ops::{ErrorCode, Failure};
use tine_workspace::ForkName;

/// The configuration variable of the setup command, `tine.setup`.
const SETUP_KEY: (&str, &str) = ("tine", "setup");

/// The program of this process: it runs the setup command in the fork, as any `tine exec` does.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// What came of the steps.
#[derive(Debug, Default)]
pub struct AfterNew {
    /// What leads, or led, out of the fork.
    pub leads: Vec<EmbeddedPath>,
    pub failed: Vec<Failure>,
    /// The exit code that the first failed step asks for.
    pub exit: Option<u8>,
}

impl AfterNew {
    fn fail(&mut self, failure: Failure, exit: u8) {
        self.failed.push(failure);
        self.exit.get_or_insert(exit);
    }
}

/// Takes the steps for `fork`. Of one that is not mounted, or not seen by this process, there are
/// none. Blocks until they have ended.
pub fn after_new(
    place: &Place,
    connection: &mut Client,
    fork: &ForkInfo,
    is_set_up: bool,
    output: HookOutput,
) -> AfterNew {
    let mut after = AfterNew::default();
    if !fork.mounted || place.check_mounted_here(connection, fork).is_err() {
        return after;
    }
    match embedded_paths::make_right(place, connection, fork) {
        Ok(leads) => after.leads = leads,
        Err(failure) => log::warn!("{}: {failure}", fork.name),
    }
    // As `git worktree add` has it there is no hook on a branch without a commit.
    if let Some(head) = &fork.head_commit {
        let ended = place.repository().and_then(|repository| {
            post_checkout(&fork.mount_dir, repository.common_dir(), None, head, output)
        });
        match ended {
            Ok(None) => {}
            Ok(Some(ended)) => {
                let exit = ended.exit;
                after.fail(ended.failure(), exit);
            }
            Err(failure) => {
                let exit = failure.exit.code();
                after.fail(failure, exit);
            }
        }
    }
    if is_set_up
        && after.failed.is_empty()
        && let Err(failure) = set_up(place, &fork.name, output)
    {
        let exit = failure.exit.code();
        after.fail(failure, exit);
    }
    after
}

/// Runs the setup command that the user's configuration names, in the fork.
fn set_up(place: &Place, fork: &ForkName, output: HookOutput) -> Result<(), Failure> {
    let (section, name) = SETUP_KEY;
    let Some(line) = place.repository()?.setting_of_user(section, name)? else {
        return Ok(());
    };
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    let line = <OsString as std::os::unix::ffi::OsStringExt>::from_vec(line);
    let mut command = Command::new(THIS_PROGRAM);
    command
        .arg("-C")
        .arg(place.cwd())
        .args(["exec", fork.as_str(), "--", "sh", "-c"])
        .arg(line)
        .stdin(Stdio::null());
    let failed = |error: std::io::Error| {
        Failure::new(
            ErrorCode::SetupFailed,
            format!("the setup command of {fork} cannot be run"),
        )
        .cause(error.to_string())
        .hint(format!(
            "{fork} is made all the same: `tine shell {fork}` opens a shell in it"
        ))
    };
    let (status, said) = match output {
        HookOutput::Shown => {
            command.stdout(std::io::stderr());
            (command.status().map_err(failed)?, Vec::new())
        }
        HookOutput::Kept => {
            let ended = command.output().map_err(failed)?;
            let mut said = lines(&ended.stdout);
            said.extend(lines(&ended.stderr));
            (ended.status, said)
        }
    };
    if status.success() {
        return Ok(());
    }
    let failure = Failure::new(
        ErrorCode::SetupFailed,
        format!("the setup command of {fork} failed"),
    )
    .cause(format!("`{text}` (tine.setup) ended with {status}"));
    let first = said.len().saturating_sub(MAX_LINES_KEPT);
    let failure = said.into_iter().skip(first).fold(failure, Failure::cause);
    Err(failure.hint(format!(
        "{fork} is made all the same: `tine exec {fork} -- sh -c \"$(git config tine.setup)\"` runs it again, `--no-setup` skips it"
    )))
}
