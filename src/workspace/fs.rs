//! A fork's file system: resolves inode numbers and names, and holds the state behind them.
//!
//! A lookup in a directory searches the layers first, by the directory's number. Where no layer has
//! a dentry, the base answers, at the directory's own origin in the base. So renaming a base
//! directory moves everything below it, without a record for any child.
//!
//! The operations are in other modules: `mutate` changes names and attributes, `io` reads and
//! writes contents, `listing` lists, `paths` works by path.
//!
//! Lock order: `syncing`, `journal`, `contents`, `state`, then the inode table. The listener is
//! called with none of them held. Small base objects (trees, headers) may be read while `state` is
//! held for reading; contents may not. No large copy to or from a layer happens while `state` is
//! held.

use std::sync::Arc;

use log::error;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::base_nodes::{BaseAttrs, BaseNodes, base_node, blocks_of, file_kind};
use super::carry::{CarriedNode, Carry};
use super::content_locks::ContentLocks;
use super::error::FsError;
use super::inodes::{BaseRef, InodeTable, LowerRef};
use super::lower_stack::LowerStack;
use super::operations::journal::Journal;
use super::ops::StatFs;
use super::shown::ShownTexts;
use super::view_steps::ViewStep;
use tine_attr::{Attr, FileKind, Ino, InoMap, Timestamp};
use tine_git::{Base, BaseDir, TreeEntryKind};
use tine_layer::{
    Content, Dentry, Layer, LayerError, LayerId, LayerStack, LayerStats, Node, Op, inos_below,
};
use tine_path::{EntryName, NAME_MAX, PathError, RepoPath};
use tine_sys::file::fs_figures;

/// Cache invalidation that a mount must send to the kernel.
///
/// It follows a change that did not come through that mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// The name in this directory may resolve to another node now.
    Entry {
        /// Directory that holds the name.
        parent: Ino,
        /// Name whose dentry the kernel must drop.
        name: EntryName,
    },
    /// The node's attributes or content changed.
    Node(Ino),
    /// The node's attributes changed. The content did not, or the kernel knows of its change.
    Attributes(Ino),
}

/// Completed change that did not come through the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Caches that the kernel must drop.
    pub invalidations: Vec<Invalidation>,
    /// Steps by which a program would have made the change.
    ///
    /// Only steps that may be watched are included.
    pub steps: Vec<ViewStep>,
}

/// Callback that receives changes that did not come through the kernel.
pub type AnnouncementListener = Arc<dyn Fn(Announcement) + Send + Sync>;

/// One fork's file system.
///
/// All methods may be called from any thread; each is atomic.
pub struct Workspace {
    /// Carried files of the main checkout. Immutable once the workspace is in use.
    pub(super) carry: Option<Arc<Carry>>,
    /// Locks of the nodes' contents.
    pub(super) contents: ContentLocks,
    /// Base, layers and pins.
    pub(super) state: RwLock<ViewState>,
    /// Nodes that the kernel remembers. Synchronizes itself.
    pub(super) inodes: InodeTable,
    /// Callback of the mount; `None` while nothing is mounted.
    listener: RwLock<Option<AnnouncementListener>>,
    /// Operations of the fork. Held during an operation.
    pub(super) journal: Mutex<Journal>,
    /// Unsaved editor texts that the view shows. Synchronizes itself.
    pub(super) shown: ShownTexts,
    /// Held during a sync.
    ///
    /// So a caller that finds the layer clean knows that it is on disk.
    syncing: Mutex<()>,
}

/// Mutable part of a workspace, under one lock.
pub(super) struct ViewState {
    /// Base tree and the attributes of its nodes.
    pub base: Arc<BaseNodes>,
    /// Open layer and frozen layers.
    pub stack: LayerStack,
    /// Lower bound of shown ctimes; see [`LowerStack::since`].
    pub since: Option<Timestamp>,
    /// Number of pins of each content ([`Workspace::pin_content`]).
    pub pins: InoMap<u32>,
}

