//! A frozen layer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::content_file::ContentFile;
use super::contents::SeekWhence;
use super::contents::{ContentReader, named_places};
use super::log::Log;
use super::merge::{named_layers, part_dir};
use super::merged::Run;
use super::slots::SlotMap;
use super::{ContentLocation, ContentRef, Layer, LayerError, LayerId, LayerIndex};
use tine_attr::Ino;

/// Layer that takes no more changes.
///
/// All forks and snapshots over it share it. It may not be sealed yet; then not all of it is on
/// disk. A layer above must not be on disk before it, so a sync seals the layers below first.
pub struct FrozenLayer {
    id: LayerId,
    dir: PathBuf,
    /// Index of the layer; immutable.
    index: Arc<LayerIndex>,
    /// Contents by layer: its own, or those of the merged layers.
    parts: BTreeMap<LayerId, Arc<ContentReader>>,
    /// The open layer, until it is sealed.
    unsealed: Mutex<Option<Layer>>,
    /// Merged indexes that begin with this layer, cached for stacks.
    runs: Mutex<Vec<Run>>,
}

/// Returns the end of the numbers that the layers have assigned.
///
/// Every number that one of them may have assigned to a new node is below it.
pub fn inos_below<'a>(layers: impl IntoIterator<Item = &'a Arc<FrozenLayer>>) -> Ino {
    let below = layers.into_iter().map(|layer| layer.index().inos_below());
    below.max().unwrap_or(Ino(0))
}

impl FrozenLayer {
    /// Opens a sealed layer.
    ///
    /// # Errors
    /// [`LayerError::Unsealed`] if the seal is missing, [`LayerError::Corrupt`],
    /// [`LayerError::NewerFormat`], or [`LayerError::Io`].
    pub fn open(dir: &Path) -> Result<Arc<FrozenLayer>, LayerError> {
        let replay = Log::read_sealed(dir)?;
        let is_merged = replay.is_merged();
        FrozenLayer::of_index(dir, replay.id, Arc::new(replay.index), is_merged)
    }

    /// Opens a frozen layer, and seals it if that is still missing.
    ///
    /// The process that froze it may have ended before.
    ///
    /// # Errors
    /// The errors of [`FrozenLayer::open`] and [`Layer::open`].
    pub fn open_or_seal(dir: &Path) -> Result<Arc<FrozenLayer>, LayerError> {
        match FrozenLayer::open(dir) {
            Err(LayerError::Unsealed { .. }) => {}
            opened => return opened,
        }
        let frozen = Layer::open(dir)?.freeze();
        if let Err(error) = frozen.seal() {
            log::warn!("{} is not sealed yet: {error}", dir.display());
        }
        Ok(frozen)
    }

    /// Opens the contents of an index.
    pub(super) fn of_index(
        dir: &Path,
        id: LayerId,
        index: Arc<LayerIndex>,
        is_merged: bool,
    ) -> Result<Arc<FrozenLayer>, LayerError> {
        let mut parts = BTreeMap::new();
        if is_merged {
            // Layers below have the other contents that it names.
            for part in named_layers(&index) {
                let dir = part_dir(dir, part);
                if dir.exists() {
                    parts.insert(part, Arc::new(ContentReader::open(&dir, part, false)?));
                }
            }
        } else {
            parts.insert(id, Arc::new(ContentReader::open(dir, id, false)?));
        }
        for (part, contents) in &parts {
            // In a merged layer, two nodes may have the same content: of a file that was open when
            // its fork went to another state.
            let mut slots = BTreeSet::new();
            for (content, size) in named_places(&index, *part) {
                if let ContentLocation::Slot { offset, capacity } = contents.check(content, size)?
                    && !slots.insert((offset, capacity))
                    && !is_merged
                {
                    return Err(bad_slot(contents, offset));
                }
            }
            let sound = SlotMap::rebuild(slots.into_iter().collect());
            sound.map_err(|bad| bad_slot(contents, bad.offset))?;
        }
        Ok(Arc::new(FrozenLayer {
            id,
            dir: dir.to_owned(),
            index,
            parts,
            unsealed: Mutex::new(None),
            runs: Mutex::default(),
        }))
    }

