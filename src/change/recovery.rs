//! Entries of `tine recover`: work that commands dropped, replaced or discarded.
//!
//! An entry is one ref, `refs/tine/+recover/<id>`, to a tree that keeps commits and their trees
//! ([`git::recovery`](tine_git::recovery)). The ref is on disk before the original is removed, so a
//! process that dies in between leaves both, never neither. `git log --all` does not show kept
//! commits, and `git gc` does not remove them.
//!
//! An entry keeps the commits that nothing else reaches, and those of a fork since its fork point.
//! Their ancestors are reached by something else. If that changes later, [`tend`] adds more commits
//! to the entry.

mod rules;
mod staged;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::rules::{AGE_KEY, RecoverRules, SIZE_KEY, parse_age};
pub use self::staged::staged_only;
use super::ChangeError;
use super::changeset::{Blobs, Examined, Scope, examine, write_tree};
use super::commit::check_landed;
use super::snapshots::{head_commit, view_tree};
use tine_attr::Timestamp;
use tine_git::recovery::{OwnCommits, RECOVER};
use tine_git::{CommitSpec, GitError, Identity, ObjectId, Repository};
use tine_store::{Fork, ForkName, SnapshotReason, SnapshotRecord, Store};

/// Number of automatic snapshots that an entry of a deleted fork keeps.
///
/// The newest are kept.
const MAX_AUTOMATIC_SNAPSHOTS: usize = 50;

/// Number of commits since the fork point that such an entry keeps.
///
/// The newest are kept, even if a branch has them.
const MAX_FORK_COMMITS: usize = 1000;

/// Kind of work that an entry restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoverKind {
    /// A deleted fork, with its uncommitted changes and snapshots.
    Fork,
    /// A deleted snapshot.
    Snapshot,
    /// A deleted branch.
    Branch,
    /// The commits of a deleted handoff.
    Handoff,
    /// The sides and resolutions of an aborted review.
    Review,
}

/// Entry, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoverEntry {
    /// Kind of the dropped work.
    pub kind: RecoverKind,
    /// Time of dropping in seconds since 1970.
    pub kept_secs: i64,
    /// Command that dropped it.
    pub command: String,
    /// Fork that the work belonged to, if any.
    #[serde(default)]
    pub fork: Option<ForkName>,
    /// Branch (short name) of the fork, or the deleted branch.
    ///
    /// `None` if HEAD was detached.
    #[serde(default)]
    pub branch: Option<String>,
    /// Commit of HEAD or last commit, in hex; `None` if unborn.
    #[serde(default)]
    pub head: Option<String>,
    /// Commit over HEAD whose tree is the fork's view.
    ///
    /// `None` if nothing was uncommitted.
    #[serde(default)]
    pub uncommitted: Option<String>,
    /// Fork point, in hex.
    #[serde(default)]
    pub fork_point: Option<String>,
    /// Branch (short name) that the fork came from, if known.
    #[serde(default)]
    pub from_branch: Option<String>,
    /// Kept snapshots, the oldest first.
    #[serde(default)]
    pub snapshots: Vec<KeptSnapshot>,
    /// Number of the handoff or review.
    #[serde(default)]
    pub number: Option<u64>,
    /// Bytes on disk that only this entry kept when it was made.
    #[serde(default)]
    pub size_bytes: u64,
    /// Commits that the entry needs and does not keep, in hex.
    ///
    /// Something else reached them when it was made.
    #[serde(default)]
    pub stands_on: Vec<String>,
}

/// Snapshot in an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSnapshot {
    /// Name of the snapshot.
    pub name: ForkName,
    /// Time of the snapshot in seconds since 1970.
    pub created_secs: i64,
    /// Message of the snapshot, if any.
    #[serde(default)]
    pub message: Option<String>,
    /// Reason that the snapshot was taken.
    pub reason: SnapshotReason,
    /// Commit of HEAD at that time, in hex; `None` if unborn.
    #[serde(default)]
    pub head: Option<String>,
    /// Commit over HEAD whose tree is the snapshot's view, in hex.
    pub view: String,
}

