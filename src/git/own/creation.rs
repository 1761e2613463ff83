//! Creation of a fork's own git directory, new or copied.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::refs::read_if_there;
use crate::worktree::{OWN_GITDIR, gitdir_content, head_content};
use crate::{GitError, Head, ObjectId, Repository, Worktree};
use tine_sys::parallel::disk_work;

/// Alternate object directory.
///
/// git reads the path from `objects/`, and git-lfs from the top of the work tree. In the mount,
/// both find the main repository's objects.
const ALTERNATE: &str = ".git/tine/objects";

/// Directory of the symlinks to lent objects on disk.
const SHARED_DIR: &str = "objects/.git/tine";

/// Target of the symlink to the main repository's objects.
///
/// It stays valid if the repository is moved: the git directory is `tine/forks/<fork>/git` in it.
const SHARED_TARGET: &str = "../../../../../../../objects";

/// Paths of a git directory that a copy does not get.
///
/// They belong to processes, to the checkouts of the fork that is copied, or to an operation that
/// ends by moving a branch of that fork (rebase, bisect, a sequence of picks).
const NOT_COPIED: [&str; 19] = [
    "HEAD",
    "index",
    "tine",
    "worktrees",
    "gc.pid",
    "gc.log",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "REBASE_HEAD",
    "BISECT_LOG",
    "BISECT_START",
    "BISECT_NAMES",
    "BISECT_TERMS",
    "BISECT_EXPECTED_REV",
    "refs/bisect",
    "refs/rewritten",
    "objects/.git",
    "objects/info/alternates",
];

/// Start of a fork's own git directory.
#[derive(Debug, Clone)]
pub struct OwnStart<'a> {
    /// Directory of the checkout: the mount.
    pub checkout_dir: &'a Path,
    /// HEAD. A branch gets its commit.
    pub head: &'a Head,
    /// Content of `config`.
    pub config: &'a [u8],
    /// Message of the new branch's reflog.
    pub reflog: &'a str,
}

impl Worktree {
    /// Creates the git directory `git_dir`, and syncs it. The caller writes the index.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be written.
    pub fn create_own(
        repository: &Repository,
        git_dir: &Path,
        start: &OwnStart<'_>,
    ) -> Result<Worktree, GitError> {
        make_dir(git_dir)?;
        for dir in ["info", "objects", "objects/info", "objects/pack", "refs"] {
            make_dir(&git_dir.join(dir))?;
        }
        for dir in ["refs/heads", "refs/tags", "tine"] {
            make_dir(&git_dir.join(dir))?;
        }
        for name in ["info/exclude", "info/attributes"] {
            if let Some(content) = read_if_there(&repository.common_dir().join(name))? {
                write_new(&git_dir.join(name), &content)?;
            }
        }
        write_new(&git_dir.join("config"), start.config)?;
        fill(repository, git_dir, start)?;
        Worktree::open_own(git_dir.to_owned())
    }
}

/// Copies a fork's own git directory for a fork of it.
///
/// It gets the refs, logs, stash, configuration and new objects of `from`, and HEAD as given. Locks
/// and temporary files are left out, and the caller writes the index.
///
/// # Errors
/// [`GitError::Io`] if a file cannot be read or written.
pub fn copy_own(
    repository: &Repository,
    from: &Worktree,
    git_dir: &Path,
    start: &OwnStart<'_>,
) -> Result<Worktree, GitError> {
    copy_dir(from.git_dir(), git_dir, Path::new(""))?;
    make_dir(&git_dir.join("tine"))?;
    let hidden = "tine/hidden";
    if let Some(content) = read_if_there(&from.git_dir().join(hidden))? {
        write_new(&git_dir.join(hidden), &content)?;
    }
    fill(repository, git_dir, start)?;
    Worktree::open_own(git_dir.to_owned())
}

/// Writes what every fork's own git directory has, and syncs the directory.
fn fill(repository: &Repository, git_dir: &Path, start: &OwnStart<'_>) -> Result<(), GitError> {
    let shared_dir = git_dir.join(SHARED_DIR);
    make_dir(&git_dir.join("objects/.git"))?;
    make_dir(&shared_dir)?;
    let objects = shared_dir.join("objects");
    symlink(SHARED_TARGET, &objects).map_err(GitError::io("create", &objects))?;
    let mut lines = format!("{ALTERNATE}\n");
    let further = alternates_of(&repository.common_dir().join("objects"));
    for (number, dir) in (1..).zip(further) {
        let link = shared_dir.join(format!("objects-{number}"));
        symlink(dir, &link).map_err(GitError::io("create", &link))?;
        lines.push_str(&format!("{ALTERNATE}-{number}\n"));
    }
    replace(&git_dir.join("objects/info/alternates"), lines.as_bytes())?;
    if let Head::Branch { name, commit_id } = start.head {
        let branch = git_dir.join(name);
        make_parents(git_dir, &branch)?;
        replace(&branch, format!("{commit_id}\n").as_bytes())?;
        let log = git_dir.join("logs").join(name);
        make_parents(git_dir, &log)?;
        log_first(repository, &log, *commit_id, start.reflog)?;
    }
    if let Some(commit_id) = start.head.commit_id() {
        let log = git_dir.join("logs/HEAD");
        make_parents(git_dir, &log)?;
        log_first(repository, &log, commit_id, "")?;
    }
    write_new(&git_dir.join("HEAD"), head_content(start.head).as_bytes())?;
    // Without this file the directory is not complete.
    write_new(
        &git_dir.join(OWN_GITDIR),
        &gitdir_content(start.checkout_dir),
    )?;
    let mut paths = Vec::new();
    collect(git_dir, &mut paths)?;
    disk_work(&paths, |path| {
        tine_sys::file::sync(path).map_err(GitError::io("sync", path))
    })
}

