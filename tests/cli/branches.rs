//! `tine branch`: beside git's own `branch` and `switch`, in mounts and without.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::merging::{each, everything, merge_refused};
use crate::refused;
use crate::support::{OutputExt, TestRepo, Tine, assert_agreement, repo::path_text, require_fuse};

/// A repository with the branches `topic` (files of all kinds that come, go and change) and `alone` (without a common history), and
/// a copy of it, in which git does the same.
fn repo_with_branches() -> (TestRepo, PathBuf) {
    let repo = TestRepo::new().without_maintenance();
    repo.sh_in(
        repo.dir(),
        "git switch -qc topic
         echo topic > README.md; echo new > new.txt; mkdir -p a/b; echo deep > a/b/deep
         chmod -x run.sh; chmod +x docs/guide.md; ln -sfn docs link
         rm -rf src/deep; echo file > src/deep; rm dangling; mkdir dangling; echo dir > dangling/file; rm docs/empty
         git add -A; git commit -qm topic
         git switch -q --orphan alone; echo alone > alone.txt; echo other > README.md; git add -A; git commit -qm alone
         git switch -q main",
    );
    let plain = repo.root().join("plain");
    repo.sh_in(
        repo.root(),
        "cp -a repo plain; cd plain; git switch -qc tine/demo",
    );
    (repo, plain)
}

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
    repo.git_in(dir, &["reflog", "-n", &count.to_string(), "--format=%H %gs"])
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
            assert_eq!(by_git.status.success(), passes, "{what}: {}", by_git.error_text());
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
            let names = repo.git(&["diff-tree", "-r", "--name-only", text(&before), text(&after)]);
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

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
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
        "demo is on the branch topic now, 11 paths changed; what it was is the snapshot before-switch-1"
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
    assert_eq!(repo.git(&["log", "-1", "--format=%s", "topic"]), "on");
    assert_eq!(tine.json(&["list"])["forks"][0]["branch"], "topic");
    assert_eq!(
        tine.json(&["log", "demo"])["commits"].as_array().map(Vec::len),
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
        repo.git(&["reflog", "next", "--format=%H %gs"]),
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
    let mut write = tine.command(&["write", "other", "x"]);
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
        (&["branch", "switch", "demo", "nowhere"], "no-such-branch", 4),
        (
            &["branch", "switch", "demo", "x", "--create", "--at", "main^{tree}"],
            "unknown-revision",
            4,
        ),
        (
            &["branch", "switch", "demo", "x", "--create", "--at", "nothing"],
            "no-such-point",
            4,
        ),
        (&["branch", "switch", "demo", "x", "--at", "main"], "usage", 2),
        (&["branch", "switch", "nobody", "topic"], "no-such-fork", 4),
    ] {
        merge_refused(&repo, &tine, args, code, exit);
    }
}

#[test]
fn a_switch_is_refused_where_the_branch_is_taken_or_git_is_at_work() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
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
    let (repo, _) = repo_with_branches();
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
        assert_eq!(repo.git(&["for-each-ref", "refs/heads"]), tips, "no branch moved");
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
        repo.git(&["branch", "-qf", &own, "alone"]);
        merge_refused(&repo, &tine, &["undo", fork], "cannot-undo", 3);
        repo.git(&["branch", "-qf", &own, &tip]);
        let taken = repo.git_checkout_of(&own, &format!("taken-{fork}"));
        repo.git_in(&taken, &["switch", "-q", &own]);
        merge_refused(&repo, &tine, &["undo", fork], "branch-checked-out", 5);
        repo.git(&["worktree", "remove", path_text(&taken)]);
        repo.git(&["branch", "-qD", &own]);
        let failure = merge_refused(&repo, &tine, &["undo", fork], "cannot-undo", 3);
        assert!(
            text(&failure["hint"]).contains(&format!("git branch {own} {tip}")),
            "{failure}"
        );
        repo.git(&["branch", &own, &tip]);
        // And so has HEAD.
        tine.ok(&["branch", "switch", fork, "away", "--create"]);
        tine.ok(&["undo", fork]);
        assert_eq!(stands(), after);
        tine.ok(&["undo", fork]);
        assert_eq!(stands(), before);
        repo.git(&["branch", "-D", "away"]);
    }
}

