//! Worktrees of forks, for git.
//!
//! A fork is a linked worktree of the main repository, or has a git directory of its own
//! ([`crate::own`]). Both have HEAD, index and logs in a directory of the host.
//!
//! For a linked worktree,
//! `worktrees/<id>/` in the common directory contains HEAD, index, logs, `gitdir` (the path of the
//! checkout's `.git` file) and `locked`, which blocks `git worktree prune` and `remove`. The
//! registration is written here file by file, in git's layout (`gitrepository-layout(5)`). The git
//! library's own function would write into the checkout, which is a mount that does not exist yet.

mod checkouts;
mod registration;

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub use self::checkouts::Checkout;
pub use self::registration::remove_unfinished;
pub(crate) use self::registration::{gitdir_content, head_content};
use super::refs::read_if_there;
use super::{GitError, ObjectId, Repository};
use tine_path::EntryName;
use tine_sys::file;

/// File of a fork's own git directory that names the checkout's `.git`.
pub(super) const OWN_GITDIR: &str = "tine/gitdir";

/// The worktree of a fork.
#[derive(Debug, Clone)]
pub struct Worktree {
    /// Name in `worktrees/`; `None` for a repository of its own.
    id: Option<String>,
    /// Absolute path of `<common-dir>/worktrees/<id>`, or of the fork's own git directory.
    git_dir: PathBuf,
}

/// Kind of an object that git keeps for one worktree alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnObject {
    /// Stash that git made for an operation, and applies at its end.
    Autostash,
    /// Target of a ref, or commit that is being merged.
    Ref,
}

impl Worktree {
    /// Opens the worktree registered as `id`.
    ///
    /// # Errors
    /// [`GitError::Io`] if it does not exist or is not complete.
    pub fn open(repository: &Repository, id: &str) -> Result<Worktree, GitError> {
        EntryName::new(id).map_err(GitError::library("open the worktree"))?;
        let git_dir = repository.common_dir().join("worktrees").join(id);
        for name in ["HEAD", "commondir", "gitdir"] {
            let path = git_dir.join(name);
            fs::symlink_metadata(&path)
                .and_then(|_| file::check_regular(&path))
                .map_err(GitError::io("open", &path))?;
        }
        Ok(Worktree {
            id: Some(id.to_owned()),
            git_dir,
        })
    }

    /// Opens the fork's own git directory `git_dir`.
    ///
    /// # Errors
    /// [`GitError::Io`] if it does not exist or is not complete.
    pub fn open_own(git_dir: PathBuf) -> Result<Worktree, GitError> {
        for name in ["HEAD", OWN_GITDIR] {
            let path = git_dir.join(name);
            fs::symlink_metadata(&path)
                .and_then(|_| file::check_regular(&path))
                .map_err(GitError::io("open", &path))?;
        }
        Ok(Worktree { id: None, git_dir })
    }

    /// Returns whether the fork has a git directory of its own.
    pub fn is_own(&self) -> bool {
        self.id.is_none()
    }

    /// Lists the `.git` files of all registered worktrees and their submodules.
    ///
    /// The files need not exist. Each comes with its git directory, relative to `common_dir`.
    ///
    /// # Errors
    /// [`GitError::Io`] if the worktrees cannot be listed.
    pub fn dot_gits(common_dir: &Path) -> Result<Vec<(PathBuf, PathBuf)>, GitError> {
        let mut dot_gits = Vec::new();
        for git_dir in registered_git_dirs(common_dir)? {
            // A half created or half removed worktree has no readable `gitdir`.
            if let Ok(checkout_dir) = registered_checkout_dir(&git_dir) {
                dot_gits.push((checkout_dir, git_dir.clone()));
                collect_submodules(&git_dir.join("modules"), &mut dot_gits);
            }
        }
        let leading = dot_gits.into_iter().filter_map(|(checkout_dir, git_dir)| {
            let git_dir = git_dir.strip_prefix(common_dir).ok()?.to_owned();
            Some((checkout_dir.join(".git"), git_dir))
        });
        Ok(leading.collect())
    }

