//! Where the fork's git directory, the main repository and tine's commands meet.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{assert_whole, await_taken, new_own};
use crate::support::command::DEFAULT_LIMIT;
use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, require_program, run_with_timeout, wait_until,
};

#[test]
fn what_a_fork_names_is_kept_when_it_is_made() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let refs = || repo.git(&["for-each-ref", "--format=%(objectname) %(refname)"]);
    let made = refs();
    for name in ["HEAD", "heads/tine/demo"] {
        let kept = format!("{} refs/tine/demo/git/{name}", repo.head());
        assert!(made.contains(&kept), "{made}");
    }
    repo.git_in(&dir, &["status"]);
    tine.ok(&["status", "demo"]);
    assert_eq!(refs(), made);
}

#[test]
fn refs_are_packed_on_both_sides() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(&dir, "git branch mine && git pack-refs --all --prune");
    for side in ["branch topic", "commit --allow-empty -qm next", "tag v1"] {
        repo.sh_in(
            repo.dir(),
            &format!("git {side} && git pack-refs --all --prune"),
        );
        repo.sh_in(&dir, "git pack-refs --all --prune");
    }
    repo.sh_in(
        repo.dir(),
        "git branch -qf topic && git pack-refs --all --prune",
    );
    let refs = |dir: &Path| {
        repo.git_in(
            dir,
            &[
                "for-each-ref",
                "refs/heads/main",
                "refs/heads/topic",
                "refs/tags",
            ],
        )
    };
    assert_eq!(refs(&dir), refs(repo.dir()));
    repo.git_in(&dir, &["rev-parse", "mine"]);
}

/// A program that sees the main repository reads its objects there, any other through the mount.
#[test]
fn objects_are_a_symlink_for_programs_that_reach_them() {
    require_fuse!();
    require_program!("bwrap");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let objects = dir.join(".git/tine/objects");
    let look = "if [ -h .git/tine/objects ]; then echo link; elif [ -d .git/tine/objects ]; then echo dir; fi
                git cat-file -p HEAD:README.md";
    let content = repo.git(&["cat-file", "-p", "HEAD:README.md"]);
    let outside = |said: &str| assert_eq!(repo.sh_in(&dir, look), format!("{said}\n{content}"));
    outside("link");
    assert_eq!(
        fs::read_link(&objects).unwrap(),
        repo.common_dir().join("objects")
    );
    let path = dir.to_str().expect("a path of the test");
    let run = |program: &str, args: &[&str]| {
        let mut command = repo.command(program, Path::new(path));
        command.args(args).args(["sh", "-euc", look]);
        run_with_timeout(&mut command)
            .expect_success(program)
            .text()
    };
    let sandbox = ["--ro-bind", "/", "/", "--dev", "/dev", "--bind", path, path];
    let [in_sandbox, no_rights] = [run("bwrap", &sandbox), run("setpriv", &["--no-new-privs"])];
    for said in [in_sandbox, no_rights] {
        assert_eq!(said, format!("dir\n{content}"));
    }
    outside("link");
    assert_whole(&repo, &[&dir]);
}

#[test]
fn a_submodule_is_committed_where_its_head_is() {
    require_fuse!();
    let repo = TestRepo::new();
    let library = repo.root().join("library");
    repo.sh_in(
        repo.root(),
        "git init -q library && cd library && echo one > code && git add code && git commit -qm one",
    );
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let add = format!(
        "git -c protocol.file.allow=always submodule --quiet add {} lib",
        library.display()
    );
    repo.sh_in(&dir, &add);
    let first = repo.git_in(&library, &["rev-parse", "HEAD"]);
    tine.ok(&["commit", "demo", "-m", "Add the library"]);
    let gitlink = |commit: &str| format!("160000 commit {commit}\tlib");
    assert_eq!(repo.git(&["ls-tree", "tine/demo", "lib"]), gitlink(&first));
    assert_eq!(repo.status(&dir), "");
    repo.sh_in(
        &dir.join("lib"),
        "echo two > code; git commit -qam two; git pack-refs --all",
    );
    let second = repo.git_in(&dir.join("lib"), &["rev-parse", "HEAD"]);
    assert!(tine.ok(&["status", "demo"]).contains("lib"));
    tine.ok(&["commit", "demo", "-m", "Take the next"]);
    assert_eq!(repo.git(&["ls-tree", "tine/demo", "lib"]), gitlink(&second));
}