#[test]
fn a_switch_that_git_keeps_from_ending_leaves_nothing_and_undo_does_not_do_it() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo beside > beside.txt");
    // A directory where the new branch's lock is to be: only the last step fails.
    let lock = repo.common_dir().join("refs/heads/next.lock");
    std::fs::create_dir_all(lock.join("x")).expect("it can be made");
    let failed = tine.run(&["branch", "switch", "demo", "next", "--create", "--at", "topic"]);
    assert!(!failed.status.success(), "{}", failed.text());
    assert_agreement(&repo, &tine, "demo", "A\tbeside.txt");
    assert_eq!(tine.json(&["snapshots", "demo"])["snapshots"], json!([]));
    std::fs::remove_dir_all(&lock).expect("it is there");
    assert_eq!(repo.git(&["branch", "--list", "next"]), "");
    refused(&repo, &tine, &["undo", "demo"], "nothing-to-undo", 3);
    tine.ok(&["branch", "switch", "demo", "next", "--create", "--at", "topic"]);
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
fn a_branch_is_made_at_every_kind_of_point() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let base = repo.head();
    repo.sh_in(
        &dir,
        "echo x > x; git add x; git commit -qm own; echo more > more",
    );
    let own = repo.git(&["rev-parse", "tine/demo"]);
    tine.ok(&["snapshot", "demo", "dirty"]);
    let topic = repo.git(&["rev-parse", "topic"]);
    for (number, (args, commit, uncommitted)) in [
        (&[][..], &base, false),
        (&["--fork", "demo"], &own, true),
        (&["--at", "demo"], &own, true),
        (&["--at", "demo@dirty"], &own, true),
        (&["--fork", "demo", "--at", "dirty"], &own, true),
        (&["--fork", "demo", "--at", "HEAD"], &own, false),
        (&["--fork", "demo", "--at", "HEAD~"], &base, false),
        (&["--fork", "demo", "--at", "pristine"], &base, false),
        (&["--at", "topic"], &topic, false),
        (&["--at", &topic[..12]], &topic, false),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("at/{number}");
        let words = [&["branch", "create", &name], args].concat();
        let created = tine.json(&words);
        assert_eq!(created["commit"], **commit, "{words:?}: {created}");
        assert_eq!(created["uncommitted"], uncommitted, "{words:?}: {created}");
        assert_eq!(repo.git(&["rev-parse", &name]), **commit, "{words:?}");
    }
    let here = tine
        .run_in(&dir, &["branch", "create", "here"])
        .expect_success("create");
    assert_eq!(here.text(), format!("created here at {}", &own[..7]));
    assert!(here.error_text().contains("uncommitted"), "{}", here.error_text());
    for (args, code, exit) in [
        (&["branch", "create", "topic"][..], "branch-exists", 5),
        (&["branch", "create", "at"], "branch-exists", 5),
        (&["branch", "create", "topic/x"], "branch-exists", 5),
        (&["branch", "create", "a..b"], "invalid-branch", 2),
        (&["branch", "create", "HEAD"], "invalid-branch", 2),
        (&["branch", "create", "x", "--at", "nothing"], "no-such-point", 4),
        (
            &["branch", "create", "x", "--at", "main^{tree}"],
            "unknown-revision",
            4,
        ),
        (&["branch", "create", "x", "--fork", "nobody"], "no-such-fork", 4),
    ] {
        let failure = refused(&repo, &tine, args, code, exit);
        if args[2] == "topic" {
            assert!(
                text(&failure["hint"]).contains("git branch -f topic"),
                "{failure}"
            );
        }
    }
    // What begins at a remote branch follows it, as git has it.
    repo.sh_in(repo.dir(), "git remote add origin ../plain; git fetch -q origin");
    tine.ok(&["branch", "create", "by-tine", "--at", "origin/topic"]);
    repo.git(&["branch", "-q", "by-git", "origin/topic"]);
    tine.ok(&[
        "branch",
        "switch",
        "demo",
        "switched",
        "--create",
        "--at",
        "origin/main",
    ]);
    let upstream = |branch: &str| repo.git(&["rev-parse", "--abbrev-ref", &format!("{branch}@{{u}}")]);
    assert_eq!(upstream("by-tine"), upstream("by-git"));
    assert_eq!(upstream("switched"), "origin/main");
    assert_eq!(
        repo.git(&["reflog", "by-tine", "--format=%gs"]),
        repo.git(&["reflog", "by-git", "--format=%gs"])
    );
}

