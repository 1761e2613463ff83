//! `tine handoff`: what becomes of the commits of a fork, and that it outlives all else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::merging::{each, told};
use crate::refused;
use crate::support::{
    OutputExt, TestRepo, Tine, repo::path_text, require_fuse, run_with_timeout, wait_until,
};

/// Commits what is in `dir`; the commit.
pub fn commit_in(repo: &TestRepo, dir: &Path, message: &str) -> String {
    repo.sh_in(
        dir,
        &format!("git add -A; git commit -q --allow-empty -m '{message}'"),
    );
    repo.git_in(dir, &["rev-parse", "HEAD"])
}

/// A repository, and a mounted fork `work` with one commit of its own.
pub fn fork_with_commit(repo: &TestRepo, tine: &Tine) -> PathBuf {
    let dir = tine.new_fork("work");
    fs::write(dir.join("work.txt"), "work\n").unwrap();
    commit_in(repo, &dir, "Work");
    dir
}

/// A git that makes no patches as long as the file `held` is there. It is the daemon's if that is
/// started with `env`.
struct HeldGit {
    held: PathBuf,
    path: String,
}

impl HeldGit {
    fn new(repo: &TestRepo) -> HeldGit {
        let dir = repo.root().join("held-git");
        let held = dir.join("held");
        fs::create_dir(&dir).unwrap();
        fs::write(&held, "").unwrap();
        let git = repo.sh_in(repo.root(), "command -v git");
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' format-patch '*) while [ -e '{}' ]; do sleep 0.01; done;; esac\nexec '{git}' \"$@\"\n",
            held.display()
        );
        let program = dir.join("git");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        HeldGit {
            held,
            path: format!("{}:{}", dir.display(), std::env::var("PATH").unwrap()),
        }
    }

    fn start_daemon(&self, tine: &Tine) {
        let mut start = tine.command(&["daemon", "start"]);
        run_with_timeout(start.env("PATH", &self.path)).expect_success("tine daemon start");
    }

    fn release(&self) {
        fs::remove_file(&self.held).unwrap();
    }
}

/// The state of a handoff.
pub fn state_of(tine: &Tine, id: u64) -> String {
    let shown = tine.json(&["handoff", "show", &id.to_string()]);
    shown["state"].as_str().unwrap().to_owned()
}

/// The mailbox of a handoff.
pub fn mailbox(tine: &Tine, id: u64) -> PathBuf {
    PathBuf::from(tine.ok(&["handoff", "show", &id.to_string(), "--path"]))
}

/// Applies a mailbox by git alone in a clone of `main`, with nothing of the fork's objects; the
/// clone.
fn applied(repo: &TestRepo, name: &str, mailbox: &Path, flags: &[&str]) -> PathBuf {
    let clone = repo.root().join(name);
    let from = format!("file://{}", repo.dir().display());
    repo.git_in(
        repo.root(),
        &[
            "clone",
            "-q",
            "--single-branch",
            "--branch=main",
            &from,
            path_text(&clone),
        ],
    );
    repo.git_in(
        &clone,
        &[&["am", "-q"], flags, &[path_text(mailbox)]].concat(),
    );
    clone
}

