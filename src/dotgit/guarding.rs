//! Refusals in forks that are not trusted.
//!
//! A program that may write a git directory can have git run any program, as the person who works
//! there next. In an untrusted fork these files are therefore checked, wherever git may look for
//! them, in the fork's own git directory and in every other that is among its files:
//!
//! | file | rule |
//! |---|---|
//! | `config`, `config.worktree` of a git directory | comes only by a rename of `config.lock`, if no setting in it is refused |
//! | files in `hooks` of a git directory | none can be made, except `*.sample`, which git does not run |
//! | `.git`, if it is a file | leads to a directory in a `.git/modules` or `.git/worktrees` of the fork |
//! | `commondir` | leads two directories up, as `git worktree` has it |
//! | symlinks below `.git` | none can be made |
//!
//! A directory is a git directory if it has `objects` and `refs`, or `commondir`. The files that it
//! has are checked when it becomes one.
//!
//! A program may keep a file open or mapped, and change what the kernel has cached of it. So these
//! files are never shown as they are: each lookup gives a new node with a copy of the content,
//! which nobody can write, and a checked file gets its name as a copy.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::errno;
use crate::layout::{join, split};
use tine_attr::FileKind;
use tine_git::own::settings::refused::{ConfigPlace, FoundRefused, refused_in, without_refused};

/// Number of refusals that are kept.
const MAX_KEPT: usize = 16;

/// Largest configuration file that is accepted.
pub const MAX_CHECKED: u64 = 1 << 20;

/// Largest file that leads to a git directory.
const MAX_POINTER: usize = 8192;

/// Number of entries of a moved directory that are looked at.
const MAX_MOVED: usize = 100_000;

/// Target of the symlink by which git tests for symlinks.
const PROBE: &[u8] = b"testing";

/// Change that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedWrite {
    /// File, from the fork's root.
    pub path: Vec<u8>,
    /// Setting or file that is refused.
    pub what: String,
    /// Reason, as a clause.
    pub reason: &'static str,
}

impl fmt::Display for RefusedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        if self.what == path {
            write!(f, "{} ({})", self.what.escape_debug(), self.reason)
        } else {
            let (what, path) = (self.what.escape_debug(), path.escape_debug());
            write!(f, "{what} in {path} ({})", self.reason)
        }
    }
}

/// Refusals of an untrusted fork: its place, and what was refused last.
pub struct Refusals {
    fork: String,
    /// Directory at which the fork is mounted.
    mount_dir: PathBuf,
    /// The oldest first. Held for moments.
    refused: Mutex<VecDeque<RefusedWrite>>,
}

impl Refusals {
    /// Returns the guard of the fork with this name, mounted at `mount_dir`.
    pub fn new(fork: &str, mount_dir: PathBuf) -> Refusals {
        Refusals {
            fork: fork.to_owned(),
            mount_dir,
            refused: Mutex::default(),
        }
    }

    /// Returns the directory at which the fork is mounted.
    pub fn mount_dir(&self) -> &Path {
        &self.mount_dir
    }

    /// Returns the last refusals, the newest first, each once.
    pub fn refused(&self) -> Vec<RefusedWrite> {
        self.refused.lock().iter().rev().cloned().collect()
    }

    /// Notes a refusal, and returns the error for the program.
    pub fn refuse(&self, refused: RefusedWrite) -> io::Error {
        let mut last = self.refused.lock();
        let is_new = !last.contains(&refused);
        last.retain(|other| *other != refused);
        if is_new {
            log::warn!("{}: refused: {refused}", self.fork);
        }
        last.push_back(refused);
        if last.len() > MAX_KEPT {
            last.pop_front();
        }
        errno(libc::EPERM)
    }
}

/// Part of a file system in which names are guarded. Paths are relative to its top.
pub trait GuardedTree {
    /// Error of reading it.
    type Error;

    /// Returns the type of the file at `path`, if there is one.
    ///
    /// # Errors
    /// If a directory cannot be read.
    fn kind(&self, path: &[u8]) -> Result<Option<FileKind>, Self::Error>;

