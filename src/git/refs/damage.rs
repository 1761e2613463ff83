//! Detection and listing of damaged refs, without blocking on them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use gix::ObjectId;
use gix::bstr::{BStr, ByteSlice};

use super::{KEEPING, list_dir};
use crate::{GitError, Repository};
use tine_sys::file::{self, NotAFile};

/// A branch that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedBranch {
    /// Short name, without `refs/heads/`.
    pub name: String,
    /// Cause, as the end of a sentence.
    pub reason: String,
}

impl DamagedBranch {
    /// Returns the error that reading the branch gives.
    pub fn into_error(self) -> GitError {
        GitError::DamagedRef {
            name: format!("refs/heads/{}", self.name),
            reason: self.reason,
        }
    }
}

impl Repository {
    /// Refuses a named pipe in the place of a ref.
    ///
    /// The library would block on it forever.
    pub(crate) fn refuse_pipe_at(&self, full_name: &BStr) -> Result<(), GitError> {
        let path = self.common_dir().join(OsStr::from_bytes(full_name));
        match file::check_regular(&path) {
            Err(_) => damaged_ref(self.common_dir(), full_name).map_or(Ok(()), Err),
            Ok(()) => Ok(()),
        }
    }

    /// Reads a branch as [`Repository::branch`], with `None` for a damaged one.
    ///
    /// It is for callers that only display the branch. `tine check` reports the damage.
    ///
    /// # Errors
    /// Fails as [`Repository::branch`], except for [`GitError::DamagedRef`].
    pub fn readable_branch(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        match self.branch(name) {
            Err(GitError::DamagedRef { .. }) => Ok(None),
            found => found,
        }
    }

    /// Returns the error for a ref whose object is missing.
    ///
    /// `name` is the full name. The result is `None` if the object exists.
    pub(super) fn lost_by_ref(&self, name: &str) -> Option<GitError> {
        let id = self.target_of(name).ok()??;
        (!self.has_object(id)).then(|| GitError::DamagedRef {
            name: name.to_owned(),
            reason: format!("{id}, which it names, is not in the repository"),
        })
    }

    /// Lists the damaged branches, sorted by name.
    ///
    /// # Errors
    /// [`GitError::Io`] or [`GitError::Library`] if the branches cannot be listed.
    pub fn damaged_branches(&self) -> Result<Vec<DamagedBranch>, GitError> {
        let prefix = "refs/heads/";
        let mut names = self.broken_below(prefix)?;
        let (refs, _) = self.refs_below(prefix)?;
        let lost = refs
            .into_iter()
            .filter(|(_, id)| id.is_some_and(|id| !self.has_object(id)));
        names.extend(lost.map(|(name, _)| name));
        names.sort();
        names.dedup();
        let shorts = names.iter().filter_map(|name| name.strip_prefix(prefix));
        let damaged = shorts.filter_map(|short| match self.branch(short) {
            Err(GitError::DamagedRef { reason, .. }) => Some(DamagedBranch {
                name: short.to_owned(),
                reason,
            }),
            _ => None,
        });
        Ok(damaged.collect())
    }

    /// Lists the damaged refs under `refs/tine/` as group and label.
    ///
    /// Directories that cannot be read are left out.
    pub fn broken_kept(&self) -> Vec<(String, String)> {
        let groups = fs::read_dir(self.common_dir().join(KEEPING))
            .into_iter()
            .flatten();
        let names = groups.flatten().filter_map(|group| {
            let group = group.file_name().into_string().ok()?;
            self.broken_below(&format!("{KEEPING}{group}/")).ok()
        });
        let split = |name: String| {
            let (group, label) = name.strip_prefix(KEEPING)?.split_once('/')?;
            Some((group.to_owned(), label.to_owned()))
        };
        names.flatten().filter_map(split).collect()
    }

    /// Refuses named pipes in the place of refs or packed refs.
    ///
    /// git and the library would block on them forever.
    ///
    /// # Errors
    /// [`GitError::DamagedRef`].
    pub fn refuse_pipes(&self) -> Result<(), GitError> {
        self.refuse_pipes_below("refs")
    }

    pub(super) fn refuse_pipes_below(&self, prefix: &str) -> Result<(), GitError> {
        let mut dirs = vec![self.common_dir().join(prefix)];
        refuse_packed_pipe(self.common_dir())?;
        let mut found = None;
        while let (Some(dir), None) = (dirs.pop(), &found) {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                    Ok(kind) if kind.is_fifo() => found = Some(entry.path()),
                    _ => {}
                }
            }
        }
        match found {
            None => Ok(()),
            Some(path) => Err(pipe_error(self.common_dir(), &path)),
        }
    }

    /// Lists damaged loose refs below the directory `prefix` by full name.
    pub(super) fn broken_below(&self, prefix: &str) -> Result<Vec<String>, GitError> {
        let mut dirs = vec![self.common_dir().join(prefix)];
        let mut broken = Vec::new();
        while let Some(dir) = dirs.pop() {
            for path in list_dir(&dir)? {
                if path.is_dir() {
                    dirs.push(path);
                } else if path.extension().is_none_or(|extension| extension != "lock")
                    && let Ok(name) = path.strip_prefix(self.common_dir())
                    && damaged_ref(self.common_dir(), name.as_os_str().as_bytes().as_bstr())
                        .is_some()
                {
                    broken.push(name.to_string_lossy().into_owned());
                }
            }
        }
        Ok(broken)
    }
}

/// Returns the error for a ref file that contains no ref.
///
/// `name` is the full name. The result is `None` for other files.
pub(crate) fn damaged_ref(common_dir: &Path, name: &BStr) -> Option<GitError> {
    let path = common_dir.join(name.to_path().ok()?);
    let reason = match file::read(&path) {
        Ok(content) if holds_no_ref(&content) => "its file holds no ref".to_owned(),
        Err(error) if NotAFile::in_error(&error).is_some() && !path.is_dir() => error.to_string(),
        _ => return None,
    };
    Some(GitError::DamagedRef {
        name: name.to_string(),
        reason,
    })
}

/// Refuses a named pipe in the place of packed refs.
///
/// # Errors
/// [`GitError::DamagedRef`].
pub(crate) fn refuse_packed_pipe(git_dir: &Path) -> Result<(), GitError> {
    let packed = git_dir.join("packed-refs");
    match fs::symlink_metadata(&packed) {
        Ok(meta) if meta.file_type().is_fifo() => Err(pipe_error(git_dir, &packed)),
        _ => Ok(()),
    }
}

fn pipe_error(git_dir: &Path, path: &Path) -> GitError {
    let name = path.strip_prefix(git_dir).unwrap_or(path);
    GitError::DamagedRef {
        name: name.display().to_string(),
        reason: "a named pipe is in its place".to_owned(),
    }
}

/// Returns whether a loose ref's file is readable but contains no ref.
///
/// A power cut can leave such a file.
pub(super) fn is_broken(path: &Path) -> bool {
    file::read(path).is_ok_and(|content| holds_no_ref(&content))
}

fn holds_no_ref(content: &[u8]) -> bool {
    let content = content.trim_ascii();
    !content.starts_with(b"ref: ") && ObjectId::from_hex(content).is_err()
}
