//! Inode numbers of base nodes.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use tine_attr::Ino;
use tine_path::{EntryName, RepoPath};

/// Hasher that gives base nodes their inode numbers.
///
/// A number is a keyed hash of the base path. It is the same in every fork of a store and after
/// every remount. Each store has its own key, so that a repository cannot be crafted to make
/// numbers collide.
#[derive(Clone)]
pub struct InoHasher {
    keyed: SipHasher13,
}

impl InoHasher {
    /// Creates a hasher with the store's key.
    pub fn new(key: [u8; 16]) -> InoHasher {
        InoHasher {
            keyed: SipHasher13::new_with_key(&key),
        }
    }

    /// Returns the number of the node at `path`.
    ///
    /// It is [`Ino::ROOT`] for the root, and otherwise a hash with the top bit clear, above the
    /// reserved numbers.
    pub fn ino(&self, path: &RepoPath) -> Ino {
        if path.is_root() {
            return Ino::ROOT;
        }
        let mut hasher = self.keyed;
        hasher.write(path.as_bytes());
        to_ino(hasher.finish())
    }

    /// Returns the number of one version of a file outside the base.
    ///
    /// The hash includes a NUL byte, which no base path contains, so it differs from every base
    /// node's hash input.
    pub fn version_ino(&self, path: &RepoPath, version: &[u64]) -> Ino {
        let mut hasher = self.keyed;
        hasher.write(path.as_bytes());
        hasher.write(b"\0");
        for part in version {
            hasher.write(&part.to_le_bytes());
        }
        to_ino(hasher.finish())
    }

    /// Returns a hasher for the entries of the directory at `path`.
    ///
    /// The directory's part of the hash is computed once.
    pub(super) fn in_dir(&self, path: &RepoPath) -> DirInos {
        let mut hasher = self.keyed;
        if !path.is_root() {
            hasher.write(path.as_bytes());
            hasher.write(b"/");
        }
        DirInos { prefix: hasher }
    }
}

/// Hasher for the entries of one directory.
pub(super) struct DirInos {
    prefix: SipHasher13,
}

impl DirInos {
    pub(super) fn ino(&self, name: &EntryName) -> Ino {
        let mut hasher = self.prefix;
        hasher.write(name.as_bytes());
        to_ino(hasher.finish())
    }
}

/// Maps a hash to a number that is not reserved.
///
/// Reserved are the top bit (nodes made in forks), 0 (never used), and the numbers of the root and
/// the trash.
fn to_ino(hash: u64) -> Ino {
    Ino((hash & !Ino::NEW_BIT).max(Ino::TRASH.0 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_path_and_key_alone() {
        let (one, other) = (InoHasher::new([1; 16]), InoHasher::new([2; 16]));
        let path = RepoPath::parse("a/b c/d").unwrap();
        let (parent, name) = path.split_last().unwrap();
        assert_eq!(one.ino(&path), one.in_dir(&parent).ino(&name));
        let top = RepoPath::parse("d").unwrap();
        assert_eq!(one.ino(&top), one.in_dir(&RepoPath::root()).ino(&name));
        assert_ne!(one.ino(&path), other.ino(&path));
        assert_ne!(one.ino(&path), one.ino(&parent));
        assert_eq!(one.ino(&RepoPath::root()), Ino::ROOT);
        assert!(!one.ino(&path).is_new());
        // Inode numbers are kept by forks: the function may never change.
        assert_eq!(one.ino(&path).0, 2_553_862_439_147_845_416);
    }

    #[test]
    fn reserved_numbers_are_never_given() {
        for hash in [0, 1, 2, Ino::NEW_BIT, Ino::NEW_BIT | 2] {
            assert_eq!(to_ino(hash), Ino(3));
        }
        assert_eq!(to_ino(u64::MAX), Ino(u64::MAX >> 1));
    }
}
