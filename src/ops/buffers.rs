//! Requests of editors: buffers are opened, changed, merged and closed.

mod closing;
mod writing;

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use closing::{end_in, recover};
pub use writing::{in_buffers_only, with_agent_texts, with_agent_texts_at, with_all_agent_texts};

use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{BufferAnswer, BufferInfo, BufferMerged, BufferRequest, BufferShown};
use crate::state::overlay;
use crate::state::slots::Daemon;
use tine_path::RepoPath;
use tine_sys::process::ProcessId;
use tine_tools::buffers::{BufferError, BufferSide, BufferState, PersonText};
use tine_tools::path::relative_path;
use tine_tools::{BufferKey, router};
use tine_workspace::{FinalComponent, OperationError};

impl Operation for BufferRequest {
    const NAME: &'static str = "buffer";
    type Answer = BufferAnswer;

    fn run(self, call: &Call<'_>) -> Result<BufferAnswer, Failure> {
        answer(call.daemon, call.editor, self)
    }
}

/// Longest time that a request for events waits.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Time that an editor has to take a merged text.
///
/// After it the request for the merge fails.
const EDITOR_TIMEOUT: Duration = Duration::from_secs(5);

/// Connection that may be an editor's, once it has attached.
///
/// Dropping it closes the editor's buffers.
pub struct Editor<'d> {
    daemon: &'d Arc<Daemon>,
    /// Process at the other end of the connection.
    process: u32,
    /// Session of the editor; `None` before it has attached.
    session: Cell<Option<u64>>,
}

impl Editor<'_> {
    /// Makes the state of a new connection from `process`.
    pub fn new(daemon: &Arc<Daemon>, process: u32) -> Editor<'_> {
        Editor {
            daemon,
            process,
            session: Cell::new(None),
        }
    }

    fn session(&self) -> Result<u64, Failure> {
        self.session.get().ok_or_else(|| {
            Failure::new(ErrorCode::Usage, "this connection is not an editor's")
                .hint("send {\"buffer\":\"attach\"} first; `tine buffer serve` does that")
        })
    }
}

impl Drop for Editor<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.get() {
            closing::close_session(self.daemon, session);
            overlay::editor_left(self.daemon, session);
        }
    }
}

/// Runs a request of an editor or another client.
///
/// Blocks for [`BufferRequest::Events`] and [`BufferRequest::Merge`].
///
/// # Errors
/// If the connection is not an editor's but must be, there is no such buffer or path, a version is
/// outdated, or the daemon is ending.
pub fn answer(
    daemon: &Arc<Daemon>,
    editor: &Editor<'_>,
    request: BufferRequest,
) -> Result<BufferAnswer, Failure> {
    let (buffers, store) = (&daemon.buffers, &daemon.store);
    let version = |path: PathBuf, version| BufferAnswer::Version { path, version };
    let answer = match request {
        BufferRequest::Attach => {
            let session = editor.session.get().unwrap_or_else(|| buffers.attach());
            editor.session.set(Some(session));
            overlay::editor_came(daemon, session, editor.process);
            BufferAnswer::Attached { session }
        }
        BufferRequest::Open {
            path,
            text,
            saved,
            after,
        } => {
            let session = editor.session()?;
            let key = locate(daemon, &path)?;
            let opened = buffers.open(
                session,
                &key,
                &path,
                PersonText {
                    text: text.into(),
                    saved,
                },
                after,
            )?;
            // The process id is needed later to detect that the editor has ended. It is unknown if
            // the process is not visible from here.
            if let Some(process) = ProcessId::of(editor.process)
                && let Err(error) = buffers.note_open(store, &key, process)
            {
                log::warn!(
                    "{}: that it is open could not be noted: {error}",
                    path.display()
                );
            }
            version(path, opened)
        }
        BufferRequest::Change { path, base, new } => {
            let changed = buffers.change(editor.session()?, &path, base, new)?;
            version(path, changed)
        }
        BufferRequest::Applied { path, base } => {
            let applied = buffers.applied(store, editor.session()?, &path, base)?;
            version(path, applied)
        }
        BufferRequest::Save { path, base } => {
            let saved = buffers.saved(store, editor.session()?, &path, base)?;
            version(path, saved)
        }
        BufferRequest::Close { path } => {
            let session = editor.session()?;
            let key = buffers.key_of(session, &path)?;
            closing::close(daemon, session, &key)?;
            BufferAnswer::Closed { path }
        }
        BufferRequest::Events { session, wait_ms } => {
            let deadline = Instant::now() + Duration::from_millis(wait_ms).min(MAX_WAIT);
            let events =
                buffers.events(session, deadline, || daemon.refuse_if_stopping().is_ok())?;
            daemon.refuse_if_stopping()?;
            BufferAnswer::Events { events }
        }
        BufferRequest::List => BufferAnswer::Buffers {
            buffers: buffers.states().into_iter().map(info).collect(),
        },
        BufferRequest::Show { path } => {
            let key = locate(daemon, &path)?;
            let state = buffers.state(&key).ok_or(BufferError::NoBuffer(path))?;
            BufferAnswer::Buffer(Box::new(BufferShown {
                person: state.person.text.to_string(),
                agent: state.agent.as_ref().map(ToString::to_string),
                conflicts: state.conflicts.clone(),
                info: info(state),
            }))
        }
        BufferRequest::Merge { path, side } => {
            let own = editor.session.get();
            let own = own.and_then(|session| buffers.key_of(session, &path).ok());
            let merged = match own {
                // The editor acknowledges on this connection, so waiting would block forever.
                Some(key) => merged_answer(
                    &key,
                    buffers.merge(store, &key, &path, side, Instant::now(), || true)?,
                ),
                None => merge(daemon, &locate(daemon, &path)?, &path, side)?,
            };
            BufferAnswer::Merged(merged)
        }
    };
    Ok(answer)
}

