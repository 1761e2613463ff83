//! The conservation test: several actors work on one repository at the same time, at random and
//! over all verbs, and afterwards every piece of acknowledged work must still be somewhere.
//!
//! ```text
//! seed ─► plan: the steps of each actor ─► actors, a thread each ─► marks, with what released them
//!                                                                    └─ oracle: where is each mark now?
//!                                       failure ─► the same plan again, then smaller ones that still fail ─► printed
//! ```
//!
//! Each piece of work has a *mark*, a word that occurs nowhere else. Only the actor that made a
//! mark can release it.

mod support;

#[path = "conservation/agents.rs"]
mod agents;
#[path = "conservation/chance.rs"]
mod chance;
#[path = "conservation/editors.rs"]
mod editors;
#[path = "conservation/marks.rs"]
mod marks;
#[path = "conservation/objects.rs"]
mod objects;
#[path = "conservation/oracle.rs"]
mod oracle;
#[path = "conservation/plan.rs"]
mod plan;
#[path = "conservation/regressions.rs"]
mod regressions;
#[path = "conservation/rounds.rs"]
mod rounds;
#[path = "conservation/shrink.rs"]
mod shrink;
#[path = "conservation/users.rs"]
mod users;
#[path = "conservation/verbs.rs"]
mod verbs;
#[path = "conservation/world.rs"]
mod world;

use std::time::{Duration, Instant};

use chance::Shape;
use oracle::Failure;
use plan::Plan;
use support::{Random, SayWhich, TestRepo, Tine, require_fuse, soaking};
use world::World;

const SEED: &str = "TINE_CONSERVATION_SEED";

#[test]
fn invariant_15_and_16_no_work_is_lost_whatever_several_actors_do_at_the_same_time() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    let shape = Shape::from_environment();
    let minutes = number("TINE_CONSERVATION_MINUTES").unwrap_or(if soaking() { 10 } else { 1 });
    // The last run, and the looking afterwards, take their time as well.
    let limit = Duration::from_secs(minutes * 60).saturating_sub(Duration::from_secs(20));
    let began = Instant::now();
    let mut plan_seed = seed;
    let mut runs = 0;
    while runs == 0 || began.elapsed() < limit {
        let plan = Plan::generate(plan_seed, &shape);
        let git = if plan_seed % 2 == 0 { "own" } else { "linked" };
        let outcome = run(&plan, git);
        runs += 1;
        if std::env::var_os("TINE_CONSERVATION_TRACE").is_some() {
            eprintln!("{}", outcome.trace);
        }
        if !outcome.failures.is_empty() {
            eprintln!("{SEED}={plan_seed} fails");
            shrink::report(&plan, outcome);
        }
        plan_seed = random.next();
    }
    eprintln!("{runs} plans in {:?}", began.elapsed());
}

/// What came of a plan.
struct Outcome {
    git: &'static str,
    failures: Vec<Failure>,
    /// A line for each step: when, who, what, and what was answered.
    trace: String,
}

/// Carries a plan out in a new repository, and looks for all marks. `git` is what git finds in a
/// fork, as for `tine.git`.
fn run(plan: &Plan, git: &'static str) -> Outcome {
    let repo = TestRepo::new().without_maintenance();
    repo.git(&["config", "tine.git", git]);
    let tine = Tine::new(&repo);
    let world = World::new(&repo, &tine, plan);
    world.carry_out(plan);
    let failures = oracle::judge(&world);
    Outcome {
        git,
        failures,
        trace: world.trace(),
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Carries a plan out so often, and finds nothing amiss.
fn holds(plan: &Plan, times: usize) {
    for number in 0..times {
        let outcome = run(plan, ["own", "linked"][number % 2]);
        let failures: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
        assert!(
            failures.is_empty(),
            "{}\n\n{}",
            outcome.trace,
            failures.join("\n")
        );
    }
}
