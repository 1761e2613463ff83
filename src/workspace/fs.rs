//! A fork's file system: what a number and a name lead to, and the state behind every operation.
//!
//! A directory's child is looked up by name in the layers first, by the directory's number; where
//! they are silent it is the base's, at the place the directory itself has in the base. So a
//! renamed base directory brings everything beneath it along without a record for any of it.
//!
//! The operations stand in files of their own: [`mutate`](super::mutate) changes names and
//! attributes, [`io`](super::io) reads and writes contents, [`listing`](super::listing) lists,
//! [`paths`](super::paths) works by path.
//!
//! Lock order: `syncing`, `journal`, `contents`, `state`, then the inode table; the listener is
//! called with none of them held. Base objects are read while `state` is held for reading where
//! they are small (trees, headers), never contents; nor is it held while much is copied to or from
//! a layer.

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
use super::shown::Shown;
use super::view_steps::ViewStep;
use tine_attr::{Attr, FileKind, Ino, InoMap, Timestamp};
use tine_git::{Base, BaseDir, TreeEntryKind};
use tine_layer::{
    Content, Dentry, Layer, LayerError, LayerId, LayerStack, LayerStats, Node, Op, inos_below,
};
use tine_path::{EntryName, NAME_MAX, PathError, RepoPath};
use tine_sys::file::fs_figures;

/// What a mount must tell the kernel after a change that did not come through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// The name in this directory may lead elsewhere now.
    Entry { parent: Ino, name: EntryName },
    /// The node's attributes or content changed.
    Node(Ino),
    /// The node's attributes changed, and its content did not, or as the kernel knows.
    Attributes(Ino),
}

/// A change that did not come through the kernel, and has happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    pub invalidations: Vec<Invalidation>,
    /// How a program would have made it, as far as it may be watched.
    pub steps: Vec<ViewStep>,
}

/// Who is told of changes that did not come through the kernel.
pub type AnnouncementListener = Arc<dyn Fn(Announcement) + Send + Sync>;

/// One fork's file system. All methods may be called from any thread; each is atomic.
pub struct Workspace {
    /// Immutable.
    pub(super) carry: Option<Arc<Carry>>,
    pub(super) contents: ContentLocks,
    pub(super) state: RwLock<State>,
    pub(super) inodes: InodeTable,
    listener: RwLock<Option<AnnouncementListener>>,
    /// Held during an operation.
    pub(super) journal: Mutex<Journal>,
    pub(super) shown: Shown,
    /// Held during a sync, so that whoever finds the layer clean knows that it is on the disk.
    syncing: Mutex<()>,
}

/// What changes.
pub(super) struct State {
    pub base: Arc<BaseNodes>,
    pub stack: LayerStack,
    /// As [`LowerStack::since`](super::standing::Standing::since).
    pub since: Option<Timestamp>,
    /// How often each content is pinned to its place ([`Workspace::pin_content`]).
    pub pins: InoMap<u32>,
}

/// The ctime that a layer's node shows in a fork that stands on its layers `since` then.
pub(super) fn shown_ctime(node: &Node, since: Option<Timestamp>) -> Timestamp {
    since.map_or(node.ctime, |since| node.ctime.max(since))
}

/// A node together with where its facts are.
#[derive(Clone)]
pub(super) struct Found {
    pub ino: Ino,
    pub place: Place,
}

impl Found {
    /// A node that a layer has, or will have.
    pub(crate) fn in_layer(ino: Ino) -> Found {
        Found {
            ino,
            place: Place::Layer,
        }
    }

    /// Whether the base has it, and no layer before.
    pub(crate) fn is_in_base(&self) -> bool {
        matches!(self.place, Place::Base(_))
    }
}

#[derive(Clone)]
pub(super) enum Place {
    /// A layer names it.
    Layer,
    /// Only the base has it.
    Base(BaseRef),
    /// It is carried, and no layer has it.
    Carried(Arc<CarriedNode>),
    /// The root, which no layer names yet.
    BaseRoot,
}

