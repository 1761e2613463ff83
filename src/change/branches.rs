//! Branches, their checkouts, and the forks that belong to them.
//!
//! HEAD of a fork's worktree says which branch the fork is on. The fork's record names the branch
//! that it was made on and the one that it came from. Both names follow a renamed branch: at once
//! if tine renames it, at the next look if git does ([`follow`]).

mod deletion;
mod renames;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

pub use self::deletion::{DeletedBranch, remove};
use self::renames::note_renamed;
pub use self::renames::{follow, note_head, rename_in};
use super::changeset::{self, Blobs};
use super::fork_point::fork_point;
use super::{ChangeError, FoundPoint, Point, PointTree, snapshots};
use tine_git::{BranchTip, Checkout, Distance, ObjectId, Repository};
use tine_store::assume_branches;
use tine_store::{ForkName, ForkRecord, GitKind, Store};

/// Checkout that has a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A fork, at the directory of its checkout.
    Fork(ForkName, PathBuf),
    /// The main checkout, at its directory.
    Main(PathBuf),
    /// Another worktree of git, at its directory.
    Worktree(PathBuf),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Fork(fork, dir) => write!(f, "in the fork {fork}, at {}", dir.display()),
            Holder::Main(dir) => write!(f, "in the main checkout, at {}", dir.display()),
            Holder::Worktree(dir) => write!(f, "in the worktree at {}", dir.display()),
        }
    }
}

/// One branch of a list.
#[derive(Debug, Clone)]
pub struct BranchEntry {
    /// Name and commit of the branch.
    pub tip: BranchTip,
    /// Checkout that has or returns to it; `None` if it is free.
    pub holder: Option<Holder>,
    /// Fork that it was made for; `None` if none is known.
    pub made_for: Option<ForkName>,
    /// Origin of the branch, and the distance from there.
    ///
    /// The origin is a branch (short name) or a commit (in hex).
    pub came_from: Option<(String, Distance)>,
}

/// Commit at which a branch begins.
#[derive(Debug, Clone)]
pub struct Start {
    /// Point that the commit was found for.
    pub point: Point,
    /// Other existing meanings of the point's word.
    pub others: Vec<Point>,
    /// Commit of the point.
    pub commit_id: ObjectId,
    /// True if the point's view differs from the commit's tree.
    pub is_uncommitted: bool,
}

/// All checkouts and fork records of a store, at one moment.
pub struct BranchUsage<'s> {
    store: &'s Store,
    repository: &'s Repository,
    checkouts: Vec<Checkout>,
    /// Records of the forks, without unreadable ones.
    pub records: Vec<ForkRecord>,
}

