//! A fork's layers, one above the other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::contents::named_contents;
use super::store::SeekWhence;
use super::{
    ContentFile, ContentRef, Dentry, FrozenLayer, Layer, LayerError, LayerId, LayerIndex,
    MergedIndexes, Node,
};
use tine_attr::Ino;

/// One open layer over frozen ones: the only answer to what the layers say of a node or a name.
/// What they do not speak of is as it is in the base.
pub struct LayerStack {
    open: Layer,
    /// Newest first.
    frozen: Vec<Arc<FrozenLayer>>,
    /// What the frozen layers say, newest first: fewer than there are layers where some are merged.
    frozen_indexes: Vec<Arc<LayerIndex>>,
    /// Frozen and retired layers, by the layer whose contents they hold.
    owners: HashMap<LayerId, Arc<FrozenLayer>>,
    /// Layers that say nothing here, but hold contents that nodes of the open layer name: of files
    /// which programs had open when the stack was exchanged.
    retired: Vec<Arc<FrozenLayer>>,
}

impl LayerStack {
    /// `frozen` is newest first.
    pub fn new(mut open: Layer, frozen: Vec<Arc<FrozenLayer>>) -> LayerStack {
        open.stand_above(frozen.iter());
        LayerStack {
            open,
            frozen_indexes: MergedIndexes::of(&frozen).indexes().to_vec(),
            owners: by_id(&frozen),
            frozen,
            retired: Vec::new(),
        }
    }

    pub fn open_layer(&self) -> &Layer {
        &self.open
    }

    pub fn open_layer_mut(&mut self) -> &mut Layer {
        &mut self.open
    }

    /// Newest first.
    pub fn frozen(&self) -> &[Arc<FrozenLayer>] {
        &self.frozen
    }

    /// Freezes the open layer; from now on `next`, which must be empty, is written.
    pub fn freeze(&mut self, next: Layer) {
        let frozen = std::mem::replace(&mut self.open, next).freeze();
        self.owners.insert(frozen.id(), frozen.clone());
        self.frozen_indexes.insert(0, frozen.shared_index().clone());
        self.frozen.insert(0, frozen);
        self.open.stand_above(self.frozen.iter());
    }

    /// What the frozen layers say, newest first: to be looked at in this order, and not one for
    /// each layer.
    pub fn frozen_indexes(&self) -> impl DoubleEndedIterator<Item = &LayerIndex> {
        self.frozen_indexes.iter().map(|index| &**index)
    }

    /// As [`LayerStack::frozen_indexes`], with what the open layer says first.
    pub fn indexes(&self) -> impl DoubleEndedIterator<Item = &LayerIndex> {
        std::iter::once(self.open.index()).chain(self.frozen_indexes())
    }

    /// Looks things up in `merged` from now on, if that is of what is at the bottom of this stack.
    pub fn use_merged(&mut self, merged: &MergedIndexes) {
        let ids: Vec<LayerId> = self.frozen.iter().map(|layer| layer.id()).collect();
        if let Some(newer) = ids.strip_suffix(merged.layers()) {
            let newer = self.frozen.iter().take(newer.len());
            let newer = newer.map(|layer| layer.shared_index());
            self.frozen_indexes = newer.chain(merged.indexes()).cloned().collect();
        }
    }

    /// Whether a frozen layer may not be sealed yet.
    pub fn has_unsealed(&self) -> bool {
        let mut layers = self.frozen.iter().chain(&self.retired);
        layers.any(|layer| !layer.is_sealed())
    }

    /// Puts `merged` in the place of the layers that it was merged of, newest first, where the
    /// stack has these. They stay at hand if what is above names contents of theirs that newer ones
    /// have replaced: of files that are open. What the stack says is as before.
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
        self.open.stand_above(self.frozen.iter());
        self.owners = by_id(&self.frozen);
        self.owners.extend(by_id(&self.retired));
    }

    /// Lets the open layer stand on `frozen`, newest first. Contents of those that it stood on stay
    /// at hand.
    pub fn stand_on(&mut self, frozen: Vec<Arc<FrozenLayer>>) {
        let shared = frozen.iter().map(|layer| layer.shared_index().clone());
        self.frozen_indexes = shared.collect();
        let mut owners = by_id(&frozen);
        let before = std::mem::replace(&mut self.frozen, frozen);
        self.open.stand_above(self.frozen.iter());
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

    /// The node as the topmost frozen layer that knows it has it.
    pub fn frozen_node(&self, ino: Ino) -> Option<&Node> {
        self.frozen_indexes().find_map(|index| index.node(ino))
    }

    /// Lets go of the other layers that say nothing.
    pub fn retain_retired(&mut self, is_needed: impl Fn(&FrozenLayer) -> bool) {
        self.retired.retain(|layer| is_needed(layer));
        self.owners = by_id(&self.frozen);
        self.owners.extend(by_id(&self.retired));
    }

    /// Layers whose contents are at hand though they say nothing.
    pub fn retired(&self) -> &[Arc<FrozenLayer>] {
        &self.retired
    }

    /// The node as the topmost layer that knows it has it.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.open
            .index()
            .node(ino)
            .or_else(|| self.frozen_node(ino))
    }

    /// What the topmost layer that speaks of this name says.
    pub fn dentry(&self, parent: Ino, name: &[u8]) -> Option<Dentry> {
        let open = self.open.index().dir(parent).and_then(|dir| dir.get(name));
        open.or_else(|| self.frozen_dentry(parent, name))
    }

    /// What a layer beneath the open one says of this name: whether removing it needs a whiteout
    /// there.
    pub fn frozen_dentry(&self, parent: Ino, name: &[u8]) -> Option<Dentry> {
        self.frozen_indexes()
            .find_map(|index| index.dir(parent)?.get(name))
    }

    /// The directory that holds the directory `ino`, where a layer says so. Others stand where the
    /// base has them.
    pub fn dir_parent(&self, ino: Ino) -> Option<Ino> {
        self.indexes().find_map(|index| index.dir_parent(ino))
    }

    /// Reads a content from whichever layer holds it.
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

    /// As [`Layer::content_file`], of whichever layer holds the content.
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

    /// As [`Layer::seek_content`], in whichever layer holds the content.
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

    /// As [`Layer::content_blocks`], in whichever layer holds the content.
    pub fn content_blocks(&self, content: ContentRef, len: u64) -> Result<u64, LayerError> {
        match self.frozen_owner(content) {
            Some(layer) => layer.content_blocks(content, len),
            None => self.open.content_blocks(content, len),
        }
    }

    /// The frozen layer that holds `content`, or `None` where it is the open layer's own and may be
    /// written.
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
