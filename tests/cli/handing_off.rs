//! Handoffs that come with an unmount, or from elsewhere.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::handoffs::{CONTENTS, commit_in, fork_with_commit, mailbox};
use crate::merging::each;
use crate::refused;
use crate::support::command::DEFAULT_LIMIT;
use crate::support::{
    TestRepo, Tine, repo::path_text, require_fuse, require_root, run_with_timeout, wait_until,
};

#[test]
fn unmounting_hands_over_and_is_never_kept_from_it() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = fork_with_commit(&repo, &tine);
    fs::write(dir.join("more.txt"), "more\n").unwrap();
    let unmounted = tine.json(&["unmount", "work", "--handoff"]);
    assert_eq!(
        (&unmounted["policy"], &unmounted["trouble"]),
        (&json!("handoff"), &Value::Null)
    );
    let handoff = &unmounted["handoff"];
    assert_eq!(
        (
            &handoff["state"],
            &handoff["commits"],
            &handoff["uncommitted"]
        ),
        (&json!("ready"), &json!(1), &json!(true))
    );
    tine.ok(&["mount", "work"]);
    assert_eq!(repo.status(&dir), "?? more.txt");
    repo.git(&["branch", "other"]);
    let said = tine.ok(&[
        "unmount",
        "work",
        "--handoff",
        "--include-uncommitted",
        "-m",
        "More",
        "--to",
        "other",
    ]);
    assert!(
        said.contains("handoff 2: work to branch:other: ready, 2 commits"),
        "{said}"
    );
    assert_eq!(repo.git(&["log", "-1", "--format=%s", "tine/work"]), "More");
    // Nobody to hand it over to: nothing was done.
    tine.ok(&["mount", "work"]);
    refused(
        &repo,
        &tine,
        &["unmount", "work", "--handoff", "--to", "nobody"],
        "unknown-revision",
        4,
    );
    refused(
        &repo,
        &tine,
        &["unmount", "work", "--handoff", "--keep"],
        "usage",
        2,
    );
    refused(
        &repo,
        &tine,
        &["unmount", "work", "--to", "other"],
        "usage",
        2,
    );
    for policy in ["handoff:nowhere", "merge:nowhere"] {
        let args = ["new", "x", "--on-unmount", policy];
        refused(&repo, &tine, &args, "unknown-revision", 4);
    }
    // By the policy alone the fork is unmounted in any case.
    repo.git(&["branch", "gone"]);
    let policy = PathBuf::from(tine.ok(&["new", "policy", "--on-unmount", "handoff:gone"]));
    commit_in(&repo, &policy, "Policy");
    repo.git(&["branch", "-D", "gone"]);
    let unmounted = tine.json(&["unmount", "policy"]);
    assert_eq!(
        (&unmounted["policy"], &unmounted["trouble"]["code"]),
        (&json!("handoff:gone"), &json!("unknown-revision"))
    );
    assert_eq!(unmounted["handoff"], Value::Null);
    assert_eq!(
        tine.json(&["list"])["damaged"][0]["code"],
        "unknown-revision"
    );
    // What cannot be made is told, and the fork unmounted nevertheless.
    fs::write(dir.join("lost.txt"), "lost\n").unwrap();
    let held = || tine.json(&["path", "work"])["content_bytes"].as_u64();
    let with_it = held();
    commit_in(&repo, &dir, "Lost");
    // As long as the layer has it, it is written anew.
    wait_until("the content leaves the layer", DEFAULT_LIMIT, || {
        held() < with_it
    });
    let blob = repo.git_in(&dir, &["rev-parse", "HEAD:lost.txt"]);
    // From its second name it would come back.
    fs::remove_dir_all(repo.common_dir().join("objects/tine-held")).unwrap();
    fs::remove_file(
        repo.common_dir()
            .join("objects")
            .join(&blob[..2])
            .join(&blob[2..]),
    )
    .unwrap();
    let unmounted = tine.json(&["unmount", "work", "--handoff"]);
    assert_eq!(unmounted["trouble"]["code"], "handoff-failed");
    assert!(!dir.join("lost.txt").exists(), "it is unmounted");
    assert_eq!(state_of_failed(&tine), "failed");
}

