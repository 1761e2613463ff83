//! Paths in a git directory: what is lent, what is computed, and what changes mean.

use crate::GitChange;

/// Directory of what tine computes and lends.
pub(crate) const TINE: &[u8] = b"tine";

/// Directory of answers for git's file system monitor.
pub(crate) const CHANGED: &[u8] = b"tine/changed";

/// Directory in `objects` through which the lent objects are found, too.
///
/// `objects/info/alternates` names them as `.git/tine/objects`. git reads that from `objects`, and
/// git-lfs from the current directory.
pub(crate) const ALIAS: &[u8] = b"objects/.git";

/// The alias of [`TINE`].
pub(crate) const ALIAS_OF_TINE: &[u8] = b"objects/.git/tine";

/// Directory of the git directories of the fork's worktrees.
pub(crate) const WORKTREES: &[u8] = b"worktrees";

pub(crate) const PACKED_REFS: &[u8] = b"packed-refs";

pub(crate) const PACKED_LOCK: &[u8] = b"packed-refs.lock";

/// Refs below `refs/` that belong to one repository or worktree.
const OWN_REFS: [&[u8]; 5] = [
    b"refs/tine",
    b"refs/worktree",
    b"refs/bisect",
    b"refs/rewritten",
    b"refs/stash",
];

/// File or directory that is lent: the number of the directory, and the path there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lent {
    /// Index in the list of lent directories.
    pub top: usize,
    /// Path in it.
    pub path: Vec<u8>,
}

/// Permission to change a part of the git directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    /// Lent files can be replaced and hidden.
    Open,
    /// Lent files are copied when they are changed.
    Copied,
    /// Nothing can be changed.
    Fixed,
}

/// Returns whether a path is the fork's HEAD, or its worktree's.
pub(crate) fn is_head(path: &[u8]) -> bool {
    in_worktree(path).unwrap_or(path) == b"HEAD"
}

/// Returns the zone of a path.
pub(crate) fn zone(path: &[u8]) -> Zone {
    if is_at_or_below(path, TINE) || is_at_or_below(path, ALIAS) {
        Zone::Fixed
    } else if is_at_or_below(path, b"hooks") {
        Zone::Copied
    } else {
        Zone::Open
    }
}

/// Returns where the main repository has what it lends at `path`.
pub(crate) fn lent(path: &[u8]) -> Option<Lent> {
    let of_main = |path: &[u8]| {
        Some(Lent {
            top: 0,
            path: path.to_vec(),
        })
    };
    let path = without_alias(path);
    if let Some(name) = path.strip_prefix(b"tine/")
        && name.starts_with(b"objects")
    {
        let (name, rest) = match name.iter().position(|&byte| byte == b'/') {
            Some(slash) => (&name[..slash], &name[slash + 1..]),
            None => (name, &b""[..]),
        };
        let top = objects_number(name)?;
        let path = match (top, rest) {
            // The mount shows those directories beside this one.
            (_, b"info/alternates") => return None,
            (0, b"") => b"objects".to_vec(),
            (0, _) => [b"objects/", rest].concat(),
            _ => rest.to_vec(),
        };
        return Some(Lent { top, path });
    }
    if is_ref(path) {
        // A lock belongs to a process of the main repository.
        let is_lent = !is_own_ref(path) && !path.ends_with(b".lock");
        return if is_lent { of_main(path) } else { None };
    }
    let is_lent =
        is_at_or_below(path, b"hooks") || is_at_or_below(path, b"lfs") || path == b"shallow";
    if is_lent { of_main(path) } else { None }
}

/// Returns the path that a path through [`ALIAS`] stands for.
fn without_alias(path: &[u8]) -> &[u8] {
    match path.strip_prefix(ALIAS) {
        Some([b'/', rest @ ..]) => rest,
        _ => path,
    }
}

/// Returns the lent directory whose objects have this name in `tine`.
pub(crate) fn objects_number(name: &[u8]) -> Option<usize> {
    match name.strip_prefix(b"objects")? {
        b"" => Some(0),
        rest => {
            let number = std::str::from_utf8(rest.strip_prefix(b"-")?).ok()?;
            number.parse().ok().filter(|top| *top > 0)
        }
    }
}

/// Returns whether the kernel may cache the name of a lent directory.
///
/// The directories of objects have the same names in every repository. In one that is gone,
/// nothing is found.
pub(crate) fn is_steady(path: &[u8]) -> bool {
    let path = without_alias(path);
    path.starts_with(b"tine/objects") && split(path).0 != TINE
}

/// Returns whether the path is `refs` or below it.
pub(crate) fn is_ref(path: &[u8]) -> bool {
    is_at_or_below(path, b"refs")
}

/// Returns whether a ref belongs to one repository or worktree.
pub(crate) fn is_own_ref(path: &[u8]) -> bool {
    OWN_REFS.iter().any(|own| is_at_or_below(path, own))
}

/// Returns the kind of a change at `path`, for the observer.
pub(crate) fn change_at(path: &[u8]) -> Option<GitChange> {
    if path == b"index" {
        return Some(GitChange::Index);
    }
    if path.ends_with(b".lock") {
        return None;
    }
    // Where history ends decides what refs need.
    let is_ref =
        |path: &[u8]| matches!(path, b"HEAD" | b"shallow") || path == PACKED_REFS || is_ref(path);
    let is_change = is_ref(path) || in_worktree(path).is_some_and(is_ref);
    is_change.then_some(GitChange::Refs)
}

/// Returns the rest of a path below `worktrees/<worktree>/`.
fn in_worktree(path: &[u8]) -> Option<&[u8]> {
    let path = path.strip_prefix(WORKTREES)?.strip_prefix(b"/")?;
    let slash = path.iter().position(|&byte| byte == b'/')?;
    path.get(slash.checked_add(1)?..)
}

/// Returns whether `path` is `dir` or below it.
pub(crate) fn is_at_or_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Joins a directory's path and a name.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}

/// Splits a path into its directory and name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}
