//! Requests of `chattr` and `lsattr`: `FS_IOC_GETFLAGS` and similar.
//!
//! The kernel answers other requests itself, or they have no meaning here.

use super::errno::Errno;
use tine_attr::InodeFlags;

/// `FS_IOC_GETFLAGS`. Its type is `long`, but the kernel passes 32 bits.
const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`, with 32 bits as well.
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`.
const GET_EXTENDED: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`.
const SET_EXTENDED: u32 = 0x401c_5820;

/// Size in bytes of `struct fsxattr`, which begins with the flags.
const EXTENDED_LEN: usize = 28;
/// Bytes of `fsx_nextents`, which setting ignores.
const EXTENTS: std::ops::Range<usize> = 8..12;

/// `FS_XFLAG_*` bit for each flag that has one.
const EXTENDED_FLAGS: [(u32, InodeFlags); 5] = [
    (0x08, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
];

/// Decoded request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ioctl {
    /// Read the flags.
    GetFlags,
    /// Replace the flags.
    SetFlags(InodeFlags),
    /// Read the flags as `struct fsxattr`.
    GetExtended,
    /// Replace all flags that `struct fsxattr` can hold.
    SetExtended(InodeFlags),
}

/// Decodes a request.
///
/// `EOPNOTSUPP` for unknown flags, `ENOTTY` for an unknown command.
pub(super) fn decode(command: u32, data: &[u8]) -> Result<Ioctl, Errno> {
    let bits = || {
        let bits = data.first_chunk::<4>().ok_or(Errno::EINVAL)?;
        Ok::<u32, Errno>(u32::from_ne_bytes(*bits))
    };
    match command {
        GET_FLAGS => Ok(Ioctl::GetFlags),
        SET_FLAGS => {
            let flags = InodeFlags::from_bits(bits()?).ok_or(Errno::EOPNOTSUPP)?;
            Ok(Ioctl::SetFlags(flags))
        }
        GET_EXTENDED => Ok(Ioctl::GetExtended),
        SET_EXTENDED => {
            let mut rest = *data.first_chunk::<EXTENDED_LEN>().ok_or(Errno::EINVAL)?;
            rest[..4].fill(0);
            rest[EXTENTS].fill(0);
            let known = EXTENDED_FLAGS.iter().fold(0, |known, (bit, _)| known | bit);
            let bits = bits()?;
            // Extent sizes and projects only concern file systems on disks.
            if rest != [0; EXTENDED_LEN] || bits & !known != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            let set = EXTENDED_FLAGS.iter().filter(|(bit, _)| bits & bit != 0);
            Ok(Ioctl::SetExtended(
                set.fold(InodeFlags::default(), |flags, (_, flag)| flags.union(*flag)),
            ))
        }
        _ => Err(Errno::ENOTTY),
    }
}

/// Encodes the reply to [`Ioctl::GetFlags`].
pub(super) fn flags(flags: InodeFlags) -> Vec<u8> {
    flags.bits().to_ne_bytes().to_vec()
}

/// Encodes the reply to [`Ioctl::GetExtended`].
pub(super) fn extended(flags: InodeFlags) -> Vec<u8> {
    let set = EXTENDED_FLAGS
        .iter()
        .filter(|(_, flag)| flags.intersects(*flag));
    let bits = set.fold(0u32, |bits, (bit, _)| bits | bit);
    let mut answer = bits.to_ne_bytes().to_vec();
    answer.resize(EXTENDED_LEN, 0);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_carry_the_same_flags() {
        let both = InodeFlags::IMMUTABLE.union(InodeFlags::NODUMP);
        assert_eq!(decode(SET_FLAGS, &flags(both)), Ok(Ioctl::SetFlags(both)));
        assert_eq!(
            decode(SET_EXTENDED, &extended(both)),
            Ok(Ioctl::SetExtended(both))
        );
    }

    #[test]
    fn what_is_no_flag_here_is_refused() {
        let compressed = 0x4u32.to_ne_bytes();
        assert_eq!(decode(SET_FLAGS, &compressed), Err(Errno::EOPNOTSUPP));
        assert_eq!(decode(SET_FLAGS, &[0; 3]), Err(Errno::EINVAL));
        let mut of_project = extended(InodeFlags::NODUMP);
        of_project[12] = 7;
        assert_eq!(decode(SET_EXTENDED, &of_project), Err(Errno::EOPNOTSUPP));
        assert_eq!(decode(SET_EXTENDED, &[0; 27]), Err(Errno::EINVAL));
        let mut of_extents = extended(InodeFlags::NODUMP);
        of_extents[8] = 7;
        assert_eq!(
            decode(SET_EXTENDED, &of_extents),
            Ok(Ioctl::SetExtended(InodeFlags::NODUMP))
        );
        assert_eq!(decode(0x5401, &[]), Err(Errno::ENOTTY));
    }
}
