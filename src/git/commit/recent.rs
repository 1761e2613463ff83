//! Objects that were written a moment ago, and are to outlive a `git gc --prune=now` that ran
//! meanwhile.
//!
//! git removes what no ref reached when it began. An object is written before the ref that names it
//! moves, so that a gc between the two, or one that goes on over both, takes it away. The bytes are
//! held in memory until then: once the ref is in place, and the gc that began before that has
//! ended, what is missing is written again. A gc that begins later finds the ref.

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

/// Bytes that are held of one repository's objects; the oldest go first.
const MAX_RECENT_BYTES: usize = 32 << 20;

/// What an object costs beside its bytes.
const OVERHEAD: usize = 128;

/// How long objects are held at least while there is room: no command takes longer from writing one
/// to naming it.
const RECENT: Duration = Duration::from_secs(600);

/// How long commands that have moved refs wait for the end of a gc that began before, together.
const GC_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5000 });

const GC_INTERVAL: Duration = Duration::from_millis(10);

/// By object directory. Held for moments.
static WRITTEN: Mutex<BTreeMap<PathBuf, Recent>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Recent {
    objects: HashMap<ObjectId, Object>,
    /// When each was put here, oldest first. One that was put here again is here twice.
    order: VecDeque<(ObjectId, Instant)>,
    bytes: usize,
    /// The gc that was seen last, and since when.
    collector: Option<(Collector, Instant)>,
    /// What refs name, to be looked at when that gc has ended.
    pending: HashSet<ObjectId>,
}

struct Object {
    kind: Kind,
    /// `None` for blobs that are too large.
    bytes: Option<Arc<[u8]>>,
    put: Instant,
    /// Whether a ref reached it, with all that it needs, while no gc was at work. Later it is gone
    /// with that, if at all.
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
        self.forget_old();
    }

    fn forget_old(&mut self) {
        while let Some((id, put)) = self.order.front().copied()
            && (self.bytes > MAX_RECENT_BYTES
                || (put.elapsed() > RECENT && self.pending.is_empty()))
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

/// A `git gc` that runs: which process, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Collector {
    content: Vec<u8>,
    since: Option<std::time::SystemTime>,
}

impl Repository {
    /// Holds an object that a ref will name; `None` where it is too large for that.
    pub(super) fn hold_recent(&self, id: ObjectId, kind: Kind, bytes: Option<&[u8]>) {
        self.with_recent(|recent| recent.put(id, kind, bytes.map(Arc::from)));
    }

    fn with_recent<T>(&self, work: impl FnOnce(&mut Recent) -> T) -> T {
        work(WRITTEN.lock().entry(self.objects_dir()).or_default())
    }

    /// Holds those of the objects that somebody else wrote, git for one, as far as they are here.
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

    /// Whether a `git gc` is at work, which may have looked at the refs already.
    pub fn is_being_collected(&self) -> bool {
        self.collector().is_some()
    }

    fn collector(&self) -> Option<Collector> {
        let path = self.common_dir().join("gc.pid");
        let content = read_if_there(&path).ok().flatten()?;
        let pid = content.split(|&byte| byte == b' ').next()?;
        let pid = std::str::from_utf8(pid).ok()?.trim().parse().ok()?;
        // One that was killed leaves the file behind.
        process::is_running(pid).then(|| Collector {
            since: fs::metadata(&path).and_then(|meta| meta.modified()).ok(),
            content,
        })
    }

    /// Waits for the end of the `git gc` that runs now, if any; which one goes on even so.
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
        let deadline = since + GC_PATIENCE;
        while self.collector().as_ref() == Some(&collector) {
            if Instant::now() >= deadline {
                return Some(collector);
            }
            thread::sleep(GC_INTERVAL);
        }
        None
    }

    /// A ref names `id` now. Writes again what a gc removed of the objects that were written for
    /// it.
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

    /// Writes again what a gc removed that has ended since, where a command did not wait for that;
    /// and gives up objects that no command can be about to name any more.
    pub fn confirm_pending(&self) {
        let collector = self.collector();
        let pending = self.with_recent(|recent| {
            recent.forget_old();
            let is_over = recent
                .collector
                .as_ref()
                .is_some_and(|(seen, _)| collector.as_ref() != Some(seen));
            match is_over {
                true => std::mem::take(&mut recent.pending),
                false => HashSet::new(),
            }
        });
        if !pending.is_empty() {
            self.confirm(pending);
        }
    }

    fn confirm(&self, ids: impl IntoIterator<Item = ObjectId>) {
        let mut found = OnDisk::new(self);
        for id in ids {
            if let Err(error) = self.confirm_beneath(id, &mut found) {
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

    fn confirm_beneath(&self, id: ObjectId, found: &mut OnDisk<'_>) -> Result<(), GitError> {
        let mut open = vec![id];
        // Merges lead to the same commits on many ways.
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

    /// Those of `ids` that are not in the object database, whatever is mapped of it.
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
            // Packs that are gone must not be taken for where they are.
            self.forget_mappings()?;
        }
        Ok(missing)
    }

    /// Writes an object again that a gc removed between its writing and its reading; whether it was
    /// held.
    pub(crate) fn write_recent_again(&self, id: ObjectId) -> Result<bool, GitError> {
        match self.recent(id) {
            Some((kind, Some(bytes))) => {
                self.write_loose(kind, &bytes, id)?;
                self.note_unsynced(id);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether the object is in the object database now, whatever is mapped of it.
    pub(crate) fn is_on_disk(&self, id: ObjectId) -> bool {
        OnDisk::new(self).has(id).unwrap_or(false)
    }
}

/// Looks at the object database as it is now.
struct OnDisk<'r> {
    repository: &'r Repository,
    objects_dir: PathBuf,
    /// Opened where an object is not loose.
    fresh: Option<gix::odb::Handle>,
    checked: HashSet<ObjectId>,
    missing: Vec<ObjectId>,
    rewritten: HashSet<ObjectId>,
    /// Commits of which all is there.
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

    /// Writes the object again where it is missing; whether it is there now.
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
