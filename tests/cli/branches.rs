//! `tine branch list`, `create`, `delete` and `rename`, beside git's own.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::merging::each;
use crate::refused;
use crate::support::{OutputExt, TestRepo, Tine, assert_agreement, repo::path_text, require_fuse};

/// A repository with the branches `topic` (files of all kinds that come, go and change) and `alone`
/// (without a common history), and a copy of it, in which git does the same.
pub fn repo_with_branches() -> (TestRepo, PathBuf) {
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

pub fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
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
    tine.ok(&["snapshot", "demo", "dirty"]);
    let own = repo.git(&["rev-parse", "tine/demo"]);
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
    assert!(
        here.error_text().contains("uncommitted"),
        "{}",
        here.error_text()
    );
    for (args, code, exit) in [
        (&["branch", "create", "topic"][..], "branch-exists", 5),
        (&["branch", "create", "at"], "branch-exists", 5),
        (&["branch", "create", "topic/x"], "branch-exists", 5),
        (&["branch", "create", "a..b"], "invalid-branch", 2),
        (&["branch", "create", "HEAD"], "invalid-branch", 2),
        (
            &["branch", "create", "x", "--at", "nothing"],
            "no-such-point",
            4,
        ),
        (
            &["branch", "create", "x", "--at", "main^{tree}"],
            "unknown-revision",
            4,
        ),
        (
            &["branch", "create", "x", "--fork", "nobody"],
            "no-such-fork",
            4,
        ),
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
    for place in [repo.dir(), &dir] {
        let add = "git remote add origin ../plain";
        repo.sh_in(place, add);
    }
    repo.git(&["fetch", "-q", "origin"]);
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
    let upstream =
        |branch: &str| repo.git(&["rev-parse", "--abbrev-ref", &format!("{branch}@{{u}}")]);
    assert_eq!(upstream("by-tine"), upstream("by-git"));
    assert_eq!(
        repo.git_in(&dir, &["rev-parse", "--abbrev-ref", "switched@{u}"]),
        "origin/main"
    );
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
        text(&failure["hint"]).contains("`tine recover` brings it back"),
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
    refused(
        &repo,
        &tine,
        &["branch", "delete", "../x"],
        "invalid-branch",
        2,
    );
    repo.sh_in(
        repo.dir(),
        "git config branch.twin.description text; git config branch.topic.description text",
    );
    let deleted = tine.json(&["branch", "delete", "twin"]);
    assert_eq!(
        deleted,
        json!({"branches": [{"branch": "twin", "commit": topic, "recover": null}]})
    );
    assert!(!repo.common_dir().join("logs/refs/heads/twin").exists());
    let output = repo.try_git_in(repo.dir(), &["config", "--get-regexp", "branch\\.twin\\."]);
    assert_eq!(output.text(), "");
    assert_eq!(repo.git(&["config", "branch.topic.description"]), "text");

    let deleted = tine.json(&["branch", "delete", "topic", "alone", "--force"]);
    let kept: Vec<&Value> = deleted["branches"].as_array().unwrap().iter().collect();
    assert_eq!(kept.len(), 2, "{deleted}");
    assert!(
        kept.iter().all(|branch| branch["recover"].is_u64()),
        "{deleted}"
    );
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    for branch in kept {
        tine.ok(&["recover", &branch["recover"].to_string()]);
    }
    assert_eq!(repo.git(&["rev-parse", "alone"]), alone);
    assert_eq!(repo.git(&["rev-parse", "topic"]), topic);
    assert_eq!(repo.git(&["show", "topic:new.txt"]), "new");
    let said = tine.ok(&["branch", "delete", "topic", "--force"]);
    assert!(said.ends_with("`tine recover 3` brings it back"), "{said}");
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn a_renamed_branch_is_followed_by_everybody() {
    require_fuse!();
    let (repo, plain) = repo_with_branches();
    let repo = repo.with_linked_forks();
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
    let merged = tine.json(&["merge", "demo", "--with-uncommitted"]);
    assert_eq!(merged["target"]["branch"], "trunk");
    let merged = tine.run(&[
        "merge",
        "child",
        "--with-uncommitted",
        "--dry-run",
        "--json",
    ]);
    let merged: Value = serde_json::from_str(&merged.text()).expect("JSON");
    assert_eq!(merged["target"]["branch"], "nice/er");
    for (args, code, exit) in [
        (
            &["branch", "rename", "nice/er", "trunk"][..],
            "branch-exists",
            5,
        ),
        (
            &["branch", "rename", "nice/er", "trunk/x"],
            "branch-exists",
            5,
        ),
        (
            &["branch", "rename", "nice/er", "a..b"],
            "invalid-branch",
            2,
        ),
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
    let repo = repo.with_linked_forks();
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
        (
            &branch("tine/demo")["fork"],
            &branch("tine/demo")["made_for"]
        ),
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
    // A branch of somebody's own choice stays; one of that name that is made later is not the
    // fork's.
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
        (
            &all["branches"][1]["is_main"],
            &all["branches"][1]["checkout"]
        ),
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

#[test]
fn a_branch_that_is_deleted_under_its_fork_takes_no_commit_and_comes_back() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "echo one > one; git add one; git commit -qm one; echo two > two",
    );
    let tip = repo.git(&["rev-parse", "tine/demo"]);
    let delete_branch = || repo.git(&["update-ref", "-d", "refs/heads/tine/demo"]);
    delete_branch();
    for args in [
        &["commit", "demo", "-m", "two"][..],
        &["update", "demo"],
        &["merge", "demo"],
        &["merge", "main", "--into", "demo"],
        &["delete", "demo"],
    ] {
        let failure = refused(&repo, &tine, args, "branch-gone", 3);
        let hint = text(&failure["hint"]);
        assert!(
            hint.contains(&format!("`git branch tine/demo {tip}`")),
            "{hint}"
        );
    }
    repo.git(&["branch", "tine/demo", &tip]);
    tine.ok(&["commit", "demo", "-m", "two"]);
    assert_eq!(repo.git(&["rev-parse", "tine/demo~"]), tip);

    let tip = repo.git(&["rev-parse", "tine/demo"]);
    delete_branch();
    tine.ok(&["delete", "demo", "--force"]);
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    tine.ok(&["recover", "1"]);
    assert_eq!(repo.git(&["rev-parse", "tine/demo"]), tip);
    assert_eq!(repo.status(&dir), "");

    // A branch that never had a commit begins with one.
    repo.sh_in(&dir, "git switch -q --orphan new; echo new > new");
    tine.ok(&["commit", "demo", "-m", "first"]);
    assert_eq!(repo.git(&["rev-list", "--count", "new"]), "1");
}

#[test]
fn a_rename_that_meets_a_lock_changes_nothing() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.git(&["config", "branch.tine/demo.description", "mine"]);
    for lock in [
        "worktrees/demo/HEAD.lock",
        "config.lock",
        "refs/heads/tine/demo.lock",
    ] {
        let lock = repo.common_dir().join(lock);
        std::fs::write(&lock, "").unwrap();
        let failure = refused(
            &repo,
            &tine,
            &["branch", "rename", "tine/demo", "other"],
            "ref-locked",
            5,
        );
        assert!(
            text(&failure["hint"]).contains(path_text(&lock)),
            "{failure}"
        );
        assert_eq!(
            repo.git_in(&dir, &["symbolic-ref", "HEAD"]),
            "refs/heads/tine/demo"
        );
        std::fs::remove_file(&lock).unwrap();
    }
    tine.ok(&["branch", "rename", "tine/demo", "other"]);
    assert_eq!(
        repo.git_in(&dir, &["symbolic-ref", "HEAD"]),
        "refs/heads/other"
    );
    assert_eq!(repo.git(&["config", "branch.other.description"]), "mine");
}

#[test]
fn what_was_meant_for_a_branch_goes_into_it_under_its_new_name() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo demo > README.md; git commit -qam demo");
    let other = tine.new_fork("other");
    repo.sh_in(
        &other,
        "echo other > other.txt; git add other.txt; git commit -qm other",
    );
    tine.ok(&["new", "policy", "--on-unmount", "merge:main"]);
    repo.sh_in(repo.dir(), "echo main > README.md; git commit -qam main");
    tine.fails(3, &["merge", "demo", "--review"]);
    tine.ok(&["handoff", "create", "other"]);
    tine.ok(&["handoff", "wait", "1"]);

    tine.ok(&["branch", "rename", "main", "trunk"]);
    let forks = tine.json(&["list"])["forks"].clone();
    let forks = forks.as_array().unwrap();
    assert!(
        forks.iter().any(|fork| fork["on_unmount"] == "merge:trunk"),
        "{forks:?}"
    );
    tine.ok(&["review", "refresh", "1"]);
    tine.ok(&["resolve", "1", "README.md", "--theirs"]);
    tine.ok(&["review", "commit", "1"]);
    assert_eq!(repo.git(&["show", "trunk:README.md"]), "demo");
    assert_eq!(tine.json(&["handoff", "show", "1"])["to"], "branch:trunk");
    tine.ok(&["handoff", "apply", "1"]);
    assert_eq!(repo.git(&["show", "trunk:other.txt"]), "other");
}

