//! The daemon's life, through the built binary: start, stop, crash, and what follows an unmount
//! from outside.

#[macro_use]
mod support;

#[path = "daemon/interrupted.rs"]
mod interrupted;
#[path = "daemon/stopping.rs"]
mod stopping;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{OutputExt, TestRepo, Tine, mounts_beneath, process, run_with_timeout, wait_until};
use tine::client::{Client, ConnectOptions};
use tine::git::Repository;
use tine::ops::ErrorCode;
use tine::store::Store;

const LIMIT: Duration = Duration::from_secs(20);

/// Exit codes, as `docs/errors.md` has them.
const REFUSED: i32 = 3;
const CONFLICT: i32 = 5;
const ENVIRONMENT: i32 = 6;

fn store_dir(repo: &TestRepo) -> PathBuf {
    repo.common_dir().join("tine")
}

/// Processes of the test that run the binary.
fn processes(repo: &TestRepo) -> Vec<u32> {
    process::find(Tine::program(), "HOME", repo.home().as_os_str())
}

fn is_mounted(dir: &Path) -> bool {
    mounts_beneath(dir).iter().any(|mount| mount == dir)
}

/// What `tine list` says of the fork.
fn listed(tine: &Tine<'_>, name: &str) -> serde_json::Value {
    let list = tine.json(&["list"]);
    let forks = list["forks"].as_array().expect("a list of forks");
    let fork = forks.iter().find(|fork| fork["name"] == name);
    fork.unwrap_or_else(|| panic!("{name} is not in {list}"))
        .clone()
}

/// Unmounts the fork as a person would who has never heard of tine, and waits for what follows.
fn umount(tine: &Tine<'_>, name: &str, dir: &Path) {
    run_with_timeout(Command::new("umount").arg(dir)).expect_success("umount");
    wait_until("the daemon has seen the unmount", LIMIT, || {
        listed(tine, name)["mounted"] == false
    });
    // A request that may change the fork has its turn when the policy was applied.
    tine.ok(&["status", name]);
}

/// A program that uses a directory until it is killed.
struct User(Child);

impl User {
    fn of(dir: &Path) -> User {
        let mut child = Command::new("sh")
            .args(["-c", "echo here; exec sleep 600"])
            .current_dir(dir)
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("it says that it is there");
        User(child)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A line as it is on the socket; the answer's line.
fn ask_raw(stream: &UnixStream, line: &[u8]) -> String {
    let mut output = stream;
    output.write_all(line).expect("the daemon reads");
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .expect("the daemon answers");
    answer
}

#[test]
fn clients_that_start_at_once_end_with_one_daemon() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    for round in 0..3 {
        let clients: Vec<Child> = (0..8)
            .map(|_| {
                tine.command(&["daemon", "start", "--json"])
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .expect("tine runs")
            })
            .collect();
        let pids: Vec<String> = clients
            .into_iter()
            .map(|client| {
                let output = client
                    .wait_with_output()
                    .expect("it ends")
                    .expect_success("tine daemon start");
                let state: serde_json::Value =
                    serde_json::from_slice(&output.stdout).expect("JSON");
                assert_eq!(state["running"], true);
                state["pid"].to_string()
            })
            .collect();
        assert!(
            pids.iter().all(|pid| *pid == pids[0]),
            "round {round}: {pids:?}"
        );
        wait_until("those who lost the race have ended", LIMIT, || {
            processes(&repo).len() == 1
        });
        assert_eq!(
            tine.daemon_pid().map(|pid| pid.to_string()).as_ref(),
            pids.first()
        );
        tine.ok(&["daemon", "stop"]);
        assert!(
            processes(&repo).is_empty(),
            "stop returns when the process is gone"
        );
    }
}

#[test]
fn a_daemon_holds_nothing_of_who_started_it() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tempfile::tempdir().expect("a temporary directory");
    // `cat` ends when every copy of the pipe's other end is closed, the shell's extra descriptor
    // included.
    let script = format!(
        "{} -C {} daemon start 9>&1 | cat",
        Tine::program().display(),
        repo.dir().display()
    );
    run_with_timeout(repo.command("sh", dir.path()).args(["-c", &script]))
        .expect_success("tine daemon start");
    let pid = tine.daemon_pid().expect("the daemon runs");
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).expect("the process runs");
    assert_eq!(link("cwd"), Path::new("/"));
    assert_eq!(link("fd/0"), Path::new("/dev/null"));
    let log = store_dir(&repo)
        .canonicalize()
        .expect("it is there")
        .join("daemon.log");
    assert_eq!((link("fd/1"), link("fd/2")), (log.clone(), log));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, fields) = stat
        .rsplit_once(") ")
        .expect("the command is in parentheses");
    let fields: Vec<&str> = fields.split(' ').collect();
    assert_eq!(fields[3], pid.to_string(), "it leads a session");
    assert_eq!(fields[4], "0", "it has no terminal");
}

