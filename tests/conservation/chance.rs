//! The making of plans: what each actor does, of a seed.

use crate::number;
use crate::plan::{
    Actor, Back, By, Conflicts, Fork, Git, Plan, Policy, Role, Source, Start, Step, Target,
};
use crate::support::Random;

/// How large plans are.
pub struct Shape {
    agents: usize,
    chapters: usize,
}

impl Shape {
    pub fn from_environment() -> Shape {
        let steps = number("TINE_CONSERVATION_STEPS").unwrap_or(48) as usize;
        Shape {
            agents: number("TINE_CONSERVATION_ACTORS").unwrap_or(4).max(1) as usize,
            chapters: (steps / CHAPTER).max(1),
        }
    }
}

/// Steps of an agent in a chapter.
const CHAPTER: usize = 8;
/// Branches that several actors want.
pub const SHARED_BRANCHES: u64 = 3;
/// Files in which each actor has a line.
pub const SHARED_FILES: u64 = 2;

/// What agents do together in the middle of a chapter.
#[derive(Clone, Copy)]
enum Theme {
    /// All want the same branch.
    Branch(u8),
    /// All merge into the branch that the main checkout has.
    Main,
    /// All merge into the same open fork.
    Into(u8),
    /// All bring their forks up to date.
    Updates,
    Apart,
}

impl Plan {
    pub fn generate(seed: u64, shape: &Shape) -> Plan {
        let mut random = Random::new(seed);
        let agents = shape.agents;
        let mut actors: Vec<Actor> = (0..agents)
            .map(|number| Actor {
                role: Role::Agent,
                number,
                steps: vec![
                    Step::New(Fork::Private, Start::Head),
                    Step::New(Fork::Open, Start::Head),
                ],
            })
            .collect();
        let mut user = Vec::new();
        for chapter in 0..shape.chapters {
            let meeting = chapter as u16;
            let theme = match random.below(8) {
                0 | 1 => Theme::Branch(random.below(SHARED_BRANCHES) as u8),
                2 | 3 => Theme::Main,
                4 => Theme::Into(random.below(agents as u64) as u8),
                5 => Theme::Updates,
                _ => Theme::Apart,
            };
            for actor in &mut actors {
                let steps = &mut actor.steps;
                let fork = fork(&mut random);
                steps.push(Step::Write(fork, by(&mut random)));
                if random.below(3) > 0 {
                    steps.push(commit(&mut random, fork));
                }
                steps.push(Step::Meet(meeting));
                steps.push(contended(&mut random, theme, fork, agents as u64));
                steps.extend(tale(&mut random, agents as u64));
                for _ in 0..CHAPTER - 6 {
                    steps.push(agent(&mut random, agents as u64));
                }
            }
            user.push(Step::MainWrite);
            user.push(Step::Meet(meeting));
            for _ in 0..CHAPTER - 4 {
                user.push(main(&mut random));
            }
        }
        let mut number = agents;
        let mut add = |role, steps| {
            actors.push(Actor {
                role,
                number,
                steps,
            });
            number += 1;
        };
        add(Role::User, user);
        let each = shape.chapters * CHAPTER;
        add(
            Role::Editor,
            (0..each).map(|_| editor(&mut random)).collect(),
        );
        add(Role::Rounds, rounds(&mut random, each / 2));
        add(Role::Keeper, keeper(&mut random, each / 2));
        Plan(actors)
    }
}

fn fork(random: &mut Random) -> Fork {
    [Fork::Private, Fork::Open][random.below(2) as usize]
}

fn by(random: &mut Random) -> By {
    use By::{Command, Exec, Mcp, Program, Tool};
    [Program, Program, Program, Command, Command, Tool, Exec, Mcp][random.below(8) as usize]
}

fn commit(random: &mut Random, fork: Fork) -> Step {
    [Step::Commit(fork), Step::GitCommit(fork)][random.below(2) as usize]
}