#[test]
fn hints_quote_branches_as_a_shell_needs_it() {
    require_fuse!();
    let (repo, _) = repo_with_branches();
    let repo = repo.with_linked_forks();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    let name = "say\"$(hi)'";
    let word = r#"'say"$(hi)'\'''"#;
    let failure = refused(
        &repo,
        &tine,
        &["branch", "switch", "demo", name],
        "no-such-branch",
        4,
    );
    let hint = text(&failure["hint"]);
    let command = format!("tine branch switch demo {word} --create");
    assert!(hint.contains(&format!("`{command}`")), "{hint}");
    let program = path_text(Tine::program());
    repo.sh_in(repo.dir(), &command.replacen("tine", program, 1));
    assert_eq!(
        repo.git_of_fork("demo", &["branch", "--show-current"]),
        name
    );
    let failure = refused(
        &repo,
        &tine,
        &["branch", "create", name],
        "branch-exists",
        5,
    );
    assert!(
        text(&failure["hint"]).contains(&format!("`tine branch delete {word}`")),
        "{failure}"
    );
}

/// A fork with the commit "one" on its branch, beside a commit of `main`'s that its files lack.
fn beside_main(repo: &TestRepo, tine: &Tine) -> PathBuf {
    let dir = tine.new_fork("f");
    repo.sh_in(&dir, "echo 1 > one");
    tine.ok(&["commit", "f", "-m", "one"]);
    repo.write("README.md", "main's\n");
    repo.commit_all("main goes on");
    repo.sh_in(&dir, "echo 2 > two");
    dir
}

