//! `tine merge`: what may be merged into what, what comes of it, and that nothing comes of a merge
//! that cannot be.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::refused;
use crate::support::{OutputExt, TestRepo, Tine, assert_agreement, repo::path_text, require_fuse};

/// A repository with `list.txt`, a text of nine lines that say their numbers, beside the base
/// files. What is uncommitted in a source is merged into branches, too.
pub fn repo_with_list() -> TestRepo {
    let repo = TestRepo::new().without_maintenance();
    repo.git(&["config", "tine.mergeUncommitted", "true"]);
    repo.commit_files(&[("list.txt", b"1\n2\n3\n4\n5\n6\n7\n8\n9\n")], "list");
    repo
}

/// Has `line` of `list.txt` say something else in `dir`.
pub fn set_line(repo: &TestRepo, dir: &Path, line: u32, text: &str) {
    repo.sh_in(dir, &format!("sed -i '{line}s/.*/{text}/' list.txt"));
}

/// Commits line 8 of `list.txt` in the checkout, with a file of its own; the commit.
pub fn main_goes_on(repo: &TestRepo, text: &str) -> String {
    set_line(repo, repo.dir(), 8, text);
    repo.write("main.txt", format!("{text}\n"));
    repo.commit_all(&format!("main says {text}"))
}

/// A mounted fork `work` that says `two` in line 2 and has a file of its own, uncommitted.
pub fn fork_with_work(repo: &TestRepo, tine: &Tine) -> PathBuf {
    let dir = tine.new_fork("work");
    set_line(repo, &dir, 2, "two");
    repo.sh_in(&dir, "echo work > work.txt");
    dir
}

/// As [`fork_with_work`], beside a branch `main` that says something else of line 2, and has gone
/// on elsewhere.
pub fn conflicting(repo: &TestRepo, tine: &Tine) -> PathBuf {
    let dir = fork_with_work(repo, tine);
    set_line(repo, repo.dir(), 2, "zwei");
    main_goes_on(repo, "acht");
    dir
}

/// Runs `tine` with `--json`, which must end with `exit`; what it prints.
#[track_caller]
pub fn told(tine: &Tine, exit: i32, args: &[&str]) -> Value {
    let output = tine.run(&[args, &["--json"]].concat());
    let text = output.text();
    assert_eq!(
        output.status.code(),
        Some(exit),
        "tine {args:?}: {text} {}",
        output.error_text()
    );
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("tine {args:?}: {error} in {text:?}"))
}

/// The value at `field` of each element.
pub fn each<'v>(list: &'v Value, field: &str) -> Vec<&'v str> {
    let list = list.as_array().expect("a list").iter();
    list.map(|value| value[field].as_str().expect("text"))
        .collect()
}

/// All that a merge must leave alone when nothing comes of it: refs, checkout, forks, and the view
/// of each fork.
pub fn everything(repo: &TestRepo, tine: &Tine) -> String {
    crate::take_over(repo, tine);
    let mut all = vec![crate::state(repo)];
    for fork in each(&tine.json(&["list"])["forks"], "name") {
        let diff = tine.json(&["diff", fork]);
        all.push(format!(
            "{fork} {} {}",
            diff["head_tree"], diff["view_tree"]
        ));
        all.push(tine.json(&["snapshots", fork]).to_string());
        all.push(repo.git_of_fork(fork, &["ls-files", "-s"]));
    }
    all.join("\n--\n")
}

/// As [`refused`], of a merge: views and indexes of forks stay, too.
#[track_caller]
pub fn merge_refused(repo: &TestRepo, tine: &Tine, args: &[&str], code: &str, exit: i32) -> Value {
    let before = everything(repo, tine);
    let failure = refused(repo, tine, args, code, exit);
    assert_eq!(everything(repo, tine), before, "{args:?}");
    failure
}

/// The parents of a commit.
pub fn parents(repo: &TestRepo, revision: &str) -> Vec<String> {
    let parents = repo.git(&["show", "-s", "--format=%P", revision]);
    parents.split_whitespace().map(str::to_owned).collect()
}

/// What a revision has at `path`.
pub fn content_at(repo: &TestRepo, revision: &str, path: &str) -> String {
    repo.git(&["show", &format!("{revision}:{path}")])
}

const MERGED_LIST: &str = "1\ntwo\n3\n4\n5\n6\n7\nacht\n9";

