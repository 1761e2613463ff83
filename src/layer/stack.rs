//! A fork's layers, one above the other.

use std::sync::Arc;

use super::store::SeekWhence;
use super::{ContentFile, ContentRef, Dentry, FrozenLayer, Layer, LayerError, Node};
use crate::attr::Ino;

/// One open layer over frozen ones: the only answer to what the layers say of a node or a name. What they do not
/// speak of is as it is in the base.
pub struct LayerStack {
    open: Layer,
    /// Newest first.
    frozen: Vec<Arc<FrozenLayer>>,
}

impl LayerStack {
    /// `frozen` is newest first.
    pub fn new(open: Layer, frozen: Vec<Arc<FrozenLayer>>) -> LayerStack {
        LayerStack { open, frozen }
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

    /// The node as the topmost layer that knows it has it.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        let mut frozen = self.frozen.iter().map(|layer| layer.index());
        let open = self.open.index().node(ino);
        open.or_else(|| frozen.find_map(|index| index.node(ino)))
    }

    /// What the topmost layer that speaks of this name says.
    pub fn dentry(&self, parent: Ino, name: &[u8]) -> Option<Dentry> {
        let open = self.open.index().dir(parent).and_then(|dir| dir.get(name));
        open.or_else(|| self.frozen_dentry(parent, name))
    }

    /// What a layer beneath the open one says of this name: whether removing it needs a whiteout there.
    pub fn frozen_dentry(&self, parent: Ino, name: &[u8]) -> Option<Dentry> {
        self.frozen
            .iter()
            .find_map(|layer| layer.index().dir(parent)?.get(name))
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
    pub fn content_file(&self, content: ContentRef, len: u64) -> Result<Option<ContentFile>, LayerError> {
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

    /// The frozen layer that holds `content`, or `None` where it is the open layer's own and may be written.
    pub fn frozen_owner(&self, content: ContentRef) -> Option<&Arc<FrozenLayer>> {
        self.frozen.iter().find(|layer| layer.id() == content.layer)
    }
}
