//! File contents of a layer: slots in one data file, larger ones in files.
//!
//! A content of more than [`SLOT_MAX`] bytes has a file.
//!
//! A slot has a capacity of 4, 8, 16, 32 or 64 KiB. Freed slots are punched out and reused by
//! capacity, freed files are unlinked. Both happen only after the log record that dropped them is
//! synced.
//!
//! Only the node has the length of a content. Bytes past that length are remains of something else.
//! They are cleared when a content grows over them without writing them. If a slot or file ends
//! before its content, some of the content is lost, and reading that fails.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::descriptors::Descriptors;
use super::{LayerError, LayerId, LayerIndex};

/// Maximum size of a content in a slot, in bytes.
pub const SLOT_MAX: u64 = 64 * 1024;

/// Location of a content: the layer and the place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentRef {
    /// Layer that has the content.
    pub layer: LayerId,
    /// Place in that layer's directory.
    pub place: ContentLocation,
}

/// Place of a content in a layer's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContentLocation {
    /// Slot in `data`; offset and capacity are multiples of 4 KiB.
    Slot {
        /// Position in `data`, in bytes.
        offset: u64,
        /// Size of the slot, in bytes.
        capacity: u32,
    },
    /// The file `files/<number>`.
    File(u64),
}

/// Name of the data file in a layer's directory.
pub(super) const DATA_NAME: &str = "data";
/// Name of the directory for large contents in a layer's directory.
pub const FILES_NAME: &str = "files";

/// Reader of a layer's contents.
pub(super) struct ContentReader {
    id: LayerId,
    data: Arc<File>,
    data_path: PathBuf,
    files: Arc<Descriptors>,
}

impl ContentReader {
    /// Creates an empty data file and the directory for files in `dir`.
    pub(crate) fn create(dir: &Path, id: LayerId) -> Result<ContentReader, LayerError> {
        let files = dir.join(FILES_NAME);
        super::store::make_dir(&files)?;
        let path = dir.join(DATA_NAME);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(LayerError::io("create", &path))?;
        ContentReader::open(dir, id, true)
    }

    pub(crate) fn open(
        dir: &Path,
        id: LayerId,
        writable: bool,
    ) -> Result<ContentReader, LayerError> {
        let data_path = dir.join(DATA_NAME);
        let data =
            tine_sys::file::open_with(&data_path, OpenOptions::new().read(true).write(writable))
                .map_err(LayerError::io("open", &data_path))?;
        Ok(ContentReader {
            id,
            data: Arc::new(data),
            data_path,
            files: Arc::new(Descriptors::new(dir.join(FILES_NAME), writable)),
        })
    }

    pub(crate) fn data(&self) -> &Arc<File> {
        &self.data
    }

    pub(crate) fn data_path(&self) -> &Path {
        &self.data_path
    }

    pub(crate) fn files(&self) -> &Arc<Descriptors> {
        &self.files
    }

    pub(crate) fn path(&self, place: ContentLocation) -> PathBuf {
        match place {
            ContentLocation::Slot { .. } => self.data_path.clone(),
            ContentLocation::File(number) => self.files.path(number),
        }
    }

    pub(crate) fn file(&self, number: u64) -> Result<Arc<File>, LayerError> {
        self.files.open(number).map_err(|error| match error.kind() {
            // A program must not see this as a file that does not exist.
            io::ErrorKind::NotFound => LayerError::Corrupt {
                path: self.files.path(number),
                offset: 0,
                reason: "the file of a content is missing".to_owned(),
            },
            _ => LayerError::io("open", self.files.path(number))(error),
        })
    }

    /// Opens the file of a content, to change or copy it.
    ///
    /// It fails if the file has fewer than `len` bytes. The lost bytes would look like zeroes in a
    /// file that is then extended.
    pub(crate) fn whole_file(&self, number: u64, len: u64) -> Result<Arc<File>, LayerError> {
        let file = self.file(number)?;
        let meta = file.metadata();
        let there = meta
            .map_err(|error| LayerError::io("stat", self.files.path(number))(error))?
            .len();
        if there < len {
            return Err(cut_short(self.files.path(number), there));
        }
        Ok(file)
    }

    /// Checks that the place is valid here for `len` bytes.
    pub(crate) fn check(
        &self,
        content: ContentRef,
        len: u64,
    ) -> Result<ContentLocation, LayerError> {
        let wrong = |reason: &str| {
            Err(LayerError::Corrupt {
                path: self.path(content.place),
                offset: match content.place {
                    ContentLocation::Slot { offset, .. } => offset,
                    ContentLocation::File(_) => 0,
                },
                reason: reason.to_owned(),
            })
        };
        if content.layer != self.id {
            return wrong("the content belongs to another layer");
        }
        match content.place {
            ContentLocation::Slot { capacity, .. } if u64::from(capacity) > SLOT_MAX => {
                wrong("no slot is that large")
            }
            ContentLocation::Slot { capacity, .. } if len > u64::from(capacity) => {
                wrong("the content is longer than its slot")
            }
            ContentLocation::Slot { offset, capacity }
                if offset.checked_add(u64::from(capacity)).is_none() =>
            {
                wrong("the slot lies outside of any file")
            }
            place => Ok(place),
        }
    }

