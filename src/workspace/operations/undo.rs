//! Taking operations back, and doing them again.
//!
//! Each change has an opposite, and the opposites of an operation's changes, the last one first,
//! are an operation that can be taken back the same way. What programs did to those paths since is
//! not lost by it: what stands in the way goes to the attic like anything that an operation
//! removes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::error::OperationError;
use super::super::fs::{Found, Workspace};
use super::builder::{Named, OperationBuilder};
use super::trash::slot;
use super::{Actor, FileChange, FileOperation, OperationKind, Reachable, Undoes};
use tine_attr::{FileKind, Ino, Timestamp};
use tine_path::RepoPath;

/// Back, or forth again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    Undo,
    Redo,
}

/// What was taken back, or done again.
#[derive(Debug, Clone)]
pub struct TakenBack {
    /// The operation that did so.
    pub operation: FileOperation,
    /// The command whose changes these were, perhaps taken back and done again since.
    pub of: FileOperation,
    pub notes: Vec<Note>,
}

/// What was not as the operation had left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub path: RepoPath,
    pub kind: NoteKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// It was changed since; what it was is kept.
    Changed,
    /// Something else was there, which is kept.
    InTheWay,
    /// It was gone already.
    Gone,
    /// A directory that has something in it stays.
    NotEmpty,
    /// A directory on the way was missing and is made.
    ParentMade,
}

impl Workspace {
    /// What is taken back next. A change that only exchanging the whole fork takes back is
    /// [`OperationError::IsSwitch`] to [`Workspace::take_back`], one that moved HEAD
    /// [`OperationError::IsAdvance`].
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

