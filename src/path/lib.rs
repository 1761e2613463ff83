//! Validated names and paths.
//!
//! A name is bytes, as in Linux and git: UTF-8 is never assumed. Names and paths from a tree, the
//! kernel or a user are converted to these types first. The code below need not check again for
//! `..`, empty components or NUL bytes.

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

/// Name of the repository, or of the file that points to it.
///
/// It is at a checkout's root. No tree contains it.
pub const DOT_GIT: &[u8] = b".git";

/// Removes `.` and `..` components from an absolute path.
///
/// Each `..` removes the component before it, also if that is a symlink: no file system is read.
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

/// Reason why bytes are not a valid name or path.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum PathError {
    /// The name is empty.
    #[error("a name may not be empty")]
    Empty,
    /// The name is longer than [`NAME_MAX`].
    #[error("the name is longer than {NAME_MAX} bytes")]
    TooLong,
    /// The name is `.` or `..`.
    #[error("{name:?} is not a valid name inside a directory", name = String::from_utf8_lossy(.0))]
    Reserved(Vec<u8>),
    /// The name contains `/` or NUL.
    #[error("the name {name:?} holds a slash or a NUL byte", name = String::from_utf8_lossy(.0))]
    ForbiddenByte(Vec<u8>),
    /// The path is absolute or contains `..`.
    #[error("the path {0} is absolute or leads out of the fork")]
    Outside(PathBuf),
}

/// One component of a path.
///
/// It has 1 to 255 bytes, contains neither `/` nor NUL, and is neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "serde_bytes::ByteBuf", into = "serde_bytes::ByteBuf")]
pub struct EntryName(Box<[u8]>);

impl EntryName {
    /// Validates `name`.
    ///
    /// # Errors
    /// [`PathError`] if `name` is not a valid component; never [`PathError::Outside`].
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

    /// Returns the name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the name as an [`OsStr`].
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// Returns [`DOT_GIT`] as a name.
    pub fn dot_git() -> EntryName {
        EntryName(DOT_GIT.into())
    }

    /// Returns true if the name is [`DOT_GIT`].
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

/// Path relative to the root of a fork or tree: names joined by `/`.
///
/// The path of the root itself is empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "serde_bytes::ByteBuf", into = "serde_bytes::ByteBuf")]
pub struct RepoPath(Vec<u8>);

impl RepoPath {
    /// Returns the path of the root directory, which is empty.
    pub fn root() -> RepoPath {
        RepoPath::default()
    }

    /// Validates a relative path.
    ///
    /// Repeated and trailing slashes and `.` components are dropped.
    ///
    /// # Errors
    /// [`PathError::Outside`] if the path starts with a slash or contains `..`, another
    /// [`PathError`] if a component is not a valid name.
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

    /// Returns the path's bytes, without a slash at either end.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the path is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the path is the root's `.git` or below it.
    ///
    /// Such a path is in no changeset.
    pub fn is_in_dot_git(&self) -> bool {
        self.components()
            .next()
            .is_some_and(|name| name.is_dot_git())
    }

    /// Returns the path of `name` in this directory.
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

    /// Returns the directories above the path, nearest first, without the root.
    pub fn directories_above(&self) -> impl Iterator<Item = RepoPath> {
        let above = |path: &RepoPath| Some(path.split_last()?.0).filter(|dir| !dir.is_root());
        std::iter::successors(above(self), move |dir| above(dir))
    }

    /// Splits the path into its parent directory and its last component.
    ///
    /// `None` for the root.
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

    /// Returns the components from the root downwards.
    pub fn components(&self) -> impl Iterator<Item = EntryName> + '_ {
        self.0
            .split(|&b| b == b'/')
            .filter(|c| !c.is_empty())
            .map(|c| EntryName(c.into()))
    }

    /// Returns true if the path is `ancestor` or below it.
    pub fn starts_with(&self, ancestor: &RepoPath) -> bool {
        ancestor.is_root()
            || self
                .0
                .strip_prefix(ancestor.0.as_slice())
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// Returns the path as a relative [`Path`]; empty for the root.
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
