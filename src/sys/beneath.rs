//! Read access to host files below one directory.
//!
//! The calls never leave that directory: they follow no symlink and cross no mount, even if other
//! processes change the directories meanwhile.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use serde::{Deserialize, Serialize};

use tine_attr::{FileKind, Timestamp};

use super::file::{F_SETSIG, fcntl};

/// Size in bytes of the buffer for directory entries, as in glibc.
const LIST_BUFFER: usize = 32 * 1024;

/// Attributes of a file of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStat {
    /// Device number (`st_dev`).
    pub dev: u64,
    /// Inode number, unique on its device.
    pub ino: u64,
    /// File type, from `st_mode`.
    pub kind: FileKind,
    /// Permission bits: the low 12 bits of `st_mode`.
    pub perm: u16,
    /// Number of hard links.
    pub nlink: u64,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID of the owner.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated blocks, in units of 512 bytes.
    pub blocks: u64,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last change of the content.
    pub mtime: Timestamp,
    /// Time of the last change of the inode.
    pub ctime: Timestamp,
}

/// Purpose for which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Attributes only (`O_PATH`). A symlink is opened itself.
    Attributes,
    /// Reading, without an update of the access time where permitted.
    Read,
}

/// Opens the directory at `path` as the `top` of [`open`].
///
/// # Errors
/// The error of `open(2)`, for instance if `path` is not a directory.
pub fn open_top(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Opens the file at `path` below the directory `top`.
///
/// `path` is relative to `top`; an empty path is `top` itself.
///
/// # Errors
/// `ELOOP` if the path contains a symlink, `EXDEV` if it leaves `top` or its mount, and the other
/// errors of `openat2(2)`.
pub fn open(top: &File, path: &Path, access: Access) -> io::Result<File> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let common = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open_at = |flags| open_with(top, path, flags, Mode::empty());
    match access {
        Access::Attributes => open_at(common | OFlags::PATH),
        Access::Read => {
            // Reading must leave no trace, which only the owner may ask for. Opening must not block
            // if the file has become a fifo.
            let flags = common | OFlags::RDONLY | OFlags::NONBLOCK;
            match open_at(flags | OFlags::NOATIME) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => open_at(flags),
                opened => opened,
            }
        }
    }
}

/// Calls `openat2(2)`. `mode` is for a file that the call creates.
pub(super) fn open_with(
    top: &File,
    path: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
) -> io::Result<File> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    loop {
        match rustix::fs::openat2(top, path, flags, mode, resolve) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            opened => return Ok(opened?.into()),
        }
    }
}

/// Returns the attributes of an open file.
///
/// # Errors
/// The error of `fstatat(2)`; `Unsupported` for an unknown file type.
pub fn stat(file: &File) -> io::Result<HostStat> {
    stat_at(file, c"", AtFlags::EMPTY_PATH)
}

