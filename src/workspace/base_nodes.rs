//! Base of a fork, with the attributes that its nodes share.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::base_times::{BaseTimes, TimesId};
use super::error::FsError;
use super::inodes::BaseRef;
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_git::{Base, BaseDir, GitError, TreeEntryKind};
use tine_layer::{Content, Node, Origin, Xattrs};

/// Attributes that all base nodes of a fork share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseAttrs {
    /// Owner of every base node.
    pub uid: u32,
    /// Group of every base node.
    pub gid: u32,
    /// Permission bits that are cleared in 0666 and 0777.
    pub umask: u16,
    /// Access and modification time of base nodes that are in no table.
    ///
    /// It is the time at which the fork, or the fork that it began as, was made.
    pub time: Timestamp,
    /// Change time of every base node.
    ///
    /// `None` in records of earlier versions, where it is `time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Timestamp>,
    /// Table of nodes that are older than `time`, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<TimesId>,
}

/// Age of base nodes when the fork is made, in seconds.
///
/// Git compares times by the second. So a change within the second of the fork's making still gets
/// another ctime than the base node.
const CHANGED_BEFORE_SECS: i64 = 2;

impl BaseAttrs {
    /// Returns the attributes of a fork that is made now.
    pub fn now(uid: u32, gid: u32, umask: u16) -> BaseAttrs {
        let time = Timestamp::now();
        BaseAttrs {
            uid,
            gid,
            umask,
            time,
            changed: Some(Timestamp {
                secs: time.secs.saturating_sub(CHANGED_BEFORE_SECS),
                ..time
            }),
            times: None,
        }
    }

    /// Returns the ctime of every base node. Changed nodes have a later one.
    pub fn change_time(&self) -> Timestamp {
        self.changed.unwrap_or(self.time)
    }

    /// Returns the permission bits of a base node.
    pub fn perm(&self, kind: TreeEntryKind) -> u16 {
        match kind {
            TreeEntryKind::File => 0o666 & !self.umask,
            TreeEntryKind::Executable | TreeEntryKind::Directory | TreeEntryKind::Submodule => {
                0o777 & !self.umask
            }
            TreeEntryKind::Symlink => 0o777,
        }
    }
}

/// Returns the base's root node, for a layer to hold.
///
/// # Errors
/// [`GitError`] if the root directory cannot be read from the repository.
pub fn base_root(
    base: Arc<Base>,
    attrs: BaseAttrs,
    times: Option<Arc<BaseTimes>>,
) -> Result<Node, GitError> {
    let nodes = BaseNodes { base, attrs, times };
    Ok(base_node(&nodes.root_attr()?, nodes.root_origin()))
}

/// Nodes of a base, as a fork without layers shows them. Immutable.
pub(super) struct BaseNodes {
    pub base: Arc<Base>,
    pub attrs: BaseAttrs,
    pub times: Option<Arc<BaseTimes>>,
}

impl BaseNodes {
    fn modification_time(&self, ino: Ino) -> Timestamp {
        let known = self.times.as_ref().and_then(|times| times.get(ino));
        known.unwrap_or(self.attrs.time)
    }

    /// Returns the root directory's attributes.
    pub(crate) fn root_attr(&self) -> Result<Attr, GitError> {
        let root = self.base.root()?;
        Ok(self.directory_attr(Ino::ROOT, &root))
    }

    pub(crate) fn root_origin(&self) -> Origin {
        Origin {
            path: Default::default(),
            kind: TreeEntryKind::Directory,
            id: self.base.tree_id(),
        }
    }

    /// Returns the attributes of an untouched base node.
    pub(crate) fn attr(&self, node: &BaseRef) -> Result<Attr, FsError> {
        let entry = node.entry();
        match entry.kind {
            TreeEntryKind::Directory => {
                let dir = self.base.dir(&node.path(), entry.id)?;
                Ok(self.directory_attr(entry.ino, &dir))
            }
            kind => {
                let size = match kind {
                    TreeEntryKind::Submodule => 0,
                    _ => self.base.size(node.dir(), node.index())?,
                };
                Ok(Attr {
                    ino: entry.ino,
                    kind: file_kind(kind),
                    perm: self.attrs.perm(kind),
                    nlink: if kind == TreeEntryKind::Submodule {
                        2
                    } else {
                        1
                    },
                    uid: self.attrs.uid,
                    gid: self.attrs.gid,
                    rdev: 0,
                    size,
                    blocks: if kind == TreeEntryKind::Symlink {
                        0
                    } else {
                        blocks_of(size)
                    },
                    atime: self.modification_time(entry.ino),
                    mtime: self.modification_time(entry.ino),
                    ctime: self.attrs.change_time(),
                })
            }
        }
    }

    fn directory_attr(&self, ino: Ino, dir: &BaseDir) -> Attr {
        Attr {
            ino,
            kind: FileKind::Directory,
            perm: self.attrs.perm(TreeEntryKind::Directory),
            nlink: directory_links(dir),
            uid: self.attrs.uid,
            gid: self.attrs.gid,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: self.modification_time(ino),
            mtime: self.modification_time(ino),
            ctime: self.attrs.change_time(),
        }
    }
}

/// Returns a base node as a record that a layer can hold.
pub(super) fn base_node(attr: &Attr, origin: Origin) -> Node {
    Node {
        kind: attr.kind,
        perm: attr.perm,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        rdev: 0,
        size: attr.size,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        content: match attr.kind {
            FileKind::Regular | FileKind::Symlink => Content::Base,
            _ => Content::Empty,
        },
        origin: Some(Box::new(origin)),
        xattrs: Xattrs::new(),
    }
}

pub(super) fn file_kind(kind: TreeEntryKind) -> FileKind {
    match kind {
        TreeEntryKind::File | TreeEntryKind::Executable => FileKind::Regular,
        TreeEntryKind::Symlink => FileKind::Symlink,
        TreeEntryKind::Directory | TreeEntryKind::Submodule => FileKind::Directory,
    }
}

/// Returns the number of 512-byte blocks, in multiples of 4 KiB.
pub(super) fn blocks_of(size: u64) -> u64 {
    size.div_ceil(4096).saturating_mul(8)
}

/// Returns the link count of a base directory: 2, and one per subdirectory.
fn directory_links(dir: &BaseDir) -> u32 {
    let subdirectories = dir
        .entries
        .iter()
        .filter(|entry| file_kind(entry.kind) == FileKind::Directory)
        .count();
    u32::try_from(subdirectories)
        .unwrap_or(u32::MAX)
        .saturating_add(2)
}
