//! Files of a registration: written, repaired and removed.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{Worktree, id_stem, registered_git_dirs};
use crate::refs::{read_if_there, sync_if_there};
use crate::{GitError, Head, ObjectId, Repository};
use tine_sys::file;

/// Content of a worktree's `commondir`.
const COMMON_DIR: &[u8] = b"../..\n";

/// Maximum wait for git commands that still write in a removed worktree.
const REMOVAL_TIMEOUT: Duration = Duration::from_millis(500);

const REMOVAL_INTERVAL: Duration = Duration::from_millis(10);

impl Worktree {
    /// Registers a worktree with its checkout at `checkout_dir`.
    ///
    /// HEAD is on `head`, and the worktree is locked with `lock_reason`. Nothing is written at
    /// `checkout_dir`, and the caller writes the index. The id is derived from `name`, with a
    /// number if that is taken.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file of the registration cannot be written.
    pub fn register(
        repository: &Repository,
        name: &str,
        checkout_dir: &Path,
        head: &Head,
        lock_reason: &str,
    ) -> Result<Worktree, GitError> {
        let left_at = head.commit_id();
        Worktree::register_again(repository, name, checkout_dir, head, left_at, lock_reason)
    }

    /// Registers a worktree again that was lost.
    ///
    /// The reflog of HEAD begins at `left_at`, where the worktree left its branch, which may have
    /// moved since. Otherwise it acts as [`Worktree::register`].
    ///
    /// # Errors
    /// Fails as [`Worktree::register`].
    pub fn register_again(
        repository: &Repository,
        name: &str,
        checkout_dir: &Path,
        head: &Head,
        left_at: Option<ObjectId>,
        lock_reason: &str,
    ) -> Result<Worktree, GitError> {
        let worktrees_dir = repository.common_dir().join("worktrees");
        fs::create_dir_all(&worktrees_dir).map_err(GitError::io("create", &worktrees_dir))?;
        let worktree = claim_id(&worktrees_dir, name)?;
        match worktree.write_registration(repository, checkout_dir, head, left_at, lock_reason) {
            Ok(()) => Ok(worktree),
            Err(error) => {
                // Report the first error. A leftover that cannot be removed is locked and never
                // listed.
                let _ = worktree.remove();
                Err(error)
            }
        }
    }

    /// Rewrites a missing or empty `commondir` and `gitdir` in `git_dir`.
    ///
    /// Their contents are known, unlike those of HEAD and index.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be read or written.
    pub fn repair(git_dir: &Path, checkout_dir: &Path) -> Result<(), GitError> {
        for (name, content) in [
            ("commondir", COMMON_DIR.to_vec()),
            ("gitdir", gitdir_content(checkout_dir)),
        ] {
            let path = git_dir.join(name);
            let is_lost = match file::read(&path) {
                Ok(found) => found.trim_ascii().is_empty(),
                // A pipe, a socket or a device has no content to lose.
                Err(error) if error.kind() == ErrorKind::IsADirectory => {
                    return Err(GitError::io("read", path)(error));
                }
                Err(error) if file::NotAFile::in_error(&error).is_some() => true,
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
                {
                    true
                }
                Err(error) => return Err(GitError::io("read", path)(error)),
            };
            if is_lost {
                log::warn!(
                    "writing {} anew, which was missing, empty or no file",
                    path.display()
                );
                replace_file(&path, &content)?;
            }
        }
        Ok(())
    }

    /// Replaces HEAD of the worktree in `git_dir`.
    ///
    /// # Errors
    /// [`GitError::Io`] if the file cannot be written.
    pub fn replace_head(git_dir: &Path, head: &Head) -> Result<(), GitError> {
        replace_file(&git_dir.join("HEAD"), head_content(head).as_bytes())
    }

    /// Registers `checkout_dir` as the checkout's new place.
    ///
    /// # Errors
    /// [`GitError::Io`] if `gitdir` cannot be written.
    pub fn relocate(&self, checkout_dir: &Path) -> Result<(), GitError> {
        replace_file(&self.gitdir_path(), &gitdir_content(checkout_dir))
    }

