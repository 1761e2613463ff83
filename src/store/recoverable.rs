//! Numbers of the entries of `tine recover`, each used once.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{SetAside, Store, files};
use crate::StoreError;

impl Store {
    /// Lists files that repairs moved aside, with times in seconds since 1970.
    ///
    /// # Errors
    /// Same as [`Store::set_aside`].
    pub fn set_aside_since(&self) -> Result<Vec<(SetAside, i64)>, StoreError> {
        let with_time = |aside: SetAside| {
            let dir = self
                .places
                .root()
                .join("damaged")
                .join(aside.number.to_string());
            let time = std::fs::symlink_metadata(&dir).map_or(0, |meta| meta.mtime());
            (aside, time)
        };
        Ok(self.set_aside()?.into_iter().map(with_time).collect())
    }

    /// Returns the greatest number ever freed; 0 if none is known.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the note of it cannot be read.
    pub fn highest_recoverable(&self) -> Result<u64, StoreError> {
        match files::read_json(&self.recoverable_path()) {
            Ok(highest) => Ok(highest.unwrap_or(0)),
            // The existing entries are evidence as well.
            Err(StoreError::Damaged { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Notes the greatest number before its entry is removed.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the note cannot be written.
    pub fn note_highest_recoverable(&self, id: u64) -> Result<(), StoreError> {
        files::write_json(&self.recoverable_path(), &id)
    }

    fn recoverable_path(&self) -> PathBuf {
        self.places.root().join("recover.json")
    }
}
