//! A day's work with git in a fork, and the main repository beside it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{assert_whole, await_taken, new_linked, new_own};
use crate::support::command::DEFAULT_LIMIT;
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, wait_until};

#[test]
fn git_in_the_fork_finds_a_repository_that_is_the_forks_own() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    assert!(dir.join(".git").is_dir());
    let top = |flag: &str| repo.git_in(&dir, &["rev-parse", flag]);
    assert_eq!(top("--git-dir"), ".git");
    assert_eq!(top("--git-common-dir"), ".git");
    assert_eq!(top("--is-inside-work-tree"), "true");
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert_eq!(
        repo.git_in(&dir, &["symbolic-ref", "HEAD"]),
        "refs/heads/tine/demo"
    );
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), repo.head());
    assert_eq!(
        repo.git_in(&dir, &["log", "--format=%s"]),
        repo.git(&["log", "--format=%s"])
    );
    // The main repository bears no worktree.
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    assert_whole(&repo, &[&dir]);
}

#[test]
fn what_git_commits_in_the_fork_is_in_the_main_repository_at_once() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "echo one > one; git add one; git commit -qm 'Add one'",
    );
    let one = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "refs/heads/tine/demo", &one);
    let log = repo.git(&["reflog", "-1", "--format=%gs", "tine/demo"]);
    assert_eq!(log, "commit: Add one");
    repo.sh_in(
        &dir,
        "echo two > one; git commit -qam 'Change one' --amend; git tag v1; git branch topic; git stash list
         git switch -qc other; echo three > three; git add three; git commit -qm 'Add three'; git switch -q -",
    );
    for (name, kept) in [
        ("HEAD", "refs/heads/tine/demo"),
        ("v1", "refs/tine/demo/git/tags/v1"),
        ("topic", "refs/tine/demo/git/heads/topic"),
        ("other", "refs/tine/demo/git/heads/other"),
    ] {
        let id = repo.git_in(&dir, &["rev-parse", name]);
        await_taken(&repo, kept, &id);
    }
    // Branches and tags of the fork are not the main repository's.
    assert_eq!(repo.git(&["tag"]), "");
    assert!(!repo.git(&["branch"]).contains("topic"));
    assert_whole(&repo, &[&dir]);
}

/// A commit takes a moment to reach the main repository, and a command that names the branch waits.
#[test]
fn a_branch_that_a_command_names_is_where_its_fork_is() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let points = repo.root().join("points");
    fs::create_dir(&points).unwrap();
    let mut first = tine.command(&["new", "zero"]);
    run_with_timeout(first.env("TINE_PAUSE_IN", &points)).expect_success("the daemon starts");
    let dir = new_own(&tine, "demo");
    let other = new_own(&tine, "other");
    repo.git(&["branch", "onto"]);
    let asked = |file: &str, command: &[&str]| {
        fs::write(points.join("walked"), "").unwrap();
        repo.sh_in(
            &dir,
            &format!("touch {file}; git add .; git commit -qm {file}"),
        );
        let reached = points.join("walked.reached");
        wait_until("the commit is being taken over", DEFAULT_LIMIT, || {
            reached.exists()
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(300));
                fs::remove_file(&reached).unwrap();
            });
            tine.ok(command)
        })
    };
    asked("merged", &["merge", "tine/demo", "--into", "branch:onto"]);
    repo.git(&["cat-file", "-e", "onto:merged"]);
    asked("picked", &["cherry-pick", "other", "tine/demo"]);
    assert!(other.join("picked").exists());
    let made = asked("last", &["new", "made", "--from", "tine/demo"]);
    assert!(Path::new(made.trim()).join("last").exists());
    let told = asked(
        "told",
        &["diff", "other", "--against", "rev:tine/demo", "--name-only"],
    );
    assert!(told.contains("told"), "{told}");
}

