//! The log of operations, and taking them back.

use std::path::Path;

use serde_json::Value;

use crate::refused;
use crate::support::random::{Random, SayWhich};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout_of};

fn write(tine: &Tine, path: &str, content: &[u8]) {
    let limit = std::time::Duration::from_secs(60);
    let mut command = tine.command(&["write", "--fork", "demo", path, "-p"]);
    run_with_timeout_of(&mut command, limit, content).expect_success("write");
}

/// Number, state and command of each operation, the newest first.
fn operations(tine: &Tine) -> Vec<(u64, String, String)> {
    let log = tine.json(&["op", "log", "demo", "-n", "1000"]);
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    log["operations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|operation| {
            let id = operation["id"].as_u64().expect("a number");
            (id, text(&operation["state"]), text(&operation["command"]))
        })
        .collect()
}

/// Everything in the fork but `.git`: kinds, modes, numbers, contents. What comes back has other
/// times.
fn tree(repo: &TestRepo, dir: &Path) -> String {
    repo.sh_in(
        dir,
        "find . -name .git -prune -o ! -type d -printf '%P %y %m %i %l\\n' | sort
         find . -name .git -prune -o -type d -printf '%P/\\n' | sort
         find . -name .git -prune -o -type f -exec sha256sum {} + | sort",
    )
}

#[test]
fn what_commands_did_is_listed_taken_back_and_done_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let output = tine.run(&["op", "log", "demo"]);
    assert_eq!(output.text(), "");
    refused(&repo, &tine, &["undo", "demo"], "nothing-to-undo", 3);
    refused(&repo, &tine, &["redo", "demo"], "nothing-to-undo", 3);
    let mut trees = vec![tree(&repo, &dir)];
    let mut done = |step: &dyn Fn()| {
        step();
        trees.push(tree(&repo, &dir));
    };
    done(&|| write(&tine, "docs/guide.md", b"new\n"));
    done(&|| write(&tine, "made here/file", &[7; 400_000]));
    done(&|| drop(tine.ok(&["mv", "--fork", "demo", "src", "made here"])));
    done(&|| drop(tine.ok(&["rm", "--fork", "demo", "-r", "made here", "link", "data"])));
    assert_eq!(
        operations(&tine),
        [
            (4, "tine rm --fork demo -r 'made here' link data"),
            (3, "tine mv --fork demo src 'made here'"),
            (2, "tine write --fork demo 'made here/file' -p"),
            (1, "tine write --fork demo docs/guide.md -p"),
        ]
        .map(|(id, command)| (id, "done".to_owned(), command.to_owned()))
    );
    for tree_before in trees.iter().rev().skip(1) {
        tine.ok(&["undo", "demo"]);
        assert_eq!(tree(&repo, &dir), *tree_before);
    }
    assert_eq!(repo.status(&dir), "");
    assert_eq!(
        tine.json(&["status", "demo"])["changes"],
        Value::Array(Vec::new())
    );
    for tree_after in &trees[1..] {
        tine.ok(&["redo", "demo"]);
        assert_eq!(tree(&repo, &dir), *tree_after);
    }
    // One of several paths, by itself.
    let said = tine.ok(&["undo", "demo", "link"]);
    assert_eq!(
        said,
        "took back 4: tine rm --fork demo -r 'made here' link data\n  link"
    );
    assert!(dir.join("link").exists() && !dir.join("data").exists());
    tine.ok(&["daemon", "stop", "--force"]);
    tine.ok(&["undo", "demo"]);
    assert!(dir.join("data/large.bin").exists());
    let log = tine.ok(&["op", "log", "demo", "-n", "2"]);
    assert!(log.contains("tine undo demo"), "{log}");
    assert_eq!(log.lines().count(), 2, "{log}");
    // What the log lacks the fork knows.
    tine.ok(&["unmount", "demo"]);
    let file = repo.common_dir().join("tine/forks/demo/operations");
    let listed = operations(&tine);
    std::fs::write(&file, "").unwrap();
    assert_eq!(operations(&tine), listed);
    tine.ok(&["daemon", "stop"]);
    assert_eq!(operations(&tine), listed);
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), listed.len());
}

#[test]
fn what_a_program_did_since_is_told_and_kept() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    write(&tine, "docs/guide.md", b"by tine\n");
    std::fs::write(dir.join("docs/guide.md"), "by a program\n").unwrap();
    let output = tine.run(&["undo", "demo"]).expect_success("undo");
    assert!(
        output
            .error_text()
            .contains("docs/guide.md had changed since"),
        "{}",
        output.error_text()
    );
    assert_eq!(
        std::fs::read_to_string(dir.join("docs/guide.md")).unwrap(),
        "one\ntwo\nthree\n"
    );
    tine.ok(&["redo", "demo"]);
    assert_eq!(
        std::fs::read_to_string(dir.join("docs/guide.md")).unwrap(),
        "by a program\n"
    );
    tine.ok(&["mv", "--fork", "demo", "run.sh", "moved.sh"]);
    std::fs::remove_file(dir.join("moved.sh")).unwrap();
    refused(&repo, &tine, &["undo", "demo"], "cannot-undo", 3);
    refused(&repo, &tine, &["undo", "demo", "src"], "nothing-to-undo", 3);
}

