//! Requests about the bytes of files.

use std::fs::File;
use std::sync::Arc;

use super::{Answer, Operations};
use crate::convert;
use crate::counters::Operation;
use crate::entries::Opening;
use crate::errno::Errno;
use crate::overlay;
use tine_attr::Ino;
use tine_workspace::{Caller, is_text_node};

/// Largest number of bytes that one request copies.
///
/// The limit keeps a copy from blocking its thread for long. It is a multiple of the page size.
const MAX_COPY: u64 = 64 * 1024 * 1024;

impl Operations {
    /// Opens a file, on a mount where that is a request.
    ///
    /// ENOSYS on other mounts.
    pub(crate) fn open(&self, caller: Caller, ino: Ino, to_write: bool) -> Answer<Opening> {
        let Some(overlay) = &self.overlay else {
            return Err(self.leave_to_kernel(Operation::Open));
        };
        self.call(Operation::Open, ino, |_| {
            if to_write || !is_text_node(ino) {
                self.check_is_file(overlay, caller, ino)?;
                return Ok(Opening::File);
            }
            Ok(Opening::Text)
        })
    }

    /// Pins a large content and returns its file for passthrough.
    ///
    /// The file holds this content until it is unpinned. `None` if there is no such file.
    pub(crate) fn pin(&self, ino: Ino) -> Option<Arc<File>> {
        self.guarded(Operation::Open, ino, || {
            Ok(self.workspace.pin_content(ino)?)
        })
        .ok()
        .flatten()
    }

    /// Notes that mappings may have changed a pinned content.
    ///
    /// A failure cannot be reported to a program.
    pub(crate) fn note_mapped_writes(&self, ino: Ino) {
        let _ = self.guarded(Operation::Release, ino, || {
            Ok(self.workspace.note_mapped_writes(ino)?)
        });
    }

    /// Unpins a content.
    pub(crate) fn unpin(&self, ino: Ino) {
        // A failure cannot be reported to a program.
        let _ = self.guarded(Operation::Release, ino, || {
            self.workspace.unpin_content(ino);
            Ok(())
        });
    }

    /// Reads bytes and returns their number.
    ///
    /// It is less than the size of `buffer` only at the end of the file.
    pub(crate) fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::Read, ino, || git.read(ino, offset, buffer));
        }
        let answer = self.call(Operation::Read, ino, |workspace| {
            if self.is_text(ino) {
                return Ok(overlay::read_text(&workspace.text_of(ino)?, offset, buffer));
            }
            Ok(workspace.read_into(ino, offset, buffer)?)
        });
        if let Ok(count) = answer {
            self.counters.has_read(ino, count as u64);
        }
        answer
    }

    /// Writes bytes and returns their number.
    ///
    /// With `kill_privileges`, the file loses its set-ID bits and capabilities.
    pub(crate) fn write(
        &self,
        caller: Caller,
        ino: Ino,
        offset: u64,
        data: &[u8],
        kill_privileges: bool,
    ) -> Answer<u32> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        if self.is_git_file(ino) {
            return self.call(Operation::Write, ino, |workspace| {
                self.write_git_file(workspace, caller, ino, (offset, data))?;
                u32::try_from(data.len()).map_err(|_| Errno::EINVAL.into())
            });
        }
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::Write, ino, || {
                git.write(ino, offset, data)?;
                u32::try_from(data.len()).map_err(std::io::Error::other)
            });
        }
        let answer = self.call(Operation::Write, ino, |workspace| {
            self.check_write(workspace, ino, offset, data)?;
            workspace.write(ino, offset, data, kill_privileges.then_some(caller))?;
            u32::try_from(data.len()).map_err(|_| Errno::EINVAL.into())
        });
        if let Ok(count) = answer {
            self.counters.has_written(ino, count.into());
        }
        answer
    }

    /// Flushes a file to disk.
    pub(crate) fn fsync(&self, ino: Ino) -> Answer<()> {
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::Fsync, ino, || git.fsync(ino));
        }
        self.call(Operation::Fsync, ino, |workspace| {
            Ok(workspace.fsync(self.file(ino)?)?)
        })
    }

    /// Flushes a directory to disk.
    pub(crate) fn fsyncdir(&self, ino: Ino) -> Answer<()> {
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::FsyncDir, ino, || git.fsync(ino));
        }
        self.call(Operation::FsyncDir, ino, |workspace| {
            Ok(workspace.fsync(ino)?)
        })
    }

    /// Changes the allocation of a file. `mode` is that of fallocate(2).
    pub(crate) fn fallocate(
        &self,
        caller: Caller,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Answer<()> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::Fallocate, ino, || {
                git.fallocate(ino, offset, len, mode)
            });
        }
        self.call(Operation::Fallocate, ino, |workspace| {
            let mode = convert::fallocate_mode(mode)?;
            Ok(workspace.fallocate(ino, offset, len, mode, unprivileged(caller))?)
        })
    }

    /// Finds data or a hole. `whence` is that of lseek(2).
    pub(crate) fn lseek(&self, ino: Ino, offset: i64, whence: i32) -> Answer<i64> {
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::Lseek, ino, || {
                let offset = u64::try_from(offset)
                    .map_err(|_| std::io::Error::from_raw_os_error(libc::ENXIO))?;
                let found = git.seek(ino, offset, whence == libc::SEEK_DATA)?;
                i64::try_from(found).map_err(std::io::Error::other)
            });
        }
        self.call(Operation::Lseek, ino, |workspace| {
            let whence = convert::seek_whence(whence)?;
            // lseek(2): an offset before the start is ENXIO, as one past the end.
            let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            let found = if self.is_text(ino) {
                overlay::seek_text(&workspace.text_of(ino)?, offset, whence)?
            } else {
                workspace.seek(ino, offset, whence)?
            };
            i64::try_from(found).map_err(|_| Errno::EOVERFLOW.into())
        })
    }

    /// Copies bytes between files and returns their number.
    ///
    /// The number may be less than `len`.
    pub(crate) fn copy_file_range(
        &self,
        caller: Caller,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: u64,
        flags: u64,
    ) -> Answer<u32> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        self.refuse_across(from, to)?;
        if let Some(git) = self.git_node(to) {
            return self.in_git(Operation::CopyFileRange, to, || {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let copied = git.copy((from, from_offset), (to, to_offset), len)?;
                u32::try_from(copied).map_err(std::io::Error::other)
            });
        }
        let answer = self.call(Operation::CopyFileRange, to, |workspace| {
            if flags != 0 {
                return Err(Errno::EINVAL.into());
            }
            if self.is_text(from) {
                // The kernel then falls back to reading and writing.
                return Err(Errno::EXDEV.into());
            }
            let len = len.min(MAX_COPY);
            let unprivileged = unprivileged(caller);
            let copied =
                workspace.copy_range(from, from_offset, to, to_offset, len, unprivileged)?;
            u32::try_from(copied).map_err(|_| Errno::EOVERFLOW.into())
        });
        if let Ok(count) = answer {
            self.counters.has_read(from, count.into());
            self.counters.has_written(to, count.into());
        }
        answer
    }
}

/// Returns the caller if a change must remove set-ID bits.
///
/// Unlike writes, these requests do not say whether the file loses them.
fn unprivileged(caller: Caller) -> Option<Caller> {
    Some(caller).filter(|caller| !caller.is_privileged())
}
