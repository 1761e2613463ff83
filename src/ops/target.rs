//! What is merged into, or has commits put on it: a fork, a branch, or another checkout; and moving
//! it.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::failure::{ErrorCode, Failure};
use crate::locks;
use crate::protocol::MergeTarget;
use crate::state::slots::{Daemon, ForkGuard};
use tine_change::advance::{self, Step};
use tine_change::branches::{self, Known};
use tine_change::changeset::{self, Blobs};
use tine_change::checkout;
use tine_change::merge::Tip;
use tine_git::{GitError, Head, ObjectId, Repository};
use tine_path::shell::shell_word;
use tine_workspace::store::{Lease, LeaseKey};
use tine_workspace::{Actor, ForkName, SnapshotOptions, SnapshotReason};

/// Where the target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// In nobody's checkout.
    Branch(String),
    /// In one that is no fork's.
    Checkout(String, PathBuf),
    /// A fork, wherever its HEAD is.
    Fork(ForkName),
}

/// The word that names it: `fork:x`, `branch:y`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Fork(fork) => write!(f, "fork:{fork}"),
            Holder::Branch(branch) | Holder::Checkout(branch, _) => write!(f, "branch:{branch}"),
        }
    }
}

/// Takes the leases of what `holder` is, and of the branches that the forks of `guards` are on, for
/// the command `by`. Looks again under them, with `find`, whether that is still so.
///
/// # Errors
/// `ref-moved` where it is not, to be planned again; `lease-held`.
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
            // Its HEAD is among those of the guards.
            Holder::Fork(_) => {}
        }
        Ok(keys)
    })
}

/// What a target holds from when it was found that it can move until it has.
pub(crate) struct Ready<'a>(Option<checkout::PreparedMove<'a>>);

impl Ready<'_> {
    /// Of a fork, which finds out by itself.
    pub(crate) fn fork() -> Ready<'static> {
        Ready(None)
    }
}

/// Where the branch that the step moves is.
fn from_of(branch: &str, step: &Step) -> Result<ObjectId, Failure> {
    step.from
        .ok_or_else(|| GitError::UnknownRevision(branch.to_owned()).into())
}

/// A target, with the turn of the fork that it is.
pub(crate) struct Target<'a> {
    pub daemon: &'a Arc<Daemon>,
    pub by: Actor<'a>,
    pub repository: &'a Repository,
    pub holder: &'a Holder,
    pub guard: Option<&'a ForkGuard<'a>>,
}

impl Target<'_> {
    /// Takes the leases of what moves with it, and looks again with `find` whether that is it.
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

    /// What it stands on. What is uncommitted in a fork is no part of it.
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

    /// Of a fork.
    fn head(&self) -> Result<Head, Failure> {
        Ok(self
            .repository
            .head_of(self.guard()?.open()?.worktree.git_dir())?)
    }

    fn guard(&self) -> Result<&ForkGuard<'_>, Failure> {
        self.guard
            .ok_or_else(|| Failure::new(ErrorCode::Internal, "a fork is changed without its lock"))
    }

    /// Refuses where something is uncommitted in it.
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
        match is_clean {
            true => Ok(()),
            false => Err(Failure::new(
                ErrorCode::UncommittedChanges,
                format!("{what} has changes that are not committed"),
            )
            .hint("commit them first; with `--force` they stay as they are, where nothing comes to their places")),
        }
    }

    /// Finds out whether it could move so. A checkout is locked from here on, so that it still can
    /// when the sources are committed.
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

    /// Only one checkout would follow the branch.
    fn refuse_held_twice(&self) -> Result<(), Failure> {
        if let Some(branch) = self.line()?.branch {
            Known::now(&self.daemon.store, self.repository)?.refuse_held_twice(&branch)?;
        }
        Ok(())
    }

    /// Moves it; the snapshot of what it was, where it is a fork. The caller holds its leases.
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

    /// Runs what git runs after a merge in a checkout, if the target is one. A hook may call tine:
    /// the caller has no turn and no lease.
    pub(crate) fn after(repository: &Repository, holder: &Holder) {
        if let Holder::Checkout(_, dir) = holder {
            repository.after_checkout_move(dir);
        }
    }

    /// Moves a fork's HEAD and view, after a snapshot, which is given.
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

/// A move of a target that was written down when it was made; commits in hex.
pub(crate) struct NotedMove<'a> {
    pub target: &'a str,
    /// The branch that the target was on.
    pub branch: Option<&'a str>,
    pub before: Option<&'a str>,
    pub after: &'a str,
}

/// Whether the move was taken back: its target is on the same branch, still has what it had before,
/// and does not have what it came to. A target that is gone, or is elsewhere, took nothing back.
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

/// The word for a target that `word` named (`None`: the branch that a source came from), to find it
/// again: a fork is meant wherever its HEAD is, and a branch, which is at `line`, whoever has it
/// checked out by then.
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

pub(crate) fn fork_called(daemon: &Daemon, word: &str) -> Option<ForkName> {
    let name = ForkName::parse(word.strip_prefix("fork:").unwrap_or(word)).ok()?;
    daemon.store.record(&name).is_ok().then_some(name)
}

/// What `word` names: a fork, or a branch.
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

/// Who has the branch checked out.
pub(crate) fn holder_of(
    daemon: &Daemon,
    repository: &Repository,
    branch: &str,
) -> Result<Holder, Failure> {
    if repository.branch(branch)?.is_none() {
        return Err(Failure::new(
            ErrorCode::UnknownRevision,
            format!("{branch} is no fork and no branch"),
        )
        .hint(
            "`tine list` shows the forks, `git branch` the branches; `git branch NAME` makes one",
        ));
    }
    // An alias means the branch behind it.
    let branch = repository.branch_behind(branch);
    let branch = branch.as_str();
    for record in daemon.store.records().0 {
        // One that was removed is registered again, on its branch.
        if let Err(error) = daemon.store.worktree_of(&record.name) {
            log::warn!("{}: {error}", record.name);
        }
    }
    let known = Known::now(&daemon.store, repository)?;
    let damaged = known.damaged();
    for (fork, reason) in &damaged {
        log::warn!("{fork} is left out: its HEAD cannot be read: {reason}");
    }
    Ok(match known.holder(branch) {
        // A rebase or the like will come back to it: nothing may touch the branch.
        Some(branches::Holder::Fork(_, dir)) if known.is_pending(branch) => {
            Holder::Checkout(branch.to_owned(), dir)
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

/// The branch may be checked out in a fork that cannot say so.
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
