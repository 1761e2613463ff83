//! Encoding of requests and answers in the buffers of a ring.
//!
//! The structures are those of `include/uapi/linux/fuse.h`. The functions do no I/O, and no bytes
//! make them panic.
//!
//! ```text
//! header    in_out 128      fuse_in_header; in an answer, fuse_out_header
//!           op_in  128      the request's own structure (fuse_read_in …), if it has one
//!           32              flags, commit ID, length of the payload
//! payload                   names and data; in an answer, its structure and data
//! ```

use std::time::Duration;

use crate::convert::{BLOCK_SIZE, permissions};
use crate::entries::{Entry, Listed};
use crate::errno::Errno;
use crate::operations::Answer;
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_sys::fuse_ring::HEADER_LEN;
use tine_workspace::{Caller, SetAttr, SetTime, StatFs};

/// Offset of the request's own structure in the header.
const OP_IN_AT: usize = 128;
/// Offset of the length of the payload in the header.
const PAYLOAD_LEN_AT: usize = 272;
/// Size of `struct fuse_out_header`.
const OUT_HEADER_LEN: usize = 16;
/// Size of `struct fuse_dirent` without the name.
const DIRENT_LEN: usize = 24;
/// Size of `struct fuse_entry_out`, which precedes a READDIRPLUS entry.
const ENTRY_OUT_LEN: usize = 128;

/// Bits of SETATTR (`FATTR_*`).
mod set {
    pub(super) const MODE: u32 = 1;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
}

/// Write flag to remove set-ID bits (`FUSE_WRITE_KILL_SUIDGID`).
const KILL_SUIDGID: u32 = 1 << 2;

/// Open flag to keep cached content (`FOPEN_KEEP_CACHE`).
const KEEP_CACHE: u32 = 1 << 1;

/// Header of a request, common to all kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Kind of request.
    opcode: u32,
    /// ID that the answer must repeat.
    unique: u64,
    /// Node that the request is for.
    pub node: Ino,
    /// Process that made the request.
    pub caller: Caller,
    /// Length of the payload in bytes.
    payload_len: usize,
}

/// Decoded request. Names have no zero bytes, and may be empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Lookup {
        name: &'a [u8],
    },
    GetAttr,
    SetAttr(SetAttr),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MkNod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u16,
    },
    MkDir {
        name: &'a [u8],
        mode: u32,
        umask: u16,
    },
    Unlink {
        name: &'a [u8],
    },
    RmDir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: Ino,
        new_name: &'a [u8],
        flags: u32,
    },
    /// The header's node is the directory.
    Link {
        ino: Ino,
        new_name: &'a [u8],
    },
    Open {
        to_write: bool,
    },
    Release,
    Read {
        offset: u64,
        size: u32,
    },
    Write {
        offset: u64,
        data: &'a [u8],
        kill_privileges: bool,
    },
    StatFs,
    Fsync,
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: i32,
    },
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Flush,
    OpenDir,
    ReadDir {
        cookie: u64,
        size: u32,
    },
    FsyncDir,
    Access {
        mask: i32,
    },
    Create,
    Ioctl {
        command: u32,
        data: &'a [u8],
    },
    Poll,
    Fallocate {
        offset: u64,
        len: u64,
        mode: i32,
    },
    ReadDirPlus {
        cookie: u64,
        size: u32,
    },
    Lseek {
        offset: i64,
        whence: i32,
    },
    CopyFileRange {
        from_offset: u64,
        to: (Ino, u64),
        len: u64,
        flags: u64,
    },
}

/// Reader of numbers.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}

/// Reader of a request's payload.
struct PayloadReader<'a>(&'a [u8]);

impl<'a> PayloadReader<'a> {
    /// Reads a name up to the next zero byte, which must exist.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(name)
    }

    /// Returns the next `len` bytes.
    fn data(&self, len: u32) -> Option<&'a [u8]> {
        self.0.get(..usize::try_from(len).ok()?)
    }
}

impl Header {
    /// Decodes a header.
    ///
    /// EIO if it is not valid. Without a valid ID, the kernel refuses any answer.
    pub(super) fn decode(header: &[u8; HEADER_LEN]) -> Answer<Header> {
        let read = || {
            let mut fields = Fields(header);
            let (_len, opcode, unique) = (fields.u32()?, fields.u32()?, fields.u64()?);
            let node = Ino(fields.u64()?);
            let caller = Caller::new(fields.u32()?, fields.u32()?);
            let thread = fields.u32()?;
            let payload_len = Fields(header.get(PAYLOAD_LEN_AT..)?).u32()?;
            Some(Header {
                opcode,
                unique,
                node,
                caller: Caller { thread, ..caller },
                payload_len: usize::try_from(payload_len).ok()?,
            })
        };
        read().ok_or(Errno::EIO)
    }

