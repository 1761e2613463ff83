//! The kernel's control file system for FUSE connections.
//!
//! It names a connection by the minor device number of its mount.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use log::debug;

use super::place::MountedAt;
use tine_sys::mount as sys;

/// File system type of the control file system.
const FS_TYPE: &str = "fusectl";
/// Directory where it is usually mounted.
const USUAL_DIR: &str = "/sys/fs/fuse/connections";

/// Open control files of exactly one connection.
///
/// The kernel reuses the number of a connection that has ended, but open files stay with their
/// connection.
pub(super) struct Control {
    /// Aborts the connection when written to.
    abort: File,
    /// Number of waiting requests; empty once the connection has ended.
    waiting: File,
}

impl Control {
    /// Opens the control files of a live connection.
    ///
    /// `None` if this process has no access to them. Root always has.
    pub(super) fn of(mount: &MountedAt) -> Option<Control> {
        let connection = mount.device.1.to_string();
        Control::open(&Path::new(USUAL_DIR).join(&connection))
            .or_else(|_| Control::open_unmounted(&connection))
            .inspect_err(|error| {
                debug!("the connection {connection} cannot be controlled: {error}")
            })
            .ok()
    }

    /// Opens the files in the directory of a connection.
    fn open(dir: &Path) -> io::Result<Control> {
        Ok(Control {
            abort: OpenOptions::new().write(true).open(dir.join("abort"))?,
            waiting: File::open(dir.join("waiting"))?,
        })
    }

    /// Opens the files on a detached mount of the control file system.
    fn open_unmounted(connection: &str) -> io::Result<Control> {
        let root = sys::mount_nowhere(FS_TYPE)?;
        let root_dir = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        Control::open(&root_dir.join(connection))
    }

    /// Returns whether the connected file system is still mounted anywhere.
    ///
    /// Call it once only: the kernel repeats its first answer.
    pub(super) fn is_mounted(&self) -> io::Result<bool> {
        // The file of a connection that has ended is empty.
        let len = (&self.waiting).read(&mut [0; 16])?;
        Ok(len > 0)
    }

    /// Aborts the connection even if it has users.
    pub(super) fn abort(&self) -> io::Result<()> {
        (&self.abort).write_all(b"1")
    }
}
