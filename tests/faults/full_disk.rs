//! What lies beneath fails: a full disk.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, skip, test_name, wait_until,
};

/// Puts a file system of `mebibytes` beneath the store, so that it fills up soon. False where that is not permitted.
fn confine_store(repo: &TestRepo, mebibytes: u32) -> bool {
    let store = repo.dir().join(".git/tine");
    fs::create_dir_all(&store).unwrap();
    let size = format!("size={mebibytes}m,mode=0700");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &size, "tine-test"]).arg(&store);
    run_with_timeout(&mut mount).status.success()
}

/// Writes until the disk is full; the bytes that were acknowledged.
fn fill(path: &Path) -> u64 {
    let mut file = File::create(path).unwrap();
    let chunk = [b'x'; 64 * 1024];
    let mut acknowledged = 0;
    loop {
        match file.write(&chunk) {
            Ok(count) => acknowledged += count as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                return acknowledged;
            }
        }
        assert!(acknowledged < 1 << 30, "the disk never fills up");
    }
}

#[test]
fn a_full_disk_reaches_the_writer_and_loses_nothing() {
    require_fuse!();
    let repo = TestRepo::new();
    if !confine_store(&repo, 24) {
        skip(test_name!(), "a small file system cannot be mounted here");
        return;
    }
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("full");
    fs::write(dir.join("keep.txt"), "kept").unwrap();
    let big = dir.join("big");
    let acknowledged = fill(&big);
    assert!(acknowledged > 1 << 20, "{acknowledged}");
    assert_eq!(fs::read(dir.join("keep.txt")).unwrap(), b"kept");
    assert_eq!(fs::metadata(&big).unwrap().len(), acknowledged);
    assert!(fs::read(&big).unwrap().iter().all(|byte| *byte == b'x'));
    assert!(
        fs::read_dir(&dir).unwrap().count() > 2,
        "the mount goes on reading"
    );

    fs::remove_file(&big).unwrap();
    wait_until("there is room again", Duration::from_secs(30), || {
        fs::write(dir.join("after.txt"), vec![b'a'; 1 << 20]).is_ok()
    });

    tine.kill_daemon();
    let dir = tine.ok(&["path", "full"]);
    let dir = Path::new(&dir);
    tine.ok(&["list"]);
    assert_eq!(fs::read(dir.join("keep.txt")).unwrap(), b"kept");
    assert_eq!(fs::read(dir.join("after.txt")).unwrap(), vec![b'a'; 1 << 20]);
    assert!(!dir.join("big").exists());
    tine.ok(&["commit", "full", "-m", "after the flood"]);
    let committed = repo.git(&["ls-tree", "--name-only", "tine/full"]);
    assert!(
        committed.contains("keep.txt") && committed.contains("after.txt"),
        "{committed}"
    );
    tine.ok(&["delete", "full", "--force"]);
    tine.run(&["daemon", "stop", "--force"])
        .expect_success("daemon stop");
}

#[test]
fn an_unmount_that_was_carried_out_is_no_failure_on_a_full_disk() {
    require_fuse!();
    let repo = TestRepo::new();
    if !confine_store(&repo, 4) {
        skip(test_name!(), "a small file system cannot be mounted here");
        return;
    }
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("full");
    fs::write(dir.join("new.txt"), "new").unwrap();
    let filler = repo.dir().join(".git/tine/filler");
    fill(&filler);

    tine.ok(&["unmount", "full", "--commit", "-m", "in time"]);
    assert_eq!(repo.git(&["log", "-1", "--format=%s", "tine/full"]), "in time");
    assert!(!dir.join("new.txt").exists(), "it is unmounted");
    let listed = tine.run(&["list"]).error_text();
    assert!(listed.contains("the next daemon will mount it again"), "{listed}");

    fs::remove_file(&filler).unwrap();
    tine.ok(&["unmount", "full"]);
    assert!(!tine.run(&["list"]).error_text().contains("will mount it again"));
    tine.kill_daemon();
    tine.ok(&["list"]);
    assert!(!dir.join("new.txt").exists(), "it stays unmounted");
}
