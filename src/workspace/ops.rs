//! Arguments and results of file system operations.

use tine_attr::{FileKind, Ino, Timestamp};
use tine_path::EntryName;
use tine_sys::process::supplementary_groups;

/// Identity of the process that makes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// User ID, which owns new nodes and decides privileges.
    pub uid: u32,
    /// Group ID of new nodes, unless the directory decides it.
    pub gid: u32,
    /// Permission bits cleared in new nodes, unless a default ACL applies.
    pub umask: u16,
    /// Thread that waits for the answer; 0 if there is none. Its supplementary groups count.
    pub thread: u32,
}

impl Caller {
    /// Root, without a thread.
    pub const ROOT: Caller = Caller::new(0, 0);

    /// Returns a caller without umask and without supplementary groups.
    pub const fn new(uid: u32, gid: u32) -> Caller {
        Caller {
            uid,
            gid,
            umask: 0,
            thread: 0,
        }
    }

    /// Returns whether the caller is in the group.
    pub fn is_in_group(self, gid: u32) -> bool {
        // A thread that is gone gets no answer anyway.
        let further = || supplementary_groups(self.thread).unwrap_or_default();
        self.gid == gid || self.thread != 0 && further().contains(&gid)
    }

    /// Returns whether the caller keeps set-user-id bits when it writes.
    ///
    /// That is `CAP_FSETID`, which only root is taken to have.
    pub fn is_privileged(self) -> bool {
        self.uid == 0
    }
}

/// Time that setattr sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which the request is carried out.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes that setattr changes. `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Low 12 bits of the mode.
    pub perm: Option<u16>,
    /// User ID of the owner.
    pub uid: Option<u32>,
    /// Group ID.
    pub gid: Option<u32>,
    /// Size in bytes. Truncates or extends the content.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<SetTime>,
    /// Time of the last change of the content.
    pub mtime: Option<SetTime>,
}

/// Treatment of the target of a rename, as in `renameat2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces an existing target (flags 0).
    Replace,
    /// Fails if the target exists (`RENAME_NOREPLACE`).
    NoReplace,
    /// Exchanges source and target (`RENAME_EXCHANGE`).
    Exchange,
    /// Leaves a character device 0/0 at the old name (`RENAME_WHITEOUT`).
    ///
    /// An overlay file system above takes the device for a whiteout. Rename and device are one
    /// step.
    LeaveDevice {
        /// False with `RENAME_NOREPLACE`: an existing target is an error.
        replace: bool,
    },
}

/// Effect of fallocate on its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallocateMode {
    /// Allocates disk blocks (mode 0 or `FALLOC_FL_KEEP_SIZE`).
    Allocate {
        /// True if the size does not grow.
        keep_size: bool,
    },
    /// Frees the range (`FALLOC_FL_PUNCH_HOLE`). The size always stays.
    PunchHole,
    /// Zeroes the range (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange {
        /// True if the size does not grow.
        keep_size: bool,
    },
}

/// Treatment of an existing value by setxattr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces (flags 0).
    Set,
    /// Fails if the attribute exists (`XATTR_CREATE`).
    Create,
    /// Fails if the attribute does not exist (`XATTR_REPLACE`).
    Replace,
    /// Always fails: the two conditions exclude each other.
    CreateAndReplace,
}

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name in the directory.
    pub name: EntryName,
    /// Inode number.
    pub ino: Ino,
    /// File type.
    pub kind: FileKind,
    /// Position after this entry, from which a listing continues.
    ///
    /// Stable while entries come and go; below 2⁶³.
    pub cookie: u64,
    /// True for the main checkout's node, which changes without notice.
    pub is_carried: bool,
}

/// Figures of the host file system, as of `statvfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the three block counts, in bytes.
    pub block_size: u32,
    /// Total number of blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub blocks_free: u64,
    /// Number of free blocks that an unprivileged user may take.
    pub blocks_available: u64,
    /// Total number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub files_free: u64,
    /// Maximum length of a name, in bytes.
    pub name_max: u32,
}
