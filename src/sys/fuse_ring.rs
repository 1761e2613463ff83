//! FUSE requests and replies over io_uring, and their buffers.
//!
//! The interface is that of `include/uapi/linux/fuse.h` in Linux 6.14. A [`RingSlot`] is a buffer:
//! a header and a payload. The kernel gets the slot and returns it with a request in it. Only the
//! holder of the value may touch its memory:
//!
//! ```text
//! FuseRing::new ─► slots ─► register ─► (kernel) ─► take ─► read, write the reply ─┐
//!                                          ▲                                       │
//!                                          └──────────────── commit ◄──────────────┘
//! ```

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};

/// Size in bytes of a slot's header, `struct fuse_uring_req_header`.
pub const HEADER_LEN: usize = 288;
/// Bytes of the header with the ID that the reply refers to.
const COMMIT_ID: Range<usize> = 264..272;
/// Bytes of the header with the length of the payload.
const PAYLOAD_LEN: Range<usize> = 272..276;
/// Bytes of payload memory that an idle slot keeps.
///
/// A multiple of all page sizes. The memory that larger requests took is returned to the system
/// when the ring has been idle for [`IDLE`].
const KEPT: usize = 64 * 1024;
/// Time without requests after which a ring returns memory.
const IDLE: Duration = Duration::from_secs(1);
/// Bytes from one header to the next.
const HEADER_STRIDE: usize = 512;
/// Offset after a header of the vectors of the slot's parts.
const VECTORS_AT: usize = 384;
/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;
/// Offset of the field `len` in `struct io_uring_sqe`.
const SQE_LEN_AT: usize = 24;
/// Index of the device among the ring's registered files: the only one.
const DEVICE: types::Fixed = types::Fixed(0);
/// User data of the completion of the waker's poll.
const WAKING: u64 = u64::MAX;

/// Mapping with all headers, then all payloads.
///
/// The kernel allocates its pages on first use.
struct Memory {
    start: NonNull<u8>,
    len: usize,
    payloads_at: usize,
    payload_len: usize,
}

