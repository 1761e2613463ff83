//! Making, listing, mounting, unmounting and removing forks.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{
    OutputExt, TestRepo, Tine, is_root, mounts_beneath, repo::path_text, require_fuse,
    require_root, run_with_timeout, skip, test_name,
};
use crate::{failure_of, names_in, refused};

#[test]
fn new_prints_nothing_but_the_path_of_a_clean_checkout() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        prints_nothing_but_the_path(&repo);
    }
}

fn prints_nothing_but_the_path(repo: &TestRepo) {
    let tine = Tine::new(repo);
    let output = tine.run(&["new", "demo"]).expect_success("new");
    let dir = repo.root().join("repo.forks/demo");
    assert_eq!(output.stdout, format!("{}\n", dir.display()).into_bytes());
    assert_eq!(output.error_text(), "");
    assert_eq!(mounts_beneath(repo.root()), std::slice::from_ref(&dir));
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert_eq!(
        repo.git_in(&dir, &["branch", "--show-current"]),
        "tine/demo"
    );
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), repo.head());
    assert_eq!(
        std::fs::read_to_string(dir.join("docs/guide.md")).unwrap(),
        "one\ntwo\nthree\n"
    );
    let worktrees = repo.git(&["worktree", "list", "--porcelain"]);
    assert_eq!(
        worktrees.contains(&format!("worktree {}\n", dir.display())),
        dir.join(".git").is_file(),
        "{worktrees}"
    );
    assert_eq!(
        repo.git(&["status", "--porcelain"]),
        "",
        "the main checkout sees nothing of it"
    );
}

#[test]
fn new_takes_revision_branch_place_and_policy() {
    require_fuse!();
    let repo = TestRepo::new();
    let first = repo.head();
    repo.commit_files(&[("second.txt", b"second\n")], "second");
    let tine = Tine::new(&repo);
    let place = repo.root().join("elsewhere/mine");
    let fork = tine.json(&[
        "new",
        "old",
        "--from",
        "HEAD~1",
        "--branch",
        "work",
        "--at",
        path_text(&place),
        "--on-unmount",
        "discard",
    ]);
    assert_eq!(fork["name"], "old");
    assert_eq!(fork["branch"], "work");
    assert_eq!(fork["base_commit"], first);
    assert_eq!(fork["head_commit"], first);
    assert_eq!(fork["mount_dir"], path_text(&place));
    assert_eq!(fork["mounted"], true);
    assert_eq!(fork["allow_other"], false);
    assert_eq!(fork["on_unmount"], "discard");
    assert!(!place.join("second.txt").exists());

    // A relative place is understood where the command runs, also with -C.
    tine.ok(&[
        "-C",
        path_text(repo.root()),
        "-C",
        path_text(repo.dir()),
        "new",
        "near",
        "--at",
        "../near",
    ]);
    assert_eq!(
        tine.ok(&["path", "near"]),
        path_text(&repo.root().join("near"))
    );

    let unmounted = tine
        .run(&["new", "later", "--no-mount"])
        .expect_success("new --no-mount");
    assert_eq!(
        unmounted.text(),
        path_text(&repo.root().join("repo.forks/later"))
    );
    assert!(
        unmounted.error_text().contains("tine mount later"),
        "{}",
        unmounted.error_text()
    );
    assert_eq!(tine.ok(&["mount", "later"]), unmounted.text());
    assert!(Path::new(&unmounted.text()).join("second.txt").exists());
}

#[test]
fn who_may_enter_a_mount_is_told() {
    require_fuse!();
    if !is_root() {
        skip(
            test_name!(),
            "an ordinary user may not be allowed to let others in",
        );
        return;
    }
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    assert_eq!(
        tine.json(&["new", "demo", "--allow-other"])["allow_other"],
        true
    );
    tine.ok(&["unmount", "demo"]);
    assert_eq!(
        tine.json(&["list"])["forks"][0]["allow_other"],
        true,
        "the next mount is as open"
    );
}

#[test]
fn new_inside_a_mount_starts_from_that_forks_head() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let one = tine.new_fork("one");
    repo.sh_in(
        &one,
        "echo more > more.txt && git add -A && git commit -qm more",
    );
    let two = PathBuf::from(tine.ok_in(&one.join("src"), &["new", "two"]));
    assert_eq!(
        std::fs::read_to_string(two.join("more.txt")).unwrap(),
        "more\n"
    );
    assert_eq!(
        repo.git_in(&two, &["rev-parse", "HEAD"]),
        repo.git_in(&one, &["rev-parse", "HEAD"])
    );
    assert_eq!(
        two,
        repo.root().join("repo.forks/two"),
        "beside the repository, not inside the mount"
    );
    assert_eq!(repo.git_in(&two, &["status", "--porcelain"]), "");
}

