//! `tine branch switch`, beside `git switch` in a copy of the repository.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::branches::{repo_with_branches, text};
use super::merging::{each, everything, merge_refused};
use crate::refused;
use crate::support::{OutputExt, TestRepo, Tine, assert_agreement, repo::path_text, require_fuse};

/// That the fork is what git's checkout is: branch, index, files, and what is uncommitted.
#[track_caller]
fn same(repo: &TestRepo, tine: &Tine, plain: &Path, fork: &str, what: &str) {
    for args in [
        &["symbolic-ref", "HEAD"][..],
        &["rev-parse", "HEAD"],
        &["ls-files", "-s"],
    ] {
        assert_eq!(
            repo.git_of_fork(fork, args),
            repo.git_in(plain, args),
            "{what}: git {args:?}"
        );
    }
    let was_mounted = tine.json(&["path", fork])["mounted"] == true;
    if !was_mounted {
        tine.ok(&["mount", fork]);
    }
    let dir = PathBuf::from(tine.ok(&["path", fork]));
    assert_eq!(repo.status(&dir), repo.status(plain), "{what}");
    repo.assert_same_trees(plain, &dir);
    if !was_mounted {
        tine.ok(&["unmount", fork]);
    }
}

/// What HEAD's reflog says, the newest first.
fn reflog(repo: &TestRepo, dir: &Path, count: usize) -> String {
    repo.git_in(
        dir,
        &["reflog", "-n", &count.to_string(), "--format=%H %gs"],
    )
}

#[test]
fn a_switch_is_what_git_makes_of_it() {
    require_fuse!();
    // What is uncommitted, and whether git lets it pass to `topic`, and to `alone`.
    let cases: [(&str, bool, bool); 9] = [
        ("true", true, true),
        (
            "echo beside > beside.txt; mkdir -p a; echo own > a/own",
            true,
            true,
        ),
        (
            "echo more >> data/notes; git add data/notes; echo unstaged >> data/notes",
            true,
            true,
        ),
        ("echo changed >> src/main.rs", true, false),
        ("rm src/main.rs; git rm -q --cached src/main.rs", true, true),
        ("echo mine >> README.md", false, false),
        ("echo mine > new.txt", false, true),
        ("echo mine >> src/deep/er/still/leaf.txt", false, false),
        ("mkdir -p a; echo file > a/b", false, true),
    ];
    for (number, (script, to_topic, to_alone)) in cases.into_iter().enumerate() {
        let (repo, plain) = repo_with_branches();
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("demo");
        for place in [&dir, &plain] {
            repo.sh_in(place, script);
        }
        for (branch, passes) in [("topic", to_topic), ("alone", to_alone)] {
            let what = format!("{script} to {branch}");
            let is_mounted = number % 2 == 0;
            if !is_mounted {
                tine.run(&["unmount", "demo"]);
            }
            let by_git = repo.try_git_in(&plain, &["switch", "-q", branch]);
            assert_eq!(
                by_git.status.success(),
                passes,
                "{what}: {}",
                by_git.error_text()
            );
            let args = ["branch", "switch", "demo", branch];
            if !passes {
                merge_refused(&repo, &tine, &args, "local-changes", 3);
                same(&repo, &tine, &plain, "demo", &what);
                continue;
            }
            let before = tine.json(&["diff", "demo"])["head_tree"].clone();
            let switched = tine.json(&args);
            assert_eq!(switched["branch"], branch);
            assert_eq!(switched["created"], false);
            let after = tine.json(&["diff", "demo"])["head_tree"].clone();
            let names = repo.git(&[
                "diff-tree",
                "-r",
                "--name-only",
                text(&before),
                text(&after),
            ]);
            assert_eq!(
                each(&switched["changes"], "path"),
                names.lines().collect::<Vec<_>>(),
                "{what}"
            );
            same(&repo, &tine, &plain, "demo", &what);
            assert_eq!(
                repo.git_of_fork("demo", &["reflog", "-n1", "--format=%H %gs"]),
                reflog(&repo, &plain, 1),
                "{what}"
            );
            // And back, where git goes back the same way.
            let args = ["branch", "switch", "demo", "-"];
            repo.git_in(&plain, &["switch", "-q", "-"]);
            tine.ok(&args);
            same(&repo, &tine, &plain, "demo", &what);
        }
    }
}

