//! Agents' file tools for scripts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::repo::path_text;
use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, run_with_timeout_of,
};
use crate::{failure_of, refused, written};

#[test]
fn a_fork_that_is_not_mounted_is_worked_in() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    let tool = |args: &[&str]| tine.ok(&[args, &["--fork", "demo"]].concat());
    assert_eq!(
        tool(&["cat", "--agent", "docs/guide.md"]),
        "one\ntwo\nthree"
    );
    // A symlink is followed, and what it leads to is written.
    assert_eq!(
        tool(&["edit", "link", "--old", "# A test", "--new", "# The test"]),
        "edited README.md in 1 place"
    );
    assert!(tool(&["cat", "--agent", "README.md"]).starts_with("# The test\n"));
    assert_eq!(
        written(
            &tine,
            &["write", "--agent", "--fork", "demo", "new/deep/file"],
            b"x\nx\n"
        ),
        "made new/deep/file (4 bytes)"
    );
    assert_eq!(
        tool(&[
            "edit",
            "new/deep/file",
            "--old",
            "x",
            "--new",
            "yy",
            "--all"
        ]),
        "edited new/deep/file in 2 places"
    );
    assert_eq!(
        tool(&["mv", "--agent", "new/deep/file", "elsewhere/still/file"]),
        "moved new/deep/file to elsewhere/still/file"
    );
    assert_eq!(
        tool(&["ls", "--agent", "elsewhere", "--deep"]),
        "d elsewhere/still\n- elsewhere/still/file"
    );
    assert_eq!(
        tool(&["rm", "--agent", "elsewhere/still/file"]),
        "deleted elsewhere/still/file"
    );
    // A mode stays, and everything is taken back.
    written(
        &tine,
        &["write", "--agent", "--fork", "demo", "run.sh"],
        b"#!/bin/sh\n",
    );
    assert_eq!(
        tine.json(&["stat", "--fork", "demo", "run.sh"])["mode"],
        "100755"
    );
    for _ in 0..6 {
        tine.ok(&["undo", "demo"]);
    }
    assert_eq!(tine.json(&["status", "demo"])["changes"], json!([]));
    let log = tine.ok(&["op", "log", "demo"]);
    assert!(log.contains("tine edit link"), "{log}");
}

#[test]
fn edits_are_all_made_or_none_and_say_why_not() {
    let repo = TestRepo::new();
    repo.write("crlf.txt", "one\r\ntwo\r\n");
    repo.write("bytes", b"\xff\n");
    repo.write("large", "x".repeat((16 << 20) + 1));
    repo.commit_all("texts");
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    let before = tine.ok(&["ls", "--deep", "--fork", "demo", "--json"]);
    let edit = ["edit", "--fork", "demo"];
    for (args, code, exit, said) in [
        (
            &["docs/guide.md", "--old", "four", "--new", "x"][..],
            "edit-not-found",
            3,
            "is not there",
        ),
        (
            &["docs/guide.md", "--old", "e", "--new", "x"],
            "edit-ambiguous",
            3,
            "lines 1, 3, 3",
        ),
        (
            &["docs/guide.md", "--old", "one", "--new", "one"],
            "edit-identical",
            2,
            "the same",
        ),
        (
            &["docs/guide.md", "--old", "", "--new", "x"],
            "edit-empty",
            2,
            "no text",
        ),
        (
            &["bytes", "--old", "a", "--new", "x"],
            "not-text",
            3,
            "UTF-8",
        ),
        (
            &["large", "--old", "a", "--new", "x"],
            "too-large",
            3,
            "16777216 bytes",
        ),
        (
            &["src", "--old", "a", "--new", "x"],
            "wrong-kind",
            3,
            "directory",
        ),
        (
            &["missing", "--old", "a", "--new", "x"],
            "no-such-path",
            4,
            "not exist",
        ),
        (&["crlf.txt", "--edits", "/dev/null"], "usage", 2, "JSON"),
    ] {
        let failure = refused(&repo, &tine, &[&edit, args].concat(), code, exit);
        let message = failure["message"].as_str().unwrap();
        assert!(message.contains(said), "{args:?}: {message}");
    }
    let edits = |edits: Value| {
        let limit = std::time::Duration::from_secs(60);
        let mut command =
            tine.command(&[&edit[..], &["docs/guide.md", "--edits", "-", "--json"]].concat());
        run_with_timeout_of(&mut command, limit, edits.to_string().as_bytes())
    };
    let (good, bad) = (
        json!({"old": "one", "new": "1"}),
        json!({"old": "one", "new": "2"}),
    );
    let failure = failure_of(&edits(json!([good, bad])), "the second edit");
    assert_eq!(failure["code"], "edit-not-found");
    assert!(
        failure["message"].as_str().unwrap().contains("edit 2 of 2"),
        "{failure}"
    );
    assert_eq!(
        failure_of(&edits(json!([])), "no edits")["code"],
        "edit-empty"
    );
    assert_eq!(
        tine.ok(&["ls", "--deep", "--fork", "demo", "--json"]),
        before
    );

    let output = edits(json!([good, {"old": "t", "new": "T", "replace_all": true}]));
    let answer: Value = serde_json::from_str(&output.expect_success("edits").text()).unwrap();
    assert_eq!(
        answer,
        json!({"route": "fork", "path": "docs/guide.md", "replaced": 3, "size": 12})
    );
    assert_eq!(
        tine.ok(&["cat", "--fork", "demo", "docs/guide.md"]),
        "1\nTwo\nThree"
    );
    tine.ok(&[
        &edit[..],
        &["crlf.txt", "--old", "one\ntwo", "--new", "1\n2"],
    ]
    .concat());
    assert_eq!(
        tine.json(&["cat", "--fork", "demo", "crlf.txt"])["files"][0]["content"]["text"],
        "1\r\n2\r\n"
    );
}

