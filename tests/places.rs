//! The mount place is never a trap: nobody writes beside a fork unnoticed while nothing is mounted,
//! and copied and moved repositories keep their hands off each other's places.

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::{OutputExt, TestRepo, Tine, is_root, require_fuse, require_root, run_with_timeout};

/// What is mounted at exactly `dir`, lowest first: the types of the file systems.
fn mounted_at(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .filter_map(|line| {
            let (place, rest) = line.split_once(" - ")?;
            let at = place.split(' ').nth(4)?;
            (Path::new(at) == dir).then(|| rest.split(' ').next().unwrap().to_owned())
        })
        .collect()
}

fn mode(dir: &Path) -> u32 {
    fs::metadata(dir).unwrap().permissions().mode() & 0o777
}

/// A writer of numbered files, every few milliseconds, until it is told to end; the numbers that it
/// wrote.
fn write_until(dir: &Path, stop: &AtomicBool) -> Vec<u32> {
    let mut written = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        if fs::write(dir.join(format!("f{number}")), number.to_string()).is_ok() {
            written.push(number);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    written
}

#[test]
fn what_a_writer_wrote_across_kills_of_the_daemon_is_in_the_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&dir, &stop));
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(60));
            tine.kill_daemon();
            std::thread::sleep(Duration::from_millis(20));
            tine.ok(&["list"]);
        }
        tine.ok(&["daemon", "stop", "--force"]);
        std::thread::sleep(Duration::from_millis(60));
        tine.ok(&["list"]);
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    assert!(written.len() > 20, "{written:?}");
    for number in &written {
        let found = fs::read_to_string(dir.join(format!("f{number}")));
        assert_eq!(found.ok(), Some(number.to_string()), "f{number}");
    }
    if is_root() {
        assert_eq!(
            mounted_at(&dir),
            ["tmpfs", "fuse.tine"],
            "a guard lies beneath"
        );
        let forks = tine.json(&["list"]);
        assert_eq!(
            forks["forks"][0]["strays"],
            serde_json::json!([]),
            "nothing got beside it"
        );
    }
}

#[test]
fn the_place_is_read_only_while_nothing_is_mounted_and_goes_with_the_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    tine.ok(&["daemon", "stop"]);
    assert_eq!(mode(&dir), 0o555);
    assert!(
        fs::write(dir.join("x"), "").is_err(),
        "the fork is meant to be mounted"
    );
    assert!(!mounted_at(&dir).contains(&"fuse.tine".to_owned()));
    tine.ok(&["unmount", "one"]);
    assert_eq!(mounted_at(&dir), [""; 0], "not any more");
    assert_eq!(mode(&dir), 0o555);
    tine.ok(&["mount", "one"]);
    tine.ok(&["delete", "one"]);
    assert!(!dir.exists());
    assert!(
        !dir.parent().unwrap().exists(),
        "the root goes with the last fork"
    );
}

#[test]
fn what_lies_in_the_place_of_an_unmounted_fork_is_told_and_stays_when_that_is_deleted() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    tine.ok(&["unmount", "one"]);
    let lying = || tine.json(&["list"])["forks"][0]["lying"].clone();
    assert_eq!(lying(), serde_json::json!([]));
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.join("a stray.txt"), "stray\n").unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/below"), "below\n").unwrap();
    assert_eq!(lying(), serde_json::json!(["a stray.txt", "sub/"]));
    for _ in 0..2 {
        let told = tine.run(&["list"]).error_text();
        assert!(
            told.contains("a stray.txt, sub/") && told.contains("`tine mount one`"),
            "{told}"
        );
    }
    assert!(
        tine.run(&["status", "one"])
            .error_text()
            .contains("a stray.txt, sub/")
    );
    let deleted = tine.ok(&["delete", "one"]);
    assert!(deleted.contains("a stray.txt, sub/"), "{deleted}");
    assert!(deleted.contains(dir.to_str().unwrap()), "{deleted}");
    assert_eq!(
        fs::read_to_string(dir.join("a stray.txt")).unwrap(),
        "stray\n"
    );
    assert_eq!(
        fs::read_to_string(dir.join("sub/below")).unwrap(),
        "below\n"
    );
    // A fork that is made there has them, as any does that is mounted.
    let dir = tine.new_fork("two");
    tine.ok(&["unmount", "two"]);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.join("later"), "later\n").unwrap();
    tine.ok(&["mount", "two"]);
    assert_eq!(lying(), serde_json::json!([]));
    let deleted = tine.json(&["delete", "two", "--force"]);
    assert_eq!(deleted["left"], serde_json::Value::Null, "{deleted}");
}

