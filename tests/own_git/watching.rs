//! Programs that watch `.git`, and what counts as work in a fork.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::new_own;
use crate::support::{TestRepo, Tine, require_fuse};

/// Directories of a git directory that editors and git clients watch.
const WATCHED: [&str; 4] = [
    ".git",
    ".git/refs/heads",
    ".git/refs/heads/tine",
    ".git/logs",
];

/// Returns the names for which watchers get events of changes in the meantime.
fn names_told(dir: &Path, change: impl FnOnce()) -> BTreeSet<String> {
    let flags = InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC;
    let inotify = Inotify::init(flags).expect("a process may watch");
    let asked = AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVE;
    let watched: Vec<_> = WATCHED
        .iter()
        .map(|name| {
            (
                inotify.add_watch(&dir.join(name), asked).expect("a watch"),
                *name,
            )
        })
        .collect();
    change();
    let mut names = BTreeSet::new();
    loop {
        match inotify.read_events() {
            Ok(events) => names.extend(events.into_iter().filter_map(|event| {
                let (_, at) = watched.iter().find(|(wd, _)| *wd == event.wd)?;
                Some(format!("{at}/{}", event.name?.to_string_lossy()))
            })),
            Err(Errno::EAGAIN) => return names,
            Err(error) => panic!("{error}"),
        }
    }
}

#[track_caller]
fn assert_told(told: &BTreeSet<String>, expected: &[&str]) {
    for name in expected {
        assert!(told.contains(*name), "{name} is not in {told:?}");
    }
}

#[test]
fn what_tine_changes_in_the_git_directory_is_told_to_watchers_before_the_command_returns() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "echo 1 > one; git add one; git commit -qm one; git branch topic; git status",
    );
    tine.ok(&["snapshot", "demo", "then"]);
    let branch = [".git/index", ".git/refs/heads/tine/demo", ".git/logs/HEAD"];
    std::fs::write(dir.join("two"), "2").expect("a file");
    let told = names_told(&dir, || drop(tine.ok(&["commit", "demo", "-m", "two"])));
    assert_told(&told, &branch);
    // No event moves a time or a content: the index is as tine wrote it.
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    let told = names_told(&dir, || {
        drop(tine.ok(&["branch", "switch", "demo", "topic"]))
    });
    assert_told(&told, &[".git/HEAD", ".git/index", ".git/logs/HEAD"]);
    tine.ok(&["branch", "switch", "demo", "tine/demo"]);
    let told = names_told(&dir, || {
        drop(tine.ok(&["restore", "demo", "then", "--with-git"]))
    });
    assert_told(&told, &branch);
    repo.sh_in(repo.dir(), "echo m > m; git add m; git commit -qm main");
    let told = names_told(&dir, || drop(tine.ok(&["update", "demo"])));
    assert_told(&told, &branch);
    // A command that changes nothing there tells nothing.
    let told = names_told(&dir, || drop(tine.ok(&["list"])));
    assert_eq!(told, BTreeSet::new());
}

#[test]
fn writes_in_the_git_directory_are_no_activity_and_no_reason_for_a_snapshot() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    tine.ok(&["mount", "demo", "--snapshot-every", "1ops"]);
    std::fs::write(dir.join("one"), "1").expect("a file");
    repo.sh_in(&dir, "git add one");
    let snapshots = || {
        let list = tine.json(&["snapshots", "demo"]);
        list["snapshots"].as_array().map_or(0, Vec::len)
    };
    // The daemon looks every five seconds.
    let deadline = Instant::now() + Duration::from_secs(20);
    while snapshots() == 0 {
        assert!(Instant::now() < deadline, "a written file is a reason");
        std::thread::sleep(Duration::from_millis(100));
    }
    let seen = || {
        let fork = &tine.json(&["list"])["forks"][0];
        let changes = tine.json(&["status", "demo"])["changes"].clone();
        (
            fork["layer_bytes"].clone(),
            fork["content_bytes"].clone(),
            changes,
        )
    };
    let (count, before) = (snapshots(), seen());
    repo.sh_in(
        &dir,
        "git status; git tag v1; git branch topic; git commit-tree -m other HEAD^{tree} | xargs git branch -f topic; git config a.b c; git stash list
         git repack -adq; git gc -q --prune=now; git status",
    );
    let quiet_until = Instant::now() + Duration::from_secs(11);
    while Instant::now() < quiet_until {
        assert_eq!(snapshots(), count, "git's own files are no reason");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(seen(), before);
}
