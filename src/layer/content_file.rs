//! A content's file, to be read, written or brought to the disk while its layer is free for others.
//!
//! Only contents past [`SLOT_MAX`](super::contents::SLOT_MAX) have one: that is where time goes. A
//! file's number is never given twice, so that what is written to one whose node has gone meanwhile
//! harms nobody.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::contents::{ContentReader, failed_read};
use super::descriptors::Descriptors;
use super::fault;
use super::log::sync_dir;
use super::ranges::{clear_beyond, zero_range};
use super::{ContentLocation, ContentRef, LayerError};

/// The file of one content. The caller keeps writers and readers of the same content apart.
pub struct ContentFile {
    content: ContentRef,
    number: u64,
    file: Arc<File>,
    files: Arc<Descriptors>,
}

impl ContentFile {
    /// `None` for a content that has no file of its own.
    pub(super) fn open(
        reader: &ContentReader,
        content: ContentRef,
        len: u64,
    ) -> Result<Option<ContentFile>, LayerError> {
        let ContentLocation::File(number) = reader.check(content, len)? else {
            return Ok(None);
        };
        Ok(Some(ContentFile {
            content,
            number,
            file: reader.file(number)?,
            files: reader.files().clone(),
        }))
    }

    pub fn content(&self) -> ContentRef {
        self.content
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// As [`Layer::read_content`](super::Layer::read_content).
    pub fn read(&self, len: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, LayerError> {
        let left = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(buffer.len());
        self.file
            .read_exact_at(&mut buffer[..count], offset)
            .map_err(|error| failed_read(self.files.path(self.number), offset, error))?;
        Ok(count)
    }

    /// Writes to a content that holds `len` bytes; the gap between is zeroes. Between
    /// [`Layer::begin_writing`](super::Layer::begin_writing) and
    /// [`Layer::end_writing`](super::Layer::end_writing).
    pub fn write(&self, len: u64, offset: u64, data: &[u8]) -> Result<(), LayerError> {
        write_at(&self.file, len, offset, data).map_err(|error| self.failed("write", error))
    }

    /// As [`Layer::zero_content`](super::Layer::zero_content), when [`ContentFile::write`] may be
    /// called.
    pub fn zero(&self, len: u64, offset: u64, count: u64) -> Result<(), LayerError> {
        let end = offset.saturating_add(count).min(len);
        if offset >= end {
            return Ok(());
        }
        let zeroed = fault::step().and_then(|()| zero_range(&self.file, offset, end - offset));
        zeroed.map_err(|error| self.failed("punch a hole into", error))
    }

    fn failed(&self, action: &'static str, error: io::Error) -> LayerError {
        LayerError::io(action, self.files.path(self.number))(error)
    }
}

/// Writes to the file of a content of `len` bytes, whatever the file holds behind those.
pub(super) fn write_at(file: &File, len: u64, offset: u64, data: &[u8]) -> io::Result<()> {
    fault::step()?;
    if offset > len {
        clear_beyond(file, len)?;
    }
    file.write_all_at(data, offset)
}

/// One content to be brought to the disk, with its name in the directory.
pub struct ContentFlush {
    file: Arc<File>,
    path: PathBuf,
    dir: Option<PathBuf>,
}

impl ContentFlush {
    pub(super) fn of(
        reader: &ContentReader,
        content: ContentRef,
    ) -> Result<ContentFlush, LayerError> {
        let (file, dir) = match reader.check(content, 0)? {
            ContentLocation::Slot { .. } => (reader.data().clone(), None),
            ContentLocation::File(number) => {
                (reader.file(number)?, Some(reader.files().dir().to_owned()))
            }
        };
        let path = reader.path(content.place);
        Ok(ContentFlush { file, path, dir })
    }

    /// Where this fails, [`Layer::note_failed_sync`](super::Layer::note_failed_sync) is to be
    /// called.
    pub fn run(&self) -> Result<(), LayerError> {
        self.file
            .sync_data()
            .map_err(LayerError::io("sync", &self.path))?;
        self.dir.as_deref().map_or(Ok(()), sync_dir)
    }
}
