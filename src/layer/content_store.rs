//! Writer of a layer's contents: allocates, writes, moves and frees them.
//!
//! A content is freed once no record on disk names it.

mod lost;
mod sync;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use super::content_file::{ContentFile, write_at};
use super::contents::{ContentReader, named_places};
use super::fault;
use super::ranges::{clear_beyond, clone_or_copy, truncate, zero_range};
use super::slots::SlotMap;
use super::{ContentLocation, ContentRef, FrozenLayer, LayerError, LayerId, LayerIndex};

pub(super) use lost::lost_contents;
use sync::punch;
pub(super) use sync::{ContentSync, punch_all_but};

/// Writable contents of a layer.
pub(super) struct ContentStore {
    id: LayerId,
    reader: Arc<ContentReader>,
    slots: SlotMap,
    next_file: u64,
    /// Disk space of each content file in use, in bytes.
    ///
    /// It is as of the last measurement.
    file_bytes: HashMap<u64, u64>,
    /// Disk space of all contents in use, in bytes.
    ///
    /// It is the sum of the slots' capacities and [`ContentStore::file_bytes`].
    live_bytes: u64,
    is_data_dirty: bool,
    dirty_files: HashSet<u64>,
    /// Content files with a write that does not hold the layer.
    being_written: HashSet<u64>,
    /// True if names in `files` changed since the last sync.
    is_dir_dirty: bool,
    /// True if any content may need a sync.
    ///
    /// An earlier process may have left unsynced writes.
    is_all_dirty: bool,
    /// Places dropped by records that may not be on disk yet.
    freed: Vec<ContentLocation>,
    /// Approximate disk space of `freed`, in bytes.
    freed_bytes: u64,
    /// Number of [`ContentSync`]s that have begun and not ended.
    syncs_under_way: u32,
}

impl ContentStore {
    pub(crate) fn create(dir: &Path, id: LayerId) -> Result<ContentStore, LayerError> {
        Ok(ContentStore::new(ContentReader::create(dir, id)?, id))
    }

    fn new(reader: ContentReader, id: LayerId) -> ContentStore {
        ContentStore {
            id,
            reader: Arc::new(reader),
            slots: SlotMap::new(),
            next_file: 1,
            file_bytes: HashMap::new(),
            live_bytes: 0,
            is_data_dirty: false,
            dirty_files: HashSet::new(),
            being_written: HashSet::new(),
            is_dir_dirty: false,
            is_all_dirty: false,
            freed: Vec::new(),
            freed_bytes: 0,
            syncs_under_way: 0,
        }
    }

    /// Opens the contents that `index` names.
    ///
    /// If `may_free` is true, it frees all others. The log must be on disk for that.
    pub(crate) fn open(
        dir: &Path,
        id: LayerId,
        index: &LayerIndex,
        may_free: bool,
    ) -> Result<ContentStore, LayerError> {
        let mut store = ContentStore::new(ContentReader::open(dir, id, true)?, id);
        let mut taken = Vec::new();
        for (content, size) in named_places(index, id) {
            match store.reader.check(content, size)? {
                ContentLocation::Slot { offset, capacity } => {
                    taken.push((offset, capacity));
                    store.live_bytes = store.live_bytes.saturating_add(u64::from(capacity));
                }
                ContentLocation::File(number) => {
                    if store.file_bytes.insert(number, 0).is_some() {
                        return Err(LayerError::Corrupt {
                            path: store.reader.path(content.place),
                            offset: 0,
                            reason: "two nodes have the same content".to_owned(),
                        });
                    }
                }
            }
        }
        let (mut slots, mut gaps) = SlotMap::rebuild(taken).map_err(|bad| LayerError::Corrupt {
            path: store.reader.data_path().to_owned(),
            offset: bad.offset,
            reason: "the log names a slot that cannot be".to_owned(),
        })?;
        let data = store.reader.data().clone();
        let path = store.reader.data_path().to_owned();
        let data_len = data
            .metadata()
            .map_err(LayerError::io("stat", &path))?
            .len();
        if may_free {
            if data_len > slots.end() {
                data.set_len(slots.end())
                    .map_err(LayerError::io("truncate", &path))?;
            }
            gaps.retain(|(start, _)| *start < data_len);
            punch(&data, &path, gaps);
        } else {
            slots.use_only_beyond(data_len);
            store.is_all_dirty = true;
        }
        store.slots = slots;
        store.scan_files(may_free)?;
        Ok(store)
    }

