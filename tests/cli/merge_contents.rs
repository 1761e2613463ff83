//! What is merged: rules of `.gitattributes`, line endings, repositories of every kind, histories
//! that do not belong together, and words that mean nothing.

use std::path::PathBuf;

use serde_json::json;

use crate::merging::{
    conflicting, content_at, each, fork_with_work, main_goes_on, merge_refused, parents,
    repo_with_list, set_line, told,
};
use crate::support::{OutputExt, TestRepo, Tine, assert_agreement, require_fuse, run_with_timeout};

#[test]
fn words_that_mean_nothing_are_refused() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let work = fork_with_work(&repo, &tine);
    for (args, code, exit) in [
        (&["nowhere", "--into", "main"][..], "no-such-point", 4),
        (&["work@nothing", "--into", "main"], "no-such-point", 4),
        (&["nobody@then", "--into", "main"], "no-such-point", 4),
        (&["work", "--into", "nowhere"], "unknown-revision", 4),
        (&["work", "--into", "fork:nobody"], "no-such-fork", 4),
        (&["work", "--into", "HEAD"], "invalid-branch", 2),
        (&["work", "--base", "nowhere"], "unknown-revision", 4),
        (
            &["work", "main", "nowhere", "--into", "main"],
            "no-such-point",
            4,
        ),
        (&["work", "--ff-only", "--no-ff"], "usage", 2),
        (&["work", "--review", "--dry-run"], "usage", 2),
        (&["work", "--auto-commit"], "usage", 2),
        (&["work", "-m", " "], "empty-message", 2),
        (&[], "usage", 2),
    ] {
        if args == ["work", "-m", " "] {
            main_goes_on(&repo, "acht");
        }
        merge_refused(&repo, &tine, &[&["merge"], args].concat(), code, exit);
    }
    // A source that git is in the middle of.
    repo.sh_in(
        &work,
        "git commit -qam x; git rebase -q --exec false HEAD~ 2> /dev/null || true",
    );
    merge_refused(&repo, &tine, &["merge", "work"], "operation-in-progress", 3);
}

#[test]
fn histories_that_have_nothing_in_common_are_merged_only_when_asked() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    repo.sh_in(
        repo.dir(),
        "git switch -q --orphan apart; echo apart > apart.txt; git add apart.txt; git commit -qm apart; git switch -q main",
    );
    merge_refused(
        &repo,
        &tine,
        &["merge", "work", "--into", "apart"],
        "unrelated-histories",
        3,
    );
    merge_refused(
        &repo,
        &tine,
        &["merge", "apart", "--into", "work"],
        "unrelated-histories",
        3,
    );
    let merged = told(
        &tine,
        0,
        &["merge", "work", "--into", "apart", "--allow-unrelated"],
    );
    assert_eq!(parents(&repo, merged["after"].as_str().unwrap()).len(), 2);
    assert_eq!(content_at(&repo, "apart", "work.txt"), "work");
    assert_eq!(content_at(&repo, "apart", "apart.txt"), "apart");
    // A fork on a branch without a commit takes all of it.
    let unborn = TestRepo::unborn();
    let tine = Tine::new(&unborn);
    assert_ne!(
        tine.run(&["merge", "main", "--into", "main"]).status.code(),
        Some(0)
    );
}

