//! The daemon's end while programs use many mounts, and of a daemon that does not answer.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{CONFLICT, LIMIT, User, is_mounted, processes};
use crate::support::{
    OutputExt, TestRepo, Tine, is_root, path_text, process, run_with_timeout, skip_optional,
    wait_until,
};

/// Mounts in use. Each is given some seconds by itself: one after the other they would take longer
/// than [`LIMIT`].
const MOUNTS: usize = 12;

fn signal(pid: u32, name: &str) {
    run_with_timeout(
        Command::new("kill")
            .arg(format!("-{name}"))
            .arg(pid.to_string()),
    )
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
        assert!(
            told.contains(&format!("(process {})", user.0.id())),
            "{told}"
        );
    }
    assert!(
        dirs.iter().all(|dir| is_mounted(dir)),
        "nothing has changed"
    );
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
        waiting
            .try_wait()
            .expect("touch can be waited for")
            .is_some()
    });
    assert!(!dirs.iter().any(|dir| is_mounted(dir)));
    assert_kept(&tine, &dirs);
}

#[test]
fn a_daemon_that_hangs_while_it_starts_is_found_and_ended_by_force() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    assert_eq!(tine.ok(&["daemon", "status"]), "no daemon runs");
    // It asks git for its version first.
    let bin = repo.root().join("bin");
    repo.sh_in(
        repo.root(),
        "mkdir bin && printf '#!/bin/sh\\nexec sleep 1000\\n' > bin/git && chmod +x bin/git",
    );
    let mut start = tine.command(&["daemon", "run", "--store-of", path_text(&repo.common_dir())]);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut hanging = start.env("PATH", path).process_group(0).spawn().unwrap();
    let pid = hanging.id();

    let told = tine.ok(&["daemon", "status"]);
    assert!(
        told.starts_with(&format!(
            "a daemon (process {pid}) starts or ends, and does not answer"
        )),
        "{told}"
    );
    let state = tine.json(&["daemon", "status"]);
    assert_eq!(state["running"], false);
    assert_eq!(state["silent_pid"], pid);
    let refused = tine.run(&["daemon", "stop"]);
    assert!(!refused.status.success());
    assert!(
        refused.error_text().contains(&format!("process {pid}")),
        "{}",
        refused.error_text()
    );
    let told = tine.ok(&["daemon", "stop", "--force"]);
    assert_eq!(told, "the daemon did not answer and was killed");
    assert!(!hanging.wait().unwrap().success());
    // Its git is no daemon.
    process::kill_group(pid);
    assert_eq!(tine.ok(&["daemon", "stop", "--force"]), "no daemon runs");
    assert_eq!(tine.ok(&["daemon", "status"]), "no daemon runs");
}

/// Kills a daemon that cannot end by itself then: a program has a directory locked while it waits
/// for the daemon, whose notifier waits for the directory. Whoever asks it anew, or has asked it
/// already, frees it.
fn kill_one_that_waits_for_its_own_mount(ask_anew: bool) {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    fs::write(dir.join("new.txt"), "kept\n").expect("the mount takes writes");
    fs::write(dir.join("gone.txt"), "removed\n").expect("the mount takes writes");
    let pid = tine.daemon_pid().expect("the daemon runs");
    let serves_mounts =
        |name: &str| !["tine", "tine-notify", "signals", "accept", "client"].contains(&name);
    let halted = match process::Halted::threads(pid, serves_mounts) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return skip_optional("a killed daemon that cannot end", "ptrace is not permitted");
        }
        halted => halted.expect("its threads can be halted"),
    };
    let start = |command: &mut Command| command.stderr(Stdio::null()).spawn().expect("it runs");
    let mut creating = start(Command::new("touch").arg(dir.join("never.txt")));
    wait_until("touch waits", LIMIT, || {
        process::has_thread_in(creating.id(), "touch", 'S')
    });
    let mut removing = start(&mut tine.command(&["rm", "--fork", "one", "gone.txt"]));
    let is_stuck = || process::has_thread_in(pid, "tine-notify", 'D');
    wait_until("the notifier waits", LIMIT, is_stuck);
    if ask_anew {
        removing.kill().expect("it can be killed");
    }
    process::kill_and_wait(pid);
    drop(halted);
    if ask_anew {
        assert!(is_stuck(), "it cannot end by itself");
        tine.ok(&["list"]);
    }
    for child in [&mut creating, &mut removing] {
        wait_until("whoever waited gets an error", LIMIT, || {
            let status = child.try_wait().expect("it can be waited for");
            status.is_some_and(|status| !status.success())
        });
    }
    wait_until("its thread has ended", LIMIT, || !is_stuck());
    assert_kept(&tine, &[dir]);
    assert_eq!(tine.daemons().len(), 1, "another has taken its place");
}

/// Whether a connection cannot be cut off here.
fn cannot_cut_off() -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let can = is_root() || table.contains(" - fusectl ");
    if !can {
        skip_optional(
            "a killed daemon that cannot end",
            "only root can abort a connection where fusectl is not mounted",
        );
    }
    !can
}

#[test]
fn a_killed_daemon_that_waits_for_its_own_mount_is_freed_by_whoever_asks_next() {
    require_fuse!();
    if !cannot_cut_off() {
        kill_one_that_waits_for_its_own_mount(true);
    }
}

#[test]
fn a_killed_daemon_that_waits_for_its_own_mount_is_freed_by_whoever_waits_for_it() {
    require_fuse!();
    if !cannot_cut_off() {
        kill_one_that_waits_for_its_own_mount(false);
    }
}
