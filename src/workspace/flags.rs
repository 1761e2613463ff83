//! Inode flags of `chattr`, and the changes that they forbid.
//!
//! The rules are those of the kernel's `fs/namei.c`, `fs/attr.c` and `fs/xattr.c`. The kernel
//! applies them to its own file systems' inodes and not to those of FUSE. A flag binds every
//! user, root too. Only root sets and clears immutable and append-only.

use super::error::FsError;
use super::fs::{FoundNode, Invalidation, ViewState, Workspace};
use super::ops::{Caller, FallocateMode, SetAttr, SetTime};
use tine_attr::{FileKind, Ino, InodeFlags, Timestamp};
use tine_layer::Node;

/// Flags that only root changes.
const PROTECTION: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);
/// Flags that a new node inherits from its directory.
const INHERITED: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC);
/// Flags that make changes of names in a directory synchronous.
const SYNCS_NAMES: InodeFlags = InodeFlags::SYNC.union(InodeFlags::DIRSYNC);

impl Workspace {
    /// Returns the flags that `chattr` set.
    ///
    /// # Errors
    /// [`FsError::Stale`] if no node has the number; [`FsError::Base`] if the base cannot be read.
    pub fn flags(&self, ino: Ino) -> Result<InodeFlags, FsError> {
        let state = self.read_state();
        self.find(&state, ino)?;
        Ok(flags_of(&state, ino))
    }

    /// Sets the inode flags of a file or directory to exactly these.
    ///
    /// The mount is notified.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for other nodes, [`FsError::NotPermitted`] if the caller is neither
    /// root nor the owner, changes immutable or append-only without being root, or the node stays
    /// immutable.
    pub fn set_flags(&self, caller: Caller, ino: Ino, flags: InodeFlags) -> Result<(), FsError> {
        self.copy_up_if_needed(ino)?;
        let mut state = self.write_state();
        let found = self.find(&state, ino)?;
        let mut node = self.node(&state, &found)?;
        let flags = match node.kind {
            FileKind::Directory => flags,
            FileKind::Regular => flags.without(InodeFlags::DIRSYNC),
            _ => return Err(FsError::Unsupported),
        };
        let before = node.flags();
        let changes_protection = before.intersection(PROTECTION) != flags.intersection(PROTECTION);
        let may = caller.is_privileged() || caller.uid == node.uid && !changes_protection;
        let stays_immutable = before.intersection(flags).intersects(InodeFlags::IMMUTABLE);
        if !may || stays_immutable && before != flags {
            return Err(FsError::NotPermitted);
        }
        node.set_flags(flags);
        node.ctime = Timestamp::now();
        self.put_content(&mut state, ino, node)?;
        drop(state);
        self.announce([Invalidation::Attributes(ino)]);
        Ok(())
    }

    /// Syncs a node after a change, if its flags demand it.
    ///
    /// No lock may be held. Blocks.
    pub(super) fn sync_if_flagged(&self, ino: Ino) -> Result<(), FsError> {
        let must = flags_of(&self.read_state(), ino).intersects(InodeFlags::SYNC);
        if must { self.fsync(ino) } else { Ok(()) }
    }

    /// Syncs after a change of names, if a directory's flags demand it.
    ///
    /// No lock may be held. Blocks.
    pub(super) fn sync_names_if_flagged(&self, dirs: &[Ino]) -> Result<(), FsError> {
        let must = {
            let state = self.read_state();
            dirs.iter()
                .any(|dir| flags_of(&state, *dir).intersects(SYNCS_NAMES))
        };
        if must { self.sync() } else { Ok(()) }
    }
}

fn flags_of(state: &ViewState, ino: Ino) -> InodeFlags {
    state.stack.node(ino).map(Node::flags).unwrap_or_default()
}

fn refuse_any(state: &ViewState, ino: Ino, flags: InodeFlags) -> Result<(), FsError> {
    if flags_of(state, ino).intersects(flags) {
        Err(FsError::NotPermitted)
    } else {
        Ok(())
    }
}

/// Checks that the directory may get a new name.
pub(super) fn check_may_add(state: &ViewState, dir: &FoundNode) -> Result<(), FsError> {
    refuse_any(state, dir.ino, InodeFlags::IMMUTABLE)
}

/// Checks that the name of `node` may be removed or replaced.
pub(super) fn check_may_remove(
    state: &ViewState,
    dir: &FoundNode,
    node: &FoundNode,
) -> Result<(), FsError> {
    refuse_any(state, dir.ino, PROTECTION)?;
    refuse_any(state, node.ino, PROTECTION)
}

/// Checks that the node's attributes may be changed.
///
/// These are links, extended attributes, owner, mode and chosen times.
pub(super) fn check_may_change(state: &ViewState, ino: Ino) -> Result<(), FsError> {
    refuse_any(state, ino, PROTECTION)
}

/// Checks that the file may be written at `offset`.
pub(super) fn check_may_write(state: &ViewState, ino: Ino, offset: u64) -> Result<(), FsError> {
    let appends = state
        .stack
        .node(ino)
        .is_some_and(|node| offset >= node.size);
    let forbidding = if appends {
        InodeFlags::IMMUTABLE
    } else {
        PROTECTION
    };
    refuse_any(state, ino, forbidding)
}

/// Checks that the whole content may be replaced.
pub(super) fn check_may_replace(state: &ViewState, ino: Ino) -> Result<(), FsError> {
    refuse_any(state, ino, PROTECTION)
}

pub(super) fn check_may_allocate(
    state: &ViewState,
    ino: Ino,
    mode: FallocateMode,
) -> Result<(), FsError> {
    let forbidding = match mode {
        FallocateMode::Allocate { .. } => InodeFlags::IMMUTABLE,
        FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => PROTECTION,
    };
    refuse_any(state, ino, forbidding)
}

/// Checks that these attributes may be set.
///
/// Setting both times to now needs only write permission, so append-only allows it.
pub(super) fn check_may_set(state: &ViewState, ino: Ino, set: &SetAttr) -> Result<(), FsError> {
    let touch = SetAttr {
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    let forbidding = if *set == touch {
        InodeFlags::IMMUTABLE
    } else {
        PROTECTION
    };
    refuse_any(state, ino, forbidding)
}

/// Sets the flags that a new node inherits from its directory.
pub(super) fn inherit_flags(node: &mut Node, dir: &Node) {
    let flags = dir.flags().intersection(INHERITED);
    node.set_flags(match node.kind {
        FileKind::Directory => flags,
        FileKind::Regular => flags.without(InodeFlags::DIRSYNC),
        _ => flags.intersection(InodeFlags::NODUMP.union(InodeFlags::NOATIME)),
    });
}
