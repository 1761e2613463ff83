//! What is asked and answered about rounds.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ForkInfo;
use tine_change::round::{Mode, SeatState, Stage};
use tine_path::text::{PathText, host_path, optional_host_path};
use tine_workspace::ForkName;

/// All sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sessions {
    pub sessions: Vec<SessionLine>,
}

/// What agents have.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    pub results: Vec<ResultLine>,
}

/// A session in a few words.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionLine {
    pub session: ForkName,
    pub round: u64,
    pub stage: Stage,
    pub agents: usize,
    /// How many of them have finished the round.
    pub finished: usize,
    /// In this round, of all agents.
    pub attempts: u64,
}

/// A session as its orchestrator sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionShown {
    pub session: ForkName,
    pub round: u64,
    pub stage: Stage,
    pub mode: Mode,
    #[serde(with = "optional_host_path", default)]
    pub directory: Option<PathBuf>,
    pub base_commit: String,
    pub from_branch: Option<String>,
    /// The name of the scratch directories.
    pub scratch: String,
    pub agents: Vec<AgentShown>,
    pub presenter: Option<SeatShown>,
    pub archives: Vec<ArchiveShown>,
    /// Branches of seats that this start let go of, which are somebody else's now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<BranchStays>,
}

/// A branch that stays because it is checked out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchStays {
    /// Short name.
    pub branch: String,
    #[serde(with = "host_path")]
    pub checkout: PathBuf,
}

/// One agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentShown {
    pub agent: ForkName,
    pub budget: Option<u64>,
    pub seat: Option<SeatShown>,
    pub before: Option<SeatShown>,
}

/// A seat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SeatShown {
    pub round: u64,
    pub label: ForkName,
    pub fork: ForkName,
    pub branch: Option<String>,
    /// `None` where the fork is gone.
    #[serde(with = "optional_host_path", default)]
    pub mount_dir: Option<PathBuf>,
    pub mounted: bool,
    pub state: SeatState,
    pub attempts: u64,
    #[serde(flatten)]
    pub work: WorkShown,
}

/// What was changed, from the commit that a seat began at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkShown {
    pub base_commit: String,
    /// The last commit.
    pub commit: Option<String>,
    /// Its tree, or the fork's where something is not committed.
    pub tree: String,
    pub uncommitted: bool,
    pub files_changed: usize,
    /// Lines of texts.
    pub insertions: u64,
    pub deletions: u64,
    /// Why it could not be looked at; nothing is told of it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// An archived scratch directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ArchiveShown {
    pub agent: ForkName,
    pub label: ForkName,
    pub round: u64,
    #[serde(with = "host_path")]
    pub path: PathBuf,
}

/// A session as one agent may see it: nothing in it says who anybody is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReaderShown {
    pub round: u64,
    pub fork: Option<ForkName>,
    pub branch: Option<String>,
    #[serde(with = "optional_host_path", default)]
    pub mount_dir: Option<PathBuf>,
    pub work: Option<WorkShown>,
    /// Its branch of the round before.
    pub previous_branch: Option<String>,
    pub scratch: String,
    pub attempts: u64,
    pub budget: Option<u64>,
    /// Sorted by label.
    pub others: Vec<OtherShown>,
}

/// What another agent has finished last.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OtherShown {
    pub label: ForkName,
    pub round: u64,
    pub fork: ForkName,
    pub branch: Option<String>,
    #[serde(flatten)]
    pub work: WorkShown,
    /// Its archived scratch of that round.
    #[serde(with = "optional_host_path", default)]
    pub archive: Option<PathBuf>,
}

/// The answer to a finish.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundFinished {
    pub session: ForkName,
    pub round: u64,
    pub finished: Vec<FinishedSeat>,
    /// What was brought to the directory of a session without git.
    pub written: Option<DirectoryWritten>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishedSeat {
    pub agent: ForkName,
    pub label: ForkName,
    pub fork: ForkName,
    pub branch: Option<String>,
    /// The commit that was made of what was not committed.
    pub committed: Option<String>,
    /// Where its scratch is now, if there was something in it.
    #[serde(with = "optional_host_path", default)]
    pub archive: Option<PathBuf>,
}

/// What came of writing a result back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectoryWritten {
    #[serde(with = "host_path")]
    pub directory: PathBuf,
    /// What the directory was, and what it is now.
    pub before: String,
    pub after: String,
    pub written: Vec<PathText>,
    pub deleted: Vec<PathText>,
}

/// What an agent has.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResultLine {
    pub agent: ForkName,
    pub label: ForkName,
    pub branch: Option<String>,
    /// What `tine merge` takes.
    pub point: String,
    #[serde(flatten)]
    pub work: WorkShown,
}

/// The answer to a comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundCompared {
    pub session: ForkName,
    pub round: u64,
    pub results: Vec<ResultLine>,
    pub pairs: Vec<PairCompared>,
}

/// Two agents' results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PairCompared {
    pub a: ForkName,
    pub b: ForkName,
    /// Paths that both have changed.
    pub overlap: Vec<PathText>,
    /// Paths in which merging them would conflict.
    pub conflicts: Vec<PathText>,
}

/// The answer to `tine round present`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundPresented {
    pub winner: ForkName,
    pub label: ForkName,
    pub commit: Option<String>,
    pub fork: ForkInfo,
}

/// The answer to an attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptCounted {
    pub fork: ForkName,
    pub round: u64,
    pub attempts: u64,
    pub budget: Option<u64>,
}

/// The answer to a clean.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundsCleaned {
    pub session: ForkName,
    pub seats: Vec<SeatCleaned>,
    /// Where the archives are, where there are some.
    #[serde(with = "optional_host_path", default)]
    pub archives: Option<PathBuf>,
}

/// A seat that went.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SeatCleaned {
    pub agent: ForkName,
    pub round: u64,
    pub fork: ForkName,
    pub branch: Option<String>,
    /// Its last commit, what was not committed included; `None` where that is gone, too.
    pub commit: Option<String>,
    /// Whether nothing else reached that.
    pub unmerged: bool,
    /// The entries of `tine recover` that bring back what nothing else has.
    #[serde(default)]
    pub recover: Vec<u64>,
}
