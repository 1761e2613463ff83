//! Small records above the level of a fork, one file each.
//!
//! A record is `<store>/<kind>/<id>.json` and is replaced atomically. It may have an attachment of
//! any size, which is added and removed as a whole: `<store>/<kind>/<id>.<attachment>`.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::places::Places;
use super::{Store, files};
use crate::StoreError;

/// Kind of a record, stored in a directory of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Merges with conflicts that are being resolved.
    Reviews,
    /// Finished work of forks, ready to be applied.
    Handoffs,
    /// Sessions of rounds.
    Rounds,
    /// Text that agents wrote to open buffers.
    Buffers,
    /// Checkouts that are being moved.
    Moves,
    /// Reads by agents of text that its author had not saved.
    UnsavedReads,
    /// Files that editors have open.
    OpenFiles,
    /// States to which forks were restored past commits made by others.
    Reverts,
}

impl RecordKind {
    pub(super) const ALL: [RecordKind; 8] = [
        RecordKind::Reviews,
        RecordKind::Handoffs,
        RecordKind::Rounds,
        RecordKind::Buffers,
        RecordKind::Moves,
        RecordKind::UnsavedReads,
        RecordKind::OpenFiles,
        RecordKind::Reverts,
    ];

    pub(super) fn dir_name(self) -> &'static str {
        match self {
            RecordKind::Reviews => "reviews",
            RecordKind::Handoffs => "handoffs",
            // The directories beside it have the names of sessions, which never begin with a dot.
            RecordKind::Rounds => "rounds/.records",
            RecordKind::Buffers => "buffers",
            RecordKind::Moves => "moves",
            RecordKind::UnsavedReads => "unsaved-reads",
            RecordKind::OpenFiles => "open-files",
            RecordKind::Reverts => "gone-back",
        }
    }
}

impl Store {
    /// Adds a record made for its number: one above the highest ever used.
    ///
    /// `make` must have stored everything that the record needs when it returns.
    ///
    /// # Errors
    /// The error of `make`, or an I/O error.
    pub fn add_document<T: Serialize, E: From<StoreError>>(
        &self,
        kind: RecordKind,
        make: impl FnOnce(u64) -> Result<T, E>,
    ) -> Result<T, E> {
        let _admin = self.admin.lock();
        let dir = self.kind_dir(kind);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(StoreError::io("create", &dir))?;
        let id = self.highest_id(kind)?.saturating_add(1);
        let document = make(id)?;
        files::write_json(&self.document(kind, id), &document)?;
        Ok(document)
    }

    /// Reads the record of that number, if there is one.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it cannot be parsed, or an I/O error.
    pub fn read_document<T: DeserializeOwned>(
        &self,
        kind: RecordKind,
        id: u64,
    ) -> Result<Option<T>, StoreError> {
        files::read_json(&self.document(kind, id))
    }

    /// Replaces the record of that number.
    ///
    /// # Errors
    /// [`StoreError::Io`] if it cannot be written.
    pub fn write_document<T: Serialize>(
        &self,
        kind: RecordKind,
        id: u64,
        document: &T,
    ) -> Result<(), StoreError> {
        files::write_json(&self.document(kind, id), document)
    }

    /// Reads all records of a kind by number; unreadable ones separately.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the directory cannot be listed.
    pub fn documents<T: DeserializeOwned>(
        &self,
        kind: RecordKind,
    ) -> Result<(Vec<T>, Vec<StoreError>), StoreError> {
        let (mut documents, mut damaged) = (Vec::new(), Vec::new());
        for id in self.document_ids(kind)? {
            match self.read_document(kind, id) {
                Ok(document) => documents.extend(document),
                Err(error) => damaged.push(error),
            }
        }
        Ok((documents, damaged))
    }

    /// Removes the record of that number and its attachment, if named.
    ///
    /// The number is not used again.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a file cannot be removed.
    pub fn remove_document(
        &self,
        kind: RecordKind,
        id: u64,
        attachment: Option<&str>,
    ) -> Result<(), StoreError> {
        let _admin = self.admin.lock();
        self.note_highest(kind)?;
        let path = self.document(kind, id);
        files::remove_file(&path)?;
        // If the process dies here, the next opening of the store removes the attachment.
        if let Some(attachment) = attachment {
            files::remove_file(&self.attachment(kind, id, attachment))?;
        }
        files::sync_parent(&path)
    }

    /// Stores an attachment beside the record, atomically and durably.
    ///
    /// `fill` makes the file at the path that it is given. It replaces an earlier attachment.
    ///
    /// # Errors
    /// The error of `fill`, or an I/O error.
    pub fn attach<T, E: From<StoreError>>(
        &self,
        kind: RecordKind,
        id: u64,
        attachment: &str,
        fill: impl FnOnce(&Path) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut filled = None;
        files::replace_atomically(&self.attachment(kind, id, attachment), |path| {
            filled = Some(fill(path)?);
            Ok::<_, E>(())
        })?;
        filled.ok_or_else(|| {
            let path = self.attachment(kind, id, attachment);
            E::from(StoreError::io("write", &path)(ErrorKind::WriteZero.into()))
        })
    }

    /// Returns the path of an attachment, which may not exist.
    pub fn attachment(&self, kind: RecordKind, id: u64, attachment: &str) -> PathBuf {
        self.kind_dir(kind).join(format!("{id}.{attachment}"))
    }

    /// Writes down the highest number ever used, before its record is removed.
    pub(super) fn note_highest(&self, kind: RecordKind) -> Result<(), StoreError> {
        files::write_json(&self.highest(kind), &self.highest_id(kind)?)
    }

    /// Returns the highest number that a record ever had.
    fn highest_id(&self, kind: RecordKind) -> Result<u64, StoreError> {
        let noted: Option<u64> = files::read_json(&self.highest(kind))?;
        let there = self.document_ids(kind)?.last().copied();
        Ok(noted.max(there).unwrap_or(0))
    }

    /// Returns the file with the highest number of removed records.
    fn highest(&self, kind: RecordKind) -> PathBuf {
        self.kind_dir(kind).join("highest")
    }

    /// Lists the numbers of all records, sorted.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the directory cannot be listed.
    pub fn document_ids(&self, kind: RecordKind) -> Result<Vec<u64>, StoreError> {
        let mut ids: Vec<u64> = files::list(&self.kind_dir(kind))?
            .iter()
            .filter_map(|path| {
                path.file_name()?
                    .to_str()?
                    .strip_suffix(".json")?
                    .parse()
                    .ok()
            })
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn kind_dir(&self, kind: RecordKind) -> PathBuf {
        self.places.root().join(kind.dir_name())
    }

    fn document(&self, kind: RecordKind, id: u64) -> PathBuf {
        self.kind_dir(kind).join(format!("{id}.json"))
    }
}

/// Removes half-written files and attachments without a record.
///
/// A process that died left them.
pub(super) fn clean_records(places: &Places) -> Result<(), StoreError> {
    for kind in RecordKind::ALL {
        let dir = places.root().join(kind.dir_name());
        for path in files::list(&dir)? {
            let text =
                |part: Option<&OsStr>| part.and_then(OsStr::to_str).unwrap_or_default().to_owned();
            let is_numbered = text(path.file_stem()).parse::<u64>().is_ok();
            let is_temporary = text(path.file_name()).ends_with(files::TEMPORARY_SUFFIX);
            if is_temporary || is_numbered && !path.with_extension("json").exists() {
                files::remove_file(&path)?;
            }
        }
    }
    Ok(())
}
