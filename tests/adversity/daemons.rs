//! Daemons that are stopped, killed, or do not answer.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::commands;
use crate::states::{assert_doctor_helps, with_fork};
use crate::support::{TestRepo, Tine, require_fuse};
use crate::{Tried, World, sound};

#[test]
fn a_daemon_that_was_killed_is_started_anew() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    with_fork(&repo, &tine);
    let world = World {
        daemons_change: true,
        ..World::new(&repo)
    };
    for (number, subject) in commands::chosen(13).iter().enumerate() {
        match number % 2 {
            0 => tine.kill_daemon(),
            _ => drop(tine.run(&["daemon", "stop"])),
        }
        let tried = world.try_one(subject);
        assert_ne!(
            tried.code(),
            "daemon-unreachable",
            "{}: {tried:?}",
            subject.name()
        );
    }
    world.assert_no_panic_in_log();
}

#[test]
fn a_daemon_that_is_stopped_by_a_signal_keeps_nobody_waiting() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    with_fork(&repo, &tine);
    let world = World::new(&repo);
    let daemon = tine.daemon_pid().expect("it serves the fork");
    let daemon = Pid::from_raw(daemon.try_into().unwrap());
    let before = world.seen();
    kill(daemon, Signal::SIGSTOP).unwrap();
    // All at the same time: each waits a while for an answer.
    let running: Vec<_> = commands::chosen(14)
        .into_iter()
        .filter(|subject| !["daemon stop", "doctor"].contains(&subject.name().as_str()))
        .map(|subject| {
            let child = world
                .command(&subject.with_json())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            (subject, child)
        })
        .collect();
    for (subject, child) in running {
        let output = child.wait_with_output().unwrap();
        let tried = sound(&subject, &output, &subject.name());
        if let Tried::Failed(error) = &tried {
            let is_told = error["code"] == "daemon-unreachable"
                && error["hint"]
                    .as_str()
                    .is_some_and(|hint| hint.contains("kill -CONT"));
            let needs_none = ["not-found", "usage"].contains(&tried.code()) || error["exit"] != 1;
            assert!(is_told || needs_none, "{}: {tried:?}", subject.name());
        }
    }
    assert_doctor_helps(&world, "daemon");
    assert_eq!(world.seen(), before, "nobody changed anything");
    kill(daemon, Signal::SIGCONT).unwrap();
    tine.ok(&["status", "demo"]);
    // And it can be ended in that state.
    kill(daemon, Signal::SIGSTOP).unwrap();
    tine.ok(&["daemon", "stop", "--force"]);
    assert!(tine.ok(&["status", "demo"]).contains("a.txt"));
}
