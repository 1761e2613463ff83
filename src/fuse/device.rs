//! Mounting a descriptor of `/dev/fuse`, and unmounting.
//!
//! Root does it by system calls, other users through `fusermount3`.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use log::warn;
use parking_lot::Mutex;

use super::error::MountError;
use super::mount::MountOptions;
use super::place::FS_TYPE;
use tine_store::MountProfile;
use tine_sys::mount::{self as sys, MountRestrictions, UnmountKind};
use tine_sys::process::{effective_gid, effective_uid};

/// Path of the FUSE device.
const DEVICE: &str = "/dev/fuse";
/// Set-user-ID program that mounts for ordinary users.
const FUSERMOUNT: &str = "fusermount3";
/// Largest size in bytes of a read request.
const MAX_READ: u32 = 1024 * 1024;

/// Returns the mount's source in `/proc/self/mounts`.
pub(super) fn source(options: &MountOptions) -> String {
    format!("tine:{}", options.name)
}

/// Returns whether the kernel checks permissions on the mount.
///
/// Only the kernel can check the mode of a file when it is opened or entered: it sends no request
/// that the daemon could refuse. Root passes every such check. So a mount that only root may enter
/// skips them, which saves a request after each change of a directory.
pub(super) fn checks_permissions(options: &MountOptions, uid: u32) -> bool {
    options.settings.allow_other || uid != 0
}

/// Returns the options that both the kernel and `fusermount3` know.
fn common_options(options: &MountOptions, uid: u32) -> String {
    let mut list = format!("max_read={MAX_READ}");
    if options.settings.allow_other {
        list.push_str(",allow_other");
    }
    if checks_permissions(options, uid) {
        list.push_str(",default_permissions");
    }
    list
}

/// Mounts at the directory `dir`, a path without symlinks.
pub(super) fn mount(options: &MountOptions, dir: &Path) -> Result<OwnedFd, MountError> {
    let (uid, gid) = (effective_uid(), effective_gid());
    refuse_root_options(options, uid)?;
    if uid == 0 {
        mount_directly(options, dir, uid, gid)
    } else {
        mount_through_fusermount(options, dir, uid)
    }
}

/// Refuses options that require root, which `fusermount3` would ignore.
fn refuse_root_options(options: &MountOptions, uid: u32) -> Result<(), MountError> {
    let settings = &options.settings;
    let needs_root = settings.suid || settings.dev || settings.profile == MountProfile::LargeFiles;
    if uid != 0 && needs_root {
        Err(MountError::OnlyRoot)
    } else {
        Ok(())
    }
}

/// Opens `/dev/fuse`.
fn open_device() -> Result<File, MountError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => MountError::NoFuseDevice,
            Some(libc::EACCES | libc::EPERM) => MountError::NotPermitted(error),
            _ => MountError::io("open", DEVICE)(error),
        })
}

/// Mounts with mount(2), as root.
fn mount_directly(
    options: &MountOptions,
    dir: &Path,
    uid: u32,
    gid: u32,
) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    let data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},{}",
        device.as_raw_fd(),
        common_options(options, uid)
    );
    let inert = MountRestrictions {
        set_id: !options.settings.suid,
        devices: !options.settings.dev,
    };
    sys::mount(&source(options), dir, FS_TYPE, inert, &data).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENODEV) => MountError::NoFuseDevice,
            Some(libc::EPERM | libc::EACCES) => MountError::NotPermitted(error),
            _ => MountError::io("mount at", dir)(error),
        }
    })?;
    Ok(device.into())
}

/// Mounts through `fusermount3`.
///
/// It mounts, sends the descriptor over the socket in `_FUSE_COMMFD`, and exits.
fn mount_through_fusermount(
    options: &MountOptions,
    dir: &Path,
    uid: u32,
) -> Result<OwnedFd, MountError> {
    Streams::keep_spare()?;
    // `fusermount3` opens the device as the user, and so does the second thread of a session.
    // Opening it first gives a better error.
    open_device()?;
    // Commas and backslashes are special in its options.
    let source = source(options).replace('\\', "\\\\").replace(',', "\\,");
    let list = format!(
        "fsname={source},subtype=tine,nosuid,nodev,noatime,{}",
        common_options(options, uid)
    );
    let (ours, theirs) =
        UnixStream::pair().map_err(MountError::io("make a socket for", FUSERMOUNT))?;
    // Standard input is inherited without further steps.
    let child = fusermount()
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .arg("-o")
        .arg(list)
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .map_err(cannot_run)?;
    let received = sys::receive_descriptor(&ours);
    let output = child
        .wait_with_output()
        .map_err(MountError::io("wait for", FUSERMOUNT))?;
    match received {
        Ok(device) => Ok(device),
        Err(_) => Err(MountError::Fusermount(message(&output.stderr))),
    }
}

/// Makes a command that runs `fusermount3` in the C locale.
fn fusermount() -> Command {
    let mut command = Command::new(FUSERMOUNT);
    command.env("LC_ALL", "C");
    command
}

/// All descriptors that running `fusermount3` for unmounting needs.
struct Streams {
    /// Standard input, from `/dev/null`.
    input: File,
    /// Standard output, to `/dev/null`.
    output: File,
    /// Write end of the pipe for standard error.
    errors: PipeWriter,
    /// Read end of the pipe for standard error.
    messages: PipeReader,
}

