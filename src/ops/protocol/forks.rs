//! Requests and answers about forks and their snapshots.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentTexts, CommitLine, HandoffInfo, Merged, Sequenced};
use crate::failure::Failure;
use tine_path::text::{PathText, host_path};
use tine_store::{ForkName, MountSettings, Parent, SnapshotEvery, SnapshotReason, UnmountPolicy};
use tine_workspace::GitSwitch;

/// Change of a fork's snapshot policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotPolicy {
    /// Take a snapshot at this interval.
    Every(SnapshotEvery),
    /// Take no periodic snapshots.
    Never,
}

/// Action on a fork's layer after unmounting.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum UnmountAction {
    /// Keep the layer unchanged.
    Keep,
    /// Commit the changes; the rest of the layer stays.
    Commit {
        /// Message of the commit.
        message: String,
    },
    /// Empty the layer, after a snapshot.
    Discard,
    /// Commit and merge; conflicts become a review.
    Merge {
        /// Fork or branch to merge into.
        ///
        /// `None` is the branch that the fork came from.
        into: Option<String>,
        /// Message of the commit and the merge; `None` for tine's own.
        message: Option<String>,
    },
    /// Hand the commits over.
    Handoff {
        /// Fork or branch that gets the commits; `None` is the fork's parent.
        to: Option<String>,
        /// True to commit uncommitted changes first.
        include_uncommitted: bool,
        /// Message of that commit; `None` for tine's own.
        message: Option<String>,
        /// True to hand over commits that undo work of others, too.
        #[serde(default)]
        allow_revert: bool,
    },
}

/// One fork.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ForkInfo {
    /// Name of the fork.
    #[schemars(with = "String")]
    pub name: ForkName,
    /// Time of creation in seconds since 1970.
    #[schemars(skip)]
    pub created_secs: i64,
    /// Branch of HEAD, as a short name; `None` if HEAD is detached.
    pub branch: Option<String>,
    /// Commit of the fork's base, in hex; `None` if unborn.
    #[schemars(skip)]
    pub base_commit: Option<String>,
    /// Short name of the branch that the fork came from.
    #[serde(default)]
    pub from_branch: Option<String>,
    /// Fork point, in hex.
    #[serde(default)]
    pub fork_point: Option<String>,
    /// Commit of HEAD, in hex; `None` if unborn.
    pub head_commit: Option<String>,
    /// Fork that this fork was made from, if any.
    #[schemars(skip)]
    #[serde(default)]
    pub parent: Option<Parent>,
    /// Mount place, absolute.
    #[schemars(with = "PathText")]
    #[serde(with = "host_path")]
    pub mount_dir: PathBuf,
    /// True if the fork is mounted.
    pub mounted: bool,
    /// Settings of the present mount, or of the next one.
    #[schemars(skip)]
    #[serde(flatten)]
    pub settings: MountSettings,
    /// Action when the fork is unmounted.
    #[schemars(skip)]
    pub on_unmount: UnmountPolicy,
    /// Interval of snapshots while the fork is mounted.
    #[schemars(skip)]
    #[serde(default)]
    pub snapshot_every: Option<SnapshotEvery>,
    /// Bytes on the disk of the open layer: log and contents.
    #[schemars(skip)]
    pub layer_bytes: u64,
    /// Bytes of contents in the open layer.
    ///
    /// Only live contents are counted while the daemon has the fork open.
    #[schemars(skip)]
    pub content_bytes: u64,
    /// Files that the fork carries; `None` if it carries nothing.
    #[schemars(skip)]
    #[serde(default)]
    pub carry: Option<Box<CarryInfo>>,
    /// Strays that are in the fork now and were not reported yet.
    #[schemars(skip)]
    #[serde(default)]
    pub strays: Vec<Stray>,
    /// Names at the mount place while the fork is not mounted.
    ///
    /// The next mount brings these files into the fork.
    #[schemars(skip)]
    #[serde(default)]
    pub lying: Vec<PathText>,
    /// True if programs in the fork are not trusted.
    #[schemars(skip)]
    #[serde(default)]
    pub untrusted: bool,
    /// Changes that the fork's mount refused since the daemon started, the newest first.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedChange>,
    /// Note about automatic work on the fork since the daemon started.
    #[schemars(skip)]
    #[serde(default)]
    pub note: Option<String>,
    /// Agents' texts of the fork that this one was just made from.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "AgentTexts::is_empty")]
    pub agent_texts: AgentTexts,
}

