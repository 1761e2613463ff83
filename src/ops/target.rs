//! Targets of merges and sequences: a fork, a branch, or another checkout; and their moves.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::failure::{ErrorCode, Failure};
use crate::locks;
use crate::protocol::MergeTarget;
use crate::state::slots::{Daemon, ForkGuard};
use crate::state::taking;
use tine_change::advance::{self, Step};
use tine_change::branches::{self, BranchUsage};
use tine_change::changeset::{self, Blobs};
use tine_change::checkout;
use tine_change::merge::Tip;
use tine_git::{GitError, Head, ObjectId, Repository};
use tine_path::shell::shell_word;
use tine_store::{ForkName, SnapshotOptions, SnapshotReason};
use tine_store::{Lease, LeaseKey};
use tine_workspace::Actor;

/// Location of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Branch that no checkout has checked out.
    Branch(String),
    /// Branch, and the checkout that has it and is not a fork's.
    Checkout(String, PathBuf),
    /// Fork, with any HEAD.
    Fork(ForkName),
}

/// Writes the word that names the target: `fork:x`, `branch:y`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Fork(fork) => write!(f, "fork:{fork}"),
            Holder::Branch(branch) | Holder::Checkout(branch, _) => write!(f, "branch:{branch}"),
        }
    }
}

/// Takes the leases of `holder` and of the branches of `guards`.
///
/// `by` is the command that holds the leases. Under them it resolves the target again with `find`.
///
/// # Errors
/// `ref-moved` if the target is another by then, so that the caller plans again; `lease-held`.
pub(crate) fn lease<'d>(
    daemon: &'d Daemon,
    repository: &Repository,
    by: &str,
    holder: &Holder,
    guards: &[&ForkGuard<'_>],
    find: impl Fn() -> Result<Holder, Failure>,
) -> Result<Lease<'d>, Failure> {
    locks::lease(daemon, by, || {
        if find()? != *holder {
            let name = holder.to_string();
            return Err(GitError::RefMoved { name }.into());
        }
        let heads = guards.iter().map(|guard| locks::head_of(guard, repository));
        let mut keys = heads.collect::<Result<Vec<_>, _>>()?.concat();
        match holder {
            Holder::Branch(branch) => keys.push(LeaseKey::Branch(branch.clone())),
            Holder::Checkout(branch, dir) => {
                keys.push(LeaseKey::Branch(branch.clone()));
                keys.push(LeaseKey::Checkout(dir.clone()));
            }
            // The branch of its HEAD is among those of the guards.
            Holder::Fork(_) => {}
        }
        Ok(keys)
    })
}

/// Checked move of a target, with the locks that keep it possible.
pub(crate) struct Ready<'a>(Option<checkout::PreparedMove<'a>>);

impl Ready<'_> {
    /// Returns the value for a fork, which needs only its guard.
    pub(crate) fn fork() -> Ready<'static> {
        Ready(None)
    }
}

/// Returns the commit that the step moves the branch from.
fn from_of(branch: &str, step: &Step) -> Result<ObjectId, Failure> {
    step.from
        .ok_or_else(|| GitError::UnknownRevision(branch.to_owned()).into())
}

/// Target, with the guard of the fork if it is one.
pub(crate) struct Target<'a> {
    pub daemon: &'a Arc<Daemon>,
    /// User and command for the reflog and the log of operations.
    pub by: Actor<'a>,
    pub repository: &'a Repository,
    /// Location of the target when it was resolved.
    pub holder: &'a Holder,
    /// Guard of a target fork. `None` for a branch or checkout.
    pub guard: Option<&'a ForkGuard<'a>>,
}

