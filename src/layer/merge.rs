//! Merge of several frozen layers into one, on disk.
//!
//! The merged layer has the same state as the layers on top of each other. It has their contents
//! under the names of those layers, as hard links. So nothing is copied, and a layer above finds
//! the contents that it names. Contents that a newer one of the layers has replaced are left out.
//!
//! ```text
//! <merged>/log                      sealed, of format 3
//! <merged>/parts/<layer>/data       the data file of a layer that was merged
//! <merged>/parts/<layer>/files/<n>  those of its content files that are still named
//! ```

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content_store::punch_all_but;
use super::contents::{DATA_NAME, FILES_NAME, named_contents, named_places};
use super::fault;
use super::log::{Log, sync_dir};
use super::store::make_dir;
use super::{ContentLocation, ContentRef, FrozenLayer, LayerError, LayerId, LayerIndex};

/// Name of the directory of contents by layer.
const PARTS_NAME: &str = "parts";

/// Returns the directory of a merged layer for contents of `part`.
pub(super) fn part_dir(dir: &Path, part: LayerId) -> PathBuf {
    dir.join(PARTS_NAME).join(part.0.to_string())
}

/// Returns the layers whose contents an index names.
pub(super) fn named_layers(index: &LayerIndex) -> BTreeSet<LayerId> {
    named_contents(index)
        .map(|(content, _)| content.layer)
        .collect()
}

impl FrozenLayer {
    /// Merges `layers` into the layer `id` in the new directory `dir`.
    ///
    /// The layers must be sealed and directly above each other, newest first. The merged layer is
    /// on disk when this returns. On an error, the directory is removed.
    ///
    /// # Errors
    /// [`LayerError::Io`] if a file cannot be linked or written, [`LayerError::Corrupt`] if slots
    /// of the merged layer overlap.
    pub fn merge(
        dir: &Path,
        id: LayerId,
        layers: &[Arc<FrozenLayer>],
    ) -> Result<Arc<FrozenLayer>, LayerError> {
        make_dir(dir)?;
        FrozenLayer::merge_into(dir, id, layers).inspect_err(|_| {
            // Best effort: nothing names it, and the next opening of the store removes it.
            let _ = std::fs::remove_dir_all(dir);
        })
    }

    fn merge_into(
        dir: &Path,
        id: LayerId,
        layers: &[Arc<FrozenLayer>],
    ) -> Result<Arc<FrozenLayer>, LayerError> {
        let index = LayerIndex::merged(layers.iter().rev().map(|layer| layer.index()));
        let mut parts: BTreeMap<LayerId, BTreeSet<u64>> = BTreeMap::new();
        for (content, _) in named_contents(&index) {
            let files = parts.entry(content.layer).or_default();
            if let ContentLocation::File(number) = content.place {
                files.insert(number);
            }
        }
        let parts_dir = dir.join(PARTS_NAME);
        make_dir(&parts_dir)?;
        for (part, files) in &parts {
            // Layers below these have the other contents.
            if let Some(from) = layers.iter().find_map(|layer| layer.part(*part)) {
                let part_dir = part_dir(dir, *part);
                let files_dir = part_dir.join(FILES_NAME);
                make_dir(&part_dir)?;
                make_dir(&files_dir)?;
                link(from.data_path(), &part_dir.join(DATA_NAME))?;
                for number in files {
                    let to = files_dir.join(number.to_string());
                    link(&from.path(ContentLocation::File(*number)), &to)?;
                }
                sync_dir(&files_dir)?;
                sync_dir(&part_dir)?;
            }
        }
        sync_dir(&parts_dir)?;
        Log::write_merged(dir, id, index.checkpoint())?;
        if let Some(parent) = dir.parent() {
            sync_dir(parent)?;
        }
        FrozenLayer::of_index(dir, id, Arc::new(index), true)
    }

    /// Frees the space of replaced contents that no other layer links.
    ///
    /// They are contents of the merged layers that this one does not name. A failure only wastes
    /// space.
    pub fn free_replaced(&self) {
        for (part, contents) in self.content_layers().zip(self.parts()) {
            let path = contents.data_path();
            let data =
                match tine_sys::file::open_with(path, std::fs::OpenOptions::new().write(true)) {
                    Ok(data) => data,
                    Err(error) => {
                        log::warn!("open {}: {error}", path.display());
                        continue;
                    }
                };
            if data.metadata().is_ok_and(|meta| meta.nlink() == 1) {
                let slots =
                    named_places(self.index(), part).filter_map(|(content, _)| {
                        match content.place {
                            ContentLocation::Slot { offset, capacity } => Some((offset, capacity)),
                            ContentLocation::File(_) => None,
                        }
                    });
                punch_all_but(&data, path, &slots.collect());
            }
        }
    }

    /// Returns all contents that the layer names.
    pub fn named(&self) -> HashSet<ContentRef> {
        named_contents(self.index())
            .map(|(content, _)| content)
            .collect()
    }
}

/// Links a content file, unless it is missing.
///
/// A missing file breaks only its node, as in the layer that lacks it.
fn link(from: &Path, to: &Path) -> Result<(), LayerError> {
    match fault::step().and_then(|()| std::fs::hard_link(from, to)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        linked => linked.map_err(LayerError::io("link", from)),
    }
}
