//! Going back to an earlier state of a fork, or to another fork's, without taking back what others
//! have committed since.
//!
//! A state is a tree over the HEAD that it was at. Where HEAD has commits of others that the state
//! lacks (an update, a merge, another branch), the state's tree would take them back. What the
//! state has of its own, its tree against its HEAD, goes onto the present HEAD instead, as a merge.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::compare::compare_trees;
use super::fork_point::made_in;
use super::point::damaged;
use super::{Change, ChangeError, snapshots};
use tine_attr::Timestamp;
use tine_git::{Head, ObjectId, Repository, TreeEntryKind};
use tine_merge::{is_binary, takes_back};
use tine_path::RepoPath;
use tine_workspace::store::RecordKind;
use tine_workspace::{ForkName, ForkRecord, SnapshotRecord, Store, StoreError};

/// The HEAD that a state is of.
#[derive(Debug, Clone)]
pub struct Then {
    pub head: Option<ObjectId>,
    pub branch: Option<String>,
    /// Whether it is a state of the fork that goes back.
    pub is_own: bool,
}

/// What HEAD has that a state lacks.
#[derive(Debug, Clone)]
pub struct Since {
    /// HEAD of the state.
    pub then: ObjectId,
    /// What the state has of its own, it has against this tree.
    pub base_tree: ObjectId,
    /// The commits of others that the state's tree would take back, the newest first.
    pub left_out: Vec<ObjectId>,
}

impl Then {
    /// The HEAD that a snapshot of the fork `of` was taken at.
    pub fn of_snapshot(
        fork: &ForkName,
        of: &ForkName,
        snapshot: &SnapshotRecord,
    ) -> Result<Then, ChangeError> {
        Ok(Then {
            head: snapshots::head_commit(of, snapshot)?,
            branch: snapshot.branch.clone(),
            is_own: fork == of,
        })
    }

    /// What the present HEAD of the fork has that this state lacks; `None` where only the fork's
    /// own commits lie between them: those stay reachable, and the state's tree is what is meant.
    pub fn since(
        &self,
        store: &Store,
        repository: &Repository,
        record: &ForkRecord,
        head: &Head,
    ) -> Result<Option<Since>, ChangeError> {
        let (Some(then), Some(now)) = (self.head, head.commit_id()) else {
            return Ok(None);
        };
        if then == now {
            return Ok(None);
        }
        let own = self.own_branches(store, repository, record, head)?;
        let left_out = repository.commits_of_others(now, then, &own)?;
        if left_out.is_empty() && repository.commits_of_others(then, now, &own)?.is_empty() {
            return Ok(None);
        }
        let base = match self.is_own {
            true => Some(then),
            false => repository.merge_bases(then, now)?.first().copied(),
        };
        let base_tree = repository.tree_of(base)?;
        Ok(Some(Since {
            then,
            base_tree,
            left_out,
        }))
    }

    /// What the present HEAD of the fork has of others since the fork point `point`: what the fork
    /// merged. The fork point has nothing of its own, so its tree is what is meant in any case.
    pub fn since_fork_point(
        store: &Store,
        repository: &Repository,
        record: &ForkRecord,
        head: &Head,
        point: ObjectId,
    ) -> Result<Option<Since>, ChangeError> {
        let then = Then {
            head: Some(point),
            branch: None,
            is_own: true,
        };
        let Some(now) = head.commit_id().filter(|now| *now != point) else {
            return Ok(None);
        };
        let own = then.own_branches(store, repository, record, head)?;
        let mut left_out = repository.commits_of_others(now, point, &own)?;
        if left_out.is_empty() {
            return Ok(None);
        }
        // Those that others have taken over are its own even so.
        let made_here = made_in(store.worktree_of(&record.name)?.git_dir());
        left_out.retain(|id| !made_here.contains(id));
        let since = Since {
            then: point,
            base_tree: repository.commit_info(point)?.tree_id,
            left_out,
        };
        Ok(Some(since.within(repository, &[RepoPath::root()])?)
            .filter(|since| !since.left_out.is_empty()))
    }

