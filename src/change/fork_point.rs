//! The fork point: the commit at which a fork's own commits begin.
//!
//! It is recorded when a fork is made. An update moves it, by `tine update` or by git in the mount:
//! a merge or rebase that takes over more of the branch that the fork came from.
//!
//! | what HEAD did | the fork point |
//! |---|---|
//! | the fork commits | stays |
//! | the branch that it came from takes the fork's commits over | stays |
//! | HEAD has more of that branch than before | the newest commit that both have |
//! | HEAD is elsewhere, without the fork point | likewise |

use std::collections::HashSet;
use std::path::Path;

use super::ChangeError;
use super::point::damaged;
use tine_git::{ObjectId, Repository};
use tine_workspace::{ForkName, ForkPoint, ForkRecord, Store};

/// Where the fork's own commits begin, of which the last is `head`. `None`: all commits are its
/// own.
///
/// # Errors
/// [`ChangeError::Store`] where the record is damaged.
pub fn fork_point(
    repository: &Repository,
    record: &ForkRecord,
    head: Option<ObjectId>,
) -> Result<Option<ObjectId>, ChangeError> {
    let upstream = upstream(repository, record)?;
    fork_point_against(repository, record, head, upstream)
}

/// As [`fork_point`], where `upstream` is what the fork is compared with. Only records of earlier
/// versions need it: theirs may name the tip of a branch that was there before the fork, with
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

/// Where the commits begin that an update to `upstream` must keep; `upstream_name` is what a person
/// called it. Of what a branch lacks only that may go which the branch had once, so that it was
/// taken out of it; and of that nothing that was made in the fork.
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
        // Who names a commit means that one.
        None => false,
    };
    match was_never_there || lacking.iter().any(|id| made_here.contains(id)) {
        true => Ok(repository.merge_bases(head, upstream)?.first().copied()),
        false => Ok(Some(point)),
    }
}

/// The commits that were made in a worktree, as its reflog has them.
pub(super) fn made_in(git_dir: &Path) -> HashSet<ObjectId> {
    let log = tine_sys::file::read(&git_dir.join("logs/HEAD")).unwrap_or_default();
    let made = |line: &[u8]| {
        let (ids, message) = line.split_at_checked(line.iter().position(|&byte| byte == b'\t')?)?;
        let new = ids.split(|&byte| byte == b' ').nth(1)?;
        match message.starts_with(b"\tcommit") {
            true => ObjectId::from_hex(new).ok(),
            false => None,
        }
    };
    log.split(|&byte| byte == b'\n').filter_map(made).collect()
}

/// The tip of the branch that the fork came from, where that is known, still there and whole.
pub fn upstream(
    repository: &Repository,
    record: &ForkRecord,
) -> Result<Option<ObjectId>, ChangeError> {
    Ok(match &record.from_branch {
        Some(branch) => repository.readable_branch(branch)?,
        None => None,
    })
}

/// Has the record follow HEAD, which went from `last` to `head`.
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
    // Where the branch took over the fork's commits HEAD had as much of it before.
    let before = match last {
        Some(last) => repository.merge_bases(last, upstream)?.first().copied(),
        None => None,
    };
    match before == Some(common) {
        true => Ok(()),
        false => note(store, name, Some(common)),
    }
}

/// Records the fork point.
pub fn note(store: &Store, name: &ForkName, point: Option<ObjectId>) -> Result<(), ChangeError> {
    store.update_record(name, |record| record.put_fork_point(point))?;
    Ok(())
}
