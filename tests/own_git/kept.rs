//! What forks name and only the main repository has, when that is collected.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{assert_whole, await_taken, new_own};
use crate::support::command::DEFAULT_LIMIT;
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, wait_until};

/// Waits until the main repository keeps an object for the fork `demo`.
#[track_caller]
fn await_kept(repo: &TestRepo, id: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let script = format!(
        "git rev-list --objects --glob='refs/tine/demo/*' | grep -q ^{id} ||
         for ref in $(git for-each-ref --format='%(refname)' refs/tine/demo); do
             git ls-tree -r $ref 2> /dev/null | grep -q {id} && exit 0; done"
    );
    while !repo.try_sh_in(repo.dir(), &script).status.success() {
        assert!(Instant::now() < deadline, "{id} is not kept");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_the_index_the_logs_and_the_stash_name_outlives_a_collection() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let main = repo.dir().display();
    let collect = "git reflog expire --expire=now --all; git gc -q --prune=now";
    // Staged, and unreachable in the main repository, which alone has it.
    let blob = repo.sh_in(repo.dir(), "echo given | git hash-object -w --stdin");
    let cacheinfo = format!("100644,{blob},given");
    repo.git_in(&dir, &["update-index", "--add", "--cacheinfo", &cacheinfo]);
    await_kept(&repo, &blob);
    repo.sh_in(repo.dir(), collect);
    assert_eq!(repo.git_in(&dir, &["show", ":given"]), "given");
    // In a log, and in the stash.
    let dangling = repo.sh_in(
        &dir,
        &format!(
            "git reset -q --hard
             id=$(git -C '{main}' commit-tree -p main -m dangling main^{{tree}})
             git reset -q --hard $id; git reset -q --hard HEAD~1
             echo 1 >> README.md; git stash -q; echo 2 >> README.md; git stash -q; git stash drop -q
             echo $id"
        ),
    );
    let stash = repo.git_in(&dir, &["rev-parse", "stash"]);
    await_taken(&repo, "refs/tine/demo/git/stash", &stash);
    await_kept(&repo, &dangling);
    repo.sh_in(repo.dir(), collect);
    repo.git_in(&dir, &["cat-file", "-e", &dangling]);
    repo.git_in(&dir, &["stash", "pop", "-q"]);
    assert_whole(&repo, &[&dir]);
}

#[test]
fn the_main_repositorys_loose_refs_are_seen_in_directories_of_the_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let listed = || repo.git_in(&dir, &["for-each-ref", "--format=%(refname)"]);
    let mut expected = vec![
        "refs/heads/main".to_owned(),
        "refs/heads/tine/demo".to_owned(),
    ];
    assert_eq!(listed(), expected.join("\n"));
    // One after another: the second change follows the first at once.
    for n in 0..20 {
        let name = format!("refs/heads/tine/other-{n:02}");
        repo.git(&["update-ref", &name, "main"]);
        expected.push(name);
        assert_eq!(listed(), expected.join("\n"));
    }
}

#[test]
fn branches_and_the_stash_come_back_with_the_second_conversion() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "git switch -qc topic; echo t > t; git add t; git commit -qm topic; git switch -q -
         echo s >> README.md; git stash -q; git tag v1 topic",
    );
    let refs = || repo.git_in(&dir, &["for-each-ref", "--format=%(refname) %(objectname)"]);
    let before = refs();
    tine.ok(&["convert", "demo", "--git", "linked"]);
    tine.ok(&["convert", "demo", "--git", "own"]);
    assert_eq!(refs(), before);
    let stash = repo.git_in(&dir, &["rev-parse", "stash"]);
    await_taken(&repo, "refs/tine/demo/git/stash", &stash);
    assert_whole(&repo, &[&dir]);
}

