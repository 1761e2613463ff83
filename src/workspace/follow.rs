//! Read access to a fork by path: following symlinks, listing, reading.
//!
//! A path is followed before anything is locked for a change, and the result has no symlinks on its
//! way. If a symlink replaces a directory in between, the operation finds no directory there and
//! fails.

use std::collections::VecDeque;

use super::error::{FsError, OperationError};
use super::fs::{NodePlace, Workspace};
use tine_attr::{Attr, FileKind};
use tine_path::{EntryName, RepoPath};

/// Maximum number of symlinks on one path, as in Linux.
const SYMLINKS_MAX: u32 = 40;

/// Size of the pieces in which files are read, in bytes.
const READ_CHUNK: usize = 1 << 20;

/// Treatment of a symlink at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalComponent {
    /// Follows it.
    Follow,
    /// Uses the symlink itself.
    Keep,
}

/// Path of a fork, with its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathNode {
    /// Path, without symlinks on its way.
    pub path: RepoPath,
    /// Attributes of the node.
    pub attr: Attr,
    /// Target; `None` unless the node is a symlink.
    pub link_target: Option<Vec<u8>>,
}

/// Components that are still to be followed. `..` comes from symlinks only.
type RestOfPath = VecDeque<Vec<u8>>;

fn push_front(rest: &mut RestOfPath, target: &[u8]) {
    for name in target.split(|&b| b == b'/').rev() {
        if !matches!(name, b"" | b".") {
            rest.push_front(name.to_vec());
        }
    }
}

impl Workspace {
    /// Returns the same place, without symlinks on the way.
    ///
    /// If a component is missing, the rest of the path stays as it is.
    ///
    /// # Errors
    /// [`OperationError::LeadsOut`], [`OperationError::SymlinkLoop`],
    /// [`OperationError::NotADirectory`]; [`OperationError::Fs`] if the file system fails.
    pub fn follow(
        &self,
        path: &RepoPath,
        last: FinalComponent,
    ) -> Result<RepoPath, OperationError> {
        let mut rest: RestOfPath = path
            .components()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let mut reached = RepoPath::root();
        let mut followed = 0;
        while let Some(name) = rest.pop_front() {
            if name == b".." {
                reached = match reached.split_last() {
                    Some((parent, _)) => parent,
                    None => return Err(OperationError::LeadsOut(path.clone())),
                };
                continue;
            }
            let name =
                EntryName::new(&name).map_err(|error| OperationError::at(path)(error.into()))?;
            let next = reached.join(&name);
            let kind = match self.resolve(&next) {
                Ok(attr) => attr.kind,
                Err(FsError::NotFound) => {
                    let missing = next.clone();
                    reached = next;
                    for name in rest {
                        let name = EntryName::new(&name)
                            .map_err(|_| OperationError::NotFound(missing.clone()))?;
                        reached.push(&name);
                    }
                    return Ok(reached);
                }
                Err(error) => return Err(OperationError::at(&next)(error)),
            };
            match kind {
                FileKind::Symlink if !rest.is_empty() || last == FinalComponent::Follow => {
                    followed += 1;
                    if followed > SYMLINKS_MAX {
                        return Err(OperationError::SymlinkLoop(path.clone()));
                    }
                    let target = self.read_path(&next).map_err(OperationError::at(&next))?;
                    if target.first() == Some(&b'/') {
                        return Err(OperationError::LeadsOut(path.clone()));
                    }
                    push_front(&mut rest, &target);
                }
                FileKind::Directory => reached = next,
                _ if rest.is_empty() => reached = next,
                _ => return Err(OperationError::NotADirectory(next)),
            }
        }
        Ok(reached)
    }

    /// Returns the node at `path`.
    ///
    /// # Errors
    /// [`OperationError::NotFound`], and those of [`Workspace::follow`].
    pub fn node_at_path(
        &self,
        path: &RepoPath,
        last: FinalComponent,
    ) -> Result<PathNode, OperationError> {
        let path = self.follow(path, last)?;
        let attr = self.resolve(&path).map_err(OperationError::at(&path))?;
        self.path_node(path, attr)
    }

    fn path_node(&self, path: RepoPath, attr: Attr) -> Result<PathNode, OperationError> {
        let link_target = match attr.kind {
            FileKind::Symlink => Some(self.read_path(&path).map_err(OperationError::at(&path))?),
            _ => None,
        };
        Ok(PathNode {
            path,
            attr,
            link_target,
        })
    }

