//! Branches that are symbolic refs to others: what is done to such an alias is done to the branch
//! behind it.

use std::path::Path;

use crate::branches::{repo_with_branches, text};
use crate::refused;
use crate::support::{OutputExt, TestRepo, Tine, repo::path_text, require_fuse};

fn alias(repo: &TestRepo, name: &str, target: &str) {
    let (name, target) = (format!("refs/heads/{name}"), format!("refs/heads/{target}"));
    repo.git(&["symbolic-ref", &name, &target]);
}

fn refs(repo: &TestRepo) -> String {
    repo.git(&[
        "for-each-ref",
        "--format=%(refname) %(symref)",
        "refs/heads",
    ])
}

#[test]
fn an_alias_is_in_use_where_the_branch_behind_it_is() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let repo = repo.with_linked_forks();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    alias(&repo, "of-main", "main");
    alias(&repo, "of-alias", "of-main");
    alias(&repo, "of-demo", "tine/demo");
    for args in [
        &["new", "other", "--branch", "of-main"][..],
        &["new", "other", "--branch", "of-alias"],
        &["new", "other", "--branch", "of-demo"],
        &["branch", "switch", "demo", "of-alias"],
    ] {
        refused(&repo, &tine, args, "branch-checked-out", 5);
    }
    // A fork on an alias is on the branch behind it.
    alias(&repo, "of-topic", "topic");
    tine.ok(&["branch", "switch", "demo", "of-topic"]);
    assert_eq!(
        repo.git_of_fork("demo", &["symbolic-ref", "HEAD"]),
        "refs/heads/topic"
    );
    alias(&repo, "of-alone", "alone");
    tine.ok(&["new", "other", "--branch", "of-alone", "--no-mount"]);
    assert_eq!(
        repo.git_of_fork("other", &["symbolic-ref", "HEAD"]),
        "refs/heads/alone"
    );
    let list = tine.json(&["branch", "list", "--all"]);
    let listed = list["branches"].as_array().unwrap().iter();
    let of_topic = listed
        .clone()
        .find(|branch| branch["name"] == "of-topic")
        .unwrap();
    assert_eq!(of_topic["fork"], "demo");
    // Where another checkout has an alias, the branch behind it is held, and both stay.
    let worktree = repo.root().join("worktree");
    repo.git(&["worktree", "add", "-q", "--detach", path_text(&worktree)]);
    repo.git(&["branch", "held"]);
    alias(&repo, "of-held", "held");
    repo.git_in(&worktree, &["symbolic-ref", "HEAD", "refs/heads/of-held"]);
    for branch in ["held", "of-held"] {
        refused(
            &repo,
            &tine,
            &["branch", "delete", branch, "--force"],
            "branch-checked-out",
            5,
        );
    }
    refused(
        &repo,
        &tine,
        &["new", "third", "--branch", "held"],
        "branch-checked-out",
        5,
    );
}

#[test]
fn deleting_an_alias_leaves_the_branch_behind_it() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    let before = refs(&repo);
    alias(&repo, "of-main", "main");
    alias(&repo, "of-topic", "topic");
    let deleted = tine.json(&["branch", "delete", "of-main", "of-topic"]);
    assert_eq!(deleted["branches"][1]["recover"], serde_json::Value::Null);
    assert_eq!(refs(&repo), before);
    alias(&repo, "of-main", "main");
    for (args, hint) in [
        (
            ["branch", "rename", "of-main", "other"],
            "`tine branch delete of-main`",
        ),
        (
            ["branch", "rename", "main", "other"],
            "`tine branch delete of-main`",
        ),
    ] {
        let failure = refused(&repo, &tine, &args, "branch-exists", 5);
        assert!(text(&failure["hint"]).contains(hint), "{failure}");
    }
    let told = tine.ok(&["branch", "delete", "of-main"]);
    assert!(
        told.contains("`git symbolic-ref refs/heads/of-main refs/heads/main` brings it back"),
        "{told}"
    );
    tine.ok(&["branch", "rename", "main", "other"]);
}

