//! Notices about a fork that its user has not seen yet.
//!
//! They are in `forks/<name>/untold.json`, which is atomically replaced.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Store, StoreError, files};
use crate::ForkName;

impl Store {
    /// Reads the notices that the fork's user has not seen.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if they cannot be parsed, or an I/O error.
    pub fn notices<T: DeserializeOwned>(&self, name: &ForkName) -> Result<Option<T>, StoreError> {
        files::read_json(&self.places.notices(name))
    }

    /// Replaces the notices that the fork's user has not seen; `None`: none.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file cannot be written or removed.
    pub fn write_notices<T: Serialize>(
        &self,
        name: &ForkName,
        notices: Option<&T>,
    ) -> Result<(), StoreError> {
        let path = self.places.notices(name);
        match notices {
            Some(notices) => files::write_json(&path, notices),
            None => files::remove_file(&path),
        }
    }
}
