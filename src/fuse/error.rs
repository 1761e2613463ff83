//! Errors of mounting.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::transport::RINGS_PARAMETER;
use tine_failure::{ErrorCode, Failure, ToFailure};
use tine_path::shell::shell_path;

/// Error of mounting or unmounting.
#[derive(Debug, Error, ToFailure)]
pub enum MountError {
    /// The device `/dev/fuse` does not exist.
    #[error("/dev/fuse is missing")]
    #[failure(NoFuse)]
    #[hint(
        "`modprobe fuse` as root; in a container start it with `--device /dev/fuse --cap-add SYS_ADMIN`"
    )]
    NoFuseDevice,
    /// The daemon may not open `/dev/fuse`.
    #[error("/dev/fuse may not be used: {0}")]
    #[failure(with = not_permitted(&_0.to_string()))]
    NotPermitted(#[source] io::Error),
    /// `fusermount3` is not installed, and the daemon does not run as root.
    #[error("fusermount3 is missing, which a user other than root needs to mount")]
    #[failure(NoFusermount)]
    #[hint("install fuse3 (on Debian: `apt install fuse3`)")]
    NoFusermount,
    /// The options require root.
    #[error(
        "only root can have set-user-id programs or devices work on a mount, or have the kernel read files by itself"
    )]
    #[failure(FuseNotPermitted)]
    #[hint("leave `--suid`, `--dev` and `--profile large-files` out, or run tine as root")]
    OnlyRoot,
    /// The options require io_uring, which cannot be used.
    #[error("requests cannot come through io_uring")]
    #[failure(MountFailed, cause = _0)]
    #[hint(
        "Linux 6.14 or newer has it once root wrote Y to {RINGS_PARAMETER}; or `git config tine.transport auto`"
    )]
    NoRings(#[source] io::Error),
    /// `fusermount3` failed. The text is its output.
    #[error("fusermount3 failed: {0}")]
    #[failure(with = fusermount_failed(_0))]
    Fusermount(String),
    /// The path is not a directory, or not an empty one.
    #[error("{0} exists and is not an empty directory")]
    #[failure(MountDirNotEmpty)]
    #[hint("empty or remove it, or choose another place with `--at DIR`")]
    NotEmpty(PathBuf),
    /// Another file system is mounted at the directory.
    #[error("{0} is mounted already")]
    #[failure(MountDirNotEmpty)]
    #[hint(
        "`umount {dir}` frees it, or choose another place with `--at DIR`",
        dir = shell_path(_0)
    )]
    AlreadyMounted(PathBuf),
    /// Programs use the mount, or another file system covers it.
    #[error("{0} is in use")]
    #[failure(Busy)]
    #[hint("end the programs that use it, or add `--force`")]
    Busy(PathBuf),
    /// The mount has left its directory but still has users.
    ///
    /// It is served until the last user closes it, and cannot be aborted.
    #[error("the mount is gone from {0}, but a program still uses it")]
    #[failure(Busy)]
    #[hint(
        "end that program, and the fork's policy is applied; `--force` cuts it off where root has run `mount -t fusectl none /sys/fs/fuse/connections`"
    )]
    Detached(PathBuf),
    /// An I/O operation failed.
    #[error("{action} {path}: {source}")]
    #[failure(with = io_failed(action, path, source))]
    Io {
        /// Verb of the message, for instance "open".
        action: &'static str,
        /// Path that the operation was for.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

impl MountError {
    /// Wraps an I/O error, for `map_err`: `MountError::io("open", path)`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> MountError {
        let path = path.into();
        move |source| MountError::Io {
            action,
            path,
            source,
        }
    }
}

/// Makes the failure of a user who may not mount.
fn not_permitted(reason: &str) -> Failure {
    Failure::new(ErrorCode::FuseNotPermitted, "mounting with FUSE is not permitted")
        .cause(reason)
        .hint("let this user open /dev/fuse; in a container start it with `--device /dev/fuse --cap-add SYS_ADMIN`")
}

/// Makes the failure of `fusermount3`.
///
/// It has one exit code for all errors.
fn fusermount_failed(reason: &str) -> Failure {
    if reason.contains("user_allow_other") {
        Failure::new(
            ErrorCode::FuseNotPermitted,
            "other users may not be let into a mount",
        )
        .cause(reason)
        .hint("write `user_allow_other` into /etc/fuse.conf as root, or leave `--allow-other` out")
    } else if reason.contains("Permission denied") || reason.contains("not permitted") {
        not_permitted(reason)
    } else {
        Failure::new(ErrorCode::MountFailed, "fusermount3 failed")
            .cause(reason)
            .hint("`tine doctor` checks what mounting needs")
    }
}

/// Makes the failure of a system call for a mount.
fn io_failed(action: &str, path: &Path, source: &io::Error) -> Failure {
    let failure = Failure::io(action, path, source);
    match failure.code {
        ErrorCode::Io => failure
            .code(ErrorCode::MountFailed)
            .hint("`tine doctor` checks what mounting needs"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_of_fusermount_are_told_apart() {
        let failure = |reason: &str| Failure::from(MountError::Fusermount(reason.into()));
        let device = failure("fusermount3: failed to open /dev/fuse: Permission denied");
        assert_eq!(device.code, ErrorCode::FuseNotPermitted);
        let others = failure(
            "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf",
        );
        assert_eq!(others.code, ErrorCode::FuseNotPermitted);
        assert!(
            others
                .hint
                .is_some_and(|hint| hint.contains("/etc/fuse.conf"))
        );
        assert_eq!(
            failure("fusermount3: something else").code,
            ErrorCode::MountFailed
        );
    }

    #[test]
    fn a_hint_names_the_command_to_type() {
        let failure = Failure::from(MountError::NoFusermount);
        assert!(
            failure
                .hint
                .is_some_and(|hint| hint.contains("apt install fuse3"))
        );
    }
}