#[test]
fn a_switch_in_a_mount_is_live_and_leaves_other_files_alone() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let stat = |path: &str| {
        let meta = std::fs::symlink_metadata(dir.join(path)).expect("it is there");
        (
            meta.ino(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        )
    };
    let open = std::fs::File::open(dir.join("README.md")).expect("it can be read");
    let before: Vec<_> = ["src/main.rs", "data/large.bin"].map(stat).into();
    let changed = stat("README.md");
    assert_eq!(
        tine.ok(&["branch", "switch", "demo", "topic"]),
        "demo is on the branch topic now, 11 paths changed; `tine undo demo` takes that back, what it was is the snapshot before-switch-1"
    );
    assert_eq!(["src/main.rs", "data/large.bin"].map(stat).to_vec(), before);
    assert_ne!(stat("README.md"), changed);
    assert_eq!(
        std::fs::read(dir.join("README.md")).expect("it is there"),
        b"topic\n"
    );
    drop(open);
    assert_agreement(&repo, &tine, "demo", "");
    repo.sh_in(
        &dir,
        "git diff-files --quiet; git diff-index --quiet --cached HEAD; test -z \"$(git status --porcelain)\"
         test \"$(git branch --show-current)\" = topic",
    );
    // There already.
    let before = everything(&repo, &tine);
    let again = tine.json(&["branch", "switch", "demo", "topic"]);
    assert_eq!(
        (&again["snapshot"], &again["changes"]),
        (&Value::Null, &json!([]))
    );
    assert_eq!(everything(&repo, &tine), before);
    // What is committed from here on is the branch's.
    repo.sh_in(&dir, "echo on > on.txt");
    tine.ok(&["commit", "demo", "-m", "on"]);
    assert_eq!(
        repo.git_in(&dir, &["log", "-1", "--format=%s", "topic"]),
        "on"
    );
    assert_eq!(tine.json(&["list"])["forks"][0]["branch"], "topic");
    assert_eq!(
        tine.json(&["log", "demo"])["commits"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
}

#[test]
fn a_switch_makes_branches_and_merges_what_is_in_the_way() {
    require_fuse!();
    let (repo, plain) = repo_with_branches();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    for place in [&dir, &plain] {
        repo.sh_in(place, "echo work > work.txt; git add work.txt; echo 0 > docs/first; sed -i 1s/^/zero\\\\n/ docs/guide.md");
    }
    repo.git_in(&plain, &["switch", "-qc", "next"]);
    let created = tine.json(&["branch", "switch", "demo", "next", "--create"]);
    assert_eq!(
        (&created["created"], &created["changes"]),
        (&json!(true), &json!([]))
    );
    same(&repo, &tine, &plain, "demo", "a branch at HEAD");
    assert_eq!(
        repo.git_in(&dir, &["reflog", "next", "--format=%H %gs"]),
        repo.git_in(&plain, &["reflog", "next", "--format=%H %gs"])
    );
    // The text of one branch and of the view, in other lines.
    for place in [repo.dir(), &plain] {
        let script = "git worktree add -q ../w-$(basename $PWD) main --detach; cd ../w-$(basename $PWD)
            git switch -qc lines; echo four >> docs/guide.md; git commit -qam lines; git switch -q --detach";
        repo.sh_in(place, script);
    }
    let lines = repo.git(&["rev-parse", "lines"]);
    repo.git_in(&plain, &["fetch", "-q", "../repo", "lines"]);
    repo.git_in(&plain, &["branch", "-qf", "lines", "FETCH_HEAD"]);
    merge_refused(
        &repo,
        &tine,
        &["branch", "switch", "demo", "lines"],
        "local-changes",
        3,
    );
    // What is staged by itself would be lost.
    assert!(
        !repo
            .try_git_in(&plain, &["switch", "-qm", "lines"])
            .status
            .success()
    );
    let args = ["branch", "switch", "demo", "lines", "--merge"];
    let failure = merge_refused(&repo, &tine, &args, "local-changes", 3);
    assert!(text(&failure["message"]).contains("work.txt"), "{failure}");
    for place in [&dir, &plain] {
        repo.sh_in(place, "git reset -q");
    }
    repo.git_in(&plain, &["switch", "-qm", "lines"]);
    let merged = tine.json(&["branch", "switch", "demo", "lines", "--merge"]);
    assert_eq!(
        (&merged["merged"], &merged["commit"]),
        (&json!(true), &json!(lines))
    );
    repo.assert_same_trees(&plain, &dir);
    assert_eq!(
        std::fs::read_to_string(dir.join("docs/guide.md")).expect("a text"),
        "zero\none\ntwo\nthree\nfour\n"
    );
    repo.sh_in(
        &dir,
        "git diff --quiet -- README.md; test -n \"$(git diff -- docs/guide.md)\"",
    );
    // Taken back, as it was.
    tine.ok(&["undo", "demo"]);
    assert_eq!(
        std::fs::read_to_string(dir.join("docs/guide.md")).expect("a text"),
        "zero\none\ntwo\nthree\n"
    );
    assert_eq!(repo.git_in(&dir, &["branch", "--show-current"]), "next");
    // The same line is nobody's to decide.
    repo.sh_in(&dir, "echo mine >> README.md");
    let failure = merge_refused(
        &repo,
        &tine,
        &["branch", "switch", "demo", "topic", "--merge"],
        "local-changes",
        3,
    );
    assert!(text(&failure["message"]).contains("README.md"), "{failure}");
    // At another point, with what is uncommitted there.
    tine.ok(&["new", "other", "--no-mount"]);
    let mut write = tine.command(&["write", "--fork", "other", "x"]);
    crate::support::run_with_timeout_of(&mut write, crate::support::command::DEFAULT_LIMIT, b"x")
        .expect_success("write");
    repo.sh_in(&dir, "git checkout -q README.md");
    let created = tine.json(&[
        "branch",
        "switch",
        "demo",
        "from-other",
        "--create",
        "--at",
        "other",
    ]);
    assert_eq!(created["uncommitted"], true);
    assert_eq!(created["commit"], repo.git(&["rev-parse", "tine/other"]));
    for (args, code, exit) in [
        (
            &["branch", "switch", "demo", "topic", "--create"][..],
            "branch-exists",
            5,
        ),
        (
            &["branch", "switch", "demo", "topic/x", "--create"],
            "branch-exists",
            5,
        ),
        (
            &["branch", "switch", "demo", "a..b", "--create"],
            "invalid-branch",
            2,
        ),
        (
            &["branch", "switch", "demo", "nowhere"],
            "no-such-branch",
            4,
        ),
        (
            &[
                "branch",
                "switch",
                "demo",
                "x",
                "--create",
                "--at",
                "main^{tree}",
            ],
            "unknown-revision",
            4,
        ),
        (
            &[
                "branch", "switch", "demo", "x", "--create", "--at", "nothing",
            ],
            "no-such-point",
            4,
        ),
        (
            &["branch", "switch", "demo", "x", "--at", "main"],
            "usage",
            2,
        ),
        (&["branch", "switch", "nobody", "topic"], "no-such-fork", 4),
    ] {
        merge_refused(&repo, &tine, args, code, exit);
    }
    // A branch that the fork removed is gone for it alone.
    let topic = repo.git(&["rev-parse", "topic"]);
    repo.git_in(&dir, &["branch", "-q", "-D", "topic"]);
    tine.ok(&["branch", "switch", "demo", "topic", "--create"]);
    assert_eq!(repo.git(&["rev-parse", "topic"]), topic);
}

#[test]
fn a_switch_is_refused_where_the_branch_is_taken_or_git_is_at_work() {
    require_fuse!();
    for kind in ["own", "linked"] {
        a_switch_is_refused(kind);
    }
}

fn a_switch_is_refused(kind: &str) {
    let (repo, _) = repo_with_branches();
    repo.git(&["config", "tine.git", kind]);
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    tine.ok(&["new", "other", "--no-mount"]);
    let worktree = repo.git_checkout_of("alone", "worktree");
    repo.git_in(&worktree, &["switch", "-q", "alone"]);
    for (branch, who) in [
        ("tine/other", "in the fork other"),
        ("main", "in the main checkout"),
        ("alone", "in the worktree at"),
    ] {
        let args = ["branch", "switch", "demo", branch];
        if kind == "own" {
            // It has them all to itself.
            let tip = repo.git(&["rev-parse", branch]);
            tine.ok(&args);
            repo.sh_in(&dir, "echo own > own; git add own; git commit -qm own");
            tine.ok(&["branch", "switch", "demo", "tine/demo"]);
            assert_eq!(repo.git(&["rev-parse", branch]), tip);
            continue;
        }
        let failure = merge_refused(&repo, &tine, &args, "branch-checked-out", 5);
        assert!(text(&failure["message"]).contains(who), "{failure}");
    }
    // An ignored file is nobody's to overwrite.
    repo.sh_in(
        repo.dir(),
        "git switch -q topic; echo x > x.log; git add -f x.log; git commit -qm log; git switch -q main",
    );
    repo.sh_in(&dir, "echo own > x.log");
    merge_refused(
        &repo,
        &tine,
        &["branch", "switch", "demo", "topic"],
        "in-the-way",
        3,
    );
    repo.sh_in(&dir, "rm x.log; git merge -q --no-ff --no-commit topic");
    tine.ok(&["status", "demo"]);
    merge_refused(
        &repo,
        &tine,
        &["branch", "switch", "demo", "topic"],
        "operation-in-progress",
        3,
    );
    repo.sh_in(&dir, "git merge --abort");
    tine.ok(&["branch", "switch", "demo", "topic"]);
    assert_agreement(&repo, &tine, "demo", "");
}

#[test]
fn a_switch_is_taken_back_and_done_again() {
    require_fuse!();
    for kind in ["own", "linked"] {
        a_switch_is_taken_back(kind);
    }
}

fn a_switch_is_taken_back(kind: &str) {
    let (repo, _) = repo_with_branches();
    repo.git(&["config", "tine.git", kind]);
    let tine = Tine::new(&repo);
    for fork in ["mounted", "not"] {
        let dir = tine.new_fork(fork);
        repo.sh_in(&dir, "echo beside > beside.txt");
        if fork == "not" {
            tine.ok(&["unmount", fork]);
        }
        let stands = || {
            [
                repo.git_of_fork(fork, &["symbolic-ref", "HEAD"]),
                repo.git_of_fork(fork, &["ls-files", "-s"]),
                tine.json(&["diff", fork])["view_tree"].to_string(),
            ]
        };
        let before = stands();
        let tips = repo.git(&["for-each-ref", "refs/heads"]);
        tine.ok(&["branch", "switch", fork, "topic"]);
        let after = stands();
        tine.kill_daemon();
        tine.ok(&["undo", fork]);
        assert_eq!(stands(), before);
        assert_agreement(&repo, &tine, fork, "A\tbeside.txt");
        tine.ok(&["redo", fork]);
        assert_eq!(stands(), after);
        assert_agreement(&repo, &tine, fork, "A\tbeside.txt");
        assert_eq!(
            repo.git(&["for-each-ref", "refs/heads"]),
            tips,
            "no branch moved"
        );
        let operations = tine.json(&["op", "log", fork]);
        assert_eq!(
            each(&operations["operations"], "kind"),
            ["redo", "undo", "switch"]
        );
        assert_eq!(
            each(&tine.json(&["snapshots", fork])["snapshots"], "name"),
            ["before-switch-1"]
        );

        // The branch that it was on has moved on, is somebody else's, or is gone.
        let own = format!("tine/{fork}");
        let tip = repo.git(&["rev-parse", &own]);
        let alone = repo.git(&["rev-parse", "alone"]);
        let git = |args: &[&str]| {
            repo.git_of_fork(fork, args);
            tine.ok(&["status", fork]);
        };
        git(&["branch", "-qf", &own, &alone]);
        merge_refused(&repo, &tine, &["undo", fork], "cannot-undo", 3);
        git(&["branch", "-qf", &own, &tip]);
        if kind == "linked" {
            let taken = repo.git_checkout_of(&own, &format!("taken-{fork}"));
            repo.git_in(&taken, &["switch", "-q", &own]);
            merge_refused(&repo, &tine, &["undo", fork], "branch-checked-out", 5);
            repo.git(&["worktree", "remove", path_text(&taken)]);
        }
        git(&["branch", "-qD", &own]);
        let failure = merge_refused(&repo, &tine, &["undo", fork], "cannot-undo", 3);
        assert!(
            text(&failure["hint"]).contains(&format!("git branch {own} {tip}")),
            "{failure}"
        );
        git(&["branch", &own, &tip]);
        // And so has HEAD.
        tine.ok(&["branch", "switch", fork, "away", "--create"]);
        tine.ok(&["undo", fork]);
        assert_eq!(stands(), after);
        tine.ok(&["undo", fork]);
        assert_eq!(stands(), before);
        git(&["branch", "-D", "away"]);
    }
}

#[test]
fn a_switch_that_git_keeps_from_ending_leaves_nothing_and_undo_does_not_do_it() {
    require_fuse!();
    for kind in ["own", "linked"] {
        a_switch_that_git_keeps_from_ending(kind);
    }
}

fn a_switch_that_git_keeps_from_ending(kind: &str) {
    let (repo, _) = repo_with_branches();
    repo.git(&["config", "tine.git", kind]);
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo beside > beside.txt");
    // A directory where the new branch's lock is to be: only the last step fails.
    let refs = match kind {
        "own" => repo.git_dir_of_fork("demo"),
        _ => repo.common_dir(),
    };
    let lock = refs.join("refs/heads/next.lock");
    std::fs::create_dir_all(lock.join("x")).expect("it can be made");
    let failed = tine.run(&[
        "branch", "switch", "demo", "next", "--create", "--at", "topic",
    ]);
    assert!(!failed.status.success(), "{}", failed.text());
    assert_agreement(&repo, &tine, "demo", "A\tbeside.txt");
    assert_eq!(tine.json(&["snapshots", "demo"])["snapshots"], json!([]));
    std::fs::remove_dir_all(&lock).expect("it is there");
    assert_eq!(repo.git_in(&dir, &["branch", "--list", "next"]), "");
    refused(&repo, &tine, &["undo", "demo"], "nothing-to-undo", 3);
    tine.ok(&[
        "branch", "switch", "demo", "next", "--create", "--at", "topic",
    ]);
    assert_agreement(&repo, &tine, "demo", "A\tbeside.txt");
}

#[test]
fn a_detached_head_goes_to_a_branch_and_comes_back() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.git_in(&dir, &["switch", "-q", "--detach"]);
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    let switched = tine.json(&["branch", "switch", "demo", "topic"]);
    assert_eq!(
        (&switched["from_branch"], &switched["from_commit"]),
        (&Value::Null, &json!(head))
    );
    assert_eq!(
        reflog(&repo, &dir, 1),
        format!(
            "{} checkout: moving from {head} to topic",
            repo.git(&["rev-parse", "topic"])
        )
    );
    tine.ok(&["undo", "demo"]);
    assert_eq!(repo.git_in(&dir, &["branch", "--show-current"]), "");
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), head);
    assert_agreement(&repo, &tine, "demo", "");
}

