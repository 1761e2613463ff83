//! Blocks of lines in `info/exclude` that make git ignore names.
//!
//! They apply at the top of every worktree, because all worktrees of a repository share the file. A
//! block precedes the lines of other programs, so that those do not change, not even a last line
//! without an end. Each block contains what is needed to remove it again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::refs::{read_if_there, sync_if_there};
use super::{GitError, Repository};

/// End of a block's first line if tine created the file.
const MADE_FOR_IT: &str = " (and this file)";

impl Repository {
    /// Makes git ignore `name` at the top of every worktree.
    ///
    /// # Errors
    /// [`GitError::Io`] if the file cannot be read or written.
    pub fn exclude_at_top(&self, name: &str) -> Result<(), GitError> {
        let path = self.exclude_file();
        let found = read_if_there(&path)?;
        if found
            .as_ref()
            .is_some_and(|text| find(text, name).is_some())
        {
            return Ok(());
        }
        // A file that was created for another name is removed with the last block.
        let is_file_ours = found.as_ref().is_none_or(|text| {
            let end_of_line = format!("{MADE_FOR_IT}\n");
            text.windows(end_of_line.len())
                .any(|window| window == end_of_line.as_bytes())
        });
        let block = block(name, is_file_ours);
        replace(
            &path,
            &[block.as_bytes(), found.as_deref().unwrap_or_default()].concat(),
        )
    }

    /// Removes the block of [`Repository::exclude_at_top`].
    ///
    /// # Errors
    /// [`GitError::Io`] if the file cannot be read or written.
    pub fn include_at_top(&self, name: &str) -> Result<(), GitError> {
        let path = self.exclude_file();
        let Some(mut text) = read_if_there(&path)? else {
            return Ok(());
        };
        let Some((start, end, is_file_ours)) = find(&text, name) else {
            return Ok(());
        };
        text.drain(start..end);
        if is_file_ours && text.is_empty() {
            fs::remove_file(&path).map_err(GitError::io("remove", &path))?;
            return path.parent().map_or(Ok(()), sync_if_there);
        }
        replace(&path, &text)
    }

    /// Returns the file, with symlinks resolved so that a user's link stays.
    fn exclude_file(&self) -> PathBuf {
        let path = self.common_dir().join("info/exclude");
        path.canonicalize().unwrap_or(path)
    }
}

/// Returns the block for `name`.
fn block(name: &str, with_file: bool) -> String {
    let made = if with_file { MADE_FOR_IT } else { "" };
    format!(
        "# tine: /{name}/ of agents in rounds, until `tine round clean`{made}\n/{name}/\n# tine: end of /{name}/\n"
    )
}

/// Finds the block for `name`.
///
/// Returns its start and end, and whether tine created the file for it.
fn find(text: &[u8], name: &str) -> Option<(usize, usize, bool)> {
    [false, true].into_iter().find_map(|with_file| {
        let block = block(name, with_file);
        let start = text
            .windows(block.len())
            .position(|window| window == block.as_bytes())?;
        Some((start, start + block.len(), with_file))
    })
}

/// Replaces the file atomically, and keeps its mode.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(GitError::io("create", dir))?;
    }
    let mode = fs::metadata(path).map_or(0o644, |meta| meta.permissions().mode() & 0o777);
    let new = path.with_extension("tine");
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&new)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()
        });
    written.map_err(GitError::io("write", &new))?;
    fs::rename(&new, path).map_err(GitError::io("replace", path))?;
    path.parent().map_or(Ok(()), sync_if_there)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::TestRepository;

    #[test]
    fn what_others_wrote_stays_byte_for_byte() {
        let place = TestRepository::new();
        let repository = place.open();
        let path = repository.common_dir().join("info/exclude");
        for before in [
            None,
            Some(&b""[..]),
            Some(b"*.log"),
            Some(b"# caf\xe9\r\n/.scratch/\n"),
        ] {
            let _ = fs::remove_file(&path);
            if let Some(before) = before {
                fs::create_dir_all(repository.common_dir().join("info")).unwrap();
                fs::write(&path, before).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            repository.exclude_at_top(".scratch").unwrap();
            let once = fs::read(&path).unwrap();
            repository.exclude_at_top(".scratch").unwrap();
            assert_eq!(fs::read(&path).unwrap(), once, "once is enough");
            repository.exclude_at_top(".notes").unwrap();
            repository.include_at_top(".scratch").unwrap();
            repository.include_at_top(".notes").unwrap();
            repository.include_at_top(".notes").unwrap();
            assert_eq!(
                fs::read(&path).ok().as_deref(),
                before.filter(|_| path.exists())
            );
            assert_eq!(path.exists(), before.is_some());
            if before.is_some() {
                assert_eq!(
                    fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                    0o600
                );
            }
        }
    }

    #[test]
    fn lines_that_came_later_stay_and_a_symlink_is_followed() {
        let place = TestRepository::new();
        let repository = place.open();
        let path = repository.common_dir().join("info/exclude");
        let elsewhere = repository.common_dir().join("elsewhere");
        fs::create_dir_all(repository.common_dir().join("info")).unwrap();
        let _ = fs::remove_file(&path);
        fs::write(&elsewhere, "*.o\n").unwrap();
        symlink(&elsewhere, &path).unwrap();
        repository.exclude_at_top(".scratch").unwrap();
        let mut text = fs::read(&elsewhere).unwrap();
        text.extend_from_slice(b"*.tmp\n");
        fs::write(&elsewhere, text).unwrap();
        repository.include_at_top(".scratch").unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap(), b"*.o\n*.tmp\n");
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    }
}