/// Every kind of content in several commits, of which one changes nothing.
pub const CONTENTS: &str = r#"
printf 'a\r\nb\r\n' > windows.txt; printf 'no end' > no-end.txt; printf 'caf\351\n' > latin1.txt
printf '\000\001binary\r\n' > binary.bin; : > empty-file; mkdir -p deep/er; echo leaf > deep/er/leaf
git add -A; git commit -qm '[WIP] add files' -m 'A body.' -m 'From here on there is more.'
printf 'a\r\nc\r\n' > windows.txt; printf '\002more\n' >> data/large.bin; echo three >> docs/guide.md
git add -A; git commit -qm 'Re: change files'
git commit -q --allow-empty -m 'change nothing'
chmod -x run.sh; chmod +x README.md; ln -sfn docs link; rm dangling; echo file > dangling; ln -s nowhere symlink
git add -A; git commit -qm 'change modes and kinds'
git mv src/main.rs src/moved.rs; echo '// moved' >> src/moved.rs; git mv docs/empty still-empty; git rm -q run.sh
git add -A; git commit -qm 'move and remove'
printf 'not utf-8\n' > "$(printf 'na\377me')"; printf 'x' > 'with "quotes"'; printf 'y' > "$(printf 'tab\there')"; echo z > ' leading'
git add -A; printf 'subject with \303\251\n\nlatin \351 body\n' | git commit -qF - 2> /dev/null
printf 'long line: %s\r\n' "$(seq 1000 | tr '\n' ' ')" > long.txt; printf 'From nobody Mon Sep 17 00:00:00 2001\n' > from.txt
git add -A; git commit -qm 'two lines
of a subject' -m 'From nobody Mon Sep 17 00:00:00 2001' -m 'trailing = and =20 signs='
"#;

#[test]
fn the_mailbox_gives_the_same_trees_and_messages_without_tine() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    // What people have configured says nothing of it.
    for (key, value) in [
        ("format.attach", "true"),
        ("format.numbered", "true"),
        ("diff.noprefix", "true"),
        ("diff.external", "false"),
        ("diff.renames", "false"),
    ] {
        repo.git(&["config", key, value]);
    }
    repo.sh_in(&dir, CONTENTS);
    let handoff = tine.json(&["handoff", "create", "work"]);
    assert_eq!(handoff["state"], "ready");
    assert_eq!(
        (&handoff["commits"], &handoff["merges"]),
        (&json!(7), &json!(0))
    );
    assert_eq!(handoff["to"], "branch:main");
    let file = mailbox(&tine, 1);
    assert_eq!(handoff["mailbox"], path_text(&file));
    assert_eq!(handoff["mailbox_bytes"], fs::metadata(&file).unwrap().len());
    let sum = repo.sh_in(repo.root(), &format!("sha256sum < '{}'", file.display()));
    assert_eq!(handoff["sha256"], sum.split(' ').next().unwrap());

    let of = |dir: &Path, tip: &str, format: &str| {
        let log = [
            "log",
            "--reverse",
            format,
            &format!("{}..{tip}", repo.head()),
        ];
        run_with_timeout(repo.command("git", dir).args(log)).stdout
    };
    let clone = applied(&repo, "kept", &file, &["--keep", "--empty=keep"]);
    for format in ["--format=%T", "--format=%an <%ae> %ad", "--format=%B%x00"] {
        assert!(
            of(&clone, "HEAD", format) == of(&dir, "HEAD", format),
            "{format}: {}",
            String::from_utf8_lossy(&of(&clone, "HEAD", format))
        );
    }
    repo.assert_same_trees(&dir, &clone);
    // Without any flag but for the commit that changes nothing, only the subjects are others.
    let plain = applied(&repo, "plain", &file, &["--empty=keep"]);
    assert!(of(&plain, "HEAD", "--format=%T") == of(&dir, "HEAD", "--format=%T"));
    let subjects = of(&plain, "HEAD", "--format=%s");
    assert!(
        subjects.starts_with(b"add files\nchange files\n"),
        "{subjects:?}"
    );

    let shown = tine.json(&["handoff", "show", "1"]);
    assert_eq!(
        each(&shown["patches"], "summary")[..3],
        ["[WIP] add files", "Re: change files", "change nothing"]
    );
    assert!(
        tine.ok(&["handoff", "show", "1"])
            .contains("move and remove")
    );
    let stat = tine.ok(&["handoff", "diff", "1", "--name-status"]);
    assert!(
        stat.contains("D\trun.sh") && stat.contains("A\tsrc/moved.rs"),
        "{stat}"
    );
    let changes = tine.json(&["handoff", "diff", "1"]);
    assert_eq!(changes["changes"], shown["changes"]);
    assert_eq!(
        changes["new_tree"],
        repo.git_in(&dir, &["rev-parse", "HEAD^{tree}"])
    );
    let printed = tine.run(&["handoff", "show", "1", "--patch"]).stdout;
    assert!(printed == fs::read(&file).unwrap());
}