/// Lists the object directories that `objects` borrows from.
///
/// It follows their own alternates as git does: absolute paths, and relative ones in the first
/// file.
/// Directories that do not exist are left out.
pub fn alternates_of(objects: &Path) -> Vec<PathBuf> {
    /// Longest chain that git follows.
    const MAX_DEPTH: usize = 5;

    let mut found: Vec<PathBuf> = Vec::new();
    let mut open = vec![(objects.to_owned(), 0_usize)];
    while let Some((dir, depth)) = open.pop() {
        let content = read_if_there(&dir.join("info/alternates"));
        let content = content.ok().flatten().unwrap_or_default();
        for line in content.split(|&byte| byte == b'\n') {
            let path = Path::new(OsStr::from_bytes(line));
            if line.is_empty() || line.starts_with(b"#") || (depth > 0 && path.is_relative()) {
                continue;
            }
            let Ok(path) = dir.join(path).canonicalize() else {
                continue;
            };
            if path.is_dir() && path != objects && !found.contains(&path) {
                found.push(path.clone());
                if depth < MAX_DEPTH {
                    open.push((path, depth.saturating_add(1)));
                }
            }
        }
    }
    found
}

/// Appends the first line of a reflog.
fn log_first(
    repository: &Repository,
    path: &Path,
    commit_id: ObjectId,
    message: &str,
) -> Result<(), GitError> {
    let null_id = ObjectId::null(commit_id.kind());
    let mut line = format!("{null_id} {commit_id} ").into_bytes();
    repository
        .reflog_signature()
        .write_to(&mut line)
        .and_then(|()| {
            if !message.is_empty() {
                line.extend_from_slice(format!("\t{message}").as_bytes());
            }
            line.push(b'\n');
            let mut options = OpenOptions::new();
            tine_sys::file::open_with(path, options.append(true).create(true))?.write_all(&line)
        })
        .map_err(GitError::io("write", path))
}

/// Copies a directory of a git directory. `within` is its path there.
fn copy_dir(from: &Path, to: &Path, within: &Path) -> Result<(), GitError> {
    make_dir(to)?;
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        // A git command removed it meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(GitError::io("list", from)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(GitError::io("list", from))?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let path = within.join(&name);
        if NOT_COPIED.iter().any(|left| path == Path::new(left)) || is_temporary(&text) {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        let kind = entry.file_type().map_err(GitError::io("inspect", &from))?;
        let copied = if kind.is_dir() {
            copy_dir(&from, &to, &path)?;
            continue;
        } else if kind.is_symlink() {
            fs::read_link(&from).and_then(|target| symlink(target, &to))
        } else if kind.is_file() {
            fs::copy(&from, &to).map(drop)
        } else {
            continue;
        };
        match copied {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            copied => copied.map_err(GitError::io("copy", &from))?,
        }
    }
    Ok(())
}

/// Returns whether a file of a git directory belongs to a process.
fn is_temporary(name: &str) -> bool {
    name.ends_with(".lock") || name.starts_with("tmp_") || name.starts_with("incoming-")
}

fn collect(dir: &Path, paths: &mut Vec<PathBuf>) -> Result<(), GitError> {
    for entry in fs::read_dir(dir).map_err(GitError::io("list", dir))? {
        let entry = entry.map_err(GitError::io("list", dir))?;
        match entry.file_type().map_err(GitError::io("inspect", dir))? {
            kind if kind.is_dir() => collect(&entry.path(), paths)?,
            kind if kind.is_file() => paths.push(entry.path()),
            _ => {}
        }
    }
    paths.push(dir.to_owned());
    Ok(())
}

fn make_parents(git_dir: &Path, path: &Path) -> Result<(), GitError> {
    let above = path.ancestors().skip(1);
    let mut missing: Vec<&Path> = above
        .take_while(|dir| *dir != git_dir && !dir.is_dir())
        .collect();
    missing.reverse();
    missing.into_iter().try_for_each(make_dir)
}

fn make_dir(path: &Path) -> Result<(), GitError> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(GitError::io("create", path)(error))
        }
        _ => Ok(()),
    }
}

fn write_new(path: &Path, content: &[u8]) -> Result<(), GitError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    options
        .open(path)
        .and_then(|mut file| file.write_all(content))
        .map_err(GitError::io("write", path))
}

fn replace(path: &Path, content: &[u8]) -> Result<(), GitError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(GitError::io("remove", path)(error))
        }
        _ => write_new(path, content),
    }
}
