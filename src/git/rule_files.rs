//! Files of ignore rules and attributes outside a view.
//!
//! They are the user's and the repository's own.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::GitError;

/// Files without read permission that were reported.
///
/// Each is reported once per process.
static REPORTED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Reads a file of rules, if it exists.
///
/// As in git, a file without read permission has no rules. A warning reports it.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, GitError> {
    match tine_sys::file::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => Ok(None),
            ErrorKind::PermissionDenied => {
                if REPORTED.lock().insert(path.to_owned()) {
                    log::warn!("the rules in {} do not count: {error}", path.display());
                }
                Ok(None)
            }
            _ => Err(GitError::io("read", path)(error)),
        },
    }
}