#[test]
fn a_fork_that_is_deleted_says_where_it_stood() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        says_where_it_stood(&repo);
    }
}

fn says_where_it_stood(repo: &TestRepo) {
    let tine = Tine::new(repo);
    for (name, has_own) in [("a", false), ("b", true)] {
        let dir = tine.new_fork(name);
        let is_linked = dir.join(".git").is_file();
        if has_own {
            repo.sh_in(&dir, "echo own > own; git add own; git commit -qm own");
        }
        repo.sh_in(
            &dir,
            &format!("git switch -qc 'on-$-{name}.1'; echo more > more; git add more; git commit -qm more"),
        );
        let branch = format!("on-$-{name}.1");
        let told = tine.ok(&["delete", name]);
        let goes_on = format!("`tine new {name} --branch '{branch}'`");
        assert_eq!(told.contains(&goes_on), is_linked, "{told}");
        assert_eq!(
            told.contains(&format!("its first branch tine/{name},")),
            !has_own,
            "{told}"
        );
        if is_linked {
            tine.ok(&["new", name, "--branch", &branch]);
            assert_eq!(
                repo.git_of_fork(name, &["branch", "--show-current"]),
                branch
            );
        } else {
            // The branch was the fork's alone, and its commit is kept.
            assert!(told.contains("1 commit kept that no branch has"), "{told}");
            let list = tine.json(&["recover"]);
            let id = list["entries"][0]["id"].to_string();
            let entry = tine.json(&["recover", "show", &id]);
            let snapshot = entry["snapshots"][0]["name"].as_str().unwrap();
            tine.ok(&["recover", &id, name, "--snapshot", snapshot]);
        }
        assert!(dir.join("more").exists(), "{name}");
    }
    // On its own branch it says what it did.
    tine.ok(&["new", "c"]);
    assert_eq!(
        tine.ok(&["delete", "c"]),
        "deleted c, and its branch, which had no commit of its own"
    );
}

