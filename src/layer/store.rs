//! An open layer.

mod contents;
mod open;
mod space;
mod sync;

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content_store::ContentStore;
use super::fault;
use super::index::Effects;
use super::log::{Log, SpaceUse, sync_dir};
use super::{
    ChangesSince, ContentLocation, ContentRef, FrozenLayer, LayerError, LayerId, LayerIndex,
    LogPosition, Node, Op, Reserve, Touched,
};
use parking_lot::Mutex;
use tine_attr::Ino;

use self::space::{COMPACT_MIN_BYTES, is_disk_full};
pub use sync::SyncJob;

/// Number of inode numbers that one record reserves.
const INO_CHUNK: u64 = 1024;

/// Minimum size, in bytes, of a log that a commit compacts.
///
/// It is for layers that no program syncs.
const COMPACT_UNSYNCED_BYTES: u64 = 64 << 20;

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
}

/// Creates a directory that only its owner may enter.
pub(super) fn make_dir(dir: &Path) -> Result<(), LayerError> {
    DirBuilder::new()
        .mode(0o700)
        .create(dir)
        .map_err(LayerError::io("create", dir))
}
