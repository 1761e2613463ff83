//! Recently written objects that must survive a concurrent `git gc --prune=now`.
//!
//! git removes objects that no ref reached when the gc began. An object is written before the ref
//! that names it moves. A gc between the two, or one that spans both, removes the object. The bytes
//! are therefore held in memory: once the ref is in place and the earlier gc has ended, missing
//! objects are written again. A gc that begins later finds the ref.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gix::ObjectId;
use gix::objs::{CommitRef, Exists, FindHeader, Kind, TreeRefIter};
use parking_lot::Mutex;

use super::objects::{MAX_BYTES_IN_MEMORY, loose_path};
use crate::refs::read_if_there;
use crate::{GitError, Repository};
use tine_sys::process;

/// Maximum bytes held of one repository's objects. The oldest are evicted first.
const MAX_RECENT_BYTES: usize = 32 << 20;

/// Memory of an object in addition to its bytes.
const OVERHEAD: usize = 128;

/// Minimum time that an object is held while there is room.
///
/// Every command takes less time between writing an object and naming it.
const MIN_HOLD_TIME: Duration = Duration::from_secs(600);

/// Maximum total wait of commands for the end of an earlier gc.
const GC_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5000 });

const GC_INTERVAL: Duration = Duration::from_millis(10);

/// Recent objects by object directory. The lock is held only briefly.
static WRITTEN: Mutex<BTreeMap<PathBuf, Recent>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Recent {
    objects: HashMap<ObjectId, Object>,
    /// Ids with the time they were put here, oldest first.
    ///
    /// An object that was put here again occurs twice.
    order: VecDeque<(ObjectId, Instant)>,
    bytes: usize,
    /// Last gc seen, and when it was first seen.
    collector: Option<(Collector, Instant)>,
    /// Objects named by refs that must be checked after that gc.
    pending: HashSet<ObjectId>,
}

struct Object {
    kind: Kind,
    /// Content; `None` for blobs that are too large.
    bytes: Option<Arc<[u8]>>,
    put: Instant,
    /// True if a ref reached the complete object while no gc ran.
    ///
    /// If it goes missing later, the ref went first.
    was_named: bool,
}

impl Object {
    fn cost(&self) -> usize {
        OVERHEAD + self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }
}

impl Recent {
    fn put(&mut self, id: ObjectId, kind: Kind, bytes: Option<Arc<[u8]>>) {
        let put = Instant::now();
        let object = Object {
            kind,
            bytes,
            put,
            was_named: false,
        };
        self.bytes += object.cost();
        if let Some(before) = self.objects.insert(id, object) {
            self.bytes -= before.cost();
        }
        self.order.push_back((id, put));
        self.evict_old();
    }

    fn evict_old(&mut self) {
        while let Some((id, put)) = self.order.front().copied()
            && (self.bytes > MAX_RECENT_BYTES
                || (put.elapsed() > MIN_HOLD_TIME && self.pending.is_empty()))
        {
            self.order.pop_front();
            if self
                .objects
                .get(&id)
                .is_some_and(|object| object.put == put)
                && let Some(object) = self.objects.remove(&id)
            {
                self.bytes -= object.cost();
            }
        }
    }
}

/// A running `git gc`: its pid file's content and time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Collector {
    content: Vec<u8>,
    since: Option<std::time::SystemTime>,
}

impl Repository {
    /// Holds an object that a ref will name.
    ///
    /// `bytes` is `None` if it is too large for memory.
    pub(super) fn hold_recent(&self, id: ObjectId, kind: Kind, bytes: Option<&[u8]>) {
        self.with_recent(|recent| recent.put(id, kind, bytes.map(Arc::from)));
    }

    fn with_recent<T>(&self, work: impl FnOnce(&mut Recent) -> T) -> T {
        work(WRITTEN.lock().entry(self.objects_dir()).or_default())
    }

    /// Holds existing objects that other programs wrote, such as git.
    pub(super) fn hold_foreign(&self, ids: &[ObjectId]) {
        for id in ids {
            if self.recent(*id).is_some() {
                continue;
            }
            let header = self.with_local(|local| local.objects.try_header(id));
            let Ok(Some(header)) = header else { continue };
            if header.size > MAX_BYTES_IN_MEMORY {
                self.hold_recent(*id, header.kind, None);
                continue;
            }
            if let Ok(data) = self.read_object(*id, header.kind) {
                self.hold_recent(*id, header.kind, Some(&data));
            }
        }
    }

