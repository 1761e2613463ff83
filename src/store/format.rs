//! Version of the store's format, and the key of the inode hash.
//!
//! The hash gives base nodes their inode numbers. Nothing else holds the key, and without it no
//! layer can be read. So `format` and `format.copy` have the same content, each with a checksum. If
//! one is lost, it is rewritten when the store is opened.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::places::{Places, missing};
use super::{files, recover};
use crate::StoreError;

/// The store format that this tine writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// Content of either file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Format {
    format: u32,
    /// 16 random bytes in hex.
    pub ino_key: String,
    /// CRC-32 of version and key; `None` from an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<u32>,
}

impl Format {
    fn of(ino_key: String) -> Format {
        Format {
            checksum: Some(checksum(FORMAT, &ino_key)),
            format: FORMAT,
            ino_key,
        }
    }

    /// Reads the file at `path`, if it exists.
    fn read(path: &Path) -> Result<Option<Format>, StoreError> {
        /// Part that a file of any version has.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let damaged = |reason: &str| StoreError::Damaged {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let Some(version) = files::read_json::<Version>(path)? else {
            return Ok(None);
        };
        if version.format > FORMAT {
            return Err(StoreError::NewerFormat {
                path: path.parent().unwrap_or(path).to_owned(),
                found: version.format,
                known: FORMAT,
            });
        }
        let format: Format = files::read_json(path)?.ok_or_else(|| damaged("it went away"))?;
        if decode_key(&format.ino_key).is_none() {
            return Err(damaged("the key is not 16 bytes in hex"));
        }
        match format.checksum {
            Some(found) if found != checksum(format.format, &format.ino_key) => {
                Err(damaged("its checksum is wrong"))
            }
            _ => Ok(Some(format)),
        }
    }
}

fn checksum(format: u32, ino_key: &str) -> u32 {
    crc32fast::hash(format!("{format} {ino_key}").as_bytes())
}

/// Results of reading both files.
pub(super) struct Formats {
    /// `format` first, then its copy.
    files: [(PathBuf, Result<Option<Format>, StoreError>); 2],
}

impl Formats {
    pub(super) fn read(places: &Places) -> Formats {
        Formats {
            files: [places.format(), places.format_copy()].map(|path| {
                let read = Format::read(&path);
                (path, read)
            }),
        }
    }

    /// Returns the file that counts: one with a checksum, else any valid one.
    pub(super) fn chosen(&self) -> Option<&Format> {
        let mut whole: Vec<&Format> = self
            .files
            .iter()
            .filter_map(|(_, read)| read.as_ref().ok()?.as_ref())
            .collect();
        whole.sort_by_key(|format| format.checksum.is_none());
        whole.first().copied()
    }

    /// Lists the errors of both files.
    ///
    /// A missing copy is not an error, because an earlier version wrote none.
    pub(super) fn errors(self) -> Vec<(PathBuf, StoreError)> {
        let chosen = self.chosen().map(|format| format.ino_key.clone());
        let [(path, own), (copy_path, copy)] = self.files;
        let trouble =
            |path: &Path, read: Result<Option<Format>, StoreError>, is_needed: bool| match read {
                Err(error) => Some(error),
                Ok(None) => is_needed.then(|| missing(path.to_owned())),
                Ok(Some(format)) => (Some(format.ino_key) != chosen).then(|| StoreError::Damaged {
                    path: path.to_owned(),
                    reason: "the other of `format` and `format.copy` has another key".to_owned(),
                }),
            };
        let own = trouble(&path, own, true).map(|error| (path, error));
        let copy = trouble(&copy_path, copy, false).map(|error| (copy_path, error));
        own.into_iter().chain(copy).collect()
    }

    /// Rewrites a missing or damaged file. An unreadable one stays.
    pub(super) fn settle(&self, places: &Places) -> Result<(), StoreError> {
        let Some(chosen) = self.chosen() else {
            return Ok(());
        };
        let whole = Format::of(chosen.ino_key.clone());
        for (path, read) in &self.files {
            let is_whole = match read {
                Ok(Some(found)) => found.ino_key == whole.ino_key,
                Ok(None) | Err(StoreError::Damaged { .. }) => false,
                Err(_) => true,
            };
            if !is_whole {
                if *path == places.format() {
                    log::warn!("writing {} anew, of its copy", path.display());
                }
                files::write_json(path, &whole)?;
            }
        }
        Ok(())
    }
}

/// Reads the store's format and returns the key of the inode hash.
///
/// A new store gets a new key.
pub(super) fn open(places: &Places) -> Result<[u8; 16], StoreError> {
    let formats = Formats::read(places);
    let key = formats
        .chosen()
        .and_then(|format| decode_key(&format.ino_key));
    for (_, read) in formats.files {
        match read {
            Err(error @ StoreError::NewerFormat { .. }) => return Err(error),
            Err(error) if key.is_none() => return Err(error),
            _ => {}
        }
    }
    if let Some(key) = key {
        return Ok(key);
    }
    let is_new = files::list(&places.forks())?.is_empty()
        && places.layer_dirs()?.is_empty()
        && recover::forks_of_worktrees(places.common_dir(), |_| true)?.is_empty();
    if is_new {
        create(places)
    } else {
        Err(StoreError::Damaged {
            path: places.format(),
            reason: "it is missing though there are forks".to_owned(),
        })
    }
}

fn create(places: &Places) -> Result<[u8; 16], StoreError> {
    let mut key = [0; 16];
    let source = Path::new("/dev/urandom");
    File::open(source)
        .and_then(|mut random| random.read_exact(&mut key))
        .map_err(StoreError::io("read", source))?;
    let format = Format::of(key.iter().map(|byte| format!("{byte:02x}")).collect());
    files::write_json(&places.format(), &format)?;
    Ok(key)
}

fn decode_key(hex: &str) -> Option<[u8; 16]> {
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    let mut key = [0; 16];
    for (byte, digits) in key.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(key)
}
