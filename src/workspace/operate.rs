//! Operations of tine's commands by path: moves, removals, writes.
//!
//! Each is one step and one record, is announced to the mount, and can be undone
//! ([`operations`](super::operations)). Modes are not checked: everybody who may use the daemon
//! owns the fork. Inode flags are obeyed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parking_lot::{MutexGuard, RwLockWriteGuard};

use super::error::{FsError, OperationError};
use super::follow::FinalComponent;
use super::fs::{Invalidation, ViewState, Workspace};
use super::mutate::NewNode;
use super::operations::builder::{CommittedOperation, OperationBuilder};
use super::operations::journal::Journal;
use super::operations::{Actor, FileChange, GitSwitch, OperationKind, UndoneChanges};
use super::privileges::take_privileges;
use super::xattr::set_perm;
use tine_attr::{FileKind, Ino};
use tine_layer::contents::SLOT_MAX;
use tine_layer::{Content, ContentFile, ContentRef};
use tine_path::{EntryName, RepoPath};

/// Size of the pieces in which contents are copied, in bytes.
const COPY_CHUNK: usize = 1 << 20;

/// Options of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoveOptions {
    /// Replaces a file at the destination.
    pub force: bool,
    /// Requires that the destination is a directory, and moves into it.
    pub into: bool,
    /// Makes missing parents of the destination.
    pub parents: bool,
}

/// Result of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Path before, without symlinks on its way.
    pub from: RepoPath,
    /// Path after, without symlinks on its way.
    pub to: RepoPath,
    /// True if a file was at the destination.
    pub replaced: bool,
}

/// Options of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutOptions {
    /// Makes missing parents.
    pub parents: bool,
    /// Sets the execute bits that the umask allows.
    pub executable: bool,
}

/// Bytes that become a file's content. They may be read more than once.
#[derive(Debug, Clone, Copy)]
pub enum NewContent<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// The whole file, which must not change meanwhile.
    File(&'a File),
}

/// Result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Path of the file, without symlinks on its way.
    pub path: RepoPath,
    /// Size of the file in bytes.
    pub size: u64,
    /// True if no file was there before.
    pub created: bool,
}

/// Returns the path if it may be changed.
fn changeable(path: RepoPath) -> Result<RepoPath, OperationError> {
    if path.is_root() {
        Err(OperationError::Root)
    } else if path.is_in_dot_git() {
        Err(OperationError::DotGit(path))
    } else {
        Ok(path)
    }
}

impl Workspace {
    /// Moves the node at `from` to `to`, or into that directory.
    ///
    /// A symlink at `from` is moved itself. A directory is never replaced. The node keeps
    /// everything but its ctime.
    ///
    /// # Errors
    /// [`OperationError::NotFound`], [`OperationError::Exists`] without `force`,
    /// [`OperationError::IsADirectory`], [`OperationError::NotADirectory`],
    /// [`OperationError::IntoItself`], [`OperationError::SameFile`], [`OperationError::Root`] and
    /// [`OperationError::DotGit`] for paths that may not change; [`OperationError::LeadsOut`] and
    /// [`OperationError::SymlinkLoop`] for symlinks; [`OperationError::Fs`] if the layer fails.
    pub fn move_path(
        &self,
        by: Actor<'_>,
        from: &RepoPath,
        to: &RepoPath,
        options: MoveOptions,
    ) -> Result<Moved, OperationError> {
        let from = changeable(self.follow(from, FinalComponent::Keep)?)?;
        let (_, name) = from.split_last().ok_or(OperationError::Root)?;
        let to = self.destination(to, &name, options.into)?;
        self.copy_up_at(&from)?;
        self.copy_up_at(&to)?;
        let replaced = self.operate(by, OperationKind::Move, |builder| {
            if options.parents {
                builder.with_parents(by.caller, &to)?;
            }
            move_in(builder, &from, &to, options.force)
        })?;
        Ok(Moved { from, to, replaced })
    }

    /// Returns the destination path of a node moved to `to`.
    ///
    /// `name` is the node's own name.
    fn destination(
        &self,
        to: &RepoPath,
        name: &EntryName,
        into: bool,
    ) -> Result<RepoPath, OperationError> {
        let place = self.follow(to, FinalComponent::Keep)?;
        let is_dir = |path: &RepoPath| matches!(self.resolve(path), Ok(attr) if attr.kind == FileKind::Directory);
        if let Ok(dir) = self.follow(to, FinalComponent::Follow)
            && is_dir(&dir)
        {
            return changeable(dir.join(name));
        }
        if into {
            Err(match self.resolve(&place) {
                Ok(_) => OperationError::NotADirectory(place),
                Err(error) => OperationError::at(&place)(error),
            })
        } else {
            changeable(place)
        }
    }

