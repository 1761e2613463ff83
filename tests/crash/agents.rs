//! Kills while rounds of agents are begun, finished and cleaned away: the same command does the
//! rest.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::merges::{Moment, run_and_kill};
use super::{assert_nothing_else, names_in, rounds, seeded};
use crate::support::{Random, TestRepo, Tine, require_fuse};

const AGENTS: [&str; 2] = ["a", "b"];

/// A step is one command, killed at a random moment and given again.
struct Steps<'t, 'r> {
    repo: &'r TestRepo,
    tine: &'t Tine<'r>,
    random: Random,
}

impl Steps<'_, '_> {
    fn step(&mut self, args: &[&str]) {
        let words = [&["round"], args].concat();
        let command = self.tine.command(&words);
        let moment = Moment::Within(Duration::from_millis(250));
        let output = run_and_kill(self.tine, &mut self.random, moment, command, b"");
        let is_clean = args.first() == Some(&"clean");
        let again = self.tine.run(&words);
        // A session that is gone cannot be cleaned away again.
        let is_done = is_clean && again.status.code() == Some(4);
        assert!(
            again.status.success() || is_done,
            "{args:?}, killed ({:?}), then: {}",
            output.status,
            String::from_utf8_lossy(&again.stderr)
        );
    }

    fn seats(&self) -> Vec<Value> {
        let shown = self.tine.json(&["round", "show"]);
        let agents = shown["agents"].as_array().expect("a list").iter();
        let seats: Vec<Value> = agents.map(|agent| agent["seat"].clone()).collect();
        assert_eq!(seats.len(), AGENTS.len());
        seats
    }

    /// All branches that there may be.
    fn branches(&self) -> BTreeSet<String> {
        let shown = self.tine.json(&["round", "show"]);
        let agents = shown["agents"].as_array().expect("a list");
        let seats = agents
            .iter()
            .flat_map(|agent| [&agent["seat"], &agent["before"]]);
        seats
            .filter_map(|seat| seat["branch"].as_str().map(str::to_owned))
            .collect()
    }

    fn check_branches(&self, what: &str) {
        let found = self.repo.git(&[
            "for-each-ref",
            "--format=%(refname:lstrip=2)",
            "refs/heads/tine",
        ]);
        let found: BTreeSet<String> = found.lines().map(str::to_owned).collect();
        assert_eq!(found, self.branches(), "{what}: branches");
        let forks: BTreeSet<String> = found
            .iter()
            .map(|branch| branch.replace("tine/", ""))
            .collect();
        assert_eq!(
            names_in(&self.repo.common_dir().join("tine/forks")),
            forks,
            "{what}: forks"
        );
    }
}

#[test]
fn a_round_that_is_killed_at_any_step_goes_on_with_the_same_command() {
    require_fuse!();
    let (random, _say) = seeded();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let exclude = repo.common_dir().join("info/exclude");
    let excluded = fs::read(&exclude).ok();
    let refs = repo.git(&["for-each-ref"]);
    let archives = repo.common_dir().join("tine/rounds/default/scratch");
    let mut steps = Steps {
        repo: &repo,
        tine: &tine,
        random,
    };
    for turn in 0..rounds().div_ceil(10) {
        for round in 1..=3 {
            let what = format!("turn {turn}, round {round}");
            steps.step(&["start", "--agents", "a,b", "--round", &round.to_string()]);
            steps.check_branches(&what);
            for seat in steps.seats() {
                let dir = PathBuf::from(seat["mount_dir"].as_str().expect("a path"));
                fs::write(dir.join("work"), format!("{round}\n"))
                    .expect("the mount can be written");
                fs::write(dir.join(".scratch/notes"), format!("{what}\n"))
                    .expect("the mount can be written");
                assert_eq!(
                    repo.git_in(&dir, &["status", "--porcelain"]),
                    "?? work",
                    "{what}"
                );
            }
            steps.step(&["finish"]);
            for seat in steps.seats() {
                assert_eq!(
                    (&seat["state"], &seat["mounted"]),
                    (&"finished".into(), &false.into())
                );
                let branch = seat["branch"].as_str().expect("a branch");
                let log = repo.git(&["log", "--format=%s", &format!("main..{branch}")]);
                assert_eq!(
                    log,
                    format!("[round {round}] auto-commit"),
                    "{what}: one commit"
                );
                let notes = archives
                    .join(seat["label"].as_str().expect("a label"))
                    .join("notes");
                assert_eq!(
                    fs::read_to_string(notes).expect("an archive"),
                    format!("{what}\n")
                );
            }
        }
        steps.step(&["clean", "--force", "--archives"]);
        assert_nothing_else(&repo, "cleaned", &BTreeSet::new());
        tine.ok(&["recover", "purge", "--all"]);
        assert_eq!(repo.git(&["for-each-ref"]), refs);
        assert_eq!(fs::read(&exclude).ok(), excluded);
        assert!(!archives.exists());
    }
}
