//! Taking over of Git LFS objects: large files that commits name by their SHA-256.
//!
//! They are in `lfs/objects/<2 digits>/<2 digits>/<hash>` of both git directories. git-lfs writes
//! one when the file is added, so they come before the commit that names them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gix::hash::Kind as HashKind;

use super::dir::{Found, OwnDir};
use super::taking::RemoveObject;
use super::tips::LogStamp;
use crate::checksum::Checksum;
use crate::refs::sync_if_there;
use crate::{GitError, Repository};
use tine_attr::FileKind;

/// Directory of the objects, in a git directory.
const OBJECTS: &str = "lfs/objects";

/// Directory of unfinished ones, which git-lfs cleans up.
const UNFINISHED: &str = "lfs/tmp";

/// Bytes that are copied at once.
const BLOCK: usize = 1 << 20;

/// Versions of files that are not what their names say.
pub(super) type StrangeFiles = BTreeMap<PathBuf, LogStamp>;

/// Moves the objects in `dir` to `main`, and checks them.
///
/// A file with another content than its name says stays where it is, and is returned. `known` are
/// those of the last call, which need no check. `remove` removes a file while the directory is
/// mounted.
pub(super) fn take_large_files(
    main: &Repository,
    dir: &OwnDir,
    remove: Option<RemoveObject<'_>>,
    known: &StrangeFiles,
) -> Result<StrangeFiles, GitError> {
    let mut strange = StrangeFiles::new();
    for path in objects_in(dir) {
        let stamp = dir.stat_file(&path).map(|stat| LogStamp::of(&stat));
        let is_known = stamp.is_some() && known.get(&path) == stamp.as_ref();
        let place = main.common_dir().join(&path);
        let is_there = fs::symlink_metadata(&place).is_ok_and(|there| there.is_file());
        if !is_there && (is_known || !copy_checked(main, dir, &path, &place)?) {
            strange.extend(stamp.map(|stamp| (path, stamp)));
            continue;
        }
        match remove {
            Some(remove) => remove(&path),
            None => dir.remove(&path),
        }
        .map_err(GitError::io("remove", dir.path_of(&path)))?;
    }
    Ok(strange)
}

/// Lists the objects, relative to the git directory.
fn objects_in(dir: &OwnDir) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let directories = |at: &Path| -> Vec<PathBuf> {
        let names = dir.list(at).into_iter();
        let below = names.filter(|(name, kind)| *kind == FileKind::Directory && is_hex(name, 2));
        below
            .map(|(name, _)| at.join(OsStr::from_bytes(&name)))
            .collect()
    };
    for first in directories(Path::new(OBJECTS)) {
        for second in directories(&first) {
            let names = dir.list(&second).into_iter();
            let objects =
                names.filter(|(name, kind)| *kind == FileKind::Regular && is_hex(name, 64));
            found.extend(objects.map(|(name, _)| second.join(OsStr::from_bytes(&name))));
        }
    }
    found
}

fn is_hex(name: &[u8], len: usize) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.len() == len && name.iter().all(is_digit)
}

/// Copies an object if it is what its name says.
fn copy_checked(
    main: &Repository,
    dir: &OwnDir,
    path: &Path,
    place: &Path,
) -> Result<bool, GitError> {
    let Found::Good((mut from, _)) = dir.open_file(path, u64::MAX) else {
        return Ok(false);
    };
    let name = path.file_name().unwrap_or_default();
    let unfinished = main.common_dir().join(UNFINISHED);
    fs::create_dir_all(&unfinished).map_err(GitError::io("create", &unfinished))?;
    let mut copy = unfinished.join(name);
    copy.as_mut_os_string()
        .push(format!("-{}", std::process::id()));
    let copied = File::create(&copy).and_then(|to| copy_and_hash(&mut from, &to));
    let hash = copied.inspect_err(|_| drop(fs::remove_file(&copy)));
    let hash = hash.map_err(GitError::io("write", &copy))?;
    if hash.as_bytes() != name.as_bytes() {
        log::debug!(
            "{}: its content hashes to {hash}",
            dir.path_of(path).display()
        );
        fs::remove_file(&copy).map_err(GitError::io("remove", &copy))?;
        return Ok(false);
    }
    let parent = place.parent().unwrap_or(place);
    fs::create_dir_all(parent)
        .and_then(|()| fs::rename(&copy, place))
        .map_err(GitError::io("write", place))?;
    sync_if_there(parent)?;
    Ok(true)
}

/// Copies and syncs a file, and returns its SHA-256 in hex.
fn copy_and_hash(from: &mut File, mut to: &File) -> io::Result<String> {
    let mut checksum = Checksum::new(HashKind::Sha256);
    let mut block = vec![0; BLOCK];
    loop {
        let count = match from.read(&mut block) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = block.get(..count).unwrap_or_default();
        checksum.update(bytes);
        to.write_all(bytes)?;
    }
    to.sync_all()?;
    let hash = checksum.finish().map_err(io::Error::other)?;
    Ok(hash.to_string())
}
