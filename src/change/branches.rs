//! The repository's branches as forks have to do with them: who has one checked out, which fork one
//! was made for, and what forks remember of one that is renamed or deleted.
//!
//! HEAD of a fork's worktree says which branch the fork is on. Its record names the branch that it
//! was made on and the one that it came from; both follow a renaming, by tine at once, by git when
//! somebody looks ([`follow`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use super::changeset::{self, Blobs};
use super::fork_point::fork_point;
use super::recovery::{self, RecoverEntry, RecoverKind};
use super::{ChangeError, FoundPoint, Point, PointTree, snapshots};
use tine_git::{BranchTip, Checkout, Distance, GitError, Head, ObjectId, Repository};
use tine_workspace::store::assume_branches;
use tine_workspace::{ForkName, ForkRecord, Store};

/// Who has a branch checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    Fork(ForkName, PathBuf),
    /// The main checkout.
    Main(PathBuf),
    /// Another worktree of git's.
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

/// One branch.
#[derive(Debug, Clone)]
pub struct Listed {
    pub tip: BranchTip,
    pub holder: Option<Holder>,
    /// The fork that it was made for.
    pub made_for: Option<ForkName>,
    /// The branch (short name) or commit (in hex) that it came from, and how far it is from there.
    pub came_from: Option<(String, Distance)>,
}

/// What a branch begins at.
#[derive(Debug, Clone)]
pub struct Start {
    pub point: Point,
    pub others: Vec<Point>,
    pub commit_id: ObjectId,
    /// Whether the view there has something that the commit has not.
    pub is_uncommitted: bool,
}

/// A branch that was deleted.
#[derive(Debug, Clone)]
pub struct DeletedBranch {
    pub branch: String,
    pub commit_id: ObjectId,
    /// The entry of `tine recover` that brings it back, where nothing else reaches its commits.
    pub recover: Option<u64>,
    /// The ref that it was an alias of (full name).
    pub alias_of: Option<String>,
}

/// Everybody's branches.
pub struct Known<'s> {
    store: &'s Store,
    repository: &'s Repository,
    checkouts: Vec<Checkout>,
    /// Those that can be read.
    pub records: Vec<ForkRecord>,
}