#[test]
fn the_branch_before_is_none_where_there_was_none() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    tine.new_fork("work");
    let output = tine.fails(4, &["branch", "switch", "work", "-"]);
    assert!(
        output.contains("work was on no other branch before"),
        "{output}"
    );
    assert!(output.contains("tine branch list"), "{output}");
}

/// A fork `work` of this kind with a secret in its history, which is then rewritten in the main
/// repository; its mount, and the rewritten tip.
fn rewritten(repo: &TestRepo, tine: &Tine, kind: &str) -> (PathBuf, String) {
    let dir = PathBuf::from(tine.ok(&["new", "work", "--git", kind]));
    repo.sh_in(
        &dir,
        "echo secret > key; git add key; git commit -qm key; echo on > on; git add on; git commit -qm on",
    );
    repo.sh_in(&dir, "echo mine > mine");
    tine.ok(&["status", "work"]);
    // As `git filter-branch` and `git filter-repo` do, outside of the fork.
    repo.sh_in(
        repo.dir(),
        "FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch --index-filter 'git rm -q --cached --ignore-unmatch key' main..tine/work",
    );
    (dir, repo.git(&["rev-parse", "tine/work"]))
}

/// That the fork `work` is on with the rewritten history, and the commit `mine`.
fn is_on_rewritten(repo: &TestRepo, dir: &Path, rewritten: &str) {
    assert!(!dir.join("key").exists());
    assert_eq!(
        repo.git(&["log", "--format=%s", "tine/work", "--", "key"]),
        ""
    );
    assert_eq!(repo.git(&["rev-parse", "tine/work^"]), rewritten);
    assert_eq!(repo.git(&["log", "-1", "--format=%s", "tine/work"]), "mine");
}

