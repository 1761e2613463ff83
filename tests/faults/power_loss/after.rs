//! What must hold when the power is back.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::worker::Worker;
use crate::support::disk::{Kind, Recording, Replayed, mount_image, pretend_reboot, unmount};
use crate::support::{OutputExt, TestRepo, Tine, run_with_timeout};

/// Something that was reported as done.
pub struct Fact {
    pub what: What,
    /// How much was recorded when it began and when it was reported.
    pub begin: u64,
    pub end: u64,
}

pub enum What {
    /// The branch of `demo` was moved to this commit.
    Commit(String),
    /// The same, by git in the mount.
    CommitByGit(String),
    /// `demo` was unmounted and mounted again.
    Remounted,
    Made(String),
    Deleted(String),
}

/// A moment of `demo` that a snapshot or a fork keeps.
pub struct Point {
    pub kept_as: KeptAs,
    /// How many steps each worker had made.
    pub steps: Vec<usize>,
    pub end: u64,
}

#[derive(Clone)]
pub enum KeptAs {
    Snapshot(String),
    Fork(String),
}

pub struct Facts {
    pub all: Vec<Fact>,
    pub points: Vec<Point>,
    /// Whether the objects of a commit by git are on the disk when its ref is. git syncs no
    /// directories, and on btrfs the name of a ref may get there before those of objects.
    pub git_is_durable: bool,
}

impl Facts {
    /// Begins with the fork `demo`.
    pub fn new(kind: Kind, begin: u64, end: u64) -> Facts {
        let what = What::Made("demo".to_owned());
        Facts {
            all: vec![Fact { what, begin, end }],
            points: Vec::new(),
            git_is_durable: kind != Kind::Btrfs,
        }
    }

    /// A fork that was made beside `demo` and is still there.
    pub fn forks_made(&self) -> Option<String> {
        let mut forks = BTreeSet::new();
        for fact in &self.all {
            match &fact.what {
                What::Made(name) if name != "demo" => {
                    forks.insert(name.clone());
                }
                What::Deleted(name) => {
                    forks.remove(name);
                }
                _ => {}
            }
        }
        forks.pop_first()
    }
}

/// Checks everything that was reported as done, and goes on working there.
#[expect(
    clippy::too_many_arguments,
    reason = "they are what the whole test is about"
)]
pub fn check(
    repo: &TestRepo,
    tine: &Tine<'_>,
    mount: &Path,
    recording: &Recording,
    replayed: &Replayed,
    workers: &[Worker],
    facts: &Facts,
    context: &str,
) {
    with_power_again(repo, tine, replayed, context, |listed| {
        check_forks(listed, recording, replayed, facts, context);
        if is_durable(&facts.all[0], recording, replayed) {
            check_demo(
                repo, tine, mount, recording, replayed, workers, facts, context,
            );
            check_points(tine, mount, recording, replayed, workers, facts, context);
        }
    });
}

/// Mounts the disk that is left and starts tine on it under what looks like another run of the
/// kernel; `look` gets what `tine list` tells.
pub fn with_power_again(
    repo: &TestRepo,
    tine: &Tine<'_>,
    replayed: &Replayed,
    context: &str,
    look: impl FnOnce(&str),
) {
    let disk_dir = repo.root().join("disk");
    mount_image(&replayed.image, &disk_dir);
    pretend_reboot(repo.root());
    let listed = tine.run(&["list", "--json"]);
    let told = listed.error_text();
    assert!(listed.status.success(), "{context}: tine list\n{told}");
    look(&listed.text());
    tine.run(&["daemon", "stop"])
        .expect_success(&format!("{context}: daemon stop"));
    unmount(&disk_dir);
}

fn is_durable(fact: &Fact, recording: &Recording, replayed: &Replayed) -> bool {
    recording.flushed_at(fact.end) <= replayed.flushed
}