#[test]
fn strays_become_files_of_the_fork_and_can_be_taken_back() {
    require_fuse!();
    require_root!("write where a mode forbids it");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    fs::write(dir.join("both.txt"), "the fork's\n").unwrap();
    fs::write(dir.join("same.txt"), "same\n").unwrap();
    tine.ok(&["unmount", "one"]);
    fs::create_dir_all(dir.join("new/deep")).unwrap();
    fs::write(dir.join("new/deep/file.txt"), "deep\n").unwrap();
    fs::write(dir.join("both.txt"), "beside\n").unwrap();
    fs::write(dir.join("same.txt"), "same\n").unwrap();
    fs::write(dir.join("go.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(dir.join("go.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("go.sh", dir.join("to-go")).unwrap();

    let mounted = tine.json(&["mount", "one"]);
    let strays: Vec<(String, String)> = mounted["strays"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stray| {
            let text = |key: &str| stray[key].as_str().unwrap().to_owned();
            (text("path"), text("became"))
        })
        .collect();
    let expected = [
        ("both.txt", "both.txt.stray"),
        ("go.sh", "go.sh"),
        ("new/deep/file.txt", "new/deep/file.txt"),
        ("to-go", "to-go"),
    ];
    assert_eq!(
        strays,
        expected.map(|(from, to)| (from.to_owned(), to.to_owned()))
    );
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(read("both.txt"), "the fork's\n");
    assert_eq!(read("both.txt.stray"), "beside\n");
    assert_eq!(read("new/deep/file.txt"), "deep\n");
    assert_eq!(mode(&dir.join("go.sh")), 0o755);
    assert_eq!(
        fs::read_link(dir.join("to-go")).unwrap(),
        Path::new("go.sh")
    );

    tine.ok(&["undo", "one"]);
    assert!(!dir.join("new").exists() && !dir.join("both.txt.stray").exists());
    tine.ok(&["unmount", "one"]);
    let left: Vec<_> = fs::read_dir(&dir).unwrap().flatten().collect();
    assert!(left.is_empty(), "nothing stays beneath: {left:?}");
}

#[test]
fn strays_are_told_once_whatever_became_of_the_daemon() {
    require_fuse!();
    require_root!("take a guard away");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    // As after a reboot.
    tine.ok(&["daemon", "stop"]);
    for _ in mounted_at(&dir) {
        run_with_timeout(Command::new("umount").arg(&dir)).expect_success("umount");
    }
    fs::write(dir.join("a stray.txt"), "stray\n").unwrap();
    let untold = serde_json::json!([{"path": "a stray.txt", "became": "a stray.txt"}]);
    let strays = || tine.json(&["list"])["forks"][0]["strays"].clone();
    assert_eq!(strays(), untold);
    tine.kill_daemon();
    assert_eq!(strays(), untold, "nobody was told");
    tine.ok(&["daemon", "stop"]);
    for tells in ["list", "status"] {
        let args = if tells == "list" {
            vec!["list"]
        } else {
            vec!["status", "one"]
        };
        let told = tine.run(&args).expect_success(tells);
        let is_told = told
            .error_text()
            .contains("a stray.txt was written while nothing was mounted");
        assert_eq!(is_told, tells == "list", "{}", told.error_text());
    }
    tine.kill_daemon();
    assert_eq!(strays(), serde_json::json!([]));
    assert_eq!(
        fs::read_to_string(dir.join("a stray.txt")).unwrap(),
        "stray\n"
    );
}

#[test]
fn a_fork_that_is_mounted_in_another_mount_namespace_is_not_said_to_be_here() {
    require_fuse!();
    require_root!("a mount namespace of its own");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mut elsewhere = Command::new("unshare");
    elsewhere
        .args(["-m", "--propagation", "private"])
        .arg(Tine::program());
    elsewhere.args(["new", "demo"]).current_dir(repo.dir());
    run_with_timeout(&mut elsewhere).expect_success("tine new");
    let said = tine.fails(5, &["mount", "demo"]);
    assert!(
        said.contains("in the mount namespace of the daemon"),
        "{said}"
    );
    assert!(
        tine.fails(5, &["new", "other"])
            .contains("tine daemon stop")
    );
    tine.ok(&["daemon", "stop"]);
    let dir = PathBuf::from(tine.ok(&["mount", "demo"]).trim_end());
    assert_eq!(
        mounted_at(&dir).last().map(String::as_str),
        Some("fuse.tine")
    );
}

#[test]
fn a_stray_that_a_program_still_writes_is_not_lost() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    tine.ok(&["unmount", "demo"]);
    // The fork's place is read-only for all but who puts it right.
    let _ = Command::new("umount").arg(&dir).output();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let mut log = fs::File::create(dir.join("server.log")).unwrap();
    writeln!(log, "one").unwrap();
    tine.ok(&["mount", "demo"]);
    assert_eq!(fs::read_to_string(dir.join("server.log")).unwrap(), "one\n");
    writeln!(log, "two").unwrap();
    drop(log);
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["mount", "demo"]);
    let texts = ["server.log", "server.log.stray"]
        .map(|name| fs::read_to_string(dir.join(name)).unwrap_or_default());
    assert!(texts.iter().any(|text| text.contains("two")), "{texts:?}");
}

