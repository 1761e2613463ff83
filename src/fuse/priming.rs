//! The file that a new mount is tested with.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use tine_attr::{Attr, FileKind, Ino, Timestamp};

/// Hidden file in the root of a mount, used only while mounting.
///
/// It is in no listing, and its name is random, so that no program finds it. Opening it teaches the
/// kernel that there are no open requests, even if the fork has no file. Requests for it are not
/// counted.
#[derive(Clone)]
pub(super) struct PrimingFile {
    /// Name in the root directory.
    pub(super) name: String,
    /// Owner.
    uid: u32,
    /// Group.
    gid: u32,
}

impl PrimingFile {
    /// Inode number, which no other node can get.
    ///
    /// Numbers of new nodes count up from the top bit.
    pub(super) const INO: Ino = Ino(u64::MAX);

    /// Makes a file with a random name.
    pub(super) fn new(uid: u32, gid: u32) -> PrimingFile {
        let random = RandomState::new().hash_one(std::process::id());
        PrimingFile {
            name: format!(".tine-priming-{random:016x}"),
            uid,
            gid,
        }
    }

    /// Returns whether the name is that of the file.
    pub(super) fn is(&self, parent: Ino, name: &[u8]) -> bool {
        parent == Ino::ROOT && name == self.name.as_bytes()
    }

    /// Returns the attributes of the file.
    pub(super) fn attr(&self) -> Attr {
        Attr {
            ino: PrimingFile::INO,
            kind: FileKind::Regular,
            perm: 0o400,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
        }
    }
}