#[test]
fn every_kind_of_source_is_merged_into_forks_and_branches() {
    require_fuse!();
    let repo = repo_with_list();
    let base = repo.head();
    let tine = Tine::new(&repo);
    let dir = fork_with_work(&repo, &tine);
    tine.ok(&["snapshot", "work", "then"]);
    repo.sh_in(&dir, "echo later > later.txt");
    repo.git(&["branch", "topic"]);
    let topic = repo.git_checkout_of("topic", "topic-files");
    repo.sh_in(
        &topic,
        "git switch -q topic; echo topic > topic.txt; git add -A; git commit -qm topic",
    );
    repo.git(&["worktree", "remove", path_text(&topic)]);
    let commit = repo.git(&["rev-parse", "topic"]);
    let tree = repo.git(&["rev-parse", "topic^{tree}"]);
    let main = main_goes_on(&repo, "acht");

    // The snapshot first, as the fork's own work is committed with the merge of it.
    let cases: [(&str, &[&str], &str, &str); 5] = [
        ("work@then", &[], "work.txt", "fork:work@then"),
        ("work", &[], "later.txt", "fork:work"),
        ("topic", &[], "topic.txt", "rev:topic"),
        (&commit, &[], "topic.txt", ""),
        (&tree, &["--base", &base], "topic.txt", ""),
    ];
    for (number, (source, options, file, point)) in cases.into_iter().enumerate() {
        let (branch, fork) = (format!("into-{number}"), format!("fork-{number}"));
        repo.git(&["branch", &branch]);
        tine.ok(&["new", &fork, "--no-mount"]);
        for into in [&branch, &fork] {
            let args = [&["merge", source, "--into", into], options].concat();
            let merged = told(&tine, 0, &args);
            let after = merged["after"].as_str().unwrap();
            assert_eq!(merged["status"], "merged", "{args:?}");
            if !point.is_empty() {
                assert_eq!(merged["sources"][0]["source"]["point"], point);
            }
            let shown = content_at(&repo, after, file);
            assert_eq!(Some(shown.as_str()), file.strip_suffix(".txt"), "{args:?}");
            assert_eq!(content_at(&repo, after, "main.txt"), "acht", "{args:?}");
            let is_tree = source == tree;
            assert_eq!(parents(&repo, after).len(), if is_tree { 1 } else { 2 });
            assert_eq!(parents(&repo, after)[0], main);
            let holder = if *into == branch {
                into.clone()
            } else {
                format!("tine/{into}")
            };
            assert_eq!(repo.git(&["rev-parse", &holder]), after);
        }
        assert_agreement(&repo, &tine, &fork, "");
        assert_eq!(tine.ok(&["cat", "--fork", &fork, "main.txt"]), "acht");
    }
    // A snapshot is the same each time, and without what came later.
    told(&tine, 7, &["merge", "work@then", "--into", "into-0"]);
    assert_eq!(repo.git(&["ls-tree", "into-0", "later.txt"]), "");
    // What the fork began as.
    let merged = told(&tine, 7, &["merge", "pristine", "--into", "fork:work"]);
    assert_eq!(merged["sources"][0]["source"]["commit"], json!(base));
    merge_refused(
        &repo,
        &tine,
        &["merge", &tree, "--into", "topic"],
        "no-merge-base",
        2,
    );
}

#[test]
fn the_target_is_the_fork_one_stands_in_else_where_the_source_came_from() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let work = fork_with_work(&repo, &tine);
    let main = main_goes_on(&repo, "acht");
    // Inside: main comes into the fork, and what is uncommitted there stays.
    set_line(&repo, &work, 2, "2");
    tine.ok_in(&work, &["merge", "main"]);
    assert_eq!(repo.git(&["rev-parse", "tine/work"]), main);
    assert_agreement(&repo, &tine, "work", "A\twork.txt");
    // Outside: into the branch that the fork came from.
    let merged = told(&tine, 0, &["merge", "work"]);
    assert_eq!(merged["target"]["branch"], "main");
    assert_eq!(merged["target"]["checkout"], json!(repo.dir()));
    assert_eq!(
        std::fs::read_to_string(repo.dir().join("work.txt")).unwrap(),
        "work\n"
    );
    // A fork of a fork goes into its parent, which sees it at once.
    let child = PathBuf::from(tine.ok(&["new", "child", "--from-fork", "work"]));
    repo.sh_in(&child, "echo child > child.txt; rm work.txt");
    repo.sh_in(&work, "cat work.txt; ls > /dev/null");
    let merged = told(&tine, 0, &["merge", "child"]);
    assert_eq!(merged["target"]["fork"], "work");
    assert_eq!(
        std::fs::read_to_string(work.join("child.txt")).unwrap(),
        "child\n"
    );
    assert!(!work.join("work.txt").exists());
    assert_agreement(&repo, &tine, "work", "");
    assert_agreement(&repo, &tine, "child", "");
    // A commit came from nowhere.
    merge_refused(&repo, &tine, &["merge", &main], "usage", 2);
}

