//! A sealed layer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content_file::ContentFile;
use super::contents::{ContentReader, named_places};
use super::log::Log;
use super::slots::SlotMap;
use super::store::SeekWhence;
use super::{ContentRef, LayerError, LayerId, LayerIndex, Place};

/// A sealed layer, shared by every fork and snapshot that stands on it. Immutable.
pub struct FrozenLayer {
    id: LayerId,
    dir: PathBuf,
    index: LayerIndex,
    contents: ContentReader,
}

impl FrozenLayer {
    /// Opens a sealed layer. Any damage, and a missing seal, is [`LayerError::Corrupt`].
    pub fn open(dir: &Path) -> Result<Arc<FrozenLayer>, LayerError> {
        let replay = Log::read_sealed(dir)?;
        FrozenLayer::assemble(dir, replay.id, replay.index)
    }

    /// Opens the contents that belong to an index.
    pub(super) fn assemble(
        dir: &Path,
        id: LayerId,
        index: LayerIndex,
    ) -> Result<Arc<FrozenLayer>, LayerError> {
        let contents = ContentReader::open(dir, id, false)?;
        let mut slots = Vec::new();
        for (content, size) in named_places(&index, id) {
            if let Place::Slot { offset, capacity } = contents.check(content, size)? {
                slots.push((offset, capacity));
            }
        }
        SlotMap::rebuild(slots).map_err(|bad| LayerError::Corrupt {
            path: contents.data_path().to_owned(),
            offset: bad.offset,
            reason: "the log names a slot that cannot be".to_owned(),
        })?;
        Ok(Arc::new(FrozenLayer {
            id,
            dir: dir.to_owned(),
            index,
            contents,
        }))
    }

    pub fn id(&self) -> LayerId {
        self.id
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn index(&self) -> &LayerIndex {
        &self.index
    }

    pub(super) fn contents(&self) -> &ContentReader {
        &self.contents
    }

    /// As [`Layer::read_content`](super::Layer::read_content).
    pub fn read_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, LayerError> {
        self.contents.read(content, len, offset, buffer)
    }

    /// As [`Layer::content_file`](super::Layer::content_file).
    pub fn content_file(&self, content: ContentRef, len: u64) -> Result<Option<ContentFile>, LayerError> {
        ContentFile::open(&self.contents, content, len)
    }

    /// As [`Layer::seek_content`](super::Layer::seek_content).
    pub fn seek_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<Option<u64>, LayerError> {
        self.contents.seek(content, len, offset, whence)
    }

    /// As [`Layer::content_blocks`](super::Layer::content_blocks).
    pub fn content_blocks(&self, content: ContentRef, len: u64) -> Result<u64, LayerError> {
        Ok(self.contents.allocated(content, len)?.div_ceil(512))
    }
}
