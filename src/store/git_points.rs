//! Git points of snapshots: HEAD, refs and index of a fork that is a repository of its own.
//!
//! | step of a snapshot | a process that dies after it leaves |
//! |---|---|
//! | the point's objects are on the disk | objects that git removes some day |
//! | the ref `refs/tine/<fork>/git-points` keeps it | the same, kept until the next snapshot |
//! | the list of snapshots names it | the snapshot |

use std::collections::BTreeSet;

use super::{Fork, Store};
use crate::StoreError;
use crate::fork::ForkName;
use crate::memo::IndexStamp;
use crate::snapshot::{NotedPoint, SnapshotList};
use tine_git::ObjectId;

impl Store {
    /// Records HEAD, refs and index for a snapshot that joins `list`.
    ///
    /// Returns `None` for a linked worktree, and after a failure, which is logged: the files are
    /// worth a snapshot without them.
    pub(super) fn note_point(&self, list: &SnapshotList, fork: &Fork) -> Option<NotedPoint> {
        if !fork.worktree.is_own() {
            return None;
        }
        let noted = self.record_point(list, fork);
        let failed = |error: &StoreError| {
            log::warn!(
                "{}: a snapshot without HEAD, refs and index: {error}",
                fork.name()
            );
        };
        noted.inspect_err(failed).ok()
    }

    fn record_point(&self, list: &SnapshotList, fork: &Fork) -> Result<NotedPoint, StoreError> {
        let (repository, name) = (&self.repository, fork.name().as_str());
        // Taken first: an index that changes meanwhile is then read again next time.
        let stamp = IndexStamp::of(&fork.worktree.index_path());
        let points = || {
            list.snapshots
                .iter()
                .filter_map(|one| one.git_point.as_ref())
        };
        let last = points().next_back();
        let last = last.filter(|last| last.index == stamp && stamp.is_some());
        let last = last.and_then(id_of);
        let point = repository.record_point(&fork.worktree, name, last)?;
        let mut kept: BTreeSet<ObjectId> = points().filter_map(id_of).collect();
        kept.insert(point);
        repository.keep_points(name, &kept)?;
        Ok(NotedPoint {
            tree: point.to_string(),
            index: stamp,
        })
    }

    /// Releases the points that no snapshot of `list` names any more. Logs a failure.
    pub(super) fn release_points(&self, name: &ForkName, list: &SnapshotList) {
        let points = list
            .snapshots
            .iter()
            .filter_map(|one| one.git_point.as_ref());
        let kept: BTreeSet<ObjectId> = points.filter_map(id_of).collect();
        if let Err(error) = self.repository.keep_points(name.as_str(), &kept) {
            log::warn!("{name}: points of removed snapshots are kept: {error}");
        }
    }
}

fn id_of(point: &NotedPoint) -> Option<ObjectId> {
    ObjectId::from_hex(point.tree.as_bytes()).ok()
}
