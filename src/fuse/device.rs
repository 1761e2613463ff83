//! Gets a descriptor of `/dev/fuse` that is mounted, and unmounts: as root by system calls, as
//! anybody else through `fusermount3`.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use log::warn;
use parking_lot::Mutex;

use super::mount::{MountError, MountOptions};
use super::place::FS_TYPE;
use tine_sys::mount::{self as sys, MountRestrictions, UnmountHow};
use tine_sys::process::{effective_gid, effective_uid};
use tine_workspace::MountProfile;

const DEVICE: &str = "/dev/fuse";
const FUSERMOUNT: &str = "fusermount3";
/// Bytes in one read request at most.
const MAX_READ: u32 = 1024 * 1024;

/// What stands as the mount's source in `/proc/self/mounts`.
pub(super) fn source(options: &MountOptions) -> String {
    format!("tine:{}", options.name)
}

/// Whether the kernel shall check permissions on the mount.
///
/// Only it can check the mode of a file that is opened or entered (there is no open request that
/// could be refused). Root passes every such check, so a mount that only root may enter does
/// without, and saves a request after each change of a directory.
pub(super) fn checks_permissions(options: &MountOptions, uid: u32) -> bool {
    options.settings.allow_other || uid != 0
}

/// Options that the kernel and `fusermount3` both know.
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

/// Mounts at `dir`, a directory's path without symlinks.
pub(super) fn mount(options: &MountOptions, dir: &Path) -> Result<OwnedFd, MountError> {
    let (uid, gid) = (effective_uid(), effective_gid());
    refuse_what_is_roots(options, uid)?;
    if uid == 0 {
        mount_directly(options, dir, uid, gid)
    } else {
        mount_through_fusermount(options, dir, uid)
    }
}

/// `fusermount3` would leave them out without a word.
fn refuse_what_is_roots(options: &MountOptions, uid: u32) -> Result<(), MountError> {
    let settings = &options.settings;
    let is_roots = settings.suid || settings.dev || settings.profile == MountProfile::LargeFiles;
    match uid != 0 && is_roots {
        true => Err(MountError::OnlyRoot),
        false => Ok(()),
    }
}

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

/// `fusermount3` mounts, sends the descriptor over the socket that `_FUSE_COMMFD` names, and ends.
fn mount_through_fusermount(
    options: &MountOptions,
    dir: &Path,
    uid: u32,
) -> Result<OwnedFd, MountError> {
    Streams::keep_spare()?;
    // It opens the device in the user's name, and so does the second thread of a session: asked
    // first, for a better answer.
    open_device()?;
    // Commas and backslashes separate options there.
    let source = source(options).replace('\\', "\\\\").replace(',', "\\,");
    let list = format!(
        "fsname={source},subtype=tine,nosuid,nodev,noatime,{}",
        common_options(options, uid)
    );
    let (ours, theirs) =
        UnixStream::pair().map_err(MountError::io("make a socket for", FUSERMOUNT))?;
    // As its standard input the socket is inherited without further ado.
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

fn fusermount() -> Command {
    let mut command = Command::new(FUSERMOUNT);
    command.env("LC_ALL", "C");
    command
}

/// All descriptors that it takes to run `fusermount3` for unmounting.
struct Streams {
    input: File,
    output: File,
    errors: PipeWriter,
    said: PipeReader,
}

/// Opened before something is mounted, for the unmounting: where forks have taken all descriptors
/// that a process may have, this is what gives some back. Empty while somebody uses them.
static SPARE: Mutex<Option<Streams>> = Mutex::new(None);

impl Streams {
    fn open() -> io::Result<Streams> {
        let input = File::open("/dev/null")?;
        let output = OpenOptions::new().write(true).open("/dev/null")?;
        let (said, errors) = io::pipe()?;
        Ok(Streams {
            input,
            output,
            errors,
            said,
        })
    }

    fn keep_spare() -> Result<(), MountError> {
        let mut spare = SPARE.lock();
        if spare.is_none() {
            *spare = Some(Streams::open().map_err(cannot_run)?);
        }
        Ok(())
    }

    fn take_spare() -> io::Result<Streams> {
        let spare = SPARE.lock().take();
        spare.map_or_else(Streams::open, Ok)
    }

    /// Runs `command`; whether it succeeded, and what it said on its standard error.
    fn run(self, mut command: Command) -> Result<(bool, Vec<u8>), MountError> {
        let Streams {
            input,
            output,
            errors,
            mut said,
        } = self;
        command.stdin(input).stdout(output).stderr(errors);
        let spawned = command.spawn();
        // It holds the writing end, without whose closing there is no end to read to.
        drop(command);
        let mut child = spawned.map_err(cannot_run)?;
        let mut message = Vec::new();
        let read = said.read_to_end(&mut message);
        let status = child.wait();
        read.map_err(MountError::io("read the messages of", FUSERMOUNT))?;
        let status = status.map_err(MountError::io("wait for", FUSERMOUNT))?;
        Ok((status.success(), message))
    }
}

fn cannot_run(error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::NoFusermount,
        _ => MountError::io("run", FUSERMOUNT)(error),
    }
}

/// What `fusermount3` said, without its own name before it.
fn message(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text
        .lines()
        .next()
        .unwrap_or("it sent no descriptor")
        .trim();
    line.trim_start_matches("fusermount3: ").to_owned()
}

/// Unmounts what is at `dir`. The caller has made sure that it is ours.
pub(super) fn unmount(dir: &Path, how: UnmountHow) -> Result<(), MountError> {
    if effective_uid() == 0 {
        return sys::unmount(dir, how).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => MountError::Busy(dir.to_owned()),
            Some(libc::EPERM) => MountError::NotPermitted(error),
            _ => MountError::io("unmount", dir)(error),
        });
    }
    let flags = match how {
        UnmountHow::IfUnused => "-u",
        UnmountHow::Detach | UnmountHow::Abort => "-uz",
    };
    let mut command = fusermount();
    command.arg(flags).arg("--").arg(dir);
    let ran = Streams::take_spare().map_err(cannot_run)?.run(command);
    if let Err(error) = Streams::keep_spare() {
        warn!("no descriptors are left for unmounting the next: {error}");
    }
    let (unmounted, said) = ran?;
    if unmounted {
        return Ok(());
    }
    let message = message(&said);
    if message.contains("busy") {
        Err(MountError::Busy(dir.to_owned()))
    } else {
        Err(MountError::Fusermount(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tine_workspace::MountSettings;

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
            assert!(refuse_what_is_roots(&with(suid, dev, profile), 0).is_ok());
            let refused = refuse_what_is_roots(&with(suid, dev, profile), 1000);
            assert!(matches!(refused, Err(MountError::OnlyRoot)));
        }
        assert!(refuse_what_is_roots(&with(false, false, everyday), 1000).is_ok());
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
