//! Files of rules that stand outside a view: of ignore rules and of attributes, the user's own and
//! the repository's.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::GitError;

/// The files that could not be read for want of permission: each is told once in the life of the
/// process.
static TOLD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Reads a file of rules; `None` where there is none. As with git, one that this user may not read
/// has no rules, and a warning says so.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, GitError> {
    match tine_sys::file::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => Ok(None),
            ErrorKind::PermissionDenied => {
                if TOLD.lock().insert(path.to_owned()) {
                    log::warn!("the rules in {} do not count: {error}", path.display());
                }
                Ok(None)
            }
            _ => Err(GitError::io("read", path)(error)),
        },
    }
}
