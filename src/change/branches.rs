//! Branches, their checkouts, and the forks that belong to them.
//!
//! HEAD of a fork's worktree says which branch the fork is on. The fork's record names the branch
//! that it was made on and the one that it came from. Both names follow a renamed branch: at once
//! if tine renames it, at the next look if git does ([`follow`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use super::changeset::{self, Blobs};
use super::fork_point::fork_point;
use super::recovery::{self, RecoverEntry, RecoverKind};
use super::{ChangeError, FoundPoint, Point, PointTree, snapshots};
use tine_git::{BranchTip, Checkout, Distance, GitError, Head, ObjectId, Repository};
use tine_store::assume_branches;
use tine_store::{ForkName, ForkRecord, Store};

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

/// Branch that was deleted.
#[derive(Debug, Clone)]
pub struct DeletedBranch {
    /// Short name of the branch.
    pub branch: String,
    /// Commit that it was at.
    pub commit_id: ObjectId,
    /// Entry of `tine recover` that restores it.
    ///
    /// `None`: something else reaches its commits.
    pub recover: Option<u64>,
    /// Full name of the ref behind it, if it was an alias.
    pub alias_of: Option<String>,
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
        let mut checkouts = repository.checkouts()?;
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

    fn holder_at(&self, checkout: &Checkout) -> Holder {
        let is_its = |record: &&ForkRecord| {
            checkout.git_dir.file_name().and_then(|id| id.to_str()) == Some(&record.worktree_id)
                && checkout.git_dir != self.repository.common_dir()
        };
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

    /// Refuses if deleting the branch would leave a checkout without one.
    ///
    /// Deleting an alias keeps the branch behind it.
    fn refuse_deletion(&self, name: &str) -> Result<(), ChangeError> {
        if self.repository.alias_of(name).is_none() {
            return self.refuse_held(name);
        }
        let full_name = full_name(name.as_bytes());
        let mut checkouts = self.checkouts.iter();
        match checkouts.find(|checkout| checkout.named.as_deref() == Some(&full_name)) {
            None => Ok(()),
            Some(checkout) => Err(ChangeError::BranchHeld {
                branch: name.to_owned(),
                holder: self.holder_at(checkout),
            }),
        }
    }

    /// Refuses if several checkouts have the branch.
    ///
    /// It would move, and only one of them would follow. A checkout whose directory is gone does
    /// not count.
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
            Holder::Fork(..) => true,
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

    /// Deletes branches (short names), all or none.
    ///
    /// Without `force`, a branch is refused if commits would be lost. With it, such commits become
    /// an entry of `tine recover`.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchBranch`], [`ChangeError::BranchHeld`],
    /// [`ChangeError::BranchNotMerged`], and the errors of writing refs.
    pub fn delete(&self, names: &[String], force: bool) -> Result<Vec<DeletedBranch>, ChangeError> {
        let _removing = self.store.removing_branches();
        let mut going: BTreeMap<&str, ObjectId> = BTreeMap::new();
        for name in names {
            going.insert(name, existing(self.repository, name)?);
            self.refuse_deletion(name)?;
        }
        let without: Vec<&str> = going.keys().copied().collect();
        let mut lost = BTreeSet::new();
        for (name, tip) in &going {
            let behind = self.repository.branch_behind(name);
            if behind != *name && !going.contains_key(behind.as_str()) {
                // The branch behind an alias stays.
                continue;
            }
            if self.repository.reached_otherwise(*tip, &without)?.is_some() {
                continue;
            }
            if !force {
                return Err(ChangeError::BranchNotMerged {
                    branch: (*name).to_owned(),
                    commit_id: *tip,
                });
            }
            lost.insert(*tip);
        }
        let mut kept: BTreeMap<&str, u64> = BTreeMap::new();
        let is_alias = |name: &str| self.repository.alias_of(name).is_some();
        for (name, tip) in &going {
            if lost.contains(tip) && !is_alias(name) {
                let entry = RecoverEntry {
                    branch: Some((*name).to_owned()),
                    head: Some(tip.to_string()),
                    ..RecoverEntry::new(
                        RecoverKind::Branch,
                        format!("tine branch delete {name} --force"),
                    )
                };
                kept.insert(
                    name,
                    recovery::keep(self.store, self.repository, entry, &without)?,
                );
            }
        }
        let mut deleted = Vec::new();
        for (name, commit_id) in going {
            let alias_of = self.repository.alias_of(name);
            delete_with_settings(self.repository, name, commit_id)?;
            deleted.push(DeletedBranch {
                alias_of,
                branch: name.to_owned(),
                commit_id,
                recover: kept.get(name).copied(),
            });
        }
        Ok(deleted)
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
        self.repository.rename_branch(old, new)?;
        for record in &self.records {
            // The branch is renamed. `follow` repairs a record that cannot be written now.
            if let Err(error) = note_renamed(self.store, record, old, new) {
                log::warn!("{}: {error}", record.name);
            }
        }
        Ok(self.forks_on(old))
    }
}

/// Deletes a free branch (short name) at `tip`.
///
/// Commits that nothing else reaches become the entry `kept` of `tine recover` first. Returns the
/// entry's number, or `None` if it was not needed. The caller holds the branch's lease.
///
/// # Errors
/// [`GitError::BranchCheckedOut`], and [`ChangeError::BranchNotMerged`] if `kept` is needed and
/// `None`. The branch stays then.
pub fn remove(
    store: &Store,
    repository: &Repository,
    (branch, tip): (&str, ObjectId),
    kept: Option<RecoverEntry>,
) -> Result<Option<u64>, ChangeError> {
    let _removing = store.removing_branches();
    if let Some(at) = repository.checked_out_at(branch)? {
        let branch = branch.to_owned();
        return Err(GitError::BranchCheckedOut { branch, at }.into());
    }
    let recover = match (repository.reached_otherwise(tip, &[branch])?, kept) {
        (Some(_), _) => None,
        (None, Some(entry)) => Some(recovery::keep(store, repository, entry, &[branch])?),
        (None, None) => {
            return Err(ChangeError::BranchNotMerged {
                branch: branch.to_owned(),
                commit_id: tip,
            });
        }
    };
    delete_with_settings(repository, branch, tip)?;
    Ok(recover)
}

/// Deletes a branch at `tip`, with its section in git's configuration.
fn delete_with_settings(
    repository: &Repository,
    branch: &str,
    tip: ObjectId,
) -> Result<(), ChangeError> {
    repository.delete_branch(branch, tip)?;
    // Leftover settings do no harm until a branch of that name is made again.
    if let Err(error) = repository.forget_branch_settings(branch) {
        log::warn!("what is configured for the branch {branch} stays: {error}");
    }
    Ok(())
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

/// Updates branch names in records after git renamed branches.
///
/// # Errors
/// [`ChangeError::Git`] if refs or reflogs cannot be read.
pub fn follow(store: &Store, repository: &Repository) -> Result<(), ChangeError> {
    let mut is_there: BTreeMap<String, bool> = BTreeMap::new();
    for record in store.records().0 {
        for name in [Some(&record.branch), record.from_branch.as_ref()]
            .into_iter()
            .flatten()
        {
            let there = match is_there.get(name) {
                Some(there) => *there,
                None => {
                    let there = match repository.branch(name) {
                        // An alias keeps its name even if its target was renamed.
                        Err(GitError::DanglingAlias { .. } | GitError::AliasLoop { .. }) => true,
                        // The ref exists, but cannot be read.
                        Err(GitError::DamagedRef { .. }) => true,
                        found => found?.is_some(),
                    };
                    is_there.insert(name.clone(), there);
                    there
                }
            };
            if !there && let Some(now) = repository.renamed_to(name, record.created_secs)? {
                log::info!("{}: the branch {name} is called {now} now", record.name);
                // A record that cannot be written affects only its fork.
                if let Err(error) = note_renamed(store, &record, name, &now) {
                    log::warn!("{}: {error}", record.name);
                }
            }
        }
    }
    Ok(())
}

/// Records the branch that HEAD of a fork is on.
///
/// # Errors
/// [`ChangeError::Store`] if the record cannot be read or written, and the errors of [`follow`].
pub fn note_head(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    head: &Head,
) -> Result<(), ChangeError> {
    let Some(branch) = head.short_branch() else {
        // A detached HEAD returns to the branch in the record, if to any.
        return Ok(());
    };
    let record = store.record(name)?;
    if record.branch != branch && repository.branch(&record.branch)?.is_none() {
        follow(store, repository)?;
    }
    store.update_record(name, |record| {
        record.head_branch = (record.branch != branch).then(|| branch.to_owned());
    })?;
    Ok(())
}

/// Renames a branch in the record of one fork.
fn note_renamed(
    store: &Store,
    record: &ForkRecord,
    old: &str,
    new: &str,
) -> Result<(), ChangeError> {
    // A word without a prefix means the fork of that name, if there is one.
    let is_fork = ForkName::parse(old).is_ok_and(|name| store.record(&name).is_ok());
    let rename = |record: &mut ForkRecord| {
        let mut is_renamed = rename_in(&mut record.branch, old, new);
        for branch in [&mut record.head_branch, &mut record.from_branch] {
            is_renamed |= branch
                .as_mut()
                .is_some_and(|branch| rename_in(branch, old, new));
        }
        let target = record.on_unmount.target_mut();
        let target = target.filter(|target| !is_fork || target.as_str() != old);
        is_renamed | target.is_some_and(|target| rename_in(target, old, new))
    };
    if rename(&mut record.clone()) {
        store.update_record(&record.name, |record| {
            rename(record);
        })?;
    }
    Ok(())
}

/// Renames the branch in `word`, and returns whether it was named.
///
/// `word` is a branch name, or a point that names the branch.
pub fn rename_in(word: &mut String, old: &str, new: &str) -> bool {
    for prefix in ["", "branch:", "rev:", "refs/heads/", "rev:refs/heads/"] {
        if word.strip_prefix(prefix) == Some(old) {
            *word = format!("{prefix}{new}");
            return true;
        }
    }
    false
}

fn full_name(short: &[u8]) -> Vec<u8> {
    [b"refs/heads/", short].concat()
}
