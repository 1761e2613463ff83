//! Tables of modification times, in `<store>/times/`, named by their hash.
//!
//! A table lives as long as a record names it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Weak};

use super::open_fork::OpenForks;
use super::places::Places;
use super::{Store, files};
use crate::StoreError;
use crate::fork::ForkRecord;
use crate::snapshot::SnapshotList;
use tine_git::Base;
use tine_workspace::{BaseAttrs, BaseTimes, TimesId};

impl Store {
    /// Builds the table of base files that the main checkout has unchanged.
    ///
    /// `None` if there are none. The table is on the disk when this returns.
    ///
    /// The new fork does not see build outputs that the main checkout makes after the time in the
    /// base's attributes, which the caller has set before.
    pub(super) fn make_times(
        &self,
        base: &Base,
        checkout: &Path,
    ) -> Result<Option<Arc<BaseTimes>>, StoreError> {
        let times = self.repository.same_since(base, checkout)?;
        if times.is_empty() {
            return Ok(None);
        }
        let (table, bytes) = BaseTimes::build(times);
        let path = self.places.times(table.id());
        if !path.exists() {
            files::create_private_dir(&self.places.times_dir())?;
            files::write_atomically(&path, &bytes)?;
        }
        let table = Arc::new(table);
        self.open
            .lock()
            .times
            .insert(table.id(), Arc::downgrade(&table));
        Ok(Some(table))
    }

    /// Opens the table that a fork's attributes name.
    ///
    /// If it is lost or damaged, only build tools notice: they rebuild more.
    pub(super) fn times_of(
        &self,
        open: &mut OpenForks,
        attrs: &BaseAttrs,
    ) -> Option<Arc<BaseTimes>> {
        let id = attrs.times?;
        if let Some(table) = open.times.get(&id).and_then(Weak::upgrade) {
            return Some(table);
        }
        let path = self.places.times(id);
        let read = tine_sys::file::read(&path).map_err(StoreError::io("read", &path));
        let table = read.and_then(|bytes| {
            BaseTimes::parse(id, &bytes).ok_or_else(|| StoreError::Damaged {
                path: path.clone(),
                reason: "its bytes are not those that its name is the hash of".to_owned(),
            })
        });
        match table {
            Ok(table) => {
                let table = Arc::new(table);
                open.times.retain(|_, table| table.strong_count() > 0);
                open.times.insert(id, Arc::downgrade(&table));
                Some(table)
            }
            Err(error) => {
                log::warn!("base files are as old as their fork, builds do more: {error}");
                None
            }
        }
    }
}

/// Returns the tables that a fork and its snapshots name.
pub(super) fn named_times<'r>(
    record: &'r ForkRecord,
    snapshots: &'r SnapshotList,
) -> impl Iterator<Item = TimesId> + 'r {
    let attrs = snapshots
        .snapshots
        .iter()
        .map(|snapshot| snapshot.base_attrs);
    std::iter::once(record.base_attrs)
        .chain(attrs)
        .filter_map(|attrs| attrs.times)
}

/// Removes tables that no record names.
///
/// The caller knows that none is being made.
pub(super) fn clean_times(places: &Places, named: &HashSet<TimesId>) -> Result<(), StoreError> {
    let dir = places.times_dir();
    if !dir.exists() {
        return Ok(());
    }
    for path in files::list(&dir)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let id = name.and_then(|name| TimesId::try_from(name.to_owned()).ok());
        if id.is_none_or(|id| !named.contains(&id)) {
            files::remove_file(&path)?;
        }
    }
    Ok(())
}