    /// Returns the entries of the directory at `path`, sorted.
    ///
    /// Returns any other node itself. Follows a symlink at the end. Leaves out the fork's `.git`.
    ///
    /// # Errors
    /// Those of [`Workspace::node_at_path`].
    pub fn list_at(&self, path: &RepoPath) -> Result<Vec<PathNode>, OperationError> {
        let node = self.node_at_path(path, FinalComponent::Follow)?;
        match node.attr.kind {
            FileKind::Directory => self.children(&node.path),
            _ => Ok(vec![node]),
        }
    }

    /// Returns everything below `path`, sorted.
    ///
    /// Returns a node that is not a directory itself. Follows a symlink at the start, but none
    /// below. Each directory is read at another time. Leaves out the fork's `.git`.
    ///
    /// # Errors
    /// Those of [`Workspace::node_at_path`].
    pub fn walk_at(&self, path: &RepoPath) -> Result<Vec<PathNode>, OperationError> {
        let node = self.node_at_path(path, FinalComponent::Follow)?;
        if node.attr.kind != FileKind::Directory {
            return Ok(vec![node]);
        }
        let mut found = Vec::new();
        let mut rest = vec![node.path.clone()];
        while let Some(dir) = rest.pop() {
            let children = match self.children(&dir) {
                // The directory was removed meanwhile.
                Err(OperationError::NotFound(_) | OperationError::NotADirectory(_))
                    if dir != node.path =>
                {
                    continue;
                }
                children => children?,
            };
            let is_dir = |node: &&PathNode| node.attr.kind == FileKind::Directory;
            rest.extend(children.iter().filter(is_dir).map(|node| node.path.clone()));
            found.extend(children);
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Returns the entries of the directory at `path`, sorted.
    ///
    /// Sizes and symlinks are read without a lock.
    fn children(&self, path: &RepoPath) -> Result<Vec<PathNode>, OperationError> {
        let failed = || OperationError::at(path);
        let (base_nodes, listed) = {
            let state = self.read_state();
            let dir = self.walk_dir(&state, path).map_err(failed())?;
            let entries = self.entries(&state, &dir).map_err(failed())?;
            let known = entries.into_iter().map(|(name, _, _)| {
                let child = self
                    .child(&state, &dir, name.as_bytes())?
                    .ok_or(FsError::Stale)?;
                let attr = match &child.place {
                    NodePlace::Base(_) => None,
                    NodePlace::Carried(node) => Some(node.attr),
                    NodePlace::Layer | NodePlace::BaseRoot => Some(self.attr(&state, &child)?),
                };
                Ok((path.join(&name), child, attr))
            });
            let listed: Vec<_> = known.collect::<Result<_, FsError>>().map_err(failed())?;
            (state.base.clone(), listed)
        };
        let mut nodes = Vec::with_capacity(listed.len());
        for (path, child, attr) in listed {
            if path.is_in_dot_git() {
                continue;
            }
            let attr = match (attr, &child.place) {
                (Some(attr), _) => attr,
                (None, NodePlace::Base(base)) => {
                    let attr = self.base_attr(&base_nodes, base);
                    attr.map_err(OperationError::at(&path))?
                }
                (None, NodePlace::Layer | NodePlace::Carried(_) | NodePlace::BaseRoot) => continue,
            };
            match self.path_node(path, attr) {
                Ok(node) => nodes.push(node),
                // The link was removed or replaced meanwhile.
                Err(OperationError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(nodes)
    }

    /// Passes the content of a regular file to `take`, in pieces.
    ///
    /// Follows symlinks. Returns the length.
    ///
    /// # Errors
    /// [`OperationError::IsADirectory`], [`OperationError::NotAFile`], those of
    /// [`Workspace::follow`] and of `take`.
    pub fn read_at<E: From<OperationError>>(
        &self,
        path: &RepoPath,
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let path = self.follow(path, FinalComponent::Follow)?;
        let found = self.lookup_path(&path).map_err(OperationError::at(&path))?;
        let read = self.read_held(&path, found.ino, take);
        self.forget(found.ino, 1);
        read
    }

    fn read_held<E: From<OperationError>>(
        &self,
        path: &RepoPath,
        ino: tine_attr::Ino,
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        match self.getattr(ino).map_err(OperationError::at(path))?.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(OperationError::IsADirectory(path.clone()).into()),
            _ => return Err(OperationError::NotAFile(path.clone()).into()),
        }
        let mut done = 0;
        loop {
            let piece = self
                .read(ino, done, READ_CHUNK)
                .map_err(OperationError::at(path))?;
            if piece.is_empty() {
                return Ok(done);
            }
            take(&piece)?;
            done += piece.len() as u64;
        }
    }
}
