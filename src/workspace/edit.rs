//! Builder of one atomic step: changes of nodes and names, committed as one log record.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::carried::PlaceRecords;
use super::carry::CarriedNode;
use super::error::FsError;
use super::flags::{check_may_add, check_may_remove};
use super::fs::{FoundNode, NodePlace, ViewState, Workspace};
use super::mutate::NewNode;
use super::ops::Caller;
use tine_attr::{FileKind, Ino, Timestamp};
use tine_git::TreeEntryKind;
use tine_layer::{Dentry, Node, Op};
use tine_path::EntryName;

/// Pending changes of nodes and names. Nothing happens before [`LayerEdit::commit`].
pub(super) struct LayerEdit<'a> {
    workspace: &'a Workspace,
    pub state: &'a mut ViewState,
    /// Time of everything in this step.
    pub now: Timestamp,
    /// Nodes to put, by number.
    nodes: BTreeMap<Ino, Node>,
    /// Numbers of nodes to drop.
    drops: BTreeSet<Ino>,
    /// Nodes in `nodes` that were carried before this step.
    carried: Vec<Arc<CarriedNode>>,
    /// Dentries to put or drop, in order.
    names: Vec<Op>,
    /// Nodes of the changed names afterwards; `None` for a free name.
    targets: BTreeMap<(Ino, EntryName), Option<Ino>>,
}