    fn was_named(&self, id: ObjectId) -> bool {
        self.with_recent(|recent| {
            recent
                .objects
                .get(&id)
                .is_some_and(|object| object.was_named)
        })
    }

    fn recent(&self, id: ObjectId) -> Option<(Kind, Option<Arc<[u8]>>)> {
        self.with_recent(|recent| {
            let object = recent.objects.get(&id)?;
            Some((object.kind, object.bytes.clone()))
        })
    }

    /// Returns whether a `git gc` is running.
    ///
    /// It may have read the refs already.
    pub fn is_being_collected(&self) -> bool {
        self.collector().is_some()
    }

    fn collector(&self) -> Option<Collector> {
        let path = self.common_dir().join("gc.pid");
        let content = read_if_there(&path).ok().flatten()?;
        let pid = content.split(|&byte| byte == b' ').next()?;
        let pid = std::str::from_utf8(pid).ok()?.trim().parse().ok()?;
        // A killed gc leaves the file behind.
        process::is_running(pid).then(|| Collector {
            since: fs::metadata(&path).and_then(|meta| meta.modified()).ok(),
            content,
        })
    }

    /// Waits for the end of the running `git gc`, if any.
    ///
    /// Returns the gc if it still runs after the maximum wait.
    fn await_collector(&self) -> Option<Collector> {
        let collector = self.collector()?;
        let since = self.with_recent(|recent| match &recent.collector {
            Some((seen, since)) if *seen == collector => *since,
            _ => {
                recent
                    .collector
                    .insert((collector.clone(), Instant::now()))
                    .1
            }
        });
        let deadline = since + GC_TIMEOUT;
        while self.collector().as_ref() == Some(&collector) {
            if Instant::now() >= deadline {
                return Some(collector);
            }
            thread::sleep(GC_INTERVAL);
        }
        None
    }

    /// Rewrites objects of `id` that a gc removed, after a ref update.
    pub(crate) fn confirm_named(&self, id: ObjectId) {
        if self.recent(id).is_none() {
            return;
        }
        if self.await_collector().is_some() {
            log::info!("git gc goes on: whether {id} outlived it is looked at later");
            self.with_recent(|recent| recent.pending.insert(id));
        }
        self.confirm([id]);
    }

    /// Rewrites objects that a gc removed while no command waited for it.
    ///
    /// Also drops objects that no command can name any more.
    pub fn confirm_pending(&self) {
        let collector = self.collector();
        let pending = self.with_recent(|recent| {
            recent.evict_old();
            let is_over = recent
                .collector
                .as_ref()
                .is_some_and(|(seen, _)| collector.as_ref() != Some(seen));
            if is_over {
                std::mem::take(&mut recent.pending)
            } else {
                HashSet::new()
            }
        });
        if !pending.is_empty() {
            self.confirm(pending);
        }
    }

    fn confirm(&self, ids: impl IntoIterator<Item = ObjectId>) {
        let mut found = OnDisk::new(self);
        for id in ids {
            if let Err(error) = self.confirm_reachable(id, &mut found) {
                log::warn!("what {id} needs could not be looked at: {error}");
            }
        }
        for id in &found.missing {
            log::error!(
                "the object {id} is missing: a git gc removed it while a ref to it was being written"
            );
        }
        if found.missing.is_empty() && self.collector().is_none() {
            self.with_recent(|recent| {
                for id in &found.named {
                    if let Some(object) = recent.objects.get_mut(id) {
                        object.was_named = true;
                    }
                }
            });
        }
        if !found.rewritten.is_empty() {
            log::info!(
                "wrote {} objects again that a git gc had removed",
                found.rewritten.len()
            );
            if let Err(error) = self.sync_objects() {
                log::warn!("{error}");
            }
        }
    }

