//! What is answered about branches.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ChangeLine;
use crate::failure::Failure;
use tine_path::text::{PathText, optional_host_path};
use tine_workspace::ForkName;

/// One branch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchInfo {
    /// Short.
    pub name: PathText,
    pub commit: String,
    pub subject: String,
    /// The fork that has it checked out.
    pub fork: Option<ForkName>,
    /// The directory of whoever has it checked out.
    #[serde(with = "optional_host_path", default)]
    pub checkout: Option<PathBuf>,
    /// Whether that is the main checkout.
    pub is_main: bool,
    /// The fork that it was made for.
    pub made_for: Option<ForkName>,
    /// The branch or commit that it came from, where it was made for a fork, and how far it is from
    /// there.
    pub from: Option<String>,
    pub ahead: Option<usize>,
    pub behind: Option<usize>,
}

/// All of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Branches {
    pub branches: Vec<BranchInfo>,
    pub damaged: Vec<Failure>,
}

/// The answer to a create.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchCreated {
    pub branch: String,
    pub commit: String,
    /// The point it begins at, with the prefix that leaves it no other meaning.
    pub at: String,
    /// What else the word means.
    pub also: Vec<String>,
    /// Whether the view there has changes that the commit has not.
    pub uncommitted: bool,
}

/// A branch that was deleted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchDeleted {
    pub branch: String,
    pub commit: String,
    /// The entry of `tine recover` that brings it back, where nothing else reached its commits.
    pub recover: Option<u64>,
    /// The ref that it was an alias of (full name), if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias_of: Option<String>,
}

/// The answer to a rename.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchRenamed {
    pub from: String,
    pub branch: String,
    /// The forks that are on it.
    pub forks: Vec<ForkName>,
}

/// The answer to a switch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Switched {
    pub fork: ForkName,
    pub branch: String,
    pub commit: Option<String>,
    /// Where HEAD was before; `None` where it was detached, or on no commit.
    pub from_branch: Option<String>,
    pub from_commit: Option<String>,
    pub created: bool,
    /// Whether uncommitted changes were merged with what the branch has.
    pub merged: bool,
    /// Whether what the branch begins at has uncommitted changes, which are not in it.
    pub uncommitted: bool,
    /// From the old commit to the new one.
    pub changes: Vec<ChangeLine>,
    /// The snapshot of what the fork was; `None` where it was on that branch already.
    pub snapshot: Option<ForkName>,
}

/// The answer to a deletion.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchesDeleted {
    pub branches: Vec<BranchDeleted>,
}
