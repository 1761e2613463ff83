//! Operations on ranges of content files: clear, zero, truncate, copy.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Number of bytes to copy at once if the kernel cannot copy.
const COPY_CHUNK: usize = 1 << 20;

/// Zeroes a file from `len` on, and returns its length.
///
/// The file keeps its length. After a power failure its content may have its former length again,
/// and then a shorter file would have lost bytes.
pub(super) fn clear_beyond(file: &File, len: u64) -> io::Result<u64> {
    let there = file.metadata()?.len();
    if there > len {
        zero_range(file, len, there - len)?;
    }
    Ok(there)
}

/// Truncates a file to `len`, unless it is shorter.
pub(super) fn truncate(file: &File, len: u64) -> io::Result<()> {
    if file.metadata()?.len() > len {
        file.set_len(len)?;
    }
    Ok(())
}

/// Punches a hole, or writes zeroes if holes are not supported.
pub(super) fn zero_range(file: &File, offset: u64, count: u64) -> io::Result<()> {
    match tine_sys::file::punch_hole(file, offset, count) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        result => return result,
    }
    // The range past the end of the file already reads as zeroes.
    let end = file.metadata()?.len().min(offset + count);
    let zeroes = vec![0; COPY_CHUNK.min(end.saturating_sub(offset) as usize)];
    let mut at = offset;
    while at < end {
        let chunk = &zeroes[..zeroes.len().min((end - at) as usize)];
        file.write_all_at(chunk, at)?;
        at += chunk.len() as u64;
    }
    Ok(())
}

/// Rewrites the data in `start..end` with the same bytes.
///
/// Holes and unreadable parts are left alone.
pub(super) fn write_onto_itself(file: &File, start: u64, end: u64) -> io::Result<()> {
    let end = end.min(file.metadata()?.len());
    let mut buffer = vec![0; COPY_CHUNK.min(end.saturating_sub(start) as usize)];
    let mut at = start;
    while at < end {
        let Some(data) = tine_sys::file::seek_data(file, at)?.filter(|data| *data < end) else {
            break;
        };
        let data_end = tine_sys::file::seek_hole(file, data)?.map_or(end, |hole| hole.min(end));
        at = data;
        while at < data_end {
            let chunk = buffer.len().min((data_end - at) as usize);
            let Some(chunk) = buffer.get_mut(..chunk) else {
                break;
            };
            if file.read_exact_at(chunk, at).is_ok() {
                file.write_all_at(chunk, at)?;
            }
            at += chunk.len() as u64;
        }
    }
    Ok(())
}

/// Copies the first `len` bytes of `from` to the empty `to`.
///
/// It is a reflink if the file system supports that, otherwise a copy that keeps the holes.
pub(super) fn clone_or_copy(from: &File, to: &File, len: u64) -> io::Result<()> {
    if tine_sys::file::clone_file(from, to).is_ok() {
        return to.set_len(len);
    }
    to.set_len(len)?;
    let mut at = 0;
    while at < len {
        let Some(start) = tine_sys::file::seek_data(from, at)?.filter(|start| *start < len) else {
            break;
        };
        let end = tine_sys::file::seek_hole(from, start)?.map_or(len, |end| end.min(len));
        copy(from, to, start, end)?;
        at = end.max(start + 1);
    }
    Ok(())
}

/// Copies the bytes `start..end` to the same offsets.
fn copy(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    let mut buffer = Vec::new();
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(1 << 30);
        if buffer.is_empty() {
            match tine_sys::file::copy_range(from, at, to, at, want) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    at += count as u64;
                    continue;
                }
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EXDEV | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS)
                    ) =>
                {
                    buffer = vec![0; COPY_CHUNK];
                }
                Err(error) => return Err(error),
            }
        }
        let want = want.min(buffer.len());
        let count = from.read_at(&mut buffer[..want], at)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all_at(&buffer[..count], at)?;
        at += count as u64;
    }
    Ok(())
}
