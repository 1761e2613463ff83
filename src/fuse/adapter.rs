//! Implementation of `fuser::Filesystem` over [`Operations`].
//!
//! Each method decodes, calls and replies.

mod convert;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BackingId, BsdFileFlags, CopyFileRangeFlags, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags,
    PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use log::debug;

use self::convert::NEGATIVE_ATTR;
use super::convert::{XattrAnswer, permissions};
use super::counters::Operation;
use super::entries::{Entry, Opening};
use super::errno::Errno;
use super::negotiate;
use super::opens::{Access, Opened, Opens};
use super::operations::{Answer, Operations};
use super::transport::RingOptions;
use tine_attr::{Attr, Ino};
use tine_store::MountProfile;
use tine_workspace::SetAttr;

/// Sends the value, or the errno.
macro_rules! answer {
    ($result:expr, $reply:ident, |$value:pat_param| $send:expr) => {
        match $result {
            Ok($value) => $send,
            Err(errno) => $reply.error(errno.into()),
        }
    };
}

fn answer_entry(answer: Answer<Entry>, reply: ReplyEntry) {
    answer!(answer, reply, |entry| {
        let attr = entry
            .attr
            .as_ref()
            .map_or(NEGATIVE_ATTR, convert::file_attr);
        reply.entry_with_ttls(
            &entry.attr_ttl,
            &entry.name_ttl,
            &attr,
            Generation(entry.generation),
        );
    });
}

fn answer_attr(answer: Answer<(Attr, Duration)>, reply: ReplyAttr) {
    answer!(answer, reply, |(attr, ttl)| reply
        .attr(&ttl, &convert::file_attr(&attr)));
}

fn answer_data(answer: Answer<Vec<u8>>, reply: ReplyData) {
    answer!(answer, reply, |data| reply.data(&data));
}

fn answer_empty(answer: Answer<()>, reply: ReplyEmpty) {
    answer!(answer, reply, |()| reply.ok());
}

fn answer_written(answer: Answer<u32>, reply: ReplyWrite) {
    answer!(answer, reply, |written| reply.written(written));
}

fn answer_xattr(answer: Answer<XattrAnswer>, reply: ReplyXattr) {
    answer!(answer, reply, |answer| match answer {
        XattrAnswer::Size(len) => reply.size(len),
        XattrAnswer::Data(value) => reply.data(&value),
    });
}

/// Handle of a file without state that lasts until it is closed.
const NO_HANDLE: FileHandle = FileHandle(0);

/// File system that `fuser` serves.
pub(super) struct Adapter {
    /// Implementation of the requests.
    operations: Arc<Operations>,
    /// Open files, on a mount where opening a file is a request.
    opens: Option<Opens<BackingId>>,
    /// Options for the rings, until INIT negotiates them.
    rings: Option<RingOptions>,
    /// True if the kernel checks permissions.
    checks_permissions: bool,
}

impl Adapter {
    pub(super) fn new(
        operations: Arc<Operations>,
        profile: MountProfile,
        rings: Option<RingOptions>,
        checks_permissions: bool,
    ) -> Adapter {
        Adapter {
            operations,
            opens: match profile {
                MountProfile::Everyday => None,
                MountProfile::LargeFiles => Some(Opens::new()),
            },
            rings,
            checks_permissions,
        }
    }

