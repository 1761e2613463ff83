//! Sync of contents, and release of freed ones.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ContentStore;
use crate::contents::named_places;
use crate::descriptors::Descriptors;
use crate::fault;
use crate::log::sync_dir;
use crate::ranges::write_onto_itself;
use crate::slots::{SLOT_MIN, runs};
use crate::{ContentLocation, LayerError, LayerIndex};

/// Maximum number of content files to sync one by one.
///
/// For more, a sync of the whole file system takes less time.
const SYNC_FILES_MAX: usize = 32;

/// Sync of contents, and the places to free after it.
///
/// [`ContentStore::begin_sync`] takes it from the store and [`ContentStore::end_sync`] gives it
/// back. The places are freed once the log is on disk.
pub(crate) struct ContentSync {
    files: Arc<Descriptors>,
    data: Arc<File>,
    data_path: PathBuf,
    is_data_dirty: bool,
    dirty_files: HashSet<u64>,
    is_dir_dirty: bool,
    /// True if contents that are not listed here need a sync.
    ///
    /// Another sync in progress has taken them, or an earlier process wrote them.
    is_all_dirty: bool,
    freed: Vec<ContentLocation>,
}

impl ContentSync {
    /// Syncs the contents; blocks on the disk.
    pub(crate) fn write_out(&self) -> Result<(), LayerError> {
        if self.is_all_dirty || self.dirty_files.len() > SYNC_FILES_MAX {
            return fault::step()
                .and_then(|()| tine_sys::file::sync_fs(&self.data))
                .map_err(LayerError::io("sync the file system of", &self.data_path));
        }
        // Start all of them at once, so that one commit of the file system's journal may cover all.
        for number in &self.dirty_files {
            if let Ok(file) = self.files.open(*number) {
                let _ = tine_sys::file::start_writeback(&file);
            }
        }
        if self.is_data_dirty {
            fault::step()
                .and_then(|()| self.data.sync_data())
                .map_err(LayerError::io("sync", &self.data_path))?;
        }
        for number in &self.dirty_files {
            match fault::step().and_then(|()| self.files.open(*number)?.sync_data()) {
                // It was abandoned in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result.map_err(LayerError::io("sync", self.files.path(*number)))?,
            }
        }
        if self.is_dir_dirty {
            sync_dir(self.files.dir())?;
        }
        Ok(())
    }

    /// Returns the space of freed places to the file system.
    ///
    /// The log must be on disk.
    pub(crate) fn release(&self) {
        let mut slots = Vec::new();
        for place in &self.freed {
            match place {
                ContentLocation::Slot { offset, capacity } => slots.push((*offset, *capacity)),
                ContentLocation::File(number) => {
                    if let Err(error) = fault::step().and_then(|()| self.files.remove(*number)) {
                        log::warn!("remove {}: {error}", self.files.path(*number).display());
                    }
                }
            }
        }
        punch(&self.data, &self.data_path, runs(slots));
    }
}

impl ContentStore {
    /// Takes everything that needs a sync.
    pub(crate) fn begin_sync(&mut self) -> ContentSync {
        self.syncs_under_way += 1;
        self.freed_bytes = 0;
        ContentSync {
            is_all_dirty: self.is_all_dirty || self.syncs_under_way > 1,
            files: self.reader.files().clone(),
            data: self.reader.data().clone(),
            data_path: self.reader.data_path().to_owned(),
            is_data_dirty: std::mem::take(&mut self.is_data_dirty),
            dirty_files: std::mem::take(&mut self.dirty_files),
            is_dir_dirty: std::mem::take(&mut self.is_dir_dirty),
            freed: std::mem::take(&mut self.freed),
        }
    }

    /// Ends a sync.
    ///
    /// Freed slots can be reused. After a failed sync, everything is kept for the next one.
    pub(crate) fn end_sync(&mut self, job: ContentSync, is_synced: bool) {
        self.syncs_under_way = self.syncs_under_way.saturating_sub(1);
        if is_synced {
            if job.is_all_dirty {
                self.is_all_dirty = false;
            }
            for place in job.freed {
                if let ContentLocation::Slot { offset, capacity } = place {
                    self.slots.release(offset, capacity);
                }
            }
        } else {
            self.is_data_dirty |= job.is_data_dirty;
            self.dirty_files.extend(job.dirty_files);
            self.is_dir_dirty |= job.is_dir_dirty;
            self.freed.extend(job.freed);
        }
    }

    /// Consumes errors of earlier writes, which the kernel reports once.
    pub(crate) fn clear_write_errors(&self) {
        let _ = fault::step().and_then(|()| tine_sys::file::sync_fs(self.reader.data()));
    }

    /// Rewrites all contents that `index` names with their own bytes.
    ///
    /// This makes the kernel mark them as dirty. Unreadable contents are left alone.
    pub(crate) fn rewrite_all(&mut self, index: &LayerIndex) -> Result<(), LayerError> {
        self.is_all_dirty = true;
        for (content, _) in named_places(index, self.id) {
            let path = self.reader.path(content.place);
            let written = fault::step().and_then(|()| match content.place {
                ContentLocation::Slot { offset, capacity } => {
                    write_onto_itself(self.reader.data(), offset, offset + u64::from(capacity))
                }
                ContentLocation::File(number) => {
                    write_onto_itself(&*self.reader.files().open(number)?, 0, u64::MAX)
                }
            });
            match written {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result.map_err(LayerError::io("write again", path))?,
            }
        }
        Ok(())
    }
}

/// Punches out all of a data file except `slots`.
///
/// The slots are (offset, capacity). A failure only wastes space.
pub(crate) fn punch_all_but(data: &File, path: &Path, slots: &BTreeSet<(u64, u32)>) {
    let len = data.metadata().map_or(0, |meta| meta.len());
    let len = len.next_multiple_of(u64::from(SLOT_MIN));
    let mut gaps = Vec::new();
    let mut end = 0;
    for (offset, capacity) in slots {
        if *offset > end {
            gaps.push((end, offset - end));
        }
        end = end.max(offset.saturating_add(u64::from(*capacity)));
    }
    if len > end {
        gaps.push((end, len - end));
    }
    punch(data, path, gaps);
}

/// Punches ranges out of the data file.
///
/// A failure only wastes space.
pub(super) fn punch(data: &File, path: &Path, ranges: Vec<(u64, u64)>) {
    for (offset, len) in ranges {
        if let Err(error) =
            fault::step().and_then(|()| tine_sys::file::punch_hole(data, offset, len))
        {
            if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
                log::warn!("punch a hole into {}: {error}", path.display());
            }
            return;
        }
    }
}