/// Spare descriptors for unmounting, opened before anything is mounted.
///
/// If forks have used up the process's descriptors, unmounting is the way to free some. `None`
/// while an unmount uses them.
static SPARE: Mutex<Option<Streams>> = Mutex::new(None);

/// Opens a set of descriptors.
impl Streams {
    fn open() -> io::Result<Streams> {
        let input = File::open("/dev/null")?;
        let output = OpenOptions::new().write(true).open("/dev/null")?;
        let (messages, errors) = io::pipe()?;
        Ok(Streams {
            input,
            output,
            errors,
            messages,
        })
    }

    /// Opens the spare set if there is none.
    fn keep_spare() -> Result<(), MountError> {
        let mut spare = SPARE.lock();
        if spare.is_none() {
            *spare = Some(Streams::open().map_err(cannot_run)?);
        }
        Ok(())
    }

    /// Takes the spare set, or opens another.
    fn take_spare() -> io::Result<Streams> {
        let spare = SPARE.lock().take();
        spare.map_or_else(Streams::open, Ok)
    }

    /// Runs `command` and waits for it.
    ///
    /// Returns whether it succeeded, and its standard error.
    fn run(self, mut command: Command) -> Result<(bool, Vec<u8>), MountError> {
        let Streams {
            input,
            output,
            errors,
            mut messages,
        } = self;
        command.stdin(input).stdout(output).stderr(errors);
        let spawned = command.spawn();
        // It holds the write end, so reading would not end.
        drop(command);
        let mut child = spawned.map_err(cannot_run)?;
        let mut message = Vec::new();
        let read = messages.read_to_end(&mut message);
        let status = child.wait();
        read.map_err(MountError::io("read the messages of", FUSERMOUNT))?;
        let status = status.map_err(MountError::io("wait for", FUSERMOUNT))?;
        Ok((status.success(), message))
    }
}

/// Returns the error for `fusermount3` that cannot be run.
fn cannot_run(error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::NoFusermount,
        _ => MountError::io("run", FUSERMOUNT)(error),
    }
}

/// Returns the first line of the message, without the program's name.
fn message(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text
        .lines()
        .next()
        .unwrap_or("it sent no descriptor")
        .trim();
    line.trim_start_matches("fusermount3: ").to_owned()
}

/// Unmounts the file system at `dir`, which the caller has identified.
pub(super) fn unmount(dir: &Path, how: UnmountKind) -> Result<(), MountError> {
    if effective_uid() == 0 {
        return sys::unmount(dir, how).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => MountError::Busy(dir.to_owned()),
            Some(libc::EPERM) => MountError::NotPermitted(error),
            _ => MountError::io("unmount", dir)(error),
        });
    }
    let flags = match how {
        UnmountKind::IfUnused => "-u",
        UnmountKind::Detach | UnmountKind::Abort => "-uz",
    };
    let mut command = fusermount();
    command.arg(flags).arg("--").arg(dir);
    let ran = Streams::take_spare().map_err(cannot_run)?.run(command);
    if let Err(error) = Streams::keep_spare() {
        warn!("no descriptors are left for unmounting the next: {error}");
    }
    let (unmounted, messages) = ran?;
    if unmounted {
        return Ok(());
    }
    let message = message(&messages);
    if message.contains("busy") {
        Err(MountError::Busy(dir.to_owned()))
    } else {
        Err(MountError::Fusermount(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tine_store::MountSettings;

    fn options(allow_other: bool) -> MountOptions {
        MountOptions {
            dir: "/srv/x".into(),
            name: "x".into(),
            settings: MountSettings {
                allow_other,
                ..MountSettings::default()
            },
            transport: crate::TransportChoice::default(),
            guarded: false,
        }
    }

    #[test]
    fn the_kernel_checks_permissions_unless_only_root_may_enter() {
        assert!(!common_options(&options(false), 0).contains("default_permissions"));
        assert!(common_options(&options(true), 0).contains("allow_other,default_permissions"));
        assert!(common_options(&options(false), 1000).contains("default_permissions"));
        assert!(!common_options(&options(false), 1000).contains("allow_other"));
    }

    #[test]
    fn only_root_has_what_only_root_may_allow() {
        let with = |suid, dev, profile| MountOptions {
            settings: MountSettings {
                suid,
                dev,
                profile,
                ..MountSettings::default()
            },
            ..options(false)
        };
        let (everyday, large) = (MountProfile::Everyday, MountProfile::LargeFiles);
        for (suid, dev, profile) in [
            (true, false, everyday),
            (false, true, everyday),
            (false, false, large),
        ] {
            assert!(refuse_root_options(&with(suid, dev, profile), 0).is_ok());
            let refused = refuse_root_options(&with(suid, dev, profile), 1000);
            assert!(matches!(refused, Err(MountError::OnlyRoot)));
        }
        assert!(refuse_root_options(&with(false, false, everyday), 1000).is_ok());
    }

    #[test]
    fn the_message_of_fusermount_is_its_first_line() {
        assert_eq!(
            message(b"fusermount3: mount failed: Operation not permitted\n"),
            "mount failed: Operation not permitted"
        );
        assert_eq!(message(b""), "it sent no descriptor");
    }
}
