//! Open forks: their file systems, and the bases that they share.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{BlobIdCache, IndexStamp, ScratchDir, Store, mend};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use tine_git::{Base, BaseCache, ConversionSettings, GitError, ObjectId, Worktree};
use tine_layer::{FrozenLayer, Layer, LayerError, LayerId, LayerStack};
use tine_workspace::{BaseTimes, TimesId, Workspace};

/// Longest wait for a thread that is closing a fork's layer.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);

/// Open fork: its file system and its worktree.
pub struct Fork {
    /// Immutable.
    name: ForkName,
    /// The fork's file system.
    pub workspace: Arc<Workspace>,
    /// The worktree that git has of the fork.
    pub worktree: Worktree,
    /// Branch (short name) in the record at opening. HEAD may be on another.
    pub made_on: String,
    memo: BlobIdCache,
    cache: Arc<BaseCache>,
    /// Tree whose conversions were requested last. Protects itself.
    conversions: Mutex<Option<Arc<Base>>>,
    /// Directory of the temporary open layer over a snapshot, removed on drop.
    _scratch: Option<ScratchDir>,
}

impl Fork {
    /// Returns the fork's name. For a snapshot it is the name of its fork.
    pub fn name(&self) -> &ForkName {
        &self.name
    }

    /// Returns the cache of blob ids of the fork's files.
    pub fn memo(&self) -> &BlobIdCache {
        &self.memo
    }

    /// Returns the tree `tree_id` with the conversions of its `.gitattributes`.
    ///
    /// This is the fork's own base or another tree. The last other tree is cached.
    ///
    /// # Errors
    /// [`GitError`] if the tree or its `.gitattributes` cannot be read.
    pub fn conversions_of(&self, tree_id: ObjectId) -> Result<Arc<Base>, GitError> {
        let base = self.workspace.base();
        if base.tree_id() == tree_id {
            return Ok(base);
        }
        let mut last = self.conversions.lock();
        if let Some(last) = last.as_ref().filter(|last| last.tree_id() == tree_id) {
            return Ok(last.clone());
        }
        let opened = Base::open_with(
            base.repository(),
            tree_id,
            &self.cache,
            base.hasher().clone(),
            base.settings().clone(),
        )?;
        Ok(last.insert(Arc::new(opened)).clone())
    }
}

/// Forks, layers and bases that a process has open.
#[derive(Default)]
pub(super) struct OpenForks {
    pub forks: HashMap<ForkName, (Weak<Fork>, Weak<Workspace>)>,
    /// By layer id.
    pub frozen: HashMap<u64, Weak<FrozenLayer>>,
    /// Merged layers, newest first, and the layer that replaced them.
    ///
    /// A reader with an older record still asks for the merged layers.
    pub merged: Vec<(Vec<u64>, u64)>,
    /// Layers without a record that were in use when last freed.
    ///
    /// The next freeing of layers tries them again.
    pub awaited: BTreeSet<u64>,
    /// By tree and fingerprint of the settings.
    pub bases: HashMap<(ObjectId, u64), Weak<Base>>,
    pub times: HashMap<TimesId, Weak<BaseTimes>>,
    /// Index and tree of each new fork not opened yet. The index covers the whole tree.
    pub new_indexes: HashMap<ForkName, (IndexStamp, ObjectId)>,
}

impl OpenForks {
    /// Returns whether the frozen layer is open, with or without a record.
    pub(super) fn is_in_use(&self, layer: u64) -> bool {
        let known = self.frozen.get(&layer);
        known.is_some_and(|layer| layer.strong_count() > 0)
    }