/// Entry with its number.
#[derive(Debug, Clone)]
pub struct Recoverable {
    /// Number of the entry.
    pub id: u64,
    /// Tree that keeps the commits.
    pub tree_id: ObjectId,
    /// Entry stored in the tree.
    pub entry: RecoverEntry,
}

/// Number of an unreadable entry, and the reason.
pub type Unreadable = (u64, ChangeError);

impl RecoverEntry {
    /// Makes an entry of this kind, dropped now, with all else empty.
    pub fn new(kind: RecoverKind, command: impl Into<String>) -> RecoverEntry {
        RecoverEntry {
            kind,
            kept_secs: Timestamp::now().secs,
            command: command.into(),
            fork: None,
            branch: None,
            head: None,
            uncommitted: None,
            fork_point: None,
            from_branch: None,
            snapshots: Vec::new(),
            number: None,
            size_bytes: 0,
            stands_on: Vec::new(),
        }
    }

    /// Returns all commits that the entry names.
    fn tips(&self) -> Result<BTreeSet<ObjectId>, ChangeError> {
        let named = [&self.head, &self.uncommitted].into_iter().flatten();
        let named = named.chain(self.snapshots.iter().map(|snapshot| &snapshot.view));
        named.map(|hex| parse(hex)).collect()
    }

    /// Returns whether both have the same kind and commits.
    fn is_same(&self, other: &RecoverEntry) -> bool {
        (self.kind, &self.head, &self.uncommitted) == (other.kind, &other.head, &other.uncommitted)
    }
}

/// Parses an object id in an entry.
///
/// # Errors
/// [`ChangeError::Git`] if it is not a hex id.
pub fn parse(hex: &str) -> Result<ObjectId, ChangeError> {
    let parsed = ObjectId::from_hex(hex.as_bytes());
    Ok(parsed.map_err(GitError::library("read the name of a kept commit"))?)
}

/// Keeps the commits that `entry` names, and returns its number.
///
/// The entry is on disk when this returns. `without` are branches (short names) that are about to
/// be deleted.
///
/// # Errors
/// [`ChangeError::Git`] if commits cannot be read or the entry cannot be written.
pub fn keep(
    store: &Store,
    repository: &Repository,
    mut entry: RecoverEntry,
    without: &[&str],
) -> Result<u64, ChangeError> {
    let tips = entry.tips()?;
    let mut own = repository.own_commits(&tips, without)?;
    let is_own = !own.commit_ids.is_empty();
    if let (RecoverKind::Fork, Some(head)) = (entry.kind, &entry.head) {
        // A branch that has the commits now may be deleted with plain git, and `git gc` may run
        // before `tend` does.
        let since = entry.fork_point.as_deref().map(parse).transpose()?;
        let since = since.filter(|id| repository.has_object(*id));
        repository.add_commits_since(&mut own, parse(head)?, since, MAX_FORK_COMMITS)?;
    }
    let OwnCommits {
        commit_ids,
        stand_on,
    } = own;
    entry.size_bytes = if is_own {
        repository
            .own_bytes(&tips, without)
            .unwrap_or_else(|error| {
                log::warn!("the size of what is kept is not known: {error}");
                0
            })
    } else {
        0
    };
    entry.stands_on = stand_on.iter().map(ToString::to_string).collect();
    let tree_id = repository.write_recoverable(&commit_ids, &encoded(&entry)?)?;
    let mut id = highest(store, repository)?.saturating_add(1);
    // Another thread or process may keep something at the same time.
    while !repository.keep_recoverable(&id.to_string(), tree_id)? {
        id = id.saturating_add(1);
    }
    log::info!(
        "`tine recover {id}` brings back what `{}` dropped",
        entry.command
    );
    Ok(id)
}

fn encoded(entry: &RecoverEntry) -> Result<Vec<u8>, ChangeError> {
    let mut text = serde_json::to_vec_pretty(entry)
        .map_err(GitError::library("encode what is said of kept commits"))?;
    text.push(b'\n');
    Ok(text)
}