#[test]
fn only_the_owner_reaches_the_socket() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["daemon", "start"]);
    let mode = |path: &Path| {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&store_dir(&repo)), 0o700);
    assert_eq!(mode(&store_dir(&repo).join("daemon.sock")), 0o600);
    assert_eq!(mode(&store_dir(&repo).join("daemon.log")), 0o600);
}

#[test]
fn hostile_lines_are_answered_and_harm_nothing() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["daemon", "start"]);
    let pid = tine.daemon_pid();
    let socket = store_dir(&repo).join("daemon.sock");
    let connect = || {
        let stream = UnixStream::connect(&socket).expect("the daemon listens");
        stream
            .set_read_timeout(Some(LIMIT))
            .expect("a timeout can be set");
        stream
    };
    let stream = connect();
    for (line, code) in [
        (&b"\n"[..], "usage"),
        (b"\0\xff\n", "usage"),
        (b"[]\n", "usage"),
        (b"{\"request\":\"list\"}\n", "protocol-mismatch"),
        (
            b"{\"protocol\":4000000000,\"request\":\"list\"}\n",
            "protocol-mismatch",
        ),
        (
            b"{\"protocol\":2,\"request\":\"show\",\"arguments\":{\"fork\":\"../..\"}}\n",
            "usage",
        ),
        (
            b"{\"protocol\":2,\"request\":\"show\",\"arguments\":{\"fork\":\"none\"}}\n",
            "no-such-fork",
        ),
    ] {
        let answer = ask_raw(&stream, line);
        assert!(
            answer.contains(&format!("\"{code}\"")),
            "{line:?}: {answer}"
        );
    }
    let deep = [b"[".repeat(1 << 20), b"\n".to_vec()].concat();
    assert!(ask_raw(&stream, &deep).contains("\"usage\""));
    // The daemon hangs up on an endless line, maybe before it was all sent.
    let stream = connect();
    let chunk = vec![b'x'; 1 << 20];
    let sent = (0..32)
        .take_while(|_| (&stream).write_all(&chunk).is_ok())
        .count();
    assert!(sent >= 15, "a line of {sent} MiB was refused");
    assert!(tine.ok(&["list"]).is_empty());
    assert_eq!(tine.daemon_pid(), pid, "it is still the same process");
}

#[test]
fn a_store_of_a_newer_format_is_refused_with_its_code() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["daemon", "start"]);
    tine.ok(&["daemon", "stop"]);
    let format = store_dir(&repo).join("format");
    let text = fs::read_to_string(&format).expect("the store has a format");
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value["format"] = 4711.into();
    fs::write(&format, value.to_string()).expect("it can be written");
    let output = tine.run(&["list", "--json"]);
    assert_eq!(
        output.status.code(),
        Some(ENVIRONMENT),
        "{}",
        output.error_text()
    );
    let told = output.text() + &output.error_text();
    assert!(told.contains("\"newer-format\""), "{told}");
    wait_until("no daemon is left", LIMIT, || processes(&repo).is_empty());
}