fn conflicts(random: &mut Random) -> Conflicts {
    use Conflicts::{Ours, Review, Stop, Theirs, Union};
    [Stop, Stop, Ours, Theirs, Union, Review, Review][random.below(7) as usize]
}

fn source(random: &mut Random, agents: u64) -> Source {
    let other = random.below(agents) as u8;
    match random.below(9) {
        8 => Source::Snapshot,
        0..=2 => Source::Own(fork(random)),
        3 | 4 => Source::OpenOf(other),
        5 => Source::BranchOf(other),
        6 => Source::Shared(random.below(SHARED_BRANCHES) as u8),
        _ => Source::Main,
    }
}

fn target(random: &mut Random, agents: u64) -> Target {
    match random.below(7) {
        0 => Target::Origin,
        1 | 2 => Target::Own(fork(random)),
        3 => Target::OpenOf(random.below(agents) as u8),
        4 => Target::Shared(random.below(SHARED_BRANCHES) as u8),
        _ => Target::Main,
    }
}

fn merge(random: &mut Random, from: Source, into: Target) -> Step {
    Step::Merge {
        from,
        into,
        conflicts: conflicts(random),
        uncommitted: random.below(3) > 0,
        delete: matches!(from, Source::Own(_)) && random.below(6) == 0,
    }
}

fn update(random: &mut Random, fork: Fork) -> Step {
    Step::Update {
        fork,
        rebase: random.below(3) == 0,
        conflicts: conflicts(random),
    }
}

fn contended(random: &mut Random, theme: Theme, fork: Fork, agents: u64) -> Step {
    match theme {
        Theme::Branch(branch) => match random.below(8) {
            0..=2 => Step::Switch(Fork::Open, branch, random.below(2) == 0),
            3 => Step::New(Fork::Open, Start::OnBranch(branch)),
            4 => Step::BranchDelete(branch, random.below(2) == 0),
            5 => Step::BranchRename(branch, random.below(SHARED_BRANCHES) as u8),
            _ => merge(random, Source::Own(fork), Target::Shared(branch)),
        },
        Theme::Main => merge(random, Source::Own(fork), Target::Main),
        Theme::Into(agent) => {
            let from = source(random, agents);
            merge(random, from, Target::OpenOf(agent))
        }
        Theme::Updates => update(random, fork),
        Theme::Apart => agent(random, agents),
    }
}