/// Returns the full name of an entry's ref.
pub fn ref_name(id: u64) -> String {
    format!("refs/tine/{RECOVER}/{id}")
}

/// Returns the highest number that an entry has or had.
fn highest(store: &Store, repository: &Repository) -> Result<u64, ChangeError> {
    let there = numbers(repository)?.keys().next_back().copied();
    Ok(there.unwrap_or(0).max(store.highest_recoverable()?))
}

/// Returns the trees of all entries, by number.
fn numbers(repository: &Repository) -> Result<BTreeMap<u64, ObjectId>, ChangeError> {
    let kept = repository.kept(RECOVER)?.into_iter();
    Ok(kept
        .filter_map(|(label, tree_id)| Some((label.parse().ok()?, tree_id)))
        .collect())
}

/// Returns all entries, the oldest first, and the unreadable ones.
///
/// # Errors
/// [`ChangeError::Git`] if the refs cannot be listed.
pub fn list(repository: &Repository) -> Result<(Vec<Recoverable>, Vec<Unreadable>), ChangeError> {
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    for (id, tree_id) in numbers(repository)? {
        match read(repository, tree_id) {
            Ok(entry) => found.push(Recoverable { id, tree_id, entry }),
            Err(error) => damaged.push((id, error)),
        }
    }
    Ok((found, damaged))
}

/// Reads the entry with a number.
///
/// # Errors
/// [`ChangeError::NothingToRecover`], or [`ChangeError::Git`] if it cannot be read.
pub fn find(repository: &Repository, id: u64) -> Result<Recoverable, ChangeError> {
    let tree_id = repository.kept_as(RECOVER, &id.to_string())?;
    let tree_id = tree_id.ok_or(ChangeError::NothingToRecover(id))?;
    Ok(Recoverable {
        id,
        tree_id,
        entry: read(repository, tree_id)?,
    })
}

fn read(repository: &Repository, tree_id: ObjectId) -> Result<RecoverEntry, ChangeError> {
    let text = repository.recoverable_entry(tree_id)?;
    let entry = serde_json::from_slice(&text);
    Ok(entry.map_err(|error| GitError::CorruptObject {
        id: tree_id,
        reason: error.to_string(),
    })?)
}

/// Returns whether an entry may keep commits that nothing else reaches.
///
/// An unreadable entry may.
pub fn may_be_work(repository: &Repository, tree_id: ObjectId) -> bool {
    let only_here = || {
        let kept = repository.recoverable_commits(tree_id)?;
        if kept
            .iter()
            .any(|commit_id| !repository.has_object(*commit_id))
        {
            return Ok(true);
        }
        Ok::<_, GitError>(!repository.own_commits(&kept, &[])?.commit_ids.is_empty())
    };
    only_here().unwrap_or(true)
}

/// Writes the commits of an entry back, with their own ids.
///
/// The entry stays. Ancestors that git no longer has are taken from other entries.
///
/// # Errors
/// [`ChangeError::HistoryGone`] if an ancestor is in no entry either, or a commit of the entry is
/// lost.
pub fn write_again(repository: &Repository, found: &Recoverable) -> Result<(), ChangeError> {
    match find_ancestors(repository, found, &list(repository)?.0)? {
        AncestorSource::Found(holders) => {
            for holder in holders {
                repository.write_commits_again(holder.tree_id)?;
            }
        }
        AncestorSource::Missing(object_id) => {
            return Err(ChangeError::HistoryGone {
                id: found.id,
                object_id,
                tree_id: newest_tree(repository, found),
            });
        }
    }
    Ok(repository.write_commits_again(found.tree_id)?)
}

/// Refuses to restore a commit whose tree is lost.
///
/// # Errors
/// [`ChangeError::HistoryGone`].
pub fn require_tree(
    repository: &Repository,
    found: &Recoverable,
    commit_id: ObjectId,
) -> Result<(), ChangeError> {
    match lost_tree(repository, commit_id)? {
        None => Ok(()),
        Some(object_id) => Err(ChangeError::HistoryGone {
            id: found.id,
            object_id,
            tree_id: None,
        }),
    }
}

