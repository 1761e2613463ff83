//! What commands dropped, replaced or discarded, and how it comes back: the entries of
//! `tine recover`.
//!
//! An entry is one ref, `refs/tine/+recover/<id>`, to a tree that keeps commits and their trees
//! ([`git::recovery`](tine_git::recovery)). The ref is on the disk before the thing goes, so a
//! process that dies in between leaves both, never neither. No `git log --all` shows what is kept,
//! and no `git gc` removes it.
//!
//! An entry keeps the commits that nothing else reaches, and of a fork those since its fork point.
//! These stand on commits that something else reaches; should that change later, [`tend`] takes
//! more commits into the entry.

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
use tine_workspace::{Fork, ForkName, SnapshotReason, SnapshotRecord, Store};

/// How many snapshots that tine took by itself are kept of a fork that is deleted: the newest.
const MAX_AUTOMATIC_SNAPSHOTS: usize = 50;

/// How many commits since its fork point are kept of a fork that is deleted, though a branch has
/// them: the newest.
const MAX_FORK_COMMITS: usize = 1000;

/// What an entry brings back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoverKind {
    /// A fork that was deleted, with what was uncommitted and its snapshots.
    Fork,
    /// A snapshot that was deleted.
    Snapshot,
    /// A branch that was deleted.
    Branch,
    /// The commits of a handoff that was deleted.
    Handoff,
    /// The sides and resolutions of a review that was aborted.
    Review,
}

/// One entry, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoverEntry {
    pub kind: RecoverKind,
    /// Seconds since 1970.
    pub kept_secs: i64,
    /// The command that dropped it.
    pub command: String,
    #[serde(default)]
    pub fork: Option<ForkName>,
    /// The branch (short name) that it was on, or that it is; `None` where HEAD was detached.
    #[serde(default)]
    pub branch: Option<String>,
    /// HEAD, or the last commit, in hex; `None` on a branch without a commit.
    #[serde(default)]
    pub head: Option<String>,
    /// The commit over HEAD with the fork's view for its tree, where something was uncommitted.
    #[serde(default)]
    pub uncommitted: Option<String>,
    /// Where the fork's own commits began.
    #[serde(default)]
    pub fork_point: Option<String>,
    /// The branch (short name) that the fork came from, where one is known.
    #[serde(default)]
    pub from_branch: Option<String>,
    /// The oldest first.
    #[serde(default)]
    pub snapshots: Vec<KeptSnapshot>,
    /// The number of a handoff or review.
    #[serde(default)]
    pub number: Option<u64>,
    /// Bytes on the disk of what this entry alone kept when it was made.
    #[serde(default)]
    pub size_bytes: u64,
    /// Commits that something else reached then, and without which nothing here comes back.
    #[serde(default)]
    pub stands_on: Vec<String>,
}

/// A snapshot in an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSnapshot {
    pub name: ForkName,
    pub created_secs: i64,
    #[serde(default)]
    pub message: Option<String>,
    pub reason: SnapshotReason,
    /// HEAD of that time.
    #[serde(default)]
    pub head: Option<String>,
    /// The commit over it with the snapshot's view for its tree.
    pub view: String,
}

/// An entry with its number.
#[derive(Debug, Clone)]
pub struct Recoverable {
    pub id: u64,
    pub tree_id: ObjectId,
    pub entry: RecoverEntry,
}

/// The number of an entry that cannot be read, and why.
pub type Unreadable = (u64, ChangeError);

impl RecoverEntry {
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

    /// Every commit that it names.
    fn tips(&self) -> Result<BTreeSet<ObjectId>, ChangeError> {
        let named = [&self.head, &self.uncommitted].into_iter().flatten();
        let named = named.chain(self.snapshots.iter().map(|snapshot| &snapshot.view));
        named.map(|hex| parse(hex)).collect()
    }

    /// Whether the commits of `self` are those of `other`.
    fn is_same(&self, other: &RecoverEntry) -> bool {
        (self.kind, &self.head, &self.uncommitted) == (other.kind, &other.head, &other.uncommitted)
    }
}

/// Reads an object id that an entry names.
pub fn parse(hex: &str) -> Result<ObjectId, ChangeError> {
    let parsed = ObjectId::from_hex(hex.as_bytes());
    Ok(parsed.map_err(GitError::library("read the name of a kept commit"))?)
}

/// Keeps what `entry` names; its number. It is on the disk when this returns. `without` are
/// branches (short names) that are about to go.
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
        // A branch that has them now may be deleted with plain git, and `git gc` may run before the
        // entries are looked after.
        let since = entry.fork_point.as_deref().map(parse).transpose()?;
        let since = since.filter(|id| repository.has_object(*id));
        repository.add_commits_since(&mut own, parse(head)?, since, MAX_FORK_COMMITS)?;
    }
    let OwnCommits {
        commit_ids,
        stand_on,
    } = own;
    entry.size_bytes = match is_own {
        false => 0,
        true => repository
            .own_bytes(&tips, without)
            .unwrap_or_else(|error| {
                log::warn!("the size of what is kept is not known: {error}");
                0
            }),
    };
    entry.stands_on = stand_on.iter().map(ToString::to_string).collect();
    let tree_id = repository.write_recoverable(&commit_ids, &encoded(&entry)?)?;
    let mut id = highest(store, repository)?.saturating_add(1);
    // Somebody else may keep something at this moment.
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