#[test]
fn the_policy_hands_over_after_a_plain_umount() {
    require_fuse!();
    require_root!("unmount with umount(8)");
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = PathBuf::from(tine.ok(&["new", "work", "--on-unmount", "handoff"]));
    assert_eq!(tine.json(&["list"])["forks"][0]["on_unmount"], "handoff");
    fs::write(dir.join("work.txt"), "work\n").unwrap();
    commit_in(&repo, &dir, "Work");
    let umount = || -> Output { run_with_timeout(Command::new("umount").arg(&dir)) };
    wait_until(
        "nobody uses the mount",
        crate::support::command::DEFAULT_LIMIT,
        || umount().status.success(),
    );
    wait_until(
        "it is handed over",
        crate::support::command::DEFAULT_LIMIT,
        || {
            !tine.json(&["handoff", "list"])["handoffs"]
                .as_array()
                .unwrap()
                .is_empty()
        },
    );
    let made = tine.json(&["handoff", "await", "1"]);
    assert_eq!(each(&made["handoffs"], "state"), ["ready"]);
    assert_eq!(made["handoffs"][0]["to"], "branch:main");
    assert_eq!(tine.json(&["list"])["damaged"], json!([]));
    refused(
        &repo,
        &tine,
        &["new", "x", "--on-unmount", "handoff:"],
        "usage",
        2,
    );
}

#[test]
fn mailboxes_from_elsewhere_are_imported_and_nothing_else_is() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(&dir, CONTENTS);
    tine.ok(&["handoff", "create", "work"]);
    let file = mailbox(&tine, 1);
    let imported = tine.json(&["handoff", "import", path_text(&file), "--to", "main"]);
    assert_eq!(
        (&imported["id"], &imported["state"]),
        (&json!(2), &json!("ready"))
    );
    assert_eq!(
        (&imported["commits"], &imported["to"]),
        (&json!(7), &json!("branch:main"))
    );
    assert_eq!(
        (&imported["fork"], &imported["head_commit"]),
        (&Value::Null, &Value::Null)
    );
    let shown = tine.json(&["handoff", "show", "1"]);
    assert_eq!(imported["sha256"], shown["sha256"]);
    assert!(fs::read(mailbox(&tine, 2)).unwrap() == fs::read(&file).unwrap());
    let names = each(&imported["mails"], "author_name");
    assert_eq!(names, ["Ada Author"; 7]);
    refused(&repo, &tine, &["handoff", "diff", "2"], "handoff-state", 3);
    assert!(
        tine.ok(&["handoff", "show", "2"])
            .contains("move and remove")
    );
    // git's own, by standard input; it is no work of the fork's.
    let import = format!(
        "git format-patch --stdout main..tine/work~1 | '{}' handoff import - --json",
        Tine::program().display()
    );
    let piped: Value = serde_json::from_str(&repo.sh_in(repo.dir(), &import)).unwrap();
    assert_eq!(
        (&piped["id"], &piped["imported_from"]),
        (&json!(3), &json!("-"))
    );
    assert_eq!(piped["mails"][1]["summary"], "change files");
    assert_eq!(tine.json(&["handoff", "create", "work"])["id"], 1);

    let whole = fs::read(&file).unwrap();
    let broken = String::from_utf8_lossy(&whole).replace("\n+three\n", "\n");
    assert!(broken.len() < whole.len());
    for (name, content) in [
        ("empty", &b""[..]),
        ("text", b"This is no mailbox.\n"),
        ("binary", &[0, 1, 2, 255, 254]),
        ("letter", b"From a@example.org Mon Sep 17 00:00:00 2001\nFrom: A <a@example.org>\nSubject: hello\n\nJust words.\n"),
        ("nobody", b"From x Mon Sep 17 00:00:00 2001\nSubject: x\n\n---\n f | 1 +\n"),
        ("broken", broken.as_bytes()),
        ("half", &whole[..whole.len() / 2 - 7]),
    ] {
        let path = repo.root().join(name);
        fs::write(&path, content).unwrap();
        let before = fs::read_dir(repo.common_dir().join("tine/handoffs")).unwrap().count();
        let failure = refused(&repo, &tine, &["handoff", "import", path_text(&path)], "not-a-mailbox", 2);
        assert!(!failure["causes"].as_array().unwrap().is_empty(), "{name}");
        assert_eq!(fs::read_dir(repo.common_dir().join("tine/handoffs")).unwrap().count(), before, "{name}");
    }
    refused(
        &repo,
        &tine,
        &["handoff", "import", "/nonexistent/file"],
        "io",
        4,
    );
    refused(
        &repo,
        &tine,
        &["handoff", "import", path_text(&file), "--to", "nobody"],
        "unknown-revision",
        4,
    );
    // It is the only one of its kind.
    refused(
        &repo,
        &tine,
        &["handoff", "delete", "2"],
        "handoff-state",
        3,
    );
    tine.ok(&["handoff", "delete", "2", "--force"]);
}

/// The state of the newest handoff, by the list: its commits may not be readable.
fn state_of_failed(tine: &Tine) -> String {
    let list = tine.json(&["handoff", "list"]);
    let newest = list["handoffs"].as_array().unwrap().last().unwrap();
    newest["state"].as_str().unwrap().to_owned()
}
