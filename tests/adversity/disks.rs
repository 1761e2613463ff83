//! Disks that are full, and file systems that may not be written.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

use crate::World;
use crate::states::{assert_doctor_helps, with_fork};
use crate::support::disk::{Kind, disks_missing, in_private_mounts, mount_image, mount_memory};
use crate::support::{OutputExt, TestRepo, Tine, run_with_timeout, skip, test_name};

/// What a small disk holds.
const MEBIBYTES: u64 = 32;

fn on_small_disk() -> TestRepo {
    TestRepo::on_disk(|root| {
        let memory = root.join("memory");
        mount_memory(&memory);
        let image = memory.join("small.img");
        Kind::Ext4.format(&image, MEBIBYTES, None);
        mount_image(&image, &root.join("disk"));
    })
}

/// Writes until nothing more finds room.
fn fill(path: &Path) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    for piece in [1 << 16, 1 << 12, 1 << 9] {
        let piece = vec![b'x'; piece];
        loop {
            match file.write_all(&piece).and_then(|()| file.sync_data()) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_full_disk() {
    if let Some(reason) = disks_missing() {
        skip(test_name!(), &reason);
        return;
    }
    in_private_mounts(|| {
        let repo = on_small_disk();
        let tine = Tine::new(&repo);
        with_fork(&repo, &tine);
        let filler = repo.root().join("disk/filler");
        fill(&filler);
        let mut world = World::new(&repo);
        world.try_all(15);
        assert_doctor_helps(&world, "disk");
        // Without a daemon, too: it finds no room to start.
        tine.kill_daemon();
        world.daemons_change = true;
        world.try_all(16);
        world.assert_no_panic_in_log();
        fs::remove_file(&filler).unwrap();
        repo.git(&["fsck", "--no-dangling"]);
        tine.ok(&["list"]);
    });
}

#[test]
fn a_read_only_file_system() {
    if let Some(reason) = disks_missing() {
        skip(test_name!(), &reason);
        return;
    }
    in_private_mounts(|| {
        let repo = on_small_disk();
        let tine = Tine::new(&repo);
        with_fork(&repo, &tine);
        tine.ok(&["daemon", "stop"]);
        let disk = repo.root().join("disk");
        let remount = |how: &str| {
            run_with_timeout(Command::new("mount").args(["-o", how]).arg(&disk))
                .expect_success("mount");
        };
        remount("remount,ro");
        let world = World::new(&repo);
        for (subject, tried) in world.try_all(17) {
            let is_start =
                ["mount", "commit", "new", "daemon start"].contains(&subject.name().as_str());
            assert!(
                !is_start || tried.code() == "permission-denied",
                "{}: {tried:?}",
                subject.name()
            );
        }
        assert_doctor_helps(&world, "store");
        remount("remount,rw");
        assert!(tine.ok(&["status", "demo"]).contains("a.txt"));
    });
}
