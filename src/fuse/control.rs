//! The kernel's control file system for FUSE, which names connections by the minor device numbers
//! of their mounts.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use log::debug;

use super::place::MountedAt;
use tine_sys::mount as sys;

const FS_TYPE: &str = "fusectl";
const USUAL_DIR: &str = "/sys/fs/fuse/connections";

/// The files of one connection, and of no other: the number is given to another mount once this one
/// is gone, but what was opened is not.
pub(super) struct Control {
    abort: File,
    waiting: File,
}

impl Control {
    /// Of a mount whose connection lives; `None` where there is no way to it, which root always
    /// has.
    pub(super) fn of(mount: &MountedAt) -> Option<Control> {
        let connection = mount.device.1.to_string();
        Control::open(&Path::new(USUAL_DIR).join(&connection))
            .or_else(|_| Control::open_unmounted(&connection))
            .inspect_err(|error| {
                debug!("the connection {connection} cannot be controlled: {error}")
            })
            .ok()
    }

    fn open(dir: &Path) -> io::Result<Control> {
        Ok(Control {
            abort: OpenOptions::new().write(true).open(dir.join("abort"))?,
            waiting: File::open(dir.join("waiting"))?,
        })
    }

    /// Where the control file system is not mounted.
    fn open_unmounted(connection: &str) -> io::Result<Control> {
        let root = sys::mount_nowhere(FS_TYPE)?;
        let root_dir = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        Control::open(&root_dir.join(connection))
    }

    /// Whether the file system that is connected is still mounted somewhere. To be asked once: what
    /// the kernel says first it says again.
    pub(super) fn is_mounted(&self) -> io::Result<bool> {
        // The file of a connection that is gone is empty.
        let len = (&self.waiting).read(&mut [0; 16])?;
        Ok(len > 0)
    }

    /// Ends the connection without regard for who uses it.
    pub(super) fn abort(&self) -> io::Result<()> {
        (&self.abort).write_all(b"1")
    }
}
