//! Undo and redo of operations.
//!
//! Each change has an inverse. The inverses of an operation's changes, last one first, are an
//! operation themselves, which can be undone. Later changes by programs to the same paths are not
//! lost: whatever is in the way moves to the trash, as with any removal.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::error::OperationError;
use super::super::fs::{FoundNode, Workspace};
use super::builder::{NameInDir, OperationBuilder};
use super::trash::slot;
use super::{Actor, FileChange, FileOperation, OperationKind, Reachable, UndoneChanges};
use tine_attr::{FileKind, Ino, Timestamp};
use tine_path::RepoPath;

/// Choice between undo and redo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Undoes an operation.
    Undo,
    /// Redoes an undone operation.
    Redo,
}

impl Direction {
    /// Returns the kind of the operation that goes this way.
    pub fn kind(self) -> OperationKind {
        match self {
            Direction::Undo => OperationKind::Undo,
            Direction::Redo => OperationKind::Redo,
        }
    }
}

/// Result of an undo or redo.
#[derive(Debug, Clone)]
pub struct UndoOutcome {
    /// New operation that made the inverse changes.
    pub operation: FileOperation,
    /// Operation of the command whose changes these were.
    ///
    /// It may have been undone and redone before.
    pub of: FileOperation,
    /// Paths that were not as the operation had left them.
    pub notes: Vec<Note>,
}

/// Path that was not as the operation had left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Path in the fork.
    pub path: RepoPath,
    /// Difference, and its treatment.
    pub kind: NoteKind,
}

/// Difference from the state that the operation had left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// The node was changed since. The trash keeps the changed state.
    Changed,
    /// Another node was at the path. The trash keeps it.
    InTheWay,
    /// The node was gone already.
    Gone,
    /// The directory has entries, and stays.
    NotEmpty,
    /// A parent directory was missing, and was made.
    ParentMade,
}

impl Workspace {
    /// Returns the operation that [`Workspace::take_back`] would undo or redo next.
    ///
    /// For an operation that exchanged the whole fork, [`Workspace::take_back`] fails with
    /// [`OperationError::IsSwitch`]; for one that moved HEAD, with [`OperationError::IsAdvance`].
    ///
    /// # Errors
    /// [`OperationError::NothingToTakeBack`]; [`OperationError::Fs`] if the layer fails.
    pub fn next_to_take_back(
        &self,
        direction: Direction,
        path: Option<&RepoPath>,
    ) -> Result<FileOperation, OperationError> {
        let reachable = self
            .reachable()
            .map_err(OperationError::at(&RepoPath::root()))?;
        next(&reachable, direction, path).map(|(operation, _)| operation.clone())
    }

    /// Undoes the newest operation, or redoes the last undone one.
    ///
    /// Skips operations that are undone already. With `path`, only changes at and below it. The
    /// mount is notified.
    ///
    /// # Errors
    /// [`OperationError::NothingToTakeBack`]; [`OperationError::IsSwitch`] and
    /// [`OperationError::IsAdvance`] for operations that also changed other things;
    /// [`OperationError::Gone`], [`OperationError::Pinned`] and [`OperationError::IntoItself`] if a
    /// path cannot be restored; [`OperationError::Fs`] if the layer fails.
    pub fn take_back(
        &self,
        by: Actor<'_>,
        direction: Direction,
        path: Option<&RepoPath>,
    ) -> Result<UndoOutcome, OperationError> {
        let scope = path.cloned().unwrap_or_default();
        let at = || OperationError::at(&scope);
        let journal = self.journal.lock();
        // Nobody may write to a content that changes its owner.
        let contents = self.contents.write_all();
        let mut state = self.write_state();
        let reachable = self.reachable_in(&state).map_err(at())?;
        let (of, changes) = next(&reachable, direction, path)?;
        if let Some((before, git)) = of.changes.iter().find_map(|change| match change {
            FileChange::Switched { before, git } => Some((before.clone(), git.clone())),
            _ => None,
        }) {
            return Err(OperationError::IsSwitch {
                id: of.id,
                before,
                git,
            });
        }
        if let Some(moved) = of.changes.iter().find_map(|change| match change {
            FileChange::Advanced(moved) => Some(moved.clone()),
            _ => None,
        }) {
            let undoes = UndoneChanges {
                operation: of.id,
                changes,
            };
            return Err(OperationError::IsAdvance { undoes, moved });
        }
        let id = self.next_id(&journal, &state).map_err(at())?;
        let part = self.part(&state, of.id).map_err(at())?;
        let builder = OperationBuilder::begin(self, &mut state, id, direction.kind(), by.command)
            .map_err(at())?;
        let mut times: BTreeSet<Timestamp> = reachable
            .operations()
            .map(|operation| operation.time)
            .collect();
        // A later change to the same node may have been taken back first.
        times.insert(builder.time());
        let mut back = UndoBuilder {
            builder,
            by,
            part,
            times,
            notes: Vec::new(),
        };
        for index in changes.iter().rev() {
            if let Some(change) = of.changes.get(*index as usize) {
                back.take(*index as usize, change)?;
            }
        }
        let UndoBuilder {
            mut builder, notes, ..
        } = back;
        builder.renew().map_err(at())?;
        builder.undoes(Some(UndoneChanges {
            operation: of.id,
            changes,
        }));
        let done = builder.commit().map_err(at())?;
        let of = reachable.beginning_of(of).clone();
        let operation = done.operation.clone();
        self.complete(journal, state, contents, done)
            .map_err(at())?;
        Ok(UndoOutcome {
            operation,
            of,
            notes,
        })
    }
}