/// Steps that mean something one after the other: work goes, and comes back.
fn tale(random: &mut Random, agents: u64) -> Vec<Step> {
    let fork = fork(random);
    let branch = random.below(SHARED_BRANCHES) as u8;
    let write = Step::Write(fork, by(random));
    let (update_fork, update_private) = (update(random, fork), update(random, Fork::Private));
    let merge_main = merge(random, Source::Own(fork), Target::Main);
    let of_other = Source::OpenOf(random.below(agents) as u8);
    let merge_own = merge(random, of_other, Target::Own(fork));
    let review = Step::Merge {
        from: Source::Own(fork),
        into: Target::Main,
        conflicts: Conflicts::Review,
        uncommitted: true,
        delete: false,
    };
    let line = Step::Line(fork, random.below(SHARED_FILES) as u8, by(random));
    let snapshot = Step::Snapshot(fork);
    match random.below(14) {
        0 => vec![
            Step::Snapshot(Fork::Private),
            update_private,
            Step::Write(Fork::Private, by(random)),
            Step::RestoreExact,
            commit(random, Fork::Private),
            merge(random, Source::Own(Fork::Private), Target::Main),
        ],
        1 => vec![
            snapshot,
            write,
            Step::RestorePath(fork, back(random)),
            Step::Undo(fork),
        ],
        2 => vec![
            write,
            snapshot,
            Step::Reset(fork),
            Step::SnapshotDelete(fork),
            Step::Recover(0),
        ],
        3 => vec![write, Step::Delete(fork, true), Step::Recover(0)],
        4 => vec![
            write,
            commit(random, fork),
            Step::HandoffCreate(fork, true),
            Step::Delete(fork, true),
            Step::OldBranchDelete(fork, true),
            Step::HandoffDelete(true),
            Step::Recover(0),
        ],
        5 => vec![
            line,
            review,
            Step::ReviewAbort,
            Step::ReviewRefresh,
            Step::Resolve(true),
        ],
        6 => vec![
            write,
            commit(random, fork),
            Step::Delete(fork, false),
            Step::OldBranchDelete(fork, true),
            Step::Recover(0),
        ],
        7 => vec![
            write,
            Step::RevertTo(fork, back(random)),
            Step::Undo(fork),
            Step::Redo(fork),
        ],
        8 => vec![
            Step::Stray(fork),
            Step::Mount(fork),
            commit(random, fork),
            merge_main,
        ],
        9 => vec![write, update_fork, Step::Undo(fork), Step::Redo(fork)],
        10 => vec![write, merge_own, Step::Undo(fork), commit(random, fork)],
        11 => vec![
            write,
            Step::Unmount(fork, Policy::Discard),
            Step::Mount(fork),
            Step::Restore(fork),
        ],
        12 => vec![Step::Colleague, Step::UpdateFetch(fork), merge_main],
        _ => vec![
            Step::Switch(Fork::Open, branch, true),
            Step::Write(Fork::Open, by(random)),
            Step::Commit(Fork::Open),
            Step::Switch(Fork::Open, (branch + 1) % SHARED_BRANCHES as u8, true),
            Step::BranchDelete(branch, true),
            Step::Recover(0),
        ],
    }
}

fn agent(random: &mut Random, agents: u64) -> Step {
    let fork = fork(random);
    let branch = random.below(SHARED_BRANCHES) as u8;
    match random.below(96) {
        0..=5 => Step::Write(fork, by(random)),
        6..=8 => Step::Line(fork, random.below(SHARED_FILES) as u8, by(random)),
        9 => Step::Move(fork, by(random)),
        10 => Step::Remove(fork, by(random)),
        11..=15 => Step::Commit(fork),
        16..=18 => Step::GitCommit(fork),
        19..=24 => {
            let (from, into) = (source(random, agents), target(random, agents));
            merge(random, from, into)
        }
        25..=27 => Step::Resolve(random.below(2) == 0),
        28..=31 => update(random, fork),
        32 => Step::CherryPick(fork, random.below(agents) as u8),
        33 => Step::Apply(fork),
        34 => Step::Switch(Fork::Open, branch, random.below(2) == 0),
        35 => Step::BranchCreate(branch),
        36 => Step::BranchDelete(branch, random.below(3) == 0),
        37 => Step::BranchRename(branch, random.below(SHARED_BRANCHES) as u8),
        38 | 39 => Step::Snapshot(fork),
        40..=42 => Step::Restore(fork),
        43 => Step::Reset(fork),
        44 | 45 => Step::Undo(fork),
        46 => Step::Redo(fork),
        47 => Step::Revert(fork),
        48 => Step::Unmount(fork, policy(random)),
        49 | 50 => Step::Mount(fork),
        51 => Step::Delete(fork, random.below(2) == 0),
        52..=54 => match start(random, agents) {
            // git in a private fork throws commits of its branch away, which nobody else may have
            // then.
            start @ Start::OnBranch(_) => Step::New(Fork::Open, start),
            start => Step::New(fork, start),
        },
        55 => Step::HandoffCreate(fork, random.below(2) == 0),
        56 => Step::HandoffApply(target(random, agents)),
        57 => Step::Push(fork),
        58 => Step::Fetch,
        64 | 65 => Step::ReviewAbort,
        66 | 67 => Step::ReviewRefresh,
        68 | 69 => Step::OldBranchDelete(fork, random.below(2) == 0),
        70 | 71 => Step::SnapshotDelete(fork),
        72 | 73 => Step::RestorePath(fork, back(random)),
        74 => Step::RestoreExact,
        75..=77 => Step::RevertTo(fork, back(random)),
        78 | 79 => Step::HandoffDelete(random.below(2) == 0),
        80 => Step::HandoffImport,
        81..=85 => Step::Recover(random.below(4) as u8),
        86 => Step::PushAs(fork, random.below(agents) as u8),
        87 => Step::PushDelete(fork),
        88 => Step::UpdateFetch(fork),
        89 => Step::Colleague,
        90..=92 => Step::Stray(fork),
        93 | 94 => Step::Undo(fork),
        95 => Step::Redo(fork),
        _ => {
            use Git::{Amend, Merge, Rebase, ResetHard, SwitchBack, SwitchToNew};
            Step::InFork(
                [Rebase, Merge, ResetHard, Amend, SwitchToNew, SwitchBack]
                    [random.below(6) as usize],
            )
        }
    }
}