#[test]
fn a_store_that_another_program_has_open_is_refused_with_its_code() {
    let repo = TestRepo::new();
    let repository = Repository::discover(repo.dir()).expect("the repository opens");
    let store = Store::open(&repository).expect("the store opens");
    let options = ConnectOptions {
        program: Some(Tine::program().to_owned()),
        patience: Duration::from_millis(300),
    };
    let started = Instant::now();
    let failure = match Client::connect_or_start_with(repository.common_dir(), &options) {
        Ok(_) => panic!("the store is locked by this process"),
        Err(failure) => failure,
    };
    assert_eq!(failure.code, ErrorCode::StoreLocked, "{failure}");
    assert!(started.elapsed() < LIMIT, "the wait is bounded");
    drop(store);
}

#[test]
fn a_stop_unmounts_and_the_next_command_mounts_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mounted = tine.new_fork("mounted");
    let unmounted = tine.new_fork("unmounted");
    fs::write(mounted.join("new.txt"), "kept\n").expect("the mount takes writes");
    tine.ok(&["unmount", "unmounted"]);
    tine.ok(&["daemon", "stop"]);
    assert!(!is_mounted(&mounted));
    assert!(processes(&repo).is_empty());

    tine.ok(&["list"]);
    assert!(is_mounted(&mounted), "it was mounted");
    assert!(!is_mounted(&unmounted), "it was not");
    assert_eq!(
        fs::read_to_string(mounted.join("new.txt")).expect("it is there"),
        "kept\n"
    );
}

#[test]
fn a_stop_is_refused_while_a_program_uses_a_mount() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let idle = tine.new_fork("a-idle");
    let busy = tine.new_fork("b-busy");
    let user = User::of(&busy);
    let pid = user.0.id().to_string();
    let told = tine.fails(CONFLICT, &["daemon", "stop"]);
    assert!(told.contains(&pid), "the user is named: {told}");
    let told = tine.fails(CONFLICT, &["unmount", "b-busy"]);
    assert!(told.contains(&pid) && told.contains("--force"), "{told}");
    assert!(
        is_mounted(&idle) && is_mounted(&busy),
        "nothing has changed"
    );
    assert!(busy.join(".git").exists(), "the mount still works");

    tine.ok(&["daemon", "stop", "--force"]);
    assert!(!is_mounted(&idle) && !is_mounted(&busy));
    assert!(processes(&repo).is_empty());
}

#[test]
fn sigterm_ends_the_daemon_in_order_even_while_a_mount_is_used() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "kept\n").expect("the mount takes writes");
    let user = User::of(&dir);
    let pid = tine.daemon_pid().expect("the daemon runs");
    run_with_timeout(Command::new("kill").arg(pid.to_string())).expect_success("kill");
    wait_until("the daemon ends", LIMIT, || !process::is_running(pid));
    assert!(!is_mounted(&dir));
    drop(user);

    tine.ok(&["list"]);
    assert!(is_mounted(&dir), "it was mounted");
    assert!(dir.join("new.txt").exists());
}

#[test]
fn after_a_crash_the_next_command_mounts_again_with_every_write() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "acknowledged\n").expect("the mount takes writes");
    let before = tine.daemon_pid();
    tine.kill_daemon();
    assert!(fs::read_dir(&dir).is_err(), "a dead mount is left behind");

    assert_eq!(listed(&tine, "demo")["mounted"], true);
    assert_ne!(tine.daemon_pid(), before);
    let text = repo.sh_in(&dir, "cat new.txt && git status --short");
    assert_eq!(text, "acknowledged\n?? new.txt");
}

#[test]
fn a_fork_that_cannot_be_mounted_again_is_told_and_keeps_nothing_else_from_working() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let good = tine.new_fork("good");
    let bad = tine.new_fork("bad");
    tine.ok(&["daemon", "stop"]);
    support::force_unmount_beneath(&bad);
    fs::remove_dir(&bad).expect("it is empty");
    fs::write(&bad, "x").expect("the directory around it is an ordinary one");

    let list = tine.json(&["list"]);
    assert!(is_mounted(&good));
    assert_eq!(listed(&tine, "bad")["mounted"], false);
    assert!(
        list["damaged"].to_string().contains("mount-dir-not-empty"),
        "{list}"
    );

    fs::remove_file(&bad).expect("it is ours");
    tine.ok(&["mount", "bad"]);
    let list = tine.json(&["list"]);
    assert_eq!(list["damaged"].as_array().map(Vec::len), Some(0), "{list}");
}

