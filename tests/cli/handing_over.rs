//! `tine handoff apply`: what comes of handoffs where they are applied, beside what `git am` makes
//! of the same mailboxes.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::json;

use crate::merging::{each, everything, told};
use crate::support::{OutputExt, TestRepo, Tine, repo::path_text, require_fuse};

/// How many agents hand their work over.
const AGENTS: usize = 8;

/// The mailbox of a handoff.
fn mailbox(tine: &Tine, id: &str) -> String {
    tine.ok(&["handoff", "show", id, "--path"])
}

/// A clone of the repository as it is, with all of its objects, as somebody without tine would have
/// it.
fn clone_of(repo: &TestRepo, name: &str) -> PathBuf {
    let clone = repo.root().join(name);
    let from = format!("file://{}", repo.dir().display());
    repo.git_in(
        repo.root(),
        &[
            "clone",
            "-q",
            "--mirror",
            &from,
            path_text(&clone.join(".git")),
        ],
    );
    repo.git_in(&clone, &["config", "core.bare", "false"]);
    repo.git_in(&clone, &["reset", "-q", "--hard", "main"]);
    clone
}

/// What is told of the last `count` commits, but for who committed them and when.
fn history(repo: &TestRepo, dir: &Path, count: usize) -> String {
    let count = format!("-{count}");
    repo.git_in(
        dir,
        &["log", &count, "--format=%T %an <%ae> %ad%n%B", "--date=raw"],
    )
}

/// The work of one agent: several commits with every kind of content, and a line of a file that all
/// of them change.
fn work(number: usize) -> String {
    let line = number * 10;
    format!(
        r#"
set -e
export GIT_AUTHOR_NAME='Agent {number}' GIT_AUTHOR_EMAIL='agent{number}@example.com'
sed -i 's/^{line}$/{line} of {number}/' shared.txt; mkdir -p own{number}; echo text > own{number}/text
git add -A; git commit -qm 'text {number}' -m 'With a body.'
printf '\000\001{number}\n' > own{number}/binary.bin; : > own{number}/empty; ln -s ../shared.txt own{number}/link
git add -A; git commit -qm 'binary, empty and symlink {number}'
git mv move{number}.txt own{number}/moved.txt; chmod +x mode{number}.sh
git add -A; git commit -qm 'rename and mode {number}'
printf x > "$(printf 'own{number}/na\377me')"; git rm -q gone{number}
git add -A; git commit -qm 'name that is no UTF-8 {number}'
"#
    )
}

#[test]
fn what_eight_agents_hand_over_comes_together_as_git_am_has_it() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let lines: String = (1..=100).map(|line| format!("{line}\n")).collect();
    repo.write("shared.txt", &lines);
    for number in 1..=AGENTS {
        repo.write(
            &format!("move{number}.txt"),
            format!("moves {number}\n{lines}"),
        );
        repo.write(
            &format!("mode{number}.sh"),
            format!("#!/bin/sh\n# {number}\n"),
        );
        repo.write(&format!("gone{number}"), format!("goes {number}\n"));
    }
    repo.commit_all("Base");
    let tine = Tine::new(&repo);
    thread::scope(|scope| {
        for number in 1..=AGENTS {
            let (repo, tine) = (&repo, &tine);
            scope.spawn(move || {
                let fork = format!("agent{number}");
                let dir = PathBuf::from(tine.ok(&["new", &fork]));
                repo.sh_in(&dir, &work(number));
                tine.ok(&["handoff", "create", &fork, "--background"]);
            });
        }
        // The base moves meanwhile.
        scope.spawn(|| {
            for line in [5, 45, 95] {
                let shared = fs::read_to_string(repo.dir().join("shared.txt")).unwrap();
                let moved = shared.replace(&format!("\n{line}\n"), &format!("\n{line} of main\n"));
                repo.commit_files(&[("shared.txt", moved.as_bytes())], "Go on");
            }
        });
    });
    let ids: Vec<String> = (1..=AGENTS).map(|id| id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let ready = tine.json(&[&["handoff", "await"], ids.as_slice()].concat());
    assert_eq!(each(&ready["handoffs"], "state"), ["ready"; AGENTS]);
    for number in 1..=AGENTS {
        tine.ok(&["delete", &format!("agent{number}"), "--force"]);
    }
    let clone = clone_of(&repo, "without-tine");
    for id in ids {
        let before = repo.head();
        let planned = told(&tine, 0, &["handoff", "apply", id, "--dry-run"]);
        assert_eq!(repo.head(), before, "a dry run of {id}");
        let applied = told(&tine, 0, &["handoff", "apply", id]);
        assert_eq!(applied["status"], "merged");
        assert_eq!(applied["changes"], planned["changes"], "{id}");
        assert_eq!(applied["after"], repo.head(), "{id}");
        assert_eq!(each(&applied["commits"], "how"), ["committed"; 4]);
        repo.git_in(
            &clone,
            &["am", "-q", "--3way", "--keep", &mailbox(&tine, id)],
        );
        assert_eq!(
            history(&repo, repo.dir(), 4),
            history(&repo, &clone, 4),
            "{id}"
        );
        let shown = tine.json(&["handoff", "show", id]);
        assert_eq!(shown["applied_head"], repo.head());
        assert_eq!(shown["applied_to"], "branch:main");
    }
    assert_eq!(repo.status(repo.dir()), "");
    assert_eq!(
        repo.git(&["rev-parse", "HEAD^{tree}"]),
        repo.git_in(&clone, &["rev-parse", "HEAD^{tree}"])
    );
}

