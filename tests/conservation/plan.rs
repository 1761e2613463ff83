//! Plans: the steps of all actors, made ahead from a seed, so that a run can be repeated and made smaller.
//!
//! A step names things by small numbers and roles; what they are is found when it is carried out. So steps can be left out,
//! and the rest still means the same.

use std::fmt::{self, Display};

use crate::number;
use crate::support::Random;

/// A fork of an agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// Only its agent changes it; also with commands of git's that throw work away.
    Private,
    /// Others merge into it and from it.
    Open,
}

/// How a file is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A program in the mount.
    Program,
    /// `tine write`, `mv`, `rm`.
    Command,
    /// `tine tool`.
    Tool,
}

/// What a new fork begins from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Head,
    /// `--branch`, a branch that several actors want.
    OnBranch(u8),
    /// `--from-fork` of an agent's open fork.
    FromFork(u8),
    /// `--from-fork` of the agent's newest snapshot.
    FromSnapshot,
    /// `--from-remote` of the agent's other fork.
    FromRemote,
    /// `--branch` of the branch that the fork of that name had before.
    OnOldBranch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Own(Fork),
    OpenOf(u8),
    /// The branch of an agent's private fork: what it has committed.
    BranchOf(u8),
    Shared(u8),
    Main,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The branch that the source came from.
    Origin,
    Own(Fork),
    OpenOf(u8),
    Shared(u8),
    Main,
}

/// What becomes of conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    Stop,
    Ours,
    Theirs,
    Union,
    Review,
}

/// What git, run in a private fork, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Git {
    Rebase,
    Merge,
    ResetHard,
    Amend,
    SwitchToNew,
    SwitchBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Keep,
    Commit,
    Discard,
    Merge,
    Handoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waits a moment for all who have this number, so that what follows happens at the same time.
    Meet(u16),
    Pause(u16),

    // Agents.
    New(Fork, Start),
    Delete(Fork, bool),
    Mount(Fork),
    Unmount(Fork, Policy),
    Write(Fork, By),
    /// Adds a word to the agent's line of a file that all change.
    Line(Fork, u8, By),
    Move(Fork, By),
    Remove(Fork, By),
    Commit(Fork),
    GitCommit(Fork),
    Merge {
        from: Source,
        into: Target,
        conflicts: Conflicts,
        uncommitted: bool,
        delete: bool,
    },
    /// Resolves all that is open in the newest review, one side or the other, and commits it.
    Resolve(bool),
    Update {
        fork: Fork,
        rebase: bool,
        conflicts: Conflicts,
    },
    CherryPick(Fork, u8),
    Apply(Fork),
    Switch(Fork, u8, bool),
    BranchCreate(u8),
    BranchDelete(u8, bool),
    BranchRename(u8, u8),
    Snapshot(Fork),
    Restore(Fork),
    Reset(Fork),
    Undo(Fork),
    Redo(Fork),
    Revert(Fork),
    HandoffCreate(Fork, bool),
    HandoffApply(Target),
    Push(Fork),
    Fetch,
    InFork(Git),
    /// Loses the last commit of the private fork, to show that it is noticed; in no plan that is made of a seed.
    ForgetLast,

    // The person in the main checkout.
    MainWrite,
    MainLine(u8),
    MainRemove,
    MainCommit(bool),
    MainSwitch(bool),
    MainMerge,
    MainStash,
    MainUnstash,

    // An editor with its person, and an agent that writes to what is open in it.
    OpenFile,
    Type,
    TakeEdits,
    Save,
    Close,
    Crash,
    /// An agent writes the whole file: its own text of before, or what it reads now.
    AgentWrites(bool),
    AgentEdits,
    CommitEdited,
    SnapshotEdited,
    MergeEdited,

    // Rounds.
    RoundStart,
    RoundWork(u8),
    RoundScratch(u8),
    RoundFinish(bool),
    RoundMerge,
    RoundClean(bool),

    // What happens to the daemon and the repository.
    KillDaemon,
    StopDaemon,
    Gc,
    GitGc,
    Check,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Agent,
    User,
    Editor,
    Rounds,
    Keeper,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub role: Role,
    /// What its forks and files are called by; stays when other actors are left out.
    pub number: usize,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan(pub Vec<Actor>);

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
                for _ in 0..CHAPTER - 4 {
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
            actors.push(Actor { role, number, steps });
            number += 1;
        };
        add(Role::User, user);
        let each = shape.chapters * CHAPTER;
        add(Role::Editor, (0..each).map(|_| editor(&mut random)).collect());
        add(Role::Rounds, rounds(&mut random, each / 2));
        add(Role::Keeper, keeper(&mut random, each / 2));
        Plan(actors)
    }

    pub fn steps(&self) -> usize {
        self.0.iter().map(|actor| actor.steps.len()).sum()
    }
}

