//! Linked worktrees: each fork is one for git.
//!
//! `worktrees/<id>/` in the common directory contains HEAD, index, logs, `gitdir` (the path of the
//! checkout's `.git` file) and `locked`, which blocks `git worktree prune` and `remove`. The
//! registration is written here file by file, in git's layout (`gitrepository-layout(5)`). The git
//! library's own function would write into the checkout, which is a mount that does not exist yet.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::index::locked_by_git;
use super::refs::{read_if_there, sync_if_there};
use super::{GitError, Head, ObjectId, Repository};
use tine_path::EntryName;
use tine_sys::file;

/// Content of a worktree's `commondir`.
const COMMON_DIR: &[u8] = b"../..\n";

/// Maximum wait for git commands that still write in a removed worktree.
const REMOVAL_TIMEOUT: Duration = Duration::from_millis(500);
const REMOVAL_INTERVAL: Duration = Duration::from_millis(10);

/// A registered linked worktree.
#[derive(Debug, Clone)]
pub struct LinkedWorktree {
    id: String,
    /// Absolute path of `<common-dir>/worktrees/<id>`.
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

impl LinkedWorktree {
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
    ) -> Result<LinkedWorktree, GitError> {
        let left_at = head.commit_id();
        LinkedWorktree::register_again(repository, name, checkout_dir, head, left_at, lock_reason)
    }

