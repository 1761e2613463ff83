//! What is asked and answered about what commands dropped.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ForkInfo;
use crate::failure::Failure;
use tine_change::recovery::RecoverEntry;
use tine_path::text::optional_host_path;
use tine_workspace::ForkName;

/// Brings back what an entry keeps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BringBack {
    pub id: u64,
    /// The snapshot of the fork to bring back, instead of what it was last.
    pub snapshot: Option<ForkName>,
    /// What the fork or branch is to be called; default: as before.
    pub name: Option<String>,
    /// Where to mount a fork; absolute. Default: as `tine new`.
    #[serde(with = "optional_host_path", default)]
    pub dir: Option<PathBuf>,
    pub mount: bool,
}

/// What can be brought back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecoverList {
    /// The oldest first.
    pub entries: Vec<RecoverLine>,
    /// What other commands bring back, the oldest first.
    pub elsewhere: Vec<ElsewhereLine>,
    /// Bytes on the disk of all entries.
    pub size_bytes: u64,
    /// How old an entry becomes; `null`: any age.
    pub max_age_secs: Option<u64>,
    /// How many bytes all entries may have; `null`: any.
    pub max_bytes: Option<u64>,
    pub damaged: Vec<Failure>,
}

/// An entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecoverLine {
    pub id: u64,
    #[serde(flatten)]
    pub entry: RecoverEntry,
    /// The command that brings it back.
    pub way_back: String,
    /// When it expires, in seconds since 1970; `null`: never by age.
    pub expires_secs: Option<i64>,
    /// An object that is lost, and without which it does not come back as a whole.
    #[serde(default)]
    pub missing: Option<String>,
}

/// What is kept by something else than an entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ElsewhereLine {
    pub what: Elsewhere,
    pub fork: Option<ForkName>,
    /// The name of the snapshot, the number of the review or of what a repair moved aside.
    pub name: String,
    pub kept_secs: i64,
    /// Why a snapshot was taken, or what a review is about.
    pub because: String,
    /// The command.
    pub way_back: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Elsewhere {
    /// A snapshot that tine took of a fork before it was changed.
    Snapshot,
    /// A review that was aborted.
    Review,
    /// What a repair moved aside.
    Damaged,
}

/// What was brought back. Its entry stays.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BroughtBack {
    pub id: u64,
    /// The fork that was made.
    pub fork: Option<ForkInfo>,
    /// The branch that was made, or that the fork is on.
    pub branch: Option<String>,
    pub commit: Option<String>,
}

/// What was let go of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Purged {
    pub purged: Vec<u64>,
    /// Bytes that nothing of tine's keeps any more. git frees them.
    pub size_bytes: u64,
    /// Entries that stay, and why.
    pub stays: Vec<Failure>,
}
