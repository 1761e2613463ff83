//! The process that serves the disk: a file system of two files, `disk.img` and `control`.
//!
//! One thread answers, in the order in which the kernel asks, so the order of what is recorded is
//! that in which it arrived. It never touches anything that lies on the disk itself.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};

use super::recording::Entry;

pub(super) const IMAGE: &str = "disk.img";
pub(super) const WRITES: &str = "writes";
pub(super) const SERVED: &str = "served";
pub(super) const CONTROL: &str = "control";

/// Says to a run of the test binary that it is to serve the disk in this directory.
const VARIABLE: &str = "SERVED_TEST_DISK";
/// The test that asks [`serve_if_asked`] first of all.
const SERVING_TEST: &str = "disk_filter::it_records_and_fails_as_told";

const TTL: Duration = Duration::from_secs(3600);
const IMAGE_INO: u64 = 2;
const CONTROL_INO: u64 = 3;

/// What a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Reads,
    Writes,
    Flushes,
}

/// Operations that fail.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub what: What,
    /// Only those that touch these bytes of the disk; flushes touch all.
    pub range: (u64, u64),
    pub errno: i32,
    /// So many go through before.
    pub after: u64,
    /// So many fail.
    pub count: u64,
}

impl Fault {
    /// Every operation of this kind fails with EIO until the disk is healed.
    pub fn all(what: What) -> Fault {
        Fault {
            what,
            range: (0, u64::MAX),
            errno: libc::EIO,
            after: 0,
            count: u64::MAX,
        }
    }

    pub(super) fn encode(&self) -> String {
        let what = match self.what {
            What::Reads => 0,
            What::Writes => 1,
            What::Flushes => 2,
        };
        let (start, end) = self.range;
        format!(
            "{what} {start} {end} {} {} {}",
            self.errno, self.after, self.count
        )
    }

    fn decode(text: &str) -> Option<Fault> {
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Fault {
            what: match next()? {
                0 => What::Reads,
                1 => What::Writes,
                _ => What::Flushes,
            },
            range: (next()?, next()?),
            errno: i32::try_from(next()?).ok()?,
            after: next()?,
            count: next()?,
        })
    }
}

/// This test binary, to be run as the server of the disk in `dir`.
pub(super) fn command(dir: &Path) -> Command {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new(program);
    command
        .args(["--exact", SERVING_TEST, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, dir);
    command
}

/// Serves the disk that this process was started for, until it is killed; false where it was
/// started for something else.
pub fn serve_if_asked() -> bool {
    let Some(dir) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return false;
    };
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .open(dir.join(IMAGE))
        .expect("the image is there");
    let writes = File::create_new(dir.join(WRITES)).expect("the recording is new");
    let failures = File::create_new(dir.join("failures")).expect("the file is new");
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("tine-test-disk".to_owned())];
    config.n_threads = Some(1);
    let disk = Server {
        len: image.metadata().expect("the image is there").len(),
        image,
        failures,
        state: Mutex::new(State {
            writes,
            faults: Vec::new(),
        }),
    };
    fuser::mount(disk, dir.join(SERVED), &config).expect("the disk can be served");
    true
}

struct Server {
    image: File,
    len: u64,
    failures: File,
    state: Mutex<State>,
}

struct State {
    writes: File,
    faults: Vec<Fault>,
}

impl State {
    fn record(&mut self, entry: &Entry<'_>) {
        let bytes = entry.encode();
        self.writes
            .write_all(&bytes)
            .expect("the recording can be written");
    }
}

impl Server {
    /// The errno with which an operation fails, if it is to.
    fn struck(&self, what: What, start: u64, end: u64) -> Option<Errno> {
        let mut state = self.state.lock().expect("no thread panics with the lock");
        let fault = state
            .faults
            .iter_mut()
            .find(|fault| fault.what == what && start < fault.range.1 && fault.range.0 < end)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        if fault.count == 0 {
            return None;
        }
        fault.count -= 1;
        let errno = Errno::from_i32(fault.errno);
        (&self.failures)
            .write_all(b"x")
            .expect("the file can be written");
        Some(errno)
    }

    fn attr(&self, ino: u64) -> FileAttr {
        FileAttr {
            ino: INodeNo(ino),
            size: if ino == IMAGE_INO { self.len } else { 0 },
            blocks: self.len / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if ino == 1 {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Server {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = match name.to_str() {
            Some(IMAGE) => IMAGE_INO,
            Some(CONTROL) => CONTROL_INO,
            _ => return reply.error(Errno::ENOENT),
        };
        reply.entry(&TTL, &self.attr(ino), Generation(0));
    }

    fn getattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        reply.attr(&TTL, &self.attr(ino.0));
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Whoever opens the control file cuts it off first.
        reply.attr(&TTL, &self.attr(ino.0));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Past the page cache: each write of the loop device arrives as it is made.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = (offset + u64::from(size)).min(self.len);
        if let Some(errno) = self.struck(What::Reads, offset, end) {
            return reply.error(errno);
        }
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        match self.image.read_exact_at(&mut bytes, offset) {
            Ok(()) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if ino.0 == CONTROL_INO {
            let mut state = self.state.lock().expect("no thread panics with the lock");
            match std::str::from_utf8(data).ok().and_then(Fault::decode) {
                Some(fault) => {
                    state.faults.retain(|old| old.what != fault.what);
                    state.faults.push(fault);
                }
                None => state.faults.clear(),
            }
            return reply.written(data.len() as u32);
        }
        if let Some(errno) = self.struck(What::Writes, offset, offset + data.len() as u64) {
            return reply.error(errno);
        }
        let mut state = self.state.lock().expect("no thread panics with the lock");
        match self.image.write_all_at(data, offset) {
            Ok(()) => {
                state.record(&Entry::Write { offset, data });
                reply.written(data.len() as u32);
            }
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(errno) = self.struck(What::Flushes, 0, u64::MAX) {
            return reply.error(errno);
        }
        self.state
            .lock()
            .expect("no thread panics with the lock")
            .record(&Entry::Flush);
        reply.ok();
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}
