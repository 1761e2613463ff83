//! What names lead to, as the kernel is told, and how long it may remember that.

use std::time::Duration;

use tine_attr::{Attr, FileKind, Ino};

/// How long the kernel may remember names (also missing ones) and attributes: for good. Every
/// change that does not come through the kernel is announced to it.
pub(super) const REMEMBER: Duration = Duration::from_secs(u32::MAX as u64);
/// How long the kernel may remember what is the main checkout's: that changes without anybody
/// telling.
pub(super) const REMEMBER_CARRIED: Duration = Duration::from_secs(1);
/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// `None`: nothing is there, which the kernel may remember as well.
    pub attr: Option<Attr>,
    /// How long the kernel may remember what the name leads to.
    pub name_ttl: Duration,
    /// How long it may remember the attributes.
    pub attr_ttl: Duration,
    /// Which of the kernel's inodes of that number is meant ([`super::generations`]).
    pub generation: u64,
}

impl Entry {
    /// A name of which the workspace may say that it is carried. A file's attributes are those of
    /// its number; a directory keeps its number and changes.
    pub(super) fn new(attr: Option<Attr>, is_carried: bool) -> Entry {
        Entry {
            attr,
            name_ttl: ttl(is_carried),
            attr_ttl: ttl(is_carried && attr.is_some_and(|attr| attr.kind == FileKind::Directory)),
            generation: 0,
        }
    }
}

/// How long the kernel may remember what may be the main checkout's.
pub(super) fn ttl(is_carried: bool) -> Duration {
    match is_carried {
        true => REMEMBER_CARRIED,
        false => REMEMBER,
    }
}

impl From<Option<Attr>> for Entry {
    fn from(attr: Option<Attr>) -> Entry {
        Entry::new(attr, false)
    }
}

/// One entry of a directory, `.` and `..` among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed<'a> {
    pub name: &'a [u8],
    pub ino: Ino,
    pub kind: FileKind,
    /// Where a listing that ends after this entry goes on.
    pub cookie: u64,
    /// Whether the main checkout may change it.
    pub is_carried: bool,
    /// Whether it leads elsewhere for some: the kernel asks when it is used.
    pub is_shown: bool,
    /// As [`Entry::generation`].
    pub generation: u64,
}

impl Listed<'_> {
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

    pub(super) fn entry(&self, attr: &Attr) -> Entry {
        let entry = Entry {
            generation: self.generation,
            ..Entry::new(Some(*attr), self.is_carried)
        };
        match self.is_shown {
            true => Entry {
                name_ttl: Duration::ZERO,
                ..entry
            },
            false => entry,
        }
    }
}

/// What opening a file comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// As the mount opens its files.
    File,
    /// Its bytes never change: the kernel may keep them.
    Text,
}
