//! Where the target of a merge is checked out it follows: forks with and without a mount, checkouts
//! of git's, and nothing that is uncommitted there is lost. What a merge did to a fork can be taken
//! back.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::merging::{
    content_at, each, everything, fork_with_work, main_goes_on, merge_refused, repo_with_list,
    set_line, told,
};
use crate::refused;
use crate::support::{
    OutputExt, TestRepo, Tine, assert_agreement, command::DEFAULT_LIMIT, repo::path_text,
    require_fuse, require_program,
};

/// A program that maps the files named on its command line; prints them whenever it is sent a line,
/// mapped anew.
const MAPPING: &str = "import mmap, sys
held = []
for line in sys.stdin:
    for name in sys.argv[1:]:
        file = open(name, 'rb')
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        held.append((file, mapped))
        sys.stdout.write(mapped[:].decode())
    sys.stdout.write('.\\n')
    sys.stdout.flush()
";

#[test]
fn a_mounted_fork_shows_at_once_what_was_merged() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let target = tine.new_fork("target");
    let work = fork_with_work(&repo, &tine);
    repo.sh_in(
        &work,
        "rm -r docs; rm run.sh; mkdir run.sh; echo in > run.sh/in; ln -sfn src link; chmod 755 README.md",
    );
    // The kernel knows all of it, also what is not there, and a program holds it mapped.
    let look = "find . -path ./.git -prune -o -printf '%p %y %m %l\\n' | sort; cat list.txt README.md; ! stat work.txt 2> /dev/null";
    repo.sh_in(&target, look);
    let mut command = repo.command("python3", &target);
    let mut child = command
        .args(["-c", MAPPING, "list.txt", "README.md"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut mapped = || {
        std::io::Write::write_all(&mut input, b"\n").unwrap();
        let shown: Vec<String> = lines
            .by_ref()
            .map(Result::unwrap)
            .take_while(|line| line != ".")
            .collect();
        shown.join("\n")
    };
    assert!(mapped().contains("\n2\n"));
    let merged = told(&tine, 0, &["merge", "work", "--into", "target"]);
    assert_eq!(merged["target"]["fork"], "target");
    assert!(
        mapped().contains("\ntwo\n"),
        "what is mapped anew is what was merged"
    );
    drop(input);
    child.wait().unwrap();
    repo.assert_same_trees(&work, &target);
    let listed: Vec<_> = std::fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(!listed.contains(&"docs".into()), "{listed:?}");
    assert_agreement(&repo, &tine, "target", "");
    assert_agreement(&repo, &tine, "work", "");
    assert_eq!(
        repo.git_in(&target, &["diff-files"]),
        "",
        "the index knows the files"
    );
    tine.ok(&["unmount", "target"]);
    tine.ok(&["mount", "target"]);
    repo.assert_same_trees(&work, &target);
    // What goes on there is a fork's work as any other.
    repo.sh_in(&target, "echo on > list.txt; git commit -qam on");
    assert_agreement(&repo, &tine, "target", "");
}

#[test]
fn a_fork_without_a_mount_follows_and_what_is_uncommitted_stays() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    for mounted in [false, true] {
        let name = if mounted { "mounted" } else { "not" };
        let target = tine.new_fork(name);
        repo.sh_in(
            &target,
            "echo mine > mine.txt; rm run.sh; echo four >> docs/guide.md; git add -N mine.txt; git reset -q; echo log > x.log",
        );
        if !mounted {
            tine.ok(&["unmount", name]);
        }
        tine.ok(&["merge", "work", "--into", name]);
        let uncommitted = "M\tdocs/guide.md\nA\tmine.txt\nD\trun.sh";
        assert_agreement(&repo, &tine, name, uncommitted);
        assert_eq!(tine.ok(&["cat", "--fork", name, "x.log"]), "log");
        assert_eq!(tine.ok(&["cat", "--fork", name, "work.txt"]), "work");
        tine.kill_daemon();
        assert_agreement(&repo, &tine, name, uncommitted);
        tine.ok(&["mount", name]);
        assert_agreement(&repo, &tine, name, uncommitted);
        assert_eq!(
            tine.ok(&["diff", name, "--against", "work", "--name-status"]),
            uncommitted
        );
    }
}

