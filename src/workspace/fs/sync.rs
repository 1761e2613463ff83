//! Writing of a fork to disk.

use super::Workspace;
use crate::error::FsError;
use tine_attr::Ino;
use tine_layer::{Layer, LayerError, LayerId};

impl Workspace {
    /// Writes the node's content, and the log up to it, to disk. Blocks.
    ///
    /// # Errors
    /// [`FsError::Layer`] or [`FsError::NoSpace`] if writing or syncing fails.
    pub fn fsync(&self, ino: Ino) -> Result<(), FsError> {
        let flush = {
            let state = self.state.read();
            let layer = state.stack.open_layer();
            match layer.content_of(ino) {
                Some((_, content)) => Some((layer.id(), layer.flush_of(content)?)),
                None => None,
            }
        };
        // The bulk is flushed while others use the fork.
        if let Some((layer, flush)) = flush
            && let Err(error) = flush.run()
        {
            self.with_layer(layer, |layer| layer.note_failed_sync(&error));
            return Err(error.into());
        }
        self.sync()
    }

    /// Writes all layers to disk. Blocks, but others may use the fork meanwhile.
    ///
    /// # Errors
    /// [`FsError::Layer`] or [`FsError::NoSpace`] if writing or syncing fails.
    pub fn sync(&self) -> Result<(), FsError> {
        let _one_at_a_time = self.syncing.lock();
        let mut job = {
            let mut state = self.state.write();
            while state.stack.has_unsealed() {
                drop(state);
                self.seal_frozen()?;
                state = self.state.write();
            }
            let _nobody_writes;
            if state.stack.open_layer().must_write_again() {
                drop(state);
                _nobody_writes = self.contents.write_all();
                state = self.state.write();
            }
            let layer = state.stack.open_layer_mut();
            if !layer.is_dirty() {
                return Ok(());
            }
            layer.begin_sync()?
        };
        let layer = job.layer();
        let done = job
            .sync_contents()
            .and_then(|()| {
                self.with_layer(layer, |layer| layer.complete_sync(&mut job))
                    .unwrap_or(Ok(()))
            })
            .and_then(|()| job.sync_log());
        self.with_layer(layer, |layer| layer.end_sync(job));
        // A layer that was frozen meanwhile is on disk only once it is sealed.
        done.and_then(|()| self.seal_frozen())?;
        Ok(())
    }

    /// Seals the frozen layers, oldest first.
    ///
    /// A layer must not be on disk before the layers below it.
    fn seal_frozen(&self) -> Result<(), LayerError> {
        let (frozen, retired) = {
            let state = self.state.read();
            (
                state.stack.frozen().to_vec(),
                state.stack.retired().to_vec(),
            )
        };
        retired
            .iter()
            .chain(frozen.iter().rev())
            .try_for_each(|layer| layer.seal())
    }

    /// Calls `change` with the layer `id`, which may be frozen by now.
    ///
    /// Returns `None` if the layer is sealed or gone.
    fn with_layer<T>(&self, id: LayerId, change: impl FnOnce(&mut Layer) -> T) -> Option<T> {
        let mut state = self.state.write();
        if state.stack.open_layer().id() == id {
            return Some(change(state.stack.open_layer_mut()));
        }
        let mut layers = state.stack.frozen().iter().chain(state.stack.retired());
        let frozen = layers.find(|layer| layer.id() == id).cloned();
        // A thread that seals the layer waits for the disk.
        drop(state);
        frozen?.with_unsealed(change)
    }

    /// Returns whether anything was written since the last sync.
    pub fn is_dirty(&self) -> bool {
        let state = self.state.read();
        state.stack.has_unsealed() || state.stack.open_layer().is_dirty()
    }
}
