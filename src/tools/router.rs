//! Where a tool's operation goes: to an open buffer, else to the fork, else back to its caller.
//!
//! ```text
//!                        a buffer open at the path,       a fork active
//!                        and buffers active
//! read, write, edit      the buffer                       the fork            passthrough
//! delete, move, list     -                                the fork            passthrough
//! search                 the fork, with the buffers' texts where they are open
//! ```
//!
//! The router remembers nothing: what is active comes with each call. A buffer belongs to its
//! editor, so that removing and moving are done to what is saved, and the buffer stays what and
//! where it is, as it does in an editor whose file another program moves.
//!
//! All that it does in a fork it does in the [`Workspace`], which no path leads out of, and as
//! operations that can be taken back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::buffers::{AgentId, BufferKey, BufferWritten, Buffers, MAX_TEXT_BYTES};
use super::edit::{self, EDIT_MAX, Edited, TextEdit};
use super::error::ToolError;
use super::path::{self, Places};
use super::run;
use super::search::{self, SearchOptions, SearchOutcome};
use tine_git::Repository;
use tine_path::RepoPath;
use tine_workspace::{
    Actor, Fork, ForkName, FsError, Last, MoveOptions, Moved, NewContent, OperationError, PathNode,
    PutOptions, Store, Workspace, Written,
};

/// What is active when a tool is called.
#[derive(Clone, Copy)]
pub struct ToolContext<'a> {
    pub fork: Option<ActiveFork<'a>>,
    /// `None` where buffers are not active.
    pub buffers: Option<ActiveBuffers<'a>>,
    /// The main checkout, where there is one.
    pub checkout_dir: Option<&'a Path>,
}

/// Buffers that tools look at first.
#[derive(Clone, Copy)]
pub struct ActiveBuffers<'a> {
    pub buffers: &'a Buffers,
    /// Where what is written to them is kept.
    pub store: &'a Store,
    /// Who calls.
    pub agent: &'a AgentId,
}

/// A fork that tools work in.
#[derive(Clone, Copy)]
pub struct ActiveFork<'a> {
    pub name: &'a ForkName,
    pub repository: &'a Repository,
    pub fork: &'a Fork,
    /// Its place, mounted or not.
    pub mount_dir: &'a Path,
}

/// Where an operation went, and what came of it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Routed<T> {
    Buffer(T),
    Fork(T),
    /// Nothing was done: the caller does its own I/O.
    Passthrough,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRead {
    /// Without symlinks on the way.
    pub path: RepoPath,
    /// Bytes.
    pub size: u64,
}

/// What was edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdited {
    /// Without symlinks on the way.
    pub path: RepoPath,
    /// Places that were replaced.
    pub replaced: u64,
    /// Bytes, then.
    pub size: u64,
}

/// Routes the operations of file tools.
#[derive(Clone, Copy)]
pub struct ToolRouter<'a> {
    context: ToolContext<'a>,
}

impl<'a> ToolRouter<'a> {
    pub fn new(context: ToolContext<'a>) -> ToolRouter<'a> {
        ToolRouter { context }
    }

    pub fn context(&self) -> &ToolContext<'a> {
        &self.context
    }

    /// Whether anything but the caller's own I/O can come of an operation.
    pub fn is_active(&self) -> bool {
        self.context.fork.is_some() || self.has_buffers()
    }

    /// Whether buffers are active, and one is open where tools work, or was and is still to be
    /// thought of.
    pub fn has_buffers(&self) -> bool {
        let fork = self.context.fork.map(|active| active.name);
        let has_notes = |active: ActiveBuffers<'_>| active.buffers.has_notes(fork);
        !self.buffers().is_empty() || self.context.buffers.is_some_and(has_notes)
    }

    /// The buffers that are open where tools work, if buffers are active.
    pub fn buffers(&self) -> Vec<BufferKey> {
        let fork = self.context.fork.map(|active| active.name);
        self.context
            .buffers
            .map_or_else(Vec::new, |active| active.buffers.of(fork))
    }

