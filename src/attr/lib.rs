//! Inode numbers, times and attributes, as `stat(2)` knows them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// An inode number, as the kernel and programs see it.
///
/// Base nodes have the top bit clear. Nodes made in a fork have it set. 0 is never used, 1 is the
/// root directory and 2 the trash directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ino(pub u64);

impl Ino {
    /// Number of the root directory.
    pub const ROOT: Ino = Ino(1);
    /// Number of the trash directory.
    ///
    /// Operations move removed files there. No name in the view leads to it.
    pub const TRASH: Ino = Ino(2);
    /// Bit set in the number of every node made in a fork.
    pub const NEW_BIT: u64 = 1 << 63;

    /// Returns true if a fork's counter assigned the number.
    ///
    /// The number of a base node is a keyed hash of its path.
    pub fn is_new(self) -> bool {
        self.0 & Ino::NEW_BIT != 0
    }
}

/// Hasher for tables keyed by inode number.
///
/// An inode number is a keyed hash of a path or a counter, so an attacker cannot choose numbers
/// that collide.
pub type InoHash = foldhash::fast::RandomState;

/// Table keyed by inode number.
pub type InoMap<V> = HashMap<Ino, V, InoHash>;

/// File type of a node (`S_IFMT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// Regular file (`S_IFREG`).
    Regular,
    /// Directory (`S_IFDIR`).
    Directory,
    /// Symbolic link (`S_IFLNK`).
    Symlink,
    /// Named pipe (`S_IFIFO`).
    Fifo,
    /// Unix domain socket (`S_IFSOCK`).
    Socket,
    /// Character device (`S_IFCHR`).
    CharDevice,
    /// Block device (`S_IFBLK`).
    BlockDevice,
}

impl FileKind {
    /// Returns the file type in the `S_IFMT` bits of `mode`.
    ///
    /// No bits at all mean a regular file, as in mknod(2). `None` if the bits name no known type.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileKind::Regular,
            libc::S_IFDIR => FileKind::Directory,
            libc::S_IFLNK => FileKind::Symlink,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => return None,
        })
    }
}

/// Inode flags that `chattr` sets: the supported bits of `FS_IOC_SETFLAGS` (`linux/fs.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InodeFlags(u32);

impl InodeFlags {
    /// Every change reaches the disk before it is acknowledged (`S`).
    pub const SYNC: InodeFlags = InodeFlags(0x0000_0008);
    /// The node does not change (`i`).
    pub const IMMUTABLE: InodeFlags = InodeFlags(0x0000_0010);
    /// Data is only added at the end, never changed or removed (`a`).
    pub const APPEND: InodeFlags = InodeFlags(0x0000_0020);
    /// Backups leave the file out (`d`).
    pub const NODUMP: InodeFlags = InodeFlags(0x0000_0040);
    /// Reads do not change the access time (`A`).
    pub const NOATIME: InodeFlags = InodeFlags(0x0000_0080);
    /// `SYNC` for the names in a directory (`D`).
    pub const DIRSYNC: InodeFlags = InodeFlags(0x0001_0000);

    const ALL: [InodeFlags; 6] = [
        InodeFlags::SYNC,
        InodeFlags::IMMUTABLE,
        InodeFlags::APPEND,
        InodeFlags::NODUMP,
        InodeFlags::NOATIME,
        InodeFlags::DIRSYNC,
    ];

    /// Returns the flags in `bits`.
    ///
    /// `None` if an unsupported bit is set.
    pub fn from_bits(bits: u32) -> Option<InodeFlags> {
        let known = InodeFlags::ALL.iter().fold(0, |known, flag| known | flag.0);
        (bits & !known == 0).then_some(InodeFlags(bits))
    }

    /// Returns the bits of `FS_IOC_GETFLAGS`.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the flags that are set in `self` or `other`.
    #[must_use]
    pub const fn union(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 | other.0)
    }

    /// Returns the flags of `self` that are not set in `other`.
    #[must_use]
    pub const fn without(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & !other.0)
    }

    /// Returns the flags that are set in both `self` and `other`.
    #[must_use]
    pub const fn intersection(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & other.0)
    }

    /// Returns true if any flag of `other` is set.
    pub const fn intersects(self, other: InodeFlags) -> bool {
        self.0 & other.0 != 0
    }
}

/// Point in time, relative to 1970-01-01 00:00 UTC.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Seconds since 1970; negative before.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 10⁹.
    pub nanos: u32,
}

impl Timestamp {
    /// Returns the current time of the system clock.
    pub fn now() -> Timestamp {
        SystemTime::now().into()
    }

    /// Returns the time one nanosecond later.
    #[must_use]
    pub fn next(self) -> Timestamp {
        match self.nanos {
            0..999_999_999 => Timestamp {
                nanos: self.nanos + 1,
                ..self
            },
            _ => Timestamp::from_secs(self.secs.saturating_add(1)),
        }
    }

    /// Converts a time of `stat(2)`: seconds since 1970, and nanoseconds within the second.
    pub fn of_stat(secs: i64, nanos: i64) -> Timestamp {
        Timestamp {
            secs,
            nanos: u32::try_from(nanos).unwrap_or(0),
        }
    }

    /// Creates the time of a whole second.
    pub const fn from_secs(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp {
                secs: after.as_secs() as i64,
                nanos: after.subsec_nanos(),
            },
            Err(error) => {
                let before = error.duration();
                let (secs, nanos) = (before.as_secs() as i64, before.subsec_nanos());
                match nanos {
                    0 => Timestamp {
                        secs: -secs,
                        nanos: 0,
                    },
                    _ => Timestamp {
                        secs: -secs - 1,
                        nanos: 1_000_000_000 - nanos,
                    },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> SystemTime {
        let nanos = Duration::from_nanos(u64::from(time.nanos));
        if time.secs >= 0 {
            UNIX_EPOCH + Duration::from_secs(time.secs as u64) + nanos
        } else {
            UNIX_EPOCH - Duration::from_secs(time.secs.unsigned_abs()) + nanos
        }
    }
}

/// Attributes of one node, as `stat(2)` returns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number (`st_ino`).
    pub ino: Ino,
    /// File type: the `S_IFMT` bits of `st_mode`.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky: the low 12 bits of `st_mode`.
    pub perm: u16,
    /// Number of hard links (`st_nlink`).
    pub nlink: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Device number of a device node, in the kernel's encoding; 0 otherwise.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last change of the contents.
    pub mtime: Timestamp,
    /// Time of the last change of the attributes or contents.
    pub ctime: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_survive_the_round_trip() {
        for time in [
            Timestamp {
                secs: -1,
                nanos: 999_999_999,
            },
            Timestamp { secs: -5, nanos: 0 },
            Timestamp { secs: 0, nanos: 1 },
            Timestamp {
                secs: 4_294_967_296,
                nanos: 5,
            },
        ] {
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }
}
