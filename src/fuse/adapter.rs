//! `fuser::Filesystem` over a [`Workspace`]: each method decodes, calls and replies.
//!
//! `open`, `opendir`, `flush` and `create` answer ENOSYS, once each: the kernel then does them by itself (create as
//! mknod followed by an open that costs nothing). There are no handles, and nothing is released: a node
//! lives until the kernel forgets it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem,
    INodeNo, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use log::{debug, error};

use super::convert::{self, XattrAnswer};
use super::counters::{Counters, Operation};
use super::ioctl::{self, Ioctl};
use super::negotiate::{self, GENERATION, REMEMBER};
use super::priming::PrimingFile;
use super::{errno, notifier};
use crate::attr::{Ino, InodeFlags};
use crate::workspace::{FsError, SetAttr, StatFs, Workspace};

/// Bytes copied by one request at most, so that one copy does not hold a thread for long. A multiple of the page size.
const MAX_COPY: u64 = 64 * 1024 * 1024;

/// Why a request is refused.
enum Refusal {
    /// By the workspace.
    Fs(FsError),
    /// Because its arguments mean nothing here.
    Errno(Errno),
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Refusal {
        Refusal::Fs(error)
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Errno(errno)
    }
}

/// Runs a handler and finds the errno for its failure; what is the machine's fault is logged. A panic becomes EIO, so
/// that the thread goes on serving.
fn guarded<T>(
    operation: Operation,
    ino: INodeNo,
    run: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Errno> {
    match notifier::as_handler(|| catch_unwind(AssertUnwindSafe(run))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Refusal::Errno(errno))) => Err(errno),
        Ok(Err(Refusal::Fs(failure))) => {
            let errno = errno::of(&failure);
            if errno == Errno::EIO {
                error!("{} of inode {}: {failure}", operation.name(), ino.0);
            } else {
                debug!("{} of inode {}: {failure}", operation.name(), ino.0);
            }
            Err(errno)
        }
        Err(_panic) => {
            error!("{} of inode {} panicked", operation.name(), ino.0);
            Err(Errno::EIO)
        }
    }
}

/// Sends the value or the errno.
macro_rules! answer {
    ($result:expr, $reply:ident, |$value:pat_param| $send:expr) => {
        match $result {
            Ok($value) => $send,
            Err(errno) => $reply.error(errno),
        }
    };
}

/// One mount's file system.
pub(super) struct Adapter {
    workspace: Arc<Workspace>,
    counters: Arc<Counters>,
    priming: PrimingFile,
    /// Whether the kernel checks permissions.
    checks_permissions: bool,
}

impl Adapter {
    pub(super) fn new(
        workspace: Arc<Workspace>,
        counters: Arc<Counters>,
        priming: PrimingFile,
        checks_permissions: bool,
    ) -> Adapter {
        Adapter {
            workspace,
            counters,
            priming,
            checks_permissions,
        }
    }

    /// Counts the request and runs it.
    fn call<T>(
        &self,
        operation: Operation,
        ino: INodeNo,
        run: impl FnOnce(&Workspace) -> Result<T, Refusal>,
    ) -> Result<T, Errno> {
        self.counters.count(operation);
        guarded(operation, ino, || run(&self.workspace))
    }