impl<'a> LayerEdit<'a> {
    pub(crate) fn new(workspace: &'a Workspace, state: &'a mut ViewState) -> LayerEdit<'a> {
        LayerEdit {
            workspace,
            state,
            now: Timestamp::now(),
            nodes: BTreeMap::new(),
            drops: BTreeSet::new(),
            carried: Vec::new(),
            names: Vec::new(),
            targets: BTreeMap::new(),
        }
    }

    /// Returns the pending node for a change. Copies it up if no layer has it.
    pub(crate) fn node_mut(&mut self, found: &FoundNode) -> Result<&mut Node, FsError> {
        match self.nodes.entry(found.ino) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => {
                let node = self.workspace.node(self.state, found)?;
                if let NodePlace::Carried(carried) = &found.place {
                    self.carried.push(carried.clone());
                }
                Ok(vacant.insert(node))
            }
        }
    }

    /// Returns the pending node.
    pub(crate) fn node(&self, found: &FoundNode) -> Result<Node, FsError> {
        match self.nodes.get(&found.ino) {
            Some(node) => Ok(node.clone()),
            None => self.workspace.node(self.state, found),
        }
    }

    pub(crate) fn kind(&self, found: &FoundNode) -> Result<FileKind, FsError> {
        match self.nodes.get(&found.ino) {
            Some(node) => Ok(node.kind),
            None => self.workspace.kind(self.state, found),
        }
    }

    /// Returns the node at `name` in `dir`, with the pending changes applied.
    pub(crate) fn child(
        &self,
        dir: &FoundNode,
        name: &EntryName,
    ) -> Result<Option<FoundNode>, FsError> {
        match self.targets.get(&(dir.ino, name.clone())) {
            Some(target) => Ok(target.map(FoundNode::in_layer)),
            None if self.is_made_here(dir) => Ok(None),
            None => self.workspace.child(self.state, dir, name.as_bytes()),
        }
    }

    /// Returns whether the directory is empty, with the pending changes applied.
    pub(crate) fn is_empty(&self, dir: &FoundNode) -> Result<bool, FsError> {
        let of_dir = self
            .targets
            .iter()
            .filter(|((parent, _), _)| *parent == dir.ino);
        let targets: BTreeMap<&EntryName, &Option<Ino>> =
            of_dir.map(|((_, name), target)| (name, target)).collect();
        if targets.values().any(|target| target.is_some()) {
            return Ok(false);
        }
        if self.is_made_here(dir) {
            return Ok(true);
        }
        let entries = self.workspace.entries(self.state, dir)?;
        Ok(entries
            .iter()
            .all(|(name, _, _)| targets.contains_key(name)))
    }

    fn is_made_here(&self, dir: &FoundNode) -> bool {
        matches!(dir.place, NodePlace::Layer)
            && self.state.stack.node(dir.ino).is_none()
            && self.nodes.contains_key(&dir.ino)
    }

    /// Adds a new node and returns its number.
    pub(crate) fn new_node(&mut self, node: Node) -> Result<Ino, FsError> {
        let ino = self.state.stack.open_layer_mut().allocate_ino()?;
        self.nodes.insert(ino, node);
        Ok(ino)
    }

    /// Returns whether a base node may come back under this number.
    ///
    /// No layer may have a node there, and the kernel must not remember one.
    pub(crate) fn is_unused(&self, ino: Ino) -> bool {
        let is_named = self.state.stack.node(ino).is_some() && !self.drops.contains(&ino);
        !is_named && !self.nodes.contains_key(&ino) && !self.workspace.inodes.is_remembered(ino)
    }

    /// Puts a node under an unused number.
    pub(crate) fn put_node(&mut self, ino: Ino, node: Node) {
        self.drops.remove(&ino);
        self.nodes.insert(ino, node);
    }

    /// Makes a node at a free name. The directory may be pending itself.
    pub(crate) fn make(
        &mut self,
        caller: Caller,
        dir: &FoundNode,
        name: &EntryName,
        new: NewNode,
    ) -> Result<FoundNode, FsError> {
        check_may_add(self.state, dir)?;
        let kind = new.kind;
        let node = new.into_node(caller, &self.node(dir)?, self.now)?;
        let ino = self.new_node(node)?;
        self.put_name(dir, name, ino)?;
        self.touch_dir(dir, i64::from(kind == FileKind::Directory))?;
        Ok(FoundNode::in_layer(ino))
    }

    /// Updates a directory for an added or removed name.
    ///
    /// Sets its times, and adds `links` to its link count.
    pub(crate) fn touch_dir(&mut self, dir: &FoundNode, links: i64) -> Result<(), FsError> {
        let now = self.now;
        let node = self.node_mut(dir)?;
        node.mtime = now;
        node.ctime = now;
        let nlink = i64::from(node.nlink).saturating_add(links).max(2);
        node.nlink = u32::try_from(nlink).map_err(|_| FsError::TooManyLinks)?;
        Ok(())
    }

    /// Makes `name` in `dir` lead to a node of any kind.
    pub(crate) fn put_name(
        &mut self,
        dir: &FoundNode,
        name: &EntryName,
        ino: Ino,
    ) -> Result<(), FsError> {
        let is_base_place = self
            .state
            .stack
            .frozen_dentry(dir.ino, name.as_bytes())
            .is_none()
            && self
                .base_ino(dir, name)?
                .is_some_and(|base_ino| base_ino == ino);
        let (parent, name) = (dir.ino, name.clone());
        self.targets.insert((parent, name.clone()), Some(ino));
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

    /// Removes `name` from `dir`. Puts a whiteout if a lower layer has the name.
    pub(crate) fn drop_name(&mut self, dir: &FoundNode, name: &EntryName) -> Result<(), FsError> {
        let shows_lower = match self.state.stack.frozen_dentry(dir.ino, name.as_bytes()) {
            Some(Dentry::Entry(_)) => true,
            Some(Dentry::Whiteout) => false,
            None => {
                self.base_ino(dir, name)?.is_some()
                    || !self.is_made_here(dir)
                        && self
                            .workspace
                            .carried_node_at(self.state, dir, name.as_bytes())?
                            .is_some()
            }
        };
        let (parent, name) = (dir.ino, name.clone());
        self.targets.insert((parent, name.clone()), None);
        self.names.push(if shows_lower {
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

    fn base_ino(&self, dir: &FoundNode, name: &EntryName) -> Result<Option<Ino>, FsError> {
        let is_new = |node: &Node| !matches!(&node.origin, Some(origin) if origin.kind == TreeEntryKind::Directory);
        if self.nodes.get(&dir.ino).is_some_and(is_new) {
            return Ok(None);
        }
        let base_dir = self.workspace.base_dir(self.state, dir)?;
        Ok(base_dir.and_then(|base_dir| {
            let index = base_dir.find(name.as_bytes())?;
            base_dir.entries.get(index).map(|entry| entry.ino)
        }))
    }

    /// Lowers the link count of a node. A directory loses its only name.
    ///
    /// Without links the node is dropped, unless the kernel remembers it.
    pub(crate) fn lose_link(&mut self, found: &FoundNode) -> Result<(), FsError> {
        let is_dir = self.workspace.kind(self.state, found)? == FileKind::Directory;
        let links = match (self.nodes.get(&found.ino), &found.place) {
            (Some(node), _) => node.nlink,
            (None, NodePlace::Layer) => self.workspace.layer_node(self.state, found.ino)?.nlink,
            (None, NodePlace::Base(_) | NodePlace::Carried(_) | NodePlace::BaseRoot) => 1,
        };
        if !is_dir && links > 1 || self.workspace.inodes.is_remembered(found.ino) {
            let now = self.now;
            let node = self.node_mut(found)?;
            node.nlink = if is_dir {
                0
            } else {
                node.nlink.saturating_sub(1)
            };
            node.ctime = now;
        } else {
            self.nodes.remove(&found.ino);
            if self
                .state
                .stack
                .open_layer()
                .index()
                .node(found.ino)
                .is_some()
            {
                self.drops.insert(found.ino);
            }
        }
        Ok(())
    }

    /// Removes all names below the directory.
    ///
    /// Base nodes that the kernel does not remember need no record.
    pub(crate) fn empty_dir(&mut self, dir: &FoundNode) -> Result<(), FsError> {
        let mut rest = vec![dir.clone()];
        while let Some(dir) = rest.pop() {
            let is_kept = self.workspace.inodes.is_remembered(dir.ino);
            for (name, kind, ino) in self.workspace.entries(self.state, &dir)? {
                let child = self.workspace.child(self.state, &dir, name.as_bytes())?;
                let child = child
                    .filter(|child| child.ino == ino)
                    .ok_or(FsError::Stale)?;
                check_may_remove(self.state, &dir, &child)?;
                if is_kept {
                    self.drop_name(&dir, &name)?;
                }
                if kind == FileKind::Directory {
                    rest.push(child.clone());
                }
                self.lose_link(&child)?;
            }
        }
        Ok(())
    }

    /// Commits all changes as one record.
    pub(crate) fn commit(self) -> Result<(), FsError> {
        let place = |op: &Op| match op {
            Op::PutDentry { parent, name, .. } | Op::DropDentry { parent, name } => {
                Some((*parent, name.clone()))
            }
            _ => None,
        };
        let changed: Vec<_> = self.names.iter().filter_map(place).collect();
        let mut places = PlaceRecords::default();
        for carried in &self.carried {
            let node = self.nodes.get(&carried.ino());
            if node.is_some_and(|node| node.nlink > 0) {
                places.add(self.workspace.place_records(self.state, carried)?);
            }
        }
        let mut ops = Vec::with_capacity(self.nodes.len() + self.names.len() + self.drops.len());
        let nodes = places.nodes.into_iter().chain(self.nodes);
        ops.extend(nodes.map(|(ino, node)| Op::PutNode(ino, node)));
        let place_names = places.names.into_iter();
        ops.extend(
            place_names.filter(|op| place(op).is_none_or(|place| !changed.contains(&place))),
        );
        ops.extend(self.names);
        ops.extend(self.drops.into_iter().map(Op::DropNode));
        Ok(self.state.stack.open_layer_mut().commit(ops)?)
    }
}
