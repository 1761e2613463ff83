//! Removal of generations that no fork needs.

use std::collections::BTreeSet;

use crate::files::TEMPORARY_SUFFIX;
use crate::fork::ForkRecord;
use crate::places::Places;
use crate::usage::sole_usage;
use crate::{StoreError, files};
use tine_workspace::carry::CarryRecord;

/// Removes unnamed and unfinished generations; returns the bytes freed.
///
/// The caller knows that none is being made. If a record cannot be read, only unfinished ones are
/// removed.
pub(crate) fn clean_generations(places: &Places) -> Result<u64, StoreError> {
    let dirs = files::list(&places.generations())?;
    if dirs.is_empty() {
        return Ok(0);
    }
    let mut named = BTreeSet::new();
    let mut is_all = true;
    let mut aside = Vec::new();
    for aside_dir in files::list(&places.root().join("damaged"))? {
        let forks = aside_dir.join("forks");
        if forks.is_dir() {
            aside.extend(files::list(&forks)?);
        }
    }
    let aside = aside.iter().filter_map(|dir| {
        files::read_json::<ForkRecord>(&dir.join("fork.json"))
            .ok()
            .flatten()
    });
    let mut note = |record: &ForkRecord| {
        let carried = record.carry.iter().flat_map(CarryRecord::generations);
        let arrivals = record.carry.iter().flat_map(CarryRecord::arrivals);
        let ids = carried.chain(arrivals.map(|arrivals| &arrivals.id));
        named.extend(ids.map(|id| id.as_str().to_owned()));
    };
    aside.for_each(|record| note(&record));
    for (_, read) in places.read_records()? {
        match read {
            Some(Ok(record)) => note(&record),
            Some(Err(StoreError::NoSuchFork(_))) | None => {}
            Some(Err(_)) => is_all = false,
        }
    }
    let mut freed = 0_u64;
    for dir in dirs {
        let name = dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.ends_with(TEMPORARY_SUFFIX) || is_all && !named.contains(&name) {
            freed = freed.saturating_add(sole_usage(&dir));
            files::remove_dir(&dir)?;
        }
    }
    Ok(freed)
}
