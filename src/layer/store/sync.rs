//! Syncing, freezing and sealing of a layer.
//!
//! A sync has steps between which others can use the layer.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::{FAILED_NAME, Layer, is_disk_full};
use crate::content_store::ContentSync;
use crate::log::LogPoint;
use crate::{ContentLocation, FrozenLayer, LayerError, LayerId};
use tine_attr::Ino;

impl Layer {
    /// Syncs the layer: contents first, then the log.
    ///
    /// It then frees the contents that waited for that, and compacts the log if most of it is
    /// obsolete. Do not call this between writing a content and committing its node.
    ///
    /// An fsync of one file syncs the whole layer, too, because the log says that every file is
    /// complete.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`] or [`LayerError::Interrupted`] if the layer takes no changes,
    /// [`LayerError::Io`] if the disk fails or is full.
    pub fn sync(&mut self) -> Result<(), LayerError> {
        let mut job = self.begin_sync()?;
        let result = self.run_sync(&mut job);
        self.end_sync(job);
        result
    }

    pub(crate) fn run_sync(&mut self, job: &mut SyncJob) -> Result<(), LayerError> {
        job.sync_contents()?;
        self.complete_sync(job)?;
        job.sync_log()
    }

    /// Begins a sync in steps, between which others use the layer.
    ///
    /// The next steps are [`SyncJob::sync_contents`] without holding the layer,
    /// [`Layer::complete_sync`], [`SyncJob::sync_log`] without holding the layer, and
    /// [`Layer::end_sync`]. The last one must follow even if a step fails. Several jobs may run at
    /// once, but the second one syncs the whole file system.
    ///
    /// # Errors
    /// The errors of [`Layer::sync`].
    pub fn begin_sync(&mut self) -> Result<SyncJob, LayerError> {
        self.log.check()?;
        while let Some(layer) = self.lower_layers.last() {
            layer.seal()?;
            self.lower_layers.pop();
        }
        if self.must_rewrite_contents {
            if self.contents.is_any_being_written() {
                let busy = io::ErrorKind::ResourceBusy.into();
                return Err(LayerError::io("write again", &self.dir)(busy));
            }
            self.contents.rewrite_all(&self.index)?;
            self.must_rewrite_contents = false;
        }
        Ok(SyncJob {
            id: self.log.id(),
            contents: self.contents.begin_sync(),
            shrunk: std::mem::take(&mut self.shrunk),
            log: self.log.point(),
            progress: Progress::Nothing,
        })
    }

