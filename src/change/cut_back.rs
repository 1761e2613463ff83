//! What a fork goes back past when a repair cuts the log of its layer.
//!
//! The view is then as it was at some moment before, and HEAD is where it was. What was committed
//! since, by the fork itself or by others whom it merged, would look like a change that takes it
//! back. Nobody knows which moment it was. So each commit that HEAD was on is noted before the cut
//! as one that the fork may have gone back to; afterwards only those notes stay that tell of a
//! path.

use std::collections::BTreeSet;
use std::path::Path;

use super::ChangeError;
use super::compare::compare_trees;
use super::going_back::{GoneBack, Since};
use super::view::view_tree;
use tine_git::{ObjectId, Repository};
use tine_path::RepoPath;
use tine_workspace::store::RecordKind;
use tine_workspace::{ForkName, ForkRecord, Store};

/// So many of the commits that HEAD was on are looked at, the newest ones.
const MAX_EARLIER_HEADS: usize = 64;

/// Notes that the files of a fork may go back past what HEAD has of commits: the numbers of the
/// notes, the newest state first.
pub(crate) fn before_cut(
    store: &Store,
    repository: &Repository,
    record: &ForkRecord,
) -> Result<Vec<u64>, ChangeError> {
    let worktree = store.worktree_of(&record.name)?;
    let Some(now) = repository.head_of(worktree.git_dir())?.commit_id() else {
        return Ok(Vec::new());
    };
    let mut notes = Vec::new();
    for then in earlier_heads(repository, record, worktree.git_dir(), now) {
        let since = Since {
            then,
            base_tree: repository.commit_info(then)?.tree_id,
            left_out: repository.commits_between(&[now], &[then])?,
        };
        notes.extend(GoneBack::note(store, repository, record, &since)?);
    }
    Ok(notes)
}

/// Removes the notes that tell of no path, or of none that an earlier one tells of.
pub(crate) fn after_cut(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    notes: Vec<u64>,
) -> Result<(), ChangeError> {
    if notes.is_empty() {
        return Ok(());
    }
    let fork = store.open_fork(name)?;
    let Some(now) = repository.head_of(fork.worktree.git_dir())?.commit_id() else {
        return Ok(());
    };
    let view = view_tree(repository, &fork)?;
    let changed = compare_trees(repository, repository.commit_info(now)?.tree_id, view)?;
    let mut told: BTreeSet<RepoPath> = BTreeSet::new();
    for id in notes {
        let Some(note) = store.read_document::<GoneBack>(RecordKind::GoneBack, id)? else {
            continue;
        };
        let paths = note.taken_back(repository, now, view, &changed)?;
        let count = told.len();
        told.extend(paths);
        if told.len() == count {
            store.remove_document(RecordKind::GoneBack, id, None)?;
        }
    }
    Ok(())
}

/// The commits other than `now` that HEAD of a fork was on, the newest first, and the one that the
/// fork was made on.
fn earlier_heads(
    repository: &Repository,
    record: &ForkRecord,
    git_dir: &Path,
    now: ObjectId,
) -> Vec<ObjectId> {
    let log = tine_sys::file::read(&git_dir.join("logs/HEAD")).unwrap_or_default();
    let logged = log.split(|&byte| byte == b'\n').rev().flat_map(|line| {
        let mut ids = line.split(|&byte| byte == b' ');
        let (old, new) = (ids.next(), ids.next());
        [new, old].into_iter().flatten()
    });
    let mut heads: Vec<ObjectId> = Vec::new();
    for id in logged.filter_map(|hex| ObjectId::from_hex(hex).ok()) {
        if heads.len() < MAX_EARLIER_HEADS && !heads.contains(&id) {
            heads.push(id);
        }
    }
    let base = record.base_commit.as_deref();
    let base = base.and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok());
    heads.extend(base.filter(|base| !heads.contains(base)));
    heads.retain(|id| *id != now && !id.is_null() && repository.commit_info(*id).is_ok());
    heads
}
