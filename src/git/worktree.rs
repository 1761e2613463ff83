//! Linked worktrees: a fork is one in git's own eyes.
//!
//! `worktrees/<id>/` in the common directory holds HEAD, index, logs, `gitdir` (the path of the
//! checkout's `.git` file) and `locked`, which keeps `git worktree prune` and `remove` away. The
//! registration is written here file by file, as git lays it out (`gitrepository-layout(5)`): the
//! git library's own would write into the checkout, which is a mount that only comes to be
//! afterwards.

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

/// What `commondir` of a worktree holds.
const COMMON_DIR: &[u8] = b"../..\n";

/// How long git commands in a worktree that is removed may go on writing there.
const REMOVAL_PATIENCE: Duration = Duration::from_millis(500);
const REMOVAL_INTERVAL: Duration = Duration::from_millis(10);

/// A registered linked worktree.
#[derive(Debug, Clone)]
pub struct LinkedWorktree {
    id: String,
    /// `<common-dir>/worktrees/<id>`, absolute.
    git_dir: PathBuf,
}

/// What an object is that git keeps for one worktree alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnObject {
    /// A stash that git made when an operation began, and applies when that ends.
    Autostash,
    Ref,
}

impl LinkedWorktree {
    /// Registers a worktree whose checkout is to be at `checkout_dir`, with HEAD on `head`, locked
    /// with `lock_reason`. Nothing is written at `checkout_dir`, no file is checked out and the
    /// index is left to the caller. The id is made from `name` and differs from it where that is
    /// taken.
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