/// Returns the ctime that a layer's node shows.
///
/// It is not earlier than `since`, the time at which the fork got its lower layers.
pub(super) fn shown_ctime(node: &Node, since: Option<Timestamp>) -> Timestamp {
    since.map_or(node.ctime, |since| node.ctime.max(since))
}

/// Node together with the place of its attributes.
#[derive(Clone)]
pub(super) struct FoundNode {
    pub ino: Ino,
    pub place: NodePlace,
}

impl FoundNode {
    /// Returns a node that a layer has, or will have.
    pub(crate) fn in_layer(ino: Ino) -> FoundNode {
        FoundNode {
            ino,
            place: NodePlace::Layer,
        }
    }

    /// Returns whether the base has the node and no layer does.
    pub(crate) fn is_in_base(&self) -> bool {
        matches!(self.place, NodePlace::Base(_))
    }
}

/// Place of a node's attributes.
#[derive(Clone)]
pub(super) enum NodePlace {
    /// A layer has the node.
    Layer,
    /// Only the base has the node.
    Base(BaseRef),
    /// The node is carried, and no layer has it.
    Carried(Arc<CarriedNode>),
    /// The root, while no layer has it.
    BaseRoot,
}

impl From<LowerRef> for NodePlace {
    fn from(lower: LowerRef) -> NodePlace {
        match lower {
            LowerRef::Base(base) => NodePlace::Base(base),
            LowerRef::Carried(node) => NodePlace::Carried(node),
        }
    }
}

impl From<PathError> for FsError {
    fn from(error: PathError) -> FsError {
        match error {
            PathError::TooLong => FsError::NameTooLong,
            PathError::Empty
            | PathError::Reserved(_)
            | PathError::ForbiddenByte(_)
            | PathError::Outside(_) => FsError::Invalid,
        }
    }
}

impl Workspace {
    /// Assembles a file system from its parts.
    ///
    /// # Errors
    /// [`FsError::Layer`] if the open layer cannot reserve the inode numbers of the frozen ones.
    pub fn new(base: Arc<Base>, attrs: BaseAttrs, stack: LayerStack) -> Result<Workspace, FsError> {
        Workspace::over(
            BaseNodes {
                base,
                attrs,
                times: None,
            },
            stack,
        )
    }

    /// Assembles a file system on the base of `lower_stack`.
    ///
    /// The layers come from `stack`, also the frozen ones.
    ///
    /// # Errors
    /// [`FsError::Layer`] if the open layer cannot reserve the inode numbers of the frozen ones.
    pub fn on_lower_stack(
        lower_stack: &LowerStack,
        stack: LayerStack,
    ) -> Result<Workspace, FsError> {
        let mut workspace = Workspace::over(lower_stack.base_nodes(), stack)?;
        workspace.state.get_mut().since = lower_stack.since;
        Ok(workspace)
    }

    fn over(base: BaseNodes, mut stack: LayerStack) -> Result<Workspace, FsError> {
        let below = inos_below(stack.frozen());
        stack.open_layer_mut().reserve_below(below)?;
        Ok(Workspace {
            carry: None,
            contents: ContentLocks::default(),
            state: RwLock::new(ViewState {
                base: Arc::new(base),
                stack,
                since: None,
                pins: InoMap::default(),
            }),
            inodes: InodeTable::default(),
            listener: RwLock::new(None),
            journal: Mutex::default(),
            shown: ShownTexts::default(),
            syncing: Mutex::new(()),
        })
    }

    /// Adds the carried files of the fork. Must be called before the workspace is used.
    #[must_use]
    pub fn carrying(mut self, carry: Carry) -> Workspace {
        self.carry = Some(Arc::new(carry));
        self
    }

    /// Returns the base tree.
    pub fn base(&self) -> Arc<Base> {
        self.state.read().base.base.clone()
    }