/// A file in a fork may be anybody's.
#[test]
fn no_file_of_a_fork_says_what_the_setup_is() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    fs::write(dir.join("settings"), "[tine]\n\tsetup = touch brought\n").unwrap();
    repo.git(&[
        "config",
        "include.path",
        &format!("{}/settings", dir.display()),
    ]);
    assert_eq!(repo.git(&["config", "tine.setup"]), "touch brought");
    let other = new_own(&tine, "other");
    assert!(!other.join("brought").exists());
}

/// git compares what it expects with the ref when it has the lock, and must not see an older one.
#[test]
fn commits_of_git_and_of_tine_never_replace_each_other() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let by_tine = (0..12).map(|number| format!("tine-{number}"));
    let made: Vec<String> = std::thread::scope(|scope| {
        let git = scope.spawn(|| {
            let mut made = Vec::new();
            for number in 0..60 {
                let name = format!("git-{number}");
                let add = format!(
                    "new=$(git commit-tree -p HEAD -m {name} HEAD^{{tree}})
                     git update-ref HEAD $new $(git rev-parse $new^)"
                );
                if repo.try_sh_in(&dir, &add).status.success() {
                    made.push(name);
                }
            }
            made
        });
        let mut made: Vec<String> = by_tine
            .filter(|name| {
                fs::write(dir.join(name), name).unwrap();
                tine.run(&["commit", "demo", "-m", name]).status.success()
            })
            .collect();
        made.extend(git.join().unwrap());
        made
    });
    let subjects = repo.git_in(&dir, &["log", "--format=%s"]);
    for name in &made {
        assert!(
            subjects.lines().any(|subject| subject == name),
            "{name} is gone:\n{subjects}"
        );
    }
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &head);
    assert_whole(&repo, &[&dir]);
}

#[test]
fn a_branch_that_tine_makes_is_for_everybody() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(&dir, "echo one > one; git add one; git commit -qm one");
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    tine.ok(&["branch", "create", "outside", "--fork", "demo"]);
    tine.ok_in(&dir, &["branch", "create", "inside", "--at", "HEAD"]);
    for name in ["outside", "inside"] {
        assert_eq!(repo.git(&["rev-parse", name]), head);
        assert_eq!(repo.git_in(&dir, &["rev-parse", name]), head);
    }
    // git's in the fork are the fork's.
    repo.git_in(&dir, &["branch", "mine"]);
    tine.ok(&["status", "demo"]);
    assert_eq!(repo.git(&["branch", "--list", "mine"]), "");
    assert_eq!(
        repo.git(&["rev-parse", "refs/tine/demo/git/heads/mine"]),
        head
    );
}

/// The main repository's branch of that name is not the one that the fork is on.
#[test]
fn a_fork_goes_on_where_another_checkout_has_its_branch() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "mine");
    let other = repo.git_checkout_of("tine/mine", "other");
    repo.git_in(&other, &["switch", "-q", "tine/mine"]);
    repo.sh_in(
        &other,
        "echo theirs > theirs; git add theirs; git commit -qm theirs",
    );
    let theirs = repo.git(&["rev-parse", "tine/mine"]);
    repo.commit_files(&[("on", b"on")], "on");
    fs::write(dir.join("own"), "own").unwrap();
    tine.ok(&["commit", "mine", "-m", "own"]);
    tine.ok(&["update", "mine"]);
    assert_eq!(repo.git(&["rev-parse", "tine/mine"]), theirs);
    // What `tine list` says joins both: first in the fork, then in that checkout.
    for (at, with) in [(&dir, &*theirs), (&other, "refs/tine/mine/git/HEAD")] {
        tine.ok(&["status", "mine"]);
        let note = tine.json(&["list"])["forks"][0]["note"].to_string();
        let joins = format!("git merge {with}");
        assert!(note.contains(&format!("`{joins}`")), "{note}");
        repo.sh_in(at, &joins);
    }
    wait_until("both are joined", DEFAULT_LIMIT, || {
        tine.json(&["list"])["forks"][0]["note"] == Value::Null
    });
    tine.ok(&["merge", "mine", "--into", "main"]);
    for (branch, files) in [
        ("main", "on\nown\ntheirs"),
        ("tine/mine", "on\nown\ntheirs"),
    ] {
        let names = repo.git(&["ls-tree", "--name-only", branch, "on", "own", "theirs"]);
        assert_eq!(names, files, "{branch}");
    }
    assert_whole(&repo, &[&dir]);
}

