//! An open layer.

mod sync;

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::content_file::{ContentFile, ContentFlush};
use super::content_store::{ContentStore, lost_contents};
use super::contents::DATA_NAME;
use super::fault;
use super::index::Effects;
use super::log::{Log, SpaceUse, sync_dir};
use super::{
    ChangesSince, ContentLocation, ContentRef, Dentry, FrozenLayer, LayerError, LayerId,
    LayerIndex, LogPosition, Node, Op, Reserve, Touched,
};
use parking_lot::Mutex;
use tine_attr::Ino;

pub use sync::SyncJob;

/// Number of inode numbers that one record reserves.
const INO_CHUNK: u64 = 1024;

/// Minimum size of a log that is compacted, in bytes.
const COMPACT_MIN_BYTES: u64 = 4 << 20;
/// Minimum ratio of the log to a checkpoint for a compaction.
///
/// A sync compacts at its end, when little is left to sync.
const COMPACT_FACTOR: u64 = 4;
/// Minimum size, in bytes, of a log that a commit compacts.
///
/// It is for layers that no program syncs.
const COMPACT_UNSYNCED_BYTES: u64 = 64 << 20;

/// Minimum ratio for a compaction on a full disk.
const COMPACT_FULL_FACTOR: u64 = 2;
/// Margin for the compacted size on a full disk, in bytes.
///
/// The size is an estimate.
const COMPACT_FULL_MARGIN: u64 = 64 << 10;

/// Bytes that a log takes from the store's reserve at a time.
const RESERVE_STEP: u64 = 256 << 10;
/// Minimum of freed bytes given back at once on a full disk.
const FREED_AT_ONCE: u64 = 1 << 20;
/// Attempts to extend the log for one record.
const EXTEND_ATTEMPTS: u32 = 4;

/// Waits for freed space, one after each failed attempt.
const EXTEND_WAITS: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(16),
];

/// Name of the marker file of a failed sync.
///
/// While it exists, some of the layer may be only in the page cache.
const FAILED_NAME: &str = "failed";

/// Statistics of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct LayerStats {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of names, including whiteouts.
    pub dentries: u64,
    /// Size of the log file in bytes.
    pub log_bytes: u64,
    /// Disk space of the live contents in bytes.
    pub content_bytes: u64,
}

/// An open layer, which can be changed.
///
/// It locks its directory, so only one can be open there at a time.
///
/// Reading contents takes only `&self` and may run on several threads. The caller (`workspace`)
/// must serialize writers and readers of the same node.
pub struct Layer {
    dir: PathBuf,
    log: Log,
    /// Index of the layer.
    ///
    /// It is shared once the layer is frozen, and then it is immutable.
    index: Arc<LayerIndex>,
    contents: ContentStore,
    /// Next number for a new node.
    ///
    /// All numbers below the index's `inos_below` are reserved in the log.
    next_ino: u64,
    /// Content files that became shorter, with their nodes.
    ///
    /// They are truncated once the record of the new length is on disk.
    shrunk: HashMap<u64, Ino>,
    /// True if a sync had no disk space for some contents.
    ///
    /// They must be written again before a sync can succeed.
    must_rewrite_contents: bool,
    /// Size in bytes below which the log is not compacted.
    compact_at: u64,
    /// Layers below that may not be on disk yet.
    ///
    /// A sync of this layer seals them first.
    lower_layers: Vec<Arc<FrozenLayer>>,
    /// Recent changes from before the last compaction, until a caller takes them.
    recent_before: Mutex<Touched>,
    /// Reserve for records that remove something on a full disk.
    reserve: Option<Arc<Reserve>>,
    /// Number of records committed since the layer was opened.
    commits: u64,
    /// Buffer, empty between calls.
    effects: Effects,
}

impl Layer {
    /// Creates an empty layer in the new directory `dir`.
    ///
    /// The layer is on disk when this returns.
    ///
    /// # Errors
    /// [`LayerError::Io`] if the directory exists or cannot be written.
    pub fn create(dir: &Path, id: LayerId) -> Result<Layer, LayerError> {
        Layer::create_with(dir, id, |_| Ok(()))
    }

