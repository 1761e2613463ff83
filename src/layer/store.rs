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
use super::log::{Log, Room, sync_dir};
use super::{
    ChangesSince, ContentLocation, ContentRef, Dentry, FrozenLayer, LayerError, LayerId,
    LayerIndex, LogPosition, Node, Op, Reserve, Touched,
};
use parking_lot::Mutex;
use tine_attr::Ino;

pub use sync::SyncJob;

/// Inode numbers are reserved this many at a time: one record for each so many new nodes.
const INO_CHUNK: u64 = 1024;

/// A log is compacted past this many bytes …
const COMPACT_MIN_BYTES: u64 = 4 << 20;
/// … if it is also this many times longer than a log of what is in the layer now: at the end of a
/// sync, when little is left to be brought to the disk …
const COMPACT_FACTOR: u64 = 4;
/// … or, where nobody syncs, in a commit past this many bytes.
const COMPACT_UNSYNCED_BYTES: u64 = 64 << 20;

/// On a full disk a log is compacted if it is this many times longer …
const COMPACT_FULL_FACTOR: u64 = 2;
/// … than what the shorter one takes, which is estimated, so these bytes are added.
const COMPACT_FULL_MARGIN: u64 = 64 << 10;

/// What a log takes from the store's reserve at a time, in bytes.
const RESERVE_STEP: u64 = 256 << 10;
/// What was freed is given back at once on a full disk if it is at least so many bytes.
const FREED_AT_ONCE: u64 = 1 << 20;
/// How often a log tries to for one record.
const EXTEND_ATTEMPTS: u32 = 4;

/// How long to wait for what was freed, after each look in vain.
const EXTEND_WAITS: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(16),
];

/// There while what the kernel holds of the layer in memory may be all there is of it: a sync
/// failed.
const FAILED_NAME: &str = "failed";

/// Figures of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct LayerStats {
    pub nodes: u64,
    pub dentries: u64,
    /// Bytes of the log file.
    pub log_bytes: u64,
    /// Bytes on the disk that live contents occupy.
    pub content_bytes: u64,
}

/// A layer that is being written. One at a time per directory: it holds a lock.
///
/// Reading contents needs `&self` only and may run from several threads at once; the caller
/// (`workspace`) keeps writers and readers of the same node apart.
pub struct Layer {
    dir: PathBuf,
    log: Log,
    /// Shared once the layer is frozen, and not changed any more then.
    index: Arc<LayerIndex>,
    contents: ContentStore,
    /// The next number to be given out; below the index's `inos_below` all are reserved in the log.
    next_ino: u64,
    /// Content files that became shorter: the rest is cut off once the record that says so is on
    /// the disk.
    shrunk: HashMap<u64, Ino>,
    /// Some of them found no room on the disk when they were synced: they must be written again for
    /// a sync to mean something.
    contents_are_doubted: bool,
    /// The log is not compacted before it has this many bytes.
    compact_at: u64,
    /// What it stands on and may not be on the disk yet: no sync of this layer goes before.
    beneath: Vec<Arc<FrozenLayer>>,
    /// What changed last before the log was compacted, until somebody took it.
    recent_before: Mutex<Touched>,
    /// What its records that remove something may use of a full disk.
    reserve: Option<Arc<Reserve>>,
    /// Records of changes since this process opened the layer.
    commits: u64,
    /// Empty between calls; kept for its room.
    effects: Effects,
}

impl Layer {
    /// Makes an empty layer in the new directory `dir`, on the disk when this returns.
    pub fn create(dir: &Path, id: LayerId) -> Result<Layer, LayerError> {
        Layer::create_with(dir, id, |_| Ok(()))
    }

