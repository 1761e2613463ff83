//! The file that a new mount is tried out with.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::os::unix::ffi::OsStrExt;

use fuser::{FileAttr, FileType, INodeNo};

use super::convert;

/// A file that only `Mount::start` knows of, in the root of every mount but in no listing: opening it is how the kernel
/// learns that there are no open requests, also where the fork has no file at all. Its name is random, so that no
/// program meets it. Requests for it are not counted.
#[derive(Clone)]
pub(super) struct PrimingFile {
    pub(super) name: String,
    uid: u32,
    gid: u32,
}

impl PrimingFile {
    /// Numbers of new nodes are counted up from the top bit: none will ever be this one.
    pub(super) const INO: INodeNo = INodeNo(u64::MAX);

    pub(super) fn new(uid: u32, gid: u32) -> PrimingFile {
        let random = RandomState::new().hash_one(std::process::id());
        PrimingFile {
            name: format!(".tine-priming-{random:016x}"),
            uid,
            gid,
        }
    }

    pub(super) fn is(&self, parent: INodeNo, name: &OsStr) -> bool {
        parent == INodeNo::ROOT && name.as_bytes() == self.name.as_bytes()
    }

    pub(super) fn attr(&self) -> FileAttr {
        FileAttr {
            ino: PrimingFile::INO,
            kind: FileType::RegularFile,
            perm: 0o400,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            ..convert::negative_attr()
        }
    }
}