    /// Decodes the request.
    ///
    /// ENOSYS for an unknown kind, EIO for invalid arguments.
    pub(super) fn request<'a>(
        &self,
        header: &[u8; HEADER_LEN],
        payload: &'a [u8],
    ) -> Answer<Request<'a>> {
        let payload = payload.get(..self.payload_len).ok_or(Errno::EIO)?;
        let arguments = header.get(OP_IN_AT..2 * OP_IN_AT).ok_or(Errno::EIO)?;
        match decode(self.opcode, Fields(arguments), PayloadReader(payload)) {
            Some(Known(request)) => request.ok_or(Errno::EIO),
            None => Err(Errno::ENOSYS),
        }
    }

    /// Writes the result of a request into the header.
    ///
    /// It is the number of bytes written to the payload, or an errno.
    pub(super) fn answer(&self, outcome: Answer<usize>, header: &mut [u8; HEADER_LEN]) {
        let (len, error) = match outcome {
            Ok(len) => (u32::try_from(len).unwrap_or(0), 0),
            Err(errno) => (0, -errno.code()),
        };
        header[..4].copy_from_slice(&(OUT_HEADER_LEN as u32).saturating_add(len).to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[8..16].copy_from_slice(&self.unique.to_ne_bytes());
        header[PAYLOAD_LEN_AT..PAYLOAD_LEN_AT + 4].copy_from_slice(&len.to_ne_bytes());
    }
}

/// Request of a known kind; `None` if its arguments are not valid.
struct Known<'a>(Option<Request<'a>>);

/// Decodes a request; `None` if its kind is unknown.
fn decode<'a>(
    opcode: u32,
    mut fields: Fields<'_>,
    mut rest: PayloadReader<'a>,
) -> Option<Known<'a>> {
    let (fields, rest) = (&mut fields, &mut rest);
    Some(Known(match opcode {
        1 => named(rest, |name| Request::Lookup { name }),
        3 => Some(Request::GetAttr),
        4 => set_attr(fields),
        5 => Some(Request::ReadLink),
        6 => symlink(rest),
        8 => mknod(fields, rest),
        9 => mkdir(fields, rest),
        10 => named(rest, |name| Request::Unlink { name }),
        11 => named(rest, |name| Request::RmDir { name }),
        12 => rename(fields, rest, false),
        13 => link(fields, rest),
        14 => fields.i32().map(|flags| Request::Open {
            to_write: flags & libc::O_ACCMODE != libc::O_RDONLY,
        }),
        15 => read(fields, |offset, size| Request::Read { offset, size }),
        16 => write(fields, rest),
        17 => Some(Request::StatFs),
        18 => Some(Request::Release),
        20 => Some(Request::Fsync),
        21 => set_xattr(fields, rest),
        22 => get_xattr(fields, rest),
        23 => fields.u32().map(|size| Request::ListXattr { size }),
        24 => named(rest, |name| Request::RemoveXattr { name }),
        25 => Some(Request::Flush),
        27 => Some(Request::OpenDir),
        28 => read(fields, |cookie, size| Request::ReadDir { cookie, size }),
        30 => Some(Request::FsyncDir),
        34 => fields.i32().map(|mask| Request::Access { mask }),
        35 => Some(Request::Create),
        39 => ioctl(fields, rest),
        40 => Some(Request::Poll),
        43 => fallocate(fields),
        44 => read(fields, |cookie, size| Request::ReadDirPlus { cookie, size }),
        45 => rename(fields, rest, true),
        46 => lseek(fields),
        47 => copy_file_range(fields),
        _ => return None,
    }))
}

/// Decodes a request that has one name.
fn named<'a>(
    rest: &mut PayloadReader<'a>,
    request: impl FnOnce(&'a [u8]) -> Request<'a>,
) -> Option<Request<'a>> {
    rest.name().map(request)
}

fn set_attr<'a>(fields: &mut Fields<'_>) -> Option<Request<'a>> {
    let valid = fields.u32()?;
    let (_padding, _handle, size, _lock_owner) =
        (fields.u32()?, fields.u64()?, fields.u64()?, fields.u64()?);
    let (atime, mtime, _ctime) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (atime_nanos, mtime_nanos, _ctime_nanos) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (mode, _unused, uid, gid) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
    let has = |bit: u32| valid & bit != 0;
    let time = |bit: u32, now: u32, secs: u64, nanos: u32| {
        has(bit).then_some(if has(now) {
            SetTime::Now
        } else {
            SetTime::At(Timestamp {
                secs: secs.cast_signed(),
                nanos,
            })
        })
    };
    Some(Request::SetAttr(SetAttr {
        perm: has(set::MODE).then(|| permissions(mode)),
        uid: has(set::UID).then_some(uid),
        gid: has(set::GID).then_some(gid),
        size: has(set::SIZE).then_some(size),
        atime: time(set::ATIME, set::ATIME_NOW, atime, atime_nanos),
        mtime: time(set::MTIME, set::MTIME_NOW, mtime, mtime_nanos),
    }))
}

