//! Bytes below the layers: of blobs and of carried files.

use std::io::Read;
use std::sync::Arc;

use super::carry::CarriedFile;
use super::error::FsError;
use super::fs::{FoundNode, NodePlace, ViewState, Workspace};
use tine_git::{Base, BlobContent, ObjectId, TreeEntryKind};
use tine_layer::{CarriedContent, Content, LayerError, Node};
use tine_path::RepoPath;

/// Place of a node's bytes. Holds no lock.
pub(super) enum ByteSource {
    /// Blob of the base, converted as a checkout would convert it.
    Base(Arc<Base>, RepoPath, ObjectId),
    /// Blob as it is, unconverted.
    Blob(Arc<Base>, ObjectId),
    /// File of the main checkout.
    Carried(CarriedFile),
    /// Bytes in a layer, or none at all.
    Layer,
}

/// Bytes below the layers, opened for reading.
#[derive(Clone)]
pub(super) enum LowerBytes {
    Blob(BlobContent),
    Carried(CarriedFile),
}

impl LowerBytes {
    pub(crate) fn len(&self) -> u64 {
        match self {
            LowerBytes::Blob(blob) => blob.len(),
            LowerBytes::Carried(file) => file.len(),
        }
    }

    /// Reads at `offset` until `buffer` is full or the bytes end. Returns the number read.
    pub(crate) fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        match self {
            LowerBytes::Blob(blob) => blob.read_at(buffer, offset).map_err(|source| {
                FsError::Layer(LayerError::io("read the spooled blob at", "spool")(source))
            }),
            LowerBytes::Carried(file) => file.read_at(offset, buffer),
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
    pub(super) fn bytes(
        &self,
        state: &ViewState,
        found: &FoundNode,
    ) -> Result<ByteSource, FsError> {
        Ok(match &found.place {
            NodePlace::Base(base) => match base.entry().kind {
                TreeEntryKind::Directory | TreeEntryKind::Submodule => ByteSource::Layer,
                TreeEntryKind::File | TreeEntryKind::Executable | TreeEntryKind::Symlink => {
                    ByteSource::Base(state.base.base.clone(), base.path(), base.entry().id)
                }
            },
            NodePlace::BaseRoot => ByteSource::Layer,
            NodePlace::Carried(node) => match &node.version {
                Some(_) => self.carried_bytes(&node.content())?,
                None => ByteSource::Layer,
            },
            NodePlace::Layer => self.lower_bytes(state, self.layer_node(state, found.ino)?)?,
        })
    }

    /// Returns the place of the bytes of a layer's node.
    fn lower_bytes(&self, state: &ViewState, node: &Node) -> Result<ByteSource, FsError> {
        Ok(match (&node.content, &node.origin) {
            (Content::Base, Some(origin)) => {
                ByteSource::Base(state.base.base.clone(), origin.path.clone(), origin.id)
            }
            (Content::Base, None) => return Err(FsError::Stale),
            (Content::Blob(id), _) => ByteSource::Blob(state.base.base.clone(), *id),
            (Content::Carried(carried), _) => self.carried_bytes(carried)?,
            (Content::Empty | Content::Link(_) | Content::Own(_), _) => ByteSource::Layer,
        })
    }

    /// Returns all bytes of a regular file.
    ///
    /// The caller holds the state, so the file must be short.
    pub(super) fn whole(&self, state: &ViewState, node: &Node) -> Result<Vec<u8>, FsError> {
        let len = usize::try_from(node.size).map_err(|_| FsError::TooLarge)?;
        if let Content::Own(content) = node.content {
            let mut bytes = vec![0; len];
            let read = state
                .stack
                .read_content(content, node.size, 0, &mut bytes)?;
            bytes.truncate(read);
            return Ok(bytes);
        }
        match self.fetch(self.lower_bytes(state, node)?)? {
            Some(lower) => lower.read(0, len),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn carried_bytes(&self, carried: &CarriedContent) -> Result<ByteSource, FsError> {
        let Some(version) = carried.version else {
            return Ok(ByteSource::Layer);
        };
        let carry = self.carry.clone().ok_or(FsError::Stale)?;
        let path = carried.path.clone();
        Ok(ByteSource::Carried(CarriedFile {
            carry,
            path,
            version,
        }))
    }

    pub(super) fn fetch(&self, bytes: ByteSource) -> Result<Option<LowerBytes>, FsError> {
        Ok(match bytes {
            ByteSource::Base(base, path, id) => Some(LowerBytes::Blob(base.content(&path, id)?)),
            ByteSource::Blob(base, id) => Some(LowerBytes::Blob(base.raw_content(id)?)),
            ByteSource::Carried(file) => Some(LowerBytes::Carried(file)),
            ByteSource::Layer => None,
        })
    }
}

struct LowerReader<'a> {
    lower: &'a LowerBytes,
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
