//! The fork point: the commit at which a fork's own commits begin.
//!
//! A new fork records it. An update moves it, by `tine update` or by git in the mount: a merge or
//! rebase that takes over more of the branch that the fork came from.
//!
//! | event | fork point |
//! |---|---|
//! | the fork commits | stays |
//! | the branch that the fork came from takes over the fork's commits | stays |
//! | HEAD has more of that branch than before | the newest commit that both have |
//! | HEAD is elsewhere, without the fork point | the newest commit that both have |

use std::collections::HashSet;
use std::path::Path;

use super::ChangeError;
use super::point::damaged;
use tine_git::{ObjectId, Repository};
use tine_store::{ForkName, ForkPoint, ForkRecord, Store};

/// Returns the commit after which the fork's own commits begin.
///
/// `head` is the last of them. `None`: all commits are the fork's own.
///
/// # Errors
/// [`ChangeError::Store`] if the record is damaged.
pub fn fork_point(
    repository: &Repository,
    record: &ForkRecord,
    head: Option<ObjectId>,
) -> Result<Option<ObjectId>, ChangeError> {
    let upstream = upstream(repository, record)?;
    fork_point_against(repository, record, head, upstream)
}

/// Does the same as [`fork_point`], relative to `upstream`.
///
/// Only records of earlier versions need `upstream`. They may name the tip of an older branch, with
/// commits that upstream lacks.
fn fork_point_against(
    repository: &Repository,
    record: &ForkRecord,
    head: Option<ObjectId>,
    upstream: Option<ObjectId>,
) -> Result<Option<ObjectId>, ChangeError> {
    let id = |hex: &String| ObjectId::from_hex(hex.as_bytes()).map_err(damaged(&record.name));
    match &record.fork_point {
        Some(ForkPoint::After(hex)) => return Ok(Some(id(hex)?)),
        Some(ForkPoint::Root) => return Ok(None),
        None => {}
    }
    let former = record.former_fork_point.as_ref().map(id).transpose()?;
    let (Some(head), Some(upstream)) = (head, upstream) else {
        return Ok(match former {
            Some(former) => Some(former),
            None => record.base_commit.as_ref().map(id).transpose()?,
        });
    };
    match former {
        Some(former) if repository.is_ancestor(former, upstream)? => Ok(Some(former)),
        _ => Ok(repository.merge_bases(head, upstream)?.first().copied()),
    }
}

/// Returns the commit after which an update to `upstream` keeps commits.
///
/// `upstream_name` is the user's name for it; `None` if the user gave a commit. A commit that
/// upstream lacks is dropped only if the branch once had it, so that it was removed on purpose. A
/// commit made in the fork is always kept.
///
/// # Errors
/// [`ChangeError::Store`] if the record is damaged, [`ChangeError::Git`] if history cannot be read.
pub fn kept_by_update(
    repository: &Repository,
    store: &Store,
    record: &ForkRecord,
    head: ObjectId,
    upstream: ObjectId,
    upstream_name: Option<&str>,
) -> Result<Option<ObjectId>, ChangeError> {
    let point = fork_point_against(repository, record, Some(head), Some(upstream))?;
    let Some(point) = point else {
        return Ok(None);
    };
    if repository.is_ancestor(point, upstream)? {
        return Ok(Some(point));
    }
    let made_here = made_in(store.worktree_of(&record.name)?.git_dir());
    let lacking = repository.commits_between(&[point], &[upstream])?;
    let been_at = upstream_name
        .map(|name| repository.has_been_at(name))
        .transpose()?;
    let was_never_there = match been_at.flatten() {
        Some(mut been_at) => {
            been_at.push(upstream);
            !repository.commits_between(&[point], &been_at)?.is_empty()
        }
        // A user who names a commit means that commit.
        None => false,
    };
    if was_never_there || lacking.iter().any(|id| made_here.contains(id)) {
        Ok(repository.merge_bases(head, upstream)?.first().copied())
    } else {
        Ok(Some(point))
    }
}

/// Returns the commits made in a worktree, according to its reflog.
pub(super) fn made_in(git_dir: &Path) -> HashSet<ObjectId> {
    let log = tine_sys::file::read(&git_dir.join("logs/HEAD")).unwrap_or_default();
    let made = |line: &[u8]| {
        let (ids, message) = line.split_at_checked(line.iter().position(|&byte| byte == b'\t')?)?;
        let new = ids.split(|&byte| byte == b' ').nth(1)?;
        if message.starts_with(b"\tcommit") {
            ObjectId::from_hex(new).ok()
        } else {
            None
        }
    };
    log.split(|&byte| byte == b'\n').filter_map(made).collect()
}

/// Returns the tip of the branch that the fork came from.
///
/// `None` if that branch is unknown, gone or damaged.
///
/// # Errors
/// [`ChangeError::Git`] if the ref cannot be read.
pub fn upstream(
    repository: &Repository,
    record: &ForkRecord,
) -> Result<Option<ObjectId>, ChangeError> {
    Ok(match &record.from_branch {
        Some(branch) => repository.readable_branch(branch)?,
        None => None,
    })
}

/// Updates the recorded fork point after HEAD moved from `last` to `head`.
///
/// # Errors
/// [`ChangeError::Store`] if the record is damaged or cannot be written, [`ChangeError::Git`] if
/// history cannot be read.
pub fn follow(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    last: Option<ObjectId>,
    head: ObjectId,
) -> Result<(), ChangeError> {
    if last == Some(head) {
        return Ok(());
    }
    let record = store.record(name)?;
    let Some(upstream) = upstream(repository, &record)? else {
        return Ok(());
    };
    let point = fork_point(repository, &record, Some(head))?;
    let Some(common) = repository.merge_bases(head, upstream)?.first().copied() else {
        return Ok(());
    };
    let is_behind = match point {
        Some(point) if repository.is_ancestor(point, head)? => {
            point != common && repository.is_ancestor(point, common)?
        }
        Some(_) => return note(store, name, Some(common)),
        None => true,
    };
    if !is_behind {
        return Ok(());
    }
    // If the branch took over the fork's commits, HEAD had as much of it before.
    let before = match last {
        Some(last) => repository.merge_bases(last, upstream)?.first().copied(),
        None => None,
    };
    if before == Some(common) {
        Ok(())
    } else {
        note(store, name, Some(common))
    }
}

/// Records the fork point.
///
/// # Errors
/// [`ChangeError::Store`] if the record cannot be written.
pub fn note(store: &Store, name: &ForkName, point: Option<ObjectId>) -> Result<(), ChangeError> {
    store.update_record(name, |record| record.put_fork_point(point))?;
    Ok(())
}