#[test]
fn deleting_a_branch_loses_nothing_unasked_and_nothing_for_good() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    let worktree = repo.git_checkout_of("main", "worktree");
    repo.sh_in(&worktree, "git switch -qc held");
    for (branch, who) in [
        ("tine/demo", "in the fork demo"),
        ("main", "in the main checkout"),
        ("held", "in the worktree at"),
    ] {
        for args in [
            &["branch", "delete", branch][..],
            &["branch", "delete", branch, "--force"],
        ] {
            let failure = refused(&repo, &tine, args, "branch-checked-out", 5);
            assert!(text(&failure["message"]).contains(who), "{failure}");
        }
    }
    let (topic, alone) = (
        repo.git(&["rev-parse", "topic"]),
        repo.git(&["rev-parse", "alone"]),
    );
    let failure = refused(
        &repo,
        &tine,
        &["branch", "delete", "topic"],
        "branch-not-merged",
        3,
    );
    assert!(text(&failure["message"]).contains(&topic), "{failure}");
    assert!(
        text(&failure["hint"]).contains(&format!("git branch topic {topic}")),
        "{failure}"
    );
    // All or none: two that only have each other, one that is not there.
    repo.git(&["branch", "twin", "topic"]);
    refused(
        &repo,
        &tine,
        &["branch", "delete", "topic", "twin"],
        "branch-not-merged",
        3,
    );
    refused(
        &repo,
        &tine,
        &["branch", "delete", "twin", "nowhere"],
        "no-such-branch",
        4,
    );
    refused(&repo, &tine, &["branch", "delete", "../x"], "invalid-branch", 2);
    repo.sh_in(
        repo.dir(),
        "git config branch.twin.description text; git config branch.topic.description text",
    );
    let deleted = tine.json(&["branch", "delete", "twin"]);
    assert_eq!(
        deleted,
        json!({"branches": [{"branch": "twin", "commit": topic, "kept_as": null}]})
    );
    assert!(!repo.common_dir().join("logs/refs/heads/twin").exists());
    let output = repo.try_git_in(repo.dir(), &["config", "--get-regexp", "branch\\.twin\\."]);
    assert_eq!(output.text(), "");
    assert_eq!(repo.git(&["config", "branch.topic.description"]), "text");

    let deleted = tine.json(&["branch", "delete", "topic", "alone", "--force"]);
    let kept: Vec<&str> = each(&deleted["branches"], "kept_as");
    assert_eq!(kept.len(), 2, "{deleted}");
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    assert_eq!(repo.git(&["rev-parse", kept[0]]), alone);
    repo.git(&["branch", "topic", &topic]);
    assert_eq!(repo.git(&["show", "topic:new.txt"]), "new");
    let said = tine.ok(&["branch", "delete", "topic", "--force"]);
    assert!(
        said.ends_with(&format!("`git branch topic {topic}` brings it back")),
        "{said}"
    );
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn a_renamed_branch_is_followed_by_everybody() {
    require_fuse!();
    let (repo, plain) = repo_with_branches();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    tine.ok(&["new", "child", "--from-fork", "demo", "--no-mount"]);
    for place in [repo.dir(), &plain] {
        repo.sh_in(
            place,
            "git config branch.tine/demo.description text; git config branch.main.remote .; git config branch.main.merge refs/heads/topic",
        );
    }
    repo.sh_in(&dir, "echo x > x");
    for (old, new) in [
        ("tine/demo", "nice"),
        ("nice", "nice/er"),
        ("main", "trunk"),
        ("topic", "topic2"),
    ] {
        let renamed = tine.json(&["branch", "rename", old, new]);
        let forks = if old.contains("demo") || old == "nice" {
            json!(["demo"])
        } else {
            json!([])
        };
        assert_eq!(renamed, json!({"from": old, "branch": new, "forks": forks}));
        repo.git_in(&plain, &["branch", "-m", old, new]);
        let args = ["config", "--get-regexp", "^branch\\."];
        assert_eq!(repo.git(&args), repo.git_in(&plain, &args), "{old}");
        let log = ["reflog", new, "-n1", "--format=%gs"];
        assert_eq!(repo.git(&log), repo.git_in(&plain, &log), "{old}");
        assert_agreement(&repo, &tine, "demo", "A\tx");
    }
    assert_eq!(repo.git_in(&dir, &["branch", "--show-current"]), "nice/er");
    assert_eq!(repo.git(&["branch", "--show-current"]), "trunk");
    assert_eq!(repo.status(&dir), "?? x");
    // They go on to be merged into what they came from.
    let merged = tine.json(&["merge", "demo"]);
    assert_eq!(merged["target"]["branch"], "trunk");
    let merged = tine.run(&["merge", "child", "--dry-run", "--json"]);
    let merged: Value = serde_json::from_str(&merged.text()).expect("JSON");
    assert_eq!(merged["target"]["branch"], "nice/er");
    for (args, code, exit) in [
        (&["branch", "rename", "nice/er", "trunk"][..], "branch-exists", 5),
        (&["branch", "rename", "nice/er", "trunk/x"], "branch-exists", 5),
        (&["branch", "rename", "nice/er", "a..b"], "invalid-branch", 2),
        (&["branch", "rename", "nowhere", "x"], "no-such-branch", 4),
    ] {
        refused(&repo, &tine, args, code, exit);
    }
    // What is under way comes back to its branch.
    repo.sh_in(
        &dir,
        "git commit -q --allow-empty -m y; git rebase -q --exec false HEAD~ 2> /dev/null || true",
    );
    refused(
        &repo,
        &tine,
        &["branch", "rename", "nice/er", "x"],
        "branch-checked-out",
        5,
    );
    repo.sh_in(&dir, "git rebase --abort");
    let fork = &tine.json(&["branch", "list"])["branches"][0];
    assert_eq!(
        (&fork["name"], &fork["made_for"]),
        (&json!("nice/er"), &json!("demo"))
    );
}