#[test]
fn a_target_without_anything_of_its_own_moves_unless_a_merge_commit_is_wanted() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = fork_with_work(&repo, &tine);
    tine.ok(&["commit", "work", "-m", "work"]);
    let (base, work) = (repo.head(), repo.git(&["rev-parse", "tine/work"]));
    let merged = told(&tine, 0, &["merge", "work", "--ff-only"]);
    assert_eq!(merged["sources"][0]["how"], "fast-forward");
    assert_eq!(
        (&merged["before"], &merged["after"]),
        (&json!(base), &json!(work))
    );
    assert_eq!(each(&merged["changes"], "path"), ["list.txt", "work.txt"]);
    assert_eq!(repo.head(), work, "no commit of its own");
    assert_eq!(repo.status(repo.dir()), "");

    let before = everything(&repo, &tine);
    let output = tine.run(&["merge", "work"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.text(), "nothing to merge: main has all of work");
    assert_eq!(
        told(&tine, 7, &["merge", "work", "--no-ff"])["status"],
        "nothing-to-merge"
    );
    assert_eq!(
        told(&tine, 7, &["merge", "main", "--into", "main"])["status"],
        "nothing-to-merge"
    );
    assert_eq!(
        told(&tine, 7, &["merge", "work", "--into", "work"])["status"],
        "nothing-to-merge"
    );
    assert_eq!(everything(&repo, &tine), before);

    repo.sh_in(&dir, "echo more > more.txt");
    let merged = told(
        &tine,
        0,
        &["merge", "work", "--no-ff", "-m", "by hand", "-m", "and why"],
    );
    let after = merged["after"].as_str().unwrap();
    assert_eq!(
        parents(&repo, after),
        [work, repo.git(&["rev-parse", "tine/work"])]
    );
    assert_eq!(
        repo.git(&["show", "-s", "--format=%B", after]).trim_end(),
        "by hand\n\nand why"
    );
    assert_agreement(&repo, &tine, "work", "");
}

#[test]
fn sides_that_both_went_on_become_a_merge_commit() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = fork_with_work(&repo, &tine);
    let main = main_goes_on(&repo, "acht");
    merge_refused(
        &repo,
        &tine,
        &["merge", "work", "--ff-only"],
        "not-fast-forward",
        3,
    );
    let merged = told(&tine, 0, &["merge", "work"]);
    let work = repo.git(&["rev-parse", "tine/work"]);
    assert_eq!(merged["sources"][0]["how"], "merge-commit");
    assert_eq!(merged["sources"][0]["committed"], json!(work));
    assert_eq!(parents(&repo, "main"), [main, work]);
    assert_eq!(
        repo.git(&["show", "-s", "--format=%s", "main"]),
        "Merge fork 'work' into main"
    );
    assert_eq!(content_at(&repo, "main", "list.txt"), MERGED_LIST);
    assert_eq!(
        std::fs::read_to_string(repo.dir().join("list.txt"))
            .unwrap()
            .trim_end(),
        MERGED_LIST
    );
    assert_eq!(repo.status(repo.dir()), "");
    assert_agreement(&repo, &tine, "work", "");
    assert!(
        !dir.join("main.txt").exists(),
        "the source stays what it was"
    );
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn nothing_of_a_source_is_committed_when_nothing_comes_of_it() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let before = everything(&repo, &tine);
    let merged = told(&tine, 3, &["merge", "work"]);
    assert_eq!(merged["status"], "conflicts");
    assert_eq!(merged["sources"][0]["committed"], Value::Null);
    assert_eq!(each(&merged["conflicts"], "path"), ["list.txt"]);
    let conflict = &merged["conflicts"][0];
    assert_eq!(conflict["kind"], "both_modified");
    for (side, line) in [
        ("base", "\n2\n"),
        ("ours", "\nzwei\n"),
        ("theirs", "\ntwo\n"),
    ] {
        let text = conflict[side][0]["content"]["text"].as_str().unwrap();
        assert!(text.contains(line), "{side}: {text}");
        assert_eq!(
            conflict["hunks"][0][side]["text"],
            json!(line[1..]),
            "{side}"
        );
    }
    assert_eq!(everything(&repo, &tine), before, "conflicts");
    told(
        &tine,
        0,
        &["merge", "work", "--strategy", "ours", "--dry-run"],
    );
    assert_eq!(everything(&repo, &tine), before, "a dry run");
    repo.write("work.txt", "in the way");
    merge_refused(
        &repo,
        &tine,
        &["merge", "work", "--strategy", "ours"],
        "local-changes",
        3,
    );
    std::fs::remove_file(repo.dir().join("work.txt")).unwrap();
    assert_eq!(everything(&repo, &tine), before, "a target that refuses");
}