    /// Registers a worktree again that was lost.
    ///
    /// The reflog of HEAD begins at `left_at`, where the worktree left its branch, which may have
    /// moved since. Otherwise it acts as [`LinkedWorktree::register`].
    ///
    /// # Errors
    /// Fails as [`LinkedWorktree::register`].
    pub fn register_again(
        repository: &Repository,
        name: &str,
        checkout_dir: &Path,
        head: &Head,
        left_at: Option<ObjectId>,
        lock_reason: &str,
    ) -> Result<LinkedWorktree, GitError> {
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

    /// Opens the worktree registered as `id`.
    ///
    /// # Errors
    /// [`GitError::Io`] if it does not exist or is not complete.
    pub fn open(repository: &Repository, id: &str) -> Result<LinkedWorktree, GitError> {
        EntryName::new(id).map_err(GitError::library("open the worktree"))?;
        let git_dir = repository.common_dir().join("worktrees").join(id);
        for name in ["HEAD", "commondir", "gitdir"] {
            let path = git_dir.join(name);
            fs::symlink_metadata(&path)
                .and_then(|_| file::check_regular(&path))
                .map_err(GitError::io("open", &path))?;
        }
        Ok(LinkedWorktree {
            id: id.to_owned(),
            git_dir,
        })
    }

    /// Rewrites a missing or empty `commondir` and `gitdir` in `git_dir`.
    ///
    /// Their contents are known, unlike those of HEAD and index.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be read or written.
    pub fn mend(git_dir: &Path, checkout_dir: &Path) -> Result<(), GitError> {
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

    /// Returns the id: its directory's name in `worktrees/`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the absolute private git directory.
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// Returns the path of the index file.
    pub fn index_path(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    /// Returns the directory where git expects the checkout.
    ///
    /// # Errors
    /// [`GitError::Io`] if `gitdir` cannot be read.
    pub fn checkout_dir(&self) -> Result<PathBuf, GitError> {
        registered_checkout_dir(&self.git_dir)
    }

    /// Returns the content of the `.git` file at the checkout's root.
    pub fn dot_git(&self) -> Vec<u8> {
        [b"gitdir: ", self.git_dir.as_os_str().as_bytes(), b"\n"].concat()
    }

    /// Registers `checkout_dir` as the checkout's new place.
    ///
    /// # Errors
    /// [`GitError::Io`] if `gitdir` cannot be written.
    pub fn relocate(&self, checkout_dir: &Path) -> Result<(), GitError> {
        replace_file(&self.git_dir.join("gitdir"), &gitdir_content(checkout_dir))
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

    /// Removes the registration with its HEAD, index and logs, and syncs that.
    ///
    /// `gitdir` goes first: after an interruption, the worktree is not listed, and
    /// [`remove_unfinished`] finds it. Blocks for up to half a second while git commands still
    /// write there.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be removed.
    pub fn remove(self) -> Result<(), GitError> {
        let gitdir = self.git_dir.join("gitdir");
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

/// Returns the content of `HEAD`.
fn head_content(head: &Head) -> String {
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
fn claim_id(worktrees_dir: &Path, name: &str) -> Result<LinkedWorktree, GitError> {
    let stem = id_stem(name);
    for counter in 0u32.. {
        // Numbered as git does: `demo`, `demo1`, `demo2`.
        let id = match counter {
            0 => stem.clone(),
            _ => format!("{stem}{counter}"),
        };
        let git_dir = worktrees_dir.join(&id);
        match fs::create_dir(&git_dir) {
            Ok(()) => return Ok(LinkedWorktree { id, git_dir }),
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
            LinkedWorktree { id, git_dir }.remove()?;
        }
    }
    Ok(())
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

/// Returns the content of `gitdir` for a checkout at `checkout_dir`.
fn gitdir_content(checkout_dir: &Path) -> Vec<u8> {
    let mut content = checkout_dir.join(".git").into_os_string().into_vec();
    content.push(b'\n');
    content
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
    let path = git_dir.join("gitdir");
    let content = file::read(&path).map_err(GitError::io("read", &path))?;
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

/// A worktree, main or linked, with the branches that it uses.
///
/// No other worktree may check these out meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkout {
    /// Private git directory; the common directory for the main worktree.
    pub git_dir: PathBuf,
    /// Directory of the checkout.
    pub dir: PathBuf,
    /// Branch of HEAD (full name, in bytes), with aliases resolved.
    ///
    /// It is `None` if HEAD is detached.
    pub branch: Option<Vec<u8>>,
    /// Branch or alias in HEAD, unresolved.
    pub named: Option<Vec<u8>>,
    /// Branches that a rebase or bisection will return to, or move.
    pub pending: Vec<Vec<u8>>,
    /// Cause if HEAD cannot be read; the branch is then unknown.
    pub damage: Option<String>,
}

impl Checkout {
    /// Reads the checkout with the private directory `git_dir`.
    ///
    /// A read error is recorded as this checkout's damage.
    fn read(git_dir: &Path, dir: PathBuf) -> Checkout {
        let mut checkout = Checkout {
            git_dir: git_dir.to_owned(),
            dir,
            branch: None,
            named: None,
            pending: Vec::new(),
            damage: None,
        };
        if let Err(error) = checkout.read_branches() {
            checkout.damage = Some(error.to_string());
        }
        checkout
    }

    fn read_branches(&mut self) -> Result<(), GitError> {
        let git_dir = &self.git_dir;
        let read = |name: &str| read_if_there(&git_dir.join(name));
        let head_path = git_dir.join("HEAD");
        let head = file::read(&head_path).map_err(GitError::io("read", &head_path))?;
        let branch = head
            .strip_prefix(b"ref:")
            .map(|name| name.trim_ascii().to_vec());
        if branch.is_none() && ObjectId::from_hex(head.trim_ascii()).is_err() {
            return Err(GitError::DamagedHead {
                path: head_path,
                reason: "it names no branch and no commit".to_owned(),
            });
        }
        self.named.clone_from(&branch);
        self.branch = branch;
        let mut pending = Vec::new();
        for name in ["rebase-merge/head-name", "rebase-apply/head-name"] {
            pending.extend(read(name)?.map(|content| content.trim_ascii_end().to_vec()));
        }
        if let Some(content) = read("BISECT_START")? {
            let start = content.trim_ascii_end();
            // The file contains a branch's short name.
            pending.push(if start.starts_with(b"refs/heads/") {
                start.to_vec()
            } else {
                [b"refs/heads/", start].concat()
            });
        }
        // Each ref that `rebase --update-refs` will move has three lines: its name, and the ids
        // before and after.
        let update_refs = read("rebase-merge/update-refs")?.unwrap_or_default();
        let moved = update_refs.split(|&b| b == b'\n').step_by(3);
        pending.extend(moved.filter(|name| !name.is_empty()).map(<[u8]>::to_vec));
        self.pending = pending;
        Ok(())
    }

    /// Returns whether the branch `full_name` is checked out or pending there.
    pub fn uses(&self, full_name: &[u8]) -> bool {
        self.branch.as_deref() == Some(full_name) || self.is_pending(full_name)
    }

    /// Returns whether a rebase or bisection there uses the branch.
    pub fn is_pending(&self, full_name: &[u8]) -> bool {
        self.pending.iter().any(|pending| pending == full_name)
    }
}

impl Repository {
    /// Lists all worktrees, the main one first unless the repository is bare.
    ///
    /// # Errors
    /// [`GitError::Io`] if the linked worktrees cannot be listed.
    pub fn checkouts(&self) -> Result<Vec<Checkout>, GitError> {
        let mut checkouts = Vec::new();
        if !self.local().is_bare() {
            checkouts.push(Checkout::read(
                self.common_dir(),
                self.checkout_dir().to_owned(),
            ));
        }
        for git_dir in registered_git_dirs(self.common_dir())? {
            // git ignores a registration without a readable `gitdir` as well.
            if let Ok(dir) = registered_checkout_dir(&git_dir) {
                checkouts.push(Checkout::read(&git_dir, dir));
            }
        }
        for checkout in &mut checkouts {
            let names = checkout.branch.iter_mut().chain(&mut checkout.pending);
            names.for_each(|name| *name = self.full_branch_behind(name));
        }
        Ok(checkouts)
    }

    /// Lists the checkouts whose index git has locked, as lock and directory.
    ///
    /// It costs one lookup for each checkout.
    pub(super) fn checkouts_locked_by_git(&self) -> Result<Vec<(PathBuf, PathBuf)>, GitError> {
        let mut locked = Vec::new();
        if let Some(lock) = locked_by_git(self.common_dir()) {
            locked.push((lock, self.checkout_dir().to_owned()));
        }
        for git_dir in registered_git_dirs(self.common_dir())? {
            if let Some(lock) = locked_by_git(&git_dir)
                && let Ok(dir) = registered_checkout_dir(&git_dir)
            {
                locked.push((lock, dir));
            }
        }
        Ok(locked)
    }
}

#[cfg(test)]
mod tests;