/// Sees that `f` takes nothing back, whose branch came to `main` without it, and goes the way that
/// the hint names.
#[track_caller]
fn is_moved_under(repo: &TestRepo, tine: &Tine, dir: &Path, left_at: &str) {
    for args in [
        &["commit", "f", "-m", "two"][..],
        &["update", "f"],
        &["merge", "f", "--into", "main"],
    ] {
        let failure = refused(repo, tine, args, "moved-under", 3);
        let message = text(&failure["message"]);
        assert!(
            message.contains(&format!("from {left_at} to ")),
            "{message}"
        );
        let hint = text(&failure["hint"]);
        let commands = [
            "`tine branch switch f tine/f-2 --create`",
            "`tine merge tine/f --into f`",
        ];
        assert!(
            commands.iter().all(|command| hint.contains(command)),
            "{hint}"
        );
    }
    tine.ok(&["branch", "switch", "f", "tine/f-2", "--create"]);
    assert_eq!(repo.git_in(dir, &["rev-parse", "HEAD"]), left_at);
    tine.ok(&["merge", "tine/f", "--into", "f"]);
    tine.ok(&["commit", "f", "-m", "two"]);
    tine.ok(&["merge", "f", "--into", "main"]);
    for (path, content) in [("README.md", "main's"), ("one", "1"), ("two", "2")] {
        assert_eq!(repo.git(&["show", &format!("main:{path}")]), content);
    }
}

#[test]
fn a_branch_that_is_made_again_elsewhere_moved_under_its_fork() {
    require_fuse!();
    for is_refused_between in [false, true] {
        let repo = TestRepo::new().with_linked_forks();
        let tine = Tine::new(&repo);
        let dir = beside_main(&repo, &tine);
        let one = repo.git(&["rev-parse", "tine/f"]);
        repo.git(&["update-ref", "-d", "refs/heads/tine/f"]);
        if is_refused_between {
            refused(
                &repo,
                &tine,
                &["commit", "f", "-m", "two"],
                "branch-gone",
                3,
            );
        }
        repo.git(&["branch", "tine/f", "main"]);
        is_moved_under(&repo, &tine, &dir, &one);
    }
}