/// Returns the tree of a commit if it is lost.
///
/// With a promisor remote, no tree is lost.
fn lost_tree(
    repository: &Repository,
    commit_id: ObjectId,
) -> Result<Option<ObjectId>, ChangeError> {
    let tree_id = repository.commit_info(commit_id)?.tree_id;
    let is_lost = !repository.has_object(tree_id) && repository.promisor_remote().is_none();
    Ok(is_lost.then_some(tree_id))
}

/// Returns an object that `found` needs and that is lost.
///
/// It is lost if neither git nor one of `entries` has it. `None` if `found` can be restored fully.
///
/// # Errors
/// [`ChangeError::Git`] if entries or commits cannot be read.
pub fn missing(
    repository: &Repository,
    found: &Recoverable,
    entries: &[Recoverable],
) -> Result<Option<ObjectId>, ChangeError> {
    if let AncestorSource::Missing(object_id) = find_ancestors(repository, found, entries)? {
        return Ok(Some(object_id));
    }
    if let Some(tree_id) = repository.lost_tree_of(found.tree_id)? {
        return Ok(Some(tree_id));
    }
    for commit_id in stands_on(found)? {
        if repository.has_object(commit_id)
            && let Some(tree_id) = lost_tree(repository, commit_id)?
        {
            return Ok(Some(tree_id));
        }
    }
    Ok(None)
}

/// Writes the objects of an aborted review back, from its entry.
///
/// No-op if no entry keeps the review.
///
/// # Errors
/// The errors of [`write_again`].
pub fn write_review_again(repository: &Repository, review: u64) -> Result<(), ChangeError> {
    let of_review = |found: &&Recoverable| {
        found.entry.kind == RecoverKind::Review && found.entry.number == Some(review)
    };
    match list(repository)?.0.iter().rfind(of_review) {
        Some(found) => write_again(repository, found),
        None => Ok(()),
    }
}

/// Source of the objects that an entry needs.
enum AncestorSource<'a> {
    /// The repository or these entries have them.
    Found(Vec<&'a Recoverable>),
    /// This object is lost.
    Missing(ObjectId),
}

/// Looks for the commits of `found` and their ancestors.
///
/// They are in the repository or in `entries`, which may need further entries.
fn find_ancestors<'a>(
    repository: &Repository,
    found: &Recoverable,
    entries: &'a [Recoverable],
) -> Result<AncestorSource<'a>, ChangeError> {
    if let Some(lost) = repository.lost_commit_of(found.tree_id)? {
        return Ok(AncestorSource::Missing(lost));
    }
    let mut wanted = stands_on(found)?;
    let mut holders: Vec<&Recoverable> = Vec::new();
    let mut held: BTreeSet<ObjectId> = BTreeSet::new();
    while let Some(commit_id) = wanted.pop_first() {
        if held.contains(&commit_id) || repository.has_object(commit_id) {
            continue;
        }
        let holder = entries.iter().find_map(|entry| {
            let kept = repository.recoverable_commits(entry.tree_id).ok()?;
            kept.contains(&commit_id).then_some((entry, kept))
        });
        let Some((holder, kept)) = holder else {
            return Ok(AncestorSource::Missing(commit_id));
        };
        if let Some(lost) = repository.lost_commit_of(holder.tree_id)? {
            return Ok(AncestorSource::Missing(lost));
        }
        held.extend(kept);
        wanted.extend(stands_on(holder)?);
        holders.push(holder);
    }
    Ok(AncestorSource::Found(holders))
}

/// Returns the ancestors that the entry needs and does not keep.
fn stands_on(found: &Recoverable) -> Result<BTreeSet<ObjectId>, ChangeError> {
    found.entry.stands_on.iter().map(|hex| parse(hex)).collect()
}

