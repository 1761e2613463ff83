//! The daemon's end while programs use many mounts, and of a daemon that does not answer.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{CONFLICT, LIMIT, User, is_mounted, processes};
use crate::support::{OutputExt, TestRepo, Tine, process, run_with_timeout, wait_until};

/// Mounts in use. Each is given some seconds by itself: one after the other they would take longer than [`LIMIT`].
const MOUNTS: usize = 12;

fn signal(pid: u32, name: &str) {
    run_with_timeout(Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()))
        .expect_success("kill");
}

/// Forks with a file each, and a program in each.
fn busy_forks(tine: &Tine<'_>) -> (Vec<PathBuf>, Vec<User>) {
    let dirs: Vec<PathBuf> = (0..MOUNTS)
        .map(|number| tine.new_fork(&format!("fork-{number}")))
        .collect();
    for dir in &dirs {
        fs::write(dir.join("new.txt"), "kept\n").expect("the mount takes writes");
    }
    let users = dirs.iter().map(|dir| User::of(dir)).collect();
    (dirs, users)
}

fn assert_kept(tine: &Tine<'_>, dirs: &[PathBuf]) {
    tine.ok(&["list"]);
    for dir in dirs {
        assert!(is_mounted(dir), "it was mounted");
        assert_eq!(
            fs::read_to_string(dir.join("new.txt")).expect("it is there"),
            "kept\n"
        );
    }
}

#[test]
fn sigterm_waits_for_all_busy_mounts_together() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let (dirs, users) = busy_forks(&tine);
    let pid = tine.daemon_pid().expect("the daemon runs");
    signal(pid, "TERM");
    wait_until("the daemon ends", LIMIT, || !process::is_running(pid));
    assert!(!dirs.iter().any(|dir| is_mounted(dir)));
    drop(users);
    assert_kept(&tine, &dirs);
}

#[test]
fn a_stop_names_the_users_of_every_mount_and_a_forced_one_cuts_all_off() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let (dirs, users) = busy_forks(&tine);
    let told = tine.fails(CONFLICT, &["daemon", "stop"]);
    for user in &users {
        assert!(told.contains(&format!("(process {})", user.0.id())), "{told}");
    }
    assert!(dirs.iter().all(|dir| is_mounted(dir)), "nothing has changed");
    let stopped = run_with_timeout(&mut tine.command(&["daemon", "stop", "--force"]));
    stopped.expect_success("a forced stop");
    assert!(!dirs.iter().any(|dir| is_mounted(dir)));
    drop(users);
    assert_kept(&tine, &dirs);
}

#[test]
fn a_daemon_that_does_not_answer_is_ended_by_force() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dirs = [tine.new_fork("one"), tine.new_fork("two")];
    for dir in &dirs {
        fs::write(dir.join("new.txt"), "kept\n").expect("the mount takes writes");
    }
    let pid = tine.daemon_pid().expect("the daemon runs");
    signal(pid, "STOP");
    // It waits for the daemon.
    let mut waiting = Command::new("touch")
        .arg(dirs[0].join("never.txt"))
        .spawn()
        .expect("touch runs");
    let told = tine.ok(&["daemon", "stop", "--force"]);
    assert_eq!(told, "the daemon did not answer and was killed");
    assert!(!process::is_running(pid) && processes(&repo).is_empty());
    wait_until("whoever waited gets an error", LIMIT, || {
        waiting.try_wait().expect("touch can be waited for").is_some()
    });
    assert!(!dirs.iter().any(|dir| is_mounted(dir)));
    assert_kept(&tine, &dirs);
}
