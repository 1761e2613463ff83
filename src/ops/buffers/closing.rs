//! Saves agents' texts of buffers that end before the person saves them.
//!
//! The text is merged into the file, or written beside it if it does not fit. It never replaces
//! other content. In a fork these are operations, which `tine undo` takes back. The store's record
//! is removed when the text is on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::failure::{ErrorCode, Failure};
use crate::state::slots::{Daemon, ForkGuard};
use tine_attr::FileKind;
use tine_path::RepoPath;
use tine_store::Fork;
use tine_store::RecordKind;
use tine_tools::buffers::agent_text::{self, AgentTextRecord};
use tine_tools::{BufferKey, buffers};
use tine_workspace::{Actor, Caller, FsError, NewContent, OperationError, PutOptions};

/// Command line that the journal of operations shows.
pub(super) const COMMAND: &str = "tine buffer: an agent's text of an open buffer";

/// Maximum number of agents' texts beside one file.
const MAX_BESIDE: usize = 10_000;

/// Content of a path.
pub(super) enum PathContent {
    Nothing,
    File(Vec<u8>),
    /// Not a regular file, so no text can be merged into it.
    Other,
}

/// Closes a buffer of a session.
pub(super) fn close(daemon: &Arc<Daemon>, session: u64, key: &BufferKey) -> Result<(), Failure> {
    with_guard(daemon, key, |guard| {
        let record = daemon.buffers.close(session, key);
        // If the daemon is ending, the editors still have their files open.
        if daemon.refuse_if_stopping().is_ok() {
            daemon.buffers.note_closed(&daemon.store, key);
        }
        let Some(record) = record else {
            return Ok(());
        };
        save_record(daemon, guard, record)
    })
}

/// Closes all buffers of an editor that has disconnected.
///
/// A text that cannot be written to its file stays in the store for the next daemon.
pub(super) fn close_session(daemon: &Arc<Daemon>, session: u64) {
    for key in daemon.buffers.of_session(session) {
        if let Err(failure) = close(daemon, session, &key) {
            note_failure(daemon, &key, failure);
        }
    }
    daemon.buffers.detach(session);
}

/// Ends all buffers of a fork that is about to be unmounted.
///
/// # Errors
/// If a text cannot be written to the fork.
pub fn end_in(guard: &ForkGuard<'_>) -> Result<(), Failure> {
    let daemon = guard.daemon;
    for key in daemon.buffers.of(Some(guard.name())) {
        let record = daemon.buffers.end(&key);
        daemon.buffers.note_closed(&daemon.store, &key);
        if let Some(record) = record {
            save_record(daemon, Some(guard), record)?;
        }
    }
    Ok(())
}

/// Writes texts that a former daemon left to their files.
pub fn recover(daemon: &Arc<Daemon>) {
    match daemon.buffers.recover(&daemon.store) {
        Ok(damaged) => damaged.iter().for_each(|error| log::error!("{error}")),
        Err(error) => log::error!("what agents have read cannot be looked for: {error}"),
    }
    let records = match buffers::records(&daemon.store) {
        Ok((records, damaged)) => {
            for error in damaged {
                log::error!("{error}");
            }
            records
        }
        Err(error) => return log::error!("texts of agents could not be looked for: {error}"),
    };
    for record in records {
        let key = record.key();
        let saved = with_guard(daemon, &key, |guard| save_record(daemon, guard, record.id));
        if let Err(failure) = saved {
            note_failure(daemon, &key, failure);
        }
    }
}

fn note_failure(daemon: &Daemon, key: &BufferKey, failure: Failure) {
    let failure = failure.context(format!(
        "what an agent wrote to {} is still in the store only",
        key.path
    ));
    log::error!("{failure}");
    if let Some(slot) = key.fork.as_ref().and_then(|fork| daemon.known_slot(fork)) {
        slot.set_trouble(Some(failure));
    }
}