impl<'s> BranchUsage<'s> {
    /// Reads the checkouts and records.
    ///
    /// # Errors
    /// [`ChangeError::Git`] if the worktrees cannot be listed.
    pub fn now(
        store: &'s Store,
        repository: &'s Repository,
    ) -> Result<BranchUsage<'s>, ChangeError> {
        let records = store.records().0;
        let mut checkouts = store.checkouts_with(&records)?;
        assume_branches(&mut checkouts, &records);
        Ok(BranchUsage {
            store,
            repository,
            checkouts,
            records,
        })
    }

    /// Returns the forks whose HEAD cannot be read, with the reason.
    pub fn damaged(&self) -> Vec<(ForkName, String)> {
        let damaged = self.checkouts.iter().filter_map(|checkout| {
            let reason = checkout.damage.clone()?;
            match self.holder_at(checkout) {
                Holder::Fork(fork, _) => Some((fork, reason)),
                Holder::Main(_) | Holder::Worktree(_) => None,
            }
        });
        damaged.collect()
    }

    /// Returns the checkout that has the branch `name` (short).
    ///
    /// A checkout that returns to the branch after a rebase or bisection counts as well.
    pub fn holder(&self, name: &str) -> Option<Holder> {
        let full_name = full_name(self.repository.branch_behind(name).as_bytes());
        let checkout = self
            .checkouts
            .iter()
            .find(|checkout| checkout.uses(&full_name))?;
        Some(self.holder_at(checkout))
    }

    /// Returns whether the holder only returns to the branch later.
    ///
    /// It does when a rebase or bisection ends. `name` is short.
    pub fn is_pending(&self, name: &str) -> bool {
        let full_name = full_name(self.repository.branch_behind(name).as_bytes());
        let mut checkouts = self.checkouts.iter();
        let holder = checkouts.find(|checkout| checkout.uses(&full_name));
        holder.is_some_and(|checkout| checkout.is_pending(&full_name))
    }

    /// Returns the forks that have the branch or return to it.
    pub fn forks_on(&self, name: &str) -> Vec<ForkName> {
        let full_name = full_name(self.repository.branch_behind(name).as_bytes());
        let used = self
            .checkouts
            .iter()
            .filter(|checkout| checkout.uses(&full_name));
        used.filter_map(|checkout| match self.holder_at(checkout) {
            Holder::Fork(fork, _) => Some(fork),
            Holder::Main(_) | Holder::Worktree(_) => None,
        })
        .collect()
    }

    fn is_own(&self, fork: &ForkName) -> bool {
        let mut records = self.records.iter();
        records.any(|record| record.name == *fork && record.git_kind == GitKind::Own)
    }

    fn holder_at(&self, checkout: &Checkout) -> Holder {
        let is_its = |record: &&ForkRecord| record.has_git_dir(&checkout.git_dir);
        let dir = checkout.dir.clone();
        match self.records.iter().find(is_its) {
            Some(record) => Holder::Fork(record.name.clone(), dir),
            None if checkout.git_dir == self.repository.common_dir() => Holder::Main(dir),
            None => Holder::Worktree(dir),
        }
    }

    /// Lists the branches of forks, or all, sorted by name.
    ///
    /// # Errors
    /// [`ChangeError::Git`] if refs cannot be read.
    pub fn list(&self, all: bool) -> Result<Vec<BranchEntry>, ChangeError> {
        let mut made_for: BTreeMap<Vec<u8>, &ForkRecord> = BTreeMap::new();
        for record in &self.records {
            made_for
                .entry(record.branch.clone().into_bytes())
                .or_insert(record);
        }
        let mut holders: BTreeMap<&[u8], Holder> = BTreeMap::new();
        for checkout in &self.checkouts {
            for name in checkout.branch.iter().chain(&checkout.pending) {
                let short = name.strip_prefix(b"refs/heads/").unwrap_or(name);
                holders
                    .entry(short)
                    .or_insert_with(|| self.holder_at(checkout));
            }
        }
        let of_forks = holders
            .iter()
            .filter(|(_, holder)| matches!(holder, Holder::Fork(..)))
            .map(|(name, _)| name.to_vec())
            .chain(made_for.keys().cloned());
        let of_forks: BTreeSet<String> = of_forks
            .filter_map(|name| String::from_utf8(name).ok())
            .collect();
        let only: Vec<String> = of_forks.into_iter().collect();
        let tips = self.repository.branch_tips((!all).then_some(&only))?;
        let mut origins = Origins::of(self.repository);
        let behind = |name: &[u8]| match std::str::from_utf8(name) {
            Ok(name) => self.repository.branch_behind(name).into_bytes(),
            Err(_) => name.to_vec(),
        };
        tips.into_iter()
            .map(|tip| {
                let record = made_for.get(&tip.name);
                Ok(BranchEntry {
                    holder: holders.get(behind(&tip.name).as_slice()).cloned(),
                    made_for: record.map(|record| record.name.clone()),
                    came_from: match record {
                        // A missing commit hides this distance only.
                        Some(record) => {
                            origins
                                .distance(record, tip.commit_id)
                                .unwrap_or_else(|error| {
                                    log::warn!("{}: {error}", record.name);
                                    None
                                })
                        }
                        None => None,
                    },
                    tip,
                })
            })
            .collect()
    }

    /// Refuses if the branch is checked out.
    ///
    /// # Errors
    /// [`ChangeError::BranchHeld`].
    pub fn refuse_held(&self, name: &str) -> Result<(), ChangeError> {
        match self.holder(name) {
            None => Ok(()),
            Some(holder) => Err(ChangeError::BranchHeld {
                branch: name.to_owned(),
                holder,
            }),
        }
    }

    /// Refuses if several checkouts have the branch.
    ///
    /// It would move, and only one of them would follow. A checkout whose directory is gone does
    /// not count, nor does a fork that is a repository of its own: its branch is another ref.
    ///
    /// # Errors
    /// [`ChangeError::BranchHeldTwice`].
    pub fn refuse_held_twice(&self, name: &str) -> Result<(), ChangeError> {
        let full_name = full_name(self.repository.branch_behind(name).as_bytes());
        let on_it = self
            .checkouts
            .iter()
            .filter(|checkout| checkout.branch.as_deref() == Some(&full_name));
        let mut holders: Vec<Holder> = on_it.map(|checkout| self.holder_at(checkout)).collect();
        holders.retain(|holder| match holder {
            Holder::Fork(fork, _) => !self.is_own(fork),
            Holder::Main(dir) | Holder::Worktree(dir) => dir.exists(),
        });
        match holders.len() {
            0 | 1 => Ok(()),
            _ => Err(ChangeError::BranchHeldTwice {
                branch: name.to_owned(),
                holders,
            }),
        }
    }

    /// Renames a branch (short names), also in the forks' records.
    ///
    /// Returns the forks whose HEAD follows. The caller holds the `ForkGuard` of each of
    /// [`BranchUsage::forks_on`] `old`.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchBranch`], [`ChangeError::BranchHeld`] if a checkout returns to it, and
    /// git's errors of renaming.
    pub fn rename(&self, old: &str, new: &str) -> Result<Vec<ForkName>, ChangeError> {
        let old_name = full_name(old.as_bytes());
        let is_unborn = || {
            let mut checkouts = self.checkouts.iter();
            checkouts.any(|checkout| checkout.branch.as_deref() == Some(&old_name))
        };
        self.repository.check_branch_name(old)?;
        if self.repository.branch(old)?.is_none() && !is_unborn() {
            return Err(ChangeError::NoSuchBranch(old.to_owned()));
        }
        // git refuses it, too: the unfinished operation would return to the old name.
        if let Some(checkout) = self
            .checkouts
            .iter()
            .find(|checkout| checkout.is_pending(&old_name))
        {
            return Err(ChangeError::BranchHeld {
                branch: old.to_owned(),
                holder: self.holder_at(checkout),
            });
        }
        // A fork with a git directory of its own has the branch itself.
        let followers = self.records.iter();
        let followers: Vec<&ForkRecord> = followers
            .filter(|record| record.followed_branch.as_deref() == Some(old))
            .collect();
        let mut renamed: Vec<&ForkRecord> = Vec::new();
        let done = followers
            .into_iter()
            .try_for_each(|record| {
                rename_in_own(self.repository, record, old, new)?;
                renamed.push(record);
                Ok(())
            })
            .and_then(|()| Ok(self.repository.rename_branch(old, new)?));
        if let Err(error) = done {
            for record in renamed {
                if let Err(error) = rename_in_own(self.repository, record, new, old) {
                    log::warn!("{}: its branch is called {new}: {error}", record.name);
                }
            }
            return Err(error);
        }
        for record in &self.records {
            // The branch is renamed. `follow` repairs a record that cannot be written now.
            if let Err(error) = note_renamed(self.store, record, old, new) {
                log::warn!("{}: {error}", record.name);
            }
        }
        Ok(self.forks_on(old))
    }
}

