//! Steps in the caller's process after a fork is made.
//!
//! 1. Rewrite embedded paths that lead to other trees.
//! 2. Run git's `post-checkout` hook.
//! 3. Run the repository's setup command.
//!
//! They use the mounted fork. The daemon must not run them, because it must never wait for its own
//! mount. A step that fails does not remove the fork.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use crate::Client;
use crate::embedded_paths::{self, EmbeddedPath};
use crate::failures::lines;
use crate::hooks::{HookOutput, last_lines, post_checkout};
use crate::place::Place;
use tine_ops::protocol::ForkInfo;
use tine_ops::{ErrorCode, Failure};
use tine_store::ForkName;

/// Section and name of the setup command in git's configuration.
const SETUP_KEY: (&str, &str) = ("tine", "setup");

/// Path of this process's executable.
///
/// It runs the setup command as `tine exec`, so this process must be tine.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// Results of [`after_new`].
#[derive(Debug, Default)]
pub struct AfterNew {
    /// Embedded paths that were found, rewritten or not.
    pub leads: Vec<EmbeddedPath>,
    /// Failures of the steps, in order.
    pub failed: Vec<Failure>,
    /// Exit code of the first failed step. `None` if all succeeded.
    pub exit: Option<u8>,
}

impl AfterNew {
    fn fail(&mut self, failure: Failure, exit: u8) {
        self.failed.push(failure);
        self.exit.get_or_insert(exit);
    }
}

/// Runs the steps after `fork` is made.
///
/// Does nothing if the fork is not mounted or its mount is not visible to this process. The setup
/// command runs only with `is_set_up`, and only if the hook succeeds. Blocks until all steps end.
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
    match embedded_paths::rewrite_all(place, connection, fork) {
        Ok(leads) => after.leads = leads,
        Err(failure) => log::warn!("{}: {failure}", fork.name),
    }
    // As with `git worktree add`, no hook runs on a branch without a commit.
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

/// Runs the setup command of the user's configuration, if any.
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
    let (status, output_lines) = match output {
        HookOutput::Shown => {
            command.stdout(std::io::stderr());
            (command.status().map_err(failed)?, Vec::new())
        }
        HookOutput::Kept => {
            let ended = command.output().map_err(failed)?;
            let mut output_lines = lines(&ended.stdout);
            output_lines.extend(lines(&ended.stderr));
            (ended.status, output_lines)
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
    let failure = last_lines(output_lines).fold(failure, Failure::cause);
    Err(failure.hint(format!(
        "{fork} is made all the same: `tine exec {fork} -- sh -c \"$(git config tine.setup)\"` runs it again, `--no-setup` skips it"
    )))
}
