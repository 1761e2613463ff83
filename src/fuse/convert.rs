//! Between the words of `fuser` and those of the workspace.

use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo, RenameFlags, Request, TimeOrNow};

use crate::attr::{Attr, FileKind, Ino, Timestamp};
use crate::layer::store::SeekWhence;
use crate::workspace::{Caller, FallocateMode, RenameMode, SetTime, XattrMode};

/// Preferred size of one read or write, in bytes (`st_blksize`). Programs take it as their buffer's size, and every
/// buffer costs one round trip to the daemon.
const BLOCK_SIZE: u32 = 64 * 1024;

pub(super) fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

pub(super) fn caller(request: &Request) -> Caller {
    Caller {
        thread: request.pid(),
        ..Caller::new(request.uid(), request.gid())
    }
}

/// Who asks, unless that is somebody who keeps set-id bits.
pub(super) fn unprivileged(request: &Request) -> Option<Caller> {
    Some(caller(request)).filter(|caller| !caller.is_privileged())
}

/// Who makes a node.
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

/// The answer "nothing is there, and you may remember that": an entry with inode number 0.
pub(super) fn negative_attr() -> FileAttr {
    FileAttr {
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
    }
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    }
}

/// The time that the kernel sent, before `fuser` made a `SystemTime` of it.
///
/// Before 1970 the kernel's nanoseconds count forwards from a negative second; `fuser` 0.18 (`system_time_from_time`)
/// subtracts them with the seconds. Undone here by taking both parts back as they were.
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

/// The low 12 bits of a mode.
pub(super) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// As renameat2(2): an exchange goes with nothing else.
pub(super) fn rename_mode(flags: RenameFlags) -> Result<RenameMode, Errno> {
    if flags.is_empty() {
        Ok(RenameMode::Replace)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Ok(RenameMode::NoReplace)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Ok(RenameMode::Exchange)
    } else if flags == RenameFlags::RENAME_WHITEOUT {
        Ok(RenameMode::LeaveDevice { replace: true })
    } else if flags == RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_NOREPLACE {
        Ok(RenameMode::LeaveDevice { replace: false })
    } else {
        Err(Errno::EINVAL)
    }
}

pub(super) fn fallocate_mode(mode: i32) -> Result<FallocateMode, Errno> {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    match mode {
        0 => Ok(FallocateMode::Allocate { keep_size: false }),
        libc::FALLOC_FL_KEEP_SIZE => Ok(FallocateMode::Allocate { keep_size: true }),
        PUNCH => Ok(FallocateMode::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Ok(FallocateMode::ZeroRange { keep_size: false }),
        ZERO_KEEP => Ok(FallocateMode::ZeroRange { keep_size: true }),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// The kernel answers the other kinds of lseek itself.
pub(super) fn seek_whence(whence: i32) -> Result<SeekWhence, Errno> {
    match whence {
        libc::SEEK_DATA => Ok(SeekWhence::Data),
        libc::SEEK_HOLE => Ok(SeekWhence::Hole),
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn xattr_mode(flags: i32) -> Result<XattrMode, Errno> {
    const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
    match flags {
        0 => Ok(XattrMode::Set),
        BOTH => Ok(XattrMode::CreateAndReplace),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Errno::EINVAL),
    }
}

/// The reply to getxattr and listxattr: size 0 asks how long the value is, any other size is the caller's buffer.
pub(super) enum XattrAnswer {
    Size(u32),
    Data(Vec<u8>),
}

pub(super) fn xattr_answer(value: Vec<u8>, buffer_size: u32) -> Result<XattrAnswer, Errno> {
    let len = u32::try_from(value.len()).map_err(|_| Errno::E2BIG)?;
    match buffer_size {
        0 => Ok(XattrAnswer::Size(len)),
        size if len > size => Err(Errno::ERANGE),
        _ => Ok(XattrAnswer::Data(value)),
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
            assert_eq!(timestamp(fuser_time(secs, nanos)), Timestamp { secs, nanos });
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_erange() {
        assert!(matches!(xattr_answer(vec![0; 3], 0), Ok(XattrAnswer::Size(3))));
        assert!(matches!(xattr_answer(vec![0; 3], 3), Ok(XattrAnswer::Data(data)) if data.len() == 3));
        assert!(matches!(xattr_answer(vec![0; 3], 2), Err(Errno::ERANGE)));
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert_eq!(
            rename_mode(RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_EXCHANGE),
            Err(Errno::EINVAL)
        );
        assert_eq!(
            rename_mode(RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE),
            Err(Errno::EINVAL)
        );
        assert_eq!(
            fallocate_mode(libc::FALLOC_FL_COLLAPSE_RANGE),
            Err(Errno::EOPNOTSUPP)
        );
        assert_eq!(fallocate_mode(libc::FALLOC_FL_PUNCH_HOLE), Err(Errno::EOPNOTSUPP));
        assert_eq!(xattr_mode(4), Err(Errno::EINVAL));
    }
}
