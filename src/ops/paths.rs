//! Reads and changes a fork by path, for people and for agents.
//!
//! The fork need not be mounted. Without an agent the operations work on the saved files of one
//! fork. An agent's go where [`agents`](super::agents) routes them.

mod changing;
mod reading;

use std::sync::Arc;

pub use self::changing::{MovePath, RemovePaths, WriteFile};
pub use self::reading::{ListDirectory, ReadFiles, Stat};
use crate::failure::{ErrorCode, Failure};
use crate::operation::Call;
use crate::protocol::{NodeKind, NodeLine};
use crate::state::slots::Daemon;
use tine_attr::FileKind;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_workspace::{FinalComponent, PathNode, Workspace};

/// Returns the only path of an agent's call.
fn only(paths: &[PathText]) -> Result<&PathText, Failure> {
    match paths {
        [path] => Ok(path),
        _ => Err(
            Failure::new(ErrorCode::Usage, "an agent's tool takes one file at a time")
                .hint("call it once for each, and name an agent with `=`: `--agent=NAME`; without `--agent` several are taken together"),
        ),
    }
}

/// Resolves the fork of a command whose first path is `first`.
///
/// # Errors
/// `usage` if `first` is a fork's name and no path; the errors of [`Call::fork`].
fn fork_of(
    call: &Call<'_>,
    named: Option<ForkName>,
    first: Option<&PathText>,
) -> Result<ForkName, Failure> {
    match fork_as_path(call, named.as_ref(), first)? {
        Some(name) => Err(is_a_fork(&name)),
        None => call.fork(named),
    }
}

/// Returns the fork that `first` names, if no such path exists.
///
/// Earlier versions named the fork before the paths.
fn fork_as_path(
    call: &Call<'_>,
    named: Option<&ForkName>,
    first: Option<&PathText>,
) -> Result<Option<ForkName>, Failure> {
    let (None, Some(path)) = (named, first) else {
        return Ok(None);
    };
    let bytes = path.to_bytes();
    let name = std::str::from_utf8(&bytes).ok().map(ForkName::parse);
    let Some(Ok(name)) = name else {
        return Ok(None);
    };
    if call.daemon.store.record(&name).is_err() {
        return Ok(None);
    }
    if let Some(here) = call.fork_if_any(None) {
        let path = call.path(&here, path)?;
        let is_there = with_workspace(call.daemon, &here, |workspace| {
            Ok(workspace.node_at_path(&path, FinalComponent::Keep).is_ok())
        })?;
        if is_there {
            return Ok(None);
        }
    }
    Ok(Some(name))
}

/// Makes the failure of a fork's name as the first path.
fn is_a_fork(name: &ForkName) -> Failure {
    Failure::new(
        ErrorCode::Usage,
        format!("{name} is a fork, and there is no such path here"),
    )
    .hint(format!(
        "name the fork with `--fork {name}`, and paths from its root; `./{name}` is a path; nothing was done"
    ))
}

/// Calls `read` with the fork's workspace, under the fork's lock.
pub(super) fn with_workspace<T>(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    read: impl FnOnce(&Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    read(&guard.open_existing()?.workspace)
}

pub(super) fn node_line(node: PathNode) -> NodeLine {
    let PathNode {
        path,
        attr,
        link_target,
    } = node;
    let (kind, bits) = match attr.kind {
        FileKind::Regular => (NodeKind::File, libc::S_IFREG),
        FileKind::Directory => (NodeKind::Directory, libc::S_IFDIR),
        FileKind::Symlink => (NodeKind::Symlink, libc::S_IFLNK),
        FileKind::Fifo => (NodeKind::Fifo, libc::S_IFIFO),
        FileKind::Socket => (NodeKind::Socket, libc::S_IFSOCK),
        FileKind::CharDevice => (NodeKind::CharDevice, libc::S_IFCHR),
        FileKind::BlockDevice => (NodeKind::BlockDevice, libc::S_IFBLK),
    };
    NodeLine {
        path: (&path).into(),
        kind,
        mode: format!("{:06o}", bits | u32::from(attr.perm)),
        size: attr.size,
        links: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        ino: attr.ino.0,
        modified: attr.mtime.into(),
        changed: attr.ctime.into(),
        target: link_target.as_deref().map(Into::into),
    }
}
