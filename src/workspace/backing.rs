//! Contents that the kernel reads by itself, from the file that holds them (FUSE passthrough).
//!
//! What the kernel has been given once it reads until the last program has closed the file,
//! whatever is decided here. So such a content is *pinned*: it stays in its file, which is exactly
//! as long as the content is.

use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::error::FsError;
use super::fs::{Invalidation, State, Workspace};
use tine_attr::{Ino, Timestamp};
use tine_layer::{Content, Layer, LayerError, Node};

/// Has the file of a pinned content end where the content ends. The content lock must be held.
pub(super) fn cut_pinned(state: &mut State, ino: Ino) -> Result<(), FsError> {
    let layer = state.stack.open_layer_mut();
    if state.pins.contains_key(&ino)
        && let Some((node, content)) = layer.content_of(ino)
    {
        let len = node.size;
        layer.backing_file(content, len)?;
    }
    Ok(())
}

/// A pinned content when its layer is frozen: the kernel goes on using the file, so that is the
/// next layer's from then on, and the frozen one gets a copy.
pub(super) struct Lent {
    pub ino: Ino,
    pub in_frozen: Node,
    pub in_next: Node,
}

/// Makes the copies and second names of all pinned contents that are the open layer's. No node has
/// them yet.
pub(super) fn lend_pinned(state: &mut State, next: &mut Layer) -> Result<Vec<Lent>, FsError> {
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
        lent.push(Lent {
            ino,
            in_frozen,
            in_next,
        });
    }
    Ok(lent)
}

impl Workspace {
    /// The file that holds the node's content and nothing else, to be read only. It does until
    /// [`Workspace::unpin_content`] has been called as often as this gave a file, or the mount has
    /// ended. `None` where the open layer has no such file: small contents share one, and those of
    /// the base or of a frozen layer move when they are written to.
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

    /// What a program wrote to a pinned content through a mapping of its file got there without a
    /// request: gives the node the time of it.
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
        // A request gives its time to the node after it wrote to the file.
        if written <= node.ctime {
            return Ok(());
        }
        (node.mtime, node.ctime) = (written, written);
        self.put_content(&mut state, ino, node)?;
        drop((state, contents));
        self.announce([Invalidation::Attributes(ino)]);
        Ok(())
    }

    pub fn unpin_content(&self, ino: Ino) {
        if let Entry::Occupied(mut pins) = self.write_state().pins.entry(ino) {
            match pins.get().saturating_sub(1) {
                0 => drop(pins.remove()),
                left => *pins.get_mut() = left,
            }
        }
    }
}
