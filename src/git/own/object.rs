//! Loose objects as bytes, and streams of objects in git's pack format.

use gix::ObjectId;
use gix::hash::Kind as HashKind;
use gix::objs::Kind;
use gix::zlib::stream::deflate::{Compress, FlushCompress};
use gix::zlib::{Compression, Decompress, FlushDecompress, Status};

use crate::GitError;

/// Maximum bytes of an object's header: `commit `, 20 digits and a NUL.
const MAX_HEADER_BYTES: usize = 32;

/// An object's kind and content.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) kind: Kind,
    pub(super) data: Vec<u8>,
}

/// Cause why a loose object cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undecoded {
    Corrupt,
    /// Its content has more bytes than the limit.
    TooLarge,
}

/// Decodes a loose object of at most `limit` bytes.
pub(super) fn decode_loose(raw: &[u8], limit: usize) -> Result<Content, Undecoded> {
    let corrupt = || Undecoded::Corrupt;
    let mut inflate = Decompress::new();
    let mut head = vec![0; MAX_HEADER_BYTES.min(limit.saturating_add(MAX_HEADER_BYTES))];
    let status = inflate
        .decompress(raw, &mut head, FlushDecompress::None)
        .map_err(|_| corrupt())?;
    let so_far = usize::try_from(inflate.total_out()).map_err(|_| corrupt())?;
    head.truncate(so_far);
    let nul = head
        .iter()
        .position(|&byte| byte == 0)
        .ok_or_else(corrupt)?;
    let header = head.get(..nul).unwrap_or_default();
    let space = header
        .iter()
        .position(|&byte| byte == b' ')
        .ok_or_else(corrupt)?;
    let (kind, size) = header.split_at(space);
    let kind = Kind::from_bytes(kind).map_err(|_| corrupt())?;
    let size: usize = std::str::from_utf8(size)
        .ok()
        .and_then(|size| size.trim_start().parse().ok())
        .ok_or_else(corrupt)?;
    if size > limit {
        return Err(Undecoded::TooLarge);
    }
    let mut data = head.split_off(nul.saturating_add(1));
    let mut filled = data.len();
    if filled > size {
        return Err(corrupt());
    }
    // One byte more, so that a longer stream is noticed.
    data.resize(size.saturating_add(1), 0);
    let mut is_whole = matches!(status, Status::StreamEnd);
    while !is_whole {
        let consumed = usize::try_from(inflate.total_in()).map_err(|_| corrupt())?;
        let before = (inflate.total_in(), inflate.total_out());
        let rest = raw.get(consumed..).unwrap_or_default();
        let into = data.get_mut(filled..).unwrap_or_default();
        let status = inflate
            .decompress(rest, into, FlushDecompress::Finish)
            .map_err(|_| corrupt())?;
        let written = inflate.total_out().saturating_sub(before.1);
        filled = filled.saturating_add(usize::try_from(written).map_err(|_| corrupt())?);
        is_whole = matches!(status, Status::StreamEnd);
        if !is_whole && before == (inflate.total_in(), inflate.total_out()) {
            return Err(corrupt());
        }
    }
    if filled != size || usize::try_from(inflate.total_in()) != Ok(raw.len()) {
        return Err(corrupt());
    }
    data.truncate(size);
    Ok(Content { kind, data })
}

/// Hashes an object's content.
pub(super) fn hash_of(hash_kind: HashKind, content: &Content) -> Result<ObjectId, GitError> {
    let mut checksum = crate::checksum::Checksum::of_object(
        hash_kind,
        content.kind,
        u64::try_from(content.data.len()).unwrap_or(u64::MAX),
    );
    checksum.update(&content.data);
    checksum.finish()
}

/// Encodes objects as a pack without deltas.
///
/// See gitformat-pack(5).
pub(super) fn encode_pack(
    hash_kind: HashKind,
    objects: &[Content],
    level: Compression,
) -> Result<Vec<u8>, GitError> {
    let count = u32::try_from(objects.len()).map_err(GitError::library("count objects"))?;
    let bytes: usize = objects.iter().map(|object| object.data.len()).sum();
    let mut pack = Vec::with_capacity(bytes.saturating_add(objects.len().saturating_mul(32)));
    pack.extend_from_slice(b"PACK\0\0\0\x02");
    pack.extend_from_slice(&count.to_be_bytes());
    let mut state = Compress::new(level);
    for object in objects {
        encode_entry_header(object, &mut pack);
        deflate(&object.data, &mut state, &mut pack)?;
    }
    let mut hasher = gix::hash::hasher(hash_kind);
    hasher.update(&pack);
    let hash = hasher
        .try_finalize()
        .map_err(GitError::library("hash a pack"))?;
    pack.extend_from_slice(hash.as_slice());
    Ok(pack)
}

fn encode_entry_header(object: &Content, pack: &mut Vec<u8>) {
    let kind: u8 = match object.kind {
        Kind::Commit => 1,
        Kind::Tree => 2,
        Kind::Blob => 3,
        Kind::Tag => 4,
    };
    let mut size = object.data.len();
    let mut byte = (kind << 4) | low_bits(size, 0x0f);
    size >>= 4;
    while size != 0 {
        pack.push(byte | 0x80);
        byte = low_bits(size, 0x7f);
        size >>= 7;
    }
    pack.push(byte);
}

fn low_bits(value: usize, mask: usize) -> u8 {
    u8::try_from(value & mask).unwrap_or(0)
}

/// Appends `data` as a zlib stream.
///
/// `state` is new, or was used for other streams.
fn deflate(data: &[u8], state: &mut Compress, to: &mut Vec<u8>) -> Result<(), GitError> {
    let mut buffer = [0; 16 << 10];
    state.reset();
    loop {
        let before = (state.total_in(), state.total_out());
        let rest = data.get(usize::try_from(before.0).unwrap_or(data.len())..);
        let status = state
            .compress(rest.unwrap_or_default(), &mut buffer, FlushCompress::Finish)
            .map_err(GitError::library("compress an object"))?;
        let written = state.total_out().saturating_sub(before.1);
        let written = usize::try_from(written)
            .ok()
            .and_then(|len| buffer.get(..len));
        to.extend_from_slice(written.unwrap_or_default());
        if matches!(status, Status::StreamEnd) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loose_object_is_read_again() {
        let mut state = Compress::new(Compression::DEFAULT);
        for len in [0, 1, 70_000, 200_000] {
            let data: Vec<u8> = (0..len).map(|n: u32| (n % 251) as u8).collect();
            let content = [format!("blob {len}\0").into_bytes(), data.clone()].concat();
            let mut stream = Vec::new();
            deflate(&content, &mut state, &mut stream).unwrap();
            let decoded = decode_loose(&stream, 1 << 20).unwrap();
            assert_eq!((decoded.kind, decoded.data), (Kind::Blob, data));
            assert!(decode_loose(&stream[..stream.len() - 1], 1 << 20).is_err());
            stream.push(0);
            assert!(decode_loose(&stream, 1 << 20).is_err());
        }
        for bad in [
            &b"blob 5\0four"[..],
            b"blob 3\0four",
            b"what 4\0four",
            b"",
            b"blob -1\0",
        ] {
            let mut stream = Vec::new();
            deflate(bad, &mut state, &mut stream).unwrap();
            assert!(decode_loose(&stream, 1 << 20).is_err());
        }
    }
}
