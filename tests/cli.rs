//! The built binary as a person and a script use it: what it prints, how it ends, and that a
//! refused command changes nothing.

mod support;

#[path = "cli/after_new.rs"]
mod after_new;
#[path = "cli/aliases.rs"]
mod aliases;
#[path = "cli/applying.rs"]
mod applying;
#[path = "cli/at_a_terminal.rs"]
mod at_a_terminal;
#[path = "cli/bad_input.rs"]
mod bad_input;
#[path = "cli/branches.rs"]
mod branches;
#[path = "cli/carry.rs"]
mod carry;
#[path = "cli/cherry_picking.rs"]
mod cherry_picking;
#[path = "cli/committing.rs"]
mod committing;
#[path = "cli/completing.rs"]
mod completing;
#[path = "cli/diff.rs"]
mod diff;
#[path = "cli/file_tools.rs"]
mod file_tools;
#[path = "cli/forks.rs"]
mod forks;
#[path = "cli/gone_sides.rs"]
mod gone_sides;
#[path = "cli/handing_off.rs"]
mod handing_off;
#[path = "cli/handing_over.rs"]
mod handing_over;
#[path = "cli/handoffs.rs"]
mod handoffs;
#[path = "cli/leads.rs"]
mod leads;
#[path = "cli/looking.rs"]
mod looking;
#[path = "cli/machines.rs"]
mod machines;
#[path = "cli/merge_contents.rs"]
mod merge_contents;
#[path = "cli/merge_targets.rs"]
mod merge_targets;
#[path = "cli/merging.rs"]
mod merging;
#[path = "cli/merging_uncommitted.rs"]
mod merging_uncommitted;
#[path = "cli/mistyping.rs"]
mod mistyping;
#[path = "cli/operations.rs"]
mod operations;
#[path = "cli/origin.rs"]
mod origin;
#[path = "cli/overview.rs"]
mod overview;
#[path = "cli/pairs.rs"]
mod pairs;
#[path = "cli/pairs_of_all.rs"]
mod pairs_of_all;
#[path = "cli/paths.rs"]
mod paths;
#[path = "cli/programs.rs"]
mod programs;
#[path = "cli/recovering.rs"]
mod recovering;
#[path = "cli/remote_refusals.rs"]
mod remote_refusals;
#[path = "cli/remotes.rs"]
mod remotes;
#[path = "cli/resolvers.rs"]
mod resolvers;
#[path = "cli/revert.rs"]
mod revert;
#[path = "cli/reviews.rs"]
mod reviews;
#[path = "cli/rounds.rs"]
mod rounds;
#[path = "cli/seeing.rs"]
mod seeing;
#[path = "cli/snapshots.rs"]
mod snapshots;
#[path = "cli/staging.rs"]
mod staging;
#[path = "cli/switching.rs"]
mod switching;
#[path = "cli/updating.rs"]
mod updating;
#[path = "cli/warm.rs"]
mod warm;
#[path = "cli/ways_back.rs"]
mod ways_back;

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, run_with_timeout_of};