    /// The branches whose commits are nobody else's: the fork's, and those of forks that began as
    /// it.
    fn own_branches(
        &self,
        store: &Store,
        repository: &Repository,
        record: &ForkRecord,
        head: &Head,
    ) -> Result<Vec<String>, ChangeError> {
        let now = head.short_branch();
        let mut own = Vec::new();
        match &self.branch {
            // It was put on another branch since, whose commits it did not make.
            Some(then)
                if self.is_own && now != Some(then) && repository.branch(then)?.is_some() =>
            {
                own.push(then.clone());
            }
            _ => {
                own.push(record.branch.clone());
                own.extend(now.map(str::to_owned));
            }
        }
        for child in store.records().0 {
            if child
                .parent
                .is_some_and(|parent| parent.fork == record.name)
            {
                own.push(child.branch);
                own.extend(child.head_branch);
            }
        }
        Ok(own)
    }
}

impl Since {
    /// Without the commits that changed nothing at `paths` and beneath.
    pub fn within(
        mut self,
        repository: &Repository,
        paths: &[RepoPath],
    ) -> Result<Since, ChangeError> {
        let mut left_out = Vec::new();
        for id in self.left_out {
            let touched = touched_by(repository, id)?;
            if touched
                .iter()
                .any(|touched| paths.iter().any(|path| touched.starts_with(path)))
            {
                left_out.push(id);
            }
        }
        self.left_out = left_out;
        Ok(self)
    }
}

/// The tree `from` with what `to` has at `paths` and beneath; without paths `to`.
pub fn at_paths(
    repository: &Repository,
    from: ObjectId,
    to: ObjectId,
    paths: &[RepoPath],
) -> Result<ObjectId, ChangeError> {
    if paths.is_empty() {
        return Ok(to);
    }
    let changes = compare_trees(repository, from, to)?;
    let asked = changes
        .iter()
        .filter(|change| paths.iter().any(|path| change.path.starts_with(path)));
    let edits: Vec<_> = asked.map(super::Change::edit).collect();
    Ok(repository.edit_tree(from, &edits)?)
}

/// So long a record stays without its fork, as entries of `tine recover` do by default.
const KEPT_SECS: i64 = 90 * 24 * 60 * 60;

/// That a fork went back to a state although HEAD had commits of others by then:
/// `<store>/gone-back/<n>.json`.
///
/// The files can leave the fork by many ways: snapshots, other forks, handoffs, branches. So the
/// record belongs to the store, and whatever is about to commit or merge compares the result with
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneBack {
    pub id: u64,
    pub created_secs: i64,
    pub fork: ForkName,
    /// The branch that the fork came from (short name). Where this has taken the commits back
    /// itself, nobody needs a warning.
    pub from_branch: Option<String>,
    /// HEAD of the state, in hex.
    pub then: String,
    /// The commits of others that the files lack, in hex.
    pub left_out: Vec<String>,
}

/// All that a store knows of forks that went back past commits of others.
#[derive(Debug, Clone, Default)]
pub struct KnownGoneBack {
    records: Vec<GoneBack>,
    /// Why a record cannot be read. Whatever it was about may be taken back.
    unreadable: Option<String>,
}

impl KnownGoneBack {
    /// Reads all records of the store.
    pub fn of(store: &Store) -> KnownGoneBack {
        match store.documents(RecordKind::GoneBack) {
            Ok((records, damaged)) => KnownGoneBack {
                records,
                unreadable: damaged.first().map(ToString::to_string),
            },
            Err(error) => KnownGoneBack {
                records: Vec::new(),
                unreadable: Some(error.to_string()),
            },
        }
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.unreadable.is_none()
    }
}