/// Merges an agent's text into the person's and waits for the editor.
///
/// `name` is the path for error messages.
///
/// # Errors
/// [`ErrorCode::Timeout`] if the editor does not take the text in five seconds. Also if there is no
/// such buffer, nothing can be merged, or the daemon is ending.
pub fn merge(
    daemon: &Arc<Daemon>,
    key: &BufferKey,
    name: &Path,
    side: Option<BufferSide>,
) -> Result<BufferMerged, Failure> {
    let goes_on = || daemon.refuse_if_stopping().is_ok();
    let deadline = Instant::now() + EDITOR_TIMEOUT;
    let merged = daemon
        .buffers
        .merge(&daemon.store, key, name, side, deadline, goes_on)?;
    daemon.refuse_if_stopping()?;
    if merged.pending {
        return Err(Failure::new(
            ErrorCode::Timeout,
            format!(
                "the editor has not taken what was written to {}",
                name.display()
            ),
        )
        .hint("it is kept and stays on offer: see that the editor answers, then try again"));
    }
    Ok(merged_answer(key, merged))
}

fn merged_answer(key: &BufferKey, merged: tine_tools::buffers::MergedBuffer) -> BufferMerged {
    BufferMerged {
        path: (&key.path).into(),
        conflicts: merged.conflicts,
        patches: merged.patches,
    }
}

fn info(state: BufferState) -> BufferInfo {
    BufferInfo {
        path: (&state.key.path).into(),
        fork: state.key.fork,
        file: state.name,
        version: state.version,
        saved: state.person.saved,
        forked: state.agent.is_some(),
        conflicted: !state.conflicts.is_empty(),
        unsaved_merge: state.unsaved_merge,
    }
}

/// Returns the key of the file at an absolute path.
fn locate(daemon: &Arc<Daemon>, path: &Path) -> Result<BufferKey, Failure> {
    let refused = |why: &str| {
        Failure::new(
            ErrorCode::PathRefused,
            format!("{} is not a file of a fork", path.display()),
        )
        .cause(why)
        .hint("open files in a fork's mount or in the main checkout; `tine list` shows where they are")
    };
    if !path.is_absolute() {
        return Err(refused("it is relative"));
    }
    if let Some(key) = in_fork(daemon, path, &refused)? {
        return Ok(key);
    }
    let checkout = daemon.repository.main_checkout();
    let in_checkout =
        checkout.and_then(|dir| router::in_checkout(dir, path.as_os_str().as_bytes()));
    match in_checkout {
        Some(key) => checked(key, &refused),
        None => Err(refused("it is neither in a mount nor in the main checkout")),
    }
}

/// Returns the key of a file, without using the fork's mount.
fn in_fork(
    daemon: &Arc<Daemon>,
    path: &Path,
    refused: &impl Fn(&str) -> Failure,
) -> Result<Option<BufferKey>, Failure> {
    let (records, _) = daemon.store.records();
    // A fork may be mounted inside another's mount.
    let found = records
        .into_iter()
        .filter_map(|record| {
            let path = relative_path(&record.mount_dir, path)?;
            Some((record.mount_dir.as_os_str().len(), record.name, path))
        })
        .max_by_key(|(len, ..)| *len);
    let Some((_, name, path)) = found else {
        return Ok(None);
    };
    let path = RepoPath::parse(path.as_os_str().as_bytes())?;
    let slot = daemon.slot(&name);
    // A long request that holds the fork's lock must not delay an editor.
    let fork = match slot.open_fork() {
        Some(fork) => fork,
        None => daemon.lock_fork(&slot)?.open_existing()?,
    };
    let path = match fork.workspace.follow(&path, FinalComponent::Follow) {
        Ok(path) => path,
        Err(OperationError::LeadsOut(_)) => {
            return Err(refused("a symbolic link leads out of the fork"));
        }
        Err(error) => return Err(error.into()),
    };
    checked(
        BufferKey {
            fork: Some(name),
            path,
        },
        refused,
    )
    .map(Some)
}

fn checked(key: BufferKey, refused: &impl Fn(&str) -> Failure) -> Result<BufferKey, Failure> {
    if key.path.is_root() {
        return Err(refused("it is a directory"));
    }
    if key.path.is_in_dot_git() {
        return Err(refused("it is git's"));
    }
    Ok(key)
}
