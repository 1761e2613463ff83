//! Between the kernel's numbers and the words of the workspace.

use super::errno::Errno;
use tine_layer::store::SeekWhence;
use tine_workspace::{FallocateMode, RenameMode, XattrMode};

/// Preferred size of one read or write, in bytes (`st_blksize`). Programs take it as their buffer's
/// size, and every buffer costs one round trip to the daemon.
pub(super) const BLOCK_SIZE: u32 = 64 * 1024;

/// The low 12 bits of a mode.
pub(super) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// As renameat2(2): an exchange goes with nothing else.
pub(super) fn rename_mode(flags: u32) -> Result<RenameMode, Errno> {
    const WHITEOUT_NOREPLACE: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
    match flags {
        0 => Ok(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        libc::RENAME_WHITEOUT => Ok(RenameMode::LeaveDevice { replace: true }),
        WHITEOUT_NOREPLACE => Ok(RenameMode::LeaveDevice { replace: false }),
        _ => Err(Errno::EINVAL),
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

/// The reply to getxattr and listxattr: size 0 asks how long the value is, any other size is the
/// caller's buffer.
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
    use super::*;

    #[test]
    fn a_value_that_does_not_fit_is_erange() {
        assert!(matches!(
            xattr_answer(vec![0; 3], 0),
            Ok(XattrAnswer::Size(3))
        ));
        assert!(
            matches!(xattr_answer(vec![0; 3], 3), Ok(XattrAnswer::Data(data)) if data.len() == 3)
        );
        assert!(matches!(xattr_answer(vec![0; 3], 2), Err(Errno::ERANGE)));
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert_eq!(
            rename_mode(libc::RENAME_WHITEOUT | libc::RENAME_EXCHANGE),
            Err(Errno::EINVAL)
        );
        assert_eq!(
            rename_mode(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE),
            Err(Errno::EINVAL)
        );
        assert_eq!(
            fallocate_mode(libc::FALLOC_FL_COLLAPSE_RANGE),
            Err(Errno::EOPNOTSUPP)
        );
        assert_eq!(
            fallocate_mode(libc::FALLOC_FL_PUNCH_HOLE),
            Err(Errno::EOPNOTSUPP)
        );
        assert_eq!(xattr_mode(4), Err(Errno::EINVAL));
    }
}
