//! Repositories and forks in a state that a command cannot work with.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{TestRepo, Tine, require_fuse};
use crate::{Tried, World};

/// A repository with a fork that has work, mounted.
pub fn with_fork(repo: &TestRepo, tine: &Tine<'_>) -> PathBuf {
    repo.write("a.txt", "a\n");
    repo.commit_all("a");
    let dir = tine.new_fork("demo");
    fs::write(dir.join("a.txt"), "changed\n").expect("the mount can be written");
    dir
}

#[test]
fn outside_a_repository() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let place = tempfile::tempdir().unwrap();
    let world = World {
        dir: place.path().to_owned(),
        ..World::new(&repo)
    };
    for (subject, tried) in world.try_all(0) {
        let needs_none =
            ["completions", "doctor", "man", "shell-init"].contains(&subject.name().as_str());
        assert!(
            needs_none || tried.code() == "not-a-repository",
            "{}: {tried:?}",
            subject.name()
        );
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    assert_eq!(tine.daemon_pid(), None);
}

#[test]
fn a_bare_repository() {
    require_fuse!();
    let repo = TestRepo::bare();
    let _tine = Tine::new(&repo);
    let world = World::new(&repo);
    world.try_all(1);
    world.assert_no_panic_in_log();
}

#[test]
fn no_forks() {
    require_fuse!();
    let repo = TestRepo::new();
    let _tine = Tine::new(&repo);
    let world = World::new(&repo);
    world.try_all(2);
    world.assert_no_panic_in_log();
}

#[test]
fn a_fork_that_is_not_mounted() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    with_fork(&repo, &tine);
    tine.ok(&["unmount", "demo", "--keep"]);
    let world = World::new(&repo);
    world.try_all(3);
    world.assert_no_panic_in_log();
}

#[test]
fn a_merge_under_way_in_the_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = with_fork(&repo, &tine);
    repo.git_in(&dir, &["commit", "-qam", "in the fork"]);
    repo.write("a.txt", "elsewhere\n");
    repo.commit_all("elsewhere");
    assert!(!repo.try_git_in(&dir, &["merge", "main"]).status.success());
    let world = World::new(&repo);
    for (subject, tried) in world.try_all(4) {
        if subject.name() == "commit" {
            assert_eq!(tried.code(), "operation-in-progress", "{tried:?}");
        }
    }
    world.assert_no_panic_in_log();
}

#[test]
fn a_repository_without_commits() {
    require_fuse!();
    let repo = TestRepo::unborn();
    let tine = Tine::new(&repo);
    let world = World::new(&repo);
    world.try_all(5);
    // Some of it again with a fork of nothing.
    if tine.run(&["new", "demo"]).status.success() {
        world.try_all(6);
    }
    world.assert_no_panic_in_log();
}

#[test]
fn a_detached_head_and_a_deleted_branch() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    with_fork(&repo, &tine);
    let branch = repo.git_of_fork("demo", &["symbolic-ref", "HEAD"]);
    repo.git(&["checkout", "-q", "--detach"]);
    let world = World::new(&repo);
    world.try_all(7);
    tine.run(&["new", "demo"]);
    repo.git(&["update-ref", "-d", &branch]);
    repo.git(&["update-ref", "-d", "refs/heads/main"]);
    world.try_all(8);
    world.assert_no_panic_in_log();
}

/// A directory that is elsewhere as long as this lives.
struct Away {
    home: PathBuf,
    place: PathBuf,
}

impl Away {
    fn take(home: &Path, place: &Path) -> Away {
        fs::rename(home, place).expect("the directory can be moved");
        Away {
            home: home.to_owned(),
            place: place.to_owned(),
        }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        fs::rename(&self.place, &self.home).expect("its place is free");
    }
}

#[test]
fn a_main_checkout_that_is_gone() {
    require_fuse!();
    let repo = TestRepo::init(&["--separate-git-dir=../separate.git"]);
    repo.write_base_files();
    repo.commit_all("base");
    let tine = Tine::new(&repo);
    let mount_dir = with_fork(&repo, &tine);
    let mut world = World::new(&repo);
    let away = Away::take(repo.dir(), &repo.root().join("away"));
    // From the mount first, which some command of these takes away.
    for (condition, dir) in [(10, mount_dir), (9, world.common_dir.clone())] {
        world.dir = dir;
        world.try_all(condition);
    }
    drop(away);
    world.assert_no_panic_in_log();
}

#[test]
fn a_damaged_record_of_a_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    with_fork(&repo, &tine);
    tine.ok(&["daemon", "stop"]);
    fs::write(
        repo.common_dir().join("tine/forks/demo/fork.json"),
        "{ not json",
    )
    .unwrap();
    let world = World::new(&repo);
    for (subject, tried) in world.try_all(11) {
        if let ("status" | "mount" | "commit", Tried::Failed(error)) =
            (subject.name().as_str(), &tried)
        {
            assert_eq!(
                error["code"],
                "store-damaged",
                "{}: {tried:?}",
                subject.name()
            );
        }
    }
    assert_doctor_helps(&world, "health");
    world.assert_no_panic_in_log();
}

#[test]
fn a_store_of_a_newer_format() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    with_fork(&repo, &tine);
    tine.ok(&["daemon", "stop"]);
    let file = repo.common_dir().join("tine/format");
    let whole = fs::read(&file).unwrap();
    let mut format: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    format["format"] = 4_000_000.into();
    fs::write(&file, format.to_string()).unwrap();
    let world = World::new(&repo);
    for (subject, tried) in world.try_all(12) {
        if let Tried::Failed(error) = &tried {
            // Where nothing of the store is needed, something else may be wrong.
            let store_is_read = error["exit"] == 1 || error["exit"] == 6;
            assert!(
                !store_is_read || tried.code() == "newer-format",
                "{}: {tried:?}",
                subject.name()
            );
        }
    }
    assert_doctor_helps(&world, "forks");
    fs::write(&file, whole).unwrap();
    tine.ok(&["status", "demo"]);
}

/// The check of that name is not ok, and every check that is not says what to do.
#[track_caller]
pub fn assert_doctor_helps(world: &World<'_>, name: &str) {
    let output = world.run(&["doctor".into(), "--json".into()]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let checks = report["checks"]
        .as_array()
        .expect("doctor lists its checks");
    let check = checks.iter().find(|check| check["name"] == name);
    let verdict = check.map(|check| check["verdict"].clone());
    assert!(
        verdict.as_ref().is_some_and(|verdict| *verdict != "ok"),
        "{name}: {report}"
    );
    for check in checks.iter().filter(|check| check["verdict"] != "ok") {
        let hint = check["hint"].as_str().unwrap_or_default();
        assert!(!hint.is_empty(), "no hint: {check}");
        for field in ["detail", "hint"] {
            let lines = check[field].as_str().unwrap_or_default().lines().count();
            assert_eq!(lines, 1, "{check}");
        }
    }
}
