//! The power fails: what was written to the disk is recorded, and the disk is made anew as it may
//! have been left at any moment. The store always opens, what was synced is there, and nothing is
//! there that never was.
//!
//! A failure prints `TINE_POWER_SEED=n` to choose the same work and the same moments again (the
//! order in which the kernel writes stays its own). `TINE_SOAK=1` tries more work, more moments and
//! more file systems.

#[path = "power_loss/after.rs"]
mod after;
#[path = "power_loss/worker.rs"]
mod worker;

use std::fs::{self, File};

use crate::support::disk::{Disk, Kind, Recording, in_private_mounts};
use crate::support::{Random, SayWhich, TestRepo, Tine, skip, soaking, test_name};
use crate::{on_disk, require_disk};
pub use after::with_power_again;
use after::{Fact, Facts, KeptAs, Point, What};
use worker::Worker;

const WORKERS: usize = 2;
const SEED: &str = "TINE_POWER_SEED";

/// How much is tried.
struct Extent {
    kinds: &'static [Kind],
    /// Recordings for each kind.
    recordings: usize,
    rounds: usize,
    /// Changes by each worker in a round.
    changes: usize,
    /// Moments at which the power fails: half of them right behind flushes.
    moments: usize,
}

const EVERYDAY: Extent = Extent {
    kinds: &[Kind::Ext4],
    recordings: 1,
    rounds: 10,
    changes: 25,
    moments: 12,
};
const SOAK: Extent = Extent {
    kinds: &[Kind::Xfs, Kind::Btrfs, Kind::Ext4],
    recordings: 4,
    rounds: 20,
    changes: 50,
    moments: 100,
};

/// A repository on a disk that is recorded from the first request after its first commit.
fn recorded_repository(kind: Kind) -> (TestRepo, Disk, u64) {
    let (repo, disk) = on_disk(kind);
    let begin = disk.position();
    (repo, disk, begin)
}

/// Work of every kind on a recorded disk.
struct Work<'a> {
    repo: &'a TestRepo,
    tine: Tine<'a>,
    disk: Disk,
    mount: std::path::PathBuf,
    workers: Vec<Worker>,
    facts: Facts,
    random: Random,
}

impl Work<'_> {
    /// In half of the rounds: freezes what `demo` has, or goes back to it. Nothing of that waits
    /// for the disk to have it.
    fn keep_a_point(&mut self, round: usize) -> bool {
        let begin = self.disk.position();
        let steps = self.workers.iter().map(Worker::steps).collect();
        let choice = self.random.below(8);
        let snapshots = self
            .facts
            .points
            .iter()
            .filter(|point| matches!(point.kept_as, KeptAs::Snapshot(_)));
        let snapshots: Vec<&Point> = snapshots.collect();
        let kept_as = match choice {
            0 | 1 => {
                let name = format!("point-{round}");
                self.tine.ok(&["snapshot", "demo", &name]);
                KeptAs::Snapshot(name)
            }
            2 => {
                let name = format!("child-{round}");
                self.tine.ok(&["new", &name, "--from-fork", "demo"]);
                KeptAs::Fork(name)
            }
            3 if !snapshots.is_empty() => {
                let point = snapshots[self.random.below(snapshots.len() as u64) as usize];
                let KeptAs::Snapshot(name) = &point.kept_as else {
                    return false;
                };
                self.tine.ok(&["restore", "demo", name]);
                let end = self.disk.position();
                for (worker, steps) in self.workers.iter_mut().zip(&point.steps) {
                    worker.note_restored(*steps, end);
                }
                return true;
            }
            _ => return false,
        };
        let end = self.disk.position();
        if let KeptAs::Fork(name) = &kept_as {
            let what = What::Made(name.clone());
            self.facts.all.push(Fact { what, begin, end });
        }
        self.facts.points.push(Point {
            kept_as,
            steps,
            end,
        });
        true
    }

    /// Does something that changes more than files, and notes it.
    fn act(&mut self, round: usize) {
        let begin = self.disk.position();
        if self.keep_a_point(round) {
            return;
        }
        let what = match self.random.below(6) {
            0 | 1 => {
                fs::write(self.mount.join("round"), format!("{round}\n"))
                    .expect("the mount can be written");
                self.tine
                    .ok(&["commit", "demo", "-m", &format!("round {round}")]);
                What::Commit(self.repo.git(&["rev-parse", "tine/demo"]))
            }
            2 => {
                fs::write(self.mount.join("round"), format!("{round}\n"))
                    .expect("the mount can be written");
                let script = format!(
                    "git -c core.fsync=all add -A; git -c core.fsync=all commit -qm 'round {round}, by git'"
                );
                self.repo.sh_in(&self.mount, &script);
                if !self.facts.git_is_durable {
                    self.repo.sh_in(self.repo.root(), "sync -f disk");
                }
                // git does not wait for the files that it commits.
                File::open(&self.mount)
                    .and_then(|dir| dir.sync_all())
                    .expect("the mount can be synced");
                What::CommitByGit(self.repo.git(&["rev-parse", "tine/demo"]))
            }
            3 => {
                let name = format!("extra-{round}");
                self.tine.new_fork(&name);
                What::Made(name)
            }
            4 if self.facts.forks_made().is_some() => {
                let name = self.facts.forks_made().expect("it was just looked for");
                self.tine.ok(&["delete", &name, "--force"]);
                What::Deleted(name)
            }
            _ => {
                self.tine.ok(&["unmount", "demo"]);
                self.tine.ok(&["mount", "demo"]);
                What::Remounted
            }
        };
        // A commit by tine and an unmount bring everything to the disk.
        let is_sync = matches!(
            what,
            What::Commit(_) | What::CommitByGit(_) | What::Remounted
        );
        let end = self.disk.position();
        for worker in &mut self.workers {
            worker.note(is_sync, end);
        }
        self.facts.all.push(Fact { what, begin, end });
    }
}

