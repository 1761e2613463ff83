//! What tine's commands do to a fork by path: moving, removing, writing. Each is one step, in one record, and announced
//! to the mount.
//!
//! Modes are not asked: whoever may ask the daemon owns the fork. Flags of `chattr` hold.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::edit::Edit;
use super::error::{FsError, OperationError};
use super::flags::{check_may_add, check_may_remove, check_may_replace};
use super::follow::{Last, is_dot_git};
use super::fs::{Found, Invalidation, State, Workspace};
use super::mutate::NewNode;
use super::ops::Caller;
use super::privileges::take_privileges;
use super::xattr::set_perm;
use crate::attr::{FileKind, Ino};
use crate::layer::contents::SLOT_MAX;
use crate::layer::{Content, ContentFile, ContentRef};
use crate::path::{EntryName, RepoPath};

/// Contents are copied in pieces of this many bytes.
const COPY_CHUNK: usize = 1 << 20;

/// How a move treats its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoveOptions {
    /// A file at the destination is replaced.
    pub force: bool,
    /// The destination is a directory, into which is moved.
    pub into: bool,
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

/// A name in a directory, and what it leads to.
struct Named {
    dir: Found,
    name: EntryName,
    found: Option<Found>,
}

/// The path, if it may be changed.
fn changeable(path: RepoPath) -> Result<RepoPath, OperationError> {
    match path.is_root() {
        true => Err(OperationError::Root),
        false if is_dot_git(&path) => Err(OperationError::DotGit(path)),
        false => Ok(path),
    }
}

impl Workspace {
    /// Moves what is at `from`, a symlink itself: to `to`, or into it where that is a directory. A directory is never
    /// replaced. The node keeps all but the time of its last change.
    pub fn move_path(
        &self,
        from: &RepoPath,
        to: &RepoPath,
        options: MoveOptions,
    ) -> Result<Moved, OperationError> {
        let from = changeable(self.follow(from, Last::Keep)?)?;
        let (_, name) = from.split_last().ok_or(OperationError::Root)?;
        let to = self.destination(to, &name, options.into)?;
        let mut state = self.write_state();
        let source = self.named(&state, &from)?;
        let target = self.named(&state, &to)?;
        let found = source
            .found
            .clone()
            .ok_or(OperationError::NotFound(from.clone()))?;
        let kind = self.kind(&state, &found).map_err(OperationError::at(&from))?;
        if kind == FileKind::Directory
            && self
                .is_beneath(&state, &target.dir, found.ino)
                .map_err(OperationError::at(&to))?
        {
            return Err(OperationError::IntoItself(from));
        }
        if let Some(there) = &target.found {
            if there.ino == found.ino {
                return Err(OperationError::SameFile(from, to));
            }
            let kind_there = self.kind(&state, there).map_err(OperationError::at(&to))?;
            match (kind_there, kind) {
                (FileKind::Directory, _) => return Err(OperationError::IsADirectory(to)),
                _ if !options.force => return Err(OperationError::Exists(to)),
                (_, FileKind::Directory) => return Err(OperationError::NotADirectory(to)),
                _ => {}
            }
        }
        check_may_remove(&state, &source.dir, &found).map_err(OperationError::at(&from))?;
        match &target.found {
            Some(there) => check_may_remove(&state, &target.dir, there),
            None => check_may_add(&state, &target.dir),
        }
        .map_err(OperationError::at(&to))?;
        if self
            .is_to_be_owned(&state, &found)
            .map_err(OperationError::at(&from))?
        {
            drop(state);
            self.own_carried(&found).map_err(OperationError::at(&from))?;
            return self.move_path(
                &from,
                &to,
                MoveOptions {
                    into: false,
                    ..options
                },
            );
        }
        self.move_name(
            &mut state,
            (&source.dir, &source.name, &found),
            (&target.dir, &target.name, target.found.clone()),
            None,
        )
        .map_err(OperationError::at(&to))?;
        drop(state);
        let dirs = [source.dir.ino, target.dir.ino];
        let replaced = target.found.as_ref().map(|found| found.ino);
        self.announce([
            source.changed(),
            target.changed(),
            Invalidation::Attributes(found.ino),
        ]);
        self.announce(replaced.map(Invalidation::Node));
        self.sync_names_if_flagged(&dirs)
            .map_err(OperationError::at(&to))?;
        Ok(Moved {
            from,
            to,
            replaced: replaced.is_some(),
        })
    }