#[test]
fn a_mailbox_of_plain_text_needs_no_flags_and_can_be_read() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = fork_with_commit(&repo, &tine);
    fs::write(dir.join("docs/guide.md"), "one\nzwei\nthree\n").unwrap();
    commit_in(&repo, &dir, "Translate");
    tine.ok(&["handoff", "create", "work"]);
    let file = mailbox(&tine, 1);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\n-two\n+zwei\n"), "{text}");
    let clone = applied(&repo, "clone", &file, &[]);
    repo.assert_same_trees(&dir, &clone);
    assert_eq!(
        repo.git_in(&clone, &["log", "-2", "--format=%s"]),
        "Translate\nWork"
    );
}

#[test]
fn the_same_commits_are_handed_over_once() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = fork_with_commit(&repo, &tine);
    let first = tine.json(&["handoff", "create", "work"]);
    assert_eq!(tine.json(&["handoff", "create", "work"]), first);
    assert_eq!(
        tine.json(&["handoff", "create", "work", "--to", "main"]),
        first
    );
    // For somebody else it is another.
    repo.git(&["branch", "other"]);
    assert_eq!(
        tine.json(&["handoff", "create", "work", "--to", "other"])["id"],
        2
    );
    let head = commit_in(&repo, &dir, "More");
    let third = tine.json(&["handoff", "create", "work"]);
    assert_eq!((&third["id"], &third["commits"]), (&json!(3), &json!(2)));
    assert_eq!(third["head_commit"], head);
    assert_eq!(third["base_commit"], first["base_commit"]);
    // What is uncommitted makes no other of it, and is told.
    fs::write(dir.join("later.txt"), "later\n").unwrap();
    let again = tine.json(&["handoff", "create", "work"]);
    assert_eq!(
        (&again["id"], &again["uncommitted"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(
        each(&tine.json(&["handoff", "list"])["handoffs"], "state"),
        ["ready"; 3]
    );
    // Numbers are not used again.
    tine.ok(&["handoff", "delete", "3"]);
    assert_eq!(tine.json(&["handoff", "create", "work"])["id"], 4);
    for args in [
        &["handoff", "create", "nobody"][..],
        &["handoff", "create", "work", "--to", "nobody"],
        &["handoff", "create", "nobody", "--include-uncommitted"],
    ] {
        let code = match args[2] {
            "work" => "unknown-revision",
            _ => "no-such-fork",
        };
        refused(&repo, &tine, args, code, 4);
    }
    assert_eq!(
        tine.json(&["handoff", "list"])["handoffs"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn the_range_begins_where_the_fork_began_whatever_it_stands_on_now() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let base = repo.head();
    let dir = fork_with_commit(&repo, &tine);
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    // A child's work is what comes after its parent's, and its parent's to apply.
    let child = PathBuf::from(tine.ok(&["new", "child", "--from-fork", "work"]));
    fs::write(child.join("child.txt"), "child\n").unwrap();
    commit_in(&repo, &child, "Child");
    let of_child = tine.json(&["handoff", "create", "child"]);
    assert_eq!(
        (&of_child["commits"], &of_child["base_commit"]),
        (&json!(1), &json!(head))
    );
    assert_eq!(of_child["to"], "fork:work");
    tine.ok(&["reset", "work"]);
    repo.commit_all("main goes on");
    let of_work = tine.json(&["handoff", "create", "work"]);
    assert_eq!(
        (&of_work["base_commit"], &of_work["head_commit"]),
        (&json!(base), &json!(head))
    );
    // Merges are in no patch, and are counted.
    repo.sh_in(&dir, "git merge -q --no-edit main");
    let merged = tine.json(&["handoff", "create", "work"]);
    assert_eq!(
        (&merged["commits"], &merged["merges"]),
        (&json!(1), &json!(1))
    );
    assert!(
        tine.ok(&["handoff", "show", "3"])
            .contains("1 merge left out")
    );
}

#[test]
fn nothing_committed_is_skipped_and_says_what_is_uncommitted() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let skipped = told(&tine, 7, &["handoff", "create", "work"]);
    assert_eq!(
        (&skipped["state"], &skipped["uncommitted"]),
        (&json!("skipped"), &json!(false))
    );
    assert_eq!(skipped["reason"], "nothing was committed");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    let skipped = told(&tine, 7, &["handoff", "create", "work"]);
    assert_eq!(
        (&skipped["id"], &skipped["uncommitted"]),
        (&json!(1), &json!(true))
    );
    assert!(
        tine.run(&["handoff", "create", "work"])
            .text()
            .contains("--include-uncommitted")
    );
    assert_eq!(tine.ok(&["handoff", "list"]), "");
    assert!(tine.ok(&["handoff", "list", "--all"]).contains("skipped"));
    refused(
        &repo,
        &tine,
        &["handoff", "show", "1", "--path"],
        "handoff-state",
        3,
    );

    let made = tine.json(&[
        "handoff",
        "create",
        "work",
        "--include-uncommitted",
        "-m",
        "All of it",
    ]);
    assert_eq!(
        (&made["state"], &made["uncommitted"]),
        (&json!("ready"), &json!(false))
    );
    assert_eq!(
        repo.git_in(&dir, &["log", "-1", "--format=%s"]),
        "All of it"
    );
    assert_eq!(repo.status(&dir), "");
    assert_eq!(
        tine.json(&["handoff", "create", "work", "--include-uncommitted"])["id"],
        made["id"]
    );
    tine.ok(&["handoff", "delete", "1"]);
}

#[test]
fn a_handoff_that_fails_says_why_and_is_tried_again() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = fork_with_commit(&repo, &tine);
    tine.ok(&["unmount", "work"]);
    let blob = repo.git_of_fork("work", &["rev-parse", "HEAD:work.txt"]);
    let object = repo
        .common_dir()
        .join("objects")
        .join(&blob[..2])
        .join(&blob[2..]);
    let aside = repo.root().join("aside");
    fs::rename(&object, &aside).unwrap();
    let failed = told(&tine, 1, &["handoff", "create", "work"]);
    assert_eq!(failed["state"], "failed");
    assert!(
        failed["reason"].as_str().unwrap().contains(&blob),
        "{failed}"
    );
    assert_eq!(
        told(&tine, 1, &["handoff", "await", "1"])["handoffs"][0]["state"],
        "failed"
    );
    assert!(tine.ok(&["handoff", "list"]).contains("failed"));
    let beside: Vec<String> = fs::read_dir(repo.common_dir().join("tine/handoffs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(beside, ["1.json"], "nothing half is left");
    fs::rename(&aside, &object).unwrap();
    let ready = tine.json(&["handoff", "create", "work"]);
    assert_eq!(
        (&ready["id"], &ready["state"], &ready["reason"]),
        (&json!(1), &json!("ready"), &Value::Null)
    );
    drop(dir);
}

#[test]
fn several_are_waited_for_and_the_wait_can_end() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let git = HeldGit::new(&repo);
    git.start_daemon(&tine);
    fork_with_commit(&repo, &tine);
    let other = tine.new_fork("other");
    commit_in(&repo, &other, "Other");
    tine.new_fork("idle");
    for (fork, id, exit) in [("work", 1, 0), ("other", 2, 0), ("idle", 3, 0)] {
        let begun = told(&tine, exit, &["handoff", "create", fork, "--background"]);
        assert_eq!(begun["id"], id);
    }
    // One that has nothing to make is done.
    assert_eq!(
        tine.json(&["handoff", "await", "3"])["handoffs"][0]["state"],
        "skipped"
    );
    let failure = refused(
        &repo,
        &tine,
        &["handoff", "await", "3", "2", "1", "--timeout", "0"],
        "timeout",
        8,
    );
    assert_eq!(failure["causes"], json!(["still pending: 2, 1"]));
    assert_eq!(
        (state_of(&tine, 1), state_of(&tine, 2)),
        ("pending".to_owned(), "pending".to_owned())
    );
    refused(
        &repo,
        &tine,
        &["handoff", "delete", "1"],
        "handoff-state",
        3,
    );
    refused(
        &repo,
        &tine,
        &["handoff", "await", "1", "9"],
        "no-such-handoff",
        4,
    );
    // Others work meanwhile, in the fork, too.
    tine.ok(&[
        "write",
        "--fork",
        "work",
        "meanwhile.txt",
        "--file",
        "README.md",
    ]);
    let waited = std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| tine.json(&["handoff", "await", "2", "1", "3", "--timeout", "60s"]));
        git.release();
        waiting.join().unwrap()
    });
    assert_eq!(
        each(&waited["handoffs"], "state"),
        ["ready", "ready", "skipped"]
    );
    assert_eq!(each(&waited["handoffs"], "fork"), ["other", "work", "idle"]);
    refused(&repo, &tine, &["handoff", "await"], "usage", 2);
    refused(
        &repo,
        &tine,
        &["handoff", "await", "1", "--timeout", "soon"],
        "usage",
        2,
    );
}

