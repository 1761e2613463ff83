//! The git directory that the mount of a fork shows as `.git`.
//!
//! It is an overlay. The upper part is the fork's own git directory, a directory of the host to
//! which all changes go. The lower part is what the main repository lends, which cannot be changed
//! from here:
//!
//! | path in `.git` | what is lent |
//! |---|---|
//! | `refs/…` except `refs/tine`, `refs/stash` and the refs of one worktree | branches, tags and remote branches, as they are now |
//! | `packed-refs` | the main repository's packed refs, merged with the fork's own |
//! | `hooks/…` | hooks; a change makes a copy |
//! | `lfs/…`, `shallow` | large files, and where history ends |
//! | `tine/objects`, `tine/objects-1` … | objects, for `objects/info/alternates` |
//! | `objects/.git/tine/…` | the same once more, not listed |
//!
//! A program that reaches the host's files by their paths gets symlinks to the directories of
//! objects.
//!
//! `tine/fork`, `tine/config` and `tine/changed/<token>` are computed.
//!
//! A ref that the fork writes is its own from then on, and hides the main repository's. A lent name
//! that is removed is hidden (`tine/hidden` on the host). A ref of the fork also shadows lent ones
//! whose names git forbids beside it ([`conflicts`]).
//!
//! What is the fork's own is cached by the kernel without limit. After a change of those files on
//! the host, [`GitDirectory::resync`] makes the kernel forget them. What is lent is never cached,
//! except the names of directories of objects.
//!
//! No call follows a symlink on the host. In an untrusted fork, [`guarding`] refuses what would
//! make git run a program.

mod conflicts;
mod contents;
mod guarded;
pub mod guarding;
mod layout;
mod listing;
mod lookups;
mod names;
mod nodes;
mod packed;
mod refs;
mod resync;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use tine_attr::{Attr, FileKind, Ino};
use tine_sys::beneath;

use crate::guarding::Refusals;
use crate::nodes::State;
use crate::packed::PackedCache;

pub use crate::nodes::is_git_node;

/// Change that a program made in the git directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitChange {
    /// HEAD or another ref moved, or went.
    Refs,
    /// The index was replaced.
    Index,
    /// A program wants a lock, and the kernel knows an older file.
    Outdated,
}

/// Computes the answer for a token of git's file system monitor.
pub type AnswerChanged = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// Returns the configuration that the main repository lends.
pub type SharedSettings = Arc<dyn Fn() -> Option<Vec<u8>> + Send + Sync>;

/// Receives changes. It must not block.
pub type Observer = Arc<dyn Fn(GitChange) + Send + Sync>;

/// Functions of the owner of a git directory.
#[derive(Clone, Default)]
pub struct Callbacks {
    /// Answers `tine/changed/<token>`.
    pub changed: Option<AnswerChanged>,
    /// Answers `tine/config`.
    pub settings: Option<SharedSettings>,
    /// Hears of changes.
    pub observer: Option<Observer>,
}

/// A fork's git directory, as its mount shows it.
///
/// Any thread may call any method. An error has the errno for the program.
pub struct GitDirectory {
    /// The fork's own git directory.
    own: Arc<File>,
    /// Directories that the main repository lends: first its git directory, then the object
    /// directories from which it borrows.
    lent: Vec<File>,
    /// Content of `tine/fork`.
    identity: Arc<[u8]>,
    callbacks: RwLock<Callbacks>,
    /// Refusals, if the fork is not trusted. Immutable.
    refusals: Option<Arc<Refusals>>,
    state: Mutex<State>,
    packed: Mutex<PackedCache>,
}

/// Result of looking up a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookedUp {
    /// Attributes; `None` if the name is missing.
    pub attr: Option<Attr>,
    /// True if the kernel may cache the name.
    pub keeps_name: bool,
    /// True if the kernel may cache the attributes.
    pub keeps_attr: bool,
}

impl LookedUp {
    /// A name that is missing, which the kernel must not cache.
    pub(crate) const MISSING: LookedUp = LookedUp {
        attr: None,
        keeps_name: false,
        keeps_attr: false,
    };
}

/// One entry of a listing.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Name, without a slash.
    pub name: Vec<u8>,
    /// Inode number, or another number if the node is not known yet.
    pub ino: Ino,
    /// File type.
    pub kind: FileKind,
    /// Position at which a listing continues after this entry.
    pub cookie: u64,
}

impl GitDirectory {
    /// Opens the git directory `own` of the fork `fork`.
    ///
    /// `main` is the main repository's common directory, `borrowed` the object directories that it
    /// borrows from.
    ///
    /// # Errors
    /// The error of opening a directory or of reading the list of hidden names.
    pub fn open(
        own: &Path,
        main: &Path,
        borrowed: &[PathBuf],
        fork: &str,
    ) -> io::Result<GitDirectory> {
        let top = Arc::new(beneath::open_top(own)?);
        let mut lent = vec![beneath::open_top(main)?];
        for dir in borrowed {
            lent.push(beneath::open_top(dir)?);
        }
        let mut identity = main.as_os_str().as_encoded_bytes().to_vec();
        identity.extend_from_slice(format!("\n{fork}\n").as_bytes());
        let objects = std::iter::once(main.join("objects")).chain(borrowed.iter().cloned());
        let links = objects.map(|dir| Arc::from(dir.into_os_string().into_encoded_bytes()));
        let directory = GitDirectory {
            state: Mutex::new(State::new(top.clone(), refs::read_hidden(&top)?, links)),
            own: top,
            lent,
            identity: identity.into(),
            callbacks: RwLock::default(),
            refusals: None,
            packed: Mutex::default(),
        };
        directory.adopt_heads()?;
        Ok(directory)
    }

    /// Guards the directory, if there are refusals: the fork is untrusted.
    #[must_use]
    pub fn guarded_by(mut self, refusals: Option<Arc<Refusals>>) -> GitDirectory {
        self.refusals = refusals;
        self
    }

    /// Returns the refusals, if the fork is not trusted.
    pub fn refusals(&self) -> Option<&Arc<Refusals>> {
        self.refusals.as_ref()
    }

    /// Sets what the owner answers.
    pub fn set_callbacks(&self, callbacks: Callbacks) {
        *self.callbacks.write() = callbacks;
    }

    /// Returns the root directory.
    pub fn root(&self) -> Ino {
        nodes::ROOT
    }

    /// Tells the observer of a change at a path.
    fn observe(&self, path: &[u8]) {
        if let Some(change) = layout::change_at(path) {
            self.tell(change);
        }
    }

    fn tell(&self, change: GitChange) {
        let observer = self.callbacks.read().observer.clone();
        if let Some(observer) = observer {
            observer(change);
        }
    }
}

/// Makes the error of a system call.
pub(crate) fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// Returns whether nothing is at a name.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}
