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

mod announcing;
mod nodes;
mod sync;

use std::sync::Arc;

use log::error;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use self::announcing::{Announcement, AnnouncementListener, Invalidation};
pub(super) use self::nodes::{FoundNode, NodePlace, shown_ctime};
use super::base_nodes::{BaseAttrs, BaseNodes};
use super::carry::Carry;
use super::content_locks::ContentLocks;
use super::error::FsError;
use super::inodes::InodeTable;
use super::lower_stack::LowerStack;
use super::operations::journal::Journal;
use super::ops::StatFs;
use super::shown::ShownTexts;
use tine_attr::{Attr, FileKind, Ino, InoMap, Timestamp};
use tine_git::Base;
use tine_layer::{LayerError, LayerStack, LayerStats, Op, inos_below};
use tine_path::{NAME_MAX, PathError};
use tine_sys::file::fs_figures;

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
    pub fn try_lookup(&self, parent: Ino, name: &[u8]) -> Result<(Option<Attr>, bool), FsError> {
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

    pub(super) fn read_state(&self) -> RwLockReadGuard<'_, ViewState> {
        self.state.read()
    }

    pub(super) fn write_state(&self) -> RwLockWriteGuard<'_, ViewState> {
        self.state.write()
    }
}
