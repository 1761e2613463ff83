//! Bytes that lie beneath the layers: of blobs, and of carried files.

use std::io::Read;
use std::sync::Arc;

use super::carry::CarriedFile;
use super::error::FsError;
use super::fs::{Found, Place, State, Workspace};
use tine_git::{Base, BlobContent, ObjectId, TreeEntryKind};
use tine_layer::{CarriedContent, Content, LayerError, Node};
use tine_path::RepoPath;

/// Where a node's bytes are, free of locks.
pub(super) enum Bytes {
    /// As a checkout would hold the blob.
    Base(Arc<Base>, RepoPath, ObjectId),
    /// The blob itself.
    Blob(Arc<Base>, ObjectId),
    /// As the main checkout has them.
    Carried(CarriedFile),
    /// In a layer, or nothing.
    Layer,
}

/// Bytes that lie beneath the layers.
#[derive(Clone)]
pub(super) enum Lower {
    Blob(BlobContent),
    Carried(CarriedFile),
}

impl Lower {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Lower::Blob(blob) => blob.len(),
            Lower::Carried(file) => file.len(),
        }
    }

    /// Reads at `offset` until `buffer` is full or the bytes end; how many were read.
    pub(crate) fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        match self {
            Lower::Blob(blob) => blob.read_at(buffer, offset).map_err(|source| {
                FsError::Layer(LayerError::io("read the spooled blob at", "spool")(source))
            }),
            Lower::Carried(file) => file.read_at(offset, buffer),
        }
    }

    pub(crate) fn reader(&self) -> impl Read + '_ {
        LowerReader {
            lower: self,
            offset: 0,
        }
    }

    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, FsError> {
        let available = usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut buffer = vec![0; len.min(available)];
        let read = self.read_into(offset, &mut buffer)?;
        buffer.truncate(read);
        Ok(buffer)
    }
}

impl Workspace {
    pub(super) fn bytes(&self, state: &State, found: &Found) -> Result<Bytes, FsError> {
        Ok(match &found.place {
            Place::Base(base) => match base.entry().kind {
                TreeEntryKind::Directory | TreeEntryKind::Submodule => Bytes::Layer,
                TreeEntryKind::File | TreeEntryKind::Executable | TreeEntryKind::Symlink => {
                    Bytes::Base(state.base.base.clone(), base.path(), base.entry().id)
                }
            },
            Place::BaseRoot => Bytes::Layer,
            Place::Carried(node) => match &node.version {
                Some(_) => self.carried_bytes(&node.content())?,
                None => Bytes::Layer,
            },
            Place::Layer => self.bytes_beneath(state, self.layer_node(state, found.ino)?)?,
        })
    }

    /// The bytes of a layer's node.
    fn bytes_beneath(&self, state: &State, node: &Node) -> Result<Bytes, FsError> {
        Ok(match (&node.content, &node.origin) {
            (Content::Base, Some(origin)) => {
                Bytes::Base(state.base.base.clone(), origin.path.clone(), origin.id)
            }
            (Content::Base, None) => return Err(FsError::Stale),
            (Content::Blob(id), _) => Bytes::Blob(state.base.base.clone(), *id),
            (Content::Carried(carried), _) => self.carried_bytes(carried)?,
            (Content::Empty | Content::Link(_) | Content::Own(_), _) => Bytes::Layer,
        })
    }

    /// All bytes of a regular file, for who has the state: a short one, as others wait.
    pub(super) fn whole(&self, state: &State, node: &Node) -> Result<Vec<u8>, FsError> {
        let len = usize::try_from(node.size).map_err(|_| FsError::TooLarge)?;
        if let Content::Own(content) = node.content {
            let mut bytes = vec![0; len];
            let read = state
                .stack
                .read_content(content, node.size, 0, &mut bytes)?;
            bytes.truncate(read);
            return Ok(bytes);
        }
        match self.fetch(self.bytes_beneath(state, node)?)? {
            Some(lower) => lower.read(0, len),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn carried_bytes(&self, carried: &CarriedContent) -> Result<Bytes, FsError> {
        let Some(version) = carried.version else {
            return Ok(Bytes::Layer);
        };
        let carry = self.carry.clone().ok_or(FsError::Stale)?;
        let path = carried.path.clone();
        Ok(Bytes::Carried(CarriedFile {
            carry,
            path,
            version,
        }))
    }

    pub(super) fn fetch(&self, bytes: Bytes) -> Result<Option<Lower>, FsError> {
        Ok(match bytes {
            Bytes::Base(base, path, id) => Some(Lower::Blob(base.content(&path, id)?)),
            Bytes::Blob(base, id) => Some(Lower::Blob(base.raw_content(id)?)),
            Bytes::Carried(file) => Some(Lower::Carried(file)),
            Bytes::Layer => None,
        })
    }
}

struct LowerReader<'a> {
    lower: &'a Lower,
    offset: u64,
}

impl Read for LowerReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.lower.read_into(self.offset, buffer);
        let read = read.map_err(std::io::Error::other)?;
        self.offset += read as u64;
        Ok(read)
    }
}
