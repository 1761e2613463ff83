//! Contents of an open layer: allocation, writes, reads, and copy-up.

use std::sync::Arc;

use super::Layer;
use crate::content_file::{ContentFile, ContentFlush};
use crate::{ContentLocation, ContentRef, FrozenLayer, LayerError, SeekWhence};

impl Layer {
    /// Allocates a content that will have about `expected_len` bytes.
    ///
    /// The next opening frees it unless a record names it.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`], [`LayerError::Interrupted`], or [`LayerError::Io`] if the disk is
    /// full.
    pub fn new_content(&mut self, expected_len: u64) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.allocate(expected_len))
    }

    /// Frees a content that no record names.
    pub fn abandon_content(&mut self, content: ContentRef) {
        // A poisoned log may name it even so.
        if !self.log.is_poisoned() {
            self.contents.abandon(content);
        }
    }

    /// Writes `data` at `offset` of a content that has `len` bytes.
    ///
    /// A gap is filled with zeroes. The content may move: the result is its new location. If it
    /// differs from `content`, the old content is still intact. The caller then commits the node
    /// with the new location and size, which frees the old content.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`], [`LayerError::Interrupted`], [`LayerError::Corrupt`] if bytes are
    /// lost, or [`LayerError::Io`].
    pub fn write_content(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.write(content, len, offset, data))
    }

    /// Changes the length of a content from `len` to `new_len`.
    ///
    /// New bytes are zeroes, as holes where possible. The content may move, as in
    /// [`Layer::write_content`].
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`].
    pub fn resize_content(
        &mut self,
        content: ContentRef,
        len: u64,
        new_len: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        if new_len > len {
            self.check_growth()?;
        }
        self.with_freed_space(|layer| layer.contents.resize(content, len, new_len))
    }

    /// Zeroes `offset..offset + count` of a content of `len` bytes.
    ///
    /// It punches a hole where the store can.
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`].
    pub fn zero_content(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        count: u64,
    ) -> Result<(), LayerError> {
        self.log.check()?;
        self.with_freed_space(|layer| layer.contents.zero(content, len, offset, count))
    }

    /// Reserves disk space for `offset..offset + count`.
    ///
    /// It works like fallocate with `FALLOC_FL_KEEP_SIZE`. The content may move, as in
    /// [`Layer::write_content`].
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`].
    pub fn reserve_content(
        &mut self,
        content: ContentRef,
        len: u64,
        offset: u64,
        count: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.reserve(content, len, offset, count))
    }

    /// Copies a content of a frozen layer below into this one.
    ///
    /// It is a reflink where the file system supports that.
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`], also for the content in `from`.
    pub fn copy_up(
        &mut self,
        from: &FrozenLayer,
        content: ContentRef,
        len: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.copy_up(from, content, len))
    }

    /// Copies a content of this layer that has a file.
    ///
    /// A content in a slot is returned unchanged.
    ///
    /// # Errors
    /// The errors of [`Layer::write_content`].
    pub fn duplicate_content(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<ContentRef, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.with_freed_space(|layer| layer.contents.duplicate(content, len))
    }

    /// Creates a content with the file of another layer's content.
    ///
    /// Both then share one file, so that programs that have it open can go on.
    ///
    /// # Errors
    /// [`LayerError::Io`] if the file cannot be linked.
    pub fn adopt_file_of(
        &mut self,
        from: &Layer,
        content: ContentRef,
    ) -> Result<ContentRef, LayerError> {
        let path = from.contents.reader().path(content.place);
        self.contents.adopt_file(&path)
    }

    /// Reads a content of `len` bytes from `offset`.
    ///
    /// It stops when `buffer` is full or the content ends, and returns the number of bytes.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if bytes are lost, [`LayerError::Io`] otherwise.
    pub fn read_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, LayerError> {
        self.contents.reader().read(content, len, offset, buffer)
    }

    /// Seeks to data or a hole in a content of `len` bytes.
    ///
    /// It works like `lseek` with `SEEK_DATA` or `SEEK_HOLE`; `None` means ENXIO.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if the content is missing, [`LayerError::Io`] otherwise.
    pub fn seek_content(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<Option<u64>, LayerError> {
        self.contents.reader().seek(content, len, offset, whence)
    }

    /// Returns the disk space of a content, in units of 512 bytes.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if the location is invalid, [`LayerError::Io`] otherwise.
    pub fn content_blocks(&self, content: ContentRef, len: u64) -> Result<u64, LayerError> {
        let mut bytes = self.contents.reader().allocated(content, len)?;
        if let ContentLocation::File(number) = content.place
            && self.shrunk.contains_key(&number)
        {
            // The rest of the file is truncated after the next sync.
            bytes = bytes.min(len.saturating_add(4095) / 4096 * 4096);
        }
        Ok(bytes.div_ceil(512))
    }

    /// Returns the file of a content of `len` bytes.
    ///
    /// `None` if the content shares a file with others. The file belongs to the content while the
    /// node has it. If the content gets shorter, the next [`Layer::sync`] truncates the file. Do
    /// not call this between writing a content and committing its node.
    ///
    /// # Errors
    /// The errors of [`Layer::sync`], or [`LayerError::Corrupt`] if bytes are lost.
    pub fn backing_file(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<Arc<std::fs::File>>, LayerError> {
        self.log.check()?;
        if self.contents.has_more_than(content, len)? {
            // A truncation before the log is on disk would lose those bytes in a power failure.
            self.sync()?;
        }
        self.contents.backing_file(content, len)
    }

    /// Begins a write to a content that does not hold the layer.
    ///
    /// The content has `len` bytes. `None` if it is in a slot: then the caller must use
    /// [`Layer::write_content`]. Until [`Layer::end_writing`], no other caller may change the
    /// content, and a sync that must write contents again fails.
    ///
    /// # Errors
    /// [`LayerError::Poisoned`], [`LayerError::Interrupted`], [`LayerError::Corrupt`] if bytes are
    /// lost, or [`LayerError::Io`].
    pub fn begin_writing(
        &mut self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        self.log.check()?;
        self.check_growth()?;
        self.contents.begin_writing(content, len)
    }

    /// Ends a write that succeeded or failed.
    ///
    /// Only after this may a record with the written content be committed.
    pub fn end_writing(&mut self, file: &ContentFile) {
        self.contents.end_writing(file);
    }

    /// Opens the file of a content, for reads without the layer.
    ///
    /// The content has `len` bytes. `None` if the content is in a slot.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if the file is missing, [`LayerError::Io`] otherwise.
    pub fn content_file(
        &self,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        ContentFile::open(self.contents.reader(), content, len)
    }

    /// Returns a sync of one content, without the log.
    ///
    /// It does not hold the layer.
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if the file is missing, [`LayerError::Io`] otherwise.
    pub fn flush_of(&self, content: ContentRef) -> Result<ContentFlush, LayerError> {
        ContentFlush::of(self.contents.reader(), content)
    }
}
