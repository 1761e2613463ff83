//! What git programs do in a fork arrives in the main repository.

use super::*;
use crate::own::{OthersMove, OwnBranch};

#[test]
fn commits_arrive_and_objects_leave() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    let taken = fork.take_all();
    assert_eq!(taken.branch, Some(OwnBranch::Same));
    fork.write("new", "new\n");
    let tip = fork.commit("Add a file");
    assert_eq!(fork.loose_objects(), 3);
    let taken = fork.take_all();
    assert_eq!(taken.branch, Some(OwnBranch::Moved { to: tip }));
    assert_eq!(main.id_of("tine/f"), tip);
    assert_eq!(fork.loose_objects(), 0);
    assert_eq!(packs(&main.dir().join(".git")), 0);
    let log = main.git(&["reflog", "-1", "--format=%gs %gn <%ge>", "tine/f"]);
    assert_eq!(log, "commit: Add a file F Orker <fork@example.com>");
    fork.prune_main();
    assert!(!main.dir().join(".git/objects/tine-incoming-f").exists());
    let again = fork.take_all();
    assert!(again.changed.is_empty());
    assert_eq!(again.branch, Some(OwnBranch::Same));
}

#[test]
fn all_kinds_of_refs_and_operations_arrive() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    let step = |name: &str| {
        let taken = fork.take_all();
        assert!(!taken.is_pending, "{name}");
        fork.prune_main();
        let left = fork.loose_objects();
        assert_eq!(left, 0, "after {name}");
    };
    fork.write("x", "1\n");
    fork.commit("one");
    step("commit");
    fork.write("x", "2\n");
    fork.git(&["commit", "-qam", "two"]);
    let before = fork.id_of("HEAD");
    step("second commit");
    fork.git(&["commit", "-q", "--amend", "-m", "two, amended"]);
    step("amend");
    assert_eq!(main.id_of("tine/f"), fork.id_of("HEAD"));
    let keeper = fork.kept("git/logs").unwrap();
    assert_eq!(
        main.git(&["log", "-1", "--format=%P", &keeper.to_string()]),
        before.to_string()
    );
    fork.git(&["tag", "light"]);
    fork.git(&["tag", "-a", "-m", "heavy", "heavy"]);
    let blob = fork.git_with_input(&["hash-object", "-w", "--stdin"], b"a blob\n");
    fork.git(&["tag", "blob", &blob]);
    fork.git(&["tag", "tree", "HEAD^{tree}"]);
    step("tags");
    fork.git(&["notes", "add", "-m", "a note"]);
    step("notes");
    fork.write("x", "stashed\n");
    fork.write("untracked", "stashed too\n");
    fork.git(&["stash", "-q", "-u"]);
    fork.write("x", "stashed again\n");
    fork.git(&["stash", "-q"]);
    step("stash");
    fork.git(&["stash", "drop", "-q"]);
    step("stash drop");
    fork.git(&["switch", "-q", "-c", "topic/a", "HEAD~2"]);
    fork.write("y", "topic\n");
    fork.commit("topic");
    step("topic");
    fork.write("x", "conflict\n");
    fork.commit("conflict");
    step("conflicting");
    assert!(!fork.try_git(&["merge", "-q", "tine/f"]).status.success());
    step("stopped merge");
    assert_eq!(
        fork.kept("git/pseudo/MERGE_HEAD"),
        Some(fork.id_of("tine/f"))
    );
    assert!(fork.kept("git/pseudo/AUTO_MERGE").is_some());
    fork.write("x", "resolved\n");
    fork.git(&["commit", "-qam", "merged"]);
    step("merge");
    assert_eq!(fork.kept("git/pseudo/MERGE_HEAD"), None);
    fork.git(&["reset", "-q", "--hard", "HEAD^"]);
    step("reset");
    assert!(!fork.try_git(&["rebase", "-q", "tine/f"]).status.success());
    step("stopped rebase");
    assert!(fork.kept("git/pseudo/rebase-merge/onto").is_some());
    fork.write("x", "rebased\n");
    fork.git(&["add", "-A"]);
    fork.git(&["rebase", "--continue"]);
    step("rebase");
    fork.git(&["switch", "-q", "--detach", "HEAD~1"]);
    fork.commit("detached");
    step("detached");
    fork.git(&["switch", "-q", "tine/f"]);
    step("switched");
    fork.git(&["branch", "-q", "-D", "topic/a"]);
    fork.git(&["tag", "-d", "blob"]);
    step("deleted");
    fork.git(&["gc", "-q", "--prune=now"]);
    fork.take_all();
    fork.git(&["reflog", "expire", "--expire=now", "--all"]);
    fork.git(&["gc", "-q", "--prune=now"]);
    fork.take_all();
    fork.git(&["bisect", "start", "HEAD", "HEAD~2"]);
    step("bisect");
    fork.git(&["bisect", "reset"]);
    step("bisect reset");
}

