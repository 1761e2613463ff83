//! Lookup of nodes by number alone, for `open_by_handle_at(2)` and NFS servers.
//!
//! Such a handle outlives the kernel's memory of the node. A layer knows its nodes by number. A
//! base node's number is a hash of its path; one that the kernel has forgotten is searched for in
//! the whole view. Carried nodes have no durable handle.

use super::error::FsError;
use super::fs::{FoundNode, NodePlace, ViewState, Workspace};
use tine_attr::{Attr, FileKind, Ino};
use tine_git::nonblocking;

impl Workspace {
    /// Returns the attributes of the node `ino` and counts one lookup.
    ///
    /// May walk the whole view.
    ///
    /// # Errors
    /// [`FsError::Stale`] if no name leads to the node. [`FsError::Base`] with
    /// `GitError::TakesLong` on a nonblocking thread if the view must be walked.
    pub fn lookup_number(&self, ino: Ino) -> Result<Attr, FsError> {
        {
            let state = self.read_state();
            match self.find(&state, ino) {
                Ok(found) => return self.found_by_number(&state, &found),
                Err(FsError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        nonblocking::check()?;
        let mut open = vec![self.find(&self.read_state(), Ino::ROOT)?];
        while let Some(dir) = open.pop() {
            let state = self.read_state();
            let entries = match self.entries(&state, &dir) {
                // The directory was removed meanwhile.
                Err(FsError::Stale | FsError::NotADirectory) => continue,
                entries => entries?,
            };
            for (name, kind, number) in entries {
                if number != ino && kind != FileKind::Directory {
                    continue;
                }
                let Some(child) = self.child(&state, &dir, name.as_bytes())? else {
                    continue;
                };
                match &child.place {
                    NodePlace::Carried(_) => {}
                    _ if number == ino => return self.found_by_number(&state, &child),
                    _ => open.push(child),
                }
            }
        }
        Err(FsError::Stale)
    }

    fn found_by_number(&self, state: &ViewState, found: &FoundNode) -> Result<Attr, FsError> {
        let attr = self.attr(state, found)?;
        if attr.nlink == 0 {
            return Err(FsError::Stale);
        }
        self.remember(found)?;
        Ok(attr)
    }

    /// Returns the number of the directory that holds the directory `ino`.
    ///
    /// # Errors
    /// [`FsError::Stale`] if no node has the number, [`FsError::NotADirectory`] if it is not a
    /// directory's.
    pub fn number_of_parent(&self, ino: Ino) -> Result<Ino, FsError> {
        let state = self.read_state();
        let dir = self.find_dir(&state, ino)?;
        self.parent_of(&state, &dir)
    }
}
