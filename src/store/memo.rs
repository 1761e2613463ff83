//! Cache of blob ids and index answers for a fork's unchanged files.
//!
//! Losing an entry costs time, never correctness. Both parts are bounded and emptied when they are
//! full.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use tine_attr::{Attr, Ino, Timestamp};
use tine_git::ObjectId;
use tine_git::index::{RemovedPath, Tracking};
use tine_path::RepoPath;

/// Maximum number of entries in each part.
const MAX_ENTRIES: usize = 1 << 17;

/// Cache of a fork's blob ids and of its index's answers.
#[derive(Default)]
pub struct BlobIdCache {
    /// Protects itself. Held for single look-ups only.
    blobs: Mutex<HashMap<BlobKey, BlobEntry>>,
    /// Protects itself. Held for single look-ups only.
    tracked: Mutex<Tracked>,
}

/// Path and tree whose attributes decide the conversion of a content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConvertedAs {
    /// Path whose attributes apply.
    pub path: RepoPath,
    /// Tree with the `.gitattributes`.
    pub tree_id: ObjectId,
}

/// Result of storing a content in git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredAs {
    /// Id of the blob.
    pub id: ObjectId,
    /// True if the blob has the same bytes as the content.
    pub is_same: bool,
}

/// Key of a content to store.
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

/// Version of an index file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexStamp {
    ino: u64,
    size: u64,
    modified: Option<SystemTime>,
}

impl IndexStamp {
    /// Returns the stamp of the file at `path`, if it exists.
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
    /// For the most recently requested tree.
    removed: Option<(ObjectId, Arc<[RemovedPath]>)>,
}

impl Tracked {
    /// Switches to this version of the index and forgets others.
    ///
    /// Also forgets all answers when the cache is full.
    fn switch_to(&mut self, stamp: &IndexStamp) {
        if self.stamp.as_ref() != Some(stamp) || self.answers.len() >= MAX_ENTRIES {
            *self = Tracked {
                stamp: Some(stamp.clone()),
                ..Tracked::default()
            };
        }
    }
}

impl BlobIdCache {
    /// Returns the cached blob for the node's content with these attributes.
    pub fn blob(&self, attr: &Attr, converted_as: Option<&ConvertedAs>) -> Option<StoredAs> {
        let key = BlobKey {
            ino: attr.ino,
            converted_as: converted_as.cloned(),
        };
        let blobs = self.blobs.lock();
        let entry = blobs.get(&key)?;
        (entry.ctime == attr.ctime && entry.size == attr.size).then_some(entry.stored_as)
    }

    /// Caches the blob for a node's content.
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

    /// Returns the cached answer of the index for `path`.
    pub fn tracking(&self, stamp: &IndexStamp, path: &RepoPath) -> Option<Tracking> {
        let tracked = self.tracked.lock();
        if tracked.stamp.as_ref() != Some(stamp) {
            return None;
        }
        tracked.answers.get(path).copied()
    }

    /// Caches the answer of the index for `path`.
    pub fn remember_tracking(&self, stamp: &IndexStamp, path: &RepoPath, tracking: Tracking) {
        let mut tracked = self.tracked.lock();
        tracked.switch_to(stamp);
        tracked.answers.insert(path.clone(), tracking);
    }

    /// Returns the cached list of paths that the index lacks.
    ///
    /// These are paths of the tree `tree_id`.
    pub fn removed(&self, stamp: &IndexStamp, tree_id: ObjectId) -> Option<Arc<[RemovedPath]>> {
        let tracked = self.tracked.lock();
        let (of_tree_id, removed) = tracked.removed.as_ref()?;
        (tracked.stamp.as_ref() == Some(stamp) && *of_tree_id == tree_id).then(|| removed.clone())
    }

    /// Caches the list of tree paths that the index lacks.
    pub fn remember_removed(
        &self,
        stamp: &IndexStamp,
        tree_id: ObjectId,
        removed: Arc<[RemovedPath]>,
    ) {
        let mut tracked = self.tracked.lock();
        tracked.switch_to(stamp);
        tracked.removed = Some((tree_id, removed));
    }
}
