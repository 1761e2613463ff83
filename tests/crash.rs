//! The daemon is killed at random moments, while programs write and while it carries out commands: whatever was
//! acknowledged must be there afterwards, what was not is whole or absent, and everything must go on.
//!
//! A failure prints the seed; `TINE_CRASH_SEED=n` uses it again (the moments of killing stay the scheduler's).
//! `TINE_SOAK=1` runs 500 rounds of each.

mod support;

#[path = "crash/calls.rs"]
mod calls;
#[path = "crash/commits.rs"]
mod commits;
#[path = "crash/forks.rs"]
mod forks;
#[path = "crash/merges.rs"]
mod merges;
#[path = "crash/snapshots.rs"]
mod snapshots;
#[path = "crash/tree.rs"]
mod tree;
#[path = "crash/writers.rs"]
mod writers;
#[path = "crash/writing.rs"]
mod writing;

use std::time::{Duration, Instant};

use support::{Random, SayWhich};

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