#[test]
fn a_mount_shows_what_tools_do_at_once_and_tools_what_programs_do() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let guide = dir.join("docs/guide.md");
    assert_eq!(std::fs::read(&guide).unwrap(), b"one\ntwo\nthree\n");
    // In the mount no fork need be named.
    let answer = tine.ok_in(
        &dir,
        &["edit", path_text(&guide), "--old", "two", "--new", "2"],
    );
    assert_eq!(answer, "edited docs/guide.md in 1 place");
    assert_eq!(std::fs::read(&guide).unwrap(), b"one\n2\nthree\n");
    std::fs::write(&guide, "from a program\n").unwrap();
    assert_eq!(
        tine.ok_in(&dir.join("src"), &["cat", "--agent", "docs/guide.md"]),
        "from a program"
    );
    // The same path of the main checkout is meant, and that stays as it is.
    let in_checkout = repo.dir().join("docs/guide.md");
    tine.ok_in(
        &dir,
        &[
            "edit",
            path_text(&in_checkout),
            "--old",
            "from a",
            "--new",
            "by a",
        ],
    );
    assert_eq!(std::fs::read(&guide).unwrap(), b"by a program\n");
    assert_eq!(std::fs::read(&in_checkout).unwrap(), b"one\ntwo\nthree\n");
    std::fs::set_permissions(dir.join("run.sh"), PermissionsExt::from_mode(0o700)).unwrap();
    tine.ok_in(
        &dir,
        &["edit", "run.sh", "--old", "ran", "--new", "did run"],
    );
    let ran = run_with_timeout(&mut repo.command(path_text(&dir.join("run.sh")), &dir));
    assert_eq!(ran.text(), "did run");
    tine.ok_in(&dir, &["mv", "--agent", "src/main.rs", "new/place.rs"]);
    assert!(dir.join("new/place.rs").exists() && !dir.join("src/main.rs").exists());
    tine.ok_in(&dir, &["undo", "demo"]);
    assert!(!dir.join("new").exists() && dir.join("src/main.rs").exists());
}

#[test]
fn where_nothing_is_active_the_caller_does_it_alone() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let calls = [
        &["cat", "--agent", "README.md"][..],
        &["write", "--agent", "README.md"],
        &["edit", "README.md", "--old", "a", "--new", "b"],
        &["rm", "--agent", "README.md"],
        &["mv", "--agent", "README.md", "x"],
        &["ls", "--agent"],
        &["search", "x"],
    ];
    let assert_passes = || {
        for args in calls {
            let output = tine.run(args);
            assert_eq!(
                output.status.code(),
                Some(7),
                "{args:?}: {}",
                output.error_text()
            );
            assert_eq!(output.text(), "", "{args:?}");
            assert!(
                output.error_text().starts_with("note: no fork is active"),
                "{args:?}"
            );
            let output = tine.run(&[args, &["--json"]].concat());
            assert_eq!(output.text(), r#"{"route":"passthrough"}"#, "{args:?}");
            assert_eq!(output.status.code(), Some(7), "{args:?}");
        }
        let context = tine.json(&["context"]);
        assert_eq!(context["fork"], Value::Null);
        assert_eq!(context["working_dir"], path_text(repo.dir()));
    };
    assert_passes();
    assert_eq!(tine.daemon_pid(), None, "nothing was started");
    tine.ok(&["new", "demo", "--no-mount"]);
    assert_passes();
    assert_eq!(repo.status(repo.dir()), "");
    refused(
        &repo,
        &tine,
        &["cat", "--agent", "--fork", "other", "x"],
        "no-such-fork",
        4,
    );
    let transfers = repo.common_dir().join("tine/transfers");
    assert_eq!(
        std::fs::read_dir(transfers).into_iter().flatten().count(),
        0
    );
}