/// A handoff of a fork that changed a line and then added a file, where `main` has changed that
/// line by now.
fn conflicting(repo: &TestRepo, tine: &Tine) {
    repo.commit_files(&[("lines.txt", b"1\n2\n3\n4\n5\n")], "Lines");
    let dir = tine.new_fork("work");
    repo.sh_in(
        &dir,
        "sed -i 's/^3$/three/' lines.txt; git commit -qam 'Three'; echo new > new.txt; git add -A; git commit -qm 'New'",
    );
    repo.commit_files(&[("lines.txt", b"1\n2\ndrei\n4\n5\n")], "Drei");
    tine.ok(&["handoff", "create", "work"]);
}

#[test]
fn a_handoff_with_conflicts_leaves_all_as_it_was_and_says_where() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let before = everything(&repo, &tine);
    let refused = told(&tine, 3, &["handoff", "apply", "1"]);
    assert_eq!(everything(&repo, &tine), before);
    assert_eq!(refused["status"], "conflicts");
    assert_eq!(refused["before"], refused["after"]);
    let conflict = &refused["conflicts"][0];
    assert_eq!(conflict["path"], "lines.txt");
    assert_eq!(conflict["kind"], "both_modified");
    assert_eq!(
        conflict["of"],
        repo.git(&["rev-parse", "tine/work~1"]),
        "the commit that it is in"
    );
    let hunk = &conflict["hunks"][0];
    assert_eq!(hunk["ours"]["text"], "drei\n");
    assert_eq!(hunk["theirs"]["text"], "three\n");
    assert_eq!(hunk["base"]["text"], "3\n");
    // Without a merge of three the patch does not fit at all.
    let rejected = told(&tine, 3, &["handoff", "apply", "1", "--no-3way"]);
    let conflict = &rejected["conflicts"][0];
    assert_eq!(
        (&conflict["kind"], &conflict["path"]),
        (&json!("rejected"), &json!("lines.txt"))
    );
    let hunks = conflict["rejected"]["hunks"]["text"].as_str().unwrap();
    assert!(hunks.contains("-3\n+three\n"), "{hunks}");
    assert_eq!(everything(&repo, &tine), before);
    // git stops at the same commit, with the same paths.
    let clone = clone_of(&repo, "without-tine");
    let am = repo.try_git_in(&clone, &["am", "--3way", "--keep", &mailbox(&tine, "1")]);
    assert!(!am.status.success(), "{}", am.text());
    assert_eq!(
        repo.git_in(&clone, &["diff", "--name-only", "--diff-filter=U"]),
        "lines.txt"
    );
    assert_eq!(repo.git_in(&clone, &["log", "-1", "--format=%s"]), "Drei");
}

#[test]
fn conflicts_of_a_handoff_are_resolved_in_a_review() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let kept = told(&tine, 3, &["handoff", "apply", "1", "--review"]);
    assert_eq!(kept["review"], 1);
    tine.ok(&["delete", "work", "--force"]);
    fs::write(repo.root().join("resolved"), "1\n2\nboth\n4\n5\n").unwrap();
    let resolved = repo.root().join("resolved");
    tine.ok(&["resolve", "1", "lines.txt", "--file", path_text(&resolved)]);
    let done = told(&tine, 0, &["review", "commit", "1"]);
    assert_eq!(each(&done["commits"], "how"), ["committed", "committed"]);
    assert_eq!(
        fs::read_to_string(repo.dir().join("lines.txt")).unwrap(),
        "1\n2\nboth\n4\n5\n"
    );
    assert_eq!(repo.git(&["log", "-2", "--format=%s"]), "New\nThree");
    assert_eq!(repo.status(repo.dir()), "");
    let shown = tine.json(&["handoff", "show", "1"]);
    assert_eq!(shown["applied_head"], repo.head());
    let list = tine.json(&["handoff", "list"]);
    assert_eq!(list["handoffs"], json!([]), "nothing waits any more");
}