/// The full name of an entry's ref.
pub fn ref_name(id: u64) -> String {
    format!("refs/tine/{RECOVER}/{id}")
}

/// The greatest number that an entry has or had.
fn highest(store: &Store, repository: &Repository) -> Result<u64, ChangeError> {
    let there = numbers(repository)?.keys().next_back().copied();
    Ok(there.unwrap_or(0).max(store.highest_recoverable()?))
}

fn numbers(repository: &Repository) -> Result<BTreeMap<u64, ObjectId>, ChangeError> {
    let kept = repository.kept(RECOVER)?.into_iter();
    Ok(kept
        .filter_map(|(label, tree_id)| Some((label.parse().ok()?, tree_id)))
        .collect())
}

/// All entries, the oldest first; those that cannot be read apart, with why.
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

/// The entry of that number.
///
/// # Errors
/// [`ChangeError::NothingToRecover`].
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

/// Whether the tree of an entry keeps commits that nothing else reaches. One that cannot be read
/// may.
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

/// Writes the commits of an entry again, under their own ids. The entry stays. Commits on which
/// they stand come from other entries where git has let go of them.
///
/// # Errors
/// [`ChangeError::HistoryGone`] where no entry has them either, or one of the entry's own is lost.
pub fn write_again(repository: &Repository, found: &Recoverable) -> Result<(), ChangeError> {
    match below(repository, found, &list(repository)?.0)? {
        Below::There(holders) => {
            for holder in holders {
                repository.write_commits_again(holder.tree_id)?;
            }
        }
        Below::Missing(object_id) => {
            return Err(ChangeError::HistoryGone {
                id: found.id,
                object_id,
                tree_id: newest_tree(repository, found),
            });
        }
    }
    Ok(repository.write_commits_again(found.tree_id)?)
}

/// Refuses to bring a commit of an entry back whose tree is lost.
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

/// The tree of a commit, where it is lost.
fn lost_tree(
    repository: &Repository,
    commit_id: ObjectId,
) -> Result<Option<ObjectId>, ChangeError> {
    let tree_id = repository.commit_info(commit_id)?.tree_id;
    let is_lost = !repository.has_object(tree_id) && repository.promisor_remote().is_none();
    Ok(is_lost.then_some(tree_id))
}

/// An object without which `found` or a part of it does not come back, and which neither git nor
/// one of `entries` has.
pub fn missing(
    repository: &Repository,
    found: &Recoverable,
    entries: &[Recoverable],
) -> Result<Option<ObjectId>, ChangeError> {
    if let Below::Missing(object_id) = below(repository, found, entries)? {
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

/// Writes again what a review that was aborted needs, where an entry keeps it and git has let go of
/// it.
pub fn write_review_again(repository: &Repository, review: u64) -> Result<(), ChangeError> {
    let of_review = |found: &&Recoverable| {
        found.entry.kind == RecoverKind::Review && found.entry.number == Some(review)
    };
    match list(repository)?.0.iter().rfind(of_review) {
        Some(found) => write_again(repository, found),
        None => Ok(()),
    }
}

/// What an entry needs to come back.
enum Below<'a> {
    /// It is there, or these entries have it.
    There(Vec<&'a Recoverable>),
    /// Nobody has this object.
    Missing(ObjectId),
}

/// Looks for the commits of `found` and those on which it stands: in the repository, else in
/// `entries`, which stand on others in turn.
fn below<'a>(
    repository: &Repository,
    found: &Recoverable,
    entries: &'a [Recoverable],
) -> Result<Below<'a>, ChangeError> {
    if let Some(lost) = repository.lost_commit_of(found.tree_id)? {
        return Ok(Below::Missing(lost));
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
            return Ok(Below::Missing(commit_id));
        };
        if let Some(lost) = repository.lost_commit_of(holder.tree_id)? {
            return Ok(Below::Missing(lost));
        }
        held.extend(kept);
        wanted.extend(stands_on(holder)?);
        holders.push(holder);
    }
    Ok(Below::There(holders))
}

/// The commits on which the entry stands.
fn stands_on(found: &Recoverable) -> Result<BTreeSet<ObjectId>, ChangeError> {
    found.entry.stands_on.iter().map(|hex| parse(hex)).collect()
}

/// The tree of what the entry brings back, where that can be told.
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

/// Lets go of entries; the bytes that they kept. What of them stays, and why.
pub fn purge(
    store: &Store,
    repository: &Repository,
    going: &[u64],
) -> Result<Vec<(u64, GitError)>, ChangeError> {
    if going.is_empty() {
        return Ok(Vec::new());
    }
    // A full disk must not keep anything from going. Then a number may be given again.
    if let Err(error) =
        highest(store, repository).and_then(|id| Ok(store.note_highest_recoverable(id)?))
    {
        log::warn!("{error}");
    }
    let labels: Vec<String> = going.iter().map(ToString::to_string).collect();
    let stays = repository.release_recoverable(&labels).into_iter();
    Ok(stays
        .filter_map(|(label, error)| Some((label.parse().ok()?, error)))
        .collect())
}