    /// Implements [`Layer::read_content`](super::Layer::read_content).
    pub(crate) fn read(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, LayerError> {
        let place = self.check(content, len)?;
        let left = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(buffer.len());
        let buffer = &mut buffer[..count];
        let read = match place {
            ContentLocation::Slot { offset: start, .. } => {
                self.data.read_exact_at(buffer, start + offset.min(len))
            }
            ContentLocation::File(number) => self.file(number)?.read_exact_at(buffer, offset),
        };
        read.map_err(|error| failed_read(self.path(place), offset, error))?;
        Ok(count)
    }

    /// Implements [`Layer::seek_content`](super::Layer::seek_content).
    pub(crate) fn seek(
        &self,
        content: ContentRef,
        len: u64,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<Option<u64>, LayerError> {
        let place = self.check(content, len)?;
        if offset >= len {
            return Ok(None);
        }
        match (place, whence) {
            (ContentLocation::Slot { .. }, SeekWhence::Data) => Ok(Some(offset)),
            (ContentLocation::Slot { .. }, SeekWhence::Hole) => Ok(Some(len)),
            (ContentLocation::File(number), whence) => {
                seek_in_file(&*self.file(number)?, len, offset, whence)
            }
        }
        .map_err(|error: io::Error| LayerError::io("seek in", self.path(place))(error))
    }

    /// Returns the bytes on disk of a content of `len` bytes.
    ///
    /// It is 0 if the file is missing, so that the content can still be removed.
    pub(crate) fn allocated(&self, content: ContentRef, len: u64) -> Result<u64, LayerError> {
        match self.check(content, len)? {
            ContentLocation::Slot { .. } => {
                Ok(len.next_multiple_of(u64::from(super::slots::SLOT_MIN)))
            }
            ContentLocation::File(number) => {
                match self.files.open(number).and_then(|file| file.metadata()) {
                    Ok(meta) => Ok(meta.blocks().saturating_mul(512)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
                    Err(error) => Err(LayerError::io("stat", self.files.path(number))(error)),
                }
            }
        }
    }
}

/// Target of a seek in a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekWhence {
    /// Next offset with data (`SEEK_DATA`).
    Data,
    /// Next hole (`SEEK_HOLE`).
    Hole,
}

/// Seeks in the file of a content, before the end.
///
/// Lost bytes at the end count as data, not as a hole. So a program that copies the content tries
/// to read them, and gets an error.
fn seek_in_file(file: &File, len: u64, offset: u64, whence: SeekWhence) -> io::Result<Option<u64>> {
    let found = match whence {
        SeekWhence::Data => tine_sys::file::seek_data(file, offset)?,
        SeekWhence::Hole => tine_sys::file::seek_hole(file, offset)?,
    };
    let there = match (found, whence) {
        (Some(found), SeekWhence::Data) if found < len => return Ok(Some(found)),
        (Some(found), SeekWhence::Hole) if found >= len => return Ok(Some(len)),
        _ => file.metadata()?.len(),
    };
    Ok(match whence {
        SeekWhence::Data => (there < len).then_some(offset.max(there)),
        SeekWhence::Hole => Some(found.filter(|found| *found < there).unwrap_or(len)),
    })
}

/// Returns all contents in an index, with their nodes' sizes.
pub(super) fn named_contents(index: &LayerIndex) -> impl Iterator<Item = (ContentRef, u64)> + '_ {
    index
        .nodes()
        .filter_map(|(_, node)| Some((node.content.own()?, node.size)))
}

/// Returns the contents of one layer in an index.
pub(super) fn named_places(
    index: &LayerIndex,
    id: LayerId,
) -> impl Iterator<Item = (ContentRef, u64)> + '_ {
    named_contents(index).filter(move |(content, _)| content.layer == id)
}

/// Converts an error of reading a content at `offset`.
pub(super) fn failed_read(path: PathBuf, offset: u64, error: io::Error) -> LayerError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => cut_short(path, offset),
        _ => LayerError::io("read", path)(error),
    }
}

/// Returns the error for a file that ends too early.
fn cut_short(path: PathBuf, offset: u64) -> LayerError {
    LayerError::Corrupt {
        path,
        offset,
        reason: "the file ends before the content does".to_owned(),
    }
}
