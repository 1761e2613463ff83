//! Snapshots: frozen points of a fork, and their records on disk.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::fork::{ForkName, ForkPoint, ForkRecord};
use crate::memo::IndexStamp;
use tine_attr::Timestamp;
use tine_git::ConversionSettings;
use tine_workspace::BaseAttrs;

/// Reason for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotReason {
    /// A user asked for it.
    Asked,
    /// The fork's policy takes one at intervals.
    Periodic,
    /// Before the fork was restored to another point.
    BeforeRestore,
    /// Before the fork was taken back to its base.
    BeforeReset,
    /// Before the fork's changes were discarded.
    BeforeDiscard,
    /// Before a merge into the fork.
    BeforeMerge,
    /// Before the fork was put on another branch.
    BeforeSwitch,
    /// Before the fork was brought up to another commit.
    BeforeUpdate,
    /// Before commits were applied again on the fork.
    BeforeCherryPick,
    /// Before the commits of patches were applied to the fork.
    BeforeApply,
}

impl SnapshotReason {
    /// Returns the stem of default names for such snapshots.
    pub fn stem(self) -> &'static str {
        match self {
            SnapshotReason::Asked => "snapshot",
            SnapshotReason::Periodic => "auto",
            SnapshotReason::BeforeRestore => "before-restore",
            SnapshotReason::BeforeReset => "before-reset",
            SnapshotReason::BeforeDiscard => "before-discard",
            SnapshotReason::BeforeMerge => "before-merge",
            SnapshotReason::BeforeSwitch => "before-switch",
            SnapshotReason::BeforeUpdate => "before-update",
            SnapshotReason::BeforeCherryPick => "before-cherry-pick",
            SnapshotReason::BeforeApply => "before-apply",
        }
    }

    /// Returns whether tine took the snapshot, and may delete it.
    pub fn is_automatic(self) -> bool {
        self != SnapshotReason::Asked
    }
}

/// Interval of a fork's periodic snapshots.
///
/// One is taken only if anything was written. The text form is `30s`, `5m`, `2h` or `100ops`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SnapshotEvery {
    /// After this many seconds.
    Secs(u64),
    /// After this many changes.
    Changes(u64),
}

impl SnapshotEvery {
    /// Parses the text form. `None` if it is not valid.
    pub fn parse(word: &str) -> Option<SnapshotEvery> {
        let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
        let secs = |factor| number.checked_mul(factor).map(SnapshotEvery::Secs);
        match word.get(digits.len()..)? {
            "s" => secs(1),
            "m" => secs(60),
            "h" => secs(60 * 60),
            "ops" => Some(SnapshotEvery::Changes(number)),
            _ => None,
        }
    }
}

impl fmt::Display for SnapshotEvery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotEvery::Secs(secs) => write!(f, "{secs}s"),
            SnapshotEvery::Changes(changes) => write!(f, "{changes}ops"),
        }
    }
}

impl TryFrom<String> for SnapshotEvery {
    type Error = String;

    fn try_from(word: String) -> Result<SnapshotEvery, String> {
        SnapshotEvery::parse(&word)
            .ok_or_else(|| format!("{word:?} is no time and no number of changes"))
    }
}

impl From<SnapshotEvery> for String {
    fn from(every: SnapshotEvery) -> String {
        every.to_string()
    }
}

/// Returns the automatic snapshots that may be deleted at `now_secs`.
///
/// Of periodic snapshots older than an hour, one for each hour stays; of those older than a day,
/// one for each day. No automatic snapshot gets older than 30 days, which is as long as git keeps
/// objects that only a reflog reaches.
pub(crate) fn outdated(snapshots: &[SnapshotRecord], now_secs: i64) -> Vec<ForkName> {
    const HOUR: i64 = 60 * 60;
    const DAY: i64 = 24 * HOUR;
    let mut outdated = Vec::new();
    let mut last_kept = None;
    for snapshot in snapshots
        .iter()
        .filter(|snapshot| snapshot.reason.is_automatic())
    {
        let age_secs = now_secs.saturating_sub(snapshot.created_secs);
        let slot = match age_secs {
            _ if age_secs > 30 * DAY => Some(None),
            _ if snapshot.reason != SnapshotReason::Periodic || age_secs <= HOUR => None,
            _ if age_secs <= DAY => Some(Some((HOUR, snapshot.created_secs.div_euclid(HOUR)))),
            _ => Some(Some((DAY, snapshot.created_secs.div_euclid(DAY)))),
        };
        match slot {
            Some(slot) if slot.is_none() || slot == last_kept => {
                outdated.push(snapshot.name.clone())
            }
            Some(slot) => last_kept = slot,
            None => {}
        }
    }
    outdated
}

