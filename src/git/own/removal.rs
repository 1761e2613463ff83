//! Removal of objects that were taken over.

use std::fs;
use std::path::Path;

use gix::bstr::ByteSlice;

use super::dir::OwnDir;
use super::quarantine::Taken;
use super::taking::RemoveObject;
use super::tips::loose_file;
use super::transfer::PACK_DIR;
use crate::{GitError, Repository};
use tine_sys::file;

/// Suffixes of a pack's files. Without its index, git does not look for the others.
const PACK_FILES: [&str; 4] = ["idx", "pack", "rev", "mtimes"];

/// Suffixes that bind other files to a pack, or forbid its removal.
const BINDING_FILES: [&str; 3] = ["keep", "bitmap", "promisor"];

/// Removes objects from the own git directory.
///
/// Refs of `main` keep them. `remove` removes a file while the directory is mounted.
///
/// Returns false without removing anything if `main` lacks one.
pub(super) fn remove_taken(
    main: &Repository,
    dir: &OwnDir,
    taken: &Taken,
    remove: Option<RemoveObject<'_>>,
) -> Result<bool, GitError> {
    let remove = |path: &Path| match remove {
        Some(remove) => remove(path),
        None => dir.remove(path),
    };
    if !main
        .missing_objects(taken.loose.iter().copied())?
        .is_empty()
    {
        return Ok(false);
    }
    for id in &taken.loose {
        let path = loose_file(id);
        remove(&path).map_err(GitError::io("remove", dir.path_of(&path)))?;
    }
    let pack_dir = Path::new(PACK_DIR);
    let has = |name: &str| dir.stat_file(&pack_dir.join(name)).is_some();
    if has("multi-pack-index") || !dir.list(&pack_dir.join("multi-pack-index.d")).is_empty() {
        return Ok(true);
    }
    for pack in &taken.packs {
        let Some(stem) = pack
            .strip_suffix(".pack")
            .filter(|stem| !stem.contains('/'))
        else {
            continue;
        };
        let is_bound = |suffix: &str| has(&format!("{stem}.{suffix}"));
        if BINDING_FILES.iter().any(|suffix| is_bound(suffix)) {
            continue;
        }
        for suffix in PACK_FILES {
            let path = pack_dir.join(format!("{stem}.{suffix}"));
            remove(&path).map_err(GitError::io("remove", dir.path_of(&path)))?;
        }
    }
    Ok(true)
}

/// Returns whether a `git gc` is running that removes new objects.
///
/// By default, it spares objects of the last two weeks.
pub(super) fn prunes_new_objects(main: &Repository) -> bool {
    if !main.is_being_collected() {
        return false;
    }
    let is_configured = main.with_local(|local| {
        let config = local.config_snapshot();
        config.string("gc.pruneExpire").is_some()
    });
    let running = file::read(&main.common_dir().join("gc.pid")).unwrap_or_default();
    let pid = running.split(|&byte| byte == b' ').next();
    let pid = pid.and_then(|pid| std::str::from_utf8(pid).ok());
    let line = fs::read(format!("/proc/{}/cmdline", pid.unwrap_or_default()));
    // A process that cannot be looked at may do so.
    is_configured || line.map_or(true, |line| line.contains_str("--prune"))
}