    /// Removes the registration with its HEAD, index and logs, and syncs that.
    ///
    /// `gitdir` goes first: after an interruption, the worktree is not listed, and
    /// [`remove_unfinished`] finds it. Blocks for up to half a second while git commands still
    /// write there.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be removed.
    pub fn remove(self) -> Result<(), GitError> {
        let gitdir = self.gitdir_path();
        match fs::remove_file(&gitdir) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(GitError::io("remove", &gitdir)(error));
            }
            _ => {}
        }
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        loop {
            match fs::remove_dir_all(&self.git_dir) {
                // A git command that began earlier still writes there.
                Err(error)
                    if error.kind() == ErrorKind::DirectoryNotEmpty
                        && Instant::now() < deadline =>
                {
                    thread::sleep(REMOVAL_INTERVAL);
                }
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(GitError::io("remove", &self.git_dir)(error));
                }
                _ => break,
            }
        }
        if self.is_own() {
            return self.git_dir.parent().map_or(Ok(()), sync_if_there);
        }
        // Like git, remove the directory after the last worktree. With others it is not empty.
        let Some(worktrees_dir) = self.git_dir.parent() else {
            return Ok(());
        };
        match (fs::remove_dir(worktrees_dir), worktrees_dir.parent()) {
            (Ok(()), Some(common_dir)) => sync_if_there(common_dir),
            _ => sync_if_there(worktrees_dir),
        }
    }

    /// Writes everything but the index.
    ///
    /// `locked` comes first, so that no prune removes the directory. `gitdir` comes last, because
    /// without it the worktree is not listed.
    fn write_registration(
        &self,
        repository: &Repository,
        checkout_dir: &Path,
        head: &Head,
        left_at: Option<ObjectId>,
        lock_reason: &str,
    ) -> Result<(), GitError> {
        self.write_file("locked", format!("{lock_reason}\n").as_bytes())?;
        self.write_file("commondir", COMMON_DIR)?;
        self.write_file("HEAD", head_content(head).as_bytes())?;
        let refs_dir = self.git_dir.join("refs");
        fs::create_dir(&refs_dir).map_err(GitError::io("create", &refs_dir))?;
        if let Some(commit_id) = left_at {
            repository.log_first_head(&self.git_dir, commit_id)?;
        }
        self.copy_worktree_config(repository)?;
        self.write_file("gitdir", &gitdir_content(checkout_dir))
    }

    /// Writes a new file of the registration.
    fn write_file(&self, name: &str, content: &[u8]) -> Result<(), GitError> {
        let path = self.git_dir.join(name);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|mut file| file.write_all(content))
            .map_err(GitError::io("write", &path))
    }

    /// Copies the main checkout's `config.worktree`, as `git worktree add` does.
    ///
    /// It does so only with `extensions.worktreeConfig`. Settings of the checkout's place and of
    /// sparse checkouts are left out, because a fork shows every path.
    fn copy_worktree_config(&self, repository: &Repository) -> Result<(), GitError> {
        if repository.config_bool("extensions.worktreeConfig") != Some(true) {
            return Ok(());
        }
        let from = repository.common_dir().join("config.worktree");
        let Some(content) = read_if_there(&from)? else {
            return Ok(());
        };
        let metadata = gix::config::file::Metadata::from(gix::config::Source::Worktree);
        let mut config =
            gix::config::File::from_bytes_no_includes(&content, metadata, Default::default())
                .map_err(GitError::library("read the worktree configuration"))?;
        for key in ["bare", "worktree", "sparseCheckout", "sparseCheckoutCone"] {
            while let Ok(mut value) = config.raw_value_mut(&format!("core.{key}")) {
                value.delete();
            }
        }
        while let Ok(mut value) = config.raw_value_mut("index.sparse") {
            value.delete();
        }
        self.write_file("config.worktree", &config.to_bstring())
    }
}

/// Returns the content of `HEAD`.
pub(crate) fn head_content(head: &Head) -> String {
    match head {
        Head::Branch { name, .. } | Head::Unborn { name } => format!("ref: {name}\n"),
        Head::Detached { commit_id } => format!("{commit_id}\n"),
    }
}

/// Replaces a small file durably.
fn replace_file(path: &Path, content: &[u8]) -> Result<(), GitError> {
    let new_path = path.with_extension("new");
    fs::File::create(&new_path)
        .and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        })
        .map_err(GitError::io("write", &new_path))?;
    fs::rename(&new_path, path).map_err(GitError::io("replace", path))
}

/// Creates the directory of a worktree called `name`, which claims the id.
fn claim_id(worktrees_dir: &Path, name: &str) -> Result<Worktree, GitError> {
    let stem = id_stem(name);
    for counter in 0u32.. {
        // Numbered as git does: `demo`, `demo1`, `demo2`.
        let id = match counter {
            0 => stem.clone(),
            _ => format!("{stem}{counter}"),
        };
        let git_dir = worktrees_dir.join(&id);
        match fs::create_dir(&git_dir) {
            Ok(()) => {
                return Ok(Worktree {
                    id: Some(id),
                    git_dir,
                });
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            // A concurrent `git worktree prune` removes the directory while it is empty.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(worktrees_dir).map_err(GitError::io("create", worktrees_dir))?;
            }
            Err(error) => return Err(GitError::io("create", git_dir)(error)),
        }
    }
    unreachable!("a directory holds fewer than 2³² entries")
}

/// Removes incomplete registrations for `name` that a dead process left.
///
/// They have no `gitdir`. Those whose ids are in `taken` stay.
///
/// # Errors
/// [`GitError::Io`] if the worktrees cannot be listed, or one cannot be removed.
pub fn remove_unfinished(
    repository: &Repository,
    name: &str,
    taken: &[&str],
) -> Result<(), GitError> {
    let stem = id_stem(name);
    for git_dir in registered_git_dirs(repository.common_dir())? {
        let Some(id) = git_dir.file_name().and_then(OsStr::to_str) else {
            continue;
        };
        let is_ours = id
            .strip_prefix(&stem)
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        if is_ours && !taken.contains(&id) && fs::symlink_metadata(git_dir.join("gitdir")).is_err()
        {
            log::info!("removing the worktree {id}, which was never finished or half removed");
            let id = id.to_owned();
            Worktree {
                id: Some(id),
                git_dir,
            }
            .remove()?;
        }
    }
    Ok(())
}

/// Returns the content of `gitdir` for a checkout at `checkout_dir`.
pub(crate) fn gitdir_content(checkout_dir: &Path) -> Vec<u8> {
    let mut content = checkout_dir.join(".git").into_os_string().into_vec();
    content.push(b'\n');
    content
}