    /// Returns whether a worktree registered for `name` could have this id.
    pub fn may_be_of(name: &str, id: &str) -> bool {
        id.starts_with(&id_stem(name))
    }

    /// Returns the id of a linked worktree: its directory's name in `worktrees/`.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the absolute private git directory.
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// Returns the path of the index file.
    pub fn index_path(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    /// Returns the directory of the checkout.
    ///
    /// # Errors
    /// [`GitError::Io`] if `gitdir` cannot be read.
    pub fn checkout_dir(&self) -> Result<PathBuf, GitError> {
        checkout_dir_in(&self.git_dir, &self.gitdir_path())
    }

    /// Returns the path of the file that names the checkout.
    fn gitdir_path(&self) -> PathBuf {
        match self.id {
            Some(_) => self.git_dir.join("gitdir"),
            None => self.git_dir.join(OWN_GITDIR),
        }
    }

    /// Returns the content of the `.git` file at the checkout's root.
    pub fn dot_git(&self) -> Vec<u8> {
        [b"gitdir: ", self.git_dir.as_os_str().as_bytes(), b"\n"].concat()
    }

    /// Returns whether submodules were cloned for the worktree.
    ///
    /// Their repositories are in the private directory, and are removed with it.
    pub fn has_submodules(&self) -> bool {
        fs::read_dir(self.git_dir.join("modules")).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Returns the git operation in progress, if any.
    ///
    /// It is `merge`, `rebase`, `cherry-pick`, `revert`, `bisect` or `am`.
    pub fn operation_in_progress(&self) -> Option<&'static str> {
        let has = |name: &str| self.git_dir.join(name).exists();
        // This is git's order of precedence (`wt_status_get_state`): a rebase picks, and may merge.
        if has("rebase-apply/applying") {
            Some("am")
        } else if has("rebase-apply") || has("rebase-merge") {
            Some("rebase")
        } else if has("MERGE_HEAD") {
            Some("merge")
        } else if has("CHERRY_PICK_HEAD") {
            Some("cherry-pick")
        } else if has("REVERT_HEAD") {
            Some("revert")
        } else {
            self.sequencer_operation()
                .or(has("BISECT_LOG").then_some("bisect"))
        }
    }

    /// Lists the objects that git keeps for this worktree alone.
    ///
    /// They are its own refs (`refs/worktree/*`), stashes of an operation in progress, and the
    /// commits being merged. Files that cannot be read are left out.
    pub fn own_objects(&self) -> Vec<(OwnObject, ObjectId)> {
        let mut found = Vec::new();
        for (name, kind) in [
            ("rebase-merge/autostash", OwnObject::Autostash),
            ("rebase-apply/autostash", OwnObject::Autostash),
            ("MERGE_AUTOSTASH", OwnObject::Autostash),
            ("MERGE_HEAD", OwnObject::Ref),
        ] {
            let content = file::read(&self.git_dir.join(name)).unwrap_or_default();
            let lines = content.split(|&byte| byte == b'\n');
            let ids = lines.filter_map(|line| ObjectId::from_hex(line.trim_ascii()).ok());
            found.extend(ids.map(|id| (kind, id)));
        }
        let mut open = vec![self.git_dir.join("refs")];
        while let Some(dir) = open.pop() {
            let Ok(entries) = fs::read_dir(&dir) else {
                continue;
            };
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    open.push(path);
                } else if let Ok(content) = file::read(&path)
                    && let Ok(id) = ObjectId::from_hex(content.trim_ascii())
                {
                    found.push((OwnObject::Ref, id));
                }
            }
        }
        found
    }

    /// Returns whether this is a sparse checkout (`git sparse-checkout set`).
    ///
    /// # Errors
    /// [`GitError::Io`] or [`GitError::Library`] if its configuration cannot be read.
    pub fn is_sparse(&self) -> Result<bool, GitError> {
        let Some(content) = read_if_there(&self.git_dir.join("config.worktree"))? else {
            return Ok(false);
        };
        let metadata = gix::config::file::Metadata::from(gix::config::Source::Worktree);
        let config =
            gix::config::File::from_bytes_no_includes(&content, metadata, Default::default())
                .map_err(GitError::library("read the worktree configuration"))?;
        Ok(matches!(
            config.boolean("core.sparseCheckout"),
            Ok(Some(true))
        ))
    }

    /// Returns the sequencer's operation, which has no `*_HEAD` file between two picks.
    fn sequencer_operation(&self) -> Option<&'static str> {
        let todo = file::read(&self.git_dir.join("sequencer/todo")).ok()?;
        let command = todo.split(|byte| byte.is_ascii_whitespace()).next()?;
        match command {
            b"pick" | b"p" => Some("cherry-pick"),
            b"revert" => Some("revert"),
            _ => None,
        }
    }
}