fn fork(random: &mut Random) -> Fork {
    [Fork::Private, Fork::Open][random.below(2) as usize]
}

fn by(random: &mut Random) -> By {
    [By::Program, By::Program, By::Command, By::Tool][random.below(4) as usize]
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
    match random.below(8) {
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

fn agent(random: &mut Random, agents: u64) -> Step {
    let fork = fork(random);
    let branch = random.below(SHARED_BRANCHES) as u8;
    match random.below(64) {
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
            // git in a private fork throws commits of its branch away, which nobody else may have then.
            start @ Start::OnBranch(_) => Step::New(Fork::Open, start),
            start => Step::New(fork, start),
        },
        55 => Step::HandoffCreate(fork, random.below(2) == 0),
        56 => Step::HandoffApply(target(random, agents)),
        57 => Step::Push(fork),
        58 => Step::Fetch,
        _ => {
            use Git::{Amend, Merge, Rebase, ResetHard, SwitchBack, SwitchToNew};
            Step::InFork([Rebase, Merge, ResetHard, Amend, SwitchToNew, SwitchBack][random.below(6) as usize])
        }
    }
}

fn policy(random: &mut Random) -> Policy {
    use Policy::{Commit, Discard, Handoff, Keep, Merge};
    [Keep, Commit, Discard, Merge, Handoff][random.below(5) as usize]
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
    match random.below(20) {
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
        steps.push(match random.below(12) {
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

/// As Rust, to be pasted.
impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "let plan = Plan(vec![")?;
        for Actor { role, number, steps } in &self.0 {
            writeln!(
                f,
                "    Actor {{ role: Role::{role:?}, number: {number}, steps: vec!["
            )?;
            for step in steps {
                writeln!(f, "        {},", rust(step))?;
            }
            writeln!(f, "    ] }},")?;
        }
        writeln!(f, "]);\nholds(&plan, 5);")
    }
}

/// A step with the names of its parts' types, where names occur in several.
fn rust(step: &Step) -> String {
    match step {
        Step::New(fork, start) => format!("New({fork:?}, Start::{start:?})"),
        Step::Unmount(fork, policy) => format!("Unmount({fork:?}, Policy::{policy:?})"),
        Step::Merge {
            from,
            into,
            conflicts,
            uncommitted,
            delete,
        } => format!(
            "Merge {{ from: Source::{from:?}, into: Target::{into:?}, conflicts: Conflicts::{conflicts:?}, \
             uncommitted: {uncommitted}, delete: {delete} }}"
        ),
        Step::Update {
            fork,
            rebase,
            conflicts,
        } => {
            format!("Update {{ fork: {fork:?}, rebase: {rebase}, conflicts: Conflicts::{conflicts:?} }}")
        }
        Step::HandoffApply(target) => format!("HandoffApply(Target::{target:?})"),
        Step::InFork(git) => format!("InFork(Git::{git:?})"),
        other => format!("{other:?}"),
    }
}
