//! The power fails at each step of taking over what a fork that is a repository of its own made.

use std::fs;
use std::time::{Duration, Instant};

use super::power_loss::with_power_again;
use crate::support::disk::{Kind, in_private_mounts};
use crate::support::{OutputExt, Random, SayWhich, Tine, run_with_timeout, soaking};
use crate::{on_disk, require_disk};

const SEED: &str = "TINE_POWER_SEED";

const POINTS: [&str; 9] = [
    "walked",
    "checked",
    "synced",
    "migrated",
    "before-taking-refs",
    "refs-taken",
    "branch-moved",
    "before-leaving",
    "objects-left",
];

/// A step that was reached, and what was there then.
struct Step {
    point: &'static str,
    position: u64,
    /// The commit that the main repository's branch had, durably.
    before: String,
    /// The commit that was being taken over.
    taken: String,
}

#[test]
fn the_loss_of_power_at_each_step_of_taking_over_loses_no_commit() {
    require_disk!();
    let (random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    in_private_mounts(|| lose_power(random));
}

fn lose_power(mut random: Random) {
    let (repo, disk) = on_disk(Kind::Ext4);
    let repo = repo.without_maintenance();
    let tine = Tine::new(&repo);
    let points = repo.root().join("points");
    fs::create_dir(&points).expect("the name is free");
    let new = ["new", "demo", "--git", "own"];
    run_with_timeout(tine.command(&new).env("TINE_PAUSE_IN", &points)).expect_success("tine new");
    let dir = repo.root().join("disk/repo.forks/demo");
    let branch = |at: &std::path::Path| repo.git_in(at, &["rev-parse", "tine/demo"]);
    let mut steps = Vec::new();
    for point in POINTS {
        let before = branch(repo.dir());
        fs::write(points.join(point), "").expect("the directory can be written");
        repo.sh_in(
            &dir,
            &format!("echo {point} > {point}; git add {point}; git commit -qm {point}"),
        );
        let taken = branch(&dir);
        let reached = points.join(format!("{point}.reached"));
        let deadline = Instant::now() + Duration::from_secs(20);
        while !reached.exists() {
            assert!(Instant::now() < deadline, "{point} is not reached");
            std::thread::sleep(Duration::from_millis(2));
        }
        let position = disk.position();
        steps.push(Step {
            point,
            position,
            before,
            taken: taken.clone(),
        });
        fs::remove_file(reached).expect("it is there");
        while branch(repo.dir()) != taken {
            assert!(Instant::now() < deadline, "{point} is not taken over");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    tine.ok(&["daemon", "stop"]);
    let recording = disk.finish();
    let chances: &[u64] = if soaking() {
        &[0, 20, 50, 80, 100]
    } else {
        &[0, 60]
    };
    for (step, chance) in steps
        .iter()
        .flat_map(|step| chances.iter().map(move |c| (step, *c)))
    {
        let replayed = recording.replay(step.position, chance, &mut random);
        let context = format!("power lost at {} with {chance} % of the rest", step.point);
        with_power_again(&repo, &tine, &replayed, &context, |listed| {
            assert!(listed.contains("demo"), "{context}: {listed}");
            // As git asks for after a power failure.
            repo.sh_in(repo.dir(), "find .git -name '*.lock' -delete");
            if !dir.join(".git").exists() {
                tine.run(&["mount", "demo"])
                    .expect_success(&format!("{context}: tine mount"));
            }
            // Main's branch never goes back, and what it has is whole.
            let at = branch(repo.dir());
            assert!(at == step.before || at == step.taken, "{context}: at {at}");
            repo.try_git_in(repo.dir(), &["fsck", "--full", "--strict"])
                .expect_success(&format!("{context}: git fsck"));
            // The fork follows it.
            tine.run(&["status", "demo"])
                .expect_success(&format!("{context}: tine status"));
            repo.try_git_in(&dir, &["merge-base", "--is-ancestor", &at, "HEAD"])
                .expect_success(&format!("{context}: the fork has the commit {at}"));
            repo.try_git_in(&dir, &["fsck", "--full"])
                .expect_success(&format!("{context}: git fsck in the fork"));
            // And it goes on from there.
            repo.try_sh_in(
                &dir,
                "git reset -q --hard; echo after > after; git add after; git commit -qm after",
            )
            .expect_success(&format!("{context}: git commit"));
            let after = repo.git_in(&dir, &["rev-parse", "HEAD"]);
            let deadline = Instant::now() + Duration::from_secs(20);
            while branch(repo.dir()) != after {
                assert!(
                    Instant::now() < deadline,
                    "{context}: nothing is taken over"
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }
}