impl From<LowerRef> for Place {
    fn from(lower: LowerRef) -> Place {
        match lower {
            LowerRef::Base(base) => Place::Base(base),
            LowerRef::Carried(node) => Place::Carried(node),
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
    /// Puts a file system together from its parts.
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

    /// Puts a file system together that stands on `lower_stack`, but for its layers, which are in
    /// `stack`.
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
            state: RwLock::new(State {
                base: Arc::new(base),
                stack,
                since: None,
                pins: InoMap::default(),
            }),
            inodes: InodeTable::default(),
            listener: RwLock::new(None),
            journal: Mutex::default(),
            shown: Shown::default(),
            syncing: Mutex::new(()),
        })
    }

    /// With what the fork carries. Before anybody uses it.
    #[must_use]
    pub fn carrying(mut self, carry: Carry) -> Workspace {
        self.carry = Some(Arc::new(carry));
        self
    }

    pub fn base(&self) -> Arc<Base> {
        self.state.read().base.base.clone()
    }

    /// Attributes that base nodes share.
    pub fn base_attrs(&self) -> BaseAttrs {
        self.state.read().base.attrs
    }

    /// The number of what `name` in `parent` leads to; `None` also where the directory is gone.
    /// Counts no lookup.
    pub fn number_at(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        let state = self.state.read();
        let dir = match self.find_dir(&state, parent) {
            Err(FsError::Stale | FsError::NotFound) => return Ok(None),
            dir => dir?,
        };
        Ok(self.child(&state, &dir, name)?.map(|found| found.ino))
    }

    /// Counts one lookup of a node that a name led to before a change.
    pub fn remember_former(&self, ino: Ino) {
        // Without a place there is nothing that two paths could share.
        let _ = self.inodes.remember(ino, None);
    }

    /// Finds `name` in `parent` and counts one lookup of the node, to be given back with
    /// [`Workspace::forget`].
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, FsError> {
        let state = self.state.read();
        let dir = self.find_dir(&state, parent)?;
        let found = self.child(&state, &dir, name)?.ok_or(FsError::NotFound)?;
        let attr = self.attr(&state, &found)?;
        self.remember(&found)?;
        Ok(attr)
    }

    /// As [`Workspace::lookup`], with nothing where nothing is; and whether what is answered may
    /// change without anybody telling, because it is the main checkout's.
    pub fn lookup_untold(&self, parent: Ino, name: &[u8]) -> Result<(Option<Attr>, bool), FsError> {
        let state = self.state.read();
        let dir = self.find_dir(&state, parent)?;
        let looked = match self.child(&state, &dir, name)? {
            Some(found) => {
                let attr = self.attr(&state, &found)?;
                self.remember(&found)?;
                (Some(attr), self.follows(&state, &found))
            }
            None => (None, self.may_change_untold(&state, &dir, name)?),
        };
        drop(state);
        self.announce_listings();
        Ok(looked)
    }

    /// Gives back `count` lookups. A node without links or lookups is freed.
    pub fn forget(&self, ino: Ino, count: u64) {
        if !self.inodes.forget(ino, count) {
            return;
        }
        let is_orphan = |state: &State| {
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

    /// Gives back all lookups and pins: the kernel sends nothing when a mount ends. Nodes without
    /// links are freed, and no text is shown any more.
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

    /// Refuses what nobody may execute, which even root may not. In directories root may search
    /// whatever their mode.
    pub fn check_executable(&self, ino: Ino) -> Result<(), FsError> {
        let attr = self.getattr(ino)?;
        match attr.kind == FileKind::Directory || attr.perm & 0o111 != 0 {
            true => Ok(()),
            false => Err(FsError::AccessDenied),
        }
    }

    /// Figures of the host file system that holds the layer.
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

    /// Brings the node's content and everything before it in the log to the disk.
    pub fn fsync(&self, ino: Ino) -> Result<(), FsError> {
        let flush = {
            let state = self.state.read();
            let layer = state.stack.open_layer();
            match layer.content_of(ino) {
                Some((_, content)) => Some((layer.id(), layer.flush_of(content)?)),
                None => None,
            }
        };
        // The bulk goes out while others use the fork.
        if let Some((layer, flush)) = flush
            && let Err(error) = flush.run()
        {
            self.with_layer(layer, |layer| layer.note_failed_sync(&error));
            return Err(error.into());
        }
        self.sync()
    }

    /// Brings all of the layers to the disk. Others may use the fork while the disk works.
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
        // What was frozen meanwhile is not on the disk before it is sealed.
        done.and_then(|()| self.seal_frozen())?;
        Ok(())
    }

    /// Brings frozen layers to the disk, the oldest first: what stands above one must not be there
    /// before.
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

    /// Calls `change` with the layer, which may have been frozen meanwhile; `None` where that was
    /// sealed, too.
    fn with_layer<T>(&self, id: LayerId, change: impl FnOnce(&mut Layer) -> T) -> Option<T> {
        let mut state = self.state.write();
        if state.stack.open_layer().id() == id {
            return Some(change(state.stack.open_layer_mut()));
        }
        let mut layers = state.stack.frozen().iter().chain(state.stack.retired());
        let frozen = layers.find(|layer| layer.id() == id).cloned();
        // Whoever seals it waits for the disk.
        drop(state);
        frozen?.with_unsealed(change)
    }

    /// Whether anything was written since the last sync.
    pub fn is_dirty(&self) -> bool {
        let state = self.state.read();
        state.stack.has_unsealed() || state.stack.open_layer().is_dirty()
    }

    /// Takes no more changes until the fork is opened again: a panic may have left anything half
    /// done.
    pub fn interrupt(&self) {
        self.state.write().stack.open_layer_mut().interrupt();
    }

    /// Whether a panic has ended that changes are taken.
    pub fn is_interrupted(&self) -> bool {
        self.state.read().stack.open_layer().is_interrupted()
    }

    /// # Errors
    /// Where the layer takes no changes, as after a panic.
    pub fn check_takes_changes(&self) -> Result<(), LayerError> {
        self.state.read().stack.open_layer().check_takes_changes()
    }

    /// Figures of the open layer.
    pub fn stats(&self) -> LayerStats {
        self.state.read().stack.open_layer().stats()
    }

    /// Whether the kernel remembers the node.
    pub fn is_remembered(&self, ino: Ino) -> bool {
        self.inodes.is_remembered(ino)
    }

    /// How many nodes the kernel remembers.
    pub fn remembered(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// Gives up memory that was needed when the kernel remembered more nodes.
    pub fn shrink(&self) {
        self.inodes.shrink();
    }

    /// Sets who is told of changes that did not come through the kernel; `None` when the mount is
    /// gone. The listener is called without any lock held and must not call back into this
    /// workspace.
    pub fn set_listener(&self, listener: Option<AnnouncementListener>) {
        *self.listener.write() = listener;
    }

    pub(super) fn has_listener(&self) -> bool {
        self.listener.read().is_some()
    }

    /// Tells the listener. No lock of this workspace may be held.
    pub(super) fn announce(&self, changes: impl IntoIterator<Item = Invalidation>) {
        self.announce_steps(changes, Vec::new());
    }

    /// As [`Workspace::announce`], of a change that may be watched.
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
                // Another directory may stand where a path leads that is shown.
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

    pub(super) fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    pub(super) fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// The node with this number: one that a layer names, the root, or one that the kernel
    /// remembers.
    pub(super) fn find(&self, state: &State, ino: Ino) -> Result<Found, FsError> {
        let place = if state.stack.node(ino).is_some() {
            Place::Layer
        } else if ino == Ino::ROOT {
            Place::BaseRoot
        } else {
            self.inodes.lower(ino).ok_or(FsError::Stale)?.into()
        };
        Ok(Found { ino, place })
    }

    /// As [`Workspace::find`], of a directory.
    pub(super) fn find_dir(&self, state: &State, ino: Ino) -> Result<Found, FsError> {
        let found = self.find(state, ino)?;
        match self.kind(state, &found)? {
            FileKind::Directory => Ok(found),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// The layers' node of a [`Place::Layer`].
    pub(super) fn layer_node<'s>(&self, state: &'s State, ino: Ino) -> Result<&'s Node, FsError> {
        state.stack.node(ino).ok_or(FsError::Stale)
    }

    pub(super) fn kind(&self, state: &State, found: &Found) -> Result<FileKind, FsError> {
        Ok(match &found.place {
            Place::Layer => self.layer_node(state, found.ino)?.kind,
            Place::Base(base) => file_kind(base.entry().kind),
            Place::Carried(node) => node.attr.kind,
            Place::BaseRoot => FileKind::Directory,
        })
    }

    /// What is at `name` in the directory `dir`.
    pub(super) fn child(
        &self,
        state: &State,
        dir: &Found,
        name: &[u8],
    ) -> Result<Option<Found>, FsError> {
        // The kernel passes up to 1024 bytes, and a missing entry would not tell why it can never
        // be there.
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        match state.stack.dentry(dir.ino, name) {
            Some(Dentry::Entry(ino)) => Ok(Some(Found {
                ino,
                place: Place::Layer,
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

    /// A base directory's entry, as the layers have its node or as the base has it.
    pub(super) fn base_child(
        &self,
        state: &State,
        dir: &Arc<BaseDir>,
        index: usize,
    ) -> Option<Found> {
        let base = BaseRef::new(dir, index)?;
        let ino = base.entry().ino;
        let place = if state.stack.node(ino).is_some() {
            Place::Layer
        } else {
            Place::Base(base)
        };
        Some(Found { ino, place })
    }

    /// The base directory beneath a directory of the view; `None` for one made in the fork and for
    /// a submodule's.
    pub(super) fn base_dir(
        &self,
        state: &State,
        dir: &Found,
    ) -> Result<Option<Arc<BaseDir>>, FsError> {
        Ok(match &dir.place {
            Place::BaseRoot => Some(state.base.base.root()?),
            Place::Base(base) if base.entry().kind == TreeEntryKind::Directory => {
                Some(state.base.base.dir(&base.path(), base.entry().id)?)
            }
            Place::Base(_) | Place::Carried(_) => None,
            Place::Layer => match &self.layer_node(state, dir.ino)?.origin {
                Some(origin) if origin.kind == TreeEntryKind::Directory => {
                    Some(state.base.base.dir(&origin.path, origin.id)?)
                }
                _ => None,
            },
        })
    }

    /// The number of the directory that holds the directory `ino`; the root holds itself.
    pub(super) fn parent_of(&self, state: &State, dir: &Found) -> Result<Ino, FsError> {
        if dir.ino == Ino::ROOT {
            return Ok(Ino::ROOT);
        }
        if let Some(parent) = state.stack.dir_parent(dir.ino) {
            return Ok(parent);
        }
        let base_parent = match &dir.place {
            Place::BaseRoot => return Ok(Ino::ROOT),
            Place::Base(base) => base.dir().path.clone(),
            Place::Carried(node) => node
                .path
                .split_last()
                .map(|(parent, _)| parent)
                .unwrap_or_default(),
            Place::Layer => match &self.layer_node(state, dir.ino)?.origin {
                Some(origin) => origin
                    .path
                    .split_last()
                    .map(|(parent, _)| parent)
                    .unwrap_or_default(),
                // Unlinked, and made in the fork: it is nowhere.
                None => return Ok(Ino::ROOT),
            },
        };
        Ok(state.base.base.hasher().ino(&base_parent))
    }

    pub(super) fn remember(&self, found: &Found) -> Result<(), FsError> {
        let lower = match &found.place {
            Place::Base(base) => Some(LowerRef::Base(base.clone())),
            Place::Carried(node) => Some(LowerRef::Carried(node.clone())),
            Place::Layer | Place::BaseRoot => None,
        };
        self.inodes
            .remember(found.ino, lower.as_ref())
            .map_err(|_| {
                error!("two paths share the inode number {}", found.ino.0);
                FsError::Stale
            })
    }

    pub(super) fn attr(&self, state: &State, found: &Found) -> Result<Attr, FsError> {
        match &found.place {
            Place::Layer => {
                let node = self.layer_node(state, found.ino)?;
                Ok(self.as_followed(found.ino, node, self.node_attr(state, found.ino, node)?))
            }
            Place::Base(base) => self.base_attr(&state.base, base),
            Place::Carried(node) => self.carried_attr(node),
            Place::BaseRoot => Ok(self.with_dir_roots(state.base.root_attr()?, &RepoPath::root())),
        }
    }

    pub(super) fn node_attr(&self, state: &State, ino: Ino, node: &Node) -> Result<Attr, FsError> {
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

    /// The node as a record that a layer could hold: what it has, or a copy-up of the base's.
    pub(super) fn node(&self, state: &State, found: &Found) -> Result<Node, FsError> {
        Ok(match &found.place {
            Place::Layer => self.layer_node(state, found.ino)?.clone(),
            Place::Base(base) => base_node(&self.base_attr(&state.base, base)?, base.origin()),
            Place::Carried(node) => return self.carried_node(node),
            Place::BaseRoot => base_node(&self.attr(state, found)?, state.base.root_origin()),
        })
    }
}
