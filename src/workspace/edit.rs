//! One atomic step in the making: nodes and names as they shall be, committed as a single log
//! record.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::carried::Home;
use super::carry::CarriedNode;
use super::error::FsError;
use super::flags::{check_may_add, check_may_remove};
use super::fs::{Found, Place, State, Workspace};
use super::mutate::NewNode;
use super::ops::Caller;
use tine_attr::{FileKind, Ino, Timestamp};
use tine_git::TreeEntryKind;
use tine_layer::{Dentry, Node, Op};
use tine_path::EntryName;

/// Collects changes of nodes and names; nothing happens before [`Edit::commit`].
pub(super) struct Edit<'a> {
    workspace: &'a Workspace,
    pub state: &'a mut State,
    /// The time of everything in this step.
    pub now: Timestamp,
    nodes: BTreeMap<Ino, Node>,
    drops: BTreeSet<Ino>,
    /// Those among them that were carried until now.
    carried: Vec<Arc<CarriedNode>>,
    names: Vec<Op>,
    /// What the names of this step lead to after it.
    led: BTreeMap<(Ino, EntryName), Option<Ino>>,
}

impl<'a> Edit<'a> {
    pub(crate) fn new(workspace: &'a Workspace, state: &'a mut State) -> Edit<'a> {
        Edit {
            workspace,
            state,
            now: Timestamp::now(),
            nodes: BTreeMap::new(),
            drops: BTreeSet::new(),
            carried: Vec::new(),
            names: Vec::new(),
            led: BTreeMap::new(),
        }
    }

    /// The node as it shall be, copied up where no layer has it yet.
    pub(crate) fn node_mut(&mut self, found: &Found) -> Result<&mut Node, FsError> {
        match self.nodes.entry(found.ino) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => {
                let node = self.workspace.node(self.state, found)?;
                if let Place::Carried(carried) = &found.place {
                    self.carried.push(carried.clone());
                }
                Ok(vacant.insert(node))
            }
        }
    }

    /// The node as it shall be, to be looked at.
    pub(crate) fn node(&self, found: &Found) -> Result<Node, FsError> {
        match self.nodes.get(&found.ino) {
            Some(node) => Ok(node.clone()),
            None => self.workspace.node(self.state, found),
        }
    }

    pub(crate) fn kind(&self, found: &Found) -> Result<FileKind, FsError> {
        match self.nodes.get(&found.ino) {
            Some(node) => Ok(node.kind),
            None => self.workspace.kind(self.state, found),
        }
    }

    /// What `name` in `dir` leads to after what was said of this step so far.
    pub(crate) fn child(&self, dir: &Found, name: &EntryName) -> Result<Option<Found>, FsError> {
        match self.led.get(&(dir.ino, name.clone())) {
            Some(led) => Ok(led.map(Found::in_layer)),
            None if self.is_made_here(dir) => Ok(None),
            None => self.workspace.child(self.state, dir, name.as_bytes()),
        }
    }

    /// Whether the directory has no entry after what was said of this step so far.
    pub(crate) fn is_empty(&self, dir: &Found) -> Result<bool, FsError> {
        let of_dir = self
            .led
            .iter()
            .filter(|((parent, _), _)| *parent == dir.ino);
        let led: BTreeMap<&EntryName, &Option<Ino>> =
            of_dir.map(|((_, name), led)| (name, led)).collect();
        if led.values().any(|led| led.is_some()) {
            return Ok(false);
        }
        if self.is_made_here(dir) {
            return Ok(true);
        }
        let entries = self.workspace.entries(self.state, dir)?;
        Ok(entries.iter().all(|(name, _, _)| led.contains_key(name)))
    }

    fn is_made_here(&self, dir: &Found) -> bool {
        matches!(dir.place, Place::Layer)
            && self.state.stack.node(dir.ino).is_none()
            && self.nodes.contains_key(&dir.ino)
    }

    /// A node that is made in this step; its number.
    pub(crate) fn new_node(&mut self, node: Node) -> Result<Ino, FsError> {
        let ino = self.state.stack.open_layer_mut().allocate_ino()?;
        self.nodes.insert(ino, node);
        Ok(ino)
    }

    /// Whether no node that stays has this number of the base's: none that a layer names, none that
    /// the kernel remembers.
    pub(crate) fn is_unused(&self, ino: Ino) -> bool {
        let is_named = self.state.stack.node(ino).is_some() && !self.drops.contains(&ino);
        !is_named && !self.nodes.contains_key(&ino) && !self.workspace.inodes.is_remembered(ino)
    }

    /// A node under a number that is unused.
    pub(crate) fn put_node(&mut self, ino: Ino, node: Node) {
        self.drops.remove(&ino);
        self.nodes.insert(ino, node);
    }

    /// Makes a node at a free name of a directory, which may be one that is made in this step.
    pub(crate) fn make(
        &mut self,
        caller: Caller,
        dir: &Found,
        name: &EntryName,
        new: NewNode,
    ) -> Result<Found, FsError> {
        check_may_add(self.state, dir)?;
        let kind = new.kind;
        let node = new.into_node(caller, &self.node(dir)?, self.now)?;
        let ino = self.new_node(node)?;
        self.put_name(dir, name, ino)?;
        self.touch_dir(dir, i64::from(kind == FileKind::Directory))?;
        Ok(Found::in_layer(ino))
    }

    /// A name came to, or went from, the directory: its times change, and its links by those of
    /// subdirectories.
    pub(crate) fn touch_dir(&mut self, dir: &Found, links: i64) -> Result<(), FsError> {
        let now = self.now;
        let node = self.node_mut(dir)?;
        node.mtime = now;
        node.ctime = now;
        let nlink = i64::from(node.nlink).saturating_add(links).max(2);
        node.nlink = u32::try_from(nlink).map_err(|_| FsError::TooManyLinks)?;
        Ok(())
    }

    /// Makes `name` in `dir` lead to the node, which is a directory or not.
    pub(crate) fn put_name(
        &mut self,
        dir: &Found,
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
        self.led.insert((parent, name.clone()), Some(ino));
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
    pub(crate) fn drop_name(&mut self, dir: &Found, name: &EntryName) -> Result<(), FsError> {
        let shows_beneath = match self.state.stack.frozen_dentry(dir.ino, name.as_bytes()) {
            Some(Dentry::Entry(_)) => true,
            Some(Dentry::Whiteout) => false,
            None => {
                self.base_ino(dir, name)?.is_some()
                    || !self.is_made_here(dir)
                        && self
                            .workspace
                            .carried_beneath(self.state, dir, name.as_bytes())?
                            .is_some()
            }
        };
        let (parent, name) = (dir.ino, name.clone());
        self.led.insert((parent, name.clone()), None);
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

    /// The node lost a name (a directory: its only one). Without any left it is gone, unless
    /// somebody still uses it.
    pub(crate) fn lose_link(&mut self, found: &Found) -> Result<(), FsError> {
        let is_dir = self.workspace.kind(self.state, found)? == FileKind::Directory;
        let links = match (self.nodes.get(&found.ino), &found.place) {
            (Some(node), _) => node.nlink,
            (None, Place::Layer) => self.workspace.layer_node(self.state, found.ino)?.nlink,
            (None, Place::Base(_) | Place::Carried(_) | Place::BaseRoot) => 1,
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

    /// All that is beneath the directory loses its name there, as if it were emptied step by step.
    /// Where nobody uses what the base has alone, nothing is said of it.
    pub(crate) fn empty_dir(&mut self, dir: &Found) -> Result<(), FsError> {
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

    /// Makes it so, in one record.
    pub(crate) fn commit(self) -> Result<(), FsError> {
        let place = |op: &Op| match op {
            Op::PutDentry { parent, name, .. } | Op::DropDentry { parent, name } => {
                Some((*parent, name.clone()))
            }
            _ => None,
        };
        let spoken_of: Vec<_> = self.names.iter().filter_map(place).collect();
        let mut home = Home::default();
        for carried in &self.carried {
            let node = self.nodes.get(&carried.ino());
            if node.is_some_and(|node| node.nlink > 0) {
                home.add(self.workspace.home(self.state, carried)?);
            }
        }
        let mut ops = Vec::with_capacity(self.nodes.len() + self.names.len() + self.drops.len());
        let nodes = home.nodes.into_iter().chain(self.nodes);
        ops.extend(nodes.map(|(ino, node)| Op::PutNode(ino, node)));
        let home_names = home.names.into_iter();
        ops.extend(
            home_names.filter(|op| place(op).is_none_or(|place| !spoken_of.contains(&place))),
        );
        ops.extend(self.names);
        ops.extend(self.drops.into_iter().map(Op::DropNode));
        Ok(self.state.stack.open_layer_mut().commit(ops)?)
    }
}
