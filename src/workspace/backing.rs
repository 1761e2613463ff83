//! FUSE passthrough: contents that the kernel reads directly from their backing file.
//!
//! Once the kernel has a backing file, it reads it until the last program closes the file. So such
//! a content is *pinned*: it stays in its backing file, whose length is the content's.

use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::error::FsError;
use super::fs::{Invalidation, ViewState, Workspace};
use tine_attr::{Ino, Timestamp};
use tine_layer::{Content, Layer, LayerError, Node};

/// Truncates the file of a pinned content to the content's size.
///
/// The caller holds the content lock.
pub(super) fn cut_pinned(state: &mut ViewState, ino: Ino) -> Result<(), FsError> {
    let layer = state.stack.open_layer_mut();
    if state.pins.contains_key(&ino)
        && let Some((node, content)) = layer.content_of(ino)
    {
        let len = node.size;
        layer.backing_file(content, len)?;
    }
    Ok(())
}

/// Pinned content whose layer is about to be frozen.
///
/// The kernel goes on using the backing file, so that becomes the next layer's. The frozen layer
/// gets a copy.
pub(super) struct PinnedContent {
    /// Node that has the content.
    pub ino: Ino,
    /// Record for the layer that is frozen, with the copy.
    pub in_frozen: Node,
    /// Record for the next layer, with the backing file.
    pub in_next: Node,
}

/// Copies and links all pinned contents of the open layer.
///
/// Called before the layer is frozen. No node refers to the results yet.
pub(super) fn lend_pinned(
    state: &mut ViewState,
    next: &mut Layer,
) -> Result<Vec<PinnedContent>, FsError> {
    let pinned: Vec<Ino> = state.pins.keys().copied().collect();
    let mut lent = Vec::new();
    for ino in pinned {
        let layer = state.stack.open_layer_mut();
        let Some((node, content)) = layer.content_of(ino) else {
            continue;
        };
        let node = node.clone();
        let with = |content| Node {
            content: Content::Own(content),
            ..node.clone()
        };
        let in_next = with(next.adopt_file_of(layer, content)?);
        let in_frozen = with(layer.duplicate_content(content, node.size)?);
        lent.push(PinnedContent {
            ino,
            in_frozen,
            in_next,
        });
    }
    Ok(lent)
}

impl Workspace {
    /// Pins a content and returns its backing file, for reading only.
    ///
    /// The file holds nothing but this content. It stays the content's file until
    /// [`Workspace::unpin_content`] has been called once for each file returned, or the mount ends.
    /// `None` if the open layer has no such file: small contents share one, and contents of the
    /// base or of a frozen layer move when they are written.
    ///
    /// # Errors
    /// [`FsError::Layer`] if the backing file cannot be made or read; [`FsError::Base`] with
    /// `GitError::TakesLong` on a nonblocking thread that would have to wait.
    pub fn pin_content(&self, ino: Ino) -> Result<Option<Arc<File>>, FsError> {
        let _contents = self.contents.write(ino)?;
        let mut state = self.write_state();
        let layer = state.stack.open_layer_mut();
        let Some((node, content)) = layer.content_of(ino) else {
            return Ok(None);
        };
        let len = node.size;
        let file = layer.backing_file(content, len)?;
        if file.is_some() {
            let pins = state.pins.entry(ino).or_default();
            *pins = pins.saturating_add(1);
        }
        Ok(file)
    }

    /// Updates the times of a pinned content written through a mapping.
    ///
    /// Such writes reach the backing file without a request.
    ///
    /// # Errors
    /// [`FsError::Layer`] if the backing file cannot be made or read; [`FsError::Base`] with
    /// `GitError::TakesLong` on a nonblocking thread that would have to wait.
    pub fn note_mapped_writes(&self, ino: Ino) -> Result<(), FsError> {
        let contents = self.contents.write(ino)?;
        let mut state = self.write_state();
        let layer = state.stack.open_layer_mut();
        let Some((node, content)) = layer.content_of(ino) else {
            return Ok(());
        };
        let mut node = node.clone();
        let Some(file) = layer.backing_file(content, node.size)? else {
            return Ok(());
        };
        let meta = file
            .metadata()
            .map_err(LayerError::io("stat a content in", layer.dir()))?;
        let written = Timestamp::of_stat(meta.mtime(), meta.mtime_nsec());
        // After a write request the node's time is later than the file's.
        if written <= node.ctime {
            return Ok(());
        }
        (node.mtime, node.ctime) = (written, written);
        self.put_content(&mut state, ino, node)?;
        drop((state, contents));
        self.announce([Invalidation::Attributes(ino)]);
        Ok(())
    }

    /// Removes one pin of the content.
    pub fn unpin_content(&self, ino: Ino) {
        if let Entry::Occupied(mut pins) = self.write_state().pins.entry(ino) {
            match pins.get().saturating_sub(1) {
                0 => drop(pins.remove()),
                left => *pins.get_mut() = left,
            }
        }
    }
}