    /// Returns the content of a regular file.
    ///
    /// `None` if it is too large, or not there.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn content(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Returns the names in a directory.
    ///
    /// # Errors
    /// If it cannot be read.
    fn list(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, FileKind)>, Self::Error>;
}

/// Meaning of a name to git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitRole {
    /// None that matters.
    Plain,
    /// Configuration of a git directory.
    Config,
    /// Hook of a git directory.
    Hook,
    /// File that leads to a git directory.
    GitFile,
    /// File that leads to the git directory of a worktree's repository.
    CommonDir,
}

/// File as git may read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadableFile {
    /// Content.
    pub content: Vec<u8>,
    /// Permission bits.
    pub perm: u16,
    /// Refusal, if the file is not as it was.
    pub refused: Option<RefusedWrite>,
}

/// File that gets a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewFile<'a> {
    /// A new, empty file.
    File,
    /// A new, empty directory.
    Dir,
    /// A symlink to this target.
    Symlink(&'a [u8]),
    /// A second name of a file.
    Link,
}

/// Verdict on a change of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameVerdict {
    /// It is refused.
    Refused(RefusedWrite),
    /// It may be done.
    ///
    /// Then the files at `renewed` are replaced by copies of themselves.
    Allowed {
        /// Paths of configuration files.
        renewed: Vec<Vec<u8>>,
    },
    /// A file may be renamed as a copy.
    AsCopy {
        /// Content that was checked.
        content: Vec<u8>,
    },
}

impl NameVerdict {
    const ALLOWED: NameVerdict = NameVerdict::Allowed {
        renewed: Vec::new(),
    };
}

/// Returns whether a name can matter wherever it is.
///
/// Other names matter only in a directory with the name `hooks`.
pub fn is_guarded_name(name: &[u8]) -> bool {
    is_config_name(name)
        || matches!(
            name,
            b"objects" | b"refs" | b"hooks" | b"commondir" | b".git"
        )
}

/// Returns whether the kernel may not cache a name.
///
/// A file with this name gets another node by a change that the kernel does not see.
pub fn is_fleeting_name(name: &[u8]) -> bool {
    is_config_name(name.strip_suffix(b".lock").unwrap_or(name))
        || matches!(name, b"commondir" | b".git")
}

fn is_config_name(name: &[u8]) -> bool {
    matches!(name, b"config" | b"config.worktree")
}

/// Checks of names in one tree.
pub struct NameChecks<'a, T> {
    /// The tree.
    pub tree: &'a T,
    /// True if its top is the fork's own git directory.
    pub is_git_dir: bool,
}