#[test]
fn an_umount_from_outside_applies_the_policy_once() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let base = repo.head();
    for policy in ["keep", "commit", "discard"] {
        let dir = PathBuf::from(tine.ok(&["new", policy, "--on-unmount", policy]));
        fs::write(dir.join("new.txt"), policy).expect("the mount takes writes");
        umount(&tine, policy, &dir);
    }
    let branch = |name: &str| repo.git(&["rev-parse", &format!("tine/{name}")]);
    assert_eq!(branch("keep"), base);
    assert_eq!(branch("discard"), base);
    assert_eq!(
        repo.git(&["rev-parse", "tine/commit^"]),
        base,
        "one commit, not two"
    );
    assert_eq!(repo.git(&["show", "tine/commit:new.txt"]), "commit");
    let kept = tine.json(&["snapshots", "discard"]);
    assert_eq!(
        kept["snapshots"].as_array().map(Vec::len),
        Some(1),
        "{kept}"
    );
    let again =
        PathBuf::from(tine.ok(&["new", "again", "--from-fork", "discard@before-discard-1"]));
    assert_eq!(
        fs::read_to_string(again.join("new.txt")).expect("it was kept"),
        "discard"
    );

    tine.ok(&["daemon", "stop"]);
    tine.ok(&["list"]);
    for policy in ["keep", "commit", "discard"] {
        let dir = PathBuf::from(tine.ok(&["path", policy]));
        assert!(
            !is_mounted(&dir),
            "{policy} was unmounted, and that is remembered"
        );
        tine.ok(&["mount", policy]);
        assert_eq!(
            dir.join("new.txt").exists(),
            policy != "discard",
            "{policy}: a discarded file is gone, others are not"
        );
        let expected = match policy {
            "keep" => "?? new.txt",
            _ => "",
        };
        assert_eq!(
            repo.git_in(&dir, &["status", "--short"]),
            expected,
            "{policy}"
        );
    }
}

#[test]
fn an_unmount_that_cannot_commit_leaves_the_fork_mounted() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "echo other > file && git checkout -q -b side && git add -A && git commit -qm side \
         && git checkout -q tine/demo && echo mine > file && git add -A && git commit -qm mine \
         && ! git merge -q side",
    );
    let told = tine.fails(REFUSED, &["unmount", "demo", "--commit", "-m", "x"]);
    assert!(told.contains("git merge --abort"), "{told}");
    assert!(is_mounted(&dir));
    repo.git_in(&dir, &["merge", "--abort"]);
    tine.ok(&["unmount", "demo", "--commit", "-m", "x"]);
    assert!(!is_mounted(&dir));
}

#[test]
fn a_fork_that_cannot_be_mounted_is_not_made() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let refs = repo.git(&["for-each-ref"]);
    let file = repo.root().join("file");
    fs::write(&file, "x").expect("it can be written");
    let inside = repo.dir().join("inside");
    for (dir, exit, code) in [
        (file.as_path(), CONFLICT, "mount-dir-not-empty"),
        (&inside, 2, "mount-dir-refused"),
        (&repo.common_dir().join("x"), 2, "mount-dir-refused"),
        (Path::new("/proc/none"), 1, "mount-failed"),
    ] {
        let at = dir.to_str().expect("a plain path");
        let output = tine.run(&["new", "demo", "--at", at, "--json"]);
        let told = output.text() + &output.error_text();
        assert_eq!(output.status.code(), Some(exit), "{at}: {told}");
        assert!(told.contains(&format!("\"{code}\"")), "{at}: {told}");
    }
    assert!(!inside.exists());
    assert_eq!(
        repo.git(&["for-each-ref"]),
        refs,
        "no branch and no ref was made"
    );
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    assert!(tine.ok(&["list"]).is_empty());
}

#[test]
fn the_mount_root_of_the_configuration_is_obeyed() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["daemon", "start"]);
    for (setting, place) in [
        ("~/forks", repo.home().join("forks")),
        ("../elsewhere", repo.root().join("elsewhere")),
    ] {
        repo.git(&["config", "tine.mountRoot", setting]);
        let dir = tine.new_fork("demo");
        assert_eq!(dir, place.canonicalize().expect("it was made").join("demo"));
        tine.ok(&["delete", "demo"]);
        assert!(!dir.exists());
    }
}