/// What [`tend`] let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    pub entries: u64,
    pub bytes: u64,
}

/// Looks after the entries: takes in commits on which they stand and which nothing else reaches any
/// more, and lets go of what the rules let go of.
pub fn tend(store: &Store, repository: &Repository, now_secs: i64) -> Result<Expired, ChangeError> {
    let (found, damaged) = list(repository)?;
    for (id, error) in damaged {
        log::warn!("the entry {id} of `tine recover` cannot be read: {error}");
    }
    let rules = match RecoverRules::configured(repository) {
        Ok(rules) => rules,
        // Nothing goes by a rule that nobody made.
        Err(reason) => {
            log::warn!("nothing expires: {reason}");
            RecoverRules {
                max_age_secs: None,
                max_bytes: None,
            }
        }
    };
    let of = |found: &Recoverable| (found.id, found.entry.kept_secs, found.entry.size_bytes);
    let going = rules.outdated(&found.iter().map(of).collect::<Vec<_>>(), now_secs);
    let (going, staying): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| going.contains(&found.id));
    take_in(repository, &staying)?;
    let ids: Vec<u64> = going.iter().map(|found| found.id).collect();
    let stays = purge(store, repository, &ids)?;
    let mut expired = Expired::default();
    for found in going {
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

/// Takes commits into entries that stand on them, where nothing else reaches these any more.
pub fn take_in(repository: &Repository, entries: &[Recoverable]) -> Result<(), ChangeError> {
    let mut ends: BTreeSet<ObjectId> = BTreeSet::new();
    for found in entries {
        let stands_on = stands_on(found)?;
        if !stands_on
            .iter()
            .all(|commit_id| repository.has_object(*commit_id))
        {
            match below(repository, found, &list(repository)?.0)? {
                Below::There(holders) => {
                    for holder in holders {
                        repository.write_commits_again(holder.tree_id)?;
                    }
                }
                Below::Missing(lost) => {
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
        // Somebody may have purged it meanwhile.
        repository.replace_recoverable(&found.id.to_string(), found.tree_id, tree_id)?;
    }
    Ok(())
}

/// The commit over HEAD that has the fork's view for its tree; `None` where nothing is uncommitted.
pub fn commit_uncommitted(
    repository: &Repository,
    name: &ForkName,
    fork: &Fork,
    committer: Option<Identity>,
) -> Result<Option<ObjectId>, ChangeError> {
    // Without a HEAD that is there the commit has no parent, and holds every file.
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

/// How the subject begins of a commit with what was uncommitted in a fork.
const UNCOMMITTED: &str = "tine: discarded state of ";

/// Writes a commit of a view. Where no identity is configured it bears tine's own: nothing may be
/// lost for want of a name.
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

/// The snapshots of a fork as an entry keeps them: those that somebody asked for, and the newest of
/// the others, unless they are what HEAD was. One that cannot be kept keeps none of the others from
/// being: it stands in the second list, with the reason.
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

/// One snapshot as an entry keeps it; `None` of one that tine took by itself and that is what HEAD
/// was, where a branch still has that commit.
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

/// The namespace in which branches that were deleted were kept before there were entries.
const OLD_BRANCHES: &str = "_branches";

/// Takes the refs `refs/tine/<fork>/discarded-<n>` and `refs/tine/_branches/deleted-<n>` of an
/// earlier tine for entries. Where a process died between the two steps the entry is not made
/// again.
pub fn take_over(store: &Store, repository: &Repository) -> Result<(), ChangeError> {
    let mut known: Option<Vec<Recoverable>> = None;
    for group in repository.keepers()? {
        // One that cannot be read costs nobody else anything.
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

fn old_entry(
    repository: &Repository,
    group: &str,
    is_branch: bool,
    commit_id: ObjectId,
) -> Result<RecoverEntry, ChangeError> {
    let info = repository.commit_info(commit_id)?;
    let is_view = !is_branch && info.summary.starts_with(UNCOMMITTED);
    let (kind, command) = match is_view {
        true => (RecoverKind::Fork, format!("tine delete --force {group}")),
        false if is_branch => (RecoverKind::Branch, "tine branch delete --force".to_owned()),
        false => (RecoverKind::Branch, format!("tine delete {group}")),
    };
    let head = match is_view {
        true => info.parent_ids.first().copied(),
        false => Some(commit_id),
    };
    Ok(RecoverEntry {
        fork: ForkName::parse(group).ok().filter(|_| !is_branch),
        branch: is_view.then(|| format!("tine/{group}")),
        head: head.map(|id| id.to_string()),
        uncommitted: is_view.then(|| commit_id.to_string()),
        ..RecoverEntry::new(kind, command)
    })
}
