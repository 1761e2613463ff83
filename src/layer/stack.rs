//! Stack of a fork's layers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::contents::SeekWhence;
use super::contents::named_contents;
use super::{
    ContentFile, ContentRef, Dentry, FrozenLayer, Layer, LayerError, LayerId, LayerIndex,
    MergedIndexes, Node,
};
use tine_attr::Ino;

/// One open layer over frozen ones.
///
/// It alone resolves nodes and names through the layers. The base supplies the nodes and names that
/// no layer has.
pub struct LayerStack {
    open: Layer,
    /// Frozen layers, newest first.
    frozen: Vec<Arc<FrozenLayer>>,
    /// Indexes of the frozen layers, newest first.
    ///
    /// Merged layers share one, so there may be fewer indexes than layers.
    frozen_indexes: Vec<Arc<LayerIndex>>,
    /// Frozen and retired layers, by the layers whose contents they have.
    owners: HashMap<LayerId, Arc<FrozenLayer>>,
    /// Layers that left the stack but whose contents are still needed.
    ///
    /// Nodes of the open layer name these contents, because programs had the files open when the
    /// stack was exchanged.
    retired: Vec<Arc<FrozenLayer>>,
}

impl LayerStack {
    /// Creates a stack.
    ///
    /// `frozen` has the newest layer first.
    pub fn new(mut open: Layer, frozen: Vec<Arc<FrozenLayer>>) -> LayerStack {
        open.set_lower_layers(frozen.iter());
        LayerStack {
            open,
            frozen_indexes: MergedIndexes::of(&frozen).indexes().to_vec(),
            owners: by_id(&frozen),
            frozen,
            retired: Vec::new(),
        }
    }

    /// Returns the open layer.
    pub fn open_layer(&self) -> &Layer {
        &self.open
    }

    /// Returns the open layer for changes.
    pub fn open_layer_mut(&mut self) -> &mut Layer {
        &mut self.open
    }

    /// Returns the frozen layers, newest first.
    pub fn frozen(&self) -> &[Arc<FrozenLayer>] {
        &self.frozen
    }

    /// Freezes the open layer and replaces it by `next`.
    ///
    /// `next` must be empty.
    pub fn freeze(&mut self, next: Layer) {
        let frozen = std::mem::replace(&mut self.open, next).freeze();
        self.owners.insert(frozen.id(), frozen.clone());
        self.frozen_indexes.insert(0, frozen.shared_index().clone());
        self.frozen.insert(0, frozen);
        self.open.set_lower_layers(self.frozen.iter());
    }

    /// Returns the indexes of the frozen layers, newest first.
    ///
    /// For each node and name, the first index that has it decides. Merged layers share an index.
    pub fn frozen_indexes(&self) -> impl DoubleEndedIterator<Item = &LayerIndex> {
        self.frozen_indexes.iter().map(|index| &**index)
    }

    /// Returns the indexes of all layers, the open layer first.
    pub fn indexes(&self) -> impl DoubleEndedIterator<Item = &LayerIndex> {
        std::iter::once(self.open.index()).chain(self.frozen_indexes())
    }

    /// Uses `merged` for lookups if it fits the bottom of this stack.
    pub fn use_merged(&mut self, merged: &MergedIndexes) {
        let ids: Vec<LayerId> = self.frozen.iter().map(|layer| layer.id()).collect();
        if let Some(newer) = ids.strip_suffix(merged.layers()) {
            let newer = self.frozen.iter().take(newer.len());
            let newer = newer.map(|layer| layer.shared_index());
            self.frozen_indexes = newer.chain(merged.indexes()).cloned().collect();
        }
    }

    /// Returns true if a frozen layer may not be sealed yet.
    pub fn has_unsealed(&self) -> bool {
        let mut layers = self.frozen.iter().chain(&self.retired);
        layers.any(|layer| !layer.is_sealed())
    }

    /// Replaces `layers`, newest first, by the layer merged of them.
    ///
    /// It does nothing if the stack does not have these layers. A replaced layer is retired if a
    /// layer above names contents of it that newer ones have replaced, for open files. Lookups give
    /// the same results as before.
    pub fn exchange(&mut self, merged: &Arc<FrozenLayer>, layers: &[LayerId]) {
        let ids: Vec<LayerId> = self.frozen.iter().map(|layer| layer.id()).collect();
        let Some(start) = ids
            .windows(layers.len().max(1))
            .position(|ids| ids == layers)
        else {
            return;
        };
        let named = merged.named();
        let merged_of = self
            .frozen
            .splice(start..start + layers.len(), [merged.clone()]);
        let merged_of: Vec<Arc<FrozenLayer>> = merged_of.collect();
        let above = self.frozen.iter().take(start).map(|layer| layer.index());
        let above = std::iter::once(self.open.index()).chain(above);
        let needed: HashSet<LayerId> = above
            .flat_map(named_contents)
            .filter(|(content, _)| !named.contains(content))
            .map(|(content, _)| content.layer)
            .collect();
        let is_needed =
            |layer: &Arc<FrozenLayer>| layer.content_layers().any(|id| needed.contains(&id));
        self.retired.extend(merged_of.into_iter().filter(is_needed));
        self.open.set_lower_layers(self.frozen.iter());
        self.owners = by_id(&self.frozen);
        self.owners.extend(by_id(&self.retired));
    }

