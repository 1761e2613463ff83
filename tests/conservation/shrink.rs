//! A failing plan again, and smaller ones that still fail in the same way.

use std::time::{Duration, Instant};

use crate::plan::{Actor, Plan};
use crate::support::soaking;
use crate::{Outcome, number, run};

/// How often a plan is tried before it counts as one that holds: where actors meet, chance decides.
const ATTEMPTS: usize = 3;

/// Panics with the smallest plan that was found to fail as `first` did.
pub fn report(plan: &Plan, first: Outcome) -> ! {
    for failure in &first.failures {
        eprintln!("{failure}");
    }
    let kind = first.failures[0].kind();
    let default = if soaking() { 30 } else { 3 };
    let minutes = number("TINE_CONSERVATION_SHRINK_MINUTES").unwrap_or(default);
    if minutes > 0 {
        let again = (0..ATTEMPTS)
            .filter(|_| fails(plan, first.git, kind).is_some())
            .count();
        eprintln!("{kind}: {again} of {ATTEMPTS} further runs of the plan fail as well");
    }
    let deadline = Instant::now() + Duration::from_secs(minutes * 60);
    let (plan, outcome) = shrink(plan.clone(), first, kind, deadline);
    let failures: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
    panic!("{}\n\n{}\n{plan}", outcome.trace, failures.join("\n"));
}

fn fails(plan: &Plan, git: &'static str, kind: &str) -> Option<Outcome> {
    Some(run(plan, git)).filter(|outcome| {
        outcome
            .failures
            .iter()
            .any(|failure| failure.kind() == kind)
    })
}

/// Leaves out actors, then steps: first many at a time, then single ones.
fn shrink(mut plan: Plan, mut outcome: Outcome, kind: &str, deadline: Instant) -> (Plan, Outcome) {
    let git = outcome.git;
    let attempt = |smaller: &Plan| {
        (0..ATTEMPTS)
            .take_while(|_| Instant::now() < deadline)
            .find_map(|_| fails(smaller, git, kind))
    };
    let mut index = 0;
    while index < plan.0.len() && plan.0.len() > 1 {
        let mut smaller = plan.clone();
        smaller.0.remove(index);
        match attempt(&smaller) {
            Some(found) => (plan, outcome) = (smaller, found),
            None => index += 1,
        }
    }
    let longest = |plan: &Plan| plan.0.iter().map(|Actor { steps, .. }| steps.len()).max();
    let mut size = longest(&plan).unwrap_or(0).div_ceil(2);
    while size > 0 && Instant::now() < deadline {
        for actor in 0..plan.0.len() {
            let mut at = 0;
            while at < plan.0[actor].steps.len() {
                let mut smaller = plan.clone();
                let steps = &mut smaller.0[actor].steps;
                steps.drain(at..(at + size).min(steps.len()));
                match attempt(&smaller) {
                    Some(found) => (plan, outcome) = (smaller, found),
                    None => at += size,
                }
            }
        }
        eprintln!("{} steps still fail", plan.steps());
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    (plan, outcome)
}
