//! A fork's former git directory: the own one of a fork that is a linked worktree now.
//!
//! It stays in the fork's directory of the store, with all but the objects that were taken over. A
//! conversion back takes it into use again. What it names is kept by the same refs as before, so
//! nothing in it has to change meanwhile.

use std::path::{Path, PathBuf};

use super::dir::{Found, OwnDir};
use super::settings::own_in;
use super::tips::{OwnTip, OwnTipKind, kept_tips, own_tips};
use crate::refs::read_if_there;
use crate::{GitError, Repository, Worktree};

/// Maximum bytes of a file that is compared.
const MAX_COMPARED_BYTES: u64 = 16 << 20;

/// Returns the path of a fork's former git directory.
pub fn former_dir_of(common_dir: &Path, fork: &str) -> PathBuf {
    common_dir.join("tine/forks").join(fork).join("former-git")
}

/// Lists the names of a fork's former git directory.
///
/// For a linked worktree, which was a repository of its own before.
///
/// # Errors
/// [`GitError::Library`] if refs cannot be listed, [`GitError::Io`] if the former git directory
/// cannot be opened.
fn former_tips(main: &Repository, fork: &str) -> Result<Vec<OwnTip>, GitError> {
    let dir = former_dir_of(main.common_dir(), fork);
    let mut tips = if dir.is_dir() {
        own_tips(main, &dir)?
    } else {
        Vec::new()
    };
    // An older tine has removed the directory.
    for tip in kept_tips(main, fork)? {
        if tips.iter().all(|known| known.id != tip.id) {
            tips.push(tip);
        }
    }
    Ok(tips)
}

/// Lists what the git directory of a fork names.
///
/// For a linked worktree, that is what it named when it was a repository of its own.
///
/// # Errors
/// [`GitError::Library`] if refs cannot be listed, [`GitError::Io`] if the git directory cannot be
/// opened.
pub fn tips_of(
    main: &Repository,
    fork: &str,
    worktree: &Worktree,
) -> Result<Vec<OwnTip>, GitError> {
    if worktree.is_own() {
        own_tips(main, worktree.git_dir())
    } else {
        former_tips(main, fork)
    }
}

/// Lists parts of an own git directory that a linked worktree lacks.
///
/// `config` is the configuration that a new fork would get. Parts as they would be there are left
/// out.
///
/// # Errors
/// [`GitError::Io`] if a file cannot be read.
pub fn parts_of_its_own(
    main: &Repository,
    own: &Path,
    config: &[u8],
) -> Result<Vec<&'static str>, GitError> {
    let dir = OwnDir::open(own)?;
    let read = |path: &str| match dir.read(Path::new(path), MAX_COMPARED_BYTES) {
        Found::Good(content) => content,
        Found::Missing | Found::Invalid(_) => Vec::new(),
    };
    let mut parts = Vec::new();
    let set = [read("config"), read("config.worktree")].concat();
    if own_in(&set, config) {
        parts.push("config");
    }
    let hooks = dir.list(Path::new("hooks"));
    if hooks.iter().any(|(name, _)| !name.ends_with(b".sample")) {
        parts.push("hooks");
    }
    for name in ["info/exclude", "info/attributes"] {
        let of_main = read_if_there(&main.common_dir().join(name))?;
        if read(name) != of_main.unwrap_or_default() {
            parts.push(name);
        }
    }
    if !dir.list(Path::new("lfs/objects")).is_empty() {
        parts.push("lfs");
    }
    let tips = own_tips(main, own)?;
    let is_own_ref = |tip: &OwnTip| {
        let is_shared = main.target_of(&tip.name).is_ok_and(|id| id == Some(tip.id));
        tip.kind == OwnTipKind::Ref && tip.name != "refs/stash" && !is_shared
    };
    if tips.iter().any(is_own_ref) {
        parts.push("branches and tags");
    }
    if tips
        .iter()
        .any(|tip| matches!(tip.kind, OwnTipKind::Stash { .. }))
    {
        parts.push("stash");
    }
    Ok(parts)
}