    /// Where shell commands run: the fork's place, else the main checkout.
    pub fn working_dir(&self) -> Option<&'a Path> {
        match &self.context.fork {
            Some(active) => Some(active.mount_dir),
            None => self.context.checkout_dir,
        }
    }

    /// What shell commands have in their environment beside what they inherit; what they must not
    /// have is [`run::git_variables`].
    pub fn command_env(&self) -> Vec<(&'static str, PathBuf)> {
        match &self.context.fork {
            Some(active) => run::fork_env(active.name, active.mount_dir),
            None => Vec::new(),
        }
    }

    /// Gives `take` the content of the regular file at `path`, piece by piece; symlinks are
    /// followed.
    pub fn read_file<E: From<ToolError> + From<OperationError>>(
        &self,
        path: &[u8],
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Routed<FileRead>, E> {
        let key = self.file_key(path)?;
        if let Some((active, key)) = self.buffer_at(key.as_ref())
            && let Some(text) = active
                .buffers
                .read(active.store, active.agent, key)
                .map_err(ToolError::from)?
        {
            take(text.as_bytes())?;
            return Ok(Routed::Buffer(FileRead {
                path: key.path.clone(),
                size: text.len() as u64,
            }));
        }
        let Some((active, key)) = self.context.fork.zip(key.clone()) else {
            if let Some((active, key)) = self.buffer_at(key.as_ref())
                && active.buffers.is_left_open(key)
                && let Some(text) = self.file_text(key)
            {
                active
                    .buffers
                    .note_seen(active.store, active.agent, key, &text);
                take(text.as_bytes())?;
                return Ok(Routed::Buffer(FileRead {
                    path: key.path.clone(),
                    size: text.len() as u64,
                }));
            }
            // The caller reads it.
            if let Some((active, key)) = self.buffer_at(key.as_ref()) {
                active.buffers.note_read(active.store, active.agent, key);
            }
            return Ok(Routed::Passthrough);
        };
        let mut seen = self.context.buffers.map(|_| Vec::new());
        let size = active.workspace().read_at(&key.path, &mut |piece: &[u8]| {
            match &mut seen {
                Some(bytes) if bytes.len() + piece.len() <= MAX_TEXT_BYTES => bytes.extend(piece),
                _ => seen = None,
            }
            take(piece)
        })?;
        if let Some(active) = self.context.buffers
            && let Some(text) = seen.and_then(|bytes| String::from_utf8(bytes).ok())
        {
            active
                .buffers
                .note_seen(active.store, active.agent, &key, &text);
        }
        Ok(Routed::Fork(FileRead {
            path: key.path,
            size,
        }))
    }

    /// Lets the file at `path` hold `content`: it keeps its mode, or is made, with directories that
    /// are missing. Symlinks are followed.
    pub fn write_file(
        &self,
        by: Actor<'_>,
        path: &[u8],
        content: NewContent<'_>,
    ) -> Result<Routed<Written>, ToolError> {
        let key = self.file_key(path)?;
        if let Some((active, key)) = self.buffer_at(key.as_ref()) {
            // Not before it is known that a buffer is there: a content may be as large as a disk.
            let text = || text_of(&key.path, content);
            let mut size = 0;
            let new = || {
                let text = text()?;
                size = text.len() as u64;
                Ok::<String, ToolError>(text)
            };
            let file = || self.file_text(key);
            let written = active
                .buffers
                .write(active.store, active.agent, key, new, file);
            if let Some(written) = written {
                if written? == BufferWritten::Unread {
                    return Err(ToolError::UnreadBuffer(key.path.clone()));
                }
                return Ok(Routed::Buffer(Written {
                    path: key.path.clone(),
                    size,
                    created: false,
                }));
            }
            if active.buffers.has_unsaved(active.agent, key) {
                return Err(ToolError::UnsavedRead(key.path.clone()));
            }
            if active.buffers.is_left_open(key)
                && let Some(file) = self.file_text(key)
                && !active.buffers.has_seen(active.agent, key, &file)
                && !matches!(content, NewContent::Bytes(bytes) if bytes == file.as_bytes())
            {
                return Err(ToolError::UnreadBuffer(key.path.clone()));
            }
        }
        let Some((active, key)) = self.context.fork.zip(key) else {
            return Ok(Routed::Passthrough);
        };
        let options = PutOptions {
            parents: true,
            executable: false,
        };
        let seen = match (self.context.buffers, &content) {
            (Some(active), NewContent::Bytes(bytes)) => {
                std::str::from_utf8(bytes).ok().map(|text| (active, text))
            }
            _ => None,
        };
        let written = active
            .workspace()
            .put_file(by, &key.path, content, options)?;
        if let Some((active, text)) = seen {
            active
                .buffers
                .note_seen(active.store, active.agent, &key, text);
        }
        Ok(Routed::Fork(written))
    }

    /// Makes the edits in the file at `path`, all or none, in one step; symlinks are followed.
    pub fn edit_file(
        &self,
        by: Actor<'_>,
        path: &[u8],
        edits: &[TextEdit],
    ) -> Result<Routed<FileEdited>, ToolError> {
        let key = self.file_key(path)?;
        let mut replaced = 0;
        let mut edit = |path: &RepoPath, text: &str| {
            let Edited {
                text,
                replaced: count,
            } = edit::apply(text, edits).map_err(ToolError::edit(path))?;
            replaced = count;
            Ok::<String, ToolError>(text)
        };
        if let Some((active, key)) = self.buffer_at(key.as_ref()) {
            let mut size = 0;
            let edit = |text: &str| {
                let edited = edit(&key.path, text)?;
                size = edited.len() as u64;
                Ok::<String, ToolError>(edited)
            };
            let file = || self.file_text(key);
            let edited = active
                .buffers
                .edit(active.store, active.agent, key, edit, file);
            if let Some(edited) = edited {
                edited?;
                return Ok(Routed::Buffer(FileEdited {
                    path: key.path.clone(),
                    replaced,
                    size,
                }));
            }
        }
        let Some((active, key)) = self.context.fork.zip(key) else {
            return Ok(Routed::Passthrough);
        };
        let path = key.path.clone();
        let mut texts = None;
        let edited = active.workspace().edit_file(by, &path, EDIT_MAX, |bytes| {
            let text = std::str::from_utf8(bytes).map_err(|_| ToolError::NotText(path.clone()))?;
            let edited = edit(&path, text)?;
            texts = Some((text.to_owned(), edited.clone()));
            Ok(edited.into_bytes())
        });
        let written = edited.map_err(|error| match error {
            ToolError::Operation(OperationError::Fs { source, .. })
                if matches!(*source, FsError::TooLarge) =>
            {
                ToolError::TooLarge {
                    path: path.clone(),
                    max_bytes: EDIT_MAX,
                }
            }
            error => error,
        })?;
        if let (Some(active), Some((before, after))) = (self.context.buffers, texts) {
            active
                .buffers
                .note_edited(active.agent, &key, &before, &after);
        }
        Ok(Routed::Fork(FileEdited {
            path: written.path,
            replaced,
            size: written.size,
        }))
    }

    /// Removes what is at `path` and no directory, a symlink itself; where it was. A buffer stays
    /// open.
    pub fn delete_file(&self, by: Actor<'_>, path: &[u8]) -> Result<Routed<RepoPath>, ToolError> {
        let Some(active) = self.context.fork else {
            return Ok(Routed::Passthrough);
        };
        let path = self.file_path(&active, path, Last::Keep)?;
        active
            .workspace()
            .remove_paths(by, std::slice::from_ref(&path), false)?;
        self.note_moved(&active, &path, None);
        Ok(Routed::Fork(path))
    }

    /// Moves what is at `from`, a symlink itself, to `to`, or into it where that is a directory.
    /// Directories that are missing are made, and nothing is replaced. A buffer stays where it is.
    pub fn move_file(
        &self,
        by: Actor<'_>,
        from: &[u8],
        to: &[u8],
    ) -> Result<Routed<Moved>, ToolError> {
        let Some(active) = self.context.fork else {
            return Ok(Routed::Passthrough);
        };
        let places = self.places(&active);
        let (from, to) = (places.resolve(from)?, places.resolve(to)?);
        let options = MoveOptions {
            force: false,
            into: to.is_dir,
            parents: true,
        };
        let moved = active
            .workspace()
            .move_path(by, &from.path, &to.path, options)?;
        self.note_moved(&active, &moved.from, Some(&moved.to));
        Ok(Routed::Fork(moved))
    }

    fn note_moved(&self, active: &ActiveFork<'_>, from: &RepoPath, to: Option<&RepoPath>) {
        let key = |path: &RepoPath| BufferKey {
            fork: Some(active.name.clone()),
            path: path.clone(),
        };
        if let Some(active) = self.context.buffers {
            active.buffers.note_moved(&key(from), to.map(key).as_ref());
        }
    }

    /// What the directory at `path` holds, sorted, or with `deep` all beneath it; what is no
    /// directory itself. The path without symlinks on the way comes with it.
    pub fn list_directory(
        &self,
        path: &[u8],
        deep: bool,
    ) -> Result<Routed<(RepoPath, Vec<PathNode>)>, ToolError> {
        let Some(active) = self.context.fork else {
            return Ok(Routed::Passthrough);
        };
        let path = self.path(&active, path)?;
        let nodes = match deep {
            true => active.workspace().walk_at(&path)?,
            false => active.workspace().list_at(&path)?,
        };
        Ok(Routed::Fork((path, nodes)))
    }

    /// Lines that match, of the fork's text files; where a buffer is open, of what the agent sees
    /// of that.
    pub fn search(&self, options: &SearchOptions) -> Result<Routed<SearchOutcome>, ToolError> {
        let Some(active) = self.context.fork else {
            return Ok(Routed::Passthrough);
        };
        let start = match &options.path {
            Some(path) => self.path(&active, path)?,
            None => RepoPath::root(),
        };
        let texts = self.buffers().into_iter().filter_map(|key| {
            let active = self.context.buffers?;
            let text = active.buffers.text_for(active.agent, &key)?;
            Some((key.path, text.to_string()))
        });
        let found = search::search(&active, &start, texts.collect(), options)?;
        Ok(Routed::Fork(found))
    }

    /// The place of a file, symlinks followed: in the active fork, else in the main checkout, if
    /// buffers are open there and the path leads to it. `None` where only the caller can know what
    /// the path means.
    pub fn file_key(&self, path: &[u8]) -> Result<Option<BufferKey>, ToolError> {
        match &self.context.fork {
            Some(active) => Ok(Some(BufferKey {
                fork: Some(active.name.clone()),
                path: self.file_path(active, path, Last::Follow)?,
            })),
            None if self.has_buffers() => Ok(self
                .context
                .checkout_dir
                .and_then(|dir| in_checkout(dir, path))),
            None => Ok(None),
        }
    }

    fn buffer_at<'k>(
        &self,
        key: Option<&'k BufferKey>,
    ) -> Option<(ActiveBuffers<'a>, &'k BufferKey)> {
        self.context.buffers.zip(key)
    }

    /// What the file of a buffer holds, if there is one; lossily decoded.
    fn file_text(&self, key: &BufferKey) -> Option<String> {
        let bytes = match &self.context.fork {
            Some(active) => active.workspace().read_path(&key.path).ok()?,
            None => std::fs::read(self.context.checkout_dir?.join(key.path.as_path())).ok()?,
        };
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn places(&self, active: &ActiveFork<'a>) -> Places<'a> {
        Places {
            mount_dir: active.mount_dir,
            checkout_dir: self.context.checkout_dir,
        }
    }

    /// The path in the fork, without symlinks on the way or at the end.
    fn path(&self, active: &ActiveFork<'a>, path: &[u8]) -> Result<RepoPath, ToolError> {
        let named = self.places(active).resolve(path)?;
        let path = active.workspace().follow(&named.path, Last::Follow)?;
        match path.is_in_dot_git() {
            true => Err(OperationError::DotGit(path).into()),
            false => Ok(path),
        }
    }

    /// As [`ToolRouter::path`], of a file.
    fn file_path(
        &self,
        active: &ActiveFork<'a>,
        path: &[u8],
        last: Last,
    ) -> Result<RepoPath, ToolError> {
        let named = self.places(active).resolve(path)?;
        if named.is_dir && !named.path.is_root() {
            return Err(ToolError::NamesDirectory(named.path));
        }
        let path = active.workspace().follow(&named.path, last)?;
        match path.is_in_dot_git() {
            true => Err(OperationError::DotGit(path).into()),
            false => Ok(path),
        }
    }
}

impl ActiveFork<'_> {
    fn workspace(&self) -> &Workspace {
        &self.fork.workspace
    }
}