/// Change that would have made git run a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedChange {
    /// File, from the fork's root.
    pub path: PathText,
    /// Setting, or the file itself.
    pub what: String,
    /// Reason, as a clause.
    pub reason: String,
}

/// File that a program wrote to an unmounted mount place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stray {
    /// Former path, from the root of the mount place.
    pub path: PathText,
    /// Path in the fork.
    pub became: PathText,
}

/// Files of the main checkout that a fork carries.
///
/// A path of a directory ends in a slash.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CarryInfo {
    /// Directory of the main checkout.
    #[serde(with = "host_path")]
    pub from: PathBuf,
    /// False if that directory is missing.
    ///
    /// The fork shows none of its files then.
    pub available: bool,
    /// Carried roots.
    pub paths: Vec<PathText>,
    /// Paths that are held back because they may be secrets.
    pub held_back: Vec<PathText>,
    /// Dependency trees among the carried files.
    #[serde(default)]
    pub trees: Vec<TreeInfo>,
}

/// Dependency tree that a fork carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeInfo {
    /// Path from the fork's root.
    pub path: PathText,
    /// State of the tree in this fork.
    pub state: TreeWord,
    /// Hash that names the generation that the fork shows.
    pub generation: Option<String>,
    /// True if the main checkout has another tree now.
    pub moved_on: bool,
    /// Reason that the fork shows no generation.
    pub reason: Option<String>,
}

/// State of a dependency tree in a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeWord {
    /// The fork shows the main checkout's files until the generation is complete.
    Keeping,
    /// The fork shows a generation.
    Kept,
    /// The fork shows the main checkout's files; making a generation failed.
    Following,
    /// The fork shows the main checkout's files; its generation is damaged.
    ///
    /// Or it is lost.
    Damaged,
}

/// Answer to taking up newer generations of dependency trees.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TreesTakenUp {
    /// Fork that shows them.
    pub fork: ForkName,
    /// The dependency trees that were examined.
    pub trees: Vec<TreeTakenUp>,
}

/// Dependency tree that was examined.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TreeTakenUp {
    /// Path from the fork's root.
    pub path: PathText,
    /// True if the fork shows another generation than before.
    pub changed: bool,
    /// Number of bytes that were copied into the store.
    pub copied_bytes: u64,
    /// True if the main checkout no longer has the tree.
    ///
    /// The fork keeps its generation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

/// Backup of an index that a reset or discard replaced.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct IndexKept {
    /// Number of the `tine recover` entry with content that was only staged.
    #[serde(default)]
    pub staged: Option<u64>,
    /// Number under which an unreadable index was set aside.
    #[serde(default)]
    pub set_aside: Option<u64>,
}

/// Answer to an unmount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unmounted {
    /// Fork that was unmounted.
    pub fork: ForkName,
    /// Policy that was applied.
    pub policy: UnmountPolicy,
    /// Commit that the policy made, in hex, if any.
    pub commit: Option<String>,
    /// Snapshot of the discarded work, if there was any.
    pub snapshot: Option<ForkName>,
    /// Backup of the index.
    #[serde(flatten)]
    pub index: IndexKept,
    /// Outcome of the merge that the policy made.
    #[serde(default)]
    pub merge: Option<Box<Merged>>,
    /// Handoff that the policy made.
    #[serde(default)]
    pub handoff: Option<Box<HandoffInfo>>,
    /// Reason that no handoff was made.
    ///
    /// The fork is unmounted even so.
    #[serde(default)]
    pub trouble: Option<Failure>,
}

