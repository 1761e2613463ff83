//! File contents of a layer: slots in one data file, and files of their own past [`SLOT_MAX`].
//!
//! A slot has a capacity of 4, 8, 16, 32 or 64 KiB. Freed slots are punched out and used again by
//! capacity, freed files are unlinked, both only after the log record that dropped them has been
//! synced.
//!
//! How long a content is stands in its node alone. Bytes past that length are left over from
//! something else: they are cleared when a content grows over them without writing them. A place
//! that ends before its content does has lost some of it: reading that fails.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::descriptors::Descriptors;
use super::store::SeekWhence;
use super::{LayerError, LayerId, LayerIndex};

/// Contents past this many bytes are files of their own.
pub const SLOT_MAX: u64 = 64 * 1024;

/// Where in which layer a content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentRef {
    pub layer: LayerId,
    pub place: ContentLocation,
}

/// A place in a layer's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContentLocation {
    /// In `data`; offset and capacity in bytes, multiples of 4 KiB.
    Slot { offset: u64, capacity: u32 },
    /// `files/<number>`.
    File(u64),
}

/// Names in a layer's directory.
pub(super) const DATA_NAME: &str = "data";
/// The directory of large contents.
pub const FILES_NAME: &str = "files";

/// Reads a layer's contents.
pub(super) struct ContentReader {
    id: LayerId,
    data: Arc<File>,
    data_path: PathBuf,
    files: Arc<Descriptors>,
}

impl ContentReader {
    /// Makes an empty data file and the directory of files in `dir`.
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
            // To a program it must not look as if there was no such file.
            io::ErrorKind::NotFound => LayerError::Corrupt {
                path: self.files.path(number),
                offset: 0,
                reason: "the file of a content is missing".to_owned(),
            },
            _ => LayerError::io("open", self.files.path(number))(error),
        })
    }

    /// The file of a content of `len` bytes, to be changed or copied. It is refused where it has
    /// lost some of them: in a file that is made longer they would look like zeroes.
    pub(crate) fn whole_file(&self, number: u64, len: u64) -> Result<Arc<File>, LayerError> {
        let file = self.file(number)?;
        let meta = file.metadata();
        let there = meta
            .map_err(|error| LayerError::io("stat", self.files.path(number))(error))?
            .len();
        match there < len {
            true => Err(cut_short(self.files.path(number), there)),
            false => Ok(file),
        }
    }

    /// The place, if it can be one of this layer's that holds `len` bytes.
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

    /// As [`Layer::read_content`](super::Layer::read_content).
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

    /// As [`Layer::seek_content`](super::Layer::seek_content).
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

    /// Bytes that a content of `len` bytes occupies on the disk: none where its file is missing,
    /// which can be removed still.
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

/// As [`ContentReader::seek`] before the end of a content with a file of its own. What the file has
/// lost is no hole: whoever copies the content must try to read it.
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

/// What an index names of any layer's contents, with the sizes of their nodes.
pub(super) fn named_contents(index: &LayerIndex) -> impl Iterator<Item = (ContentRef, u64)> + '_ {
    index
        .nodes()
        .filter_map(|(_, node)| Some((node.content.own()?, node.size)))
}

/// Those of one layer.
pub(super) fn named_places(
    index: &LayerIndex,
    id: LayerId,
) -> impl Iterator<Item = (ContentRef, u64)> + '_ {
    named_contents(index).filter(move |(content, _)| content.layer == id)
}

/// A content that could not be read at `offset`.
pub(super) fn failed_read(path: PathBuf, offset: u64, error: io::Error) -> LayerError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => cut_short(path, offset),
        _ => LayerError::io("read", path)(error),
    }
}

/// A file that ends before a content in it does.
fn cut_short(path: PathBuf, offset: u64) -> LayerError {
    LayerError::Corrupt {
        path,
        offset,
        reason: "the file ends before the content does".to_owned(),
    }
}
