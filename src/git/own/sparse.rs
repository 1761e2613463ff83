//! Sparse checkouts, which a fork keeps when it is converted.

use std::fs;
use std::path::Path;

use super::dir::{Found, OwnDir};
use super::point::replace;
use super::settings::SPARSE_KEYS;
use super::settings::text::{Setting, append, parse};
use crate::monitor::{CONFIG_NAME, may_read_own_config};
use crate::{GitError, Repository, Worktree};

/// File with the paths that are checked out.
const PATTERNS: &str = "info/sparse-checkout";

/// Maximum bytes of a configuration or of [`PATTERNS`].
const MAX_BYTES: u64 = 16 << 20;

/// Gives the worktree `to` the sparse checkout of `from`.
///
/// It gets a full one if `from` has that. One of them has a git directory of its own, the other is
/// a linked worktree.
///
/// # Errors
/// [`GitError::Io`] if a file cannot be read or written, [`GitError::NoWorktreeConfig`] if a
/// linked worktree cannot have settings of its own.
pub fn carry_sparse(
    repository: &Repository,
    from: &Worktree,
    to: &Worktree,
) -> Result<(), GitError> {
    let (source, target) = (OwnDir::open(from.git_dir())?, OwnDir::open(to.git_dir())?);
    let wanted = sparse_settings(&source, from.is_own());
    let found = sparse_settings(&target, to.is_own());
    let ([is_sparse, ..], [was_sparse, ..]) = (wanted, found);
    if !is_sparse && !was_sparse {
        return Ok(());
    }
    if !to.is_own() && !may_read_own_config(repository)? {
        return Err(GitError::NoWorktreeConfig);
    }
    if is_sparse && let Found::Good(patterns) = source.read(Path::new(PATTERNS), MAX_BYTES) {
        let path = to.git_dir().join(PATTERNS);
        let dir = to.git_dir().join("info");
        fs::create_dir_all(&dir).map_err(GitError::io("create", &dir))?;
        replace(&path, &patterns)?;
    }
    if wanted == found {
        return Ok(());
    }
    let name = if has_own_config(&target, to.is_own()) {
        CONFIG_NAME
    } else {
        "config"
    };
    let mut text = read(&target, name);
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    // The last setting of a key counts.
    for (key, value) in SPARSE_KEYS.iter().zip(wanted) {
        let value = if value { "true" } else { "false" };
        let setting = Setting {
            key: key.to_vec(),
            value: Some(value.as_bytes().to_vec()),
        };
        if !append(&mut text, &setting) {
            log::warn!("a setting of the sparse checkout is left out: no file can hold it");
        }
    }
    replace(&to.git_dir().join(name), &text)
}

/// Reads the settings [`SPARSE_KEYS`] of a git directory.
fn sparse_settings(dir: &OwnDir, is_own: bool) -> [bool; 3] {
    let mut found = [false; 3];
    let own_config = has_own_config(dir, is_own).then_some(CONFIG_NAME);
    let files = is_own.then_some("config").into_iter().chain(own_config);
    for setting in files.flat_map(|name| parse(&read(dir, name)).0) {
        let place = SPARSE_KEYS.iter().position(|key| *key == &setting.key[..]);
        if let Some(value) = place.and_then(|place| found.get_mut(place)) {
            *value = is_on(setting.value.as_deref());
        }
    }
    found
}

/// Returns whether git reads [`CONFIG_NAME`] in the git directory.
fn has_own_config(dir: &OwnDir, is_own: bool) -> bool {
    let settings = || parse(&read(dir, "config")).0.into_iter();
    let extensions = || settings().filter(|one| one.key == b"extensions.worktreeconfig");
    !is_own
        || extensions()
            .next_back()
            .is_some_and(|one| is_on(one.value.as_deref()))
}

/// Returns whether git takes a value for true. A key without one is true.
fn is_on(value: Option<&[u8]>) -> bool {
    let Some(value) = value else {
        return true;
    };
    let is_word = |word: &&str| value.eq_ignore_ascii_case(word.as_bytes());
    ["true", "yes", "on", "1"].iter().any(is_word)
}

fn read(dir: &OwnDir, name: &str) -> Vec<u8> {
    match dir.read(Path::new(name), MAX_BYTES) {
        Found::Good(content) => content,
        Found::Missing | Found::Invalid(_) => Vec::new(),
    }
}
