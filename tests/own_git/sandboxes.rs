//! Sandboxes that let a program write its workspace and nothing else.

use std::path::Path;
use std::process::Command;

use super::{assert_whole, await_taken, new_own};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout};

/// What an agent does with git, and fails wherever `.git` is not writable.
const WORK: &str = "
    export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
    git config user.name A; git config user.email a@example.org
    echo 1 > one; git add one; git commit -qm one
    echo 2 > two; git add two; git stash -q; git stash pop -q; git commit -qm two
    git switch -qc side HEAD~; echo 3 > three; git add three; git commit -qm three
    git rebase -q -; git switch -q -; git merge -q side
    git bisect start HEAD HEAD~3 >/dev/null 2>&1; git bisect reset >/dev/null 2>&1
    git log --oneline; git blame -s one; git status --porcelain; git fsck --no-progress";

/// Has an agent work in a fork in a sandbox, and checks what it leaves.
///
/// `sandbox` has the options of bubblewrap for the fork's path.
fn works(sandbox: impl Fn(&str) -> String) {
    if !is_there() {
        return;
    }
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let options = sandbox(dir.to_str().expect("a path of the test"));
    let mut command = repo.command("bwrap", Path::new("/"));
    command.args(options.split_whitespace());
    command.args(["sh", "-euc", WORK]);
    let output = run_with_timeout(&mut command).expect_success("the work of an agent");
    assert_eq!(output.error_text(), "");
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &head);
    assert_whole(&repo, &[&dir]);
}

fn is_there() -> bool {
    let found = Command::new("bwrap").arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

#[test]
fn git_works_where_only_the_fork_may_be_written() {
    require_fuse!();
    works(|fork| format!("--ro-bind / / --dev-bind /dev /dev --bind {fork} {fork} --chdir {fork}"));
}

#[test]
fn git_works_where_there_is_nothing_but_the_fork() {
    require_fuse!();
    works(|fork| {
        format!(
            "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64
             --dev /dev --proc /proc --tmpfs /tmp --bind {fork} /work --chdir /work"
        )
    });
}