/// Returns the attributes of the file `name` in an open directory.
///
/// A symlink is not followed.
///
/// # Errors
/// As in [`stat`].
pub fn stat_in(dir: &File, name: &[u8]) -> io::Result<HostStat> {
    stat_at(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn stat_at(dir: &File, name: impl Arg, flags: AtFlags) -> io::Result<HostStat> {
    let stat = rustix::fs::statat(dir, name, flags | AtFlags::NO_AUTOMOUNT)?;
    Ok(HostStat {
        dev: stat.st_dev,
        ino: stat.st_ino,
        kind: FileKind::from_mode(stat.st_mode).ok_or(io::ErrorKind::Unsupported)?,
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: links(stat.st_nlink),
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: Timestamp::of_stat(stat.st_atime, stat.st_atime_nsec as i64),
        mtime: Timestamp::of_stat(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: Timestamp::of_stat(stat.st_ctime, stat.st_ctime_nsec as i64),
    })
}

/// Widens a link count, whose type differs between architectures.
fn links(links: impl Into<u64>) -> u64 {
    links.into()
}

/// Reads the target of a symlink that was opened with [`Access::Attributes`].
///
/// # Errors
/// The error of `readlinkat(2)`, for instance if `link` is not a symlink.
pub fn read_link(link: &File) -> io::Result<Vec<u8>> {
    let mut target = Vec::with_capacity(libc::PATH_MAX as usize);
    rustix::fs::readlinkat_raw(link, c"", spare_capacity(&mut target))?;
    Ok(target)
}

/// Lists the names in a directory that was opened with [`Access::Read`].
///
/// `.` and `..` are left out. The kind is `None` if the file system does not report it.
///
/// # Errors
/// The error of `getdents64(2)`, for instance if `dir` is not a directory.
pub fn list(dir: File) -> io::Result<Vec<(Vec<u8>, Option<FileKind>)>> {
    let mut buffer = Vec::with_capacity(LIST_BUFFER);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = match entry {
            // As in glibc: a directory that was removed is empty.
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            let kind = match entry.file_type() {
                rustix::fs::FileType::Unknown => None,
                kind => FileKind::from_mode(kind.as_raw_mode()),
            };
            names.push((name.to_vec(), kind));
        }
    }
    Ok(names)
}

/// Read lease on a file: while it lives, opening for writing blocks.
///
/// Hold it for a moment only.
pub struct ReadLease<'f>(&'f File);

impl<'f> ReadLease<'f> {
    /// Takes a read lease on `file`.
    ///
    /// # Errors
    /// `WouldBlock` while the file is open for writing. Another error if the file system or the
    /// user has no leases.
    pub fn take(file: &'f File) -> io::Result<ReadLease<'f>> {
        // The kernel signals this process when another one waits for the lease. SIGURG is ignored
        // by default.
        fcntl(file, F_SETSIG, libc::SIGURG)?;
        fcntl(file, libc::F_SETLEASE, libc::F_RDLCK)?;
        Ok(ReadLease(file))
    }
}

impl Drop for ReadLease<'_> {
    fn drop(&mut self) {
        // Fails if the kernel has revoked the lease.
        let _ = fcntl(self.0, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn nothing_leads_out() {
        let place = tempfile::tempdir().unwrap();
        let top_dir = place.path().join("top");
        fs::create_dir_all(top_dir.join("a/b")).unwrap();
        fs::write(place.path().join("outside"), "no").unwrap();
        fs::write(top_dir.join("a/b/file"), "yes").unwrap();
        symlink("../outside", top_dir.join("link")).unwrap();
        symlink("a", top_dir.join("way")).unwrap();
        let top = open_top(&top_dir).unwrap();
        let open = |path: &str, access| open(&top, Path::new(path), access);
        assert_eq!(
            stat(&open("a/b/file", Access::Read).unwrap()).unwrap().size,
            3
        );
        let link = open("link", Access::Attributes).unwrap();
        assert_eq!(stat(&link).unwrap().kind, FileKind::Symlink);
        assert_eq!(read_link(&link).unwrap(), b"../outside");
        for (path, errno) in [
            ("link", libc::ELOOP),
            ("way/b/file", libc::ELOOP),
            ("../outside", libc::EXDEV),
            ("missing", libc::ENOENT),
        ] {
            let error = open(path, Access::Read).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno), "{path}");
        }
        let mut names = list(open("", Access::Read).unwrap()).unwrap();
        names.sort_by(|(one, _), (other, _)| one.cmp(other));
        let kinds: Vec<_> = names
            .into_iter()
            .map(|(name, kind)| (String::from_utf8(name).unwrap(), kind))
            .collect();
        assert_eq!(
            kinds,
            [
                ("a".to_owned(), Some(FileKind::Directory)),
                ("link".to_owned(), Some(FileKind::Symlink)),
                ("way".to_owned(), Some(FileKind::Symlink)),
            ]
        );
    }

    // Another process writes. A child that another test starts inherits the files of this one, and
    // with a file that is open for writing there is no lease.
    #[test]
    fn a_lease_says_whether_somebody_writes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let mut writer = Command::new("sh")
            .args(["-c", "exec >\"$1\"; echo open >&2; read -r _", "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut opened = String::new();
        BufReader::new(writer.stderr.as_mut().unwrap())
            .read_line(&mut opened)
            .unwrap();
        assert_eq!(opened, "open\n");
        let read = File::open(&path).unwrap();
        let error = ReadLease::take(&read).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(writer.stdin.take());
        writer.wait().unwrap();
        drop(ReadLease::take(&read).unwrap());
        let lease = ReadLease::take(&read).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| fs::write(&path, "later").unwrap());
            drop(lease);
            writer.join().unwrap();
        });
    }
}