impl Target<'_> {
    /// Takes the target's leases, and resolves it again with `find` under them.
    pub(crate) fn lease(
        &self,
        find: impl Fn() -> Result<Holder, Failure>,
    ) -> Result<Lease<'_>, Failure> {
        let guards: Vec<&ForkGuard<'_>> = self.guard.into_iter().collect();
        lease(
            self.daemon,
            self.repository,
            self.by.command,
            self.holder,
            &guards,
            find,
        )
    }

    /// Returns the target's commit and tree, without uncommitted changes.
    pub(crate) fn tip(&self) -> Result<Tip, Failure> {
        let commit_id = match self.holder {
            Holder::Fork(_) => self.head()?.commit_id(),
            Holder::Branch(branch) | Holder::Checkout(branch, _) => {
                self.repository.branch(branch)?
            }
        };
        Ok(Tip {
            commit_id,
            tree_id: self.repository.tree_of(commit_id)?,
        })
    }

    /// Describes the target for an answer.
    pub(crate) fn line(&self) -> Result<MergeTarget, Failure> {
        Ok(match self.holder {
            Holder::Branch(branch) => MergeTarget {
                branch: Some(branch.clone()),
                fork: None,
                checkout: None,
            },
            Holder::Checkout(branch, dir) => MergeTarget {
                branch: Some(branch.clone()),
                fork: None,
                checkout: Some(dir.clone()),
            },
            Holder::Fork(fork) => MergeTarget {
                branch: self.head()?.short_branch().map(str::to_owned),
                fork: Some(fork.clone()),
                checkout: None,
            },
        })
    }

    /// Returns HEAD of a target fork.
    fn head(&self) -> Result<Head, Failure> {
        Ok(self
            .repository
            .head_of(self.guard()?.open()?.worktree.git_dir())?)
    }

    fn guard(&self) -> Result<&ForkGuard<'_>, Failure> {
        self.guard
            .ok_or_else(|| Failure::new(ErrorCode::Internal, "a fork is changed without its lock"))
    }

    /// Refuses if the target has uncommitted changes.
    pub(crate) fn refuse_uncommitted(&self) -> Result<(), Failure> {
        let (what, is_clean) = match self.holder {
            Holder::Branch(_) => return Ok(()),
            Holder::Checkout(_, dir) => (
                format!("the checkout at {}", dir.display()),
                self.repository.is_checkout_clean(dir)?,
            ),
            Holder::Fork(fork) => {
                let changeset =
                    changeset::changeset(self.repository, &*self.guard()?.open()?, Blobs::Hash)?;
                (fork.to_string(), changeset.changes.is_empty())
            }
        };
        if is_clean {
            return Ok(());
        }
        Err(Failure::new(
            ErrorCode::UncommittedChanges,
            format!("{what} has changes that are not committed"),
        )
        .hint("commit them first; with `--force` they stay as they are, where nothing comes to their places"))
    }

    /// Checks whether the target can make the step.
    ///
    /// It locks a checkout from here on, so that the move is still possible when the sources are
    /// committed.
    pub(crate) fn check(&self, step: &Step) -> Result<Ready<'_>, Failure> {
        self.refuse_held_twice()?;
        match self.holder {
            Holder::Fork(_) => {
                advance::preview(self.repository, &*self.guard()?.open()?, step)?;
                Ok(Ready(None))
            }
            Holder::Checkout(branch, dir) => {
                let from = from_of(branch, step)?;
                self.repository.check_branch_unlocked(branch)?;
                let commits = (from, step.to);
                let moving = checkout::prepare(
                    &self.daemon.store,
                    self.repository,
                    (dir, branch),
                    commits,
                    &step.reflog,
                )?;
                Ok(Ready(Some(moving)))
            }
            Holder::Branch(branch) => {
                self.repository.check_branch_unlocked(branch)?;
                Ok(Ready(None))
            }
        }
    }

    /// Refuses if two checkouts have the branch.
    ///
    /// Only one of them would follow it.
    fn refuse_held_twice(&self) -> Result<(), Failure> {
        if let Some(branch) = self.line()?.branch {
            BranchUsage::now(&self.daemon.store, self.repository)?.refuse_held_twice(&branch)?;
        }
        Ok(())
    }

    /// Moves the target, and returns the snapshot of a fork's state before.
    ///
    /// The caller holds the target's leases.
    pub(crate) fn go(
        &self,
        ready: Ready<'_>,
        step: &Step,
        reason: SnapshotReason,
    ) -> Result<Option<ForkName>, Failure> {
        match (self.holder, ready.0) {
            (Holder::Branch(branch), _) => {
                let from = from_of(branch, step)?;
                self.repository
                    .move_branch(branch, from, step.to, &step.reflog)?;
                Ok(None)
            }
            (Holder::Checkout(..), Some(moving)) => {
                moving.go()?;
                Ok(None)
            }
            (Holder::Checkout(branch, _), None) => Err(Failure::new(
                ErrorCode::Internal,
                format!("the checkout of {branch} was not looked at"),
            )),
            (Holder::Fork(_), _) => self.advance(self.guard()?, step, reason).map(Some),
        }
    }

    /// Runs git's hooks after a merge, if the target is a checkout.
    ///
    /// A hook may call tine, so the caller must hold no guard and no lease.
    pub(crate) fn after(repository: &Repository, holder: &Holder) {
        if let Holder::Checkout(_, dir) = holder {
            repository.after_checkout_move(dir);
        }
    }

    /// Moves a fork's HEAD and view, and returns the snapshot before.
    fn advance(
        &self,
        guard: &ForkGuard<'_>,
        step: &Step,
        reason: SnapshotReason,
    ) -> Result<ForkName, Failure> {
        let store = &self.daemon.store;
        let name = guard.name();
        let open = guard.open()?;
        let before = store
            .take_snapshot(name, &open, &SnapshotOptions::because(reason))?
            .name;
        if let Err(error) = advance::advance(store, self.repository, name, &open, self.by, step) {
            store.remove_snapshot(name, &before)?;
            return Err(error.into());
        }
        guard.forget_settled();
        log::info!("{name}: HEAD is {}; what it was is {before}", step.to);
        Ok(before)
    }
}

