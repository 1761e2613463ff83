//! The disk is full: who writes is told so, nothing that was acknowledged is lost, and it goes on
//! once there is room.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::require_disk;
use crate::support::disk::{Kind, in_private_mounts, mount_image, mount_memory};
use crate::support::{OutputExt, TestRepo, Tine, wait_until};

/// What a small disk holds.
const MEBIBYTES: u64 = 32;

/// A repository on a small disk, with as many as `inodes` files where that is given.
fn on_small_disk(inodes: Option<u32>) -> TestRepo {
    TestRepo::on_disk(|root| mount_small_disk(root, inodes, &root.join("disk")))
}

fn mount_small_disk(root: &Path, inodes: Option<u32>, dir: &Path) {
    let memory = root.join("memory");
    mount_memory(&memory);
    let image = memory.join("small.img");
    Kind::Ext4.format(&image, MEBIBYTES, inodes);
    mount_image(&image, dir);
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::StorageFull
}

/// Writes until the disk is full; the bytes that were acknowledged. Where a large piece finds no
/// room a small one may, and what the file system kept for where they would go is free again once
/// they are there.
fn fill(path: &Path) -> u64 {
    const PIECES: [usize; 2] = [64 * 1024, 4096];
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    let (mut acknowledged, mut synced) = (0, 0);
    loop {
        for piece in PIECES {
            let piece = vec![b'x'; piece];
            loop {
                match file.write(&piece) {
                    Ok(count) => acknowledged += count as u64,
                    Err(error) => {
                        assert!(is_full(&error), "{error}");
                        break;
                    }
                }
                assert!(acknowledged < 1 << 30, "the disk never fills up");
            }
        }
        if acknowledged == synced {
            return acknowledged;
        }
        file.sync_all().unwrap();
        synced = acknowledged;
    }
}

/// Makes files in a directory on `disk` until that has no inodes left; the directory.
fn use_up_inodes(disk: &Path) -> PathBuf {
    let dir = disk.join("filler");
    fs::create_dir(&dir).unwrap();
    for number in 0..100_000 {
        if let Err(error) = File::create(dir.join(number.to_string())) {
            assert!(is_full(&error), "{error}");
            return dir;
        }
    }
    panic!("the inodes are never used up");
}

#[test]
fn a_full_disk_reaches_the_writer_and_loses_nothing() {
    require_disk!();
    in_private_mounts(|| {
        let repo = on_small_disk(None);
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("full");
        fs::write(dir.join("keep.txt"), "kept").unwrap();
        let big = dir.join("big");
        let acknowledged = fill(&big);
        // What a fork leaves for itself is taken by others.
        fill(&repo.root().join("disk/filler"));
        assert!(acknowledged > 1 << 20, "{acknowledged}");
        let check_kept = || {
            assert_eq!(fs::read(dir.join("keep.txt")).unwrap(), b"kept");
            assert_eq!(fs::metadata(&big).unwrap().len(), acknowledged);
            assert!(fs::read(&big).unwrap().iter().all(|byte| *byte == b'x'));
            let names = fs::read_dir(&dir).unwrap().count();
            assert!(names > 2, "the mount goes on reading");
        };
        check_kept();
        File::open(&big).unwrap().sync_all().unwrap();

        tine.kill_daemon();
        tine.ok(&["list"]);
        check_kept();
        let error = fs::write(dir.join("too-much"), vec![b'y'; 1 << 20]).unwrap_err();
        assert!(is_full(&error), "{error}");

        let pid = tine.daemon_pid();
        fs::remove_file(&big).unwrap();
        wait_until("there is room again", Duration::from_secs(30), || {
            fs::write(dir.join("after.txt"), vec![b'a'; 1 << 20]).is_ok()
        });
        assert_eq!(tine.daemon_pid(), pid, "nothing was started anew");

        tine.kill_daemon();
        tine.ok(&["list"]);
        assert_eq!(fs::read(dir.join("keep.txt")).unwrap(), b"kept");
        assert_eq!(
            fs::read(dir.join("after.txt")).unwrap(),
            vec![b'a'; 1 << 20]
        );
        assert!(!dir.join("big").exists());
        fs::remove_file(repo.root().join("disk/filler")).unwrap();
        tine.ok(&["commit", "full", "-m", "after the flood"]);
        let committed = repo.git(&["ls-tree", "--name-only", "tine/full"]);
        assert!(
            committed.contains("keep.txt") && committed.contains("after.txt"),
            "{committed}"
        );
        tine.ok(&["delete", "full", "--force"]);
    });
}

