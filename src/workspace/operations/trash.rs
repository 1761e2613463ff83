//! Trash of a fork: its contents and its limits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use super::super::edit::LayerEdit;
use super::super::error::FsError;
use super::super::flags::check_may_remove;
use super::super::fs::{FoundNode, NodePlace, ViewState, Workspace};
use super::journal::Journal;
use super::{FileOperation, OperationState, Reachable, UndoneChanges};
use tine_attr::{FileKind, Ino};
use tine_layer::Node;
use tine_path::EntryName;

/// Maximum number of operations that can be undone.
const OPERATIONS_MAX: usize = 500;

/// Maximum total size of the contents that operations keep, in bytes.
///
/// The newest operation is kept even if it is larger.
const BYTES_MAX: u64 = 256 << 20;

/// Returns the name of a removed node in the trash.
///
/// It is in its operation's part.
pub(super) fn slot(index: usize) -> Result<EntryName, FsError> {
    Ok(EntryName::new(index.to_string().as_bytes())?)
}

/// Facts of an operation that the limits of the trash need.
#[derive(Debug)]
struct OperationFacts {
    /// Size of the contents that it kept at first, in bytes.
    kept_bytes: u64,
    /// Number of its changes.
    changes: usize,
    /// Changes that it undoes or redoes.
    undoes: Option<UndoneChanges>,
}

/// Operations in the trash, by number.
///
/// Each is read once: an operation never changes, and a number is given once.
#[derive(Debug, Default)]
pub(crate) struct OperationsInTrash {
    by_id: BTreeMap<u64, OperationFacts>,
    /// Indexes of the undone changes, by operation.
    undone: HashMap<u64, HashSet<u32>>,
}

impl OperationsInTrash {
    /// Reads the operation from its part of the trash. Returns whether that succeeds.
    fn read(&mut self, id: u64, part: &Node) -> bool {
        if self.by_id.contains_key(&id) {
            return true;
        }
        let json = part.operation();
        match json.and_then(|json| serde_json::from_slice::<FileOperation>(json).ok()) {
            Some(operation) => {
                self.add(&operation);
                true
            }
            None => {
                log::warn!("the operation {id} in the trash cannot be read");
                false
            }
        }
    }

    pub(crate) fn add(&mut self, operation: &FileOperation) {
        let FileOperation { id, kept_bytes, .. } = *operation;
        let undoes = operation.undoes.clone();
        if let Some(UndoneChanges { operation, changes }) = &undoes {
            self.undone.entry(*operation).or_default().extend(changes);
        }
        let changes = operation.changes.len();
        self.by_id.insert(
            id,
            OperationFacts {
                kept_bytes,
                changes,
                undoes,
            },
        );
    }

    /// Forgets the other operations, and what they undid.
    fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        if self.by_id.keys().all(|id| is_kept(*id)) {
            return;
        }
        self.by_id.retain(|id, _| is_kept(*id));
        self.undone.clear();
        for UndoneChanges { operation, changes } in self
            .by_id
            .values()
            .filter_map(|weight| weight.undoes.as_ref())
        {
            self.undone.entry(*operation).or_default().extend(changes);
        }
    }

    /// Returns the maximum number of bytes that the operation still keeps.
    fn bytes_of(&self, id: u64) -> u64 {
        let Some(weight) = self.by_id.get(&id) else {
            return 0;
        };
        let undone = self.undone.get(&id).map_or(0, HashSet::len);
        if undone > 0 && undone >= weight.changes {
            0
        } else {
            weight.kept_bytes
        }
    }

    fn all_bytes(&self) -> u64 {
        let bytes = self.by_id.keys().map(|id| self.bytes_of(*id));
        bytes.fold(0, u64::saturating_add)
    }
}

/// Returns the size of a content that only this node has.
pub(super) fn own_bytes(node: &Node) -> u64 {
    node.content.own().map_or(0, |_| node.size)
}

impl Workspace {
    /// Returns whether the node is known outside a step under construction.
    ///
    /// A layer, the base or the carry has it then.
    pub(super) fn has_node(&self, state: &ViewState, found: &FoundNode) -> bool {
        !matches!(found.place, NodePlace::Layer) || state.stack.node(found.ino).is_some()
    }

    /// Returns the operations that can be undone or redone now.
    ///
    /// # Errors
    /// [`FsError::Stale`] if the layers lack a node of the trash.
    pub fn reachable(&self) -> Result<Reachable, FsError> {
        self.reachable_in(&self.read_state())
    }

    pub(crate) fn reachable_in(&self, state: &ViewState) -> Result<Reachable, FsError> {
        let parts = self.parts(state)?;
        Ok(Reachable::new(
            parts.into_iter().map(|(operation, _)| operation),
        ))
    }

    /// Returns the newest operations ever done, newest first, with their states.
    ///
    /// # Errors
    /// [`FsError::Stale`] if the layers lack a node of the trash. An unreadable journal is logged
    /// only.
    pub fn operations(
        &self,
        limit: usize,
    ) -> Result<Vec<(FileOperation, OperationState)>, FsError> {
        let journal = self.journal.lock();
        let reachable = self.reachable()?;
        let mut newest = journal.read(limit).unwrap_or_else(|error| {
            log::warn!("the journal of operations cannot be read: {error}");
            Vec::new()
        });
        // Operations that could not be written to the journal are known from the trash.
        let last = newest.first().map_or(0, |operation| operation.id);
        let missing: Vec<FileOperation> = reachable
            .operations()
            .filter(|operation| operation.id > last)
            .cloned()
            .collect();
        newest.splice(0..0, missing.into_iter().rev());
        newest.truncate(limit);
        let with_state = |operation: FileOperation| {
            let state = reachable.state_of(operation.id);
            (operation, state)
        };
        Ok(newest.into_iter().map(with_state).collect())
    }