#[test]
fn tine_and_git_see_the_same_head_index_and_branches() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    std::fs::write(dir.join("one"), "one\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "Add one"]);
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert_eq!(repo.git_in(&dir, &["log", "-1", "--format=%s"]), "Add one");
    let one = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    assert_eq!(repo.git(&["rev-parse", "tine/demo"]), one);
    repo.sh_in(
        &dir,
        "echo two > two; git add two; git commit -qm 'Add two'",
    );
    let status = tine.json(&["status", "demo"]);
    assert_eq!(
        status["changes"].as_array().map(Vec::len),
        Some(0),
        "{status}"
    );
    assert!(tine.ok(&["log", "demo"]).contains("Add two"));
    tine.ok(&["branch", "switch", "demo", "topic", "--create"]);
    assert_eq!(
        repo.git_in(&dir, &["symbolic-ref", "--short", "HEAD"]),
        "topic"
    );
    tine.ok(&["undo", "demo"]);
    assert_eq!(
        repo.git_in(&dir, &["symbolic-ref", "--short", "HEAD"]),
        "tine/demo"
    );
    tine.ok(&["branch", "switch", "demo", "topic"]);
    repo.sh_in(
        &dir,
        "echo three > three; git add -A; git commit -qm 'Add three'",
    );
    tine.ok(&["unmount", "demo"]);
    // Every verb works on an unmounted fork.
    tine.ok(&["status", "demo"]);
    tine.ok(&["branch", "switch", "demo", "tine/demo"]);
    tine.ok(&["mv", "--fork", "demo", "two", "four"]);
    tine.ok(&["commit", "demo", "-m", "Add four"]);
    tine.ok(&["mount", "demo"]);
    assert_eq!(repo.git_in(&dir, &["log", "-1", "--format=%s"]), "Add four");
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert_whole(&repo, &[&dir]);
}

#[test]
fn the_main_repositorys_branches_are_seen_live_and_are_not_the_forks() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        repo.dir(),
        "git branch theirs; git tag v0; echo m > m; git add m; git commit -qm main",
    );
    for name in ["main", "theirs", "v0"] {
        assert_eq!(
            repo.git_in(&dir, &["rev-parse", name]),
            repo.git(&["rev-parse", name]),
            "{name}"
        );
    }
    repo.git(&["pack-refs", "--all"]);
    for name in ["main", "theirs", "v0"] {
        assert_eq!(
            repo.git_in(&dir, &["rev-parse", name]),
            repo.git(&["rev-parse", name]),
            "{name}"
        );
    }
    let theirs = repo.git(&["rev-parse", "theirs"]);
    repo.sh_in(
        &dir,
        "git switch -q theirs; echo t > t; git add t; git commit -qm mine; git branch -D main; git tag -d v0",
    );
    assert_eq!(repo.git(&["rev-parse", "theirs"]), theirs);
    repo.git(&["rev-parse", "--verify", "main"]);
    repo.git(&["rev-parse", "--verify", "v0"]);
    let gone = repo.try_git_in(&dir, &["rev-parse", "--verify", "-q", "main"]);
    assert!(!gone.status.success(), "{}", gone.text());
    // What moves in the main repository does not move the branch that the fork is on.
    repo.git(&["branch", "-f", "theirs", "main"]);
    assert_eq!(repo.git_in(&dir, &["log", "-1", "--format=%s"]), "mine");
    assert_whole(&repo, &[&dir]);
}

#[test]
fn a_branch_that_others_moved_or_have_stays_and_is_joined_as_the_list_says() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let note = || {
        let forks = tine.json(&["list"]);
        forks["forks"][0]["note"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    // The list knows it a moment after the refs are there.
    let awaited = || {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
        while note().is_empty() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        note()
    };
    let command_in = |note: &str| note.split('`').nth(1).expect("a command").to_owned();
    repo.git(&["switch", "-q", "tine/demo"]);
    repo.sh_in(&dir, "echo 1 > a; git add a; git commit -qm one");
    let one = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "refs/tine/demo/git/HEAD", &one);
    assert_ne!(repo.head(), one);
    repo.sh_in(repo.dir(), &command_in(&awaited()));
    assert_eq!(repo.head(), one);
    repo.sh_in(
        repo.dir(),
        "echo 2 > b; git add b; git commit -qm two; git switch -q main",
    );
    repo.sh_in(&dir, "echo 3 > c; git add c; git commit -qm three");
    let three = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "refs/tine/demo/git/HEAD", &three);
    assert_ne!(repo.git(&["rev-parse", "tine/demo"]), three);
    repo.sh_in(&dir, &command_in(&awaited()));
    let joined = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &joined);
    tine.ok(&["status", "demo"]);
    assert_eq!(note(), "");
    assert_whole(&repo, &[&dir]);
}

#[test]
fn what_is_staged_and_in_no_file_is_kept() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let stage = "echo staged > new; git add new; rm new";
    repo.sh_in(&dir, stage);
    let reset = tine.ok(&["reset", "demo"]);
    assert!(!reset.contains("could not be read"), "{reset}");
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    let kept = tine.json(&["recover", "show", "1"]);
    assert_eq!(kept["snapshots"][0]["name"], "staged", "{kept}");
    repo.sh_in(&dir, stage);
    tine.ok(&["delete", "demo", "--force"]);
    repo.git(&["gc", "-q", "--prune=now"]);
    let kept = tine.json(&["recover", "show", "2"]);
    let names = kept["snapshots"].as_array().expect("snapshots").iter();
    let mut names = names.filter_map(|snapshot| snapshot["name"].as_str());
    let staged = names
        .find(|name| name.starts_with("staged"))
        .expect("it is kept");
    let back = tine.ok(&["recover", "2", "two", "--snapshot", staged]);
    let new = std::path::Path::new(back.trim_end()).join("new");
    assert_eq!(std::fs::read_to_string(new).unwrap(), "staged\n");
}