/// A full disk with a fork `a` of `files` base files in `d/`; its mount.
fn fill_fork(repo: &TestRepo, tine: &Tine<'_>, files: usize) -> PathBuf {
    for number in 0..files {
        repo.write(
            &format!("d/{}/f{number}", number / 500),
            format!("content {number}"),
        );
    }
    repo.commit_all("many");
    let mount = tine.new_fork("a");
    assert!(fill(&mount.join("big")) > 1 << 20);
    fill(&mount.join("second"));
    // What tine keeps for itself must not be had by others.
    fill(&repo.root().join("disk/filler"));
    mount
}

#[test]
fn everything_can_be_removed_on_a_full_disk() {
    require_disk!();
    for (files, is_restarted) in [(300, false), (1_500, true)] {
        in_private_mounts(|| {
            let repo = on_small_disk(None);
            let tine = Tine::new(&repo);
            let mount = fill_fork(&repo, &tine, files);
            if is_restarted {
                tine.kill_daemon();
                tine.ok(&["list"]);
            }
            // Nothing of this frees anything.
            fs::remove_dir_all(mount.join("d")).unwrap();
            let error = fs::write(mount.join("more"), vec![b'x'; 100_000]).unwrap_err();
            assert!(is_full(&error), "{error}");
            tine.ok(&["rm", "--fork", "a", "second"]);
            assert!(!mount.join("second").exists());
            fs::remove_file(mount.join("big")).unwrap();
            wait_until("there is room again", Duration::from_secs(30), || {
                fs::write(mount.join("after"), vec![b'a'; 100_000]).is_ok()
            });
            tine.kill_daemon();
            tine.ok(&["list"]);
            assert_eq!(fs::read(mount.join("after")).unwrap(), vec![b'a'; 100_000]);
            assert!(!mount.join("d").exists() && !mount.join("big").exists());
        });
    }
}

/// Each on a disk of its own, which is full, and on which removing has used up what it may.
#[test]
fn what_frees_space_works_on_a_full_disk() {
    require_disk!();
    let commands: [&[&str]; 7] = [
        &["rm", "--fork", "a", "big"],
        &["revert", "a", "."],
        &["reset", "a"],
        &["delete", "a", "--force"],
        &["unmount", "a", "--discard"],
        &["gc"],
        &["unmount", "a"],
    ];
    for (number, args) in commands.into_iter().enumerate() {
        in_private_mounts(|| {
            let repo = on_small_disk(None);
            let tine = Tine::new(&repo);
            let mount = fill_fork(&repo, &tine, 1_000);
            fs::remove_dir_all(mount.join("d")).unwrap();
            if number % 2 == 1 {
                tine.kill_daemon();
            }
            tine.ok(args);
            fs::remove_file(repo.root().join("disk/filler")).unwrap();
            tine.ok(&["check"]);
            repo.git(&["fsck", "--strict"]);
        });
    }
}

