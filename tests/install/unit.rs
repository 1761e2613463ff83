//! The user unit of systemd: its commands as plain processes, beside daemons that commands start.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::file;
use crate::support::{
    OutputExt, TestRepo, Tine, has_program, mounts_beneath, require_fuse, run_with_timeout,
    skip_optional, test_name,
};

const INSTALLED: &str = "/usr/bin/tine";

fn unit() -> String {
    fs::read_to_string(file("packaging/tine@.service")).expect("the unit can be read")
}

/// Runs the line `key` of the unit for a repository, as systemd would: split first, then filled in.
fn run(repo: &TestRepo, key: &str) {
    let unit = unit();
    let mut lines = unit
        .lines()
        .filter_map(|line| line.strip_prefix(&format!("{key}=")));
    let (line, others) = (lines.next().expect("the unit has that line"), lines.count());
    assert_eq!(others, 0, "one {key}");
    let words = line
        .split(' ')
        .map(|word| word.replace("%f", repo.dir().to_str().unwrap()));
    let words: Vec<String> = words.collect();
    assert_eq!(words[0], INSTALLED);
    let mut command: Command = repo.command(Tine::program(), Path::new("/"));
    run_with_timeout(command.args(&words[1..])).expect_success(line);
}

#[test]
fn the_unit_mounts_what_was_mounted_and_unmounts_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "kept\n").unwrap();

    // A daemon that a command started is taken as it is, and ended with the unit.
    let on_demand = tine.daemon_pid().expect("a daemon runs");
    run(&repo, "ExecStart");
    assert_eq!(tine.daemons(), [on_demand]);
    run(&repo, "ExecStop");
    assert_eq!(tine.daemons(), [] as [u32; 0]);
    assert_eq!(mounts_beneath(repo.root()).len(), 0);

    // The next login.
    run(&repo, "ExecStart");
    assert_eq!(fs::read_to_string(dir.join("new.txt")).unwrap(), "kept\n");
    let of_unit = tine.daemons();
    assert_eq!(of_unit.len(), 1);
    // Commands use the unit's.
    tine.ok(&["new", "other"]);
    assert_eq!(tine.daemons(), of_unit);
    // One that is ended by hand comes again by a command, and the unit ends that one.
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["daemon", "start"]);
    assert_eq!(mounts_beneath(repo.root()).len(), 2);
    run(&repo, "ExecStop");
    assert_eq!(tine.daemons(), [] as [u32; 0]);
    assert_eq!(mounts_beneath(repo.root()).len(), 0);
    // Where none runs there is nothing to end.
    run(&repo, "ExecStop");
}

#[test]
fn systemd_finds_no_fault_with_the_unit() {
    if !has_program("systemd-analyze") {
        skip_optional(test_name!(), "systemd-analyze is not installed");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    // It wants the program to be there.
    let copy = place.path().join("tine@srv-some\\x20repository.service");
    fs::write(
        &copy,
        unit().replace(INSTALLED, Tine::program().to_str().unwrap()),
    )
    .unwrap();
    let mut analyze = Command::new("systemd-analyze");
    analyze
        .args(["--user", "--man=no", "--recursive-errors=no", "verify"])
        .arg(&copy)
        .env("XDG_RUNTIME_DIR", place.path());
    let verified = run_with_timeout(&mut analyze);
    assert_eq!(verified.error_text(), "");
    assert!(verified.status.success());
}
