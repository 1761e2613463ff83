//! Requests about a fork's own git directory.

use std::io;
use std::time::Duration;

use super::{Answer, Operations, Refusal};
use crate::counters::Operation;
use crate::entries::{Entry, Listed, REMEMBER};
use crate::errno::{self, Errno};
use tine_attr::{Attr, FileKind, Ino};
use tine_dotgit::{GitDirectory, LookedUp, is_git_node};
use tine_path::DOT_GIT;
use tine_workspace::Caller;

/// Position of `.git` in the listing of the fork's root: the last one.
pub(super) const LAST: u64 = i64::MAX as u64;

impl Operations {
    /// Returns the git directory if `ino` is one of its nodes.
    pub(super) fn git_node(&self, ino: Ino) -> Option<&GitDirectory> {
        self.git_dir.as_deref().filter(|_| is_git_node(ino))
    }

    /// Returns the git directory if this is its name.
    pub(super) fn git_root(&self, parent: Ino, name: &[u8]) -> Option<&GitDirectory> {
        let is_it = parent == Ino::ROOT && name == DOT_GIT;
        self.git_dir.as_deref().filter(|_| is_it)
    }

    /// Runs a request on the git directory, and counts it.
    pub(super) fn in_git<T>(
        &self,
        operation: Operation,
        ino: Ino,
        run: impl FnOnce() -> io::Result<T>,
    ) -> Answer<T> {
        self.call(operation, ino, |_| {
            run().map_err(|error| Refusal::Errno(errno::of_host(&error)))
        })
    }

    /// Answers a lookup of the git directory or in it.
    pub(super) fn lookup_in_git(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
    ) -> Option<Answer<Entry>> {
        if let Some(git) = self.git_root(parent, name) {
            return Some(self.in_git(Operation::Lookup, parent, || {
                let (attr, keeps) = git.getattr(git.root())?;
                Ok(Entry {
                    attr: Some(attr),
                    name_ttl: REMEMBER,
                    attr_ttl: ttl(keeps),
                    generation: 0,
                })
            }));
        }
        let git = self.git_node(parent)?;
        Some(self.in_git(Operation::Lookup, parent, || {
            let found = match name {
                b"." => git.lookup_number(parent)?,
                b".." => git.lookup_number(git.parent_of(parent)?)?,
                _ => match git.lookup_link(parent, name) {
                    Some(link) if self.host_view.is_of(caller) => link,
                    _ => git.lookup(parent, name)?,
                },
            };
            Ok(entry(&found))
        }))
    }

    /// Refuses to create, remove or replace the git directory itself.
    pub(super) fn refuse_git_root(&self, parent: Ino, name: &[u8], errno: Errno) -> Answer<()> {
        match self.git_root(parent, name) {
            Some(_) => Err(errno),
            None => Ok(()),
        }
    }

    /// Refuses a request across the border of the git directory.
    pub(super) fn refuse_across(&self, one: Ino, other: Ino) -> Answer<()> {
        if self.git_node(one).is_some() == self.git_node(other).is_some() {
            Ok(())
        } else {
            Err(Errno::EXDEV)
        }
    }

    /// Returns the git directory's entry in the fork's root.
    pub(super) fn listed_git_root(&self, ino: Ino, cookie: u64) -> Option<(Listed<'static>, Attr)> {
        let git = self.git_root(ino, DOT_GIT).filter(|_| cookie < LAST)?;
        let (attr, _) = git.getattr(git.root()).ok()?;
        let listed = Listed {
            name: DOT_GIT,
            ino: attr.ino,
            kind: FileKind::Directory,
            cookie: LAST,
            is_carried: false,
            is_shown: false,
            generation: 0,
        };
        Some((listed, attr))
    }
}

/// Returns the kernel's cache time.
pub(super) fn ttl(keeps: bool) -> Duration {
    if keeps { REMEMBER } else { Duration::ZERO }
}

/// Returns the entry of what was found.
pub(super) fn entry(found: &LookedUp) -> Entry {
    Entry {
        attr: found.attr,
        name_ttl: ttl(found.keeps_name),
        attr_ttl: ttl(found.keeps_attr),
        generation: 0,
    }
}

/// Returns a listed entry as the kernel gets it.
pub(super) fn listed(entry: &tine_dotgit::Listed, keeps: bool) -> Listed<'_> {
    Listed {
        name: &entry.name,
        ino: entry.ino,
        kind: entry.kind,
        cookie: entry.cookie,
        is_carried: false,
        is_shown: !keeps,
        generation: 0,
    }
}
