//! Forks that travel through git remotes: what is refused, and what does not travel.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::remotes::{other_machine, refs, with_hub};
use crate::support::{OutputExt, TestRepo, Tine, path_text, require_fuse};
use crate::{failure_of, refused};

#[test]
fn what_somebody_else_pushed_is_not_overwritten() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let dir = tine.new_fork("demo");
    fs::write(dir.join("a.txt"), "one\n").unwrap();
    tine.ok(&["push", "demo"]);
    let other = there.new_fork("demo");
    fs::write(other.join("a.txt"), "two\n").unwrap();
    let before = refs(&two, &hub);
    let said = there.fails(3, &["push", "demo"]);
    assert!(
        said.contains("demo on the remote origin is not what was last pushed or taken up here"),
        "{said}"
    );
    assert!(
        said.contains("Ada Author <ada@example.org> pushed it now"),
        "{said}"
    );
    assert!(said.contains("`tine fetch origin`"), "{said}");
    let failure = failure_of(&there.run(&["push", "demo", "--json"]), "push");
    assert_eq!(failure["code"], "remote-moved");
    let failure = failure_of(
        &there.run(&["push", "--delete", "demo", "--json"]),
        "push --delete",
    );
    assert_eq!(failure["code"], "remote-moved");
    assert_eq!(refs(&two, &hub), before);
    // That it was looked at is not enough.
    there.ok(&["fetch"]);
    there.fails(3, &["push", "demo"]);
    assert_eq!(refs(&two, &hub), before);
    // Where it is taken up, nothing of it is lost.
    there.ok(&["new", "theirs", "--from-remote", "demo"]);
    assert_eq!(there.json(&["push", "demo"])["changed"], true);

    let failure = failure_of(&tine.run(&["push", "demo", "--json"]), "push");
    assert_eq!(failure["code"], "remote-moved");
    assert_eq!(tine.json(&["push", "demo", "--force"])["changed"], true);
    assert_eq!(
        there.json(&["push", "demo", "--as", "mine"])["name"],
        "mine"
    );
    let names = tine.json(&["fetch"]);
    assert_eq!(names["forks"][1]["name"], "mine");
    assert_eq!(names["forks"][1]["fork"], "demo");
}

#[test]
fn what_was_deleted_on_the_remote_may_be_pushed_again() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    tine.new_fork("demo");
    tine.new_fork("kept");
    tine.ok(&["push", "demo"]);
    tine.ok(&["push", "kept"]);
    there.ok(&["fetch"]);
    let tracked =
        |repo: &TestRepo| repo.git(&["for-each-ref", "--format=%(refname)", "refs/tine/+remotes"]);
    assert_eq!(
        tracked(&two),
        "refs/tine/+remotes/origin/demo\nrefs/tine/+remotes/origin/kept"
    );
    let deleted = tine.json(&["push", "--delete", "demo"]);
    assert_eq!(
        deleted,
        serde_json::json!({"remote": "origin", "name": "demo", "deleted": true})
    );
    assert_eq!(tracked(&one), "refs/tine/+remotes/origin/kept");
    assert!(!refs(&one, &hub).contains("demo"));
    assert!(tine.ok(&["list"]).contains("demo"), "the fork here stays");
    refused(
        &one,
        &tine,
        &["push", "--delete", "demo"],
        "no-such-state",
        4,
    );

    let listed = there.json(&["fetch"]);
    assert_eq!(listed["forks"].as_array().unwrap().len(), 2, "{listed}");
    let listed = there.json(&["fetch", "--prune"]);
    assert_eq!(listed["forks"][1]["news"], "gone", "{listed}");
    assert_eq!(listed["forks"][1]["name"], "demo", "{listed}");
    assert_eq!(tracked(&two), "refs/tine/+remotes/origin/kept");

    tine.ok(&["push", "demo"]);
    one.git_in(&hub, &["update-ref", "-d", "refs/tine/forks/demo"]);
    assert_eq!(
        tine.json(&["push", "demo"])["changed"],
        true,
        "gone is no other's"
    );
    // As a push that died before it could remember.
    one.git(&["update-ref", "-d", "refs/tine/+remotes/origin/demo"]);
    assert_eq!(tine.json(&["push", "demo"])["changed"], false);
    assert!(tracked(&one).contains("demo"));
}

