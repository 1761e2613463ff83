//! Validated names and paths.
//!
//! A name is bytes, as Linux and git have it: UTF-8 is never assumed. Whatever comes from a tree,
//! from the kernel or from a person becomes one of these types first, so that nothing below has to
//! check again for `..`, empty components or NUL bytes.

pub mod shell;
pub mod text;

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest file name in bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// At a checkout's root: its repository, or a file that leads there. No tree holds one.
pub const DOT_GIT: &[u8] = b".git";

/// An absolute path without `.` and `..`, taken literally: nothing is asked of any file system.
pub fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normalized.pop();
            }
            _ => normalized.push(component),
        }
    }
    normalized
}

/// Why bytes are no name or no path inside a fork.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum PathError {
    #[error("a name may not be empty")]
    Empty,
    #[error("the name is longer than {NAME_MAX} bytes")]
    TooLong,
    #[error("{name:?} is no name inside a directory", name = String::from_utf8_lossy(.0))]
    Reserved(Vec<u8>),
    #[error("the name {name:?} holds a slash or a NUL byte", name = String::from_utf8_lossy(.0))]
    ForbiddenByte(Vec<u8>),
    #[error("the path {0} is absolute or leads out of the fork")]
    Outside(PathBuf),
}

/// One component of a path: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "serde_bytes::ByteBuf", into = "serde_bytes::ByteBuf")]
pub struct EntryName(Box<[u8]>);

impl EntryName {
    /// Validates `name`.
    pub fn new(name: impl AsRef<[u8]>) -> Result<EntryName, PathError> {
        let name = name.as_ref();
        match name {
            b"" => Err(PathError::Empty),
            b"." | b".." => Err(PathError::Reserved(name.to_vec())),
            _ if name.len() > NAME_MAX => Err(PathError::TooLong),
            _ if name.contains(&b'/') || name.contains(&0) => {
                Err(PathError::ForbiddenByte(name.to_vec()))
            }
            _ => Ok(EntryName(name.into())),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// [`DOT_GIT`].
    pub fn dot_git() -> EntryName {
        EntryName(DOT_GIT.into())
    }

    pub fn is_dot_git(&self) -> bool {
        *self.0 == *DOT_GIT
    }
}

impl Borrow<[u8]> for EntryName {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl TryFrom<serde_bytes::ByteBuf> for EntryName {
    type Error = PathError;
    fn try_from(bytes: serde_bytes::ByteBuf) -> Result<EntryName, PathError> {
        EntryName::new(bytes.into_vec())
    }
}

impl From<EntryName> for serde_bytes::ByteBuf {
    fn from(name: EntryName) -> serde_bytes::ByteBuf {
        serde_bytes::ByteBuf::from(name.0.into_vec())
    }
}

/// A path inside a fork or a tree, relative to its root: names joined by `/`. The root itself is
/// empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "serde_bytes::ByteBuf", into = "serde_bytes::ByteBuf")]
pub struct RepoPath(Vec<u8>);

impl RepoPath {
    /// The root directory: the empty path.
    pub fn root() -> RepoPath {
        RepoPath::default()
    }

    /// Validates a relative path. Repeated and trailing slashes and `.` components are dropped;
    /// `..`, a leading slash and invalid names are refused.
    pub fn parse(path: impl AsRef<[u8]>) -> Result<RepoPath, PathError> {
        let path = path.as_ref();
        let outside = || PathError::Outside(PathBuf::from(OsStr::from_bytes(path)));
        if path.first() == Some(&b'/') {
            return Err(outside());
        }
        let mut parsed = RepoPath::root();
        for component in path.split(|&b| b == b'/') {
            match component {
                b"" | b"." => {}
                b".." => return Err(outside()),
                name => parsed.push(&EntryName::new(name)?),
            }
        }
        Ok(parsed)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is the link to the repository at the root, which is part of no changeset, or
    /// beneath it.
    pub fn is_in_dot_git(&self) -> bool {
        self.components()
            .next()
            .is_some_and(|name| name.is_dot_git())
    }

    /// This path with `name` below it.
    pub fn join(&self, name: &EntryName) -> RepoPath {
        let mut joined = RepoPath(Vec::with_capacity(self.0.len() + 1 + name.as_bytes().len()));
        joined.0.extend_from_slice(&self.0);
        joined.push(name);
        joined
    }

    /// Appends one component.
    pub fn push(&mut self, name: &EntryName) {
        if !self.0.is_empty() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(name.as_bytes());
    }

    /// The directories above the path, the nearest first, without the root.
    pub fn directories_above(&self) -> impl Iterator<Item = RepoPath> {
        let above = |path: &RepoPath| Some(path.split_last()?.0).filter(|dir| !dir.is_root());
        std::iter::successors(above(self), move |dir| above(dir))
    }

    /// The directory that holds this path's last component, and that component; `None` for the
    /// root.
    pub fn split_last(&self) -> Option<(RepoPath, EntryName)> {
        if self.is_root() {
            return None;
        }
        let (parent, name) = match self.0.iter().rposition(|&b| b == b'/') {
            Some(slash) => (&self.0[..slash], &self.0[slash + 1..]),
            None => (&self.0[..0], &self.0[..]),
        };
        Some((RepoPath(parent.to_vec()), EntryName(name.into())))
    }

    /// The components from the root downwards.
    pub fn components(&self) -> impl Iterator<Item = EntryName> + '_ {
        self.0
            .split(|&b| b == b'/')
            .filter(|c| !c.is_empty())
            .map(|c| EntryName(c.into()))
    }

    /// Whether this path is `ancestor` or lies beneath it.
    pub fn starts_with(&self, ancestor: &RepoPath) -> bool {
        ancestor.is_root()
            || self
                .0
                .strip_prefix(ancestor.0.as_slice())
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl fmt::Debug for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Display for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl TryFrom<serde_bytes::ByteBuf> for RepoPath {
    type Error = PathError;
    fn try_from(bytes: serde_bytes::ByteBuf) -> Result<RepoPath, PathError> {
        RepoPath::parse(bytes.into_vec())
    }
}

impl From<RepoPath> for serde_bytes::ByteBuf {
    fn from(path: RepoPath) -> serde_bytes::ByteBuf {
        serde_bytes::ByteBuf::from(path.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for bad in ["", ".", "..", "a/b", "a\0b"] {
            assert!(EntryName::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(EntryName::new([b'x'; 256]), Err(PathError::TooLong));
        assert!(
            EntryName::new([0xff; 255]).is_ok(),
            "a name need not be UTF-8"
        );
    }

    #[test]
    fn paths_are_normalised_and_stay_inside() {
        assert_eq!(RepoPath::parse("a//b/./c/").unwrap().as_bytes(), b"a/b/c");
        assert!(RepoPath::parse("").unwrap().is_root());
        for bad in ["/a", "a/../b", ".."] {
            assert!(
                matches!(RepoPath::parse(bad), Err(PathError::Outside(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn split_and_prefix() {
        let path = RepoPath::parse("a/b/c").unwrap();
        let (parent, name) = path.split_last().unwrap();
        assert_eq!(
            (parent.as_bytes(), name.as_bytes()),
            (&b"a/b"[..], &b"c"[..])
        );
        assert!(path.starts_with(&parent));
        assert!(
            !RepoPath::parse("ab")
                .unwrap()
                .starts_with(&RepoPath::parse("a").unwrap())
        );
    }
}
