//! Snapshots: frozen points of a fork, and their durable records.

use serde::{Deserialize, Serialize};

use super::base_nodes::BaseAttrs;
use super::error::StoreError;
use super::fork::{ForkName, ForkRecord};
use crate::git::ConversionSettings;

/// Why a snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotReason {
    /// Somebody asked for it.
    Asked,
    /// By the fork's policy, every so often.
    Periodic,
    /// Before the fork was restored to another point.
    BeforeRestore,
    /// Before the fork was taken back to its base.
    BeforeReset,
    /// Before its changes were discarded.
    BeforeDiscard,
}

impl SnapshotReason {
    /// What the name of such a snapshot begins with, if nobody names it.
    pub fn stem(self) -> &'static str {
        match self {
            SnapshotReason::Asked => "snapshot",
            SnapshotReason::Periodic => "auto",
            SnapshotReason::BeforeRestore => "before-restore",
            SnapshotReason::BeforeReset => "before-reset",
            SnapshotReason::BeforeDiscard => "before-discard",
        }
    }

    /// Whether tine took it by itself, and may let it go when it is old.
    pub fn is_automatic(self) -> bool {
        self != SnapshotReason::Asked
    }
}

/// What the store remembers of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// Unique in its fork; what may be a fork's name may be a snapshot's.
    pub name: ForkName,
    /// Seconds since 1970.
    pub created_secs: i64,
    pub message: Option<String>,
    pub reason: SnapshotReason,
    /// What it stands on, as in the fork's record of that time.
    pub base_commit: Option<String>,
    pub base_tree: String,
    pub base_attrs: BaseAttrs,
    pub conversions: Option<ConversionSettings>,
    /// HEAD and the branch that it was on (short name).
    pub head_commit: Option<String>,
    pub branch: Option<String>,
    /// Newest first.
    pub frozen_layers: Vec<u64>,
    /// The view as a git tree, in hex, once somebody asked for it; a ref keeps it.
    #[serde(default)]
    pub tree: Option<String>,
}

impl SnapshotRecord {
    /// The record of `fork` as of this snapshot. Its open layer is none.
    pub(super) fn as_fork(&self, fork: &ForkRecord) -> ForkRecord {
        ForkRecord {
            base_commit: self.base_commit.clone(),
            base_tree: self.base_tree.clone(),
            base_attrs: self.base_attrs,
            conversions: self.conversions.clone(),
            frozen_layers: self.frozen_layers.clone(),
            open_layer: 0,
            ..fork.clone()
        }
    }
}

/// A fork's snapshots, the oldest first: one atomically replaced file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotList {
    pub snapshots: Vec<SnapshotRecord>,
    /// How many were given a number for a name.
    pub numbered: u64,
}

impl SnapshotList {
    pub fn find(&self, name: &ForkName) -> Option<&SnapshotRecord> {
        self.snapshots.iter().find(|snapshot| snapshot.name == *name)
    }

    /// The name asked for, or a free one that says why the snapshot was taken.
    pub fn name_for(
        &mut self,
        asked: Option<&ForkName>,
        reason: SnapshotReason,
    ) -> Result<ForkName, StoreError> {
        if let Some(name) = asked {
            return match self.find(name) {
                Some(_) => Err(StoreError::SnapshotExists(name.clone())),
                None => Ok(name.clone()),
            };
        }
        loop {
            self.numbered = self.numbered.saturating_add(1);
            let name = ForkName::parse(&format!("{}-{}", reason.stem(), self.numbered))?;
            if self.find(&name).is_none() {
                return Ok(name);
            }
        }
    }
}