#[test]
fn a_fork_whose_history_was_rewritten_goes_on_without_the_old_one() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let (dir, rewritten) = rewritten(&repo, &tine, "linked");
    let refused = tine.fails(3, &["commit", "work", "-m", "on"]);
    assert!(
        refused.contains("goes on with the rewritten history"),
        "{refused}"
    );
    assert_eq!(repo.git(&["rev-parse", "tine/work"]), rewritten);
    // As the hint says.
    tine.ok(&["branch", "switch", "work", "tine/work-2", "--create"]);
    tine.ok(&["branch", "switch", "work", "tine/work"]);
    assert_eq!(repo.status(&dir), "?? mine");
    tine.ok(&["commit", "work", "-m", "mine"]);
    is_on_rewritten(&repo, &dir, &rewritten);
}

#[test]
fn a_repository_of_its_own_keeps_the_old_history_until_it_is_rebased() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let (dir, rewritten) = rewritten(&repo, &tine, "own");
    tine.ok(&["commit", "work", "-m", "mine"]);
    assert_eq!(repo.git(&["rev-parse", "tine/work"]), rewritten);
    follow_note(&repo, &tine, &dir, "git rebase --onto");
    assert_eq!(tine.json(&["list"])["forks"][0]["note"], Value::Null);
    is_on_rewritten(&repo, &dir, &rewritten);
}

