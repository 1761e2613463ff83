//! Files: opening, allocation, holes, copying, locks, and file system statistics.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use thiserror::Error;

/// Error of opening something that is not a regular file.
///
/// It is the inner error of an [`io::Error`] of the kind `IsADirectory` or `InvalidData`.
#[derive(Debug, Error)]
#[error("{kind} is in its place")]
pub struct NotAFile {
    /// File type, with its article.
    kind: &'static str,
}

impl NotAFile {
    fn of(found: FileType) -> io::Error {
        let (kind, error_kind) = match found {
            _ if found.is_dir() => ("a directory", ErrorKind::IsADirectory),
            _ if found.is_fifo() => ("a named pipe", ErrorKind::InvalidData),
            _ if found.is_socket() => ("a socket", ErrorKind::InvalidData),
            _ => ("a device", ErrorKind::InvalidData),
        };
        io::Error::new(error_kind, NotAFile { kind })
    }

    /// Returns the `NotAFile` inside an I/O error, if there is one.
    pub fn in_error(error: &io::Error) -> Option<&NotAFile> {
        error.get_ref()?.downcast_ref()
    }
}

/// Opens the regular file at `path` for reading. Never blocks.
///
/// Opening a named pipe would block until it has a writer.
///
/// # Errors
/// [`NotAFile`] if the file is not a regular one, and the errors of `open(2)`.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true))
}

/// Opens the regular file at `path` with `options`. Never blocks.
///
/// Overwrites the custom flags of `options`.
///
/// # Errors
/// As in [`open`].
pub fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let found = match &opened {
        Ok(file) => file.metadata()?.file_type(),
        // A socket, or a pipe that has no reader.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            std::fs::metadata(path)?.file_type()
        }
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            return Err(NotAFile::of(std::fs::metadata(path)?.file_type()));
        }
        // The file has a lease that its holder is about to release.
        Err(error)
            if error.kind() == ErrorKind::WouldBlock && std::fs::metadata(path)?.is_file() =>
        {
            return options.custom_flags(0).open(path);
        }
        Err(_) => return opened,
    };
    if found.is_file() {
        opened
    } else {
        Err(NotAFile::of(found))
    }
}

/// Reads the regular file at `path`. Never blocks on a pipe.
///
/// # Errors
/// As in [`open`], and the errors of `read(2)`.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the regular file at `path`, which is UTF-8.
///
/// # Errors
/// As in [`read`]; `InvalidData` if the file is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut file = open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Checks that `path` is a regular file or cannot be examined.
///
/// For callers that open the file in another way.
///
/// # Errors
/// [`NotAFile`] if the file exists and is not a regular one.
pub fn check_regular(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Err(NotAFile::of(meta.file_type())),
        _ => Ok(()),
    }
}

/// Flushes a file or directory to disk. Never blocks on a pipe.
///
/// # Errors
/// The error of `open(2)` or `fsync(2)`.
pub fn sync(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path)?.sync_all()
}

/// Reserves disk space for a byte range without changing the file's size.
///
/// # Errors
/// `EFBIG` for an offset or length over `i64::MAX`; the errors of `fallocate(2)`, for instance
/// `ENOSPC`.
pub fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, FallocateFlags::KEEP_SIZE, offset, len)
}

/// Makes a byte range a hole that reads as zeroes.
///
/// The file's size stays.
///
/// # Errors
/// As in [`reserve`].
pub fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, mode, offset, len)
}

fn fallocate(file: &File, mode: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let (offset, len) = (file_offset(offset)?, file_offset(len)?);
    Ok(retry_on_intr(|| {
        rustix::fs::fallocate(file, mode, offset, len)
    })?)
}

/// Returns the offset of the first data byte at or after `offset`.
///
/// `None` if only a hole or the end of the file follows.
///
/// # Errors
/// `EFBIG` for an offset over `i64::MAX`, and the errors of `lseek(2)`.
pub fn seek_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    seek(file, SeekFrom::Data(file_offset(offset)?))
}

/// Returns the offset of the first hole at or after `offset`.
///
/// The end of the file counts as a hole. `None` if `offset` is at or past the end.
///
/// # Errors
/// As in [`seek_data`].
pub fn seek_hole(file: &File, offset: u64) -> io::Result<Option<u64>> {
    seek(file, SeekFrom::Hole(file_offset(offset)?))
}

