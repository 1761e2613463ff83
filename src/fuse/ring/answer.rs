//! Answering of requests on a ring: decode, call the operation, encode.

use std::time::Duration;

use super::abi::{Header, Payload, Request};
use crate::convert::XattrAnswer;
use crate::counters::Operation;
use crate::entries::Entry;
use crate::operations::{Answer, Operations};
use tine_attr::Attr;
use tine_git::nonblocking;
use tine_sys::fuse_ring::{HEADER_LEN, RingSlot};
use tine_workspace::Caller;

/// Number of bytes over which a read or write takes long.
///
/// Other requests of the same CPU should not wait for it.
pub(super) const LARGE: usize = 256 * 1024;

/// Refusal of a request that takes long. Nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WouldBlock;

/// Answers the request in a slot, unless it takes long.
pub(super) fn answer_without_blocking(
    operations: &Operations,
    slot: &mut RingSlot,
) -> Result<(), WouldBlock> {
    let (header, payload) = slot.parts();
    let request = Header::decode(header).and_then(|decoded| decoded.request(header, payload));
    if request.is_ok_and(|request| would_block(&request)) {
        return Err(WouldBlock);
    }
    nonblocking::attempt(|| answer(operations, slot)).map_err(|_| WouldBlock)
}

/// Returns whether a request obviously takes long, by its arguments.
fn would_block(request: &Request<'_>) -> bool {
    match request {
        Request::Read { size, .. } => *size as usize > LARGE,
        Request::Write { data, .. } => data.len() > LARGE,
        Request::Fsync
        | Request::FsyncDir
        | Request::Fallocate { .. }
        | Request::CopyFileRange { .. } => true,
        _ => false,
    }
}

/// Answers the request in a slot.
///
/// If a nonblocking attempt was refused, the slot still holds the request.
pub(super) fn answer(operations: &Operations, slot: &mut RingSlot) {
    let (header, payload) = slot.parts();
    // A request without a valid header gets no answer: the kernel refuses the bytes in the slot.
    if let Ok(decoded) = Header::decode(header) {
        let outcome = carry_out(operations, &decoded, header, payload);
        if !nonblocking::was_refused() {
            decoded.answer(outcome, header);
        }
    }
}

