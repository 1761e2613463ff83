//! What the integration tests share: repositories made by the git program, forks with and without a
//! mount, the built binary, and time limits, so that no hung mount can hang a test run.
//!
//! Each test binary takes it with `mod support;` and uses a part of it, hence:
#![allow(dead_code, unused_imports, unused_macros)]

pub mod agent;
pub mod agreement;
pub mod command;
pub mod disk;
pub mod fork;
pub mod fuse;
pub mod pages;
pub mod process;
pub mod random;
pub mod repo;
pub mod terminal;
pub mod tine;

pub use agreement::assert_agreement;
pub use command::{OutputExt, run_with_timeout, run_with_timeout_of, wait_until};
pub use fork::{TestFork, open_store};
pub use fuse::{force_unmount_beneath, fuse_missing, mounts_beneath, transport};
pub use random::{Random, SayWhich};
pub use repo::{TestRepo, path_text};
pub use terminal::{Terminal, shown_on_terminal};
pub use tine::Tine;

use std::io::Write;
use std::path::Path;

/// Whether a test that cannot run must fail instead of being skipped.
fn skipping_is_failing() -> bool {
    std::env::var_os("REQUIRE_FUSE").is_some_and(|value| value == "1")
}

/// Whether random tests run for hours' worth of cases (`TINE_SOAK=1`).
pub fn soaking() -> bool {
    std::env::var_os("TINE_SOAK").is_some_and(|value| value == "1")
}

/// Says that `test` cannot run here, past libtest's capture, so that `scripts/test` can count it.
/// Where the environment demands that nothing is skipped (`REQUIRE_FUSE=1`) it panics.
pub fn skip(test: &str, reason: &str) {
    assert!(
        !skipping_is_failing(),
        "REQUIRE_FUSE=1 forbids skipping: {reason}"
    );
    skip_optional(test, reason);
}

/// As [`skip`], of what no environment has to have.
pub fn skip_optional(test: &str, reason: &str) {
    // One write, so that lines of tests that run at the same time do not mix.
    let line = format!("SKIP {test}: {reason}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("stderr can be written");
}

/// Whether the tests run as root, who may do what an ordinary user may not.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether `program` is found in `PATH`.
pub fn has_program(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| is_file(&dir.join(program))))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file())
}

/// The path of the function in which it stands: `tools::git_stash_round_trip`.
macro_rules! test_name {
    () => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here);
        name.trim_end_matches("::here")
    }};
}

/// Returns from the test with a `SKIP` line where FUSE file systems cannot be mounted here; fails
/// where `REQUIRE_FUSE=1`.
macro_rules! require_fuse {
    () => {
        if let Some(reason) = $crate::support::fuse_missing() {
            $crate::support::skip($crate::support::test_name!(), &reason);
            return;
        }
    };
}

/// As [`require_fuse`], and where no private mounts can be made.
macro_rules! require_namespace {
    () => {
        $crate::support::require_fuse!();
        let tried = ["--mount", "--map-current-user"].iter().any(|option| {
            let mut command = std::process::Command::new("unshare");
            command.args(["--mount", option, "true"]);
            command.output().is_ok_and(|output| output.status.success())
        });
        if !tried {
            $crate::support::skip(
                $crate::support::test_name!(),
                "a mount namespace cannot be made",
            );
            return;
        }
    };
}

/// Returns from the test with a `SKIP` line where a program is missing; fails where
/// `REQUIRE_FUSE=1`.
macro_rules! require_program {
    ($program:expr) => {
        if !$crate::support::has_program($program) {
            $crate::support::skip(
                $crate::support::test_name!(),
                &format!("{} is not installed", $program),
            );
            return;
        }
    };
}

/// Returns from the test with a `SKIP` line where it runs as an ordinary user; fails where
/// `REQUIRE_FUSE=1`. The reason says what only root can do.
macro_rules! require_root {
    ($reason:expr) => {
        if !$crate::support::is_root() {
            $crate::support::skip(
                $crate::support::test_name!(),
                &format!("only root can {}", $reason),
            );
            return;
        }
    };
}

pub(crate) use {require_fuse, require_namespace, require_program, require_root, test_name};
