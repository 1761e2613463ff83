//! `--with-git`: files, HEAD, refs and index go back together, and what was is a way back.

use std::fs;
use std::path::{Path, PathBuf};

use super::{assert_whole, await_taken, new_linked, new_own};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout};

/// HEAD, refs, stash, status and what is staged, as git in the fork tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    head: String,
    refs: String,
    status: String,
    staged: String,
    files: String,
}

fn seen(repo: &TestRepo, dir: &Path) -> Seen {
    let git = |args: &[&str]| repo.git_in(dir, args);
    Seen {
        head: fs::read_to_string(dir.join(".git/HEAD")).expect("HEAD"),
        refs: git(&["for-each-ref", "--format=%(refname) %(objectname)"])
            .lines()
            .filter(|line| !line.starts_with("refs/stash"))
            .collect::<Vec<_>>()
            .join("\n"),
        status: git(&["status", "--porcelain=v2", "--branch"]),
        staged: git(&["ls-files", "--stage"]),
        files: repo.sh_in(
            dir,
            "find . -name .git -prune -o -type f -exec sha1sum {} + | sort",
        ),
    }
}

/// Runs a command that must fail; what it says.
#[track_caller]
fn refused(tine: &Tine<'_>, args: &[&str]) -> String {
    let output = tine.run(&[args, &["--json"]].concat());
    assert!(!output.status.success(), "{args:?}: {}", output.text());
    output.text() + &output.error_text()
}

/// Runs a command, and kills the daemon where the command comes to `point`.
#[track_caller]
fn kill_at(repo: &TestRepo, tine: &Tine<'_>, point: &str, args: &[&str]) {
    let points = repo.root().join("points");
    fs::create_dir_all(&points).expect("a directory");
    // The daemon that knows the directory is the one that this starts.
    tine.ok(&["daemon", "stop"]);
    let run = |args: &[&str]| run_with_timeout(tine.command(args).env("TINE_PAUSE_IN", &points));
    run(&["list"]).expect_success("the daemon starts");
    let reached = points.join(format!("{point}.reached"));
    fs::write(points.join(point), "").expect("a point");
    std::thread::scope(|scope| {
        let held = scope.spawn(|| run(args));
        while !reached.exists() && !held.is_finished() {
            std::thread::yield_now();
        }
        assert!(reached.exists(), "{args:?} never came to {point}");
        tine.kill_daemon();
        let _ = fs::remove_file(&reached);
    });
}

/// Makes a fork with commits, a branch, tags, staged and loose changes.
fn busy_fork(repo: &TestRepo, tine: &Tine<'_>) -> PathBuf {
    let dir = new_own(tine, "demo");
    repo.sh_in(
        &dir,
        "echo 1 > one; git add one; git commit -qm one; git branch topic; git tag v1; git tag -a v2 -m two
         echo 2 > two; git add two; echo 3 > two; echo loose > loose; echo i > intent; git add -N intent",
    );
    dir
}

/// Changes everything that a restore brings back.
const MOVE_ON: &str = "git add -A; git commit -qm more; git branch -f topic; git tag -d v1 v2; git branch -D main
     git switch -qc other; echo 4 > four; git add four; git commit -qm four; rm one; echo 5 > five; git add five";

#[test]
fn files_head_refs_and_index_go_back_together_and_forth_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = busy_fork(&repo, &tine);
    let then = seen(&repo, &dir);
    tine.ok(&["snapshot", "demo", "then"]);
    repo.sh_in(&dir, MOVE_ON);
    let now = seen(&repo, &dir);
    assert_ne!(then, now);
    // Nothing but the snapshots keeps what the fork's refs left.
    for (verb, expected) in [
        (&["restore", "demo", "then", "--with-git"][..], &then),
        (&["undo", "demo"], &now),
        (&["redo", "demo"], &then),
        (&["undo", "demo"], &now),
    ] {
        repo.git(&["reflog", "expire", "--expire=now", "--all"]);
        repo.git(&["gc", "-q", "--prune=now"]);
        tine.ok(verb);
        assert_eq!(seen(&repo, &dir), *expected, "after {verb:?}");
    }
    let log = repo.git_in(&dir, &["reflog", "-3", "--format=%gs", "HEAD"]);
    assert!(
        log.contains("tine undo demo") && log.contains("tine redo demo"),
        "{log}"
    );
    assert_whole(&repo, &[&dir]);
}

#[test]
fn without_the_flag_only_files_go_back_and_git_sees_the_difference() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = busy_fork(&repo, &tine);
    tine.ok(&["snapshot", "demo", "then"]);
    repo.sh_in(
        &dir,
        "git add -A; git commit -qm more; echo changed > one; git add one",
    );
    // The index has a token of the file system monitor now.
    repo.git_in(&dir, &["status"]);
    let (head, staged) = (
        repo.git_in(&dir, &["rev-parse", "HEAD"]),
        repo.git_in(&dir, &["ls-files", "--stage"]),
    );
    tine.ok(&["restore", "demo", "then"]);
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), head);
    assert_eq!(repo.git_in(&dir, &["ls-files", "--stage"]), staged);
    let asked = repo.git_in(&dir, &["status", "--porcelain"]);
    let looked = repo.git_in(
        &dir,
        &["-c", "core.fsmonitor=false", "status", "--porcelain"],
    );
    assert_eq!(asked, looked);
    assert_eq!(asked, "MM one");
}