/// Carries out a request, and returns the length of the payload written.
fn carry_out(
    operations: &Operations,
    header: &Header,
    bytes: &[u8; HEADER_LEN],
    payload: &mut [u8],
) -> Answer<usize> {
    let (node, caller) = (header.node, header.caller);
    let maker = |umask| Caller { umask, ..caller };
    match header.request(bytes, payload)? {
        Request::Lookup { name } => entry(operations.lookup(caller, node, name), payload),
        Request::GetAttr => attr(operations.getattr(caller, node), payload),
        Request::SetAttr(set) => attr(operations.setattr(caller, node, &set), payload),
        Request::ReadLink => data(operations.readlink(node), payload),
        Request::Symlink { name, target } => {
            entry(operations.symlink(caller, node, name, target), payload)
        }
        Request::MkNod {
            name,
            mode,
            rdev,
            umask,
        } => entry(
            operations.mknod(maker(umask), node, name, mode, rdev),
            payload,
        ),
        Request::MkDir { name, mode, umask } => {
            entry(operations.mkdir(maker(umask), node, name, mode), payload)
        }
        Request::Unlink { name } => empty(operations.unlink(caller, node, name)),
        Request::RmDir { name } => empty(operations.rmdir(caller, node, name)),
        Request::Rename {
            name,
            new_parent,
            new_name,
            flags,
        } => empty(operations.rename(caller, node, name, new_parent, new_name, flags)),
        Request::Link { ino, new_name } => {
            entry(operations.link(caller, ino, node, new_name), payload)
        }
        Request::Open { to_write } => {
            let _opening = operations.open(caller, node, to_write)?;
            encoded(payload, |out| out.open_out())
        }
        Request::Release => {
            operations.count(Operation::Release);
            Ok(0)
        }
        Request::OpenDir => Err(operations.leave_to_kernel(Operation::OpenDir)),
        Request::Create => Err(operations.leave_to_kernel(Operation::Create)),
        Request::Flush => Err(operations.leave_to_kernel(Operation::Flush)),
        Request::Poll => Err(operations.leave_to_kernel(Operation::Poll)),
        Request::Access { mask } => empty(operations.access(node, mask)),
        Request::Read { offset, size } => {
            let len = payload.len().min(size as usize);
            operations.read(node, offset, &mut payload[..len])
        }
        Request::Write {
            offset,
            data,
            kill_privileges,
        } => written(
            operations.write(caller, node, offset, data, kill_privileges),
            payload,
        ),
        Request::Fsync => empty(operations.fsync(node)),
        Request::FsyncDir => empty(operations.fsyncdir(node)),
        Request::ReadDir { cookie, size } => {
            let mut out = Payload::new(payload, size as usize);
            let listed = operations.readdir(node, cookie, &mut |listed| out.dirent(&listed, None));
            list(listed, out)
        }
        Request::ReadDirPlus { cookie, size } => {
            let mut out = Payload::new(payload, size as usize);
            let listed = operations.readdirplus(node, cookie, &mut |listed, attr| {
                out.dirent(&listed, Some(attr))
            });
            list(listed, out)
        }
        Request::StatFs => {
            let figures = operations.statfs(node)?;
            encoded(payload, |out| out.statfs_out(&figures))
        }
        Request::SetXattr { name, value, flags } => {
            empty(operations.setxattr(caller, node, name, value, flags))
        }
        Request::GetXattr { name, size } => {
            xattr(operations.getxattr(caller, node, name, size), payload)
        }
        Request::ListXattr { size } => xattr(operations.listxattr(caller, node, size), payload),
        Request::RemoveXattr { name } => empty(operations.removexattr(caller, node, name)),
        Request::Fallocate { offset, len, mode } => {
            empty(operations.fallocate(caller, node, offset, len, mode))
        }
        Request::Lseek { offset, whence } => {
            let found = operations.lseek(node, offset, whence)?;
            encoded(payload, |out| out.u64(found.cast_unsigned()))
        }
        Request::CopyFileRange {
            from_offset,
            to,
            len,
            flags,
        } => {
            let copied = operations.copy_file_range(caller, (node, from_offset), to, len, flags);
            written(copied, payload)
        }
        Request::Ioctl { command, data } => {
            let answer = operations.ioctl(caller, node, command, data)?;
            encoded(payload, |out| out.ioctl_out(&answer))
        }
    }
}

/// Encodes an answer into the payload.
fn encoded(payload: &mut [u8], encode: impl FnOnce(&mut Payload<'_>)) -> Answer<usize> {
    let limit = payload.len();
    let mut out = Payload::new(payload, limit);
    encode(&mut out);
    out.len()
}

/// Encodes an answer without a payload.
fn empty(answer: Answer<()>) -> Answer<usize> {
    answer.map(|()| 0)
}

/// Encodes `struct fuse_entry_out`.
fn entry(answer: Answer<Entry>, payload: &mut [u8]) -> Answer<usize> {
    let entry = answer?;
    encoded(payload, |out| out.entry_out(&entry))
}

/// Encodes `struct fuse_attr_out`.
fn attr(answer: Answer<(Attr, Duration)>, payload: &mut [u8]) -> Answer<usize> {
    let (attr, ttl) = answer?;
    encoded(payload, |out| out.attr_out(&attr, ttl))
}

/// Encodes bytes.
fn data(answer: Answer<Vec<u8>>, payload: &mut [u8]) -> Answer<usize> {
    let data = answer?;
    encoded(payload, |out| out.bytes(&data))
}

/// Encodes `struct fuse_write_out`.
fn written(answer: Answer<u32>, payload: &mut [u8]) -> Answer<usize> {
    let written = answer?;
    encoded(payload, |out| {
        out.u32(written);
        out.u32(0);
    })
}

/// Encodes `struct fuse_getxattr_out`, or the value.
fn xattr(answer: Answer<XattrAnswer>, payload: &mut [u8]) -> Answer<usize> {
    match answer? {
        XattrAnswer::Size(len) => encoded(payload, |out| {
            out.u32(len);
            out.u32(0);
        }),
        XattrAnswer::Data(value) => encoded(payload, |out| out.bytes(&value)),
    }
}

/// Encodes a listing.
///
/// A nonblocking listing ends before an entry that takes long. The kernel then asks for the rest.
fn list(answer: Answer<()>, out: Payload<'_>) -> Answer<usize> {
    let len = out.len()?;
    if nonblocking::was_refused() && len > 0 {
        nonblocking::accept();
        return Ok(len);
    }
    answer.map(|()| len)
}
