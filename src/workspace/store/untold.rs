//! What somebody did for a fork that its user was not told yet: `forks/<name>/untold.json`,
//! atomically replaced.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Store, StoreError, files};
use crate::ForkName;

impl Store {
    /// What is still to be told of the fork.
    pub fn untold<T: DeserializeOwned>(&self, name: &ForkName) -> Result<Option<T>, StoreError> {
        files::read_json(&self.places.untold(name))
    }

    /// Has `untold` be what is still to be told of the fork; `None`: nothing is.
    pub fn note_untold<T: Serialize>(
        &self,
        name: &ForkName,
        untold: Option<&T>,
    ) -> Result<(), StoreError> {
        let path = self.places.untold(name);
        match untold {
            Some(untold) => files::write_json(&path, untold),
            None => files::remove_file(&path),
        }
    }
}
