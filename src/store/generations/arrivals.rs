//! Arrivals: times from which a fork shows the files of a tree.

use std::fs;
use std::io::Write;

use super::create;
use crate::{Store, StoreError, files};
use tine_attr::Timestamp;
use tine_workspace::carry::arrivals::{ARRIVALS, Arrivals, ArrivalsRef};
use tine_workspace::carry::difference::TreeDifference;
use tine_workspace::carry::generation::Generation;
use tine_workspace::carry::{CarryRecord, DependencyTree};

impl Store {
    /// Returns the fork's arrivals if it shows `now` from this moment.
    pub(super) fn arrivals_after(
        &self,
        carry: &CarryRecord,
        tree: &DependencyTree,
        now: &Generation,
    ) -> Result<Arrivals, StoreError> {
        let before = self.arrivals(tree);
        let difference = match &tree.generation {
            Some(id) if *id == now.id => return Ok(before),
            Some(id) => match self.open_generation(id) {
                Ok(shown) => TreeDifference::between(&shown, now),
                Err(StoreError::Damaged { .. }) => return Ok(Arrivals::all_at(Timestamp::now())),
                Err(error) => return Err(error),
            },
            // Changes later than the fork were not shown.
            None => TreeDifference {
                arrived: carry
                    .since
                    .map_or_else(Vec::new, |since| now.changed_since(since).collect()),
                ..TreeDifference::default()
            },
        };
        Ok(before.after(&difference, now, Timestamp::now()))
    }

    /// Returns the arrivals of files in a fork's tree.
    ///
    /// If they are lost, every file counts as new as the newest.
    pub(super) fn arrivals(&self, tree: &DependencyTree) -> Arrivals {
        let Some(known) = &tree.arrivals else {
            return Arrivals::default();
        };
        let dir = self.places.generation(&known.id);
        Arrivals::open(&dir).unwrap_or_else(|error| {
            log::warn!("{}: {error}", dir.display());
            Arrivals::all_at(known.latest)
        })
    }

    /// Stores arrivals not stored yet; `None` if there are none.
    pub(super) fn store_arrivals(
        &self,
        arrivals: &Arrivals,
    ) -> Result<Option<ArrivalsRef>, StoreError> {
        let place = self.places.generations();
        let Some((stored, bytes)) = arrivals
            .encode()
            .map_err(StoreError::io("encode", &place))?
        else {
            return Ok(None);
        };
        let place = self.places.generation(&stored.id);
        if Arrivals::open(&place).is_ok() {
            return Ok(Some(stored));
        }
        let dir = files::temporary_beside(&place);
        files::create_private_dir(&dir)?;
        let path = dir.join(ARRIVALS);
        create(&path)?
            .write_all(&bytes)
            .map_err(StoreError::io("write", &path))?;
        files::sync_files_in(&dir)?;
        files::remove_dir(&place)?;
        fs::rename(&dir, &place).map_err(StoreError::io("replace", &place))?;
        files::sync_parent(&place)?;
        Ok(Some(stored))
    }
}