    /// Sets the layers below that a sync of this layer seals first.
    ///
    /// Sealed ones are left out.
    pub(crate) fn set_lower_layers<'a>(
        &mut self,
        layers: impl Iterator<Item = &'a Arc<FrozenLayer>>,
    ) {
        self.lower_layers = layers.filter(|layer| !layer.is_sealed()).cloned().collect();
    }

    /// Returns true if the next sync begins with writing all contents again.
    ///
    /// That must not overlap with [`Layer::begin_writing`].
    pub fn must_write_again(&self) -> bool {
        self.must_rewrite_contents
    }

    /// Logs that the contents of `job` are on disk.
    ///
    /// Records written meanwhile name other contents, which may not be on disk. They do not count
    /// after a power failure.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`], [`LayerError::Interrupted`], or [`LayerError::Io`] if the log
    /// cannot be written.
    pub fn complete_sync(&mut self, job: &mut SyncJob) -> Result<(), LayerError> {
        self.log.check()?;
        job.log = self.log.complete(job.log.len())?;
        Ok(())
    }

    /// Ends a sync: the last step, also after a failed one.
    ///
    /// If `job` failed, all of it remains to be done. Do not call this between writing a content
    /// and committing its node.
    pub fn end_sync(&mut self, job: SyncJob) {
        if self.finish_job(job) {
            self.compact_if_due();
        }
    }

    /// Records that a [`ContentFlush`](crate::content_file::ContentFlush) failed.
    pub fn note_failed_sync(&mut self, error: &LayerError) {
        if is_disk_full(error) {
            self.must_rewrite_contents = true;
        } else {
            self.poison();
        }
    }

    /// Refuses changes until the layer is reopened.
    ///
    /// The kernel reports a failed write once and then marks the pages as clean. So a second try
    /// would succeed and prove nothing.
    pub(super) fn poison(&mut self) {
        self.log.poison();
        let failed = self.dir.join(FAILED_NAME);
        if let Err(error) = std::fs::File::create(&failed) {
            log::error!("create {}: {error}", failed.display());
        }
    }

    /// Records the result of a job; returns true if done.
    pub(super) fn finish_job(&mut self, job: SyncJob) -> bool {
        let is_synced = match job.progress {
            Progress::Done => {
                self.log.mark_synced(&job.log);
                self.trim(&job.shrunk);
                if let Some(reserve) = &self.reserve {
                    reserve.refill();
                }
                true
            }
            Progress::Waiting => {
                self.poison();
                false
            }
            Progress::NoRoom => {
                self.must_rewrite_contents = true;
                false
            }
            Progress::Nothing => false,
        };
        self.contents.end_sync(job.contents, is_synced);
        if !is_synced {
            self.shrunk.extend(job.shrunk);
        }
        is_synced
    }

    /// Truncates files that became shorter to the length of their contents.
    fn trim(&mut self, shrunk: &HashMap<u64, Ino>) {
        for (number, ino) in shrunk {
            // It became shorter once more, and that record is not on disk yet.
            if self.shrunk.contains_key(number) {
                continue;
            }
            // A running write may extend it.
            if self.contents.is_being_written(*number) {
                self.shrunk.insert(*number, *ino);
                continue;
            }
            if let Some((node, content)) = self.content_of(*ino)
                && content.place == ContentLocation::File(*number)
            {
                let len = node.size;
                self.contents.trim(*number, len);
            }
        }
    }

    /// Returns true if anything was written since the last [`Layer::sync`].
    pub fn is_dirty(&self) -> bool {
        !self.log.is_synced() || self.contents.is_dirty() || !self.shrunk.is_empty()
    }

    /// Freezes the layer: its state is shared and no longer changes.
    ///
    /// [`FrozenLayer::seal`] seals it later, so this does not wait for the disk and costs O(1).
    pub fn freeze(self) -> Arc<FrozenLayer> {
        let (dir, id, index) = (self.dir.clone(), self.log.id(), self.index.clone());
        let contents = self.contents.reader().clone();
        Arc::new(FrozenLayer::unsealed(dir, id, index, contents, self))
    }

    /// Syncs a frozen layer and logs that nothing follows.
    pub(crate) fn seal(&mut self) -> Result<(), LayerError> {
        if !self.log.is_sealed() {
            self.sync()?;
        }
        self.log.seal()?;
        self.log.point().sync()?;
        self.log.release_reserve();
        Ok(())
    }
}

/// Progress of a [`SyncJob`].
enum Progress {
    Nothing,
    /// The job waits for the disk, or the disk failed.
    Waiting,
    /// The disk had no room for the contents.
    NoRoom,
    Done,
}

/// Sync in progress, begun by [`Layer::begin_sync`].
pub struct SyncJob {
    id: LayerId,
    contents: ContentSync,
    pub(super) shrunk: HashMap<u64, Ino>,
    log: LogPoint,
    progress: Progress,
}

impl SyncJob {
    /// Returns the id of the layer.
    pub fn layer(&self) -> LayerId {
        self.id
    }

    /// Writes the contents to disk.
    ///
    /// It blocks and does not hold the layer.
    ///
    /// # Errors
    /// [`LayerError::Io`] if the disk fails or is full.
    pub fn sync_contents(&mut self) -> Result<(), LayerError> {
        self.progress = Progress::Waiting;
        let written = self.contents.write_out();
        self.progress = match &written {
            Ok(()) => Progress::Nothing,
            Err(error) if is_disk_full(error) => Progress::NoRoom,
            Err(_) => Progress::Waiting,
        };
        written
    }

    /// Syncs the log, then frees dropped contents.
    ///
    /// It blocks and does not hold the layer.
    ///
    /// # Errors
    /// [`LayerError::Io`] if the disk fails.
    pub fn sync_log(&mut self) -> Result<(), LayerError> {
        self.progress = Progress::Waiting;
        self.log.sync()?;
        self.progress = Progress::Done;
        self.contents.release();
        Ok(())
    }
}