#[test]
fn whoever_waits_does_not_keep_the_daemon_from_ending_and_goes_on_with_the_next() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let git = HeldGit::new(&repo);
    git.start_daemon(&tine);
    fork_with_commit(&repo, &tine);
    tine.ok(&["handoff", "create", "work", "--background"]);
    std::thread::scope(|scope| {
        // With the daemon's git it starts another that is held.
        let waiting = scope.spawn(|| {
            let mut command = tine.command(&["handoff", "await", "1", "--json"]);
            run_with_timeout(&mut command).expect_success("tine handoff await")
        });
        let pid = tine.daemons()[0];
        wait_until(
            "the client asks",
            crate::support::command::DEFAULT_LIMIT,
            || clients_of(&tine) > 0,
        );
        tine.ok(&["daemon", "stop"]);
        assert_eq!(state_in_store(&repo, 1), "pending");
        git.release();
        let waited: Value = serde_json::from_str(&waiting.join().unwrap().text()).unwrap();
        assert_eq!(waited["handoffs"][0]["state"], "ready");
        assert!(!tine.daemons().contains(&pid));
    });
}

/// How many processes of this test wait for the daemon.
fn clients_of(tine: &Tine) -> usize {
    let waits = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|word| word == b"await")
            && fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok()
    };
    tine.processes().iter().filter(|pid| waits(pid)).count()
}