fn next<'r>(
    reachable: &'r Reachable,
    direction: Direction,
    path: Option<&RepoPath>,
) -> Result<(&'r FileOperation, Vec<u32>), OperationError> {
    reachable
        .next(direction, path)
        .ok_or_else(|| OperationError::NothingToTakeBack {
            direction,
            path: path.cloned(),
            above: path.and_then(|path| reachable.above(direction, path)),
        })
}

/// Inverse changes under construction.
struct UndoBuilder<'a> {
    builder: OperationBuilder<'a>,
    by: Actor<'a>,
    /// Part of the trash of the operation that is undone.
    part: FoundNode,
    /// Times of all operations, this one too. A node with another ctime was changed by a program.
    times: BTreeSet<Timestamp>,
    /// Paths that were not as the operation had left them.
    notes: Vec<Note>,
}

impl UndoBuilder<'_> {
    fn take(&mut self, index: usize, change: &FileChange) -> Result<(), OperationError> {
        match change {
            FileChange::Made { path, ino } => self.unmake(path, *ino, true),
            FileChange::PutBack { path, ino } => self.unmake(path, *ino, false),
            FileChange::Removed { path } => self.put_back(index, path),
            FileChange::Moved { from, to, ino } => self.move_back(from, to, *ino),
            FileChange::Written { path, ino } => self.write_back(index, path, *ino),
            FileChange::Mode { path, ino, perm } => self.mode_back(path, *ino, *perm),
            FileChange::Switched { .. } | FileChange::Advanced(_) => Ok(()),
        }
    }

    fn note(&mut self, path: &RepoPath, kind: NoteKind) {
        self.notes.push(Note {
            path: path.clone(),
            kind,
        });
    }

    /// Returns whether the node is as the operation left it.
    ///
    /// For a directory, nodes below are not checked.
    fn is_untouched(&self, found: &FoundNode, ino: Ino) -> Result<bool, OperationError> {
        let node = self
            .builder
            .node(found)
            .map_err(OperationError::at(&RepoPath::root()))?;
        Ok(found.ino == ino
            && (node.kind == FileKind::Directory || self.times.contains(&node.ctime)))
    }

    fn unmake(&mut self, path: &RepoPath, ino: Ino, is_new: bool) -> Result<(), OperationError> {
        let there = self.builder.find(path)?;
        let found = there.as_ref().and_then(|named| named.found.clone());
        let (Some(named), Some(found)) = (there, found) else {
            self.note(path, NoteKind::Gone);
            return Ok(());
        };
        let at = || OperationError::at(path);
        if is_new
            && self.builder.kind(&found).map_err(at())? == FileKind::Directory
            && !self.builder.is_empty(&found).map_err(at())?
        {
            self.note(path, NoteKind::NotEmpty);
            return Ok(());
        }
        if !self.is_untouched(&found, ino)? {
            self.note(path, NoteKind::Changed);
        }
        self.builder.remove(path, &named, &found)
    }

    /// Returns the name at `path`, made free.
    ///
    /// The node there moves to the trash, and missing parents are made.
    fn cleared(&mut self, path: &RepoPath) -> Result<NameInDir, OperationError> {
        let (named, made) = self.builder.with_parents(self.by.caller, path)?;
        if made > 0 {
            self.note(path, NoteKind::ParentMade);
        }
        let Some(found) = named.found.clone() else {
            return Ok(named);
        };
        self.note(path, NoteKind::InTheWay);
        self.builder.remove(path, &named, &found)?;
        self.builder.named(path)
    }

    fn put_back(&mut self, index: usize, path: &RepoPath) -> Result<(), OperationError> {
        let named = self.cleared(path)?;
        let slot = slot(index).map_err(OperationError::at(path))?;
        let part = self.part.clone();
        self.builder.put_back(path, &named, (&part, &slot))
    }

    fn move_back(
        &mut self,
        from: &RepoPath,
        to: &RepoPath,
        ino: Ino,
    ) -> Result<(), OperationError> {
        let there = self.builder.find(to)?;
        let Some(source) = there else {
            return Err(OperationError::Gone(to.clone()));
        };
        let found = source
            .found
            .clone()
            .ok_or(OperationError::Gone(to.clone()))?;
        if !self.is_untouched(&found, ino)? {
            self.note(to, NoteKind::Changed);
        }
        let target = self.cleared(from)?;
        if from.starts_with(to) {
            return Err(OperationError::IntoItself(to.clone()));
        }
        self.builder
            .rename((to, &source, &found), (from, &target))?;
        self.builder.note_returned(from, found);
        Ok(())
    }

    fn mode_back(&mut self, path: &RepoPath, ino: Ino, perm: u16) -> Result<(), OperationError> {
        let there = self.builder.find(path)?.and_then(|named| named.found);
        let Some(found) = there.filter(|found| found.ino == ino) else {
            self.note(path, NoteKind::Gone);
            return Ok(());
        };
        self.builder.set_perm(path, &found, |_| perm)
    }

    fn write_back(
        &mut self,
        index: usize,
        path: &RepoPath,
        ino: Ino,
    ) -> Result<(), OperationError> {
        let at = || OperationError::at(path);
        let there = self.builder.find(path)?.and_then(|named| named.found);
        if let Some(found) = there
            && found.ino == ino
            && self.builder.kind(&found).map_err(at())? == FileKind::Regular
        {
            if !self.is_untouched(&found, ino)? {
                self.note(path, NoteKind::Changed);
            }
            if self.builder.state().pins.contains_key(&ino) {
                return Err(OperationError::Pinned(path.clone()));
            }
            let slot = slot(index).map_err(at())?;
            let part = self.part.clone();
            return self.builder.exchange(path, &found, (&part, &slot));
        }
        self.put_back(index, path)
    }
}
