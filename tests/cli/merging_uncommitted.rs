//! What is uncommitted in the sources and in the target of a merge: where it goes, past which hooks
//! it does not, and that a merge which changes nothing says so.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::merging::{
    conflicting, content_at, each, everything, fork_with_work, main_goes_on, merge_refused,
    parents, repo_with_list, set_line, told,
};
use crate::support::{TestRepo, Tine, assert_agreement, require_fuse};

/// As [`repo_with_list`], where what is uncommitted goes into no branch by itself.
fn strict_repo() -> TestRepo {
    let repo = repo_with_list();
    repo.git(&["config", "--unset", "tine.mergeUncommitted"]);
    repo
}

#[test]
fn what_is_uncommitted_goes_into_a_branch_only_when_that_is_said() {
    require_fuse!();
    let repo = strict_repo();
    let tine = Tine::new(&repo);
    let dir = fork_with_work(&repo, &tine);
    for args in [
        &["merge", "work"][..],
        &["merge", "work", "--dry-run"],
        &["merge", "work", "--review"],
        &["merge", "work", "--into", "branch:main"],
    ] {
        let failure = merge_refused(&repo, &tine, args, "uncommitted-changes", 3);
        assert_eq!(
            failure["paths"],
            json!(["list.txt", "work.txt"]),
            "{args:?}"
        );
        assert_eq!(
            failure["causes"],
            json!(["list.txt", "work.txt"]),
            "{args:?}"
        );
        let hint = failure["hint"].as_str().unwrap();
        assert!(
            hint.contains("`tine commit work") && hint.contains("--with-uncommitted"),
            "{hint}"
        );
    }
    // A fork that is named takes it, and it is committed in its own fork.
    tine.ok(&["new", "taker", "--no-mount"]);
    told(&tine, 0, &["merge", "work", "--into", "taker"]);
    assert_agreement(&repo, &tine, "work", "");
    repo.sh_in(&dir, "echo later > later.txt");
    merge_refused(&repo, &tine, &["merge", "work"], "uncommitted-changes", 3);
    let merged = told(&tine, 0, &["merge", "work", "--with-uncommitted"]);
    assert!(merged["sources"][0]["committed"].is_string());
    assert_eq!(content_at(&repo, "main", "later.txt"), "later");
    repo.git(&["config", "tine.mergeUncommitted", "true"]);
    repo.sh_in(&dir, "echo more > more.txt");
    told(&tine, 0, &["merge", "work"]);
    assert_eq!(content_at(&repo, "main", "more.txt"), "more");
    // What somebody committed needs no word.
    repo.git(&["config", "tine.mergeUncommitted", "false"]);
    repo.sh_in(&dir, "echo own > own.txt");
    tine.ok(&["commit", "work", "-m", "own"]);
    told(&tine, 0, &["merge", "work"]);
    // A policy says it.
    repo.sh_in(&dir, "echo end > end.txt");
    tine.ok(&["unmount", "work", "--merge"]);
    assert_eq!(content_at(&repo, "main", "end.txt"), "end");
}

/// A hook that notes what it was given and sees.
fn hook(repo: &TestRepo, name: &str, script: &str) {
    let log = repo.root().join("hooks.log");
    let note = format!(
        "printf '%s %s\\n' {name} \"$(basename \"$PWD\")\" >> '{}'",
        log.display()
    );
    repo.hook(name, &format!("{note}\n{script}"));
}

fn noted(repo: &TestRepo) -> Vec<String> {
    let log = repo.root().join("hooks.log");
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    std::fs::write(&log, "").unwrap();
    text.lines().map(str::to_owned).collect()
}

fn base_name(dir: &Path) -> &str {
    dir.file_name().unwrap().to_str().unwrap()
}

#[test]
fn a_merge_goes_through_the_hooks_of_its_sources_and_of_its_target() {
    require_fuse!();
    let repo = strict_repo();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    main_goes_on(&repo, "acht");
    hook(&repo, "pre-commit", "test ! -e forbidden");
    hook(
        &repo,
        "pre-merge-commit",
        "git cat-file -e :work.txt && test ! -e forbidden-merge",
    );
    hook(&repo, "prepare-commit-msg", "");
    hook(
        &repo,
        "commit-msg",
        "echo \"Seen-by: ${2-} hook\" >> \"$1\"",
    );
    hook(&repo, "post-commit", "");
    let main = base_name(repo.dir()).to_owned();
    noted(&repo);
    let dir = tine.ok(&["path", "work"]);

    // A hook of either that refuses keeps all from being merged, and from being committed.
    let merge = ["merge", "work", "--with-uncommitted"];
    std::fs::write(Path::new(&dir).join("forbidden"), "").unwrap();
    merge_refused(&repo, &tine, &merge, "hook-refused", 3);
    std::fs::remove_file(Path::new(&dir).join("forbidden")).unwrap();
    std::fs::write(repo.dir().join("forbidden-merge"), "").unwrap();
    merge_refused(&repo, &tine, &merge, "hook-refused", 3);
    std::fs::remove_file(repo.dir().join("forbidden-merge")).unwrap();
    noted(&repo);

    let merged = told(&tine, 0, &merge);
    let after = merged["after"].as_str().unwrap();
    assert_eq!(
        noted(&repo),
        [
            format!("pre-merge-commit {main}"),
            format!("prepare-commit-msg {main}"),
            format!("commit-msg {main}"),
            "pre-commit work".to_owned(),
            "prepare-commit-msg work".to_owned(),
            "commit-msg work".to_owned(),
            "post-commit work".to_owned(),
        ]
    );
    for commit in [after, &parents(&repo, after)[1]] {
        let message = repo.git(&["show", "-s", "--format=%B", commit]);
        assert!(message.contains("Seen-by:"), "{message}");
    }
    assert_eq!(
        merged["sources"][0]["committed"],
        json!(parents(&repo, after)[1])
    );
    assert!(!repo.git_dir().join("MERGE_MSG").exists());
    assert_eq!(repo.status(repo.dir()), "");
    assert_agreement(&repo, &tine, "work", "");
}