fn copied(from: &Path, to: &Path) {
    run_with_timeout(Command::new("cp").arg("-a").arg(from).arg(to)).expect_success("cp -a");
}

fn tine_in(tine: &Tine<'_>, dir: &Path, args: &[&str]) -> String {
    tine.ok_in(dir, args)
}

/// That git, run in a fork's place, works in the repository `of`, and knows the place.
fn assert_at_home(repo: &TestRepo, of: &Path, place: &Path) {
    assert_eq!(
        repo.git_in(place, &["status", "--porcelain"]),
        "?? work.txt"
    );
    let log = repo.git_in(place, &["log", "--format=%H", "-1"]);
    assert_eq!(log, repo.git_in(of, &["rev-parse", "HEAD"]));
    assert_eq!(
        worktrees(repo, of).contains(place.to_str().unwrap()),
        place.join(".git").is_file(),
        "the worktrees of {}",
        of.display()
    );
}

/// Where `git worktree list` has the fork's worktree.
fn worktrees(repo: &TestRepo, dir: &Path) -> String {
    let output = run_with_timeout(repo.command(Path::new("git"), dir).args([
        "worktree",
        "list",
        "--porcelain",
    ]));
    output.expect_success("git worktree list").text()
}

#[test]
fn a_copy_takes_places_of_its_own() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        a_copy_takes_places_of_its_own_in(&repo);
    }
}

fn a_copy_takes_places_of_its_own_in(repo: &TestRepo) {
    let tine = Tine::new(repo);
    let dir = tine.new_fork("one");
    fs::write(dir.join("work.txt"), "work\n").unwrap();
    tine.ok(&["daemon", "stop"]);
    let copy = repo.root().join("copy");
    copied(repo.dir(), &copy);

    let text = run_with_timeout(&mut tine.command_in(&copy, &["list"])).expect_success("list");
    let own: PathBuf = repo.root().join("copy.forks/one");
    assert!(text.text().contains("copy.forks/one"), "{}", text.text());
    assert!(
        text.error_text().contains("a copy of"),
        "{}",
        text.error_text()
    );
    assert_eq!(fs::read_to_string(own.join("work.txt")).unwrap(), "work\n");
    assert!(
        !mounted_at(&dir).contains(&"fuse.tine".to_owned()),
        "the original's place is its own"
    );
    assert_at_home(repo, &copy, &own);

    tine.ok(&["list"]);
    fs::write(dir.join("work.txt"), "the original's\n").unwrap();
    assert_eq!(fs::read_to_string(own.join("work.txt")).unwrap(), "work\n");
    assert_at_home(repo, repo.dir(), &dir);
    tine_in(&tine, &copy, &["delete", "one", "--force"]);
    assert_eq!(
        fs::read_to_string(dir.join("work.txt")).unwrap(),
        "the original's\n"
    );
    tine_in(&tine, &copy, &["daemon", "stop"]);
}

#[test]
fn a_repository_that_was_moved_takes_its_places_along() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        a_repository_that_was_moved_takes_its_places_along_in(&repo);
    }
}

fn a_repository_that_was_moved_takes_its_places_along_in(repo: &TestRepo) {
    let tine = Tine::new(repo);
    let dir = tine.new_fork("one");
    fs::write(dir.join("work.txt"), "work\n").unwrap();
    tine.kill_daemon();
    // With the directory around both.
    let parent = repo.root().join("parent");
    fs::create_dir(&parent).unwrap();
    let moved = parent.join("repo");
    fs::rename(repo.dir(), &moved).unwrap();
    fs::rename(dir.parent().unwrap(), parent.join("repo.forks")).unwrap();
    tine_in(&tine, &moved, &["list"]);
    let own = parent.join("repo.forks/one");
    assert_eq!(fs::read_to_string(own.join("work.txt")).unwrap(), "work\n");
    assert!(!dir.exists(), "the old place is not made anew");
    assert_at_home(repo, &moved, &own);

    // By itself: the old place is left behind, and goes.
    tine_in(&tine, &moved, &["daemon", "stop"]);
    let renamed = parent.join("renamed");
    fs::rename(&moved, &renamed).unwrap();
    tine_in(&tine, &renamed, &["list"]);
    let last = parent.join("renamed.forks/one");
    assert_eq!(fs::read_to_string(last.join("work.txt")).unwrap(), "work\n");
    assert!(!own.exists());
    assert_at_home(repo, &renamed, &last);
    tine_in(&tine, &renamed, &["daemon", "stop"]);
}