impl<'s> Known<'s> {
    pub fn now(store: &'s Store, repository: &'s Repository) -> Result<Known<'s>, ChangeError> {
        let records = store.records().0;
        let mut checkouts = repository.checkouts()?;
        assume_branches(&mut checkouts, &records);
        Ok(Known {
            store,
            repository,
            checkouts,
            records,
        })
    }

    /// The forks whose HEAD cannot be read, and why.
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

    /// Who has the branch `name` (short) checked out, or comes back to it when a rebase or
    /// bisection ends.
    pub fn holder(&self, name: &str) -> Option<Holder> {
        let full_name = full_name(self.repository.branch_behind(name).as_bytes());
        let checkout = self
            .checkouts
            .iter()
            .find(|checkout| checkout.uses(&full_name))?;
        Some(self.holder_at(checkout))
    }

    /// Whether the one who has the branch (short name) comes back to it when a rebase or bisection
    /// ends.
    pub fn is_pending(&self, name: &str) -> bool {
        let full_name = full_name(self.repository.branch_behind(name).as_bytes());
        let mut checkouts = self.checkouts.iter();
        let holder = checkouts.find(|checkout| checkout.uses(&full_name));
        holder.is_some_and(|checkout| checkout.is_pending(&full_name))
    }

    /// The forks that have the branch checked out, or are in the middle of something with it.
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

    /// Branches of forks, or all; sorted by name.
    pub fn list(&self, all: bool) -> Result<Vec<Listed>, ChangeError> {
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
                Ok(Listed {
                    holder: holders.get(behind(&tip.name).as_slice()).cloned(),
                    made_for: record.map(|record| record.name.clone()),
                    came_from: match record {
                        // A commit that is missing hides this figure, and nothing of the others.
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

    /// Fails where the branch is checked out.
    pub fn refuse_held(&self, name: &str) -> Result<(), ChangeError> {
        match self.holder(name) {
            None => Ok(()),
            Some(holder) => Err(ChangeError::BranchHeld {
                branch: name.to_owned(),
                holder,
            }),
        }
    }

    /// Fails where a checkout would have no branch any more. An alias goes without the branch
    /// behind it.
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

    /// Fails where several checkouts have the branch: it would move, and one of them would not
    /// follow. One whose directory is gone does not count.
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

    /// Deletes branches (short names), all or none. Without `force` those alone that nothing is
    /// lost with; with it what nothing else reaches is kept.
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

    /// Renames a branch (short names), with what forks remember of it; the forks whose HEAD
    /// follows. The caller has the turns of [`Known::forks_on`] it.
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
        // git refuses it, too: what is under way would come back to the old name.
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
            // The branch has its name: what one record lacks is found by `follow`.
            if let Err(error) = note_renamed(self.store, record, old, new) {
                log::warn!("{}: {error}", record.name);
            }
        }
        Ok(self.forks_on(old))
    }
}

/// Deletes a branch (short name) that nobody has checked out, at `tip`. Commits that nothing else
/// reaches become the entry `kept` of `tine recover` first; its number. The caller holds the
/// branch's lease.
///
/// # Errors
/// [`GitError::BranchCheckedOut`], and [`ChangeError::BranchNotMerged`] where there is no `kept`;
/// the branch stays then.
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

fn delete_with_settings(
    repository: &Repository,
    branch: &str,
    tip: ObjectId,
) -> Result<(), ChangeError> {
    repository.delete_branch(branch, tip)?;
    // Settings that stay mislead nobody until a branch of that name is made again.
    if let Err(error) = repository.forget_branch_settings(branch) {
        log::warn!("what is configured for the branch {branch} stays: {error}");
    }
    Ok(())
}

/// Where branches came from, and how far they are from there.
struct Origins<'r> {
    repository: &'r Repository,
    /// Branches that forks came from, by short name.
    tips: BTreeMap<String, Option<ObjectId>>,
    /// Of many forks that began together most are as far.
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

    /// The branch that the fork came from where that is still there, else the commit.
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
    /// The commit of a point that was found for the fork `spoken_of`, if for one. Of a view that is
    /// HEAD, of a snapshot the HEAD of that time. The fork that it is of must not change meanwhile.
    pub fn at(
        store: &Store,
        repository: &Repository,
        spoken_of: Option<&ForkName>,
        FoundPoint {
            point,
            tree,
            others,
        }: FoundPoint,
    ) -> Result<Start, ChangeError> {
        let no_commit = || ChangeError::NoCommit(point.to_string());
        let (commit_id, is_uncommitted) = match (&point, spoken_of, tree) {
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

    /// As git is to be told of it.
    pub fn revision(&self) -> String {
        match &self.point {
            Point::Revision(revision) => revision.clone(),
            _ => self.commit_id.to_string(),
        }
    }
}

/// The commit of a branch (short name) that must be there.
pub fn existing(repository: &Repository, name: &str) -> Result<ObjectId, ChangeError> {
    repository.check_branch_name(name)?;
    repository
        .branch(name)?
        .ok_or_else(|| ChangeError::NoSuchBranch(name.to_owned()))
}

/// Has records name the branches that git has renamed.
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
                        // What an alias leads to may be called otherwise by now; the alias is not.
                        Err(GitError::AliasOfNothing { .. } | GitError::AliasLoop { .. }) => true,
                        // It is, and nobody knows where.
                        Err(GitError::DamagedRef { .. }) => true,
                        found => found?.is_some(),
                    };
                    is_there.insert(name.clone(), there);
                    there
                }
            };
            if !there && let Some(now) = repository.renamed_to(name, record.created_secs)? {
                log::info!("{}: the branch {name} is called {now} now", record.name);
                // A record that cannot be written is its own fork's damage.
                if let Err(error) = note_renamed(store, &record, name, &now) {
                    log::warn!("{}: {error}", record.name);
                }
            }
        }
    }
    Ok(())
}

/// Has the record of a fork say which branch its HEAD is on.
pub fn note_head(
    store: &Store,
    repository: &Repository,
    name: &ForkName,
    head: &Head,
) -> Result<(), ChangeError> {
    let Some(branch) = head.short_branch() else {
        // Where it is detached it comes back to what it was on, if to anything.
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

fn note_renamed(
    store: &Store,
    record: &ForkRecord,
    old: &str,
    new: &str,
) -> Result<(), ChangeError> {
    // A word without a prefix means the fork of that name, where there is one.
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

/// Has a name of `old`, or a word that names it as a target, name `new`; whether it did.
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