#[test]
fn a_git_directory_that_is_removed_is_made_again_where_the_branch_was() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "echo one > one; git add one; git commit -qm one; echo two > two; git add two",
    );
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &head);
    // It cannot remove what it is lent, and goes on with the rest.
    assert!(!repo.try_sh_in(&dir, "rm -rf .git").status.success());
    assert!(!repo.try_git_in(&dir, &["status"]).status.success());
    tine.ok(&["status", "demo"]);
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), head);
    assert_eq!(repo.status(&dir), "?? two", "only the index is lost");
    tine.ok(&["commit", "demo", "-m", "two"]);
    assert_eq!(repo.git_in(&dir, &["log", "--format=%s", "-2"]), "two\none");
    assert_whole(&repo, &[&dir]);
}

#[test]
fn a_branch_that_went_with_its_fork_is_not_said_to_go_on() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    for (fork, is_left) in [("gone", false), ("left", true)] {
        let dir = new_own(&tine, fork);
        if !is_left {
            repo.git_in(&dir, &["switch", "-q", "-c", "alone"]);
        }
        repo.sh_in(&dir, "echo one > one; git add one; git commit -qm one");
        let told = tine.ok(&["delete", fork]);
        assert_eq!(told.contains("goes on with its branch"), is_left, "{told}");
        assert_eq!(told.contains("1 commit kept"), !is_left, "{told}");
    }
    let back = tine.ok(&["recover", "1", "back", "--snapshot", "alone-1"]);
    assert!(Path::new(back.trim()).join("one").exists(), "{back}");
}

#[test]
fn refs_of_a_deleted_fork_come_back_with_it() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "git commit -q --allow-empty -m one; git tag light; git tag -a -m annotated annotated; git branch feature
         git tag -a -m of-a-blob blob $(echo blob | git hash-object -w --stdin); git tag tree HEAD^{tree}
         git switch -q -c side; git commit -q --allow-empty -m side; git tag -a -m alone alone
         git switch -q tine/demo; git branch -D side -q",
    );
    let list = ["for-each-ref", "--format=%(objectname) %(refname)"];
    let refs = repo.git_in(&dir, &list);
    let told = tine.ok(&["delete", "demo"]);
    assert!(told.contains("6 refs kept"), "{told}");
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    let shown = tine.ok(&["recover", "show", "1"]);
    assert!(shown.contains("refs/tags/annotated"), "{shown}");
    tine.ok(&["recover", "1"]);
    assert_eq!(repo.git_in(&dir, &list), refs);
    assert_whole(&repo, &[&dir]);
    // Those that the main repository has by now are not kept a second time.
    for name in ["annotated", "light", "blob", "tree", "alone"] {
        let id = repo.git_in(&dir, &["rev-parse", &format!("refs/tags/{name}")]);
        repo.git(&["update-ref", &format!("refs/tags/{name}"), &id]);
    }
    let told = tine.ok(&["delete", "demo"]);
    assert!(told.contains("1 ref kept"), "{told}");
}

#[test]
fn a_branch_that_is_renamed_is_renamed_in_its_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.git_in(&dir, &["commit", "-q", "--allow-empty", "-m", "one"]);
    // One name is a directory of the other.
    for (from, to) in [("tine/demo", "tine/demo/x"), ("tine/demo/x", "other")] {
        tine.ok(&["branch", "rename", from, to]);
        assert_eq!(repo.git_in(&dir, &["branch", "--show-current"]), to);
        assert_eq!(repo.git_in(&dir, &["branch", "--list", from]), "");
        repo.git_in(&dir, &["commit", "-q", "--allow-empty", "-m", to]);
        let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
        await_taken(&repo, to, &head);
    }
    assert_eq!(tine.json(&["list"])["forks"][0]["note"], Value::Null);
    let log = repo.git_in(&dir, &["reflog", "show", "--format=%gs", "other"]);
    assert!(log.contains("commit: one"), "{log}");
    // What git in the fork has locked is not renamed on one side only.
    fs::write(dir.join(".git/refs/heads/other.lock"), "").unwrap();
    let refused = tine.run(&["branch", "rename", "other", "third"]);
    assert!(!refused.status.success());
    fs::remove_file(dir.join(".git/refs/heads/other.lock")).unwrap();
    assert_eq!(repo.git(&["branch", "--list", "third"]), "");
    assert_eq!(repo.git_in(&dir, &["branch", "--show-current"]), "other");
    assert_whole(&repo, &[&dir]);
}