#[test]
fn a_handoff_is_applied_once_and_where_nothing_is_uncommitted() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(&dir, "echo new > new.txt; git add -A; git commit -qm New");
    tine.ok(&["handoff", "create", "work"]);
    // A checkout, and a fork, with something uncommitted.
    repo.write("docs/guide.md", "changed\n");
    let said = tine.fails(3, &["handoff", "apply", "1"]);
    assert!(said.contains("not committed"), "{said}");
    let other = tine.new_fork("other");
    fs::write(other.join("loose.txt"), "loose\n").unwrap();
    tine.fails(3, &["handoff", "apply", "1", "--into", "other"]);
    assert!(!other.join("new.txt").exists());
    let forced = told(
        &tine,
        0,
        &["handoff", "apply", "1", "--into", "other", "--force"],
    );
    assert_eq!(forced["target"]["fork"], "other");
    assert_eq!(fs::read_to_string(other.join("new.txt")).unwrap(), "new\n");
    assert_eq!(repo.status(&other), "?? loose.txt");
    // It is taken back like anything else.
    tine.ok(&["undo", "other"]);
    assert!(!other.join("new.txt").exists());
    assert_eq!(repo.status(&other), "?? loose.txt");
    // What was taken back is not applied; what is applied is so once more only when that is asked
    // for.
    assert_eq!(
        tine.json(&["handoff", "show", "1"])["applied_to"],
        serde_json::Value::Null
    );
    told(
        &tine,
        0,
        &["handoff", "apply", "1", "--into", "other", "--force"],
    );
    let said = tine.fails(3, &["handoff", "apply", "1", "--into", "other"]);
    assert!(said.contains("was applied to fork:other"), "{said}");
    repo.git(&["checkout", "-q", "docs/guide.md"]);
    told(&tine, 0, &["handoff", "apply", "1", "--force"]);
    let again = told(&tine, 7, &["handoff", "apply", "1", "--force"]);
    assert_eq!(each(&again["commits"], "how"), ["left-out"]);
    // A branch that nobody has checked out is always clean.
    repo.git(&["branch", "aside", "HEAD~1"]);
    told(
        &tine,
        0,
        &["handoff", "apply", "1", "--force", "--into", "aside"],
    );
    assert_eq!(repo.git(&["show", "aside:new.txt"]), "new");
}

#[test]
fn messages_come_as_they_were_written() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let message = "[WIP] Re: subject\n\nBody\n---\nafter the line\ndiff -u a b\n";
    fs::write(repo.root().join("message"), message).unwrap();
    repo.sh_in(
        &dir,
        "echo new > new.txt; git add -A; git commit -q --cleanup=verbatim -F ../../message",
    );
    tine.ok(&["handoff", "create", "work"]);
    repo.commit_files(&[("other.txt", b"other")], "Go on");
    told(&tine, 0, &["handoff", "apply", "1"]);
    assert_eq!(
        repo.git(&["log", "-1", "--format=%B"]).trim_end(),
        message.trim_end()
    );
}

#[test]
fn what_is_no_work_cannot_be_applied() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    tine.new_fork("idle");
    tine.fails(7, &["handoff", "create", "idle"]);
    let said = tine.fails(3, &["handoff", "apply", "1"]);
    assert!(said.contains("skipped"), "{said}");
    tine.fails(4, &["handoff", "apply", "2"]);
    // From elsewhere it is for nobody, unless somebody says so.
    repo.sh_in(repo.dir(), "git checkout -qb topic; echo t > t; git add t; git commit -qm '[PATCH] T'; git format-patch --stdout -1 > ../t.mbox; git checkout -q main");
    let file = repo.root().join("t.mbox");
    tine.ok(&["handoff", "import", path_text(&file)]);
    tine.fails(2, &["handoff", "apply", "2"]);
    told(&tine, 0, &["handoff", "apply", "2", "--into", "main"]);
    assert_eq!(
        repo.git(&["log", "-1", "--format=%s"]),
        "T",
        "as git am has it"
    );
    // A mailbox that was damaged is noticed.
    tine.ok(&["handoff", "import", path_text(&file)]);
    let place = mailbox(&tine, "3");
    fs::write(
        &place,
        fs::read_to_string(&place).unwrap().replace("+t", "+u"),
    )
    .unwrap();
    tine.fails(1, &["handoff", "apply", "3", "--into", "main"]);
}