/// Record of a snapshot in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// Name, unique in its fork. It follows the rules of fork names.
    pub name: ForkName,
    /// Time of the snapshot, in seconds since 1970.
    pub created_secs: i64,
    /// Text that the user gave; `None` without one.
    pub message: Option<String>,
    /// Reason for the snapshot.
    pub reason: SnapshotReason,
    /// Commit of the base, in hex, as in the fork's record then.
    pub base_commit: Option<String>,
    /// Tree of the base, in hex.
    pub base_tree: String,
    /// Attributes that base nodes share.
    pub base_attrs: BaseAttrs,
    /// Conversion settings of the base, as in the fork's record then.
    pub conversions: Option<ConversionSettings>,
    /// Commit of HEAD, in hex; `None` before the first commit.
    pub head_commit: Option<String>,
    /// Short name of the branch that HEAD was on; `None` if detached.
    pub branch: Option<String>,
    /// Fork point of then. `None` in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_point: Option<ForkPoint>,
    /// True if the fork had a sparse checkout.
    ///
    /// The absence of files that it left out is not a deletion.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_sparse: bool,
    /// Lower bound of shown ctimes, as in the fork's record then.
    #[serde(
        rename = "stands_since",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub min_ctime: Option<Timestamp>,
    /// Identifiers of the frozen layers, newest first.
    pub frozen_layers: Vec<u64>,
    /// Tree of the view, in hex, once it was asked for. A ref keeps it.
    #[serde(default)]
    pub tree: Option<String>,
    /// HEAD, refs and index of then. `None` for a linked worktree, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_point: Option<NotedPoint>,
}

/// Git point of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedPoint {
    /// Tree of the point, in hex. A ref keeps it.
    pub tree: String,
    /// File of the index that the point has, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<IndexStamp>,
}

impl SnapshotRecord {
    /// Returns the fork's record as of this snapshot, without an open layer.
    pub(super) fn as_fork(&self, fork: &ForkRecord) -> ForkRecord {
        ForkRecord {
            base_commit: self.base_commit.clone(),
            base_tree: self.base_tree.clone(),
            base_attrs: self.base_attrs,
            conversions: self.conversions.clone(),
            min_ctime: self.min_ctime,
            frozen_layers: self.frozen_layers.clone(),
            open_layer: 0,
            renewed: None,
            ..fork.clone()
        }
    }
}

/// Snapshots of a fork, oldest first. The store replaces their file atomically.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotList {
    /// Records, oldest first.
    pub snapshots: Vec<SnapshotRecord>,
    /// Number of default names given so far.
    pub numbered: u64,
}

impl SnapshotList {
    pub(crate) fn find(&self, name: &ForkName) -> Option<&SnapshotRecord> {
        self.snapshots
            .iter()
            .find(|snapshot| snapshot.name == *name)
    }

    /// Returns the name asked for, or a free default name.
    pub(crate) fn name_for(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(number: usize, reason: SnapshotReason, created_secs: i64) -> SnapshotRecord {
        SnapshotRecord {
            name: ForkName::parse(&format!("s{number}")).unwrap(),
            created_secs,
            message: None,
            reason,
            base_commit: None,
            base_tree: String::new(),
            base_attrs: BaseAttrs {
                uid: 0,
                gid: 0,
                umask: 0,
                time: Timestamp::from_secs(1),
                changed: None,
                times: None,
            },
            conversions: None,
            head_commit: None,
            branch: None,
            fork_point: None,
            is_sparse: false,
            min_ctime: None,
            frozen_layers: Vec::new(),
            tree: None,
            git_point: None,
        }
    }

    #[test]
    fn how_often_is_said_in_seconds_or_changes() {
        for (word, every) in [
            ("30s", Some(SnapshotEvery::Secs(30))),
            ("5m", Some(SnapshotEvery::Secs(300))),
            ("2h", Some(SnapshotEvery::Secs(7200))),
            ("100ops", Some(SnapshotEvery::Changes(100))),
            ("0s", None),
            ("s", None),
            ("30", None),
            ("30 s", None),
            ("-1s", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(SnapshotEvery::parse(word), every, "{word}");
        }
        assert_eq!(SnapshotEvery::Secs(300).to_string(), "300s");
    }

    #[test]
    fn periodic_snapshots_get_fewer_with_age_and_others_stay() {
        let now_secs = 100 * 24 * 60 * 60;
        // One a minute for two days.
        let minutes = (0..2 * 24 * 60_usize).rev();
        let mut snapshots: Vec<_> = minutes
            .map(|ago| snapshot(ago, SnapshotReason::Periodic, now_secs - 60 * ago as i64))
            .collect();
        let let_go = outdated(&snapshots, now_secs);
        snapshots.retain(|snapshot| !let_go.contains(&snapshot.name));
        let younger_than = |secs: i64| {
            let ages = snapshots.iter().map(|kept| now_secs - kept.created_secs);
            ages.filter(|age| *age <= secs).count()
        };
        assert_eq!(younger_than(60 * 60), 61, "all of the last hour");
        assert_eq!(
            younger_than(24 * 60 * 60),
            61 + 23,
            "one for each hour of the last day"
        );
        assert_eq!(snapshots.len(), 61 + 23 + 1, "one for the day before");
        assert_eq!(outdated(&snapshots, now_secs), [], "that was all");

        let old = now_secs - 31 * 24 * 60 * 60;
        let others = [
            snapshot(1, SnapshotReason::Asked, old),
            snapshot(2, SnapshotReason::BeforeReset, old),
            snapshot(3, SnapshotReason::BeforeReset, now_secs - 7200),
            snapshot(4, SnapshotReason::BeforeReset, now_secs - 7200),
        ];
        assert_eq!(outdated(&others, now_secs), [others[1].name.clone()]);
    }
}