    /// Makes a layer in the new directory `dir` that begins with what `fill` puts into it: all of
    /// that, or no layer. It is on the disk when this returns, which takes no longer than for an
    /// empty one.
    pub fn create_with(
        dir: &Path,
        id: LayerId,
        fill: impl FnOnce(&mut Layer) -> Result<(), LayerError>,
    ) -> Result<Layer, LayerError> {
        make_dir(dir)?;
        Layer::make(dir, id, fill).inspect_err(|_| {
            // Best effort: what is left behind has no log.
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
        layer.log.take_place()?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_dir(parent)?;
        }
        Ok(layer)
    }

    /// Opens the layer in `dir`: reads the log, cuts a torn tail, drops unlinked nodes, frees what
    /// nothing names.
    ///
    /// Errors: [`LayerError::Locked`] while another [`Layer`] is open there,
    /// [`LayerError::Frozen`], [`LayerError::Corrupt`], [`LayerError::NewerFormat`].
    pub fn open(dir: &Path) -> Result<Layer, LayerError> {
        let (mut log, mut index) = Log::open(dir)?;
        let unlinked: Vec<Op> = index
            .nodes()
            .filter(|(_, node)| node.nlink == 0)
            .map(|(ino, _)| Op::DropNode(ino))
            .collect();
        if !unlinked.is_empty() {
            match log.append(&unlinked, Room::Makes) {
                Ok(()) => {
                    let mut effects = Effects::default();
                    for op in unlinked {
                        index.apply(op, &mut effects);
                    }
                }
                // A layer opens on a full disk, too; they are dropped the next time.
                Err(error) => log::warn!("unlinked nodes are not dropped: {error}"),
            }
        }
        give_up_lost(dir, &mut log, &mut index)?;
        let failed = dir.join(FAILED_NAME);
        let is_known = match failed.exists() {
            true => Known::Doubted,
            false => complete_before_freeing(&mut log)?,
        };
        let contents = ContentStore::open(dir, log.id(), &index, is_known == Known::Complete)?;
        let mut layer = Layer::assemble(dir, log, index, contents);
        if is_known == Known::Doubted {
            match layer.write_again() {
                Ok(()) => {
                    // One that stays only costs doing it again.
                    let _ = std::fs::remove_file(failed);
                }
                Err(error) => {
                    log::error!("{} can only be read: {error}", dir.display());
                    layer.give_up();
                }
            }
        }
        Ok(layer)
    }

    /// Writes everything once more that is in the page cache: it may be all there is of it, and the
    /// kernel takes what it failed to write for written.
    fn write_again(&mut self) -> Result<(), LayerError> {
        log::warn!(
            "{}: writing all again, because a sync failed",
            self.dir.display()
        );
        // These may tell of what failed before, which is what this is about.
        self.contents.forget_errors();
        let _ = self.log.point().sync();
        self.contents_are_doubted = true;
        self.compact()
    }

    fn assemble(dir: &Path, log: Log, index: LayerIndex, contents: ContentStore) -> Layer {
        Layer {
            dir: dir.to_owned(),
            log,
            // What the last process reserved it may have given out.
            next_ino: index.inos_below().0,
            index: Arc::new(index),
            contents,
            shrunk: HashMap::new(),
            contents_are_doubted: false,
            compact_at: COMPACT_MIN_BYTES,
            beneath: Vec::new(),
            recent_before: Mutex::default(),
            reserve: None,
            commits: 0,
            effects: Effects::default(),
        }
    }

    /// Lets records that remove something use `reserve` where the disk is full; nothing else grows
    /// while that is short.
    pub fn draw_on(&mut self, reserve: Arc<Reserve>) {
        self.reserve = Some(reserve);
    }

    /// Fails where the store's reserve must be refilled first, and what was freed is not enough for
    /// that.
    fn check_growth(&mut self) -> Result<(), LayerError> {
        let Some(reserve) = self.reserve.clone() else {
            return Ok(());
        };
        let mut checked = reserve.check_growth();
        if checked.is_err() && self.contents.has_freed() && self.sync_for_room().is_ok() {
            checked = reserve.check_growth();
        }
        checked.map_err(LayerError::io("refill", reserve.path()))
    }

    pub fn id(&self) -> LayerId {
        self.log.id()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn index(&self) -> &LayerIndex {
        &self.index
    }

    /// The node and its content, if that is one of this layer's and not of a frozen one beneath.
    pub fn content_of(&self, ino: Ino) -> Option<(&Node, ContentRef)> {
        let node = self.index.node(ino)?;
        let content = node.content.own()?;
        (content.layer == self.id()).then_some((node, content))
    }

    /// Costs O(1).
    pub fn stats(&self) -> LayerStats {
        LayerStats {
            nodes: self.index.node_count(),
            dentries: self.index.dentry_count(),
            log_bytes: self.log.len(),
            content_bytes: self.contents.live_bytes(),
        }
    }

    /// How many steps changed the layer since this process opened it.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// This moment, for [`Layer::changes_since`].
    pub fn position(&self) -> LogPosition {
        self.log.position()
    }

    /// What changed since `position`; `None` where this layer does not know that moment: its log
    /// was compacted, or has lost it.
    pub fn changes_since(&self, position: LogPosition) -> Option<ChangesSince> {
        self.log.since(position).map(ChangesSince)
    }

    /// What changed last, and what changed last before the log was compacted: programs may not see
    /// it yet. The second is told once.
    pub fn recent_changes(&self) -> (Option<ChangesSince>, Touched) {
        let before = std::mem::take(&mut *self.recent_before.lock());
        (self.changes_since(self.log.recent()), before)
    }

    /// A number for a new node, never given before in this layer or, after
    /// [`Layer::reserve_below`], beneath it.
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

    /// Makes sure that numbers below `below` are not given out. For a layer above frozen ones:
    /// [`inos_below`](super::inos_below) of these.
    pub fn reserve_below(&mut self, below: Ino) -> Result<(), LayerError> {
        if below > self.index.inos_below() {
            self.commit(vec![Op::ReserveInos { below }])?;
        }
        self.next_ino = self.next_ino.max(below.0);
        Ok(())
    }

    /// Appends `ops` as one record and then applies them. When it returns, they survive the death
    /// of this process. On an error (a full disk) nothing has changed; records that remove
    /// something find room on a full disk, too: first the log's own reserve, then the store's.
    pub fn commit(&mut self, ops: Vec<Op>) -> Result<(), LayerError> {
        if ops.is_empty() {
            return self.log.check();
        }
        let room = self.room_for(&ops);
        if room == Room::Needs {
            self.check_growth()?;
        }
        let mut appended = self.with_room(|layer| {
            layer.check_is_open()?;
            layer.log.append(&ops, room)
        });
        while let Err(error) = &appended
            && room == Room::Makes
            && is_disk_full(error)
            && self.extend_log()
        {
            appended = self.log.append(&ops, room);
        }
        appended?;
        // Should a panic come before the end, memory is behind the log for good.
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
            // One record may hand a content from one node to another.
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

    /// Takes no more changes until it is opened again: a panic may have left anything half done.
    pub fn interrupt(&mut self) {
        self.log.set_interrupted(true);
    }

    /// # Errors
    /// [`LayerError::Poisoned`] and [`LayerError::Interrupted`].
    pub fn check_takes_changes(&self) -> Result<(), LayerError> {
        self.log.check()
    }

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

    /// Whether `ops` remove something, so that they may use what is kept back of a full disk.
    fn room_for(&self, ops: &[Op]) -> Room {
        let makes_room = |op: &Op| match op {
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
        match ops.iter().any(makes_room) {
            true => Room::Makes,
            false => Room::Needs,
        }
    }

    /// Gives back what was freed at once, where others wait for it: programs that write elsewhere
    /// do not sync this layer.
    fn free_if_full(&mut self) {
        let Some(reserve) = self
            .reserve
            .as_ref()
            .filter(|_| self.contents.freed_bytes() >= FREED_AT_ONCE)
        else {
            return;
        };
        if reserve.is_disk_full()
            && let Err(error) = self.sync_for_room()
        {
            log::warn!("{}: nothing is given back: {error}", self.dir.display());
        }
    }

    /// Makes room for the log on a full disk, out of the store's reserve; false where that has none
    /// left. A log that says much more than is in the layer now is compacted, which gives back more
    /// than it takes.
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
        // Another program may be the first to have what was freed.
        for _ in 0..EXTEND_ATTEMPTS {
            let Some(_loan) = reserve.take(RESERVE_STEP) else {
                return false;
            };
            // ext4 wakes who syncs before it gives the blocks of that commit out again.
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

    /// Replaces the log by a shorter one that says the same.
    pub(super) fn compact(&mut self) -> Result<(), LayerError> {
        // The new log is on the disk at once, so what it names must be there before.
        self.sync_for_room()?;
        let recent = self.changes_since(self.log.recent());
        self.log.rewrite(self.index.checkpoint())?;
        let recent = recent
            .and_then(|changes| changes.read())
            .unwrap_or_default();
        *self.recent_before.lock() = recent;
        Ok(())
    }

    /// Runs `write`; if the disk is full and freed contents wait for a sync, makes that room and
    /// runs it once more.
    fn with_room<T>(
        &mut self,
        mut write: impl FnMut(&mut Layer) -> Result<T, LayerError>,
    ) -> Result<T, LayerError> {
        match write(self) {
            Err(error)
                if is_disk_full(&error)
                    && self.contents.has_freed()
                    && self.sync_for_room().is_ok() =>
            {
                write(self)
            }
            result => result,
        }
    }

    /// A sync in the middle of something: files that became shorter are left alone, because one of
    /// them may have been written past the length that its node still has.
    fn sync_for_room(&mut self) -> Result<(), LayerError> {
        let mut job = self.begin_sync()?;
        let shrunk = std::mem::take(&mut job.shrunk);
        let result = self.run_sync(&mut job);
        self.take_note(job);
        self.shrunk.extend(shrunk);
        result
    }

    /// A place for a content that will have about `expected_len` bytes. Until a record names it, it
    /// is dropped at the next opening.
    pub fn new_content(&mut self, expected_len: u64) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_room(|layer| layer.contents.allocate(expected_len))
    }

    /// Gives back a content that no record names.
    pub fn abandon_content(&mut self, content: ContentRef) {
        // A poisoned log may name it all the same.
        if !self.log.is_poisoned() {
            self.contents.abandon(content);
        }
    }

    /// Writes `data` at `offset` of a content of this layer that holds `len` bytes; the gap between
    /// is zeroes. The content may move: the answer is its place now, and while that differs from
    /// `content` the old one is still whole. The caller then commits the node with the new place
    /// and size (which frees the old one).
    pub fn write_content(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_room(|layer| layer.contents.write(content, len, offset, data))
    }

    /// Changes a content's length from `len` to `new_len`, with zeroes (holes where possible) at
    /// its new end. May move it, as [`Layer::write_content`].
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
        self.with_room(|layer| layer.contents.resize(content, len, new_len))
    }

    /// Makes `offset..offset + count` of a content of `len` bytes read as zeroes; a hole where the
    /// store can.
    pub fn zero_content(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        count: u64,
    ) -> Result<(), LayerError> {
        self.log.check()?;
        self.with_room(|layer| layer.contents.zero(content, len, offset, count))
    }

    /// Reserves disk space for `offset..offset + count` (fallocate with `FALLOC_FL_KEEP_SIZE`). May
    /// move the content.
    pub fn reserve_content(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        count: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_room(|layer| layer.contents.reserve(content, len, offset, count))
    }

    /// Copies a content of a frozen layer beneath into this one (reflink where the disk can).
    pub fn copy_up(
        &mut self,
        from: &FrozenLayer,
        content: ContentRef,
        len: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_room(|layer| layer.contents.copy_up(from, content, len))
    }

    /// Another content with the same bytes, for one that has a file of its own.
    pub fn duplicate_content(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_room(|layer| layer.contents.duplicate(content, len))
    }

    /// A content of this layer that is the very file which `from` has a content in: for what
    /// somebody has open.
    pub fn adopt_file_of(
        &mut self,
        from: &Layer,
        content: ContentRef,
    ) -> Result<ContentRef, LayerError> {
        let path = from.contents.reader().path(content.place);
        self.contents.adopt_file(&path)
    }

    /// Reads a content of this layer that holds `len` bytes, at `offset`, until `buffer` is full or
    /// the content ends.
    pub fn read_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, LayerError> {
        self.contents.reader().read(content, len, offset, buffer)
    }

    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE` on a content of `len` bytes; `None` is ENXIO.
    pub fn seek_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<Option<u64>, LayerError> {
        self.contents.reader().seek(content, len, offset, whence)
    }

    /// What a content of `len` bytes occupies, in units of 512 bytes.
    pub fn content_blocks(&self, content: ContentRef, len: u64) -> Result<u64, LayerError> {
        let mut bytes = self.contents.reader().allocated(content, len)?;
        if let ContentLocation::File(number) = content.place
            && self.shrunk.contains_key(&number)
        {
            // What was cut off is only waiting for the disk.
            bytes = bytes.min(len.saturating_add(4095) / 4096 * 4096);
        }
        Ok(bytes.div_ceil(512))
    }

    /// The file that holds a content of `len` bytes and nothing else, `None` where that shares a
    /// file with others. It is the content's as long as the node has it. When the content gets
    /// shorter, the next [`Layer::sync`] cuts the file. Not to be called between writing a content
    /// and committing its node.
    pub fn backing_file(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<Arc<std::fs::File>>, LayerError> {
        self.log.check()?;
        if self.contents.has_more_than(content, len)? {
            // Cut off before the log is on the disk it would be missing from what a power failure
            // leaves.
            self.sync()?;
        }
        self.contents.backing_file(content, len)
    }

    /// Begins to write to a content of `len` bytes while others use the layer; `None` where that
    /// must be done with [`Layer::write_content`]. Until [`Layer::end_writing`] nobody else may
    /// change the content, and a sync that finds no room for what was written before fails.
    pub fn begin_writing(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.contents.begin_writing(content, len)
    }

    /// What was begun is done, or has failed. Only then may a record be committed that names what
    /// was written.
    pub fn end_writing(&mut self, file: &ContentFile) {
        self.contents.end_writing(file);
    }

    /// The file of a content of `len` bytes, to be read while others use the layer; `None` where it
    /// has none of its own.
    pub fn content_file(
        &self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        ContentFile::open(self.contents.reader(), content, len)
    }

    /// What brings one content to the disk, without the log and while others use the layer.
    pub fn flush_of(&self, content: ContentRef) -> Result<ContentFlush, LayerError> {
        ContentFlush::of(self.contents.reader(), content)
    }
}

fn is_disk_full(error: &LayerError) -> bool {
    matches!(error, LayerError::Io { source, .. }
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

/// What is known of a layer that was just read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It is on the disk, with all that it names.
    Complete,
    /// It is, or is not: the disk has no room to say so.
    Unsaid,
    /// The disk failed to take some of it.
    Doubted,
}

/// Says in the log of a layer that was just read which of its contents `data` has lost, before
/// `data` grows over the place.
fn give_up_lost(dir: &Path, log: &mut Log, index: &mut LayerIndex) -> Result<(), LayerError> {
    let lost = lost_contents(dir, log.id(), index)?;
    if lost.is_empty() {
        return Ok(());
    }
    log::error!(
        "{}: bytes of {} files are lost",
        dir.join(DATA_NAME).display(),
        lost.len()
    );
    log.append(&lost, Room::Makes)?;
    let mut effects = Effects::default();
    for op in lost {
        index.apply(op, &mut effects);
    }
    Ok(())
}

/// Brings a log that was just read to the disk, with all that it names: what it dropped is about to
/// be freed.
fn complete_before_freeing(log: &mut Log) -> Result<Known, LayerError> {
    if log.is_synced() {
        return Ok(Known::Complete);
    }
    if !log.is_complete()
        && let Err(error) = log.sync_fs()
    {
        log::warn!("{error}");
        return Ok(match is_disk_full(&error) {
            true => Known::Unsaid,
            false => Known::Doubted,
        });
    }
    let upto = log.len();
    let point = match log.complete(upto) {
        Ok(point) => point,
        Err(error) if is_disk_full(&error) => {
            log.check()?;
            log::warn!("what is unused stays for now: {error}");
            return Ok(Known::Unsaid);
        }
        Err(error) => return Err(error),
    };
    if let Err(error) = point.sync() {
        log::warn!("{error}");
        return Ok(Known::Doubted);
    }
    log.mark_synced(&point);
    Ok(Known::Complete)
}

/// Which of the two `lseek` extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekWhence {
    Data,
    Hole,
}

/// Makes a directory that only its owner may enter.
pub(super) fn make_dir(dir: &Path) -> Result<(), LayerError> {
    DirBuilder::new()
        .mode(0o700)
        .create(dir)
        .map_err(LayerError::io("create", dir))
}