impl<T: GuardedTree> NameChecks<'_, T> {
    /// Returns whether git takes a directory for a git directory.
    fn is_git_dir(&self, dir: &[u8]) -> Result<bool, T::Error> {
        if self.is_git_dir && dir.is_empty() {
            return Ok(true);
        }
        let has = |name: &[u8]| Ok(self.tree.kind(&join(dir, name))?.is_some());
        Ok(has(b"objects")? && has(b"refs")? || has(b"commondir")?)
    }

    /// Returns the meaning of a name to git.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub fn role(&self, path: &[u8]) -> Result<GitRole, T::Error> {
        let (dir, name) = split(path);
        if is_config_name(name) && self.is_git_dir(dir)? {
            return Ok(GitRole::Config);
        }
        match name {
            b"commondir" => return Ok(GitRole::CommonDir),
            b".git" => return Ok(GitRole::GitFile),
            _ => {}
        }
        let (above, hooks) = split(dir);
        if hooks == b"hooks" && !is_sample(name) && self.is_git_dir(above)? {
            return Ok(GitRole::Hook);
        }
        Ok(GitRole::Plain)
    }

    /// Checks that a new file may get this name.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub fn new_name(&self, path: &[u8], new: NewFile<'_>) -> Result<NameVerdict, T::Error> {
        let (dir, name) = split(path);
        let role = self.role(path)?;
        match (role, new) {
            (GitRole::Config, _) => return Ok(self.by_lock_only(path)),
            (GitRole::Hook, _) => return Ok(self.refused(path, "git runs it as a hook")),
            (GitRole::CommonDir, NewFile::File) if !(self.is_git_dir && dir.is_empty()) => {}
            (GitRole::GitFile, NewFile::File) if !self.is_git_dir => {}
            (GitRole::GitFile, NewFile::Dir) => {}
            (GitRole::CommonDir | GitRole::GitFile, _) => {
                return Ok(self.refused(path, "it leads git to another git directory"));
            }
            (GitRole::Plain, _) => {}
        }
        if let NewFile::Symlink(target) = new
            && target != PROBE
            && (self.is_below_dot_git(path) || name == b"hooks" && self.is_git_dir(dir)?)
        {
            return Ok(self.refused(path, "a symlink leads git to other files"));
        }
        self.completed(dir, name)
    }

    /// Checks a rename.
    ///
    /// `kind` is the type of the file that is moved.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub fn rename(
        &self,
        from: &[u8],
        to: &[u8],
        kind: FileKind,
        is_exchange: bool,
    ) -> Result<NameVerdict, T::Error> {
        if is_exchange {
            for path in [from, to] {
                let is_plain = self.role(path)? == GitRole::Plain;
                if !is_plain || is_guarded_name(split(path).1) {
                    return Ok(self.refused(path, "it cannot be exchanged"));
                }
            }
        }
        let (dir, name) = split(to);
        match (self.role(to)?, kind) {
            (GitRole::Config, FileKind::Regular) if from.strip_suffix(b".lock") == Some(to) => {
                return self.config(from, to);
            }
            (GitRole::Config, _) => return Ok(self.by_lock_only(to)),
            (GitRole::Hook, _) => return Ok(self.refused(to, "git runs it as a hook")),
            (GitRole::GitFile, FileKind::Directory) if !self.is_git_dir => {}
            (GitRole::CommonDir | GitRole::GitFile, _) => {
                return Ok(self.refused(to, "it leads git to another git directory"));
            }
            (GitRole::Plain, _) => {}
        }
        let enters = self.is_below_dot_git(to) && !self.is_below_dot_git(from);
        let has_symlink = match kind {
            FileKind::Symlink => enters || name == b"hooks" && self.is_git_dir(dir)?,
            FileKind::Directory => enters && self.has_symlink(from)?,
            _ => false,
        };
        if has_symlink {
            return Ok(self.refused(to, "a symlink leads git to other files"));
        }
        if kind == FileKind::Directory
            && name == b"hooks"
            && self.is_git_dir(dir)?
            && let Some(hook) = self.first_hook(from)?
        {
            return Ok(self.refused(&join(to, &hook), "git runs it as a hook"));
        }
        self.completed(dir, name)
    }

    /// Checks the rename of `config.lock` to `config`.
    fn config(&self, from: &[u8], to: &[u8]) -> Result<NameVerdict, T::Error> {
        let Some(content) = self.tree.content(from)? else {
            return Ok(self.refused(to, "it is too large"));
        };
        let before = self.tree.content(to)?.unwrap_or_default();
        Ok(match refused_in(&content, &before, self.place(to)) {
            Some(found) => NameVerdict::Refused(self.setting(to, found)),
            None => NameVerdict::AsCopy { content },
        })
    }

    /// Checks what a directory has, if `name` makes it a git directory.
    fn completed(&self, dir: &[u8], name: &[u8]) -> Result<NameVerdict, T::Error> {
        let has = |name: &[u8]| Ok(self.tree.kind(&join(dir, name))?.is_some());
        let completes = match name {
            b"objects" => has(b"refs")?,
            b"refs" => has(b"objects")?,
            b"commondir" => true,
            _ => false,
        };
        if !completes || self.is_git_dir(dir)? {
            return Ok(NameVerdict::ALLOWED);
        }
        let mut renewed = Vec::new();
        for name in [&b"config"[..], b"config.worktree"] {
            let path = join(dir, name);
            match self.tree.kind(&path)? {
                None | Some(FileKind::Directory) => continue,
                Some(FileKind::Regular) => {}
                Some(_) => return Ok(self.by_lock_only(&path)),
            }
            let Some(content) = self.tree.content(&path)? else {
                return Ok(self.refused(&path, "it is too large"));
            };
            if let Some(found) = refused_in(&content, b"", self.place(&path)) {
                return Ok(NameVerdict::Refused(self.setting(&path, found)));
            }
            renewed.push(path);
        }
        let hooks = join(dir, b"hooks");
        match self.tree.kind(&hooks)? {
            Some(FileKind::Directory) => {
                if let Some(hook) = self.first_hook(&hooks)? {
                    return Ok(self.refused(&join(&hooks, &hook), "git runs it as a hook"));
                }
            }
            Some(FileKind::Symlink) => {
                return Ok(self.refused(&hooks, "a symlink leads git to other files"));
            }
            _ => {}
        }
        Ok(NameVerdict::Allowed { renewed })
    }

    /// Returns the first name that may be a hook.
    fn first_hook(&self, dir: &[u8]) -> Result<Option<Vec<u8>>, T::Error> {
        let names = self.tree.list(dir)?.into_iter().map(|(name, _)| name);
        Ok(names.filter(|name| !is_sample(name)).min())
    }

    fn has_symlink(&self, dir: &[u8]) -> Result<bool, T::Error> {
        let mut open = vec![dir.to_vec()];
        let mut count = 0_usize;
        while let Some(dir) = open.pop() {
            for (name, kind) in self.tree.list(&dir)? {
                count = count.saturating_add(1);
                match kind {
                    FileKind::Symlink => return Ok(true),
                    _ if count > MAX_MOVED => return Ok(true),
                    FileKind::Directory => open.push(join(&dir, &name)),
                    _ => {}
                }
            }
        }
        Ok(false)
    }

    /// Returns the file at `path` as git may read it.
    ///
    /// tine's own tools and an earlier state that is restored may bring a file that no program
    /// could have written here. Then settings are left out, a hook cannot be executed, and a file
    /// that leads out of the fork is empty.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub fn shown(
        &self,
        role: GitRole,
        path: &[u8],
        (content, perm): (Vec<u8>, u16),
        refusals: &Refusals,
    ) -> Result<ReadableFile, T::Error> {
        let fine = |content, perm| ReadableFile {
            content,
            perm,
            refused: None,
        };
        Ok(match role {
            GitRole::Plain => fine(content, perm),
            GitRole::Config => match without_refused(&content, self.place(path), self.is_git_dir) {
                None => fine(content, perm),
                Some((content, found)) => ReadableFile {
                    content,
                    perm,
                    refused: Some(self.setting(path, found)),
                },
            },
            // The fork's own hooks are those that it was made with.
            GitRole::Hook if self.is_git_dir || perm & 0o111 == 0 => fine(content, perm),
            GitRole::Hook => ReadableFile {
                content,
                perm: perm & !0o111,
                refused: Some(self.named(path, "git runs it as a hook")),
            },
            GitRole::CommonDir | GitRole::GitFile => {
                let refused = self.leads_out(role, path, &content, refusals)?;
                let content = if refused.is_some() {
                    Vec::new()
                } else {
                    content
                };
                ReadableFile {
                    content,
                    perm,
                    refused,
                }
            }
        })
    }

    /// Refuses a file that leads git out of the fork.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub fn leads_out(
        &self,
        role: GitRole,
        path: &[u8],
        content: &[u8],
        refusals: &Refusals,
    ) -> Result<Option<RefusedWrite>, T::Error> {
        let is_fine = match role {
            GitRole::Plain | GitRole::Config | GitRole::Hook => true,
            GitRole::CommonDir => content.trim_ascii_end() == b"../..",
            GitRole::GitFile => self.is_safe_git_file(split(path).0, content, refusals)?,
        };
        Ok((!is_fine).then(|| self.named(path, "it leads git out of the fork")))
    }

    /// Returns whether a gitfile in `dir` leads to a checked directory.
    fn is_safe_git_file(
        &self,
        dir: &[u8],
        content: &[u8],
        refusals: &Refusals,
    ) -> Result<bool, T::Error> {
        let Some(target) = content.strip_prefix(b"gitdir: ") else {
            return Ok(false);
        };
        let target = target.trim_ascii_end();
        let mount_dir = refusals.mount_dir.as_os_str().as_encoded_bytes();
        let mut at: Vec<&[u8]> = Vec::new();
        let relative = match target.strip_prefix(mount_dir) {
            Some(rest) if rest.starts_with(b"/") => rest,
            _ if target.starts_with(b"/") => return Ok(false),
            _ => {
                at.extend(
                    dir.split(|&byte| byte == b'/')
                        .filter(|part| !part.is_empty()),
                );
                target
            }
        };
        let mut parts = relative.split(|&byte| byte == b'/').peekable();
        // Only what leads up from the file itself has no symlink in it.
        while let Some(part) = parts.next_if(|part| matches!(*part, b"" | b"." | b"..")) {
            if part == b".." && at.pop().is_none() {
                return Ok(false);
            }
        }
        let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
        let Some(dot_git) = parts.iter().position(|part| *part == b".git") else {
            return Ok(false);
        };
        let is_plain = parts.iter().all(|part| !matches!(*part, b"." | b".."));
        let is_known = matches!(parts.get(dot_git + 1), Some(&b"modules" | &b"worktrees"));
        if !is_plain || !is_known || parts.len() < dot_git + 3 {
            return Ok(false);
        }
        let mut path = at.join(&b'/');
        for part in parts.iter().take(dot_git) {
            path = join(&path, part);
            if self.tree.kind(&path)? != Some(FileKind::Directory) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn place(&self, path: &[u8]) -> ConfigPlace {
        let (dir, _) = split(path);
        let below = usize::from(self.is_git_dir);
        let depth = dir
            .split(|&byte| byte == b'/')
            .filter(|part| !part.is_empty());
        ConfigPlace {
            is_forks_own: self.is_git_dir && dir.is_empty(),
            depth: depth.count().saturating_add(below),
        }
    }

    fn is_below_dot_git(&self, path: &[u8]) -> bool {
        let mut parts = path.split(|&byte| byte == b'/');
        self.is_git_dir || parts.any(|part| part == b".git")
    }

    fn path_from_root(&self, path: &[u8]) -> Vec<u8> {
        if self.is_git_dir {
            join(b".git", path)
        } else {
            path.to_vec()
        }
    }

    fn by_lock_only(&self, path: &[u8]) -> NameVerdict {
        self.refused(
            path,
            "it changes only by `git config`, which renames a lock file",
        )
    }

    fn refused(&self, path: &[u8], reason: &'static str) -> NameVerdict {
        NameVerdict::Refused(self.named(path, reason))
    }

    fn named(&self, path: &[u8], reason: &'static str) -> RefusedWrite {
        let path = self.path_from_root(path);
        RefusedWrite {
            what: String::from_utf8_lossy(&path).into_owned(),
            path,
            reason,
        }
    }

    fn setting(&self, path: &[u8], found: FoundRefused) -> RefusedWrite {
        RefusedWrite {
            path: self.path_from_root(path),
            what: found.what,
            reason: found.reason,
        }
    }
}

/// Returns whether a name in `hooks` is one that git never runs.
fn is_sample(name: &[u8]) -> bool {
    name.ends_with(b".sample")
}

/// Returns the content of a small file after a write.
///
/// `None` if it is not small.
pub fn spliced(before: &[u8], offset: u64, data: &[u8]) -> Option<Vec<u8>> {
    let offset = usize::try_from(offset).ok()?;
    let end = offset.checked_add(data.len())?;
    if end > MAX_POINTER {
        return None;
    }
    let mut after = before.to_vec();
    after.resize(end.max(before.len()), 0);
    after.get_mut(offset..end)?.copy_from_slice(data);
    Some(after)
}