#[test]
fn what_is_uncommitted_in_a_fork_is_never_overwritten() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let work = fork_with_work(&repo, &tine);
    repo.sh_in(
        &work,
        "mkdir new; echo deep > new/deep; echo noise > kept.log; git add -f kept.log; rm run.sh",
    );
    let target = tine.new_fork("target");
    for (script, back, code) in [
        (
            "echo mine > list.txt",
            "git checkout -q list.txt",
            "conflicts",
        ),
        ("rm list.txt", "git checkout -q list.txt", "conflicts"),
        ("echo mine > work.txt", "rm work.txt", "conflicts"),
        ("ln -s list.txt work.txt", "rm work.txt", "conflicts"),
        ("echo file > new", "rm new", "conflicts"),
        (
            "mkdir work.txt; echo in > work.txt/in",
            "rm -r work.txt",
            "conflicts",
        ),
        ("echo more >> run.sh", "git checkout -q run.sh", "conflicts"),
        ("echo mine > kept.log", "rm kept.log", "in-the-way"),
        (
            "mkdir work.txt; echo in > work.txt/in.log",
            "rm -r work.txt",
            "in-the-way",
        ),
        ("mkfifo work.txt", "rm work.txt", "in-the-way"),
    ] {
        repo.sh_in(&target, script);
        let before = repo.sh_in(&target, "ls -lR --time-style=full-iso");
        let merge = ["merge", "work", "--into", "target"];
        let dry_run = [&merge[..], &["--dry-run"]].concat();
        match code {
            // What git can hold is a side of the merge.
            "conflicts" => {
                let all = everything(&repo, &tine);
                for args in [&merge[..], &dry_run] {
                    let merged = told(&tine, 3, args);
                    assert_eq!(merged["status"], "conflicts", "{script}");
                    assert_eq!(merged["conflicts"].as_array().unwrap().len(), 1, "{script}");
                }
                assert_eq!(everything(&repo, &tine), all, "{script}");
            }
            _ => {
                merge_refused(&repo, &tine, &merge, code, 3);
                merge_refused(&repo, &tine, &dry_run, code, 3);
            }
        }
        assert_eq!(
            repo.sh_in(&target, "ls -lR --time-style=full-iso"),
            before,
            "{script}"
        );
        repo.sh_in(&target, back);
    }
    // The same on both sides is no obstacle.
    repo.sh_in(
        &target,
        "echo work > work.txt; rm run.sh; mkdir new; sed -i '2s/.*/two/' list.txt",
    );
    tine.ok(&["merge", "work", "--into", "target"]);
    assert_agreement(&repo, &tine, "target", "");
    assert_eq!(repo.git_in(&target, &["diff-files"]), "");
}

/// What git itself says: `git merge --ff-only` in a checkout.
fn follows_as_git_does(repo: &TestRepo, tine: &Tine, dir: &Path, branch: &str) {
    let merge = ["merge", "work", "--into", branch];
    for (script, back) in [
        ("echo mine > list.txt", "git checkout -q list.txt"),
        (
            "echo mine > list.txt; git add list.txt",
            "git reset -q --hard",
        ),
        ("echo mine > work.txt", "rm work.txt"),
    ] {
        repo.sh_in(dir, script);
        let status = repo.status(dir);
        merge_refused(repo, tine, &merge, "local-changes", 3);
        assert_eq!(repo.status(dir), status, "{script}");
        repo.sh_in(dir, back);
    }
    repo.sh_in(
        dir,
        "echo mine > mine.txt; echo staged > README.md; git add README.md; echo on >> docs/guide.md",
    );
    let status = repo.status(dir);
    let merged = told(tine, 0, &merge);
    assert_eq!(merged["target"]["checkout"], json!(dir));
    assert_eq!(repo.status(dir), status, "other changes stay");
    assert_eq!(
        std::fs::read_to_string(dir.join("work.txt")).unwrap(),
        "work\n"
    );
    assert_eq!(
        repo.git_in(dir, &["rev-parse", "HEAD"]),
        merged["after"].as_str().unwrap()
    );
    assert_eq!(
        repo.git_in(dir, &["symbolic-ref", "--short", "HEAD"]),
        branch
    );
}

#[test]
fn invariant_14_checkouts_of_git_follow_as_its_fast_forward_does() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    repo.git(&["worktree", "add", "-q", "-b", "linked", "../linked"]);
    let linked = repo.root().join("linked");
    repo.sh_in(
        &linked,
        "echo l > linked.txt; git add linked.txt; git commit -qm linked",
    );
    follows_as_git_does(&repo, &tine, &linked, "linked");
    main_goes_on(&repo, "acht");
    let lock = repo.git_dir().join("index.lock");
    std::fs::write(&lock, "").unwrap();
    merge_refused(
        &repo,
        &tine,
        &["merge", "work", "--into", "main"],
        "index-locked",
        5,
    );
    std::fs::remove_file(&lock).unwrap();
    follows_as_git_does(&repo, &tine, repo.dir(), "main");
}

