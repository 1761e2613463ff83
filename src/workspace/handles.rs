//! Nodes that are asked for by number alone: what `open_by_handle_at(2)` and an NFS server need,
//! whose handles outlive what the kernel remembers.
//!
//! A layer knows its nodes by number. A base node's number is a hash of its path, so one that the
//! kernel has forgotten is searched for in the whole view. What is carried has no handle that
//! lasts.

use super::error::FsError;
use super::fs::{Found, Place, State, Workspace};
use tine_attr::{Attr, FileKind, Ino};
use tine_git::nonblocking;

impl Workspace {
    /// The attributes of the node `ino`, which counts as looked up once; [`FsError::Stale`] where
    /// no name leads to it.
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
                // It went meanwhile.
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
                    Place::Carried(_) => {}
                    _ if number == ino => return self.found_by_number(&state, &child),
                    _ => open.push(child),
                }
            }
        }
        Err(FsError::Stale)
    }

    fn found_by_number(&self, state: &State, found: &Found) -> Result<Attr, FsError> {
        let attr = self.attr(state, found)?;
        if attr.nlink == 0 {
            return Err(FsError::Stale);
        }
        self.remember(found)?;
        Ok(attr)
    }

    /// The number of the directory that holds the directory `ino`.
    pub fn number_of_parent(&self, ino: Ino) -> Result<Ino, FsError> {
        let state = self.read_state();
        let dir = self.find_dir(&state, ino)?;
        self.parent_of(&state, &dir)
    }
}