/// Returns the tree that the entry restores, if it can be read.
fn newest_tree(repository: &Repository, found: &Recoverable) -> Option<ObjectId> {
    repository.write_commits_again(found.tree_id).ok()?;
    let entry = &found.entry;
    let snapshot = entry.snapshots.last().map(|snapshot| &snapshot.view);
    let newest = entry
        .uncommitted
        .as_ref()
        .or(entry.head.as_ref())
        .or(snapshot)?;
    let tree_id = repository.commit_info(parse(newest).ok()?).ok()?.tree_id;
    repository.has_object(tree_id).then_some(tree_id)
}

/// Deletes entries.
///
/// Returns those that stay, with the reason.
///
/// # Errors
/// None at present: a failure concerns one entry, and is in the list.
pub fn purge(
    store: &Store,
    repository: &Repository,
    ids: &[u64],
) -> Result<Vec<(u64, GitError)>, ChangeError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    // A full disk must not prevent a purge. A number may then be used again.
    if let Err(error) =
        highest(store, repository).and_then(|id| Ok(store.note_highest_recoverable(id)?))
    {
        log::warn!("{error}");
    }
    let labels: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let stays = repository.release_recoverable(&labels).into_iter();
    Ok(stays
        .filter_map(|(label, error)| Some((label.parse().ok()?, error)))
        .collect())
}

/// Entries that [`tend`] deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    /// Number of deleted entries.
    pub entries: u64,
    /// Number of bytes that they kept.
    pub bytes: u64,
}

/// Maintains the entries, and returns the expired ones.
///
/// Ancestors that nothing else reaches any more are added to the entries that need them. Entries
/// that the rules expire are deleted. `now_secs` is in seconds since 1970.
///
/// # Errors
/// [`ChangeError::Git`] if entries cannot be read or written.
pub fn tend(store: &Store, repository: &Repository, now_secs: i64) -> Result<Expired, ChangeError> {
    let (found, damaged) = list(repository)?;
    for (id, error) in damaged {
        log::warn!("the entry {id} of `tine recover` cannot be read: {error}");
    }
    let rules = match RecoverRules::configured(repository) {
        Ok(rules) => rules,
        // Without a valid rule, no entry expires.
        Err(reason) => {
            log::warn!("nothing expires: {reason}");
            RecoverRules {
                max_age_secs: None,
                max_bytes: None,
            }
        }
    };
    let of = |found: &Recoverable| (found.id, found.entry.kept_secs, found.entry.size_bytes);
    let outdated = rules.outdated(&found.iter().map(of).collect::<Vec<_>>(), now_secs);
    let (outdated, staying): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| outdated.contains(&found.id));
    take_in(repository, &staying)?;
    let ids: Vec<u64> = outdated.iter().map(|found| found.id).collect();
    let stays = purge(store, repository, &ids)?;
    let mut expired = Expired::default();
    for found in outdated {
        match stays.iter().find(|(id, _)| *id == found.id) {
            Some((id, error)) => log::warn!("the entry {id} of `tine recover` stays: {error}"),
            None => {
                expired.entries += 1;
                expired.bytes = expired.bytes.saturating_add(found.entry.size_bytes);
            }
        }
    }
    Ok(expired)
}