#[test]
fn invariant_09_conflicts_change_nothing_and_a_strategy_settles_only_them() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let before = everything(&repo, &tine);
    let said = tine.run(&["merge", "work"]);
    assert_eq!(said.status.code(), Some(3));
    assert!(said.text().contains("list.txt"), "{}", said.text());
    assert!(
        said.text().contains("nothing was changed"),
        "{}",
        said.text()
    );
    assert_eq!(everything(&repo, &tine), before);
    for (strategy, list) in [
        ("ours", "1\nzwei\n3\n4\n5\n6\n7\nacht\n9"),
        ("theirs", MERGED_LIST),
        ("union", "1\nzwei\ntwo\n3\n4\n5\n6\n7\nacht\n9"),
    ] {
        repo.git(&["branch", strategy]);
        let merged = told(
            &tine,
            0,
            &["merge", "work", "--into", strategy, "--strategy", strategy],
        );
        assert_eq!(each(&merged["sources"][0]["settled"], "path"), ["list.txt"]);
        assert_eq!(content_at(&repo, strategy, "list.txt"), list);
        assert_eq!(
            content_at(&repo, strategy, "work.txt"),
            "work",
            "{strategy}"
        );
        assert_eq!(
            content_at(&repo, strategy, "main.txt"),
            "acht",
            "{strategy}"
        );
    }
}

#[test]
fn by_path_whole_files_conflict_and_by_text_only_lines() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    main_goes_on(&repo, "acht");
    let before = everything(&repo, &tine);
    let merged = told(&tine, 3, &["merge", "work", "--level", "path"]);
    assert_eq!(each(&merged["conflicts"], "path"), ["list.txt"]);
    assert_eq!(everything(&repo, &tine), before);
    repo.git(&["branch", "whole"]);
    tine.ok(&[
        "merge",
        "work",
        "--level",
        "path",
        "--strategy",
        "theirs",
        "--into",
        "whole",
    ]);
    assert_eq!(
        content_at(&repo, "whole", "list.txt"),
        "1\ntwo\n3\n4\n5\n6\n7\n8\n9"
    );
    assert_eq!(content_at(&repo, "whole", "main.txt"), "acht");
    tine.ok(&["merge", "work", "--level", "text"]);
    assert_eq!(content_at(&repo, "main", "list.txt"), MERGED_LIST);
}

/// What a report says of the outcome, without what only a real run has: ids of commits that are
/// made at its time.
fn foretold(report: &Value) -> Value {
    let sources: Vec<Value> = report["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| {
            json!({ "how": source["how"], "settled": source["settled"], "tree": source["source"]["tree"],
            "made_a_commit": source["commit"].is_string() })
        })
        .collect();
    json!({ "status": report["status"], "target": report["target"], "before": report["before"],
        "sources": sources, "conflicts": report["conflicts"], "changes": report["changes"] })
}