/// The key of a file in the main checkout at `dir`, symlinks followed; `None` for what is
/// elsewhere, or nowhere.
pub fn in_checkout(dir: &Path, path: &[u8]) -> Option<BufferKey> {
    let real_dir = dir.canonicalize().ok()?;
    let path = Path::new(OsStr::from_bytes(path));
    let named = match path.is_absolute() {
        true => dir.join(path::beneath(dir, path)?),
        false => dir.join(path),
    };
    let real = match named.canonicalize() {
        Ok(real) => real,
        // A buffer may be open that was never saved.
        Err(_) => named
            .parent()?
            .canonicalize()
            .ok()?
            .join(named.file_name()?),
    };
    let path = RepoPath::parse(real.strip_prefix(real_dir).ok()?.as_os_str().as_bytes()).ok()?;
    Some(BufferKey { fork: None, path })
}

/// What is to be written to the buffer at `path`.
fn text_of(path: &RepoPath, content: NewContent<'_>) -> Result<String, ToolError> {
    let too_large = || ToolError::TooLarge {
        path: path.clone(),
        max_bytes: EDIT_MAX,
    };
    let unread = |source| OperationError::Source {
        path: path.clone(),
        source,
    };
    let bytes = match content {
        NewContent::Bytes(bytes) if bytes.len() as u64 > EDIT_MAX => return Err(too_large()),
        NewContent::Bytes(bytes) => bytes.to_vec(),
        NewContent::File(file) => {
            let len = file.metadata().map_err(unread)?.len();
            if len > EDIT_MAX {
                return Err(too_large());
            }
            let mut bytes = vec![0; usize::try_from(len).map_err(|_| too_large())?];
            std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).map_err(unread)?;
            bytes
        }
    };
    String::from_utf8(bytes).map_err(|_| ToolError::NotText(path.clone()))
}
