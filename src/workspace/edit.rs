//! One atomic step in the making: nodes and names as they shall be, committed as a single log record.

use super::error::FsError;
use super::fs::{Found, Place, State, Workspace};
use crate::attr::{FileKind, Ino, Timestamp};
use crate::layer::{Dentry, Node, Op};
use crate::path::EntryName;

/// Collects changes of nodes and names; nothing happens before [`Edit::commit`].
pub(super) struct Edit<'a> {
    workspace: &'a Workspace,
    pub state: &'a mut State,
    /// The time of everything in this step.
    pub now: Timestamp,
    nodes: Vec<(Ino, Node)>,
    drops: Vec<Ino>,
    names: Vec<Op>,
}

impl<'a> Edit<'a> {
    pub fn new(workspace: &'a Workspace, state: &'a mut State) -> Edit<'a> {
        Edit {
            workspace,
            state,
            now: Timestamp::now(),
            nodes: Vec::new(),
            drops: Vec::new(),
            names: Vec::new(),
        }
    }

    /// The node as it shall be, copied up where no layer has it yet.
    pub fn node_mut(&mut self, found: &Found) -> Result<&mut Node, FsError> {
        let position = match self.nodes.iter().position(|(ino, _)| *ino == found.ino) {
            Some(position) => position,
            None => {
                let node = self.workspace.node(self.state, found)?;
                self.nodes.push((found.ino, node));
                self.nodes.len() - 1
            }
        };
        Ok(&mut self.nodes[position].1)
    }

    /// A node that is made in this step; its number.
    pub fn new_node(&mut self, node: Node) -> Result<Ino, FsError> {
        let ino = self.state.stack.open_layer_mut().allocate_ino()?;
        self.nodes.push((ino, node));
        Ok(ino)
    }

    /// A name came to, or went from, the directory: its times change, and its links by those of subdirectories.
    pub fn touch_dir(&mut self, dir: &Found, links: i64) -> Result<(), FsError> {
        let now = self.now;
        let node = self.node_mut(dir)?;
        node.mtime = now;
        node.ctime = now;
        let nlink = i64::from(node.nlink).saturating_add(links).max(2);
        node.nlink = u32::try_from(nlink).map_err(|_| FsError::TooManyLinks)?;
        Ok(())
    }

    /// Makes `name` in `dir` lead to the node, which is a directory or not.
    pub fn put_name(&mut self, dir: &Found, name: &EntryName, ino: Ino) -> Result<(), FsError> {
        let is_base_place = self.state.stack.frozen_dentry(dir.ino, name.as_bytes()).is_none()
            && self.base_ino(dir, name)?.is_some_and(|base_ino| base_ino == ino);
        let (parent, name) = (dir.ino, name.clone());
        self.names.push(if is_base_place {
            Op::DropDentry { parent, name }
        } else {
            Op::PutDentry {
                parent,
                name,
                dentry: Dentry::Entry(ino),
            }
        });
        Ok(())
    }

    /// Takes `name` from `dir`: a whiteout where something beneath would show otherwise.
    pub fn drop_name(&mut self, dir: &Found, name: &EntryName) -> Result<(), FsError> {
        let shows_beneath = match self.state.stack.frozen_dentry(dir.ino, name.as_bytes()) {
            Some(Dentry::Entry(_)) => true,
            Some(Dentry::Whiteout) => false,
            None => self.base_ino(dir, name)?.is_some(),
        };
        let (parent, name) = (dir.ino, name.clone());
        self.names.push(if shows_beneath {
            Op::PutDentry {
                parent,
                name,
                dentry: Dentry::Whiteout,
            }
        } else {
            Op::DropDentry { parent, name }
        });
        Ok(())
    }

    fn base_ino(&self, dir: &Found, name: &EntryName) -> Result<Option<Ino>, FsError> {
        let base_dir = self.workspace.base_dir(self.state, dir)?;
        Ok(base_dir.and_then(|base_dir| {
            let index = base_dir.find(name.as_bytes())?;
            base_dir.entries.get(index).map(|entry| entry.ino)
        }))
    }

    /// The node lost a name (a directory: its only one). Without any left it is gone, unless somebody still uses it.
    pub fn lose_link(&mut self, found: &Found) -> Result<(), FsError> {
        let is_dir = self.workspace.kind(self.state, found)? == FileKind::Directory;
        let links = match &found.place {
            Place::Layer => self.workspace.layer_node(self.state, found.ino)?.nlink,
            Place::Base(_) | Place::BaseRoot => 1,
        };
        if !is_dir && links > 1 || self.workspace.inodes.is_remembered(found.ino) {
            let now = self.now;
            let node = self.node_mut(found)?;
            node.nlink = if is_dir { 0 } else { node.nlink.saturating_sub(1) };
            node.ctime = now;
        } else {
            self.nodes.retain(|(ino, _)| *ino != found.ino);
            if self.state.stack.open_layer().index().node(found.ino).is_some() {
                self.drops.push(found.ino);
            }
        }
        Ok(())
    }

    /// Makes it so, in one record.
    pub fn commit(self) -> Result<(), FsError> {
        let mut ops = Vec::with_capacity(self.nodes.len() + self.names.len() + self.drops.len());
        ops.extend(self.nodes.into_iter().map(|(ino, node)| Op::PutNode(ino, node)));
        ops.extend(self.names);
        ops.extend(self.drops.into_iter().map(Op::DropNode));
        Ok(self.state.stack.open_layer_mut().commit(ops)?)
    }
}