    pub(super) fn check_is_closed(&self, name: &ForkName) -> Result<(), StoreError> {
        match self.forks.get(name) {
            Some((fork, workspace)) if fork.strong_count() + workspace.strong_count() > 0 => {
                Err(StoreError::Busy(name.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl Store {
    /// Waits until no thread has the fork open. Blocks for a few seconds at most.
    ///
    /// A thread in the background may finish what it began before the fork was unmounted.
    pub fn await_closed(&self, name: &ForkName) {
        let deadline = Instant::now() + CLOSING_TIMEOUT;
        while self.open.lock().check_is_closed(name).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Opens a fork's file system, shared with other holders in this process.
    ///
    /// A worktree that was removed outside tine is registered again.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], [`StoreError::Damaged`] if the record or a layer is unusable, or
    /// an error of git or of the layers.
    pub fn open_fork(&self, name: &ForkName) -> Result<Arc<Fork>, StoreError> {
        self.restore_worktree(&self.places.read_record(name)?)?;
        let mut open = self.open.lock();
        let (fork, workspace) = match open.forks.get(name) {
            Some((fork, workspace)) => (fork.upgrade(), workspace.upgrade()),
            None => (None, None),
        };
        if let Some(fork) = fork {
            return Ok(fork);
        }
        let record = self.places.read_record(name)?;
        let worktree = record.open_worktree(&self.repository)?;
        let workspace = match workspace {
            Some(workspace) => workspace,
            None => Arc::new(self.open_workspace(&mut open, &record)?),
        };
        mend::mend_dot_git(&workspace, &worktree)?;
        let fork = Arc::new(self.fork_with(record, workspace, worktree, None));
        if let Some((stamp, tree_id)) = open.new_indexes.remove(name) {
            fork.memo.remember_removed(&stamp, tree_id, Arc::new([]));
        }
        open.forks
            .retain(|_, (_, workspace)| workspace.strong_count() > 0);
        open.forks.insert(
            name.clone(),
            (Arc::downgrade(&fork), Arc::downgrade(&fork.workspace)),
        );
        Ok(fork)
    }

    /// Makes the open fork of this record.
    pub(super) fn fork_with(
        &self,
        record: ForkRecord,
        workspace: Arc<Workspace>,
        worktree: Worktree,
        scratch: Option<ScratchDir>,
    ) -> Fork {
        Fork {
            name: record.name,
            workspace,
            worktree,
            made_on: record.branch,
            memo: BlobIdCache::default(),
            cache: self.cache.clone(),
            conversions: Mutex::new(None),
            _scratch: scratch,
        }
    }

    fn open_workspace(
        &self,
        open: &mut OpenForks,
        record: &ForkRecord,
    ) -> Result<Workspace, StoreError> {
        let lower_stack = self.lower_stack_of(open, record)?;
        let dir = self.places.layer(record.open_layer);
        // The store's lock keeps other processes out.
        let mut layer = wait_while_locked(|| Layer::open(&dir))?;
        layer.draw_on(self.reserve.clone());
        check_identity(&dir, record.open_layer, layer.id())?;
        self.set_missing_times(open, record, &mut layer, &lower_stack)?;
        let stack = LayerStack::new(layer, lower_stack.frozen.clone());
        let workspace = Workspace::on_lower_stack(&lower_stack, stack)?;
        let workspace = self.with_carried(workspace, record);
        workspace.keep_journal(self.places.operations(&record.name));
        Ok(workspace)
    }

    /// Opens the base of the fork with this record.
    pub(super) fn base_of(
        &self,
        open: &mut OpenForks,
        record: &ForkRecord,
    ) -> Result<Arc<Base>, StoreError> {
        let damaged = |reason: String| StoreError::Damaged {
            path: self.places.record(&record.name),
            reason,
        };
        let base_tree_id = ObjectId::from_hex(record.base_tree.as_bytes())
            .map_err(|_| damaged(format!("{:?} is not an object id", record.base_tree)))?;
        let base = self.shared_base(open, base_tree_id, record.conversions.as_ref())?;
        base.root()
            .map_err(|error| damaged(format!("its base {base_tree_id} cannot be read: {error}")))?;
        Ok(base)
    }

    /// Opens the base with this tree, shared between forks.
    ///
    /// Forks share it if their conversion settings are equal. Without `settings` it uses those
    /// configured now.
    pub(super) fn shared_base(
        &self,
        open: &mut OpenForks,
        tree_id: ObjectId,
        settings: Option<&ConversionSettings>,
    ) -> Result<Arc<Base>, StoreError> {
        let settings = match settings {
            Some(settings) => settings.clone(),
            None => ConversionSettings::current(&self.repository)?,
        };
        let key = (tree_id, settings.fingerprint());
        if let Some(base) = open.bases.get(&key).and_then(Weak::upgrade) {
            return Ok(base);
        }
        let base = Arc::new(Base::open_with(
            &self.repository,
            tree_id,
            &self.cache,
            self.hasher.clone(),
            settings,
        )?);
        open.bases.retain(|_, base| base.strong_count() > 0);
        open.bases.insert(key, Arc::downgrade(&base));
        Ok(base)
    }
}

/// Checks that the layer in `dir` has the expected id.
///
/// A wrong layer would show another fork's files.
pub(super) fn check_identity(dir: &Path, id: u64, found: LayerId) -> Result<(), StoreError> {
    if found == LayerId(id) {
        Ok(())
    } else {
        Err(StoreError::Damaged {
            path: dir.to_owned(),
            reason: format!("it holds layer {}", found.0),
        })
    }
}

/// Opens a layer, waiting while it is locked.
///
/// A locked layer is being closed by a thread of this process that just dropped its workspace.
pub(super) fn wait_while_locked<T>(
    open: impl Fn() -> Result<T, LayerError>,
) -> Result<T, LayerError> {
    let deadline = Instant::now() + CLOSING_TIMEOUT;
    loop {
        match open() {
            Err(LayerError::Locked { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}
