//! The file that a new mount is tried out with.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use tine_attr::{Attr, FileKind, Ino, Timestamp};

/// A file that only `Mount::start` knows of, in the root of every mount but in no listing: opening
/// it is how the kernel learns that there are no open requests, also where the fork has no file at
/// all. Its name is random, so that no program meets it. Requests for it are not counted.
#[derive(Clone)]
pub(super) struct PrimingFile {
    pub(super) name: String,
    uid: u32,
    gid: u32,
}

impl PrimingFile {
    /// Numbers of new nodes are counted up from the top bit: none will ever be this one.
    pub(super) const INO: Ino = Ino(u64::MAX);

    pub(super) fn new(uid: u32, gid: u32) -> PrimingFile {
        let random = RandomState::new().hash_one(std::process::id());
        PrimingFile {
            name: format!(".tine-priming-{random:016x}"),
            uid,
            gid,
        }
    }

    pub(super) fn is(&self, parent: Ino, name: &[u8]) -> bool {
        parent == Ino::ROOT && name == self.name.as_bytes()
    }

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