#[test]
fn what_git_does_to_branches_in_a_mount_is_known() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    tine.ok(&["new", "child", "--from-fork", "demo", "--no-mount"]);
    repo.sh_in(&dir, "git switch -q topic");
    let branch = |name: &str| -> Value {
        let listed = tine.json(&["branch", "list"]);
        let all = listed["branches"].as_array().expect("a list").clone();
        all.into_iter()
            .find(|branch| branch["name"] == name)
            .unwrap_or_default()
    };
    assert_eq!(branch("topic")["fork"], "demo");
    assert_eq!(
        (&branch("tine/demo")["fork"], &branch("tine/demo")["made_for"]),
        (&Value::Null, &json!("demo"))
    );
    // Where the worktree vanishes, HEAD is where it was.
    tine.ok(&["status", "demo"]);
    tine.ok(&["unmount", "demo"]);
    repo.sh_in(
        repo.dir(),
        "git worktree remove --force --force ../repo.forks/demo 2> /dev/null || rm -r .git/worktrees/demo",
    );
    tine.ok(&["mount", "demo"]);
    assert_eq!(repo.git_in(&dir, &["branch", "--show-current"]), "topic");
    repo.sh_in(
        &dir,
        "git reset -q --hard; git switch -q tine/demo; git branch -m mine",
    );
    assert_eq!(branch("mine")["made_for"], "demo");
    assert_eq!(branch("tine/child")["from"], "mine");
    repo.sh_in(repo.dir(), "git branch -m main trunk");
    assert_eq!(branch("mine")["from"], "trunk");
    // A branch of somebody's own choice stays; one of that name that is made later is not the fork's.
    repo.git(&["branch", "tine/demo"]);
    let deleted = tine.json(&["delete", "demo"]);
    assert_eq!(deleted["branch_deleted"], false);
    repo.git(&["rev-parse", "--verify", "mine"]);
    repo.git(&["rev-parse", "--verify", "tine/demo"]);
    // The branch that was made for it goes with it, wherever its HEAD is.
    let dir = tine.new_fork("again");
    repo.git_in(&dir, &["switch", "-q", "topic"]);
    assert_eq!(tine.json(&["delete", "again"])["branch_deleted"], true);
    repo.git(&["rev-parse", "--verify", "topic"]);
}