#[test]
fn a_branch_that_others_moved_follows_again_as_the_note_says() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let commit = |name: &str| {
        repo.sh_in(&dir, &format!("echo {name} > {name}; git add {name}"));
        tine.ok(&["commit", "work", "-m", name]);
    };
    let tips = || {
        tine.ok(&["status", "work"]);
        [
            repo.git(&["rev-parse", "tine/work"]),
            repo.git_in(&dir, &["rev-parse", "HEAD"]),
        ]
    };
    commit("one");
    // Back.
    repo.git(&["branch", "-qf", "tine/work", "tine/work~"]);
    commit("two");
    let [there, here] = tips();
    assert_ne!(there, here);
    follow_note(&repo, &tine, repo.dir(), "git branch -f");
    let [there, now] = tips();
    assert_eq!((&there, &now), (&here, &here));
    // On.
    let on = repo.git(&["commit-tree", "-m", "on", "-p", "tine/work", "main^{tree}"]);
    repo.git(&["branch", "-qf", "tine/work", &on]);
    commit("three");
    follow_note(&repo, &tine, &dir, "git merge");
    let [there, here] = tips();
    assert_eq!(there, here);
    commit("four");
    let [there, here] = tips();
    assert_eq!(there, here);
}

/// Runs the first command of the only fork's note in `dir`, which begins with `begin`.
fn follow_note(repo: &TestRepo, tine: &Tine, dir: &Path, begin: &str) {
    let listed = tine.json(&["list"]);
    let note = text(&listed["forks"][0]["note"]);
    let command = note.split('`').nth(1).expect("it has a command");
    assert!(command.starts_with(begin), "{note}");
    repo.sh_in(dir, command);
    tine.ok(&["status", "work"]);
}

#[test]
fn a_worktree_whose_directory_is_gone_is_told_from_one_that_is_there() {
    require_fuse!();
    for kind in ["own", "linked"] {
        let repo = TestRepo::new().without_maintenance();
        repo.git(&["config", "tine.git", kind]);
        let tine = Tine::new(&repo);
        tine.new_fork("work");
        repo.git(&["worktree", "add", "-q", "-b", "held", "../linked"]);
        std::fs::remove_dir_all(repo.root().join("linked")).unwrap();
        let commands: [&[&str]; 3] = [
            &["branch", "delete", "held"],
            &["branch", "switch", "work", "held"],
            &["new", "other", "--branch", "held"],
        ];
        // A repository of its own takes a branch from nobody.
        let count = if kind == "own" { 1 } else { 3 };
        for args in &commands[..count] {
            let refused = tine.fails(5, args);
            assert!(
                refused.contains("git worktree prune"),
                "{args:?}: {refused}"
            );
        }
        repo.git(&["worktree", "prune"]);
        tine.ok(commands[1]);
    }
}
