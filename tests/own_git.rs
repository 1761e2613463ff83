//! Forks that are repositories of their own: what git finds in the mount, and what of it the main
//! repository has.

#[path = "support/mod.rs"]
mod support;

#[path = "own_git/daily.rs"]
mod daily;
#[path = "own_git/joints.rs"]
mod joints;
#[path = "own_git/kept.rs"]
mod kept;
#[path = "own_git/random.rs"]
mod random;
#[path = "own_git/sandboxes.rs"]
mod sandboxes;
#[path = "own_git/shadowed.rs"]
mod shadowed;
#[path = "own_git/tools.rs"]
mod tools;
#[path = "own_git/untrusted.rs"]
mod untrusted;
#[path = "own_git/watching.rs"]
mod watching;
#[path = "own_git/with_git.rs"]
mod with_git;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::{OutputExt, TestRepo, Tine};

/// Makes a fork that is a repository of its own, and returns its mount.
#[track_caller]
fn new_own(tine: &Tine<'_>, name: &str) -> PathBuf {
    let path = tine.ok(&["new", name, "--git", "own"]);
    PathBuf::from(path.trim_end())
}

/// Makes a fork that is a linked worktree, and returns its mount.
#[track_caller]
fn new_linked(tine: &Tine<'_>, name: &str) -> PathBuf {
    let path = tine.ok(&["new", name, "--git", "linked"]);
    PathBuf::from(path.trim_end())
}

/// Waits until the main repository has `revision` at `commit`.
///
/// Panics after two seconds: taking over is a matter of milliseconds.
#[track_caller]
fn await_taken(repo: &TestRepo, revision: &str, commit: &str) {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let found = repo.try_git_in(repo.dir(), &["rev-parse", "--verify", "-q", revision]);
        if found.status.success() && found.text() == commit {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{revision} is at {:?} and not at {commit}",
            found.text()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that the main repository and the forks' are whole.
#[track_caller]
fn assert_whole(repo: &TestRepo, mounts: &[&PathBuf]) {
    repo.git(&["fsck", "--full", "--strict", "--no-progress"]);
    for mount in mounts {
        repo.git_in(mount, &["fsck", "--full", "--no-progress"]);
    }
}
