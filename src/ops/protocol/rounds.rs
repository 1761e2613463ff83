//! Answers about rounds.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ForkInfo;
use tine_change::round::{Mode, SeatState, Stage};
use tine_path::text::{PathText, host_path, optional_host_path};
use tine_store::ForkName;

/// List of all sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sessions {
    /// The sessions, sorted by name.
    pub sessions: Vec<SessionLine>,
}

/// Results of agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// The results, in the order of the agents.
    pub results: Vec<ResultLine>,
}

/// Summary of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionLine {
    /// Name of the session.
    pub session: ForkName,
    /// Number of its current round, from 1.
    pub round: u64,
    /// Stage of the session.
    pub stage: Stage,
    /// Number of agents that take part in the round.
    pub agents: usize,
    /// Number of agents that have finished the round.
    pub finished: usize,
    /// Number of verification attempts of all agents in this round.
    pub attempts: u64,
}

/// A session with all its data, for its orchestrator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionShown {
    /// Name of the session.
    pub session: ForkName,
    /// Number of its current round, from 1.
    pub round: u64,
    /// Stage of the session.
    pub stage: Stage,
    /// Kind of the seats.
    pub mode: Mode,
    /// Plain directory that the session began as; `None` in a repository.
    #[serde(with = "optional_host_path", default)]
    pub directory: Option<PathBuf>,
    /// Commit that the round started at, in hex.
    pub base_commit: String,
    /// Short name of the branch that the round came from.
    pub from_branch: Option<String>,
    /// Name of the scratch directory in each fork.
    pub scratch: String,
    /// Agents, in the order in which they were named.
    pub agents: Vec<AgentShown>,
    /// Seat of the presenter in this round, if there is one.
    pub presenter: Option<SeatShown>,
    /// Archived scratch directories.
    pub archives: Vec<ArchiveShown>,
    /// Branches of deleted seats that stay because they are checked out elsewhere.
    ///
    /// Only in the answer to the start of a round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<BranchStays>,
}

/// Branch that stays because it is checked out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchStays {
    /// Short name of the branch.
    pub branch: String,
    /// Directory of the worktree that has it checked out.
    #[serde(with = "host_path")]
    pub checkout: PathBuf,
}

/// One agent of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentShown {
    /// Name of the agent.
    pub agent: ForkName,
    /// Verification attempts allowed in a round; `None`: any number.
    pub budget: Option<u64>,
    /// Seat in the current round; `None` if not taking part.
    pub seat: Option<SeatShown>,
    /// Seat in the previous round, which others may read.
    pub before: Option<SeatShown>,
}

/// A seat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SeatShown {
    /// Number of the round, from 1.
    pub round: u64,
    /// Name that other agents see.
    pub label: ForkName,
    /// Fork of the seat.
    pub fork: ForkName,
    /// Short name of the branch; `None` in a session without branches.
    pub branch: Option<String>,
    /// Mount place of the fork; `None` if the fork is gone.
    #[serde(with = "optional_host_path", default)]
    pub mount_dir: Option<PathBuf>,
    /// True if the fork is mounted.
    pub mounted: bool,
    /// State of the seat.
    pub state: SeatState,
    /// Number of verification attempts so far.
    pub attempts: u64,
    /// Work of the agent.
    #[serde(flatten)]
    pub work: WorkShown,
}

/// Changes since the commit that a seat started at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkShown {
    /// Commit that the seat started at, in hex.
    pub base_commit: String,
    /// Last commit, in hex; `None` if it is gone.
    pub commit: Option<String>,
    /// Tree of the work, in hex, with uncommitted changes.
    pub tree: String,
    /// True if there are uncommitted changes.
    pub uncommitted: bool,
    /// Number of changed files.
    pub files_changed: usize,
    /// Number of added lines in text files.
    pub insertions: u64,
    /// Number of removed lines in text files.
    pub deletions: u64,
    /// Failure to read the work; the other fields are empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// An archived scratch directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ArchiveShown {
    /// Agent that it belonged to.
    pub agent: ForkName,
    /// Label of the agent in that round.
    pub label: ForkName,
    /// Number of the round.
    pub round: u64,
    /// Directory with the copy.
    #[serde(with = "host_path")]
    pub path: PathBuf,
}

/// A session as one agent sees it, without names of other agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReaderShown {
    /// Number of the current round, from 1.
    pub round: u64,
    /// Fork of the agent; `None` if not taking part.
    pub fork: Option<ForkName>,
    /// Short name of its branch, if it has one.
    pub branch: Option<String>,
    /// Mount place of the fork; `None` if the fork is gone.
    #[serde(with = "optional_host_path", default)]
    pub mount_dir: Option<PathBuf>,
    /// Work of the agent in this round.
    pub work: Option<WorkShown>,
    /// Branch of the agent in the previous round.
    pub previous_branch: Option<String>,
    /// Name of the scratch directory in each fork.
    pub scratch: String,
    /// Number of its verification attempts in this round.
    pub attempts: u64,
    /// Verification attempts allowed in a round; `None`: any number.
    pub budget: Option<u64>,
    /// Finished work of the other agents, sorted by label.
    pub others: Vec<OtherShown>,
}