/// git takes ignored files for expendable; a person's `.env` is not.
#[test]
fn what_git_does_not_track_in_a_checkout_is_never_replaced_by_a_merge() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    repo.sh_in(
        repo.dir(),
        "printf '.env\nbuild\nout/\nnested/\npipe\n' > .gitignore; git add .gitignore; git commit -qm ignore",
    );
    let cases = [
        ("file", "echo theirs > .env", "echo secret > .env", ".env"),
        (
            "file-above",
            "mkdir build; echo theirs > build/in",
            "echo mine > build",
            "build",
        ),
        (
            "file-below",
            "echo theirs > out",
            "mkdir -p out/deep; echo mine > out/deep/in",
            "out/deep/in",
        ),
        (
            "repository",
            "echo theirs > nested",
            "git init -q nested",
            "nested",
        ),
        (
            "in-repository",
            "mkdir nested; echo theirs > nested/in",
            "git init -q nested",
            "nested",
        ),
        ("pipe", "echo theirs > pipe", "mkfifo pipe", "pipe"),
    ];
    for (name, work, here, in_the_way) in cases {
        let fork = tine.new_fork(name);
        repo.sh_in(
            &fork,
            &format!("{work}; git add -f .; git commit -qm {name}"),
        );
        repo.sh_in(repo.dir(), here);
        let before = repo.git(&["rev-parse", "HEAD"]);
        let files = "find . -path ./.git -prune -o -printf '%p %y %s %i\n' | sort";
        let shown = repo.sh_in(repo.dir(), files);
        let refused = tine.run(&["merge", name, "--into", "main"]);
        let text = refused.error_text();
        assert_eq!(refused.status.code(), Some(3), "{name}: {text}");
        assert!(
            text.contains(in_the_way) && text.contains("hint:"),
            "{name}: {text}"
        );
        assert_eq!(repo.sh_in(repo.dir(), files), shown, "{name}");
        assert_eq!(repo.git(&["rev-parse", "HEAD"]), before, "{name}");
        let top = in_the_way.split('/').next().unwrap();
        repo.sh_in(repo.dir(), &format!("rm -rf {top}"));
        tine.ok(&["merge", name, "--into", "main"]);
        assert_eq!(repo.status(repo.dir()), "", "{name}");
        repo.sh_in(
            repo.dir(),
            &format!("git rm -rqf {top}; git commit -qm 'without {name}'"),
        );
        tine.ok(&["delete", name, "--force"]);
    }
}

#[test]
fn a_merge_into_a_fork_writes_nothing_into_another_repository_in_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let target = tine.new_fork("target");
    let work = tine.new_fork("work");
    repo.sh_in(&target, "git init -q nested; echo mine > nested/mine");
    repo.sh_in(&work, "mkdir nested; echo theirs > nested/theirs");
    tine.ok(&["commit", "work", "-m", "work"]);
    let head = repo.git_in(&target, &["rev-parse", "HEAD"]);
    let refused = tine.run(&["merge", "work", "--into", "target"]);
    let text = refused.error_text();
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(text.contains("nested is in the way"), "{text}");
    assert_eq!(repo.git_in(&target, &["rev-parse", "HEAD"]), head);
    assert_eq!(repo.sh_in(&target, "ls nested"), "mine");
}

/// An ordinary directory, and what git tracks, is in nobody's way; a submodule may be there before
/// its commit.
#[test]
fn a_merge_into_a_checkout_replaces_what_git_tracks_by_other_kinds() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("kinds");
    repo.sh_in(
        &fork,
        "rm -r docs run.sh; echo file > docs; mkdir run.sh; echo in > run.sh/in; echo new > fresh; git add .; git commit -qm kinds",
    );
    repo.sh_in(repo.dir(), "mkdir -p fresh/empty");
    tine.ok(&["merge", "kinds", "--into", "main"]);
    assert_eq!(repo.status(repo.dir()), "");
    assert_eq!(
        repo.sh_in(repo.dir(), "cat docs run.sh/in fresh"),
        "file\nin\nnew"
    );
}