    /// Returns the operations in the trash, by number.
    ///
    /// Each with its part of the trash.
    fn parts(&self, state: &ViewState) -> Result<Vec<(FileOperation, FoundNode)>, FsError> {
        if state.stack.node(Ino::TRASH).is_none() {
            return Ok(Vec::new());
        }
        let mut parts = Vec::new();
        for (name, _, ino) in self.entries(state, &FoundNode::in_layer(Ino::TRASH))? {
            let json = self.layer_node(state, ino)?.operation();
            match json.and_then(|json| serde_json::from_slice::<FileOperation>(json).ok()) {
                Some(operation) => parts.push((operation, FoundNode::in_layer(ino))),
                None => log::warn!("the operation {name} in the trash cannot be read"),
            }
        }
        parts.sort_by_key(|(operation, _)| operation.id);
        Ok(parts)
    }

    /// Returns the number of the next operation.
    pub(crate) fn next_id(&self, journal: &Journal, state: &ViewState) -> Result<u64, FsError> {
        let mut next = journal.next_id();
        if state.stack.node(Ino::TRASH).is_some() {
            for (name, _, _) in self.entries(state, &FoundNode::in_layer(Ino::TRASH))? {
                let id = std::str::from_utf8(name.as_bytes()).ok();
                let id = id.and_then(|id| id.parse::<u64>().ok());
                next = next.max(id.unwrap_or(0).saturating_add(1));
            }
        }
        Ok(next)
    }

    /// Writes the journal to the file at `path` from now on.
    ///
    /// Adds reachable operations that the file lacks. Failures are logged.
    pub fn keep_journal(&self, path: PathBuf) {
        let opened = Journal::open(path.clone());
        let mut journal = self.journal.lock();
        match opened {
            Ok(opened) => *journal = opened,
            Err(error) => log::warn!("{}: {error}", path.display()),
        }
        match self.reachable() {
            Ok(reachable) => journal.write(reachable.operations()),
            Err(error) => log::warn!("{}: {error}", path.display()),
        }
    }

    /// Returns an operation's part of the trash.
    pub(super) fn part(&self, state: &ViewState, id: u64) -> Result<FoundNode, FsError> {
        let name = EntryName::new(id.to_string().as_bytes())?;
        self.child(state, &FoundNode::in_layer(Ino::TRASH), name.as_bytes())?
            .ok_or(FsError::Stale)
    }

    /// Returns the size of the layer contents at and below a node.
    ///
    /// Fails if inode flags forbid the removal of any of it.
    pub(super) fn removable_bytes(
        &self,
        state: &ViewState,
        found: &FoundNode,
    ) -> Result<u64, FsError> {
        let mut bytes = 0_u64;
        let mut rest = vec![found.clone()];
        while let Some(found) = rest.pop() {
            if let NodePlace::Layer = found.place {
                bytes = bytes.saturating_add(own_bytes(self.layer_node(state, found.ino)?));
            }
            if self.kind(state, &found)? != FileKind::Directory {
                continue;
            }
            for (name, kind, _) in self.entries(state, &found)? {
                let child = self
                    .child(state, &found, name.as_bytes())?
                    .ok_or(FsError::Stale)?;
                check_may_remove(state, &found, &child)?;
                // If a layer has anything of a carried directory, it has the directory, too.
                match child.place {
                    NodePlace::Layer => rest.push(child),
                    NodePlace::Base(_) if kind == FileKind::Directory => rest.push(child),
                    NodePlace::Base(_) | NodePlace::Carried(_) | NodePlace::BaseRoot => {}
                }
            }
        }
        Ok(bytes)
    }

    /// Removes the oldest operations from the trash while it exceeds its limits.
    pub(crate) fn limit_trash(
        &self,
        state: &mut ViewState,
        in_trash: &mut OperationsInTrash,
    ) -> Result<(), FsError> {
        let mut parts = BTreeMap::new();
        for (name, _, ino) in self.entries(state, &FoundNode::in_layer(Ino::TRASH))? {
            let id = std::str::from_utf8(name.as_bytes()).ok();
            if let Some(id) = id.and_then(|id| id.parse().ok())
                && in_trash.read(id, self.layer_node(state, ino)?)
            {
                parts.insert(id, FoundNode::in_layer(ino));
            }
        }
        in_trash.retain(|id| parts.contains_key(&id));
        let mut count = parts.len();
        let mut bytes = in_trash.all_bytes();
        for (id, part) in parts {
            if count <= OPERATIONS_MAX && (bytes <= BYTES_MAX || count <= 1) {
                break;
            }
            self.expire(state, id, &part)?;
            count -= 1;
            bytes = bytes.saturating_sub(in_trash.bytes_of(id));
        }
        Ok(())
    }

    fn expire(&self, state: &mut ViewState, id: u64, part: &FoundNode) -> Result<(), FsError> {
        let name = EntryName::new(id.to_string().as_bytes())?;
        let trash = FoundNode::in_layer(Ino::TRASH);
        let mut edit = LayerEdit::new(self, state);
        edit.drop_name(&trash, &name)?;
        edit.empty_dir(part)?;
        edit.lose_link(part)?;
        edit.touch_dir(&trash, -1)?;
        edit.commit()
    }
}
