//! Loose objects: written once, and synced before a ref names them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gix::ObjectId;
use gix::objs::{Kind, TreeRefIter, Write};
use parking_lot::Mutex;

use crate::refs::{library_io_error, sync_if_there};
use crate::{GitError, Repository, TreeEntryKind};
use tine_sys::parallel::disk_work;

/// Maximum size in bytes of a blob that is hashed in memory.
///
/// Such a blob is written only if it is new.
pub(super) const MAX_BYTES_IN_MEMORY: u64 = 4 << 20;

/// Number of attempts to write an object whose directory vanishes.
const WRITE_ATTEMPTS: usize = 8;

/// Unsynced objects by object directory.
///
/// This process wrote them, or found them where it wanted to write.
static UNSYNCED: Mutex<BTreeMap<PathBuf, HashSet<ObjectId>>> = Mutex::new(BTreeMap::new());

/// Lock held while syncing.
///
/// A caller that finds nothing left to sync thus knows that it is on disk, not still being synced.
/// Taken before [`UNSYNCED`].
static SYNCING: Mutex<()> = Mutex::new(());

impl Repository {
    /// Writes a blob from a reader of exactly `len` bytes.
    ///
    /// Nothing is written if the object exists.
    ///
    /// # Errors
    /// [`GitError::UnreadableContent`] if the reader fails or ends early, [`GitError::Io`] if the
    /// object cannot be written.
    pub fn write_blob(&self, content: &mut dyn Read, len: u64) -> Result<ObjectId, GitError> {
        if len > MAX_BYTES_IN_MEMORY {
            return self.write_large_blob(content, len);
        }
        let bytes = read_exactly(content, len)?;
        self.write_object(Kind::Blob, &bytes)
    }

    /// Computes the id of `content` as a blob, without writing it.
    ///
    /// # Errors
    /// [`GitError::UnreadableContent`] if the reader fails or ends before `len` bytes.
    pub fn hash_blob(&self, content: &mut dyn Read, len: u64) -> Result<ObjectId, GitError> {
        let failed = "hash the content";
        let mut hasher = gix::hash::hasher(self.hash_kind());
        hasher.update(&gix::objs::encode::loose_header(Kind::Blob, len));
        let mut buffer = vec![0; 64 << 10];
        let mut content = ExactReader { content, left: len };
        loop {
            let read = content.read(&mut buffer).map_err(unreadable)?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
        }
        hasher.try_finalize().map_err(GitError::library(failed))
    }

    /// Writes an object unless an undamaged one exists.
    pub(crate) fn write_object(&self, kind: Kind, bytes: &[u8]) -> Result<ObjectId, GitError> {
        let id = gix::objs::compute_hash(self.hash_kind(), kind, bytes)
            .map_err(GitError::library("hash an object"))?;
        if !self.is_written(id) || self.is_loose_and_broken(id, bytes) {
            self.write_loose(kind, bytes, id)?;
        }
        if kind == Kind::Tree {
            self.trees().put(id, bytes);
        }
        self.hold_recent(id, kind, Some(bytes));
        self.note_unsynced(id);
        Ok(id)
    }

    /// Writes an object, even if it exists.
    pub(super) fn write_loose(
        &self,
        kind: Kind,
        bytes: &[u8],
        id: ObjectId,
    ) -> Result<(), GitError> {
        let write =
            || self.with_local(|local| local.objects.write_buf_with_known_id(kind, bytes, id));
        let mut written = write();
        for _ in 1..WRITE_ATTEMPTS {
            match &written {
                // `git gc` removes directories that are empty at that moment.
                Err(error) if error.is_not_found() => written = write(),
                _ => break,
            }
        }
        written
            .map(drop)
            .map_err(|error| library_io_error("write an object", self.objects_dir(), &error))
    }

    /// Returns whether the object is in the object database.
    ///
    /// The empty tree is readable even if it is not there.
    fn is_written(&self, id: ObjectId) -> bool {
        // Most objects here are new, and each refresh would look on disk for new packs. An object
        // that this misses is only written again.
        self.with_local(|local| local.objects.exists_without_refresh(&id))
    }

    /// Returns whether the object's loose file differs from `bytes`.
    ///
    /// A file that was not synced before a power cut may be empty. Writing the object again
    /// replaces it.
    fn is_loose_and_broken(&self, id: ObjectId, bytes: &[u8]) -> bool {
        let loose = gix::odb::loose::Store::at(self.objects_dir(), self.hash_kind());
        let mut found = Vec::new();
        let is_broken = match loose.try_find(&id, &mut found) {
            Ok(Some(found)) => found.data != bytes,
            Ok(None) => false,
            Err(_) => true,
        };
        if is_broken {
            log::warn!("the loose object {id} is damaged and is written again");
        }
        is_broken
    }

