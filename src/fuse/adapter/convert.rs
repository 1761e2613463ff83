//! Conversion between the types of `fuser` and those of the project.

use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo, Request, TimeOrNow};

use crate::convert::{BLOCK_SIZE, permissions};
use crate::errno::Errno;
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_workspace::{Caller, SetTime};

impl From<Errno> for fuser::Errno {
    fn from(errno: Errno) -> fuser::Errno {
        fuser::Errno::from_i32(errno.code())
    }
}

pub(super) fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

/// Returns the process that sent a request.
pub(super) fn caller(request: &Request) -> Caller {
    Caller {
        thread: request.pid(),
        ..Caller::new(request.uid(), request.gid())
    }
}

/// Returns the process that sent a request to create a file.
pub(super) fn maker(request: &Request, umask: u32) -> Caller {
    Caller {
        umask: permissions(umask),
        ..caller(request)
    }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.into(),
        mtime: attr.mtime.into(),
        ctime: attr.ctime.into(),
        crtime: SystemTime::UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

/// Attributes for a missing name that the kernel may cache.
///
/// Such an entry has inode number 0.
pub(super) const NEGATIVE_ATTR: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: SystemTime::UNIX_EPOCH,
    mtime: SystemTime::UNIX_EPOCH,
    ctime: SystemTime::UNIX_EPOCH,
    crtime: SystemTime::UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: BLOCK_SIZE,
    flags: 0,
};

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    }
}

/// Recovers the time that the kernel sent from fuser's `SystemTime`.
///
/// Before 1970, the kernel's nanoseconds count forwards from a negative second. `fuser` 0.18
/// (`system_time_from_time`) subtracts them together with the seconds. Taking both parts as they
/// are undoes that.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Timestamp {
            secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(error) => Timestamp {
            secs: 0i64.saturating_sub_unsigned(error.duration().as_secs()),
            nanos: error.duration().subsec_nanos(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// As `fuser` 0.18 does it.
    fn fuser_time(secs: i64, nanos: u32) -> SystemTime {
        if secs >= 0 {
            SystemTime::UNIX_EPOCH + Duration::new(secs as u64, nanos)
        } else {
            SystemTime::UNIX_EPOCH - Duration::new((-secs) as u64, nanos)
        }
    }

    #[test]
    fn times_come_through_as_the_kernel_sent_them() {
        for (secs, nanos) in [
            (0, 0),
            (5, 999_999_999),
            (-1, 0),
            (-2, 800_000_000),
            (4_294_967_296, 1),
        ] {
            assert_eq!(
                timestamp(fuser_time(secs, nanos)),
                Timestamp { secs, nanos }
            );
        }
    }
}
