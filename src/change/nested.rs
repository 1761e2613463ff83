//! Repositories within a fork, and their HEAD commits.
//!
//! Files of the fork are read through its workspace, whether it is mounted or not. git's files of a
//! submodule are read from the repository's own directory, or from the fork's. No other path is
//! followed, since a `.git` may name any place on the machine.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::ChangeError;
use tine_attr::FileKind;
use tine_git::{ObjectId, Repository};
use tine_path::{EntryName, RepoPath, normalized};
use tine_store::Fork;
use tine_sys::beneath::{self, Access};
use tine_workspace::FsError;

/// Number of symbolic refs in a row that git follows.
const MAX_SYMBOLIC_REFS: usize = 5;
/// Size in bytes of the largest file that is read as refs.
///
/// A million packed refs take less.
const MAX_TEXT_BYTES: u64 = 128 << 20;

/// Returns the HEAD commit of the repository with the checkout `dir`.
///
/// `None` if it has no commit, cannot be read, or is outside both fork and repository.
pub(super) fn head_of(
    repository: &Repository,
    fork: &Fork,
    dir: &RepoPath,
) -> Result<Option<ObjectId>, ChangeError> {
    let dot_git = dir.join(&EntryName::dot_git());
    let kind = match fork.workspace.resolve(&dot_git) {
        Ok(attr) => attr.kind,
        Err(FsError::NotFound | FsError::NotADirectory) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match kind {
        FileKind::Directory => Place::View(fork, &dot_git).head(repository),
        FileKind::Regular => {
            let Some(git_dir) = read_text(fork, &dot_git)?.and_then(|text| {
                let path = text
                    .strip_prefix("gitdir: ")?
                    .trim_end_matches(['\r', '\n']);
                Some(PathBuf::from(path))
            }) else {
                return Ok(None);
            };
            let checkout_dir = fork.worktree.checkout_dir()?;
            let git_dir = normalized(&checkout_dir.join(dir.as_path()).join(git_dir));
            // Never through the mount, which this process itself serves.
            if let Ok(within) = git_dir.strip_prefix(checkout_dir.join(".git"))
                && fork.worktree.is_own()
            {
                let top = beneath::open_top(fork.worktree.git_dir());
                return match top.and_then(|top| beneath::open(&top, within, Access::Attributes)) {
                    Ok(dir) => Place::GitDir(dir).head(repository),
                    Err(_) => Ok(None),
                };
            }
            if let Ok(within) = git_dir.strip_prefix(&checkout_dir) {
                return match RepoPath::parse(within.as_os_str().as_encoded_bytes()) {
                    Ok(git_dir) => Place::View(fork, &git_dir).head(repository),
                    Err(_) => Ok(None),
                };
            }
            if git_dir.starts_with(repository.common_dir()) {
                Ok(repository.head_of_submodule(&git_dir)?)
            } else {
                Ok(None)
            }
        }
        _ => Ok(None),
    }
}

/// Git directory of a repository within a fork.
enum Place<'a> {
    /// A directory of the fork's view.
    View(&'a Fork, &'a RepoPath),
    /// A directory in the fork's git directory, filled by any program.
    GitDir(File),
}

impl Place<'_> {
    /// Returns the commit of HEAD.
    fn head(&self, repository: &Repository) -> Result<Option<ObjectId>, ChangeError> {
        let mut name = "HEAD".to_owned();
        for _ in 0..=MAX_SYMBOLIC_REFS {
            let Some(text) = self.read_ref(&name)? else {
                return Ok(None);
            };
            match text.trim_end().strip_prefix("ref: ") {
                Some(next) if next.starts_with("refs/") => name = next.to_owned(),
                Some(_) => return Ok(None),
                None => {
                    let id = ObjectId::from_hex(text.trim_end().as_bytes()).ok();
                    return Ok(id.filter(|id| id.kind() == repository.hash_kind()));
                }
            }
        }
        Ok(None)
    }

    /// Returns the text of a loose or packed ref.
    fn read_ref(&self, name: &str) -> Result<Option<String>, ChangeError> {
        if let Some(text) = self.read(name)? {
            return Ok(Some(text));
        }
        Ok(self.read("packed-refs")?.and_then(|packed| {
            let mut refs = packed.lines().filter_map(|line| line.split_once(' '));
            let (id, _) = refs.find(|(_, packed_name)| *packed_name == name)?;
            Some(id.to_owned())
        }))
    }

    fn read(&self, name: &str) -> Result<Option<String>, ChangeError> {
        match self {
            Place::View(fork, git_dir) => {
                let path = [git_dir.as_bytes(), b"/", name.as_bytes()].concat();
                match RepoPath::parse(path) {
                    Ok(path) => read_text(fork, &path),
                    Err(_) => Ok(None),
                }
            }
            Place::GitDir(dir) => Ok(read_below(dir, name)),
        }
    }
}

/// Returns the text of a regular file below `dir`.
///
/// `None` if the file is missing, cannot be read, is not UTF-8 or is too large.
fn read_below(dir: &File, name: &str) -> Option<String> {
    let file = beneath::open(dir, Path::new(name), Access::Read).ok()?;
    let stat = beneath::stat(&file).ok()?;
    if stat.kind != FileKind::Regular || stat.size > MAX_TEXT_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_TEXT_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the text of a regular file.
///
/// `None` if the file is missing, not UTF-8 or too large.
fn read_text(fork: &Fork, path: &RepoPath) -> Result<Option<String>, ChangeError> {
    let read = fork.workspace.read_regular(path, MAX_TEXT_BYTES)?;
    Ok(read.and_then(|bytes| String::from_utf8(bytes).ok()))
}
