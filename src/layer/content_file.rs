//! File of one content, for I/O that does not hold the layer.
//!
//! Only contents larger than [`SLOT_MAX`](super::contents::SLOT_MAX) have a file. Those are the
//! ones that take time. A file's number is never reused, so a late write to the file of a removed
//! node does no harm.

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

/// Open file of one content.
///
/// The caller must serialize writers and readers of the same content.
pub struct ContentFile {
    content: ContentRef,
    number: u64,
    file: Arc<File>,
    files: Arc<Descriptors>,
}

impl ContentFile {
    /// Opens the file of a content.
    ///
    /// `None` for a content in a slot.
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

    /// Returns the location of the content.
    pub fn content(&self) -> ContentRef {
        self.content
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Reads the content, like [`Layer::read_content`](super::Layer::read_content).
    ///
    /// # Errors
    /// [`LayerError::Corrupt`] if the file is too short, [`LayerError::Io`] otherwise.
    pub fn read(&self, len: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, LayerError> {
        let left = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(buffer.len());
        self.file
            .read_exact_at(&mut buffer[..count], offset)
            .map_err(|error| failed_read(self.files.path(self.number), offset, error))?;
        Ok(count)
    }

    /// Writes to a content of `len` bytes, and zeroes a gap.
    ///
    /// Call it only between [`Layer::begin_writing`](super::Layer::begin_writing) and
    /// [`Layer::end_writing`](super::Layer::end_writing).
    ///
    /// # Errors
    /// [`LayerError::Io`] if the file cannot be written.
    pub fn write(&self, len: u64, offset: u64, data: &[u8]) -> Result<(), LayerError> {
        write_at(&self.file, len, offset, data).map_err(|error| self.failed("write", error))
    }

    /// Zeroes a range, like [`Layer::zero_content`](super::Layer::zero_content).
    ///
    /// The conditions of [`ContentFile::write`] apply.
    ///
    /// # Errors
    /// [`LayerError::Io`] if the file cannot be written.
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

/// Writes to the file of a content of `len` bytes.
///
/// The file may have other bytes after those.
pub(super) fn write_at(file: &File, len: u64, offset: u64, data: &[u8]) -> io::Result<()> {
    fault::step()?;
    if offset > len {
        clear_beyond(file, len)?;
    }
    file.write_all_at(data, offset)
}

/// Sync of one content, including its name in the directory.
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

    /// Syncs the content; blocks on the disk.
    ///
    /// If this fails, call [`Layer::note_failed_sync`](super::Layer::note_failed_sync).
    ///
    /// # Errors
    /// [`LayerError::Io`] if the file or its directory cannot be synced.
    pub fn run(&self) -> Result<(), LayerError> {
        self.file
            .sync_data()
            .map_err(LayerError::io("sync", &self.path))?;
        self.dir.as_deref().map_or(Ok(()), sync_dir)
    }
}
