//! Small records of what stands above the forks: one atomically replaced file each,
//! `<store>/<shelf>/<id>.json`. A record may have a file of any size beside it, which comes and
//! goes whole: `<store>/<shelf>/<id>.<kind>`.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Places, Store, files};
use crate::StoreError;

/// A kind of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Merges with conflicts that are being resolved.
    Reviews,
    /// Finished work of forks, to be applied.
    Handoffs,
    /// Sessions of rounds.
    Rounds,
    /// What agents wrote to open buffers.
    Buffers,
    /// Checkouts that are being moved.
    Moves,
    /// Agents that were given a text which its person had not saved.
    UnsavedReads,
    /// Files that editors have open.
    OpenFiles,
    /// States that forks went back to, past commits of others.
    GoneBack,
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
        RecordKind::GoneBack,
    ];

    pub(super) fn dir_name(self) -> &'static str {
        match self {
            RecordKind::Reviews => "reviews",
            RecordKind::Handoffs => "handoffs",
            // Beside it are directories that bear the names of sessions, none of which begins with
            // a dot.
            RecordKind::Rounds => "rounds/.records",
            RecordKind::Buffers => "buffers",
            RecordKind::Moves => "moves",
            RecordKind::UnsavedReads => "unsaved-reads",
            RecordKind::OpenFiles => "open-files",
            RecordKind::GoneBack => "gone-back",
        }
    }
}

impl Store {
    /// Puts a new record on the shelf, made for its number: one past the highest that one ever had.
    /// Whatever else it needs is there when `make` is done.
    pub fn add_document<T: Serialize, E: From<StoreError>>(
        &self,
        shelf: RecordKind,
        make: impl FnOnce(u64) -> Result<T, E>,
    ) -> Result<T, E> {
        let _admin = self.admin.lock();
        let dir = self.shelf_dir(shelf);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(StoreError::io("create", &dir))?;
        let id = self.highest_id(shelf)?.saturating_add(1);
        let document = make(id)?;
        files::write_json(&self.document(shelf, id), &document)?;
        Ok(document)
    }

    /// The record of that number, if there is one.
    pub fn read_document<T: DeserializeOwned>(
        &self,
        shelf: RecordKind,
        id: u64,
    ) -> Result<Option<T>, StoreError> {
        files::read_json(&self.document(shelf, id))
    }

    /// Replaces the record of that number.
    pub fn write_document<T: Serialize>(
        &self,
        shelf: RecordKind,
        id: u64,
        document: &T,
    ) -> Result<(), StoreError> {
        files::write_json(&self.document(shelf, id), document)
    }

    /// All records of the shelf, by number; those that cannot be read apart.
    pub fn documents<T: DeserializeOwned>(
        &self,
        shelf: RecordKind,
    ) -> Result<(Vec<T>, Vec<StoreError>), StoreError> {
        let (mut documents, mut damaged) = (Vec::new(), Vec::new());
        for id in self.document_ids(shelf)? {
            match self.read_document(shelf, id) {
                Ok(document) => documents.extend(document),
                Err(error) => damaged.push(error),
            }
        }
        Ok((documents, damaged))
    }

    /// Removes the record of that number, and the file beside it, if it may have one. The number is
    /// not used again.
    pub fn remove_document(
        &self,
        shelf: RecordKind,
        id: u64,
        attachment: Option<&str>,
    ) -> Result<(), StoreError> {
        let _admin = self.admin.lock();
        self.note_highest(shelf)?;
        let path = self.document(shelf, id);
        files::remove_file(&path)?;
        // Found without its record it is removed when the store is opened.
        if let Some(attachment) = attachment {
            files::remove_file(&self.attachment(shelf, id, attachment))?;
        }
        files::sync_parent(&path)
    }

    /// Puts the file, which `fill` makes at the path that it is given, beside the record of that
    /// number: whole, durably, in the place of what was there.
    pub fn attach<T, E: From<StoreError>>(
        &self,
        shelf: RecordKind,
        id: u64,
        attachment: &str,
        fill: impl FnOnce(&Path) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut filled = None;
        files::replace_atomically(&self.attachment(shelf, id, attachment), |path| {
            filled = Some(fill(path)?);
            Ok::<_, E>(())
        })?;
        filled.ok_or_else(|| {
            let path = self.attachment(shelf, id, attachment);
            E::from(StoreError::io("write", &path)(ErrorKind::WriteZero.into()))
        })
    }

    /// Where the file beside the record of that number is, if it is.
    pub fn attachment(&self, shelf: RecordKind, id: u64, attachment: &str) -> PathBuf {
        self.shelf_dir(shelf).join(format!("{id}.{attachment}"))
    }

    /// Writes down the highest number that a record ever had, before that record goes.
    pub(super) fn note_highest(&self, shelf: RecordKind) -> Result<(), StoreError> {
        files::write_json(&self.highest(shelf), &self.highest_id(shelf)?)
    }

    /// The highest number that a record ever had.
    fn highest_id(&self, shelf: RecordKind) -> Result<u64, StoreError> {
        let noted: Option<u64> = files::read_json(&self.highest(shelf))?;
        let there = self.document_ids(shelf)?.last().copied();
        Ok(noted.max(there).unwrap_or(0))
    }

    /// Notes the highest number where the record that had it may be gone.
    fn highest(&self, shelf: RecordKind) -> PathBuf {
        self.shelf_dir(shelf).join("highest")
    }

    /// The numbers of all records, sorted.
    pub fn document_ids(&self, shelf: RecordKind) -> Result<Vec<u64>, StoreError> {
        let mut ids: Vec<u64> = files::list(&self.shelf_dir(shelf))?
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

    fn shelf_dir(&self, shelf: RecordKind) -> PathBuf {
        self.places.root().join(shelf.dir_name())
    }

    fn document(&self, shelf: RecordKind, id: u64) -> PathBuf {
        self.shelf_dir(shelf).join(format!("{id}.json"))
    }
}

/// Removes what a process that died has left: half-written files, and those beside no record.
pub(super) fn clean_shelves(places: &Places) -> Result<(), StoreError> {
    for shelf in RecordKind::ALL {
        let dir = places.root().join(shelf.dir_name());
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