fn symlink<'a>(rest: &mut PayloadReader<'a>) -> Option<Request<'a>> {
    Some(Request::Symlink {
        name: rest.name()?,
        target: rest.name()?,
    })
}

fn mknod<'a>(fields: &mut Fields<'_>, rest: &mut PayloadReader<'a>) -> Option<Request<'a>> {
    Some(Request::MkNod {
        mode: fields.u32()?,
        rdev: fields.u32()?,
        umask: permissions(fields.u32()?),
        name: rest.name()?,
    })
}

fn mkdir<'a>(fields: &mut Fields<'_>, rest: &mut PayloadReader<'a>) -> Option<Request<'a>> {
    Some(Request::MkDir {
        mode: fields.u32()?,
        umask: permissions(fields.u32()?),
        name: rest.name()?,
    })
}

fn rename<'a>(
    fields: &mut Fields<'_>,
    rest: &mut PayloadReader<'a>,
    has_flags: bool,
) -> Option<Request<'a>> {
    Some(Request::Rename {
        new_parent: Ino(fields.u64()?),
        flags: if has_flags { fields.u32()? } else { 0 },
        name: rest.name()?,
        new_name: rest.name()?,
    })
}

fn link<'a>(fields: &mut Fields<'_>, rest: &mut PayloadReader<'a>) -> Option<Request<'a>> {
    Some(Request::Link {
        ino: Ino(fields.u64()?),
        new_name: rest.name()?,
    })
}

/// Decodes READ, READDIR and READDIRPLUS.
fn read<'a>(
    fields: &mut Fields<'_>,
    request: impl FnOnce(u64, u32) -> Request<'a>,
) -> Option<Request<'a>> {
    let (_handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
    Some(request(offset, size))
}

fn write<'a>(fields: &mut Fields<'_>, rest: &PayloadReader<'a>) -> Option<Request<'a>> {
    let (_handle, offset, size, flags) =
        (fields.u64()?, fields.u64()?, fields.u32()?, fields.u32()?);
    Some(Request::Write {
        offset,
        data: rest.data(size)?,
        kill_privileges: flags & KILL_SUIDGID != 0,
    })
}

fn set_xattr<'a>(fields: &mut Fields<'_>, rest: &mut PayloadReader<'a>) -> Option<Request<'a>> {
    let (size, flags) = (fields.u32()?, fields.i32()?);
    Some(Request::SetXattr {
        name: rest.name()?,
        value: rest.data(size)?,
        flags,
    })
}

fn get_xattr<'a>(fields: &mut Fields<'_>, rest: &mut PayloadReader<'a>) -> Option<Request<'a>> {
    Some(Request::GetXattr {
        size: fields.u32()?,
        name: rest.name()?,
    })
}

fn ioctl<'a>(fields: &mut Fields<'_>, rest: &PayloadReader<'a>) -> Option<Request<'a>> {
    let (_handle, _flags, command) = (fields.u64()?, fields.u32()?, fields.u32()?);
    let (_argument, len) = (fields.u64()?, fields.u32()?);
    Some(Request::Ioctl {
        command,
        data: rest.data(len)?,
    })
}

fn fallocate<'a>(fields: &mut Fields<'_>) -> Option<Request<'a>> {
    let _handle = fields.u64()?;
    Some(Request::Fallocate {
        offset: fields.u64()?,
        len: fields.u64()?,
        mode: fields.i32()?,
    })
}

fn lseek<'a>(fields: &mut Fields<'_>) -> Option<Request<'a>> {
    let _handle = fields.u64()?;
    Some(Request::Lseek {
        offset: fields.u64()?.cast_signed(),
        whence: fields.i32()?,
    })
}

fn copy_file_range<'a>(fields: &mut Fields<'_>) -> Option<Request<'a>> {
    let (_handle, from_offset) = (fields.u64()?, fields.u64()?);
    let (to, _to_handle, to_offset) = (Ino(fields.u64()?), fields.u64()?, fields.u64()?);
    Some(Request::CopyFileRange {
        from_offset,
        to: (to, to_offset),
        len: fields.u64()?,
        flags: fields.u64()?,
    })
}