    /// Removes the nodes at these paths, all or none.
    ///
    /// Symlinks are removed themselves, directories only if `recursive`. Returns the removed paths,
    /// sorted, without those below another.
    ///
    /// # Errors
    /// [`OperationError::NotFound`], [`OperationError::IsADirectory`] without `recursive`,
    /// [`OperationError::Root`] and [`OperationError::DotGit`] for paths that may not change;
    /// [`OperationError::LeadsOut`] and [`OperationError::SymlinkLoop`] for symlinks;
    /// [`OperationError::Fs`] if the layer fails.
    pub fn remove_paths(
        &self,
        by: Actor<'_>,
        paths: &[RepoPath],
        recursive: bool,
    ) -> Result<Vec<RepoPath>, OperationError> {
        let followed = paths
            .iter()
            .map(|path| changeable(self.follow(path, FinalComponent::Keep)?));
        let mut followed = followed.collect::<Result<Vec<_>, _>>()?;
        followed.sort();
        followed.iter().try_for_each(|path| self.copy_up_at(path))?;
        self.operate(by, OperationKind::Remove, |builder| {
            let mut found = Vec::with_capacity(followed.len());
            for path in &followed {
                let named = builder.named(path)?;
                let node = named
                    .found
                    .clone()
                    .ok_or(OperationError::NotFound(path.clone()))?;
                let kind = builder.kind(&node).map_err(OperationError::at(path))?;
                if kind == FileKind::Directory && !recursive {
                    return Err(OperationError::IsADirectory(path.clone()));
                }
                found.push((path, named, node));
            }
            let mut removed: Vec<RepoPath> = Vec::new();
            for (path, named, node) in &found {
                if !removed.iter().any(|above| path.starts_with(above)) {
                    builder.remove(path, named, node)?;
                    removed.push((*path).clone());
                }
            }
            Ok(removed)
        })
    }