    /// Records that `id` must be synced before a ref names it.
    ///
    /// Existing objects count too: another thread, or git, may have just written them without
    /// syncing, and syncing again is cheap.
    pub(crate) fn note_unsynced(&self, id: ObjectId) {
        UNSYNCED
            .lock()
            .entry(self.objects_dir())
            .or_default()
            .insert(id);
    }

    /// Returns the objects that the next sync will cover.
    #[cfg(test)]
    pub(crate) fn unsynced(&self) -> HashSet<ObjectId> {
        UNSYNCED
            .lock()
            .get(&self.objects_dir())
            .cloned()
            .unwrap_or_default()
    }

    /// Syncs objects that another process may have just written.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be synced.
    pub fn sync_blobs(&self, ids: impl Iterator<Item = ObjectId>) -> Result<(), GitError> {
        for id in ids {
            self.note_unsynced(id);
        }
        self.sync_objects()
    }

    /// Syncs the tree `tree_id` with all objects that `known` lacks.
    ///
    /// git may have just written them.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be synced; fails if a tree cannot be read.
    pub fn sync_tree(&self, tree_id: ObjectId, known: ObjectId) -> Result<(), GitError> {
        self.note_tree(tree_id, [known])?;
        self.sync_objects()
    }

    /// Records the tree and its new objects as unsynced.
    ///
    /// New are the objects that none of the `known` trees has at the same path. See
    /// [`Repository::note_unsynced`].
    pub(crate) fn note_tree<const N: usize>(
        &self,
        tree_id: ObjectId,
        known: [ObjectId; N],
    ) -> Result<(), GitError> {
        self.visit_new(tree_id, &known, &mut |id| {
            self.note_unsynced(id);
            Ok(())
        })
    }

    /// Calls `visit` for the tree and its new objects.
    ///
    /// New are the objects that none of the `known` trees has at the same path. Each tree is
    /// visited before it is read.
    pub(super) fn visit_new(
        &self,
        tree_id: ObjectId,
        known: &[ObjectId],
        visit: &mut dyn FnMut(ObjectId) -> Result<(), GitError>,
    ) -> Result<(), GitError> {
        let known = known.iter().copied().map(Some).collect();
        let mut open: Vec<(ObjectId, Vec<Option<ObjectId>>)> = vec![(tree_id, known)];
        while let Some((tree_id, known)) = open.pop() {
            if known.contains(&Some(tree_id)) || tree_id == self.empty_tree_id() {
                continue;
            }
            visit(tree_id)?;
            let mut beside = Vec::new();
            for known in known {
                let known = known.map_or(Ok(Vec::new()), |id| self.read_tree(id))?;
                let entries = known
                    .into_iter()
                    .map(|entry| ((entry.name, entry.kind), entry.id));
                beside.push(entries.collect::<HashMap<_, _>>());
            }
            for entry in self.read_tree(tree_id)? {
                let key = (entry.name, entry.kind);
                let same: Vec<_> = beside
                    .iter()
                    .map(|entries| entries.get(&key).copied())
                    .collect();
                match entry.kind {
                    TreeEntryKind::Directory => open.push((entry.id, same)),
                    TreeEntryKind::Submodule => {}
                    _ if same.contains(&Some(entry.id)) => {}
                    _ => visit(entry.id)?,
                }
            }
        }
        Ok(())
    }