#[test]
fn a_delete_never_loses_work() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let parent = dir.parent().expect("the root of the mounts").to_owned();
    fs::write(dir.join("new.txt"), "work\n").expect("the mount takes writes");
    tine.fails(REFUSED, &["delete", "demo"]);
    assert!(is_mounted(&dir));
    let deleted = tine.json(&["delete", "demo", "--force"]);
    assert!(
        !parent.exists(),
        "the last fork takes the directory with it"
    );
    let kept = deleted["recover"].as_u64().expect("the work is kept");
    assert_eq!(tine.recoverable_file(&repo, kept, "new.txt"), "work");
    assert_eq!(
        repo.try_git_in(repo.dir(), &["rev-parse", "-q", "--verify", "tine/demo"])
            .status
            .code(),
        Some(1)
    );

    // A branch with a commit of its own stays, also when a later fork of the same name adds nothing
    // to it.
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "work\n").expect("the mount takes writes");
    tine.ok(&["commit", "demo", "-m", "work"]);
    for _ in 0..2 {
        tine.ok(&["delete", "demo"]);
        assert_eq!(repo.git(&["show", "tine/demo:new.txt"]), "work");
        tine.ok(&["new", "demo", "--branch", "tine/demo"]);
    }
    tine.ok(&["delete", "demo"]);
    assert_eq!(repo.git(&["show", "tine/demo:new.txt"]), "work");
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn a_repository_made_in_a_fork_is_not_taken_along_unasked() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "git init -q lib; git -C lib commit -q --allow-empty -m own",
    );
    let message = tine.fails(REFUSED, &["delete", "demo"]);
    assert!(
        message.contains("a repository of its own in lib"),
        "{message}"
    );
    assert!(is_mounted(&dir));
    assert_eq!(
        repo.git_in(&dir.join("lib"), &["log", "--format=%s"]),
        "own"
    );
    // Unlike a commit, a snapshot keeps it.
    tine.ok(&["unmount", "demo", "--discard"]);
    tine.ok(&["mount", "demo"]);
    assert!(!dir.join("lib").exists());
    tine.ok(&["restore", "demo", "before-discard-1"]);
    assert_eq!(
        repo.git_in(&dir.join("lib"), &["log", "--format=%s"]),
        "own"
    );
    tine.ok(&["delete", "demo", "--force"]);
    assert!(!dir.exists());
}

#[test]
fn a_delete_does_not_take_submodules_along_unasked() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "git init -q ../inner; git -C ../inner commit -q --allow-empty -m inner
         git -c protocol.file.allow=always submodule --quiet add \"$PWD/../inner\" sub; git commit -qm sub",
    );
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "git -c protocol.file.allow=always submodule --quiet update --init; git -C sub commit -q --allow-empty -m mine",
    );
    let mine = || repo.git_in(&dir.join("sub"), &["log", "-1", "--format=%s"]);
    let refused = tine.fails(REFUSED, &["delete", "demo"]);
    assert!(refused.contains("not committed"), "{refused}");
    assert!(refused.contains("repositories of submodules"), "{refused}");
    assert_eq!(mine(), "mine");
    // What no remote branch has is kept with the whole fork.
    let deleted = tine.ok(&["delete", "demo", "--force"]);
    assert!(deleted.contains("the submodule sub"), "{deleted}");
    assert!(!dir.join("sub").exists());
    tine.ok(&["check", "--put-back", "1"]);
    tine.ok(&["mount", "demo"]);
    assert_eq!(mine(), "mine");
    repo.sh_in(
        &dir,
        "git -C sub push -q origin HEAD:refs/heads/mine; git -C sub fetch -q",
    );
    let deleted = tine.ok(&["delete", "demo", "--force"]);
    assert!(!deleted.contains("set aside"), "{deleted}");
}