    /// Measures the content files in use.
    ///
    /// If `may_free` is true, it removes the others.
    fn scan_files(&mut self, may_free: bool) -> Result<(), LayerError> {
        let files = self.reader.files().clone();
        let dir = files.dir();
        let mut last_number = self.file_bytes.keys().copied().max().unwrap_or(0);
        for entry in std::fs::read_dir(dir).map_err(LayerError::io("list", dir))? {
            let entry = entry.map_err(LayerError::io("list", dir))?;
            let Some(number) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            last_number = last_number.max(number);
            match self.file_bytes.get_mut(&number) {
                Some(bytes) => {
                    let meta = entry
                        .metadata()
                        .map_err(LayerError::io("stat", files.path(number)))?;
                    *bytes = meta.blocks().saturating_mul(512);
                    self.live_bytes = self.live_bytes.saturating_add(*bytes);
                }
                None if !may_free => {}
                None => files
                    .remove(number)
                    .map_err(LayerError::io("remove", files.path(number)))?,
            }
        }
        self.next_file = last_number.saturating_add(1);
        Ok(())
    }

    pub(crate) fn reader(&self) -> &Arc<ContentReader> {
        &self.reader
    }

    /// Returns the disk space of the contents in use, in bytes.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.is_data_dirty
            || self.is_dir_dirty
            || self.is_all_dirty
            || !self.dirty_files.is_empty()
            || !self.freed.is_empty()
            || self.syncs_under_way > 0
    }

    /// Returns true if a sync would free space.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Returns the approximate number of bytes that a sync would free.
    pub(crate) fn freed_bytes(&self) -> u64 {
        self.freed_bytes
    }

    /// Allocates a place for a content of `len` bytes.
    pub(crate) fn allocate(&mut self, len: u64) -> Result<ContentRef, LayerError> {
        let place = match SlotMap::capacity_for(len) {
            Some(capacity) => {
                let offset = self.slots.take(capacity).ok_or_else(|| {
                    self.too_large(
                        "grow",
                        ContentLocation::Slot {
                            offset: 0,
                            capacity,
                        },
                    )
                })?;
                self.live_bytes += u64::from(capacity);
                ContentLocation::Slot { offset, capacity }
            }
            None => ContentLocation::File(self.new_file()?),
        };
        Ok(ContentRef {
            layer: self.id,
            place,
        })
    }

    fn new_file(&mut self) -> Result<u64, LayerError> {
        let number = self.next_file;
        fault::step()
            .and_then(|()| self.reader.files().create(number))
            .map_err(|error| {
                LayerError::io("create", self.reader.path(ContentLocation::File(number)))(error)
            })?;
        self.add_file(number);
        Ok(number)
    }

    /// Adds a file that was just created with the next number.
    fn add_file(&mut self, number: u64) {
        self.next_file += 1;
        self.is_dir_dirty = true;
        self.file_bytes.insert(number, 0);
    }

    /// Frees a place that no record ever named.
    pub(crate) fn abandon(&mut self, content: ContentRef) {
        if content.layer != self.id {
            return;
        }
        self.uncount(content.place);
        match content.place {
            ContentLocation::Slot { offset, capacity } => self.slots.release(offset, capacity),
            ContentLocation::File(number) => {
                if let Err(error) = fault::step().and_then(|()| self.reader.files().remove(number))
                {
                    log::warn!(
                        "remove {}: {error}",
                        self.reader.path(content.place).display()
                    );
                }
                self.dirty_files.remove(&number);
            }
        }
    }

    /// Marks a content as dropped by the record just written.
    pub(crate) fn drop_content(&mut self, content: ContentRef) {
        if content.layer == self.id {
            let bytes = self.uncount(content.place);
            self.freed_bytes = self.freed_bytes.saturating_add(bytes);
            self.freed.push(content.place);
        }
    }

    /// Removes a place from the statistics, and returns its disk space.
    fn uncount(&mut self, place: ContentLocation) -> u64 {
        let bytes = match place {
            ContentLocation::Slot { capacity, .. } => u64::from(capacity),
            ContentLocation::File(number) => self.file_bytes.remove(&number).unwrap_or(0),
        };
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        bytes
    }

    /// Implements [`Layer::write_content`](super::Layer::write_content).
    pub(crate) fn write(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<ContentRef, LayerError> {
        let place = self.reader.check(content, len)?;
        let end = self.end_of(place, offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(content);
        }
        match place {
            ContentLocation::Slot { capacity, .. } if end > u64::from(capacity) => {
                self.move_to(content, len, len.max(end), |store, moved| {
                    store.write_in_place(moved.place, len, offset, data)
                })
            }
            place => {
                self.write_in_place(place, len, offset, data)?;
                Ok(content)
            }
        }
    }

    /// Moves a content that outgrew its slot.
    ///
    /// The new place has space for `new_len` bytes. `finish` then writes to it.
    fn move_to(
        &mut self,
        content: ContentRef,
        len: u64,
        new_len: u64,
        finish: impl FnOnce(&mut ContentStore, ContentRef) -> Result<(), LayerError>,
    ) -> Result<ContentRef, LayerError> {
        let mut bytes =
            vec![0; usize::try_from(len).map_err(|_| self.too_large("copy", content.place))?];
        self.reader.read(content, len, 0, &mut bytes)?;
        let moved = self.allocate(new_len)?;
        let result = self
            .write_in_place(moved.place, 0, 0, &bytes)
            .and_then(|()| finish(self, moved));
        self.or_abandon(moved, result)
    }

    fn or_abandon(
        &mut self,
        content: ContentRef,
        result: Result<(), LayerError>,
    ) -> Result<ContentRef, LayerError> {
        match result {
            Ok(()) => Ok(content),
            Err(error) => {
                self.abandon(content);
                Err(error)
            }
        }
    }

    /// Writes within the place, and zeroes between `len` and `offset`.
    fn write_in_place(
        &mut self,
        place: ContentLocation,
        len: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<(), LayerError> {
        if data.is_empty() {
            return Ok(());
        }
        let error =
            |store: &ContentStore, error| LayerError::io("write", store.reader.path(place))(error);
        match place {
            ContentLocation::Slot { offset: start, .. } => {
                self.is_data_dirty = true;
                let file = self.reader.data();
                let written = fault::step().and_then(|()| match offset.checked_sub(len) {
                    Some(gap @ 1..) => {
                        // A slot is small, so one write covers both.
                        let mut padded = vec![0; gap as usize + data.len()];
                        padded[gap as usize..].copy_from_slice(data);
                        file.write_all_at(&padded, start + len)
                    }
                    _ => file.write_all_at(data, start + offset),
                });
                written.map_err(|e| error(self, e))
            }
            ContentLocation::File(number) => {
                let file = self.reader.whole_file(number, len)?;
                self.dirty_files.insert(number);
                let written = write_at(&file, len, offset, data);
                self.count_file(number, &file);
                written.map_err(|e| error(self, e))
            }
        }
    }

    /// Implements [`Layer::begin_writing`](super::Layer::begin_writing).
    pub(crate) fn begin_writing(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        let file = ContentFile::open(&self.reader, content, len)?;
        if let Some(file) = &file {
            self.reader.whole_file(file.number(), len)?;
        }
        self.being_written
            .extend(file.as_ref().map(ContentFile::number));
        Ok(file)
    }

    /// Implements [`Layer::end_writing`](super::Layer::end_writing).
    pub(crate) fn end_writing(&mut self, file: &ContentFile) {
        self.being_written.remove(&file.number());
        self.dirty_files.insert(file.number());
        self.count_file(file.number(), file.file());
    }

    pub(crate) fn is_being_written(&self, number: u64) -> bool {
        self.being_written.contains(&number)
    }

    pub(crate) fn is_any_being_written(&self) -> bool {
        !self.being_written.is_empty()
    }

    /// Measures the disk space of a file.
    fn count_file(&mut self, number: u64, file: &File) {
        if let (Some(bytes), Ok(meta)) = (self.file_bytes.get_mut(&number), file.metadata()) {
            let now = meta.blocks().saturating_mul(512);
            self.live_bytes = self.live_bytes.saturating_sub(*bytes).saturating_add(now);
            *bytes = now;
        }
    }

    /// Implements [`Layer::resize_content`](super::Layer::resize_content).
    pub(crate) fn resize(
        &mut self,
        content: ContentRef,
        len: u64,
        new_len: u64,
    ) -> Result<ContentRef, LayerError> {
        let place = self.reader.check(content, len)?;
        self.end_of(place, new_len, 0)?;
        if new_len <= len {
            // The rest is truncated once the record with the new length is on disk.
            return Ok(content);
        }
        match place {
            ContentLocation::Slot { capacity, .. } if new_len > u64::from(capacity) => self
                .move_to(content, len, new_len, |store, moved| {
                    store.extend_in_place(moved.place, len, new_len)
                }),
            place => {
                self.extend_in_place(place, len, new_len)?;
                Ok(content)
            }
        }
    }

    fn extend_in_place(
        &mut self,
        place: ContentLocation,
        len: u64,
        new_len: u64,
    ) -> Result<(), LayerError> {
        match place {
            ContentLocation::Slot { .. } => {
                let zeroes = vec![0; (new_len - len) as usize];
                self.write_in_place(place, len, len, &zeroes)
            }
            ContentLocation::File(number) => {
                let file = self.reader.whole_file(number, len)?;
                self.dirty_files.insert(number);
                let resized = fault::step().and_then(|()| {
                    if clear_beyond(&file, len)? < new_len {
                        file.set_len(new_len)
                    } else {
                        Ok(())
                    }
                });
                self.count_file(number, &file);
                resized.map_err(|error| LayerError::io("resize", self.reader.path(place))(error))
            }
        }
    }

    /// Implements [`Layer::zero_content`](super::Layer::zero_content).
    pub(crate) fn zero(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        count: u64,
    ) -> Result<(), LayerError> {
        let place = self.reader.check(content, len)?;
        let end = offset.saturating_add(count).min(len);
        if offset >= end {
            return Ok(());
        }
        match place {
            ContentLocation::Slot { .. } => {
                let zeroes = vec![0; (end - offset) as usize];
                self.write_in_place(place, len, offset, &zeroes)
            }
            ContentLocation::File(number) => {
                let file = self.reader.whole_file(number, len)?;
                self.dirty_files.insert(number);
                let zeroed = fault::step().and_then(|()| zero_range(&file, offset, end - offset));
                self.count_file(number, &file);
                zeroed.map_err(|error| {
                    LayerError::io("punch a hole into", self.reader.path(place))(error)
                })
            }
        }
    }

    /// Implements [`Layer::reserve_content`](super::Layer::reserve_content).
    pub(crate) fn reserve(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        count: u64,
    ) -> Result<ContentRef, LayerError> {
        let place = self.reader.check(content, len)?;
        let end = self.end_of(place, offset, count)?;
        match place {
            ContentLocation::Slot { capacity, .. } if end > u64::from(capacity) => {
                self.move_to(content, len, end.max(len), |store, moved| {
                    store.reserve_in_place(moved.place, offset, count)
                })
            }
            place => {
                self.reserve_in_place(place, offset, count)?;
                Ok(content)
            }
        }
    }

    fn reserve_in_place(
        &mut self,
        place: ContentLocation,
        offset: u64,
        count: u64,
    ) -> Result<(), LayerError> {
        let reserved = match place {
            ContentLocation::Slot { offset: start, .. } => {
                self.is_data_dirty = true;
                fault::step().and_then(|()| {
                    tine_sys::file::reserve(self.reader.data(), start + offset, count)
                })
            }
            ContentLocation::File(number) => {
                let file = self.reader.file(number)?;
                self.dirty_files.insert(number);
                let reserved =
                    fault::step().and_then(|()| tine_sys::file::reserve(&file, offset, count));
                self.count_file(number, &file);
                reserved
            }
        };
        reserved.map_err(|error| LayerError::io("reserve space in", self.reader.path(place))(error))
    }

    /// Implements [`Layer::copy_up`](super::Layer::copy_up).
    pub(crate) fn copy_up(
        &mut self,
        from: &FrozenLayer,
        content: ContentRef,
        len: u64,
    ) -> Result<ContentRef, LayerError> {
        let source = from.contents_of(content)?;
        let place = source.check(content, len)?;
        let new = self.allocate(len)?;
        let result = match (place, new.place) {
            (ContentLocation::File(from_number), ContentLocation::File(number)) => source
                .whole_file(from_number, len)
                .and_then(|from| self.copy_file(&from, number, len)),
            _ => {
                // One of the two is a slot, so the content is small.
                let mut bytes = vec![0; len as usize];
                source
                    .read(content, len, 0, &mut bytes)
                    .and_then(|_| self.write_in_place(new.place, 0, 0, &bytes))
            }
        };
        self.or_abandon(new, result)
    }

    /// Copies a content that has a file.
    ///
    /// A content in a slot is returned unchanged.
    pub(crate) fn duplicate(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<ContentRef, LayerError> {
        let ContentLocation::File(from_number) = self.reader.check(content, len)? else {
            return Ok(content);
        };
        let from = self.reader.whole_file(from_number, len)?;
        let number = self.new_file()?;
        let new = ContentRef {
            layer: self.id,
            place: ContentLocation::File(number),
        };
        let copied = self.copy_file(&from, number, len);
        self.or_abandon(new, copied)
    }

    fn copy_file(&mut self, from: &File, number: u64, len: u64) -> Result<(), LayerError> {
        let to = self.reader.file(number)?;
        self.dirty_files.insert(number);
        let copied = fault::step().and_then(|()| clone_or_copy(from, &to, len));
        self.count_file(number, &to);
        copied.map_err(|error| {
            LayerError::io("copy to", self.reader.path(ContentLocation::File(number)))(error)
        })
    }

    /// Links a content file of another layer into this one.
    ///
    /// Programs that have it open and readers of this content then use the same file.
    pub(crate) fn adopt_file(&mut self, from: &Path) -> Result<ContentRef, LayerError> {
        let number = self.next_file;
        let place = ContentLocation::File(number);
        fault::step()
            .and_then(|()| std::fs::hard_link(from, self.reader.path(place)))
            .map_err(|error| LayerError::io("link", from)(error))?;
        self.add_file(number);
        self.dirty_files.insert(number);
        if let Ok(file) = self.reader.file(number) {
            self.count_file(number, &file);
        }
        Ok(ContentRef {
            layer: self.id,
            place,
        })
    }

    /// Truncates a content file to `len`.
    ///
    /// The node on disk must have this length.
    pub(crate) fn trim(&mut self, number: u64, len: u64) {
        let Ok(file) = self.reader.file(number) else {
            return;
        };
        if let Err(error) = fault::step().and_then(|()| truncate(&file, len)) {
            log::warn!(
                "truncate {}: {error}",
                self.reader.path(ContentLocation::File(number)).display()
            );
        }
        self.count_file(number, &file);
    }

    /// Returns true if a content file has bytes past `len`.
    pub(crate) fn has_more_than(&self, content: ContentRef, len: u64) -> Result<bool, LayerError> {
        match self.reader.check(content, len)? {
            ContentLocation::Slot { .. } => Ok(false),
            ContentLocation::File(number) => self.file_len(number).map(|found| found > len),
        }
    }

    /// Implements [`Layer::backing_file`](super::Layer::backing_file).
    pub(crate) fn backing_file(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<Arc<File>>, LayerError> {
        let place = self.reader.check(content, len)?;
        let ContentLocation::File(number) = place else {
            return Ok(None);
        };
        let file = self.reader.whole_file(number, len)?;
        if self.file_len(number)? != len {
            self.dirty_files.insert(number);
            let resized = fault::step().and_then(|()| file.set_len(len));
            resized.map_err(|error| LayerError::io("resize", self.reader.path(place))(error))?;
        }
        Ok(Some(file))
    }

    fn file_len(&self, number: u64) -> Result<u64, LayerError> {
        let meta = self.reader.file(number)?.metadata();
        let meta = meta.map_err(|error| {
            LayerError::io("stat", self.reader.path(ContentLocation::File(number)))(error)
        })?;
        Ok(meta.len())
    }

    /// Returns the end of a range.
    ///
    /// It fails if no file can be that long.
    fn end_of(&self, place: ContentLocation, offset: u64, count: u64) -> Result<u64, LayerError> {
        offset
            .checked_add(count)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or_else(|| self.too_large("write", place))
    }

    fn too_large(&self, action: &'static str, place: ContentLocation) -> LayerError {
        LayerError::io(action, self.reader.path(place))(io::Error::from_raw_os_error(libc::EFBIG))
    }
}