    /// Creates a layer in the new directory `dir` and fills it.
    ///
    /// If `fill` fails, there is no layer. The layer is on disk when this returns, which takes no
    /// longer than for an empty layer.
    ///
    /// # Errors
    /// The error of `fill`, or [`LayerError::Io`] if the directory exists or cannot be written.
    pub fn create_with(
        dir: &Path,
        id: LayerId,
        fill: impl FnOnce(&mut Layer) -> Result<(), LayerError>,
    ) -> Result<Layer, LayerError> {
        make_dir(dir)?;
        Layer::make(dir, id, fill).inspect_err(|_| {
            // Best effort: the remains have no log.
            let _ = std::fs::remove_dir_all(dir);
        })
    }

    fn make(
        dir: &Path,
        id: LayerId,
        fill: impl FnOnce(&mut Layer) -> Result<(), LayerError>,
    ) -> Result<Layer, LayerError> {
        let contents = ContentStore::create(dir, id)?;
        let log = Log::prepare(dir, id)?;
        let mut layer = Layer::assemble(dir, log, LayerIndex::default(), contents);
        fill(&mut layer)?;
        let written = layer.contents.begin_sync();
        written.write_out()?;
        layer.contents.end_sync(written, true);
        sync_dir(layer.contents.reader().files().dir())?;
        layer.log.rename_into_place()?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_dir(parent)?;
        }
        Ok(layer)
    }

    /// Opens the layer in `dir`.
    ///
    /// This reads the log, truncates a torn tail, drops unlinked nodes, and frees contents without
    /// a node.
    ///
    /// # Errors
    /// [`LayerError::Locked`] if another [`Layer`] is open there; [`LayerError::Frozen`],
    /// [`LayerError::Corrupt`], [`LayerError::NewerFormat`], or [`LayerError::Io`].
    pub fn open(dir: &Path) -> Result<Layer, LayerError> {
        let (mut log, mut index) = Log::open(dir)?;
        let unlinked: Vec<Op> = index
            .nodes()
            .filter(|(_, node)| node.nlink == 0)
            .map(|(ino, _)| Op::DropNode(ino))
            .collect();
        if !unlinked.is_empty() {
            match log.append(&unlinked, SpaceUse::Frees) {
                Ok(()) => {
                    let mut effects = Effects::default();
                    for op in unlinked {
                        index.apply(op, &mut effects);
                    }
                }
                // A layer must open on a full disk, too. The next opening drops the nodes.
                Err(error) => log::warn!("unlinked nodes are not dropped: {error}"),
            }
        }
        log_lost_contents(dir, &mut log, &mut index)?;
        let failed = dir.join(FAILED_NAME);
        let durability = if failed.exists() {
            Durability::Uncertain
        } else {
            complete_before_freeing(&mut log)?
        };
        let may_free = durability == Durability::Complete;
        let contents = ContentStore::open(dir, log.id(), &index, may_free)?;
        let mut layer = Layer::assemble(dir, log, index, contents);
        if durability == Durability::Uncertain {
            match layer.rewrite_all() {
                Ok(()) => {
                    // A marker that stays only causes another rewrite.
                    let _ = std::fs::remove_file(failed);
                }
                Err(error) => {
                    log::error!("{} can only be read: {error}", dir.display());
                    layer.poison();
                }
            }
        }
        Ok(layer)
    }

    /// Rewrites everything that may be only in the page cache.
    ///
    /// After a failed write the kernel marks the pages as clean, so a sync would skip them.
    fn rewrite_all(&mut self) -> Result<(), LayerError> {
        log::warn!(
            "{}: writing all again, because a sync failed",
            self.dir.display()
        );
        // These calls may report the earlier failure, which is already known.
        self.contents.clear_write_errors();
        let _ = self.log.point().sync();
        self.must_rewrite_contents = true;
        self.compact()
    }

    fn assemble(dir: &Path, log: Log, index: LayerIndex, contents: ContentStore) -> Layer {
        Layer {
            dir: dir.to_owned(),
            log,
            // The last process may have used all the numbers that it reserved.
            next_ino: index.inos_below().0,
            index: Arc::new(index),
            contents,
            shrunk: HashMap::new(),
            must_rewrite_contents: false,
            compact_at: COMPACT_MIN_BYTES,
            lower_layers: Vec::new(),
            recent_before: Mutex::default(),
            reserve: None,
            commits: 0,
            effects: Effects::default(),
        }
    }

    /// Sets the reserve for records that remove something on a full disk.
    ///
    /// Nothing else grows while the reserve is incomplete.
    pub fn draw_on(&mut self, reserve: Arc<Reserve>) {
        self.reserve = Some(reserve);
    }

    /// Fails if the store's reserve must be refilled first.
    ///
    /// Before it fails, it frees space with a sync.
    fn check_growth(&mut self) -> Result<(), LayerError> {
        let Some(reserve) = self.reserve.clone() else {
            return Ok(());
        };
        let mut checked = reserve.check_growth();
        if checked.is_err() && self.contents.has_freed() && self.sync_to_free_space().is_ok() {
            checked = reserve.check_growth();
        }
        checked.map_err(LayerError::io("refill", reserve.path()))
    }

    /// Returns the layer's id.
    pub fn id(&self) -> LayerId {
        self.log.id()
    }

    /// Returns the layer's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the layer's index.
    pub fn index(&self) -> &LayerIndex {
        &self.index
    }

    /// Returns a node and its content, if this layer stores the content.
    pub fn content_of(&self, ino: Ino) -> Option<(&Node, ContentRef)> {
        let node = self.index.node(ino)?;
        let content = node.content.own()?;
        (content.layer == self.id()).then_some((node, content))
    }

    /// Returns the statistics of the layer.
    ///
    /// It costs O(1).
    pub fn stats(&self) -> LayerStats {
        LayerStats {
            nodes: self.index.node_count(),
            dentries: self.index.dentry_count(),
            log_bytes: self.log.len(),
            content_bytes: self.contents.live_bytes(),
        }
    }

    /// Returns the number of records committed since the layer was opened.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Returns the current position in the log, for [`Layer::changes_since`].
    pub fn position(&self) -> LogPosition {
        self.log.position()
    }

    /// Returns the changes since `position`.
    ///
    /// `None` if the log does not have that position: it was compacted, or it lost records.
    pub fn changes_since(&self, position: LogPosition) -> Option<ChangesSince> {
        self.log.since(position).map(ChangesSince)
    }

    /// Returns the recent changes, which programs may not see yet.
    ///
    /// The second value has the recent changes from before the last compaction. Each of those is
    /// returned once.
    pub fn recent_changes(&self) -> (Option<ChangesSince>, Touched) {
        let before = std::mem::take(&mut *self.recent_before.lock());
        (self.changes_since(self.log.recent()), before)
    }

    /// Returns a number for a new node.
    ///
    /// The number was never used in this layer or, after [`Layer::reserve_below`], in the layers
    /// below.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if all numbers are used, and the errors of [`Layer::commit`].
    pub fn allocate_ino(&mut self) -> Result<Ino, LayerError> {
        if self.next_ino >= self.index.inos_below().0 {
            let below =
                self.next_ino
                    .checked_add(INO_CHUNK)
                    .ok_or_else(|| LayerError::Corrupt {
                        path: self.log.path().to_owned(),
                        offset: self.log.len(),
                        reason: "all inode numbers have been given out".to_owned(),
                    })?;
            self.commit(vec![Op::ReserveInos { below: Ino(below) }])?;
        }
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        Ok(ino)
    }

    /// Reserves the numbers below `below`.
    ///
    /// A layer over frozen ones needs the [`inos_below`](super::inos_below) of these.
    ///
    /// # Errors
    /// The errors of [`Layer::commit`].
    pub fn reserve_below(&mut self, below: Ino) -> Result<(), LayerError> {
        if below > self.index.inos_below() {
            self.commit(vec![Op::ReserveInos { below }])?;
        }
        self.next_ino = self.next_ino.max(below.0);
        Ok(())
    }

    /// Appends `ops` as one record and then applies them.
    ///
    /// When this returns, the changes survive the death of the process. On an error, such as a full
    /// disk, nothing has changed. Records that remove something also succeed on a full disk: they
    /// use the log's reserve, then the store's.
    ///
    /// # Errors
    /// [`LayerError::Frozen`], [`LayerError::Poisoned`] or [`LayerError::Interrupted`] if the layer
    /// takes no changes; [`LayerError::Io`] if the log cannot be written.
    pub fn commit(&mut self, ops: Vec<Op>) -> Result<(), LayerError> {
        if ops.is_empty() {
            return self.log.check();
        }
        let space_use = self.space_use_of(&ops);
        if space_use == SpaceUse::Grows {
            self.check_growth()?;
        }
        let mut appended = self.with_freed_space(|layer| {
            layer.check_is_open()?;
            layer.log.append(&ops, space_use)
        });
        while let Err(error) = &appended
            && space_use == SpaceUse::Frees
            && is_disk_full(error)
            && self.extend_log()
        {
            appended = self.log.append(&ops, space_use);
        }
        appended?;
        // After a panic below, the index in memory lacks the record until the layer is reopened.
        self.log.set_interrupted(true);
        fault::panic_point("append");
        self.commits += 1;
        let mut effects = std::mem::take(&mut self.effects);
        if let Some(index) = Arc::get_mut(&mut self.index) {
            for op in ops {
                index.apply(op, &mut effects);
            }
        }
        for content in &effects.dropped {
            // One record may move a content from one node to another.
            if !effects.named.contains(content) {
                self.contents.drop_content(*content);
            }
        }
        for (ino, content) in &effects.shrunk {
            if let ContentLocation::File(number) = content.place
                && content.layer == self.log.id()
            {
                self.shrunk.insert(number, *ino);
            }
        }
        effects.clear();
        self.effects = effects;
        self.log.set_interrupted(false);
        self.free_if_full();
        if self.log.len() >= COMPACT_UNSYNCED_BYTES {
            self.compact_if_due();
        }
        Ok(())
    }

    /// Refuses changes until the layer is reopened.
    ///
    /// A panic may have left a change half done.
    pub fn interrupt(&mut self) {
        self.log.set_interrupted(true);
    }

    /// Checks that the layer takes changes.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`] or [`LayerError::Interrupted`] if it does not.
    pub fn check_takes_changes(&self) -> Result<(), LayerError> {
        self.log.check()
    }

    /// Returns true if a panic interrupted a change.
    pub fn is_interrupted(&self) -> bool {
        self.log.is_interrupted()
    }

    fn check_is_open(&mut self) -> Result<(), LayerError> {
        match Arc::get_mut(&mut self.index) {
            Some(_) => Ok(()),
            None => Err(LayerError::Frozen {
                path: self.log.path().to_owned(),
            }),
        }
    }

    /// Classifies `ops` by their need for space.
    ///
    /// Changes that remove something may use the reserve of a full disk.
    fn space_use_of(&self, ops: &[Op]) -> SpaceUse {
        let frees_space = |op: &Op| match op {
            Op::DropNode(_) | Op::DropDentry { .. } => true,
            Op::PutDentry { dentry, .. } => *dentry == Dentry::Whiteout,
            Op::Written { ino, size, .. } => {
                self.index.node(*ino).is_some_and(|node| *size < node.size)
            }
            Op::PutNode(ino, new) => self
                .index
                .node(*ino)
                .is_some_and(|node| node.content.own().is_some() && new.content.own().is_none()),
            Op::ReserveInos { .. } => false,
        };
        if ops.iter().any(frees_space) {
            SpaceUse::Frees
        } else {
            SpaceUse::Grows
        }
    }

    /// Gives freed space back at once if the disk is full.
    ///
    /// Programs that wait for the space write elsewhere, so they do not sync this layer.
    fn free_if_full(&mut self) {
        let Some(reserve) = self
            .reserve
            .as_ref()
            .filter(|_| self.contents.freed_bytes() >= FREED_AT_ONCE)
        else {
            return;
        };
        if reserve.is_disk_full()
            && let Err(error) = self.sync_to_free_space()
        {
            log::warn!("{}: nothing is given back: {error}", self.dir.display());
        }
    }

    /// Extends the log from the store's reserve on a full disk.
    ///
    /// Returns false if the reserve is used up. A log that is much longer than needed is compacted,
    /// which gives back more than it takes.
    fn extend_log(&mut self) -> bool {
        let Some(reserve) = self.reserve.clone() else {
            return false;
        };
        let compacted = self
            .index
            .checkpoint_bytes()
            .saturating_add(COMPACT_FULL_MARGIN);
        if self.log.len() / COMPACT_FULL_FACTOR >= compacted
            && let Some(_loan) = reserve.take(compacted)
        {
            match self.compact() {
                Ok(()) => return true,
                Err(error) => log::warn!("{}: not compacted: {error}", self.log.path().display()),
            }
        }
        // Another program may take the freed space first.
        for _ in 0..EXTEND_ATTEMPTS {
            let Some(_loan) = reserve.take(RESERVE_STEP) else {
                return false;
            };
            // ext4 wakes the caller of a sync before it releases the blocks of that commit.
            for wait in EXTEND_WAITS {
                if self.log.extend(RESERVE_STEP).is_ok() {
                    return true;
                }
                std::thread::sleep(wait);
            }
        }
        false
    }

    fn compact_if_due(&mut self) {
        if self.log.len() < self.compact_at
            || self.log.len() / COMPACT_FACTOR < self.index.checkpoint_bytes()
        {
            return;
        }
        if let Err(error) = self.compact() {
            log::warn!("{}: not compacted: {error}", self.log.path().display());
            self.compact_at = self.log.len().saturating_add(COMPACT_MIN_BYTES);
        } else {
            self.compact_at = COMPACT_MIN_BYTES;
        }
    }

    /// Replaces the log by a shorter one with the same state.
    pub(super) fn compact(&mut self) -> Result<(), LayerError> {
        // The new log is on disk at once, so the contents that it names must be there before.
        self.sync_to_free_space()?;
        let recent = self.changes_since(self.log.recent());
        self.log.rewrite(self.index.checkpoint())?;
        let recent = recent
            .and_then(|changes| changes.read())
            .unwrap_or_default();
        *self.recent_before.lock() = recent;
        Ok(())
    }

    /// Runs `write`, and once more if a sync frees disk space.
    fn with_freed_space<T>(
        &mut self,
        mut write: impl FnMut(&mut Layer) -> Result<T, LayerError>,
    ) -> Result<T, LayerError> {
        match write(self) {
            Err(error)
                if is_disk_full(&error)
                    && self.contents.has_freed()
                    && self.sync_to_free_space().is_ok() =>
            {
                write(self)
            }
            result => result,
        }
    }

    /// Syncs in the middle of a change.
    ///
    /// It does not truncate files that became shorter: one of them may have been written past the
    /// length that its node still has.
    fn sync_to_free_space(&mut self) -> Result<(), LayerError> {
        let mut job = self.begin_sync()?;
        let shrunk = std::mem::take(&mut job.shrunk);
        let result = self.run_sync(&mut job);
        self.finish_job(job);
        self.shrunk.extend(shrunk);
        result
    }

    /// Allocates a content that will have about `expected_len` bytes.
    ///
    /// The next opening frees it unless a record names it.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`], [`LayerError::Interrupted`], or [`LayerError::Io`] if the disk is
    /// full.
    pub fn new_content(&mut self, expected_len: u64) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.allocate(expected_len))
    }

    /// Frees a content that no record names.
    pub fn abandon_content(&mut self, content: ContentRef) {
        // A poisoned log may name it even so.
        if !self.log.is_poisoned() {
            self.contents.abandon(content);
        }
    }

    /// Writes `data` at `offset` of a content that has `len` bytes.
    ///
    /// A gap is filled with zeroes. The content may move: the result is its new location. If it
    /// differs from `content`, the old content is still intact. The caller then commits the node
    /// with the new location and size, which frees the old content.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`], [`LayerError::Interrupted`], [`LayerError::Corrupt`] if bytes are
    /// lost, or [`LayerError::Io`].
    pub fn write_content(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.write(content, len, offset, data))
    }

    /// Changes the length of a content from `len` to `new_len`.
    ///
    /// New bytes are zeroes, as holes where possible. The content may move, as in
    /// [`Layer::write_content`].
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`].
    pub fn resize_content(
        &mut self,
        content: ContentRef,
        len: u64,
        new_len: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        if new_len > len {
            self.check_growth()?;
        }
        self.with_freed_space(|layer| layer.contents.resize(content, len, new_len))
    }

    /// Zeroes `offset..offset + count` of a content of `len` bytes.
    ///
    /// It punches a hole where the store can.
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`].
    pub fn zero_content(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        count: u64,
    ) -> Result<(), LayerError> {
        self.log.check()?;
        self.with_freed_space(|layer| layer.contents.zero(content, len, offset, count))
    }

    /// Reserves disk space for `offset..offset + count`.
    ///
    /// It works like fallocate with `FALLOC_FL_KEEP_SIZE`. The content may move, as in
    /// [`Layer::write_content`].
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`].
    pub fn reserve_content(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        count: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.reserve(content, len, offset, count))
    }

    /// Copies a content of a frozen layer below into this one.
    ///
    /// It is a reflink where the file system supports that.
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`], also for the content in `from`.
    pub fn copy_up(
        &mut self,
        from: &FrozenLayer,
        content: ContentRef,
        len: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.copy_up(from, content, len))
    }

    /// Copies a content of this layer that has a file.
    ///
    /// A content in a slot is returned unchanged.
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`].
    pub fn duplicate_content(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.duplicate(content, len))
    }

    /// Creates a content with the file of another layer's content.
    ///
    /// Both then share one file, so that programs that have it open can go on.
    ///
    /// # Errors
    /// [`LayerError::Io`] if the file cannot be linked.
    pub fn adopt_file_of(
        &mut self,
        from: &Layer,
        content: ContentRef,
    ) -> Result<ContentRef, LayerError> {
        let path = from.contents.reader().path(content.place);
        self.contents.adopt_file(&path)
    }

    /// Reads a content of `len` bytes from `offset`.
    ///
    /// It stops when `buffer` is full or the content ends, and returns the number of bytes.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if bytes are lost, [`LayerError::Io`] otherwise.
    pub fn read_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, LayerError> {
        self.contents.reader().read(content, len, offset, buffer)
    }

    /// Seeks to data or a hole in a content of `len` bytes.
    ///
    /// It works like `lseek` with `SEEK_DATA` or `SEEK_HOLE`; `None` means ENXIO.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if the content is missing, [`LayerError::Io`] otherwise.
    pub fn seek_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<Option<u64>, LayerError> {
        self.contents.reader().seek(content, len, offset, whence)
    }

    /// Returns the disk space of a content, in units of 512 bytes.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if the location is invalid, [`LayerError::Io`] otherwise.
    pub fn content_blocks(&self, content: ContentRef, len: u64) -> Result<u64, LayerError> {
        let mut bytes = self.contents.reader().allocated(content, len)?;
        if let ContentLocation::File(number) = content.place
            && self.shrunk.contains_key(&number)
        {
            // The rest of the file is truncated after the next sync.
            bytes = bytes.min(len.saturating_add(4095) / 4096 * 4096);
        }
        Ok(bytes.div_ceil(512))
    }

    /// Returns the file of a content of `len` bytes.
    ///
    /// `None` if the content shares a file with others. The file belongs to the content while the
    /// node has it. If the content gets shorter, the next [`Layer::sync`] truncates the file. Do
    /// not call this between writing a content and committing its node.
    ///
    /// # Errors
    /// The errors of [`Layer::sync`], or [`LayerError::Corrupt`] if bytes are lost.
    pub fn backing_file(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<Arc<std::fs::File>>, LayerError> {
        self.log.check()?;
        if self.contents.has_more_than(content, len)? {
            // A truncation before the log is on disk would lose those bytes in a power failure.
            self.sync()?;
        }
        self.contents.backing_file(content, len)
    }

    /// Begins a write to a content that does not hold the layer.
    ///
    /// The content has `len` bytes. `None` if it is in a slot: then the caller must use
    /// [`Layer::write_content`]. Until [`Layer::end_writing`], no other caller may change the
    /// content, and a sync that must write contents again fails.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`], [`LayerError::Interrupted`], [`LayerError::Corrupt`] if bytes are
    /// lost, or [`LayerError::Io`].
    pub fn begin_writing(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.contents.begin_writing(content, len)
    }

    /// Ends a write that succeeded or failed.
    ///
    /// Only after this may a record with the written content be committed.
    pub fn end_writing(&mut self, file: &ContentFile) {
        self.contents.end_writing(file);
    }

    /// Opens the file of a content, for reads without the layer.
    ///
    /// The content has `len` bytes. `None` if the content is in a slot.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if the file is missing, [`LayerError::Io`] otherwise.
    pub fn content_file(
        &self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        ContentFile::open(self.contents.reader(), content, len)
    }

    /// Returns a sync of one content, without the log.
    ///
    /// It does not hold the layer.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if the file is missing, [`LayerError::Io`] otherwise.
    pub fn flush_of(&self, content: ContentRef) -> Result<ContentFlush, LayerError> {
        ContentFlush::of(self.contents.reader(), content)
    }
}