#[test]
fn a_remote_that_is_wrong_is_told_and_nothing_changes() {
    require_fuse!();
    let (one, hub) = with_hub();
    let tine = Tine::new(&one);
    tine.new_fork("demo");
    refused(
        &one,
        &tine,
        &["push", "demo", "nowhere"],
        "no-such-remote",
        4,
    );
    refused(
        &one,
        &tine,
        &["push", "--delete", "demo", "nowhere"],
        "no-such-remote",
        4,
    );
    refused(&one, &tine, &["fetch", "nowhere"], "no-such-remote", 4);
    refused(
        &one,
        &tine,
        &["new", "x", "--from-remote", "nowhere/demo"],
        "no-such-remote",
        4,
    );
    refused(
        &one,
        &tine,
        &["new", "x", "--from-remote", "demo"],
        "no-such-state",
        4,
    );
    refused(&one, &tine, &["push", "nope"], "no-such-fork", 4);
    refused(
        &one,
        &tine,
        &["push", "demo", "--as", "../x"],
        "invalid-fork-name",
        2,
    );
    refused(
        &one,
        &tine,
        &["new", "x", "--from-remote", "origin/"],
        "invalid-fork-name",
        2,
    );
    refused(
        &one,
        &tine,
        &["new", "x", "--from-remote", "demo", "--from", "HEAD"],
        "usage",
        2,
    );

    one.git(&[
        "remote",
        "add",
        "gone",
        path_text(&one.root().join("gone.git")),
    ]);
    refused(&one, &tine, &["fetch", "gone"], "remote-unreachable", 1);
    let failure = failure_of(&tine.run(&["push", "demo", "gone", "--json"]), "push");
    assert_eq!(failure["code"], "remote-unreachable");
    assert!(
        !failure["causes"].as_array().unwrap().is_empty(),
        "{failure}"
    );
    let all = tine.run(&["fetch", "--all", "--json"]);
    assert_eq!(all.status.code(), Some(1));
    let all: serde_json::Value = serde_json::from_str(&all.text()).unwrap();
    assert_eq!(all["failures"][0]["code"], "remote-unreachable");
    one.git(&["config", "remote.gone.skipFetchAll", "true"]);
    tine.ok(&["fetch", "--all"]);

    // What others put there.
    one.git(&["push", "-q", path_text(&hub), "main:refs/tine/forks/odd"]);
    let blob = one.git(&["rev-parse", "main:README.md"]);
    one.git_in(&hub, &["update-ref", "refs/tine/forks/blob", &blob]);
    let newer = one.git(&[
        "commit-tree",
        "-m",
        "s",
        "-m",
        "Tine-Fork: n\nTine-Format: 2",
        "HEAD^{tree}",
    ]);
    one.git(&[
        "push",
        "-q",
        path_text(&hub),
        &format!("{newer}:refs/tine/forks/newer"),
    ]);
    one.git(&["push", "-q", path_text(&hub), "main:refs/tine/forks/a/b"]);
    let listed = tine.json(&["fetch"]);
    assert_eq!(listed["forks"], serde_json::json!([]));
    let codes: Vec<_> = listed["damaged"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failure| &failure["code"])
        .collect();
    assert_eq!(codes, ["no-such-state", "newer-format", "no-such-state"]);
    refused(
        &one,
        &tine,
        &["new", "x", "--from-remote", "odd"],
        "no-such-state",
        4,
    );
    refused(
        &one,
        &tine,
        &["new", "x", "--from-remote", "blob"],
        "no-such-state",
        4,
    );
    refused(
        &one,
        &tine,
        &["new", "x", "--from-remote", "newer"],
        "newer-format",
        6,
    );

    let alone = TestRepo::new();
    let tine = Tine::new(&alone);
    tine.new_fork("demo");
    for args in [
        &["push", "demo"][..],
        &["push", "--delete", "demo"],
        &["fetch"],
        &["new", "x", "--from-remote", "demo"],
    ] {
        let failure = refused(&alone, &tine, args, "no-such-remote", 4);
        assert!(
            failure["hint"].as_str().unwrap().contains("git remote add"),
            "{failure}"
        );
    }
}

