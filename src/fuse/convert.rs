//! Conversion of the kernel's numbers to types of the workspace.

use super::errno::Errno;
use tine_layer::contents::SeekWhence;
use tine_workspace::{FallocateMode, RenameMode, XattrMode};

/// Preferred size of a read or write in bytes (`st_blksize`).
///
/// Programs use it as their buffer size, and each buffer costs a round trip to the daemon.
pub(super) const BLOCK_SIZE: u32 = 64 * 1024;

/// Returns the permission bits: the low 12 bits of a mode.
pub(super) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// Converts the flags of renameat2(2).
///
/// An exchange excludes all other flags.
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

/// Converts the mode of fallocate(2).
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

/// Converts the whence of lseek(2) for data and holes.
///
/// The kernel answers the other kinds itself.
pub(super) fn seek_whence(whence: i32) -> Result<SeekWhence, Errno> {
    match whence {
        libc::SEEK_DATA => Ok(SeekWhence::Data),
        libc::SEEK_HOLE => Ok(SeekWhence::Hole),
        _ => Err(Errno::EINVAL),
    }
}

/// Converts the flags of setxattr(2).
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

/// Reply to getxattr and listxattr.
pub(super) enum XattrAnswer {
    /// Size of the value in bytes, if the buffer size is 0.
    Size(u32),
    /// The value, which fits in the caller's buffer.
    Data(Vec<u8>),
}

/// Makes the reply with `value` for a buffer of `buffer_size` bytes.
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