    /// Takes the newest operation back that is not taken back, or its changes at and beneath
    /// `path`; with [`Direction::Redo`] does again what was taken back last. Announced to the
    /// mount.
    pub fn take_back(
        &self,
        by: Actor<'_>,
        direction: Direction,
        path: Option<&RepoPath>,
    ) -> Result<TakenBack, OperationError> {
        let scope = path.cloned().unwrap_or_default();
        let at = || OperationError::at(&scope);
        let journal = self.journal.lock();
        // Nobody writes to a content that changes hands.
        let contents = self.contents.write_all();
        let mut state = self.write_state();
        let reachable = self.reachable_in(&state).map_err(at())?;
        let (of, changes) = next(&reachable, direction, path)?;
        if let Some(before) = of.changes.iter().find_map(|change| match change {
            FileChange::Switched { before } => Some(before.clone()),
            _ => None,
        }) {
            return Err(OperationError::IsSwitch { id: of.id, before });
        }
        if let Some(moved) = of.changes.iter().find_map(|change| match change {
            FileChange::Advanced(moved) => Some(moved.clone()),
            _ => None,
        }) {
            let undoes = Undoes {
                operation: of.id,
                changes,
            };
            return Err(OperationError::IsAdvance { undoes, moved });
        }
        let id = self.next_id(&journal, &state).map_err(at())?;
        let part = self.part(&state, of.id).map_err(at())?;
        let kind = match direction {
            Direction::Undo => OperationKind::Undo,
            Direction::Redo => OperationKind::Redo,
        };
        let doing = OperationBuilder::begin(self, &mut state, id, kind, by.command).map_err(at())?;
        let mut back = Back {
            doing,
            by,
            part,
            times: reachable
                .operations()
                .map(|operation| operation.time)
                .collect(),
            notes: Vec::new(),
        };
        for index in changes.iter().rev() {
            if let Some(change) = of.changes.get(*index as usize) {
                back.take(*index as usize, change)?;
            }
        }
        let Back {
            mut doing, notes, ..
        } = back;
        doing.renew().map_err(at())?;
        doing.undoes(Some(Undoes {
            operation: of.id,
            changes,
        }));
        let done = doing.commit().map_err(at())?;
        let of = reachable.beginning_of(of).clone();
        let operation = done.operation.clone();
        self.complete(journal, state, contents, done)
            .map_err(at())?;
        Ok(TakenBack {
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

/// Opposites in the making.
struct Back<'a> {
    doing: OperationBuilder<'a>,
    by: Actor<'a>,
    /// The part of the attic of the operation that is taken back.
    part: Found,
    /// When operations were done. What has another change time was changed by something else.
    times: BTreeSet<Timestamp>,
    notes: Vec<Note>,
}

impl Back<'_> {
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

    /// Whether the node is as the operation left it, as far as that can be told without looking at
    /// all beneath it.
    fn is_untouched(&self, found: &Found, ino: Ino) -> Result<bool, OperationError> {
        let node = self
            .doing
            .node(found)
            .map_err(OperationError::at(&RepoPath::root()))?;
        Ok(found.ino == ino
            && (node.kind == FileKind::Directory || self.times.contains(&node.ctime)))
    }

    fn unmake(&mut self, path: &RepoPath, ino: Ino, is_new: bool) -> Result<(), OperationError> {
        let there = self.doing.find(path)?;
        let found = there.as_ref().and_then(|named| named.found.clone());
        let (Some(named), Some(found)) = (there, found) else {
            self.note(path, NoteKind::Gone);
            return Ok(());
        };
        let at = || OperationError::at(path);
        if is_new
            && self.doing.kind(&found).map_err(at())? == FileKind::Directory
            && !self.doing.is_empty(&found).map_err(at())?
        {
            self.note(path, NoteKind::NotEmpty);
            return Ok(());
        }
        if !self.is_untouched(&found, ino)? {
            self.note(path, NoteKind::Changed);
        }
        self.doing.remove(path, &named, &found)
    }

    /// The name at `path`, free: what is there goes to the attic, and what is missing on the way is
    /// made.
    fn cleared(&mut self, path: &RepoPath) -> Result<Named, OperationError> {
        let (named, made) = self.doing.with_parents(self.by.caller, path)?;
        if made > 0 {
            self.note(path, NoteKind::ParentMade);
        }
        let Some(found) = named.found.clone() else {
            return Ok(named);
        };
        self.note(path, NoteKind::InTheWay);
        self.doing.remove(path, &named, &found)?;
        self.doing.named(path)
    }

    fn put_back(&mut self, index: usize, path: &RepoPath) -> Result<(), OperationError> {
        let named = self.cleared(path)?;
        let slot = slot(index).map_err(OperationError::at(path))?;
        let part = self.part.clone();
        self.doing.put_back(path, &named, (&part, &slot))
    }

    fn move_back(
        &mut self,
        from: &RepoPath,
        to: &RepoPath,
        ino: Ino,
    ) -> Result<(), OperationError> {
        let there = self.doing.find(to)?;
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
        self.doing.rename((to, &source, &found), (from, &target))?;
        self.doing.came_back(from, found);
        Ok(())
    }

    fn mode_back(&mut self, path: &RepoPath, ino: Ino, perm: u16) -> Result<(), OperationError> {
        let there = self.doing.find(path)?.and_then(|named| named.found);
        let Some(found) = there.filter(|found| found.ino == ino) else {
            self.note(path, NoteKind::Gone);
            return Ok(());
        };
        self.doing.set_perm(path, &found, |_| perm)
    }

    fn write_back(
        &mut self,
        index: usize,
        path: &RepoPath,
        ino: Ino,
    ) -> Result<(), OperationError> {
        let at = || OperationError::at(path);
        let there = self.doing.find(path)?.and_then(|named| named.found);
        if let Some(found) = there
            && found.ino == ino
            && self.doing.kind(&found).map_err(at())? == FileKind::Regular
        {
            if !self.is_untouched(&found, ino)? {
                self.note(path, NoteKind::Changed);
            }
            if self.doing.state().pins.contains_key(&ino) {
                return Err(OperationError::Pinned(path.clone()));
            }
            let slot = slot(index).map_err(at())?;
            let part = self.part.clone();
            return self.doing.exchange(path, &found, (&part, &slot));
        }
        self.put_back(index, path)
    }
}
