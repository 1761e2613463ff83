//! Inode numbers, times and attributes, as `stat(2)` knows them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// An inode number, as the kernel and programs see it.
///
/// Base nodes have the top bit clear, nodes made in a fork have it set; 0 is never used, 1 is the
/// root and 2 the attic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ino(pub u64);

impl Ino {
    pub const ROOT: Ino = Ino(1);
    /// The directory that keeps what operations took away; no name leads to it.
    pub const TRASH: Ino = Ino(2);
    /// Set in the number of every node that was made in a fork.
    pub const NEW_BIT: u64 = 1 << 63;

    /// Whether the number was given by a fork's counter, not by a base path.
    pub fn is_new(self) -> bool {
        self.0 & Ino::NEW_BIT != 0
    }
}

/// The hasher of tables that are keyed by inode number. An inode number is a keyed hash of a path
/// or a counter, so an attacker cannot choose numbers that collide.
pub type InoHash = foldhash::fast::RandomState;

/// A table by inode number.
pub type InoMap<V> = HashMap<Ino, V, InoHash>;

/// What kind of node it is (`S_IFMT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

impl FileKind {
    /// The kind that `mode`'s `S_IFMT` bits name; no bits at all mean a regular file, as in
    /// mknod(2).
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

/// What `chattr` sets, as far as it means something here: bits of `FS_IOC_SETFLAGS` (`linux/fs.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InodeFlags(u32);

impl InodeFlags {
    /// Every change is on the disk before it is acknowledged (`S`).
    pub const SYNC: InodeFlags = InodeFlags(0x0000_0008);
    /// Nothing about the node changes (`i`).
    pub const IMMUTABLE: InodeFlags = InodeFlags(0x0000_0010);
    /// Nothing is taken from it, but something may be added at its end (`a`).
    pub const APPEND: InodeFlags = InodeFlags(0x0000_0020);
    /// Backups leave it out (`d`).
    pub const NODUMP: InodeFlags = InodeFlags(0x0000_0040);
    /// Reading does not change its access time (`A`).
    pub const NOATIME: InodeFlags = InodeFlags(0x0000_0080);
    /// As `SYNC`, for names in a directory (`D`).
    pub const DIRSYNC: InodeFlags = InodeFlags(0x0001_0000);

    const ALL: [InodeFlags; 6] = [
        InodeFlags::SYNC,
        InodeFlags::IMMUTABLE,
        InodeFlags::APPEND,
        InodeFlags::NODUMP,
        InodeFlags::NOATIME,
        InodeFlags::DIRSYNC,
    ];

    /// `None` where there are bits without a meaning here.
    pub fn from_bits(bits: u32) -> Option<InodeFlags> {
        let known = InodeFlags::ALL.iter().fold(0, |known, flag| known | flag.0);
        (bits & !known == 0).then_some(InodeFlags(bits))
    }

    pub const fn bits(self) -> u32 {
        self.0
    }

    #[must_use]
    pub const fn union(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & !other.0)
    }

    #[must_use]
    pub const fn intersection(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & other.0)
    }

    /// Whether any of `other` is set.
    pub const fn intersects(self, other: InodeFlags) -> bool {
        self.0 & other.0 != 0
    }
}

/// A point in time: seconds since 1970 (before it: negative) and nanoseconds below 10⁹ counted
/// forwards.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    pub secs: i64,
    pub nanos: u32,
}

impl Timestamp {
    /// The current time of the system clock.
    pub fn now() -> Timestamp {
        SystemTime::now().into()
    }

    /// The nanosecond after this one.
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

    /// A whole second.
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

/// Everything `stat(2)` answers for one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    pub ino: Ino,
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky: the low 12 bits of `st_mode`.
    pub perm: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of a device node, in the kernel's encoding; 0 otherwise.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
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
