//! The attic of a fork: what is in it, and how much it may keep.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use super::super::edit::Edit;
use super::super::error::FsError;
use super::super::flags::check_may_remove;
use super::super::fs::{Found, Place, State, Workspace};
use super::journal::Journal;
use super::{FileOperation, OperationState, Reachable, Undoes};
use tine_attr::{FileKind, Ino};
use tine_layer::Node;
use tine_path::EntryName;

/// So many operations can be taken back …
const OPERATIONS_MAX: usize = 500;

/// … which keep so many bytes together. The newest one is kept however large it is.
const BYTES_MAX: u64 = 256 << 20;

/// The name of what a change took away, in its operation's part of the attic.
pub(super) fn slot(index: usize) -> Result<EntryName, FsError> {
    Ok(EntryName::new(index.to_string().as_bytes())?)
}

/// What is to be known of an operation to bound the attic.
#[derive(Debug)]
struct Weight {
    kept_bytes: u64,
    changes: usize,
    undoes: Option<Undoes>,
}

/// The operations of the attic, by number: read once each, as an operation never changes and a
/// number is given once.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    by_id: BTreeMap<u64, Weight>,
    /// How many changes of each were taken back.
    undone: HashMap<u64, HashSet<u32>>,
}

impl Weights {
    /// Reads the operation from its part of the attic; whether that can be read.
    fn weigh(&mut self, id: u64, part: &Node) -> bool {
        if self.by_id.contains_key(&id) {
            return true;
        }
        let told = part.operation();
        match told.and_then(|told| serde_json::from_slice::<FileOperation>(told).ok()) {
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
        if let Some(Undoes { operation, changes }) = &undoes {
            self.undone.entry(*operation).or_default().extend(changes);
        }
        let changes = operation.changes.len();
        self.by_id.insert(
            id,
            Weight {
                kept_bytes,
                changes,
                undoes,
            },
        );
    }

    /// Forgets the others. What they took back is done again for all that is known.
    fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        if self.by_id.keys().all(|id| is_kept(*id)) {
            return;
        }
        self.by_id.retain(|id, _| is_kept(*id));
        self.undone.clear();
        for Undoes { operation, changes } in self
            .by_id
            .values()
            .filter_map(|weight| weight.undoes.as_ref())
        {
            self.undone.entry(*operation).or_default().extend(changes);
        }
    }

    /// Bytes that the operation still keeps, at most.
    fn bytes_of(&self, id: u64) -> u64 {
        let Some(weight) = self.by_id.get(&id) else {
            return 0;
        };
        let undone = self.undone.get(&id).map_or(0, HashSet::len);
        match undone > 0 && undone >= weight.changes {
            true => 0,
            false => weight.kept_bytes,
        }
    }

    fn all_bytes(&self) -> u64 {
        let bytes = self.by_id.keys().map(|id| self.bytes_of(*id));
        bytes.fold(0, u64::saturating_add)
    }
}

/// The bytes of a content that a layer holds for this node alone.
pub(super) fn own_bytes(node: &Node) -> u64 {
    node.content.own().map_or(0, |_| node.size)
}

impl Workspace {
    /// Whether the layers or the base have the node, so that more is known of it than a step in the
    /// making says.
    pub(super) fn find_again(&self, state: &State, found: &Found) -> bool {
        !matches!(found.place, Place::Layer) || state.stack.node(found.ino).is_some()
    }

    /// What can be taken back now.
    pub fn reachable(&self) -> Result<Reachable, FsError> {
        self.reachable_in(&self.read_state())
    }

    pub(crate) fn reachable_in(&self, state: &State) -> Result<Reachable, FsError> {
        let parts = self.parts(state)?;
        Ok(Reachable::new(
            parts.into_iter().map(|(operation, _)| operation),
        ))
    }

    /// The newest operations that were ever done, the newest first, and how they stand.
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
        // What could not be written down is known all the same.
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

