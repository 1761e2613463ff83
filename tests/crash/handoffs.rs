//! Kills while the daemon makes handoffs, at each step that can be seen from outside and anywhere
//! between.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::merges::{Moment, run_and_kill};
use super::{names_in, rounds, seeded};
use crate::support::{
    OutputExt, Random, TestRepo, Tine, path_text, require_fuse, run_with_timeout,
};

/// Where the handoffs are, and what can be seen there of the one with the number `id`.
struct RecordKind<'r> {
    repo: &'r TestRepo,
    id: u64,
}

impl RecordKind<'_> {
    fn dir(&self) -> std::path::PathBuf {
        self.repo.common_dir().join("tine/handoffs")
    }

    fn state(dir: &Path, id: u64) -> Option<String> {
        let text = fs::read(dir.join(format!("{id}.json"))).ok()?;
        let record: Value = serde_json::from_slice(&text).expect("a record is never half");
        Some(record["state"].as_str().expect("a state").to_owned())
    }

    /// The steps that making it takes, each as what holds from then on.
    fn steps(&self) -> Vec<Box<dyn Fn() -> bool + Sync>> {
        let (dir, id) = (self.dir(), self.id);
        let reference = self
            .repo
            .common_dir()
            .join(format!("refs/tine/+handoffs/{id}"));
        let begins = format!("{id}.mbox.");
        let (at, place, mailbox) = (dir.clone(), dir.clone(), dir.join(format!("{id}.mbox")));
        vec![
            Box::new(move || reference.exists()),
            Box::new(move || RecordKind::state(&at, id).is_some()),
            Box::new(move || names_in_quietly(&place).any(|name| name.starts_with(&begins))),
            Box::new(move || mailbox.exists()),
            Box::new(move || RecordKind::state(&dir, id).is_some_and(|state| state != "pending")),
        ]
    }
}

/// As [`names_in`], where names come and go.
fn names_in_quietly(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// That every handoff is whole: with a mailbox as the record has it where it is ready, and nothing
/// else beside it.
fn assert_whole(repo: &TestRepo, tine: &Tine, what: &str) -> Vec<Value> {
    let list = tine.json(&["handoff", "list", "--all"]);
    assert_eq!(list["damaged"], serde_json::json!([]), "{what}");
    let ids: Vec<String> = list["handoffs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|handoff| handoff["id"].to_string())
        .collect();
    if ids.is_empty() {
        return Vec::new();
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let waited = tine.json(&[&["handoff", "await"], ids.as_slice()].concat());
    let handoffs = waited["handoffs"].as_array().expect("a list").clone();
    let dir = repo.common_dir().join("tine/handoffs");
    let mut files = BTreeSet::new();
    for handoff in &handoffs {
        let id = &handoff["id"];
        assert_eq!(handoff["state"], "ready", "{what}: {handoff}");
        let mailbox = dir.join(format!("{id}.mbox"));
        let sum = run_with_timeout(repo.command("sha256sum", repo.root()).arg(&mailbox))
            .expect_success("sha256sum")
            .text();
        assert_eq!(
            handoff["sha256"],
            sum.split(' ').next().expect("a sum"),
            "{what}"
        );
        files.extend([format!("{id}.json"), format!("{id}.mbox")]);
    }
    let mut found = names_in(&dir);
    found.remove("highest");
    assert_eq!(found, files, "{what}");
    let refs = repo.git(&[
        "for-each-ref",
        "--format=%(refname:lstrip=3)",
        "refs/tine/+handoffs",
    ]);
    assert_eq!(
        refs.lines().collect::<BTreeSet<_>>(),
        ids.iter().copied().collect(),
        "{what}"
    );
    handoffs
}

/// Commits something large enough to be seen on its way.
fn go_on(repo: &TestRepo, dir: &Path, random: &mut Random, round: usize) {
    fs::write(dir.join("large.bin"), random.bytes(40_000)).expect("the mount can be written");
    fs::write(dir.join(format!("{round}.txt")), format!("{round}\r\n"))
        .expect("the mount can be written");
    repo.sh_in(dir, &format!("git add -A; git commit -qm 'round {round}'"));
}

#[test]
fn invariant_13_a_handoff_that_is_killed_is_made_of_the_same_commits_and_never_half() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let mut known = 0;
    for round in 0..rounds() {
        let what = format!("round {round}");
        go_on(&repo, &dir, &mut random, round);
        let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
        let shelf = RecordKind {
            repo: &repo,
            id: known + 1,
        };
        let steps = shelf.steps();
        let moment = match steps.get(round % (steps.len() + 1)) {
            Some(step) => Moment::After(&**step, Duration::from_micros(500)),
            None => Moment::Within(Duration::from_millis(80)),
        };
        let command = tine.command(&["handoff", "create", "work", "--json"]);
        let reported = run_and_kill(&tine, &mut random, moment, command, b"");
        let handoffs = assert_whole(&repo, &tine, &what);
        let newest = handoffs.last();
        let is_there = newest.is_some_and(|handoff| handoff["head_commit"] == head.as_str());
        assert!(
            is_there || !reported.status.success(),
            "{what}: a handoff was reported that is not there"
        );
        // It is the same that is made now.
        let again = tine.json(&["handoff", "create", "work"]);
        assert_eq!(again["head_commit"], head.as_str(), "{what}");
        if is_there {
            assert_eq!(Some(&again), newest, "{what}");
        }
        known = again["id"].as_u64().expect("a number");
    }
    assert_whole(&repo, &tine, "at the end");
    // The last one has it all.
    let clone = repo.root().join("clone");
    repo.git_in(
        repo.root(),
        &[
            "clone",
            "-q",
            "--branch=main",
            "--single-branch",
            path_text(repo.dir()),
            path_text(&clone),
        ],
    );
    let mailbox = tine.ok(&["handoff", "show", &known.to_string(), "--path"]);
    repo.git_in(&clone, &["am", "-q", "--keep", &mailbox]);
    repo.assert_same_trees(&dir, &clone);
}

#[test]
fn invariant_13_a_handoff_whose_deletion_is_killed_is_there_or_gone() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let mut highest = 0;
    for round in 0..rounds() {
        let what = format!("round {round}");
        go_on(&repo, &dir, &mut random, round);
        let made = tine.json(&["handoff", "create", "work"]);
        let id = made["id"].as_u64().expect("a number");
        assert!(id > highest, "{what}: {id} was used before");
        highest = id;
        let record = repo.common_dir().join(format!("tine/handoffs/{id}.json"));
        let is_gone = || !record.exists();
        let moment = match round % 2 {
            0 => Moment::Within(Duration::from_millis(20)),
            _ => Moment::After(&is_gone, Duration::from_micros(200)),
        };
        let command = tine.command(&["handoff", "delete", &id.to_string()]);
        let reported = run_and_kill(&tine, &mut random, moment, command, b"");
        let handoffs = assert_whole(&repo, &tine, &what);
        let is_there = handoffs.iter().any(|handoff| handoff["id"] == id);
        assert!(
            !(is_there && reported.status.success()),
            "{what}: it was deleted and is there"
        );
    }
}
