//! Requests and answers about work that commands dropped.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ForkInfo;
use crate::failure::Failure;
use tine_change::recovery::RecoverEntry;
use tine_path::text::optional_host_path;
use tine_store::ForkName;

/// Request to restore the work of an entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecoverWork {
    /// Number of the entry.
    pub id: u64,
    /// Snapshot to restore, instead of the fork's last state.
    pub snapshot: Option<ForkName>,
    /// Name for the fork or branch; by default its former name.
    pub name: Option<String>,
    /// Absolute directory to mount a fork at; by default as `tine new`.
    #[serde(with = "optional_host_path", default)]
    pub dir: Option<PathBuf>,
    /// True to mount the fork.
    pub mount: bool,
}

/// List of work that can be restored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecoverList {
    /// Entries, the oldest first.
    pub entries: Vec<RecoverLine>,
    /// Work that other commands restore, the oldest first.
    pub elsewhere: Vec<OtherRecoverLine>,
    /// Bytes on the disk of all entries.
    pub size_bytes: u64,
    /// Age in seconds at which entries expire; `null`: never.
    pub max_age_secs: Option<u64>,
    /// Maximum number of bytes of all entries; `null`: unlimited.
    pub max_bytes: Option<u64>,
    /// Failures of entries that cannot be read.
    pub damaged: Vec<Failure>,
}

/// One entry with its command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecoverLine {
    /// Number of the entry.
    pub id: u64,
    /// The entry as it is stored.
    #[serde(flatten)]
    pub entry: RecoverEntry,
    /// Command that restores it.
    #[serde(rename = "way_back")]
    pub recover_command: String,
    /// Expiry in seconds since 1970; `null`: never by age.
    pub expires_secs: Option<i64>,
    /// Id of a lost object that the entry needs.
    ///
    /// Without it the entry cannot be restored completely.
    #[serde(default)]
    pub missing: Option<String>,
}

/// Work that something other than an entry keeps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OtherRecoverLine {
    /// Kind of the work.
    pub what: OtherRecoverKind,
    /// Fork that the work belongs to, if any.
    pub fork: Option<ForkName>,
    /// Name of the snapshot, or number of the review or set-aside files.
    pub name: String,
    /// Time at which it was kept, in seconds since 1970.
    pub kept_secs: i64,
    /// Reason for the snapshot, or title of the review.
    pub because: String,
    /// Command that restores it.
    #[serde(rename = "way_back")]
    pub recover_command: String,
}

/// Kind of work that other commands restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OtherRecoverKind {
    /// A snapshot that tine took before it changed a fork.
    Snapshot,
    /// An aborted review.
    Review,
    /// Files that a repair moved aside.
    Damaged,
}

/// Answer to [`RecoverWork`]. The entry stays.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkRecovered {
    /// Number of the entry.
    pub id: u64,
    /// Fork that was made.
    pub fork: Option<ForkInfo>,
    /// Branch that was made, or that the fork is on.
    pub branch: Option<String>,
    /// Commit of HEAD or of the branch, in hex.
    pub commit: Option<String>,
    /// Number of the fork's own refs that are back.
    #[serde(default)]
    pub refs: usize,
}

/// Answer to the removal of entries.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Purged {
    /// Numbers of the removed entries.
    pub purged: Vec<u64>,
    /// Bytes that tine no longer keeps; git frees them.
    pub size_bytes: u64,
    /// Reasons for the entries that stay.
    pub stays: Vec<Failure>,
}