/// One snapshot.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "doc comments would change the JSON schema")]
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

/// Answer to a restore or reset.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Restored {
    /// Fork that was changed.
    pub fork: ForkName,
    /// Point that the fork is set to, with an unambiguous prefix.
    ///
    /// `null` for a reset.
    pub to: Option<String>,
    /// Snapshot of the fork's former state, if it had changes.
    pub before: Option<ForkName>,
    /// Relation of the files to the point.
    pub how: RestoreMethod,
    /// Commits of others whose work the files now lack; HEAD has them.
    pub left_out: Vec<CommitLine>,
    /// HEAD after it, if HEAD, refs and index were restored as well.
    pub git: Option<GitSwitch>,
    /// Backup of the index.
    #[serde(flatten)]
    pub index: IndexKept,
}

/// Relation of a fork's files to the restored point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestoreMethod {
    /// The files are equal to the point.
    Exact,
    /// The point's own changes are applied to the present HEAD.
    ///
    /// HEAD has new commits of others.
    OntoHead,
}

/// Answer to a collection.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Collected {
    /// Number of removed layers that nothing needed.
    pub layers: u64,
    /// Number of removed automatic snapshots that were too old.
    pub snapshots: u64,
    /// Number of `tine recover` entries that expired.
    #[serde(default)]
    pub expired: u64,
    /// Freed bytes on the disk.
    pub freed_bytes: u64,
    /// Bytes on the disk of all remaining layers.
    pub kept_bytes: u64,
}

/// Answer to the deletion of a fork.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deleted {
    /// Name of the deleted fork.
    pub fork: ForkName,
    /// Number of the `tine recover` entry that restores its work.
    ///
    /// The work is uncommitted changes, snapshots, and commits that nothing else reaches. `None` if
    /// there was none.
    pub recover: Option<u64>,
    /// True if that entry has only snapshots and superseded commits.
    #[serde(default)]
    pub snapshots_only: bool,
    /// Number of superseded commits in that entry.
    ///
    /// HEAD left them, or git kept them only for the fork.
    #[serde(default)]
    pub superseded: usize,
    /// Number of the fork's own refs in that entry.
    #[serde(default)]
    pub refs: usize,
    /// True if the branch was deleted, too: it had no commits beyond the base.
    pub branch_deleted: bool,
    /// True if uncommitted changes were lost because the disk was full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_kept: bool,
    /// Parts that could not be kept separately, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// First reason for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Number with which `tine check --put-back` restores the whole fork.
    ///
    /// `None` if everything was kept separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<u64>,
    /// Files at the mount place that were never in the fork.
    ///
    /// They stay there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<LeftInPlace>,
}

/// Files that a deleted fork leaves at its mount place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LeftInPlace {
    /// The mount place.
    #[serde(with = "host_path")]
    pub mount_dir: PathBuf,
    /// Names there; the name of a directory ends in a slash.
    pub paths: Vec<PathText>,
}

/// List of all forks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Forks {
    /// The forks, sorted by name.
    pub forks: Vec<ForkInfo>,
    /// Failures of forks that cannot be read.
    pub damaged: Vec<Failure>,
}

/// The snapshots of a fork.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "doc comments would change the JSON schema")]
pub struct Snapshots {
    #[schemars(with = "String")]
    pub fork: ForkName,
    pub snapshots: Vec<SnapshotInfo>,
}

/// Answer to the deletion of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotDeleted {
    /// Number of the `tine recover` entry that restores it.
    ///
    /// `None` if it was equal to HEAD.
    pub recover: Option<u64>,
}

/// Outcome of a restore.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum RestoreOutcome {
    /// The files were set to the point.
    Restored(Restored),
    /// The point's own work conflicts with HEAD; a review keeps the conflicts.
    Sequenced(Box<Sequenced>),
}