/// Converts `name` to a ref component and file name.
///
/// git names the refs of a worktree `worktrees/<id>/…`.
fn id_stem(name: &str) -> String {
    let mut stem: String = name
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => c,
            _ => '-',
        })
        .take(200)
        .collect();
    if stem.is_empty() {
        stem.push_str("worktree");
    }
    stem
}

/// Collects the submodule checkouts whose repositories are under `modules_dir`.
///
/// Each comes with its git directory. Directories that cannot be read are left out.
fn collect_submodules(modules_dir: &Path, found: &mut Vec<(PathBuf, PathBuf)>) {
    let entries = fs::read_dir(modules_dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let dir = entry.path();
        if !dir.join("HEAD").exists() {
            // A submodule's name may have slashes.
            collect_submodules(&dir, found);
            continue;
        }
        let config = gix::config::File::from_path_no_includes(
            dir.join("config"),
            gix::config::Source::Local,
        );
        let checkout_dir = config.ok().and_then(|config| {
            let path = gix::path::from_bstring(config.string("core.worktree")?).ok()?;
            dir.join(path).canonicalize().ok()
        });
        found.extend(checkout_dir.map(|checkout_dir| (checkout_dir, dir.clone())));
        collect_submodules(&dir.join("modules"), found);
    }
}

/// Lists the private git directories of all registered linked worktrees.
pub(super) fn registered_git_dirs(common_dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let worktrees_dir = common_dir.join("worktrees");
    let entries = match fs::read_dir(&worktrees_dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(GitError::io("read", worktrees_dir)(error)),
    };
    let mut git_dirs = Vec::new();
    for entry in entries {
        git_dirs.push(entry.map_err(GitError::io("read", &worktrees_dir))?.path());
    }
    git_dirs.sort();
    Ok(git_dirs)
}

/// Returns the checkout directory of the worktree with `git_dir`.
pub(super) fn registered_checkout_dir(git_dir: &Path) -> Result<PathBuf, GitError> {
    checkout_dir_in(git_dir, &git_dir.join("gitdir"))
}

/// Returns the checkout directory that the file `path` of `git_dir` names.
fn checkout_dir_in(git_dir: &Path, path: &Path) -> Result<PathBuf, GitError> {
    let content = file::read(path).map_err(GitError::io("read", path))?;
    // With `worktree.useRelativePaths` it is relative to the private directory.
    let dot_git = git_dir.join(OsStr::from_bytes(content.trim_ascii_end()));
    let checkout_dir = match dot_git.file_name() {
        Some(name) if name == ".git" => dot_git.parent().unwrap_or(&dot_git).to_owned(),
        _ => dot_git,
    };
    // Resolve `..` if the directory exists. A missing mount is returned as registered.
    Ok(
        if checkout_dir.components().any(|c| c.as_os_str() == "..") {
            checkout_dir.canonicalize().unwrap_or(checkout_dir)
        } else {
            checkout_dir
        },
    )
}

#[cfg(test)]
mod tests;