    /// ENOSYS: from now on the kernel does it by itself.
    fn leave_to_kernel(&self, operation: Operation) -> Errno {
        self.counters.count(operation);
        Errno::ENOSYS
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate::negotiate(config, self.checks_permissions)
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.priming.is(parent, name) {
            return reply.entry_with_ttls(&REMEMBER, &Duration::ZERO, &self.priming.attr(), GENERATION);
        }
        let found = self.call(Operation::Lookup, parent, |workspace| {
            match workspace.lookup(convert::ino(parent), name.as_bytes()) {
                Ok(attr) => Ok(convert::file_attr(&attr)),
                Err(FsError::NotFound) => Ok(convert::negative_attr()),
                Err(error) => Err(error.into()),
            }
        });
        answer!(found, reply, |attr| reply.entry(&REMEMBER, &attr, GENERATION))
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        if ino == PrimingFile::INO {
            return;
        }
        // There is nobody to be told of a failure.
        let _ = self.call(Operation::Forget, ino, |workspace| {
            workspace.forget(convert::ino(ino), lookups);
            Ok(())
        });
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        if ino == PrimingFile::INO {
            return reply.attr(&REMEMBER, &self.priming.attr());
        }
        let found = self.call(Operation::GetAttr, ino, |workspace| {
            Ok(convert::file_attr(&workspace.getattr(convert::ino(ino))?))
        });
        answer!(found, reply, |attr| reply.attr(&REMEMBER, &attr))
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
            perm: mode.map(convert::permissions),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
        };
        let done = self.call(Operation::SetAttr, ino, |workspace| {
            let attr = workspace.setattr(convert::caller(request), convert::ino(ino), &set)?;
            Ok(convert::file_attr(&attr))
        });
        answer!(done, reply, |attr| reply.attr(&REMEMBER, &attr))
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.call(Operation::ReadLink, ino, |workspace| {
            Ok(workspace.readlink(convert::ino(ino))?)
        });
        answer!(target, reply, |target| reply.data(&target))
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
        let made = self.call(Operation::MkNod, parent, |workspace| {
            let caller = convert::maker(request, umask);
            let attr = workspace.mknod(caller, convert::ino(parent), name.as_bytes(), mode, rdev)?;
            Ok(convert::file_attr(&attr))
        });
        answer!(made, reply, |attr| reply.entry(&REMEMBER, &attr, GENERATION))
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
        let made = self.call(Operation::MkDir, parent, |workspace| {
            let caller = convert::maker(request, umask);
            let attr = workspace.mkdir(caller, convert::ino(parent), name.as_bytes(), mode)?;
            Ok(convert::file_attr(&attr))
        });
        answer!(made, reply, |attr| reply.entry(&REMEMBER, &attr, GENERATION))
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.call(Operation::Unlink, parent, |workspace| {
            Ok(workspace.unlink(convert::caller(request), convert::ino(parent), name.as_bytes())?)
        });
        answer!(done, reply, |()| reply.ok())
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.call(Operation::RmDir, parent, |workspace| {
            Ok(workspace.rmdir(convert::caller(request), convert::ino(parent), name.as_bytes())?)
        });
        answer!(done, reply, |()| reply.ok())
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.call(Operation::Symlink, parent, |workspace| {
            let caller = convert::caller(request);
            let target = target.as_os_str().as_bytes();
            let attr = workspace.symlink(caller, convert::ino(parent), name.as_bytes(), target)?;
            Ok(convert::file_attr(&attr))
        });
        answer!(made, reply, |attr| reply.entry(&REMEMBER, &attr, GENERATION))
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
        let done = self.call(Operation::Rename, parent, |workspace| {
            let mode = convert::rename_mode(flags)?;
            Ok(workspace.rename(
                convert::caller(request),
                convert::ino(parent),
                name.as_bytes(),
                convert::ino(new_parent),
                new_name.as_bytes(),
                mode,
            )?)
        });
        answer!(done, reply, |()| reply.ok())
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self.call(Operation::Link, ino, |workspace| {
            let caller = convert::caller(request);
            let new_parent = convert::ino(new_parent);
            let attr = workspace.link(caller, convert::ino(ino), new_parent, new_name.as_bytes())?;
            Ok(convert::file_attr(&attr))
        });
        answer!(made, reply, |attr| reply.entry(&REMEMBER, &attr, GENERATION))
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(self.leave_to_kernel(Operation::Open));
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(self.leave_to_kernel(Operation::OpenDir));
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
        reply.error(self.leave_to_kernel(Operation::Create));
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(self.leave_to_kernel(Operation::Flush));
    }

    fn access(&self, _request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel asks where it does not check permissions: of whoever may read and write everything.
        let allowed = self.call(Operation::Access, ino, |workspace| {
            match mask.contains(AccessFlags::X_OK) {
                true => Ok(workspace.check_executable(convert::ino(ino))?),
                false => Ok(()),
            }
        });
        answer!(allowed, reply, |()| reply.ok())
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
        let data = self.call(Operation::Read, ino, |workspace| {
            Ok(workspace.read(convert::ino(ino), offset, size as usize)?)
        });
        answer!(data, reply, |data| reply.data(&data))
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
        let unprivileged = kill_privileges.then(|| convert::caller(request));
        let written = self.call(Operation::Write, ino, |workspace| {
            workspace.write(convert::ino(ino), offset, data, unprivileged)?;
            u32::try_from(data.len()).map_err(|_| Errno::EINVAL.into())
        });
        answer!(written, reply, |written| reply.written(written))
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        let done = self.call(Operation::Fsync, ino, |workspace| {
            Ok(workspace.fsync(convert::ino(ino))?)
        });
        answer!(done, reply, |()| reply.ok())
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        let done = self.call(Operation::FsyncDir, ino, |workspace| {
            Ok(workspace.fsync(convert::ino(ino))?)
        });
        answer!(done, reply, |()| reply.ok())
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.call(Operation::ReadDir, ino, |workspace| {
            for (name, number, cookie) in workspace.dots(convert::ino(ino), offset)? {
                if reply.add(INodeNo(number.0), cookie, FileType::Directory, name) {
                    return Ok(());
                }
            }
            Ok(workspace.readdir(convert::ino(ino), offset, &mut |entry| {
                let number = INodeNo(entry.ino.0);
                !reply.add(
                    number,
                    entry.cookie,
                    convert::file_type(entry.kind),
                    entry.name.as_os_str(),
                )
            })?)
        });
        answer!(listed, reply, |()| reply.ok())
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.call(Operation::ReadDirPlus, ino, |workspace| {
            for (name, number, cookie) in workspace.dots(convert::ino(ino), offset)? {
                // The kernel takes these two for what they are and counts no lookup.
                let attr = convert::file_attr(&workspace.getattr(convert::ino(ino))?);
                let attr = FileAttr {
                    ino: INodeNo(number.0),
                    ..attr
                };
                if reply.add(INodeNo(number.0), cookie, name, &REMEMBER, &attr, GENERATION) {
                    return Ok(());
                }
            }
            Ok(
                workspace.readdir_plus(convert::ino(ino), offset, &mut |entry, attr| {
                    let number = INodeNo(entry.ino.0);
                    let attr = convert::file_attr(&attr);
                    let name = entry.name.as_os_str();
                    !reply.add(number, entry.cookie, name, &REMEMBER, &attr, GENERATION)
                })?,
            )
        });
        answer!(listed, reply, |()| reply.ok())
    }

    fn statfs(&self, _request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let figures = self.call(Operation::StatFs, ino, |workspace| Ok(workspace.statfs()?));
        let send = |reply: ReplyStatfs, figures: StatFs| {
            reply.statfs(
                figures.blocks,
                figures.blocks_free,
                figures.blocks_available,
                figures.files,
                figures.files_free,
                figures.block_size,
                figures.name_max,
                figures.block_size,
            );
        };
        answer!(figures, reply, |figures| send(reply, figures))
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
        let done = self.call(Operation::SetXattr, ino, |workspace| {
            let mode = convert::xattr_mode(flags)?;
            let caller = convert::caller(request);
            Ok(workspace.setxattr(caller, convert::ino(ino), name.as_bytes(), value, mode)?)
        });
        answer!(done, reply, |()| reply.ok())
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.call(Operation::GetXattr, ino, |workspace| {
            let value = workspace.getxattr(convert::caller(request), convert::ino(ino), name.as_bytes())?;
            Ok(convert::xattr_answer(value, size)?)
        });
        match value {
            Ok(XattrAnswer::Size(len)) => reply.size(len),
            Ok(XattrAnswer::Data(value)) => reply.data(&value),
            Err(errno) => reply.error(errno),
        }
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.call(Operation::ListXattr, ino, |workspace| {
            let mut list = Vec::new();
            for name in workspace.listxattr(convert::caller(request), convert::ino(ino))? {
                list.extend_from_slice(&name);
                list.push(0);
            }
            Ok(convert::xattr_answer(list, size)?)
        });
        match names {
            Ok(XattrAnswer::Size(len)) => reply.size(len),
            Ok(XattrAnswer::Data(list)) => reply.data(&list),
            Err(errno) => reply.error(errno),
        }
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.call(Operation::RemoveXattr, ino, |workspace| {
            Ok(workspace.removexattr(convert::caller(request), convert::ino(ino), name.as_bytes())?)
        });
        answer!(done, reply, |()| reply.ok())
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
        let done = self.call(Operation::Fallocate, ino, |workspace| {
            let mode = convert::fallocate_mode(mode)?;
            // As with copying, the request does not say so.
            let unprivileged = convert::unprivileged(request);
            Ok(workspace.fallocate(convert::ino(ino), offset, len, mode, unprivileged)?)
        });
        answer!(done, reply, |()| reply.ok())
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
        let found = self.call(Operation::Lseek, ino, |workspace| {
            let whence = convert::seek_whence(whence)?;
            // lseek(2): an offset before the beginning is ENXIO, as one past the end is.
            let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            let found = workspace.seek(convert::ino(ino), offset, whence)?;
            i64::try_from(found).map_err(|_| Errno::EOVERFLOW.into())
        });
        answer!(found, reply, |offset| reply.offset(offset))
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
        let copied = self.call(Operation::CopyFileRange, to, |workspace| {
            if !flags.is_empty() {
                return Err(Errno::EINVAL.into());
            }
            let (from, to): (Ino, Ino) = (convert::ino(from), convert::ino(to));
            // Unlike a write request this one does not say so.
            let unprivileged = convert::unprivileged(request);
            let len = len.min(MAX_COPY);
            let copied = workspace.copy_range(from, from_offset, to, to_offset, len, unprivileged)?;
            u32::try_from(copied).map_err(|_| Errno::EOVERFLOW.into())
        });
        answer!(copied, reply, |copied| reply.written(copied))
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
        let answer = self.call(Operation::Ioctl, ino, |workspace| {
            let (caller, ino) = (convert::caller(request), convert::ino(ino));
            Ok(match ioctl::decode(command, data)? {
                Ioctl::GetFlags => ioctl::flags(workspace.flags(ino)?),
                Ioctl::GetExtended => ioctl::extended(workspace.flags(ino)?),
                Ioctl::SetFlags(flags) => {
                    workspace.set_flags(caller, ino, flags)?;
                    Vec::new()
                }
                Ioctl::SetExtended(flags) => {
                    let kept = workspace.flags(ino)?.intersection(InodeFlags::DIRSYNC);
                    workspace.set_flags(caller, ino, flags.union(kept))?;
                    Vec::new()
                }
            })
        });
        answer!(answer, reply, |answer| reply.ioctl(0, &answer))
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
        reply.error(self.leave_to_kernel(Operation::Poll));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_panics_answers_eio_and_the_next_one_works() {
        let panicked: Result<(), Errno> = guarded(Operation::Read, INodeNo(5), || panic!("on purpose"));
        assert_eq!(panicked, Err(Errno::EIO));
        assert_eq!(guarded(Operation::Read, INodeNo(5), || Ok(7)), Ok(7));
    }

    #[test]
    fn a_refusal_becomes_its_errno() {
        let by_workspace: Result<(), Errno> =
            guarded(Operation::RmDir, INodeNo(5), || Err(FsError::NotEmpty.into()));
        assert_eq!(by_workspace, Err(Errno::ENOTEMPTY));
        let by_decoding: Result<(), Errno> =
            guarded(Operation::Lseek, INodeNo(5), || Err(Errno::ENXIO.into()));
        assert_eq!(by_decoding, Err(Errno::ENXIO));
    }
}