/// Everything but HEAD and its branch, which move on meanwhile.
#[test]
fn a_fork_that_was_a_linked_worktree_for_a_while_has_all_that_it_had() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "mkdir in out; touch in/a out/b; git add .; git commit -qm dirs",
    );
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "for n in 1 2 3; do echo $n > s$n; git stash push -qu -m s$n; done
         git switch -qc topic; git commit -q --allow-empty -m topic; git tag -am note v1; git switch -q -
         git symbolic-ref refs/heads/alias refs/heads/topic
         git config core.abbrev 12; git config user.name Own
         mkdir -p .git/hooks .git/lfs/objects/ab; echo large > .git/lfs/objects/ab/cd
         printf '#!/bin/sh\\n' > .git/hooks/pre-push; chmod +x .git/hooks/pre-push
         echo '*.own' >> .git/info/exclude; echo '*.own binary' > .git/info/attributes
         git sparse-checkout set in",
    );
    let state = || {
        repo.sh_in(
            &dir,
            "git for-each-ref --format='%(refname) %(objectname) %(symref)' | grep -v tine/demo
             git stash list; git reflog topic; cat .git/config .git/info/* .git/hooks/pre-push
             cat .git/config.worktree .git/lfs/objects/ab/cd; ls -l .git/hooks/pre-push
             git sparse-checkout list; ls; git status --porcelain",
        )
    };
    let before = state();
    let said = tine.run(&["convert", "demo", "--git", "linked"]);
    let said = said.error_text();
    for part in [
        "config",
        "hooks",
        "info/exclude",
        "info/attributes",
        "lfs",
        "stash",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert_eq!(repo.git_in(&dir, &["sparse-checkout", "list"]), "in");
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert!(!dir.join("out").exists());
    repo.sh_in(&dir, "echo 1 > in/new; git add in; git commit -qm linked");
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    tine.ok(&["convert", "demo", "--git", "own"]);
    assert_eq!(state(), before);
    assert_eq!(repo.git_in(&dir, &["rev-parse", "tine/demo"]), head);
    let log = repo.git_in(&dir, &["reflog", "-1", "--format=%gs", "tine/demo"]);
    assert_eq!(log, "tine: converted from a linked worktree");
    repo.git_in(&dir, &["stash", "pop", "-q"]);
    assert_whole(&repo, &[&dir]);
    // What a linked worktree sets comes along as well.
    tine.ok(&["convert", "demo", "--git", "linked"]);
    repo.sh_in(
        &dir,
        "git sparse-checkout disable; git switch -qc moved; git commit -q --allow-empty -m moved",
    );
    tine.ok(&["convert", "demo", "--git", "own"]);
    assert!(dir.join("out").exists());
    assert_eq!(
        repo.git_in(&dir, &["symbolic-ref", "HEAD"]),
        "refs/heads/moved"
    );
    assert_eq!(repo.git_in(&dir, &["rev-parse", "tine/demo"]), head);
    assert_whole(&repo, &[&dir]);
}

/// A linked worktree has no stash and no branches of its own, but the fork had.
#[test]
fn what_a_fork_had_before_its_conversion_is_kept_when_it_is_deleted() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let ids = repo.sh_in(
        &dir,
        "for n in 1 2 3; do echo $n > s$n; git stash push -qu -m s$n; done
         git switch -qc topic; echo t > t; git add t; git commit -qm topic; git tag -am note v1
         git switch -q -; git commit -q --allow-empty -m dropped; git reset -q --hard HEAD~
         git rev-parse stash@{0} stash@{1} stash@{2} topic v1 HEAD@{1}",
    );
    tine.ok(&["convert", "demo", "--git", "linked"]);
    let deleted = tine.ok(&["delete", "demo"]);
    assert!(deleted.contains("tine recover"), "{deleted}");
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    tine.ok(&["recover", "1"]);
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(
        repo.git_in(&dir, &["rev-parse", "topic", "v1"]),
        ids[3..5].join("\n")
    );
    let entry = tine.json(&["recover", "show", "1"]);
    let shown = entry.to_string();
    for id in &ids {
        repo.git(&["cat-file", "-e", id]);
        assert!(shown.contains(id), "{id} is not in {shown}");
    }
    assert_whole(&repo, &[&dir]);
}

/// git in a worktree of the fork moves a HEAD that is not the fork's.
#[test]
fn what_a_worktree_of_a_fork_commits_is_taken_over_and_kept() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let beside = repo.root().join("beside");
    let beside_word = beside.to_str().unwrap();
    repo.git_in(&dir, &["worktree", "add", "-q", "-d", beside_word]);
    repo.sh_in(&beside, "echo b > b; git add b; git commit -qm beside");
    let commit = repo.git_in(&beside, &["rev-parse", "HEAD"]);
    await_taken(
        &repo,
        "refs/tine/demo/git/pseudo/worktrees/beside/HEAD",
        &commit,
    );
    for verb in [
        &["delete", "demo"][..],
        &["convert", "demo", "--git", "linked"],
    ] {
        let refused = tine.fails(3, verb);
        assert!(refused.contains(beside_word), "{refused}");
        assert!(refused.contains("worktree remove"), "{refused}");
    }
    tine.ok(&["delete", "demo", "--force"]);
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    tine.ok(&["recover", "1", "again", "--snapshot", "superseded-1"]);
    repo.git(&["cat-file", "-e", &commit]);
    // One that is gone holds nothing up.
    let dir = new_own(&tine, "other");
    repo.git_in(&dir, &["worktree", "add", "-q", "-d", "within"]);
    let refused = tine.fails(3, &["delete", "other"]);
    assert!(refused.contains("within"), "{refused}");
    repo.git_in(&dir, &["worktree", "remove", "within"]);
    tine.ok(&["delete", "other"]);
}

/// The main repository takes no commit that `git fsck --strict` complains about.
#[test]
fn a_head_that_is_in_the_fork_alone_is_not_lost() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "echo one > one; git add one; git commit -qm one
         bad=$(git cat-file commit HEAD | sed 's/^\\(author .*> \\)[0-9]*/\\199999999999999999999/' |
             git hash-object -t commit -w --stdin --literally)
         git update-ref HEAD $bad",
    );
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    wait_until("the main repository refuses it", DEFAULT_LIMIT, || {
        let forks = tine.json(&["list"])["forks"].to_string();
        forks.contains("the main repository refuses it")
    });
    let refused = !repo
        .try_git_in(repo.dir(), &["cat-file", "-e", &head])
        .status
        .success();
    assert!(refused, "the main repository has it");
    for verb in [
        &["status", "demo"][..],
        &["commit", "demo", "-m", "on"],
        &["delete", "demo"],
    ] {
        let refused = tine.fails(3, verb);
        assert!(refused.contains("in the fork alone"), "{refused}");
    }
    for _ in 0..2 {
        let checked = tine.run(&["check", "--repair", "--json"]);
        assert!(
            !checked.text().contains("head-damaged"),
            "{}",
            checked.text()
        );
        assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), head);
        tine.ok(&["daemon", "stop"]);
        tine.ok(&["mount", "demo"]);
    }
}

/// A `git gc --prune=now` removes what no ref names, so nothing is taken over meanwhile.
#[test]
fn a_command_says_that_a_collection_holds_up_the_newest_commits() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    let mut collector = Command::new("sh")
        .args(["-c", "read -r _", "gc", "--prune=now"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pid_file = repo.common_dir().join("gc.pid");
    fs::write(&pid_file, format!("{} here", collector.id())).unwrap();
    repo.sh_in(&dir, "echo one > one; git add one; git commit -qm one");
    let refused = tine.fails(3, &["status", "demo"]);
    assert!(refused.contains("`git gc`"), "{refused}");
    let listed = tine.run(&["list"]);
    let listed = listed.text() + &listed.error_text();
    assert!(
        listed.contains("until a `git gc` in the main repository has ended"),
        "{listed}"
    );
    drop(collector.stdin.take());
    collector.wait().unwrap();
    fs::remove_file(&pid_file).unwrap();
    tine.ok(&["status", "demo"]);
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    assert_eq!(repo.git(&["rev-parse", "tine/demo"]), head);
    let listed = tine.run(&["list"]).error_text();
    assert!(!listed.contains("git gc"), "{listed}");
}
