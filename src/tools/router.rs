//! Routing of tool operations: to an open buffer, else the fork, else back.
//!
//! ```text
//!                        a buffer open at the path,       a fork active
//!                        and buffers active
//! read, write, edit      the buffer                       the fork            passthrough
//! delete, move, list     -                                the fork            passthrough
//! search                 the fork, with the buffers' texts where they are open
//! ```
//!
//! The router has no state: each call brings what is active. A buffer belongs to its editor. So
//! removing and moving apply to the saved file, and the buffer stays as it is under its name, as in
//! an editor whose file another program moves.
//!
//! All that the router does in a fork goes through the [`Workspace`], which no path leads out of.
//! Its changes are operations that can be undone.

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
use tine_store::{Fork, ForkName, Store};
use tine_workspace::{
    Actor, FinalComponent, FsError, MoveOptions, Moved, NewContent, OperationError, PathNode,
    PutOptions, Workspace, Written,
};

/// Fork and buffers that are active for a call.
#[derive(Clone, Copy)]
pub struct ToolContext<'a> {
    /// Fork to work in. None if no fork is active.
    pub fork: Option<ActiveFork<'a>>,
    /// Buffers to use first. None if buffers are not active.
    pub buffers: Option<ActiveBuffers<'a>>,
    /// The main checkout. None if there is none.
    pub checkout_dir: Option<&'a Path>,
}

/// Buffers that tools use before the fork.
#[derive(Clone, Copy)]
pub struct ActiveBuffers<'a> {
    /// All open buffers of the daemon.
    pub buffers: &'a Buffers,
    /// Store that keeps agents' writes to the buffers.
    pub store: &'a Store,
    /// Agent that makes the call.
    pub agent: &'a AgentId,
}

/// Fork that tools work in.
#[derive(Clone, Copy)]
pub struct ActiveFork<'a> {
    /// Name of the fork.
    pub name: &'a ForkName,
    /// Repository of the fork's store.
    pub repository: &'a Repository,
    /// The fork itself.
    pub fork: &'a Fork,
    /// The fork's mount place, mounted or not.
    pub mount_dir: &'a Path,
}

/// Result of an operation and the route that it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Routed<T> {
    /// The operation used an open buffer.
    Buffer(T),
    /// The operation used the fork.
    Fork(T),
    /// Nothing was done. The caller does its own I/O.
    Passthrough,
}

/// Result of reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRead {
    /// Path in the fork, without symlinks on the way.
    pub path: RepoPath,
    /// Number of bytes read.
    pub size: u64,
}

/// Result of editing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdited {
    /// Path in the fork, without symlinks on the way.
    pub path: RepoPath,
    /// Number of occurrences that were replaced.
    pub replaced: u64,
    /// Size of the file after the edit, in bytes.
    pub size: u64,
}

/// Routes the operations of file tools.
#[derive(Clone, Copy)]
pub struct ToolRouter<'a> {
    context: ToolContext<'a>,
}

impl<'a> ToolRouter<'a> {
    /// Creates a router for one call.
    pub fn new(context: ToolContext<'a>) -> ToolRouter<'a> {
        ToolRouter { context }
    }

    /// Returns what is active for the call.
    pub fn context(&self) -> &ToolContext<'a> {
        &self.context
    }

    /// Returns whether an operation may take a route other than passthrough.
    pub fn is_active(&self) -> bool {
        self.context.fork.is_some() || self.has_buffers()
    }

    /// Returns whether buffers are active and there are any to consider.
    ///
    /// These are open buffers of the fork or main checkout, and notes on earlier ones.
    pub fn has_buffers(&self) -> bool {
        let fork = self.context.fork.map(|active| active.name);
        let has_notes = |active: ActiveBuffers<'_>| active.buffers.has_notes(fork);
        !self.buffers().is_empty() || self.context.buffers.is_some_and(has_notes)
    }

    /// Returns the open buffers where tools work, if buffers are active.
    pub fn buffers(&self) -> Vec<BufferKey> {
        let fork = self.context.fork.map(|active| active.name);
        self.context
            .buffers
            .map_or_else(Vec::new, |active| active.buffers.of(fork))
    }