/// Every command, complete, that needs a repository.
const VERBS: [&[&str]; 90] = [
    &["new", "x"],
    &["list"],
    &["path", "x"],
    &["path"],
    &["path", "--main"],
    &["mount", "x"],
    &["unmount", "x"],
    &["delete", "x"],
    &["exec", "x", "--", "true"],
    &["exec", "x", "--new", "--", "true"],
    &["exec", "x", "--at-origin", "--", "true"],
    &["shell", "x"],
    &["mcp"],
    &["status", "x"],
    &["diff", "x"],
    &["revert", "x", "p"],
    &["commit", "x", "-m", "m"],
    &["log", "x"],
    &["snapshot", "x"],
    &["snapshots", "x"],
    &["restore", "x", "s"],
    &["reset", "x"],
    &["ls", "--fork", "x"],
    &["ls", "--deep", "--fork", "x"],
    &["stat", "--fork", "x", "p"],
    &["cat", "--fork", "x", "p"],
    &["write", "--fork", "x", "p"],
    &["mv", "--fork", "x", "p", "q"],
    &["rm", "--fork", "x", "p"],
    &["branch", "list"],
    &["branch", "create", "x"],
    &["branch", "delete", "x"],
    &["branch", "rename", "x", "y"],
    &["branch", "switch", "x", "y"],
    &["merge", "x"],
    &["round", "start", "--agents", "a"],
    &["round", "finish"],
    &["round", "show"],
    &["round", "diff", "a", "b"],
    &["round", "compare"],
    &["round", "present", "--winner", "a"],
    &["round", "merge", "--into", "main"],
    &["round", "attempt", "--agent", "a"],
    &["round", "clean"],
    &["update", "x"],
    &["cherry-pick", "x", "main"],
    &["apply", "x", "p"],
    &["review", "list"],
    &["review", "show", "1"],
    &["review", "diff", "1"],
    &["review", "commit", "1"],
    &["review", "refresh", "1"],
    &["review", "abort", "1"],
    &["resolve", "1", "p", "--ours"],
    &["handoff", "create", "x"],
    &["handoff", "list"],
    &["handoff", "show", "1"],
    &["handoff", "diff", "1"],
    &["handoff", "await", "1"],
    &["handoff", "delete", "1"],
    &["handoff", "import", "f"],
    &["handoff", "apply", "1"],
    &["push", "x"],
    &["push", "--delete", "x"],
    &["fetch"],
    &["new", "x", "--from-remote", "x"],
    &["undo", "x"],
    &["redo", "x"],
    &["op", "log", "x"],
    &["buffer", "list"],
    &["buffer", "show", "f"],
    &["buffer", "merge", "f"],
    &["buffer", "serve"],
    &["cat", "--agent", "p"],
    &["write", "--agent", "p"],
    &["edit", "p", "--old", "a", "--new", "b"],
    &["rm", "--agent", "p"],
    &["mv", "--agent", "p", "q"],
    &["ls", "--agent"],
    &["search", "p"],
    &["run", "--", "true"],
    &["context"],
    &["ui", "--no-open"],
    &["check"],
    &["stats"],
    &["top"],
    &["daemon", "start"],
    &["daemon", "stop"],
    &["daemon", "status"],
    &["uninstall"],
];

/// The failure that `output` tells in JSON; panics where that, or the exit code, is not as it must
/// be.
#[track_caller]
fn failure_of(output: &Output, what: &str) -> Value {
    let text = output.text();
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{what}: {error} in {text:?}"));
    let error = &value["error"];
    assert!(error["code"].is_string(), "{what}: {value}");
    assert!(
        error["hint"].is_string(),
        "{what}: every failure has a hint: {value}"
    );
    assert_eq!(
        error["exit"].as_i64(),
        output.status.code().map(i64::from),
        "{what}: {value}"
    );
    for line in
        std::iter::once(&error["message"]).chain(error["causes"].as_array().expect("a list"))
    {
        let line = line.as_str().expect("a line of text");
        assert!(!line.is_empty() && !line.contains('\n'), "{what}: {line:?}");
    }
    assert_eq!(output.error_text(), "", "{what}: JSON alone tells it");
    error.clone()
}

/// Runs `command` once as it is and once with `--json`: it must fail with this code and exit code
/// in both forms, and leave everything as it was. The failure.
#[track_caller]
fn refused(repo: &TestRepo, tine: &Tine, args: &[&str], code: &str, exit: i32) -> Value {
    take_over(repo, tine);
    let before = state(repo);
    let output = tine.run(args);
    let what = format!("tine {args:?}");
    assert_eq!(
        output.status.code(),
        Some(exit),
        "{what}: {}",
        output.error_text()
    );
    assert_eq!(output.text(), "", "{what}: nothing on standard output");
    let said = output.error_text();
    let mut lines = said.lines();
    assert!(
        lines.next().is_some_and(|line| line.starts_with("error: ")),
        "{what}: {said}"
    );
    assert!(
        lines.all(|line| line.starts_with("cause: ") || line.starts_with("hint: ")),
        "{what}: {said}"
    );

    let mut words = args.to_vec();
    let end = words
        .iter()
        .position(|word| *word == "--")
        .unwrap_or(words.len());
    words.insert(end, "--json");
    let output = tine.run(&words);
    assert_eq!(
        output.status.code(),
        Some(exit),
        "{what}: {}",
        output.text()
    );
    let failure = failure_of(&output, &what);
    assert_eq!(failure["code"], code, "{what}: {failure}");
    assert_eq!(state(repo), before, "{what}: nothing was changed");
    failure
}

/// Runs `tine` with `input` on standard input; its standard output.
#[track_caller]
fn written(tine: &Tine, args: &[&str], input: &[u8]) -> String {
    let limit = std::time::Duration::from_secs(60);
    run_with_timeout_of(&mut tine.command(args), limit, input)
        .expect_success(&format!("tine {args:?}"))
        .text()
}

