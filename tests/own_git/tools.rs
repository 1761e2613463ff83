//! Commands of git and other tools that find in a fork what they find in a clone.

use std::time::{Duration, Instant};

use super::{assert_whole, await_taken, new_own};
use crate::support::{OutputExt, TestRepo, Tine, has_program, require_fuse, skip_optional};

#[test]
fn remotes_are_the_forks_own_as_those_of_a_clone() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "git init -q --bare ../up.git; git remote add origin ../up.git; git push -qu origin main",
    );
    let before = repo.git(&["config", "--local", "--list"]);
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let git = |args: &[&str]| repo.git_in(&dir, args);
    // The main repository has a relative path, which means nothing in the fork.
    git(&["fetch", "-q"]);
    git(&["push", "-q", "origin", "HEAD"]);
    git(&["branch", "-q", "--set-upstream-to=origin/main"]);
    assert_eq!(git(&["status", "-sb"]), "## tine/demo...origin/main");
    git(&["branch", "--unset-upstream"]);
    git(&["remote", "set-url", "origin", "/elsewhere"]);
    assert_eq!(git(&["remote", "get-url", "--all", "origin"]), "/elsewhere");
    git(&["remote", "rename", "origin", "up"]);
    assert_eq!(git(&["remote"]), "up");
    assert_eq!(git(&["rev-parse", "up/main"]), repo.head());
    git(&["branch", "-q", "-m", "main", "trunk"]);
    assert_eq!(
        git(&["rev-parse", "--abbrev-ref", "trunk@{upstream}"]),
        "up/main"
    );
    git(&["remote", "remove", "up"]);
    assert_eq!(git(&["remote"]), "");
    assert_eq!(git(&["branch", "-r"]), "");
    let after = repo.git(&["config", "--local", "--list"]);
    assert_eq!(after, before);
    assert_eq!(repo.git(&["rev-parse", "origin/main"]), repo.head());
}

#[test]
fn a_submodule_is_added_moved_and_removed() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "git init -q ../sub; (cd ../sub; echo s > s; git add s; git commit -qm s)
         git -c protocol.file.allow=always submodule -q add \"$(realpath ../sub)\" lib; git commit -qm 'Add lib'",
    );
    repo.sh_in(&dir, "git status --porcelain; git mv lib moved");
    // git asks for changes before it changes `.gitmodules`.
    assert_eq!(
        repo.git_in(&dir, &["status", "--porcelain"]),
        "M  .gitmodules\nR  lib -> moved"
    );
    repo.sh_in(
        &dir,
        "git commit -qm 'Move lib'; git submodule -q deinit -f moved; git -c protocol.file.allow=always submodule -q update --init
         test -e moved/s; git rm -q moved; git commit -qm 'Remove lib'",
    );
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &head);
    assert_whole(&repo, &[&dir]);
}

#[test]
fn a_hook_that_the_fork_replaces_and_removes_does_not_return() {
    require_fuse!();
    let repo = TestRepo::new();
    let hook = repo.dir().join(".git/hooks/pre-commit");
    std::fs::create_dir_all(hook.parent().expect("a directory")).unwrap();
    std::fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
    repo.sh_in(repo.dir(), "chmod +x .git/hooks/pre-commit");
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let commit = || repo.try_git_in(&dir, &["commit", "-q", "--allow-empty", "-m", "x"]);
    assert!(!commit().status.success());
    // A rename, and no copy: a program gets no second chance.
    repo.sh_in(
        &dir,
        "perl -e 'rename(\".git/hooks/pre-commit\", \".git/hooks/pre-commit.legacy\") or die $!'",
    );
    commit().expect_success("a commit without the hook");
    repo.sh_in(
        &dir,
        "cp .git/hooks/pre-commit.legacy .git/hooks/pre-commit; rm .git/hooks/pre-commit",
    );
    commit().expect_success("a commit after the hook was removed");
    repo.sh_in(
        &dir,
        "rm -r .git/hooks; mkdir ours; ln -s ../ours .git/hooks; test ! -e .git/hooks/pre-commit",
    );
    assert!(hook.exists());
}

#[test]
fn a_fork_of_a_shallow_repository_gets_the_rest() {
    require_fuse!();
    let repo = TestRepo::shallow();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let count = || repo.git_in(&dir, &["rev-list", "--count", "HEAD"]);
    assert_eq!(count(), "1");
    repo.git_in(&dir, &["fetch", "-q", "--unshallow"]);
    assert_eq!(count(), "2");
    assert!(!dir.join(".git/shallow").exists());
    repo.sh_in(
        &dir,
        "echo 1 > one; git add one; git commit -qm one; git gc -q",
    );
    assert_eq!(count(), "3");
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &head);
    assert!(repo.dir().join(".git/shallow").exists());
    assert_whole(&repo, &[&dir]);
}