#[test]
fn hooks_on_either_side_may_refuse() {
    require_fuse!();
    let (one, hub) = with_hub();
    let tine = Tine::new(&one);
    tine.new_fork("demo");
    let hook = |path: PathBuf, script: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let there = hook(
        hub.join("hooks/pre-receive"),
        "echo 'no forks on Fridays' >&2; exit 1",
    );
    let before = refs(&one, &hub);
    let failure = failure_of(&tine.run(&["push", "demo", "--json"]), "push");
    assert_eq!(failure["code"], "remote-refused");
    let causes = failure["causes"].to_string();
    assert!(causes.contains("no forks on Fridays"), "{failure}");
    assert!(causes.contains("pre-receive hook declined"), "{failure}");
    fs::remove_file(there).unwrap();

    let here = hook(
        one.common_dir().join("hooks/pre-push"),
        "echo 'not from here' >&2; exit 1",
    );
    let failure = failure_of(&tine.run(&["push", "demo", "--json"]), "push");
    assert_eq!(failure["code"], "hook-refused");
    assert!(
        failure["causes"].to_string().contains("not from here"),
        "{failure}"
    );
    assert_eq!(refs(&one, &hub), before);
    fs::remove_file(here).unwrap();
    tine.ok(&["push", "demo"]);
}

#[test]
fn the_branch_must_be_free_or_stand_where_the_fork_does() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let dir = tine.new_fork("demo");
    fs::write(dir.join("a.txt"), "one\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "a"]);
    tine.ok(&["push", "demo"]);
    there.ok(&["fetch"]);
    two.git(&["branch", "tine/demo", "main"]);
    let failure = refused(
        &two,
        &there,
        &["new", "demo", "--from-remote", "demo"],
        "branch-exists",
        5,
    );
    assert!(
        failure["hint"].as_str().unwrap().contains("--branch NAME"),
        "{failure}"
    );
    // Only a linked worktree would share it with the main checkout.
    for (kind, code) in [("own", "branch-exists"), ("linked", "branch-checked-out")] {
        let on_main = [
            "new",
            "demo",
            "--from-remote",
            "demo",
            "--branch",
            "main",
            "--git",
            kind,
        ];
        refused(&two, &there, &on_main, code, 5);
    }
    let full = two.root().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("file"), "in the way").unwrap();
    let at = [
        "new",
        "demo",
        "--from-remote",
        "demo",
        "--branch",
        "b",
        "--at",
        path_text(&full),
    ];
    refused(&two, &there, &at, "mount-dir-not-empty", 5);
    two.git(&[
        "branch",
        "-f",
        "tine/demo",
        "refs/tine/+remotes/origin/demo^",
    ]);
    there.ok(&["new", "demo", "--from-remote", "demo"]);
}

#[test]
fn what_cannot_travel_is_named() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let dir = tine.new_fork("demo");
    one.sh_in(
        &dir,
        "mkfifo pipe; git init -q nested; git -C nested commit -q --allow-empty -m n; mkdir target; echo built > target/out",
    );
    let output = tine.run_in(&dir, &["push", "demo"]).expect_success("push");
    let said = output.error_text();
    assert!(said.contains("pipe is left out"), "{said}");
    assert!(said.contains("nested"), "{said}");
    let output = there
        .run(&["new", "demo", "--from-remote", "demo"])
        .expect_success("new");
    let said = output.error_text();
    assert!(
        said.contains("Ada Author <ada@example.org> pushed demo to origin now"),
        "{said}"
    );
    assert!(said.contains("without what git ignores"), "{said}");
    let taken = PathBuf::from(output.text());
    for name in ["pipe", "nested", "target"] {
        assert!(!taken.join(name).exists(), "{name}");
    }
}