#[test]
fn names_become_directories_and_the_reverse() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    for name in ["a", "a/b", "a", "a/b/c"] {
        fork.git(&["branch", "-q", name]);
        fork.take_all();
        main.git(&["pack-refs", "--all"]);
        fork.git(&["branch", "-q", "-D", name]);
        fork.git(&["branch", "-q", &format!("{name}/x")]);
        fork.take_all();
        fork.git(&["branch", "-q", "-D", &format!("{name}/x")]);
    }
    fork.take_all();
    let left = main.git(&["for-each-ref", "refs/tine/f/git-between"]);
    assert_eq!(left, "");
}

#[test]
fn packs_arrive_and_leave() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    for n in 0..5 {
        fork.write(&format!("file{n}"), format!("{n}\n"));
        fork.commit("more");
    }
    fork.git(&["repack", "-q", "-d", "-l"]);
    assert_eq!(packs(&fork.git_dir), 1);
    fork.take_all();
    assert_eq!(packs(&fork.git_dir), 0);
    fork.prune_main();
    for n in 0..3 {
        fork.write(&format!("second{n}"), format!("{n}\n"));
        fork.commit("more");
        fork.git(&["repack", "-q", "-d", "-l"]);
    }
    fork.write("staged", "staged only\n");
    fork.git(&["add", "staged"]);
    let staged = fork.id_of(":staged").to_string();
    let prefix = fork.git_dir.join("objects/pack/pack");
    let pack = ["pack-objects", "-q", prefix.to_str().unwrap()];
    fork.git_with_input(&pack, format!("{staged}\n").as_bytes());
    fork.git(&["prune-packed", "-q"]);
    fork.take_all();
    fork.prune_main();
    fork.git(&["cat-file", "blob", &staged]);
}

#[test]
fn many_files_arrive_as_one_pack() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    for n in 0..150 {
        fork.write(&format!("many/{n}"), format!("{n}\n"));
    }
    fork.commit("many");
    let before = packs(&main.dir().join(".git"));
    fork.take_all();
    assert_eq!(packs(&main.dir().join(".git")), before + 1);
    assert_eq!(fork.loose_objects(), 0);
    fork.prune_main();
}

#[test]
fn sha256_and_shallow_and_worktrees() {
    let main = with_commits(TestRepository::with_options(&["--object-format=sha256"]));
    let fork = Fork::new(&main, "f");
    fork.write("x", "1\n");
    fork.commit("one");
    fork.take_all();
    for n in 0..120 {
        fork.write(&format!("many/{n}"), format!("{n}\n"));
    }
    fork.commit("many");
    fork.take_all();
    fork.prune_main();

    let main = main_repository();
    let tip = main.id_of("HEAD");
    fs::write(main.dir().join(".git/shallow"), format!("{tip}\n")).unwrap();
    main.git(&["reflog", "expire", "--expire=now", "--all"]);
    main.git(&["gc", "-q", "--prune=now"]);
    assert!(
        !main
            .try_git(&["cat-file", "-e", "HEAD~1"], b"")
            .status
            .success()
    );
    let fork = Fork::new(&main, "f");
    fork.write("x", "1\n");
    fork.commit("one");
    fork.take_all();
    fork.prune_main();
}

#[test]
fn the_branch_follows_unless_somebody_else_uses_it() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    let base = fork.id_of("HEAD");
    let one = fork.commit("one");
    fork.take_all();
    fork.git(&["reset", "-q", "--hard", &base.to_string()]);
    assert_eq!(fork.take_all().branch, Some(OwnBranch::Moved { to: base }));
    assert_eq!(main.id_of("tine/f"), base);
    main.git(&["switch", "-q", "tine/f"]);
    let two = fork.commit("two");
    let at = main.dir().to_owned();
    assert_eq!(fork.take_all().branch, Some(OwnBranch::CheckedOut { at }));
    assert_eq!(main.id_of("tine/f"), base);
    main.git(&["switch", "-q", "main"]);
    assert_eq!(fork.take_all().branch, Some(OwnBranch::Moved { to: two }));
    main.git(&["branch", "-q", "-f", "tine/f", &one.to_string()]);
    let three = fork.commit("three");
    assert_eq!(
        fork.take_all().branch,
        Some(OwnBranch::MovedByOthers {
            branch: "tine/f".to_owned(),
            at: one,
            way: OthersMove::Rewritten { former: two },
        })
    );
    assert_eq!(main.id_of("tine/f"), one);
    main.git(&["branch", "-q", "-f", "tine/f", &three.to_string()]);
    assert_eq!(fork.take_all().branch, Some(OwnBranch::Same));
    let four = fork.commit("four");
    assert_eq!(fork.take_all().branch, Some(OwnBranch::Moved { to: four }));
    main.git(&["branch", "-q", "-D", "tine/f"]);
    fork.commit("five");
    assert_eq!(fork.take_all().branch, Some(OwnBranch::DeletedInMain));
    fork.git(&["switch", "-q", "--detach"]);
    fork.git(&["branch", "-q", "-D", "tine/f"]);
    assert_eq!(fork.take_all().branch, None);
}

#[test]
fn what_is_staged_stays() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.write("x", "committed\n");
    fork.git(&["add", "x"]);
    fork.git(&["commit", "-q", "-m", "one"]);
    fork.write("y", "staged\n");
    fork.git(&["add", "y"]);
    fork.take_all();
    assert_eq!(fork.loose_objects(), 1);
    fork.prune_main();
}