#[test]
fn a_branch_that_moved_aside_is_found_out_without_reflogs() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let tine = Tine::new(&repo);
    let dir = beside_main(&repo, &tine);
    let one = repo.git(&["rev-parse", "tine/f"]);
    repo.git(&["reflog", "expire", "--all", "--expire=now"]);
    // What git resets in the mount is no move of others.
    repo.git_in(&dir, &["reset", "-q", "--hard", "main"]);
    repo.git_in(&dir, &["reset", "-q", "--hard", &one]);
    repo.sh_in(&dir, "git reset -q --hard main; echo 3 > three");
    repo.git(&["reflog", "expire", "--all", "--expire=now"]);
    tine.ok(&["commit", "f", "-m", "three"]);
    assert_eq!(repo.git(&["show", "tine/f:README.md"]), "main's");
    let three = repo.git(&["rev-parse", "tine/f"]);
    repo.sh_in(
        repo.dir(),
        "echo again > README.md; git commit -qam again; git branch other tine/f",
    );
    repo.sh_in(&dir, "echo 2 > two");
    repo.git(&["reflog", "expire", "--all", "--expire=now"]);
    repo.git(&["update-ref", "refs/heads/tine/f", "main"]);
    let failure = refused(
        &repo,
        &tine,
        &["commit", "f", "-m", "two"],
        "moved-under",
        3,
    );
    assert!(text(&failure["message"]).contains(&three), "{failure}");
}

/// git does not sync reflogs, so after a loss of power the refs are there and lines of the reflogs
/// are not.
#[test]
fn a_commit_by_git_whose_reflogs_were_lost_is_the_forks_own() {
    require_fuse!();
    for is_all_lost in [false, true] {
        for goes_on in ["true", "echo again > three; git add three"] {
            let repo = TestRepo::new().with_linked_forks();
            let tine = Tine::new(&repo);
            let dir = beside_main(&repo, &tine);
            let logs = [".git/worktrees/f/logs/HEAD", ".git/logs/refs/heads/tine/f"]
                .map(|log| repo.dir().join(log));
            let before = logs.each_ref().map(|log| {
                if is_all_lost {
                    Vec::new()
                } else {
                    std::fs::read(log).unwrap()
                }
            });
            let lose = || {
                for (log, before) in logs.iter().zip(&before) {
                    std::fs::write(log, before).unwrap();
                }
            };
            repo.sh_in(&dir, "echo 3 > three; git add three; git commit -qm three");
            tine.ok(&["daemon", "stop"]);
            tine.ok(&["mount", "f"]);
            repo.sh_in(&dir, goes_on);
            lose();
            tine.ok(&["commit", "f", "-m", "two"]);
            assert_eq!(
                repo.git(&["log", "--format=%s", "main..tine/f"]),
                "two\nthree\none",
                "all lost: {is_all_lost}, {goes_on}"
            );
            // A move by others is found out as well.
            let two = repo.git(&["rev-parse", "tine/f"]);
            let before = logs.each_ref().map(|log| std::fs::read(log).unwrap());
            repo.sh_in(&dir, "echo 4 > four");
            repo.git(&["update-ref", "refs/heads/tine/f", "main"]);
            for (log, before) in logs.iter().zip(&before) {
                std::fs::write(log, before).unwrap();
            }
            let commit = ["commit", "f", "-m", "four"];
            let failure = refused(&repo, &tine, &commit, "moved-under", 3);
            assert!(text(&failure["message"]).contains(&two), "{failure}");
        }
    }
}

#[test]
fn a_worktree_that_is_registered_again_knows_where_its_branch_was() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let tine = Tine::new(&repo);
    let dir = beside_main(&repo, &tine);
    let one = repo.git(&["rev-parse", "tine/f"]);
    let lose_worktree = || {
        tine.ok(&["daemon", "stop"]);
        std::fs::remove_dir_all(repo.git_dir_of_fork("f")).unwrap();
    };
    // Where it was, it goes on.
    lose_worktree();
    tine.ok(&["mount", "f"]);
    tine.ok(&["commit", "f", "-m", "half"]);
    repo.git_in(&dir, &["reset", "-q", "--soft", "HEAD~"]);
    assert_eq!(repo.git(&["rev-parse", "tine/f"]), one);
    lose_worktree();
    tine.ok(&["mount", "f"]);
    tine.ok(&["commit", "f", "-m", "half"]);
    let half = repo.git(&["rev-parse", "tine/f"]);
    repo.sh_in(&dir, "echo 3 > three");
    repo.git(&["update-ref", "refs/heads/tine/f", "main"]);
    lose_worktree();
    tine.ok(&["mount", "f"]);
    is_moved_under(&repo, &tine, &dir, &half);
}