/// Adds ancestors that nothing else reaches to the entries that need them.
///
/// # Errors
/// [`ChangeError::Git`] if entries cannot be read or written.
pub fn take_in(repository: &Repository, entries: &[Recoverable]) -> Result<(), ChangeError> {
    let mut ends: BTreeSet<ObjectId> = BTreeSet::new();
    for found in entries {
        let stands_on = stands_on(found)?;
        if !stands_on
            .iter()
            .all(|commit_id| repository.has_object(*commit_id))
        {
            match find_ancestors(repository, found, &list(repository)?.0)? {
                AncestorSource::Found(holders) => {
                    for holder in holders {
                        repository.write_commits_again(holder.tree_id)?;
                    }
                }
                AncestorSource::Missing(lost) => {
                    log::warn!("the entry {} needs {lost}, which is gone", found.id)
                }
            }
        }
        ends.extend(stands_on);
    }
    ends.retain(|id| repository.has_object(*id));
    let lost = repository.own_commits(&ends, &[])?.commit_ids;
    for found in entries {
        let stands_on = stands_on(found)?;
        if stands_on.is_disjoint(&lost) {
            continue;
        }
        let more = repository.own_commits(&stands_on, &[])?;
        let mut commit_ids = repository.recoverable_commits(found.tree_id)?;
        repository.write_commits_again(found.tree_id)?;
        commit_ids.extend(more.commit_ids);
        let mut entry = found.entry.clone();
        entry.stands_on = more.stand_on.iter().map(ToString::to_string).collect();
        let tree_id = repository.write_recoverable(&commit_ids, &encoded(&entry)?)?;
        // The entry may have been purged meanwhile.
        repository.replace_recoverable(&found.id.to_string(), found.tree_id, tree_id)?;
    }
    Ok(())
}

/// Commits the fork's view over HEAD.
///
/// `None` if nothing is uncommitted.
///
/// # Errors
/// [`ChangeError::Unstable`] if a file keeps changing, [`ChangeError::NotLanded`] if the new tree
/// is wrong, and the errors of reading the fork and writing objects.
pub fn commit_uncommitted(
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    committer: Option<Identity>,
) -> Result<Option<ObjectId>, ChangeError> {
    // Without an existing HEAD the commit has no parent, and all files.
    let parent_id = match repository.head_left_at(&fork.worktree, name.as_str(), &fork.made_on) {
        Ok(head) => head.filter(|id| repository.has_object(*id)),
        Err(error) => {
            log::warn!("{name}: HEAD cannot be read: {error}");
            None
        }
    };
    let Examined { changeset, .. } =
        examine(repository, fork, parent_id, Blobs::Write, Scope::Everything)?;
    if changeset.changes.is_empty() {
        return Ok(None);
    }
    let tree_id = write_tree(repository, &changeset)?;
    check_landed(repository, &changeset, tree_id)?;
    let message = format!("{UNCOMMITTED}{name}\n\nWhat was uncommitted when it was dropped.\n");
    commit_view(repository, tree_id, parent_id, message, committer).map(Some)
}

/// Beginning of the subject of a commit of uncommitted changes.
const UNCOMMITTED: &str = "tine: discarded state of ";

/// Writes a commit of a view.
///
/// If no identity is configured, tine is the author: work must not be lost because a name is
/// missing.
fn commit_view(
    repository: &Repository,
    tree_id: ObjectId,
    parent_id: Option<ObjectId>,
    message: String,
    committer: Option<Identity>,
) -> Result<ObjectId, ChangeError> {
    let mut spec = CommitSpec {
        tree_id,
        parent_ids: parent_id.into_iter().collect(),
        message: message.into(),
        author: committer.clone(),
        committer,
    };
    match repository.write_commit(&spec) {
        Err(GitError::NoIdentity(_)) => {
            spec.author = Some(Identity::tine());
            spec.committer = Some(Identity::tine());
            Ok(repository.write_commit(&spec)?)
        }
        written => Ok(written?),
    }
}

/// Returns a fork's snapshots as an entry keeps them.
///
/// They are those that a user asked for and the newest automatic ones, unless equal to HEAD of
/// their time. Snapshots that cannot be kept are in the second list, with the reason; the others
/// are kept even so.
pub fn kept_snapshots(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    snapshots: &[SnapshotRecord],
) -> (Vec<KeptSnapshot>, Vec<(ForkName, ChangeError)>) {
    let automatic = snapshots
        .iter()
        .filter(|snapshot| snapshot.reason.is_automatic())
        .count();
    let mut surplus = automatic.saturating_sub(MAX_AUTOMATIC_SNAPSHOTS);
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for snapshot in snapshots {
        if snapshot.reason.is_automatic() && surplus > 0 {
            surplus -= 1;
            continue;
        }
        match kept_snapshot(store, repository, name, snapshot) {
            Ok(one) => kept.extend(one),
            Err(error) => lost.push((snapshot.name.clone(), error)),
        }
    }
    (kept, lost)
}