#[test]
fn going_back_to_a_snapshot_is_taken_back_too() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    write(&tine, "first", b"1");
    tine.ok(&["snapshot", "demo", "here"]);
    let here = tree(&repo, &dir);
    write(&tine, "second", b"2");
    std::fs::write(dir.join("third"), "3").unwrap();
    let later = tree(&repo, &dir);
    tine.ok(&["restore", "demo", "here"]);
    assert_eq!(tree(&repo, &dir), here);
    let states: Vec<(u64, String)> = operations(&tine)
        .into_iter()
        .map(|(id, state, _)| (id, state))
        .collect();
    assert_eq!(
        states,
        [
            (3, "done".into()),
            (2, "out-of-reach".into()),
            (1, "done".into())
        ]
    );
    tine.ok(&["undo", "demo"]);
    assert_eq!(tree(&repo, &dir), later);
    tine.ok(&["redo", "demo"]);
    assert_eq!(tree(&repo, &dir), here);
    tine.ok(&["undo", "demo"]);
    tine.ok(&["undo", "demo"]);
    assert!(
        !dir.join("second").exists() && dir.join("third").exists() && dir.join("first").exists()
    );
    tine.ok(&["reset", "demo"]);
    assert_eq!(repo.status(&dir), "");
    tine.ok(&["undo", "demo"]);
    assert!(dir.join("third").exists());
    // Nothing was changed since: what a reset would keep is nothing.
    tine.ok(&["reset", "demo"]);
    assert!(tine.json(&["reset", "demo"])["before"].is_null());
}

#[test]
fn invariant_13_an_operation_that_is_killed_happened_or_not_and_the_log_agrees() {
    let (mut random, seed) = Random::from_environment("TINE_CRASH_SEED");
    let _say = SayWhich("TINE_CRASH_SEED", seed);
    let rounds = if std::env::var_os("TINE_SOAK").is_some() {
        200
    } else {
        12
    };
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    for index in 0..50 {
        write(&tine, &format!("many/{index}"), b"x");
    }
    let walk = || tine.ok(&["ls", "--deep", "--fork", "demo", "--json"]);
    let paths = |walk: &str| -> Vec<(String, u64)> {
        let walk: Value = serde_json::from_str(walk).expect("JSON");
        let nodes = walk["nodes"].as_array().expect("a list");
        nodes
            .iter()
            .map(|node| (node["path"].to_string(), node["size"].as_u64().unwrap_or(0)))
            .collect()
    };
    let mut happened = 0;
    for round in 0..rounds {
        let before = paths(&walk());
        let last = operations(&tine)[0].0;
        let mut command = match round % 4 {
            0 => tine.command(&["rm", "--fork", "demo", "-r", "many", "src"]),
            1 => tine.command(&["mv", "--fork", "demo", "many", "docs"]),
            2 => tine.command(&[
                "write",
                "--fork",
                "demo",
                "data/large.bin",
                "-F",
                "README.md",
            ]),
            _ => tine.command(&["undo", "demo"]),
        };
        let mut child = command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("tine runs");
        std::thread::sleep(std::time::Duration::from_micros(random.below(9_000)));
        tine.kill_daemon();
        child.wait().expect("it ends");
        let after = paths(&walk());
        let log = operations(&tine);
        match log[0].0 - last {
            0 => assert_eq!(after, before, "round {round}"),
            1 => {
                happened += 1;
                assert_ne!(after, before, "round {round}");
                let back = if round % 4 == 3 { "redo" } else { "undo" };
                tine.ok(&[back, "demo"]);
                assert_eq!(paths(&walk()), before, "round {round}");
            }
            more => panic!("{more} operations in round {round}"),
        }
    }
    println!("{happened} of {rounds} happened");
}

/// A reset of what is at HEAD changes nothing, the history included; what differs from HEAD without
/// a write, as after a restore, comes back.
#[test]
fn a_reset_leaves_what_undo_takes_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("a");
    repo.sh_in(&dir, "echo x >> README.md");
    tine.ok(&["reset", "a"]);
    let again = tine.json(&["reset", "a"]);
    assert_eq!(again["before"], serde_json::Value::Null);
    tine.ok(&["unmount", "a", "--discard"]);
    tine.ok(&["mount", "a"]);
    tine.ok(&["undo", "a"]);
    assert!(repo.sh_in(&dir, "cat README.md").ends_with('x'));

    // A fork that was restored without a write differs from HEAD.
    let dir = tine.new_fork("b");
    repo.sh_in(&dir, "echo new > new");
    tine.ok(&["commit", "b", "-m", "new"]);
    tine.ok(&["restore", "b", "pristine"]);
    assert!(!dir.join("new").exists());
    tine.ok(&["reset", "b"]);
    assert!(dir.join("new").exists());
    tine.ok(&["undo", "b"]);
    assert!(!dir.join("new").exists());
    let discarded = tine.json(&["unmount", "b", "--discard"]);
    tine.ok(&["mount", "b"]);
    assert!(dir.join("new").exists());
    let before = discarded["snapshot"].as_str().expect("it is kept");
    tine.ok(&["restore", "b", before]);
    assert!(!dir.join("new").exists());
    tine.ok(&["undo", "b"]);
    assert!(dir.join("new").exists());

    // So does one whose branch git moved back.
    repo.git_in(&dir, &["reset", "-q", "--soft", "HEAD~"]);
    tine.ok(&["reset", "b"]);
    assert!(!dir.join("new").exists());
    tine.ok(&["undo", "b"]);
    assert!(dir.join("new").exists());
}

/// Names that Windows forbids are names as any other.
#[test]
fn forks_and_branches_may_be_called_as_devices_of_windows() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("aux");
    repo.sh_in(&dir, "echo new > new");
    tine.ok(&["commit", "aux", "-m", "new"]);
    repo.git(&["branch", "feature/con"]);
    tine.ok(&["new", "nul.txt", "--branch", "feature/con"]);
    repo.git(&["branch", "aux"]);
    tine.ok(&["new", "other", "--from", "aux"]);
    tine.ok(&["new", "com1", "--branch", "new/aux"]);
    for fork in ["nul.txt", "com1", "other", "aux"] {
        tine.ok(&["delete", "--force", fork]);
    }
}