fn back(random: &mut Random) -> Back {
    [Back::Snapshot, Back::Snapshot, Back::Head, Back::Other][random.below(4) as usize]
}

fn policy(random: &mut Random) -> Policy {
    use Policy::{Commit, Discard, Handoff, Keep, Merge, Outside};
    [Keep, Commit, Discard, Merge, Handoff, Outside][random.below(6) as usize]
}

fn start(random: &mut Random, agents: u64) -> Start {
    match random.below(7) {
        0 => Start::OnBranch(random.below(SHARED_BRANCHES) as u8),
        1 => Start::FromFork(random.below(agents) as u8),
        2 => Start::FromSnapshot,
        3 => Start::FromRemote,
        4 | 5 => Start::OnOldBranch,
        _ => Start::Head,
    }
}

fn main(random: &mut Random) -> Step {
    match random.below(20) {
        0..=4 => Step::MainWrite,
        5..=7 => Step::MainLine(random.below(SHARED_FILES) as u8),
        8 => Step::MainRemove,
        9..=14 => Step::MainCommit(random.below(2) == 0),
        15 => Step::MainSwitch(random.below(3) == 0),
        16 | 17 => Step::MainSwitch(false),
        18 => Step::MainMerge,
        _ => [Step::MainStash, Step::MainUnstash, Step::MainUnstash][random.below(3) as usize],
    }
}

fn editor(random: &mut Random) -> Step {
    match random.below(21) {
        20 => Step::BufferMerge(random.below(2) == 0),
        0..=2 => Step::OpenFile,
        3..=5 => Step::Type,
        6..=8 => Step::TakeEdits,
        9 | 10 => Step::Save,
        11 => Step::Close,
        12 => Step::Crash,
        13..=15 => Step::AgentWrites(random.below(2) == 0),
        16 | 17 => Step::AgentEdits,
        18 => [Step::CommitEdited, Step::SnapshotEdited][random.below(2) as usize],
        _ => Step::MergeEdited,
    }
}

fn rounds(random: &mut Random, count: usize) -> Vec<Step> {
    let mut steps = vec![Step::RoundStart];
    while steps.len() < count {
        steps.push(match random.below(13) {
            12 => Step::RoundPresent,
            0..=2 => Step::RoundStart,
            3..=5 => Step::RoundWork(random.below(2) as u8),
            6 | 7 => Step::RoundScratch(random.below(2) as u8),
            8 => Step::RoundFinish(random.below(2) == 0),
            9 => Step::RoundMerge,
            _ => Step::RoundClean(random.below(3) == 0),
        });
    }
    steps
}

fn keeper(random: &mut Random, count: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    while steps.len() < count {
        steps.push(Step::Pause(200 + random.below(1500) as u16));
        steps.push(match random.below(10) {
            0..=4 => Step::KillDaemon,
            5 | 6 => Step::StopDaemon,
            7 => Step::Gc,
            8 => Step::GitGc,
            _ => Step::Check,
        });
    }
    steps
}