    /// As [`LinkedWorktree::register`], of a worktree that was lost: the reflog of HEAD begins with
    /// `left_at`, where the worktree left its branch, which may be elsewhere by now.
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
                // The first error is the one to tell; a rest that cannot be removed is locked and
                // never listed.
                let _ = worktree.remove();
                Err(error)
            }
        }
    }

    /// The worktree registered as `id`; an error if it is gone.
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

    /// Writes `commondir` and `gitdir` of the worktree in `git_dir` anew where they are missing or
    /// empty: both are known. HEAD and index are not.
    pub fn mend(git_dir: &Path, checkout_dir: &Path) -> Result<(), GitError> {
        for (name, content) in [
            ("commondir", COMMON_DIR.to_vec()),
            ("gitdir", gitdir_content(checkout_dir)),
        ] {
            let path = git_dir.join(name);
            let is_lost = match file::read(&path) {
                Ok(found) => found.trim_ascii().is_empty(),
                // A pipe, a socket or a device keeps nothing that could be lost.
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
    pub fn replace_head(git_dir: &Path, head: &Head) -> Result<(), GitError> {
        replace_file(&git_dir.join("HEAD"), head_content(head).as_bytes())
    }

    /// The `.git` files of all registered worktrees and of the submodules in them, whether they are
    /// there or not, each with the git directory that it leads to, relative to `common_dir`.
    pub fn dot_gits(common_dir: &Path) -> Result<Vec<(PathBuf, PathBuf)>, GitError> {
        let mut dot_gits = Vec::new();
        for git_dir in registered_git_dirs(common_dir)? {
            // One that is half made or half removed says nothing.
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

    /// Whether a worktree that was registered for `name` can have got this id.
    pub fn may_be_of(name: &str, id: &str) -> bool {
        id.starts_with(&id_stem(name))
    }

    /// The id: the name of its directory beneath `worktrees/`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its private git directory, absolute.
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    pub fn index_path(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    /// Where git believes the checkout to be.
    pub fn checkout_dir(&self) -> Result<PathBuf, GitError> {
        registered_checkout_dir(&self.git_dir)
    }

    /// What the `.git` file at the checkout's root holds.
    pub fn dot_git(&self) -> Vec<u8> {
        [b"gitdir: ", self.git_dir.as_os_str().as_bytes(), b"\n"].concat()
    }

    /// Tells git that the checkout is now at `checkout_dir`.
    pub fn relocate(&self, checkout_dir: &Path) -> Result<(), GitError> {
        replace_file(&self.git_dir.join("gitdir"), &gitdir_content(checkout_dir))
    }

    /// Whether submodules were cloned for it: their repositories stand in the private directory and
    /// go with it.
    pub fn has_submodules(&self) -> bool {
        fs::read_dir(self.git_dir.join("modules")).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// The operation that is under way in it (`merge`, `rebase`, `cherry-pick`, `revert`, `bisect`,
    /// `am`), if any.
    pub fn operation_in_progress(&self) -> Option<&'static str> {
        let has = |name: &str| self.git_dir.join(name).exists();
        // In git's own order of precedence (`wt_status_get_state`): a rebase picks, and may merge.
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

    /// Objects that git keeps for this worktree alone, and that go with it: its own refs
    /// (`refs/worktree/*`), stashes of an operation under way, and what a merge there joins. What
    /// cannot be read is left out.
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

    /// Removes the registration with its HEAD, index and logs. `gitdir` goes first: where the rest
    /// is interrupted, the worktree is listed no more and [`remove_unfinished`] finds it. After
    /// that it is gone from the disk, too.
    pub fn remove(self) -> Result<(), GitError> {
        let gitdir = self.git_dir.join("gitdir");
        match fs::remove_file(&gitdir) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(GitError::io("remove", &gitdir)(error));
            }
            _ => {}
        }
        let deadline = Instant::now() + REMOVAL_PATIENCE;
        loop {
            match fs::remove_dir_all(&self.git_dir) {
                // A git command that began before writes there still.
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
        // As git does: the directory goes with the last worktree. It is not empty while there are
        // others.
        let Some(worktrees_dir) = self.git_dir.parent() else {
            return Ok(());
        };
        match (fs::remove_dir(worktrees_dir), worktrees_dir.parent()) {
            (Ok(()), Some(common_dir)) => sync_if_there(common_dir),
            _ => sync_if_there(worktrees_dir),
        }
    }

    /// Writes everything but the index. `locked` comes first, so that no prune takes the directory
    /// for a leftover, and `gitdir` last: without it the worktree is not listed.
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

    /// With `extensions.worktreeConfig`, gives the worktree the main checkout's own configuration,
    /// as `git worktree add` does: without what says where that checkout is, and without its
    /// sparseness (a fork shows every path).
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

    /// Whether git leaves files of HEAD out of this worktree (`git sparse-checkout set`).
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

    /// What the sequencer is in the middle of: between two picks no `*_HEAD` file says so.
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

/// What `HEAD` holds.
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

/// Creates a directory of its own for a worktree called `name`, and with it takes the id.
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
            // A `git worktree prune` beside us removes the directory while it is empty.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(worktrees_dir).map_err(GitError::io("create", worktrees_dir))?;
            }
            Err(error) => return Err(GitError::io("create", git_dir)(error)),
        }
    }
    unreachable!("a directory holds fewer than 2³² entries")
}

/// Removes registrations for `name` that a process that died had begun to write or to remove: they
/// have no `gitdir`. Those whose ids are `taken` stay.
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

/// `name` as a ref component and file name: git names refs of a worktree `worktrees/<id>/…`.
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

/// What `gitdir` holds for a checkout at `checkout_dir`.
fn gitdir_content(checkout_dir: &Path) -> Vec<u8> {
    let mut content = checkout_dir.join(".git").into_os_string().into_vec();
    content.push(b'\n');
    content
}

/// The checkouts of the submodules whose repositories are beneath `modules_dir`, at places that are
/// their names, each with its git directory. What cannot be read is left out.
fn collect_submodules(modules_dir: &Path, found: &mut Vec<(PathBuf, PathBuf)>) {
    let entries = fs::read_dir(modules_dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let dir = entry.path();
        if !dir.join("HEAD").exists() {
            // A name may have slashes.
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

/// The private git directories of all registered linked worktrees.
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

/// Where the linked worktree with the private directory `git_dir` has its checkout.
pub(super) fn registered_checkout_dir(git_dir: &Path) -> Result<PathBuf, GitError> {
    let path = git_dir.join("gitdir");
    let content = file::read(&path).map_err(GitError::io("read", &path))?;
    // Relative to the private directory where `worktree.useRelativePaths` was on.
    let dot_git = git_dir.join(OsStr::from_bytes(content.trim_ascii_end()));
    let checkout_dir = match dot_git.file_name() {
        Some(name) if name == ".git" => dot_git.parent().unwrap_or(&dot_git).to_owned(),
        _ => dot_git,
    };
    // Made clean of `..` where the place exists; a mount that is gone is told as it is registered.
    Ok(
        if checkout_dir.components().any(|c| c.as_os_str() == "..") {
            checkout_dir.canonicalize().unwrap_or(checkout_dir)
        } else {
            checkout_dir
        },
    )
}

/// A worktree, main or linked, and the branches that no other may check out meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkout {
    pub git_dir: PathBuf,
    pub dir: PathBuf,
    /// The branch that HEAD is on (full name, in bytes), behind an alias, too; `None` where it is
    /// detached.
    pub branch: Option<Vec<u8>>,
    /// As HEAD has it: the branch, or an alias.
    pub named: Option<Vec<u8>>,
    /// Those that it comes back to, or moves, when the rebase or bisection there ends.
    pub pending: Vec<Vec<u8>>,
    /// Why HEAD cannot be read, where it cannot: which branch is checked out is not known then.
    pub damage: Option<String>,
}

impl Checkout {
    /// Reads what stands in the private directory `git_dir`. What cannot be read there is this
    /// checkout's damage alone.
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
            // A branch is there by its short name.
            pending.push(match start.starts_with(b"refs/heads/") {
                true => start.to_vec(),
                false => [b"refs/heads/", start].concat(),
            });
        }
        // Three lines for each ref that `rebase --update-refs` will move: its name, and the ids
        // before and after.
        let update_refs = read("rebase-merge/update-refs")?.unwrap_or_default();
        let moved = update_refs.split(|&b| b == b'\n').step_by(3);
        pending.extend(moved.filter(|name| !name.is_empty()).map(<[u8]>::to_vec));
        self.pending = pending;
        Ok(())
    }

    /// Whether the branch `full_name` is checked out there, or in use by what is under way.
    pub fn uses(&self, full_name: &[u8]) -> bool {
        self.branch.as_deref() == Some(full_name) || self.is_pending(full_name)
    }

    pub fn is_pending(&self, full_name: &[u8]) -> bool {
        self.pending.iter().any(|pending| pending == full_name)
    }
}

impl Repository {
    /// All worktrees, the main one first unless the repository is bare.
    pub fn checkouts(&self) -> Result<Vec<Checkout>, GitError> {
        let mut checkouts = Vec::new();
        if !self.local().is_bare() {
            checkouts.push(Checkout::read(
                self.common_dir(),
                self.checkout_dir().to_owned(),
            ));
        }
        for git_dir in registered_git_dirs(self.common_dir())? {
            // A registration without a readable `gitdir` is broken: git does not count it either.
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

    /// The checkouts whose index git has locked: the lock, and the checkout's directory. Costs one
    /// look at each.
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