#[test]
fn two_forks_that_are_dirty_at_one_path_are_merged() {
    require_fuse!();
    let repo = strict_repo();
    let tine = Tine::new(&repo);
    let work = fork_with_work(&repo, &tine);
    let target = tine.new_fork("target");
    set_line(&repo, &target, 8, "mine");
    let merged = told(&tine, 0, &["merge", "work", "--into", "target"]);
    assert_eq!(merged["status"], "merged");
    let both = "1\ntwo\n3\n4\n5\n6\n7\nmine\n9\n";
    assert_eq!(
        std::fs::read_to_string(target.join("list.txt")).unwrap(),
        both
    );
    assert_eq!(
        content_at(&repo, "tine/target", "list.txt"),
        "1\ntwo\n3\n4\n5\n6\n7\n8\n9",
        "what is the target's stays uncommitted"
    );
    assert_agreement(&repo, &tine, "target", "M\tlist.txt");
    tine.ok(&["undo", "target"]);
    assert_eq!(
        std::fs::read_to_string(target.join("list.txt")).unwrap(),
        "1\n2\n3\n4\n5\n6\n7\nmine\n9\n"
    );
    assert_agreement(&repo, &tine, "target", "M\tlist.txt");
    tine.ok(&["redo", "target"]);
    assert_eq!(
        std::fs::read_to_string(target.join("list.txt")).unwrap(),
        both
    );
    tine.ok(&["undo", "target"]);

    // At one line: conflicts are values, and change nothing.
    set_line(&repo, &target, 2, "mine, too");
    let before = everything(&repo, &tine);
    for args in [&["--dry-run"][..], &[]] {
        let merged = told(
            &tine,
            3,
            &[&["merge", "work", "--into", "target"], args].concat(),
        );
        assert_eq!(merged["status"], "conflicts");
        assert_eq!(each(&merged["conflicts"], "path"), ["list.txt"]);
        assert_eq!(merged["conflicts"][0]["of"], "what is uncommitted");
        assert_eq!(
            merged["conflicts"][0]["hunks"][0]["ours"],
            json!({"text": "mine, too\n"})
        );
    }
    assert_eq!(everything(&repo, &tine), before);
    told(
        &tine,
        0,
        &["merge", "work", "--into", "target", "--strategy", "theirs"],
    );
    assert_eq!(
        std::fs::read_to_string(target.join("list.txt")).unwrap(),
        both
    );
    tine.ok(&["undo", "target"]);

    // In a review, too; it comes up when what is committed conflicts no more.
    repo.sh_in(&work, "echo theirs > README.md");
    tine.ok(&["commit", "work", "-m", "readme"]);
    repo.sh_in(
        &target,
        "echo ours > README.md; git commit -q README.md -m readme",
    );
    let merged = told(&tine, 3, &["merge", "work", "--into", "target", "--review"]);
    assert_eq!(each(&merged["conflicts"], "path"), ["README.md"]);
    let review = merged["review"].to_string();
    tine.ok(&["resolve", &review, "README.md", "--ours"]);
    let shown = tine.json(&["review", "show", &review]);
    assert_eq!(each(&shown["conflicts"], "path"), ["README.md", "list.txt"]);
    assert_eq!(shown["open"], 1);
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    // What is changed beside it does not matter.
    repo.sh_in(&target, "echo more > more.txt");
    told(&tine, 0, &["review", "commit", &review]);
    assert_eq!(
        std::fs::read_to_string(target.join("list.txt")).unwrap(),
        both
    );
    assert_eq!(content_at(&repo, "tine/target", "README.md"), "ours");
    assert_agreement(&repo, &tine, "target", "M\tlist.txt\nA\tmore.txt");
}