/// Has tine take over what git did in forks, as each command about a fork does first.
fn take_over(repo: &TestRepo, tine: &Tine) {
    let forks = repo.common_dir().join("tine/forks");
    for fork in names_in(&forks).split_whitespace() {
        if forks.join(fork).join("git").exists() {
            // It fails for forks that are damaged.
            tine.run(&["status", fork]);
        }
    }
}

/// What a refused command must leave alone: refs, worktrees, the checkout, what lies beside it, and
/// the store's forks.
fn state(repo: &TestRepo) -> String {
    let forks = repo.common_dir().join("tine/forks");
    [
        // What the daemon keeps of a fork's HEAD from gc follows when it looks.
        repo.git(&[
            "for-each-ref",
            "--exclude=refs/tine/*/head",
            "--exclude=refs/tine/*/held-*",
        ]),
        repo.git(&["worktree", "list", "--porcelain"]),
        match repo.git(&["rev-parse", "--is-bare-repository"]).as_str() {
            "true" => String::new(),
            _ => repo.git(&["status", "--porcelain", "--ignored"]),
        },
        names_in(repo.root()),
        names_in(&repo.root().join("repo.forks")),
        names_in(&forks),
        support::mounts_beneath(repo.root())
            .iter()
            .map(|dir| dir.display().to_string())
            .collect::<Vec<_>>()
            .join(" "),
    ]
    .join("\n--\n")
}