/// HEAD moves between the take-over and the look at it.
#[test]
fn commands_go_on_while_git_commits_in_the_fork() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    std::thread::scope(|scope| {
        let commits = scope.spawn(|| {
            for n in 0..60 {
                let message = format!("commit {n}");
                repo.git_in(&dir, &["commit", "-q", "--allow-empty", "-m", &message]);
            }
        });
        while !commits.is_finished() {
            for verb in ["status", "log", "diff"] {
                tine.ok(&[verb, "demo"]);
            }
        }
    });
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &head);
    assert_whole(&repo, &[&dir]);
}

/// A ref that the fork made its own does not give way to the main repository's when it is deleted.
#[test]
fn a_packed_ref_of_the_fork_stays_deleted() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "git commit -q --allow-empty -m two; git branch topic HEAD~1; git tag light HEAD~1; git branch packed HEAD~1
         git update-ref refs/remotes/up/x HEAD~1",
    );
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let names = repo.sh_in(
        &dir,
        "git branch -f topic HEAD; git tag -f light HEAD >/dev/null; git update-ref refs/remotes/up/x HEAD
         git branch -f packed HEAD; git gc -q
         git branch -q -m topic moved; git tag -d light >/dev/null; git update-ref -d refs/remotes/up/x
         git branch -q -D packed; git for-each-ref --format='%(refname)'",
    );
    let own = [
        "refs/heads/main",
        "refs/heads/moved",
        "refs/heads/tine/demo",
    ];
    assert_eq!(names, own.join("\n"));
    assert_eq!(repo.git_in(&dir, &["branch", "--list", "topic"]), "");
    assert_whole(&repo, &[&dir]);
}

/// What moves in the main repository must not move a worktree that was made in the fork.
#[test]
fn a_worktree_in_a_fork_keeps_its_branch() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "git commit -q --allow-empty -m two; git branch topic HEAD~1; git branch other HEAD~1",
    );
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "git worktree add -q ../topic topic 2>/dev/null; git worktree add -q ../other other 2>/dev/null",
    );
    repo.sh_in(
        repo.dir(),
        "git branch -q -f topic main; git branch -q -D other",
    );
    for name in ["topic", "other"] {
        let linked = dir.with_file_name(name);
        assert_eq!(repo.status(&linked), "");
        repo.git_in(&linked, &["commit", "-q", "--allow-empty", "-m", "mine"]);
        assert_eq!(repo.git_in(&linked, &["rev-list", "--count", "HEAD"]), "2");
        repo.git_in(&dir, &["worktree", "remove", &linked.display().to_string()]);
    }
    assert_whole(&repo, &[&dir]);
}

/// The branch that is merged into is the main repository's, and not the fork's own.
#[test]
fn a_branch_that_somebody_moved_gets_its_fork_back_by_a_merge() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.git_in(&dir, &["commit", "-q", "--allow-empty", "-m", "one"]);
    let one = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &one);
    repo.git(&["branch", "-q", "-f", "tine/demo", "main"]);
    repo.git_in(&dir, &["commit", "-q", "--allow-empty", "-m", "two"]);
    tine.ok(&["merge", "demo", "--into", "branch:tine/demo"]);
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    assert_eq!(repo.git(&["rev-parse", "tine/demo"]), head);
    tine.ok(&["status", "demo"]);
    assert_eq!(tine.json(&["list"])["forks"][0]["note"], Value::Null);
    // From then on it follows again.
    repo.git_in(&dir, &["commit", "-q", "--allow-empty", "-m", "three"]);
    let three = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    await_taken(&repo, "tine/demo", &three);
}