/// Commands that need room are refused for want of it and change nothing; once there is room they
/// are not.
fn check_commands(repo: &TestRepo, tine: &Tine<'_>, mount: &Path, make_room: impl FnOnce()) {
    let state = || {
        (
            repo.git(&["for-each-ref"]),
            repo.git(&["worktree", "list"]),
            // git would write its index, for which there is no room.
            repo.git_in(
                mount,
                &["--no-optional-locks", "status", "--short", "-uall"],
            ),
            fs::read(mount.join("new.txt")).unwrap(),
        )
    };
    let before = state();
    let commands: [&[&str]; 3] = [
        &["commit", "demo", "-m", "refused"],
        &["new", "another"],
        &["unmount", "demo", "--commit", "-m", "refused"],
    ];
    for args in commands {
        let refused = tine.run(&[args, &["--json"]].concat());
        assert_eq!(
            refused.status.code(),
            Some(1),
            "{args:?}: {}",
            refused.text()
        );
        let told: serde_json::Value = serde_json::from_str(&refused.text()).expect("JSON");
        assert_eq!(told["error"]["code"], "no-space", "{args:?}: {told}");
        assert!(told["error"]["hint"].is_string(), "{args:?}: {told}");
        assert_eq!(state(), before, "{args:?}");
    }
    make_room();
    for args in [
        &["commit", "demo", "-m", "in time"][..],
        &["new", "another"],
        &["unmount", "demo"],
    ] {
        tine.ok(args);
    }
    assert_eq!(
        repo.git(&["log", "-1", "--format=%s", "tine/demo"]),
        "in time"
    );
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn commands_are_refused_on_a_full_disk_and_change_nothing() {
    require_disk!();
    in_private_mounts(|| {
        let repo = on_small_disk(None);
        let tine = Tine::new(&repo);
        let mount = tine.new_fork("demo");
        fs::write(mount.join("new.txt"), "new").unwrap();
        let filler = repo.root().join("disk/filler");
        fill(&filler);
        check_commands(&repo, &tine, &mount, || fs::remove_file(&filler).unwrap());
    });
}

#[test]
fn a_disk_without_inodes_is_a_full_one() {
    require_disk!();
    in_private_mounts(|| {
        let repo = on_small_disk(Some(512));
        let tine = Tine::new(&repo);
        let mount = tine.new_fork("demo");
        fs::write(mount.join("new.txt"), "new").unwrap();
        let filler = use_up_inodes(&repo.root().join("disk"));
        // Small files share one of the store's.
        fs::write(mount.join("small"), "small").unwrap();
        let error = fs::write(mount.join("large"), vec![b'x'; 100_000]).unwrap_err();
        assert!(is_full(&error), "{error}");
        check_commands(&repo, &tine, &mount, || {
            fs::remove_dir_all(&filler).unwrap()
        });
    });
}

/// Each on a disk of its own, of which others have taken every inode; with a daemon, and without.
#[test]
fn what_frees_space_works_without_inodes() {
    require_disk!();
    let commands: [&[&str]; 7] = [
        &["reset", "a"],
        &["delete", "a", "--force"],
        &["unmount", "a", "--discard"],
        &["gc"],
        &["recover", "purge", "--all"],
        &["unmount", "a"],
        &["delete", "a", "--force"],
    ];
    for (number, args) in commands.into_iter().enumerate() {
        in_private_mounts(|| {
            let repo = on_small_disk(Some(512));
            let tine = Tine::new(&repo);
            let mount = tine.new_fork("a");
            fs::write(mount.join("large"), vec![b'x'; 100_000]).unwrap();
            tine.new_fork("gone");
            fs::write(repo.root().join("repo.forks/gone/new"), "new").ok();
            tine.ok(&["delete", "gone", "--force"]);
            let filler = use_up_inodes(&repo.root().join("disk"));
            if number % 2 == 1 {
                tine.kill_daemon();
            }
            tine.ok(args);
            tine.ok(&["list"]);
            // What the command has left is kept for the next one.
            tine.ok(&["gc"]);
            fs::remove_dir_all(&filler).unwrap();
            tine.ok(&["check"]);
            repo.git(&["fsck", "--strict"]);
        });
    }
}

#[test]
fn an_unmount_that_was_carried_out_is_no_failure_on_a_full_disk() {
    require_disk!();
    in_private_mounts(|| {
        // The index and the refs of a repository of its own are in the store, too, and the commit
        // would fail before there is an unmount.
        let repo = TestRepo::new().with_linked_forks();
        // Only the store is on the small disk.
        let store = repo.dir().join(".git/tine");
        fs::create_dir(&store).unwrap();
        mount_small_disk(repo.root(), Some(64), &store);
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("full");
        fs::write(dir.join("new.txt"), "new").unwrap();
        // Not even what the commit sets free helps.
        let filler = use_up_inodes(&store);

        tine.ok(&["unmount", "full", "--commit", "-m", "in time"]);
        assert_eq!(
            repo.git(&["log", "-1", "--format=%s", "tine/full"]),
            "in time"
        );
        assert!(!dir.join("new.txt").exists(), "it is unmounted");
        let listed = tine.run(&["list"]).error_text();
        assert!(
            listed.contains("the next daemon will mount it again"),
            "{listed}"
        );

        fs::remove_dir_all(&filler).unwrap();
        tine.ok(&["unmount", "full"]);
        assert!(
            !tine
                .run(&["list"])
                .error_text()
                .contains("will mount it again")
        );
        tine.kill_daemon();
        tine.ok(&["list"]);
        assert!(!dir.join("new.txt").exists(), "it stays unmounted");
    });
}

/// However far a way back comes before the disk is full: the fork is as it was or as it is to be,
/// and stays so.
#[test]
fn a_way_back_that_finds_no_room_is_not_taken() {
    require_disk!();
    in_private_mounts(|| {
        let repo = on_small_disk(None);
        let tine = Tine::new(&repo);
        let mount = tine.new_fork("demo");
        let large = vec![b'l'; 100_000];
        fs::write(mount.join("file"), "before").unwrap();
        fs::write(mount.join("large"), &large).unwrap();
        tine.ok(&["snapshot", "demo", "point"]);
        let filler = repo.root().join("disk/filler");
        let mut taken = 0;
        for blocks in 0..24 {
            fs::write(mount.join("file"), format!("after, {blocks}")).unwrap();
            fs::write(mount.join("made"), "made").unwrap();
            let open = File::open(mount.join("file")).unwrap();
            let filled = fill(&filler);
            let cut = OpenOptions::new().write(true).open(&filler).unwrap();
            cut.set_len(filled.saturating_sub(blocks * 4096)).unwrap();
            drop(cut);
            let args: &[&str] = match blocks % 3 {
                0 => &["restore", "demo", "point"],
                1 => &["reset", "demo"],
                _ => &["snapshot", "demo"],
            };
            let answer = tine.run(args);
            let done = answer.status.success();
            taken += usize::from(done);
            let state = || {
                let read = |name: &str| fs::read(mount.join(name)).ok();
                (read("file"), read("large"), read("made"))
            };
            let is = format!("after, {blocks}").into_bytes();
            let large_now = fs::read(mount.join("large")).ok();
            let old = (Some(is.clone()), large_now, Some(b"made".to_vec()));
            let expected = match blocks % 3 {
                0 if done => (Some(b"before".to_vec()), Some(large.clone()), None),
                1 if done => (None, None, None),
                _ => old,
            };
            assert!(
                state() == expected,
                "{args:?} with {blocks} blocks left, done: {done}: {}",
                answer.error_text()
            );
            let mut held = vec![0; 100];
            let len = std::os::unix::fs::FileExt::read_at(&open, &mut held, 0).unwrap();
            assert_eq!(
                held[..len],
                is,
                "{args:?} with {blocks} blocks left, done: {done}: {}",
                answer.error_text()
            );
            drop(open);
            fs::remove_file(&filler).unwrap();
            if blocks % 2 == 0 {
                tine.kill_daemon();
                tine.ok(&["list"]);
            }
            assert!(
                state() == expected,
                "{args:?} with {blocks} blocks left, opened again"
            );
            tine.ok(&["restore", "demo", "point"]);
            assert!(state() == (Some(b"before".to_vec()), Some(large.clone()), None));
        }
        assert!(
            (1..24).contains(&taken),
            "{taken} of the commands found room"
        );
        repo.git(&["fsck", "--strict"]);
    });
}

#[test]
fn a_dependency_tree_for_which_there_is_no_room_follows_the_main_checkout() {
    require_disk!();
    in_private_mounts(|| {
        let repo = on_small_disk(None);
        let tine = Tine::new(&repo);
        repo.write(".git/info/exclude", "node_modules/\n");
        repo.write("node_modules/large/index.js", vec![b'x'; 4 << 20]);
        let fork = tine.json(&["new", "work", "--carry", "node_modules"]);
        let dir = PathBuf::from(fork["mount_dir"].as_str().unwrap());
        let tree = || tine.json(&["list"])["forks"][0]["carry"]["trees"][0].clone();
        wait_until("it is given up", Duration::from_secs(30), || {
            tree()["state"] == "following"
        });
        assert!(
            tree()["reason"].as_str().unwrap().contains("no room"),
            "{}",
            tree()
        );
        let said = tine.run(&["list"]).expect_success("tine list").error_text();
        assert!(said.contains("tine update work --carried"), "{said}");
        let read = fs::read(dir.join("node_modules/large/index.js")).unwrap();
        assert_eq!(read.len(), 4 << 20);
        let kept = repo.common_dir().join("tine/generations");
        assert_eq!(
            fs::read_dir(kept).unwrap().count(),
            0,
            "nothing is left of it"
        );
        let refused = tine.fails(1, &["update", "work", "--carried"]);
        assert!(refused.contains("no room"), "{refused}");
    });
}

/// The files of the main checkout find no room, and git's words for that are no word of what the
/// user did there.
#[test]
fn a_merge_whose_checkout_finds_no_room_says_that_the_disk_is_full() {
    require_disk!();
    in_private_mounts(|| {
        let repo = on_small_disk(None).without_maintenance();
        let tine = Tine::new(&repo);
        let mount = tine.new_fork("demo");
        // Its blob is small.
        fs::write(mount.join("large"), vec![b'l'; 6 << 20]).unwrap();
        tine.ok(&["commit", "demo", "-m", "Large"]);
        let filler = repo.root().join("disk/filler");
        let filled = fill(&filler);
        let cut = OpenOptions::new().write(true).open(&filler).unwrap();
        cut.set_len(filled.saturating_sub(2 << 20)).unwrap();
        let (head, status) = (repo.head(), repo.status(repo.dir()));
        let answer = tine.run(&["merge", "demo", "--into", "main", "--json"]);
        assert_eq!(answer.status.code(), Some(1), "{}", answer.text());
        let answer: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        let failure = &answer["error"];
        assert_eq!(failure["code"], "no-space", "{failure}");
        assert!(
            failure["hint"]
                .as_str()
                .unwrap()
                .contains("free some space"),
            "{failure}"
        );
        assert_eq!((repo.head(), repo.status(repo.dir())), (head, status));
        drop(cut);
        fs::remove_file(&filler).unwrap();
        tine.ok(&["merge", "demo", "--into", "main"]);
        assert_eq!(
            fs::metadata(repo.dir().join("large")).unwrap().len(),
            6 << 20
        );
    });
}
