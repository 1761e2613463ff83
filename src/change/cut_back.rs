//! Records commits that a fork may lose when its log is cut.
//!
//! A repair cuts the log of a damaged layer. The view is then as it was at an earlier, unknown
//! moment, while HEAD stays. Commits since that moment, by the fork or by others whom it merged,
//! would look like changes that take them back. So before the cut, each commit that HEAD was at is
//! recorded as a state that the fork may have gone back to. After the cut, records that concern no
//! path are removed.

use std::collections::BTreeSet;
use std::path::Path;

use super::ChangeError;
use super::compare::compare_trees;
use super::going_back::LackedCommits;
use super::revert_guard::RevertRecord;
use super::view::view_tree;
use tine_git::{ObjectId, Repository};
use tine_path::RepoPath;
use tine_store::{ForkName, ForkRecord, RecordKind, Store};

/// Number of earlier commits of HEAD that are recorded, newest first.
const MAX_EARLIER_HEADS: usize = 64;

/// Records that the fork's files may go back past commits of HEAD.
///
/// Returns the numbers of the records, the newest state first.
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
        let since = LackedCommits {
            then,
            base_tree: repository.commit_info(then)?.tree_id,
            left_out: repository.commits_between(&[now], &[then])?,
        };
        notes.extend(RevertRecord::note(store, repository, record, &since)?);
    }
    Ok(notes)
}

/// Removes records that concern no path, or only paths of newer states.
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
    let mut covered: BTreeSet<RepoPath> = BTreeSet::new();
    for id in notes {
        let Some(note) = store.read_document::<RevertRecord>(RecordKind::Reverts, id)? else {
            continue;
        };
        let paths = note.taken_back(repository, now, view, &changed)?;
        let count = covered.len();
        covered.extend(paths);
        if covered.len() == count {
            store.remove_document(RecordKind::Reverts, id, None)?;
        }
    }
    Ok(())
}

/// Returns the earlier commits of HEAD, the newest first.
///
/// `now` is left out. The commit that the fork was made on comes last.
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