    /// Removes the invalid trees that a failed merge by git left.
    ///
    /// These are loose trees in `tree_id` with an entry of a null id, and their parents. They are
    /// unreadable, and `git fsck` would report them forever.
    pub(crate) fn remove_faulty_trees(&self, tree_id: Option<ObjectId>) -> Result<(), GitError> {
        let objects_dir = self.objects_dir();
        let loose = gix::odb::loose::Store::at(&objects_dir, self.hash_kind());
        let mut seen: HashSet<ObjectId> = HashSet::new();
        let mut faulty: HashSet<ObjectId> = HashSet::new();
        // Trees to read, each with its parents.
        let mut open: Vec<Vec<ObjectId>> = tree_id.map(|id| vec![id]).into_iter().collect();
        let mut buffer = Vec::new();
        while let Some(trees) = open.pop() {
            let Some(id) = trees.last().filter(|id| seen.insert(**id)) else {
                continue;
            };
            let Ok(Some(tree)) = loose.try_find(id, &mut buffer) else {
                continue;
            };
            for entry in TreeRefIter::from_bytes(tree.data, self.hash_kind()).flatten() {
                if entry.oid.is_null() {
                    faulty.extend(&trees);
                } else if entry.mode.is_tree() {
                    open.push([trees.as_slice(), &[entry.oid.to_owned()]].concat());
                }
            }
        }
        for id in faulty {
            let file = loose_path(&objects_dir, &id);
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(GitError::io("remove", &file)(error));
                }
                _ => log::info!(
                    "removed the tree {id}, which git wrote with an entry at which nothing is"
                ),
            }
        }
        Ok(())
    }

    /// Syncs the objects written to this repository since the last sync.
    ///
    /// Also syncs their directories.
    pub(crate) fn sync_objects(&self) -> Result<(), GitError> {
        let objects_dir = self.objects_dir();
        let _syncing = SYNCING.lock();
        let ids: Vec<ObjectId> = match UNSYNCED.lock().remove(&objects_dir) {
            Some(ids) => ids.into_iter().collect(),
            None => return Ok(()),
        };
        self.hold_foreign(&ids);
        let synced = sync_all(&objects_dir, &ids);
        if synced.is_err() {
            UNSYNCED.lock().entry(objects_dir).or_default().extend(ids);
        }
        synced
    }

    /// Streams a blob that is too large for memory.
    ///
    /// It goes to a directory beside the objects first, because its id is known only at the end.
    fn write_large_blob(&self, content: &mut dyn Read, len: u64) -> Result<ObjectId, GitError> {
        let staging = StagingDir::create(&self.objects_dir())?;
        let store = gix::odb::loose::Store::at(&staging.path, self.hash_kind());
        let id = store
            .write_stream(Kind::Blob, len, &mut ExactReader { content, left: len })
            .map_err(|error| library_io_error("write an object", self.objects_dir(), &error))?;
        let to = loose_path(&self.objects_dir(), &id);
        // An existing loose file may be damaged, while this one is complete.
        if !self.is_written(id) || to.exists() {
            let put = || {
                fs::create_dir_all(to.parent().unwrap_or(&to))?;
                fs::rename(store.object_path(&id), &to)
            };
            let mut written = put();
            for _ in 1..WRITE_ATTEMPTS {
                match &written {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => written = put(),
                    _ => break,
                }
            }
            written.map_err(GitError::io("write", &to))?;
        }
        self.hold_recent(id, Kind::Blob, None);
        self.note_unsynced(id);
        Ok(id)
    }

    pub(super) fn objects_dir(&self) -> PathBuf {
        self.common_dir().join("objects")
    }
}

/// Syncs the loose files of `ids` and their directories.
///
/// An object without a loose file is in a pack, and git syncs its packs.
fn sync_all(objects_dir: &Path, ids: &[ObjectId]) -> Result<(), GitError> {
    let mut paths: BTreeSet<PathBuf> = BTreeSet::from([objects_dir.to_owned()]);
    for id in ids {
        let file = loose_path(objects_dir, id);
        paths.extend(file.parent().map(Path::to_owned));
        paths.insert(file);
    }
    let paths: Vec<PathBuf> = paths.into_iter().collect();
    disk_work(&paths, |path| sync_if_there(path))
}

pub(super) fn loose_path(objects_dir: &Path, id: &ObjectId) -> PathBuf {
    let hex = id.to_hex().to_string();
    let (dir, file) = hex.split_at(2);
    objects_dir.join(dir).join(file)
}

fn unreadable(error: io::Error) -> GitError {
    GitError::UnreadableContent {
        reason: error.to_string(),
    }
}

fn read_exactly(content: &mut dyn Read, len: u64) -> Result<Vec<u8>, GitError> {
    let mut bytes = Vec::new();
    ExactReader { content, left: len }
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(bytes)
}

/// Reader of a content of known length.
///
/// An early end is an error, so that an object never contradicts its header.
struct ExactReader<'a> {
    content: &'a mut dyn Read,
    left: u64,
}

impl Read for ExactReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        let read = self.content.read(buffer)?;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the content ends {} bytes too early", self.left),
            ));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// A directory that is removed when it is dropped.
///
/// Its name begins with `tmp_obj`, so that `git gc` removes it after a crash.
struct StagingDir {
    path: PathBuf,
}

impl StagingDir {
    fn create(objects_dir: &Path) -> Result<StagingDir, GitError> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = objects_dir.join(format!("tmp_objdir-tine-{}-{number}", std::process::id()));
        // An earlier process with the same id may have left one behind.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(GitError::io("create", &path))?;
        Ok(StagingDir { path })
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
