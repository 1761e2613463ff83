//! What is asked and answered about forks and their snapshots.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentTexts, CommitLine, HandoffInfo, Merged, Sequenced};
use crate::failure::Failure;
use tine_path::text::{PathText, host_path};
use tine_workspace::{
    ForkName, MountSettings, Parent, SnapshotEvery, SnapshotReason, UnmountPolicy,
};

/// What becomes of a fork's policy on snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotPolicy {
    Every(SnapshotEvery),
    Never,
}

/// What to do with the layer after unmounting.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum UnmountAction {
    Keep,
    Commit {
        message: String,
    },
    Discard,
    /// Commits and merges; conflicts become a review.
    Merge {
        into: Option<String>,
        message: Option<String>,
    },
    /// Hands over what is committed.
    Handoff {
        to: Option<String>,
        /// What is not is committed first.
        include_uncommitted: bool,
        message: Option<String>,
        /// Also what takes commits of others back.
        #[serde(default)]
        allow_revert: bool,
    },
}

/// One fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForkInfo {
    pub name: ForkName,
    pub created_secs: i64,
    /// The branch HEAD is on (short name); `None` where it is detached.
    pub branch: Option<String>,
    pub base_commit: Option<String>,
    /// The branch that it came from (short name).
    #[serde(default)]
    pub from_branch: Option<String>,
    /// Where the fork's own commits begin.
    #[serde(default)]
    pub fork_point: Option<String>,
    pub head_commit: Option<String>,
    /// The fork that it began as.
    #[serde(default)]
    pub parent: Option<Parent>,
    #[serde(with = "host_path")]
    pub mount_dir: PathBuf,
    pub mounted: bool,
    /// As it is mounted now, or would be.
    #[serde(flatten)]
    pub settings: MountSettings,
    pub on_unmount: UnmountPolicy,
    /// How often a snapshot is taken while it is mounted, in words.
    #[serde(default)]
    pub snapshot_every: Option<SnapshotEvery>,
    /// Bytes on the disk: log and contents of the open layer.
    pub layer_bytes: u64,
    /// Bytes of contents in the open layer: of live ones while the fork is open in the daemon, else
    /// of all.
    pub content_bytes: u64,
    /// `None` where nothing is carried.
    #[serde(default)]
    pub carry: Option<Box<CarryInfo>>,
    /// What was found at the mount place when the fork was mounted, and is in the fork now.
    #[serde(default)]
    pub strays: Vec<Stray>,
    /// What lies in the mount place while the fork is not mounted, by its name there; it comes into
    /// the fork when it is.
    #[serde(default)]
    pub lying: Vec<PathText>,
    /// What was done about the fork since the daemon started that its user must know of.
    #[serde(default)]
    pub note: Option<String>,
    /// Of the fork that this one was just made of.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// A file that was put into a mount place while nothing was mounted there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stray {
    /// Where it was, from the root of the fork.
    pub path: PathText,
    /// Where the fork has it now.
    pub became: PathText,
}

/// What a fork carries of the main checkout. Directories end in a slash.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CarryInfo {
    /// The main checkout.
    #[serde(with = "host_path")]
    pub from: PathBuf,
    /// Whether it is there; nothing is seen of it otherwise.
    pub available: bool,
    pub paths: Vec<PathText>,
    /// What is not carried because it looks like a secret that nobody asked for.
    pub held_back: Vec<PathText>,
    /// The dependency trees in it.
    #[serde(default)]
    pub trees: Vec<TreeInfo>,
}

/// A dependency tree that a fork carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeInfo {
    pub path: PathText,
    pub state: TreeWord,
    /// The generation that the fork shows.
    pub generation: Option<String>,
    /// Whether the main checkout has another tree by now.
    pub moved_on: bool,
    /// Why the fork shows no generation.
    pub reason: Option<String>,
}

/// What a fork shows of a dependency tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeWord {
    /// What the main checkout has, until its generation is whole.
    Keeping,
    /// A generation.
    Kept,
    /// What the main checkout has, as no generation could be made.
    Following,
    /// The same, as its generation is lost or damaged.
    Damaged,
}

/// The answer to taking up what the main checkout has of dependency trees.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TreesTakenUp {
    pub fork: ForkName,
    pub trees: Vec<TreeTakenUp>,
}

/// A dependency tree that was looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TreeTakenUp {
    pub path: PathText,
    /// Whether the fork shows another generation than before.
    pub changed: bool,
    /// Bytes that were copied into the store.
    pub copied_bytes: u64,
    /// The main checkout does not have it any more: it stays as it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