/// Runs `act` with the fork locked.
///
/// A request that looks for the agent's text in the file waits until it is there.
fn with_guard(
    daemon: &Arc<Daemon>,
    key: &BufferKey,
    act: impl FnOnce(Option<&ForkGuard<'_>>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match &key.fork {
        None => act(None),
        Some(fork) => {
            let slot = daemon.slot(fork);
            let guard = daemon.lock_fork(&slot)?;
            act(Some(&guard))
        }
    }
}

/// Writes a record's text to its file, and removes the record.
fn save_record(daemon: &Daemon, guard: Option<&ForkGuard<'_>>, id: u64) -> Result<(), Failure> {
    let Some(record) = daemon
        .store
        .read_document::<AgentTextRecord>(RecordKind::Buffers, id)?
    else {
        return Ok(());
    };
    match guard {
        Some(guard) => {
            let fork = guard.open_existing()?;
            save_text(&ForkFiles(&fork), &record)?;
            fork.workspace.sync()?;
        }
        None => {
            let checkout = daemon.repository.main_checkout().ok_or_else(|| {
                Failure::new(
                    ErrorCode::NoSuchPath,
                    "the repository has no main checkout any more",
                )
                .hint(format!(
                    "`git worktree list` shows what it has; the text is in {}",
                    daemon.store.dir().display()
                ))
            })?;
            save_text(&CheckoutFiles(checkout), &record)?;
        }
    }
    daemon
        .store
        .remove_document(RecordKind::Buffers, id, None)?;
    Ok(())
}

/// Source of files: a fork or the main checkout.
pub(super) trait Files {
    /// Reads the content of a path.
    fn read(&self, path: &RepoPath) -> Result<PathContent, Failure>;
    /// Creates a file, or replaces one that holds `before`.
    ///
    /// Returns false if the path has other content now.
    fn write(
        &self,
        path: &RepoPath,
        before: Option<&[u8]>,
        content: &[u8],
    ) -> Result<bool, Failure>;
}

fn save_text(files: &impl Files, record: &AgentTextRecord) -> Result<(), Failure> {
    let beside = loop {
        let there = files.read(&record.path)?;
        let (before, outcome) = match &there {
            PathContent::Nothing => (None, record.outcome(None)),
            PathContent::File(content) => (Some(content.as_slice()), record.outcome(Some(content))),
            PathContent::Other => break record.outcome_beside().beside,
        };
        // If the file changed in the meantime, the text is merged again.
        let is_written = match &outcome.content {
            Some(content) => files.write(&record.path, before, content)?,
            None => true,
        };
        if is_written {
            break outcome.beside;
        }
    };
    beside
        .iter()
        .try_for_each(|text: &String| write_beside(files, &record.path, text).map(drop))
}

/// Writes a text beside the file; returns the first free path.
///
/// Returns `None` if a file with this text is already there.
pub(super) fn write_beside(
    files: &impl Files,
    path: &RepoPath,
    text: &str,
) -> Result<Option<RepoPath>, Failure> {
    for number in 1..=MAX_BESIDE {
        let Some(place) = agent_text::beside(path, number) else {
            break;
        };
        match files.read(&place)? {
            PathContent::File(content) if content == text.as_bytes() => return Ok(None),
            PathContent::File(_) | PathContent::Other => {}
            PathContent::Nothing => {
                if files.write(&place, None, text.as_bytes())? {
                    log::warn!(
                        "what an agent wrote does not fit {path} any more: it is in {place}"
                    );
                    return Ok(Some(place));
                }
            }
        }
    }
    Err(Failure::new(
        ErrorCode::PathExists,
        format!("no name is free beside {path}"),
    )
    .hint("remove files that end in `.agent-text`; then restart the daemon (`tine daemon stop`)"))
}

pub(super) struct ForkFiles<'a>(pub(super) &'a Fork);