fn is_disk_full(error: &LayerError) -> bool {
    matches!(error, LayerError::Io { source, .. }
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

/// Durability of a layer that was just read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// The log is on disk, with all contents that it names.
    Complete,
    /// The disk has no room for the record that would confirm it.
    Unconfirmed,
    /// The disk failed to take some of it.
    Uncertain,
}

/// Logs the loss of contents at the end of `data`.
///
/// This must come before `data` grows over their places.
fn log_lost_contents(dir: &Path, log: &mut Log, index: &mut LayerIndex) -> Result<(), LayerError> {
    let lost = lost_contents(dir, log.id(), index)?;
    if lost.is_empty() {
        return Ok(());
    }
    log::error!(
        "{}: bytes of {} files are lost",
        dir.join(DATA_NAME).display(),
        lost.len()
    );
    log.append(&lost, SpaceUse::Frees)?;
    let mut effects = Effects::default();
    for op in lost {
        index.apply(op, &mut effects);
    }
    Ok(())
}

/// Syncs a log that was just read, with all its contents.
///
/// The caller is about to free the contents that the log dropped.
fn complete_before_freeing(log: &mut Log) -> Result<Durability, LayerError> {
    if log.is_synced() {
        return Ok(Durability::Complete);
    }
    if !log.is_complete()
        && let Err(error) = log.sync_fs()
    {
        log::warn!("{error}");
        return Ok(if is_disk_full(&error) {
            Durability::Unconfirmed
        } else {
            Durability::Uncertain
        });
    }
    let upto = log.len();
    let point = match log.complete(upto) {
        Ok(point) => point,
        Err(error) if is_disk_full(&error) => {
            log.check()?;
            log::warn!("what is unused stays for now: {error}");
            return Ok(Durability::Unconfirmed);
        }
        Err(error) => return Err(error),
    };
    if let Err(error) = point.sync() {
        log::warn!("{error}");
        return Ok(Durability::Uncertain);
    }
    log.mark_synced(&point);
    Ok(Durability::Complete)
}

/// Target of a seek in a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekWhence {
    /// Next offset with data (`SEEK_DATA`).
    Data,
    /// Next hole (`SEEK_HOLE`).
    Hole,
}

/// Creates a directory that only its owner may enter.
pub(super) fn make_dir(dir: &Path) -> Result<(), LayerError> {
    DirBuilder::new()
        .mode(0o700)
        .create(dir)
        .map_err(LayerError::io("create", dir))
}
