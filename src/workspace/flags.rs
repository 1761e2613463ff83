//! What `chattr` sets, and what it forbids: the rules of the kernel's `fs/namei.c`, `fs/attr.c` and
//! `fs/xattr.c`, which it applies to inodes of its own file systems and not to those of FUSE.
//!
//! Nobody is exempt while a flag is set, root neither; only root sets and takes immutable and
//! append-only.

use super::error::FsError;
use super::fs::{Found, Invalidation, State, Workspace};
use super::ops::{Caller, FallocateMode, SetAttr, SetTime};
use tine_attr::{FileKind, Ino, InodeFlags, Timestamp};
use tine_layer::Node;

/// What only root changes.
const PROTECTION: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);
/// What new nodes take over from their directory.
const INHERITED: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC);
/// What makes changes of names in a directory synchronous.
const SYNCS_NAMES: InodeFlags = InodeFlags::SYNC.union(InodeFlags::DIRSYNC);

impl Workspace {
    /// What `chattr` set.
    pub fn flags(&self, ino: Ino) -> Result<InodeFlags, FsError> {
        let state = self.read_state();
        self.find(&state, ino)?;
        Ok(flags_of(&state, ino))
    }

    /// Sets the flags of a file or directory to exactly these. Announced to the mount.
    pub fn set_flags(&self, caller: Caller, ino: Ino, flags: InodeFlags) -> Result<(), FsError> {
        self.own_carried_node(ino)?;
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

    /// After a change of the node's content or attributes: brings it to the disk where that was
    /// asked for. No lock may be held.
    pub(super) fn sync_if_flagged(&self, ino: Ino) -> Result<(), FsError> {
        let must = flags_of(&self.read_state(), ino).intersects(InodeFlags::SYNC);
        if must { self.fsync(ino) } else { Ok(()) }
    }

    /// As [`Workspace::sync_if_flagged`], after a change of names in these directories.
    pub(super) fn sync_names_if_flagged(&self, dirs: &[Ino]) -> Result<(), FsError> {
        let must = {
            let state = self.read_state();
            dirs.iter()
                .any(|dir| flags_of(&state, *dir).intersects(SYNCS_NAMES))
        };
        if must { self.sync() } else { Ok(()) }
    }
}

fn flags_of(state: &State, ino: Ino) -> InodeFlags {
    state.stack.node(ino).map(Node::flags).unwrap_or_default()
}

fn refuse_any(state: &State, ino: Ino, flags: InodeFlags) -> Result<(), FsError> {
    match flags_of(state, ino).intersects(flags) {
        true => Err(FsError::NotPermitted),
        false => Ok(()),
    }
}

/// A new name in the directory.
pub(super) fn check_may_add(state: &State, dir: &Found) -> Result<(), FsError> {
    refuse_any(state, dir.ino, InodeFlags::IMMUTABLE)
}

/// Taking a name from the directory, or leading it elsewhere.
pub(super) fn check_may_remove(state: &State, dir: &Found, node: &Found) -> Result<(), FsError> {
    refuse_any(state, dir.ino, PROTECTION)?;
    refuse_any(state, node.ino, PROTECTION)
}

/// Another name for the node, its extended attributes, its owner, mode or chosen times.
pub(super) fn check_may_change(state: &State, ino: Ino) -> Result<(), FsError> {
    refuse_any(state, ino, PROTECTION)
}

/// Writing to the file.
pub(super) fn check_may_write(state: &State, ino: Ino, offset: u64) -> Result<(), FsError> {
    let appends = state
        .stack
        .node(ino)
        .is_some_and(|node| offset >= node.size);
    let forbidding = match appends {
        true => InodeFlags::IMMUTABLE,
        false => PROTECTION,
    };
    refuse_any(state, ino, forbidding)
}

/// Replacing all of the content.
pub(super) fn check_may_replace(state: &State, ino: Ino) -> Result<(), FsError> {
    refuse_any(state, ino, PROTECTION)
}

pub(super) fn check_may_allocate(
    state: &State,
    ino: Ino,
    mode: FallocateMode,
) -> Result<(), FsError> {
    let forbidding = match mode {
        FallocateMode::Allocate { .. } => InodeFlags::IMMUTABLE,
        FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => PROTECTION,
    };
    refuse_any(state, ino, forbidding)
}

/// Changing attributes. Setting both times to now, as who may write the file may do, is not kept
/// from one that may be appended to.
pub(super) fn check_may_set(state: &State, ino: Ino, set: &SetAttr) -> Result<(), FsError> {
    let touch = SetAttr {
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    let forbidding = match *set == touch {
        true => InodeFlags::IMMUTABLE,
        false => PROTECTION,
    };
    refuse_any(state, ino, forbidding)
}

/// What a new node takes over from its directory.
pub(super) fn inherit_flags(node: &mut Node, dir: &Node) {
    let flags = dir.flags().intersection(INHERITED);
    node.set_flags(match node.kind {
        FileKind::Directory => flags,
        FileKind::Regular => flags.without(InodeFlags::DIRSYNC),
        _ => flags.intersection(InodeFlags::NODUMP.union(InodeFlags::NOATIME)),
    });
}