/// Works on a recorded disk, lets the power fail at many moments, and looks at what is left.
fn lose_power(kind: Kind, seed: u64, extent: &Extent) {
    let (repo, disk, begin) = recorded_repository(kind);
    let tine = Tine::new(&repo);
    let mount = tine.new_fork("demo");
    let mut random = Random::new(seed);
    let workers = (0..WORKERS)
        .map(|number| {
            Worker::start(
                &mount,
                &format!("worker-{number}"),
                Random::new(random.next()),
                &disk,
            )
        })
        .collect();
    let mut work = Work {
        repo: &repo,
        tine,
        mount: mount.clone(),
        workers,
        facts: Facts::new(kind, begin, disk.position()),
        random,
        disk,
    };
    for round in 0..extent.rounds {
        let disk = &work.disk;
        std::thread::scope(|scope| {
            for worker in &mut work.workers {
                scope.spawn(move || worker.work(extent.changes, disk));
            }
        });
        work.act(round);
    }
    let Work {
        tine,
        disk,
        workers,
        facts,
        mut random,
        ..
    } = work;
    tine.ok(&["daemon", "stop"]);
    let recording = disk.finish();

    let (requests, flushes) = recording.counts();
    eprintln!(
        "{}: {requests} requests recorded, {flushes} flushes",
        kind.name()
    );
    for (number, position) in moments(&recording, begin, extent.moments, &mut random)
        .into_iter()
        .enumerate()
    {
        // Right behind a flush, with nothing of what follows, and amid what was not flushed.
        let chance = [0, 50, 90, 100][number % 4];
        let replayed = recording.replay(position, chance, &mut random);
        let context = format!(
            "{}, power lost at {position} with {chance} % of the rest",
            kind.name()
        );
        after::check(
            &repo, &tine, &mount, &recording, &replayed, &workers, &facts, &context,
        );
    }
}

/// Where the power fails: half of these are right behind flushes, the others anywhere.
fn moments(recording: &Recording, begin: u64, count: usize, random: &mut Random) -> Vec<u64> {
    let mut choose = |among: Vec<u64>| -> Vec<u64> {
        let (len, count) = (among.len() as u64, (count / 2) as u64);
        // Spread evenly, each at a random place of its share.
        (0..count.min(len))
            .map(|number| {
                let (from, to) = (
                    number * len / count,
                    ((number + 1) * len / count).max(number * len / count + 1),
                );
                among[(from + random.below(to - from)).min(len - 1) as usize]
            })
            .collect()
    };
    let barriers = choose(recording.barriers(begin));
    let anywhere = choose(recording.positions(begin));
    barriers.into_iter().chain(anywhere).collect()
}

/// Invariant 4, and all that docs/semantics.md says to be durable.
#[test]
fn what_was_synced_survives_the_loss_of_power() {
    require_disk!();
    let (mut random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    let extent = if soaking() { SOAK } else { EVERYDAY };
    for kind in extent.kinds {
        if !kind.can_be_made() {
            skip(test_name!(), &format!("{} cannot be made", kind.name()));
            continue;
        }
        for _ in 0..extent.recordings {
            let seed = random.next();
            in_private_mounts(|| lose_power(*kind, seed, &extent));
        }
    }
}

/// What a commit holds leaves the layer, so the commit must be on the disk before, whoever made it.
#[test]
fn what_was_committed_survives_the_loss_of_power() {
    require_disk!();
    in_private_mounts(|| {
        let (repo, disk, _) = recorded_repository(Kind::Ext4);
        let tine = Tine::new(&repo);
        let mount = tine.new_fork("demo");
        fs::write(mount.join("by-tine"), "committed by tine").expect("the mount can be written");
        tine.ok(&["commit", "demo", "-m", "by tine"]);
        let by_tine = disk.position();

        fs::write(mount.join("by-git"), "committed by git").expect("the mount can be written");
        // git waits for its refs, and for its objects only if it is told to.
        repo.sh_in(&mount, "git add by-git && git commit -qm 'by git'");
        tine.ok(&["status", "demo"]);
        File::open(mount.join("by-git"))
            .and_then(|file| file.sync_all())
            .expect("the file can be synced");
        let by_git = disk.position();
        tine.ok(&["daemon", "stop"]);
        let recording = disk.finish();

        let mut random = Random::new(1);
        let replayed = recording.replay(by_tine, 0, &mut random);
        after::with_power_again(&repo, &tine, &replayed, "after tine commit", |_| {
            assert_eq!(
                fs::read_to_string(mount.join("by-tine")).unwrap(),
                "committed by tine"
            );
            assert_eq!(repo.status(&mount), "");
            assert_eq!(
                repo.git(&["log", "-1", "--format=%s", "tine/demo"]),
                "by tine"
            );
        });
        let replayed = recording.replay(by_git, 0, &mut random);
        after::with_power_again(&repo, &tine, &replayed, "after git commit", |_| {
            assert_eq!(
                fs::read_to_string(mount.join("by-git")).unwrap(),
                "committed by git"
            );
        });
    });
}
