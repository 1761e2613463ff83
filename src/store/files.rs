//! Small files of the store, each written completely or not at all.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::StoreError;
use tine_sys::file::{self, NotAFile};
use tine_sys::parallel::disk_work;
use tine_sys::process;

/// Suffix of files that are being written.
///
/// In a store that is not open such files are garbage.
pub(super) const TEMPORARY_SUFFIX: &str = ".tmp";

/// Makes `dir` durably, accessible only by its owner. It may exist.
pub(super) fn create_private_dir(dir: &Path) -> Result<(), StoreError> {
    if make_private_dir(dir)? {
        sync_parent(dir)
    } else {
        Ok(())
    }
}

/// Makes a private directory and its missing parents.
pub(super) fn create_private_dirs(dir: &Path) -> Result<(), StoreError> {
    if let Some(parent) = dir.parent().filter(|parent| !parent.is_dir()) {
        create_private_dirs(parent)?;
    }
    create_private_dir(dir)
}

/// Makes a private directory; returns whether it was missing.
fn make_private_dir(dir: &Path) -> Result<bool, StoreError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => Ok(false),
        Err(error) => Err(StoreError::io("create", dir)(error)),
    }
}

/// Returns whether a store's directory exists at `dir`.
///
/// Refused are directories that another user may have put there: a symbolic link, a directory of
/// another user, or one that others may write to. Root may use that of the repository's owner.
pub(super) fn is_private_dir(dir: &Path) -> Result<bool, StoreError> {
    let meta = match fs::symlink_metadata(dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(StoreError::io("look at", dir)(error)),
    };
    let foreign = |reason: String| StoreError::Foreign {
        path: dir.to_owned(),
        reason,
    };
    if !meta.is_dir() {
        return Err(foreign("it is not a directory".to_owned()));
    }
    let own_uid = process::effective_uid();
    let is_own = match own_uid {
        0 => meta.uid() == 0 || dir.parent().and_then(owner_of) == Some(meta.uid()),
        _ => meta.uid() == own_uid,
    };
    if !is_own {
        return Err(foreign(format!("it belongs to user {}", meta.uid())));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(foreign(format!(
            "others may write into it (mode {:o})",
            meta.mode() & 0o7777
        )));
    }
    Ok(true)
}

pub(super) fn owner_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|meta| meta.uid())
}

/// Returns a name beside `path` that this process uses only once.
pub(super) fn temporary_beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(
        ".{}-{number}{TEMPORARY_SUFFIX}",
        std::process::id()
    ));
    path.with_file_name(name)
}

/// Replaces the content of `path` by `bytes`.
///
/// After a crash or power loss it holds either the old bytes or the new ones.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    replace_atomically(path, |temporary| write_new(temporary, bytes))
}

/// Writes a file that must not exist.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(StoreError::io("create", path))?;
    file.write_all(bytes).map_err(StoreError::io("write", path))
}

/// Makes a private directory with one JSON file in it, durably.
///
/// An existing file of that name is replaced. The file is not written atomically: readers must
/// treat a partial file as missing.
pub(super) fn create_private_dir_with<T: Serialize>(
    dir: &Path,
    name: &str,
    value: &T,
) -> Result<(), StoreError> {
    make_private_dir(dir)?;
    let path = dir.join(name);
    remove_file(&path)?;
    write_new(&path, &json(&path, value)?)?;
    let parent = dir.parent().map(Path::to_owned);
    let paths: Vec<PathBuf> = [path, dir.to_owned()].into_iter().chain(parent).collect();
    disk_work(&paths, |path| sync(path))
}

/// File that is written and durable, but not yet in its place.
pub(super) struct Staged {
    temporary: PathBuf,
    path: PathBuf,
}

impl Staged {
    /// Writes `value` as JSON to a temporary file for `path`.
    pub(super) fn json<T: Serialize>(path: &Path, value: &T) -> Result<Staged, StoreError> {
        let staged = Staged {
            temporary: temporary_beside(path),
            path: path.to_owned(),
        };
        write_new(&staged.temporary, &json(path, value)?)?;
        sync(&staged.temporary)?;
        Ok(staged)
    }