#[test]
fn a_fork_of_a_fork_has_its_index_stash_and_logs_and_a_branch_of_its_own() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "one");
    repo.sh_in(
        &dir,
        "echo 1 > a; git add a; git commit -qm a; echo s > s; git add s; git stash -q; echo 2 > staged; git add staged",
    );
    let made = tine.ok(&["new", "two", "--from-fork", "one", "--git", "own"]);
    let two = std::path::PathBuf::from(made.trim_end());
    let git = |args: &[&str]| repo.git_in(&two, args);
    assert_eq!(git(&["symbolic-ref", "--short", "HEAD"]), "tine/two");
    assert_eq!(
        git(&["rev-parse", "HEAD"]),
        repo.git_in(&dir, &["rev-parse", "HEAD"])
    );
    assert_eq!(git(&["status", "--porcelain"]), "A  staged");
    assert_eq!(git(&["stash", "list"]).lines().count(), 1);
    assert_eq!(git(&["show", ":staged"]), "2");
    git(&["stash", "pop", "-q"]);
    assert_eq!(git(&["status", "--porcelain"]), "A  s\nA  staged");
    git(&["commit", "-qm", "both"]);
    let both = git(&["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/two", &both);
    assert_whole(&repo, &[&dir, &two]);
}

#[test]
fn a_fork_is_a_repository_of_its_own_unless_asked_otherwise() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let is_own = |args: &[&str]| {
        let dir = std::path::PathBuf::from(tine.ok(args));
        assert_eq!(repo.status(&dir), "");
        dir.join(".git").is_dir()
    };
    assert!(is_own(&["new", "one"]));
    assert!(!is_own(&["new", "two", "--git", "linked"]));
    // A fork of a fork is of the same kind.
    assert!(!is_own(&["new", "three", "--from-fork", "two"]));
    repo.git(&["config", "tine.git", "linked"]);
    assert!(!is_own(&["new", "four"]));
    assert!(is_own(&["new", "five", "--git", "own"]));
    assert!(is_own(&["new", "six", "--from-fork", "one"]));
    repo.git(&["config", "tine.git", "both"]);
    let usage = tine.fails(2, &["new", "seven"]);
    assert!(usage.contains("git config tine.git linked"), "{usage}");
}

#[test]
fn a_fork_is_converted_both_ways() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_linked(&tine, "demo");
    repo.sh_in(
        &dir,
        "echo 1 > a; git add a; git commit -qm a; echo 2 > staged; git add staged; echo 3 > loose",
    );
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    let before = repo.git_in(&dir, &["status", "--porcelain"]);
    for kind in ["own", "linked", "own"] {
        assert_eq!(
            tine.json(&["convert", "demo", "--git", kind])["changed"],
            true
        );
        assert_eq!(dir.join(".git").is_dir(), kind == "own");
        assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), head, "{kind}");
        assert_eq!(
            repo.git_in(&dir, &["status", "--porcelain"]),
            before,
            "{kind}"
        );
        let worktrees = if kind == "own" { 1 } else { 2 };
        assert_eq!(repo.git(&["worktree", "list"]).lines().count(), worktrees);
        assert!(
            repo.git_in(&dir, &["reflog"]).contains("commit: a"),
            "{kind}"
        );
        assert_whole(&repo, &[&dir]);
    }
    assert_eq!(
        tine.json(&["convert", "demo", "--git", "own"])["changed"],
        false
    );
}

#[test]
fn what_a_deleted_fork_had_can_be_recovered() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "echo 1 > a; git add a; git commit -qm first; git switch -qc topic; echo 2 > b; git add b; git commit -qm on-topic
         git switch -q -; echo 3 > c; git add c; git stash -q; echo 4 > d; git add d; git commit -qm dropped; git reset -q --hard HEAD~",
    );
    tine.ok(&["delete", "demo", "--force"]);
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    repo.git(&["gc", "-q", "--prune=now"]);
    for (number, (snapshot, file)) in [("topic-1", "b"), ("stash-1", "c"), ("superseded-1", "d")]
        .into_iter()
        .enumerate()
    {
        let name = format!("back-{number}");
        let back = tine.ok(&["recover", "1", &name, "--snapshot", snapshot]);
        let back = std::path::PathBuf::from(back.trim_end());
        assert!(back.join(file).exists(), "{snapshot}");
    }
    assert_whole(&repo, &[]);
}
