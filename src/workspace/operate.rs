//! What tine's commands do to a fork by path: moving, removing, writing. Each is one step, in one
//! record, announced to the mount, and an operation that can be taken back
//! ([`operations`](super::operations)).
//!
//! Modes are not asked: whoever may ask the daemon owns the fork. Flags of `chattr` hold.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parking_lot::{MutexGuard, RwLockWriteGuard};

use super::error::{FsError, OperationError};
use super::follow::Last;
use super::fs::{Invalidation, State, Workspace};
use super::mutate::NewNode;
use super::operations::builder::{Done, OperationBuilder};
use super::operations::journal::Journal;
use super::operations::{Actor, FileChange, OperationKind, Undoes};
use super::privileges::take_privileges;
use super::xattr::set_perm;
use tine_attr::{FileKind, Ino};
use tine_layer::contents::SLOT_MAX;
use tine_layer::{Content, ContentFile, ContentRef};
use tine_path::{EntryName, RepoPath};

/// Contents are copied in pieces of this many bytes.
const COPY_CHUNK: usize = 1 << 20;

/// How a move treats its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoveOptions {
    /// A file at the destination is replaced.
    pub force: bool,
    /// The destination is a directory, into which is moved.
    pub into: bool,
    /// Directories that are missing on the way to the destination are made.
    pub parents: bool,
}

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub from: RepoPath,
    pub to: RepoPath,
    /// Whether something was there.
    pub replaced: bool,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutOptions {
    /// Directories that are missing on the way are made.
    pub parents: bool,
    /// The file can be executed by who may read it.
    pub executable: bool,
}

