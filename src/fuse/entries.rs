//! Directory entries for the kernel, and how long it may cache them.

use std::time::Duration;

use tine_attr::{Attr, FileKind, Ino};

/// Cache time of names (also missing ones) and attributes: unlimited.
///
/// The daemon invalidates everything that changes without the kernel's knowledge.
pub(super) const REMEMBER: Duration = Duration::from_secs(u32::MAX as u64);
/// Cache time of files of the main checkout.
///
/// They change without the daemon's knowledge.
pub(super) const REMEMBER_CARRIED: Duration = Duration::from_secs(1);
/// Result of looking up a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Attributes; `None` if the name is missing, which the kernel may cache.
    pub attr: Option<Attr>,
    /// Time for which the kernel may cache the name.
    pub name_ttl: Duration,
    /// Time for which the kernel may cache the attributes.
    pub attr_ttl: Duration,
    /// Generation of the inode number ([`super::generations`]).
    pub generation: u64,
}

impl Entry {
    /// Makes an entry of a name that may be carried.
    ///
    /// The attributes of a carried file belong to its inode number for good. A carried directory
    /// keeps its number when it changes.
    pub(super) fn new(attr: Option<Attr>, is_carried: bool) -> Entry {
        Entry {
            attr,
            name_ttl: ttl(is_carried),
            attr_ttl: ttl(is_carried && attr.is_some_and(|attr| attr.kind == FileKind::Directory)),
            generation: 0,
        }
    }
}

/// Returns the cache time for a name that may be carried.
pub(super) fn ttl(is_carried: bool) -> Duration {
    if is_carried {
        REMEMBER_CARRIED
    } else {
        REMEMBER
    }
}

impl From<Option<Attr>> for Entry {
    fn from(attr: Option<Attr>) -> Entry {
        Entry::new(attr, false)
    }
}

/// One entry of a directory listing, which includes `.` and `..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed<'a> {
    /// Name, without a slash.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: Ino,
    /// File type.
    pub kind: FileKind,
    /// Position at which a listing continues after this entry.
    pub cookie: u64,
    /// True if the main checkout may change the file.
    pub is_carried: bool,
    /// True if the name resolves differently for some processes.
    ///
    /// The kernel then asks whenever the name is used.
    pub is_shown: bool,
    /// Generation of the inode number, see [`Entry::generation`].
    pub generation: u64,
}

impl Listed<'_> {
    /// Makes the entry for `.` or `..`.
    pub(super) fn dot((name, ino, cookie): (&'static str, Ino, u64)) -> Listed<'static> {
        Listed {
            name: name.as_bytes(),
            ino,
            kind: FileKind::Directory,
            cookie,
            is_carried: false,
            is_shown: false,
            generation: 0,
        }
    }

    /// Returns the result of looking up this name.
    pub(super) fn entry(&self, attr: &Attr) -> Entry {
        let entry = Entry {
            generation: self.generation,
            ..Entry::new(Some(*attr), self.is_carried)
        };
        if self.is_shown {
            Entry {
                name_ttl: Duration::ZERO,
                ..entry
            }
        } else {
            entry
        }
    }
}

/// Caching mode of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// The mount's default.
    File,
    /// For immutable content, which the kernel may cache.
    Text,
}
