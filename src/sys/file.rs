//! Files: allocation, holes, copying, figures of the file system.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use thiserror::Error;

/// Something else stands where a file must be. In an [`io::Error`] of the kind `IsADirectory` or
/// `InvalidData`.
#[derive(Debug, Error)]
#[error("{kind} is in its place")]
pub struct NotAFile {
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

    /// What an error says of it, where it is one of these.
    pub fn in_error(error: &io::Error) -> Option<&NotAFile> {
        error.get_ref()?.downcast_ref()
    }
}

/// Opens the regular file at `path` for reading. Never waits: opening a named pipe would, until
/// somebody writes to it.
///
/// # Errors
/// [`NotAFile`] where something else is there; what `open` says.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true))
}

/// As [`open`], with `options`, whose custom flags are lost.
pub fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let found = match &opened {
        Ok(file) => file.metadata()?.file_type(),
        // A socket, or a pipe without a reader.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            std::fs::metadata(path)?.file_type()
        }
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            return Err(NotAFile::of(std::fs::metadata(path)?.file_type()));
        }
        // A lease is about to be given back.
        Err(error)
            if error.kind() == ErrorKind::WouldBlock && std::fs::metadata(path)?.is_file() =>
        {
            return options.custom_flags(0).open(path);
        }
        Err(_) => return opened,
    };
    match found.is_file() {
        true => opened,
        false => Err(NotAFile::of(found)),
    }
}

/// Reads the regular file at `path`, as [`open`] opens it.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// As [`read`], of a file in UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut file = open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// That nothing but a regular file is at `path`, for those who open it in another way.
///
/// # Errors
/// [`NotAFile`].
pub fn check_regular(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Err(NotAFile::of(meta.file_type())),
        _ => Ok(()),
    }
}

/// Brings a file or directory to the disk. Never waits for somebody who opens a pipe.
pub fn sync(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path)?.sync_all()
}

/// Reserves disk space for `offset..offset + len` (bytes) without changing the file's size.
pub fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, FallocateFlags::KEEP_SIZE, offset, len)
}

/// Makes `offset..offset + len` (bytes) a hole that reads as zeroes; the file's size stays.
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

/// The first byte at or after `offset` that is data; `None` where only a hole or the file's end
/// follows.
pub fn seek_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    seek(file, SeekFrom::Data(file_offset(offset)?))
}

/// The first byte at or after `offset` that begins a hole (the file's end counts as one); `None`
/// where `offset` is at or past the file's end.
pub fn seek_hole(file: &File, offset: u64) -> io::Result<Option<u64>> {
    seek(file, SeekFrom::Hole(file_offset(offset)?))
}

fn seek(file: &File, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Err(Errno::NXIO) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// Copies up to `len` bytes inside the kernel, sharing blocks where the disk can; the number
/// copied, 0 at the end of `from`.
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

/// Makes the empty file `to` share all blocks of `from` (`FICLONE`); an error where the file system
/// cannot.
pub fn clone_file(from: &File, to: &File) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(to, from)?)
}

/// Lets the kernel begin to write a file's dirty pages to the disk, without waiting for them. A
/// hint only.
pub fn start_writeback(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` lives; no memory is passed. A length of 0 is the
    // whole file.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) })
}

/// Brings everything on the file system that holds `file` to the disk.
pub fn sync_fs(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

/// Takes the exclusive lock of `file` (`flock`), until [`unlock`] or the end of the process; false
/// while another has it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives the lock of `file` back. Closing the file is not enough: a child that another thread
/// starts at this moment has the descriptor, too, until it has replaced its image.
pub fn unlock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::Unlock)?)
}

/// Whether another descriptor of the file is open, in any process. A file system that cannot tell
/// says no.
pub fn is_open_elsewhere(file: &File) -> bool {
    // Who opens it meanwhile breaks the lease; unlike SIGIO, which says so by default, this signal
    // ends nobody.
    if fcntl(file, F_SETSIG, libc::SIGURG).is_err() {
        return false;
    }
    match fcntl(file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => {
            // The lease would go with the descriptor.
            let _ = fcntl(file, libc::F_SETLEASE, libc::F_UNLCK);
            false
        }
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// `fcntl(2)`: which signal says that a lease is broken.
pub(super) const F_SETSIG: libc::c_int = 10;

/// `fcntl(2)`, for commands that take a number and that rustix lacks.
pub(super) fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    debug_assert!(matches!(command, F_SETSIG | libc::F_SETLEASE));
    // SAFETY: the descriptor is open while `file` lives; both commands take an integer.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, argument) })
}

/// Figures of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsFigures {
    /// Bytes; the unit of the `blocks` fields.
    pub block_size: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    /// Free for users other than root.
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    /// Bytes.
    pub name_max: u64,
}

/// The figures of the file system that holds `path`.
pub fn fs_figures(path: &Path) -> io::Result<FsFigures> {
    let figures = rustix::fs::statvfs(path)?;
    Ok(FsFigures {
        block_size: figures.f_frsize,
        blocks: figures.f_blocks,
        blocks_free: figures.f_bfree,
        blocks_available: figures.f_bavail,
        files: figures.f_files,
        files_free: figures.f_ffree,
        name_max: figures.f_namemax,
    })
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// `EFBIG` past the largest offset that the kernel knows.
fn file_offset(offset: u64) -> Result<u64, Errno> {
    if i64::try_from(offset).is_ok() {
        Ok(offset)
    } else {
        Err(Errno::FBIG)
    }
}

/// Whether both paths lead to one file or directory.
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