#[test]
fn what_only_an_alias_of_a_deleted_branch_names_is_kept() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    let topic = repo.git(&["rev-parse", "topic"]);
    alias(&repo, "of-topic", "topic");
    alias(&repo, "of-alias", "of-topic");
    refused(
        &repo,
        &tine,
        &["branch", "delete", "topic"],
        "branch-not-merged",
        3,
    );
    let deleted = tine.json(&["branch", "delete", "topic", "--force"]);
    assert_eq!(deleted["branches"][0]["recover"], 1, "{deleted}");
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    tine.ok(&["recover", "1"]);
    assert_eq!(repo.git(&["rev-parse", "of-alias"]), topic);
    assert_eq!(repo.git(&["show", "topic:new.txt"]), "new");
    // With its aliases it goes as well.
    let deleted = tine.json(&[
        "branch", "delete", "of-topic", "topic", "of-alias", "--force",
    ]);
    assert_eq!(deleted["branches"].as_array().unwrap().len(), 3);
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    tine.ok(&["recover", "1"]);
    assert_eq!(repo.git(&["rev-parse", "topic"]), topic);
}

#[test]
fn a_merge_into_an_alias_moves_the_branch_behind_it() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let commit = |dir: &Path, name: &str| {
        repo.sh_in(
            dir,
            &format!("echo {name} > {name}; git add {name}; git commit -qm {name}"),
        );
    };
    alias(&repo, "of-main", "main");
    alias(&repo, "of-topic", "topic");
    commit(&dir, "one");
    let merged = tine.json(&["merge", "work", "--into", "of-main"]);
    assert_eq!(merged["target"]["branch"], "main");
    assert!(repo.dir().join("one").exists());
    assert_eq!(repo.status(repo.dir()), "");
    tine.ok(&["merge", "work", "--into", "of-topic", "--strategy", "ours"]);
    assert_eq!(
        repo.git(&["symbolic-ref", "refs/heads/of-topic"]),
        "refs/heads/topic"
    );
    // Where the main checkout is on an alias.
    repo.git(&["symbolic-ref", "HEAD", "refs/heads/of-main"]);
    for (name, into) in [("two", "main"), ("three", "of-main")] {
        commit(&dir, name);
        tine.ok(&["merge", "work", "--into", into]);
        assert!(repo.dir().join(name).exists(), "{name}");
        assert_eq!(repo.status(repo.dir()), "");
    }
    let head = std::fs::read_to_string(repo.common_dir().join("HEAD")).unwrap();
    assert_eq!(head, "ref: refs/heads/of-main\n");
    assert_eq!(
        repo.git(&["rev-parse", "main"]),
        repo.git(&["rev-parse", "tine/work"])
    );
    // A fork that began there comes from the branch behind it.
    let child = tine.new_fork("child");
    commit(&child, "four");
    tine.ok(&["merge", "child"]);
    assert!(repo.dir().join("four").exists());
}

#[test]
fn an_alias_that_leads_nowhere_is_named() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    alias(&repo, "dangling", "gone");
    alias(&repo, "loop", "pool");
    alias(&repo, "pool", "loop");
    for (name, why) in [
        ("dangling", "an alias of \"gone\""),
        ("loop", "an alias that leads to itself"),
    ] {
        for args in [
            &["branch", "switch", "demo", name][..],
            &["branch", "create", name],
            &["branch", "delete", name],
            &["new", "other", "--branch", name],
            &["merge", "demo", "--into", name],
        ] {
            let failure = refused(&repo, &tine, args, "no-such-branch", 4);
            assert!(
                text(&failure["message"]).contains(why),
                "{args:?}: {failure}"
            );
            let hint = format!("`git symbolic-ref --delete refs/heads/{name}`");
            assert!(
                text(&failure["hint"]).contains(&hint),
                "{args:?}: {failure}"
            );
        }
        tine.ok(&["branch", "list", "--all"]);
        let removed = repo.try_git_in(
            repo.dir(),
            &["symbolic-ref", "--delete", &format!("refs/heads/{name}")],
        );
        removed.expect_success("git symbolic-ref");
        tine.ok(&["branch", "create", name]);
    }
}