#[test]
fn list_shows_every_fork_in_aligned_columns() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("a-long-name");
    tine.ok(&["new", "b", "--no-mount"]);
    let listed = tine.ok(&["list"]);
    let lines: Vec<&str> = listed.lines().collect();
    let [heading, first, second] = lines.as_slice() else {
        panic!("{listed}")
    };
    let words: Vec<&str> = heading.split_whitespace().collect();
    assert_eq!(
        words,
        ["NAME", "FROM", "BRANCH", "STATE", "LAYER", "AGE", "PATH"]
    );
    let path_column = heading.find("PATH").unwrap();
    for (line, name, state) in [
        (first, "a-long-name", "mounted"),
        (second, "b", "unmounted"),
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let base = &repo.head()[..7];
        assert_eq!(
            words[..4],
            [name, base, &format!("tine/{name}"), state],
            "{line}"
        );
        assert_eq!(
            line[path_column..],
            *path_text(&repo.root().join("repo.forks").join(name))
        );
    }
    assert!(!listed.contains('\x1b'), "no colour into a pipe");
    assert!(tine.ok(&["list", "--color=always"]).contains("\x1b["));
    let list = tine.json(&["list"]);
    assert_eq!(list["forks"].as_array().unwrap().len(), 2);
    assert_eq!(list["damaged"], json!([]));
}

#[test]
fn unmount_keeps_what_was_written_and_mount_brings_it_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    std::fs::write(dir.join("new.txt"), "new\n").unwrap();
    assert_eq!(
        tine.ok(&["unmount", "demo"]),
        "unmounted demo: its changes are kept"
    );
    assert_eq!(mounts_beneath(repo.root()), Vec::<PathBuf>::new());
    assert!(
        tine.run(&["path", "demo"])
            .expect_success("path")
            .error_text()
            .contains("tine mount demo")
    );
    refused(&repo, &tine, &["unmount", "demo"], "not-mounted", 5);
    assert_eq!(tine.ok(&["mount", "demo"]), path_text(&dir));
    assert_eq!(
        std::fs::read_to_string(dir.join("new.txt")).unwrap(),
        "new\n"
    );
    assert_eq!(
        tine.ok(&["mount", "demo"]),
        path_text(&dir),
        "mounted already is no error"
    );
}

#[test]
fn unmount_commits_or_discards_where_asked() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    std::fs::write(dir.join("one.txt"), "one\n").unwrap();
    let unmounted = tine.json(&["unmount", "demo", "--commit", "-m", "One file"]);
    assert_eq!(
        (&unmounted["fork"], &unmounted["policy"]),
        (&json!("demo"), &json!("commit"))
    );
    assert_eq!(repo.git(&["rev-parse", "tine/demo"]), unmounted["commit"]);
    assert_eq!(
        repo.git(&["log", "-1", "--format=%s|%an|%cn", "tine/demo"]),
        "One file|Ada Author|Carl Committer"
    );

    tine.ok(&["mount", "demo"]);
    std::fs::write(dir.join("two.txt"), "two\n").unwrap();
    std::fs::remove_file(dir.join("README.md")).unwrap();
    let said = tine.ok(&["unmount", "demo", "--discard"]);
    assert_eq!(
        said,
        "unmounted demo: its changes are discarded (`tine restore demo before-discard-1` brings them back)"
    );
    tine.ok(&["mount", "demo"]);
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert!(
        dir.join("README.md").exists()
            && dir.join("one.txt").exists()
            && !dir.join("two.txt").exists()
    );
    tine.ok(&["restore", "demo", "before-discard-1"]);
    assert_eq!(
        std::fs::read_to_string(dir.join("two.txt")).unwrap(),
        "two\n"
    );
    assert!(!dir.join("README.md").exists());
}