    /// Returns the attributes that base nodes share.
    pub fn base_attrs(&self) -> BaseAttrs {
        self.state.read().base.attrs
    }

    /// Returns the number of the node at `name` in `parent`. Counts no lookup.
    ///
    /// `None` also if the directory is gone.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`], [`FsError::NameTooLong`]; [`FsError::Base`] or
    /// [`FsError::Carried`] if a directory or node cannot be read.
    pub fn number_at(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        let state = self.state.read();
        let dir = match self.find_dir(&state, parent) {
            Err(FsError::Stale | FsError::NotFound) => return Ok(None),
            dir => dir?,
        };
        Ok(self.child(&state, &dir, name)?.map(|found| found.ino))
    }

    /// Counts one lookup of the former node of a name.
    pub fn remember_former(&self, ino: Ino) {
        // Without a place no collision of two paths can be found, so this cannot fail.
        let _ = self.inodes.remember(ino, None);
    }

    /// Finds `name` in `parent` and counts one lookup of the node.
    ///
    /// The caller drops it with [`Workspace::forget`].
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotADirectory`], [`FsError::NameTooLong`],
    /// [`FsError::Stale`] if `parent` is unknown; [`FsError::Base`] or [`FsError::Carried`] if a
    /// directory or node cannot be read.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, FsError> {
        let state = self.state.read();
        let dir = self.find_dir(&state, parent)?;
        let found = self.child(&state, &dir, name)?.ok_or(FsError::NotFound)?;
        let attr = self.attr(&state, &found)?;
        self.remember(&found)?;
        Ok(attr)
    }

    /// Looks up a name that may be absent.
    ///
    /// Like [`Workspace::lookup`], but returns `None` for a missing name. The flag is true if the
    /// answer may change without notice, because it is the main checkout's.
    ///
    /// # Errors
    /// Those of [`Workspace::lookup`] without [`FsError::NotFound`].
    pub fn lookup_untold(&self, parent: Ino, name: &[u8]) -> Result<(Option<Attr>, bool), FsError> {
        let state = self.state.read();
        let dir = self.find_dir(&state, parent)?;
        let looked = match self.child(&state, &dir, name)? {
            Some(found) => {
                let attr = self.attr(&state, &found)?;
                self.remember(&found)?;
                (Some(attr), self.may_change_silently(&state, &found))
            }
            None => (None, self.name_may_change_silently(&state, &dir, name)?),
        };
        drop(state);
        self.announce_listings();
        Ok(looked)
    }

    /// Subtracts `count` from the node's lookup count.
    ///
    /// Frees the node if it has neither links nor lookups.
    pub fn forget(&self, ino: Ino, count: u64) {
        if !self.inodes.forget(ino, count) {
            return;
        }
        let is_orphan = |state: &ViewState| {
            state
                .stack
                .open_layer()
                .index()
                .node(ino)
                .is_some_and(|node| node.nlink == 0)
        };
        if !is_orphan(&self.state.read()) {
            return;
        }
        let mut state = self.state.write();
        if is_orphan(&state)
            && !self.inodes.is_remembered(ino)
            && let Err(error) = state.stack.open_layer_mut().commit(vec![Op::DropNode(ino)])
        {
            error!(
                "the unlinked node {} stays until the fork is opened again: {error}",
                ino.0
            );
        }
    }

    /// Clears all lookup counts, pins and shown texts, and frees orphans.
    ///
    /// Called when a mount ends, because the kernel sends no FORGET then.
    pub fn forget_all(&self) {
        self.show_nothing();
        let mut state = self.state.write();
        self.inodes.forget_all();
        state.pins.clear();
        let layer = state.stack.open_layer_mut();
        let orphans: Vec<Op> = layer
            .index()
            .nodes()
            .filter(|(_, node)| node.nlink == 0)
            .map(|(ino, _)| Op::DropNode(ino))
            .collect();
        if !orphans.is_empty()
            && let Err(error) = layer.commit(orphans)
        {
            error!("unlinked nodes stay until the fork is opened again: {error}");
        }
    }

    /// Returns the attributes of a node.
    ///
    /// # Errors
    /// [`FsError::Stale`] if no node has the number; [`FsError::Base`], [`FsError::Layer`] or
    /// [`FsError::Carried`] if its attributes cannot be read.
    pub fn getattr(&self, ino: Ino) -> Result<Attr, FsError> {
        let attr = {
            let state = self.state.read();
            let found = self.find(&state, ino)?;
            self.attr(&state, &found)?
        };
        if attr.kind == FileKind::Directory {
            self.announce_listings();
        }
        Ok(attr)
    }

    /// Refuses a file without any execute bit, also to root.
    ///
    /// Root may search any directory, whatever its mode.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`], and the errors of [`Workspace::getattr`].
    pub fn check_executable(&self, ino: Ino) -> Result<(), FsError> {
        let attr = self.getattr(ino)?;
        if attr.kind == FileKind::Directory || attr.perm & 0o111 != 0 {
            Ok(())
        } else {
            Err(FsError::AccessDenied)
        }
    }

    /// Returns the figures of the host file system of the open layer.
    ///
    /// # Errors
    /// [`FsError::Layer`] if `statvfs` fails.
    pub fn statfs(&self) -> Result<StatFs, FsError> {
        let dir = self.state.read().stack.open_layer().dir().to_path_buf();
        let host = fs_figures(&dir).map_err(LayerError::io("ask for the figures of", &dir))?;
        Ok(StatFs {
            block_size: u32::try_from(host.block_size).unwrap_or(4096),
            blocks: host.blocks,
            blocks_free: host.blocks_free,
            blocks_available: host.blocks_available,
            files: host.files,
            files_free: host.files_free,
            name_max: NAME_MAX as u32,
        })
    }

    /// Writes the node's content, and the log up to it, to disk. Blocks.
    ///
    /// # Errors
    /// [`FsError::Layer`] or [`FsError::NoSpace`] if writing or syncing fails.
    pub fn fsync(&self, ino: Ino) -> Result<(), FsError> {
        let flush = {
            let state = self.state.read();
            let layer = state.stack.open_layer();
            match layer.content_of(ino) {
                Some((_, content)) => Some((layer.id(), layer.flush_of(content)?)),
                None => None,
            }
        };
        // The bulk is flushed while others use the fork.
        if let Some((layer, flush)) = flush
            && let Err(error) = flush.run()
        {
            self.with_layer(layer, |layer| layer.note_failed_sync(&error));
            return Err(error.into());
        }
        self.sync()
    }

    /// Writes all layers to disk. Blocks, but others may use the fork meanwhile.
    ///
    /// # Errors
    /// [`FsError::Layer`] or [`FsError::NoSpace`] if writing or syncing fails.
    pub fn sync(&self) -> Result<(), FsError> {
        let _one_at_a_time = self.syncing.lock();
        let mut job = {
            let mut state = self.state.write();
            while state.stack.has_unsealed() {
                drop(state);
                self.seal_frozen()?;
                state = self.state.write();
            }
            let _nobody_writes;
            if state.stack.open_layer().must_write_again() {
                drop(state);
                _nobody_writes = self.contents.write_all();
                state = self.state.write();
            }
            let layer = state.stack.open_layer_mut();
            if !layer.is_dirty() {
                return Ok(());
            }
            layer.begin_sync()?
        };
        let layer = job.layer();
        let done = job
            .sync_contents()
            .and_then(|()| {
                self.with_layer(layer, |layer| layer.complete_sync(&mut job))
                    .unwrap_or(Ok(()))
            })
            .and_then(|()| job.sync_log());
        self.with_layer(layer, |layer| layer.end_sync(job));
        // A layer that was frozen meanwhile is on disk only once it is sealed.
        done.and_then(|()| self.seal_frozen())?;
        Ok(())
    }

    /// Seals the frozen layers, oldest first.
    ///
    /// A layer must not be on disk before the layers below it.
    fn seal_frozen(&self) -> Result<(), LayerError> {
        let (frozen, retired) = {
            let state = self.state.read();
            (
                state.stack.frozen().to_vec(),
                state.stack.retired().to_vec(),
            )
        };
        retired
            .iter()
            .chain(frozen.iter().rev())
            .try_for_each(|layer| layer.seal())
    }

    /// Calls `change` with the layer `id`, which may be frozen by now.
    ///
    /// Returns `None` if the layer is sealed or gone.
    fn with_layer<T>(&self, id: LayerId, change: impl FnOnce(&mut Layer) -> T) -> Option<T> {
        let mut state = self.state.write();
        if state.stack.open_layer().id() == id {
            return Some(change(state.stack.open_layer_mut()));
        }
        let mut layers = state.stack.frozen().iter().chain(state.stack.retired());
        let frozen = layers.find(|layer| layer.id() == id).cloned();
        // A thread that seals the layer waits for the disk.
        drop(state);
        frozen?.with_unsealed(change)
    }

    /// Returns whether anything was written since the last sync.
    pub fn is_dirty(&self) -> bool {
        let state = self.state.read();
        state.stack.has_unsealed() || state.stack.open_layer().is_dirty()
    }

    /// Refuses changes until the fork is opened again.
    ///
    /// Called after a panic, which may have left a change half done.
    pub fn interrupt(&self) {
        self.state.write().stack.open_layer_mut().interrupt();
    }

    /// Returns whether a panic made the workspace refuse changes.
    pub fn is_interrupted(&self) -> bool {
        self.state.read().stack.open_layer().is_interrupted()
    }

    /// Checks that the open layer takes changes.
    ///
    /// # Errors
    /// The layer's error if it takes none, as after a panic.
    pub fn check_takes_changes(&self) -> Result<(), LayerError> {
        self.state.read().stack.open_layer().check_takes_changes()
    }

    /// Returns the figures of the open layer.
    pub fn stats(&self) -> LayerStats {
        self.state.read().stack.open_layer().stats()
    }

    /// Returns whether the kernel remembers the node.
    pub fn is_remembered(&self, ino: Ino) -> bool {
        self.inodes.is_remembered(ino)
    }

    /// Returns the number of nodes that the kernel remembers.
    pub fn remembered(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// Releases memory that the inode table needed when it held more nodes.
    pub fn shrink(&self) {
        self.inodes.shrink();
    }

    /// Sets the callback for changes that did not come through the kernel.
    ///
    /// `None` when the mount is gone. The listener is called without any lock held and must not
    /// call back into this workspace.
    pub fn set_listener(&self, listener: Option<AnnouncementListener>) {
        *self.listener.write() = listener;
    }

    pub(super) fn has_listener(&self) -> bool {
        self.listener.read().is_some()
    }

    /// Notifies the listener. No lock of this workspace may be held.
    pub(super) fn announce(&self, changes: impl IntoIterator<Item = Invalidation>) {
        self.announce_steps(changes, Vec::new());
    }

    /// Notifies the listener of a change that may be watched.
    ///
    /// Like [`Workspace::announce`], with the steps that a watcher should see.
    pub(super) fn announce_steps(
        &self,
        changes: impl IntoIterator<Item = Invalidation>,
        steps: Vec<ViewStep>,
    ) {
        let listener = self.listener.read().clone();
        if let Some(listener) = listener {
            let mut changes: Vec<Invalidation> = changes.into_iter().collect();
            let is_name = |change: &Invalidation| matches!(change, Invalidation::Entry { .. });
            if self.shows_texts() && changes.iter().any(is_name) {
                // The change may have moved another directory to the path of a shown text.
                changes.extend(self.shown_names());
            }
            if !changes.is_empty() {
                listener(Announcement {
                    invalidations: changes,
                    steps,
                });
            }
        }
    }

    pub(super) fn read_state(&self) -> RwLockReadGuard<'_, ViewState> {
        self.state.read()
    }

    pub(super) fn write_state(&self) -> RwLockWriteGuard<'_, ViewState> {
        self.state.write()
    }

    /// Finds the node with this number.
    ///
    /// It must be in a layer, be the root, or be remembered by the kernel.
    pub(super) fn find(&self, state: &ViewState, ino: Ino) -> Result<FoundNode, FsError> {
        let place = if state.stack.node(ino).is_some() {
            NodePlace::Layer
        } else if ino == Ino::ROOT {
            NodePlace::BaseRoot
        } else {
            self.inodes.lower(ino).ok_or(FsError::Stale)?.into()
        };
        Ok(FoundNode { ino, place })
    }

    /// Finds the directory with this number; see [`Workspace::find`].
    pub(super) fn find_dir(&self, state: &ViewState, ino: Ino) -> Result<FoundNode, FsError> {
        let found = self.find(state, ino)?;
        match self.kind(state, &found)? {
            FileKind::Directory => Ok(found),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// Returns the layers' node of a [`NodePlace::Layer`].
    pub(super) fn layer_node<'s>(
        &self,
        state: &'s ViewState,
        ino: Ino,
    ) -> Result<&'s Node, FsError> {
        state.stack.node(ino).ok_or(FsError::Stale)
    }

    pub(super) fn kind(&self, state: &ViewState, found: &FoundNode) -> Result<FileKind, FsError> {
        Ok(match &found.place {
            NodePlace::Layer => self.layer_node(state, found.ino)?.kind,
            NodePlace::Base(base) => file_kind(base.entry().kind),
            NodePlace::Carried(node) => node.attr.kind,
            NodePlace::BaseRoot => FileKind::Directory,
        })
    }

    /// Returns the node at `name` in the directory `dir`.
    pub(super) fn child(
        &self,
        state: &ViewState,
        dir: &FoundNode,
        name: &[u8],
    ) -> Result<Option<FoundNode>, FsError> {
        // The kernel passes names of up to 1024 bytes. A plain "not found" would hide that such a
        // name can never exist.
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        match state.stack.dentry(dir.ino, name) {
            Some(Dentry::Entry(ino)) => Ok(Some(FoundNode {
                ino,
                place: NodePlace::Layer,
            })),
            Some(Dentry::Whiteout) => Ok(None),
            None => match self.base_dir(state, dir)? {
                Some(base_dir) => match base_dir.find(name) {
                    Some(index) => Ok(self.base_child(state, &base_dir, index)),
                    None => self.carried_child(state, dir, name),
                },
                None => self.carried_child(state, dir, name),
            },
        }
    }

    /// Returns an entry of a base directory.
    ///
    /// The node is a layer's if one has it.
    pub(super) fn base_child(
        &self,
        state: &ViewState,
        dir: &Arc<BaseDir>,
        index: usize,
    ) -> Option<FoundNode> {
        let base = BaseRef::new(dir, index)?;
        let ino = base.entry().ino;
        let place = if state.stack.node(ino).is_some() {
            NodePlace::Layer
        } else {
            NodePlace::Base(base)
        };
        Some(FoundNode { ino, place })
    }

    /// Returns the base directory below a directory of the view.
    ///
    /// `None` for a directory made in the fork and for a submodule's.
    pub(super) fn base_dir(
        &self,
        state: &ViewState,
        dir: &FoundNode,
    ) -> Result<Option<Arc<BaseDir>>, FsError> {
        Ok(match &dir.place {
            NodePlace::BaseRoot => Some(state.base.base.root()?),
            NodePlace::Base(base) if base.entry().kind == TreeEntryKind::Directory => {
                Some(state.base.base.dir(&base.path(), base.entry().id)?)
            }
            NodePlace::Base(_) | NodePlace::Carried(_) => None,
            NodePlace::Layer => match &self.layer_node(state, dir.ino)?.origin {
                Some(origin) if origin.kind == TreeEntryKind::Directory => {
                    Some(state.base.base.dir(&origin.path, origin.id)?)
                }
                _ => None,
            },
        })
    }

    /// Returns the number of the directory that holds `dir`. The root is its own parent.
    pub(super) fn parent_of(&self, state: &ViewState, dir: &FoundNode) -> Result<Ino, FsError> {
        if dir.ino == Ino::ROOT {
            return Ok(Ino::ROOT);
        }
        if let Some(parent) = state.stack.dir_parent(dir.ino) {
            return Ok(parent);
        }
        let base_parent = match &dir.place {
            NodePlace::BaseRoot => return Ok(Ino::ROOT),
            NodePlace::Base(base) => base.dir().path.clone(),
            NodePlace::Carried(node) => node
                .path
                .split_last()
                .map(|(parent, _)| parent)
                .unwrap_or_default(),
            NodePlace::Layer => match &self.layer_node(state, dir.ino)?.origin {
                Some(origin) => origin
                    .path
                    .split_last()
                    .map(|(parent, _)| parent)
                    .unwrap_or_default(),
                // An unlinked directory that was made in the fork has no place.
                None => return Ok(Ino::ROOT),
            },
        };
        Ok(state.base.base.hasher().ino(&base_parent))
    }

    pub(super) fn remember(&self, found: &FoundNode) -> Result<(), FsError> {
        let lower = match &found.place {
            NodePlace::Base(base) => Some(LowerRef::Base(base.clone())),
            NodePlace::Carried(node) => Some(LowerRef::Carried(node.clone())),
            NodePlace::Layer | NodePlace::BaseRoot => None,
        };
        self.inodes
            .remember(found.ino, lower.as_ref())
            .map_err(|_| {
                error!("two paths share the inode number {}", found.ino.0);
                FsError::Stale
            })
    }

    pub(super) fn attr(&self, state: &ViewState, found: &FoundNode) -> Result<Attr, FsError> {
        match &found.place {
            NodePlace::Layer => {
                let node = self.layer_node(state, found.ino)?;
                Ok(self.with_carried_times(
                    found.ino,
                    node,
                    self.node_attr(state, found.ino, node)?,
                ))
            }
            NodePlace::Base(base) => self.base_attr(&state.base, base),
            NodePlace::Carried(node) => self.carried_attr(node),
            NodePlace::BaseRoot => {
                Ok(self.with_dir_roots(state.base.root_attr()?, &RepoPath::root()))
            }
        }
    }

    pub(super) fn node_attr(
        &self,
        state: &ViewState,
        ino: Ino,
        node: &Node,
    ) -> Result<Attr, FsError> {
        let blocks = match &node.content {
            Content::Own(content) => state.stack.content_blocks(*content, node.size)?,
            Content::Carried(_) if node.kind == FileKind::Directory => 0,
            Content::Base | Content::Blob(_) | Content::Carried(_) => blocks_of(node.size),
            Content::Empty | Content::Link(_) => 0,
        };
        Ok(Attr {
            ino,
            kind: node.kind,
            perm: node.perm,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            size: node.size,
            blocks,
            atime: node.atime,
            mtime: node.mtime,
            ctime: shown_ctime(node, state.since),
        })
    }

    /// Returns the node as a record that a layer can hold.
    ///
    /// It is the layer's node, or a copy-up of the base's or carried one.
    pub(super) fn node(&self, state: &ViewState, found: &FoundNode) -> Result<Node, FsError> {
        Ok(match &found.place {
            NodePlace::Layer => self.layer_node(state, found.ino)?.clone(),
            NodePlace::Base(base) => base_node(&self.base_attr(&state.base, base)?, base.origin()),
            NodePlace::Carried(node) => return self.carried_node(node),
            NodePlace::BaseRoot => base_node(&self.attr(state, found)?, state.base.root_origin()),
        })
    }
}
