//! Bringing a layer to the disk, in steps between which others use it; freezing and sealing.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::{FAILED_NAME, Layer, is_disk_full};
use crate::content_store::ContentSync;
use crate::log::LogPoint;
use crate::{ContentLocation, FrozenLayer, LayerError, LayerId};
use tine_attr::Ino;

impl Layer {
    /// Brings everything to the disk: contents, then the log; then frees what waited for it, and
    /// compacts the log when most of it is out of date. Not to be called between writing a content
    /// and committing its node.
    ///
    /// An fsync of one file is this, too: what the log says to be complete must be so for every
    /// file.
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

    /// The first step of [`Layer::sync`], so that the layer can be used while the disk works: what
    /// is to be synced. Then [`SyncJob::sync_contents`] without holding the layer,
    /// [`Layer::complete_sync`], [`SyncJob::sync_log`] without holding it again, and in the end
    /// [`Layer::end_sync`]; that also where one of them failed. Several jobs may be under way, but
    /// the second one syncs the whole file system.
    pub fn begin_sync(&mut self) -> Result<SyncJob, LayerError> {
        self.log.check()?;
        while let Some(layer) = self.beneath.last() {
            layer.seal()?;
            self.beneath.pop();
        }
        if self.contents_are_doubted {
            if self.contents.is_any_being_written() {
                let busy = io::ErrorKind::ResourceBusy.into();
                return Err(LayerError::io("write again", &self.dir)(busy));
            }
            self.contents.write_again(&self.index)?;
            self.contents_are_doubted = false;
        }
        Ok(SyncJob {
            id: self.log.id(),
            contents: self.contents.begin_sync(),
            shrunk: std::mem::take(&mut self.shrunk),
            log: self.log.point(),
            progress: Progress::Nothing,
        })
    }

    /// Lets syncs of this layer bring those of `beneath` to the disk first that may not be there
    /// yet.
    pub(crate) fn stand_above<'a>(&mut self, beneath: impl Iterator<Item = &'a Arc<FrozenLayer>>) {
        self.beneath = beneath
            .filter(|layer| !layer.is_sealed())
            .cloned()
            .collect();
    }

    /// Whether the next sync begins with writing all contents again, which must not meet
    /// [`Layer::begin_writing`].
    pub fn must_write_again(&self) -> bool {
        self.contents_are_doubted
    }

    /// The contents of `job` are on the disk: says so in the log. Records that were written
    /// meanwhile name others, which may not be: after a power failure they do not count.
    pub fn complete_sync(&mut self, job: &mut SyncJob) -> Result<(), LayerError> {
        self.log.check()?;
        job.log = self.log.complete(job.log.len())?;
        Ok(())
    }

    /// The last step of [`Layer::sync`]: takes note of what `job` did. If it failed, all of it is
    /// still to be done. Not to be called between writing a content and committing its node.
    pub fn end_sync(&mut self, job: SyncJob) {
        if self.take_note(job) {
            self.compact_if_due();
        }
    }

    /// Takes note of a [`ContentFlush`](crate::content_file::ContentFlush) that failed.
    pub fn note_failed_sync(&mut self, error: &LayerError) {
        match is_disk_full(error) {
            true => self.contents_are_doubted = true,
            false => self.give_up(),
        }
    }

    /// Takes no more changes: the kernel tells once of what it could not write, and takes it for
    /// written. A second try would succeed and prove nothing.
    pub(super) fn give_up(&mut self) {
        self.log.poison();
        let failed = self.dir.join(FAILED_NAME);
        if let Err(error) = std::fs::File::create(&failed) {
            log::error!("create {}: {error}", failed.display());
        }
    }

    /// Whether the job was done.
    pub(super) fn take_note(&mut self, job: SyncJob) -> bool {
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
                self.give_up();
                false
            }
            Progress::NoRoom => {
                self.contents_are_doubted = true;
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

    /// Cuts off what files that became shorter still have at their ends.
    fn trim(&mut self, shrunk: &HashMap<u64, Ino>) {
        for (number, ino) in shrunk {
            // Shrunk again since: that record is not on the disk yet.
            if self.shrunk.contains_key(number) {
                continue;
            }
            // Its end may be what is written just now.
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

    /// Whether anything was written since the last [`Layer::sync`].
    pub fn is_dirty(&self) -> bool {
        !self.log.is_synced() || self.contents.is_dirty() || !self.shrunk.is_empty()
    }

    /// Takes no more changes: what the layer says from now on is shared. It is sealed later
    /// ([`FrozenLayer::seal`]), so this waits for no disk and costs O(1).
    pub fn freeze(self) -> Arc<FrozenLayer> {
        let (dir, id, index) = (self.dir.clone(), self.log.id(), self.index.clone());
        let contents = self.contents.reader().clone();
        Arc::new(FrozenLayer::unsealed(dir, id, index, contents, self))
    }

    /// Brings all of a frozen layer to the disk and says in the log that nothing follows.
    pub(crate) fn seal(&mut self) -> Result<(), LayerError> {
        if !self.log.is_sealed() {
            self.sync()?;
        }
        self.log.seal()?;
        self.log.point().sync()?;
        self.log.give_back_reserve();
        Ok(())
    }
}

/// How far a [`SyncJob`] got.
enum Progress {
    Nothing,
    /// It is waiting for the disk, or the disk failed.
    Waiting,
    /// The contents found no room.
    NoRoom,
    Done,
}

/// What [`Layer::begin_sync`] found to be brought to the disk.
pub struct SyncJob {
    id: LayerId,
    contents: ContentSync,
    pub(super) shrunk: HashMap<u64, Ino>,
    log: LogPoint,
    progress: Progress,
}

impl SyncJob {
    /// Of which layer.
    pub fn layer(&self) -> LayerId {
        self.id
    }

    /// Brings the contents to the disk.
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

    /// Brings the log to the disk, then gives freed space back.
    pub fn sync_log(&mut self) -> Result<(), LayerError> {
        self.progress = Progress::Waiting;
        self.log.sync()?;
        self.progress = Progress::Done;
        self.contents.release();
        Ok(())
    }
}