#[test]
fn invariant_11_a_dry_run_tells_what_the_real_one_does() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let other = tine.new_fork("other");
    repo.sh_in(
        &other,
        "mkdir d; echo other > d/other.txt; rm README.md; chmod 644 run.sh; ln -sfn docs link",
    );
    tine.new_fork("target");
    repo.git(&["branch", "apart", "HEAD~"]);
    for (exit, args) in [
        (3, &["merge", "work"][..]),
        (
            3,
            &[
                "merge",
                "other",
                "work",
                "--into",
                "target",
                "--all-or-nothing",
            ],
        ),
        (3, &["merge", "other", "work", "--into", "target"]),
        (0, &["merge", "work", "--into", "apart"]),
        (7, &["merge", "work", "--into", "apart"]),
        (0, &["merge", "work", "--strategy", "ours"]),
        (
            0,
            &["merge", "other", "main", "--into", "target", "--no-ff"],
        ),
    ] {
        let before = everything(&repo, &tine);
        let dry = told(&tine, exit, &[args, &["--dry-run"]].concat());
        assert_eq!(everything(&repo, &tine), before, "{args:?}");
        assert_eq!(dry["dry_run"], true);
        let real = told(&tine, exit, args);
        assert_eq!(foretold(&dry), foretold(&real), "{args:?}");
        let trees = [&real["before"], &real["after"]].map(|id| id.as_str().unwrap().to_owned());
        let listed = repo.git(&["diff", "--no-renames", "--name-only", &trees[0], &trees[1]]);
        assert_eq!(
            each(&real["changes"], "path"),
            listed.lines().collect::<Vec<_>>(),
            "{args:?}"
        );
    }
    for fork in ["work", "other", "target"] {
        assert_agreement(&repo, &tine, fork, "");
    }
}

#[test]
fn several_sources_are_merged_up_to_the_first_conflict() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    for name in ["first", "last"] {
        let dir = tine.new_fork(name);
        repo.sh_in(&dir, &format!("echo {name} > {name}.txt"));
    }
    let before = everything(&repo, &tine);
    let all = ["merge", "first", "work", "last", "--into", "main"];
    let merged = told(&tine, 3, &[&all[..], &["--all-or-nothing"]].concat());
    assert_eq!(merged["before"], merged["after"]);
    assert_eq!(everything(&repo, &tine), before);
    let merged = told(&tine, 3, &[&all[..], &["--delete"]].concat());
    assert_eq!(
        each(&merged["sources"], "how"),
        ["fast-forward", "conflicts"]
    );
    assert_eq!(content_at(&repo, "main", "first.txt"), "first");
    assert_eq!(repo.status(repo.dir()), "");
    for fork in ["work", "last"] {
        assert_ne!(
            tine.ok(&["diff", fork]),
            "",
            "what was not merged is as it was"
        );
    }
    assert_agreement(&repo, &tine, "first", "");
    // With a way through all three come.
    let merged = told(
        &tine,
        0,
        &[
            "merge",
            "first",
            "work",
            "last",
            "--into",
            "main",
            "--strategy",
            "theirs",
        ],
    );
    assert_eq!(
        each(&merged["sources"], "how"),
        ["contained", "merge-commit", "merge-commit"]
    );
    assert_eq!(content_at(&repo, "main", "last.txt"), "last");
    assert_eq!(content_at(&repo, "main", "list.txt"), MERGED_LIST);
}

#[test]
fn sources_are_deleted_only_when_they_are_merged() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = conflicting(&repo, &tine);
    let before = everything(&repo, &tine);
    told(&tine, 3, &["merge", "work", "--delete"]);
    told(
        &tine,
        0,
        &[
            "merge",
            "work",
            "--delete",
            "--strategy",
            "ours",
            "--dry-run",
        ],
    );
    assert_eq!(everything(&repo, &tine), before);
    // A mount that is in use stays, and the merge stands.
    let merged = told(
        &tine,
        0,
        &["merge", "work", "--delete", "--strategy", "theirs"],
    );
    assert_eq!(merged["sources"][0]["deleted_fork"], "work");
    assert_eq!(merged["sources"][0]["deleted_branch"], "tine/work");
    assert!(!dir.exists());
    assert_eq!(repo.git(&["branch", "--list", "tine/*"]), "");
    assert_eq!(content_at(&repo, "main", "work.txt"), "work");

    repo.git(&["branch", "topic", "HEAD~"]);
    told(&tine, 7, &["merge", "topic", "--into", "main", "--delete"]);
    repo.git(&["rev-parse", "topic"]);
    repo.git(&["worktree", "add", "-q", "../linked", "-b", "linked"]);
    repo.sh_in(
        &repo.root().join("linked"),
        "git commit -q --allow-empty -m linked",
    );
    let merged = told(&tine, 0, &["merge", "linked", "--into", "main", "--delete"]);
    assert_eq!(
        merged["sources"][0]["not_deleted"]["code"],
        "branch-checked-out"
    );
    repo.git(&["worktree", "remove", "../linked"]);
    repo.sh_in(
        repo.dir(),
        "git branch next; git switch -q next; git commit -q --allow-empty -m n; git switch -q main",
    );
    let merged = told(&tine, 0, &["merge", "next", "--into", "main", "--delete"]);
    assert_eq!(merged["sources"][0]["deleted_branch"], "next");
    assert_eq!(repo.git(&["branch", "--list", "next"]), "");
}

