//! Refusal of changes that revert commits of others without a word.
//!
//! A fork that goes back to an earlier state may leave out commits of others. A record says so, and
//! every commit and merge compares its result with the records.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::compare::compare_trees;
use super::going_back::{LackedCommits, touched_by};
use super::point::damaged;
use super::{Change, ChangeError};
use tine_attr::Timestamp;
use tine_git::{ObjectId, Repository, TreeEntryKind};
use tine_merge::{is_binary, takes_back};
use tine_path::RepoPath;
use tine_store::{ForkName, ForkRecord, RecordKind, Store, StoreError};

/// Time in seconds for which a record outlives its fork.
///
/// It equals the default for entries of `tine recover`.
const RETENTION_SECS: i64 = 90 * 24 * 60 * 60;

/// Record of a fork that went back past commits of others.
///
/// Its file is `<store>/gone-back/<n>.json`. The fork's files can leave it in many ways: snapshots,
/// other forks, handoffs, branches. So the record belongs to the store, and every commit and merge
/// compares its result with the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertRecord {
    /// Number of the record.
    pub id: u64,
    /// Time of creation in seconds since 1970.
    pub created_secs: i64,
    /// Fork that went back.
    pub fork: ForkName,
    /// Short name of the branch that the fork came from.
    ///
    /// If that branch has taken the commits back itself, a warning is not needed.
    pub from_branch: Option<String>,
    /// Commit of the state's HEAD, in hex.
    pub then: String,
    /// Commits of others that the files lack, in hex.
    pub left_out: Vec<String>,
}

/// All records of forks that went back past commits of others.
#[derive(Debug, Clone, Default)]
pub struct RevertRecords {
    records: Vec<RevertRecord>,
    /// Error of the first record that cannot be read.
    ///
    /// Any change may take its commits back.
    unreadable: Option<String>,
}

impl RevertRecords {
    /// Reads all records of the store.
    pub fn of(store: &Store) -> RevertRecords {
        match store.documents(RecordKind::Reverts) {
            Ok((records, damaged)) => RevertRecords {
                records,
                unreadable: damaged.first().map(ToString::to_string),
            },
            Err(error) => RevertRecords {
                records: Vec::new(),
                unreadable: Some(error.to_string()),
            },
        }
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.unreadable.is_none()
    }
}

impl RevertRecord {
    /// Records that a fork goes back, before its files change.
    ///
    /// Returns the number of the record, or `None` if the same one exists or nothing is left out.
    /// If the process is killed in between, tine asks about commits that the fork still has;
    /// without the record it would take commits back silently.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if records cannot be written.
    pub fn note(
        store: &Store,
        repository: &Repository,
        record: &ForkRecord,
        since: &LackedCommits,
    ) -> Result<Option<u64>, ChangeError> {
        if since.left_out.is_empty() {
            return Ok(None);
        }
        let then = since.then.to_string();
        let left_out: Vec<String> = since.left_out.iter().map(ObjectId::to_string).collect();
        let known = RevertRecords::of(store).records;
        let is_same = |known: &RevertRecord| {
            (&known.fork, &known.then, &known.left_out) == (&record.name, &then, &left_out)
        };
        if known.iter().any(is_same) {
            return Ok(None);
        }
        for old in known
            .iter()
            .filter(|old| old.is_outdated(store, repository))
        {
            store.remove_document(RecordKind::Reverts, old.id, None)?;
        }
        let noted = store.add_document::<_, ChangeError>(RecordKind::Reverts, |id| {
            Ok(RevertRecord {
                id,
                created_secs: Timestamp::now().secs,
                fork: record.name.clone(),
                from_branch: record.from_branch.clone(),
                then,
                left_out,
            })
        })?;
        Ok(Some(noted.id))
    }