fn seek(file: &File, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Err(Errno::NXIO) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// Copies up to `len` bytes inside the kernel.
///
/// Shares disk blocks if the file system can. Returns the number of bytes copied, 0 at the end of
/// `from`.
///
/// # Errors
/// `EFBIG` for an offset over `i64::MAX`, and the errors of `copy_file_range(2)`.
pub fn copy_range(
    from: &File,
    from_offset: u64,
    to: &File,
    to_offset: u64,
    len: usize,
) -> io::Result<usize> {
    let (mut from_offset, mut to_offset) = (file_offset(from_offset)?, file_offset(to_offset)?);
    let copied = retry_on_intr(|| {
        let (from_offset, to_offset) = (Some(&mut from_offset), Some(&mut to_offset));
        rustix::fs::copy_file_range(from, from_offset, to, to_offset, len)
    });
    Ok(copied?)
}

/// Makes the empty file `to` share all blocks of `from` (`FICLONE`).
///
/// # Errors
/// `EOPNOTSUPP` or `EXDEV` if the file system cannot share blocks, and the other errors of
/// `ioctl_ficlone(2)`.
pub fn clone_file(from: &File, to: &File) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(to, from)?)
}

/// Starts the writeback of a file's dirty pages without waiting for it.
///
/// This is a hint only.
///
/// # Errors
/// The error of `sync_file_range(2)`, for instance `ESPIPE` for a pipe.
pub fn start_writeback(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` lives; the call takes numbers only. A length of 0
    // is the whole file.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) })
}

/// Flushes the whole file system of `file` to disk.
///
/// # Errors
/// The error of `syncfs(2)`.
pub fn sync_fs(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

/// Tries to take the exclusive lock of `file` (`flock(2)`).
///
/// False while another open file description holds it. The lock lasts until [`unlock`] or the end
/// of the process.
///
/// # Errors
/// The error of `flock(2)`.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Releases the lock of `file`.
///
/// Closing the file is not enough: a child that another thread is starting has a copy of the
/// descriptor until it calls `exec`.
///
/// # Errors
/// The error of `flock(2)`.
pub fn unlock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::Unlock)?)
}

/// Returns whether any process has another open descriptor of the file.
///
/// False if the file system has no leases.
pub fn is_open_elsewhere(file: &File) -> bool {
    // A process that opens the file meanwhile breaks the lease. SIGURG is then harmless; the
    // default, SIGIO, would end this process.
    if fcntl(file, F_SETSIG, libc::SIGURG).is_err() {
        return false;
    }
    match fcntl(file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => {
            // Closing the descriptor would release it, too.
            let _ = fcntl(file, libc::F_SETLEASE, libc::F_UNLCK);
            false
        }
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// `fcntl(2)` command that sets the signal for a broken lease.
///
/// `libc` lacks it.
pub(super) const F_SETSIG: libc::c_int = 10;

/// Calls `fcntl(2)` with a command that rustix lacks.
pub(super) fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    debug_assert!(matches!(command, F_SETSIG | libc::F_SETLEASE));
    // SAFETY: the descriptor is open while `file` lives; both commands take an integer.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, argument) })
}

/// Statistics of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStats {
    /// Size in bytes of a block, the unit of the `blocks` fields.
    pub block_size: u64,
    /// Number of blocks in total.
    pub blocks: u64,
    /// Number of free blocks, including those reserved for root.
    pub blocks_free: u64,
    /// Number of free blocks for users other than root.
    pub blocks_available: u64,
    /// Number of inodes in total.
    pub files: u64,
    /// Number of free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u64,
}

/// Returns the statistics of the file system that holds `path`.
///
/// # Errors
/// The error of `statfs(2)`.
pub fn fs_figures(path: &Path) -> io::Result<FsStats> {
    let figures = rustix::fs::statvfs(path)?;
    Ok(FsStats {
        block_size: figures.f_frsize,
        blocks: figures.f_blocks,
        blocks_free: figures.f_bfree,
        blocks_available: figures.f_bavail,
        files: figures.f_files,
        files_free: figures.f_ffree,
        name_max: figures.f_namemax,
    })
}

/// Returns whether `path` is on a FUSE file system.
///
/// # Errors
/// The error of `statfs(2)`.
pub fn is_on_fuse(path: &Path) -> io::Result<bool> {
    /// Magic number of `fs/fuse/inode.c`.
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
    Ok(u64::try_from(rustix::fs::statfs(path)?.f_type) == Ok(FUSE_SUPER_MAGIC))
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Checks that `offset` is one that the kernel accepts.
///
/// # Errors
/// `EFBIG` over `i64::MAX`.
fn file_offset(offset: u64) -> Result<u64, Errno> {
    if i64::try_from(offset).is_ok() {
        Ok(offset)
    } else {
        Err(Errno::FBIG)
    }
}

/// Returns whether both paths lead to the same existing file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .map(|meta| (meta.dev(), meta.ino()))
    };
    identity(one).is_some_and(|id| Some(id) == identity(other))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn holes_are_found_and_made() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 3 * 65536], 0).unwrap();
        punch_hole(&file, 65536, 65536).unwrap();
        assert_eq!(seek_hole(&file, 0).unwrap(), Some(65536));
        assert_eq!(seek_data(&file, 65536).unwrap(), Some(131072));
        assert_eq!(seek_data(&file, 3 * 65536).unwrap(), None);
        let mut byte = [1];
        file.read_exact_at(&mut byte, 70000).unwrap();
        assert_eq!(byte, [0]);
    }

    #[test]
    fn reserving_keeps_the_size() {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 0, 1 << 20).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), 0);
        assert!(meta.blocks() * 512 >= 1 << 20);
        assert_eq!(
            reserve(&file, u64::MAX, 1).unwrap_err().raw_os_error(),
            Some(libc::EFBIG)
        );
    }

    #[test]
    fn ranges_are_copied() {
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        from.write_all_at(b"0123456789", 0).unwrap();
        assert_eq!(copy_range(&from, 3, &to, 1, 4).unwrap(), 4);
        let mut copied = [9; 5];
        to.read_exact_at(&mut copied, 0).unwrap();
        assert_eq!(&copied, b"\x003456");
        assert_eq!(copy_range(&from, 10, &to, 0, 4).unwrap(), 0);
    }

    #[test]
    fn writing_back() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"dirty", 0).unwrap();
        start_writeback(&file).unwrap();
        sync_fs(&file).unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(reader));
        assert!(start_writeback(&pipe).is_err());
    }

    #[test]
    fn what_is_no_file_is_named_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        std::os::unix::fs::symlink("pipe", path("link")).unwrap();
        std::fs::create_dir(path("dir")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", path("link to a file")).unwrap();
        for (name, kind) in [
            ("pipe", "a named pipe"),
            ("link", "a named pipe"),
            ("dir", "a directory"),
            ("socket", "a socket"),
        ] {
            let expected = format!("{kind} is in its place");
            let mut append = OpenOptions::new();
            for opened in [
                open(&path(name)),
                open_with(&path(name), OpenOptions::new().read(true).write(true)),
                open_with(&path(name), append.append(true).create(true)),
            ] {
                let error = opened.unwrap_err();
                assert_eq!(
                    NotAFile::in_error(&error).map(NotAFile::to_string),
                    Some(expected.clone()),
                    "{name}"
                );
            }
            assert_eq!(
                check_regular(&path(name)).unwrap_err().to_string(),
                expected
            );
        }
        assert_eq!(
            open(Path::new("/dev/null")).unwrap_err().to_string(),
            "a device is in its place"
        );
        assert_eq!(read_to_string(&path("link to a file")).unwrap(), "text");
        assert_eq!(read(&path("none")).unwrap_err().kind(), ErrorKind::NotFound);
        check_regular(&path("none")).unwrap();
    }

    #[test]
    fn a_lock_is_held_until_it_is_given_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = file.reopen().unwrap();
        assert!(try_lock(file.as_file()).unwrap());
        assert!(!try_lock(&other).unwrap());
        let _as_a_child_has_it = file.as_file().try_clone().unwrap();
        unlock(file.as_file()).unwrap();
        assert!(try_lock(&other).unwrap());
    }
}