    /// Moves the file into its place, durably.
    pub(super) fn publish(&self) -> Result<(), StoreError> {
        fs::rename(&self.temporary, &self.path).map_err(StoreError::io("replace", &self.path))?;
        sync_parent(&self.path)
    }
}

/// Replaces `path` by the file that `fill` writes at a temporary path.
pub(super) fn replace_atomically<E: From<StoreError>>(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let temporary = temporary_beside(path);
    let placed = fill(&temporary).and_then(|()| Ok(publish(&temporary, path)?));
    if placed.is_err() {
        // Best effort: the next opening of the store removes a leftover.
        let _ = fs::remove_file(&temporary);
    }
    placed
}

fn publish(temporary: &Path, path: &Path) -> Result<(), StoreError> {
    sync(temporary)?;
    fs::rename(temporary, path).map_err(StoreError::io("replace", path))?;
    sync_parent(path)
}

/// Makes the creation or removal of `path` durable.
pub(super) fn sync_parent(path: &Path) -> Result<(), StoreError> {
    path.parent().map_or(Ok(()), sync)
}

/// Syncs the files directly in `dir`, `dir` itself and its parent.
pub(super) fn sync_files_in(dir: &Path) -> Result<(), StoreError> {
    let mut paths = list(dir)?;
    paths.retain(|path| path.is_file());
    paths.push(dir.to_owned());
    paths.extend(dir.parent().map(Path::to_owned));
    disk_work(&paths, |path| sync(path))
}

/// Makes a file or a directory durable.
fn sync(path: &Path) -> Result<(), StoreError> {
    file::sync(path).map_err(StoreError::io("sync", path))
}

/// Directory that is removed with its content on drop.
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Makes a directory in `parent`, which is made if it is missing.
    pub(super) fn create(parent: &Path) -> Result<ScratchDir, StoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        make_private_dir(parent)?;
        let dir = parent.join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
        remove_dir(&dir)?;
        make_private_dir(&dir)?;
        Ok(ScratchDir(dir))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = remove_dir(&self.0) {
            log::warn!("{error}");
        }
    }
}

/// Writes `value` as JSON, atomically.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), StoreError> {
    write_atomically(path, &json(path, value)?)
}

/// Encodes `value` as the content of `path`.
fn json<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, StoreError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| StoreError::Io {
        action: "encode",
        path: path.to_owned(),
        source: error.into(),
    })?;
    text.push(b'\n');
    Ok(text)
}

/// Reads a JSON file; `None` if it is missing.
///
/// [`StoreError::Damaged`] if it cannot be parsed or is not a regular file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    let text = match file::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(match NotAFile::in_error(&error) {
                Some(found) => StoreError::Damaged {
                    path: path.to_owned(),
                    reason: found.to_string(),
                },
                None => StoreError::io("read", path)(error),
            });
        }
    };
    match serde_json::from_slice(&text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(StoreError::Damaged {
            path: path.to_owned(),
            reason: error.to_string(),
        }),
    }
}

/// Removes a file. It may be missing.
pub(super) fn remove_file(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(StoreError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Removes a directory and its content. It may be missing.
pub(super) fn remove_dir(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(StoreError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Lists the paths in `dir`, sorted; none if it is missing.
pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io("list", dir)(error)),
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(StoreError::io("list", dir))?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_store_that_somebody_else_may_have_planted_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let reason = |dir: &Path| match is_private_dir(dir) {
            Err(StoreError::Foreign { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        let own = place.path().join("own");
        assert!(!is_private_dir(&own).unwrap(), "there is none");
        create_private_dir(&own).unwrap();
        assert!(is_private_dir(&own).unwrap());

        let link = place.path().join("link");
        symlink(&own, &link).unwrap();
        assert!(reason(&link).contains("not a directory"));
        fs::set_permissions(&own, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(reason(&own).contains("others may write into it (mode 770)"));
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_private_dir(&own).unwrap(), "only looking is harmless");
        if process::effective_uid() == 0 {
            std::os::unix::fs::chown(&own, Some(4711), None).unwrap();
            assert!(reason(&own).contains("belongs to user 4711"));
            std::os::unix::fs::chown(place.path(), Some(4711), None).unwrap();
            assert!(
                is_private_dir(&own).unwrap(),
                "root serves the repository's owner"
            );
        }
    }
}