    /// Where something called `name` goes that is moved to `to`.
    fn destination(&self, to: &RepoPath, name: &EntryName, into: bool) -> Result<RepoPath, OperationError> {
        let place = self.follow(to, Last::Keep)?;
        let is_dir =
            |path: &RepoPath| matches!(self.resolve(path), Ok(attr) if attr.kind == FileKind::Directory);
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

    /// Removes what is at these paths, symlinks themselves, directories only if `recursive`: all of it in one step, or
    /// nothing. What was removed, sorted, without what was beneath another.
    pub fn remove_paths(&self, paths: &[RepoPath], recursive: bool) -> Result<Vec<RepoPath>, OperationError> {
        let mut removed: Vec<RepoPath> = Vec::new();
        let followed = paths
            .iter()
            .map(|path| changeable(self.follow(path, Last::Keep)?));
        let mut followed = followed.collect::<Result<Vec<_>, _>>()?;
        followed.sort();
        let mut state = self.write_state();
        let mut names = Vec::new();
        for path in followed {
            let named = self.named(&state, &path)?;
            let found = named
                .found
                .clone()
                .ok_or(OperationError::NotFound(path.clone()))?;
            let kind = self.kind(&state, &found).map_err(OperationError::at(&path))?;
            if kind == FileKind::Directory && !recursive {
                return Err(OperationError::IsADirectory(path));
            }
            if !removed.iter().any(|above| path.starts_with(above)) {
                names.push((named, found, kind));
                removed.push(path);
            }
        }
        let mut edit = Edit::new(self, &mut state);
        for ((named, found, kind), path) in names.iter().zip(&removed) {
            named
                .remove(&mut edit, found, *kind)
                .map_err(OperationError::at(path))?;
        }
        let first = removed.first().cloned().unwrap_or_default();
        edit.commit().map_err(OperationError::at(&first))?;
        drop(state);
        let changes = names.iter().map(|(named, _, _)| named.changed());
        self.announce(changes.chain(names.iter().map(|(_, found, _)| Invalidation::Node(found.ino))));
        let dirs: Vec<Ino> = names.iter().map(|(named, _, _)| named.dir.ino).collect();
        self.sync_names_if_flagged(&dirs)
            .map_err(OperationError::at(&first))?;
        Ok(removed)
    }

    /// Replaces the content of the regular file at `path`, which keeps its mode, or makes that file. A symlink is not
    /// followed at the end.
    pub fn put_file(
        &self,
        caller: Caller,
        path: &RepoPath,
        content: NewContent<'_>,
        options: PutOptions,
    ) -> Result<Written, OperationError> {
        let path = changeable(self.follow(path, Last::Keep)?)?;
        let failed = || OperationError::at(&path);
        loop {
            let mut staged = self.stage(&path, content)?;
            let mut state = self.write_state();
            let (place, size) = match staged.bytes.take() {
                Some(bytes) => {
                    let place = self.store_content(&mut state, &bytes).map_err(failed())?;
                    (place, bytes.len() as u64)
                }
                None => (staged.place, staged.size),
            };
            let open = state.stack.open_layer().id();
            if place.is_some_and(|place| place.layer != open) {
                // The layer was frozen meanwhile, and what it holds is as good as gone.
                continue;
            }
            let put = self.put_staged(&mut state, caller, &path, (place, size), options);
            let (changes, created, dir) = match put {
                Ok(put) => put,
                Err(error) => {
                    if let Some(place) = place {
                        state.stack.open_layer_mut().abandon_content(place);
                    }
                    return Err(error);
                }
            };
            drop(state);
            let ino = changes.iter().find_map(|change| match change {
                Invalidation::Node(ino) => Some(*ino),
                Invalidation::Entry { .. } | Invalidation::Attributes(_) => None,
            });
            self.announce(changes);
            match ino {
                Some(ino) => self.sync_if_flagged(ino),
                None => self.sync_names_if_flagged(&[dir]),
            }
            .map_err(failed())?;
            return Ok(Written { path, size, created });
        }
    }

    /// What to announce, whether the file was made, and the directory in which something was.
    fn put_staged(
        &self,
        state: &mut State,
        caller: Caller,
        path: &RepoPath,
        (place, size): (Option<ContentRef>, u64),
        options: PutOptions,
    ) -> Result<(Vec<Invalidation>, bool, Ino), OperationError> {
        let failed = || OperationError::at(path);
        let (dir, reached, missing) = self.deepest(state, path)?;
        let content = place.map_or(Content::Empty, Content::Own);
        let umask = state.base.attrs.umask;
        let (name, parents) = missing.split_last().ok_or(OperationError::Root)?;
        let existing = match parents {
            [] => self.child(state, &dir, name.as_bytes()).map_err(failed())?,
            _ => None,
        };
        let mut edit = Edit::new(self, state);
        if let Some(found) = existing {
            match self.kind(edit.state, &found).map_err(failed())? {
                FileKind::Regular => {}
                FileKind::Directory => return Err(OperationError::IsADirectory(path.clone())),
                _ => return Err(OperationError::NotAFile(path.clone())),
            }
            if edit.state.pins.contains_key(&found.ino) {
                return Err(OperationError::Pinned(path.clone()));
            }
            check_may_replace(edit.state, found.ino).map_err(failed())?;
            let now = edit.now;
            let node = edit.node_mut(&found).map_err(failed())?;
            (node.content, node.size) = (content, size);
            (node.mtime, node.ctime) = (now, now);
            if !caller.is_privileged() {
                take_privileges(node, caller);
            }
            if options.executable {
                set_perm(node, node.perm | 0o111 & !umask).map_err(failed())?;
            }
            edit.commit().map_err(failed())?;
            return Ok((vec![Invalidation::Node(found.ino)], false, dir.ino));
        }
        if let Some(first) = parents.first()
            && !options.parents
        {
            return Err(OperationError::NotFound(reached.join(first)));
        }
        let caller = Caller { umask, ..caller };
        let mut parent = dir.clone();
        for name in parents {
            let new = NewNode {
                kind: FileKind::Directory,
                perm: 0o777,
                rdev: 0,
                size: 0,
                content: Content::Empty,
            };
            parent = edit.make(caller, &parent, name, new).map_err(failed())?;
        }
        let new = NewNode {
            kind: FileKind::Regular,
            perm: if options.executable { 0o777 } else { 0o666 },
            rdev: 0,
            size,
            content,
        };
        edit.make(caller, &parent, name, new).map_err(failed())?;
        edit.commit().map_err(failed())?;
        let name = missing.first().ok_or(OperationError::Root)?.clone();
        let change = Invalidation::Entry {
            parent: dir.ino,
            name,
        };
        Ok((vec![change], true, dir.ino))
    }

    /// The deepest directory on the way to `path` that is there, its path, and the names that are left: the last one in any
    /// case.
    fn deepest(
        &self,
        state: &State,
        path: &RepoPath,
    ) -> Result<(Found, RepoPath, Vec<EntryName>), OperationError> {
        let names: Vec<EntryName> = path.components().collect();
        let mut reached = RepoPath::root();
        let mut dir = self.find(state, Ino::ROOT).map_err(OperationError::at(path))?;
        for (index, name) in names.iter().enumerate() {
            let at = reached.join(name);
            let is_last = index + 1 == names.len();
            let child = self
                .child(state, &dir, name.as_bytes())
                .map_err(OperationError::at(&at))?;
            match child {
                Some(child) if !is_last => {
                    if self.kind(state, &child).map_err(OperationError::at(&at))? != FileKind::Directory {
                        return Err(OperationError::NotADirectory(at));
                    }
                    (dir, reached) = (child, at);
                }
                _ => return Ok((dir, reached, names[index..].to_vec())),
            }
        }
        Err(OperationError::Root)
    }

    fn named(&self, state: &State, path: &RepoPath) -> Result<Named, OperationError> {
        let (parent, name) = path.split_last().ok_or(OperationError::Root)?;
        let dir = self
            .walk_dir(state, &parent)
            .map_err(OperationError::at(&parent))?;
        self.check_is_linked(state, &dir)
            .map_err(OperationError::at(&parent))?;
        let found = self
            .child(state, &dir, name.as_bytes())
            .map_err(OperationError::at(path))?;
        Ok(Named { dir, name, found })
    }

    /// Brings a content to where the layer keeps it, as far as that can be done while others use the fork.
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

impl Named {
    fn changed(&self) -> Invalidation {
        Invalidation::Entry {
            parent: self.dir.ino,
            name: self.name.clone(),
        }
    }

    /// Takes the name away, with all that is beneath it.
    fn remove(&self, edit: &mut Edit<'_>, found: &Found, kind: FileKind) -> Result<(), FsError> {
        let is_dir = kind == FileKind::Directory;
        check_may_remove(edit.state, &self.dir, found)?;
        edit.drop_name(&self.dir, &self.name)?;
        if is_dir {
            edit.empty_dir(found)?;
        }
        edit.lose_link(found)?;
        edit.touch_dir(&self.dir, -i64::from(is_dir))
    }
}
