//! The daemon is killed at random moments, while programs write and while it carries out commands:
//! whatever was acknowledged must be there afterwards, what was not is whole or absent, and
//! everything must go on.
//!
//! A failure prints the seed; `TINE_CRASH_SEED=n` uses it again (the moments of killing stay the
//! scheduler's). `TINE_SOAK=1` runs 500 rounds of each.

mod support;

#[path = "crash/agents.rs"]
mod agents;
#[path = "crash/calls.rs"]
mod calls;
#[path = "crash/checkouts.rs"]
mod checkouts;
#[path = "crash/commits.rs"]
mod commits;
#[path = "crash/forks.rs"]
mod forks;
#[path = "crash/handoffs.rs"]
mod handoffs;
#[path = "crash/merges.rs"]
mod merges;
#[path = "crash/sequences.rs"]
mod sequences;
#[path = "crash/snapshots.rs"]
mod snapshots;
#[path = "crash/switches.rs"]
mod switches;
#[path = "crash/tree.rs"]
mod tree;
#[path = "crash/writers.rs"]
mod writers;
#[path = "crash/writing.rs"]
mod writing;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use support::{Random, SayWhich, TestRepo};

/// How often a test kills the daemon.
fn rounds() -> usize {
    if support::soaking() { 500 } else { 20 }
}

/// Waits a while for its own sake: the moment of the crash is to be a random one.
fn let_pass(random: &mut Random, most: Duration) {
    let nanos = random.below(most.as_nanos() as u64);
    let end = Instant::now() + Duration::from_nanos(nanos);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::sleep(left);
    }
}

/// The test's random numbers, and what tells their seed when it fails.
fn seeded() -> (Random, SayWhich<'static>) {
    const VARIABLE: &str = "TINE_CRASH_SEED";
    let (random, seed) = Random::from_environment(VARIABLE);
    (random, SayWhich(VARIABLE, seed))
}

/// That there is nothing of forks but these, and no layer but those that are named.
pub fn assert_nothing_else(repo: &TestRepo, what: &str, names: &BTreeSet<String>) {
    let common_dir = repo.common_dir();
    let store = common_dir.join("tine");
    assert_eq!(names_in(&store.join("forks")), *names, "{what}: records");
    let is_own = |name: &&String| store.join("forks").join(name).join("git").exists();
    let linked: BTreeSet<String> = names.iter().filter(|name| !is_own(name)).cloned().collect();
    assert_eq!(
        names_in(&common_dir.join("worktrees")),
        linked,
        "{what}: worktrees"
    );
    let mut layers = BTreeSet::new();
    for name in names {
        let dir = store.join("forks").join(name);
        for file in names_in(&dir) {
            let known =
                ["fork.json", "snapshots.json", "operations", "git"].contains(&file.as_str());
            assert!(known, "{what}: {file} of {name}");
            if ["operations", "git"].contains(&file.as_str()) {
                // A directory of its own, which names no layers.
                continue;
            }
            let text = fs::read(dir.join(&file)).expect("a record can be read");
            let value: serde_json::Value = serde_json::from_slice(&text).expect("a record is JSON");
            let snapshots = value["snapshots"].as_array().cloned().unwrap_or_default();
            for record in snapshots.iter().chain([&value]) {
                layers.extend(record["open_layer"].as_u64());
                let frozen = record["frozen_layers"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                layers.extend(frozen.iter().filter_map(serde_json::Value::as_u64));
            }
        }
    }
    let mut found = names_in(&store.join("layers"));
    found.remove("next");
    let layers: BTreeSet<String> = layers.iter().map(u64::to_string).collect();
    assert_eq!(found, layers, "{what}: layers");
    let refs = repo.git(&["for-each-ref", "--format=%(refname)", "refs/tine"]);
    for name in refs.lines() {
        let (fork, _) = name["refs/tine/".len()..]
            .split_once('/')
            .expect("a fork and a label");
        let is_known = names.contains(fork) || fork == "+recover";
        assert!(is_known, "{what}: {name} of {names:?}");
    }
    let left = repo.sh_in(
        &common_dir,
        "find . -name '*.lock' -o -name '*.tmp' -o -name index.tine -o -name log.new -o -path '*/scratch/*'",
    );
    assert_eq!(left, "", "{what}");
}

pub fn names_in(dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return BTreeSet::new();
    };
    entries
        .map(|entry| entry.expect("each entry can be read").file_name())
        .map(|name| name.into_string().expect("the names are UTF-8"))
        .collect()
}