#[test]
fn a_fork_is_not_merged_into_itself() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    std::fs::write(dir.join("new.txt"), "new").unwrap();
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    for arguments in [
        &["merge", "demo", "--into", "demo"][..],
        &["merge", "demo", "--into", "demo", "--no-ff"],
    ] {
        let output = tine.run(arguments);
        assert_eq!(output.status.code(), Some(7), "{}", output.error_text());
    }
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), head);
    assert_eq!(repo.git_in(&dir, &["status", "--short"]), "?? new.txt");
}

#[test]
fn what_is_staged_in_the_target_stays_staged() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let script = "echo staged > staged.txt; echo x >> README.md; git add -A; echo more >> staged.txt; echo y >> docs/guide.md";
    repo.sh_in(&dir, script);
    let before = repo.status(&dir);
    assert_eq!(before, "M  README.md\n M docs/guide.md\nAM staged.txt");
    repo.commit_files(&[("new.txt", b"new")], "Go on");
    tine.ok(&["merge", "main", "--into", "work"]);
    assert_eq!(repo.status(&dir), before);
    assert_eq!(repo.git_in(&dir, &["show", ":staged.txt"]), "staged");
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), repo.head());
    tine.ok(&["undo", "work"]);
    assert_eq!(repo.status(&dir), before);
    // What is staged is in the way as what is not.
    repo.commit_files(&[("README.md", b"other")], "Change it");
    tine.fails(3, &["merge", "main", "--into", "work"]);
    assert_eq!(repo.status(&dir), before);
}

#[test]
fn markers_begin_the_merge_in_the_mount_where_git_goes_on() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = conflicting(&repo, &tine);
    repo.sh_in(&dir, "git add -A; git commit -qm work");
    let into_work = ["merge", "main", "--into", "fork:work", "--markers=diff3"];
    let list = || std::fs::read_to_string(dir.join("list.txt")).unwrap();
    let before = list();

    let merged = told(&tine, 3, &into_work);
    assert_eq!(each(&merged["conflicts"], "path"), ["list.txt"]);
    let conflict = list();
    for line in [
        "<<<<<<< HEAD\ntwo\n",
        "||||||| ",
        "\n2\n=======\nzwei\n>>>>>>> ",
    ] {
        assert!(conflict.contains(line), "{conflict}");
    }
    let status = repo.git_in(&dir, &["status", "--short"]);
    assert!(status.lines().any(|line| line == "UU list.txt"), "{status}");
    merge_refused(&repo, &tine, &into_work, "operation-in-progress", 3);
    repo.git_in(&dir, &["merge", "--abort"]);
    assert_eq!(list(), before);
    assert_eq!(repo.git_in(&dir, &["status", "--short"]), "");

    told(&tine, 3, &into_work);
    repo.sh_in(
        &dir,
        "sed -i '/^[<|=>]/d' list.txt; git add -A; git commit -qm both",
    );
    tine.ok(&["status", "work"]);
    assert_eq!(
        parents(&repo, "tine/work"),
        ["tine/work~1", "main"].map(|revision| repo.git(&["rev-parse", revision]))
    );
    assert_agreement(&repo, &tine, "work", "");

    tine.ok(&["unmount", "work"]);
    repo.git(&["branch", "-f", "tine/other", "tine/work~1"]);
    merge_refused(
        &repo,
        &tine,
        &["merge", "main", "--into", "tine/other", "--markers"],
        "not-mounted",
        5,
    );
}
