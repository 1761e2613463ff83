//! Entries of `tine recover`: work that commands dropped, replaced or discarded.
//!
//! An entry is one ref, `refs/tine/+recover/<id>`, to a tree that keeps commits and their trees
//! ([`git::recovery`](tine_git::recovery)). The ref is on disk before the original is removed, so a
//! process that dies in between leaves both, never neither. `git log --all` does not show kept
//! commits, and `git gc` does not remove them.
//!
//! An entry keeps the commits that nothing else reaches, and those of a fork since its fork point.
//! Their ancestors are reached by something else. If that changes later, [`maintain`] adds more
//! commits to the entry.

mod earlier;
mod kept_refs;
mod maintenance;
mod restore;
mod rules;
mod staged;
mod views;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::earlier::convert_refs;
pub use self::kept_refs::{OwnRefs, bring_refs, own_refs};
pub use self::maintenance::{Expired, keep_ancestors, maintain, purge};
pub use self::restore::{missing, require_tree, write_again, write_review_again};
pub use self::rules::{AGE_KEY, RecoverRules, SIZE_KEY, parse_age};
pub use self::staged::staged_only;
pub use self::views::{KeptSnapshot, commit_uncommitted, kept_snapshot, kept_snapshots};
use super::ChangeError;
use tine_attr::Timestamp;
use tine_git::recovery::{OwnCommits, RECOVER};
use tine_git::{GitError, ObjectId, Repository};
use tine_store::{ForkName, Store};

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
    /// The fork's own refs that the main repository lacked, by full name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refs: BTreeMap<String, KeptRef>,
    /// Number of the handoff or review.
    #[serde(default)]
    pub number: Option<u64>,
    /// Bytes on disk that only this entry kept when it was made.
    #[serde(default)]
    pub size_bytes: u64,
    /// Commits that the entry needs and does not keep, in hex.
    ///
    /// Something else reached them when it was made.
    #[serde(rename = "stands_on", default)]
    pub needed_commits: Vec<String>,
}

/// Value of a ref of a deleted fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRef {
    /// Object that it named, in hex.
    pub id: String,
    /// Commit that this is, or that its tags lead to, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
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
            refs: BTreeMap::new(),
            number: None,
            size_bytes: 0,
            needed_commits: Vec::new(),
        }
    }

    /// Returns all commits that the entry names.
    fn tips(&self) -> Result<BTreeSet<ObjectId>, ChangeError> {
        let named = [&self.head, &self.uncommitted].into_iter().flatten();
        let named = named.chain(self.snapshots.iter().map(|snapshot| &snapshot.view));
        let named = named.chain(self.refs.values().filter_map(|kept| kept.commit.as_ref()));
        named.map(|hex| parse(hex)).collect()
    }

    /// Returns the objects that its refs name.
    fn named(&self) -> Result<BTreeSet<ObjectId>, ChangeError> {
        self.refs.values().map(|kept| parse(&kept.id)).collect()
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
        // before `maintain` does.
        let since = entry.fork_point.as_deref().map(parse).transpose()?;
        let since = since.filter(|id| repository.has_object(*id));
        repository.add_commits_since(&mut own, parse(head)?, since, MAX_FORK_COMMITS)?;
    }
    let OwnCommits {
        commit_ids,
        boundary_ids,
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
    entry.needed_commits = boundary_ids.iter().map(ToString::to_string).collect();
    let tree_id = repository.write_recoverable(&commit_ids, &entry.named()?, &encoded(&entry)?)?;
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

/// Returns whether an entry may keep work.
///
/// That is refs, or commits that nothing else reaches.
///
/// An unreadable entry may.
pub fn may_be_work(repository: &Repository, tree_id: ObjectId) -> bool {
    let only_here = || {
        if read(repository, tree_id).map_or(true, |entry| !entry.refs.is_empty()) {
            return Ok(true);
        }
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
