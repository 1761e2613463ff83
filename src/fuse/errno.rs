//! Mapping of failures to errno values.

use std::io;

use tine_git::GitError;
use tine_layer::LayerError;
use tine_workspace::FsError;

/// Error number that a program gets in `errno` (errno(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Errno(i32);

impl Errno {
    /// Returns the number, which is positive.
    pub(super) fn code(self) -> i32 {
        self.0
    }
}

macro_rules! errnos {
    ($($name:ident)+) => {
        impl Errno {
            $(pub(super) const $name: Errno = Errno(libc::$name);)+
        }
    };
}

errnos! {
    E2BIG EACCES EAGAIN EBUSY EDQUOT EEXIST EFBIG EINVAL EIO EISDIR ELOOP EMLINK ENAMETOOLONG ENODATA ENOENT ENOMEM ENOSPC
    ENOSYS ENOTDIR ENOTEMPTY ENOTTY ENXIO EOPNOTSUPP EOVERFLOW EPERM ERANGE EROFS ESTALE EXDEV
}

/// Returns the errno of a failed call on the host.
///
/// The mount shows the file itself.
pub(super) fn of_host(error: &io::Error) -> Errno {
    match error.raw_os_error() {
        // The kernel would then refuse this kind of request for all files of the mount.
        None | Some(libc::ENOSYS) => Errno::EIO,
        Some(code) => Errno(code),
    }
}

/// Returns the errno for a failed file operation.
pub(super) fn of(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::ENOENT,
        FsError::Exists => Errno::EEXIST,
        FsError::NotADirectory => Errno::ENOTDIR,
        FsError::IsADirectory => Errno::EISDIR,
        FsError::NotEmpty => Errno::ENOTEMPTY,
        FsError::NotPermitted => Errno::EPERM,
        FsError::AccessDenied => Errno::EACCES,
        FsError::Invalid => Errno::EINVAL,
        FsError::NameTooLong => Errno::ENAMETOOLONG,
        FsError::TooLarge => Errno::EFBIG,
        FsError::TooManyLinks => Errno::EMLINK,
        FsError::SymlinkLoop => Errno::ELOOP,
        FsError::NoAttribute => Errno::ENODATA,
        FsError::Range => Errno::ERANGE,
        FsError::ValueTooLong => Errno::E2BIG,
        FsError::AttributesFull => Errno::ENOSPC,
        FsError::NoSuchOffset => Errno::ENXIO,
        // Not ENOSYS: the kernel would then refuse this kind of request for all files of the mount.
        FsError::Unsupported => Errno::EOPNOTSUPP,
        FsError::Stale => Errno::ESTALE,
        FsError::NoSpace(cause) => match of_layer(cause) {
            Errno::EDQUOT => Errno::EDQUOT,
            _ => Errno::ENOSPC,
        },
        FsError::Layer(cause) => of_layer(cause),
        FsError::Base(cause) => of_git(cause),
        FsError::Carried(cause) => of_io(cause),
    }
}

/// Returns the errno for a failure of a layer.
fn of_layer(error: &LayerError) -> Errno {
    match error {
        LayerError::Io { source, .. } => of_io(source),
        LayerError::Corrupt { .. } => Errno::EIO,
        LayerError::NewerFormat { .. } => Errno::EIO,
        LayerError::Locked { .. } => Errno::EIO,
        LayerError::Unsealed { .. } => Errno::EIO,
        LayerError::Frozen { .. } => Errno::EROFS,
        LayerError::Poisoned { .. } => Errno::EIO,
        LayerError::Interrupted { .. } => Errno::EROFS,
    }
}

/// Returns the errno for a failure to read the base.
///
/// A program can act on few of them. Defects of the repository are EIO and go to the log.
fn of_git(error: &GitError) -> Errno {
    match error {
        GitError::Io { source, .. } => of_io(source),
        GitError::NotARepository(_)
        | GitError::UnsupportedRepository { .. }
        | GitError::UntrustedRepository { .. }
        | GitError::NestedRepository(_)
        | GitError::NoWorktreeConfig
        | GitError::UnknownRevision(_)
        | GitError::BranchCheckedOut { .. }
        | GitError::DanglingAlias { .. }
        | GitError::AliasLoop { .. }
        | GitError::IsAlias { .. }
        | GitError::HasAlias { .. }
        | GitError::BranchExists(_)
        | GitError::InvalidBranchName(_)
        | GitError::MissingObject { .. }
        | GitError::CorruptObject { .. }
        | GitError::HostileTree { .. }
        | GitError::HostilePath { .. }
        | GitError::TooManyFiles { .. }
        | GitError::RefMoved { .. }
        | GitError::CheckoutInTheWay { .. }
        | GitError::CheckoutHalfMoved { .. }
        | GitError::UntrackedInTheWay { .. }
        | GitError::IndexLocked { .. }
        | GitError::RefLocked { .. }
        | GitError::UnrelatedHistories
        | GitError::BadPatch { .. }
        | GitError::NoIdentity(_)
        | GitError::NotAMailbox { .. }
        | GitError::GitTooOld { .. }
        | GitError::GitMissing(_)
        | GitError::GitFailed { .. }
        | GitError::DamagedHead { .. }
        | GitError::DamagedRef { .. }
        | GitError::TakesLong
        | GitError::NoSuchRemote { .. }
        | GitError::NoSuchState { .. }
        | GitError::RemoteMoved { .. }
        | GitError::RemoteRefused { .. }
        | GitError::RemoteDenied { .. }
        | GitError::RemoteUnreachable { .. }
        | GitError::PushHook { .. }
        | GitError::UnreadableContent { .. }
        | GitError::Library { .. } => Errno::EIO,
    }
}

/// Returns the errno for an I/O error of the host.
///
/// It passes on only those numbers that mean the same to a program in the mount. ENOENT of a file
/// of the store, for instance, would mean that the program's own file is missing.
fn of_io(error: &io::Error) -> Errno {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => Errno::ENOSPC,
        Some(libc::EDQUOT) => Errno::EDQUOT,
        Some(libc::EFBIG) => Errno::EFBIG,
        Some(libc::EROFS) => Errno::EROFS,
        Some(libc::ENOMEM) => Errno::ENOMEM,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer_io(code: i32) -> LayerError {
        LayerError::io("write", "/store/data")(io::Error::from_raw_os_error(code))
    }

    #[test]
    fn a_full_disk_reaches_the_program() {
        assert_eq!(of(&FsError::from(layer_io(libc::ENOSPC))), Errno::ENOSPC);
        assert_eq!(of(&FsError::from(layer_io(libc::EDQUOT))), Errno::EDQUOT);
        assert_eq!(of(&FsError::Layer(layer_io(libc::ENOSPC))), Errno::ENOSPC);
    }

    #[test]
    fn a_missing_file_of_the_store_is_no_missing_file_of_the_fork() {
        assert_eq!(of(&FsError::from(layer_io(libc::ENOENT))), Errno::EIO);
        let spool =
            GitError::io("read", "/store/spool/1")(io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(of(&FsError::Base(spool)), Errno::EIO);
    }

    #[test]
    fn nothing_is_enosys() {
        for error in [FsError::Unsupported, FsError::Invalid, FsError::NoAttribute] {
            assert_ne!(of(&error), Errno::ENOSYS, "{error}");
        }
    }
}