// SAFETY: the mapping belongs to no thread; each part of it is accessed through its slot only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn map(slots: usize, payload_len: usize) -> io::Result<Memory> {
        let payloads_at = (slots * HEADER_STRIDE).next_multiple_of(64 * 1024);
        let len = slots
            .checked_mul(payload_len)
            .and_then(|len| len.checked_add(payloads_at))
            .ok_or(ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let start = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED);
        Ok(Memory {
            start: start.ok_or_else(io::Error::last_os_error)?,
            len,
            payloads_at,
            payload_len,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping; neither a slot nor the ring refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Buffer of a [`FuseRing`]. One value exists for each index.
pub struct RingSlot {
    memory: Arc<Memory>,
    index: usize,
    /// Queue that the slot was registered with.
    queue_id: u16,
    /// ID of the request in the slot, for its reply.
    commit_id: u64,
    /// True if the payload holds more memory than an idle slot keeps.
    is_large: bool,
}

impl RingSlot {
    fn all(memory: &Arc<Memory>, count: usize) -> Vec<RingSlot> {
        let slot = |index| RingSlot {
            memory: memory.clone(),
            index,
            queue_id: 0,
            commit_id: 0,
            is_large: false,
        };
        (0..count).map(slot).collect()
    }

    fn header_start(&self) -> NonNull<u8> {
        // SAFETY: there is room for as many headers as there are slots.
        unsafe { self.memory.start.add(self.index * HEADER_STRIDE) }
    }

    fn payload_start(&self) -> NonNull<u8> {
        let at = self.memory.payloads_at + self.index * self.memory.payload_len;
        // SAFETY: there is room for as many payloads as there are slots.
        unsafe { self.memory.start.add(at) }
    }

    /// Returns the header and the payload.
    pub fn parts(&mut self) -> (&mut [u8; HEADER_LEN], &mut [u8]) {
        let (header, payload) = (self.header_start(), self.payload_start());
        // SAFETY: both lie within the mapping and do not overlap. They are initialised (with zeroes
        // at first), and nothing else accesses them while this value is borrowed.
        unsafe {
            (
                header.cast().as_mut(),
                std::slice::from_raw_parts_mut(payload.as_ptr(), self.memory.payload_len),
            )
        }
    }

    /// Notes whether the request or reply takes more than [`KEPT`] bytes.
    fn note_use(&mut self) {
        let (header, _) = self.parts();
        let len = header[PAYLOAD_LEN]
            .first_chunk()
            .copied()
            .map_or(0, u32::from_ne_bytes);
        self.is_large |= len as usize > KEPT;
    }

    /// Returns the memory of a large payload to the system.
    ///
    /// The payload then reads as zeroes after the first [`KEPT`] bytes.
    fn shrink(&mut self) {
        let len = self.memory.payload_len.saturating_sub(KEPT);
        if std::mem::take(&mut self.is_large) && len > 0 {
            // SAFETY: the range lies within the payload. Nothing else accesses it while this value
            // is borrowed, except the kernel, see `FuseRing::shrink`.
            unsafe {
                let start = self.payload_start().add(KEPT).as_ptr();
                libc::madvise(start.cast(), len, libc::MADV_DONTNEED)
            };
        }
    }

    /// Writes the addresses of header and payload, and returns their address.
    ///
    /// The kernel reads them when the command is submitted.
    fn vectors(&mut self) -> u64 {
        let (header, payload) = (self.header_start(), self.payload_start());
        let vectors = [
            libc::iovec {
                iov_base: header.as_ptr().cast(),
                iov_len: HEADER_LEN,
            },
            libc::iovec {
                iov_base: payload.as_ptr().cast(),
                iov_len: self.memory.payload_len,
            },
        ];
        // SAFETY: the place lies behind the slot's header and is aligned.
        unsafe {
            let place = header.add(VECTORS_AT).cast::<[libc::iovec; 2]>();
            place.write(vectors);
            place.as_ptr() as u64
        }
    }
}

/// Handle that wakes the thread that waits for a [`FuseRing`].
#[derive(Clone)]
pub struct Waker(Arc<File>);

impl Waker {
    fn new() -> io::Result<Waker> {
        // SAFETY: eventfd(2) takes two numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Waker(Arc::new(File::from(fd))))
    }

    /// Makes the ring report [`Completion::Woken`].
    pub fn wake(&self) {
        // Fails only if the counter is at its maximum, so that the thread will be woken anyway.
        let _ = (&*self.0).write(&1u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = (&*self.0).read(&mut [0; 8]);
    }
}

/// Event that a ring reports.
pub enum Completion {
    /// The kernel put a request into a slot.
    Request(RingSlot),
    /// The kernel refused a slot, or returned it for good.
    Returned(RingSlot, io::Error),
    /// [`Waker::wake`] was called at least once.
    Woken,
}

/// Ring of one thread, for any number of queues of a connection.
pub struct FuseRing {
    ring: IoUring<Entry128, cqueue::Entry>,
    memory: Arc<Memory>,
    /// Slots that the kernel holds, by index.
    with_kernel: Vec<Option<RingSlot>>,
    /// Number of slots that the kernel holds.
    held: usize,
    /// True if a slot may hold more memory than when idle.
    has_large: bool,
    waker: Waker,
    /// Keeps the ring in its thread.
    ///
    /// The kernel copies requests in the name of that thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl FuseRing {
    /// Makes a ring to the FUSE connection of `device`, with its slots.
    ///
    /// The ring has `slots` slots with payloads of `payload_len` bytes, a multiple of the page
    /// size. `device` must stay open as long as the ring. The call tries everything else that the
    /// ring needs.
    ///
    /// # Errors
    /// The error of `io_uring_setup(2)` or of registering the device, for instance `EPERM` or
    /// `ENOSYS` where io_uring is disabled.
    pub fn new(
        device: BorrowedFd<'_>,
        slots: usize,
        payload_len: usize,
    ) -> io::Result<(FuseRing, Vec<RingSlot>)> {
        let entries = u32::try_from(slots + 1).map_err(|_| ErrorKind::InvalidInput)?;
        let ring = IoUring::builder()
            .dontfork()
            .setup_clamp()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)?;
        let memory = Arc::new(Memory::map(slots, payload_len)?);
        let all = RingSlot::all(&memory, slots);
        let mut ring = FuseRing {
            ring,
            memory,
            with_kernel: (0..slots).map(|_| None).collect(),
            held: 0,
            has_large: false,
            waker: Waker::new()?,
            _not_send: std::marker::PhantomData,
        };
        ring.ring
            .submitter()
            .register_files(&[device.as_raw_fd()])?;
        ring.await_waking()?;
        ring.submit()?;
        Ok((ring, all))
    }

    /// Returns a handle that wakes [`FuseRing::wait`] from other threads.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Offers a slot to a queue of the connection for a request.
    ///
    /// # Errors
    /// `InvalidInput` for a slot of another ring; `StorageFull` if the submission queue is full.
    pub fn register(&mut self, queue_id: u16, mut slot: RingSlot) -> io::Result<()> {
        slot.queue_id = queue_id;
        slot.commit_id = 0;
        let vectors = slot.vectors();
        self.push(REGISTER, Some(vectors), slot)
    }

    /// Sends the reply in a slot and offers the slot again.
    ///
    /// # Errors
    /// As in [`FuseRing::register`].
    pub fn commit(&mut self, mut slot: RingSlot) -> io::Result<()> {
        slot.note_use();
        self.has_large |= slot.is_large;
        self.push(COMMIT_AND_FETCH, None, slot)
    }

    fn push(&mut self, code: u32, vectors: Option<u64>, slot: RingSlot) -> io::Result<()> {
        if !Arc::ptr_eq(&slot.memory, &self.memory) {
            return Err(ErrorKind::InvalidInput.into());
        }
        // `struct fuse_uring_cmd_req`: flags, commit id, queue id.
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&slot.commit_id.to_ne_bytes());
        command[16..18].copy_from_slice(&slot.queue_id.to_ne_bytes());
        let mut entry = opcode::UringCmd80::new(DEVICE, code)
            .cmd(command)
            .addr(vectors)
            .build()
            .user_data(slot.index as u64);
        if vectors.is_some() {
            // SAFETY: the entry is a `struct io_uring_sqe`, whose `len` is the number of vectors.
            unsafe {
                let len = (&raw mut entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>();
                len.write(2);
            }
        }
        let place = self
            .with_kernel
            .get_mut(slot.index)
            .ok_or(ErrorKind::InvalidInput)?;
        // SAFETY: the slot, and with it its memory, stays in `with_kernel` until the command has
        // ended.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| ErrorKind::StorageFull)?;
        *place = Some(slot);
        self.held += 1;
        Ok(())
    }

    /// Queues a poll for the waker.
    fn await_waking(&mut self) -> io::Result<()> {
        let waker = types::Fd(self.waker.0.as_raw_fd());
        let entry = opcode::PollAdd::new(waker, libc::POLLIN as u32).build();
        // SAFETY: the entry refers to no memory, and the descriptor is open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(WAKING).into()) };
        pushed.map_err(|_| ErrorKind::StorageFull.into())
    }

    /// Submits the queued commands to the kernel, without waiting.
    ///
    /// # Errors
    /// The error of `io_uring_enter(2)`, except `EINTR` and `EBUSY`.
    pub fn submit(&mut self) -> io::Result<()> {
        self.enter(0)
    }

    /// Submits the queued commands and blocks until a completion is there.
    ///
    /// May also return without one, for instance after a signal.
    ///
    /// # Errors
    /// As in [`FuseRing::submit`].
    pub fn wait(&mut self) -> io::Result<()> {
        if self.has_large {
            let idle = types::Timespec::from(IDLE);
            let arguments = types::SubmitArgs::new().timespec(&idle);
            match self.ring.submitter().submit_with_args(1, &arguments) {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => self.shrink(),
                result => return tolerate(result),
            }
        }
        self.enter(1)
    }

    /// Shrinks the slots that the kernel holds, unless one has a request.
    ///
    /// With `IORING_SETUP_DEFER_TASKRUN`, the kernel copies requests into slots only while this
    /// ring enters the kernel. The completions of these requests are there when it returns. So
    /// without completions, the slots are empty.
    fn shrink(&mut self) {
        if self.ring.completion().is_empty() {
            self.with_kernel
                .iter_mut()
                .flatten()
                .for_each(RingSlot::shrink);
            self.has_large = false;
        }
    }

    fn enter(&mut self, wanted: usize) -> io::Result<()> {
        tolerate(self.ring.submit_and_wait(wanted))
    }

    /// Returns the next event, if there is one, without waiting.
    ///
    /// # Errors
    /// An error of the kind `Other` for an unknown completion, or the error of polling the waker
    /// again.
    pub fn take(&mut self) -> io::Result<Option<Completion>> {
        let Some(entry) = self.ring.completion().next() else {
            return Ok(None);
        };
        if entry.user_data() == WAKING {
            self.waker.clear();
            self.await_waking()?;
            return Ok(Some(Completion::Woken));
        }
        let index = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
        let slot = self.with_kernel.get_mut(index).and_then(Option::take);
        let mut slot =
            slot.ok_or_else(|| io::Error::other("a command ended that was not under way"))?;
        self.held -= 1;
        if let error @ ..0 = entry.result() {
            let error = io::Error::from_raw_os_error(-error);
            return Ok(Some(Completion::Returned(slot, error)));
        }
        slot.note_use();
        let (header, _) = slot.parts();
        let mut commit_id = [0; 8];
        commit_id.copy_from_slice(&header[COMMIT_ID]);
        slot.commit_id = u64::from_ne_bytes(commit_id);
        Ok(Some(Completion::Request(slot)))
    }
}

/// Ignores errors after which the caller takes completions and enters again.
///
/// These are an interrupt, and `EBUSY` for completions that must be taken first.
fn tolerate(entered: io::Result<usize>) -> io::Result<()> {
    match entered {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        entered => entered.map(drop),
    }
}

impl Drop for FuseRing {
    fn drop(&mut self) {
        if self.held > 0 {
            // The kernel ends the commands some time after the ring is closed. It may write to the
            // slots until then.
            std::mem::forget(self.memory.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: usize = 1 << 20;

    fn slots(count: usize) -> Vec<RingSlot> {
        RingSlot::all(&Arc::new(Memory::map(count, PAYLOAD).unwrap()), count)
    }

    #[test]
    fn no_slot_touches_another() {
        let mut slots = slots(3);
        for (number, slot) in (1u8..).zip(&mut slots) {
            let vectors = slot.vectors();
            let (header, payload) = slot.parts();
            assert_eq!(payload.len(), PAYLOAD);
            assert!(
                header.iter().chain(&*payload).all(|&byte| byte == 0),
                "new memory"
            );
            assert_eq!(vectors % align_of::<libc::iovec>() as u64, 0);
            header.fill(number);
            payload.fill(number);
        }
        for (number, slot) in (1u8..).zip(&mut slots) {
            let (header, payload) = slot.parts();
            assert!(header.iter().chain(&*payload).all(|&byte| byte == number));
        }
    }

    #[test]
    fn a_large_payload_is_given_back_but_for_its_beginning() {
        let mut slots = slots(2);
        for (slot, len) in slots.iter_mut().zip([KEPT + 1, KEPT]) {
            let (header, payload) = slot.parts();
            header[PAYLOAD_LEN].copy_from_slice(&(len as u32).to_ne_bytes());
            payload.fill(7);
            slot.note_use();
            slot.shrink();
        }
        let (_, large) = slots[0].parts();
        assert!(large[..KEPT].iter().all(|&byte| byte == 7));
        assert!(large[KEPT..].iter().all(|&byte| byte == 0));
        let (_, small) = slots[1].parts();
        assert!(small.iter().all(|&byte| byte == 7));
    }
}