#[test]
fn branches_are_listed_with_who_has_them_and_how_far_they_are() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let tine = Tine::new(&repo);
    assert_eq!(
        tine.json(&["branch", "list"]),
        json!({"branches": [], "damaged": []})
    );
    assert_eq!(tine.daemon_pid(), None, "nothing is started for that");
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "for i in 1 2 3; do git commit -q --allow-empty -m \"own $i\"; done",
    );
    repo.commit_files(&[("on.txt", b"on\n")], "main goes on");
    let worktree = repo.git_checkout_of("main", "worktree");
    repo.git_in(&worktree, &["switch", "-q", "topic"]);
    let listed = tine.json(&["branch", "list"]);
    assert_eq!(
        listed["branches"],
        json!([{
            "name": "tine/demo", "commit": repo.git(&["rev-parse", "tine/demo"]), "subject": "own 3",
            "fork": "demo", "checkout": path_text(&dir), "is_main": false,
            "made_for": "demo", "from": "main", "ahead": 3, "behind": 1,
        }])
    );
    let all = tine.json(&["branch", "list", "--all"]);
    assert_eq!(
        each(&all["branches"], "name"),
        ["alone", "main", "tine/demo", "topic"]
    );
    assert_eq!(
        (&all["branches"][1]["is_main"], &all["branches"][1]["checkout"]),
        (&json!(true), &json!(path_text(repo.dir())))
    );
    assert_eq!(all["branches"][3]["checkout"], path_text(&worktree));
    assert_eq!(all["branches"][0]["checkout"], Value::Null);
    let table = tine.ok(&["branch", "list", "--all"]);
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("main") && line.contains("(main checkout)")),
        "{table}"
    );
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("tine/demo") && line.contains("     3       1  own 3")),
        "{table}"
    );
    // As many as there are.
    let commit = repo.head();
    let many: String = (0..3000)
        .map(|n| format!("create refs/heads/many/{n:04} {commit}\n"))
        .collect();
    let mut update = repo.command("git", repo.dir());
    update.args(["update-ref", "--stdin"]);
    crate::support::run_with_timeout_of(
        &mut update,
        crate::support::command::DEFAULT_LIMIT,
        many.as_bytes(),
    )
    .expect_success("git update-ref");
    repo.git(&["pack-refs", "--all"]);
    let all = tine.json(&["branch", "list", "--all"]);
    assert_eq!(all["branches"].as_array().map(Vec::len), Some(3004));
    assert_eq!(tine.json(&["branch", "list"]), listed);
}