#[test]
fn attributes_say_how_files_are_merged() {
    require_fuse!();
    let repo = repo_with_list();
    repo.sh_in(
        repo.dir(),
        "printf '*.b binary\\n*.u merge=union\\n*.d merge=both\\n*.crlf text eol=crlf\\n' > .gitattributes
         for f in x.b x.u x.d x.crlf; do printf '1\\n2\\n3\\n' > $f; done
         git config merge.both.driver 'cat %A %B > %A.new && mv %A.new %A'
         git add -A; git commit -qm rules",
    );
    let tine = Tine::new(&repo);
    let work = tine.new_fork("work");
    repo.sh_in(
        &work,
        "for f in x.b x.u x.d; do sed -i 2s/.*/theirs/ $f; done; sed -i '3s/.*/theirs\\r/' x.crlf",
    );
    repo.sh_in(repo.dir(), "for f in x.b x.u x.d; do sed -i 2s/.*/ours/ $f; done; sed -i '1s/.*/ours\\r/' x.crlf; git commit -qam ours");
    let merged = told(&tine, 3, &["merge", "work"]);
    assert_eq!(each(&merged["conflicts"], "path"), ["x.b"]);
    assert_eq!(each(&merged["conflicts"], "kind"), ["binary"]);
    let target = tine.new_fork("target");
    repo.sh_in(&target, "cat x.*");
    for into in ["target", "main"] {
        tine.ok(&["merge", "work", "--into", into, "--strategy", "ours"]);
        let dir = if into == "main" {
            repo.dir()
        } else {
            target.as_path()
        };
        assert_eq!(repo.sh_in(dir, "cat x.b"), "1\nours\n3");
        assert_eq!(repo.sh_in(dir, "cat x.u"), "1\nours\ntheirs\n3");
        assert_eq!(repo.sh_in(dir, "cat x.d"), "1\nours\n3\n1\ntheirs\n3");
        assert_eq!(repo.sh_in(dir, "cat x.crlf"), "ours\r\n2\r\ntheirs\r");
        assert_eq!(repo.status(dir), "", "{into}");
    }
    assert_agreement(&repo, &tine, "target", "");
    assert_eq!(content_at(&repo, "main", "x.crlf"), "ours\n2\ntheirs");
    // git, asked to do the same, makes the same tree.
    let theirs = repo.git(&[
        "merge-tree",
        "--write-tree",
        "-X",
        "ours",
        "main^1",
        "main^2",
    ]);
    assert_eq!(
        theirs.lines().next().unwrap(),
        repo.git(&["rev-parse", "main^{tree}"])
    );
}

/// Forks of a repository are merged into each other, and into a branch; conflicts become a review.
fn is_merged_as_anywhere(repo: &TestRepo, branch: &str) {
    repo.git(&["config", "tine.mergeUncommitted", "true"]);
    let tine = Tine::new(repo);
    let [a, b] = ["a", "b"].map(|name| tine.new_fork(name));
    repo.sh_in(
        &a,
        "echo a > a.txt; echo a >> docs/guide.md; echo a > README.md",
    );
    repo.sh_in(&b, "echo b > b.txt; echo b > README.md; git rm -qr src");
    let merged = told(&tine, 0, &["merge", "a", "--into", branch]);
    assert_eq!(merged["sources"][0]["how"], "fast-forward");
    let merged = told(&tine, 3, &["merge", "b", "--into", "a", "--review"]);
    assert_eq!(each(&merged["conflicts"], "path"), ["README.md"]);
    tine.ok(&["resolve", "1", "README.md", "--theirs"]);
    tine.ok(&["review", "commit", "1"]);
    assert_agreement(repo, &tine, "a", "");
    assert_agreement(repo, &tine, "b", "");
    assert_eq!(
        repo.sh_in(&a, "cat a.txt b.txt README.md; ls"),
        "a\nb\nb\na.txt\nb.txt\ndangling\ndata\ndocs\nlink\nREADME.md\nrun.sh"
            .replace("link\nREADME.md", "link")
            .replace("a\nb\nb\na.txt", "a\nb\nb\nREADME.md\na.txt")
    );
    tine.ok(&["merge", "a", "--into", branch]);
    assert_eq!(content_at(repo, branch, "b.txt"), "b");
    tine.ok(&["undo", "a"]);
    assert_agreement(repo, &tine, "a", "");
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn ids_of_256_bits_and_repositories_without_a_checkout_are_merged_alike() {
    require_fuse!();
    is_merged_as_anywhere(&TestRepo::sha256(), "main");
    is_merged_as_anywhere(&TestRepo::bare(), "main");
    is_merged_as_anywhere(&TestRepo::linked_worktree(), "linked");
}

#[test]
fn a_fork_is_merged_when_it_is_unmounted() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = fork_with_work(&repo, &tine);
    repo.git(&["branch", "away"]);
    // Refused before anything is unmounted.
    merge_refused(
        &repo,
        &tine,
        &["unmount", "work", "--merge", "-m", " "],
        "empty-message",
        2,
    );
    merge_refused(
        &repo,
        &tine,
        &["unmount", "work", "--merge", "--commit", "-m", "x"],
        "usage",
        2,
    );
    let unmounted = told(
        &tine,
        0,
        &["unmount", "work", "--merge=away", "-m", "Take it"],
    );
    assert_eq!(unmounted["merge"]["status"], "merged");
    assert_eq!(content_at(&repo, "away", "work.txt"), "work");
    assert!(!dir.join("work.txt").exists(), "it is unmounted");
    assert_agreement(&repo, &tine, "work", "");
    tine.ok(&["mount", "work"]);
    let said = tine.ok(&["unmount", "work", "--merge"]);
    assert!(said.contains("merged into main"), "{said}");
    assert_eq!(
        std::fs::read_to_string(repo.dir().join("work.txt")).unwrap(),
        "work\n"
    );
    tine.ok(&["mount", "work"]);
    assert!(
        tine.ok(&["unmount", "work", "--merge"])
            .contains("main has all of it")
    );
}