    /// Creates a frozen layer from an open one.
    pub(super) fn unsealed(
        dir: PathBuf,
        id: LayerId,
        index: Arc<LayerIndex>,
        contents: Arc<ContentReader>,
        layer: Layer,
    ) -> FrozenLayer {
        FrozenLayer {
            id,
            dir,
            index,
            parts: BTreeMap::from([(id, contents)]),
            unsealed: Mutex::new(Some(layer)),
            runs: Mutex::default(),
        }
    }

    /// Syncs and seals the layer, unless it is sealed.
    ///
    /// It blocks on the disk. Only other callers of this method wait for it.
    ///
    /// # Errors
    /// The errors of [`Layer::sync`].
    pub fn seal(&self) -> Result<(), LayerError> {
        let mut unsealed = self.unsealed.lock();
        if let Some(layer) = unsealed.as_mut() {
            layer.seal()?;
            *unsealed = None;
        }
        Ok(())
    }

    /// Returns true if the layer is known to be sealed.
    ///
    /// It is false while another thread seals it.
    pub fn is_sealed(&self) -> bool {
        self.unsealed
            .try_lock()
            .is_some_and(|layer| layer.is_none())
    }

    /// Calls `end` with the open layer, unless it is sealed.
    ///
    /// It is for a sync that began before the layer was frozen.
    pub fn with_unsealed<T>(&self, end: impl FnOnce(&mut Layer) -> T) -> Option<T> {
        self.unsealed.lock().as_mut().map(end)
    }

    /// Returns the layer's id.
    pub fn id(&self) -> LayerId {
        self.id
    }

    /// Returns the layer's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the layer's index.
    pub fn index(&self) -> &LayerIndex {
        &self.index
    }

    pub(super) fn shared_index(&self) -> &Arc<LayerIndex> {
        &self.index
    }

    pub(super) fn runs(&self) -> &Mutex<Vec<Run>> {
        &self.runs
    }

    /// Returns the layers whose contents are here.
    pub fn content_layers(&self) -> impl Iterator<Item = LayerId> {
        self.parts.keys().copied()
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &ContentReader> {
        self.parts.values().map(|part| &**part)
    }

    /// Returns the contents of the layer `id`.
    pub(super) fn part(&self, id: LayerId) -> Option<&ContentReader> {
        self.parts.get(&id).map(|part| &**part)
    }

    /// Returns the contents that include `content`.
    pub(super) fn contents_of(&self, content: ContentRef) -> Result<&ContentReader, LayerError> {
        self.part(content.layer).ok_or_else(|| LayerError::Corrupt {
            path: self.dir.clone(),
            offset: 0,
            reason: format!("a content of layer {} is not here", content.layer.0),
        })
    }

    /// Reads a content, like [`Layer::read_content`](super::Layer::read_content).
    ///
    /// # Errors
    /// The errors of [`Layer::read_content`].
    pub fn read_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, LayerError> {
        self.contents_of(content)?
            .read(content, len, offset, buffer)
    }

    /// Opens the file of a content, like [`Layer::content_file`](super::Layer::content_file).
    ///
    /// # Errors
    /// The errors of [`Layer::content_file`].
    pub fn content_file(
        &self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        ContentFile::open(self.contents_of(content)?, content, len)
    }

    /// Seeks in a content, like [`Layer::seek_content`](super::Layer::seek_content).
    ///
    /// # Errors
    /// The errors of [`Layer::seek_content`].
    pub fn seek_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<Option<u64>, LayerError> {
        self.contents_of(content)?
            .seek(content, len, offset, whence)
    }

    /// Returns the disk space of a content, like
    /// [`Layer::content_blocks`](super::Layer::content_blocks).
    ///
    /// # Errors
    /// The errors of [`Layer::content_blocks`].
    pub fn content_blocks(&self, content: ContentRef, len: u64) -> Result<u64, LayerError> {
        Ok(self
            .contents_of(content)?
            .allocated(content, len)?
            .div_ceil(512))
    }
}

fn bad_slot(contents: &ContentReader, offset: u64) -> LayerError {
    LayerError::Corrupt {
        path: contents.data_path().to_owned(),
        offset,
        reason: "the log names a slot that cannot be".to_owned(),
    }
}