/// Recorded move of a target. Commits are in hex.
pub(crate) struct NotedMove<'a> {
    /// Word that names the target, from [`word_for`] or from `Holder`'s `Display`.
    pub target: &'a str,
    /// Branch that the target was on.
    pub branch: Option<&'a str>,
    /// Commit before the move. `None` means that the branch had none.
    pub before: Option<&'a str>,
    /// Commit after the move.
    pub after: &'a str,
}

/// Returns whether the move was taken back.
///
/// This is so if the target is on the same branch, still has the commit before, and does not have
/// the commit after. It is not so if the target is gone or on another branch.
pub(crate) fn was_taken_back(
    daemon: &Daemon,
    repository: &Repository,
    noted: &NotedMove<'_>,
) -> bool {
    let look = || -> Result<bool, Failure> {
        let (branch, tip) = match find_target(daemon, repository, noted.target)? {
            Holder::Branch(branch) | Holder::Checkout(branch, _) => {
                let tip = repository.branch(&branch)?;
                (Some(branch), tip)
            }
            Holder::Fork(fork) => {
                let worktree = daemon.store.worktree_of(&fork)?;
                let head = repository.head_of(worktree.git_dir())?;
                (head.short_branch().map(str::to_owned), head.commit_id())
            }
        };
        let has = |hex: &str| -> Result<bool, Failure> {
            let id = ObjectId::from_hex(hex.as_bytes()).map_err(GitError::library("read an id"))?;
            Ok(match tip {
                Some(tip) => tip == id || repository.is_ancestor(id, tip)?,
                None => false,
            })
        };
        Ok(branch.as_deref() == noted.branch
            && noted
                .before
                .is_none_or(|before| has(before).unwrap_or(false))
            && !has(noted.after)?)
    };
    look().unwrap_or_else(|failure| {
        log::debug!("{}: {failure}", noted.target);
        false
    })
}

/// Returns the word that later resolves to the same target.
///
/// `word` is `None` for the branch that a source came from. A target named as a fork is that fork
/// with any HEAD. A target named as a branch is that branch (in `line`), also if another checkout
/// has it by then.
pub(crate) fn word_for(
    daemon: &Daemon,
    word: Option<&str>,
    holder: &Holder,
    line: &MergeTarget,
) -> String {
    match (holder, &line.branch) {
        (Holder::Fork(_), Some(branch))
            if word.is_none_or(|word| fork_called(daemon, word).is_none()) =>
        {
            format!("branch:{branch}")
        }
        _ => holder.to_string(),
    }
}

/// Returns the existing fork that `word` names, with or without `fork:`.
pub(crate) fn fork_called(daemon: &Daemon, word: &str) -> Option<ForkName> {
    let name = ForkName::parse(word.strip_prefix("fork:").unwrap_or(word)).ok()?;
    daemon.store.record(&name).is_ok().then_some(name)
}