impl GoneBack {
    /// Notes that the fork of that record goes back to where `since` says, before its files change;
    /// the number of the note, unless there is one already. Killed in between, a fork is asked
    /// about commits that it has, and takes none back in silence.
    pub fn note(
        store: &Store,
        repository: &Repository,
        record: &ForkRecord,
        since: &Since,
    ) -> Result<Option<u64>, ChangeError> {
        if since.left_out.is_empty() {
            return Ok(None);
        }
        let then = since.then.to_string();
        let left_out: Vec<String> = since.left_out.iter().map(ObjectId::to_string).collect();
        let known = KnownGoneBack::of(store).records;
        let is_same = |known: &GoneBack| {
            (&known.fork, &known.then, &known.left_out) == (&record.name, &then, &left_out)
        };
        if known.iter().any(is_same) {
            return Ok(None);
        }
        for old in known
            .iter()
            .filter(|old| old.is_outdated(store, repository))
        {
            store.remove_document(RecordKind::GoneBack, old.id, None)?;
        }
        let noted = store.add_document::<_, ChangeError>(RecordKind::GoneBack, |id| {
            Ok(GoneBack {
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

    /// Whether the fork is gone, and nothing that left it is likely to be merged any more.
    fn is_outdated(&self, store: &Store, repository: &Repository) -> bool {
        let is_old = Timestamp::now().secs.saturating_sub(self.created_secs) > KEPT_SECS;
        let then = ObjectId::from_hex(self.then.as_bytes());
        let is_fork_gone = matches!(store.record(&self.fork), Err(StoreError::NoSuchFork(_)));
        is_old && is_fork_gone || then.is_ok_and(|then| !repository.has_object(then))
    }

    /// Paths that the tree `to` has as at the state, against the commit `from`, which has commits
    /// of others by then.
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
            if made.contains(path) && is_back(repository, [then_tree, from_tree, to], path, &added)?
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
                if is_back(
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

/// Texts up to this size, in bytes, are compared by lines.
const MAX_COMPARED_BYTES: u64 = 4 << 20;

/// Whether at `path` a tree takes back what led from the tree `then` to the tree `now`: it is as it
/// was then, has lines of then again, or is gone while a new path, one of those with these ids, has
/// what was there then.
fn is_back(
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

/// What may take commits of others back.
#[derive(Debug, Clone, Copy)]
pub enum RevertSource<'a> {
    /// A commit in this fork.
    Commit(&'a ForkName),
    /// A merge of this fork, if it is of one alone.
    Merge(Option<&'a ForkName>),
    /// A handoff of this fork, if it is one here.
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

    /// The fork in which paths can be had as the commit `from` has them, and what that is called
    /// there.
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

/// Refuses where the tree `to` would take commits of others back that `from` has: paths of it are
/// as at a state that a fork went back to past those commits. `what` would do that. Where a record
/// of such a fork cannot be read, any change may be one. Costs next to nothing where no fork ever
/// went back so.
///
/// # Errors
/// [`ChangeError::TakesBack`], [`ChangeError::MayTakeBack`].
pub fn refuse_taking_back(
    repository: &Repository,
    gone_back: &KnownGoneBack,
    from: Option<ObjectId>,
    to: ObjectId,
    what: RevertSource<'_>,
) -> Result<(), ChangeError> {
    let (Some(from), false) = (from, gone_back.is_empty()) else {
        return Ok(());
    };
    let changed = compare_trees(repository, repository.commit_info(from)?.tree_id, to)?;
    if changed.is_empty() {
        return Ok(());
    }
    let mut paths = BTreeSet::new();
    for gone_back in &gone_back.records {
        paths.extend(gone_back.taken_back(repository, from, to, &changed)?);
    }
    if !paths.is_empty() {
        return Err(ChangeError::TakesBack {
            what: what.word(),
            paths: paths.into_iter().collect(),
            way_out: what.way_out(from),
        });
    }
    match &gone_back.unreadable {
        Some(error) => Err(ChangeError::MayTakeBack {
            what: what.word(),
            error: error.clone(),
        }),
        None => Ok(()),
    }
}

/// The paths that a commit changed. What a merge brings its parents' commits have.
fn touched_by(
    repository: &Repository,
    commit_id: ObjectId,
) -> Result<BTreeSet<RepoPath>, ChangeError> {
    let info = repository.commit_info(commit_id)?;
    let before = match info.parent_ids.as_slice() {
        [] => repository.empty_tree_id(),
        [parent_id] => repository.commit_info(*parent_id)?.tree_id,
        _ => return Ok(BTreeSet::new()),
    };
    let changes = compare_trees(repository, before, info.tree_id)?;
    Ok(changes.into_iter().map(|change| change.path).collect())
}
