//! Carries out steps by system calls in a directory: a mount, or the host's own file system.
//!
//! Paths are walked name by name without following symlinks, as the reference does.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use libc::{
    O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR, O_WRONLY, c_int,
};
use tine::attr::{FileKind, Timestamp};
use tine::workspace::RenameMode;

use super::steps::{Fallocate, Outcome, Path, Seen, Sight, Step, Subject};

/// A directory whose content is changed through the kernel.
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    pub fn new(root: impl Into<PathBuf>) -> Directory {
        Directory { root: root.into() }
    }

    /// The directory that holds the path's last name, opened, and that name.
    fn parent(&self, path: &Path) -> io::Result<(OwnedFd, CString)> {
        let (name, above) = path.split_last().expect("no step is about the root");
        Ok((self.dir(above)?, c_string(name)))
    }

    fn dir(&self, path: &[Vec<u8>]) -> io::Result<OwnedFd> {
        let flags = O_PATH | O_DIRECTORY | O_NOFOLLOW;
        let root = open_at(
            libc::AT_FDCWD,
            &c_string(self.root.as_os_str().as_bytes()),
            flags,
            0,
        )?;
        path.iter().try_fold(root, |dir, name| {
            open_at(dir.as_raw_fd(), &c_string(name), flags, 0)
        })
    }

    fn open(&self, path: &Path, flags: c_int) -> io::Result<File> {
        let (dir, name) = self.parent(path)?;
        Ok(File::from(open_at(
            dir.as_raw_fd(),
            &name,
            flags | O_NOFOLLOW,
            0,
        )?))
    }

    fn run(&self, step: &Step) -> io::Result<Outcome> {
        match step {
            Step::Create { path, perm } => {
                let (dir, name) = self.parent(path)?;
                open_at(
                    dir.as_raw_fd(),
                    &name,
                    O_CREAT | O_EXCL | O_WRONLY,
                    u32::from(*perm),
                )?;
            }
            Step::Write { path, offset, data } => {
                self.open(path, O_WRONLY)?.write_all_at(data, *offset)?
            }
            Step::Append { path, data } => {
                self.open(path, O_WRONLY | libc::O_APPEND)?
                    .write_all(data)?;
            }
            Step::Truncate { path, size } => self.open(path, O_WRONLY)?.set_len(*size)?,
            Step::Mkdir { path, perm } => {
                let (dir, name) = self.parent(path)?;
                // SAFETY: `name` is NUL-terminated and outlives the call, as everywhere below.
                check(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), u32::from(*perm)) })?;
            }
            Step::Rmdir { path } => self.unlink(path, libc::AT_REMOVEDIR)?,
            Step::Unlink { path } => self.unlink(path, 0)?,
            Step::UnlinkWhileOpen { path, data } => {
                let mut file = self.open(path, O_RDWR)?;
                let links = file.metadata()?.nlink();
                self.unlink(path, 0)?;
                assert_eq!(file.metadata()?.nlink(), links - 1, "links after unlinking");
                file.seek(SeekFrom::End(0))?;
                file.write_all(data)?;
                file.seek(SeekFrom::Start(0))?;
                let mut content = Vec::new();
                file.read_to_end(&mut content)?;
                return Ok(Outcome::Data(content));
            }
            Step::Rename { from, to, mode } => {
                let (from_dir, from_name) = self.parent(from)?;
                let (to_dir, to_name) = self.parent(to)?;
                let flags = match mode {
                    RenameMode::Replace => 0,
                    RenameMode::NoReplace => libc::RENAME_NOREPLACE,
                    RenameMode::Exchange => libc::RENAME_EXCHANGE,
                    RenameMode::LeaveDevice { .. } => unreachable!("steps have no devices"),
                };
                // SAFETY: both names are NUL-terminated and outlive the call.
                check(unsafe {
                    libc::renameat2(
                        from_dir.as_raw_fd(),
                        from_name.as_ptr(),
                        to_dir.as_raw_fd(),
                        to_name.as_ptr(),
                        flags,
                    )
                })?;
            }
            Step::Link { from, to } => {
                let (from_dir, from_name) = self.parent(from)?;
                // So that what is wrong with `from` is told before what is wrong with `to`.
                open_at(from_dir.as_raw_fd(), &from_name, O_PATH | O_NOFOLLOW, 0)?;
                let (to_dir, to_name) = self.parent(to)?;
                // SAFETY: both names are NUL-terminated and outlive the call.
                check(unsafe {
                    libc::linkat(
                        from_dir.as_raw_fd(),
                        from_name.as_ptr(),
                        to_dir.as_raw_fd(),
                        to_name.as_ptr(),
                        0,
                    )
                })?;
            }
            Step::Symlink { path, target } => {
                let (dir, name) = self.parent(path)?;
                let target = c_string(target);
                // SAFETY: both strings are NUL-terminated and outlive the call.
                check(unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), name.as_ptr()) })?;
            }
            Step::Fifo { path } => {
                let (dir, name) = self.parent(path)?;
                // SAFETY: as for mkdirat.
                check(unsafe { libc::mkfifoat(dir.as_raw_fd(), name.as_ptr(), 0o644) })?;
            }
            Step::Chmod { path, perm } => {
                let (dir, name) = self.parent(path)?;
                // SAFETY: as for mkdirat.
                check(unsafe {
                    libc::fchmodat(dir.as_raw_fd(), name.as_ptr(), u32::from(*perm), 0)
                })?;
            }
            Step::Utimens { path, mtime } => {
                let (dir, name) = self.parent(path)?;
                let times = [
                    libc::timespec {
                        tv_sec: 0,
                        tv_nsec: libc::UTIME_OMIT,
                    },
                    libc::timespec {
                        tv_sec: mtime.secs,
                        tv_nsec: mtime.nanos.into(),
                    },
                ];
                // SAFETY: as for mkdirat; `times` holds the two entries that are read.
                check(unsafe {
                    libc::utimensat(
                        dir.as_raw_fd(),
                        name.as_ptr(),
                        times.as_ptr(),
                        libc::AT_SYMLINK_NOFOLLOW,
                    )
                })?;
            }
            Step::SetXattr { path, name, value } => {
                let path = self.checked(path)?;
                let name = c_string(name);
                // SAFETY: the strings are NUL-terminated; `value` holds the bytes that are read.
                check(unsafe {
                    libc::lsetxattr(
                        path.as_ptr(),
                        name.as_ptr(),
                        value.as_ptr().cast(),
                        value.len(),
                        0,
                    )
                })?;
            }
            Step::RemoveXattr { path, name } => {
                let path = self.checked(path)?;
                let name = c_string(name);
                // SAFETY: both strings are NUL-terminated and outlive the call.
                check(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) })?;
            }
            Step::Fallocate {
                path,
                kind,
                offset,
                len,
            } => {
                let file = self.open(path, O_WRONLY)?;
                let mode = match kind {
                    Fallocate::Allocate => 0,
                    Fallocate::AllocateKeepingSize => libc::FALLOC_FL_KEEP_SIZE,
                    Fallocate::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    Fallocate::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
                    Fallocate::ZeroRangeKeepingSize => {
                        libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE
                    }
                };
                // SAFETY: fallocate(2) touches no memory.
                check(unsafe {
                    libc::fallocate(file.as_raw_fd(), mode, *offset as i64, *len as i64)
                })?;
            }
            Step::CopyRange {
                from,
                from_offset,
                to,
                to_offset,
                len,
            } => {
                let to = self.open(to, O_WRONLY)?;
                let from = self.open(from, O_RDONLY)?;
                copy_range(&from, *from_offset, &to, *to_offset, *len)?;
            }
            Step::Read { path, offset, len } => {
                let file = self.open(path, O_RDONLY)?;
                let mut content = vec![0; *len as usize];
                let mut filled = 0;
                loop {
                    match file.read_at(&mut content[filled..], offset + filled as u64)? {
                        0 => break,
                        count => filled += count,
                    }
                }
                content.truncate(filled);
                return Ok(Outcome::Data(content));
            }
            Step::List { path } => {
                // Refuses what is not a directory without a symlink being followed.
                self.dir(path)?;
                return Ok(Outcome::Names(self.list(path)?));
            }
            Step::Commit | Step::Reopen => {}
        }
        Ok(Outcome::Done)
    }

    /// The path in one piece, after every name in it was walked without following a symlink.
    fn checked(&self, path: &Path) -> io::Result<CString> {
        let (dir, name) = self.parent(path)?;
        open_at(dir.as_raw_fd(), &name, O_PATH | O_NOFOLLOW, 0)?;
        Ok(c_string(self.full(path).as_os_str().as_bytes()))
    }

    fn full(&self, path: &[Vec<u8>]) -> PathBuf {
        let mut full = self.root.clone();
        full.extend(path.iter().map(|name| std::ffi::OsStr::from_bytes(name)));
        full
    }

    fn unlink(&self, path: &Path, flags: c_int) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        // SAFETY: `name` is NUL-terminated and outlives the call.
        check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) })
    }

    /// Names and kinds as the listing itself says, without `.git` at the root.
    fn list(&self, path: &[Vec<u8>]) -> io::Result<BTreeMap<Vec<u8>, FileKind>> {
        let mut names = BTreeMap::new();
        for entry in std::fs::read_dir(self.full(path))? {
            let entry = entry?;
            if path.is_empty() && entry.file_name() == ".git" {
                continue;
            }
            let name = entry.file_name().into_vec();
            let kind = kind_of(entry.file_type()?);
            assert!(
                names.insert(name, kind).is_none(),
                "a listing names {:?} twice",
                entry.file_name()
            );
        }
        Ok(names)
    }

    fn look(&self, path: &mut Path, sight: &mut Sight) -> io::Result<()> {
        let full = self.full(path);
        let meta = std::fs::symlink_metadata(&full)?;
        let kind = kind_of(meta.file_type());
        let content = match kind {
            FileKind::Regular => {
                let content = std::fs::read(&full)?;
                check_holes(&File::open(&full)?, &content)?;
                content
            }
            FileKind::Symlink => std::fs::read_link(&full)?.into_os_string().into_vec(),
            _ => Vec::new(),
        };
        let has_size = matches!(kind, FileKind::Regular | FileKind::Symlink);
        let xattrs = match kind {
            FileKind::Regular | FileKind::Directory => {
                xattrs(&c_string(full.as_os_str().as_bytes()))?
            }
            _ => BTreeMap::new(),
        };
        let seen = Seen {
            kind,
            perm: (meta.mode() & 0o7777) as u16,
            nlink: meta.nlink() as u32,
            size: if has_size { meta.size() } else { 0 },
            content,
            xattrs,
            mtime: Some(Timestamp {
                secs: meta.mtime(),
                nanos: meta.mtime_nsec() as u32,
            }),
            node: meta.ino(),
        };
        sight.insert(super::steps::joined(path), seen);
        if kind == FileKind::Directory {
            for name in self.list(path)?.into_keys() {
                path.push(name);
                self.look(path, sight)?;
                path.pop();
            }
        }
        Ok(())
    }
}

