//! Many mounts at once, and too few descriptors for them.

use std::fs;
use std::time::Instant;

use crate::support::command::shell;
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout};
use crate::{figure, own_memory, scaled, tell};

#[test]
fn many_mounts_at_once_take_little_each_and_end_together() {
    require_fuse!();
    // A linked worktree has a file for git. A repository of its own has a directory, whose
    // directories and replaceable files stay open while the kernel knows them.
    for (repo, files_each) in [
        (TestRepo::new(), 20),
        (TestRepo::new().with_linked_forks(), 5),
    ] {
        many_mounts_take_little(&repo, files_each);
    }
}

fn many_mounts_take_little(repo: &TestRepo, files_each: u64) {
    let tine = Tine::new(repo);
    let count = scaled(16, 200);
    let start = Instant::now();
    let dirs: Vec<_> = (0..count)
        .map(|i| tine.new_fork(&format!("fork-{i}")))
        .collect();
    let made = start.elapsed();
    for (i, dir) in dirs.iter().enumerate() {
        fs::write(dir.join("own.txt"), format!("{i}")).unwrap();
        assert_eq!(
            fs::read_to_string(dir.join("README.md")).unwrap(),
            fs::read_to_string(repo.dir().join("README.md")).unwrap()
        );
    }
    for (i, dir) in dirs.iter().enumerate() {
        assert_eq!(
            fs::read_to_string(dir.join("own.txt")).unwrap(),
            format!("{i}")
        );
        assert_eq!(repo.status(dir), "?? own.txt");
    }
    assert_eq!(figure(&tine, "/mounts"), count);
    let (threads, files) = (figure(&tine, "/threads"), figure(&tine, "/open_files"));
    let memory = own_memory(&tine);
    // Over io_uring each mount has a thread with two descriptors for each CPU, up to eight.
    let is_ring = tine.json(&["daemon", "status"])["mounted"][0]["transport"] == "ring";
    let cpus = std::thread::available_parallelism().unwrap().get().min(8) as u64;
    let rings = if is_ring { cpus } else { 0 };
    assert!(threads <= (4 + rings) * count + 16, "{threads} threads");
    assert!(
        files <= (files_each + 2 * rings) * count + 32,
        "{files} open files"
    );
    assert!(
        memory < (8 << 20) + count * (512 << 10),
        "{memory} bytes of memory"
    );
    let start = Instant::now();
    tine.ok(&["daemon", "stop"]);
    let stopped = start.elapsed();
    let start = Instant::now();
    tine.ok(&["list"]);
    assert_eq!(figure(&tine, "/mounts"), count, "all are mounted again");
    tell(&format!(
        "{count} mounts: made in {made:.2?}, {memory} bytes of its own, {threads} threads, {files} open files, \
         stopped in {stopped:.2?}, mounted again in {:.2?}",
        start.elapsed()
    ));
}

#[test]
fn a_daemon_without_descriptors_left_refuses_and_goes_on() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mut start = shell(
        repo.dir(),
        &format!("ulimit -n 160; {} daemon start", Tine::program().display()),
    );
    repo.isolate(&mut start);
    run_with_timeout(&mut start).expect_success("tine daemon start");
    let mut made = Vec::new();
    let refusal = loop {
        let name = format!("fork-{}", made.len());
        let output = tine.run(&["new", &name]);
        if !output.status.success() {
            break output.error_text();
        }
        made.push(repo.root().join("repo.forks").join(name));
        assert!(
            made.len() < 160,
            "160 descriptors are enough for everything"
        );
    };
    assert!(made.len() > 2, "{refusal}");
    assert!(refusal.contains("ulimit -Hn"), "{refusal}");
    assert!(refusal.contains("may have 160"), "{refusal}");
    assert!(!refusal.contains("panicked"), "{refusal}");
    for dir in &made {
        fs::write(dir.join("new.txt"), "new").unwrap();
        assert_eq!(fs::read_to_string(dir.join("new.txt")).unwrap(), "new");
    }
    // Once there is room again, so is there for a mount.
    tine.ok(&["unmount", "fork-0"]);
    tine.ok(&["unmount", "fork-1"]);
    tine.ok(&["new", "late"]);
    tine.ok(&["status", "late"]);
    // What is kept free is enough for taking all of them down.
    tine.ok(&["daemon", "stop"]);
    for dir in &made {
        assert!(
            !dir.join("new.txt").exists(),
            "{} is mounted",
            dir.display()
        );
    }
}
