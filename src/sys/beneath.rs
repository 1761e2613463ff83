//! Looking at files beneath a directory of the host, and never anywhere else: no symlink is
//! followed and no mount is crossed, whatever others do to the directories meanwhile.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use tine_attr::{FileKind, Timestamp};

/// `linux/fcntl.h`, which `libc` lacks.
const F_SETSIG: libc::c_int = 10;

/// What the host says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStat {
    pub dev: u64,
    pub ino: u64,
    pub kind: FileKind,
    /// The low 12 bits of `st_mode`.
    pub perm: u16,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To look at it only; a symlink is opened itself.
    Look,
    Read,
}

/// Opens the directory at `path`, to be looked beneath.
pub fn open_top(path: &Path) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: `path` ends in NUL and lives through the call.
    owned(unsafe { libc::open(path.as_ptr(), flags) })
}

/// Opens what is at `path` (relative; empty: the directory itself) beneath the directory `top`. A
/// symlink on the way is `ELOOP`, another mount `EXDEV`.
pub fn open(top: &File, path: &Path, access: Access) -> io::Result<File> {
    let path = match path.as_os_str().is_empty() {
        true => c".".to_owned(),
        false => CString::new(path.as_os_str().as_bytes())?,
    };
    let common = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    match access {
        Access::Look => open_at(top, &path, common | libc::O_PATH),
        Access::Read => {
            // Reading shall leave no trace; only the owner may ask for that. What became a fifo
            // shall not block.
            let flags = common | libc::O_RDONLY | libc::O_NONBLOCK;
            match open_at(top, &path, flags | libc::O_NOATIME) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    open_at(top, &path, flags)
                }
                opened => opened,
            }
        }
    }
}

fn open_at(top: &File, path: &CStr, flags: libc::c_int) -> io::Result<File> {
    open_with(top, path, flags, 0)
}

/// `openat2(2)`, with `mode` for a file that is made.
pub(super) fn open_with(
    top: &File,
    path: &CStr,
    flags: libc::c_int,
    mode: u64,
) -> io::Result<File> {
    // SAFETY: all zeroes is a valid `open_how`.
    let mut how: libc::open_how = unsafe { MaybeUninit::zeroed().assume_init() };
    how.flags = flags as u64;
    how.mode = mode;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_XDEV;
    loop {
        // SAFETY: `path` ends in NUL, `how` is a live struct of the size that is named.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                top.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
            )
        };
        match owned(opened as libc::c_int) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
            opened => return opened,
        }
    }
}

fn owned(descriptor: libc::c_int) -> io::Result<File> {
    match descriptor {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call just gave the descriptor, and nobody else has it.
        descriptor => Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) })),
    }
}

/// What is known of an open file.
pub fn stat(file: &File) -> io::Result<HostStat> {
    stat_at(file, c"", libc::AT_EMPTY_PATH)
}

/// What is known of the file `name` in the open directory, a symlink itself.
pub fn stat_in(dir: &File, name: &[u8]) -> io::Result<HostStat> {
    stat_at(dir, &CString::new(name)?, libc::AT_SYMLINK_NOFOLLOW)
}

fn stat_at(dir: &File, name: &CStr, flags: libc::c_int) -> io::Result<HostStat> {
    let mut stat = MaybeUninit::<libc::stat64>::uninit();
    // SAFETY: `name` ends in NUL and `stat` has room for the answer.
    let result = unsafe {
        libc::fstatat64(
            dir.as_raw_fd(),
            name.as_ptr(),
            stat.as_mut_ptr(),
            flags | libc::AT_NO_AUTOMOUNT,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled the struct.
    let stat = unsafe { stat.assume_init() };
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
        atime: Timestamp::of_stat(stat.st_atime, stat.st_atime_nsec),
        mtime: Timestamp::of_stat(stat.st_mtime, stat.st_mtime_nsec),
        ctime: Timestamp::of_stat(stat.st_ctime, stat.st_ctime_nsec),
    })
}

/// The type differs between machines.
fn links(links: impl Into<u64>) -> u64 {
    links.into()
}

/// The target of a symlink that was opened to be looked at.
pub fn read_link(link: &File) -> io::Result<Vec<u8>> {
    let mut target = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: the path ends in NUL, and `target` has the room that is named.
    let len = unsafe {
        libc::readlinkat(
            link.as_raw_fd(),
            c"".as_ptr(),
            target.as_mut_ptr().cast(),
            target.len(),
        )
    };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    target.truncate(len);
    Ok(target)
}

/// Names in a directory that was opened to be read, without `.` and `..`, with their kinds where
/// the file system tells.
pub fn list(dir: File) -> io::Result<Vec<(Vec<u8>, Option<FileKind>)>> {
    let dir = OwnedFd::from(dir);
    // SAFETY: the descriptor is open, and the stream has it from here on.
    let stream = unsafe { libc::fdopendir(dir.as_raw_fd()) };
    if stream.is_null() {
        return Err(io::Error::last_os_error());
    }
    std::mem::forget(dir);
    let mut names = Vec::new();
    let outcome = loop {
        // SAFETY: errno is the thread's own.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: the stream is open, and only this thread has it.
        let entry = unsafe { libc::readdir64(stream) };
        if entry.is_null() {
            match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(0) => break Ok(names),
                error => break Err(error),
            }
        }
        // SAFETY: the entry stays until the stream is read on, and its name ends in NUL.
        let (name, kind) = unsafe { (CStr::from_ptr((*entry).d_name.as_ptr()), (*entry).d_type) };
        if !matches!(name.to_bytes(), b"." | b"..") {
            // DT_UNKNOWN is 0, which as a mode would be a regular file.
            let kind = match kind {
                libc::DT_UNKNOWN => None,
                kind => FileKind::from_mode(u32::from(kind) << 12),
            };
            names.push((name.to_bytes().to_vec(), kind));
        }
    };
    // SAFETY: the stream is open, and nobody uses it from here on.
    unsafe { libc::closedir(stream) };
    outcome
}

/// That nobody writes to a file: whoever opens it for writing waits until this is dropped. To be
/// held for a moment only.
pub struct ReadLease<'f>(&'f File);

impl<'f> ReadLease<'f> {
    /// `WouldBlock` while somebody has it open for writing; another error where this file, or this
    /// user, has no leases.
    pub fn take(file: &'f File) -> io::Result<ReadLease<'f>> {
        // Whoever waits for it has a signal sent to this process: one that it ignores unless it
        // wants it. SAFETY: the descriptor is open while `file` lives; no memory is passed.
        check(unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) })?;
        // SAFETY: as above.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) })?;
        Ok(ReadLease(file))
    }
}

impl Drop for ReadLease<'_> {
    fn drop(&mut self) {
        // A lease that was taken away by force is gone already.
        // SAFETY: the descriptor is open while the file lives; no memory is passed.
        let _ = check(unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) });
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

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
        let link = open("link", Access::Look).unwrap();
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

    #[test]
    fn a_lease_says_whether_somebody_writes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = File::open(file.path()).unwrap();
        let error = ReadLease::take(&read).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let path = file.into_temp_path();
        drop(ReadLease::take(&read).unwrap());
        let lease = ReadLease::take(&read).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| fs::write(&path, "later").unwrap());
            drop(lease);
            writer.join().unwrap();
        });
    }
}
