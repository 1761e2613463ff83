//! Hashes of existing objects, to detect damage.
//!
//! SHA-1 is computed here without collision detection, which takes several times as long as the
//! hash with hardware support. New ids are computed with collision detection. An object that once
//! entered the repository with a colliding id would be the same object for git, which does not hash
//! what it reads.

use gix::hash::{Kind, ObjectId};
use sha1::Digest;

use super::GitError;

/// A hash that is computed incrementally.
pub(super) enum Checksum {
    Sha1(sha1::Sha1),
    Other(gix::hash::Hasher),
}

impl Checksum {
    pub(crate) fn new(hash_kind: Kind) -> Checksum {
        match hash_kind {
            Kind::Sha1 => Checksum::Sha1(sha1::Sha1::new()),
            other => Checksum::Other(gix::hash::hasher(other)),
        }
    }

    /// Creates a checksum that has read an object's header.
    ///
    /// The id of an object is the hash of this header and the content.
    pub(crate) fn of_object(hash_kind: Kind, kind: gix::objs::Kind, len: u64) -> Checksum {
        let mut checksum = Checksum::new(hash_kind);
        checksum.update(&gix::objs::encode::loose_header(kind, len));
        checksum
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Checksum::Sha1(hasher) => hasher.update(bytes),
            Checksum::Other(hasher) => hasher.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Result<ObjectId, GitError> {
        match self {
            Checksum::Sha1(hasher) => Ok(ObjectId::Sha1(hasher.finalize().into())),
            Checksum::Other(hasher) => hasher
                .try_finalize()
                .map_err(GitError::library("hash what is there")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_id_that_the_library_finds() {
        for hash_kind in [Kind::Sha1, Kind::Sha256] {
            for content in [&b""[..], b"hello\n", &[7; 100_000]] {
                let kind = gix::objs::Kind::Blob;
                let mut checksum = Checksum::of_object(hash_kind, kind, content.len() as u64);
                content
                    .chunks(1000)
                    .for_each(|bytes| checksum.update(bytes));
                let expected = gix::objs::compute_hash(hash_kind, kind, content).unwrap();
                assert_eq!(checksum.finish().unwrap(), expected);
            }
        }
    }
}