#[test]
fn commands_that_meet_an_ending_daemon_are_served_by_the_next() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("witness");
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let tine = &tine;
            scope.spawn(move || {
                let name = format!("fork-{worker}");
                for _ in 0..6 {
                    let dir = tine.new_fork(&name);
                    tine.ok(&["status", &name]);
                    tine.ok(&["delete", &name]);
                    assert!(!dir.exists());
                }
            });
        }
        for _ in 0..10 {
            tine.ok(&["daemon", "stop"]);
        }
    });
    let list = tine.json(&["list"]);
    assert_eq!(list["forks"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(listed(&tine, "witness")["mounted"], true);
    assert_eq!(processes(&repo).len(), 1);
}

#[test]
fn requests_for_one_fork_wait_for_each_other() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    for round in 0..5 {
        fs::write(dir.join("file"), format!("{round}\n")).expect("the mount takes writes");
        let outcomes: Vec<Option<i32>> = std::thread::scope(|scope| {
            let commits: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| tine.run(&["commit", "demo", "-m", "work"]).status.code()))
                .collect();
            commits
                .into_iter()
                .map(|commit| commit.join().expect("it does not panic"))
                .collect()
        });
        let made = outcomes.iter().filter(|code| **code == Some(0)).count();
        let refused = outcomes
            .iter()
            .filter(|code| **code == Some(REFUSED))
            .count();
        assert_eq!(
            (made, refused),
            (1, 3),
            "one commits, the others find nothing: {outcomes:?}"
        );
    }
    assert_eq!(repo.git(&["rev-list", "--count", "main..tine/demo"]), "5");
    assert_eq!(repo.git_in(&dir, &["status", "--short"]), "");
}

#[test]
fn a_fork_whose_worktree_is_gone_is_told_and_can_be_deleted() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("good");
    tine.new_fork("bad");
    fs::remove_dir_all(repo.git_dir_of_fork("bad")).expect("it was there");
    let list = tine.json(&["list"]);
    let names: Vec<_> = list["forks"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|fork| &fork["name"])
        .collect();
    assert_eq!(names, ["good"], "{list}");
    assert!(
        list["damaged"].to_string().contains("bad is not whole"),
        "{list}"
    );
    tine.ok(&["delete", "bad", "--force"]);
    let list = tine.json(&["list"]);
    assert_eq!(list["damaged"].as_array().map(Vec::len), Some(0), "{list}");
}

#[test]
fn what_git_committed_in_the_mount_leaves_the_layer_by_itself() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("big"), vec![b'x'; 1 << 20]).expect("the mount takes writes");
    let content_bytes = || {
        listed(&tine, "demo")["content_bytes"]
            .as_u64()
            .expect("a number")
    };
    assert!(content_bytes() >= 1 << 20);
    repo.sh_in(&dir, "git add -A && git commit -qm big");
    wait_until("the content leaves the layer", LIMIT, || {
        content_bytes() < 1 << 20
    });
    assert_eq!(repo.git_in(&dir, &["status", "--short"]), "");
    assert_eq!(
        fs::read(dir.join("big")).expect("it is there").len(),
        1 << 20
    );
}

#[test]
fn a_repository_that_is_moved_takes_its_forks_along() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "work\n").expect("the mount takes writes");
    let before = tine.daemon_pid();

    let new_place = repo.root().join("elsewhere");
    fs::rename(repo.dir(), &new_place).expect("the repository can be moved");
    let list: serde_json::Value =
        serde_json::from_str(&tine.ok_in(&new_place, &["list", "--json"])).expect("JSON");
    assert_eq!(list["forks"][0]["name"], "demo", "{list}");
    assert_eq!(list["forks"][0]["mounted"], true, "{list}");
    assert_ne!(tine.daemon_pid(), before);
    let new_dir = repo.root().join("elsewhere.forks/demo");
    let text = repo.sh_in(&new_dir, "cat new.txt && git status --short");
    assert_eq!(text, "work\n?? new.txt");
    assert!(!dir.exists(), "the old place is not left behind");
    tine.ok_in(&new_place, &["daemon", "stop"]);
}

#[test]
fn a_repository_that_is_removed_takes_its_daemon_along() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::remove_dir_all(repo.dir()).expect("the repository can be removed");
    wait_until("the daemon ends", LIMIT, || tine.daemon_pid().is_none());
    assert!(!is_mounted(&dir));
}