    /// Returns whether the record is of no use any more.
    ///
    /// It is if the fork is long gone, so that files from it are unlikely to be merged, or if the
    /// state's commit is gone.
    fn is_outdated(&self, store: &Store, repository: &Repository) -> bool {
        let is_old = Timestamp::now().secs.saturating_sub(self.created_secs) > RETENTION_SECS;
        let then = ObjectId::from_hex(self.then.as_bytes());
        let is_fork_gone = matches!(store.record(&self.fork), Err(StoreError::NoSuchFork(_)));
        is_old && is_fork_gone || then.is_ok_and(|then| !repository.has_object(then))
    }

    /// Returns paths where the tree `to` takes back changes of others.
    ///
    /// At these paths it is as at the state, and the commit `from` has commits of others that
    /// changed them.
    pub(super) fn taken_back(
        &self,
        repository: &Repository,
        from: ObjectId,
        to: ObjectId,
        changed: &[Change],
    ) -> Result<Vec<RepoPath>, ChangeError> {
        let id = |hex: &String| ObjectId::from_hex(hex.as_bytes()).map_err(damaged(&self.fork));
        let then = id(&self.then)?;
        if !repository.has_object(then) {
            return Ok(Vec::new());
        }
        let then_tree = repository.commit_info(then)?.tree_id;
        let from_tree = repository.commit_info(from)?.tree_id;
        let made = compare_trees(repository, then_tree, from_tree)?;
        let made: BTreeSet<&RepoPath> = made.iter().map(|change| &change.path).collect();
        let added = changed.iter().filter(|change| change.old.is_none());
        let added: HashSet<ObjectId> = added
            .filter_map(|change| Some(change.new.as_ref()?.id))
            .collect();
        let mut suspects = Vec::new();
        for path in changed.iter().map(|change| &change.path) {
            if made.contains(path)
                && is_taken_back(repository, [then_tree, from_tree, to], path, &added)?
            {
                suspects.push(path);
            }
        }
        if suspects.is_empty() {
            return Ok(Vec::new());
        }
        let mut left_out = self
            .left_out
            .iter()
            .map(id)
            .collect::<Result<Vec<_>, _>>()?;
        left_out.retain(|id| repository.has_object(*id));
        let lacking: HashSet<ObjectId> = repository
            .commits_between(&left_out, &[from])?
            .into_iter()
            .collect();
        left_out.retain(|id| !lacking.contains(id));
        let upstream = match &self.from_branch {
            Some(branch) => repository.branch(branch)?,
            None => None,
        };
        let mut taken: BTreeSet<&RepoPath> = BTreeSet::new();
        let mut settled: (HashSet<ObjectId>, Vec<&RepoPath>) = Default::default();
        if let Some(upstream) = upstream {
            let lacking: HashSet<ObjectId> = repository
                .commits_between(&left_out, &[upstream])?
                .into_iter()
                .collect();
            settled.0 = left_out
                .iter()
                .copied()
                .filter(|id| !lacking.contains(id))
                .collect();
            let upstream_tree = repository.commit_info(upstream)?.tree_id;
            for path in &suspects {
                if is_taken_back(
                    repository,
                    [then_tree, from_tree, upstream_tree],
                    path,
                    &HashSet::new(),
                )? {
                    settled.1.push(path);
                }
            }
        }
        for id in left_out {
            let touched = touched_by(repository, id)?;
            let is_settled = |path: &&RepoPath| settled.0.contains(&id) && settled.1.contains(path);
            taken.extend(
                suspects
                    .iter()
                    .filter(|path| touched.contains(path) && !is_settled(path)),
            );
        }
        Ok(taken.into_iter().cloned().collect())
    }
}

/// Size in bytes up to which texts are compared by lines.
const MAX_COMPARED_BYTES: u64 = 4 << 20;

