//! Arguments and answers of file system operations.

use tine_attr::{FileKind, Ino, Timestamp};
use tine_path::EntryName;
use tine_sys::process::supplementary_groups;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits that a new node lacks, unless its directory has a default ACL.
    pub umask: u16,
    /// The thread that waits for the answer, whose further groups count; 0 where there is none.
    pub thread: u32,
}

impl Caller {
    pub const ROOT: Caller = Caller::new(0, 0);

    /// Without a umask, and in no further group.
    pub const fn new(uid: u32, gid: u32) -> Caller {
        Caller {
            uid,
            gid,
            umask: 0,
            thread: 0,
        }
    }

    /// Whether the caller is in the group.
    pub fn is_in_group(self, gid: u32) -> bool {
        // A thread that has gone meanwhile gets no answer anyway.
        let further = || supplementary_groups(self.thread).unwrap_or_default();
        self.gid == gid || self.thread != 0 && further().contains(&gid)
    }

    /// Whether the caller keeps set-user-id bits when writing (`CAP_FSETID`, taken to be root's).
    pub fn is_privileged(self) -> bool {
        self.uid == 0
    }
}

/// A time to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Timestamp),
}

/// Attributes to be set; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// The low 12 bits.
    pub perm: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

/// How a rename treats its target (`renameat2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    Replace,
    /// `RENAME_NOREPLACE`
    NoReplace,
    /// `RENAME_EXCHANGE`
    Exchange,
    /// `RENAME_WHITEOUT`, with `RENAME_NOREPLACE` or without: a character device 0/0 takes the old
    /// name, in the same step. To an overlay file system above it says that nothing is there.
    LeaveDevice {
        replace: bool,
    },
}

/// What fallocate does to its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallocateMode {
    /// Mode 0 (the size grows) or `FALLOC_FL_KEEP_SIZE`.
    Allocate { keep_size: bool },
    /// `FALLOC_FL_PUNCH_HOLE`, which always keeps the size.
    PunchHole,
    /// `FALLOC_FL_ZERO_RANGE`.
    ZeroRange { keep_size: bool },
}

/// How setxattr treats an existing value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    Set,
    /// `XATTR_CREATE`
    Create,
    /// `XATTR_REPLACE`
    Replace,
    /// Both: one of the two conditions is never met.
    CreateAndReplace,
}

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub name: EntryName,
    pub ino: Ino,
    pub kind: FileKind,
    /// Where a listing that ends after this entry goes on. Stable while entries come and go; below
    /// 2⁶³.
    pub cookie: u64,
    /// Whether it is the main checkout's, where it may change without anybody telling.
    pub is_carried: bool,
}

/// Figures of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes.
    pub block_size: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    /// Bytes.
    pub name_max: u32,
}