#[test]
fn a_search_sees_what_git_does_not_ignore() {
    let repo = TestRepo::new();
    repo.write(".gitignore", "*.log\nbuild/\n");
    repo.write("a.rs", "fn needle() {}\n");
    repo.write("b.txt", "no\r\nneedle\r\n");
    repo.write("tracked.log", "needle\n");
    repo.write("build/kept.txt", "needle\n");
    repo.write("binary", b"needle\0needle\n");
    repo.git(&["add", "-A", "-f"]);
    repo.git(&["commit", "-q", "-m", "files"]);
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    for path in [
        "new/c.rs",
        "other.log",
        "build/object.txt",
        "build/deep/object.txt",
    ] {
        written(
            &tine,
            &["write", "--agent", "--fork", "demo", path],
            b"a\nNeedle needle\n",
        );
    }
    let search = |args: &[&str]| tine.ok(&[&["search", "--fork", "demo"], args].concat());
    assert_eq!(
        search(&["needle"]),
        "a.rs:1:fn needle() {}\nb.txt:2:needle\nbuild/kept.txt:1:needle\nnew/c.rs:2:Needle needle\ntracked.log:1:needle"
    );
    assert_eq!(
        search(&["needle$", "--glob", "*.{txt,rs}", "--glob", "!build"]),
        "b.txt:2:needle\nnew/c.rs:2:Needle needle"
    );
    assert_eq!(
        search(&["^NEEDLE", "-i", "new"]),
        "new/c.rs:2:Needle needle"
    );
    assert_eq!(
        search(&["needle", "other.log"]),
        "other.log:2:Needle needle",
        "it is named"
    );
    assert!(
        search(&["needle", "build"]).contains("build/deep/object.txt:2:"),
        "it is named"
    );
    let all = search(&["^Needle", "--ignored"]);
    assert_eq!(all.lines().count(), 4, "{all}");
    let cut = tine.json(&["search", "--fork", "demo", "needle", "-n", "2"]);
    assert_eq!(cut["truncated"], true);
    assert_eq!(
        cut["lines"],
        json!([
            {"path": "a.rs", "line": 1, "text": "fn needle() {}"},
            {"path": "b.txt", "line": 2, "text": "needle"},
        ])
    );
    let whole = tine.json(&["search", "--fork", "demo", "needle", "-n", "5"]);
    assert_eq!(whole["truncated"], false);
    for pattern in ["(", "a\\nb"] {
        refused(
            &repo,
            &tine,
            &["search", "--fork", "demo", pattern],
            "bad-pattern",
            2,
        );
    }
    refused(
        &repo,
        &tine,
        &["search", "--fork", "demo", "x", "--glob", "a["],
        "bad-pattern",
        2,
    );
    refused(
        &repo,
        &tine,
        &["search", "--fork", "demo", "x", "nowhere"],
        "no-such-path",
        4,
    );
}

#[test]
fn a_command_runs_where_the_agent_works() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    let run = |args: &[&str]| tine.run(&[&["run", "--fork", "demo"], args].concat());
    let dir = tine.ok(&["path", "demo"]);
    let output = run(&[
        "--shell",
        "pwd; echo $TINE_FORK $TINE_MOUNT; git rev-parse --show-toplevel; echo w > made",
    ]);
    assert_eq!(
        output.expect_success("run").text(),
        format!("{dir}\ndemo {dir}\n{dir}")
    );
    assert_eq!(tine.ok(&["cat", "--agent", "--fork", "demo", "made"]), "w");
    let context = tine.json(&["context", "--fork", "demo"]);
    assert_eq!(context["working_dir"], dir);
    assert_eq!(
        context["environment"],
        json!([["TINE_FORK", "demo"], ["TINE_MOUNT", dir]])
    );
    let output = run(&["--", "sh", "-c", "echo out; echo err >&2; exit 41"]);
    assert_eq!(
        (output.text(), output.error_text()),
        ("out".to_owned(), "err\n".to_owned())
    );
    assert_eq!(output.status.code(), Some(41));
    assert_eq!(run(&["--shell", "kill -9 $$"]).status.code(), Some(128 + 9));
    let output = run(&["--json", "--max-output", "4", "--", "printf", "123456"]);
    let told: Value = serde_json::from_str(&output.text()).unwrap();
    assert_eq!(told["stdout"], "12\n[2 bytes are left out here]\n56");
    assert_eq!(
        (&told["stdout_left_out"], &told["exit_code"], &told["end"]),
        (&json!(2), &json!(0), &json!("exit"))
    );
    let output = run(&[
        "--timeout",
        "1",
        "--shell",
        "echo begun; sleep 1000 & sleep 1000",
    ]);
    assert_eq!(output.status.code(), Some(8), "{}", output.error_text());
    assert!(output.text().starts_with("begun"));
    refused(
        &repo,
        &tine,
        &["run", "--fork", "demo", "--", "no-such-program"],
        "command-not-found",
        4,
    );
    // Nothing of it keeps the mount.
    tine.ok(&["unmount", "demo", "--keep"]);
    let output = tine.run(&["run", "--", "pwd"]);
    assert_eq!(
        output.text(),
        path_text(repo.dir()),
        "without a fork, in the main checkout"
    );
    assert!(Path::new(&dir).exists());
}