/// Returns whether `new` takes back the change from `then` to `now`.
///
/// All are trees, compared at `path`. `new` does if it equals `then`, has lines of `then` again, or
/// lacks the path while a new path has the content of `then`. `added` are the ids at new paths.
fn is_taken_back(
    repository: &Repository,
    [then, now, new]: [ObjectId; 3],
    path: &RepoPath,
    added: &HashSet<ObjectId>,
) -> Result<bool, ChangeError> {
    let entry = |tree_id| {
        let found = repository.tree_entry(tree_id, path)?;
        Ok::<_, ChangeError>(found.map(|entry| (entry.kind, entry.id)))
    };
    let (then, now, new) = (entry(then)?, entry(now)?, entry(new)?);
    if then == new {
        return Ok(true);
    }
    let (Some((_, then_id)), Some((_, new_id))) = (then, new) else {
        return Ok(new.is_none() && then.is_some_and(|(_, id)| added.contains(&id)));
    };
    let Some((_, now_id)) = now else {
        return Ok(false);
    };
    let mut texts = Vec::new();
    for (kind, id) in [then, now, new].into_iter().flatten() {
        let is_file = matches!(kind, TreeEntryKind::File | TreeEntryKind::Executable);
        if !is_file || repository.blob_size(id)? > MAX_COMPARED_BYTES {
            return Ok(false);
        }
        let text = repository.read_blob(id)?;
        if is_binary(&text) {
            return Ok(false);
        }
        texts.push(text);
    }
    Ok(match texts.as_slice() {
        [then, now, new] if then_id != now_id && now_id != new_id => takes_back(then, now, new),
        _ => false,
    })
}

/// Kind of change that may take others' commits back.
#[derive(Debug, Clone, Copy)]
pub enum RevertSource<'a> {
    /// A commit in this fork.
    Commit(&'a ForkName),
    /// A merge of this fork; `None` for any other source.
    Merge(Option<&'a ForkName>),
    /// A handoff of this fork; `None` if the fork is not here.
    Handoff(Option<&'a ForkName>),
}

impl RevertSource<'_> {
    fn word(self) -> &'static str {
        match self {
            RevertSource::Commit(_) => "the commit",
            RevertSource::Merge(_) => "the merge",
            RevertSource::Handoff(_) => "the handoff",
        }
    }

    /// Returns fork and point with the paths of commit `from`.
    fn way_out(self, from: ObjectId) -> Option<Box<(ForkName, String)>> {
        let (fork, to) = match self {
            RevertSource::Commit(fork) => (fork, "HEAD".to_owned()),
            // HEAD of the fork has taken them back already.
            RevertSource::Merge(fork) | RevertSource::Handoff(fork) => {
                (fork?, format!("{from} --exact"))
            }
        };
        Some(Box::new((fork.clone(), to)))
    }
}

/// Refuses if the tree `to` takes back others' commits in `from`.
///
/// It does if paths of it are as at a state to which a fork went back past those commits. `what` is
/// the change with that tree. If a record cannot be read, any change is refused. The check is cheap
/// unless a fork went back that way.
///
/// # Errors
/// [`ChangeError::TakesBack`], or [`ChangeError::MayTakeBack`] if a record cannot be read.
pub fn refuse_taking_back(
    repository: &Repository,
    reverts: &RevertRecords,
    from: Option<ObjectId>,
    to: ObjectId,
    what: RevertSource<'_>,
) -> Result<(), ChangeError> {
    let (Some(from), false) = (from, reverts.is_empty()) else {
        return Ok(());
    };
    let changed = compare_trees(repository, repository.commit_info(from)?.tree_id, to)?;
    if changed.is_empty() {
        return Ok(());
    }
    let mut paths = BTreeSet::new();
    for record in &reverts.records {
        paths.extend(record.taken_back(repository, from, to, &changed)?);
    }
    if !paths.is_empty() {
        return Err(ChangeError::TakesBack {
            what: what.word(),
            paths: paths.into_iter().collect(),
            way_out: what.way_out(from),
        });
    }
    match &reverts.unreadable {
        Some(error) => Err(ChangeError::MayTakeBack {
            what: what.word(),
            error: error.clone(),
        }),
        None => Ok(()),
    }
}