    fn confirm_reachable(&self, id: ObjectId, found: &mut OnDisk<'_>) -> Result<(), GitError> {
        let mut open = vec![id];
        // Merges lead to the same commits in several ways.
        let mut seen = HashSet::new();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let Some((kind, bytes)) = self.recent(id) else {
                continue;
            };
            if !found.check(id)? {
                continue;
            }
            let Some(bytes) = bytes else { continue };
            match kind {
                Kind::Blob | Kind::Tag => {}
                Kind::Tree => {
                    let entries = TreeRefIter::from_bytes(&bytes, self.hash_kind()).flatten();
                    open.extend(entries.map(|entry| entry.oid.to_owned()));
                }
                Kind::Commit => {
                    let Ok(commit) = CommitRef::from_bytes(&bytes, self.hash_kind()) else {
                        continue;
                    };
                    for parent in commit.parents() {
                        if self.recent(parent).is_some() {
                            found.check(parent)?;
                            open.push(parent);
                        }
                    }
                    if self.was_named(id) && !found.rewritten.contains(&id) {
                        continue;
                    }
                    let known: Result<Vec<ObjectId>, GitError> = commit
                        .parents()
                        .map(|parent| Ok(self.commit_info(parent)?.tree_id))
                        .collect();
                    self.visit_new(commit.tree(), &known?, &mut |id| found.check(id).map(drop))?;
                    found.named.push(id);
                }
            }
        }
        Ok(())
    }

    /// Returns those of `ids` that are not in the object database.
    ///
    /// It ignores cached mappings and reads the disk.
    ///
    /// # Errors
    /// [`GitError::Io`] if the object database cannot be opened.
    pub fn missing_objects(
        &self,
        ids: impl IntoIterator<Item = ObjectId>,
    ) -> Result<HashSet<ObjectId>, GitError> {
        let mut found = OnDisk::new(self);
        let mut missing = HashSet::new();
        for id in ids {
            if !found.has(id)? {
                missing.insert(id);
            }
        }
        if !missing.is_empty() {
            // Lookups must not use the packs that are gone.
            self.forget_mappings()?;
        }
        Ok(missing)
    }

    /// Rewrites a held object that a gc removed before it was read.
    ///
    /// Returns whether the object was held.
    pub(crate) fn rewrite_recent(&self, id: ObjectId) -> Result<bool, GitError> {
        match self.recent(id) {
            Some((kind, Some(bytes))) => {
                self.write_loose(kind, &bytes, id)?;
                self.note_unsynced(id);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Returns whether the object is on disk, ignoring cached mappings.
    pub(crate) fn is_on_disk(&self, id: ObjectId) -> bool {
        OnDisk::new(self).has(id).unwrap_or(false)
    }
}

/// View of the object database as it is on disk.
struct OnDisk<'r> {
    repository: &'r Repository,
    objects_dir: PathBuf,
    /// Handle for packed objects, opened on first use.
    fresh: Option<gix::odb::Handle>,
    checked: HashSet<ObjectId>,
    missing: Vec<ObjectId>,
    rewritten: HashSet<ObjectId>,
    /// Commits whose objects all exist.
    named: Vec<ObjectId>,
}

impl OnDisk<'_> {
    fn new(repository: &Repository) -> OnDisk<'_> {
        OnDisk {
            repository,
            objects_dir: repository.objects_dir(),
            fresh: None,
            checked: HashSet::new(),
            missing: Vec::new(),
            rewritten: HashSet::new(),
            named: Vec::new(),
        }
    }

    fn has(&mut self, id: ObjectId) -> Result<bool, GitError> {
        if id == self.repository.empty_tree_id() || is_file(&loose_path(&self.objects_dir, &id)) {
            return Ok(true);
        }
        let fresh = match &mut self.fresh {
            Some(fresh) => fresh,
            none => none.insert(
                gix::odb::at(&self.objects_dir, self.repository.hash_kind())
                    .map_err(GitError::io("open", &self.objects_dir))?,
            ),
        };
        Ok(fresh.exists(&id))
    }

    /// Rewrites a missing object, and returns whether it exists now.
    fn check(&mut self, id: ObjectId) -> Result<bool, GitError> {
        if !self.checked.insert(id) {
            return Ok(!self.missing.contains(&id));
        }
        if self.has(id)? {
            return Ok(true);
        }
        let Some((kind, Some(bytes))) = self.repository.recent(id) else {
            if self.repository.promisor_remote().is_none() {
                self.missing.push(id);
            }
            return Ok(false);
        };
        self.repository.write_loose(kind, &bytes, id)?;
        self.repository.note_unsynced(id);
        self.rewritten.insert(id);
        Ok(true)
    }
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}