#[test]
fn a_branch_in_nobodys_checkout_moves_and_its_reflog_says_so() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    repo.git(&["branch", "away"]);
    let before = repo.status(repo.dir());
    let merged = told(&tine, 0, &["merge", "work", "--into", "away"]);
    assert_eq!(
        merged["target"],
        json!({"branch": "away", "fork": null, "checkout": null})
    );
    assert_eq!(
        repo.git(&["rev-parse", "away"]),
        merged["after"].as_str().unwrap()
    );
    let reflog = repo.git(&["reflog", "show", "away", "-1", "--format=%gs"]);
    assert!(reflog.contains("tine merge work --into away"), "{reflog}");
    assert_eq!(repo.status(repo.dir()), before);
    main_goes_on(&repo, "acht");
    // A branch that is being rebased is nobody's to move.
    repo.sh_in(
        repo.dir(),
        "git switch -q away; git rebase -q --exec false HEAD~ 2> /dev/null || true",
    );
    merge_refused(
        &repo,
        &tine,
        &["merge", "main", "--into", "away", "--no-ff"],
        "branch-checked-out",
        5,
    );
}

/// HEAD, refs of branches, index and view of a fork.
fn stands(repo: &TestRepo, tine: &Tine, fork: &str) -> [String; 4] {
    [
        repo.git_of_fork(fork, &["rev-parse", "HEAD"]),
        repo.git(&["for-each-ref", "refs/heads"]),
        repo.git_of_fork(fork, &["ls-files", "-s"]),
        tine.json(&["diff", fork])["view_tree"].to_string(),
    ]
}

#[test]
fn a_merge_into_a_fork_is_taken_back_and_done_again() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    tine.ok(&["commit", "work", "-m", "work"]);
    for mounted in [true, false] {
        let name = if mounted { "mounted" } else { "not" };
        let target: PathBuf = tine.new_fork(name);
        repo.sh_in(
            &target,
            "echo mine > mine.txt; echo own > own.txt; git add own.txt; git commit -qm own",
        );
        if !mounted {
            tine.ok(&["unmount", name]);
        }
        crate::take_over(&repo, &tine);
        let before = stands(&repo, &tine, name);
        let merged = told(&tine, 0, &["merge", "work", "--into", name]);
        assert_eq!(merged["snapshot"], "before-merge-1");
        assert_eq!(
            each(&tine.json(&["snapshots", name])["snapshots"], "name"),
            ["before-merge-1"]
        );
        let after = stands(&repo, &tine, name);
        tine.ok(&["undo", name]);
        assert_eq!(stands(&repo, &tine, name), before);
        assert_agreement(&repo, &tine, name, "A\tmine.txt");
        tine.ok(&["redo", name]);
        assert_eq!(stands(&repo, &tine, name), after);
        assert_agreement(&repo, &tine, name, "A\tmine.txt");
        tine.kill_daemon();
        // What was written since stays.
        let mut command = tine.command(&["write", "--fork", name, "since.txt"]);
        crate::support::run_with_timeout_of(&mut command, DEFAULT_LIMIT, b"since\n")
            .expect_success("write");
        tine.ok(&["undo", name]);
        assert!(
            tine.run(&["cat", "--fork", name, "since.txt"])
                .status
                .code()
                == Some(4),
            "the last operation is that"
        );
        tine.ok(&["undo", name]);
        assert_eq!(stands(&repo, &tine, name), before);
    }
}

#[test]
fn a_merge_is_not_taken_back_when_head_has_moved_on() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    let target = tine.new_fork("target");
    tine.ok(&["merge", "work", "--into", "target"]);
    repo.sh_in(&target, "git commit -q --allow-empty -m on");
    merge_refused(&repo, &tine, &["undo", "target"], "cannot-undo", 3);
    repo.sh_in(&target, "git reset -q --soft HEAD~; echo over > work.txt");
    merge_refused(&repo, &tine, &["undo", "target"], "local-changes", 3);
    repo.sh_in(&target, "git checkout -q work.txt");
    tine.ok(&["undo", "target"]);
    assert!(!target.join("work.txt").exists());
    assert_agreement(&repo, &tine, "target", "");
}

