//! Ranges of content files: cleared, zeroed, copied with their holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes copied at once where the kernel cannot copy by itself.
const COPY_CHUNK: usize = 1 << 20;

/// Makes a file read as zeroes from `len` on, whatever it had there. It stays as long as it is:
/// after a power failure its content may have its former length again, and a file that ends before
/// has lost something. How long that is.
pub(super) fn clear_beyond(file: &File, len: u64) -> io::Result<u64> {
    let there = file.metadata()?.len();
    if there > len {
        zero_range(file, len, there - len)?;
    }
    Ok(there)
}

/// Has a file end at `len`, if it does not end before.
pub(super) fn cut(file: &File, len: u64) -> io::Result<()> {
    if file.metadata()?.len() > len {
        file.set_len(len)?;
    }
    Ok(())
}

/// Makes a range a hole, or zeroes where there are no holes.
pub(super) fn zero_range(file: &File, offset: u64, count: u64) -> io::Result<()> {
    match tine_sys::file::punch_hole(file, offset, count) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        result => return result,
    }
    // Past the file's end it reads as zeroes already.
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

/// Writes the bytes `start..end`, as far as they are data of the file, onto themselves. What cannot
/// be read is left alone.
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

/// Makes the empty file `to` hold the first `len` bytes of `from`: shared where the disk can,
/// otherwise copied without its holes.
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