#[test]
fn a_fork_that_conflicts_when_it_is_unmounted_is_whole_and_a_review() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let (main, changes) = (repo.head(), tine.ok(&["diff", "work"]));
    let output = tine.run(&["unmount", "work", "--merge"]);
    assert_eq!(output.status.code(), Some(3), "{}", output.error_text());
    assert!(
        output.text().contains("tine review show 1"),
        "{}",
        output.text()
    );
    assert_eq!(repo.head(), main);
    assert_eq!(tine.ok(&["diff", "work"]), changes);
    tine.ok(&["mount", "work"]);
    let unmounted = told(&tine, 3, &["unmount", "work", "--merge"]);
    assert_eq!(unmounted["merge"]["review"], 1, "it is the same merge");
    tine.ok(&["resolve", "1", "list.txt", "--theirs"]);
    tine.ok(&["review", "commit", "1"]);
    assert_eq!(content_at(&repo, "main", "work.txt"), "work");
    // Where the target refuses it is whole, too.
    tine.ok(&["mount", "work"]);
    let dir = PathBuf::from(tine.ok(&["path", "work"]));
    repo.sh_in(&dir, "echo on > on.txt");
    repo.write("on.txt", "in the way");
    let said = tine.fails(3, &["unmount", "work", "--merge"]);
    assert!(
        said.contains("work is unmounted and whole, but was not merged"),
        "{said}"
    );
    assert_eq!(tine.ok(&["cat", "--fork", "work", "on.txt"]), "on");
    assert_eq!(tine.ok(&["diff", "work", "--name-status"]), "A\ton.txt");
}

#[test]
fn a_policy_merges_when_the_mount_goes_from_outside() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    repo.git(&["branch", "away"]);
    let dir = PathBuf::from(tine.ok(&["new", "work", "--on-unmount", "merge:away"]));
    let umount = || {
        run_with_timeout(repo.command("umount", repo.root()).arg(&dir)).expect_success("umount");
    };
    repo.sh_in(&dir, "echo work > work.txt");
    umount();
    crate::support::wait_until("the merge", crate::support::command::DEFAULT_LIMIT, || {
        repo.try_git_in(repo.dir(), &["cat-file", "-e", "away:work.txt"])
            .status
            .success()
    });
    assert_agreement(&repo, &tine, "work", "");
    // With conflicts it is a review, and the list tells.
    tine.ok(&["mount", "work"]);
    set_line(&repo, &dir, 2, "two");
    tine.ok(&["new", "other"]);
    set_line(
        &repo,
        &PathBuf::from(tine.ok(&["path", "other"])),
        2,
        "zwei",
    );
    tine.ok(&["merge", "other", "--into", "away"]);
    umount();
    crate::support::wait_until("the review", crate::support::command::DEFAULT_LIMIT, || {
        tine.json(&["review", "list"])["reviews"] != json!([])
    });
    crate::support::wait_until(
        "the trouble",
        crate::support::command::DEFAULT_LIMIT,
        || {
            tine.json(&["list"])
                .to_string()
                .contains("tine review show 1")
        },
    );
    assert_eq!(tine.ok(&["diff", "work", "--name-status"]), "M\tlist.txt");
    tine.ok(&["resolve", "1", "list.txt", "--theirs"]);
    tine.ok(&["review", "commit", "1"]);
    assert_eq!(
        content_at(&repo, "away", "list.txt"),
        "1\ntwo\n3\n4\n5\n6\n7\n8\n9"
    );
}