#[test]
fn the_branch_of_the_main_repository_goes_back_and_the_stash_stays() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = busy_fork(&repo, &tine);
    let one = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &one);
    tine.ok(&["snapshot", "demo", "then"]);
    repo.sh_in(
        &dir,
        "git add -A; git commit -qm more; echo s > s; git add s; git stash -q",
    );
    let stash = repo.git_in(&dir, &["stash", "list"]);
    let more = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &more);
    let said = tine.ok(&["restore", "demo", "then", "--with-git"]);
    assert!(said.contains("`tine undo demo` takes that back"), "{said}");
    await_taken(&repo, "tine/demo", &one);
    assert_eq!(repo.git_in(&dir, &["stash", "list"]), stash);
    let log = repo.git(&["reflog", "-1", "--format=%gs", "tine/demo"]);
    assert_eq!(log, "tine restore demo then --with-git");
    // What the fork does afterwards is not dropped in silence.
    repo.sh_in(&dir, "git add -A; git commit -qm after");
    let after = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    let said = refused(&tine, &["undo", "demo"]);
    assert!(
        said.contains("cannot-undo") && said.contains("--with-git"),
        "{said}"
    );
    tine.ok(&["undo", "demo", "--with-git"]);
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), more);
    tine.ok(&["redo", "demo"]);
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), after);
    assert_whole(&repo, &[&dir]);
}

#[test]
fn names_that_exclude_each_other_and_a_detached_head_come_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "git branch a; git branch b/c; git pack-refs --all; git switch -q --detach",
    );
    let then = seen(&repo, &dir);
    tine.ok(&["snapshot", "demo", "then"]);
    repo.sh_in(
        &dir,
        "git branch -D a b/c; git branch a/x; git branch b; git switch -q tine/demo; echo 1 > one; git add one; git commit -qm one",
    );
    let now = seen(&repo, &dir);
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["restore", "demo", "then", "--with-git"]);
    tine.ok(&["mount", "demo"]);
    assert_eq!(seen(&repo, &dir), then);
    tine.ok(&["undo", "demo"]);
    assert_eq!(seen(&repo, &dir), now);
    assert_whole(&repo, &[&dir]);
}

#[test]
fn what_cannot_be_restored_is_refused_and_nothing_is_changed() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = busy_fork(&repo, &tine);
    tine.ok(&["snapshot", "demo", "then"]);
    let is_refused = |args: &[&str], code: &str, word: &str| {
        let before = seen(&repo, &dir);
        let count = tine.json(&["snapshots", "demo"])["snapshots"]
            .as_array()
            .map(Vec::len);
        let said = refused(&tine, args);
        assert!(
            said.contains(code) && said.contains(word),
            "{args:?}: {said}"
        );
        assert_eq!(seen(&repo, &dir), before, "after {args:?}");
        let left = tine.json(&["snapshots", "demo"])["snapshots"]
            .as_array()
            .map(Vec::len);
        assert_eq!(count, left, "after {args:?}");
    };
    let restore = ["restore", "demo", "then", "--with-git"];
    for point in ["pristine", "HEAD"] {
        is_refused(
            &["restore", "demo", point, "--with-git"],
            "no-git-point",
            "only a snapshot",
        );
    }
    // A merge in progress, now and then.
    repo.sh_in(
        &dir,
        "git add -A; git commit -qm base; git switch -qc side HEAD~; echo other > two; git add two; git commit -qm side
         git switch -q tine/demo; git merge side || true",
    );
    is_refused(&restore, "operation-in-progress", "git merge --abort");
    tine.ok(&["snapshot", "demo", "amid"]);
    repo.git_in(&dir, &["merge", "--abort"]);
    is_refused(
        &["restore", "demo", "amid", "--with-git"],
        "no-git-point",
        "in progress",
    );
    // git has a lock.
    repo.git_in(&dir, &["branch", "-q", "-f", "side", "HEAD"]);
    for lock in ["index.lock", "refs/heads/side.lock"] {
        fs::write(dir.join(".git").join(lock), "").expect("a lock");
        is_refused(&restore, "locked", lock);
        fs::remove_file(dir.join(".git").join(lock)).expect("the lock goes");
    }
    tine.ok(&["mv", "--fork", "demo", "one", "three"]);
    is_refused(
        &["undo", "demo", "--with-git"],
        "no-git-point",
        "no restore",
    );
    tine.ok(&restore);
    let linked = new_linked(&tine, "linked");
    tine.ok(&["snapshot", "linked", "then"]);
    let said = refused(&tine, &["restore", "linked", "then", "--with-git"]);
    assert!(said.contains("tine convert linked --git own"), "{said}");
    assert_whole(&repo, &[&dir, &linked]);
}

#[test]
fn a_daemon_that_is_killed_amid_it_leaves_all_or_nothing() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = busy_fork(&repo, &tine);
    tine.ok(&["snapshot", "demo", "then"]);
    let then = seen(&repo, &dir);
    repo.sh_in(&dir, MOVE_ON);
    let now = seen(&repo, &dir);
    for (point, is_done) in [
        ("before-keeping", false),
        ("before-index", true),
        ("files-restored", true),
        ("refs-locked", true),
        ("refs-going-back", true),
        ("refs-went-back", true),
    ] {
        kill_at(
            &repo,
            &tine,
            point,
            &["restore", "demo", "then", "--with-git"],
        );
        tine.ok(&["list"]);
        let found = seen(&repo, &dir);
        assert_eq!(
            found,
            if is_done { &then } else { &now }.clone(),
            "killed at {point}"
        );
        if is_done {
            tine.ok(&["undo", "demo"]);
        }
        assert_eq!(seen(&repo, &dir), now, "after {point}");
        assert_whole(&repo, &[&dir]);
    }
}