/// Renames the branch in the git directory of a fork's own.
fn rename_in_own(
    repository: &Repository,
    record: &ForkRecord,
    old: &str,
    new: &str,
) -> Result<(), ChangeError> {
    let worktree = record.open_worktree(repository)?;
    Ok(repository.rename_in_own(&worktree, old, new)?)
}

/// Origins of branches, and distances from there.
struct Origins<'r> {
    repository: &'r Repository,
    /// Tips of the branches that forks came from, by short name.
    tips: BTreeMap<String, Option<ObjectId>>,
    /// Known distances: most of many forks that began together have the same.
    known: BTreeMap<(ObjectId, ObjectId), Distance>,
}

impl<'r> Origins<'r> {
    fn of(repository: &'r Repository) -> Origins<'r> {
        Origins {
            repository,
            tips: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// Returns the fork's origin, and the distance of `tip` from there.
    fn distance(
        &mut self,
        record: &ForkRecord,
        tip: ObjectId,
    ) -> Result<Option<(String, Distance)>, ChangeError> {
        let Some((origin, from)) = self.origin(record)? else {
            return Ok(None);
        };
        let distance = match self.known.get(&(tip, from)) {
            Some(known) => *known,
            None => {
                let distance = self.repository.distance(tip, from)?;
                self.known.insert((tip, from), distance);
                distance
            }
        };
        Ok(Some((origin, distance)))
    }

    /// Returns the branch that the fork came from, else the fork point.
    fn origin(&mut self, record: &ForkRecord) -> Result<Option<(String, ObjectId)>, ChangeError> {
        if let Some(branch) = &record.from_branch {
            let tip = match self.tips.get(branch) {
                Some(tip) => *tip,
                None => {
                    let tip = self.repository.readable_branch(branch)?;
                    self.tips.insert(branch.clone(), tip);
                    tip
                }
            };
            if let Some(tip) = tip {
                return Ok(Some((branch.clone(), tip)));
            }
        }
        let point = fork_point(self.repository, record, None)?;
        Ok(point.map(|id| (id.to_string(), id)))
    }
}

impl Start {
    /// Finds the commit of a point that was found for `context`.
    ///
    /// The commit of a view is its HEAD, that of a snapshot is HEAD of that time. `context` is
    /// the fork in question, `None` without one. The point's fork must not change meanwhile.
    ///
    /// # Errors
    /// [`ChangeError::NoCommit`] if the point has no commit, and the errors of opening the fork or
    /// snapshot.
    pub fn at(
        store: &Store,
        repository: &Repository,
        context: Option<&ForkName>,
        FoundPoint {
            point,
            tree,
            others,
        }: FoundPoint,
    ) -> Result<Start, ChangeError> {
        let no_commit = || ChangeError::NoCommit(point.to_string());
        let (commit_id, is_uncommitted) = match (&point, context, tree) {
            (Point::Fork(name), ..) => {
                let changeset =
                    changeset::changeset(repository, &*store.open_fork(name)?, Blobs::Hash)?;
                let commit_id = changeset.head_commit.ok_or_else(no_commit)?;
                (commit_id, !changeset.changes.is_empty())
            }
            (Point::SnapshotOf(name, snapshot), ..)
            | (Point::Snapshot(snapshot), Some(name), _) => {
                let record = store.snapshot(name, snapshot)?;
                let commit_id = snapshots::head_commit(name, &record)?.ok_or_else(no_commit)?;
                let tree_id = snapshots::snapshot_tree(store, repository, name, &record)?;
                (
                    commit_id,
                    tree_id != repository.commit_info(commit_id)?.tree_id,
                )
            }
            (_, _, PointTree::Known { commit_id, .. }) => (commit_id.ok_or_else(no_commit)?, false),
            (_, _, PointTree::Unwritten) => return Err(no_commit()),
        };
        Ok(Start {
            point,
            others,
            commit_id,
            is_uncommitted,
        })
    }

    /// Returns the revision that git takes as the start.
    pub fn revision(&self) -> String {
        match &self.point {
            Point::Revision(revision) => revision.clone(),
            _ => self.commit_id.to_string(),
        }
    }
}

/// Returns the commit of a branch (short name) that must exist.
///
/// # Errors
/// [`ChangeError::NoSuchBranch`], or [`ChangeError::Git`] if the name is invalid or the ref
/// unreadable.
pub fn existing(repository: &Repository, name: &str) -> Result<ObjectId, ChangeError> {
    repository.check_branch_name(name)?;
    repository
        .branch(name)?
        .ok_or_else(|| ChangeError::NoSuchBranch(name.to_owned()))
}

fn full_name(short: &[u8]) -> Vec<u8> {
    [b"refs/heads/", short].concat()
}