/// Resolves `word` to a fork or branch.
pub(crate) fn find_target(
    daemon: &Daemon,
    repository: &Repository,
    word: &str,
) -> Result<Holder, Failure> {
    if let Some(fork) = word.strip_prefix("fork:") {
        let fork = ForkName::parse(fork)?;
        daemon.store.record(&fork)?;
        return Ok(Holder::Fork(fork));
    }
    let (branch, only_branch) = match word.strip_prefix("branch:") {
        Some(branch) => (branch, true),
        None => (word.strip_prefix("refs/heads/").unwrap_or(word), false),
    };
    if !only_branch && let Some(fork) = fork_called(daemon, word) {
        return Ok(Holder::Fork(fork));
    }
    holder_of(daemon, repository, branch)
}

/// Returns the branch with the fork or checkout that has it.
pub(crate) fn holder_of(
    daemon: &Daemon,
    repository: &Repository,
    branch: &str,
) -> Result<Holder, Failure> {
    if repository.branch(branch)?.is_none() {
        return Err(Failure::new(
            ErrorCode::UnknownRevision,
            format!("{branch} is neither a fork nor a branch"),
        )
        .hint(
            "`tine list` shows the forks, `git branch` the branches; `git branch NAME` makes one",
        ));
    }
    // A branch alias means the branch behind it.
    let branch = repository.branch_behind(branch);
    let branch = branch.as_str();
    for record in daemon.store.records().0 {
        // This registers a linked worktree that was removed again, so that its branch is known.
        if let Err(error) = daemon.store.worktree_of(&record.name) {
            log::warn!("{}: {error}", record.name);
        }
    }
    let known = BranchUsage::now(&daemon.store, repository)?;
    let damaged = known.damaged();
    for (fork, reason) in &damaged {
        log::warn!("{fork} is left out: its HEAD cannot be read: {reason}");
    }
    Ok(match known.holder(branch) {
        // A rebase or similar operation will come back to the branch, so the fork must not move it.
        Some(branches::Holder::Fork(_, dir)) if known.is_pending(branch) => {
            Holder::Checkout(branch.to_owned(), dir)
        }
        // Another program moved the branch here, and the fork goes on with its own.
        Some(branches::Holder::Fork(fork, _))
            if has_another(daemon, repository, &fork, branch)? =>
        {
            Holder::Branch(branch.to_owned())
        }
        Some(branches::Holder::Fork(fork, _)) => {
            match damaged.into_iter().find(|(name, _)| *name == fork) {
                Some((fork, reason)) => return Err(damaged_holder(daemon, &fork, branch, reason)),
                None => Holder::Fork(fork),
            }
        }
        Some(branches::Holder::Main(dir) | branches::Holder::Worktree(dir)) => {
            Holder::Checkout(branch.to_owned(), dir)
        }
        None => Holder::Branch(branch.to_owned()),
    })
}

/// Returns whether a fork's own branch is elsewhere than `branch`.
fn has_another(
    daemon: &Daemon,
    repository: &Repository,
    fork: &ForkName,
    branch: &str,
) -> Result<bool, Failure> {
    let record = daemon.store.record(fork)?;
    if record.git_kind.is_linked() {
        return Ok(false);
    }
    taking::bring_fork(daemon, fork);
    let own = repository.refs_at(&daemon.store.own_git_dir(fork));
    // Other commands report a damaged git directory.
    let own = own.branch_target(branch).ok().flatten();
    Ok(own.is_some() && own != repository.branch_target(branch)?)
}

/// Returns the failure for a branch that a damaged fork may have.
fn damaged_holder(daemon: &Daemon, fork: &ForkName, branch: &str, reason: String) -> Failure {
    let failure = Failure::new(
        ErrorCode::StoreDamaged,
        format!("the fork {fork} had the branch {branch:?}, and its HEAD cannot be read"),
    )
    .cause(reason);
    match daemon.store.record(fork) {
        Ok(record) => {
            let worktrees = daemon.repository.common_dir().join("worktrees");
            let head = worktrees.join(record.worktree_id).join("HEAD");
            failure.hint(format!(
                "`echo {} > {}` puts it on the branch again",
                shell_word(format!("ref: refs/heads/{branch}")),
                shell_word(head.as_os_str().as_bytes())
            ))
        }
        Err(_) => failure,
    }
}