/// Returns a snapshot as an entry keeps it.
///
/// `None` for an automatic one that equals its HEAD, if a branch still has that commit.
///
/// # Errors
/// [`ChangeError::Store`] if the snapshot cannot be opened, [`ChangeError::Git`] if the commit
/// cannot be written.
pub fn kept_snapshot(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    snapshot: &SnapshotRecord,
) -> Result<Option<KeptSnapshot>, ChangeError> {
    let head = head_commit(name, snapshot)?;
    let tree_id = view_tree(store, repository, name, snapshot)?;
    let head_tree = repository.tree_of(head)?;
    let is_reached = match head {
        Some(head) => repository.reached_otherwise(head, &[])?.is_some(),
        None => true,
    };
    if tree_id == head_tree && is_reached && snapshot.reason.is_automatic() {
        return Ok(None);
    }
    let message = format!("tine: snapshot {} of {name}\n", snapshot.name);
    let view = commit_view(repository, tree_id, head, message, Some(Identity::tine()))?;
    Ok(Some(KeptSnapshot {
        name: snapshot.name.clone(),
        created_secs: snapshot.created_secs,
        message: snapshot.message.clone(),
        reason: snapshot.reason,
        head: head.map(|id| id.to_string()),
        view: view.to_string(),
    }))
}

/// Namespace in which an earlier tine kept deleted branches.
const OLD_BRANCHES: &str = "_branches";

/// Converts refs of an earlier tine to entries.
///
/// They are `refs/tine/<fork>/discarded-<n>` and `refs/tine/_branches/deleted-<n>`. If a process
/// died between the two steps, the entry is not made a second time.
///
/// # Errors
/// [`ChangeError::Git`] if refs cannot be listed, or an entry or ref cannot be written.
pub fn take_over(store: &Store, repository: &Repository) -> Result<(), ChangeError> {
    let mut known: Option<Vec<Recoverable>> = None;
    for group in repository.keepers()? {
        // An unreadable namespace does not affect the others.
        for (label, commit_id) in repository.kept(&group).unwrap_or_default() {
            let is_branch = group == OLD_BRANCHES && label.starts_with("deleted-");
            if !is_branch && !label.starts_with("discarded-") {
                continue;
            }
            let known = match &mut known {
                Some(known) => known,
                None => known.insert(list(repository)?.0),
            };
            match old_entry(repository, &group, is_branch, commit_id) {
                Ok(entry) => {
                    if !known.iter().any(|found| found.entry.is_same(&entry)) {
                        keep(store, repository, entry, &[])?;
                    }
                    repository.release(&group, &label)?;
                }
                Err(error) => log::warn!("refs/tine/{group}/{label} stays as it is: {error}"),
            }
        }
    }
    Ok(())
}

/// Makes an entry of a ref that an earlier tine wrote.
fn old_entry(
    repository: &Repository,
    group: &str,
    is_branch: bool,
    commit_id: ObjectId,
) -> Result<RecoverEntry, ChangeError> {
    let info = repository.commit_info(commit_id)?;
    let is_view = !is_branch && info.summary.starts_with(UNCOMMITTED);
    let (kind, command) = if is_view {
        (RecoverKind::Fork, format!("tine delete --force {group}"))
    } else if is_branch {
        (RecoverKind::Branch, "tine branch delete --force".to_owned())
    } else {
        (RecoverKind::Branch, format!("tine delete {group}"))
    };
    let head = if is_view {
        info.parent_ids.first().copied()
    } else {
        Some(commit_id)
    };
    Ok(RecoverEntry {
        fork: ForkName::parse(group).ok().filter(|_| !is_branch),
        branch: is_view.then(|| format!("tine/{group}")),
        head: head.map(|id| id.to_string()),
        uncommitted: is_view.then(|| commit_id.to_string()),
        ..RecoverEntry::new(kind, command)
    })
}