/// The state that a record on the disk says.
fn state_in_store(repo: &TestRepo, id: u64) -> String {
    let path = repo.common_dir().join(format!("tine/handoffs/{id}.json"));
    let record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    record["state"].as_str().unwrap().to_owned()
}

/// Invariant 3.
#[test]
fn a_handoff_outlives_fork_branch_daemon_and_gc() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let git = HeldGit::new(&repo);
    git.start_daemon(&tine);
    let dir = fork_with_commit(&repo, &tine);
    let tree = repo.git_in(&dir, &["rev-parse", "HEAD^{tree}"]);
    tine.ok(&["handoff", "create", "work", "--background"]);
    let deleted = std::thread::scope(|scope| {
        // The fork stays as long as the mailbox is not there.
        let deleting = scope.spawn(|| tine.run(&["delete", "work"]));
        tine.ok(&["handoff", "list"]);
        assert!(dir.join("work.txt").exists());
        git.release();
        deleting.join().unwrap()
    });
    deleted.expect_success("tine delete");
    assert_eq!(state_in_store(&repo, 1), "ready");
    assert!(!dir.exists());
    tine.ok(&["daemon", "stop"]);
    repo.git(&["branch", "-D", "tine/work"]);
    repo.sh_in(
        repo.dir(),
        "find .git/objects -type f -exec touch -d '3 weeks ago' {} +; git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    let shown = tine.json(&["handoff", "show", "1"]);
    assert_eq!(
        (&shown["state"], &shown["new_tree"]),
        (&json!("ready"), &json!(tree))
    );
    assert!(tine.ok(&["handoff", "diff", "1"]).contains("+work"));
    let clone = applied(&repo, "clone", &mailbox(&tine, 1), &[]);
    assert_eq!(repo.git_in(&clone, &["rev-parse", "HEAD^{tree}"]), tree);

    // Nothing else has it by now.
    let failure = refused(
        &repo,
        &tine,
        &["handoff", "delete", "1"],
        "handoff-state",
        3,
    );
    assert!(failure["hint"].as_str().unwrap().contains("--force"));
    let head = shown["head_commit"].as_str().unwrap();
    assert!(
        tine.ok(&["handoff", "delete", "1", "--force"])
            .contains("`tine recover 1 NAME` brings its commits back as a branch")
    );
    assert_eq!(repo.git(&["for-each-ref", "refs/tine/+handoffs"]), "");
    tine.ok(&["recover", "1", "back"]);
    assert_eq!(repo.git(&["rev-parse", "back"]), head);
    refused(
        &repo,
        &tine,
        &["handoff", "show", "1"],
        "no-such-handoff",
        4,
    );
}

