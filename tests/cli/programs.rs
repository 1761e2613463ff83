//! `tine exec` and `tine shell`: the command is on its own, in the fork.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

use serde_json::Value;

use crate::support::{
    OutputExt, TestRepo, Tine, mounts_beneath, require_fuse, run_with_timeout, run_with_timeout_of,
};
use crate::{failure_of, refused};

#[test]
fn the_main_job_in_one_line() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let script = "echo hi > hi.txt && git status --short && git add -A && git commit -qm hi";
    let said = tine.ok(&["exec", "demo", "--new", "--", "sh", "-c", script]);
    assert_eq!(said, "?? hi.txt");
    assert!(tine.ok(&["status", "demo"]).ends_with("nothing to commit"));
    assert_eq!(repo.git(&["show", "tine/demo:hi.txt"]), "hi");
    assert_eq!(repo.git(&["log", "-1", "--format=%s", "tine/demo"]), "hi");
    assert!(!repo.dir().join("hi.txt").exists());
    refused(
        &repo,
        &tine,
        &["exec", "demo", "--new", "--", "true"],
        "fork-exists",
        5,
    );
}

#[test]
fn the_command_runs_at_the_root_and_knows_its_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let script = "pwd; echo \"$PWD|$TINE_FORK|$TINE_MOUNT|${GIT_DIR-unset}|${GIT_INDEX_FILE-unset}\"; git rev-parse --show-toplevel";
    let mut command = tine.command(&["exec", "demo", "--", "sh", "-c", script]);
    // As a hook of the main checkout would have it.
    command
        .env("GIT_DIR", repo.git_dir())
        .env("GIT_INDEX_FILE", repo.git_dir().join("index"));
    let said = run_with_timeout(&mut command).expect_success("exec").text();
    let dir = dir.display();
    assert_eq!(said, format!("{dir}\n{dir}|demo|{dir}|unset|unset\n{dir}"));
    // Without a name, from beneath the mount.
    let said = tine.ok_in(
        &repo.root().join("repo.forks/demo/src"),
        &["exec", "--", "pwd"],
    );
    assert_eq!(said, dir.to_string());
}

#[test]
fn input_output_exit_code_and_signal_are_the_commands_own() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let mut command = tine.command(&[
        "exec",
        "demo",
        "--",
        "sh",
        "-c",
        "cat; echo aside >&2; exit 42",
    ]);
    let output = run_with_timeout_of(
        &mut command,
        std::time::Duration::from_secs(20),
        b"from stdin",
    );
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(
        (output.text().as_str(), output.error_text().as_str()),
        ("from stdin", "aside\n")
    );
    let output = tine.run(&["exec", "demo", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM));
    // A pipe that is closed ends the command as it would anywhere.
    let output = tine.run(&["exec", "demo", "--", "sh", "-c", "yes | head -n 1"]);
    assert_eq!(
        (output.text().as_str(), output.error_text().as_str()),
        ("y", "")
    );
}

#[test]
fn what_cannot_be_run_ends_as_in_a_shell() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let said = tine.fails(127, &["exec", "demo", "--", "no-such-program"]);
    assert!(
        said.contains("error: the command \"no-such-program\" is not found\n"),
        "{said}"
    );
    let said = tine.fails(126, &["exec", "demo", "--", "./README.md"]);
    assert!(
        said.contains("is not executable") && said.contains("chmod +x"),
        "{said}"
    );
    assert_eq!(tine.ok(&["exec", "demo", "--", "./run.sh"]), "ran");
    let output = tine.run(&["exec", "demo", "--json", "--", "no-such-program"]);
    let failure: Value = serde_json::from_str(&output.text()).unwrap();
    assert_eq!(
        (&failure["error"]["code"], &failure["error"]["exit"]),
        (&"command-not-found".into(), &127.into())
    );
}

#[test]
fn exec_mounts_what_is_not_mounted() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    tine.ok(&["unmount", "demo"]);
    assert_eq!(
        tine.ok(&["exec", "demo", "--", "cat", "docs/guide.md"]),
        "one\ntwo\nthree"
    );
    assert_eq!(mounts_beneath(repo.root()), [dir]);
}

#[test]
fn exec_new_takes_the_options_of_new() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.commit_files(&[("second.txt", b"second\n")], "second");
    let tine = Tine::new(&repo);
    let script = "git branch --show-current; ls second.txt 2>/dev/null || echo none";
    let said = tine.ok(&[
        "exec", "old", "--new", "--from", "HEAD~1", "-b", "work", "--", "sh", "-c", script,
    ]);
    assert_eq!(said, "work\nnone");
    refused(
        &repo,
        &tine,
        &["exec", "other", "--from", "HEAD", "--", "true"],
        "usage",
        2,
    );
    refused(
        &repo,
        &tine,
        &["exec", "other", "--", "true"],
        "no-such-fork",
        4,
    );
    refused(&repo, &tine, &["exec", "other", "true"], "usage", 2);
}

#[test]
fn exec_in_json_tells_the_fork_on_standard_error_and_leaves_standard_output_alone() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let output = tine
        .run(&["exec", "demo", "--json", "--", "echo", "--json"])
        .expect_success("exec");
    assert_eq!(output.text(), "--json");
    let fork: Value = serde_json::from_str(output.error_text().lines().next().unwrap()).unwrap();
    assert_eq!(fork["name"], "demo");
    let output = tine.run(&["exec", "nope", "--json", "--", "true"]);
    assert_eq!(failure_of(&output, "exec nope")["code"], "no-such-fork");
}

#[test]
fn shell_is_the_callers_own_at_the_root() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let shell = repo.root().join("my-shell");
    std::fs::write(
        &shell,
        "#!/bin/sh\necho \"mine: $TINE_FORK $(pwd)\"\nexit 7\n",
    )
    .unwrap();
    std::fs::set_permissions(&shell, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = run_with_timeout(tine.command(&["shell", "demo"]).env("SHELL", &shell));
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.text(), format!("mine: demo {}", dir.display()));
    // Without $SHELL, and without a name, from inside.
    let mut command = tine.command_in(&dir, &["shell"]);
    let output = run_with_timeout_of(
        command.env_remove("SHELL"),
        std::time::Duration::from_secs(20),
        b"echo $TINE_FORK; exit 3\n",
    );
    assert_eq!(
        (output.status.code(), output.text().as_str()),
        (Some(3), "demo")
    );
}

/// An ordinary user's PATH may name directories of somebody else's. (To root none is closed.)
#[test]
fn a_directory_of_path_that_is_closed_hides_nothing() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let closed = repo.root().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let path = format!("{}:{}", closed.display(), std::env::var("PATH").unwrap());
    let run = |program: &str| {
        run_with_timeout(
            tine.command(&["exec", "demo", "--", program])
                .env("PATH", &path),
        )
    };
    assert_eq!(run("true").status.code(), Some(0));
    let missing = run("no-such-program");
    assert_eq!(missing.status.code(), Some(127), "{}", missing.error_text());
    assert_eq!(run("./README.md").status.code(), Some(126));
}