#[test]
fn a_fork_that_git_works_in_is_not_moved() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let work = fork_with_work(&repo, &tine);
    let target = tine.new_fork("target");
    let lock = PathBuf::from(repo.git_in(
        &target,
        &[
            "rev-parse",
            "--path-format=absolute",
            "--git-path",
            "index.lock",
        ],
    ));
    std::fs::write(&lock, "").unwrap();
    merge_refused(
        &repo,
        &tine,
        &["merge", "work", "--into", "target"],
        "index-locked",
        5,
    );
    std::fs::remove_file(&lock).unwrap();
    // In the middle of something.
    set_line(&repo, &target, 8, "acht");
    repo.sh_in(
        &target,
        "git commit -qam acht; echo x > x.txt; git add x.txt; git commit -qm x",
    );
    repo.sh_in(
        &target,
        "git rebase -q --exec false HEAD~ 2> /dev/null || true",
    );
    merge_refused(
        &repo,
        &tine,
        &["merge", "work", "--into", "target"],
        "operation-in-progress",
        3,
    );
    repo.sh_in(&target, "git rebase --abort");
    repo.sh_in(
        &work,
        "git commit -qam list; git rebase -q --exec false HEAD~ 2> /dev/null || true",
    );
    merge_refused(
        &repo,
        &tine,
        &["merge", "work", "--into", "target"],
        "operation-in-progress",
        3,
    );
    repo.sh_in(&work, "git rebase --abort; git status");
    tine.ok(&["merge", "work", "--into", "target"]);
    assert_eq!(content_at(&repo, "tine/target", "work.txt"), "work");
    assert_agreement(&repo, &tine, "target", "");
    let before = everything(&repo, &tine);
    told(&tine, 7, &["merge", "work", "--into", "target"]);
    assert_eq!(everything(&repo, &tine), before);
    assert_eq!(path_text(&target), tine.ok(&["path", "target"]));
}

#[test]
fn a_branch_that_two_checkouts_have_is_not_moved_under_one_of_them() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_with_work(&repo, &tine);
    tine.ok(&["commit", "work", "-m", "work"]);
    let second = repo.root().join("second");
    repo.git(&[
        "worktree",
        "add",
        "-q",
        "--force",
        path_text(&second),
        "main",
    ]);
    for args in [&["merge", "work"][..], &["merge", "work", "--dry-run"]] {
        let failure = merge_refused(&repo, &tine, args, "branch-checked-out", 5);
        let message = failure["message"].as_str().unwrap();
        for place in [repo.dir(), &second] {
            assert!(message.contains(path_text(place)), "{message}");
        }
    }
    assert_eq!(
        (repo.status(repo.dir()), repo.status(&second)),
        (String::new(), String::new())
    );
    // One whose directory is gone has no files to be left behind.
    std::fs::remove_dir_all(&second).unwrap();
    tine.ok(&["merge", "work"]);
}

#[test]
fn files_of_a_filter_that_fails_are_put_back_though_it_fails_again() {
    require_fuse!();
    let repo = repo_with_list();
    repo.sh_in(
        repo.dir(),
        "echo '*.f filter=f' > .gitattributes; echo old > a.f; mkdir d; echo old > d/b.f; chmod +x d/b.f; echo gone > gone.f
         git add -A; git commit -qm filtered",
    );
    let tine = Tine::new(&repo);
    let dir = fork_with_work(&repo, &tine);
    repo.sh_in(
        &dir,
        "echo new > a.f; echo new > d/b.f; echo new > new.f; rm gone.f",
    );
    tine.ok(&["commit", "work", "-m", "work"]);
    repo.sh_in(
        repo.dir(),
        "git config filter.f.smudge false; git config filter.f.clean cat; git config filter.f.required true",
    );
    merge_refused(&repo, &tine, &["merge", "work"], "local-changes", 3);
    assert_eq!(repo.status(repo.dir()), "");
    let files = repo.sh_in(
        repo.dir(),
        "cat a.f d/b.f gone.f; test -x d/b.f; ls .git | grep tine-kept || true",
    );
    assert_eq!(files, "old\nold\ngone");
    repo.git(&["config", "filter.f.smudge", "cat"]);
    tine.ok(&["merge", "work"]);
    assert_eq!(repo.status(repo.dir()), "");
}

#[test]
fn the_status_of_an_unmounted_fork_in_the_middle_of_a_merge_promises_no_commit() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(&dir, "sed -i '2s/.*/two/' list.txt; git commit -qam two");
    repo.sh_in(
        repo.dir(),
        "sed -i '2s/.*/zwei/' list.txt; git commit -qam zwei",
    );
    repo.try_sh_in(&dir, "git merge -q main");
    tine.ok(&["unmount", "work"]);
    let status = tine.run(&["status", "work"]).expect_success("tine status");
    let told = status.error_text();
    assert!(!told.contains("commits them"), "{told}");
    assert!(
        told.contains("a merge is under way in it, so nothing can be committed: `tine mount work` mounts it, `git merge --continue`"),
        "{told}"
    );
    assert_eq!(tine.json(&["status", "work"])["operation"], "merge");
    refused(
        &repo,
        &tine,
        &["commit", "work", "-m", "no"],
        "operation-in-progress",
        3,
    );
    tine.ok(&["mount", "work"]);
    repo.sh_in(&dir, "git merge --abort");
    assert!(tine.json(&["status", "work"])["operation"].is_null());
}