impl Subject for Directory {
    fn apply(&mut self, step: &Step) -> Outcome {
        self.run(step).unwrap_or_else(|error| {
            Outcome::Failed(error.raw_os_error().expect("every failure is the kernel's"))
        })
    }

    fn sight(&mut self) -> Sight {
        let mut sight = Sight::new();
        self.look(&mut Vec::new(), &mut sight)
            .unwrap_or_else(|error| panic!("{} cannot be looked at: {error}", self.root.display()));
        sight
    }
}

fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("no test name holds a NUL")
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn open_at(dir: c_int, name: &CString, flags: c_int, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: `name` is NUL-terminated and outlives the call; the descriptor that comes back is
    // nobody else's.
    unsafe {
        match libc::openat(dir, name.as_ptr(), flags | O_CLOEXEC, mode) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn copy_range(
    from: &File,
    from_offset: u64,
    to: &File,
    to_offset: u64,
    len: u64,
) -> io::Result<()> {
    let (mut read, mut written) = (from_offset as i64, to_offset as i64);
    // A file that grows by being copied onto its own end is copied as it was.
    let end = (from_offset + len).min(from.metadata()?.len()) as i64;
    while read < end {
        // SAFETY: both offsets outlive the call.
        let copied = unsafe {
            libc::copy_file_range(
                from.as_raw_fd(),
                &mut read,
                to.as_raw_fd(),
                &mut written,
                (end - read) as usize,
                0,
            )
        };
        match copied {
            0 => break,
            -1 => return Err(io::Error::last_os_error()),
            _ => {}
        }
    }
    Ok(())
}

/// Every hole that the file claims to have must read as zeros.
fn check_holes(file: &File, content: &[u8]) -> io::Result<()> {
    let mut at: i64 = 0;
    while (at as usize) < content.len() {
        // SAFETY: lseek(2) touches no memory.
        let data = match unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) } {
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => {
                content.len() as i64
            }
            -1 => return Err(io::Error::last_os_error()),
            data => data,
        };
        let hole = &content[at as usize..data as usize];
        assert!(
            hole.iter().all(|&b| b == 0),
            "the hole {at}..{data} holds data"
        );
        if data as usize == content.len() {
            break;
        }
        // SAFETY: as above.
        at = unsafe { libc::lseek(file.as_raw_fd(), data, libc::SEEK_HOLE) };
        assert!(at > data, "after data at {data} comes a hole, not {at}");
    }
    Ok(())
}

fn kind_of(kind: std::fs::FileType) -> FileKind {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_dir() {
        FileKind::Directory
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else if kind.is_fifo() {
        FileKind::Fifo
    } else {
        FileKind::Regular
    }
}

/// The user's own extended attributes.
fn xattrs(path: &CString) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0_u8; 4096];
    // SAFETY: the buffer is as long as is said.
    let len = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
    names.truncate(len as usize);
    let mut found = BTreeMap::new();
    for name in names
        .split(|&b| b == 0)
        .filter(|name| name.starts_with(b"user."))
    {
        let mut value = vec![0_u8; 4096];
        let c_name = c_string(name);
        // SAFETY: the buffer is as long as is said, the strings are NUL-terminated.
        let len = unsafe {
            libc::lgetxattr(
                path.as_ptr(),
                c_name.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        };
        if len < 0 {
            return Err(io::Error::last_os_error());
        }
        value.truncate(len as usize);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}