/// Bytes that become a file's content. They can be read more than once.
#[derive(Debug, Clone, Copy)]
pub enum NewContent<'a> {
    Bytes(&'a [u8]),
    /// All of it, which nobody changes meanwhile.
    File(&'a File),
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub path: RepoPath,
    /// Bytes.
    pub size: u64,
    /// Whether there was no file before.
    pub created: bool,
}

/// The path, if it may be changed.
fn changeable(path: RepoPath) -> Result<RepoPath, OperationError> {
    match path.is_root() {
        true => Err(OperationError::Root),
        false if path.is_in_dot_git() => Err(OperationError::DotGit(path)),
        false => Ok(path),
    }
}

impl Workspace {
    /// Moves what is at `from`, a symlink itself: to `to`, or into it where that is a directory. A
    /// directory is never replaced. The node keeps all but the time of its last change.
    pub fn move_path(
        &self,
        by: Actor<'_>,
        from: &RepoPath,
        to: &RepoPath,
        options: MoveOptions,
    ) -> Result<Moved, OperationError> {
        let from = changeable(self.follow(from, Last::Keep)?)?;
        let (_, name) = from.split_last().ok_or(OperationError::Root)?;
        let to = self.destination(to, &name, options.into)?;
        self.own_at(&from)?;
        self.own_at(&to)?;
        let replaced = self.operate(by, OperationKind::Move, |doing| {
            if options.parents {
                doing.with_parents(by.caller, &to)?;
            }
            move_in(doing, &from, &to, options.force)
        })?;
        Ok(Moved { from, to, replaced })
    }

    /// Where something called `name` goes that is moved to `to`.
    fn destination(
        &self,
        to: &RepoPath,
        name: &EntryName,
        into: bool,
    ) -> Result<RepoPath, OperationError> {
        let place = self.follow(to, Last::Keep)?;
        let is_dir = |path: &RepoPath| matches!(self.resolve(path), Ok(attr) if attr.kind == FileKind::Directory);
        if let Ok(dir) = self.follow(to, Last::Follow)
            && is_dir(&dir)
        {
            return changeable(dir.join(name));
        }
        match into {
            true => Err(match self.resolve(&place) {
                Ok(_) => OperationError::NotADirectory(place),
                Err(error) => OperationError::at(&place)(error),
            }),
            false => changeable(place),
        }
    }

    /// Removes what is at these paths, symlinks themselves, directories only if `recursive`: all of
    /// it in one step, or nothing. What was removed, sorted, without what was beneath another.
    pub fn remove_paths(
        &self,
        by: Actor<'_>,
        paths: &[RepoPath],
        recursive: bool,
    ) -> Result<Vec<RepoPath>, OperationError> {
        let followed = paths
            .iter()
            .map(|path| changeable(self.follow(path, Last::Keep)?));
        let mut followed = followed.collect::<Result<Vec<_>, _>>()?;
        followed.sort();
        followed.iter().try_for_each(|path| self.own_at(path))?;
        self.operate(by, OperationKind::Remove, |doing| {
            let mut found = Vec::with_capacity(followed.len());
            for path in &followed {
                let named = doing.named(path)?;
                let node = named
                    .found
                    .clone()
                    .ok_or(OperationError::NotFound(path.clone()))?;
                let kind = doing.kind(&node).map_err(OperationError::at(path))?;
                if kind == FileKind::Directory && !recursive {
                    return Err(OperationError::IsADirectory(path.clone()));
                }
                found.push((path, named, node));
            }
            let mut removed: Vec<RepoPath> = Vec::new();
            for (path, named, node) in &found {
                if !removed.iter().any(|above| path.starts_with(above)) {
                    doing.remove(path, named, node)?;
                    removed.push((*path).clone());
                }
            }
            Ok(removed)
        })
    }

    /// Replaces the content of the regular file at `path`, which keeps its mode, or makes that
    /// file. A symlink is not followed at the end.
    pub fn put_file(
        &self,
        by: Actor<'_>,
        path: &RepoPath,
        content: NewContent<'_>,
        options: PutOptions,
    ) -> Result<Written, OperationError> {
        let path = changeable(self.follow(path, Last::Keep)?)?;
        self.own_at(&path)?;
        loop {
            let staged = self.stage(&path, content)?;
            let size = staged.size;
            // Nobody may write to a content that is replaced: it becomes the attic's.
            let ino = match self.resolve(&path) {
                Ok(attr) if attr.kind == FileKind::Regular => Some(attr.ino),
                _ => None,
            };
            let put = self.operate_with(
                by,
                OperationKind::Write,
                Some(staged),
                ino,
                |doing, content| put_in(doing, by, &path, (content, size), ino, options),
            )?;
            if let Some(created) = put {
                return Ok(Written {
                    path,
                    size,
                    created,
                });
            }
        }
    }

    /// Replaces the content of the regular file at `path` by what `edit` makes of it: nobody else
    /// writes to the file in between, through the mount or by another operation. A symlink is not
    /// followed at the end. Where `edit` fails nothing happens, nor where the file has more than
    /// `max_bytes` bytes ([`FsError::TooLarge`]).
    pub fn edit_file<E: From<OperationError>>(
        &self,
        by: Actor<'_>,
        path: &RepoPath,
        max_bytes: u64,
        mut edit: impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Written, E> {
        let path = changeable(self.follow(path, Last::Keep)?)?;
        self.own_at(&path)?;
        loop {
            let ino = self.hold(&path).map_err(OperationError::at(&path))?.ino;
            let edited = self.edit_held(by, &path, ino, max_bytes, &mut edit);
            self.forget(ino, 1);
            if let Some(written) = edited? {
                return Ok(written);
            }
        }
    }

    /// `None` where another node than `ino` is at `path` by now.
    fn edit_held<E: From<OperationError>>(
        &self,
        by: Actor<'_>,
        path: &RepoPath,
        ino: Ino,
        max_bytes: u64,
        edit: &mut impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Option<Written>, E> {
        let at = || OperationError::at(path);
        match self.getattr(ino).map_err(at())?.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(OperationError::IsADirectory(path.clone()).into()),
            _ => return Err(OperationError::NotAFile(path.clone()).into()),
        }
        let journal = self.journal.lock();
        let contents = self.contents.write(ino).map_err(at())?;
        let before = match self.read_whole_unlocked(ino, max_bytes) {
            Ok(before) => before,
            Err(error) => {
                drop((journal, contents));
                return match self.note_stale(ino, Err(error)) {
                    Err(FsError::Stale) | Ok(()) => Ok(None),
                    Err(error) => Err(at()(error).into()),
                };
            }
        };
        let staged = self.stage(path, NewContent::Bytes(&edit(&before)?))?;
        let size = staged.size;
        let put = self.operate_locked(
            by,
            OperationKind::Write,
            Some(staged),
            (journal, Some(contents)),
            |doing, content| {
                let found = doing.find(path)?.and_then(|named| named.found);
                match found.is_some_and(|found| found.ino == ino) {
                    true => put_in(
                        doing,
                        by,
                        path,
                        (content, size),
                        Some(ino),
                        PutOptions::default(),
                    ),
                    false => Ok(None),
                }
            },
        )?;
        Ok(put.map(|created| Written {
            path: path.clone(),
            size,
            created,
        }))
    }

    /// All bytes of a file, if they are no more than `max_bytes`, for who has its content lock.
    fn read_whole_unlocked(&self, ino: Ino, max_bytes: u64) -> Result<Vec<u8>, FsError> {
        let size = self.getattr(ino)?.size;
        if size > max_bytes {
            return Err(FsError::TooLarge);
        }
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| FsError::TooLarge)?];
        let mut done = 0;
        while done < bytes.len() {
            match self.read_unlocked(ino, done as u64, &mut bytes[done..])? {
                0 => break,
                read => done += read,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    /// Notes that the whole fork was exchanged, whose state before is kept as the snapshot
    /// `before`: taking that back ([`OperationError::IsSwitch`]) is going to that snapshot, and
    /// this again, with the operation that is taken back or done again by it. To be called on what
    /// the fork is now. The operation's number.
    pub fn record_switch(
        &self,
        by: Actor<'_>,
        before: &str,
        kind: OperationKind,
        undoes: Option<u64>,
    ) -> Result<u64, OperationError> {
        self.operate(by, kind, |doing| {
            doing.note(FileChange::Switched {
                before: before.to_owned(),
            });
            doing.undoes(undoes.map(|operation| Undoes {
                operation,
                changes: vec![0],
            }));
            Ok(doing.id())
        })
    }

    /// Copies what is carried at `path` into the layer where it is small: it is to be the fork's
    /// own from now on, in the attic or elsewhere, whatever the main checkout does.
    fn own_at(&self, path: &RepoPath) -> Result<(), OperationError> {
        let carried = {
            let state = self.read_state();
            let found = self.walk(&state, path).ok();
            found.filter(|found| self.is_to_be_owned(&state, found).unwrap_or(false))
        };
        let owned = carried.map_or(Ok(()), |found| self.own_carried(&found));
        owned.map_err(OperationError::at(path))
    }

    /// Runs `act` on an operation in the making, and commits that.
    pub(super) fn operate<T>(
        &self,
        by: Actor<'_>,
        kind: OperationKind,
        act: impl FnOnce(&mut OperationBuilder<'_>) -> Result<T, OperationError>,
    ) -> Result<T, OperationError> {
        let acted = self.operate_with(by, kind, None, None, |doing, _| act(doing).map(Some))?;
        acted.ok_or(OperationError::Root)
    }

    /// As [`Workspace::operate`], with a content and while nobody writes to the node `ino`. `None`
    /// where `act` says so, or the content is not the open layer's any more: then nothing happened.
    fn operate_with<T>(
        &self,
        by: Actor<'_>,
        kind: OperationKind,
        staged: Option<Staged>,
        ino: Option<Ino>,
        act: impl FnOnce(&mut OperationBuilder<'_>, Content) -> Result<Option<T>, OperationError>,
    ) -> Result<Option<T>, OperationError> {
        let journal = self.journal.lock();
        let contents = ino
            .map(|ino| self.contents.write(ino))
            .transpose()
            .map_err(OperationError::at(&RepoPath::root()))?;
        self.operate_locked(by, kind, staged, (journal, contents), act)
    }

    /// As [`Workspace::operate_with`], for who has locked the journal, and the node's content where
    /// there is one.
    fn operate_locked<T>(
        &self,
        by: Actor<'_>,
        kind: OperationKind,
        staged: Option<Staged>,
        (journal, contents): (MutexGuard<'_, Journal>, Option<RwLockWriteGuard<'_, ()>>),
        act: impl FnOnce(&mut OperationBuilder<'_>, Content) -> Result<Option<T>, OperationError>,
    ) -> Result<Option<T>, OperationError> {
        let root = RepoPath::root();
        let at = || OperationError::at(&root);
        let mut state = self.write_state();
        let mut place = staged.as_ref().and_then(|staged| staged.place);
        if place.is_some_and(|place| place.layer != state.stack.open_layer().id()) {
            return Ok(None);
        }
        if let Some(bytes) = staged.and_then(|staged| staged.bytes) {
            place = self.store_content(&mut state, &bytes).map_err(at())?;
        }
        let content = place.map_or(Content::Empty, Content::Own);
        let acted = self.next_id(&journal, &state).map_err(at()).and_then(|id| {
            let mut doing =
                OperationBuilder::begin(self, &mut state, id, kind, by.command).map_err(at())?;
            match act(&mut doing, content)? {
                Some(value) => Ok(Some((value, doing.commit().map_err(at())?))),
                None => Ok(None),
            }
        });
        let (value, done) = match acted {
            Ok(Some(acted)) => acted,
            other => {
                if let Some(place) = place {
                    state.stack.open_layer_mut().abandon_content(place);
                }
                return other.map(|_| None);
            }
        };
        self.complete(journal, state, contents, done)
            .map_err(at())?;
        Ok(Some(value))
    }

    /// What follows an operation that is in the layer.
    pub(super) fn complete<C>(
        &self,
        mut journal: MutexGuard<'_, Journal>,
        mut state: RwLockWriteGuard<'_, State>,
        contents: C,
        done: Done,
    ) -> Result<(), FsError> {
        let Done {
            operation,
            changed,
            dirs,
            before,
        } = done;
        let steps = before.map_or_else(Vec::new, |before| self.view_steps(&state, before));
        let all = match journal.lacks_more_than(operation.id) {
            true => self.reachable_in(&state).ok(),
            false => None,
        };
        journal.weights.add(&operation);
        if let Err(error) = self.bound_attic(&mut state, &mut journal.weights) {
            log::warn!("the trash keeps more than it should: {error}");
        }
        drop(state);
        drop(contents);
        match &all {
            Some(all) => journal.write(all.operations()),
            None => journal.write([&operation]),
        }
        journal.note(operation.id);
        drop(journal);
        let written = |change: &Invalidation| match change {
            Invalidation::Node(ino) => Some(*ino),
            Invalidation::Entry { .. } | Invalidation::Attributes(_) => None,
        };
        let written: Vec<Ino> = changed.iter().filter_map(written).collect();
        self.announce_steps(changed, steps);
        written
            .into_iter()
            .try_for_each(|ino| self.sync_if_flagged(ino))?;
        self.sync_names_if_flagged(&dirs)
    }

    /// Brings a content to where the layer keeps it, as far as that can be done while others use
    /// the fork.
    fn stage(&self, path: &RepoPath, content: NewContent<'_>) -> Result<Staged, OperationError> {
        let unread = |source| OperationError::Source {
            path: path.clone(),
            source,
        };
        let size = match content {
            NewContent::Bytes(bytes) => bytes.len() as u64,
            NewContent::File(file) => file.metadata().map_err(unread)?.len(),
        };
        if size > i64::MAX as u64 {
            return Err(OperationError::at(path)(FsError::TooLarge));
        }
        if size <= SLOT_MAX {
            let bytes = match content {
                NewContent::Bytes(bytes) => bytes.to_vec(),
                NewContent::File(file) => {
                    let mut bytes = vec![0; size as usize];
                    file.read_exact_at(&mut bytes, 0).map_err(unread)?;
                    bytes
                }
            };
            return Ok(Staged {
                bytes: Some(bytes),
                place: None,
                size,
            });
        }
        let begun = {
            let mut state = self.write_state();
            let layer = state.stack.open_layer_mut();
            let place = layer
                .new_content(size)
                .map_err(|error| OperationError::at(path)(error.into()))?;
            match layer.begin_writing(place, 0) {
                Ok(Some(file)) => Ok(file),
                Ok(None) => Err((place, FsError::Invalid)),
                Err(error) => Err((place, error.into())),
            }
            .map_err(|(place, error)| {
                layer.abandon_content(place);
                OperationError::at(path)(error)
            })?
        };
        let copied = copy_content(path, content, size, &begun);
        let mut state = self.write_state();
        let layer = state.stack.open_layer_mut();
        if begun.content().layer == layer.id() {
            layer.end_writing(&begun);
            if copied.is_err() {
                layer.abandon_content(begun.content());
            }
        }
        copied.map(|()| Staged {
            bytes: None,
            place: Some(begun.content()),
            size,
        })
    }
}

/// A content that no record names yet.
struct Staged {
    /// A small one, still to be stored.
    bytes: Option<Vec<u8>>,
    place: Option<ContentRef>,
    size: u64,
}

fn copy_content(
    path: &RepoPath,
    content: NewContent<'_>,
    size: u64,
    to: &ContentFile,
) -> Result<(), OperationError> {
    let mut buffer = vec![0; COPY_CHUNK];
    let mut done = 0;
    while done < size {
        let step = (size - done).min(COPY_CHUNK as u64) as usize;
        let piece = match content {
            NewContent::Bytes(bytes) => &bytes[done as usize..done as usize + step],
            NewContent::File(file) => {
                let piece = &mut buffer[..step];
                file.read_exact_at(piece, done)
                    .map_err(|source| OperationError::Source {
                        path: path.clone(),
                        source,
                    })?;
                piece
            }
        };
        to.write(done, done, piece)
            .map_err(|error| OperationError::at(path)(error.into()))?;
        done += step as u64;
    }
    Ok(())
}

/// Whether something was replaced.
fn move_in(
    doing: &mut OperationBuilder<'_>,
    from: &RepoPath,
    to: &RepoPath,
    force: bool,
) -> Result<bool, OperationError> {
    let source = doing.named(from)?;
    let found = source
        .found
        .clone()
        .ok_or(OperationError::NotFound(from.clone()))?;
    let is_dir = doing.kind(&found).map_err(OperationError::at(from))? == FileKind::Directory;
    if is_dir && to.starts_with(from) {
        return Err(OperationError::IntoItself(from.clone()));
    }
    let target = doing.named(to)?;
    let Some(there) = target.found.clone() else {
        doing.rename((from, &source, &found), (to, &target))?;
        return Ok(false);
    };
    if there.ino == found.ino {
        return Err(OperationError::SameFile(from.clone(), to.clone()));
    }
    match doing.kind(&there).map_err(OperationError::at(to))? {
        FileKind::Directory => return Err(OperationError::IsADirectory(to.clone())),
        _ if !force => return Err(OperationError::Exists(to.clone())),
        _ if is_dir => return Err(OperationError::NotADirectory(to.clone())),
        _ => {}
    }
    doing.remove(to, &target, &there)?;
    doing.rename((from, &source, &found), (to, &target))?;
    Ok(true)
}

/// Whether the file was made; `None` where another than `ino` is there.
fn put_in(
    doing: &mut OperationBuilder<'_>,
    by: Actor<'_>,
    path: &RepoPath,
    (content, size): (Content, u64),
    ino: Option<Ino>,
    options: PutOptions,
) -> Result<Option<bool>, OperationError> {
    let named = match options.parents {
        true => doing.with_parents(by.caller, path)?.0,
        false => doing.named(path)?,
    };
    let umask = doing.state().base.attrs.umask;
    let Some(found) = named.found.clone() else {
        let new = NewNode {
            kind: FileKind::Regular,
            perm: if options.executable { 0o777 } else { 0o666 },
            rdev: 0,
            size,
            content,
        };
        doing.make(by.caller, path, &named, new)?;
        return Ok(Some(true));
    };
    match doing.kind(&found).map_err(OperationError::at(path))? {
        FileKind::Regular => {}
        FileKind::Directory => return Err(OperationError::IsADirectory(path.clone())),
        _ => return Err(OperationError::NotAFile(path.clone())),
    }
    if ino != Some(found.ino) {
        return Ok(None);
    }
    if doing.state().pins.contains_key(&found.ino) {
        return Err(OperationError::Pinned(path.clone()));
    }
    doing.write(path, &found, |node| {
        (node.content, node.size) = (content, size);
        if !by.caller.is_privileged() {
            take_privileges(node, by.caller);
        }
        match options.executable {
            true => set_perm(node, node.perm | 0o111 & !umask),
            false => Ok(()),
        }
    })?;
    Ok(Some(false))
}