/// Latest finished work of another agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OtherShown {
    /// Label of the agent in that round.
    pub label: ForkName,
    /// Number of the round.
    pub round: u64,
    /// Fork of the seat, which may be gone.
    pub fork: ForkName,
    /// Short name of the branch; `None` in a session without branches.
    pub branch: Option<String>,
    /// The work.
    #[serde(flatten)]
    pub work: WorkShown,
    /// Archived scratch directory of that round.
    #[serde(with = "optional_host_path", default)]
    pub archive: Option<PathBuf>,
}

/// Answer to the finish of a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundFinished {
    /// Name of the session.
    pub session: ForkName,
    /// Number of the round.
    pub round: u64,
    /// The finished seats.
    pub finished: Vec<FinishedSeat>,
    /// Files written to the directory of a session without git.
    pub written: Option<DirectoryWritten>,
}

/// One finished seat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishedSeat {
    /// Name of the agent, or of the presenter.
    pub agent: ForkName,
    /// Name that other agents see.
    pub label: ForkName,
    /// Fork of the seat.
    pub fork: ForkName,
    /// Short name of the branch; `None` in a session without branches.
    pub branch: Option<String>,
    /// Commit of the uncommitted changes, in hex, if there were any.
    pub committed: Option<String>,
    /// Archived scratch directory, if it was not empty.
    #[serde(with = "optional_host_path", default)]
    pub archive: Option<PathBuf>,
}

/// Files written to a directory without git.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectoryWritten {
    /// The directory.
    #[serde(with = "host_path")]
    pub directory: PathBuf,
    /// Commit with the directory's former content, in hex.
    pub before: String,
    /// Commit with its new content, in hex.
    pub after: String,
    /// Written files, relative to the directory.
    pub written: Vec<PathText>,
    /// Deleted files, relative to the directory.
    pub deleted: Vec<PathText>,
}

/// Result of one agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResultLine {
    /// Name of the agent.
    pub agent: ForkName,
    /// Name that other agents see.
    pub label: ForkName,
    /// Short name of the branch; `None` in a session without branches.
    pub branch: Option<String>,
    /// The result as a point, for `tine merge`.
    pub point: String,
    /// The work.
    #[serde(flatten)]
    pub work: WorkShown,
}

/// Answer to a comparison of results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundCompared {
    /// Name of the session.
    pub session: ForkName,
    /// Number of the round.
    pub round: u64,
    /// The results, in the order of the agents.
    pub results: Vec<ResultLine>,
    /// Comparison of each pair of results.
    pub pairs: Vec<PairCompared>,
}

/// Comparison of two agents' results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PairCompared {
    /// First agent.
    pub a: ForkName,
    /// Second agent.
    pub b: ForkName,
    /// Paths that both agents changed.
    pub overlap: Vec<PathText>,
    /// Paths that a merge of both would leave with conflicts.
    pub conflicts: Vec<PathText>,
}

/// Answer to `tine round present`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundPresented {
    /// Agent whose result is presented.
    pub winner: ForkName,
    /// Name of the presenter's fork.
    pub label: ForkName,
    /// Commit that the fork starts at, in hex.
    pub commit: Option<String>,
    /// The presenter's fork.
    pub fork: ForkInfo,
}

/// Answer to a counted attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptCounted {
    /// Fork of the agent.
    pub fork: ForkName,
    /// Number of the round.
    pub round: u64,
    /// Number of attempts in this round, with this one.
    pub attempts: u64,
    /// Attempts allowed in a round; `None`: any number.
    pub budget: Option<u64>,
}

/// Answer to the cleaning of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundsCleaned {
    /// Name of the session.
    pub session: ForkName,
    /// The deleted seats.
    pub seats: Vec<SeatCleaned>,
    /// Directory with the archives, if any are left.
    #[serde(with = "optional_host_path", default)]
    pub archives: Option<PathBuf>,
}

/// A deleted seat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SeatCleaned {
    /// Agent of the seat.
    pub agent: ForkName,
    /// Number of the round.
    pub round: u64,
    /// Fork that was deleted.
    pub fork: ForkName,
    /// Short name of the deleted branch.
    pub branch: Option<String>,
    /// Last commit, in hex, with the uncommitted changes.
    ///
    /// `None` if the commit was gone, too.
    pub commit: Option<String>,
    /// True if nothing else reaches that commit.
    pub unmerged: bool,
    /// Numbers of the `tine recover` entries that restore its work.
    #[serde(default)]
    pub recover: Vec<u64>,
}