impl Files for ForkFiles<'_> {
    fn read(&self, path: &RepoPath) -> Result<PathContent, Failure> {
        let workspace = &self.0.workspace;
        match workspace.resolve(path) {
            Ok(attr) if attr.kind == FileKind::Regular => {
                Ok(PathContent::File(workspace.read_path(path)?))
            }
            Ok(_) => Ok(PathContent::Other),
            Err(FsError::NotFound) => Ok(PathContent::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    fn write(
        &self,
        path: &RepoPath,
        before: Option<&[u8]>,
        content: &[u8],
    ) -> Result<bool, Failure> {
        let attrs = self.0.workspace.base_attrs();
        let by = Actor {
            caller: Caller::new(attrs.uid, attrs.gid),
            command: COMMAND,
        };
        let options = PutOptions {
            parents: true,
            executable: false,
        };
        let workspace = &self.0.workspace;
        let Some(before) = before else {
            workspace.put_file(by, path, NewContent::Bytes(content), options)?;
            return Ok(true);
        };
        let edited = workspace.edit_file(by, path, u64::MAX, |now| {
            if now == before {
                Ok(content.to_vec())
            } else {
                Err(ReplaceError::MovedOn)
            }
        });
        match edited {
            Ok(_) => Ok(true),
            Err(ReplaceError::MovedOn) => Ok(false),
            Err(ReplaceError::Operation(error)) => Err(error.into()),
        }
    }
}

/// Reason that a file was not replaced.
enum ReplaceError {
    /// Its content has changed in the meantime.
    MovedOn,
    Operation(OperationError),
}

impl From<OperationError> for ReplaceError {
    fn from(error: OperationError) -> ReplaceError {
        ReplaceError::Operation(error)
    }
}

struct CheckoutFiles<'a>(&'a Path);

impl CheckoutFiles<'_> {
    /// Returns the path on this machine; fails on symlinks above it.
    fn place(&self, path: &RepoPath) -> Result<PathBuf, Failure> {
        let mut place = self.0.to_owned();
        for dir in path.directories_above() {
            let dir = self.0.join(dir.as_path());
            if dir.is_symlink() {
                return Err(Failure::new(
                    ErrorCode::PathRefused,
                    format!("{} is a symbolic link by now", dir.display()),
                )
                .hint("put the directory back, then restart the daemon (`tine daemon stop`)"));
            }
        }
        place.push(path.as_path());
        Ok(place)
    }
}

impl Files for CheckoutFiles<'_> {
    fn read(&self, path: &RepoPath) -> Result<PathContent, Failure> {
        let place = self.place(path)?;
        let found = match fs::symlink_metadata(&place) {
            Ok(meta) if meta.is_file() => fs::read(&place).map(PathContent::File),
            Ok(_) => Ok(PathContent::Other),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(PathContent::Nothing),
            Err(error) => Err(error),
        };
        found.map_err(|error| Failure::io("read", &place, &error))
    }

    fn write(
        &self,
        path: &RepoPath,
        before: Option<&[u8]>,
        content: &[u8],
    ) -> Result<bool, Failure> {
        let place = self.place(path)?;
        replace(&place, before, content).map_err(|error| Failure::io("write", &place, &error))
    }
}

/// Creates a file, or replaces one that holds `before`, atomically and durably.
fn replace(place: &Path, before: Option<&[u8]>, content: &[u8]) -> io::Result<bool> {
    let parent = place.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent)?;
    let mut name = std::ffi::OsString::from(format!(".tine-{}-", std::process::id()));
    name.push(place.file_name().unwrap_or_default());
    let temporary = parent.join(name);
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        file.write_all(content)?;
        let is_written = match before {
            // Making a link fails if the path exists.
            None => {
                file.sync_all()?;
                match fs::hard_link(&temporary, place) {
                    Ok(()) => true,
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
                    Err(error) => return Err(error),
                }
            }
            Some(before) => {
                file.set_permissions(fs::symlink_metadata(place)?.permissions())?;
                file.sync_all()?;
                let is_same = fs::read(place)? == before;
                if is_same {
                    fs::rename(&temporary, place)?;
                }
                is_same
            }
        };
        File::open(parent)?.sync_all()?;
        Ok(is_written)
    };
    let done = write();
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            log::warn!("{}: {error}", temporary.display())
        }
        _ => {}
    }
    done
}