#[test]
fn a_daemon_makes_what_another_did_not_come_to_make() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let git = HeldGit::new(&repo);
    git.start_daemon(&tine);
    let dir = fork_with_commit(&repo, &tine);
    let begun = tine.json(&["handoff", "create", "work", "--background"]);
    assert_eq!(begun["state"], "pending");
    let failure = refused(
        &repo,
        &tine,
        &["handoff", "show", "1", "--path"],
        "handoff-state",
        3,
    );
    assert!(failure["hint"].as_str().unwrap().contains("await"));
    tine.kill_daemon();
    // Of the commits that were there, not of those that are.
    let store = repo.common_dir().join("tine/handoffs");
    fs::write(store.join("1.mbox.77-0.tmp"), "half").unwrap();
    fs::write(store.join("9.mbox"), "of nobody").unwrap();
    repo.git(&["update-ref", "refs/tine/+handoffs/9", "HEAD"]);
    tine.ok(&["list"]);
    commit_in(&repo, &dir, "Later");
    let made = tine.json(&["handoff", "await", "1"])["handoffs"][0].clone();
    assert_eq!(
        (&made["state"], &made["commits"]),
        (&json!("ready"), &json!(1))
    );
    assert_eq!(made["head_commit"], begun["head_commit"]);
    let mut files: Vec<String> = fs::read_dir(&store)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["1.json", "1.mbox"]);
    assert_eq!(
        repo.git(&["for-each-ref", "--format=%(refname)", "refs/tine/+handoffs"]),
        "refs/tine/+handoffs/1"
    );
    // So is one whose mailbox is lost.
    tine.ok(&["daemon", "stop"]);
    let before = fs::read(store.join("1.mbox")).unwrap();
    fs::remove_file(store.join("1.mbox")).unwrap();
    tine.ok(&["handoff", "await", "1"]);
    assert!(fs::read(store.join("1.mbox")).unwrap() == before);
    git.release();
}

