//! Small records of what stands above the forks: one atomically replaced file each, `<store>/<shelf>/<id>.json`.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Store, files};
use crate::workspace::StoreError;

/// A kind of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shelf {
    /// Merges with conflicts that are being resolved.
    Reviews,
}

impl Shelf {
    pub(super) fn dir_name(self) -> &'static str {
        match self {
            Shelf::Reviews => "reviews",
        }
    }
}

impl Store {
    /// Puts a new record on the shelf, made for its number: one past the highest there. Whatever else it needs is there when
    /// `make` is done.
    pub fn add_document<T: Serialize, E: From<StoreError>>(
        &self,
        shelf: Shelf,
        make: impl FnOnce(u64) -> Result<T, E>,
    ) -> Result<T, E> {
        let _admin = self.admin.lock();
        let dir = self.shelf_dir(shelf);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(StoreError::io("create", &dir))?;
        let highest = self.document_ids(shelf)?.last().copied().unwrap_or(0);
        let id = highest.saturating_add(1);
        let document = make(id)?;
        files::write_json(&self.document(shelf, id), &document)?;
        Ok(document)
    }

    /// The record of that number, if there is one.
    pub fn read_document<T: DeserializeOwned>(&self, shelf: Shelf, id: u64) -> Result<Option<T>, StoreError> {
        files::read_json(&self.document(shelf, id))
    }

    /// Replaces the record of that number.
    pub fn write_document<T: Serialize>(
        &self,
        shelf: Shelf,
        id: u64,
        document: &T,
    ) -> Result<(), StoreError> {
        files::write_json(&self.document(shelf, id), document)
    }

    /// All records of the shelf, by number; those that cannot be read apart.
    pub fn documents<T: DeserializeOwned>(
        &self,
        shelf: Shelf,
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

    /// Sorted.
    fn document_ids(&self, shelf: Shelf) -> Result<Vec<u64>, StoreError> {
        let mut ids: Vec<u64> = files::list(&self.shelf_dir(shelf))?
            .iter()
            .filter_map(|path| path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok())
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn shelf_dir(&self, shelf: Shelf) -> PathBuf {
        self.places.root().join(shelf.dir_name())
    }

    fn document(&self, shelf: Shelf, id: u64) -> PathBuf {
        self.shelf_dir(shelf).join(format!("{id}.json"))
    }
}