    /// Replaces the frozen layers by `frozen`, newest first.
    ///
    /// The replaced layers are retired, so that their contents remain readable.
    pub fn replace_frozen(&mut self, frozen: Vec<Arc<FrozenLayer>>) {
        let shared = frozen.iter().map(|layer| layer.shared_index().clone());
        self.frozen_indexes = shared.collect();
        let mut owners = by_id(&frozen);
        let before = std::mem::replace(&mut self.frozen, frozen);
        self.open.set_lower_layers(self.frozen.iter());
        let ids: HashSet<LayerId> = self.frozen.iter().map(|layer| layer.id()).collect();
        self.retired.retain(|layer| !ids.contains(&layer.id()));
        for layer in before {
            if !ids.contains(&layer.id()) {
                self.retired.push(layer);
            }
        }
        owners.extend(by_id(&self.retired));
        self.owners = owners;
    }

    /// Returns a node of the topmost frozen layer that has it.
    pub fn frozen_node(&self, ino: Ino) -> Option<&Node> {
        self.frozen_indexes().find_map(|index| index.node(ino))
    }

    /// Drops the retired layers that are not needed.
    pub fn retain_retired(&mut self, is_needed: impl Fn(&FrozenLayer) -> bool) {
        self.retired.retain(|layer| is_needed(layer));
        self.owners = by_id(&self.frozen);
        self.owners.extend(by_id(&self.retired));
    }

    /// Returns the retired layers, which are kept only for their contents.
    pub fn retired(&self) -> &[Arc<FrozenLayer>] {
        &self.retired
    }

    /// Returns a node of the topmost layer that has it.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.open
            .index()
            .node(ino)
            .or_else(|| self.frozen_node(ino))
    }

    /// Returns a dentry of the topmost layer that has the name.
    pub fn dentry(&self, parent: Ino, name: &[u8]) -> Option<Dentry> {
        let open = self.open.index().dir(parent).and_then(|dir| dir.get(name));
        open.or_else(|| self.frozen_dentry(parent, name))
    }

    /// Returns a dentry of the topmost frozen layer that has it.
    ///
    /// The result decides whether a removal of the name needs a whiteout.
    pub fn frozen_dentry(&self, parent: Ino, name: &[u8]) -> Option<Dentry> {
        self.frozen_indexes()
            .find_map(|index| index.dir(parent)?.get(name))
    }

    /// Returns the parent of a directory, if a layer has it.
    ///
    /// Other directories are where the base has them.
    pub fn dir_parent(&self, ino: Ino) -> Option<Ino> {
        self.indexes().find_map(|index| index.dir_parent(ino))
    }

    /// Reads a content from the layer that has it.
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
        match self.frozen_owner(content) {
            Some(layer) => layer.read_content(content, len, offset, buffer),
            None => self.open.read_content(content, len, offset, buffer),
        }
    }

    /// Opens the file of a content, like [`Layer::content_file`].
    ///
    /// # Errors
    /// The errors of [`Layer::content_file`].
    pub fn content_file(
        &self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        match self.frozen_owner(content) {
            Some(layer) => layer.content_file(content, len),
            None => self.open.content_file(content, len),
        }
    }

    /// Seeks in a content, like [`Layer::seek_content`].
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
        match self.frozen_owner(content) {
            Some(layer) => layer.seek_content(content, len, offset, whence),
            None => self.open.seek_content(content, len, offset, whence),
        }
    }

    /// Returns the disk space of a content, like [`Layer::content_blocks`].
    ///
    /// # Errors
    /// The errors of [`Layer::content_blocks`].
    pub fn content_blocks(&self, content: ContentRef, len: u64) -> Result<u64, LayerError> {
        match self.frozen_owner(content) {
            Some(layer) => layer.content_blocks(content, len),
            None => self.open.content_blocks(content, len),
        }
    }

    /// Returns the frozen or retired layer that has `content`.
    ///
    /// `None` if the open layer has it; then it may be written.
    pub fn frozen_owner(&self, content: ContentRef) -> Option<&Arc<FrozenLayer>> {
        self.owners.get(&content.layer)
    }
}

fn by_id(layers: &[Arc<FrozenLayer>]) -> HashMap<LayerId, Arc<FrozenLayer>> {
    let ids = |layer: &Arc<FrozenLayer>| layer.content_layers().collect::<Vec<_>>();
    let layers = layers
        .iter()
        .flat_map(|layer| ids(layer).into_iter().map(move |id| (id, layer.clone())));
    layers.collect()
}
