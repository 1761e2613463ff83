//! Answers about branches.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ChangeLine;
use crate::failure::Failure;
use tine_path::text::{PathText, optional_host_path};
use tine_store::ForkName;

/// One branch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchInfo {
    /// Short name, without `refs/heads/`.
    pub name: PathText,
    /// Commit of its tip, in hex.
    pub commit: String,
    /// First line of that commit's message.
    pub subject: String,
    /// Fork that has it checked out.
    pub fork: Option<ForkName>,
    /// Directory of the worktree that has it checked out.
    #[serde(with = "optional_host_path", default)]
    pub checkout: Option<PathBuf>,
    /// True if that is the main checkout.
    pub is_main: bool,
    /// Fork that the branch was made for.
    pub made_for: Option<ForkName>,
    /// Branch or commit that it came from.
    ///
    /// `None` if it was not made for a fork.
    pub from: Option<String>,
    /// Number of commits that `from` lacks.
    pub ahead: Option<usize>,
    /// Number of commits of `from` that the branch lacks.
    pub behind: Option<usize>,
}

/// List of branches.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Branches {
    /// The branches, sorted by name.
    pub branches: Vec<BranchInfo>,
    /// Failures of records that cannot be read.
    pub damaged: Vec<Failure>,
}

/// Answer to the creation of a branch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchCreated {
    /// Short name of the branch.
    pub branch: String,
    /// Commit of the branch, in hex.
    pub commit: String,
    /// Point that it begins at, with an unambiguous prefix.
    pub at: String,
    /// Other points that the given word means.
    pub also: Vec<String>,
    /// True if the view there has changes that the commit lacks.
    pub uncommitted: bool,
}

/// A deleted branch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchDeleted {
    /// Short name of the branch.
    pub branch: String,
    /// Commit that it had, in hex.
    pub commit: String,
    /// Number of the `tine recover` entry that restores it.
    ///
    /// `None` if something else reaches its commits.
    pub recover: Option<u64>,
    /// Ref (full name) that it was an alias of, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias_of: Option<String>,
}

/// Answer to the renaming of a branch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchRenamed {
    /// Former short name.
    pub from: String,
    /// New short name.
    pub branch: String,
    /// Forks that are on the branch.
    pub forks: Vec<ForkName>,
}

/// Answer to a switch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Switched {
    /// Fork that was switched.
    pub fork: ForkName,
    /// Short name of the branch that it is on now.
    pub branch: String,
    /// Commit of HEAD now, in hex; `None` if unborn.
    pub commit: Option<String>,
    /// Branch that HEAD was on; `None` if it was detached.
    pub from_branch: Option<String>,
    /// Commit of HEAD before, in hex; `None` if unborn.
    pub from_commit: Option<String>,
    /// True if the branch was created.
    pub created: bool,
    /// True if uncommitted changes were merged with the branch's content.
    pub merged: bool,
    /// True if the starting point has uncommitted changes.
    ///
    /// The new branch does not contain them.
    pub uncommitted: bool,
    /// Changes from the old commit to the new one.
    pub changes: Vec<ChangeLine>,
    /// Snapshot of the fork's former state.
    ///
    /// `None` if the fork was already on the branch.
    pub snapshot: Option<ForkName>,
}

/// Answer to the deletion of branches.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchesDeleted {
    /// The deleted branches.
    pub branches: Vec<BranchDeleted>,
}
