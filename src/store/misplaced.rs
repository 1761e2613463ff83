//! Files of the wrong kind in the store.
//!
//! A file, pipe or socket in the place of a directory, or a directory in the place of a file, is
//! not tine's and blocks the store.
//!
//! When the store is opened they are moved to `damaged/<n>/`, as a repair moves damaged files. Then
//! the store behaves as if they had never existed: it rebuilds what it can, and a check reports the
//! rest as missing. A symbolic link is left alone, because it may lead to another disk.

use std::fs;

use super::check::{move_to, next_aside};
use super::documents::RecordKind;
use super::files;
use super::places::Places;
use crate::StoreError;

/// Directories of the store.
const DIRECTORIES: [&str; 7] = [
    "forks", "layers", "bases", "spool", "scratch", "spares", "rounds",
];
/// Files of the store that can be rebuilt.
const FILES: [&str; 5] = [
    "layers/next",
    "format",
    "format.copy",
    "home",
    "recover.json",
];

/// Moves files of the wrong kind aside. The caller holds the store's lock.
///
/// # Errors
/// [`StoreError::Io`] if a file cannot be moved.
pub(super) fn set_aside(places: &Places) -> Result<(), StoreError> {
    let root = places.root();
    let damaged = root.join("damaged");
    if is(&damaged, is_not_dir) {
        let beside = files::temporary_beside(&damaged);
        fs::rename(&damaged, &beside).map_err(StoreError::io("move", &damaged))?;
        move_to(&beside, &next_aside(places)?.join("damaged"))?;
    }
    let kinds = RecordKind::ALL.into_iter().map(RecordKind::dir_name);
    let directories = DIRECTORIES.into_iter().chain(kinds);
    let wrong = directories
        .filter(|name| is(&root.join(name), is_not_dir))
        .chain(
            FILES
                .into_iter()
                .filter(|name| is(&root.join(name), fs::Metadata::is_dir)),
        );
    let wrong: Vec<&str> = wrong.collect();
    for name in wrong {
        let aside = next_aside(places)?;
        log::warn!(
            "{name} of the store is of the wrong kind, and moved to {}",
            aside.display()
        );
        move_to(&root.join(name), &aside.join(name))?;
    }
    Ok(())
}

fn is_not_dir(meta: &fs::Metadata) -> bool {
    !meta.is_dir() && !meta.is_symlink()
}

fn is(path: &std::path::Path, kind: impl FnOnce(&fs::Metadata) -> bool) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| kind(&meta))
}