#[test]
fn what_was_not_merged_is_not_said_to_be() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    repo.sh_in(&tine.new_fork("fine"), "echo fine > fine.txt");
    let text = |args: &[&str]| {
        let output = tine.run(&[&["merge", "fine", "work", "--into", "main"], args].concat());
        assert_eq!(output.status.code(), Some(3));
        crate::support::OutputExt::text(&output)
    };
    let refused = text(&["--all-or-nothing"]);
    assert!(
        refused.contains("fine would be merged into main"),
        "{refused}"
    );
    assert!(refused.contains("nothing was changed"), "{refused}");
    let merged = told(
        &tine,
        3,
        &[
            "merge",
            "fine",
            "work",
            "--into",
            "main",
            "--all-or-nothing",
        ],
    );
    assert_eq!(merged["sources"][0]["commit"], json!(null));
    let planned = text(&["--dry-run"]);
    assert!(
        planned.contains("fine would be merged into main"),
        "{planned}"
    );
    assert!(
        planned.contains("what comes before would be merged"),
        "{planned}"
    );
    let planned = text(&["--dry-run", "--all-or-nothing"]);
    assert!(planned.contains("nothing would be changed"), "{planned}");
    let before = repo.head();
    assert!(text(&[]).contains("what came before is merged"));
    assert_ne!(repo.head(), before);
    // A resolver that leaves something open is told of as the merge that it was asked for.
    let merged = told(
        &tine,
        3,
        &[
            "merge",
            "work",
            "--into",
            "main",
            "--resolver",
            "echo '{\"resolution\": \"skip\"}'",
        ],
    );
    assert_eq!(merged["status"], "conflicts");
    assert_eq!(merged["target"]["branch"], "main");
    assert!(merged["review"].is_number());
}

#[test]
fn a_handoff_whose_application_is_taken_back_is_not_applied() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    tine.ok(&["commit", "work", "-m", "work"]);
    tine.ok(&["handoff", "create", "work"]);
    tine.ok(&["new", "target", "--no-mount"]);
    let apply = ["handoff", "apply", "1", "--into", "target"];
    tine.ok(&apply);
    assert_eq!(
        tine.json(&["handoff", "show", "1"])["applied_to"],
        "fork:target"
    );
    tine.ok(&["undo", "target"]);
    assert_eq!(
        tine.json(&["handoff", "show", "1"])["applied_to"],
        json!(null)
    );
    tine.ok(&apply);
    assert_eq!(tine.ok(&["cat", "--fork", "target", "work.txt"]), "work");
}

#[test]
fn what_is_written_while_a_hook_runs_goes_into_no_branch() {
    require_fuse!();
    let repo = strict_repo();
    let tine = Tine::new(&repo);
    let dir = fork_with_work(&repo, &tine);
    tine.ok(&["commit", "work", "-m", "work"]);
    main_goes_on(&repo, "acht");
    let tip = repo.git(&["rev-parse", "tine/work"]);
    let hook = repo.common_dir().join("hooks/pre-merge-commit");
    repo.sh_in(repo.dir(), "mkdir -p .git/hooks");
    std::fs::write(
        &hook,
        format!("#!/bin/sh\necho draft > '{}/draft'\n", dir.display()),
    )
    .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let before = repo.head();
    let refused = tine.fails(3, &["merge", "work"]);
    assert!(
        refused.contains("not committed") && refused.contains("draft"),
        "{refused}"
    );
    assert_eq!(
        (repo.head(), repo.git(&["rev-parse", "tine/work"])),
        (before, tip)
    );

    tine.ok(&["merge", "work", "--with-uncommitted"]);
    assert_eq!(content_at(&repo, "main", "draft"), "draft");
}

#[test]
fn nothing_is_committed_for_a_merge_into_a_branch_that_is_locked() {
    require_fuse!();
    let repo = strict_repo();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    repo.git(&["branch", "aside"]);
    for branch in ["main", "aside"] {
        let lock = repo.common_dir().join(format!("refs/heads/{branch}.lock"));
        std::fs::write(&lock, "").unwrap();
        let args = ["merge", "work", "--with-uncommitted", "--into", branch];
        merge_refused(&repo, &tine, &args, "ref-locked", 5);
        std::fs::remove_file(&lock).unwrap();
    }
    tine.ok(&["merge", "work", "--with-uncommitted"]);
}

#[test]
fn a_merge_that_fails_says_what_was_committed_for_it() {
    require_fuse!();
    let repo = strict_repo();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    let hook = repo.common_dir().join("hooks/reference-transaction");
    repo.sh_in(repo.dir(), "mkdir -p .git/hooks");
    std::fs::write(
        &hook,
        "#!/bin/sh\n[ \"$1\" != prepared ] || ! grep -q refs/heads/main\n",
    )
    .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = tine.fails(1, &["merge", "work", "--with-uncommitted"]);
    let tip = repo.git(&["rev-parse", "tine/work"]);
    assert!(
        refused.contains(&format!(
            "what was uncommitted in work is committed there, as {tip}"
        )),
        "{refused}"
    );
}