    /// Returns the working directory of shell commands.
    ///
    /// This is the fork's mount place, else the main checkout.
    pub fn working_dir(&self) -> Option<&'a Path> {
        match &self.context.fork {
            Some(active) => Some(active.mount_dir),
            None => self.context.checkout_dir,
        }
    }

    /// Returns the variables to add to the environment of shell commands.
    ///
    /// [`run::git_variables`] lists the variables to remove.
    pub fn command_env(&self) -> Vec<(&'static str, PathBuf)> {
        match &self.context.fork {
            Some(active) => run::fork_env(active.name, active.mount_dir),
            None => Vec::new(),
        }
    }

    /// Passes the content of a file to `take` in pieces.
    ///
    /// The file must be regular. Symlinks are followed.
    ///
    /// # Errors
    /// [`ToolError`] if the path is not valid, [`OperationError`] if the file cannot be read, and
    /// the error of `take`.
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
            // The caller reads the file itself.
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

    /// Replaces or creates the file at `path`.
    ///
    /// It keeps the mode of the file, creates missing directories and follows symlinks.
    ///
    /// # Errors
    /// [`ToolError::UnreadBuffer`] and [`ToolError::UnsavedRead`] if the text may undo changes of a
    /// person, and other variants if the path or content is not valid or the write fails.
    pub fn write_file(
        &self,
        by: Actor<'_>,
        path: &[u8],
        content: NewContent<'_>,
    ) -> Result<Routed<Written>, ToolError> {
        let key = self.file_key(path)?;
        if let Some((active, key)) = self.buffer_at(key.as_ref()) {
            // Read only if a buffer is open, because the content may be as large as a disk.
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

    /// Applies edits to a file.
    ///
    /// It applies all of them in one step, or none, and follows symlinks.
    ///
    /// # Errors
    /// [`ToolError::Edit`] if an edit fails, [`ToolError::NotText`] and [`ToolError::TooLarge`] if
    /// the file cannot be edited, and other variants if it cannot be read or written.
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

    /// Removes a file or symlink and returns its path.
    ///
    /// It does not follow a symlink at `path`. A buffer of the file stays open.
    ///
    /// # Errors
    /// [`ToolError`] if the path is not valid, is a directory, or cannot be removed.
    pub fn delete_file(&self, by: Actor<'_>, path: &[u8]) -> Result<Routed<RepoPath>, ToolError> {
        let Some(active) = self.context.fork else {
            return Ok(Routed::Passthrough);
        };
        let path = self.file_path(&active, path, FinalComponent::Keep)?;
        active
            .workspace()
            .remove_paths(by, std::slice::from_ref(&path), false)?;
        self.note_moved(&active, &path, None);
        Ok(Routed::Fork(path))
    }

    /// Moves `from` to `to`, or into `to` if that is a directory.
    ///
    /// It does not follow a symlink at `from`. It creates missing directories and replaces nothing.
    /// A buffer of the file stays where it is.
    ///
    /// # Errors
    /// [`ToolError`] if a path is not valid, `to` exists, or the move fails.
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

    /// Lists a directory, sorted. With `deep`, lists the whole tree under it.
    ///
    /// A path that is not a directory gives its own node. The returned path has no symlinks on the
    /// way.
    ///
    /// # Errors
    /// [`ToolError`] if the path is not valid, does not exist, or cannot be read.
    pub fn list_directory(
        &self,
        path: &[u8],
        deep: bool,
    ) -> Result<Routed<(RepoPath, Vec<PathNode>)>, ToolError> {
        let Some(active) = self.context.fork else {
            return Ok(Routed::Passthrough);
        };
        let path = self.path(&active, path)?;
        let nodes = if deep {
            active.workspace().walk_at(&path)?
        } else {
            active.workspace().list_at(&path)?
        };
        Ok(Routed::Fork((path, nodes)))
    }

    /// Searches the lines of the fork's text files.
    ///
    /// Where a buffer is open, it searches the text that the agent sees.
    ///
    /// # Errors
    /// [`ToolError::Pattern`] and [`ToolError::Glob`] if the options are not valid, and other
    /// variants if the fork cannot be read.
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

    /// Returns the key of a file, with symlinks followed.
    ///
    /// The path is in the active fork. Without one it is in the main checkout, if buffers are open
    /// there. Returns `None` if only the caller knows what the path means.
    ///
    /// # Errors
    /// [`ToolError`] if the path is not valid in the fork or names a directory.
    pub fn file_key(&self, path: &[u8]) -> Result<Option<BufferKey>, ToolError> {
        match &self.context.fork {
            Some(active) => Ok(Some(BufferKey {
                fork: Some(active.name.clone()),
                path: self.file_path(active, path, FinalComponent::Follow)?,
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

    /// Returns the content of a buffer's file, lossily decoded, if it exists.
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

    /// Returns the path in the fork, with all symlinks followed.
    fn path(&self, active: &ActiveFork<'a>, path: &[u8]) -> Result<RepoPath, ToolError> {
        let named = self.places(active).resolve(path)?;
        let path = active
            .workspace()
            .follow(&named.path, FinalComponent::Follow)?;
        if path.is_in_dot_git() {
            return Err(OperationError::DotGit(path).into());
        }
        Ok(path)
    }

    /// Returns the path of a file in the fork.
    fn file_path(
        &self,
        active: &ActiveFork<'a>,
        path: &[u8],
        last: FinalComponent,
    ) -> Result<RepoPath, ToolError> {
        let named = self.places(active).resolve(path)?;
        if named.is_dir && !named.path.is_root() {
            return Err(ToolError::NamesDirectory(named.path));
        }
        let path = active.workspace().follow(&named.path, last)?;
        if path.is_in_dot_git() {
            return Err(OperationError::DotGit(path).into());
        }
        Ok(path)
    }
}

impl ActiveFork<'_> {
    fn workspace(&self) -> &Workspace {
        &self.fork.workspace
    }
}

/// Returns the key of a file in the main checkout at `dir`.
///
/// It follows symlinks. Returns `None` if the path leads elsewhere or its directory does not exist.
pub fn in_checkout(dir: &Path, path: &[u8]) -> Option<BufferKey> {
    let real_dir = dir.canonicalize().ok()?;
    let path = Path::new(OsStr::from_bytes(path));
    let named = if path.is_absolute() {
        dir.join(path::relative_path(dir, path)?)
    } else {
        dir.join(path)
    };
    let real = match named.canonicalize() {
        Ok(real) => real,
        // A buffer may be open for a file that was never saved.
        Err(_) => named
            .parent()?
            .canonicalize()
            .ok()?
            .join(named.file_name()?),
    };
    let path = RepoPath::parse(real.strip_prefix(real_dir).ok()?.as_os_str().as_bytes()).ok()?;
    Some(BufferKey { fork: None, path })
}

/// Returns the text to write to the buffer at `path`.
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
