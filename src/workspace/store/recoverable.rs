//! The numbers of what `tine recover` lists: none is given twice.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{SetAside, Store, files};
use crate::StoreError;

impl Store {
    /// What repairs moved aside, each with its time in seconds since 1970.
    ///
    /// # Errors
    /// As [`Store::set_aside`].
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

    /// The greatest number that was ever in use and may be free again; 0 where none is known.
    pub fn highest_recoverable(&self) -> Result<u64, StoreError> {
        match files::read_json(&self.recoverable_path()) {
            Ok(highest) => Ok(highest.unwrap_or(0)),
            // What is there tells as well.
            Err(StoreError::Damaged { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Notes it, before what has that number goes.
    pub fn note_highest_recoverable(&self, id: u64) -> Result<(), StoreError> {
        files::write_json(&self.recoverable_path(), &id)
    }

    fn recoverable_path(&self) -> PathBuf {
        self.places.root().join("recover.json")
    }
}