#[test]
fn history_that_the_fork_has_a_part_of_stays_there_until_it_has_the_rest() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "git init -q ../other; (cd ../other; for n in 1 2 3; do echo $n > n; git add n; git commit -qm $n; done)
         git fetch -q --depth 2 \"file://$(realpath ../other)\" HEAD; git switch -qc theirs FETCH_HEAD
         echo mine > mine; git add mine; git commit -qm mine",
    );
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    let cut = repo.git_in(&dir, &["rev-parse", "HEAD~2"]);
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let listed = tine.json(&["list"]);
        let note = listed["forks"][0]["note"].as_str().unwrap_or_default();
        if note.contains(&format!("its history ends at {cut}"))
            && note.contains("git fetch --unshallow")
        {
            break;
        }
        assert!(Instant::now() < deadline, "{note}");
        std::thread::sleep(Duration::from_millis(5));
    }
    repo.sh_in(
        &dir,
        "git fetch -q --unshallow \"file://$(realpath ../other)\" HEAD",
    );
    await_taken(&repo, "refs/tine/demo/git/heads/theirs", &head);
    assert_eq!(repo.git(&["rev-list", "--count", &head]), "4");
    assert!(!repo.dir().join(".git/shallow").exists());
    assert_whole(&repo, &[&dir]);
}

#[test]
fn large_files_are_listed_pushed_and_checked_out() {
    require_fuse!();
    if !has_program("git-lfs") {
        skip_optional(
            "large_files_are_listed_pushed_and_checked_out",
            "there is no git-lfs",
        );
        return;
    }
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "git lfs install --local >/dev/null; git lfs track '*.large' >/dev/null
         echo large > a.large; git add .; git commit -qm 'Add a.large'; git init -q --bare ../up.git
         git remote add origin \"file://$(realpath ../up.git)\"; git push -q origin main 2>/dev/null",
    );
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    assert_eq!(repo.git_in(&dir, &["lfs", "ls-files", "-n"]), "a.large");
    repo.sh_in(
        &dir,
        "echo larger > b.large; git add b.large; git commit -qm 'Add b.large'; git push -q origin HEAD:refs/heads/demo 2>/dev/null
         git lfs push origin HEAD >/dev/null; git lfs fsck >/dev/null; rm a.large b.large; git lfs checkout >/dev/null 2>&1; git checkout -q .",
    );
    assert_eq!(
        std::fs::read_to_string(dir.join("a.large")).unwrap(),
        "large\n"
    );
    assert_eq!(
        std::fs::read_to_string(dir.join("b.large")).unwrap(),
        "larger\n"
    );
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    repo.sh_in(
        repo.dir(),
        "test \"$(git -C ../up.git cat-file -p demo:b.large | head -1)\" = 'version https://git-lfs.github.com/spec/v1'
         grep -rqx larger ../up.git/lfs/objects",
    );
    // The main repository gets the objects with the commits, and those of the stash.
    repo.sh_in(
        &dir,
        "git switch -q -c side; echo side > side.large; git add side.large; git commit -qm side
         git switch -q tine/demo; echo stashed > b.large; git stash -q",
    );
    let stash = repo.git_in(&dir, &["rev-parse", "stash"]);
    await_taken(&repo, "refs/tine/demo/git/stash", &stash);
    repo.sh_in(
        repo.dir(),
        "git merge -q tine/demo; test \"$(cat b.large)\" = larger; git lfs fsck >/dev/null
         git worktree add -q ../linked refs/tine/demo/git/heads/side; test \"$(cat ../linked/side.large)\" = side
         git worktree remove ../linked",
    );
    tine.ok(&["delete", "demo"]);
    tine.ok(&["recover", "1", "back", "--snapshot", "stash-1"]);
    let back = dir.with_file_name("back");
    assert_eq!(
        std::fs::read_to_string(back.join("b.large")).unwrap(),
        "stashed\n"
    );
}

/// A file that is not what its name says could be taken for another commit's.
#[test]
fn a_large_file_with_another_content_stays_in_the_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let name = "ab".to_owned() + &"0".repeat(62);
    let path = std::path::Path::new(".git/lfs/objects/ab/00").join(name);
    repo.sh_in(&dir, "mkdir -p .git/lfs/objects/ab/00");
    std::fs::write(dir.join(&path), "planted").unwrap();
    repo.git_in(&dir, &["commit", "-q", "--allow-empty", "-m", "one"]);
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &head);
    assert!(!repo.dir().join(&path).exists());
    assert_eq!(std::fs::read(dir.join(&path)).unwrap(), b"planted");
}