/// Leaves review 1, with one conflict, and handoff 1 of the fork `demo`.
#[track_caller]
fn leave_review_and_handoff(repo: &TestRepo, tine: &Tine) {
    let dir = tine.new_fork("demo");
    fs::write(dir.join("same.txt"), "theirs\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "Theirs"]);
    tine.ok(&["handoff", "create", "demo"]);
    repo.write("same.txt", "ours\n");
    repo.git(&["add", "same.txt"]);
    repo.git(&["commit", "--quiet", "-m", "Ours"]);
    tine.fails(3, &["merge", "demo", "--into", "main", "--review"]);
}

fn names_in(dir: &std::path::Path) -> String {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| {
            entry
                .expect("a readable directory")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names.join(" ")
}

#[test]
fn every_command_explains_itself_without_a_repository() {
    let place = tempfile::tempdir().unwrap();
    for verb in VERBS {
        let mut command = Command::new(Tine::program());
        command
            .current_dir(place.path())
            .args(verb.iter().take_while(|word| **word != "--"))
            .arg("--help");
        let output = run_with_timeout(&mut command).expect_success("help");
        assert!(output.text().contains("Usage: tine"), "{verb:?}");
        assert!(output.text().contains("Example"), "{verb:?}");
        assert_eq!(output.error_text(), "", "{verb:?}");
    }
    let version = run_with_timeout(Command::new(Tine::program()).arg("--version")).text();
    assert_eq!(version, format!("tine {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn outside_a_repository_every_command_says_so_and_makes_nothing() {
    let repo = TestRepo::unborn();
    let place = tempfile::tempdir().unwrap();
    let tine = Tine::new(&repo);
    for verb in VERBS {
        let output = tine.run_in(place.path(), verb);
        assert_eq!(
            output.status.code(),
            Some(4),
            "{verb:?}: {}",
            output.error_text()
        );
        let said = output.error_text();
        assert!(
            said.contains("is not inside a git repository"),
            "{verb:?}: {said}"
        );
        assert!(said.contains("hint: "), "{verb:?}: {said}");
        let mut words = vec!["--json"];
        words.extend_from_slice(verb);
        let failure = failure_of(&tine.run_in(place.path(), &words), &format!("{verb:?}"));
        assert_eq!(failure["code"], "not-a-repository");
    }
    assert_eq!(names_in(place.path()), "");
    assert_eq!(tine.daemon_pid(), None);
}

#[test]
fn commands_that_only_look_start_no_daemon_where_there_are_no_forks() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let output = tine.run(&["list"]).expect_success("list");
    assert_eq!(output.text(), "");
    assert!(
        output.error_text().contains("tine new NAME"),
        "{}",
        output.error_text()
    );
    assert_eq!(
        tine.json(&["list"]),
        serde_json::json!({"forks": [], "damaged": []})
    );
    for verb in [
        "path", "status", "diff", "log", "mount", "delete", "unmount",
    ] {
        refused(&repo, &tine, &[verb, "x"], "no-such-fork", 4);
    }
    refused(&repo, &tine, &["commit", "x", "-m", "m"], "no-such-fork", 4);
    for verb in [
        &["ls", "--fork", "x"][..],
        &["cat", "--fork", "x", "p"],
        &["write", "--fork", "x", "p"],
        &["rm", "--fork", "x", "p"],
    ] {
        refused(&repo, &tine, verb, "no-such-fork", 4);
    }
    refused(&repo, &tine, &["status"], "not-in-fork", 2);
    assert_eq!(tine.ok(&["daemon", "status"]), "no daemon runs");
    assert_eq!(
        tine.json(&["daemon", "stop"]),
        serde_json::json!({"running": false})
    );
    assert!(
        !repo.common_dir().join("tine").exists(),
        "no store was made"
    );
    assert_eq!(tine.daemon_pid(), None);
}

#[test]
fn a_wrong_command_line_is_told_in_the_form_that_was_asked_for() {
    let repo = TestRepo::unborn();
    let tine = Tine::new(&repo);
    let said = tine.fails(2, &["new", "--name", "x"]);
    assert_eq!(
        said,
        "error: unexpected argument '--name' found\n\
         hint: the name stands alone: `tine new NAME`; `tine new --help` shows how it is used\n"
    );
    for args in [
        &["new", "--json"][..],
        &["branch", "--json"],
        &["nonsense", "--json"],
        &["list", "--json", "--wrong"],
    ] {
        let output = tine.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(failure_of(&output, &format!("{args:?}"))["code"], "usage");
    }
    let output = tine.run(&["branch"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        output.error_text().contains("Usage: tine branch"),
        "{}",
        output.error_text()
    );
    let said = tine.fails(4, &["-C", "/nonexistent/place", "list"]);
    assert!(
        said.starts_with("error: could not go to /nonexistent/place\ncause: "),
        "{said}"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let mut child = tine
        .command(&["cat", "--fork", "demo", "data/large.bin"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The file is longer than a pipe holds, so that the write must fail.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(output.error_text(), "");
}

#[test]
fn a_full_disk_behind_standard_output_is_a_failure() {
    let repo = TestRepo::unborn();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Tine::new(&repo)
        .command(&["completions", "fish"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output.error_text().contains("could not be written"),
        "{}",
        output.error_text()
    );
}

#[test]
fn every_shell_gets_a_script_that_asks_the_program() {
    let repo = TestRepo::unborn();
    let tine = Tine::new(&repo);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = tine.ok(&["completions", shell]);
        assert!(script.contains("TINE_COMPLETE"), "{shell}: {script}");
        assert!(
            !script.contains("/tine"),
            "{shell}: it is found in PATH: {script}"
        );
    }
    let script = tine.json(&["completions", "bash"]);
    assert_eq!(script["shell"], "bash");
    assert!(script["script"].as_str().unwrap().contains("_tine()"));
}

#[test]
fn doctor_reports_one_check_a_line_in_a_repository_and_outside() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let inside = tine.json(&["doctor"]);
    let names: Vec<&str> = inside["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "git",
            "kernel",
            "fuse",
            "io-uring",
            "fusermount3",
            "allow-other",
            "namespaces",
            "repository",
            "store",
            "disk",
            "daemon",
            "forks",
            "health",
            "mounts"
        ]
    );
    assert!(
        !repo.common_dir().join("tine").exists(),
        "doctor makes nothing"
    );

    let place = tempfile::tempdir().unwrap();
    let outside = tine.run_in(place.path(), &["doctor"]);
    let said = outside.text();
    assert!(
        said.contains("warn repository: this is not inside a git repository"),
        "{said}"
    );
    for line in said.lines() {
        let is_check = ["ok   ", "warn ", "fail "]
            .iter()
            .any(|verdict| line.starts_with(verdict));
        assert!(is_check || line.starts_with("     hint: "), "{line:?}");
    }
}

#[test]
fn doctor_fails_with_six_where_something_needed_is_missing() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    // No git in PATH.
    let output = run_with_timeout(
        tine.command(&["doctor", "--json"])
            .env("PATH", "/nonexistent"),
    );
    assert_eq!(output.status.code(), Some(6), "{}", output.text());
    let report: Value = serde_json::from_str(&output.text()).unwrap();
    assert_eq!(report["ok"], false);
    let git = &report["checks"][0];
    assert_eq!(
        (&git["name"], &git["verdict"]),
        (&"git".into(), &"fail".into()),
        "{report}"
    );
    assert!(
        git["hint"].as_str().unwrap().contains("install git"),
        "{report}"
    );
}
