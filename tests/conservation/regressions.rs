//! Plans that once lost work, as small as they were found to be.

use crate::plan::{Actor, Conflicts, Fork, Plan, Role, Source, Start, Step, Target};
use crate::plan::{By::*, Fork::*, Step::*};
use crate::support::require_fuse;
use crate::{holds, run};

fn agent(number: usize, steps: Vec<Step>) -> Actor {
    Actor {
        role: Role::Agent,
        number,
        steps,
    }
}

fn user(steps: Vec<Step>) -> Actor {
    Actor {
        role: Role::User,
        number: 9,
        steps,
    }
}

fn merge(from: Fork, into: Target) -> Step {
    Step::Merge {
        from: Source::Own(from),
        into,
        conflicts: Conflicts::Stop,
        uncommitted: true,
        delete: false,
    }
}

fn update(fork: Fork) -> Step {
    Update {
        fork,
        rebase: false,
        conflicts: Conflicts::Stop,
    }
}

#[test]
fn regression_an_update_drops_no_commits_of_a_branch_that_was_there_before() {
    require_fuse!();
    let steps = vec![
        New(Private, Start::Head),
        Write(Private, Command),
        Commit(Private),
        Delete(Private, false),
        New(Private, Start::OnOldBranch),
        Meet(0),
        Pause(500),
        update(Private),
    ];
    holds(
        &Plan(vec![
            agent(0, steps),
            user(vec![MainWrite, Meet(0), MainCommit(true)]),
        ]),
        1,
    );
}

#[test]
fn regression_going_back_takes_nothing_along_that_came_since() {
    require_fuse!();
    let steps = vec![
        New(Private, Start::Head),
        Write(Private, Command),
        Snapshot(Private),
        Meet(0),
        Pause(500),
        update(Private),
        Restore(Private),
        Commit(Private),
        merge(Private, Target::Main),
    ];
    holds(
        &Plan(vec![
            agent(0, steps),
            user(vec![MainWrite, Meet(0), MainCommit(true)]),
        ]),
        1,
    );
}

#[test]
fn regression_two_agents_do_not_get_one_branch() {
    require_fuse!();
    let actor = |number: usize| {
        let mut steps = Vec::new();
        for meeting in 0..6 {
            let branch = (meeting % 3) as u8;
            steps.extend([
                Meet(2 * meeting),
                New(Open, Start::OnBranch(branch)),
                Write(Open, Command),
            ]);
            steps.extend([
                Commit(Open),
                Meet(2 * meeting + 1),
                Commit(Open),
                Delete(Open, false),
            ]);
        }
        agent(number, steps)
    };
    holds(&Plan((0..3).map(actor).collect()), 2);
}

#[test]
fn regression_merges_into_a_checked_out_branch_leave_index_and_tree_as_they_must_be() {
    require_fuse!();
    let actor = |number: usize| {
        let mut steps = vec![New(Open, Start::Head)];
        for meeting in 0..4 {
            steps.extend([
                Write(Open, Command),
                Commit(Open),
                Meet(meeting),
                merge(Open, Target::Main),
            ]);
        }
        agent(number, steps)
    };
    let mut plan = Plan((0..8).map(actor).collect());
    let commits = (0..4).flat_map(|meeting| [Meet(meeting), Pause(700), MainCommit(true)]);
    plan.0.push(user(commits.collect()));
    holds(&plan, 2);
}

#[test]
fn regression_cleaning_rounds_keeps_what_is_in_open_seats() {
    require_fuse!();
    let steps = vec![RoundStart, RoundScratch(0), RoundClean(false)];
    holds(
        &Plan(vec![Actor {
            role: Role::Rounds,
            number: 5,
            steps,
        }]),
        1,
    );
}

#[test]
fn the_oracle_sees_what_is_lost() {
    require_fuse!();
    // The agent goes back behind a commit with git, and says nothing of it.
    let steps = vec![
        New(Private, Start::Head),
        Write(Private, Program),
        GitCommit(Private),
        ForgetLast,
    ];
    let outcome = run(&Plan(vec![agent(0, steps)]), "own");
    let kinds: Vec<&str> = outcome
        .failures
        .iter()
        .map(|failure| failure.kind())
        .collect();
    assert_eq!(kinds, ["lost", "reversed"], "{}", outcome.trace);
}
