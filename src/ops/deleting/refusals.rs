//! Refusals of deletes that lose more than `tine recover` keeps.

use std::path::Path;

use crate::failure::{ErrorCode, Failure};
use crate::state::slots::ForkGuard;
use tine_git::own::worktrees_in;
use tine_path::RepoPath;
use tine_path::shell::shell_word;
use tine_store::{Fork, ForkName};

/// Refuses if the fork has repositories of submodules.
///
/// `git worktree remove` does so, too. Commits in a submodule are nowhere else until they are
/// pushed.
pub(super) fn refuse_submodules(name: &ForkName, fork: &Fork) -> Result<(), Failure> {
    if !fork.worktree.has_submodules() {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::UncommittedChanges,
        format!("{name} has repositories of submodules, which would go with it"),
    )
    .hint("push what was committed in them; `--force` deletes them, or sets the fork aside if they have commits that no remote branch has"))
}

/// Refuses if a snapshot that a command asked for would be lost.
pub(super) fn refuse_snapshots(guard: &ForkGuard<'_>) -> Result<(), Failure> {
    let name = guard.name();
    let snapshots = guard.daemon.store.snapshots(name)?;
    let asked: Vec<&str> = snapshots
        .iter()
        .filter(|snapshot| !snapshot.reason.is_automatic())
        .map(|snapshot| snapshot.name.as_str())
        .collect();
    match asked.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            ErrorCode::UncommittedChanges,
            format!(
                "{name} has snapshots, which would go with it: {}",
                asked.join(", ")
            ),
        )
        .hint(format!(
            "`tine new OTHER --from-fork {name}@{first}` keeps one as a fork; after `--force` `tine recover` brings them back"
        ))),
    }
}

/// Refuses if git made worktrees in the fork that still exist.
///
/// Their git directories are in the fork's. A linked worktree has none: git registers worktrees
/// that are made in it with the main repository.
pub(crate) fn refuse_worktrees(
    name: &ForkName,
    fork: &Fork,
    mount_dir: &Path,
) -> Result<(), Failure> {
    if !fork.worktree.is_own() {
        return Ok(());
    }
    let exists = |dir: &Path| match dir.strip_prefix(mount_dir) {
        // The fork need not be mounted.
        Ok(within) => RepoPath::parse(within.join(".git").as_os_str().as_encoded_bytes())
            .is_ok_and(|path| fork.workspace.resolve(&path).is_ok()),
        Err(_) => dir.join(".git").symlink_metadata().is_ok(),
    };
    let mut worktrees = worktrees_in(fork.worktree.git_dir(), mount_dir)?;
    worktrees.retain(|dir| exists(dir));
    let Some(first) = worktrees.first() else {
        return Ok(());
    };
    let shown = |dir: &Path| shell_word(dir.as_os_str().as_encoded_bytes());
    let failure = Failure::new(
        ErrorCode::UncommittedChanges,
        format!(
            "{name} has a worktree, which would lose its repository: {}",
            first.display()
        ),
    )
    .hint(format!(
        "`git -C {} worktree remove {}` removes it; `tine delete {name} --force` leaves its files without a repository",
        shown(mount_dir),
        shown(first)
    ));
    let others = worktrees.iter().skip(1);
    Err(others.fold(failure, |failure, dir| {
        failure.cause(format!("{} is another one", dir.display()))
    }))
}