    /// Pins a content and registers its file with the kernel for passthrough.
    fn back(&self, ino: Ino, reply: &ReplyOpen) -> Option<BackingId> {
        let file = self.operations.pin(ino)?;
        match reply.open_backing(&*file) {
            Ok(backing) => Some(backing),
            Err(error) => {
                debug!(
                    "the kernel does not read inode {} by itself: {error}",
                    ino.0
                );
                self.operations.unpin(ino);
                None
            }
        }
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate::negotiate(config, self.checks_permissions, self.opens.is_some())?;
        if let Some(rings) = self.rings.take() {
            rings.negotiate(config);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let caller = convert::caller(request);
        let found = self
            .operations
            .lookup(caller, convert::ino(parent), name.as_bytes());
        answer_entry(found, reply);
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        self.operations.forget(convert::ino(ino), lookups);
    }

    fn getattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let caller = convert::caller(request);
        answer_attr(self.operations.getattr(caller, convert::ino(ino)), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            perm: mode.map(permissions),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
        };
        let caller = convert::caller(request);
        answer_attr(
            self.operations.setattr(caller, convert::ino(ino), &set),
            reply,
        );
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        answer_data(self.operations.readlink(convert::ino(ino)), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let caller = convert::maker(request, umask);
        let (parent, name) = (convert::ino(parent), name.as_bytes());
        answer_entry(
            self.operations.mknod(caller, parent, name, mode, rdev),
            reply,
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let caller = convert::maker(request, umask);
        let (parent, name) = (convert::ino(parent), name.as_bytes());
        answer_entry(self.operations.mkdir(caller, parent, name, mode), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (convert::ino(parent), name.as_bytes());
        let done = self
            .operations
            .unlink(convert::caller(request), parent, name);
        answer_empty(done, reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (convert::ino(parent), name.as_bytes());
        let done = self
            .operations
            .rmdir(convert::caller(request), parent, name);
        answer_empty(done, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let caller = convert::caller(request);
        let (parent, name) = (convert::ino(parent), name.as_bytes());
        let target = target.as_os_str().as_bytes();
        answer_entry(self.operations.symlink(caller, parent, name, target), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.operations.rename(
            convert::caller(request),
            convert::ino(parent),
            name.as_bytes(),
            convert::ino(new_parent),
            new_name.as_bytes(),
            flags.bits(),
        );
        answer_empty(done, reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (caller, ino) = (convert::caller(request), convert::ino(ino));
        let (new_parent, new_name) = (convert::ino(new_parent), new_name.as_bytes());
        answer_entry(
            self.operations.link(caller, ino, new_parent, new_name),
            reply,
        );
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let ino = convert::ino(ino);
        let only_to_read = flags.acc_mode() == OpenAccMode::O_RDONLY;
        let opening = self
            .operations
            .open(convert::caller(request), ino, !only_to_read);
        let opens = match (opening, &self.opens) {
            (Ok(Opening::Text), _) | (Ok(Opening::File), None) => {
                return reply.opened(NO_HANDLE, FopenFlags::FOPEN_KEEP_CACHE);
            }
            (Err(errno), None) => return reply.error(errno.into()),
            (Err(errno), Some(_)) if errno != Errno::ENOSYS => return reply.error(errno.into()),
            (_, Some(opens)) => opens,
        };
        let handle = |access: Access| FileHandle(access.handle());
        match opens.open(ino, only_to_read, || self.back(ino, &reply)) {
            Opened::Cached { keep: true } => {
                reply.opened(handle(Access::Cached), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Opened::Cached { keep: false } => {
                reply.opened(handle(Access::Cached), FopenFlags::empty())
            }
            Opened::Direct(backing) => {
                reply.opened_passthrough(
                    handle(Access::Direct),
                    FopenFlags::FOPEN_DIRECT_IO,
                    &backing,
                );
            }
            Opened::Passthrough(backing) => {
                reply.opened_passthrough(
                    handle(Access::Passthrough),
                    FopenFlags::empty(),
                    &backing,
                );
            }
        }
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.operations.count(Operation::Release);
        let ino = convert::ino(ino);
        if let (Some(opens), Some(access)) = (&self.opens, Access::of_handle(handle.0)) {
            if access == Access::Direct {
                self.operations.note_mapped_writes(ino);
            }
            if opens.release(ino, access) {
                self.operations.unpin(ino);
            }
        }
        reply.ok();
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(self.operations.leave_to_kernel(Operation::OpenDir).into());
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(self.operations.leave_to_kernel(Operation::Create).into());
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(self.operations.leave_to_kernel(Operation::Flush).into());
    }

    fn access(&self, _request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        answer_empty(
            self.operations.access(convert::ino(ino), mask.bits()),
            reply,
        );
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buffer = vec![0; size as usize];
        let read = self.operations.read(convert::ino(ino), offset, &mut buffer);
        answer!(read, reply, |len| reply
            .data(buffer.get(..len).unwrap_or_default()));
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kill_privileges = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let (caller, ino) = (convert::caller(request), convert::ino(ino));
        let written = self
            .operations
            .write(caller, ino, offset, data, kill_privileges);
        answer_written(written, reply);
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        answer_empty(self.operations.fsync(convert::ino(ino)), reply);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        answer_empty(self.operations.fsyncdir(convert::ino(ino)), reply);
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self
            .operations
            .readdir(convert::ino(ino), offset, &mut |entry| {
                let name = OsStr::from_bytes(entry.name);
                let file_type: FileType = convert::file_type(entry.kind);
                !reply.add(INodeNo(entry.ino.0), entry.cookie, file_type, name)
            });
        answer!(listed, reply, |()| reply.ok());
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self
            .operations
            .readdirplus(convert::ino(ino), offset, &mut |entry, attr| {
                let (number, name) = (INodeNo(entry.ino.0), OsStr::from_bytes(entry.name));
                let ttl = entry.entry(attr).name_ttl;
                let (attr, generation) = (convert::file_attr(attr), Generation(entry.generation));
                !reply.add(number, entry.cookie, name, &ttl, &attr, generation)
            });
        answer!(listed, reply, |()| reply.ok());
    }

    fn statfs(&self, _request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let figures = self.operations.statfs(convert::ino(ino));
        answer!(figures, reply, |figures| reply.statfs(
            figures.blocks,
            figures.blocks_free,
            figures.blocks_available,
            figures.files,
            figures.files_free,
            figures.block_size,
            figures.name_max,
            figures.block_size,
        ));
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (caller, ino) = (convert::caller(request), convert::ino(ino));
        let done = self
            .operations
            .setxattr(caller, ino, name.as_bytes(), value, flags);
        answer_empty(done, reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let (caller, ino) = (convert::caller(request), convert::ino(ino));
        let value = self.operations.getxattr(caller, ino, name.as_bytes(), size);
        answer_xattr(value, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (caller, ino) = (convert::caller(request), convert::ino(ino));
        answer_xattr(self.operations.listxattr(caller, ino, size), reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, ino) = (convert::caller(request), convert::ino(ino));
        answer_empty(
            self.operations.removexattr(caller, ino, name.as_bytes()),
            reply,
        );
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (caller, ino) = (convert::caller(request), convert::ino(ino));
        answer_empty(
            self.operations.fallocate(caller, ino, offset, len, mode),
            reply,
        );
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = self.operations.lseek(convert::ino(ino), offset, whence);
        answer!(found, reply, |offset| reply.offset(offset));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _from_handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        len: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let from = (convert::ino(from), from_offset);
        let to = (convert::ino(to), to_offset);
        let caller = convert::caller(request);
        let copied = self
            .operations
            .copy_file_range(caller, from, to, len, flags.bits());
        answer_written(copied, reply);
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let (caller, ino) = (convert::caller(request), convert::ino(ino));
        let answer = self.operations.ioctl(caller, ino, command, data);
        answer!(answer, reply, |answer| reply.ioctl(0, &answer));
    }

    fn poll(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(self.operations.leave_to_kernel(Operation::Poll).into());
    }
}
