//! Files, pipes and sockets where the store has directories, and directories where it has files:
//! nothing of tine's, and in the way of all that is.
//!
//! They are moved to `damaged/<n>/` when the store is opened, as a repair moves what is damaged.
//! Then all is as if they had never been there: what can be made anew is, and a check tells what is
//! missing. A symbolic link is left alone, which may lead to another disk.

use std::fs;

use super::check::{move_to, next_aside};
use super::documents::RecordKind;
use super::{Places, files};
use crate::StoreError;

/// Directories of the store.
const DIRECTORIES: [&str; 7] = [
    "forks", "layers", "bases", "spool", "scratch", "spares", "rounds",
];
/// Files of the store that can be made anew.
const FILES: [&str; 5] = [
    "layers/next",
    "format",
    "format.copy",
    "home",
    "recover.json",
];

/// Moves aside what cannot be the store's. The caller has the store's lock.
///
/// # Errors
/// Where something cannot be moved.
pub(super) fn set_aside(places: &Places) -> Result<(), StoreError> {
    let root = places.root();
    let damaged = root.join("damaged");
    if is(&damaged, is_no_dir) {
        let beside = files::temporary_beside(&damaged);
        fs::rename(&damaged, &beside).map_err(StoreError::io("move", &damaged))?;
        move_to(&beside, &next_aside(places)?.join("damaged"))?;
    }
    let shelves = RecordKind::ALL.into_iter().map(RecordKind::dir_name);
    let directories = DIRECTORIES.into_iter().chain(shelves);
    let wrong = directories
        .filter(|name| is(&root.join(name), is_no_dir))
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

fn is_no_dir(meta: &fs::Metadata) -> bool {
    !meta.is_dir() && !meta.is_symlink()
}

fn is(path: &std::path::Path, kind: impl FnOnce(&fs::Metadata) -> bool) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| kind(&meta))
}