    /// Replaces the content of a regular file, or makes the file.
    ///
    /// An existing file keeps its mode. A symlink at the end of the path is not followed.
    ///
    /// # Errors
    /// [`OperationError::IsADirectory`], [`OperationError::NotAFile`], [`OperationError::NotFound`]
    /// if the directory is missing, [`OperationError::Pinned`], [`OperationError::Source`] if
    /// `content` cannot be read, [`OperationError::Root`] and [`OperationError::DotGit`] for paths
    /// that may not change; [`OperationError::LeadsOut`] and [`OperationError::SymlinkLoop`] for
    /// symlinks; [`OperationError::Fs`] if the layer fails.
    pub fn put_file(
        &self,
        by: Actor<'_>,
        path: &RepoPath,
        content: NewContent<'_>,
        options: PutOptions,
    ) -> Result<Written, OperationError> {
        let path = changeable(self.follow(path, FinalComponent::Keep)?)?;
        self.copy_up_at(&path)?;
        loop {
            let staged = self.stage(&path, content)?;
            let size = staged.size;
            // A replaced content belongs to the trash, so nobody may be writing to it.
            let ino = match self.resolve(&path) {
                Ok(attr) if attr.kind == FileKind::Regular => Some(attr.ino),
                _ => None,
            };
            let put = self.operate_with(
                by,
                OperationKind::Write,
                Some(staged),
                ino,
                |builder, content| put_in(builder, by, &path, (content, size), ino, options),
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

    /// Replaces a file's content by what `edit` makes of it, atomically.
    ///
    /// No other write to the file, through the mount or by an operation, happens in between. A
    /// symlink at the end of the path is not followed. `edit` may be called more than once.
    ///
    /// # Errors
    /// Those of `edit`, and then nothing happens. [`FsError::TooLarge`] (in [`OperationError::Fs`])
    /// if the file has more than `max_bytes` bytes; otherwise as [`Workspace::put_file`].
    pub fn edit_file<E: From<OperationError>>(
        &self,
        by: Actor<'_>,
        path: &RepoPath,
        max_bytes: u64,
        mut edit: impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Written, E> {
        let path = changeable(self.follow(path, FinalComponent::Keep)?)?;
        self.copy_up_at(&path)?;
        loop {
            let ino = self
                .lookup_path(&path)
                .map_err(OperationError::at(&path))?
                .ino;
            let edited = self.edit_held(by, &path, ino, max_bytes, &mut edit);
            self.forget(ino, 1);
            if let Some(written) = edited? {
                return Ok(written);
            }
        }
    }

    /// Edits the file. Returns `None` if `path` has another node than `ino` by now.
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
        let before = match self.read_whole_locked(ino, max_bytes) {
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
            |builder, content| {
                let found = builder.find(path)?.and_then(|named| named.found);
                if found.is_some_and(|found| found.ino == ino) {
                    put_in(
                        builder,
                        by,
                        path,
                        (content, size),
                        Some(ino),
                        PutOptions::default(),
                    )
                } else {
                    Ok(None)
                }
            },
        )?;
        Ok(put.map(|created| Written {
            path: path.clone(),
            size,
            created,
        }))
    }

    /// Returns all bytes of a file of at most `max_bytes`. The caller holds its content lock.
    fn read_whole_locked(&self, ino: Ino, max_bytes: u64) -> Result<Vec<u8>, FsError> {
        let size = self.getattr(ino)?.size;
        if size > max_bytes {
            return Err(FsError::TooLarge);
        }
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| FsError::TooLarge)?];
        let mut done = 0;
        while done < bytes.len() {
            match self.read_locked(ino, done as u64, &mut bytes[done..])? {
                0 => break,
                read => done += read,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    /// Records that the fork's whole state was exchanged. Returns the operation's number.
    ///
    /// The snapshot `before` keeps the former state. To undo the operation
    /// ([`OperationError::IsSwitch`]) is to go to that snapshot and record that again, with
    /// `undoes` naming the operation that it undoes or redoes. `git` is HEAD after it, if HEAD, refs
    /// and index went as well. Must be called after the exchange.
    ///
    /// # Errors
    /// [`OperationError::Fs`] if the layer fails.
    pub fn record_switch(
        &self,
        by: Actor<'_>,
        before: &str,
        kind: OperationKind,
        undoes: Option<u64>,
        git: Option<GitSwitch>,
    ) -> Result<u64, OperationError> {
        self.operate(by, kind, |builder| {
            builder.note(FileChange::Switched {
                before: before.to_owned(),
                git,
            });
            builder.undoes(undoes.map(|operation| UndoneChanges {
                operation,
                changes: vec![0],
            }));
            Ok(builder.id())
        })
    }

    /// Copies up a carried file or directory at `path`.
    ///
    /// It becomes the fork's own, in the trash or elsewhere, whatever the main checkout does.
    fn copy_up_at(&self, path: &RepoPath) -> Result<(), OperationError> {
        let carried = {
            let state = self.read_state();
            let found = self.walk(&state, path).ok();
            found.filter(|found| self.needs_copy_up(&state, found).unwrap_or(false))
        };
        let owned = carried.map_or(Ok(()), |found| self.copy_up_carried(&found));
        owned.map_err(OperationError::at(path))
    }

    /// Runs `act` on a new operation and commits it.
    pub(super) fn operate<T>(
        &self,
        by: Actor<'_>,
        kind: OperationKind,
        act: impl FnOnce(&mut OperationBuilder<'_>) -> Result<T, OperationError>,
    ) -> Result<T, OperationError> {
        let acted = self.operate_with(by, kind, None, None, |builder, _| act(builder).map(Some))?;
        acted.ok_or(OperationError::Root)
    }

    /// Runs an operation with a staged content.
    ///
    /// Nobody writes to the node `ino` meanwhile. Like [`Workspace::operate`]. Returns `None`, and
    /// does nothing, if `act` does or if the staged content is not the open layer's any more.
    fn operate_with<T>(
        &self,
        by: Actor<'_>,
        kind: OperationKind,
        staged: Option<StagedContent>,
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

    /// Runs an operation. The caller holds the journal, and the node's content lock if any.
    ///
    /// See [`Workspace::operate_with`].
    fn operate_locked<T>(
        &self,
        by: Actor<'_>,
        kind: OperationKind,
        staged: Option<StagedContent>,
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
            let mut builder =
                OperationBuilder::begin(self, &mut state, id, kind, by.command).map_err(at())?;
            match act(&mut builder, content)? {
                Some(value) => Ok(Some((value, builder.commit().map_err(at())?))),
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

    /// Completes an operation that is in the layer.
    ///
    /// Bounds the trash, writes the journal, notifies the mount and syncs if inode flags ask for
    /// it.
    pub(super) fn complete<C>(
        &self,
        mut journal: MutexGuard<'_, Journal>,
        mut state: RwLockWriteGuard<'_, ViewState>,
        contents: C,
        done: CommittedOperation,
    ) -> Result<(), FsError> {
        let CommittedOperation {
            operation,
            changed,
            dirs,
            before,
        } = done;
        let steps = before.map_or_else(Vec::new, |before| self.view_steps(&state, before));
        let all = if journal.lacks_more_than(operation.id) {
            self.reachable_in(&state).ok()
        } else {
            None
        };
        journal.in_trash.add(&operation);
        if let Err(error) = self.limit_trash(&mut state, &mut journal.in_trash) {
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

    /// Copies a content into the layer while others use the fork.
    ///
    /// A small content is only read; it is stored later.
    fn stage(
        &self,
        path: &RepoPath,
        content: NewContent<'_>,
    ) -> Result<StagedContent, OperationError> {
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
            return Ok(StagedContent {
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
        copied.map(|()| StagedContent {
            bytes: None,
            place: Some(begun.content()),
            size,
        })
    }
}

/// Content that no record names yet.
struct StagedContent {
    /// Bytes of a small content, which is not in the layer yet.
    bytes: Option<Vec<u8>>,
    /// Place of a large content in the open layer.
    place: Option<ContentRef>,
    /// Size in bytes.
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

/// Moves a node. Returns whether a file was replaced.
fn move_in(
    builder: &mut OperationBuilder<'_>,
    from: &RepoPath,
    to: &RepoPath,
    force: bool,
) -> Result<bool, OperationError> {
    let source = builder.named(from)?;
    let found = source
        .found
        .clone()
        .ok_or(OperationError::NotFound(from.clone()))?;
    let is_dir = builder.kind(&found).map_err(OperationError::at(from))? == FileKind::Directory;
    if is_dir && to.starts_with(from) {
        return Err(OperationError::IntoItself(from.clone()));
    }
    let target = builder.named(to)?;
    let Some(there) = target.found.clone() else {
        builder.rename((from, &source, &found), (to, &target))?;
        return Ok(false);
    };
    if there.ino == found.ino {
        return Err(OperationError::SameFile(from.clone(), to.clone()));
    }
    match builder.kind(&there).map_err(OperationError::at(to))? {
        FileKind::Directory => return Err(OperationError::IsADirectory(to.clone())),
        _ if !force => return Err(OperationError::Exists(to.clone())),
        _ if is_dir => return Err(OperationError::NotADirectory(to.clone())),
        _ => {}
    }
    builder.remove(to, &target, &there)?;
    builder.rename((from, &source, &found), (to, &target))?;
    Ok(true)
}

/// Writes a file. Returns whether it was made; `None` if another node than `ino` is there.
fn put_in(
    builder: &mut OperationBuilder<'_>,
    by: Actor<'_>,
    path: &RepoPath,
    (content, size): (Content, u64),
    ino: Option<Ino>,
    options: PutOptions,
) -> Result<Option<bool>, OperationError> {
    let named = if options.parents {
        builder.with_parents(by.caller, path)?.0
    } else {
        builder.named(path)?
    };
    let umask = builder.state().base.attrs.umask;
    let Some(found) = named.found.clone() else {
        let new = NewNode {
            kind: FileKind::Regular,
            perm: if options.executable { 0o777 } else { 0o666 },
            rdev: 0,
            size,
            content,
        };
        builder.make(by.caller, path, &named, new)?;
        return Ok(Some(true));
    };
    match builder.kind(&found).map_err(OperationError::at(path))? {
        FileKind::Regular => {}
        FileKind::Directory => return Err(OperationError::IsADirectory(path.clone())),
        _ => return Err(OperationError::NotAFile(path.clone())),
    }
    if ino != Some(found.ino) {
        return Ok(None);
    }
    if builder.state().pins.contains_key(&found.ino) {
        return Err(OperationError::Pinned(path.clone()));
    }
    builder.write(path, &found, |node| {
        (node.content, node.size) = (content, size);
        if !by.caller.is_privileged() {
            take_privileges(node, by.caller);
        }
        if options.executable {
            set_perm(node, node.perm | 0o111 & !umask)
        } else {
            Ok(())
        }
    })?;
    Ok(Some(false))
}
