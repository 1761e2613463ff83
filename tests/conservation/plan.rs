//! Plans: the steps of all actors, made ahead from a seed, so that a run can be repeated and made
//! smaller.
//!
//! A step names things by small numbers and roles; what they are is found when it is carried out.
//! So steps can be left out, and the rest still means the same.

use std::fmt::{self, Display};

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
    /// `--agent`.
    Tool,
    /// `tine exec`, a program that mounts the fork if it is not mounted.
    Exec,
    /// `tine mcp`, and a call of its tools.
    Mcp,
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

/// What a fork goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// The newest snapshot of the fork's own.
    Snapshot,
    Head,
    /// The agent's other fork.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Own(Fork),
    OpenOf(u8),
    /// The branch of an agent's private fork: what it has committed.
    BranchOf(u8),
    /// The agent's newest snapshot.
    Snapshot,
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
    /// The program `umount`.
    Outside,
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
    ReviewAbort,
    /// Plans the newest review again, also one that was aborted.
    ReviewRefresh,
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
    /// Deletes the branch that the fork of that name has or had.
    OldBranchDelete(Fork, bool),
    Snapshot(Fork),
    SnapshotDelete(Fork),
    Restore(Fork),
    /// `--path` of the agent's own directory.
    RestorePath(Fork, Back),
    /// `--exact`, in the private fork, so that the agent alone is without the work of others.
    RestoreExact,
    Reset(Fork),
    Undo(Fork),
    Redo(Fork),
    Revert(Fork),
    RevertTo(Fork, Back),
    HandoffCreate(Fork, bool),
    HandoffApply(Target),
    HandoffDelete(bool),
    /// What the private fork has committed, as git's patches.
    HandoffImport,
    /// Brings an entry of `tine recover` back, counted from the newest.
    Recover(u8),
    Push(Fork),
    /// `--as` the open fork of an agent.
    PushAs(Fork, u8),
    PushDelete(Fork),
    Fetch,
    UpdateFetch(Fork),
    /// Commits in a clone of the remote, with git, and pushes to `main` there.
    Colleague,
    /// Unmounts the fork, and writes a file to the place where it was mounted.
    Stray(Fork),
    InFork(Git),
    /// Loses the last commit of the private fork, to show that it is noticed; in no plan that is
    /// made of a seed.
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
    /// `tine buffer merge`, with the lines of both or what fits.
    BufferMerge(bool),
    CommitEdited,
    SnapshotEdited,
    MergeEdited,

    // Rounds.
    RoundStart,
    RoundWork(u8),
    RoundScratch(u8),
    RoundFinish(bool),
    RoundPresent,
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

impl Plan {
    pub fn steps(&self) -> usize {
        self.0.iter().map(|actor| actor.steps.len()).sum()
    }
}

/// As Rust, to be pasted.
impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "let plan = Plan(vec![")?;
        for Actor {
            role,
            number,
            steps,
        } in &self.0
        {
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
            format!(
                "Update {{ fork: {fork:?}, rebase: {rebase}, conflicts: Conflicts::{conflicts:?} }}"
            )
        }
        Step::HandoffApply(target) => format!("HandoffApply(Target::{target:?})"),
        Step::RestorePath(fork, back) => format!("RestorePath({fork:?}, Back::{back:?})"),
        Step::RevertTo(fork, back) => format!("RevertTo({fork:?}, Back::{back:?})"),
        Step::InFork(git) => format!("InFork(Git::{git:?})"),
        other => format!("{other:?}"),
    }
}
