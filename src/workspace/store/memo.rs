//! What was found out about a fork before, so that a second look at unchanged files costs nothing.
//!
//! Only a memory: losing it costs time, never correctness. Both parts are bounded and emptied when
//! they are full.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use tine_attr::{Attr, Ino, Timestamp};
use tine_git::ObjectId;
use tine_git::index::{RemovedPath, Tracking};
use tine_path::RepoPath;

/// Entries that each part holds at most.
const MAX_ENTRIES: usize = 1 << 17;

/// A fork's memory of blob ids and of what its index tracks.
#[derive(Default)]
pub struct BlobIdCache {
    /// Protects itself; held for single look-ups only.
    blobs: Mutex<HashMap<BlobKey, BlobEntry>>,
    /// Protects itself; held for single look-ups only.
    tracked: Mutex<Tracked>,
}

/// Whose conversions a content goes through on its way to git: those of a path under the attributes
/// of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConvertedAs {
    pub path: RepoPath,
    pub tree_id: ObjectId,
}

/// What git stores for a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredAs {
    pub id: ObjectId,
    /// Whether the blob has the very bytes of the content.
    pub is_same: bool,
}

/// A node's content on its way to git.
#[derive(PartialEq, Eq, Hash)]
struct BlobKey {
    ino: Ino,
    converted_as: Option<ConvertedAs>,
}

struct BlobEntry {
    ctime: Timestamp,
    size: u64,
    stored_as: StoredAs,
}

/// Which version of the index file answers were taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexStamp {
    ino: u64,
    size: u64,
    modified: Option<SystemTime>,
}

impl IndexStamp {
    /// The stamp of the file at `path`; `None` where there is none.
    pub fn of(path: &Path) -> Option<IndexStamp> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok()?;
        Some(IndexStamp {
            ino: metadata.ino(),
            size: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

#[derive(Default)]
struct Tracked {
    stamp: Option<IndexStamp>,
    answers: HashMap<RepoPath, Tracking>,
    /// For the tree that was asked for last.
    removed: Option<(ObjectId, Arc<[RemovedPath]>)>,
}

impl Tracked {
    /// Forgets what another version of the index said.
    fn turn_to(&mut self, stamp: &IndexStamp) {
        if self.stamp.as_ref() != Some(stamp) || self.answers.len() >= MAX_ENTRIES {
            *self = Tracked {
                stamp: Some(stamp.clone()),
                ..Tracked::default()
            };
        }
    }
}

impl BlobIdCache {
    /// What git stores for the content that the node had when its attributes were these.
    pub fn blob(&self, attr: &Attr, converted_as: Option<&ConvertedAs>) -> Option<StoredAs> {
        let key = BlobKey {
            ino: attr.ino,
            converted_as: converted_as.cloned(),
        };
        let blobs = self.blobs.lock();
        let entry = blobs.get(&key)?;
        (entry.ctime == attr.ctime && entry.size == attr.size).then_some(entry.stored_as)
    }

    /// Remembers what git stores for a node's content.
    pub fn remember_blob(
        &self,
        attr: &Attr,
        converted_as: Option<&ConvertedAs>,
        stored_as: StoredAs,
    ) {
        let key = BlobKey {
            ino: attr.ino,
            converted_as: converted_as.cloned(),
        };
        let entry = BlobEntry {
            ctime: attr.ctime,
            size: attr.size,
            stored_as,
        };
        let mut blobs = self.blobs.lock();
        if blobs.len() >= MAX_ENTRIES {
            blobs.clear();
        }
        blobs.insert(key, entry);
    }

    /// What the index of this stamp says of `path`, if that was asked before.
    pub fn tracking(&self, stamp: &IndexStamp, path: &RepoPath) -> Option<Tracking> {
        let tracked = self.tracked.lock();
        if tracked.stamp.as_ref() != Some(stamp) {
            return None;
        }
        tracked.answers.get(path).copied()
    }

    /// Remembers what the index of this stamp says of `path`.
    pub fn remember_tracking(&self, stamp: &IndexStamp, path: &RepoPath, tracking: Tracking) {
        let mut tracked = self.tracked.lock();
        tracked.turn_to(stamp);
        tracked.answers.insert(path.clone(), tracking);
    }

    /// What the index of this stamp lacks of the tree, if that was asked before.
    pub fn removed(&self, stamp: &IndexStamp, tree_id: ObjectId) -> Option<Arc<[RemovedPath]>> {
        let tracked = self.tracked.lock();
        let (of_tree_id, removed) = tracked.removed.as_ref()?;
        (tracked.stamp.as_ref() == Some(stamp) && *of_tree_id == tree_id).then(|| removed.clone())
    }

    /// Remembers what the index of this stamp lacks of the tree.
    pub fn remember_removed(
        &self,
        stamp: &IndexStamp,
        tree_id: ObjectId,
        removed: Arc<[RemovedPath]>,
    ) {
        let mut tracked = self.tracked.lock();
        tracked.turn_to(stamp);
        tracked.removed = Some((tree_id, removed));
    }
}