    /// The operations in the attic with their parts of it, by number.
    fn parts(&self, state: &State) -> Result<Vec<(FileOperation, Found)>, FsError> {
        if state.stack.node(Ino::TRASH).is_none() {
            return Ok(Vec::new());
        }
        let mut parts = Vec::new();
        for (name, _, ino) in self.entries(state, &Found::in_layer(Ino::TRASH))? {
            let told = self.layer_node(state, ino)?.operation();
            match told.and_then(|told| serde_json::from_slice::<FileOperation>(told).ok()) {
                Some(operation) => parts.push((operation, Found::in_layer(ino))),
                None => log::warn!("the operation {name} in the trash cannot be read"),
            }
        }
        parts.sort_by_key(|(operation, _)| operation.id);
        Ok(parts)
    }

    /// The number of the next operation.
    pub(crate) fn next_id(&self, journal: &Journal, state: &State) -> Result<u64, FsError> {
        let mut next = journal.next_id();
        if state.stack.node(Ino::TRASH).is_some() {
            for (name, _, _) in self.entries(state, &Found::in_layer(Ino::TRASH))? {
                let id = std::str::from_utf8(name.as_bytes()).ok();
                let id = id.and_then(|id| id.parse::<u64>().ok());
                next = next.max(id.unwrap_or(0).saturating_add(1));
            }
        }
        Ok(next)
    }

    /// Has operations written down in the file at `path`, where it lacks some also those.
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

    /// An operation's part of the attic.
    pub(super) fn part(&self, state: &State, id: u64) -> Result<Found, FsError> {
        let name = EntryName::new(id.to_string().as_bytes())?;
        self.child(state, &Found::in_layer(Ino::TRASH), name.as_bytes())?
            .ok_or(FsError::Stale)
    }

    /// Bytes of contents that the layers hold of this node and all beneath, if flags let all of it
    /// be removed.
    pub(super) fn weigh(&self, state: &State, found: &Found) -> Result<u64, FsError> {
        let mut bytes = 0_u64;
        let mut rest = vec![found.clone()];
        while let Some(found) = rest.pop() {
            if let Place::Layer = found.place {
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
                // A layer that has something of a carried directory has the directory.
                match child.place {
                    Place::Layer => rest.push(child),
                    Place::Base(_) if kind == FileKind::Directory => rest.push(child),
                    Place::Base(_) | Place::Carried(_) | Place::BaseRoot => {}
                }
            }
        }
        Ok(bytes)
    }

    /// Lets go of the oldest operations that are too many or keep too much.
    pub(crate) fn bound_attic(
        &self,
        state: &mut State,
        weights: &mut Weights,
    ) -> Result<(), FsError> {
        let mut parts = BTreeMap::new();
        for (name, _, ino) in self.entries(state, &Found::in_layer(Ino::TRASH))? {
            let id = std::str::from_utf8(name.as_bytes()).ok();
            if let Some(id) = id.and_then(|id| id.parse().ok())
                && weights.weigh(id, self.layer_node(state, ino)?)
            {
                parts.insert(id, Found::in_layer(ino));
            }
        }
        weights.retain(|id| parts.contains_key(&id));
        let mut count = parts.len();
        let mut bytes = weights.all_bytes();
        for (id, part) in parts {
            if count <= OPERATIONS_MAX && (bytes <= BYTES_MAX || count <= 1) {
                break;
            }
            self.let_go(state, id, &part)?;
            count -= 1;
            bytes = bytes.saturating_sub(weights.bytes_of(id));
        }
        Ok(())
    }

    fn let_go(&self, state: &mut State, id: u64, part: &Found) -> Result<(), FsError> {
        let name = EntryName::new(id.to_string().as_bytes())?;
        let trash = Found::in_layer(Ino::TRASH);
        let mut edit = Edit::new(self, state);
        edit.drop_name(&trash, &name)?;
        edit.empty_dir(part)?;
        edit.lose_link(part)?;
        edit.touch_dir(&trash, -1)?;
        edit.commit()
    }
}