/// What is kept of an index where a fork went back to HEAD by a reset or a discard.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct IndexKept {
    /// The entry of `tine recover` with what was staged and in no file.
    #[serde(default)]
    pub staged: Option<u64>,
    /// The number under which an index that could not be read is set aside.
    #[serde(default)]
    pub set_aside: Option<u64>,
}

/// The answer to an unmount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unmounted {
    pub fork: ForkName,
    pub policy: UnmountPolicy,
    /// The commit made by the policy, if there was something to commit.
    pub commit: Option<String>,
    /// The snapshot that keeps what was discarded, if there was something.
    pub snapshot: Option<ForkName>,
    #[serde(flatten)]
    pub index: IndexKept,
    /// What came of merging it.
    #[serde(default)]
    pub merge: Option<Box<Merged>>,
    /// What was handed over.
    #[serde(default)]
    pub handoff: Option<Box<HandoffInfo>>,
    /// Why nothing was. The fork is unmounted in any case.
    #[serde(default)]
    pub trouble: Option<Failure>,
}

/// One snapshot.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotInfo {
    #[schemars(with = "String")]
    pub fork: ForkName,
    /// What `restore` takes.
    #[schemars(with = "String")]
    pub name: ForkName,
    /// Seconds since 1970.
    pub created_secs: i64,
    pub message: Option<String>,
    /// `asked`, or why it was taken by itself.
    #[schemars(with = "String")]
    pub reason: SnapshotReason,
    pub base_commit: Option<String>,
    /// Where HEAD was.
    pub head_commit: Option<String>,
    pub branch: Option<String>,
    /// The view as a git tree, once somebody asked for it.
    pub tree: Option<String>,
    /// How many frozen layers it stands on.
    pub layers: usize,
    /// What was brought in from open buffers first.
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// The answer to a restore or reset.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Restored {
    pub fork: ForkName,
    /// The point that it is at now, with the prefix that leaves it no other meaning; of a reset
    /// `null`.
    pub to: Option<String>,
    /// The snapshot of what the fork was before, if that was anything.
    pub before: Option<ForkName>,
    pub how: RestoredHow,
    /// The commits of others whose work the fork's files lack now; HEAD has them.
    pub left_out: Vec<CommitLine>,
    #[serde(flatten)]
    pub index: IndexKept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestoredHow {
    /// The files are as at the point.
    Exact,
    /// What the point had of its own is on the present HEAD, which has commits of others by now.
    OntoHead,
}

/// What a collection freed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Collected {
    /// Layers that nothing stood on.
    pub layers: u64,
    /// Snapshots that tine had taken by itself and that were too old.
    pub snapshots: u64,
    /// Entries of `tine recover` that expired.
    #[serde(default)]
    pub expired: u64,
    /// Bytes on the disk.
    pub freed_bytes: u64,
    /// Bytes on the disk of all layers that are left.
    pub kept_bytes: u64,
}

/// The answer to a delete.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deleted {
    pub fork: ForkName,
    /// The entry of `tine recover` that brings back what was uncommitted, its snapshots, and
    /// commits that nothing else reaches; if there was something.
    pub recover: Option<u64>,
    /// Whether that entry has its snapshots and superseded commits alone.
    #[serde(default)]
    pub snapshots_only: bool,
    /// How many commits that entry has which HEAD left, or which git kept for the fork alone.
    #[serde(default)]
    pub superseded: usize,
    /// Whether the branch went too: it had no commit beyond the fork's base.
    pub branch_deleted: bool,
    /// Whether something was uncommitted and the disk had no room to keep it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_kept: bool,
    /// What could not be kept by itself, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// The first reason for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The number by which `tine check --put-back` brings back the fork as it was, where something
    /// could not be kept by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<u64>,
    /// What lies in the mount place and was never in the fork, if there is something. It stays
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<LeftInPlace>,
}

/// What a fork that is deleted leaves in its mount place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LeftInPlace {
    #[serde(with = "host_path")]
    pub mount_dir: PathBuf,
    /// By their names there; those of directories end in a slash.
    pub paths: Vec<PathText>,
}

/// All forks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Forks {
    pub forks: Vec<ForkInfo>,
    /// What is wrong with those that cannot be read.
    pub damaged: Vec<Failure>,
}

/// The snapshots of a fork.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Snapshots {
    #[schemars(with = "String")]
    pub fork: ForkName,
    pub snapshots: Vec<SnapshotInfo>,
}

/// The answer to the deletion of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotDeleted {
    /// The entry of `tine recover` that brings it back, if it was more than HEAD was.
    pub recover: Option<u64>,
}

/// What came of a restore.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum RestoreOutcome {
    Restored(Restored),
    /// The point's own work conflicts with what HEAD has by now.
    Sequenced(Box<Sequenced>),
}
