//! Sandboxes that let a program write its workspace and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{assert_whole, await_taken, new_own};
use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, require_program, require_root, run_with_timeout,
};

/// What an agent does with git, and fails wherever `.git` is not writable.
const WORK: &str = "
    export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
    export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
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

#[test]
fn git_works_for_another_user_id_in_another_root() {
    require_fuse!();
    works(|fork| {
        format!(
            "--unshare-all --uid 1234 --gid 1234 --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib
             --symlink usr/lib64 /lib64 --dev /dev --proc /proc --tmpfs /tmp --bind {fork} /work --chdir /work"
        )
    });
}

/// Claude Code lets commands write the working directory, except hooks and configuration of git,
/// and gives them no network.
#[test]
fn git_works_where_hooks_and_configuration_are_read_only() {
    require_fuse!();
    works(|fork| {
        format!(
            "--ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind {fork} {fork} --ro-bind {fork}/.git/hooks {fork}/.git/hooks
             --ro-bind {fork}/.git/config {fork}/.git/config --unshare-net --unshare-pid --new-session --die-with-parent --chdir {fork}"
        )
    });
}

/// Codex lets commands write the working directory, except `.git`, and gives them no network.
#[test]
fn git_reads_where_the_git_directory_is_read_only() {
    require_fuse!();
    if !is_there() {
        return;
    }
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let fork = dir.to_str().expect("a path of the test");
    let options = format!(
        "--ro-bind / / --dev /dev --proc /proc --bind {fork} {fork} --ro-bind {fork}/.git {fork}/.git
         --unshare-net --chdir {fork}"
    );
    let mut command = repo.command("bwrap", Path::new("/"));
    command.args(options.split_whitespace());
    command.args([
        "sh",
        "-euc",
        "echo new > new; git status --porcelain; git log --format=%s; git diff; ! git add new 2>/dev/null",
    ]);
    let output = run_with_timeout(&mut command).expect_success("the work of an agent");
    assert_eq!(output.text(), "?? new\nbase");
    assert_eq!(output.error_text(), "");
    // The agent's server commits, outside of the sandbox.
    tine.ok(&["commit", "demo", "-m", "Add new"]);
    assert_eq!(
        repo.git(&["log", "-1", "--format=%s", "tine/demo"]),
        "Add new"
    );
    assert_whole(&repo, &[&dir]);
}

/// A fork whose files root has given to another user.
#[test]
fn another_user_makes_refs_beside_those_of_the_main_repository() {
    require_fuse!();
    require_root!("be other users");
    require_program!("setpriv");
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "git branch feature/a; git update-ref refs/remotes/up/x HEAD; git tag v/1",
    );
    let tine = Tine::new(&repo);
    let dir = tine.ok(&["new", "demo", "--allow-other", "--git", "own"]);
    let dir = PathBuf::from(dir.trim_end());
    let script = "
        chown -R 1234:1234 . 2>/dev/null || true
        as() { setpriv --reuid=1234 --regid=1234 --clear-groups \"$@\"; }
        as git branch feature/b; as git update-ref refs/remotes/up/y HEAD; as git tag v/2
        as git -c user.name=U -c user.email=u@example.org commit -q --allow-empty -m theirs
        as git for-each-ref --format='%(refname)'; stat -c %u .git/refs/heads/feature .git/refs/remotes/up/y";
    let output = repo.sh_in(&dir, script);
    let expected = [
        "refs/heads/feature/a",
        "refs/heads/feature/b",
        "refs/heads/main",
        "refs/heads/tine/demo",
        "refs/remotes/up/x",
        "refs/remotes/up/y",
        "refs/tags/v/1",
        "refs/tags/v/2",
        "1234",
        "1234",
    ];
    assert_eq!(output, expected.join("\n"));
}