#[test]
fn the_forks_policy_holds_without_a_flag_and_for_a_plain_umount() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = PathBuf::from(tine.ok(&["new", "demo", "--on-unmount", "commit"]));
    std::fs::write(dir.join("one.txt"), "one\n").unwrap();
    let said = tine.ok(&["unmount", "demo"]);
    assert!(
        said.starts_with("unmounted demo: its changes are commit "),
        "{said}"
    );
    assert_eq!(repo.git(&["show", "tine/demo:one.txt"]), "one");
    assert_eq!(tine.ok(&["mount", "demo"]), path_text(&dir));
    assert_eq!(
        tine.ok(&["unmount", "demo"]),
        "unmounted demo: there was nothing to commit"
    );

    // Nobody calls who could say who commits: git's configuration does.
    repo.git(&["config", "user.name", "Conny Config"]);
    repo.git(&["config", "user.email", "conny@example.org"]);
    tine.ok(&["mount", "demo"]);
    std::fs::write(dir.join("two.txt"), "two\n").unwrap();
    let mut umount = repo.command("umount", repo.root());
    run_with_timeout(umount.arg(&dir)).expect_success("umount");
    crate::support::wait_until(
        "the policy is applied",
        std::time::Duration::from_secs(20),
        || {
            tine.json(&["path", "demo"])["mounted"] == json!(false)
                && repo
                    .try_git_in(repo.dir(), &["cat-file", "-e", "tine/demo:two.txt"])
                    .status
                    .success()
        },
    );
    assert_eq!(repo.git(&["show", "tine/demo:two.txt"]), "two");
}

#[test]
fn a_plain_umount_without_an_identity_keeps_the_changes_and_the_way_on_is_told() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    repo.git(&["config", "user.useConfigOnly", "true"]);
    // The daemon has the identity of who starts it.
    let mut new = tine.command(&["new", "demo", "--on-unmount", "commit"]);
    for person in ["AUTHOR", "COMMITTER"] {
        new.env_remove(format!("GIT_{person}_NAME"))
            .env_remove(format!("GIT_{person}_EMAIL"));
    }
    let dir = PathBuf::from(
        run_with_timeout(new.env_remove("EMAIL"))
            .expect_success("new")
            .text(),
    );
    std::fs::write(dir.join("one.txt"), "one\n").unwrap();
    let mut umount = repo.command("umount", repo.root());
    run_with_timeout(umount.arg(&dir)).expect_success("umount");
    crate::support::wait_until(
        "the policy has failed",
        std::time::Duration::from_secs(20),
        || tine.json(&["list"])["damaged"] != json!([]),
    );

    let list = tine.run(&["list"]).expect_success("list");
    assert!(list.text().contains("unmounted"), "{}", list.text());
    let told = list.error_text();
    for part in [
        "git does not know who commits",
        "git config user.name",
        "tine commit demo",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let log = std::fs::read_to_string(repo.common_dir().join("tine/daemon.log")).unwrap();
    assert!(
        log.lines()
            .any(|line| line.contains(" ERROR demo was unmounted") && line.contains("who commits")),
        "{log}"
    );

    // The same after a restart, which forgets why.
    tine.ok(&["daemon", "stop"]);
    let status = tine.run(&["status", "demo"]).expect_success("status");
    assert!(
        status.text().contains("not mounted\nA one.txt\n"),
        "{}",
        status.text()
    );
    let told = status.error_text();
    assert!(
        told.contains("`tine commit demo -m MESSAGE`") && told.contains("`tine mount demo`"),
        "{told}"
    );
    tine.ok(&["commit", "demo", "-m", "after all"]);
    assert_eq!(repo.git(&["show", "tine/demo:one.txt"]), "one");
    let list = tine.run(&["list"]).expect_success("list");
    assert_eq!(list.error_text(), "");
}

#[test]
fn unmount_from_inside_and_with_dash_c_is_not_kept_busy_by_tine_itself() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    assert_eq!(
        tine.ok_in(&dir.join("src"), &["unmount"]),
        "unmounted demo: its changes are kept"
    );
    tine.ok(&["mount", "demo"]);
    assert_eq!(
        tine.ok(&["-C", path_text(&dir.join("docs")), "umount"]),
        "unmounted demo: its changes are kept"
    );
}

#[test]
fn a_mount_in_use_is_unmounted_with_force_only() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let mut inside = repo.command("sleep", &dir).arg("100").spawn().unwrap();
    let failure = refused(&repo, &tine, &["unmount", "demo"], "busy", 5);
    assert!(
        failure["hint"].as_str().unwrap().contains("--force"),
        "{failure}"
    );
    refused(&repo, &tine, &["daemon", "stop"], "busy", 5);
    assert!(dir.join("README.md").exists(), "still mounted and working");
    let can_cut_off = is_root()
        || fs::read_dir("/sys/fs/fuse/connections")
            .is_ok_and(|mut entries| entries.next().is_some());
    if can_cut_off {
        tine.ok(&["unmount", "demo", "--force"]);
    } else {
        // It goes from its directory all the same.
        let output = tine.run(&["unmount", "demo", "--force", "--json"]);
        assert_eq!(output.status.code(), Some(5));
        let failure = failure_of(&output, "unmount --force");
        assert_eq!(failure["code"], "busy", "{failure}");
        assert!(
            failure["hint"].as_str().unwrap().contains("fusectl"),
            "{failure}"
        );
    }
    assert_eq!(mounts_beneath(repo.root()), Vec::<PathBuf>::new());
    inside.kill().unwrap();
    inside.wait().unwrap();
}