#[test]
fn a_fork_of_a_repository_without_commits_hands_over_all_it_has() {
    require_fuse!();
    let repo = TestRepo::unborn();
    repo.git(&["config", "maintenance.auto", "false"]);
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    assert_eq!(
        told(&tine, 7, &["handoff", "create", "work"])["head_commit"],
        Value::Null
    );
    fs::write(dir.join("first.txt"), "first\n").unwrap();
    let made = tine.json(&["handoff", "create", "work", "--include-uncommitted"]);
    assert_eq!(
        (&made["state"], &made["commits"], &made["base_commit"]),
        (&json!("ready"), &json!(1), &Value::Null)
    );
    assert!(tine.ok(&["handoff", "diff", "2"]).contains("+first"));
    let clone = repo.root().join("clone");
    repo.git_in(repo.root(), &["init", "-q", path_text(&clone)]);
    repo.git_in(&clone, &["am", "-q", path_text(&mailbox(&tine, 2))]);
    repo.assert_same_trees(&dir, &clone);
}

#[test]
fn what_git_merged_or_rebased_onto_is_no_part_of_a_handoff() {
    require_fuse!();
    for way in ["git rebase -q main", "git merge -q --no-edit main"] {
        let repo = TestRepo::new().without_maintenance();
        let tine = Tine::new(&repo);
        let dir = fork_with_commit(&repo, &tine);
        repo.write("README.md", "main goes on\n");
        repo.commit_all("main goes on");
        repo.sh_in(&dir, way);
        let handoff = tine.json(&["handoff", "create", "work"]);
        assert_eq!(
            (&handoff["commits"], &handoff["base_commit"]),
            (&json!(1), &json!(repo.head())),
            "{way}"
        );
        tine.ok(&["handoff", "apply", "1"]);
    }
}

#[test]
fn a_fork_on_a_branch_that_was_there_hands_its_commits_over() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let base = repo.head();
    fork_with_commit(&repo, &tine);
    tine.ok(&["delete", "work"]);
    tine.ok(&["new", "again", "--branch", "tine/work", "--no-mount"]);
    let handoff = tine.json(&["handoff", "create", "again"]);
    assert_eq!(
        (&handoff["commits"], &handoff["base_commit"]),
        (&json!(1), &json!(base))
    );
    // Any other beginning can be named.
    let other = tine
        .command(&["handoff", "create", "again", "--base", "HEAD", "--json"])
        .output()
        .unwrap();
    assert!(other.text().contains("skipped"), "{}", other.text());
}

#[test]
fn a_handoff_is_refused_where_head_is_not_at_the_fork_s_commits() {
    require_fuse!();
    for kind in ["own", "linked"] {
        let repo = TestRepo::new().without_maintenance();
        let tine = Tine::new(&repo);
        let dir = PathBuf::from(tine.ok(&["new", "work", "--git", kind]));
        repo.sh_in(&dir, "echo a > a; git add a; git commit -qm a");
        repo.sh_in(
            &dir,
            "GIT_SEQUENCE_EDITOR='sed -i s/pick/edit/' git rebase -q -i HEAD~1; git reset -q --hard HEAD~1",
        );
        let refused = tine.fails(3, &["handoff", "create", "work"]);
        assert!(refused.contains("git rebase --abort"), "{refused}");
        repo.git_in(&dir, &["rebase", "--abort"]);
        let at = repo.git_in(&dir, &["rev-parse", "HEAD"]);
        repo.git(&["update-ref", "-d", "refs/heads/tine/work"]);
        if kind == "own" {
            // It has that branch to itself.
            tine.ok(&["handoff", "create", "work"]);
            continue;
        }
        let refused = tine.fails(3, &["handoff", "create", "work"]);
        assert!(
            refused.contains(&format!("git branch tine/work {at}")),
            "{refused}"
        );
        repo.git(&["branch", "tine/work", &at]);
        tine.ok(&["handoff", "create", "work"]);
    }
}