fn check_forks(
    listed: &str,
    recording: &Recording,
    replayed: &Replayed,
    facts: &Facts,
    context: &str,
) {
    let listed: serde_json::Value = serde_json::from_str(listed).expect("JSON");
    assert!(
        listed["damaged"].as_array().is_none_or(Vec::is_empty),
        "{context}: {listed}"
    );
    let listed: BTreeSet<&str> = listed["forks"]
        .as_array()
        .unwrap_or_else(|| panic!("{context}: {listed}"))
        .iter()
        .filter_map(|fork| fork["name"].as_str())
        .collect();
    for fact in &facts.all {
        if !is_durable(fact, recording, replayed) {
            continue;
        }
        match &fact.what {
            What::Made(name) => {
                let maybe_deleted = facts.all.iter().any(|other| {
                    matches!(&other.what, What::Deleted(deleted) if deleted == name)
                        && other.begin <= replayed.reached
                });
                assert!(
                    maybe_deleted || listed.contains(&name[..]),
                    "{context}: the fork {name} is gone"
                );
            }
            What::Deleted(name) => {
                assert!(
                    !listed.contains(&name[..]),
                    "{context}: the fork {name} is back"
                );
            }
            What::Commit(_) | What::CommitByGit(_) | What::Remounted => {}
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "they are what the whole test is about"
)]
fn check_demo(
    repo: &TestRepo,
    tine: &Tine<'_>,
    mount: &Path,
    recording: &Recording,
    replayed: &Replayed,
    workers: &[Worker],
    facts: &Facts,
    context: &str,
) {
    if !mount.join(".git").exists() {
        // It was being unmounted, or mounted again.
        tine.run(&["mount", "demo"])
            .expect_success(&format!("{context}: tine mount"));
    }
    for worker in workers {
        worker.check(mount, recording, replayed, context);
    }
    let is_amid_git = |fact: &Fact| {
        matches!(fact.what, What::CommitByGit(_))
            && fact.begin <= replayed.reached
            && !is_durable(fact, recording, replayed)
    };
    if facts.all.iter().any(is_amid_git) {
        // As git asks for in every checkout after a power failure.
        repo.sh_in(repo.dir(), "find .git -name '*.lock' -delete");
        if !facts.git_is_durable {
            return;
        }
    }
    for fact in &facts.all {
        if let What::Commit(id) | What::CommitByGit(id) = &fact.what
            && is_durable(fact, recording, replayed)
        {
            repo.try_git_in(
                repo.dir(),
                &["merge-base", "--is-ancestor", id, "tine/demo"],
            )
            .expect_success(&format!("{context}: the commit {id} is on its branch"));
        }
    }
    repo.try_git_in(mount, &["status", "--short"])
        .expect_success(&format!("{context}: git status"));
    check_objects(repo, context);

    // And it goes on from there.
    let found: Vec<_> = workers.iter().map(|worker| worker.found(mount)).collect();
    fs::write(mount.join("after"), context).unwrap_or_else(|error| panic!("{context}: {error}"));
    tine.run(&["commit", "demo", "-m", "after the loss of power"])
        .expect_success(&format!("{context}: tine commit"));
    let status = repo.status(mount);
    assert_eq!(
        status,
        "",
        "{context}: git status after tine commit; the mount has {}, tine {}",
        repo.git_in(mount, &["log", "-1", "--format=%h %D"]),
        repo.git_of_fork("demo", &["log", "-1", "--format=%h %D"]),
    );
    for (worker, found) in workers.iter().zip(found) {
        assert!(
            worker.found(mount) == found,
            "{context}: a commit changed files"
        );
    }
    check_objects(repo, context);
}

/// How many of the last points are looked into.
const LOOKED_INTO: usize = 3;

/// Checks what snapshots and forks of `demo` hold.
fn check_points(
    tine: &Tine<'_>,
    mount: &Path,
    recording: &Recording,
    replayed: &Replayed,
    workers: &[Worker],
    facts: &Facts,
    context: &str,
) {
    let names = |args: &[&str], list: &str| -> BTreeSet<String> {
        let value = tine.json(args);
        let listed = value[list]
            .as_array()
            .unwrap_or_else(|| panic!("{context}: {value}"))
            .iter();
        listed
            .map(|item| item["name"].as_str().expect("it has a name").to_owned())
            .collect()
    };
    let snapshots = names(&["snapshots", "demo"], "snapshots");
    let forks = names(&["list"], "forks");
    let mut looked_into = 0;
    for point in facts.points.iter().rev() {
        let name = match &point.kept_as {
            KeptAs::Snapshot(name) => {
                let is_durable = recording.flushed_at(point.end) <= replayed.flushed;
                assert!(
                    !is_durable || snapshots.contains(name),
                    "{context}: the snapshot {name} is gone"
                );
                if !snapshots.contains(name) || looked_into == LOOKED_INTO {
                    continue;
                }
                let look = format!("look-{name}");
                tine.ok(&["new", &look, "--from-fork", &format!("demo@{name}")]);
                look
            }
            KeptAs::Fork(name) if forks.contains(name) => name.clone(),
            KeptAs::Fork(_) => continue,
        };
        looked_into += 1;
        let dir = mount.with_file_name(&name);
        for (worker, steps) in workers.iter().zip(&point.steps) {
            let context = format!("{context}, {name}");
            worker.check_until(*steps, &dir, recording, replayed, &context);
        }
        if matches!(point.kept_as, KeptAs::Snapshot(_)) {
            tine.ok(&["delete", "--force", &name]);
        }
    }
}

/// Reads everything that any ref reaches.
fn check_objects(repo: &TestRepo, context: &str) {
    let script = "git rev-list --objects --all | cut -d' ' -f1 | git cat-file --batch --buffer >/dev/null \\
        || { git for-each-ref; git log --branches --format='%h %T %s'; git fsck --connectivity-only; git reflog --all; git rev-list --objects --all; find .git/objects -size 0; exit 1; } >&2";
    let mut command = repo.command("bash", repo.dir());
    let output = run_with_timeout(command.args(["-o", "pipefail", "-euc", script]));
    output.expect_success(&format!("{context}: reading all objects"));
}