#[test]
fn a_program_that_leaves_soon_keeps_nothing_from_being_unmounted_or_deleted() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    for args in [&["unmount", "demo"], &["delete", "demo"]] {
        let dir = match args[0] {
            "unmount" => tine.new_fork("demo"),
            _ => PathBuf::from(tine.ok(&["mount", "demo"])),
        };
        // As git's detached maintenance does after a commit.
        let mut user = repo
            .command("sleep", &dir)
            .arg("1.2")
            .spawn()
            .expect("sleep runs");
        tine.ok(args);
        user.wait().expect("it ends");
    }
}

#[test]
fn delete_removes_fork_worktree_and_an_empty_branch() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let before = repo.git(&["for-each-ref"]);
    let dir = tine.new_fork("demo");
    assert_eq!(
        tine.ok(&["delete", "demo"]),
        "deleted demo, and its branch, which had no commit of its own"
    );
    assert!(!dir.exists());
    assert_eq!(repo.git(&["for-each-ref"]), before);
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    assert_eq!(names_in(&repo.common_dir().join("tine/forks")), "");
    assert_eq!(
        names_in(&repo.common_dir().join("tine/layers"))
            .replace("next", "")
            .trim(),
        "",
        "no layer stays"
    );
    refused(&repo, &tine, &["delete", "demo"], "no-such-fork", 4);
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn delete_leaves_a_branch_with_commits_and_refuses_uncommitted_work() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo 1 > one.txt && git add -A && git commit -qm one");
    std::fs::write(dir.join("two.txt"), "two\n").unwrap();
    let failure = refused(&repo, &tine, &["delete", "demo"], "uncommitted-changes", 3);
    assert!(
        failure["hint"].as_str().unwrap().contains("--force"),
        "{failure}"
    );
    assert_eq!(
        std::fs::read_to_string(dir.join("two.txt")).unwrap(),
        "two\n",
        "still mounted and whole"
    );

    let deleted = tine.json(&["remove", "demo", "--force"]);
    assert_eq!(deleted["branch_deleted"], false);
    assert_eq!(deleted["recover"], 1);
    assert_eq!(repo.git(&["show", "tine/demo:one.txt"]), "1");
    assert_eq!(tine.recoverable_file(&repo, 1, "two.txt"), "two");
    assert!(!dir.exists());
}

#[test]
fn the_daemon_is_started_stopped_and_mounts_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    std::fs::write(dir.join("new.txt"), "new\n").unwrap();
    let status = tine.json(&["daemon", "status"]);
    assert_eq!(status["running"], true);
    assert_eq!(status["pid"], tine.daemon_pid().unwrap());
    assert_eq!(
        (&status["forks"], &status["mounts"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));

    assert_eq!(tine.ok(&["daemon", "stop"]), "the daemon has ended");
    assert_eq!(tine.daemon_pid(), None);
    assert_eq!(mounts_beneath(repo.root()), Vec::<PathBuf>::new());
    assert_eq!(tine.ok(&["daemon", "status"]), "no daemon runs");

    assert!(
        tine.ok(&["daemon", "start"])
            .starts_with("the daemon runs (process ")
    );
    assert_eq!(
        std::fs::read_to_string(dir.join("new.txt")).unwrap(),
        "new\n",
        "mounted again"
    );

    tine.kill_daemon();
    let listed = tine.json(&["list"]);
    assert_eq!(listed["forks"][0]["mounted"], true, "{listed}");
    assert_eq!(
        std::fs::read_to_string(dir.join("new.txt")).unwrap(),
        "new\n",
        "recovered"
    );
    assert!(tine.ok(&["status", "demo"]).contains("\nA new.txt\n"));
}

#[test]
fn inside_a_dead_mount_the_way_out_is_told() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    // A shell that stands in the mount while its daemon dies.
    let script = format!("read line; exec {} status", path_text(Tine::program()));
    let mut shell = repo.command("sh", &dir);
    let mut child = shell
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    tine.kill_daemon();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", output.error_text());
    let said = output.error_text();
    assert!(
        said.contains("has lost its daemon") && said.contains("hint: leave it with `cd`"),
        "{said}"
    );
}