/// Writer of an answer. [`Payload::len`] fails if something did not fit.
pub(super) struct Payload<'a> {
    /// Buffer, whose length is the limit.
    bytes: &'a mut [u8],
    /// Number of bytes written.
    len: usize,
    /// True if something did not fit.
    is_full: bool,
}

impl<'a> Payload<'a> {
    /// Makes a writer for at most `limit` bytes.
    pub(super) fn new(bytes: &'a mut [u8], limit: usize) -> Payload<'a> {
        let limit = limit.min(bytes.len());
        Payload {
            bytes: &mut bytes[..limit],
            len: 0,
            is_full: false,
        }
    }

    /// Returns the number of bytes written; EIO if something did not fit.
    pub(super) fn len(self) -> Answer<usize> {
        if self.is_full {
            Err(Errno::EIO)
        } else {
            Ok(self.len)
        }
    }

    /// Writes bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        match self
            .bytes
            .get_mut(self.len..)
            .and_then(|rest| rest.get_mut(..bytes.len()))
        {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.is_full = true,
        }
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.bytes(&number.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.bytes(&number.to_ne_bytes());
    }

    /// Writes `struct fuse_attr`.
    fn attr(&mut self, attr: &Attr) {
        for number in [attr.ino.0, attr.size, attr.blocks] {
            self.u64(number);
        }
        let times = [attr.atime, attr.mtime, attr.ctime];
        for time in times {
            self.u64(time.secs.cast_unsigned());
        }
        for time in times {
            self.u32(time.nanos);
        }
        let mode = mode_bits(attr.kind) | u32::from(attr.perm);
        for number in [
            mode, attr.nlink, attr.uid, attr.gid, attr.rdev, BLOCK_SIZE, 0,
        ] {
            self.u32(number);
        }
    }

    /// Writes `struct fuse_attr_out`.
    pub(super) fn attr_out(&mut self, attr: &Attr, ttl: Duration) {
        self.u64(ttl.as_secs());
        self.u32(ttl.subsec_nanos());
        self.u32(0);
        self.attr(attr);
    }

    /// Writes `struct fuse_entry_out`, with number 0 for a missing name.
    pub(super) fn entry_out(&mut self, entry: &Entry) {
        self.u64(entry.attr.map_or(0, |attr| attr.ino.0));
        self.u64(entry.generation);
        self.u64(entry.name_ttl.as_secs());
        self.u64(entry.attr_ttl.as_secs());
        self.u32(entry.name_ttl.subsec_nanos());
        self.u32(entry.attr_ttl.subsec_nanos());
        match &entry.attr {
            Some(attr) => self.attr(attr),
            None => self.bytes(&[0; 88]),
        }
    }

    /// Writes `struct fuse_dirent`, and returns whether it fitted.
    ///
    /// With attributes, `struct fuse_entry_out` precedes it.
    pub(super) fn dirent(&mut self, listed: &Listed<'_>, attr: Option<&Attr>) -> bool {
        let before = if attr.is_some() { ENTRY_OUT_LEN } else { 0 };
        let len = (before + DIRENT_LEN + listed.name.len()).next_multiple_of(8);
        if len > self.bytes.len() - self.len {
            return false;
        }
        let end = self.len + len;
        if let Some(attr) = attr {
            self.entry_out(&listed.entry(attr));
        }
        self.u64(listed.ino.0);
        self.u64(listed.cookie);
        self.u32(listed.name.len() as u32);
        self.u32(mode_bits(listed.kind) >> 12);
        self.bytes(listed.name);
        self.bytes(&[0; 8][..end - self.len]);
        true
    }

    /// Writes `struct fuse_open_out` of a file without a handle.
    ///
    /// The kernel keeps the cached content.
    pub(super) fn open_out(&mut self) {
        self.u64(0);
        self.u32(KEEP_CACHE);
        self.u32(0);
    }

    /// Writes `struct fuse_statfs_out`.
    pub(super) fn statfs_out(&mut self, figures: &StatFs) {
        let (blocks, free) = (figures.blocks, figures.blocks_free);
        for number in [
            blocks,
            free,
            figures.blocks_available,
            figures.files,
            figures.files_free,
        ] {
            self.u64(number);
        }
        for number in [figures.block_size, figures.name_max, figures.block_size] {
            self.u32(number);
        }
        self.bytes(&[0; 28]);
    }

    /// Writes `struct fuse_ioctl_out` and the data.
    pub(super) fn ioctl_out(&mut self, data: &[u8]) {
        self.bytes(&[0; 16]);
        self.bytes(data);
    }
}

/// Returns the `S_IFMT` bits of a file type.
fn mode_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    }
}

#[cfg(test)]
mod tests;