#[test]
fn it_works_in_a_bare_repository_and_a_linked_worktree() {
    require_fuse!();
    for repo in [
        TestRepo::bare(),
        TestRepo::linked_worktree(),
        TestRepo::sha256(),
    ] {
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("demo");
        std::fs::write(dir.join("new.txt"), "new\n").unwrap();
        assert!(
            tine.ok_in(&dir, &["commit", "-m", "new"])
                .starts_with("[tine/demo ")
        );
        assert_eq!(repo.git(&["show", "tine/demo:new.txt"]), "new");
        assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
        tine.ok(&["delete", "demo"]);
        repo.git(&["fsck"]);
    }
}

#[test]
fn an_unborn_repository_can_be_forked() {
    require_fuse!();
    let repo = TestRepo::unborn();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    assert!(tine.ok(&["status", "demo"]).contains("no commits yet"));
    std::fs::write(dir.join("first.txt"), "first\n").unwrap();
    let said = tine.ok_in(&dir, &["commit", "-m", "first"]);
    assert!(said.contains(" (root-commit) "), "{said}");
    assert_eq!(repo.git_in(&dir, &["log", "--format=%s"]), "first");
    assert_eq!(
        tine.json(&["log", "demo"])["commits"][0]["summary"],
        "first"
    );
}

#[test]
fn every_command_works_inside_a_mount_and_towards_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo").join("src/deep");
    let outside = tempfile::tempdir().unwrap();
    let towards = ["-C", path_text(&dir)];
    let verbs = [
        &["list"][..],
        &["doctor"],
        &["daemon", "status"],
        &["daemon", "start"],
        &["new", "other", "--no-mount"],
        &["mount", "other"],
        &["path", "other"],
        &["exec", "other", "--", "true"],
        &["unmount", "other"],
        &["delete", "other"],
        &["path"],
        &["status"],
        &["diff"],
        &["log"],
        &["exec", "--", "true"],
    ];
    for verb in verbs {
        tine.ok_in(&dir, verb);
    }
    for verb in verbs {
        tine.ok_in(outside.path(), &[&towards, verb].concat());
    }
}

#[test]
fn doctor_names_a_mount_whose_daemon_is_gone() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    assert!(!tine.ok(&["doctor"]).contains(path_text(&dir)));
    tine.kill_daemon();
    let said = tine.ok(&["doctor"]);
    let line = said
        .lines()
        .find(|line| line.starts_with("warn mounts: no daemon answers for "))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(path_text(&dir)), "{said}");
    tine.ok(&["list"]);
    assert!(
        !tine.ok(&["doctor"]).contains(path_text(&dir)),
        "any command mounts it again"
    );
}

#[test]
fn delete_keeps_the_commits_of_a_detached_head() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "git checkout -q --detach && echo 1 > new && git add new && git commit -qm work",
    );
    let commit = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    let told = tine.ok(&["delete", "demo"]);
    assert!(told.contains("`tine recover 1`"), "{told}");
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    let dir = tine.json(&["recover", "1"])["fork"]["mount_dir"].clone();
    let dir = std::path::PathBuf::from(dir.as_str().unwrap());
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), commit);
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert_eq!(
        repo.try_git_in(&dir, &["symbolic-ref", "-q", "HEAD"])
            .status
            .code(),
        Some(1)
    );

    let dir = tine.new_fork("plain");
    repo.git_in(&dir, &["checkout", "-q", "--detach"]);
    let deleted = tine.json(&["delete", "plain"]);
    assert!(deleted["recover"].is_null(), "{deleted}");
}

#[test]
fn no_fork_begins_at_an_alias_that_leads_nowhere() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    repo.git(&["symbolic-ref", "refs/heads/am", "refs/heads/nope"]);
    repo.git(&["symbolic-ref", "HEAD", "refs/heads/am"]);
    let said = tine.fails(4, &["new", "g"]);
    assert!(said.contains("alias of \"nope\""), "{said}");
    assert_eq!(tine.json(&["list"])["forks"], serde_json::json!([]));
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    assert!(!tine.ok(&["list"]).contains("not whole"));
    // What the hint names.
    repo.git(&["symbolic-ref", "--delete", "refs/heads/am"]);
    tine.ok(&["new", "g"]);
    assert!(tine.ok(&["list"]).contains('g'));
}

#[test]
fn a_fork_is_made_through_a_bind_mount_of_the_repository() {
    require_fuse!();
    require_root!("mount");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["list"]);
    let script = "mkdir at && mount --bind \"$1\" at && cd at && \"$2\" new demo --no-mount; status=$?; cd ..; umount at; exit $status";
    let mut shell = repo.command(Path::new("sh"), repo.root());
    shell
        .args(["-c", script, "sh"])
        .arg(repo.dir())
        .arg(Tine::program());
    run_with_timeout(&mut shell).expect_success("tine new");
    assert!(tine.ok(&["list"]).contains("demo"));
}
